"""``adversary spine build``: a spine from blocks, written to a file. Nothing here computes.

Held to account by ``tests/test_cli_spine.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from adversary.cli_spine._options import (
    PERSONS,
    allocation_option,
    emit,
    fill_option,
    json_option,
    level_lines,
    level_rows,
    state_option,
)
from adversary.errors import BudgetError, FileFormatError

__all__ = ["build"]

_KINDS = ("conventional", "aian", "optimized", "levels", "pairs")


def _shares(given: tuple[str, ...]) -> dict[str, str] | None:
    """Read ``--share Block=1/3``, also several with commas; by position nothing is taken."""
    if not given:
        return None
    out: dict[str, str] = {}
    for part in (p for text in given for p in text.split(",")):
        level, equals, value = part.partition("=")
        if not equals or not level.strip() or not value.strip():
            msg = (
                f"--share takes LEVEL=SHARE, got {part!r}: by position budgets have been read in the wrong order; "
                "write --share Block=1/3 --share Tract=2/3"
            )
            raise BudgetError(msg, part)
        if level.strip() in out:
            msg = f"--share names level {level.strip()!r} twice: give one share a level"
            raise BudgetError(msg, level.strip())
        out[level.strip()] = value.strip()
    return out


def _budget(
    allocation: str | None, rho: str | None, shares: dict[str, str] | None, kind: str
) -> dict[str, Any]:
    """Shares by level, whole budget and allocation, from the options."""
    from adversary.geography.plans import level_shares
    from adversary.privacy.budget import Allocation, Rho

    if allocation and (shares or rho):
        msg = "--allocation has shares and a budget of its own: give it, or --share and --rho"
        raise BudgetError(msg, allocation)
    if shares is None and allocation is None and rho is None and kind not in ("levels", "pairs"):
        allocation = PERSONS
    if allocation:
        found = Allocation.load(allocation)
        return {"shares": level_shares(found), "rho": str(found.total), "allocation": allocation.lower()}
    if (shares is None) != (rho is None):
        msg = (
            "--share and --rho go together: the shares of all levels, and the budget that they are shares of"
        )
        raise BudgetError(msg, (shares, rho))
    if rho is not None and (Rho(rho).infinite or not Rho(rho)):
        msg = f"--rho must be positive and finite, got {rho!r}: leave it and --share out for a spine without a budget"
        raise BudgetError(msg, rho)
    return {"shares": shares, "rho": str(Rho(rho)) if rho else None, "allocation": None}


def _built(source: str, kind: str, shares: Any, o: dict[str, Any]) -> Any:
    """Return a spine and the table of blocks that it was built from (None for levels and pairs)."""
    from adversary.geography.blocks import PRODUCTION_AIAN_AREAS
    from adversary.geography.bypass import bypass_only_children
    from adversary.geography.das import SpineTargets, aian_spine, conventional_spine, optimized_spine
    from adversary.geography.optimize import SpineSettings
    from adversary.geography.spine import Spine
    from adversary.readers.block_csv import read_blocks, read_levels, read_pairs

    if kind == "levels":
        levels = [name.strip() for name in o["levels"].split(",")] if o["levels"] else None
        spine = Spine.from_blocks(read_levels(source, levels), shares, nested=o["nested"])
        return (bypass_only_children(spine) if o["bypass"] else spine), None
    if kind == "pairs":
        names = [name.strip() for name in o["levels"].split(",")] if o["levels"] else None
        spine = Spine.from_parents(*read_pairs(source), levels=names, shares=shares)
        return (bypass_only_children(spine) if o["bypass"] else spine), None
    blocks = read_blocks(source, state=o["state"], fill_zeros=o["fill_zeros"])
    areas = tuple(o["aian_areas"].split(",")) if o["aian_areas"] else PRODUCTION_AIAN_AREAS
    targets = SpineTargets(aian_areas=areas, redefine_counties=o["redefine_counties"])
    if kind != "optimized":
        spine = (
            conventional_spine(blocks, shares)
            if kind == "conventional"
            else aian_spine(blocks, shares, targets)
        )
        return (bypass_only_children(spine) if o["bypass"] else spine), blocks
    primitive = "Prim" in (shares or {}) if o["primitive"] is None else o["primitive"]
    settings = SpineSettings(
        fanout_cutoff=o["fanout"],
        entity_threshold=o["entity_threshold"],
        bypass_cutoff=o["bypass_cutoff"],
        mechanism=o["mechanism"],
        tract_groups="Tract_Group" in (shares or {}),
        group_type=o["group_type"],
        code="dhc" if primitive else o["code"],
        primitive=primitive,
    )
    return optimized_spine(blocks, shares, settings, targets), blocks


@click.command("build")
@click.argument("source", type=click.Path())
@click.option(
    "--out", type=click.Path(dir_okay=False), required=True, help="The spine's file (.csv or .csv.gz)."
)
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    default="optimized",
    show_default=True,
    help="levels: a CSV with one column a level; pairs: a CSV with columns unit and parent.",
)
@allocation_option
@click.option("--rho", default=None, help="Whole budget, with --share: exact, 2.56 or 293764/114921.")
@click.option(
    "--share", "share", multiple=True, metavar="LEVEL=SHARE", help="Share of a level; for every level."
)
@state_option
@fill_option
@click.option("--levels", default=None, help="levels, pairs: names from root to leaf, with commas.")
@click.option("--nested", is_flag=True, help="levels: codes are only unique within their parent.")
@click.option(
    "--bypass", is_flag=True, help="Units with one child take over its share (optimized always does)."
)
@click.option("--fanout", type=click.IntRange(min=0), default=12, show_default=True)
@click.option("--entity-threshold", type=click.IntRange(min=0), default=9, show_default=True)
@click.option("--bypass-cutoff", type=click.IntRange(min=0), default=150, show_default=True)
@click.option("--mechanism", type=click.Choice(["zcdp", "pure"]), default="zcdp", show_default=True)
@click.option("--group-type", type=click.Choice(["orig", "even"]), default="orig", show_default=True)
@click.option("--code", type=click.Choice(["redist", "dhc"]), default="redist", show_default=True)
@click.option(
    "--primitive/--no-primitive", default=None, help="DHC's spine; by default where a level Prim has a share."
)
@click.option("--aian-areas", default=None, help="Kinds of AIAN area, with commas; default: production's.")
@click.option(
    "--redefine-counties",
    type=click.Choice(["nowhere", "everywhere", "in_strong_MCDs"]),
    default="nowhere",
    show_default=True,
)
@json_option
def build(
    source: str,
    out: str,
    kind: str,
    allocation: str | None,
    rho: str | None,
    share: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Build a spine from SOURCE and write it to a file.

    The file has one row a geounit: level, geocode, row of the parent, exact share. Codes are text; read them as such.
    """
    from adversary._version import __version__
    from adversary.geography.guarantee import spine_guarantee

    budget = _budget(allocation, rho, _shares(share), kind)
    spine, blocks = _built(source, kind, budget["shares"], options)
    if not spine.leaves.size:
        msg = f"{source!r} has no blocks, so there is no spine to build: check the file"
        raise FileFormatError(msg, source)
    about = {
        "kind": kind,
        "source": Path(source).name,
        "rho": budget["rho"],
        "allocation": budget["allocation"],
        "settings": {k: v for k, v in options.items() if v not in (None, False)},
        "program": f"adversary {__version__}",
    }
    spine.save(out, about)
    totals = sorted(str(t) for t in spine.path_totals())
    whole = str(spine_guarantee(spine, budget["rho"])) if budget["rho"] else None
    data = {
        "file": out,
        **about,
        "units": len(spine),
        "leaves": int(spine.leaves.size),
        "levels": level_rows(spine, budget["rho"]),
        "path_totals": totals,
        "guarantee": whole,
        "blocks_in_aian_areas": None if blocks is None else int(blocks.inside_aian().sum()),
    }
    lines = [f"{kind} spine of {data['leaves']:,} blocks, {len(spine):,} units, written to {out}"]
    lines += level_lines(level_rows(spine, budget["rho"]))
    if blocks is not None and data["blocks_in_aian_areas"]:
        lines.append(f"{data['blocks_in_aian_areas']:,} blocks lie in AIAN areas")
    if whole:
        lines.append(
            f"every path from the root to a block spends {' or '.join(totals)} of rho = {budget['rho']}"
        )
    emit(as_json, data, lines)
