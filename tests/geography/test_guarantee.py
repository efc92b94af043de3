"""What a spine promises: every pair of blocks by itself, and the certificates where nothing was bypassed."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

from adversary.errors import BudgetError
from adversary.geography.blocks import BlockTable
from adversary.geography.bypass import bypass_only_children
from adversary.geography.das import aian_spine, conventional_spine
from adversary.geography.guarantee import (
    attribute_guarantee,
    location_guarantees,
    location_within,
    path_profiles,
    spine_guarantee,
)
from adversary.geography.plans import level_shares
from adversary.geography.spine import Spine
from adversary.privacy.budget import Allocation
from adversary.privacy.certificates import attribute_rho, location_rho

PERSONS = Allocation.load("2020-pl94-persons")


def random_spine(rng: random.Random, *, ragged: bool) -> Spine:
    rows = []
    for a in range(rng.randint(1, 3)):
        for b in range(rng.randint(1, 3)):
            for c in range(rng.randint(1, 4)):
                skip = ragged and rng.random() < 0.3
                rows.append((f"a{a}", "" if skip else f"a{a}b{b}", f"a{a}b{b}c{c}"))
    table = {k: [r[i] for r in rows] for i, k in enumerate(("top", "middle", "leaf"))}
    shares = (
        {"top": "1/6", "middle": 0, "leaf": "5/6"}
        if ragged
        else {"top": "1/6", "middle": "1/2", "leaf": "1/3"}
    )
    return bypass_only_children(Spine.from_blocks(table, shares))


@pytest.mark.parametrize("ragged", [False, True])
def test_every_pair_of_blocks_of_random_spines_is_within_the_promise_and_one_attains_it(ragged: bool) -> None:
    rng = random.Random(3)
    for _ in range(40):
        spine = random_spine(rng, ragged=ragged)
        labels = [rng.choice(["A", "B", ""]) for _ in spine.leaves]
        found = location_within(spine, np.array(labels), "7/3")
        of: dict[int, list[Fraction]] = {i: [] for i in range(len(labels))}
        for i, j in itertools.permutations(range(len(labels)), 2):
            if labels[i] and labels[i] == labels[j]:
                x, y = int(spine.leaves[i]), int(spine.leaves[j])
                of[i].append(spine.rho_between(x, y, Fraction(7, 3)))
        everything = [r for pairs in of.values() for r in pairs]
        assert (found.worst is None) == (not everything)
        if found.worst is not None:
            assert found.worst.fraction == max(everything)
        for i, pairs in of.items():
            if not pairs:
                assert np.isnan(found.most[i])
                assert np.isnan(found.mean[i])
                assert np.isnan(found.right[i])
                continue
            assert found.most[i] == pytest.approx(float(max(pairs)), abs=1e-12)
            assert found.mean[i] == pytest.approx(float(sum(pairs)) / len(pairs), abs=1e-12)
            phi = [NormalDist().cdf(math.sqrt(2 * float(r)) / 2) for r in pairs]
            assert found.right[i] == pytest.approx(sum(phi) / len(phi), abs=1e-12)
        for level, worst in location_guarantees(spine, "7/3").items():
            above = spine.ancestor(level)
            pairs = [
                spine.rho_between(int(spine.leaves[i]), int(spine.leaves[j]), Fraction(7, 3))
                for i, j in itertools.combinations(range(len(labels)), 2)
                if above[i] == above[j] >= 0
            ]
            assert worst.fraction == max(pairs)


def two_tracts(**codes: list[str]) -> BlockTable:
    ids = [f"44001{t:06d}{b}" for t in (100, 200) for b in (1000, 1001, 2000, 2001)]
    return BlockTable(ids, **codes)


def test_without_bypassing_the_spine_promises_what_the_certificate_says() -> None:
    spine = conventional_spine(two_tracts(), level_shares(PERSONS))
    assert spine_guarantee(spine, PERSONS.total) == PERSONS.total
    assert spine_guarantee(spine, PERSONS.total, "unbounded") == PERSONS.total / 2
    found = location_guarantees(spine, PERSONS.total)
    for level in ("Tract", "Block_Group"):
        assert found[level] == location_rho(PERSONS, level)
    assert found["County"] == location_rho(PERSONS, "county")
    for attribute in ("hhgq", "votingage", "hispanic", "cenrace"):
        assert attribute_guarantee(spine, PERSONS, attribute) == attribute_rho(PERSONS, attribute)


def test_two_parts_of_a_state_are_told_apart_by_more_than_the_state_level_says() -> None:
    blocks = two_tracts(aiannhce=["2415"] * 2 + ["9999"] * 6)
    spine = aian_spine(blocks, level_shares(PERSONS))
    state = location_within(spine, np.full(spine.leaves.size, "44"), PERSONS.total)
    assert state.worst == location_rho(PERSONS, "nation")  # the parts meet only in the nation
    assert state.worst > location_rho(PERSONS, "state")


def test_budget_moved_to_a_level_that_asks_for_race_more_loosens_the_promise_about_race() -> None:
    ids = ["440010001001000", "440010001001001", "440010002001000", "440010002001001", "440010002002000"]
    plain = conventional_spine(BlockTable(ids), level_shares(PERSONS))
    moved = bypass_only_children(plain)  # the first tract has one block group, so it has its budget
    path = moved.path("440010001001000")
    assert moved.share(path[3]) == plain.share(path[3]) + plain.share(path[4])
    got = attribute_guarantee(moved, PERSONS, "cenrace")
    by_hand = Fraction(0)
    for unit in path:
        mix = PERSONS.query[PERSONS.level_named(moved.level(unit))]
        asks = sum(a for q, a in mix.items() if "cenrace" in q or q == "detailed")
        by_hand += moved.share(unit) * asks
    assert got.fraction == PERSONS.total.fraction * by_hand
    assert got > attribute_rho(PERSONS, "cenrace")


def test_profiles_say_where_every_path_spends() -> None:
    spine = random_spine(random.Random(8), ragged=True)
    profiles, of_leaf = path_profiles(spine)
    assert profiles.shape[0] == np.unique(of_leaf).size
    for leaf, kind in zip(spine.leaves.tolist(), of_leaf.tolist(), strict=True):
        wanted = {int(spine.level_of[u]): spine.share(u) for u in spine.path(leaf)}
        got = {k: spine.share_table[i] for k, i in enumerate(profiles[kind].tolist()) if i >= 0}
        assert got == wanted


def test_paths_that_spend_different_sums_are_refused() -> None:
    table = {"a": ["1", "1"], "b": ["", "12"], "c": ["111", "121"]}
    spine = Spine.from_blocks(table, {"a": "1/2", "b": "1/4", "c": "1/4"})
    with pytest.raises(BudgetError, match="paths of different sums"):
        location_within(spine, np.array(["A", "A"]), 1)
    with pytest.raises(BudgetError, match="1 codes for 2 leaves"):
        location_within(spine, np.array(["A"]), 1)
