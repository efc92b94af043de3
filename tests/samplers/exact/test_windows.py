"""Windows: a wrong first one is harmless, the bound is honest, and what cannot be normalised is refused."""

import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from adversary.distributions import DiscreteGaussian, FlatCount
from adversary.samplers.exact import compile_exact
from adversary.samplers.exact.judge import tail
from adversary.samplers.exact.windows import Curve, climb, propagate


def log_sum(a):
    top = a.max()
    return np.log(np.exp(a - top).sum()) + top


def gap(x, sigma2):
    return -(x**2) / (2 * sigma2)


@pytest.fixture(scope="module")
def geometric_model():
    """A bit and a geometric rest whose window has to be chosen."""
    seen = pytensor.shared(np.int64(33))
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.2))
        y = pm.Geometric("y", p=np.float64(0.1))
        DiscreteGaussian("group", b + y, sigma2=np.float64(5.0), observed=seen)
    return compile_exact(model, "b"), seen


def exact_odds(seen):
    y = np.arange(1, 4000)
    weight = [log_sum(y * math.log(0.9) + gap(seen - b - y, 5.0)) for b in (0, 1)]
    return math.log(0.2 / 0.8) + weight[1] - weight[0]


@pytest.mark.parametrize("seen", [-40, 0, 33, 2000])
@pytest.mark.parametrize("first_drop", [0.1, 3.0, 45.0])
def test_a_tiny_first_window_still_gives_the_right_answer(geometric_model, seen, first_drop):
    compiled, data = geometric_model
    data.set_value(np.int64(seen))
    answer = compiled.solve(first_drop=first_drop)
    assert answer.log_odds == pytest.approx(exact_odds(seen), abs=1e-11)
    assert answer.cut_off_bound <= 1e-12


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-5])
def test_the_bound_is_not_smaller_than_the_error_it_bounds(tolerance):
    """With a coarse tolerance the error is visible, and the bound covers it."""
    with pm.Model() as model:
        y = pm.Geometric("y", p=np.float64(0.02))
        pm.Deterministic("other", y + 3)
    compiled = compile_exact(model, "other")
    from adversary.samplers.exact import solution

    extra = solution._EXTRA
    try:
        solution._EXTRA = 0.0  # windows as narrow as the tolerance allows
        answer = compiled.solve(tolerance=tolerance, first_drop=1.0)
    finally:
        solution._EXTRA = extra
    values = answer.posterior.support - 3
    lost = 0.98 ** float(values.max())
    assert lost > 1e-14  # something was cut, so the comparison means something
    assert lost <= answer.cut_off_bound * (1 + 1e-9)
    assert answer.cut_off_bound <= tolerance
    assert answer.bound_proven


def test_a_geometric_tail_is_bounded_with_equality():
    ratio = 0.7
    weights = (1 - ratio) * ratio ** np.arange(5)
    beyond = ratio**5
    assert tail(weights[::-1]) == pytest.approx(beyond, rel=1e-12)
    assert tail(np.array([0.2, 0.1])) == np.inf  # rising towards the edge: nothing is known
    assert tail(np.array([0.1])) == np.inf
    assert tail(np.array([0.0, 0.1])) == 0.0


@pytest.mark.parametrize("seen", [100, 500, 990])
def test_a_second_mode_a_thousand_away_is_not_lost(seen):
    """The classic trap: a window around one mode sees nothing of the other, and looks perfect."""
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.5))
        y = FlatCount("y", lower=np.int64(-(10**6)))
        DiscreteGaussian("one", y, sigma2=np.float64(1.0), observed=0)
        DiscreteGaussian("two", y + 1000 * b, sigma2=np.float64(1.0), observed=seen)
    answer = compile_exact(model, "y").solve()
    y = np.arange(-3000, 3000)
    weight = np.stack([gap(y, 1.0) + gap(seen - y - 1000 * b, 1.0) for b in (0, 1)])
    p = np.exp(weight - log_sum(weight)).sum(axis=0)
    got = np.zeros(y.size)
    got[answer.posterior.support + 3000] = answer.posterior.p
    assert np.abs(got - p).max() < 1e-10


def test_a_rate_that_depends_on_another_unknown_gets_a_window_for_each_of_its_values():
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(1e-10))
        y = pm.Poisson("y", mu=pt.constant(np.array([1.0, 1000.0]))[b])
        DiscreteGaussian("seen", y, sigma2=np.float64(25.0), observed=300)
    answer = compile_exact(model, "b").solve()
    y = np.arange(0, 4000)
    log_factorial = np.array([math.lgamma(k + 1) for k in y])
    weight = [log_sum(y * math.log(mu) - mu - log_factorial + gap(300 - y, 25.0)) for mu in (1.0, 1000.0)]
    assert answer.log_odds == pytest.approx(
        math.log(1e-10) - math.log1p(-1e-10) + weight[1] - weight[0], rel=1e-10
    )
    assert not answer.bound_proven


