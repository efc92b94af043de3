"""Continuous unknowns next to integers: against conjugate closed forms and one-dimensional quadrature."""

import math

import numpy as np
import pymc as pm
import pytest

from adversary.distributions import DiscreteGaussian
from adversary.errors import ModelError, UnsupportedModelError
from adversary.samplers.exact import compile_exact


def test_a_gamma_rate_makes_a_poisson_negative_binomial():
    with pm.Model() as model:
        mu = pm.Gamma("mu", alpha=np.float64(2.0), beta=np.float64(0.1))
        y = pm.Poisson("y", mu=mu)
        b = pm.Bernoulli("b", p=np.float64(0.5))
        DiscreteGaussian("seen", b + y, sigma2=np.float64(3.0), observed=11)
    answer = compile_exact(model, "b").solve()
    k = np.arange(2000)
    log_y = (
        np.array([math.lgamma(i + 2) - math.lgamma(i + 1) for i in k])
        + 2 * math.log(0.1 / 1.1)
        - k * math.log(1.1)
    )
    weight = np.stack([np.exp(log_y - (11 - x - k) ** 2 / 6.0) for x in (0, 1)])
    assert answer.log_odds == pytest.approx(math.log(weight[1].sum() / weight[0].sum()), abs=1e-9)
    y = answer.marginal("y")
    assert np.abs(y.p - weight.sum(axis=0)[y.support] / weight.sum()).max() < 1e-9
    assert answer.prior.p == pytest.approx([0.5, 0.5], abs=1e-12)
    assert not answer.bound_proven
    assert answer.cut_off_bound < 1e-9
    norm = sum(math.exp(-(n**2) / 6.0) for n in range(-60, 61))
    assert answer.log_evidence == pytest.approx(math.log(0.5 * weight.sum() / norm), abs=1e-9)


@pytest.fixture(scope="module")
def shared_rate():
    known, noisy = np.array([3, 0, 1, 4]), np.array([4, 1, 1, 6])
    with pm.Model() as model:
        p = pm.Beta("p", np.float64(1.0), np.float64(3.0))
        b = pm.Bernoulli("b", p=p, shape=4)
        pm.Deterministic("first", b[0] + 0)
        DiscreteGaussian("seen", known + b, sigma2=np.float64(1.0), observed=noisy)
    absent = np.exp(-((noisy - known) ** 2) / 2.0)
    present = np.exp(-((noisy - known - 1) ** 2) / 2.0)
    return compile_exact(model, "first").solve(), absent, present


def polynomial(absent, present):
    """E[prod((1-p) a + p b)] under Beta(1, 3), from its moments: an exact second road."""
    coefficients = np.ones(1)
    for a, b in zip(absent, present, strict=True):
        coefficients = np.convolve(coefficients, [a, b - a])
    moments = [3.0 * math.gamma(k + 1) * math.gamma(3) / math.gamma(k + 4) for k in range(coefficients.size)]
    return float(coefficients @ moments)


def test_a_probability_shared_by_four_people_is_integrated_out(shared_rate):
    answer, absent, present = shared_rate
    only_present = absent.copy()
    only_present[0] = 0.0
    joint = polynomial(only_present, present)
    whole = polynomial(absent, present)
    assert answer.posterior.p[1] == pytest.approx(joint / whole, abs=1e-9)
    assert answer.prior.p[1] == pytest.approx(0.25, abs=1e-10)
    (x, y), table = answer.joint([("b", 0), ("b", 1)])
    assert (x.tolist(), y.tolist()) == ([0, 1], [0, 1])
    both_absent, both_present = absent.copy(), present.copy()
    both_absent[:2], both_present[2:] = 0.0, present[2:]
    assert np.exp(table[1, 1]) == pytest.approx(polynomial(both_absent, both_present) / whole, abs=1e-9)


def test_draws_of_a_mixed_model_have_the_means_of_the_answer(shared_rate):
    answer, _, _ = shared_rate
    draws = answer.draw(20_000, seed=3)
    assert draws["b"].mean(axis=0) == pytest.approx(
        [answer.marginal("b", k).mean() for k in range(4)], abs=0.015
    )
    assert np.array_equal(draws["first"], draws["b"][:, 0])
    assert 0.2 < draws["p"].mean() < 0.5
    with pytest.raises(ModelError, match="p is continuous"):
        answer.marginal("p")


def test_a_continuous_prior_that_hangs_on_an_integer_is_refused():
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.5))
        rate = pm.Gamma("rate", alpha=np.float64(2.0) + b, beta=np.float64(1.0))
        pm.Poisson("seen", mu=rate, observed=3)
    with pytest.raises(
        UnsupportedModelError, match="prior of rate is continuous and depends on a discrete unknown"
    ):
        compile_exact(model, "b")
