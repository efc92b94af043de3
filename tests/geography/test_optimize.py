"""Block groups and tract groups: what they may hold, and a plain recursion that makes the same groups."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from adversary.errors import AdversaryError, BudgetError, FileFormatError
from adversary.geography._tract_groups import tract_groups
from adversary.geography.bypass import spine_of
from adversary.geography.off_spine import entity_distances
from adversary.geography.optimize import CountyBlocks, SpineSettings, block_groups, optimize_county
from adversary.geography.spine import Spine

SHARES = {"County": "1/4", "Tract": "1/4", "Block_Group": "1/4", "Block": "1/4"}


def county(rng: np.random.Generator, n: int = 300, tracts: int = 6, places: int = 4) -> CountyBlocks:
    tract = np.sort(rng.integers(0, tracts, n))
    place = (tract * places // tracts + (rng.random(n) < 0.15)) % places
    entity = np.array([[f"{p}1111", "9999"] for p in place])
    entity[place == 1, 0] = "99999"
    return CountyBlocks(
        np.array([f"{i:05d}" for i in range(n)]),
        np.array([f"{t:03d}" for t in tract]),
        entity,
        rng.choice(["000", "010"], n, p=[0.9, 0.1]),
    )


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("fanout", [0, 2, 12])
def test_a_block_group_never_mixes_and_never_exceeds_its_cap(even: bool, fanout: int) -> None:
    rows = county(np.random.default_rng(1))
    _, tract = np.unique(rows.tract, return_inverse=True)
    group, tract_of = block_groups(rows, tract, fanout, even)
    np.testing.assert_array_equal(tract_of[group], tract)
    caps = [int(sqrt(n)) + fanout + 1 for n in np.bincount(tract)]
    for g in range(tract_of.size):
        inside = group == g
        assert 0 < inside.sum() <= caps[tract_of[g]]
        assert len({tuple(e) for e in rows.entities[inside].tolist()}) == 1
        assert len(set(rows.separator[inside].tolist())) == 1


def test_even_groups_differ_by_one_and_ordinary_ones_are_full() -> None:
    n = 23
    rows = CountyBlocks([f"{i:02d}" for i in range(n)], ["1"] * n, [["A"]] * n, ["0"] * n)
    sizes = {
        even: np.bincount(block_groups(rows, np.zeros(n, int), 0, even)[0]).tolist() for even in (False, True)
    }
    assert sizes == {False: [5, 5, 5, 5, 3], True: [4, 4, 5, 5, 5]}


def test_the_order_of_the_rows_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    rows = county(rng)
    settings = SpineSettings(fanout_cutoff=1, entity_threshold=0, tract_groups=True)
    shares = {**SHARES, "Tract_Group": "1/4"}
    first = optimize_county(rows, shares, settings)
    mix = rng.permutation(rows.block.size)
    again = CountyBlocks(rows.block[mix], rows.tract[mix], rows.entities[mix], rows.separator[mix])
    second = optimize_county(again, shares, settings)
    assert [c.tolist() for c in first.codes("00110001")] == [c.tolist() for c in second.codes("00110001")]


def test_optimised_block_groups_bring_places_closer_than_tabulation_ones() -> None:
    rows = county(np.random.default_rng(3), n=900)
    part = optimize_county(rows, SHARES)
    spine = spine_of(part.tree, part.codes("00110001"), part.settings.levels)
    place = dict(zip(rows.block.tolist(), rows.entities[:, 0].tolist(), strict=True))
    codes = [place[str(c)[-5:]] for c in spine.geocodes[spine.leaves]]
    near = entity_distances(spine, [c if c != "99999" else "" for c in codes])
    table = {"tract": rows.tract, "block": rows.block}
    plain = Spine.from_blocks(table)
    codes = [place[str(c)] for c in plain.geocodes[plain.leaves]]
    far = entity_distances(plain, [c if c != "99999" else "" for c in codes])
    assert sum(near.values()) < 0.6 * sum(far.values())


def plain_groups(rows: CountyBlocks, settings: SpineSettings) -> list[list[int]]:
    """Greedy tract groups by a full recursion for every candidate: slow and obvious."""
    _, tract = np.unique(rows.tract, return_inverse=True)
    group, tract_of = block_groups(rows, tract, settings.fanout_cutoff, False)
    n_tracts = int(tract.max()) + 1
    cap = int(sqrt(n_tracts) + settings.fanout_cutoff + (settings.code == "dhc"))

    def both(x: int, y: int) -> tuple[int, int]:
        return min(x, y + 1), min(y, x + 1)

    def costs(inside: np.ndarray, t: int) -> tuple[int, int]:
        x = y = 0
        for g in np.flatnonzero(tract_of == t):
            members = group == g
            a, b = both(int((inside & members).sum()), int((~inside & members).sum()))
            x, y = x + a, y + b
        return both(x, y)

    far = []
    for k in range(rows.entities.shape[1]):
        for code in sorted(set(rows.entities[:, k].tolist())):
            inside = rows.entities[:, k] == code
            if set(code) == {"9"}:
                continue
            per = [costs(inside, t) for t in range(n_tracts)]
            if min(sum(c for c, _ in per), sum(o for _, o in per) + 1) > settings.entity_threshold:
                far.append(per)

    def objective(groups: list[list[int]]) -> list[int]:
        out = []
        for per in far:
            sums = [both(sum(per[t][0] for t in g), sum(per[t][1] for t in g)) for g in groups]
            out.append(min(sum(c for c, _ in sums), sum(o for _, o in sums) + 1))
        return sorted(out, reverse=True)

    alike: dict[tuple[str, ...], list[int]] = {}
    for t in range(n_tracts):
        alike.setdefault(tuple(sorted(set(rows.entities[tract == t].ravel().tolist()))), []).append(t)
    groups = sorted(ts[i : i + cap] for ts in alike.values() for i in range(0, len(ts), cap))
    if not far:
        return [[t for g in groups[i : i + cap] for t in g] for i in range(0, len(groups), cap)]
    done: list[int] = []
    while True:
        open_groups = [g for g in groups if g[0] not in done]
        merged = None
        for i, a in enumerate(open_groups[:-1]):
            for b in open_groups[i + 1 :]:
                if len(a) + len(b) > cap:
                    continue
                new = [a + b if g is a else g for g in groups if g is not b]
                if objective(new) <= objective(groups):
                    merged = new
                    break
            if merged:
                break
            done.append(a[0])
        if not merged:
            return groups
        groups = merged


@pytest.mark.parametrize("seed", range(12))
def test_the_fast_search_makes_the_groups_of_the_plain_recursion(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    rows = county(rng, n=int(rng.integers(30, 160)), tracts=int(rng.integers(3, 12)), places=4)
    settings = SpineSettings(
        fanout_cutoff=int(rng.integers(0, 3)),
        entity_threshold=int(rng.choice([0, 2, 50])),
        tract_groups=True,
        code=str(rng.choice(["redist", "dhc"])),
    )
    _, tract = np.unique(rows.tract, return_inverse=True)
    group, tract_of = block_groups(rows, tract, settings.fanout_cutoff, False)
    assert tract_groups(rows.entities, tract, group, tract_of, settings) == plain_groups(rows, settings)


def test_what_cannot_be_optimised_is_refused() -> None:
    rows = county(np.random.default_rng(5), n=20)
    with pytest.raises(BudgetError, match="no entry for level 'Block'"):
        optimize_county(rows, {"County": 1, "Tract": 1, "Block_Group": 1})
    with pytest.raises(BudgetError, match="name their levels"):
        optimize_county(rows, [1, 1, 1, 1])  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="Tract_Group has a share of 1 but tract_groups is off"):
        optimize_county(rows, {**SHARES, "Tract_Group": 1})
    levels = ("County", "Prim", "Tract_Subset_Group", "Tract_Subset", "Block_Group", "Block")
    with pytest.raises(FileFormatError, match="blocks have none"):
        optimize_county(rows, dict.fromkeys(levels, 1), SpineSettings(code="dhc", primitive=True))
    with pytest.raises(FileFormatError, match="'1' is listed 2 times"):
        CountyBlocks(["1", "1"], ["1", "1"], [["A"], ["A"]], ["0", "0"])
    with pytest.raises(FileFormatError, match="one row a block"):
        CountyBlocks(["1", "2"], ["1"], [["A"], ["A"]], ["0", "0"])


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"mechanism": "rdp"}, "mechanism must be 'zcdp' or 'pure'"),
        ({"fanout_cutoff": -1}, "must not be negative"),
        ({"primitive": True}, "set code='dhc'"),
        ({"group_type": "odd"}, "group_type must be"),
    ],
)
def test_settings_outside_their_choices_are_refused(setting: dict, text: str) -> None:
    with pytest.raises(AdversaryError, match=text):
        SpineSettings(**setting)
