"""The three spines of the 2020 Disclosure Avoidance System from one table of blocks.

* conventional: tabulation geography, state > county > tract > block group > block;
* AIAN: every unit split in the part inside and the part outside the AIAN areas;
* optimised (production): the AIAN spine with redrawn block groups, bypassed, with running numbers for codes.

Only blocks of the table are in a spine; production has only those with a housing unit or a group quarter.
What this module is not: the optimisation of one county part (:mod:`adversary.geography.optimize`).

Held to account by ``tests/paper/test_spines.py`` (the Bureau's whole pipeline on made-up reference files) and
``tests/geography/test_das.py`` (Rhode Island). Sources: Cumings-Menon et al., arXiv 2203.16654.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError
from adversary.geography import _build
from adversary.geography._tree import Tree
from adversary.geography.blocks import PRODUCTION_AIAN_AREAS, STRONG_MCD_STATES, BlockTable
from adversary.geography.bypass import bypass_only_children
from adversary.geography.optimize import CountyBlocks, CountyPart, SpineSettings, optimize_county
from adversary.geography.spine import Spine

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SpineTargets", "aian_spine", "conventional_spine", "optimized_spine"]

_STATE = 3  # AIAN digit and state FIPS


@dataclass(frozen=True)
class SpineTargets:
    """Which entities the optimised spine is drawn for; the defaults are production's (PL 94-171).

    Parameters
    ----------
    aian_areas
        Kinds of AIAN area that split the spine, keys of ``blocks.AIAN_AREAS``.
    redefine_counties
        ``"nowhere"``, ``"everywhere"`` or ``"in_strong_MCDs"``: inside AIAN areas, an area takes the place
        of the county.
    each_aian_area
        Whether single areas are off-spine entities.
    block_groups
        DHC: block groups do not cross tabulation block groups. The redistricting code has the setting but
        ignores it (it cuts the code to nothing), and so does this with ``code="redist"``.
    school_districts
        DHC: block groups do not cross school districts.
    """

    aian_areas: tuple[str, ...] = PRODUCTION_AIAN_AREAS
    redefine_counties: str = "nowhere"
    each_aian_area: bool = True
    block_groups: bool = False
    school_districts: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown way to redefine counties."""
        if self.redefine_counties not in ("nowhere", "everywhere", "in_strong_MCDs"):
            msg = (
                "redefine_counties must be nowhere, everywhere or in_strong_MCDs, got "
                f"{self.redefine_counties!r}"
            )
            raise AdversaryError(msg, self.redefine_counties)


def _with_nation(shares: Any, widths: dict[str, int]) -> dict[str, int]:
    nation = isinstance(shares, Mapping) and "US" in shares
    return {"US": 0, **widths} if nation else widths


def conventional_spine(blocks: BlockTable, shares: Mapping[str, Any] | None = None) -> Spine:
    """Tabulation geography: (US >) State > County > Tract > Block_Group > Block.

    Parameters
    ----------
    blocks
        The blocks.
    shares
        Level -> share of rho; the level ``US`` is there if it has a share.

    Returns
    -------
    Spine
        Codes are nested prefixes of ``geocode16``: 2, 5, 11, 12 and 16 characters.

    Examples
    --------
    >>> conventional_spine(BlockTable(["440010301001000", "440010301001001"]))
    <Spine State > County > Tract > Block_Group > Block: 6 units, 2 leaves>
    """
    widths = {"State": 2, "County": 5, "Tract": 11, "Block_Group": 12, "Block": 16}
    return Spine.from_geocodes(blocks.block, _with_nation(shares, widths), shares)


def _county_codes(blocks: BlockTable, targets: SpineTargets) -> tuple[NDArray[np.str_], NDArray[np.bool_]]:
    """AIAN digit, state and county code (8 characters) of every block; whether it is inside."""
    inside = blocks.inside_aian(targets.aian_areas)
    county = np.strings.add("10", blocks.characters(2, 5))
    if targets.redefine_counties != "nowhere":
        moved = inside.copy()
        if targets.redefine_counties == "in_strong_MCDs":
            moved &= np.isin(blocks.state, STRONG_MCD_STATES)
        county = np.where(moved, np.strings.add("0", blocks.aiannhce), county)
    digit = np.where(inside, "1", "0")
    return np.strings.add(np.strings.add(digit, blocks.state), county), inside


