"""Estimates on a tree in two passes: all noisy counts of all levels, each weighted by its precision.

Up the tree every unit is estimated from what was measured in and below it; down the tree the difference
between a parent's estimate and its children's is shared out in proportion to their variances. The result is
the generalised least-squares estimate, at a cost linear in the number of units, with unequal variances,
counts that were not measured (variance inf), counts that are exact (variance 0), and vectors
(:func:`two_pass_cells`).

What this module is not: post-processing to non-negative integers, or a spine (trees are arrays of parents
here, as in ``Spine.parents``).

Held to account by ``tests/release/test_estimate.py`` and ``tests/paper/test_spines.py`` (dense generalised
least squares, to 1e-10). Sources: Hay et al. 2010, sec. 4; Cumings-Menon et al., arXiv 2404.13164; Honaker
2015 for unequal variances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, ReleaseError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TreeEstimate", "check_parents", "two_pass"]

_TOLERANCE = 1e-9


def check_parents(parents: Any) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Parents as int64, and the units of every depth, root first.

    Parameters
    ----------
    parents
        Index of every unit's parent, -1 for a root, shape (n,).

    Raises
    ------
    ReleaseError
        If a parent does not come before its child (so a cycle, too).
    """
    parent = np.asarray(parents, np.int64).ravel()
    bad = np.flatnonzero(parent >= np.arange(parent.size))
    if bad.size or (parent < -1).any():
        unit = int(bad[0]) if bad.size else int(np.flatnonzero(parent < -1)[0])
        msg = f"unit {unit} has parent {int(parent[unit])}: a parent comes before its children, -1 for a root"
        raise ReleaseError(msg, unit)
    depth = np.zeros(parent.size, np.int64)
    above = parent.copy()
    while (up := above >= 0).any():
        depth[up] += 1
        above[up] = parent[above[up]]
    order = np.argsort(depth, kind="stable")
    return parent, np.split(order, np.searchsorted(depth[order], np.arange(1, depth.max(initial=0) + 1)))


