"""Which geounits to measure inside a county: block groups and tract groups as the 2020 system made them.

Stage 1 redraws block groups (and, where asked for, tract groups) inside each county part so that places,
county subdivisions and AIAN areas come close to the spine; stage 2 bypasses
(:mod:`adversary.geography.bypass`). Where paper and production code differ, the code is followed, because
it made the data: a block group holds up to floor(sqrt(n) + f) + 1 blocks (the paper has no + 1), and
everything is optimised one county part at a time.

What this module is not: geometry. No coordinates are used; codes alone decide.

Held to account by ``tests/paper/test_spines.py`` (the Bureau's own code on the same inputs, digit for
digit) and ``tests/geography/test_optimize.py``. Sources: Cumings-Menon et al., arXiv 2203.16654, sec. 3-5.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError, BudgetError, FileFormatError
from adversary.geography import _build
from adversary.geography._tract_groups import tract_groups
from adversary.geography._tree import Tree, common_denominator, run_starts
from adversary.geography.blocks import text_codes
from adversary.geography.bypass import bypass_tree, give_to_parent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from numpy.typing import NDArray

__all__ = [
    "COUNTY_LEVELS",
    "PRIMITIVE_LEVELS",
    "CountyBlocks",
    "CountyPart",
    "SpineSettings",
    "optimize_county",
]

COUNTY_LEVELS = ("County", "Tract_Group", "Tract", "Block_Group", "Block")
"""Levels inside a county part; without tract groups the share of ``Tract_Group`` is 0 and its units are "
"the tracts."""

PRIMITIVE_LEVELS = ("County", "Prim", "Tract_Subset_Group", "Tract_Subset", "Block_Group", "Block")
"""Levels inside a county part of the DHC's spine with primitive geography."""


@dataclass(frozen=True)
class SpineSettings:
    """How to optimise; the defaults are the production run's.

    Parameters
    ----------
    fanout_cutoff
        f in the greatest number of blocks of a block group, floor(sqrt(n) + f) + 1, n the blocks of its
        tract.
    entity_threshold
        Tract groups ignore off-spine entities whose distance is at most this.
    bypass_cutoff
        Pure DP: greatest number of siblings and children together at which a unit may be bypassed.
    mechanism
        ``"zcdp"`` or ``"pure"``.
    tract_groups
        Whether the user has the level; the 2020 runs had not.
    group_type
        ``"orig"``: runs as long as allowed, the last shorter; ``"even"``: runs of nearly equal length (DHC).
    code
        ``"redist"`` (PL 94-171) or ``"dhc"``: the two systems treat the county and its code differently.
    primitive
        DHC: County > Prim > Tract_Subset_Group > Tract_Subset > Block_Group > Block.

    Raises
    ------
    AdversaryError
        For a setting outside its choices.
    """

    fanout_cutoff: int = 12
    entity_threshold: int = 9
    bypass_cutoff: int = 150
    mechanism: str = "zcdp"
    tract_groups: bool = False
    group_type: str = "orig"
    code: str = "redist"
    primitive: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no setting."""
        for name, choices in (
            ("mechanism", ("zcdp", "pure")),
            ("group_type", ("orig", "even")),
            ("code", ("redist", "dhc")),
        ):
            if getattr(self, name) not in choices:
                msg = f"{name} must be {' or '.join(map(repr, choices))}, got {getattr(self, name)!r}"
                raise AdversaryError(msg, getattr(self, name))
        if self.fanout_cutoff < 0:
            msg = f"fanout_cutoff must not be negative, got {self.fanout_cutoff}: a block group needs a block"
            raise AdversaryError(msg, self.fanout_cutoff)
        if self.primitive and (self.code != "dhc" or self.tract_groups):
            msg = (
                "primitive geography is a DHC spine without tract groups: set code='dhc', tract_groups=False"
            )
            raise AdversaryError(msg, self)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of a county part."""
        return PRIMITIVE_LEVELS if self.primitive else COUNTY_LEVELS


