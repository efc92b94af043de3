import json
import math

import numpy as np
import pytest

from adversary import Prior, Release, load, measured, run, scenario
from adversary.expectation import true_counts
from adversary.privacy.semantics import risk_ceiling
from adversary.samplers.changes import count_changes, improper_unknowns

ONE = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, rho="0.1", groups={"rest": 27})
EVERY = Release.from_counts(
    dict.fromkeys(
        ("block", "block_group", "rest", "rest_of_block_group", "total", "other", "here", "there"), 1
    ),
    rho="0.1",
)
OTHERS = {
    "siblings": Release.from_counts({"block": 2, "siblings": [1, 2, 0], "block_group": 4}, rho="0.1"),
    "uniqueness": Release.from_counts({"block": 2, "tract": 1}, rho="0.1"),
    "whole_record": Release.from_counts({"cells": [1, 2]}, rho="0.1"),
    "unknown_attribute": Release.from_counts({"cells": [1, 2]}, rho="0.1"),
}
EVENTS = (
    *("fill_out", "fill_out_total", "lying", "lying_cells", "moved", "path", "presence_total", "siblings"),
    *("single_level", "two_level", "uniqueness", "unknown_variable"),
)


def of(declared, release):
    model, reads = declared.build(release)
    return count_changes(model, declared.target, release, reads)


@pytest.mark.parametrize("name", EVENTS)
def test_what_is_read_off_the_model_is_what_the_counts_do_at_two_truths(name):
    declared, release = load(name), OTHERS.get(name, EVERY)
    shapes = declared(release).eval_rv_shapes()
    found = of(declared, release)
    truth = {rv.name: np.full(shapes[rv.name], 2) for rv in declared(release).free_RVs}
    there, gone = (true_counts(declared, truth | {declared.target: v}, release) for v in (1, 0))
    assert set(found) == set(there)
    for count, change in found.items():
        np.testing.assert_array_equal(np.asarray(there[count]) - np.asarray(gone[count]), change)


@pytest.mark.parametrize("name", ["couple", "whole_record", "unknown_attribute"])
def test_a_target_that_is_no_unknown_of_its_own_is_not_recorded(name):
    assert of(load(name), OTHERS.get(name, EVERY)) is None


def _leaning(release, *, present=Prior("Bernoulli", p=0.5)):
    import pymc as pm

    others = pm.Poisson("others", mu=1.0 + present)
    measured(release["block"], present + others)


def _leant(release, *, rate=Prior("Categorical", p=[0.5, 0.5])):
    import pymc as pm

    present = pm.Bernoulli("present", p=0.25 + 0.5 * rate)
    measured(release["block"], present)


def _product(release, *, present=Prior("Bernoulli", p=0.5), others=Prior("Poisson", mu=1.0)):
    measured(release["block"], present * others)


def _looking(release, *, present=Prior("Bernoulli", p=0.5)):
    measured(release["block"], present * (1 if release["block"].value > 0 else 2))


def _weighing(release, *, present=Prior("Bernoulli", p=0.5)):
    import pymc as pm

    pm.Potential("more", -1.0 * present)
    measured(release["block"], present)


@pytest.mark.parametrize(
    "function", [_leaning, _leant, _product, _looking, _weighing], ids=lambda f: f.__name__.strip("_")
)
def test_what_has_no_fixed_change_is_not_recorded(function):
    assert of(scenario(target="present")(function), ONE) is None


def test_noise_that_is_not_the_releases_own_is_not_recorded():
    @scenario(target="present")
    def other_noise(release, *, present=Prior("Bernoulli", p=0.5)):
        from adversary.distributions import DiscreteGaussian

        DiscreteGaussian("block", present, sigma2=1.0, observed=release["block"].value + 0)

    model, _ = other_noise.build(ONE)
    assert count_changes(model, "present", ONE) is None


def test_flat_priors_without_end_are_named():
    assert improper_unknowns(load("two_level")(ONE)) == ["elsewhere"]
    assert improper_unknowns(load("single_level")(ONE)) == []


def test_the_divergence_and_ceiling_of_an_answer_follow_from_what_the_target_changes():
    result = run(load("two_level"), ONE, draws=0)
    assert json.loads(result.attrs["changes"]) == {"block": 1, "rest": 0, "block_group": 1}
    assert result.divergence == pytest.approx(0.2, rel=1e-14)
    assert result.risk_ceiling == risk_ceiling(0.2, 0.5)
    assert json.loads(result.attrs["improper"]) == ["elsewhere"]


def test_an_exact_count_that_gives_her_away_leaves_one_over_the_prior():
    release = Release.from_counts({"block": 1}, rho="inf")
    result = run(load("single_level").assuming(present=Prior("Bernoulli", p=0.25)), release, draws=0)
    assert math.isinf(result.divergence)
    assert result.risk_ceiling == pytest.approx(4.0, rel=1e-14)
    assert result.risk.value == pytest.approx(4.0, rel=1e-14)


def test_the_averaged_risk_stays_below_the_recorded_ceiling():
    from adversary.expectation import expected_risk

    declared = load("presence_total").assuming(others=Prior("Poisson", mu=1.0))
    release = Release.from_counts({"block": 1}, sigma2=2.0)
    ceiling = run(declared, release, draws=0).risk_ceiling
    weights = np.exp(-1.0) / np.array([math.factorial(k) for k in range(9)])
    averaged = 0.0
    for k, weight in enumerate(weights):
        found = expected_risk(declared, {"present": 1, "others": k}, release)
        averaged += weight * found.risk
    assert 1 < averaged < ceiling == risk_ceiling(0.25, 0.5)


def test_a_sampler_that_belongs_to_no_posterior_has_no_ceiling():
    result = run(load("two_level"), ONE, "gibbs", seed=1, draws=200, mode="literal")
    assert (result.divergence, result.risk_ceiling) == (None, None)


def test_sampled_answers_record_it_too():
    result = run(load("single_level"), ONE, "gibbs", seed=1, draws=200)
    assert json.loads(result.attrs["changes"]) == {"block": 1}
