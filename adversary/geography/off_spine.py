"""How far a set of blocks is from a spine: its distance, and the units that attain it.

The distance is the smallest number of geounits that must be added or subtracted to make the set. It equals
the least ||w||_1 with A'w = 1_set, A the incidence of units and blocks, because the recursion below is the
dynamic program of that linear program; a test solves the program itself. The smaller the distance, the less
noise in the set's estimate.

What this module is not: an optimiser (:mod:`adversary.geography.optimize`).

Held to account by ``tests/geography/test_off_spine.py`` (linear programming, and the combination rebuilt) and
``tests/paper/test_spines.py``. Sources: Cumings-Menon et al., arXiv 2203.16654, sec. 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError
from adversary.geography.blocks import text_codes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine

__all__ = ["entity_combination", "entity_distance", "entity_distances", "members_of"]


def members_of(spine: Spine, blocks: Iterable[str | int]) -> NDArray[np.bool_]:
    """Which leaves are among ``blocks`` (codes or indices), in the order of ``spine.leaves``.

    Raises
    ------
    AdversaryError
        For a code that is not in the spine or that is no leaf.
    """
    place = {leaf: i for i, leaf in enumerate(spine.leaves.tolist())}
    inside = np.zeros(len(place), bool)
    for block in blocks:
        unit = spine.index(block)
        if unit not in place:
            msg = f"{block!r} is no leaf of the spine: name the blocks of the set, not a unit above them"
            raise AdversaryError(msg, block)
        inside[place[unit]] = True
    return inside


def _as_members(spine: Spine, members: Any) -> NDArray[np.bool_]:
    inside = np.asarray(members)
    if inside.dtype != bool:
        return members_of(spine, list(members))
    if inside.shape != (spine.leaves.size,):
        msg = f"a mask of {inside.size} leaves for a spine of {spine.leaves.size}: give one entry a leaf"
        raise AdversaryError(msg, inside.size)
    return inside


def _costs(spine: Spine, inside: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cost of the set and of its complement within every unit."""
    n = len(spine)
    cost, other = np.zeros(n, np.int64), np.zeros(n, np.int64)
    cost[spine.leaves] = inside
    other[spine.leaves] = ~inside
    inner = spine.n_children > 0
    for d in range(spine.depth, -1, -1):
        units = np.flatnonzero(spine.depth_of == d)
        units = units[inner[units]]
        x, y = cost[units].copy(), other[units].copy()
        cost[units], other[units] = np.minimum(x, y + 1), np.minimum(y, x + 1)
        below = np.flatnonzero((spine.depth_of == d) & (spine.parents >= 0))
        np.add.at(cost, spine.parents[below], cost[below])
        np.add.at(other, spine.parents[below], other[below])
    return cost, other


def _tops(spine: Spine, top: str | None) -> NDArray[np.int64]:
    return np.flatnonzero(spine.parents < 0) if top is None else spine.units(top)


def entity_distance(spine: Spine, members: Any, top: str | None = None) -> int:
    """Off-spine entity distance of one set of blocks.

    Parameters
    ----------
    spine
        Any spine.
    members
        The blocks: a boolean mask over ``spine.leaves``, or an iterable of codes.
    top
        Level above which no unit may be used, as production stops at the county part; default: up to the
        root.

    Returns
    -------
    int
        0 for the empty set, 1 for a set that is a unit.

    Notes
    -----
    For a unit with children, X and Y the sums of the children's costs of the set and of its complement:
    cost = min(X, Y + 1), complement = min(Y, X + 1) (Cumings-Menon et al., sec. 3).

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1", "1", "2"], "block": ["11", "12", "13", "21"]})
    >>> entity_distance(spine, ["11", "12"]), entity_distance(spine, ["11", "12", "13"])
    (2, 1)
    """
    cost, _ = _costs(spine, _as_members(spine, members))
    return int(cost[_tops(spine, top)].sum())


