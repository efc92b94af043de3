"""Swaps: who, with whom, how many; on synthetic households only."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.reconstruction.swapping import SwapDesign, risk_order, swap, swap_state
from adversary.reconstruction.synthetic import StateShape, SyntheticState, synthetic_state


@cache
def state() -> SyntheticState:
    """Return a small synthetic state."""
    return synthetic_state(StateShape(blocks=150), seed=4)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 0.3])
def test_the_walk_stops_at_the_rate(rate: float) -> None:
    swapped, _ = swap_state(state(), SwapDesign(rate), seed=1)
    n = len(state().records)
    assert rate * n <= (swapped.partner >= 0).sum() < rate * n + 2
    assert not swapped.short


def test_a_rate_out_of_reach_is_said() -> None:
    swapped, _ = swap_state(state(), SwapDesign(0.9), seed=1)
    assert swapped.short
    assert 0.3 < swapped.share < 0.6


def test_partners_are_alike_live_elsewhere_and_swap_once() -> None:
    swapped, census = swap_state(state(), SwapDesign(0.3), seed=2)
    s, table = state(), state().configurations()
    moved = np.flatnonzero(swapped.partner >= 0)
    other = swapped.partner[moved]
    assert (swapped.partner[other] == moved).all()
    assert (s.block[moved] != s.block[other]).all()
    z, c = (table.column(name) for name in ("size", "children"))
    assert (s.records[moved, z] == s.records[other, z]).all()
    assert (s.records[moved, z] - s.records[moved, c] == s.records[other, z] - s.records[other, c]).all()
    assert np.array_equal(census[moved], s.records[other][:, 2:])
    still = np.setdiff1d(np.arange(len(census)), moved)
    assert np.array_equal(census[still], s.records[still][:, 2:])


def test_swapping_keeps_persons_adults_and_the_state_but_not_the_block() -> None:
    _, census = swap_state(state(), SwapDesign(0.3), seed=3)
    s = state()
    for block in range(len(s)):
        here = s.block == block
        assert np.array_equal(census[here][:, 0], s.records[here][:, 2])
        assert census[here][:, 1].sum() == s.records[here][:, 3].sum()
    assert np.array_equal(np.sort(census[:, 3]), np.sort(s.records[:, 5]))
    changed = sum(
        not np.array_equal(np.sort(census[s.block == b][:, 3]), np.sort(s.records[s.block == b][:, 5]))
        for b in range(len(s))
    )
    assert changed > len(s) / 2


def test_the_riskiest_go_first_and_tiers_have_their_probabilities() -> None:
    n, rng = 40_000, np.random.default_rng(5)
    position = rng.random((n, 2)) * 10
    design = SwapDesign(1.0)
    walk = np.arange(n)
    # one key each would leave nobody to trade with: let households below the walk's end be the partners
    key = np.arange(n) % 200
    partner = swap(walk, key, position, design, seed=1).partner
    first = partner[: int(0.005 * n)]
    assert (first >= 0).all()
    ends = np.cumsum([0, *design.tiers]) * n
    shares = [(partner[int(a) : int(b)] >= 0).mean() for a, b in pairwise(ends)]
    assert np.all(np.diff(shares) < 0)
    order = risk_order([0, 1, 0, 0, 2], [0, 0, 0, 0, 0], [9, 7, 9, 2, 3])
    assert order.tolist() == [4, 1, 3, 0, 2]


def test_a_tiers_probability_is_the_share_called() -> None:
    # partners all lie in a last tier that is never called, so that the first tiers' shares can be read off
    n = 12_000
    design = SwapDesign(1.0, (0.1, 0.1, 0.8), (0.6, 0.3, 0.0), 5)
    key = np.r_[np.arange(2400), np.repeat(np.arange(2400), 4)]
    position = np.column_stack([np.arange(n), np.zeros(n)])
    partner = swap(np.arange(n), key, position, design, seed=3).partner
    for tier, wanted in ((slice(0, 1200), 0.6), (slice(1200, 2400), 0.3)):
        got, sd = (partner[tier] >= 0).mean(), np.sqrt(wanted * (1 - wanted) / 1200)
        assert abs(got - wanted) < 4 * sd
        assert abs(got - 0.85 * wanted) > 2.5 * sd  # the test would see 15 % too few


def test_partners_are_among_the_nearest_five_and_uniform() -> None:
    position = np.column_stack([np.arange(12.0), np.zeros(12)])
    design = SwapDesign(0.1, (0.1, 0.9), (1.0, 0.0), 5)
    walk, key = np.arange(12), np.zeros(12, dtype=int)
    drawn = [int(swap(walk, key, position, design, seed=s).partner[0]) for s in range(1000)]
    times = np.bincount(drawn, minlength=12)
    assert times[[0, *range(6, 12)]].sum() == 0
    assert ((times[1:6] - 200) ** 2 / 200).sum() < 18.5  # chi square with 4 degrees: 0.1 %


def test_nobody_to_trade_with_leaves_everyone_in_place() -> None:
    assert (swap([0, 1], [1, 2], [[0, 0], [1, 0]], SwapDesign(1.0), seed=1).partner == -1).all()
    assert (swap([0, 1], [1, 1], [[0, 0], [0, 0]], SwapDesign(1.0), seed=1).partner == -1).all()
    assert swap([], [], np.zeros((0, 2)), seed=1).share == 0


def test_the_same_seed_gives_the_same_swaps() -> None:
    one, other, third = (swap_state(state(), seed=s)[0].partner for s in (1, 1, 2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_designs_that_cannot_be_are_refused() -> None:
    with pytest.raises(ModelError, match="between 0 and 1"):
        SwapDesign(1.5)
    with pytest.raises(ModelError, match="add up to 1"):
        SwapDesign(0.1, (0.5, 0.4), (1.0, 1.0))
    with pytest.raises(ModelError, match="one of each"):
        swap([0, 0], [1, 1], [[0, 0], [1, 0]], seed=1)
