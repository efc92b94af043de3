"""Bypassing: a geounit gives way to its children, and its share of the budget goes with them.

A unit u with share g_u is replaced, in its own level, by one new unit per child v with share g_u + g_v; the
child's own share becomes 0. Every path keeps its sum, so the privacy guarantee is the same to the last
digit. Under zCDP only a unit with one child may go (any other bypass makes some estimate worse); under pure
DP a unit goes when 2 min g_child >= (c - 1) g_u, c its number of children, unless its parent would have too
many.

The share moved up is spent with the query mix of the level it moves *to*: sigma^2 of query i at unit u of
level l is 1 / (rho g_u alpha[i, l]). Build measurements from (share, level) of the units, never from a
table of levels.

What this module is not: the choice of geounits (see :mod:`adversary.geography.optimize`).

Held to account by ``tests/geography/test_bypass.py`` (path sums on random spines; variances before and
after) and ``tests/paper/test_spines.py``. Sources: Cumings-Menon et al., arXiv 2203.16654, sec. 5, Theorems
2 and 3.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import AdversaryError
from adversary.geography._tree import Tree, common_denominator, run_starts
from adversary.geography.spine import Spine

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from numpy.typing import NDArray

__all__ = ["bypass", "bypass_only_children", "pure_dp_worthwhile"]


def pure_dp_worthwhile(share: Any, child_shares: Any) -> bool:
    """Whether moving a unit's share to its children makes no variance larger under pure DP.

    Parameters
    ----------
    share
        Share g_u of the unit.
    child_shares
        Shares of its c children; the theorem takes them as equal, the rule uses the least.

    Returns
    -------
    bool
        2 min g_child >= (c - 1) g_u (Cumings-Menon et al., Theorem 2).

    Examples
    --------
    >>> pure_dp_worthwhile(1, [1, 1, 1]), pure_dp_worthwhile(1, [1, 1, 1, 1])
    (True, False)
    """
    children = list(child_shares)
    return bool(2 * min(children) >= (len(children) - 1) * share)


def _pure_choice(tree: Tree, k: int, go: NDArray[np.bool_], cutoff: int) -> NDArray[np.bool_]:
    """Units of level k that the pure-DP rule bypasses: in order, each seeing its parent's present family."""
    kids = tree.children(k)
    by_parent = np.argsort(tree.parent[k + 1], kind="stable")
    least = np.minimum.reduceat(tree.share[k + 1][by_parent], run_starts(tree.parent[k + 1][by_parent]))
    worth = np.asarray(2 * least >= (kids - 1) * tree.share[k], bool)
    siblings = np.bincount(tree.parent[k], minlength=int(tree.parent[k].max()) + 1) - 1
    go = go.copy()
    for u in np.lexsort((tree.seq[k], tree.parent[k])).tolist():
        above = tree.parent[k][u]
        if go[u] or (worth[u] and siblings[above] + kids[u] <= cutoff):
            go[u] = True
            siblings[above] += kids[u] - 1
    return go