def entity_combination(spine: Spine, members: Any, top: str | None = None) -> dict[int, int]:
    """Units of ``spine`` to add (+1) and to subtract (-1) that make the set ``members`` of leaves, as few as its distance says.

    Parameters
    ----------
    spine
        The spine.
    members
        Indices of the leaves of the entity.
    top
        Index of the level from which units may be used.

    Returns
    -------
    dict
        Index of a unit -> +1 or -1.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1", "1", "2"], "block": ["11", "12", "13", "21"]})
    >>> {spine.codes([u])[0]: sign for u, sign in entity_combination(spine, ["11", "12"]).items()}
    {'11': 1, '12': 1}
    """
    inside = _as_members(spine, members)
    cost, other = _costs(spine, inside)
    leaf_in = dict(zip(spine.leaves.tolist(), inside.tolist(), strict=True))
    weights: dict[int, int] = {}
    todo = [(int(u), True, 1) for u in _tops(spine, top)]
    while todo:
        unit, wanted, sign = todo.pop()
        if unit in leaf_in:
            if leaf_in[unit] == wanted:
                weights[unit] = weights.get(unit, 0) + sign
            continue
        children = spine.children(unit).tolist()
        mine = sum(int((cost if wanted else other)[c]) for c in children)
        whole = 1 + sum(int((other if wanted else cost)[c]) for c in children)
        if whole < mine:  # the unit itself, less the other side
            weights[unit] = weights.get(unit, 0) + sign
            wanted, sign = not wanted, -sign
        todo += [(c, wanted, sign) for c in children]
    return {u: w for u, w in sorted(weights.items()) if w}


def entity_distances(spine: Spine, codes: Any, top: str | None = None) -> dict[str, int]:
    """Distances of all entities of one kind, given one code a leaf, in one pass.

    Parameters
    ----------
    spine
        Any spine.
    codes
        Code of the entity of every leaf, text, in the order of ``spine.leaves``; blank is "in none".
    top
        As in :func:`entity_distance`.

    Returns
    -------
    dict
        Code -> distance. The work grows with the number of blocks, not with blocks times entities.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1", "1", "2"], "block": ["11", "12", "13", "21"]})
    >>> entity_distances(spine, ["A", "A", "", "B"])
    {'A': 2, 'B': 1}
    """
    labels = text_codes(codes, "entity")
    if labels.size != spine.leaves.size:
        msg = f"{labels.size} codes for {spine.leaves.size} leaves: give one a leaf, blank for none"
        raise AdversaryError(msg, labels.size)
    present = labels != ""
    names, entity = np.unique(labels[present], return_inverse=True)
    result = np.zeros(names.size, np.int64)
    if not names.size:
        return {}
    stop = np.zeros(len(spine), bool)
    stop[_tops(spine, top)] = True
    leaves = spine.leaves[present]
    depth = spine.depth_of[leaves]
    unit = ent = cost = other = np.zeros(0, np.int64)
    for d in range(spine.depth, -1, -1):
        x, y, members = cost, other, np.ones_like(cost)
        if (
            unit.size
        ):  # pairs (entity, unit of depth d) from their children; children without members cost (0, 1)
            keys, inverse = np.unique(ent * len(spine) + unit, return_inverse=True)
            x = np.bincount(inverse, x, keys.size).astype(np.int64)
            members = np.bincount(inverse, members, keys.size).astype(np.int64)
            y = np.bincount(inverse, y, keys.size).astype(np.int64)
            ent, unit = keys // len(spine), keys % len(spine)
            y += spine.n_children[unit] - members
            x, y = np.minimum(x, y + 1), np.minimum(y, x + 1)
        here = depth == d
        unit, ent = np.r_[unit, leaves[here]], np.r_[ent, entity[here]]
        cost, other = np.r_[x, np.ones(here.sum(), np.int64)], np.r_[y, np.zeros(here.sum(), np.int64)]
        ends = stop[unit]
        np.add.at(result, ent[ends], cost[ends])
        unit, ent, cost, other = spine.parents[unit[~ends]], ent[~ends], cost[~ends], other[~ends]
    return dict(zip(names.tolist(), result.tolist(), strict=True))
