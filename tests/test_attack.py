import math

import numpy as np
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary import Prior, Release, load, measured, run, scenario
from adversary.errors import ModelError, ScenarioError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.samplers.prepared import prepare

PAPER = Release.from_counts(
    {"block": 2, "block_group": 1, "rest": -1},
    rho={"block": "1666368/16793603", "block_group": "103534592/420045025", "rest": "1666368/16793603"},
    groups={"rest": 27},
)
single_level, two_level = load("single_level"), load("two_level")


def test_the_paper_s_example_has_its_exact_posterior():
    result = run(two_level, PAPER, draws=0)
    assert result.posterior == pytest.approx(0.5032878263086942, abs=1e-11)
    assert result.cut_off_bound < 1e-12
    assert run(single_level, PAPER, draws=0).posterior == pytest.approx(0.5738750466012639, abs=1e-11)


def test_the_literal_sampler_repeats_the_paper_and_the_coherent_one_the_model():
    literal = run(two_level, PAPER, "gibbs", seed=1, draws=10_000, mode="literal")
    coherent = run(two_level, PAPER, "gibbs", seed=1, draws=10_000)
    assert abs(literal.posterior - 0.5777015968) < 4 * literal.mcse
    assert abs(coherent.posterior - 0.5032878263) < 4 * coherent.mcse
    assert abs(literal.posterior - 0.5032878263) > 10 * literal.mcse, "the test could not tell the two apart"
    assert any(c.name == "joint distribution" for c in literal.checks)


def test_mcmc_agrees_with_exact_under_a_prior_a_million_wide():
    wide = two_level.assuming(elsewhere=Prior("DiscreteUniform", lower=0, upper=10**6))
    release = Release.from_counts(
        {"block": 6, "block_group": 66, "rest": 57},
        sigma2={"block": 5.0, "block_group": 2.5, "rest": 5.0},
        groups={"rest": 10},
    )
    wide = wide.assuming(known=4)
    exact, sampled = run(wide, release, draws=0), run(wide, release, "mcmc", seed=1, draws=2000)
    assert exact.posterior == pytest.approx(0.59525, abs=5e-6)  # spec/pymc.md, running example (b)
    assert abs(sampled.posterior - exact.posterior) < 4 * sampled.mcse
    attrs = sampled.tree["answer"].attrs
    assert attrs["r_hat"] < 1.01
    assert attrs["ess_bulk"] > 1000


@scenario(target="first", source="a test of what the code has never seen")
def never_seen(
    release,
    *,
    rate=Prior("Categorical", p=np.array([0.2, 0.5, 0.3])),
    children=Prior("Poisson", mu=1.5, shape=3),
):
    """Dependent priors, a vector prior, a difference, a product."""
    first = pm.Bernoulli("first", p=0.1 + 0.3 * rate)
    measured(release["a"], first + children.sum())
    measured(release["b"], children[0] - 2 * first)
    measured(release["c"], rate * first + children[2])


def test_a_scenario_the_code_has_never_seen_equals_brute_force():
    release = Release.from_counts({"a": 4, "b": -1, "c": 2}, sigma2={"a": 2.0, "b": 1.0, "c": 3.0})
    support = np.arange(40)
    log_poisson = support * math.log(1.5) - 1.5 - np.array([math.lgamma(k + 1) for k in support])
    odds = np.zeros(2)
    for rate, p_rate in enumerate([0.2, 0.5, 0.3]):
        for first in (0, 1):
            p_first = 0.1 + 0.3 * rate if first else 0.9 - 0.3 * rate
            x, y, z = np.ix_(support, support, support)
            log_w = log_poisson[x] + log_poisson[y] + log_poisson[z]
            log_w = log_w + dg.log_pmf(4 - first - x - y - z, 2.0) + dg.log_pmf(-1 - x + 2 * first, 1.0)
            log_w = log_w + dg.log_pmf(2 - rate * first - z, 3.0)
            odds[first] += p_rate * p_first * np.exp(log_w).sum()
    assert run(never_seen, release, draws=0).posterior == pytest.approx(odds[1] / odds.sum(), abs=1e-10)


