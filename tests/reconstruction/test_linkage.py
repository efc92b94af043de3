"""Figures of an attack against counting by hand and against every order within ties."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.reconstruction.households import household_configurations
from adversary.reconstruction.linkage import (
    MATCH_KEYS,
    area_under_curve,
    brier,
    cell_scores,
    curve,
    flags,
    match_cells,
    sampling_scores,
    unique_within,
)


@pytest.mark.parametrize("seed", range(6))
def test_the_range_of_ties_is_that_of_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, hit = rng.integers(0, 3, 6), rng.random(6) < 0.5
    orders = [np.array(o) for o in permutations(range(6)) if (np.diff(score[list(o)]) <= 0).all()]
    hits = np.array([np.cumsum(hit[o]) for o in orders])
    found = curve(score, hit)
    np.testing.assert_allclose(found.hits, hits.mean(axis=0))
    assert found.fewest.tolist() == hits.min(axis=0).tolist()
    assert found.most.tolist() == hits.max(axis=0).tolist()
    precision, total = hits / np.arange(1, 7), hit.sum() + 2
    low, high = found.precision_range
    np.testing.assert_allclose([low, high], [precision.min(axis=0), precision.max(axis=0)])
    low, high = curve(score, hit, int(total)).recall_range
    np.testing.assert_allclose([low, high], [hits.min(axis=0) / total, hits.max(axis=0) / total])


def test_the_whole_list_has_the_base_rate_whatever_the_scores() -> None:
    rng = np.random.default_rng(1)
    hit = rng.random(200) < 0.17
    found = curve(rng.integers(0, 5, 200), hit)
    assert found.precision[-1] == pytest.approx(hit.mean())
    assert found.recall[-1] == pytest.approx(1)
    assert (found.fewest[-1], found.most[-1]) == (hit.sum(), hit.sum())


def test_recall_counts_the_hits_outside_the_list() -> None:
    found = curve([3, 2, 1], [True, True, False], total=8)
    assert found.recall.tolist() == [1 / 8, 2 / 8, 2 / 8]
    assert found.recall_at(1.0) == 0.25
    assert found.precision_at(0.25) == 1.0
    assert np.isnan(found.precision_at(0.5))
    with pytest.raises(ModelError, match="count all of them"):
        curve([3], [True], total=0)


def test_an_empty_list_and_no_hits_are_answers_not_errors() -> None:
    assert len(curve([], [])) == 0
    nothing = curve([1, 2], [False, False])
    assert np.isnan(nothing.recall).all()
    assert np.isnan(nothing.recall_range).all()
    assert nothing.recall_at(0.5) == 0
    none = flags([False, False], [True, False])
    assert np.isnan(none.precision)
    assert none.recall == 0
    assert np.isnan(flags([True], [False]).recall)


def test_the_area_under_the_curve_counts_pairs() -> None:
    rng = np.random.default_rng(2)
    score, hit = rng.integers(0, 4, 40), rng.random(40) < 0.4
    pairs = [(a > b) + (a == b) / 2 for a in score[hit] for b in score[~hit]]
    assert area_under_curve(score, hit) == pytest.approx(np.mean(pairs))
    assert np.isnan(area_under_curve([1, 2], [True, True]))
    assert brier([1, 0.5], [True, False]) == 0.125


def test_scores_spread_the_harm_of_a_cell_over_those_who_share_it() -> None:
    table = household_configurations(max_size=4)
    rng = np.random.default_rng(5)
    block = rng.multinomial(30, np.full(len(table), 1 / len(table)))
    records = table.records(block)
    harm = rng.random(len(table)) < 0.4
    for key in MATCH_KEYS.values():
        cells, known = match_cells(table, records, key)
        scores = cell_scores(cells, block * harm, known)
        assert scores.sum() == pytest.approx((block * harm).sum())  # everyone is known: nothing is lost
        of_one = records[0]
        alike = np.ones(len(records), dtype=bool)
        for name in key:
            column = table.column("children" if name == "child" else name)
            alike &= (
                (records[:, column] > 0) == (of_one[column] > 0)
                if name == "child"
                else records[:, column] == of_one[column]
            )
        harmed = harm[table.find(records)]
        assert scores[0] == pytest.approx(harmed[alike].mean())
        assert cell_scores(cells, block * harm, known, per_household=False)[0] == harmed[alike].sum()
    assert cell_scores([0, 1], [0.5, 0.2], [-1, 1]).tolist() == [0, 0.2]


def test_population_uniques_are_counted_within_their_block() -> None:
    rng = np.random.default_rng(6)
    cell, block = rng.integers(0, 5, 60), rng.integers(0, 6, 60)
    byhand = [sum((cell == c) & (block == b)) == 1 for c, b in zip(cell, block, strict=True)]
    assert unique_within(cell, block).tolist() == byhand


def test_the_sampling_attack_ranks_by_the_rates_of_its_sample() -> None:
    rng = np.random.default_rng(7)
    cell = rng.integers(0, 4, 20_000)
    hit = rng.random(20_000) < np.array([0.05, 0.1, 0.2, 0.4])[cell]
    everything = sampling_scores(cell, hit, 1.0, seed=1)
    assert everything[0] == pytest.approx(hit[cell == cell[0]].mean())
    part = sampling_scores(cell, hit, 0.2, seed=1)
    at = [np.flatnonzero(cell == c)[0] for c in range(4)]
    assert (np.diff(part[at]) > 0).all()
    assert sampling_scores([0, 1], [True, True], 0.5, seed=1).tolist().count(0.0) == 1
    with pytest.raises(ModelError, match="above 0"):
        sampling_scores(cell, hit, 0, seed=1)