@dataclass(frozen=True, eq=False)
class CountyBlocks:
    """Blocks of one county part.

    Parameters
    ----------
    block, tract
        Codes, text, shape (n,); blocks are unique.
    entities
        Codes of the off-spine entities, text, shape (n, types); a code made only of nines is "none".
    separator
        Text that keeps blocks apart in block groups without being an entity (group quarters; DHC: also
        districts).
    primitive
        Codes of the primitive geography, or None.
    """

    block: NDArray[np.str_]
    tract: NDArray[np.str_]
    entities: NDArray[np.str_]
    separator: NDArray[np.str_]
    primitive: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        """Check that the columns fit and that no block comes twice."""
        for name in ("block", "tract", "separator"):
            object.__setattr__(self, name, text_codes(getattr(self, name), name))
        n = self.block.size
        entities = np.asarray(self.entities)
        if (
            entities.ndim != 2
            or entities.shape[0] != n
            or self.tract.size != n
            or self.separator.size != n
            or not n
        ):
            msg = (
                f"{n} blocks, {self.tract.size} tracts, entities {entities.shape}: give one row a block, "
                "at least one"
            )
            raise FileFormatError(msg, entities.shape)
        object.__setattr__(self, "entities", text_codes(entities, "entity").reshape(entities.shape))
        if np.unique(self.block).size < n:
            codes, times = np.unique(self.block, return_counts=True)
            msg = (
                f"block {str(codes[times > 1][0])!r} is listed {int(times.max())} times: keep one row a block"
            )
            raise FileFormatError(msg, str(codes[times > 1][0]))

    def sorted(self) -> CountyBlocks:
        """Blocks in the order of their codes."""
        order = np.argsort(self.block, kind="stable")
        primitive = None if self.primitive is None else self.primitive[order]
        return CountyBlocks(
            self.block[order], self.tract[order], self.entities[order], self.separator[order], primitive
        )


@dataclass(frozen=True, eq=False)
class CountyPart:
    """An optimised county part: a tree over its blocks, not yet coded.

    Parameters
    ----------
    tree
        Levels from the county down.
    block
        Names of the blocks, in the order of the tree's last level.
    settings
        What it was made with.
    """

    tree: Tree
    block: NDArray[np.str_]
    settings: SpineSettings

    @property
    def widths(self) -> list[int]:
        """Digits that each level adds to the state's code in this part alone; the block adds 16."""
        own = self.tree.widths()
        county = [5] if self.settings.code == "dhc" else [5 + own[0]]
        return [*county, *own[1:], 16]

    def codes(self, root: str, widths: list[int] | None = None) -> list[NDArray[np.str_]]:
        """Codes, level by level of ``widths``: ``root`` (state and county), running numbers, the block."""
        wide = self.widths if widths is None else widths
        return self.tree.codes(root, [wide[0] - 5, *wide[1:-1]], self.block)


def _chunk_numbers(sizes: NDArray[np.int64], caps: NDArray[np.int64], even: bool) -> NDArray[np.int64]:
    """For consecutive lists of the given sizes, the number (from 0) of the run that each entry falls in."""
    total = int(sizes.sum())
    starts = np.cumsum(sizes) - sizes
    place = np.arange(total) - np.repeat(starts, sizes)
    size, cap = np.repeat(sizes, sizes), np.repeat(caps, sizes)
    number = place // cap
    if even:
        spread = (size > cap) & (size % cap > 1)
        runs = size // cap + 1
        low = size // runs
        short = runs - (size - low * runs)  # the first runs have `low` entries, the others one more
        number_even = np.where(
            place < short * low, place // np.maximum(low, 1), short + (place - short * low) // (low + 1)
        )
        number = np.where(spread, number_even, number)
    return number