def test_thirty_siblings_one_by_one_equal_their_convolution():
    rng = np.random.default_rng(3)
    noisy = rng.integers(-2, 6, 30)
    release = Release.from_counts(
        {"block": 1, "block_group": 40, "siblings": noisy.tolist()},
        sigma2={"block": 5.0, "block_group": 2.0, "siblings": 5.0},
    )
    y = np.arange(120)
    total = np.ones(1)
    for x in noisy:
        weight = dg.pmf(int(x) - y, 5.0)
        total = np.convolve(total, weight / weight.sum())
    s = np.arange(len(total))
    odds = [dg.pmf(1 - k, 5.0) * (total * dg.pmf(40 - k - s, 2.0)).sum() for k in (0, 1)]
    assert run(load("siblings"), release, draws=0).posterior == pytest.approx(odds[1] / sum(odds), abs=1e-10)


def test_a_second_release_and_another_prior_cost_no_compilation():
    first = prepare(two_level, PAPER)
    other = Release.from_counts({"block": 5, "block_group": 9, "rest": 3}, rho="0.2", groups={"rest": 4})
    assert prepare(two_level.assuming(present=Prior("Bernoulli", p=0.01)), other) is first
    assert prepare(two_level.assuming(known=1), other) is not first, (
        "a known number may decide the shape of the model"
    )
    from adversary.samplers.closed import probability, two_level_log_odds

    expected = probability(two_level_log_odds(5, 9, 3, 0, 2.5, 2.5, 10.0, math.log(0.01) - math.log1p(-0.01)))
    got = run(two_level.assuming(present=Prior("Bernoulli", p=0.01)), other, draws=0).posterior
    assert got == pytest.approx(float(expected), rel=1e-11)


def test_a_scenario_that_looks_at_a_value_is_compiled_anew_for_another_value():
    @scenario(target="present")
    def window(release, *, present=Prior("Bernoulli", p=0.5)):
        centre = release["block"].value
        others = pm.DiscreteUniform("others", lower=centre - 3, upper=centre + 3)
        measured(release["block"], present + others)

    one = Release.from_counts({"block": 10}, rho="0.1")
    two = Release.from_counts({"block": 20}, rho="0.1")
    assert prepare(window, one) is not prepare(window, two)
    assert run(window, one, draws=0).posterior == pytest.approx(
        run(window, two, draws=0).posterior, abs=1e-14
    )


@settings(max_examples=25, deadline=None)
@given(x=st.integers(-30, 30), shift=st.sampled_from([0, 3, 10**6, 10**9, 10**15]))
def test_the_answer_does_not_change_when_everything_shifts(x, shift):
    here = run(single_level, Release.from_counts({"block": x}, sigma2=5.0), draws=0)
    there = run(
        single_level.assuming(known=shift), Release.from_counts({"block": x + shift}, sigma2=5.0), draws=0
    )
    assert there.log_odds == here.log_odds


@settings(max_examples=25, deadline=None)
@given(x=st.integers(-50, 50))
def test_one_more_person_shifts_the_log_odds_linearly(x):
    here, next_ = (
        run(single_level, Release.from_counts({"block": v}, sigma2=5.0), draws=0).log_odds for v in (x, x + 1)
    )
    assert next_ - here == pytest.approx(1 / 5.0, abs=1e-12)


def test_posteriors_average_to_the_prior_over_releases():
    p, n = 0.3, np.arange(-60, 62)
    chance = {k: dg.pmf(n - k, 5.0) for k in (0, 1)}
    one = single_level.assuming(present=Prior("Bernoulli", p=p))
    posterior = np.array(
        [run(one, Release.from_counts({"block": int(x)}, sigma2=5.0), draws=0).posterior for x in n]
    )
    assert p * chance[1] @ posterior + (1 - p) * chance[0] @ posterior == pytest.approx(p, abs=1e-12)


def test_much_noise_teaches_nothing_and_none_everything():
    noisy = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, sigma2=1e7)
    assert run(two_level, noisy, draws=0).posterior == pytest.approx(0.5, abs=1e-3)
    endless = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, sigma2=1e14)
    with pytest.raises(UnsupportedModelError, match="elsewhere would have to be followed"):
        run(two_level, endless, draws=0)
    sharp = Release.from_counts({"block": 1}, sigma2=1e-3)
    assert run(single_level, sharp, draws=0).posterior == pytest.approx(1.0, abs=1e-12)
    exact = Release.from_counts({"block": 1, "block_group": 3, "rest": 2}, rho="inf")
    assert run(two_level, exact, draws=0).posterior == 1.0


