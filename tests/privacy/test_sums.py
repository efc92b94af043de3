"""The law of a sum of discrete Gaussians against plain convolution and 50 digits; the paper's approximation of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy.discrete_gaussian import log_pmf, pmf, sum_log_pmf, sum_residue_table, sum_variation

FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = json.loads((FOLDER / "kazan_reiter.json").read_text())


def convolution(sigma2: float, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Support and law by d plain convolutions."""
    reach = int(10 * math.sqrt(sigma2)) + 4
    one = pmf(np.arange(-reach, reach + 1), sigma2)
    law = one
    for _ in range(d - 1):
        law = np.convolve(law, one)
    half = len(law) // 2
    return np.arange(-half, half + 1), law


@pytest.mark.parametrize("sigma2", [0.02, 0.1, 0.5, 5.04, 30.0])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 27])
def test_the_sum_is_the_convolution(sigma2: float, d: int) -> None:
    s, law = convolution(sigma2, d)
    seen = law > 1e-290
    got = sum_log_pmf(s[seen], sigma2, d)
    near = law[seen] > 1e-12
    np.testing.assert_allclose(np.exp(got[near]), law[seen][near], rtol=1e-11)
    assert math.fsum(np.exp(got)) == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(sum_log_pmf(-s, sigma2, d), sum_log_pmf(s, sigma2, d))


@pytest.mark.parametrize(("sigma2", "d"), [(0.05, 3), (0.5, 4), (2.0, 3), (3.999, 2), (4.0, 2), (4.0, 3)])
def test_far_tails_keep_their_digits(sigma2: float, d: int) -> None:
    s2 = mpmath.mpf(sigma2)
    reach = 90
    norm = mpmath.fsum(mpmath.exp(-(n * n) / (2 * s2)) for n in range(-60, 61))
    one = {n: mpmath.exp(-(n * n) / (2 * s2)) / norm for n in range(-reach, reach + 1)}
    law = one
    for _ in range(d - 1):
        wider: dict[int, Any] = {}
        for a, p in law.items():
            for b, q in one.items():
                wider[a + b] = wider.get(a + b, mpmath.mpf(0)) + p * q
        law = wider
    for s in (0, 1, d, 20, 41, 60):
        assert float(sum_log_pmf(s, sigma2, d)) == pytest.approx(float(mpmath.log(law[s])), rel=1e-13)


def test_one_term_more_than_the_data_need_is_still_a_law() -> None:
    for d in (2, 3, 1000):
        half = int(12 * math.sqrt(0.3 * d)) + 20
        s = np.arange(-half, half + 1)
        p = np.exp(sum_log_pmf(s, 0.3, d))
        assert math.fsum(p) == pytest.approx(1, abs=1e-11)
        one = np.arange(-9, 10)
        variance = d * float((pmf(one, 0.3) * one**2).sum())
        assert float((p * s**2).sum()) == pytest.approx(variance, rel=1e-10)


@pytest.mark.parametrize("case", [c for c in REFERENCE if c["id"].startswith("s2_")], ids=lambda c: c["id"])
def test_the_distance_from_one_discrete_gaussian_is_that_of_the_reference(case: dict[str, Any]) -> None:
    got = sum_variation(1 / (2 * case["inputs"]["rho1"]), case["inputs"]["d"])
    assert got == pytest.approx(case["exact_value"], rel=case["tolerance"], abs=0)


@pytest.mark.parametrize(
    "case", [c for c in REFERENCE if c["id"].startswith("noise_")], ids=lambda c: c["id"]
)
def test_log_odds_under_exact_and_approximate_noise_are_those_of_the_reference(case: dict[str, Any]) -> None:
    given = case["inputs"]
    a, rho1, rho2, d = given["xstar1"], given["rho1"], given["rho2"], given["d"]
    b, rest = given["xstar2"], given["ystar"]
    s1, s2 = 1 / (2 * rho1), 1 / (2 * rho2)
    exact = case["id"].startswith("noise_exact")

    def rest_noise(s: np.ndarray) -> np.ndarray:
        return sum_log_pmf(s, s1, d) if exact else log_pmf(s, d * s1)

    assert case["inputs"]["c"] == 0
    other = np.arange(0, 3000)  # the rest of the block group, any count >= 0 alike

    def evidence(present: int) -> float:
        terms = rest_noise(rest - other) + log_pmf(b, s2, other + present)
        return float(log_pmf(a, s1, present)) + float(np.logaddexp.reduce(terms))

    got = evidence(1) - evidence(0) + math.log(0.5 / 0.5)
    assert got == pytest.approx(case["exact_value"], abs=case["tolerance"], rel=0)


@pytest.mark.parametrize("d", [2, 3, 27, 1000])
def test_from_sigma2_4_on_the_distance_is_nothing_as_the_shortcut_says(d: int) -> None:
    # Fourier: both laws are theta functions; their difference is carried by the first harmonics
    s2, total = mpmath.mpf(4), 4 * mpmath.mpf(d)

    def characteristic(s: Any, t: Any) -> Any:
        """Characteristic function of N_Z(0, s) by Poisson summation: a theta quotient."""
        top = mpmath.fsum(mpmath.exp(-s * (t + 2 * mpmath.pi * k) ** 2 / 2) for k in range(-6, 7))
        return top / mpmath.fsum(mpmath.exp(-s * (2 * mpmath.pi * k) ** 2 / 2) for k in range(-6, 7))

    # sup over t in [-pi, pi] of the difference, times the effective support, bounds the total variation
    grid = [mpmath.pi * i / 60 for i in range(61)]
    worst = max(abs(characteristic(s2, t) ** d - characteristic(total, t)) for t in grid)
    mean_square = mpmath.fsum((characteristic(s2, t) ** d - characteristic(total, t)) ** 2 for t in grid) / 61
    support = 2 * 12 * mpmath.sqrt(total)
    assert mpmath.sqrt(mean_square * support) / 2 < 1e-15
    assert worst < 1e-15
    assert sum_variation(4.0, d) == 0.0
    assert sum_variation(3.99, d) < 1e-13  # the sums themselves see only rounding here
    assert sum_variation(1.0, d) > 1e-9  # and would see a difference


def test_sums_of_vast_noise_need_no_memory() -> None:
    for sigma2 in (1e10, 1e18):
        s = np.array([0, 1, -(10**9), 2**53])
        np.testing.assert_allclose(sum_log_pmf(s, sigma2, 27), log_pmf(s, 27 * sigma2), rtol=1e-13)


def test_sums_refuse_what_they_cannot_mean() -> None:
    for d in (0, -1, 1.5, True):
        with pytest.raises(BudgetError, match="whole number >= 1"):
            sum_log_pmf(0, 1.0, d)
    with pytest.raises(BudgetError, match="the sum of exact counts is exact"):
        sum_residue_table(0.0, 3)
    with pytest.raises(BudgetError, match=r"got -1\.0"):
        sum_variation(-1.0, 3)
    with pytest.raises(ReleaseError, match="got nan"):
        sum_log_pmf(math.nan, 1.0, 3)
    assert sum_log_pmf(2.5, 1.0, 3) == -np.inf  # never the probability of 2
    assert sum_log_pmf([2.0], 1.0, 3) == sum_log_pmf([2], 1.0, 3)