def bypass_level(
    tree: Tree, k: int, *, pure_cutoff: int | None, forced: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Bypass the units of level k, in place; new units come after the old ones of the same parent.

    Returns the old units that stay and the children that got a unit of their own, in the new order of the
    level; None if nothing was to be done.
    """
    go = np.full(tree.parent[k].size, forced) | (tree.children(k) == 1)
    if pure_cutoff is not None and not forced:
        go = _pure_choice(tree, k, go, pure_cutoff)
    if not go.any():
        return None
    unit = tree.parent[k + 1]
    moved = np.flatnonzero(go[unit])
    moved = moved[np.lexsort((tree.seq[k + 1][moved], tree.seq[k][unit[moved]]))]
    kept = np.flatnonzero(~go)
    old_unit = unit[moved]
    parent_below = (np.cumsum(~go) - 1)[unit]
    parent_below[moved] = kept.size + np.arange(moved.size)
    seq_below = tree.seq[k + 1].copy()
    seq_below[moved] = 0
    share_below = tree.share[k + 1].copy()
    share_below[moved] = 0
    last = int(tree.seq[k].max()) + 1
    tree.share[k] = np.concatenate([tree.share[k][kept], tree.share[k][old_unit] + tree.share[k + 1][moved]])
    tree.seq[k] = np.concatenate([tree.seq[k][kept], last + np.arange(moved.size)])
    tree.parent[k] = np.concatenate([tree.parent[k][kept], tree.parent[k][old_unit]])
    tree.parent[k + 1], tree.seq[k + 1], tree.share[k + 1] = parent_below, seq_below, share_below
    return kept, moved


def bypass_tree(tree: Tree, *, pure_cutoff: int | None, forced: Collection[int] = (), top: int = 0) -> None:
    """Bypass levels from the one above the blocks up to ``top``, in place.

    Level ``top - 1`` and above, if the tree has any, are left to the only-child rule of the caller.
    """
    for k in range(tree.depth - 2, top - 1, -1):
        bypass_level(tree, k, pure_cutoff=pure_cutoff, forced=k in forced)


def give_to_parent(tree: Tree, k: int) -> None:
    """Move the shares of only children of level k + 1 to their parents, in place."""
    lone = tree.children(k)[tree.parent[k + 1]] == 1
    tree.share[k][tree.parent[k + 1][lone]] += tree.share[k + 1][lone]
    tree.share[k + 1][lone] = 0


def bypass_only_children(spine: Spine, lowest: str | None = None) -> Spine:
    """Every unit with one child takes over the child's share, from the leaves up; codes stay as they are.

    Parameters
    ----------
    spine
        Any spine, ragged or not.
    lowest
        Lowest level whose units may give their share away; default: the leaves.

    Returns
    -------
    Spine
        Same units, shares moved; every path has the sum it had.

    Notes
    -----
    The rule of zero-concentrated DP (Cumings-Menon et al., sec. 5): precision is linear in the share, so
    the move is free, and estimates that are fixed from the top down never read a lone child's own
    measurement.

    Examples
    --------
    >>> table = {"tract": ["1", "1", "2"], "block": ["11", "12", "21"]}
    >>> spine = Spine.from_blocks(table, {"tract": "1/2", "block": "1/2"})
    >>> [str(spine.share(u)) for u in bypass_only_children(spine).path("21")]
    ['1/2', '1/2']
    >>> bypassed = bypass_only_children(spine)
    >>> [str(bypassed.share(u)) for u in bypassed.path("21")]
    ['1', '0']
    """
    numerators, denominator, dtype = common_denominator(spine.share_table, spine.depth + 1)
    share = np.array(numerators, dtype=dtype)[spine.share_index]
    parents = spine.parents
    lone = np.flatnonzero((parents >= 0) & (spine.n_children[parents] == 1))
    if lowest is not None:
        spine.units(lowest)  # refuses an unknown level
        lone = lone[spine.level_of[lone] <= spine.levels.index(lowest)]
    for d in np.unique(spine.depth_of[lone])[::-1].tolist():  # the deepest first: shares climb whole chains
        units = lone[spine.depth_of[lone] == d]
        share[parents[units]] += share[units]
        share[units] = 0
    return spine.with_numerators(share, denominator)


def bypass(
    spine: Spine,
    *,
    mechanism: str = "zcdp",
    cutoff: int = 150,
    top: str | None = None,
    forced: Collection[str] = (),
) -> Spine:
    """Bypass the units of a spine of uniform depth, as the 2020 Disclosure Avoidance System does.

    Parameters
    ----------
    spine
        A spine whose leaves all lie in its last level.
    mechanism
        ``"zcdp"``: only-child rule; ``"pure"``: also the rule of Theorem 2.
    cutoff
        Pure DP: no bypass that would leave the parent with more than this many children and the unit's
        siblings together.
    top
        Highest level in which units may be replaced (production: the county); above it the only-child rule
        alone moves shares. Default: the level below the root.
    forced
        Levels whose units always give way.

    Returns
    -------
    Spine
        Path sums unchanged. A unit with one child keeps its code; one that gives way to several is replaced
        by units with its children's codes.

    Raises
    ------
    AdversaryError
        For a ragged spine, an unknown level or an unknown mechanism.

    Examples
    --------
    >>> table = {"tract": ["1", "1", "2"], "group": ["1a", "1a", "2a"], "block": ["11", "12", "21"]}
    >>> spine = Spine.from_blocks(table, {"tract": "1/4", "group": "1/4", "block": "1/2"})
    >>> two = bypass(spine, mechanism="pure", top="tract")
    >>> [str(two.share(u)) for u in two.path("11")]
    ['1', '0', '0']
    """
    if mechanism not in ("zcdp", "pure"):
        msg = f"mechanism must be 'zcdp' or 'pure', got {mechanism!r}"
        raise AdversaryError(msg, mechanism)
    unknown = [name for name in (*forced, *((top,) if top else ())) if name not in spine.levels]
    if unknown:
        msg = f"{unknown[0]!r} is no level of this spine: choose from {', '.join(spine.levels)}"
        raise AdversaryError(msg, unknown[0])
    if mechanism == "zcdp" and not forced:
        return bypass_only_children(spine)
    first = spine.levels.index(top) if top else min(1, len(spine.levels) - 1)
    return _bypassed(spine, cutoff if mechanism == "pure" else None, first, forced)


def _bypassed(spine: Spine, cut: int | None, first: int, forced: Collection[str]) -> Spine:
    """Replace units from the level above the leaves up to ``first``; above it only move shares."""
    tree, starts = _tree_of(spine)
    codes = [spine.geocodes[starts[k] : starts[k + 1]] for k in range(tree.depth)]
    for k in range(tree.depth - 2, first - 1, -1):
        lone = tree.children(k)[tree.parent[k + 1]] == 1
        own = np.where(lone, codes[k][tree.parent[k + 1]], codes[k + 1])
        done = bypass_level(tree, k, pure_cutoff=cut, forced=spine.levels[k] in forced)
        if done is not None:
            codes[k] = np.concatenate([codes[k][done[0]], own[done[1]]])
    for k in range(first - 1, -1, -1):
        give_to_parent(tree, k)
    return spine_of(tree, codes, spine.levels)


def _tree_of(spine: Spine) -> tuple[Tree, list[int]]:
    """Arrays of a spine of uniform depth, one root or several."""
    if not spine.uniform:
        msg = "this rule needs every leaf in the last level, got a ragged spine: use bypass_only_children"
        raise AdversaryError(msg, spine)
    numerators, denominator, dtype = common_denominator(spine.share_table, spine.depth + 1)
    share = np.array(numerators, dtype=dtype)[spine.share_index]
    starts = np.searchsorted(spine.level_of, np.arange(len(spine.levels) + 1)).tolist()
    spans = list(pairwise(starts))
    parent = [np.zeros(spans[0][1], np.int64)]
    parent += [spine.parents[a:b] - starts[k] for k, (a, b) in enumerate(spans[1:])]
    seq = [np.arange(b - a) for a, b in spans]
    return Tree(parent, seq, [share[a:b].copy() for a, b in spans], denominator), starts


def spine_of(tree: Tree, codes: list[NDArray[np.str_]], levels: tuple[str, ...]) -> Spine:
    """Spine of a tree whose first level holds its roots."""
    order, _ = tree.order()
    offset = 0
    parents, geocodes, shares, level_of = [], [], [], []
    rank = np.zeros(0, np.int64)
    for k, ids in enumerate(order):
        parents.append(np.full(ids.size, -1) if k == 0 else offset + rank[tree.parent[k][ids]])
        offset += rank.size
        rank = np.empty(ids.size, np.int64)
        rank[ids] = np.arange(ids.size)
        geocodes.append(codes[k][ids])
        shares.append(tree.share[k][ids])
        level_of.append(np.full(ids.size, k, np.int8))
    return Spine.from_arrays(
        levels,
        np.concatenate(geocodes),
        np.concatenate(parents),
        np.concatenate(level_of),
        (np.concatenate(shares), tree.denominator),
    )