def test_a_tiny_prior_keeps_its_digits():
    tiny = single_level.assuming(present=Prior("Bernoulli", p=1e-300))
    result = run(tiny, Release.from_counts({"block": 2}, sigma2=5.0), draws=0)
    assert result.log_odds == pytest.approx(math.log(1e-300) + 0.3, rel=1e-14)
    assert result.risk.value == pytest.approx(math.exp(0.3), rel=1e-12)


def test_draws_are_independent_draws_of_the_exact_joint():
    result = run(two_level, PAPER, draws=25_000, seed=1)
    draws = result.tree["posterior"].to_dataset()
    joint = draws.present * (draws.elsewhere == 0)
    w = [math.exp(float(dg.log_pmf(2 - k, PAPER["block"].sigma2))) for k in (0, 1)]
    j = np.arange(60)
    table = np.array(
        [
            w[k] * dg.pmf(1 - k - j, PAPER["block_group"].sigma2) * dg.pmf(-1 - j, PAPER["rest"].noise_sigma2)
            for k in (0, 1)
        ]
    )
    expected = table[1, 0] / table.sum()
    assert abs(float(joint.mean()) - expected) < 4 * math.sqrt(expected * (1 - expected) / joint.size)


def test_the_same_seed_gives_the_same_result_in_every_dress():
    def once(seed):
        return run(two_level, PAPER, seed=seed, draws=50).tree["posterior"].to_dataset()

    assert once(42).identical(once(np.random.SeedSequence(42)))
    assert once(np.random.default_rng(42)).identical(once(np.random.default_rng(42)))
    assert not once(42).identical(once(43))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: run(two_level, PAPER, "nuts"), ScenarioError, "there are exact, gibbs, mcmc"),
        (lambda: run(two_level, PAPER, known=4), ScenarioError, "two_level.assuming\\(known=...\\)"),
        (lambda: run(two_level.assuming(present=1), PAPER), ModelError, "fixed by assumption"),
        (
            lambda: run(two_level.assuming(present=Prior("Bernoulli", p=1.0)), PAPER),
            ModelError,
            "strictly between 0 and 1",
        ),
        (lambda: run("two_level", PAPER), ScenarioError, "adversary.load"),
        (lambda: run(two_level, PAPER, seed=-1), ScenarioError, "seed"),
        (lambda: run(load("couple"), PAPER, "gibbs"), UnsupportedModelError, "no hand-written reference"),
        (lambda: run(two_level, {"block": 2}), ScenarioError, "takes a Release"),
    ],
    ids=["sampler", "option", "fixed", "certain", "text", "seed", "gibbs", "dict"],
)
def test_mistakes_are_answered_with_the_way_out(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_prior_that_is_flat_and_unmeasured_is_refused_by_name():
    release = Release.from_counts({"block": 2, "block_group": 1}, rho="0.1")

    @scenario(target="present")
    def loose(release, *, present=Prior("Bernoulli", p=0.5), elsewhere=Prior("FlatCount")):
        measured(release["block"], present)
        measured(release["block_group"], present - elsewhere * 0 + 0 * elsewhere)

    @scenario(target="elsewhere")
    def never_measured(release, *, present=Prior("Bernoulli", p=0.5), elsewhere=Prior("FlatCount")):
        measured(release["block"], present)
        pm.Deterministic("sum", elsewhere + present)

    with pytest.raises(ModelError, match="elsewhere"):
        run(never_measured, release, draws=0)
    assert run(loose, release, draws=0).posterior == pytest.approx(
        run(load("uniqueness"), release, draws=0).posterior, abs=1e-12
    )


def test_a_question_that_is_true_when_nobody_is_there_equals_brute_force():
    # the target 1[sum of others = 0] is on where all unknowns are zero: its constant term is 0, not 1
    release = Release.from_counts({"block": 2, "block_group": 1, "tract": 3}, sigma2=5.0)
    a, b = np.ix_(np.arange(60), np.arange(60))
    log_w = -2.0 - np.array([[math.lgamma(i + 1) + math.lgamma(j + 1) for j in range(60)] for i in range(60)])
    log_w = log_w + dg.log_pmf(1 - 1 - a, 5.0) + dg.log_pmf(3 - 1 - a - b, 5.0)
    w = np.exp(log_w)
    result = run(load("unique_at"), release, draws=0)
    assert result.posterior == pytest.approx(w[0].sum() / w.sum(), abs=1e-12)
    assert result.prior == pytest.approx(math.exp(-1), abs=1e-12)
    further = run(load("unique_at").assuming(level="tract"), release, draws=0)
    assert further.posterior == pytest.approx(w[0, 0] / w.sum(), abs=1e-12)


@pytest.mark.parametrize("name", ["couple", "moved", "lying_cells"])
def test_mcmc_follows_a_target_that_is_computed_from_several_unknowns(name):
    counts = {
        "couple": {"block": 2},
        "moved": {"here": 1, "there": 2},
        "lying_cells": {"block": 2, "other": 1},
    }[name]
    release = Release.from_counts(counts, rho="0.1")
    exact, sampled = (run(load(name), release, sampler, seed=1, draws=500) for sampler in ("exact", "mcmc"))
    assert abs(sampled.posterior - exact.posterior) < 4 * sampled.mcse


def test_a_prior_of_another_make_that_changes_between_calls_is_read_anew():
    class Changing:
        dims = ()
        p = 0.1

        def create_variable(self, name):
            return pm.Bernoulli(name, p=np.float64(self.p))

    prior = Changing()
    release = Release.from_counts({"block": 2}, sigma2=5.0)
    one = single_level.assuming(present=prior)
    assert run(one, release, draws=0).prior == pytest.approx(0.1, rel=1e-14)
    prior.p = 0.7
    assert run(one, release, draws=0).prior == pytest.approx(0.7, rel=1e-14)


@pytest.mark.parametrize("aside", ["block_group", "rest", "block"])
def test_the_reference_passes_over_what_was_not_measured_as_the_model_does(aside):
    rho = {name: 0 if name == aside else "0.2" for name in ("block", "block_group", "rest")}
    release = Release.from_counts({"block": 2, "block_group": 4, "rest": 1}, rho=rho, groups={"rest": 3})
    proper = two_level.assuming(elsewhere=Prior("Poisson", mu=2.0))
    exact, gibbs = run(proper, release, draws=0), run(proper, release, "gibbs", seed=1, draws=4000)
    assert abs(gibbs.posterior - exact.posterior) < 4 * gibbs.mcse


def test_three_continuous_unknowns_go_to_mcmc_and_the_prior_says_that_it_is_drawn():
    @scenario(target="x", source="a test")
    def three(
        release,
        *,
        a=Prior("Normal", mu=0.0, sigma=1.0),
        b=Prior("Normal", mu=0.0, sigma=1.0),
        c=Prior("Normal", mu=0.0, sigma=1.0),
    ):
        """Is she there, with a probability that has three unknown effects?"""
        measured(release["block"], pm.Bernoulli("x", logit_p=a + b + c))

    release = Release.from_counts({"block": 2}, sigma2=5.0)
    with pytest.raises(UnsupportedModelError, match="mcmc"):
        run(three, release)
    result = run(three, release, "mcmc", seed=1, draws=1000)
    # by symmetry the prior of x is 1/2, and only x's likelihood depends on x: the posterior is that of one level
    assert abs(result.posterior - 0.574442516811659) < 4 * result.mcse
    assert abs(result.prior - 0.5) < 4 * math.sqrt(0.25 / 20_000)
    assert any("estimated from 20000 draws" in c.text for c in result.checks)


def test_a_negative_mean_is_blamed_on_the_prior_not_on_the_data():
    release = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, sigma2=5.0)
    wrong = load("two_level").assuming(elsewhere=Prior("Poisson", mu=-5))
    with pytest.raises(ModelError, match=r"mu of the prior .* on elsewhere must not be negative, got -5"):
        run(wrong, release)