def block_groups(
    rows: CountyBlocks, unit: NDArray[np.int64], fanout: int, even: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Block group of every block, and the unit (tract) of every block group, in order.

    Blocks of one unit are sorted by key (entities, then separator), then by code, and cut in runs of at most
    floor(sqrt(n) + f) + 1: a group never mixes entities, AIAN areas or patterns of group quarters.
    """
    key = rows.entities[:, 0]
    for t in range(1, rows.entities.shape[1]):
        key = np.strings.add(key, rows.entities[:, t])
    _, key_rank = np.unique(np.strings.add(key, rows.separator), return_inverse=True)
    order = np.lexsort((key_rank, unit))  # stable: rows are already in the order of their codes
    both = unit[order] * (int(key_rank.max()) + 1) + key_rank[order]
    starts = run_starts(both)
    sizes = np.diff(np.r_[starts, both.size])
    n_unit = np.bincount(unit)
    caps = np.array([int(sqrt(n) + fanout + 1) for n in n_unit.tolist()], np.int64)
    number = _chunk_numbers(sizes, caps[unit[order][starts]], even)
    new = np.r_[True, (both[1:] != both[:-1]) | (number[1:] != number[:-1])]
    group = np.empty(both.size, np.int64)
    group[order] = np.cumsum(new) - 1
    return group, unit[order][new]


def _tree(parents: list[NDArray[np.int64]], shares: list[Fraction]) -> Tree:
    numerators, denominator, dtype = common_denominator(shares, len(shares) + 1)
    share = [np.full(p.size, x, dtype=dtype) for p, x in zip(parents, numerators, strict=True)]
    return Tree(parents, [np.arange(p.size) for p in parents], share, denominator)


def _conventional_parents(rows: CountyBlocks, settings: SpineSettings) -> list[NDArray[np.int64]]:
    """Parents of every level: county, tract groups, tracts, block groups, blocks."""
    even = settings.group_type == "even"
    _, tract = np.unique(rows.tract, return_inverse=True)
    group, tract_of_group = block_groups(rows, tract, settings.fanout_cutoff, even)
    n_tracts = int(tract.max()) + 1
    lists = [[t] for t in range(n_tracts)]
    if settings.tract_groups:
        lists = tract_groups(rows.entities, tract, group, tract_of_group, settings)
    member = np.empty(n_tracts, np.int64)
    place = np.empty(n_tracts, np.int64)
    for g, tracts in enumerate(lists):
        member[tracts] = g
        place[tracts] = range(len(tracts))
    # tracts stand in the order in which their groups took them: renumber them so that seq = position
    order = np.lexsort((place, member))
    rank = np.empty(n_tracts, np.int64)
    rank[order] = np.arange(n_tracts)
    return [np.zeros(1, np.int64), np.zeros(len(lists), np.int64), member[order], rank[tract_of_group], group]


def _primitive_parents(rows: CountyBlocks, settings: SpineSettings) -> list[NDArray[np.int64]]:
    """Parents of every level: county, prims, groups of tract subsets, subsets, block groups, blocks."""
    if rows.primitive is None:
        msg = (
            "primitive geography was asked for, but the blocks have none: give CountyBlocks its "
            "primitive codes"
        )
        raise FileFormatError(msg, rows)
    even = settings.group_type == "even"
    prims, prim = np.unique(rows.primitive, return_inverse=True)
    _, tract = np.unique(rows.tract, return_inverse=True)
    subsets, subset = np.unique(prim * (int(tract.max()) + 1) + tract, return_inverse=True)
    prim_of_subset = subsets // (int(tract.max()) + 1)
    sizes = np.bincount(prim_of_subset, minlength=prims.size)
    caps = np.array([int(sqrt(n) + settings.fanout_cutoff + 1) for n in sizes.tolist()], np.int64)
    number = _chunk_numbers(sizes, caps, even)
    new = np.r_[True, (np.diff(prim_of_subset) > 0) | (np.diff(number) != 0)]
    group, subset_of_group = block_groups(rows, subset, settings.fanout_cutoff, even)
    one = np.zeros(1, np.int64)
    return [
        one,
        np.zeros(prims.size, np.int64),
        prim_of_subset[new],
        np.cumsum(new) - 1,
        subset_of_group,
        group,
    ]


def optimize_county(
    blocks: CountyBlocks, shares: Mapping[str, Any], settings: SpineSettings | None = None
) -> CountyPart:
    """Optimise the spine of one county part: block groups, tract groups, bypass.

    Parameters
    ----------
    blocks
        The blocks, in any order.
    shares
        Level -> share of rho, for every level of ``settings.levels``; ``Tract_Group`` is 0 (or left out)
        without tract groups.
    settings
        Default: production of the 2020 redistricting data.

    Returns
    -------
    CountyPart
        Every path has the sum of the shares.

    Examples
    --------
    >>> places = [["11111"], ["22222"], ["22222"]]
    >>> blocks = CountyBlocks(["1000", "1001", "1002"], ["01"] * 3, places, ["0"] * 3)
    >>> shares = {"County": "1/4", "Tract": "1/4", "Block_Group": "1/4", "Block": "1/4"}
    >>> part = optimize_county(blocks, shares)
    >>> part.widths, part.codes("04410001")[-1].tolist()
    ([6, 1, 1, 1, 16], ['0441000111121000', '0441000111111001', '0441000111111002'])
    """
    chosen = SpineSettings() if settings is None else settings
    given = dict(shares) if hasattr(shares, "keys") else shares
    if not chosen.primitive and not chosen.tract_groups and isinstance(given, dict):
        given.setdefault("Tract_Group", 0)
    by_level = _build.shares_by_level(given, chosen.levels)
    if not chosen.primitive and not chosen.tract_groups and by_level[1]:
        msg = (
            f"Tract_Group has a share of {by_level[1]} but tract_groups is off: its units would spend "
            "nothing; set it to 0"
        )
        raise BudgetError(msg, by_level[1])
    rows = blocks.sorted()
    parents = _primitive_parents(rows, chosen) if chosen.primitive else _conventional_parents(rows, chosen)
    tree = _tree(parents, by_level)
    forced = () if chosen.primitive or chosen.tract_groups else (1,)
    cutoff = chosen.bypass_cutoff if chosen.mechanism == "pure" else None
    if chosen.code == "dhc":
        bypass_tree(tree, pure_cutoff=cutoff, forced=forced, top=1)
        give_to_parent(tree, 0)
    else:
        bypass_tree(tree, pure_cutoff=cutoff, forced=forced)
    return CountyPart(tree, rows.block, chosen)
