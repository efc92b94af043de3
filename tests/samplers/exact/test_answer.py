"""Answers: draws, joint tables, marginals of sums, evidence, and messages that name what is wrong."""

import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from adversary.distributions import DiscreteGaussian, FlatCount
from adversary.errors import ModelError, UnsupportedModelError
from adversary.samplers.exact import Pmf, compile_exact


@pytest.fixture(scope="module")
def household():
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.4))
        y = pm.Poisson("y", mu=np.float64(2.0), shape=2)
        z = pm.Categorical("z", p=np.array([0.2, 0.5, 0.3]))
        pm.Deterministic("total", b + y.sum() + 2)
        pm.Deterministic("gap", y[0] - y[1])
        pm.Deterministic("largest", pt.maximum(y[0], y[1]))
        pm.Deterministic("share", y[0] / (1.0 + y.sum()))
        DiscreteGaussian("one", b + z, sigma2=np.float64(1.0), observed=1)
        DiscreteGaussian("all", b + y.sum(), sigma2=np.float64(2.0), observed=6)
    return compile_exact(model, "b").solve()


@pytest.fixture(scope="module")
def enumeration():
    """Joint of (b, y0, y1, z) on a grid wide enough, in plain NumPy."""
    b, y0, y1, z = np.ogrid[0:2, 0:30, 0:30, 0:3]
    log_factorial = np.array([math.lgamma(k + 1) for k in range(30)])
    weight = np.log(np.where(b == 1, 0.4, 0.6)) + np.log(np.array([0.2, 0.5, 0.3]))[z]
    weight = weight + (y0 + y1) * math.log(2.0) - log_factorial[y0] - log_factorial[y1]
    weight = weight - (1 - b - z) ** 2 / 2.0 - (6 - b - y0 - y1) ** 2 / 4.0
    p = np.exp(weight - weight.max())
    return p / p.sum()


def test_marginals_of_unknowns_and_of_declared_sums(household, enumeration):
    pmf = household.marginal("y", 1)
    assert np.abs(pmf.p - enumeration.sum(axis=(0, 1, 3))[pmf.support]).max() < 1e-12
    z = household.marginal("z")
    assert np.abs(z.p - enumeration.sum(axis=(0, 1, 2))).max() < 1e-12
    b, y0, y1, _ = np.indices(enumeration.shape)
    total = household.marginal("total")
    assert total.p == pytest.approx(
        [enumeration[b + y0 + y1 + 2 == t].sum() for t in total.support], abs=1e-12
    )
    gap = household.marginal("gap")
    assert gap.p == pytest.approx([enumeration[y0 - y1 == t].sum() for t in gap.support], abs=1e-12)


def test_a_joint_table_of_two_and_of_three(household, enumeration):
    (b, y0), table = household.joint(["b", ("y", 0)])
    assert np.abs(np.exp(table) - enumeration.sum(axis=(2, 3))[np.ix_(b, y0)]).max() < 1e-12
    (y0, b, z), table = household.joint([("y", 0), "b", "z"])
    expected = enumeration.sum(axis=2).transpose(1, 0, 2)[np.ix_(y0, b, z)]
    assert np.abs(np.exp(table) - expected).max() < 1e-12


