"""Building and checking spines: from columns, prefixes and pairs; contraction; shares by name. Internal.

Held to account by ``tests/geography/test_spine.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError, FileFormatError
from adversary.geography._tree import common_denominator
from adversary.geography.blocks import text_codes
from adversary.privacy.budget import Rho

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adversary.geography.spine import Spine

__all__ = [
    "check_arrays",
    "common_denominator",
    "contract",
    "depths",
    "exact",
    "format_table",
    "from_block_columns",
    "from_pairs",
    "from_prefixes",
    "insert_level",
    "level_rows",
    "shares_by_level",
]

Arrays = tuple[tuple[str, ...], "NDArray[np.str_]", "NDArray[np.int64]", "NDArray[np.int8]"]


def exact(value: Any, name: str) -> Fraction:
    """Return a budget as an exact fraction: a decimal is taken as it is written, 0.1 as 1/10."""
    try:
        fraction = Fraction(str(value)) if isinstance(value, float | Rho) else Fraction(value)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        msg = (
            f"{name} must be a finite number, got {value!r}: write a Fraction, an int or text such as "
            "'165/4099'"
        )
        raise BudgetError(msg, value) from None
    if fraction < 0:
        msg = f"{name} must not be negative, got {value!r}: write 0 where nothing was measured"
        raise BudgetError(msg, value)
    return fraction


def shares_by_level(shares: Any, levels: Sequence[str], name: str = "shares") -> list[Fraction]:
    """Exact share of every level, in the order of the levels; positional lists are refused (P14)."""
    if not isinstance(shares, Mapping):
        msg = (
            f"{name} must name their levels, got {type(shares).__name__}: by position they may run the "
            "wrong way; "
            f"write {{{', '.join(f'{level!r}: ...' for level in levels)}}}"
        )
        raise BudgetError(msg, shares)
    unknown = [k for k in shares if k not in levels]
    missing = [k for k in levels if k not in shares]
    if unknown or missing:
        what = f"unknown level {unknown[0]!r}" if unknown else f"no entry for level {missing[0]!r}"
        msg = f"{name} have {what}: the levels are {', '.join(levels)}; write 0 where nothing was measured"
        raise BudgetError(msg, shares)
    return [exact(shares[k], f"{name} of level {k}") for k in levels]


def depths(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the units above each; -1 for units that no root reaches (a cycle, or below one)."""
    depth = np.where(parents < 0, 0, -1)
    above = np.where(parents < 0, 0, parents)
    while True:
        ready = (depth < 0) & (depth[above] >= 0)
        if not ready.any():
            return depth
        depth[ready] = depth[above[ready]] + 1


def _check_widths(codes: NDArray[np.str_], level: str) -> None:
    """All-digit codes of one level must be equally long."""
    full = codes[codes != ""]
    if full.size and np.char.isdigit(full).all():
        text_codes(full, level, int(np.char.str_len(full).max()))


def check_arrays(levels: tuple[str, ...], arrays: tuple[NDArray[Any], ...]) -> None:
    """Refuse arrays of different lengths, levels out of order, and parents after their children."""
    geocodes, parents, level_of, share_index = arrays
    n = geocodes.size
    if {a.shape for a in arrays} != {(n,)} or geocodes.dtype.kind != "U":
        msg = f"a spine has one text code, parent, level and share a unit, got {[a.shape for a in arrays]}"
        raise FileFormatError(msg, n)
    late = np.flatnonzero(parents >= np.arange(n))
    if late.size or (parents < -1).any():
        unit = int(late[0]) if late.size else int(np.flatnonzero(parents < -1)[0])
        msg = (
            f"unit {unit} has parent {int(parents[unit])}: a parent comes before its children, -1 for a root"
        )
        raise FileFormatError(msg, unit)
    falls = np.diff(level_of, prepend=level_of[:1]) < 0
    wrong = np.flatnonzero(falls | ((parents >= 0) & (level_of <= level_of[parents.clip(0)])))
    if wrong.size or (n and not 0 <= level_of[0] <= level_of[-1] < len(levels)) or (share_index < 0).any():
        unit = int(wrong[0]) if wrong.size else n - 1
        msg = f"unit {unit} is out of the order of the levels {', '.join(levels)}: units come level by level"
        raise FileFormatError(msg, unit)