def aian_spine(
    blocks: BlockTable, shares: Mapping[str, Any] | None = None, targets: SpineTargets | None = None
) -> Spine:
    """Tabulation geography, every unit split by the AIAN areas; an empty part makes no unit.

    Parameters
    ----------
    blocks, shares
        As for :func:`conventional_spine`.
    targets
        Only ``aian_areas`` and ``redefine_counties`` are used.

    Returns
    -------
    Spine
        Codes: AIAN digit and state (3 characters), county (8), tract (14), block group (15), block (35: its
        four digits and its ``geocode16``).

    Examples
    --------
    >>> aian_spine(BlockTable(["440010301001000", "440010301001001"], aiannhce=["", "2415"]))
    <Spine State > County > Tract > Block_Group > Block: 10 units, 2 leaves>
    """
    head, _ = _county_codes(blocks, SpineTargets() if targets is None else targets)
    codes = head
    for part in (blocks.characters(5, 12), blocks.characters(12, 16), blocks.block):
        codes = np.strings.add(codes, part)
    widths = {"State": 3, "County": 8, "Tract": 14, "Block_Group": 15, "Block": 35}
    return Spine.from_geocodes(codes, _with_nation(shares, widths), shares)


def _parts(
    blocks: BlockTable, shares: dict[str, Any], settings: SpineSettings, targets: SpineTargets
) -> tuple[list[str], list[CountyPart]]:
    """Optimised county parts in the order of their codes."""
    head, inside = _county_codes(blocks, targets)
    local = np.full(len(blocks), "99999") if settings.primitive else blocks.place_or_mcd(inside)
    entities = [local]
    separator = blocks.group_quarters
    if targets.block_groups and settings.code == "redist":
        entities.append(np.full(len(blocks), ""))  # production cuts the code to nothing
    if targets.school_districts and settings.code == "dhc":
        separator = np.strings.add(separator, blocks.school)
    if targets.block_groups and settings.code == "dhc":
        separator = np.strings.add(separator, blocks.prefix(12))
    if targets.each_aian_area:
        entities.append(np.where(inside, blocks.aiannhce, "9999"))
    columns = np.stack([e.astype("<U5") for e in entities], axis=1)
    tract = blocks.characters(5, 11)
    primitive = blocks.primitive() if settings.primitive else None
    order = np.argsort(head, kind="stable")
    keys, first = np.unique(head[order], return_index=True)
    parts = []
    for rows in np.split(order, first[1:]):
        county = CountyBlocks(
            blocks.block[rows],
            tract[rows],
            columns[rows],
            separator[rows],
            None if primitive is None else primitive[rows],
        )
        parts.append(optimize_county(county, shares, settings))
    return [str(k) for k in keys], parts


def _without_level(tree: Tree, k: int) -> Tree:
    """Tree without level k, whose units are the only children of their parents and have no share."""
    parent = [*tree.parent[:k], tree.parent[k][tree.parent[k + 1]], *tree.parent[k + 2 :]]
    return Tree(
        parent, [*tree.seq[:k], *tree.seq[k + 1 :]], [*tree.share[:k], *tree.share[k + 1 :]], tree.denominator
    )


