"""Estimates of whole histograms on a tree: two passes on vectors of cells, cheap enough for 2,016 of them.

Rotated to mean and contrast coordinates (:class:`adversary.release.queries.Reduction`) the information of
every unit falls apart into a few small blocks, so a unit costs some 16 x 16 matrices instead of one of
2,016 x 2,016. Structural zeros and exact totals are conditioned on, not approximated.

What this module is not: post-processing to non-negative integers.

Held to account by ``tests/release/test_cells.py`` (dense generalised least squares, to 1e-10). Sources:
Cumings-Menon et al., arXiv 2404.13164 (two-pass estimates on the Census tree); Hay et al. 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, ReleaseError
from adversary.release.estimate import check_parents
from adversary.release.queries import QueryGroup, Reduction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Pattern = tuple[int, ...]
    Blocks = dict[Pattern, NDArray[np.float64]]

__all__ = ["CellEstimate", "two_pass_cells"]


@dataclass(frozen=True, eq=False)
class CellEstimate:
    """Estimates of the cells of all units of a tree.

    Parameters
    ----------
    reduction
        The coordinates.
    unit
        Row of ``means`` and ``covariances`` of every unit of the tree (units that cover the same blocks
        share one).
    means
        Pattern -> (rows, W, columns).
    covariances
        Pattern -> (rows, W, W), the same for every column of the pattern.
    """

    reduction: Reduction
    unit: NDArray[np.int64]
    means: Blocks
    covariances: Blocks

    def cells(self, units: Any) -> NDArray[np.float64]:
        """Estimated cells of some units, shape (units, cells)."""
        rows = self.unit[np.atleast_1d(np.asarray(units, np.int64))]
        return self.reduction.join({q: m[rows] for q, m in self.means.items()})

    def answer(self, group: QueryGroup, units: Any) -> NDArray[np.float64]:
        """Estimated answers to a query group, shape (units, size)."""
        return group.answer(self.cells(units))

    def variance(self, group: QueryGroup, units: Any) -> NDArray[np.float64]:
        """Variance of the estimated answers to a query group, shape (units, size)."""
        rows = self.unit[np.atleast_1d(np.asarray(units, np.int64))]
        return self.reduction.variance({q: v[rows] for q, v in self.covariances.items()}, group)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The contracted tree with what was measured at each of its units."""

    reduction: Reduction
    parent: NDArray[np.int64]
    layers: list[NDArray[np.int64]]
    precision: NDArray[np.float64]  # (rows, groups)
    active: NDArray[np.bool_]  # (rows, W)
    totals: dict[int, float]
    leaf: NDArray[np.bool_]
    original: NDArray[np.int64]  # a unit of the user's tree for every row, for messages


