"""Draws of the discrete Gaussian: chi-square with proved power, far ends of the range, real centres."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy.discrete_gaussian import mean, pmf, sample, variance

SIGMA2 = (0.1, 0.25, 1.0, 5.04, 40.0, 900.0)
N = 60_000


def chi_square_p(draws: np.ndarray, sigma2: float, mu: float = 0.0) -> float:
    """P-value of the draws under N_Z(mu, sigma2), cells with at least ten expected, the rest lumped."""
    reach = int(6 * math.sqrt(sigma2)) + 2
    centre = round(mu)
    n = np.arange(centre - reach, centre + reach + 1)
    expected = pmf(n, sigma2, mu) * draws.size
    observed = (
        np.array([(draws == k).sum() for k in n])
        if n.size < 400
        else np.histogram(draws, np.append(n, n[-1] + 1) - 0.5)[0]
    )
    wide = expected >= 10
    o, e = (
        np.append(observed[wide], draws.size - observed[wide].sum()),
        np.append(expected[wide], draws.size - expected[wide].sum()),
    )
    o, e = (o, e) if e[-1] > 1 else (o[:-1], e[:-1])
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), len(o) - 1))


def by_table(sigma2: float, n: int, rng: np.random.Generator) -> np.ndarray:
    return sample(sigma2, n, rng)


def by_rejection(sigma2: float, n: int, rng: np.random.Generator) -> np.ndarray:
    # more than sixty-four different noises in a call go the other way; these differ by parts in 1e9
    return sample(sigma2 * (1 + 1e-9 * np.arange(n) / n), None, rng)


@pytest.mark.parametrize("draw", [by_table, by_rejection])
@pytest.mark.parametrize("sigma2", SIGMA2)
def test_draws_have_their_law_and_the_test_would_see_a_tenth(draw, sigma2: float) -> None:
    draws = draw(sigma2, N, np.random.default_rng(20240101))
    assert chi_square_p(draws, sigma2) > 1e-3
    wrong = draw(1.1 * sigma2, N, np.random.default_rng(20240102))
    assert chi_square_p(wrong, sigma2) < 1e-6
    assert chi_square_p(draw(0.9 * sigma2, N, np.random.default_rng(20240103)), sigma2) < 1e-6


@pytest.mark.parametrize("sigma2", [0.05, 0.25, 5.04, 40.0])
@pytest.mark.parametrize("mu", [0.5, -2.3, 1e6 + 0.25])
def test_draws_about_a_real_centre_have_their_law(sigma2: float, mu: float) -> None:
    draws = sample(sigma2, N, np.random.default_rng(3), mu)
    assert chi_square_p(draws, sigma2, mu) > 1e-3
    assert chi_square_p(draws + 1, sigma2, mu) < 1e-6
    assert draws.mean() == pytest.approx(float(mean(sigma2, mu)), abs=5 * math.sqrt(variance(sigma2, mu) / N))


def test_a_rounded_gaussian_would_not_pass() -> None:
    rounded = np.rint(np.random.default_rng(5).normal(0, math.sqrt(0.25), N)).astype(int)
    assert chi_square_p(rounded, 0.25) < 1e-6


def test_noise_on_two_billion_does_not_overflow() -> None:  # P12
    count = 2**31 - 1
    draws = sample(1e12, 10_000, np.random.default_rng(12), count)
    assert draws.dtype == np.int64
    assert np.var(draws - count) == pytest.approx(1e12, rel=0.05)
    assert np.var(sample(1.1e12, 10_000, np.random.default_rng(12)) / 1e6) != pytest.approx(1.0, rel=0.05)
    assert np.mean(draws - count) == pytest.approx(0, abs=5e4)
    assert np.unique(draws % 10).size == 10  # whole counts, not floats that lost their last digit


def test_tiny_noise_is_no_noise() -> None:  # P12
    np.testing.assert_array_equal(sample(1e-12, 10_000, np.random.default_rng(1)), np.zeros(10_000))
    np.testing.assert_array_equal(sample(0.0, 5, np.random.default_rng(1), 2**53), np.full(5, 2**53))


def test_wide_noise_has_the_right_quartiles() -> None:
    for sigma2 in (1e7, 1e18):
        draws = sample(sigma2, 40_000, np.random.default_rng(8)) / math.sqrt(sigma2)
        assert stats.kstest(draws, "norm").pvalue > 1e-3
        assert stats.kstest(draws * math.sqrt(1.1), "norm").pvalue < 1e-3


def test_one_call_with_several_noises_gives_each_its_own() -> None:
    s2 = np.array([0.0, 0.25, 5.0, 1e8])
    draws = sample(s2, (30_000, 4), np.random.default_rng(4), np.array([1, 2, 3, 4]))
    assert (draws[:, 0] == 1).all()
    for column, value in ((1, 0.25), (2, 5.0)):
        assert chi_square_p(draws[:, column], value, column + 1) > 1e-3
    assert np.var(draws[:, 3]) == pytest.approx(1e8, rel=0.05)


def test_shapes_follow_size_and_nothing_drawn_is_nothing() -> None:
    rng = np.random.default_rng(0)
    assert sample(1.0, None, rng).shape == ()
    assert sample([1.0, 2.0], None, rng, [[1], [2], [3]]).shape == (3, 2)
    assert sample(1.0, 0, rng).shape == (0,)
    assert sample([1.0, 2.0], (0, 2), rng).shape == (0, 2)


def test_the_same_generator_gives_the_same_draws() -> None:
    for s2 in (2.0, np.linspace(1, 2, 100)):
        one, two = (sample(s2, 100, np.random.default_rng(9)) for _ in range(2))
        np.testing.assert_array_equal(one, two)


def test_what_cannot_be_drawn_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(BudgetError, match=r"got -1\.0"):
        sample(-1.0, 3, rng)
    with pytest.raises(ReleaseError, match="mu must lie within"):
        sample(1.0, 3, rng, 1e17)
    with pytest.raises(BudgetError, match="an exact count has no fraction"):
        sample(0.0, 3, rng, 0.5)
    # rho = 1e-300: draws of such noise do not fit a 64-bit count, and must not come out as zeros
    with pytest.raises(BudgetError, match=r"5e\+299.*not measured"):
        sample(5e299, 3, rng)
