"""From estimates to what users see: whole counts that are not negative and add up, by a simple top-down rule.

From the root down, the children of every unit are the non-negative numbers nearest to their estimates
(weighted by their precision) that sum to the parent's published count; controlled rounding then moves each
to a neighbouring integer and keeps the sum. Every cell of a histogram is treated alone. It reproduces what
matters for a reader of published tables: consistency, no negative counts, and the bias that comes with it
(small counts are pushed up, large ones down).

What this module is not: the Bureau's TopDown algorithm, which solves for all cells and constraints of a
unit jointly and in several passes; and its output is no noisy measurement, so it must never be given the
discrete Gaussian's likelihood.

Held to account by ``tests/release/test_post_process.py`` (quadratic programs and exhaustive rounding).
Sources: Abowd et al. 2022 (The 2020 Census Disclosure Avoidance System TopDown Algorithm) for the
two steps; Michelot 1986 for the projection; Cox 1987 for controlled rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, ReleaseError
from adversary.release.estimate import check_parents

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["nearest_with_sum", "round_with_sum", "top_down"]

_NEAR = 1e-9


def _check_groups(group: NDArray[np.int64], total: NDArray[Any]) -> None:
    if group.size and (group.min() < 0 or group.max() >= total.size):
        msg = (
            f"groups run from {group.min()} to {group.max()} but there are {total.size} totals: give one "
            "a group"
        )
        raise ReleaseError(msg, total.size)


def nearest_with_sum(estimate: Any, variance: Any, group: Any, total: Any) -> NDArray[np.float64]:
    """Nearest non-negative numbers with given sums: one small quadratic program a group, all at once.

    Parameters
    ----------
    estimate, variance
        What to be near to, and how loosely: variance >= 0, 0 for a number that is known. Shape (n,).
    group
        Group of every entry, 0 to groups - 1, shape (n,).
    total
        Sum of every group, >= 0, shape (groups,).

    Returns
    -------
    ndarray, shape (n,)
        argmin sum (x - e)^2 / v subject to sum of x = total, x >= 0, group by group: x = max(0, e - lambda
        v).

    Raises
    ------
    ModelError
        If the known entries of a group exceed its total, or are all there is and fall short of it.

    Examples
    --------
    >>> nearest_with_sum([5.0, 1.0, -4.0], [1.0, 1.0, 1.0], [0, 0, 0], [4.0]).tolist()
    [4.0, 0.0, 0.0]
    """
    e, v = np.asarray(estimate, float), np.asarray(variance, float)
    g, wanted = np.asarray(group, np.int64), np.asarray(total, float)
    _check_groups(g, wanted)
    if not (np.isfinite(e).all() and np.isfinite(v).all() and (v >= 0).all() and (wanted >= 0).all()):
        msg = (
            "estimates must be finite, variances finite and >= 0, totals >= 0: an undetermined unit "
            "cannot be published"
        )
        raise ReleaseError(msg, None)
    n = wanted.size
    known = v == 0
    rest = wanted - np.bincount(g[known], np.maximum(e[known], 0.0), n)
    active = ~known
    slack = np.bincount(g[active], minlength=n) == 0
    bad = np.flatnonzero((rest < -_NEAR * (1 + wanted)) | (slack & (rest > _NEAR * (1 + wanted))))
    if bad.size:
        i = int(bad[0])
        msg = (
            f"group {i} must sum to {wanted[i]:g}, but its known entries leave {rest[i]:g}: one of them "
            "is wrong"
        )
        raise ModelError(msg, i)
    rest = np.maximum(rest, 0.0)
    x = np.where(known, np.maximum(e, 0.0), 0.0)
    while active.any():
        a = np.flatnonzero(active)
        gap = np.bincount(g[a], e[a], n) - rest
        scale = np.bincount(g[a], v[a], n)
        value = e[a] - v[a] * (gap / np.where(scale > 0, scale, 1.0))[g[a]]
        negative = value < 0
        if not negative.any():
            x[a] = value
            break
        # a group that loses all its entries has rest 0: its numbers stay 0
        active[a[negative]] = False
    return x


def round_with_sum(x: Any, group: Any) -> NDArray[np.int64]:
    """Round to a neighbouring integer so that every group keeps its (whole) sum: controlled rounding.

    Parameters
    ----------
    x
        Numbers >= 0, shape (n,), whose sum is a whole number in every group.
    group
        Group of every entry, shape (n,).

    Returns
    -------
    ndarray of int64, shape (n,)
        Whole numbers stay; the largest fractions are rounded up, ties to the earlier entry. No other choice
        of floors and ceilings with the same sum is nearer in the sum of squares.

    Raises
    ------
    ReleaseError
        If the sum of a group is not a whole number.

    Examples
    --------
    >>> round_with_sum([1.2, 2.7, 0.1], [0, 0, 0]).tolist()
    [1, 3, 0]
    """
    values, g = np.asarray(x, float), np.asarray(group, np.int64)
    if not values.size:
        return np.zeros(0, np.int64)
    near = np.round(values)
    values = np.where(np.abs(values - near) < _NEAR * (1 + near), near, values)
    low = np.floor(values)
    fraction = values - low
    n = int(g.max()) + 1
    left = np.bincount(g, fraction, n)
    up = np.round(left)
    wrong = np.flatnonzero(np.abs(left - up) > 1e-6 * (1 + np.bincount(g, values, n)))
    if wrong.size:
        i = int(wrong[0])
        msg = (
            f"group {i} sums to {np.bincount(g, values, n)[i]:g}, which is no whole number: round its "
            "total first"
        )
        raise ReleaseError(msg, i)
    order = np.lexsort((-fraction, g))
    starts = np.searchsorted(g[order], np.arange(n))
    rank = np.arange(order.size) - starts[g[order]]
    low[order] += rank < up[g[order]]
    return low.astype(np.int64)


def top_down(parents: Any, estimate: Any, variance: Any) -> NDArray[np.int64]:
    """Whole, non-negative, consistent counts for all units of a tree.

    Parameters
    ----------
    parents
        Parent of every unit, -1 for a root, parents before children; shape (n,).
    estimate
        Estimate of every unit, shape (n,), or of every cell of every unit, shape (n, cells).
    variance
        Its variance, same shape; 0 where the count is known (an invariant, a structural zero).

    Returns
    -------
    ndarray of int64
        Same shape. The children of every unit sum to it, cell by cell.

    Raises
    ------
    ReleaseError
        Shapes that differ, or estimates that are not finite.
    ModelError
        Known counts that contradict a parent's.

    Examples
    --------
    >>> top_down([-1, 0, 0, 0], [6.3, 5.2, 2.9, -1.8], [0.5, 1.0, 1.0, 1.0]).tolist()
    [6, 4, 2, 0]
    """
    parent, layers = check_parents(parents)
    e, v = np.asarray(estimate, float), np.asarray(variance, float)
    if e.shape != v.shape or e.shape[:1] != parent.shape or e.ndim not in (1, 2):
        msg = (
            f"{parent.size} units, estimates {e.shape}, variances {v.shape}: give one of each a unit (and "
            "cell)"
        )
        raise ReleaseError(msg, e.shape)
    flat, loose = e.reshape(parent.size, -1), v.reshape(parent.size, -1)
    if not np.isfinite(flat).all():
        unit = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
        msg = (
            f"unit {unit} has no finite estimate: what the measurements do not determine cannot be published"
        )
        raise ReleaseError(msg, unit)
    out = np.zeros(flat.shape, np.int64)
    roots = layers[0]
    out[roots] = np.round(np.maximum(flat[roots], 0.0))
    cells = flat.shape[1]
    for units in layers[1:]:
        above, place = np.unique(parent[units], return_inverse=True)
        group = (place[:, None] * cells + np.arange(cells)).ravel()
        total = out[above].ravel()
        try:
            x = nearest_with_sum(flat[units].ravel(), loose[units].ravel(), group, total)
        except ModelError as error:
            unit = int(above[int(str(error.value)) // cells])
            msg = f"children of unit {unit}: {error}"
            raise ModelError(msg, unit) from None
        out[units] = round_with_sum(x, group).reshape(-1, cells)
    return out.reshape(e.shape)