@dataclass(frozen=True, eq=False)
class TreeEstimate:
    """Generalised least-squares estimates of all units of a tree.

    Parameters
    ----------
    estimate, variance
        Of every unit, shape (n,). NaN and inf where the measurements do not determine the unit.
    parents
        The tree.
    up_estimate, up_variance
        The same from measurements in and below the unit alone.
    """

    estimate: NDArray[np.float64]
    variance: NDArray[np.float64]
    parents: NDArray[np.int64]
    up_estimate: NDArray[np.float64]
    up_variance: NDArray[np.float64]

    @property
    def sd(self) -> NDArray[np.float64]:
        """Standard deviation of every estimate."""
        return np.sqrt(self.variance)

    def combine(self, weights: Any) -> float:
        """Estimate of a weighted sum of units; weights of shape (n,)."""
        w = self._weights(weights)
        used = w != 0
        return float(w[used] @ self.estimate[used])

    def variance_of(self, weights: Any) -> float:
        """Variance of the estimate of a weighted sum of units, such as a place; shape (n,) weights."""
        return self.covariance(weights, weights)

    def _weights(self, weights: Any) -> NDArray[np.float64]:
        w = np.asarray(weights, float)
        if w.shape != self.parents.shape:
            msg = (
                f"{w.size} weights for {self.parents.size} units: give one a unit, 0 for those that do "
                "not count"
            )
            raise ReleaseError(msg, w.size)
        return w

    def covariance(self, weights: Any, others: Any) -> float:
        """Covariance of the estimates of two weighted sums of units.

        Parameters
        ----------
        weights, others
            One weight a unit, shape (n,).

        Returns
        -------
        float
            Inf if the measurements do not determine one of the sums.

        Notes
        -----
        Given a parent, its children are Gaussian with the covariance diag(V) - V V'/S of the up pass, so
        one pass up the tree carries a sum's coefficient on the unit and its covariance given the unit.
        Linear in the number of units.
        """
        a, b = self._weights(weights).copy(), self._weights(others).copy()
        parent, layers = check_parents(self.parents)
        rest = np.zeros(parent.size)
        v = self.up_variance
        for units in layers[:0:-1]:
            above = parent[units]
            lost, finite = np.isinf(v[units]), np.isfinite(v[units])
            vf = np.where(finite, v[units], 0.0)
            n = parent.size
            s, holes = np.bincount(above, vf, n), np.bincount(above, lost, n)
            sa, sb = np.bincount(above, a[units] * vf, n), np.bincount(above, b[units] * vf, n)
            sab = np.bincount(above, a[units] * b[units] * vf, n)
            here = np.unique(above)
            full = here[holes[here] == 0]
            share = 1 / np.where(s[full] > 0, s[full], 1.0)
            rest_below = np.bincount(above, rest[units], n)
            rest[full] += rest_below[full] + sab[full] - sa[full] * sb[full] * share
            a[full] += sa[full] * share
            b[full] += sb[full] * share
            self._holes(units, (a, b, rest, rest_below), here[holes[here] > 0], (s, sa, sb, sab, holes))
        roots = layers[0]
        bad = np.isinf(v[roots]) & ((a[roots] != 0) | (b[roots] != 0))
        if bad.any() or not np.isfinite(rest[roots]).all():
            return float("inf")
        vr = np.where(np.isinf(v[roots]), 0.0, v[roots])
        return float((a[roots] * b[roots] * vr + rest[roots]).sum())

    def _holes(
        self,
        units: NDArray[np.int64],
        state: tuple[NDArray[np.float64], ...],
        above: NDArray[np.int64],
        sums: tuple[NDArray[np.float64], ...],
    ) -> None:
        """Parents with undetermined children, which are the parent less the others."""
        a, b, rest, rest_below = state
        s, sa, sb, sab, _ = sums
        if not above.size:
            return
        n = a.size
        lost = units[np.isinf(self.up_variance[units])]
        p = self.parents[lost]
        low = [np.full(n, np.inf), np.full(n, np.inf)]
        high = [np.full(n, -np.inf), np.full(n, -np.inf)]
        for k, w in enumerate((a, b)):
            np.minimum.at(low[k], p, w[lost])
            np.maximum.at(high[k], p, w[lost])
        ca, cb = high[0][above], high[1][above]
        agree = (low[0][above] == ca) & (low[1][above] == cb)
        # sum of (a_d - a_c)(b_d - b_c) V_d over the determined children d
        extra = sab[above] - ca * sb[above] - cb * sa[above] + ca * cb * s[above]
        rest[above] += np.where(agree, rest_below[above] + extra, np.inf)
        a[above] += ca
        b[above] += cb


def _up(
    parent: NDArray[np.int64], layers: list[NDArray[np.int64]], z: NDArray[np.float64], v: NDArray[np.float64]
) -> tuple[NDArray[Any], ...]:
    """Estimates from below, and per parent the sums and the number of undetermined children."""
    n = parent.size
    mean, var = z.copy(), v.copy()
    total, total_var, holes = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
    inner = np.zeros(n, bool)
    inner[parent[parent >= 0]] = True
    for units in layers[::-1]:
        own = units[inner[units]]
        below_ok = own[holes[own] == 0]
        s, m = total_var[below_ok], total[below_ok]
        exact = v[below_ok] == 0
        clash = exact & (s == 0) & (np.abs(z[below_ok] - m) > _TOLERANCE * (1 + np.abs(m)))
        if clash.any():
            unit = int(below_ok[np.flatnonzero(clash)[0]])
            msg = (
                f"unit {unit} is exactly {z[unit]:g} but its exact children sum to {total[unit]:g}: one "
                "invariant is wrong"
            )
            raise ModelError(msg, unit)
        weight = np.zeros_like(s)  # weight of the unit's own measurement
        blend = ~exact & np.isfinite(v[below_ok]) & (s > 0)
        weight[blend] = s[blend] / (s[blend] + v[below_ok][blend])
        weight[exact] = 1.0
        own_z = np.where(weight > 0, z[below_ok], 0.0)
        mean[below_ok] = weight * own_z + (1 - weight) * m
        var[below_ok] = (1 - weight) * s
        lost = np.isinf(var[units])
        above = parent[units]
        real = above >= 0
        np.add.at(total, above[real & ~lost], mean[units[real & ~lost]])
        np.add.at(total_var, above[real & ~lost], var[units[real & ~lost]])
        np.add.at(holes, above[real & lost], 1)
    return mean, var, total, total_var, holes


