from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from scipy import stats

from adversary.distributions import DiscreteGaussian, DiscreteGaussianSum, FlatCount
from adversary.errors import ModelError
from adversary.privacy import discrete_gaussian as dg

SIGMA2 = np.array([1e-4, 0.05, 0.16, 0.3, 1.0, 5.0, 100.0, 1e6, 1e12])
QUICK = pytensor.compile.mode.Mode(
    linker="py", optimizer="fast_compile"
)  # no compiler: these graphs run once


def value(graph, inputs=None):
    return graph.eval(inputs or {}, mode=QUICK)


@pytest.mark.parametrize("mu", [0, 3, 0.3, 2.49])
def test_the_pymc_skin_gives_the_numpy_formula_constant_or_symbolic(mu):
    x = np.array([0, 1, 5, -7])[:, None]
    expected = dg.log_pmf(x, SIGMA2, mu)
    constant = value(pm.logp(DiscreteGaussian.dist(mu, sigma2=SIGMA2), x))
    s = pt.dvector()
    symbolic = value(pm.logp(DiscreteGaussian.dist(mu, sigma2=s), x), {s: SIGMA2})
    np.testing.assert_allclose(constant, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(symbolic, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mu", [0, 2.49])
def test_the_log_cdf_is_the_numpy_formula_in_both_tails(mu):
    x = np.array([0, 1, 5, -7])[:, None]
    got = value(pm.logcdf(DiscreteGaussian.dist(mu, sigma2=SIGMA2), x))
    np.testing.assert_allclose(got, dg.log_cdf(x, SIGMA2, mu), rtol=1e-9, atol=1e-12)


def test_gradients_are_the_slopes_of_the_numpy_formula():
    s, m = pt.dscalar(), pt.dscalar()
    slopes = pytensor.function(
        [s, m], pt.grad(pm.logp(DiscreteGaussian.dist(m, sigma2=s), 3), [s, m]), mode=QUICK
    )
    h = 1e-6
    for sigma2, mu in [(0.01, 0.3), (0.1, 0.5), (0.16, 0.2), (4.0, 2.2)]:
        in_sigma2 = (dg.log_pmf(3, sigma2 * (1 + h), mu) - dg.log_pmf(3, sigma2 * (1 - h), mu)) / (
            2 * h * sigma2
        )
        in_mu = (dg.log_pmf(3, sigma2, mu + h) - dg.log_pmf(3, sigma2, mu - h)) / (2 * h)
        np.testing.assert_allclose(slopes(sigma2, mu), [in_sigma2, in_mu], rtol=1e-6)


def test_off_the_integers_there_is_no_probability():
    x = pt.dscalar()
    assert value(pm.logp(DiscreteGaussian.dist(0, sigma2=1.0), x), {x: 0.5}) == -np.inf


def test_counts_at_ten_to_the_fifteen_lose_no_digit():
    big = 10**15 + 7
    got = value(pm.logp(DiscreteGaussian.dist(np.int64(big), sigma2=5.0), np.int64(big + 2)))
    assert got == pytest.approx(float(dg.log_pmf(2, 5.0)), rel=1e-14)


def test_a_sigma_that_is_a_twelve_written_as_integer_is_not_eight_bits_wide():
    got = value(pm.logp(DiscreteGaussian.dist(0, sigma2=144), 5))
    assert got == pytest.approx(float(dg.log_pmf(5, 144.0)), rel=1e-13)


@pytest.mark.parametrize(("sigma2", "groups"), [(0.25, 10), (0.05, 4), (0.5, 27), (1.0, 3)])
def test_the_sum_is_the_plain_convolution(sigma2, groups):
    n = np.arange(-40, 41)
    one = dg.pmf(n, sigma2)
    total = one
    for _ in range(groups - 1):
        total = np.convolve(total, one)
    s = np.arange(-12, 13)
    middle = len(total) // 2
    got = np.exp(value(pm.logp(DiscreteGaussianSum.dist(100, sigma2=sigma2, groups=groups), s + 100)))
    np.testing.assert_allclose(got, total[middle + s], rtol=1e-11, atol=1e-300)


def test_the_sum_holds_far_in_the_tail_by_shifting_every_term():
    # f(d k + r) = exp(-(d k^2 + 2 k r) / (2 sigma2)) f(r), here d = 4, k = 1000, r = 1
    got = value(pm.logp(DiscreteGaussianSum.dist(0, sigma2=0.5, groups=4), 4001))
    expected = -(4 * 1000.0**2 + 2 * 1000.0) + float(dg.sum_log_pmf(1, 0.5, 4))
    assert got == pytest.approx(expected, rel=1e-14)


class TestDiscreteGaussianRandom(BaseTestDistributionRandom):
    pymc_dist = DiscreteGaussian
    pymc_dist_params: ClassVar = {"mu": 3, "sigma2": 2.0}
    expected_rv_op_params: ClassVar = {"mu": 3, "sigma2": 2.0}
    checks_to_run: ClassVar = ["check_pymc_params_match_rv_op", "check_rv_size"]


@pytest.mark.parametrize(("sigma2", "passes"), [(2.0, True), (2.2, False)])
def test_draws_have_the_right_law_and_the_test_would_see_ten_percent_more_noise(sigma2, passes):
    drawn = pm.draw(DiscreteGaussian.dist(0, sigma2=sigma2, shape=200_000), random_seed=1, mode=QUICK)
    bins = np.arange(-5, 6)
    expected = np.r_[dg.cdf(-6, 2.0), dg.pmf(bins, 2.0), dg.sf(5, 2.0)]
    observed = np.r_[(drawn < -5).sum(), [(drawn == b).sum() for b in bins], (drawn > 5).sum()]
    p = stats.chisquare(observed, expected / expected.sum() * len(drawn)).pvalue
    assert bool(p > 1e-3) is passes


def test_draws_of_the_sum_have_its_variance():
    drawn = pm.draw(
        DiscreteGaussianSum.dist(7, sigma2=0.25, groups=10, shape=100_000), random_seed=2, mode=QUICK
    )
    assert drawn.mean() == pytest.approx(7, abs=0.02)
    assert drawn.var() == pytest.approx(10 * float(dg.variance(0.25)), rel=0.02)


def test_support_points_are_the_centre():
    with pm.Model() as model:
        DiscreteGaussian("x", 3.4, sigma2=np.ones(2))
    assert_support_point_is_expected(model, np.array([3, 3]))


def test_the_mean_of_a_real_centre_is_the_numpy_mean():
    from pymc.distributions.moments import mean

    for sigma2 in (0.05, 0.3, 4.0):
        got = value(mean(DiscreteGaussian.dist(2.3, sigma2=sigma2)))
        assert got == pytest.approx(float(dg.mean(sigma2, 2.3)), rel=1e-10)


def test_the_flat_prior_is_flat_above_its_lower_end_and_cannot_be_drawn():
    x = pt.lvector()
    got = value(pm.logp(FlatCount.dist(lower=2), x), {x: np.array([1, 2, 10**9])})
    assert got.tolist() == [-np.inf, 0.0, 0.0]
    with pytest.raises(ModelError, match="improper"):
        pm.draw(FlatCount.dist())


def test_a_missing_sigma2_is_said():
    with pytest.raises(ModelError, match="needs sigma2"):
        DiscreteGaussian.dist(0)