def _contract(parent: NDArray[np.int64], layers: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Top unit of the chain of every unit."""
    children = np.bincount(parent[parent >= 0], minlength=parent.size)
    head = np.arange(parent.size)
    for units in layers[1:]:
        lone = units[children[parent[units]] == 1]
        head[lone] = head[parent[lone]]
    return head


def _masked_inverse(blocks: NDArray[np.float64], active: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Inverse on the active rows, zero elsewhere; LinAlgError if not positive definite there."""
    both = active[:, :, None] & active[:, None, :]
    eye = np.eye(blocks.shape[-1])
    padded = np.where(both, blocks, eye * ~both)
    root = np.linalg.cholesky(padded)
    diagonal = np.diagonal(root, axis1=-2, axis2=-1)
    scale = np.sqrt(np.diagonal(padded, axis1=-2, axis2=-1))
    if (diagonal < 1e-7 * scale).any():
        text = "singular"
        raise np.linalg.LinAlgError(text)
    return np.where(both, np.linalg.inv(padded), 0.0)


def _fix_total(
    v: NDArray[np.float64], m: NDArray[np.float64], total: float, scale: float, unit: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Condition one unit's mean-pattern block on the exact sum of its cells."""
    vc = scale * v.sum(axis=1)
    spread = scale * float(vc.sum())
    gap = total - scale * float(m.sum())
    if spread <= 1e-12 * scale**2 * max(float(np.abs(v).max(initial=0.0)), 1e-300):
        if abs(gap) > 1e-6 * (1 + abs(total)):
            msg = (
                f"unit {unit} is exactly {total:g}, but what lies below it is exactly {total - gap:g}: "
                "one is wrong"
            )
            raise ModelError(msg, unit)
        return v, m
    v = v - np.outer(vc, vc) / spread
    return (v + v.T) / 2, m + (vc * gap / spread)[:, None]


class _Pass:
    """Both passes on one pattern."""

    def __init__(self, problem: _Problem, pattern: Pattern, h: NDArray[np.float64]) -> None:
        self.p, self.h = problem, h
        self.mean_pattern = not any(pattern)
        sizes = [problem.reduction.histogram.sizes[a] for a in problem.reduction.rotated]
        self.scale = float(np.sqrt(np.prod(sizes))) if sizes else 1.0
        self.pattern = pattern
        rows, width = problem.active.shape
        self.v = np.zeros((rows, width, width))
        self.m = np.zeros_like(h)
        self.s = np.zeros((rows, width, width))
        self.sum = np.zeros_like(h)

    def up(self) -> None:
        """Estimates from in and below every unit."""
        p = self.p
        for units in p.layers[::-1]:
            j = p.reduction.blocks(p.precision[units], self.pattern)
            leaf = p.leaf[units]
            if leaf.any():
                own = units[leaf]
                try:
                    self.v[own] = _masked_inverse(j[leaf], p.active[own])
                except np.linalg.LinAlgError:
                    self._name_singular(own, j[leaf])
                self.m[own] = self.v[own] @ self.h[own]
            inner = units[~leaf]
            if inner.size:
                active = p.active[inner]
                jm = j[~leaf] * (active[:, :, None] & active[:, None, :])
                h = self.h[inner] * active[:, :, None]
                s = self.s[inner]
                left = np.eye(s.shape[-1]) + s @ jm
                right = np.concatenate([s, self.sum[inner] + s @ h], axis=-1)
                solved = np.linalg.solve(left, right)
                v = solved[..., : s.shape[-1]]
                self.v[inner] = (v + np.swapaxes(v, -1, -2)) / 2
                self.m[inner] = solved[..., s.shape[-1] :]
            if self.mean_pattern:
                for unit in [u for u in units.tolist() if u in p.totals]:
                    name = int(p.original[unit])
                    self.v[unit], self.m[unit] = _fix_total(
                        self.v[unit], self.m[unit], p.totals[unit], self.scale, name
                    )
            above = units[p.parent[units] >= 0]
            if above.size:
                self._send(above)

    def _send(self, units: NDArray[np.int64]) -> None:
        """Add the units' messages to their parents."""
        parents = self.p.parent[units]
        order = np.argsort(parents, kind="stable")
        ids, starts = np.unique(parents[order], return_index=True)
        self.s[ids] = np.add.reduceat(self.v[units[order]], starts, axis=0)
        self.sum[ids] = np.add.reduceat(self.m[units[order]], starts, axis=0)

    def _name_singular(self, units: NDArray[np.int64], blocks: NDArray[np.float64]) -> None:
        for unit, block in zip(units.tolist(), blocks, strict=True):
            try:
                _masked_inverse(block[None], self.p.active[unit][None])
            except np.linalg.LinAlgError:
                name = int(self.p.original[unit])
                msg = (
                    f"unit {name}: its measurements do not determine all its cells; ask 'detailed' there "
                    "or mark zeros"
                )
                raise ReleaseError(msg, name) from None

    def down(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the final means and covariances."""
        p = self.p
        mean, cov = self.m.copy(), self.v.copy()
        for units in p.layers[1:]:
            parents = p.parent[units]
            ids, inverse = np.unique(parents, return_inverse=True)
            gain_of = self._inverse_sums(ids)[inverse]
            a = self.v[units] @ gain_of
            mean[units] = self.m[units] + a @ (mean[parents] - self.sum[parents])
            change = a @ (cov[parents] - self.s[parents]) @ np.swapaxes(a, -1, -2)
            total = self.v[units] + change
            cov[units] = (total + np.swapaxes(total, -1, -2)) / 2
        return mean, cov

    def _inverse_sums(self, parents: NDArray[np.int64]) -> NDArray[np.float64]:
        if self.mean_pattern and self.p.totals:  # sums of conditioned blocks may be singular
            return np.linalg.pinv(self.s[parents], rcond=1e-11, hermitian=True)
        return _masked_inverse(self.s[parents], self.p.active[parents])


def _information(
    groups: Sequence[QueryGroup],
    answers: Sequence[Any],
    precision: NDArray[np.float64],
    head: NDArray[np.int64],
    rows: int,
) -> NDArray[np.float64]:
    """Sum Q'z / sigma^2 of every row of the contracted tree, shape (rows, cells)."""
    h = np.zeros((rows, groups[0].histogram.cells))
    for i, (group, z) in enumerate(zip(groups, answers, strict=True)):
        asked = np.flatnonzero(precision[:, i] > 0)
        values = np.asarray(z, float)
        if values.shape != (precision.shape[0], group.size):
            msg = (
                f"answers to {group.name!r} have shape {values.shape}, not {(precision.shape[0], group.size)}"
            )
            raise ReleaseError(msg, group.name)
        bad = np.flatnonzero(~np.isfinite(values[asked]).all(axis=1))
        if bad.size:
            unit = int(asked[bad[0]])
            msg = (
                f"unit {unit}: an answer to {group.name!r} is not finite; give sigma2 = inf where nothing "
                "was measured"
            )
            raise ReleaseError(msg, unit)
        weighted = np.zeros((rows, group.size))
        np.add.at(weighted, head[asked], values[asked] * precision[asked, i][:, None])
        h += group.transpose(weighted)
    return h


def two_pass_cells(
    parents: Any,
    groups: Sequence[QueryGroup],
    answers: Sequence[Any],
    sigma2: Any,
    *,
    active: Any = None,
    totals: Mapping[int, float] | None = None,
    whole: Sequence[str] = (),
) -> CellEstimate:
    """Generalised least-squares estimates of the cells of all units of a tree.

    Parameters
    ----------
    parents
        Parent of every unit, -1 for a root, parents before children; shape (n,).
    groups
        Query groups asked anywhere in the tree.
    answers
        Noisy answers, one array of shape (n, group.size) a group; ignored where sigma2 is inf.
    sigma2
        Noise of every group at every unit, > 0, inf where it was not asked; shape (n, groups).
    active
        Which levels of the whole axes can hold people, shape (n, W); False is a structural zero. Only the
        leaves' are read: a unit above can hold what one of its leaves can. Default: all.
    totals
        Unit -> exact sum of its cells (an invariant).
    whole
        Axes that ``active`` speaks about; axes with a recode are whole in any case.

    Returns
    -------
    CellEstimate
        The estimates of the cells.

    Raises
    ------
    ReleaseError
        Shapes that do not fit, noise <= 0, a leaf whose measurements leave cells undetermined.
    ModelError
        Exact totals that contradict each other.

    Examples
    --------
    >>> from adversary.release.queries import Histogram
    >>> h = Histogram({"sex": 2})
    >>> z = [[10.0, 8.0], [4.0, 3.0], [5.0, 6.0]]
    >>> two_pass_cells([-1, 0, 0], [h.group("sex")], [z], [[1.0], [1.0], [1.0]]).cells(0).round(6).tolist()
    [[9.666667, 8.333333]]
    """
    reduction, (parent, layers), noise = (
        Reduction(groups, whole),
        check_parents(parents),
        np.asarray(sigma2, float),
    )
    if noise.shape != (parent.size, len(groups)) or not (noise > 0).all():
        msg = (
            f"sigma2 must be > 0 with shape {(parent.size, len(groups))} (inf: not asked), got shape "
            f"{noise.shape}"
        )
        raise ReleaseError(msg, noise.shape)
    precision = 1 / noise
    problem, row = _problem(reduction, (parent, layers), precision, active, totals)
    return _both_passes(problem, row, _information(groups, answers, precision, row, problem.parent.size))


def _both_passes(problem: _Problem, row: NDArray[np.int64], h: NDArray[np.float64]) -> CellEstimate:
    """Run every pattern up and down the contracted tree."""
    reduction = problem.reduction
    parts = reduction.split(h)
    means: Blocks = {}
    covariances: Blocks = {}
    for q in reduction.patterns:
        both = _Pass(problem, q, parts.pop(q))
        both.up()
        means[q], covariances[q] = both.down()
    return CellEstimate(reduction, row, means, covariances)


def _problem(
    reduction: Reduction,
    tree: tuple[NDArray[np.int64], list[NDArray[np.int64]]],
    precision: NDArray[np.float64],
    active: Any,
    totals: Mapping[int, float] | None,
) -> tuple[_Problem, NDArray[np.int64]]:
    """Contract chains: units that cover the same blocks become one row with all their measurements."""
    parent, layers = tree
    head = _contract(parent, layers)
    heads = np.flatnonzero(head == np.arange(parent.size))
    row = np.searchsorted(heads, head)
    above = np.where(parent[heads] < 0, -1, row[parent[heads]])
    summed = np.zeros((heads.size, precision.shape[1]))
    np.add.at(summed, row, precision)
    leaf_units = np.setdiff1d(np.arange(parent.size), parent)
    mask = np.zeros((heads.size, reduction.width), bool)
    given = np.ones((parent.size, reduction.width), bool) if active is None else np.asarray(active, bool)
    if given.shape != (parent.size, reduction.width):
        axes = [list(reduction.histogram.axes)[a] for a in reduction.whole]
        msg = (
            f"active has shape {given.shape}, not {(parent.size, reduction.width)} (cells of the whole "
            f"axes {axes})"
        )
        raise ReleaseError(msg, given.shape)
    mask[row[leaf_units]] = given[leaf_units]
    leaf = np.zeros(heads.size, bool)
    leaf[row[leaf_units]] = True
    _, row_layers = check_parents(above)
    for units in row_layers[:0:-1]:
        np.logical_or.at(mask, above[units], mask[units])
    exact: dict[int, float] = {}
    for unit, value in (totals or {}).items():
        r = int(row[unit])
        if r in exact and exact[r] != float(value):
            msg = (
                f"unit {unit} is exactly {value:g}, but a unit of the same blocks is exactly "
                f"{exact[r]:g}: one is wrong"
            )
            raise ModelError(msg, unit)
        exact[r] = float(value)
    return _Problem(reduction, above, row_layers, summed, mask, exact, leaf, heads), row
