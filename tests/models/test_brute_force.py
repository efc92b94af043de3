"""Every shipped scenario against an enumeration written down here, without PyMC, PyTensor or our formulas."""

import itertools
import math

import numpy as np
import pytest

from adversary import Prior, Release, load
from adversary.discover import list_scenarios
from adversary.samplers.prepared import prepare

FAR = 160  # flat counts are followed to here; what lies beyond weighs less than exp(-500)


def noise(seen, true, sigma2):
    """Log of the discrete Gaussian up to its constant."""
    return -((seen - true) ** 2) / (2 * sigma2)


def poisson(k, mu):
    return k * math.log(mu) - mu - math.lgamma(k + 1)


def odds(weights):
    """P of each key, from logs of weights that may be many."""
    top = max(w for _, w in weights)
    total = {}
    for key, w in weights:
        total.setdefault(key, []).append(math.exp(w - top))
    sums = {k: math.fsum(v) for k, v in total.items()}
    return {k: v / math.fsum(sums.values()) for k, v in sums.items()}


def bernoulli(x, p):
    return math.log(p if x else 1 - p)


def one_cell(name, target):
    release = Release.from_counts({"block": 5}, sigma2=3.0)
    scenario = load(name).assuming(known=3, **{target: Prior("Bernoulli", p=0.3)})
    return scenario, release, [(x, bernoulli(x, 0.3) + noise(5, 3 + x, 3.0)) for x in (0, 1)]


def fill_out_total():
    release = Release.from_counts({"block": 2, "total": 12}, sigma2={"block": 3.0, "total": 1.5})
    scenario = load("fill_out_total").assuming(known=1, known_total=9, answered=Prior("Bernoulli", p=0.8))
    return (
        scenario,
        release,
        [(x, bernoulli(x, 0.8) + noise(2, 1 + x, 3.0) + noise(12, 9 + x, 1.5)) for x in (0, 1)],
    )


def lying_cells():
    release = Release.from_counts({"block": 2, "other": 4}, sigma2={"block": 3.0, "other": 1.5})
    scenario = load("lying_cells").assuming(known=1, known_other=5, truthful=Prior("Bernoulli", p=0.9))
    return (
        scenario,
        release,
        [(x, bernoulli(x, 0.9) + noise(2, 1 + x, 3.0) + noise(4, 5 + 1 - x, 1.5)) for x in (0, 1)],
    )


def moved():
    release = Release.from_counts({"here": 2, "there": 4}, sigma2={"here": 3.0, "there": 1.5})
    scenario = load("moved").assuming(known_here=2, known_there=3)
    return (
        scenario,
        release,
        [(x, bernoulli(x, 0.2) + noise(2, 2 + 1 - x, 3.0) + noise(4, 3 + x, 1.5)) for x in (0, 1)],
    )


def couple():
    release = Release.from_counts({"block": 3}, sigma2=0.8)
    scenario = load("couple").assuming(known=1, stay=0.7, her=Prior("Bernoulli", p=0.4))
    weights = []
    for her, him in itertools.product((0, 1), repeat=2):
        w = bernoulli(her, 0.4) + math.log(0.7 if him == her else 1 - 0.7) + noise(3, 1 + her + him, 0.8)
        weights.append((her * him, w))
    return scenario, release, weights


def two_level(prior=None):
    release = Release.from_counts(
        {"block": 4, "block_group": 3, "rest": -1},
        sigma2={"block": 5.0, "block_group": 2.0, "rest": 5.0},
        groups={"rest": 6},
    )
    scenario = load("two_level").assuming(known=2, present=Prior("Bernoulli", p=0.4))
    if prior is not None:
        scenario = scenario.assuming(elsewhere=prior)
    log_prior = (lambda _: 0.0) if prior is None else (lambda y: poisson(y, prior.parameters["mu"]))
    weights = [
        (
            x,
            bernoulli(x, 0.4)
            + log_prior(y)
            + noise(4, 2 + x, 5.0)
            + noise(3, 2 + x + y, 2.0)
            + noise(-1, y, 30.0),
        )
        for x in (0, 1)
        for y in range(FAR)
    ]
    return scenario, release, weights