def test_draws_follow_the_exact_joint_and_carry_every_deterministic(household, enumeration):
    from scipy.stats import chi2

    n = 60_000
    draws = household.draw(n, seed=11)
    assert draws["y"].shape == (n, 2)
    assert np.array_equal(draws["total"], draws["b"] + draws["y"].sum(axis=1) + 2)
    assert np.array_equal(draws["largest"], draws["y"].max(axis=1))
    assert draws["share"] == pytest.approx(draws["y"][:, 0] / (1.0 + draws["y"].sum(axis=1)))

    def p_value(observed, p):
        keep = p * n > 8
        counts = np.append(observed[keep], observed[~keep].sum())
        expected = np.append(p[keep], p[~keep].sum()) * n
        statistic = ((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
        return chi2.sf(statistic, keep.sum())

    counts = np.zeros(enumeration.shape)
    np.add.at(counts, (draws["b"], draws["y"][:, 0], draws["y"][:, 1], draws["z"]), 1)
    assert p_value(counts.ravel(), enumeration.ravel()) > 1e-3
    tilted = enumeration * np.where(np.arange(30) > 3, 1.2, 1.0)[None, :, None, None]
    assert p_value(counts.ravel(), (tilted / tilted.sum()).ravel()) < 1e-6  # the test has power


def test_the_same_seed_draws_the_same_and_all_kinds_of_seed_work(household):
    first = household.draw(50, seed=42)
    assert all(np.array_equal(first[k], v) for k, v in household.draw(50, seed=42).items())
    by_generator = household.draw(50, np.random.default_rng(42))
    assert all(np.array_equal(first[k], v) for k, v in by_generator.items())
    by_sequence = household.draw(50, np.random.SeedSequence(42))
    assert all(np.array_equal(first[k], v) for k, v in by_sequence.items())


def test_draws_use_the_data_of_their_solution(household):
    known = pytensor.shared(np.int64(3), name="known")
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.5))
        pm.Deterministic("block", known + b)
        pm.Deterministic("ratio", b / pt.cast(known, "float64"))
        DiscreteGaussian("seen", known + b, sigma2=np.float64(2.0), observed=4)
    compiled = compile_exact(model, "b", [known])
    answer = compiled.solve()
    known.set_value(np.int64(30))
    draws = answer.draw(20, seed=1)
    assert np.array_equal(draws["block"], 3 + draws["b"])
    assert draws["ratio"] == pytest.approx(draws["b"] / 3.0)
    assert compiled.solve().marginal("block").support.tolist() == [30, 31]


def test_a_negated_and_scaled_target_keeps_its_values():
    with pm.Model() as model:
        y = pm.DiscreteUniform("y", lower=np.int64(0), upper=np.int64(3))
        pm.Deterministic("missing", 10 - 2 * y)
        DiscreteGaussian("seen", y, sigma2=np.float64(1.0), observed=1)
    answer = compile_exact(model, "missing").solve()
    w = np.exp(-((1 - np.arange(4)) ** 2) / 2.0)
    assert answer.posterior.support.tolist() == [4, 6, 8, 10]
    assert answer.posterior.p == pytest.approx((w / w.sum())[::-1], abs=1e-14)


def test_absence_as_a_target_has_minus_the_log_odds_of_presence():
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.2))
        pm.Deterministic("absent", 1 - b)
        DiscreteGaussian("seen", b, sigma2=np.float64(2.0), observed=2)
    presence, absence = compile_exact(model, "b").solve(), compile_exact(model, "absent").solve()
    assert absence.log_odds == pytest.approx(-presence.log_odds, abs=1e-14)
    assert absence.prior_log_odds == pytest.approx(math.log(4), abs=1e-14)


def test_a_matrix_of_coefficients_that_is_data_is_read_anew_when_it_changes():
    matrix = pytensor.shared(np.array([[1, 0, 1], [0, 1, 1]], dtype=np.int64))
    noisy = np.array([3, 4])
    with pm.Model() as model:
        y = pm.DiscreteUniform("y", lower=np.int64(0), upper=np.int64(4), shape=3)
        DiscreteGaussian("seen", matrix @ y, sigma2=np.float64(1.5), observed=noisy)
        pm.Deterministic("first", y[0] + 0)
    compiled = compile_exact(model, "first", [matrix])
    for a in ([[1, 0, 1], [0, 1, 1]], [[1, 1, 1], [0, -1, 1]]):
        matrix.set_value(np.array(a, dtype=np.int64))
        grid = np.indices((5, 5, 5)).reshape(3, -1)
        w = np.exp(-((noisy[:, None] - np.array(a) @ grid) ** 2).sum(axis=0) / 3.0)
        expected = [w[grid[0] == k].sum() / w.sum() for k in range(5)]
        assert compiled.solve().posterior.p == pytest.approx(expected, abs=1e-13)