def two_pass(parents: Any, value: Any, variance: Any) -> TreeEstimate:
    """Generalised least-squares estimates of the counts of all units of a tree.

    Parameters
    ----------
    parents
        Parent of every unit, -1 for a root, parents before children (as ``Spine.parents``); shape (n,).
    value
        Noisy count of every unit; ignored where the variance is inf. Shape (n,).
    variance
        Noise variance: inf where nothing was measured, 0 where the count is exact. Shape (n,).

    Returns
    -------
    TreeEstimate
        Estimates add up: a parent's is the sum of its children's.

    Raises
    ------
    ReleaseError
        Lengths that differ, a negative or NaN variance, a value that is not finite but is measured.
    ModelError
        Exact counts that contradict each other.

    Notes
    -----
    Up: V = (1/v + 1/S)^{-1}, m = V (z/v + M/S), S and M the sums over children. Down: A = V_c / S,
    e_c = m_c + A (e_p - M), V_c + A^2 (V_p - S) (generalises Hay et al. 2010, sec. 4, to unequal variances).

    Examples
    --------
    >>> answer = two_pass([-1, 0, 0], [10.0, 3.0, 5.0], [1.0, 1.0, 1.0])
    >>> answer.estimate.round(6).tolist(), answer.variance.round(6).tolist()
    ([9.333333, 3.666667, 5.666667], [0.666667, 0.666667, 0.666667])
    """
    parent, layers = check_parents(parents)
    v = np.asarray(variance, float).ravel()
    z = np.asarray(value, float).ravel()
    if not v.size == z.size == parent.size:
        msg = f"{parent.size} units, {z.size} values, {v.size} variances: give one of each a unit"
        raise ReleaseError(msg, (parent.size, z.size, v.size))
    wrong = np.flatnonzero(~(v >= 0) | (np.isfinite(v) & ~np.isfinite(z)))
    if wrong.size:
        unit = int(wrong[0])
        msg = (
            f"unit {unit}: value {z[unit]}, variance {v[unit]}: a variance is >= 0, and inf where nothing "
            "was measured"
        )
        raise ReleaseError(msg, unit)
    z = np.where(np.isinf(v), 0.0, z)
    mean, var, total, total_var, holes = _up(parent, layers, z, v)
    estimate, final = mean.copy(), var.copy()
    for units in layers[1:]:
        p = parent[units]
        lost = np.isinf(var[units])
        blend = ~lost & (holes[p] == 0) & (total_var[p] > 0)
        c, q = units[blend], p[blend]
        gain = var[c] / total_var[q]
        estimate[c] = mean[c] + gain * (estimate[q] - total[q])
        final[c] = np.maximum(var[c] + gain**2 * (final[q] - total_var[q]), 0.0)
        alone = lost & (holes[p] == 1)
        c, q = units[alone], p[alone]
        estimate[c] = estimate[q] - total[q]
        final[c] = final[q] + total_var[q]
        final[units[lost & (holes[p] > 1)]] = np.inf
    estimate[np.isinf(final)] = np.nan
    return TreeEstimate(estimate, final, parent, mean, var)