def path():
    counts = {"block": 2, "rest_of_block_group": -1, "block_group": 4, "rest_of_tract": 3, "tract": 5}
    release = Release.from_counts(counts, sigma2=1.5, groups={"rest_of_block_group": 2, "rest_of_tract": 3})
    scenario = load("path").assuming(known=1, present=Prior("Bernoulli", p=0.6))
    weights = []
    for x, y, z in itertools.product((0, 1), range(60), range(60)):
        w = bernoulli(x, 0.6) + noise(2, 1 + x, 1.5) + noise(-1, y, 3.0) + noise(4, 1 + x + y, 1.5)
        weights.append((x, w + noise(3, z, 4.5) + noise(5, 1 + x + y + z, 1.5)))
    return scenario, release, weights


def siblings():
    release = Release.from_counts({"block": 2, "siblings": [1, -2], "block_group": 5}, sigma2=1.5)
    scenario = load("siblings").assuming(known=1, present=Prior("Bernoulli", p=0.6))
    weights = []
    for x, y, z in itertools.product((0, 1), range(60), range(60)):
        w = bernoulli(x, 0.6) + noise(2, 1 + x, 1.5) + noise(1, y, 1.5) + noise(-2, z, 1.5)
        weights.append((x, w + noise(5, 1 + x + y + z, 1.5)))
    return scenario, release, weights


def on_spine():
    counts = {
        "block": 2,
        "siblings": [1],
        "cousins": [0, -1],
        "block_group": 4,
        "other_groups": 2,
        "tract": 5,
    }
    release = Release.from_counts(counts, sigma2=1.5)
    scenario = load("on_spine").assuming(known=1, present=Prior("Bernoulli", p=0.6))
    cousins = {}
    for a, b in itertools.product(range(50), repeat=2):
        cousins.setdefault(a + b, []).append(noise(0, a, 1.5) + noise(-1, b, 1.5))
    weights = []
    for x, y in itertools.product((0, 1), range(50)):
        near = bernoulli(x, 0.6) + noise(2, 1 + x, 1.5) + noise(1, y, 1.5) + noise(4, 1 + x + y, 1.5)
        for total, far in cousins.items():
            above = noise(2, total, 1.5) + noise(5, 1 + x + y + total, 1.5)
            weights.extend((x, near + above + w) for w in far)
    return scenario, release, weights


def presence_total():
    release = Release.from_counts({"block": 3}, sigma2=1.5)
    scenario = load("presence_total").assuming(present=Prior("Bernoulli", p=0.6))
    weights = []
    for x, y in itertools.product((0, 1), range(FAR)):
        # a Poisson whose rate is Gamma(2, 1): y + 1 times 2^-(y + 2)
        prior = math.log(y + 1) - (y + 2) * math.log(2)
        weights.append((x, bernoulli(x, 0.6) + prior + noise(3, x + y, 1.5)))
    return scenario, release, weights


def uniqueness():
    release = Release.from_counts(
        {"block": 2, "tract": -1, "state": 1}, sigma2={"block": 3.0, "tract": 1.0, "state": 0.5}
    )
    scenario = load("uniqueness").assuming(present=Prior("Bernoulli", p=1 / 864))
    return (
        scenario,
        release,
        [
            (x, bernoulli(x, 1 / 864) + noise(2, x, 3.0) + noise(-1, x, 1.0) + noise(1, x, 0.5))
            for x in (0, 1)
        ],
    )


def unique_at():
    release = Release.from_counts({"block": 1, "block_group": 2, "tract": 3}, sigma2=1.5)
    scenario = load("unique_at").assuming(level="tract", others=Prior("Poisson", mu=0.7))
    weights = []
    for y, z in itertools.product(range(60), repeat=2):
        w = poisson(y, 0.7) + poisson(z, 0.7) + noise(2, 1 + y, 1.5) + noise(3, 1 + y + z, 1.5)
        weights.append((int(y + z == 0), w))
    return scenario, release, weights