def test_two_unbounded_levels_of_a_hierarchy():
    with pm.Model() as model:
        z = pm.Poisson("z", mu=np.float64(50.0))
        y = pm.Binomial("y", n=z, p=np.float64(0.3))
        DiscreteGaussian("seen", y, sigma2=np.float64(4.0), observed=25)
    answer = compile_exact(model, "z").solve()
    # a binomial thinning of a Poisson is Poisson: z = y + rest with independent parts of means 15 and 35
    k = np.arange(0, 300)
    log_factorial = np.array([math.lgamma(i + 1) for i in k])
    thinned = np.exp(k * math.log(15.0) - 15 - log_factorial + gap(25 - k, 4.0))
    rest = np.exp(k * math.log(35.0) - 35 - log_factorial)
    total = np.convolve(thinned, rest)
    total /= total.sum()
    assert np.abs(answer.posterior.p - total[answer.posterior.support]).max() < 1e-13
    assert not answer.bound_proven


def test_an_over_dispersed_prior_is_answered_and_not_called_proven():
    with pm.Model() as model:
        y = pm.NegativeBinomial("y", mu=np.float64(20.0), alpha=np.float64(0.5))
        DiscreteGaussian("seen", y, sigma2=np.float64(5.0), observed=2)
    answer = compile_exact(model, "y").solve()
    y = np.arange(0, 400)
    log_p = np.array([math.lgamma(k + 0.5) - math.lgamma(k + 1) + k * math.log(20 / 20.5) for k in y]) + gap(
        2 - y, 5.0
    )
    p = np.exp(log_p - log_sum(log_p))
    assert np.abs(answer.posterior.p - p[answer.posterior.support]).max() < 1e-13
    assert not answer.bound_proven


def test_a_prior_with_holes_is_answered_and_not_called_proven():
    with pm.Model() as model:
        y = pm.CustomDist(
            "y",
            logp=lambda v: pt.switch(pt.eq(pt.mod(v, 5), 0), -pt.abs(v - 40) * np.float64(0.1), -np.inf),
            dtype="int64",
        )
        DiscreteGaussian("seen", y, sigma2=np.float64(50.0), observed=33)
    answer = compile_exact(model, "y").solve()
    y = np.arange(-1000, 1000, 5)
    log_p = -np.abs(y - 40) * 0.1 + gap(33 - y, 50.0)
    expected = dict(zip(y.tolist(), np.exp(log_p - log_sum(log_p)).tolist(), strict=True))
    for value, p in zip(answer.posterior.support.tolist(), answer.posterior.p.tolist(), strict=True):
        assert p == pytest.approx(expected.get(value, 0.0), abs=1e-12)
    assert not answer.bound_proven


def test_measurements_that_contradict_each_other_by_a_hundred_sigmas_are_still_answered():
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.5))
        y = FlatCount("y")
        DiscreteGaussian("rest", y, sigma2=np.float64(2.0), observed=-150)
        DiscreteGaussian("group", b + y, sigma2=np.float64(3.0), observed=200)
    answer = compile_exact(model, "b").solve(first_drop=1.0)
    y = np.arange(0, 2000)
    weight = [log_sum(gap(-150 - y, 2.0) + gap(200 - b - y, 3.0)) for b in (0, 1)]
    assert answer.log_odds == pytest.approx(weight[1] - weight[0], rel=1e-12)


# ---------------------------------------------------------------------- parts
def test_propagation_carries_intervals_through_sums_both_ways():
    low, high = {0: -np.inf, 1: 0.0, 2: 10.0}, {0: np.inf, 1: 3.0, 2: 12.0}
    assert propagate(low, high, [(2, 0, 1, 1)])  # node 2 = node 0 + node 1
    assert (low[0], high[0]) == (7.0, 12.0)
    low, high = {0: 0.0, 1: 0.0, 2: 9.0}, {0: 3.0, 1: 3.0, 2: 12.0}
    assert not propagate(low, high, [(2, 0, 1, 1)])


@pytest.mark.parametrize("mode", [-3, 0, 17, 123_456_789, -(10**12)])
def test_climbing_reaches_a_mode_anywhere(mode):
    def evaluate(points):
        return {0: -(np.abs(points[0] - mode) ** 1.5)}

    curve = climb(evaluate, {0: (-np.inf, np.inf)}, {})[0]
    assert curve.points[curve.values.argmax()] == mode
    low, high = curve.window(27.0)
    assert low <= mode - 9
    assert high >= mode + 9


def test_a_curve_s_window_holds_every_point_above_the_drop():
    points = np.arange(-50.0, 51.0)
    curve = Curve(points, -(points**2) / 2, -50.0, 50.0)
    assert curve.window(8.0) == (-4.0, 4.0)
    assert curve.window(1e9) == (-50.0, 50.0)
