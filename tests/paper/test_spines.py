"""The spines of the Bureau's own code: every case of ``spines.json``, digit for digit, shares as fractions.

The file is read from the folder named by ADVERSARY_REFERENCE if it is set, else from ``tests/reference``; a section that
the file lacks is not tested.
"""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary.geography.bypass import spine_of
from adversary.geography.off_spine import entity_distances
from adversary.geography.optimize import CountyBlocks, CountyPart, SpineSettings, optimize_county
from adversary.geography.spine import Spine

FOLDER = Path(os.environ.get("ADVERSARY_REFERENCE", Path(__file__).parents[1] / "reference"))
REFERENCE: dict[str, Any] = json.loads((FOLDER / "spines.json").read_text())


def section(name: str) -> list[Any]:
    """One parameter a case, named after it."""
    return [pytest.param(case, id=case.get("name", str(i))) for i, case in enumerate(REFERENCE.get(name, []))]


def build(case: dict[str, Any]) -> CountyPart:
    given = case["input"]
    rows = given["blocks"]
    blocks = CountyBlocks(
        np.array([r["block"] for r in rows]),
        np.array([r["tract"] for r in rows]),
        np.array([r["oses"] for r in rows]),
        np.array([r["gq"] for r in rows]),
        np.array([r["prim"] for r in rows]) if given["prim"] else None,
    )
    settings = SpineSettings(
        fanout_cutoff=given["fanout_cutoff"],
        entity_threshold=given["entity_threshold"],
        bypass_cutoff=given["bypass_cutoff"],
        mechanism="zcdp" if given["zcdp"] else "pure",
        tract_groups=given["includes_tract_groups"],
        group_type=given["group_type"],
        code=case["code"],
        primitive=given["prim"],
    )
    return optimize_county(blocks, given["plb"], settings)


@pytest.mark.parametrize("case", section("spine_cases"))
def test_a_county_part_is_the_one_that_the_bureau_s_code_makes(case: dict[str, Any]) -> None:
    part, wanted = build(case), case["output"]
    assert part.settings.levels == tuple(wanted["level_names"])
    assert part.widths == wanted["widths"]
    codes = part.codes(case["input"]["root"])
    assert dict(zip(part.block.tolist(), codes[-1].tolist(), strict=True)) == wanted["geocode_of_block"]
    shares = {}
    for k, level in enumerate(codes):
        shares.update(zip(level.tolist(), part.tree.fractions(k), strict=True))
    assert shares == {code: Fraction(share) for code, share in wanted["plb"].items()}
    spine = spine_of(part.tree, codes, part.settings.levels)
    assert spine.path_totals() == {Fraction(wanted["path_total"])}
    assert canonical(spine) == wanted["canonical"]
    assert distances(spine, case) == wanted["osed"]


def canonical(spine: Spine) -> list[Any]:
    """Blocks and share of every unit, level by level, without numbering."""
    blocks: list[list[str]] = [[] for _ in range(len(spine))]
    for leaf in spine.leaves.tolist():
        for unit in spine.path(leaf):
            blocks[unit].append(str(spine.geocodes[leaf])[-16:])
    rows = [
        [[sorted(blocks[u]), str(spine.share(u))] for u in np.flatnonzero(spine.level_of == k).tolist()]
        for k in range(len(spine.levels))
    ]
    return [sorted(level) for level in rows]


def distances(spine: Spine, case: dict[str, Any]) -> dict[str, int]:
    """Distance of every entity of the case from its county part."""
    entities = {row["block"]: row["oses"] for row in case["input"]["blocks"]}
    leaves = [entities[str(code)[-16:]] for code in spine.geocodes[spine.leaves]]
    found = {}
    for k in range(len(leaves[0])):
        codes = [row[k] if set(row[k]) != {"9"} else "" for row in leaves]
        found.update({f"{k}:{code}": d for code, d in entity_distances(spine, codes).items()})
    return found