def cells(name, target):
    p, seen, known = np.array([0.1, 0.2, 0.3, 0.4]), [3, -1, 2, 0], np.array([1, 0, 2, 1])
    release = Release.from_counts({"cells": seen}, sigma2=1.5)
    scenario = load(name).assuming(known=known, **{target: Prior("Categorical", p=p)})
    weights = [
        (k, math.log(p[k]) + sum(noise(seen[i], int(known[i]) + (i == k), 1.5) for i in range(4)))
        for k in range(4)
    ]
    return scenario, release, weights


def reconstruction():
    """Every order of every household, with two exact tables and two noisy ones."""
    sigma2 = {"people": 0.0, "subsidised": 0.0, "people_subsidised": 2.0, "one_bedroom": 1.5}
    counts = {"people": 8, "subsidised": 2, "people_subsidised": 5, "one_bedroom": 1}
    shares = [0.3, 0.2, 0.3, 0.1, 0.1]
    people, inside, small = [1, 1, 3, 3, 3], [0, 1, 0, 1, 1], [0, 1, 0, 0, 1]
    release = Release.from_counts(counts, sigma2=sigma2)
    scenario = load("reconstruction").assuming(
        kind=Prior("Categorical", p=np.array(shares), dims="household")
    )
    weights = []
    for kinds in itertools.product(range(5), repeat=4):
        there = [(people[k], inside[k], small[k]) for k in kinds]
        if sum(p for p, _, _ in there) != 8 or sum(s for _, s, _ in there) != 2:
            continue
        w = sum(math.log(shares[k]) for k in kinds)
        w += noise(5, sum(p * s for p, s, _ in there), 2.0) + noise(1, sum(b for _, _, b in there), 1.5)
        weights.append((int(4 in kinds), w))
    return scenario, release, weights


CASES = {
    "single_level": lambda: one_cell("single_level", "present"),
    "fill_out": lambda: one_cell("fill_out", "answered"),
    "lying": lambda: one_cell("lying", "truthful"),
    "unknown_variable": lambda: one_cell("unknown_variable", "has_value"),
    "fill_out_total": fill_out_total,
    "lying_cells": lying_cells,
    "moved": moved,
    "couple": couple,
    "two_level": two_level,
    "two_level, Poisson": lambda: two_level(Prior("Poisson", mu=1.7)),
    "on_spine": on_spine,
    "path": path,
    "siblings": siblings,
    "presence_total": presence_total,
    "uniqueness": uniqueness,
    "unique_at": unique_at,
    "unknown_attribute": lambda: cells("unknown_attribute", "value"),
    "whole_record": lambda: cells("whole_record", "cell"),
    "reconstruction": reconstruction,
}


@pytest.mark.parametrize("name", CASES)
def test_exact_is_brute_force_to_ten_digits(name):
    scenario, release, weights = CASES[name]()
    expected = odds(weights)
    posterior = prepare(scenario, release).answer(scenario, release).posterior
    found = dict(zip(posterior.support.tolist(), posterior.p.tolist(), strict=True))
    assert set(expected) <= set(found)
    for value, p in found.items():
        assert p == pytest.approx(expected.get(value, 0.0), abs=1e-10)


def test_every_installed_scenario_of_ours_is_held_to_brute_force():
    ours = {
        k
        for k, s in list_scenarios().items()
        if not isinstance(s, str) and s.__module__.startswith("adversary_models")
    }
    assert ours == {name.split(",")[0] for name in CASES}


def test_an_enumeration_with_noise_wrong_by_a_tenth_is_noticed():
    scenario, release, _ = two_level()
    wrong = [
        (x, bernoulli(x, 0.4) + noise(4, 2 + x, 5.5) + noise(3, 2 + x + y, 2.2) + noise(-1, y, 33.0))
        for x in (0, 1)
        for y in range(FAR)
    ]
    posterior = prepare(scenario, release).answer(scenario, release).posterior
    assert abs(posterior.p[1] - odds(wrong)[1]) > 1e-4
