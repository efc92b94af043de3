"""GridGibbs leaves the model's own conditional alone, whatever its window."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import Competence

from adversary.distributions import DiscreteGaussian, FlatCount
from adversary.errors import SamplingError, UnsupportedModelError
from adversary.samplers._separable import entries_never_meet
from adversary.samplers.grid_gibbs import GridGibbs


def run(step, point, sweeps, *, tune=0, seed=1):
    """Run one step method alone; return draws of its variable after warm-up, and the statistics."""
    step.setup_chain(np.random.default_rng(seed), tune, sweeps)
    step.tune = tune > 0
    kept, stats = [], []
    for i in range(tune + sweeps):
        if i == tune:
            step.stop_tuning()
        point, [s] = step.step(point)
        if i >= tune:
            kept.append(point[step.value.name])
            stats.append(s)
    return np.array(kept), stats


def z_score(draws, mean):
    batches = draws[: len(draws) // 40 * 40].reshape(40, -1).mean(axis=1)
    return abs(draws.mean() - mean) / (batches.std(ddof=1) / np.sqrt(40))


def noisy(prior, value, sigma2):
    with pm.Model() as model:
        y = prior()
        DiscreteGaussian("seen", y, sigma2=sigma2, observed=value)
        step = GridGibbs([y], model=model)
    return model, step


def exact_mean(value, sigma2, low=0, high=400):
    y = np.arange(low, high + 1)
    w = np.exp(-((y - value) ** 2) / (2 * sigma2))
    return (w * y).sum() / w.sum()


@pytest.fixture(scope="module")
def flat():
    return noisy(lambda: FlatCount("y"), 4, 9.0)


@pytest.mark.parametrize("window", [2, 3, 7, 40])
def test_every_window_has_the_same_law(flat, window):
    model, step = flat
    step.first_window = window
    draws, _ = run(step, model.initial_point(), 8_000)
    assert z_score(draws, exact_mean(4, 9.0)) < 4


def test_noise_that_is_wrong_by_a_fifth_is_noticed(flat):
    model, step = flat
    step.first_window = 40
    draws, _ = run(step, model.initial_point(), 8_000)
    assert z_score(draws, exact_mean(4, 9.0 * 1.2)) > 4
    assert z_score(draws, exact_mean(4, 9.0 / 1.2)) > 4


def test_a_start_a_million_away_is_walked_in():
    model, step = noisy(lambda: pm.DiscreteUniform("y", 0, 10**6), 57, 50.0)
    draws, stats = run(step, model.initial_point(), 4_000, tune=100)
    assert model.initial_point()["y"] == 500_000
    assert z_score(draws, exact_mean(57, 50.0)) < 4
    assert 30 <= stats[-1]["grid_window_y"] <= 400


def test_the_window_stands_still_after_warm_up():
    model, step = noisy(lambda: pm.Poisson("y", 30.0), 20, 500.0)
    _, stats = run(step, model.initial_point(), 200, tune=100)
    assert len({s["grid_window_y"] for s in stats}) == 1


def test_two_states_flip_with_the_right_frequency():
    model, step = noisy(lambda: pm.Bernoulli("y", 0.3), 1, 2.0)
    w = 0.3 / (0.3 + 0.7 * np.exp(-0.25))
    draws, _ = run(step, model.initial_point(), 8_000)
    assert z_score(draws, w) < 4
    assert z_score(draws, w * 1.2) > 4


def test_a_small_support_is_taken_whole():
    model, step = noisy(lambda: pm.Categorical("y", [0.1, 0.2, 0.3, 0.4]), 1, 1.0)
    w = np.array([0.1, 0.2, 0.3, 0.4]) * np.exp(-((np.arange(4) - 1) ** 2) / 2)
    draws, stats = run(step, model.initial_point(), 8_000)
    assert stats[0]["grid_window_y"] == 4
    assert z_score(draws, (w * np.arange(4)).sum() / w.sum()) < 4


def test_independent_entries_move_in_one_call():
    seen = np.array([0, 3, 30, 200])
    with pm.Model() as model:
        y = FlatCount("y", shape=4)
        DiscreteGaussian("seen", y, sigma2=4.0, observed=seen)
        step = GridGibbs([y])
    assert step.elementwise
    draws, _ = run(step, model.initial_point(), 4_000, tune=50)
    for i, value in enumerate(seen):
        assert z_score(draws[:, i], exact_mean(value, 4.0)) < 4


def test_entries_that_meet_in_a_sum_move_one_by_one_and_right():
    with pm.Model() as model:
        y = pm.DiscreteUniform("y", 0, 90, shape=2)
        DiscreteGaussian("each", y, sigma2=9.0, observed=[3, 8])
        DiscreteGaussian("both", y.sum(), sigma2=2.0, observed=20)
        step = GridGibbs([y])
    assert not step.elementwise
    a, b = np.meshgrid(np.arange(91), np.arange(91), indexing="ij")
    w = np.exp(-((3 - a) ** 2) / 18 - (8 - b) ** 2 / 18 - (20 - a - b) ** 2 / 4)
    draws, _ = run(step, model.initial_point(), 4_000, tune=100)
    assert z_score(draws[:, 0], (w * a).sum() / w.sum()) < 4
    assert z_score(draws[:, 1], (w * b).sum() / w.sum()) < 4


def test_a_child_below_its_parent_stays_below():
    with pm.Model() as model:
        parent = pm.DiscreteUniform("parent", 0, 300)
        pm.DiscreteUniform("child", 0, parent)
        DiscreteGaussian("seen", parent, sigma2=4.0, observed=9)
        steps = [GridGibbs([v]) for v in model.free_RVs]
    point = model.initial_point()
    pairs = []
    for seed, s in enumerate(steps):
        s.setup_chain(np.random.default_rng(seed), 100, 6_000)
    for i in range(6_100):
        for s in steps:
            if i == 100:
                s.stop_tuning()
            point, _ = s.step(point)
        pairs.append((int(point["parent"]), int(point["child"])))
    found = np.array(pairs[100:])
    p = np.arange(301)
    w = np.exp(-((p - 9) ** 2) / 8)
    assert (found[:, 1] <= found[:, 0]).all()
    assert z_score(found[:, 0], (w * p).sum() / w.sum()) < 4
    assert z_score(found[:, 1], (w * p / 2).sum() / w.sum()) < 4


def test_a_conditional_with_one_state_is_counted():
    with pm.Model() as model:
        a, b = pm.DiscreteUniform("a", 0, 20), pm.DiscreteUniform("b", 0, 20)
        pm.Potential("tie", pt.switch(pt.eq(a + b, 20), 0.0, -np.inf))
        step = GridGibbs([a])
    _, stats = run(step, model.initial_point(), 20)
    assert all(s["grid_single_a"] == 1 and s["grid_moved_a"] == 0 for s in stats)
    assert step.single_state(model.initial_point())
    assert step.ties(model.initial_point()) == {"b"}


def test_a_place_without_probability_is_an_error():
    with pm.Model() as model:
        a = pm.DiscreteUniform("a", 0, 100)
        pm.Potential("never", pt.switch(pt.eq(a, 101), 0.0, -np.inf))
        step = GridGibbs([a])
    with pytest.raises(SamplingError, match="no value with positive probability"):
        run(step, model.initial_point(), 3)


def test_a_far_start_is_walked_in_without_warm_up_too(flat):
    _, step = flat
    step.first_window = 16
    draws, _ = run(step, {"y": np.array(700_000)}, 4_000)
    assert z_score(draws, exact_mean(4, 9.0)) < 4


@pytest.mark.parametrize(
    ("term", "separate"),
    [
        (lambda v: -((v - 3.0) ** 2), True),
        (lambda v: pt.switch(v >= 0, pt.zeros_like(v), -np.inf), True),
        (lambda v: v * v.sum(), False),
        (lambda v: v[::-1] * 1.0, False),
        (lambda v: v + pt.cumsum(v), False),
        (lambda v: v.dimshuffle("x", 0) + pt.zeros((2, 1)), False),
    ],
    ids=["a square", "a bound", "a total", "reversed", "a running sum", "a table"],
)
def test_separability_is_proved_or_denied(term, separate):
    v = pt.tensor("v", dtype="int64", shape=(3,))
    assert entries_never_meet(v, [term(v)]) is separate


def test_a_single_unknown_facing_many_counts_is_not_separable():
    v = pt.tensor("v", dtype="int64", shape=(1,))
    assert not entries_never_meet(v, [v + np.zeros(5)])


def test_only_univariate_integers_are_taken():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Multinomial("m", 5, [0.5, 0.5])
        n = pm.Poisson("n", 1.0)
        for name in ("x", "m"):
            with pytest.raises(UnsupportedModelError, match=name):
                GridGibbs([model[name]])
    assert GridGibbs.competence(n) == Competence.IDEAL
    assert GridGibbs.competence(model["m"]) == Competence.INCOMPATIBLE


def test_state_and_step_survive_a_journey(flat):
    model, step = flat
    run(step, model.initial_point(), 5, tune=30)
    twin = cloudpickle.loads(cloudpickle.dumps(step))
    twin.sampling_state = step.sampling_state
    a, b = (s.step(model.initial_point())[0]["y"] for s in (step, twin))
    assert a == b
