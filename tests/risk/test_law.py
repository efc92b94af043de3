import numpy as np
import pytest

from adversary.risk import law as laws


def _expit(x):
    return 1 / (1 + np.exp(-x))


def _random_law(rng, size=4000, steps=31):
    base = rng.normal(0, 6, size)
    step = np.sort(rng.normal(0, 2, steps))
    weight, step_weight = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(steps))
    return laws.LogOddsLaw(base, weight, step, step_weight, 0.0)


def test_the_polynomial_average_equals_the_direct_sum_to_rounding():
    rng = np.random.default_rng(1)
    for steps in (np.linspace(-1, 1, 9), np.linspace(-30, 30, 41)):
        weight = rng.dirichlet(np.ones(steps.size))
        base = rng.uniform(-40, 40, 40_000)
        direct = laws._direct(base, steps, weight)
        quick = laws.average_over_steps(base, steps, weight)
        # the polynomial was used, or the two would agree to the last bit
        assert not np.array_equal(quick, direct)
        np.testing.assert_allclose(quick, direct, rtol=5e-14)


def test_tail_and_mean_equal_brute_force_over_all_atoms():
    law = _random_law(np.random.default_rng(2), 300)
    value, weight = law.atoms()
    for level in (-3.0, 0.0, 2.5):
        assert law.above(level) == pytest.approx(weight[value > level].sum(), abs=1e-14)
        assert law.near(level, 0.1) == pytest.approx(weight[np.abs(value - level) <= 0.1].sum(), abs=1e-14)
    assert law.mean_posterior() == pytest.approx(weight @ _expit(value), rel=1e-13)


@pytest.mark.parametrize("q", [1e-6, 0.1, 0.5, 0.999])
def test_quantile_is_the_smallest_attained_value_that_reaches_q(q):
    law = _random_law(np.random.default_rng(3), 200)
    value, weight = law.atoms()
    wanted = value[np.searchsorted(np.cumsum(weight), q)]
    assert law.quantile(q) == pytest.approx(wanted, abs=1e-12)


def test_a_tiny_prior_loses_no_digits():
    one = np.array([1.0])
    law = laws.LogOddsLaw(np.array([-500.0]), one, np.array([-0.5, 0.5]), np.array([0.5, 0.5]), 0.0)
    assert laws.mean_risk(law, -500.0) == pytest.approx(np.cosh(0.5), rel=1e-14)


def test_averaging_level_by_level_equals_the_full_product():
    rng = np.random.default_rng(4)
    steps = [(np.sort(rng.normal(0, 1.5, 7)), rng.dirichlet(np.ones(7))) for _ in range(3)]
    total, weight = np.zeros(1), np.ones(1)
    for s, w in steps:
        total, weight = (total[:, None] + s).ravel(), (weight[:, None] * w).ravel()
    brute = weight @ _expit(-1.3 + total) / _expit(-1.3)
    assert laws.average_in_turn(-1.3, steps) == pytest.approx(brute, rel=1e-14)


def test_too_many_atoms_are_refused():
    with pytest.raises(ValueError, match="more than 10"):
        _random_law(np.random.default_rng(5), 20).atoms(10)