def from_block_columns(table: Any, nested: bool) -> Arrays:
    """Arrays of a spine from one column of codes a level, one row a block."""
    if not isinstance(table, Mapping) or not table:
        msg = (
            f"a table of blocks is a mapping level -> codes, got {type(table).__name__}: name every "
            "level, root to leaf"
        )
        raise FileFormatError(msg, table)
    levels = tuple(table)
    columns = [text_codes(table[k], k) for k in levels]
    if len({c.size for c in columns}) > 1:
        sizes = ", ".join(f"{k}: {c.size}" for k, c in zip(levels, columns, strict=True))
        msg = f"columns have different lengths ({sizes}): give one code a block in each"
        raise FileFormatError(msg, sizes)
    for name, column in zip(levels, columns, strict=True):
        _check_widths(column, name)
    n = columns[0].size
    above, path = np.full(n, -1), np.full(n, "")
    geocodes: list[NDArray[np.str_]] = []
    parents, level_of, offset = [], [], 0
    for k, own in enumerate(columns):
        present = own != ""
        path = np.strings.add(path, own) if nested else own
        codes, first, inverse = np.unique(path[present], return_index=True, return_inverse=True)
        parent = above[present][first]
        crossing = np.flatnonzero(parent[inverse] != above[present])
        if crossing.size:
            row = int(np.flatnonzero(present)[crossing[0]])
            unit, other = str(path[row]), int(parent[inverse[crossing[0]]])
            _two_parents(unit, levels[k], [_name(geocodes, i) for i in (other, int(above[row]))])
        geocodes.append(codes)
        parents.append(parent)
        level_of.append(np.full(codes.size, k, np.int8))
        above = above.copy()
        above[present] = offset + inverse
        offset += codes.size
    _check_leaves(geocodes, np.concatenate(parents), above)
    return levels, np.concatenate(geocodes), np.concatenate(parents), np.concatenate(level_of)


def _name(geocodes: list[NDArray[np.str_]], unit: int) -> str:
    return "no unit" if unit < 0 else str(np.concatenate(geocodes)[unit])


def _two_parents(unit: str, level: str, parents: Sequence[str]) -> None:
    msg = (
        f"{level} {unit!r} lies under both {parents[0]!r} and {parents[1]!r}: hierarchies that cross are "
        "no spine; "
        "if codes repeat between parents say nested=True, else leave one of the levels out and treat it "
        "as an "
        "off-spine entity"
    )
    raise FileFormatError(msg, (unit, *parents))


def _check_leaves(
    geocodes: list[NDArray[np.str_]], parents: NDArray[np.int64], leaf: NDArray[np.int64]
) -> None:
    """Every row ends in a unit of its own, which is nobody's parent."""
    codes = np.concatenate(geocodes)
    if (leaf < 0).any():
        row = int(np.flatnonzero(leaf < 0)[0])
        msg = f"row {row} has no code at any level: every block needs one"
        raise FileFormatError(msg, row)
    times = np.bincount(leaf, minlength=codes.size)
    if (times > 1).any():
        bad = str(codes[int(np.flatnonzero(times > 1)[0])])
        msg = (
            f"block {bad!r} is listed {int(times.max())} times: keep one row a block (or add the level "
            "that tells them apart)"
        )
        raise FileFormatError(msg, bad)
    inner = np.zeros(codes.size, bool)
    inner[parents[parents >= 0]] = True
    both = np.flatnonzero(inner & (times > 0))
    if both.size:
        bad = str(codes[both[0]])
        msg = f"{bad!r} is a block in one row and the parent of others elsewhere: give that row a block code"
        raise FileFormatError(msg, bad)


def from_prefixes(geocodes: Any, widths: Any) -> Arrays:
    """Arrays of a spine from nested prefixes."""
    if not isinstance(widths, Mapping) or not widths:
        msg = f"widths is a mapping level -> length of its codes, root to leaf, got {widths!r}"
        raise FileFormatError(msg, widths)
    sizes = list(widths.values())
    if any(b <= a for a, b in pairwise(sizes)):
        msg = f"widths must rise from root to leaf, got {sizes}: give the total length of each level's codes"
        raise FileFormatError(msg, sizes)
    codes = text_codes(geocodes, "leaf", int(sizes[-1]))
    units, times = np.unique(codes, return_counts=True)
    if units.size < codes.size:
        bad = str(units[times > 1][0])
        msg = f"geocode {bad!r} is listed {int(times.max())} times: keep one row a block"
        raise FileFormatError(msg, bad)
    out, parents, level_of, offset = [], [], [], 0
    above = np.full(units.size, -1)
    for k, width in enumerate(sizes):
        prefix = units.astype(f"<U{width}") if width else np.full(units.size, "")
        own, first, inverse = np.unique(prefix, return_index=True, return_inverse=True)
        out.append(own)
        parents.append(above[first])
        level_of.append(np.full(own.size, k, np.int8))
        above = offset + inverse
        offset += own.size
    return tuple(widths), np.concatenate(out), np.concatenate(parents), np.concatenate(level_of)


