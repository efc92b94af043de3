"""The formulas of the discrete Gaussian against 50-digit sums, and the ids ``dg_`` of the reference."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from adversary.errors import AdversaryError, BudgetError, ReleaseError
from adversary.privacy import discrete_gaussian as dg

FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = json.loads((FOLDER / "kazan_reiter.json").read_text())
SIGMA2 = (
    1e-6,
    1e-3,
    0.02,
    0.05,
    0.15,
    0.159,
    1 / (2 * math.pi),
    0.16,
    0.25,
    1.0,
    5.04,
    30.0,
    195.9,
    196.1,
    1e4,
    1e6,
)
"""Either side of 1/(2 pi), where the series change, and of 196, where the tails do."""
VAST = (1e10, 1e14, 1e18)
FRACTIONS = (0.0, 0.25, 0.5, -0.3, 0.4999, 1e-9)


class Exact:
    """N_Z(mu, sigma2) by plain sums at 50 digits; by the theta function where these would be long."""

    def __init__(self, sigma2: float, mu: float = 0.0) -> None:
        # one minus a probability of 1e-220 is still to be told from one
        mpmath.mp.dps = 700 if sigma2 < 0.01 else 50
        self.s2, self.mu = mpmath.mpf(sigma2), mpmath.mpf(mu)
        self.centre = int(mpmath.nint(self.mu))
        self.reach = int(16 * math.sqrt(sigma2)) + 4
        self.short = sigma2 <= 1e4

    def terms(self, low: int | None = None, high: int | None = None) -> Any:
        low = self.centre - self.reach if low is None else low
        high = self.centre + self.reach if high is None else high
        return ((n, mpmath.exp(-((n - self.mu) ** 2) / (2 * self.s2))) for n in range(low, high + 1))

    @functools.cached_property
    def log_norm(self) -> Any:
        return mpmath.log(self.norm)

    @functools.cached_property
    def norm(self) -> Any:
        if self.short:
            return mpmath.fsum(w for _, w in self.terms())
        tail = mpmath.fsum(
            2 * mpmath.exp(-2 * mpmath.pi**2 * self.s2 * k * k) * mpmath.cos(2 * mpmath.pi * k * self.mu)
            for k in (1, 2)
        )
        return mpmath.sqrt(2 * mpmath.pi * self.s2) * (1 + tail)

    def log_pmf(self, n: int) -> Any:
        return -((n - self.mu) ** 2) / (2 * self.s2) - self.log_norm

    def moment(self, f: Any) -> Any:
        return mpmath.fsum(f(n) * w for n, w in self.terms()) / self.norm

    def log_lower(self, x: int) -> Any:
        """Log P(X <= x) by the sum downward from x."""
        low = min(x, self.centre) - self.reach
        return mpmath.log(mpmath.fsum(w for _, w in self.terms(low, x))) - self.log_norm


def relative(got: Any, wanted: Any) -> float:
    if abs(wanted) < 1e-300:  # where double precision ends, zero is right
        return 0.0 if abs(float(got)) < 1e-300 else math.inf
    return float(abs((mpmath.mpf(float(got)) - wanted) / wanted))


@pytest.mark.parametrize("sigma2", SIGMA2 + VAST)
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_log_pmf_has_thirteen_digits_from_the_centre_to_far_out(sigma2: float, fraction: float) -> None:
    sigma = math.sqrt(sigma2)
    for whole in (0, 7, -(2**31) + 1):
        mu = whole + fraction  # the float that results is the centre, exactly
        exact = Exact(sigma2, mu)
        for step in (0, 1, -1, 2, 3 * sigma, -10 * sigma, 40 * sigma, 1e6, -(2**40)):
            n = exact.centre + round(step)
            assert relative(dg.log_pmf(n, sigma2, mu), exact.log_pmf(n)) <= 1e-13, (n, mu)
        assert relative(dg.log_norm(sigma2, mu), exact.log_norm) <= 1e-13 or (
            abs(float(dg.log_norm(sigma2, mu)) - float(exact.log_norm)) <= 1e-15
        )


@pytest.mark.parametrize("sigma2", [1e-6, 0.3, 5.0, 1e18])
@pytest.mark.parametrize("count", [2**53, 2**53 - 1, -(2**53), 2**31])
def test_counts_up_to_2_to_the_53_lose_no_unit(sigma2: float, count: int) -> None:
    for other in (count - 1, count, count + 2):
        wanted = Exact(sigma2, 0.0).log_pmf(other - count)
        assert relative(dg.log_pmf(other, sigma2, count), wanted) <= 1e-13
    assert relative(dg.log_pmf(count, sigma2), Exact(sigma2, 0.0).log_pmf(count)) <= 1e-13


def test_the_pmf_sums_to_one_and_is_symmetric() -> None:
    for sigma2 in SIGMA2[:-2]:
        reach = int(10 * math.sqrt(sigma2)) + 3
        n = np.arange(-reach, reach + 1)
        p = dg.pmf(n, sigma2)
        assert abs(math.fsum(p) - 1) < 1e-14
        np.testing.assert_array_equal(p, p[::-1])


@pytest.mark.parametrize("sigma2", [s for s in SIGMA2 if s <= 1e3])
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_mean_variance_and_entropy_are_those_of_the_sums(sigma2: float, fraction: float) -> None:
    exact = Exact(sigma2, 3 + fraction)
    mean = exact.moment(lambda n: n)
    variance = exact.moment(lambda n: (n - mean) ** 2)
    entropy = exact.moment(lambda n: (n - exact.mu) ** 2) / (2 * exact.s2) + exact.log_norm
    assert relative(dg.mean(sigma2, 3 + fraction), mean) <= 1e-14
    assert relative(dg.variance(sigma2, 3 + fraction), variance) <= 2e-12 or variance < 1e-300
    assert relative(dg.entropy(sigma2, 3 + fraction), entropy) <= 2e-12 or entropy < 1e-300


@pytest.mark.parametrize("sigma2", [s for s in SIGMA2 if s <= 1e4])
@pytest.mark.parametrize("fraction", [0.0, 0.25, -0.3])
def test_both_tails_keep_their_digits_by_logarithm(sigma2: float, fraction: float) -> None:
    exact, mirrored = Exact(sigma2, 2 + fraction), Exact(sigma2, -(2 + fraction))
    sigma = math.sqrt(sigma2)
    for step in (0, 1, 2 * sigma, 8 * sigma, 39 * sigma, 500 * sigma, 1 + 0.4 * sigma2):
        low, high = 2 - round(step), 2 + round(step)
        assert relative(dg.log_cdf(low, sigma2, 2 + fraction), exact.log_lower(low)) <= 2e-12, low
        # P(X > x) is P(-X <= -x - 1)
        wanted = mirrored.log_lower(-high - 1)
        assert relative(dg.log_sf(high, sigma2, 2 + fraction), wanted) <= 2e-12, high
        above = mpmath.log1p(-mpmath.exp(wanted))
        assert relative(dg.log_cdf(high, sigma2, 2 + fraction), above) <= 2e-12 or above > -1e-300
        assert float(dg.cdf(high, sigma2, 2 + fraction) + dg.sf(high, sigma2, 2 + fraction)) == pytest.approx(
            1
        )


def test_tails_of_vast_noise_are_those_of_the_gaussian_moved_by_half() -> None:
    sigma2 = 1e18
    for z in (0.0, -1.0, -5.0, -30.0):
        x = round(z * 1e9)
        wanted = mpmath.log(mpmath.ncdf((mpmath.mpf(x) + 0.5) / mpmath.mpf(10) ** 9))
        assert relative(dg.log_cdf(x, sigma2), wanted) <= 1e-12


@pytest.mark.parametrize("sigma2", [1e-3, 0.05, 0.2, 1.0, 5.0, 300.0, 1e6])
@pytest.mark.parametrize("mu", [0, 0.4, -17])
def test_ppf_is_the_smallest_count_that_reaches_the_probability(sigma2: float, mu: float) -> None:
    q = np.array([1e-300, 1e-20, 1e-6, 0.025, 0.5, 0.9, 0.975, 1 - 1e-9])
    x = dg.ppf(q, sigma2, mu)
    assert (dg.cdf(x, sigma2, mu) >= q * (1 - 1e-12)).all()
    assert (dg.log_cdf(x - 1, sigma2, mu) < np.log(q)).all()
    there = np.arange(np.rint(mu) - 2, np.rint(mu) + 3)
    told_apart = dg.pmf(there, sigma2, mu) > 1e-14
    back = dg.ppf(dg.cdf(there, sigma2, mu), sigma2, mu)
    np.testing.assert_array_equal(back[told_apart & (back < np.inf)], there[told_apart & (back < np.inf)])
    assert dg.ppf(0.0, sigma2, mu) == -np.inf
    assert dg.ppf(1.0, sigma2, mu) == np.inf


def test_ppf_ends_where_neighbours_cannot_be_told_apart() -> None:
    for sigma in (1e11, 1e30, 1e100):
        q = dg.ppf([0.025, 0.3, 0.975], sigma**2, 3.0)
        np.testing.assert_allclose(
            q / sigma, [-1.959963984540054, -0.5244005127080407, 1.959963984540054], rtol=1e-10
        )


def test_zero_noise_is_a_point_mass() -> None:
    np.testing.assert_array_equal(dg.pmf([4, 5, 6], 0.0, 5), [0, 1, 0])
    np.testing.assert_array_equal(dg.cdf([4, 5, 6], 0.0, 5), [0, 1, 1])
    np.testing.assert_array_equal(dg.ppf([0.001, 0.5, 1.0], 0.0, 5), [5, 5, 5])
    assert (dg.mean(0.0, 5), dg.variance(0.0), dg.entropy(0.0)) == (5, 0, 0)


def test_everything_broadcasts() -> None:
    out = dg.log_pmf(np.arange(3), np.array([[1.0], [2.0]]), 0.5)
    assert out.shape == (2, 3)
    assert out[1, 2] == dg.log_pmf(2, 2.0, 0.5)
    for f in (dg.cdf, dg.log_sf, dg.log_cdf, dg.sf):
        assert f(np.arange(3), np.array([[1.0], [2.0]])).shape == (2, 3)
    assert dg.ppf(np.array([0.1, 0.2]), np.array([[1.0], [2.0]])).shape == (2, 2)


def test_a_count_with_a_fraction_has_no_probability() -> None:
    assert dg.log_pmf(2.5, 1.0) == -np.inf
    assert dg.cdf(2.5, 1.0) == dg.cdf(2, 1.0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: dg.log_pmf(0, -1.0), BudgetError, "got -1.0: write 0 for an exact count"),
        (lambda: dg.log_pmf(0, math.nan), BudgetError, "got nan"),
        (lambda: dg.log_pmf(0, math.inf), BudgetError, "was not measured, leave it out"),
        (lambda: dg.log_pmf(0, 0.0, 0.5), BudgetError, "an exact count has no fraction"),
        (lambda: dg.log_pmf(math.nan, 1.0), ReleaseError, "leave out what was not published"),
        (lambda: dg.log_pmf(2**63 - 1, 1.0), ReleaseError, r"\+-2\*\*62"),
        (lambda: dg.log_pmf(-(2**63), 1.0), ReleaseError, "got -9223372036854775808"),
        (lambda: dg.log_pmf("3", 1.0), ReleaseError, "must be a number"),
        (lambda: dg.log_pmf(0, 1.0, 1e30), ReleaseError, "mu must lie within"),
        (lambda: dg.ppf(1.5, 1.0), AdversaryError, r"q must lie in \[0, 1\], got 1.5"),
        (lambda: dg.ppf(math.nan, 1.0), AdversaryError, r"\[0, 1\]"),
    ],
)
def test_impossible_arguments_are_refused_with_the_way_out(call: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("case", [c for c in REFERENCE if c["id"].startswith("dg_")], ids=lambda c: c["id"])
def test_every_figure_of_the_reference_is_met(case: dict[str, Any]) -> None:
    kind, sigma2 = case["id"].split("_")[1], 1 / (2 * case["inputs"]["rho"])
    n = case["inputs"].get("n", 0)
    got = {
        "logZ": lambda: dg.log_norm(sigma2),
        "var": lambda: dg.variance(sigma2),
        "logpmf": lambda: dg.log_pmf(n, sigma2),
        "logsf": lambda: dg.log_sf(n - 1, sigma2),  # the reference counts n itself
    }[kind]()
    how = {case["tolerance_kind"]: case["tolerance"]}
    assert float(got) == pytest.approx(case["exact_value"], **{"rel": 0, "abs": 0, **how})