def test_a_part_nobody_measures_and_nobody_asks_about_is_left_out():
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.5))
        FlatCount("elsewhere")
        DiscreteGaussian("seen", b, sigma2=np.float64(2.0), observed=1)
    answer = compile_exact(model, "b").solve()
    assert answer.log_odds == pytest.approx(0.25, abs=1e-14)
    assert answer.dropped == ("elsewhere",)
    assert set(answer.draw(5, 0)) == {"b"}
    with pytest.raises(ModelError, match="elsewhere has an improper prior and no measurement"):
        answer.marginal("elsewhere")


# ---------------------------------------------------------------------- messages
def test_report_p3_a_fact_outside_the_prior_s_support_is_named_with_value_and_bound():
    with pm.Model() as model:
        target = pm.DiscreteUniform("target", lower=np.int64(0), upper=np.int64(10))
        pm.DiscreteUniform("n", lower=target, upper=target, observed=12)
    with pytest.raises(ModelError, match=r"fact n=12 lies outside the prior's support 0\.\.10 of target"):
        compile_exact(model, "target").solve()


def test_facts_that_exclude_each_other_are_refused():
    with pm.Model() as model:
        a = pm.DiscreteUniform("a", lower=np.int64(0), upper=np.int64(10))
        pm.DiscreteUniform("first", lower=a, upper=a, observed=4)
        pm.DiscreteUniform("second", lower=a, upper=a, observed=5)
    with pytest.raises(ModelError, match=r"first|second"):
        compile_exact(model, "a").solve()


def test_an_improper_prior_without_a_measurement_is_named():
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.5))
        y = FlatCount("elsewhere")
        pm.Deterministic("group", b + y)
    with pytest.raises(ModelError, match="elsewhere has an improper prior and no measurement"):
        compile_exact(model, "group").solve()


def test_a_target_that_is_not_there_is_answered_with_what_is():
    with pm.Model() as model:
        pm.Bernoulli("present", p=np.float64(0.5))
    with pytest.raises(ModelError, match="no 'absent' to ask about: name one of present"):
        compile_exact(model, "absent")


def test_a_vector_target_and_a_constant_target_are_refused():
    with pm.Model() as model:
        pm.Bernoulli("b", p=np.float64(0.5), shape=3)
        pm.Deterministic("fixed", pt.constant(np.int64(3)))
    with pytest.raises(UnsupportedModelError, match=r"shape \(3,\), not one value"):
        compile_exact(model, "b")
    with pytest.raises(ModelError, match="does not depend on any unknown"):
        compile_exact(model, "fixed")


def test_three_continuous_unknowns_are_refused_with_the_way_out():
    with pm.Model() as model:
        p = pm.Beta("p", np.float64(1.0), np.float64(1.0), shape=3)
        pm.Bernoulli("b", p=p.mean())
    with pytest.raises(UnsupportedModelError, match=r'p make 3 continuous scalars.*sampler="mcmc"'):
        compile_exact(model, "b")


def test_too_many_unknowns_tied_without_a_sum_are_refused_with_the_way_out():
    with pm.Model() as model:
        y = pm.Poisson("y", mu=np.float64(2.0), shape=6)
        pm.Potential("strange", -pt.prod(y + 1) * np.float64(0.01))
        pm.Deterministic("first", y[0] + 0)
    with pytest.raises(UnsupportedModelError, match=r'strange ties 6 unknowns.*sampler="mcmc"'):
        compile_exact(model, "first")


def test_a_tolerance_that_means_nothing_is_refused(household):
    with pm.Model() as model:
        pm.Bernoulli("b", p=np.float64(0.5))
    with pytest.raises(ModelError, match=r"between 1e-250 and 0\.1"):
        compile_exact(model, "b").solve(tolerance=0.0)


def test_a_pmf_of_huge_counts_keeps_the_fraction_of_its_mean():
    pmf = Pmf(np.array([10**15, 10**15 + 1]), np.log([0.75, 0.25]))
    assert pmf.mean() - 10**15 == 0.25
    assert pmf.mode() == 10**15