def _pair_codes(units: Any, parents: Any) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    own = text_codes(units, "unit")
    given = ["" if p is None else p for p in np.asarray(parents, dtype=object).ravel().tolist()]
    above = text_codes(np.array(given, dtype=object) if given else np.array([], str), "parent")
    if own.size != above.size:
        msg = f"{own.size} units but {above.size} parents: give one parent a unit, '' for a root"
        raise FileFormatError(msg, above.size)
    return own, above


def from_pairs(units: Any, parents: Any, levels: Sequence[str] | None) -> Arrays:
    """Arrays of a spine from (unit, parent) pairs; every defect is named with its ids (P19)."""
    own, above = _pair_codes(units, parents)
    codes, first, times = np.unique(own, return_index=True, return_counts=True)
    if codes.size < own.size:
        bad = str(codes[times > 1][0])
        said = sorted(set(above[own == bad].tolist()))
        if len(said) > 1:
            msg = (
                f"unit {bad!r} has two parents, {said[0]!r} and {said[1]!r}: a geounit lies in one; "
                "hierarchies that cross are no spine"
            )
            raise FileFormatError(msg, (bad, *said))
        msg = f"unit {bad!r} is listed {int(times.max())} times: keep one row a unit"
        raise FileFormatError(msg, bad)
    place = np.searchsorted(codes, above).clip(0, max(codes.size - 1, 0))
    orphan = np.flatnonzero((above != "") & (codes[place] != above)) if codes.size else np.zeros(0, int)
    if orphan.size:
        i = orphan[0]
        msg = (
            f"unit {str(own[i])!r} names the parent {str(above[i])!r}, which is not listed: add it, or '' "
            "for a root"
        )
        raise FileFormatError(msg, (str(own[i]), str(above[i])))
    parent = np.where(above == "", -1, first[place] if codes.size else 0)
    depth = depths(parent)
    if (depth < 0).any():
        loop = _cycle(parent, int(np.flatnonzero(depth < 0)[0]))
        names = [str(own[i]) for i in loop]
        msg = (
            f"units {' > '.join([*names, names[0]])} form a cycle: no root reaches them; correct one of "
            "the parents"
        )
        raise FileFormatError(msg, names)
    order = np.argsort(depth, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    deep = int(depth.max(initial=0)) + 1
    names_of = tuple(levels) if levels is not None else tuple(f"level {d}" for d in range(deep))
    if len(names_of) != deep:
        msg = f"{len(names_of)} level names for a tree of {deep} levels: name each, root to leaf"
        raise FileFormatError(msg, names_of)
    new_parent = np.where(parent[order] < 0, -1, rank[parent[order]])
    return names_of, own[order], new_parent, depth[order].astype(np.int8)


def _cycle(parent: NDArray[np.int64], start: int) -> list[int]:
    """List the units of the cycle that the parents of ``start`` run into."""
    seen: list[int] = []
    unit = start
    while unit not in seen:
        seen.append(unit)
        unit = int(parent[unit])
    return seen[seen.index(unit) :]


def level_rows(spine: Spine, rho: Fraction | None) -> list[dict[str, Any]]:
    """Rows of the table of levels; with rho, sigma^2 of a query that has a unit's whole budget."""
    rows = []
    positive = [i for i, s in enumerate(spine.share_table) if s > 0]
    for k, name in enumerate(spine.levels):
        units = np.flatnonzero(spine.level_of == k)
        present = [spine.share_table[i] for i in np.unique(spine.share_index[units]).tolist()]
        least, most = (min(present), max(present)) if present else (Fraction(0), Fraction(0))
        row: dict[str, Any] = {
            "level": name,
            "units": int(units.size),
            "measured": int(np.isin(spine.share_index[units], positive).sum()),
            "leaves": int((spine.n_children[units] == 0).sum()),
            "least_share": least,
            "greatest_share": most,
        }
        if rho is not None:
            row["sigma2"] = 1 / (rho * most) if rho * most > 0 else None
        rows.append(row)
    return rows


def format_table(rows: list[dict[str, Any]]) -> str:
    """Rows of a table of levels as text."""
    lines = [f"{'level':<20}{'units':>10}{'measured':>10}{'leaves':>10}  share of rho"]
    for row in rows:
        least, most = row["least_share"], row["greatest_share"]
        share = str(most) if least == most else f"{least} to {most}"
        lines.append(
            f"{row['level']:<20}{row['units']:>10,}{row['measured']:>10,}{row['leaves']:>10,}  {share}"
        )
    return "\n".join(lines)


Parts = tuple[
    tuple[str, ...],
    "NDArray[np.str_]",
    "NDArray[np.int64]",
    "NDArray[np.int8]",
    tuple[Fraction, ...],
    "NDArray[np.int32]",
]


def contract(spine: Spine, *, mixed: bool) -> tuple[Parts, NDArray[np.int64]]:
    """Merge chains; the merged unit stands at the measured level and carries the lowest unit's code."""
    n, parents = len(spine), spine.parents
    lone = (parents >= 0) & (spine.n_children[parents] == 1)
    head = np.arange(n)
    for d in range(1, spine.depth + 1):
        units = np.flatnonzero(lone & (spine.depth_of == d))
        head[units] = head[parents[units]]
    numerators, denominator, _ = common_denominator(spine.share_table, spine.depth + 1)
    share = np.array(numerators, dtype=object)[spine.share_index] if numerators else np.zeros(n, object)
    positive = np.array([s > 0 for s in spine.share_table])[spine.share_index]
    spent = np.bincount(head[positive], minlength=n)
    if (spent > 1).any() and not mixed:
        unit = int(np.flatnonzero(spent > 1)[0])
        names = [spine.levels[spine.level_of[u]] for u in np.flatnonzero((head == unit) & positive)]
        msg = (
            f"the chain at {str(spine.geocodes[unit])!r} spends budget at levels {', '.join(names)}, "
            "whose query mixes may differ: "
            "bypass the spine first, or say mixed=True if all levels ask the same queries"
        )
        raise BudgetError(msg, str(spine.geocodes[unit]))
    total = np.zeros(n, object)
    np.add.at(total, head, share)
    lowest = np.arange(n)
    lowest[head] = np.arange(n)  # units are in level order, so the last write is the lowest of the chain
    level = spine.level_of[lowest]
    level[head[positive]] = spine.level_of[positive]
    heads = np.flatnonzero(head == np.arange(n))
    order = heads[np.lexsort((heads, level[heads]))]
    rank = np.full(n, -1)
    rank[order] = np.arange(order.size)
    above = parents[order]
    parent = np.where(above < 0, -1, rank[head[above]])
    values = sorted(set(total[order].tolist()))
    index = np.searchsorted(np.array(values, dtype=object), total[order]).astype(np.int32)
    table = tuple(Fraction(int(v), denominator) for v in values)
    parts = (spine.levels, spine.geocodes[lowest[order]], parent, level[order].astype(np.int8), table, index)
    return parts, rank[head]


def insert_level(spine: Spine, name: str, above: str, groups: Any) -> Parts:
    """Put unmeasured units between the units of ``above`` and their parents, one per (parent, group)."""
    units = spine.units(above)
    labels = text_codes(groups, name)
    if labels.size != units.size or name in spine.levels:
        msg = (
            f"{labels.size} groups named {name!r} for {units.size} units of level {above}: give one a "
            "unit, and a new name"
        )
        raise FileFormatError(msg, name)
    k = spine.levels.index(above)
    start = int(units[0])
    pairs, inverse = np.unique(labels, return_inverse=True)
    keys, key = np.unique(spine.parents[units] * pairs.size + inverse, return_inverse=True)
    added = keys.size
    parent_of_new = np.array([keys[i] // pairs.size for i in range(added)], np.int64)
    shifted = np.where(spine.parents >= start, spine.parents + added, spine.parents)
    parents = np.concatenate([shifted[:start], parent_of_new, shifted[start:]])
    parents[start + added : start + added + units.size] = start + key
    level = np.concatenate([spine.level_of[:start], np.full(added, k), spine.level_of[start:] + 1]).astype(
        np.int8
    )
    geocodes = np.concatenate([spine.geocodes[:start], pairs[keys % pairs.size], spine.geocodes[start:]])
    table = (*spine.share_table, Fraction(0))
    index = np.insert(spine.share_index, [start] * added, len(table) - 1).astype(np.int32)
    return (*spine.levels[:k], name, *spine.levels[k:]), geocodes, parents, level, table, index
