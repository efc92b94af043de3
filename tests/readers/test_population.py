"""Sparse true counts, and the synthetic population."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.errors import FileFormatError, ReleaseError
from adversary.geography.blocks import BlockTable
from adversary.geography.das import conventional_spine
from adversary.readers.population import BlockCounts, synthetic_counts
from adversary.release.queries import PL94_PERSONS, PL94_UNITS, Histogram

CODES = [f"44001030100{g}00{i}" for g in (1, 2) for i in range(5)]


def test_entries_in_any_order_add_up_as_a_dense_table_does() -> None:
    rng = np.random.default_rng(3)
    small = Histogram({"a": 3, "b": 4})
    codes, cells, counts = rng.choice(CODES, 200), rng.integers(0, 12, 200), rng.integers(0, 4, 200)
    dense = {c: np.zeros(12, int) for c in CODES}
    for code, cell, count in zip(codes.tolist(), cells.tolist(), counts.tolist(), strict=True):
        dense[code][cell] += count
    made = BlockCounts.of(codes, cells, counts, small)
    assert all((made.dense(c) == dense[c]).all() for c in CODES)
    assert made.total == counts.sum()
    assert (made.count > 0).all()
    assert (np.diff(made.block * 12 + made.cell) > 0).all()
    assert made.dense("nowhere").tolist() == [0] * 12


def test_what_cannot_be_a_count_is_refused() -> None:
    with pytest.raises(FileFormatError, match="must be text"):
        BlockCounts.of([440010301001000], [0], [1], PL94_UNITS)
    with pytest.raises(ReleaseError, match=r"cell 2 is not in 0\.\.1"):
        BlockCounts.of(["a"], [2], [1], PL94_UNITS)
    with pytest.raises(ReleaseError, match="whole and >= 0, got -1"):
        BlockCounts.of(["a"], [1], [-1], PL94_UNITS)
    with pytest.raises(ReleaseError, match="whole and >= 0"):
        BlockCounts.of(["a"], [1], [1.5], PL94_UNITS)
    with pytest.raises(ReleaseError, match="2 blocks, 1 cells"):
        BlockCounts.of(["a", "b"], [1], [1], PL94_UNITS)


@pytest.mark.parametrize("width", [15, 16])
def test_blocks_find_their_leaves_by_geoid_or_by_the_bureaus_code(width: int) -> None:
    table = BlockTable(CODES)
    spine = conventional_spine(table)
    codes = table.block if width == 16 else table.geoid
    counts = BlockCounts.of(codes[::-1], np.zeros(10, int), np.arange(1, 11), PL94_UNITS)
    leaves = counts.leaves_of(spine)
    assert spine.codes(leaves) == sorted(table.block.tolist())
    with pytest.raises(ReleaseError, match="is not in the spine"):
        counts.leaves_of(conventional_spine(table.take(np.arange(9))))


def test_the_same_blocks_and_seed_are_the_same_people_in_any_order() -> None:
    one, other = synthetic_counts(CODES, seed=5), synthetic_counts(CODES[::-1], seed=5)
    assert one.cell.tolist() == other.cell.tolist()
    assert one.count.tolist() == other.count.tolist()
    assert synthetic_counts(CODES, seed=6).cell.tolist() != one.cell.tolist()


def test_a_synthetic_population_has_the_size_and_emptiness_it_was_asked_for() -> None:
    codes = [f"44001{t:06d}{b}" for t in range(20) for b in range(1000, 1100)]
    counts = synthetic_counts(codes, seed=2, mean=50.0, empty=0.4)
    # geometric-like sizes: the standard error of the total is about 2,000 x 0.6 x 50 x 1.3 / sqrt(1,200)
    assert abs(counts.total - 60_000) < 4 * 2_600
    assert abs(counts.blocks.size / 2000 - 0.6) < 0.06
    hhgq, adult, _, _ = np.unravel_index(counts.cell, PL94_PERSONS.sizes)
    assert not ((hhgq == 3) & (adult == 0)).any()
    in_quarters = np.unique(counts.block[hhgq > 0]).size
    assert 2 <= in_quarters <= 30
    units = synthetic_counts(codes, PL94_UNITS, seed=2, mean=20.0)
    assert abs(units.count[units.cell == 1].sum() / units.total - 0.9) < 0.02


def test_a_population_that_cannot_be_is_refused() -> None:
    with pytest.raises(ReleaseError, match="mean must be positive"):
        synthetic_counts(CODES, seed=1, mean=0)
    with pytest.raises(ReleaseError, match="empty in"):
        synthetic_counts(CODES, seed=1, empty=1.0)
