"""The discrete Laplace against 50-digit sums, its draws with proved power, and the promise of pure privacy."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy import discrete_laplace as dl

SCALES = (0.002, 0.05, 0.3, 1.0, 2.0, 40.0, 1e4, 1e9)


def relative(got: Any, wanted: Any) -> float:
    if abs(wanted) < 1e-300:
        return 0.0 if abs(float(got)) < 1e-300 else math.inf
    return float(abs((mpmath.mpf(float(got)) - wanted) / wanted))


@pytest.mark.parametrize("scale", SCALES)
def test_log_pmf_and_tails_have_their_digits(scale: float) -> None:
    with mpmath.workdps(500):
        q = mpmath.exp(-1 / mpmath.mpf(scale))
        for k in (0, 1, -1, 3, 17, -400, 10**6, 2**53):
            wanted = mpmath.log((1 - q) / (1 + q)) - abs(k) / mpmath.mpf(scale)
            assert relative(dl.log_pmf(k, scale), wanted) <= 1e-13
            lower = mpmath.log(q ** (-k) / (1 + q)) if k <= 0 else mpmath.log(1 - q ** (k + 1) / (1 + q))
            if k <= 0 or q ** (k + 1) > mpmath.mpf(10) ** -400:
                assert relative(dl.log_cdf(k, scale), lower) <= 1e-12
                assert dl.log_sf(-k - 1, scale) == dl.log_cdf(k, scale)
        assert relative(dl.variance(scale), 2 * q / (1 - q) ** 2) <= 1e-13


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0, 9.0])
def test_closed_forms_are_those_of_plain_sums(scale: float) -> None:
    n = np.arange(-400, 401)
    p = dl.pmf(n, scale)
    assert math.fsum(p) == pytest.approx(1, abs=1e-14)
    assert math.fsum(p * n**2) == pytest.approx(float(dl.variance(scale)), rel=1e-13)
    np.testing.assert_allclose(dl.cdf(n, scale), np.cumsum(p), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(dl.sf(n, scale) + dl.cdf(n, scale), 1, rtol=1e-14)


def test_zero_scale_is_a_point_mass_and_all_broadcasts() -> None:
    np.testing.assert_array_equal(dl.pmf([4, 5, 6], 0.0, 5), [0, 1, 0])
    np.testing.assert_array_equal(dl.cdf([4, 5, 6], 0.0, 5), [0, 1, 1])
    assert dl.variance(0.0) == 0
    assert dl.log_pmf(np.arange(3), [[1.0], [2.0]]).shape == (2, 3)
    assert dl.log_pmf(2.5, 1.0) == -np.inf
    assert dl.log_pmf(2**53 - 1, 0.5, 2**53) == dl.log_pmf(-1, 0.5)


@pytest.mark.parametrize("epsilon", ["0.01", "0.25", "1", "4"])
@pytest.mark.parametrize(("neighbours", "changes"), [("unbounded", (1, 0)), ("bounded", (1, -1))])
def test_the_scale_keeps_the_privacy_loss_at_epsilon(
    epsilon: str, neighbours: str, changes: tuple[int, int]
) -> None:
    scale = dl.laplace_scale(epsilon, neighbours)
    n = np.arange(-50, 51)
    # the worst loss over two cells is the sum of each cell's worst
    loss = sum(np.abs(dl.log_pmf(n, scale) - dl.log_pmf(n, scale, change)).max() for change in changes)
    assert loss == pytest.approx(float(epsilon), rel=1e-12)


def chi_square_p(draws: np.ndarray, scale: float) -> float:
    n = np.arange(-int(30 * scale) - 2, int(30 * scale) + 3)
    expected = dl.pmf(n, scale) * draws.size
    n, expected = n[expected >= 10], expected[expected >= 10]
    observed = np.array([(draws == k).sum() for k in n])
    o, e = np.append(observed, draws.size - observed.sum()), np.append(expected, draws.size - expected.sum())
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), len(o) - 1))


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
def test_draws_have_their_law_and_the_test_would_see_a_tenth(scale: float) -> None:
    draws = dl.sample(scale, 60_000, np.random.default_rng(1))
    assert chi_square_p(draws, scale) > 1e-3
    assert chi_square_p(dl.sample(1.1 * scale, 60_000, np.random.default_rng(2)), scale) < 1e-6


def test_draws_reach_far_without_overflow() -> None:
    count = 2**31 - 1
    draws = dl.sample(1e6, 20_000, np.random.default_rng(3), count)
    assert draws.dtype == np.int64
    assert np.var(draws - count) == pytest.approx(2e12, rel=0.06)
    assert (dl.sample([0.0, 1e-9], (50, 2), np.random.default_rng(3), [1, 2]) == [1, 2]).all()


def test_what_cannot_be_is_refused() -> None:
    rng = np.random.default_rng(0)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(BudgetError, match="scale must be a finite number"):
            dl.log_pmf(0, bad)
    with pytest.raises(ReleaseError, match="mu must be a whole number"):
        dl.log_pmf(0, 1.0, 0.5)
    with pytest.raises(ReleaseError, match="mu must be a whole number"):
        dl.sample(1.0, 3, rng, 0.5)
    with pytest.raises(BudgetError, match="too wide to draw"):
        dl.sample(1e300, 3, rng)
    with pytest.raises(BudgetError, match="'bounded'"):
        dl.laplace_scale(1, "both")
    with pytest.raises(BudgetError, match="must be exact"):
        dl.laplace_scale(0.1, "bounded")
    assert dl.laplace_scale("inf", "bounded") == 0
    assert dl.laplace_scale(0, "bounded") == math.inf