def optimized_spine(
    blocks: BlockTable,
    shares: Mapping[str, Any],
    settings: SpineSettings | None = None,
    targets: SpineTargets | None = None,
) -> Spine:
    """Optimised spine of all states of the table, coded as production codes it.

    Parameters
    ----------
    blocks
        The blocks.
    shares
        Level -> share of rho: (US,) State, County, (Tract_Group,) Tract, Block_Group, Block; for the
        primitive spine (US,) State, County, Prim, Tract_Subset_Group, Tract_Subset, Block_Group, Block.
    settings, targets
        Default: production of the 2020 redistricting data.

    Returns
    -------
    Spine
        Every path sums to the sum of the shares. A block's code ends in its ``geocode16``.

    Examples
    --------
    >>> shares = {"State": "1/5", "County": "1/5", "Tract": "1/5", "Block_Group": "1/5", "Block": "1/5"}
    >>> blocks = BlockTable(["440010301001000", "440010301001001"], place=["", "74300"])
    >>> spine = optimized_spine(blocks, shares)
    >>> path = spine.path("440010301001001")
    >>> spine.codes(path)
    ['044', '044100011', '0441000111', '04410001111', '044100011114400103010011001']
    >>> [str(spine.share(u)) for u in path]
    ['4/5', '0', '0', '0', '1/5']
    """
    chosen = SpineSettings() if settings is None else settings
    nation = isinstance(shares, Mapping) and "US" in shares
    above = ["US", "State"] if nation else ["State"]
    hidden = () if chosen.primitive or chosen.tract_groups else ("Tract_Group",)
    levels = (*above, *(k for k in chosen.levels if k not in hidden))
    by_level = dict(zip(levels, _build.shares_by_level(shares, levels), strict=True))
    if not len(blocks):
        msg = "a table without blocks has no spine: read the blocks first"
        raise AdversaryError(msg, blocks)
    wanted = SpineTargets() if targets is None else targets
    below = {k: v for k, v in by_level.items() if k not in above}
    keys, parts = _parts(blocks, below, chosen, wanted)
    widths = np.max([p.widths for p in parts], axis=0).tolist()
    if hidden and chosen.code == "redist":
        widths[2] = 0  # the digit of the tract within its group, always 1, is dropped
    codes = [part.codes(key, widths) for key, part in zip(keys, parts, strict=True)]
    trees = [part.tree for part in parts]
    if hidden:
        trees = [_without_level(tree, 2) for tree in trees]
        codes = [[*c[:2], *c[3:]] for c in codes]
    spine = _assemble(keys, trees, codes, (levels, [by_level[k] for k in above]))
    return bypass_only_children(spine, lowest="County")


def _assemble(
    keys: list[str],
    trees: list[Tree],
    codes: list[list[NDArray[np.str_]]],
    above: tuple[tuple[str, ...], list[Any]],
) -> Spine:
    """Put county parts under their states (and the nation): one spine in path order."""
    levels, shares_above = above
    whole = math.lcm(*(s.denominator for s in shares_above), *(t.denominator for t in trees))
    states, state_of = np.unique([k[:_STATE] for k in keys], return_inverse=True)
    nation = len(shares_above) == 2
    geocodes: list[NDArray[np.str_]] = [np.array([""]), states] if nation else [states]
    parents = [np.full(1, -1), np.zeros(states.size, np.int64)] if nation else [np.full(states.size, -1)]
    share = [np.full(g.size, int(s * whole), object) for g, s in zip(geocodes, shares_above, strict=True)]
    sizes = [g.size for g in geocodes]
    orders = [tree.order()[0] for tree in trees]
    ranks = [np.array([s]) for s in state_of]  # place of every unit of the level above within that level
    for k in range(trees[0].depth):
        offset, start, below = sum(sizes[:-1]), 0, []
        for i, (tree, order) in enumerate(zip(trees, orders, strict=True)):
            ids = order[k]
            parents.append(offset + ranks[i][tree.parent[k][ids]])
            geocodes.append(codes[i][k][ids])
            share.append(tree.share[k][ids].astype(object) * (whole // tree.denominator))
            rank = np.empty(ids.size, np.int64)
            rank[ids] = start + np.arange(ids.size)
            below.append(rank)
            start += ids.size
        ranks = below
        sizes.append(start)
    level_of = np.repeat(np.arange(len(sizes)), sizes).astype(np.int8)
    numerators = np.concatenate(share)
    if whole < 2**40:
        numerators = numerators.astype(np.int64)
    return Spine.from_arrays(
        levels, np.concatenate(geocodes), np.concatenate(parents), level_of, (numerators, whole)
    )
