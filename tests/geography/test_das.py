"""The three spines of a made-up state and of Rhode Island."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from adversary.errors import AdversaryError, BudgetError
from adversary.geography.blocks import BlockTable
from adversary.geography.das import SpineTargets, aian_spine, conventional_spine, optimized_spine
from adversary.geography.off_spine import entity_distances
from adversary.geography.optimize import SpineSettings
from adversary.readers.baf import read_baf

if TYPE_CHECKING:
    from adversary.geography.spine import Spine

PRODUCTION = {
    "US": "104/4099",
    "State": "1440/4099",
    "County": "447/4099",
    "Tract": "687/4099",
    "Block_Group": "1256/4099",
    "Block": "165/4099",
}
SHARED = Path(os.environ.get("ADVERSARY_SHARED", Path(__file__).parents[3] / "shared"))
FOLDER = SHARED / "data" / "rhode-island-baf"
rhode_island = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)


@pytest.fixture(scope="module")
def blocks() -> BlockTable:
    return read_baf(FOLDER)


@pytest.fixture(scope="module")
def spines(blocks: BlockTable) -> dict[str, Spine]:
    return {
        "conventional": conventional_spine(blocks, PRODUCTION),
        "aian": aian_spine(blocks, PRODUCTION),
        "optimised": optimized_spine(blocks, PRODUCTION),
    }


def sizes(spine: Spine) -> list[int]:
    return [row["units"] for row in spine.table()]


@rhode_island
def test_rhode_island_has_the_units_that_it_has(blocks: BlockTable, spines: dict[str, Spine]) -> None:
    assert sizes(spines["conventional"]) == [1, 1, 5, 250, 792, 25_649]
    assert blocks.inside_aian().sum() == 25
    assert set(blocks.aiannhce[blocks.inside_aian()]) == {"2415"}
    assert sizes(spines["aian"]) == [1, 2, 6, 252, 795, 25_649]
    assert sizes(spines["optimised"]) == [1, 2, 6, 252, 1_238, 25_649]
    assert all(spine.path_totals() == {Fraction(1)} for spine in spines.values())
    inside = [c for c in spines["optimised"].codes(spines["optimised"].leaves) if c[0] == "1"]
    assert sorted(c[-16:] for c in inside) == sorted(blocks.block[blocks.inside_aian()].tolist())


def entity_codes(spine: Spine, blocks: BlockTable, column: np.ndarray) -> list[str]:
    of_block = dict(zip(blocks.block.tolist(), column.tolist(), strict=True))
    codes = [of_block[str(c)[-16:]] for c in spine.geocodes[spine.leaves]]
    return ["" if set(c) == {"9"} else c for c in codes]


@rhode_island
def test_rhode_islands_towns_and_places_come_closer(blocks: BlockTable, spines: dict[str, Spine]) -> None:
    mean: dict[tuple[str, str], float] = {}
    for kind, column, count in (("mcd", blocks.cousub, 40), ("place", blocks.place, 36)):
        for name, spine in spines.items():
            found = entity_distances(spine, entity_codes(spine, blocks, column))
            assert len(found) == count
            mean[kind, name] = float(np.mean(list(found.values())))
    assert mean["mcd", "optimised"] < 0.8 * mean["mcd", "conventional"]
    assert mean["place", "optimised"] < 0.9 * mean["place", "conventional"]
    assert round(mean["mcd", "conventional"], 2) == 8.55
    assert round(mean["mcd", "optimised"], 2) == 6.7
    assert round(mean["place", "conventional"], 2) == 25.89
    assert round(mean["place", "optimised"], 2) == 22.92


@rhode_island
def test_no_optimised_block_group_of_rhode_island_mixes_entities(
    blocks: BlockTable, spines: dict[str, Spine]
) -> None:
    spine = spines["optimised"]
    inside = blocks.inside_aian()
    row = {b: i for i, b in enumerate(blocks.block.tolist())}
    place = blocks.place_or_mcd(inside)
    seen: dict[int, set[tuple[str, bool, str]]] = {}
    for leaf, group in zip(spine.leaves.tolist(), spine.ancestor("Block_Group").tolist(), strict=True):
        i = row[str(spine.geocodes[leaf])[-16:]]
        seen.setdefault(group, set()).add((str(place[i]), bool(inside[i]), str(blocks.block[i])[:11]))
    assert all(len(kinds) == 1 for kinds in seen.values())


def made_up() -> BlockTable:
    ids = [f"25{c:03d}{t:06d}{b}" for c in (1, 3) for t in (100, 200) for b in (1000, 1001, 2000, 2001)]
    n = len(ids)
    return BlockTable(
        ids,
        aiannhce=["0100"] + ["9999"] * (n - 1),
        cousub=["11111", "22222"] * (n // 2),
        place=["33333"] * n,
        school=["a" * 15] * n,
        cousub_status=["A"] * n,
        place_status=["A"] * n,
    )


LEVELS = ("State", "County", "Tract", "Block_Group", "Block")


def test_a_dhc_county_has_eight_digits_and_its_block_groups_keep_tabulation_apart() -> None:
    shares = dict.fromkeys(LEVELS, "1/5")
    spine = optimized_spine(made_up(), shares, SpineSettings(code="dhc"), SpineTargets(block_groups=True))
    assert {len(c) for c in spine.codes(spine.units("County"))} == {8}
    plain = optimized_spine(made_up(), shares)
    # the DHC code keeps the digit of the tract within its group in front of the block group's number
    assert [
        len(s.codes(s.units("Block_Group"))[0]) - len(s.codes(s.units("Tract"))[0]) for s in (spine, plain)
    ] == [2, 1]
    groups: dict[int, set[str]] = {}
    for leaf, group in zip(spine.leaves.tolist(), spine.ancestor("Block_Group").tolist(), strict=True):
        groups.setdefault(group, set()).add(str(spine.geocodes[leaf])[-16:][:12])
    assert all(len(g) == 1 for g in groups.values())
    assert spine.path_totals() == {Fraction(1)}


def test_a_primitive_spine_has_its_levels_and_sums() -> None:
    levels = ("US", "State", "County", "Prim", "Tract_Subset_Group", "Tract_Subset", "Block_Group", "Block")
    settings = SpineSettings(code="dhc", primitive=True)
    spine = optimized_spine(made_up(), dict.fromkeys(levels, "1/8"), settings)
    assert spine.levels == levels
    assert spine.path_totals() == {Fraction(1)}
    prim = spine.ancestor("Prim").tolist()
    assert len(set(prim)) == 5  # two subdivisions in two counties, one of them also inside an AIAN area


def test_an_area_may_take_the_place_of_its_county() -> None:
    spine = aian_spine(made_up(), targets=SpineTargets(redefine_counties="everywhere"))
    assert spine.codes(spine.units("County")) == ["02510001", "02510003", "12500100"]
    with pytest.raises(AdversaryError, match="redefine_counties must be"):
        SpineTargets(redefine_counties="sometimes")


def test_no_state_is_taken_for_the_nation() -> None:
    spine = optimized_spine(made_up(), dict.fromkeys(LEVELS, "1/5"))
    assert spine.levels == LEVELS
    with pytest.raises(BudgetError, match="no entry for level 'Tract'"):
        optimized_spine(made_up(), {"State": 1, "County": 1, "Block_Group": 1, "Block": 1})
    with pytest.raises(BudgetError, match="name their levels"):
        optimized_spine(made_up(), ["1/5"] * 5)  # type: ignore[arg-type]
    with pytest.raises(AdversaryError, match="without blocks"):
        optimized_spine(BlockTable(np.array([], str)), dict.fromkeys(LEVELS, "1/5"))
