"""Off-spine entity distance against the linear program that defines it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from adversary.errors import AdversaryError
from adversary.geography.off_spine import entity_combination, entity_distance, entity_distances, members_of
from adversary.geography.spine import Spine


def random_spine(rng: np.random.Generator) -> Spine:
    """Ragged, with chains, one root or two."""
    units, parents = [], []
    layer = [""] * int(rng.integers(1, 3))
    for d in range(4):
        below = []
        for above in layer:
            if d > 1 and rng.random() < 0.2:
                continue
            for _ in range(1 if d == 0 else int(rng.integers(1, 5))):
                units.append(f"u{len(units)}")
                parents.append(above)
                below.append(units[-1])
        layer = below
    return Spine.from_parents(units, parents)


def incidence(spine: Spine) -> np.ndarray:
    out = np.zeros((len(spine), spine.leaves.size))
    for i, leaf in enumerate(spine.leaves):
        out[spine.path(int(leaf)), i] = 1
    return out


def least_l1(spine: Spine, inside: np.ndarray) -> float:
    """min |w|_1 subject to A'w = 1_set, as a linear program in the positive and negative parts of w."""
    a = incidence(spine)
    answer = linprog(np.ones(2 * len(spine)), A_eq=np.hstack([a.T, -a.T]), b_eq=inside.astype(float))
    assert answer.status == 0
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(40))
def test_the_distance_is_the_least_l1_combination_of_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spine = random_spine(rng)
    inside = rng.random(spine.leaves.size) < rng.choice([0.2, 0.5, 0.8])
    distance = entity_distance(spine, inside)
    assert distance == pytest.approx(least_l1(spine, inside), abs=1e-7)
    combination = entity_combination(spine, inside)
    assert sum(abs(w) for w in combination.values()) == distance
    weights = np.zeros(len(spine))
    weights[list(combination)] = list(combination.values())
    np.testing.assert_array_equal(weights @ incidence(spine), inside)


@pytest.mark.parametrize("seed", range(20))
def test_all_entities_in_one_pass_have_their_own_distances(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    spine = random_spine(rng)
    codes = rng.choice(["A", "B", "C", ""], spine.leaves.size)
    for top in (None, "level 1"):
        got = entity_distances(spine, codes, top)
        assert got == {c: entity_distance(spine, codes == c, top) for c in sorted(set(codes) - {""})}


def test_a_unit_is_at_distance_one_and_nothing_at_zero() -> None:
    spine = random_spine(np.random.default_rng(3))
    a = incidence(spine)
    assert {entity_distance(spine, row.astype(bool)) for row in a} == {1}
    assert entity_distance(spine, np.zeros(spine.leaves.size, bool)) == 0
    assert entity_distances(spine, [""] * spine.leaves.size) == {}


def test_stopping_at_the_county_never_shortens_a_distance() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        spine = random_spine(rng)
        inside = rng.random(spine.leaves.size) < 0.6
        assert entity_distance(spine, inside, "level 1") >= entity_distance(spine, inside)


def test_sets_that_are_none_are_refused() -> None:
    spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]})
    with pytest.raises(AdversaryError, match="'1' is no leaf"):
        members_of(spine, ["1"])
    with pytest.raises(AdversaryError, match="a mask of 3 leaves for a spine of 2"):
        entity_distance(spine, np.ones(3, bool))
    with pytest.raises(AdversaryError, match="1 codes for 2 leaves"):
        entity_distances(spine, ["A"])
