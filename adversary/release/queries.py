"""Query groups on a histogram as Kronecker products; strategies of them; the matrix mechanism.

A query group asks, for every axis of the histogram, one of three things: every level (identity), a recode
of the levels, or nothing (summed out). Its matrix is the Kronecker product of those factors and each of its
columns has exactly one 1, so one changed record changes two answers by one (bounded neighbours). Axes that
no group recodes are rotated to mean and contrast coordinates, in which the information of a unit falls
apart into small blocks: 2,016 cells become four 16 x 16 matrices.

What this module is not: noise or its price (:mod:`adversary.privacy`), or a tree
(:mod:`adversary.release.estimate`).

Held to account by ``tests/release/test_queries.py`` (dense algebra). Sources: Cumings-Menon et al., arXiv
2203.16654, sec. 2; McKenna et al. 2018 (matrix mechanism); the schema and queries of the 2020 redistricting
data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError, ReleaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "PL94_PERSONS",
    "PL94_UNITS",
    "Histogram",
    "QueryGroup",
    "Reduction",
    "Strategy",
    "wls",
    "wls_variance",
]


@dataclass(frozen=True)
class Histogram:
    """Axes of a histogram, in C order, and the recodes of their levels.

    Parameters
    ----------
    axes
        Name -> number of levels.
    recodes
        Name -> (axis, group of each level), groups counted from 0.

    Examples
    --------
    >>> PL94_PERSONS.cells, PL94_PERSONS.group("hispanic * cenrace").shape
    (2016, (1, 1, 2, 63))
    """

    axes: Mapping[str, int]
    recodes: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse recodes that do not cover their axis."""
        for name, (axis, groups) in self.recodes.items():
            if (
                axis not in self.axes
                or len(groups) != self.axes[axis]
                or set(groups) != set(range(max(groups) + 1))
            ):
                msg = (
                    f"recode {name!r} must give each level of an axis a group counted from 0, got "
                    f"{axis!r}: {groups}"
                )
                raise ReleaseError(msg, name)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of every axis."""
        return tuple(self.axes.values())

    @property
    def cells(self) -> int:
        """Number of cells."""
        return math.prod(self.sizes)

    def group(self, name: str) -> QueryGroup:
        """Query group by its name in the Bureau's files: axes and recodes, ``total``, ``detailed``.

        Raises
        ------
        ReleaseError
            For a word that is neither an axis nor a recode, or an axis asked twice.
        """
        plain = name.removesuffix("_dpq").strip()
        words = list(self.axes) if plain == "detailed" else [] if plain == "total" else plain.split(" * ")
        asked: dict[str, tuple[int, ...]] = {}
        for word in words:
            axis, groups = self.recodes.get(word, (word, tuple(range(self.axes.get(word, 0)))))
            if axis not in self.axes or axis in asked:
                known = ", ".join((*self.axes, *self.recodes, "total", "detailed"))
                msg = f"query {name!r}: {word!r} is unknown or asks axis {axis!r} twice; choose from {known}"
                raise ReleaseError(msg, name)
            asked[axis] = groups
        return QueryGroup(plain, self, tuple(asked.get(axis) for axis in self.axes))


@dataclass(frozen=True)
class QueryGroup:
    """One query group: a partition of the cells.

    Parameters
    ----------
    name
        Its name.
    histogram
        What it is asked of.
    factors
        Per axis, the group of each level, or None where the axis is summed out.
    """

    name: str
    histogram: Histogram
    factors: tuple[tuple[int, ...] | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Answers per axis, 1 where the axis is summed out."""
        return tuple(1 if f is None else max(f) + 1 for f in self.factors)

    @property
    def size(self) -> int:
        """Number of answers."""
        return math.prod(self.shape)

    def keeps(self, axis: int) -> bool:
        """Whether every level of the axis is asked."""
        factor = self.factors[axis]
        return factor is not None and factor == tuple(range(self.histogram.sizes[axis]))

    def factor(self, axis: int) -> NDArray[np.float64]:
        """Matrix of one axis, shape (answers, levels)."""
        groups = self.factors[axis]
        if groups is None:
            return np.ones((1, self.histogram.sizes[axis]))
        chosen: NDArray[np.float64] = (np.arange(max(groups) + 1)[:, None] == np.array(groups)).astype(float)
        return chosen

    def matrix(self) -> NDArray[np.float64]:
        """Dense matrix, shape (size, cells): the Kronecker product of the factors; for tests."""
        out: NDArray[Any] = np.ones((1, 1))
        for axis in range(len(self.factors)):
            out = np.kron(out, self.factor(axis))
        return out

    def _apply(self, x: NDArray[Any], sizes: tuple[int, ...], back: bool) -> NDArray[Any]:
        out = np.asarray(x).reshape(*np.shape(x)[:-1], *sizes)
        lead = out.ndim - len(sizes)
        for axis, groups in enumerate(self.factors):
            place = lead + axis
            if groups is None:
                n = self.histogram.sizes[axis]
                out = np.repeat(out, n, axis=place) if back else out.sum(axis=place, keepdims=True)
            elif not self.keeps(axis):
                if back:
                    out = np.take(out, groups, axis=place)
                else:
                    out = np.moveaxis(
                        np.moveaxis(out, place, -1) @ self.factor(axis).T.astype(out.dtype), -1, place
                    )
        return out.reshape(*np.shape(x)[:-1], -1)

    def answer(self, x: Any) -> NDArray[Any]:
        """Answers Q x on cells x of shape (..., cells); shape (..., size). Integers stay integers."""
        return self._apply(np.asarray(x), self.histogram.sizes, back=False)

    def transpose(self, z: Any) -> NDArray[Any]:
        """Q' z for answers z of shape (..., size); shape (..., cells)."""
        return self._apply(np.asarray(z), self.shape, back=True)

    def separates(self, cell: int, other: int) -> bool:
        """Whether the answers change when a person moves from ``cell`` to the cell ``other``."""
        here, there = (np.unravel_index(c, self.histogram.sizes) for c in (cell, other))
        return any(f is not None and f[a] != f[b] for f, a, b in zip(self.factors, here, there, strict=True))


PL94_PERSONS = Histogram(
    {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 63},
    {"hhinstlevels": ("hhgq", (0, 1, 1, 1, 1, 2, 2, 2))},
)
"""Persons of the 2020 redistricting data: 2,016 cells. ``hhinstlevels`` is household, institutional, "
"other."""

PL94_UNITS = Histogram({"h1": 2})
"""Housing units of the 2020 redistricting data: vacant, occupied."""


@dataclass(frozen=True)
class Strategy:
    """Which query groups are measured in a level, and with what fraction of the level's budget.

    Parameters
    ----------
    histogram
        What is asked.
    alphas
        Name of a query group -> fraction of the budget, exact; they sum to 1.

    Raises
    ------
    BudgetError
        Fractions that are negative or do not sum to 1.

    Examples
    --------
    >>> strategy = Strategy(PL94_PERSONS, {"total": "1/4", "detailed": "3/4"})
    >>> {name: str(s) for name, s in strategy.sigma2(2, share="1/2").items()}
    {'total': '4', 'detailed': '4/3'}
    """

    histogram: Histogram
    alphas: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Make the fractions exact."""
        exact = {k: Fraction(str(v)) if isinstance(v, float) else Fraction(v) for k, v in self.alphas.items()}
        if sum(exact.values()) != 1 or min(exact.values(), default=Fraction(0)) < 0:
            msg = (
                "the fractions of a level's queries must be >= 0 and sum to 1, got "
                f"{sum(exact.values())}: {self.alphas}"
            )
            raise BudgetError(msg, self.alphas)
        object.__setattr__(self, "alphas", exact)

    @cached_property
    def groups(self) -> tuple[QueryGroup, ...]:
        """The query groups, in the order of ``alphas``."""
        return tuple(self.histogram.group(name) for name in self.alphas)

    def sigma2(self, rho: Any, share: Any = 1, convention: str = "bounded") -> dict[str, Fraction]:
        """Noise of every query group at a unit, exact: 1 / (rho share alpha), halved when the ``convention`` is unbounded.

        Raises
        ------
        BudgetError
            If the unit has no budget: it was not measured, so there is no noise to speak of.
        """
        budget = Fraction(rho) * Fraction(share)
        if budget <= 0:
            msg = f"rho times share is {budget}: a unit without budget was not measured and has no noise"
            raise BudgetError(msg, share)
        if convention not in ("bounded", "unbounded"):
            msg = f"convention must be 'bounded' or 'unbounded', got {convention!r}"
            raise BudgetError(msg, convention)
        factor = 1 if convention == "bounded" else 2
        return {name: 1 / (factor * budget * alpha) for name, alpha in self.alphas.items() if alpha}

    def separating(self, cell: int, other: int) -> Fraction:
        """Fraction of the budget spent on queries that tell ``cell`` and ``other`` apart (``Spine.rho_between``)."""
        return sum(
            (a for a, g in zip(self.alphas.values(), self.groups, strict=True) if g.separates(cell, other)),
            Fraction(0),
        )

    def matrix(self, rho: Any = 1) -> NDArray[np.float64]:
        """Strategy diag(sqrt(rho alpha)) W whose answers all have noise variance 1 (bounded); dense."""
        return np.concatenate(
            [
                math.sqrt(Fraction(rho) * a) * g.matrix()
                for a, g in zip(self.alphas.values(), self.groups, strict=True)
            ]
        )


def _rotation(n: int) -> NDArray[np.float64]:
    """Orthogonal matrix whose first row is the mean (Helmert)."""
    out = np.full((n, n), 0.0)
    out[0] = 1 / math.sqrt(n)
    for k in range(1, n):
        out[k, :k] = 1 / math.sqrt(k * (k + 1))
        out[k, k] = -k / math.sqrt(k * (k + 1))
    return out


class Reduction:
    """Coordinates in which sum_i Q_i'Q_i / sigma_i^2 is block diagonal with small blocks.

    Axes that some group recodes (and those named in ``whole``) are kept as they are, W cells in all; the
    others are rotated. A pattern says, per rotated axis, mean (0) or contrast (1); within a pattern every
    column has the same W x W block.

    Parameters
    ----------
    groups
        All query groups that will be asked, of one histogram.
    whole
        Axes that must stay whole, because structural zeros depend on them.

    Examples
    --------
    >>> groups = [PL94_PERSONS.group(q) for q in ("detailed", "hhinstlevels")]
    >>> reduction = Reduction(groups, whole=("votingage",))
    >>> reduction.width, len(reduction.patterns)
    (16, 4)
    """

    def __init__(self, groups: Sequence[QueryGroup], whole: Sequence[str] = ()) -> None:
        if not groups:
            msg = "no query groups: an estimate needs at least one"
            raise ReleaseError(msg, groups)
        self.groups = tuple(groups)
        self.histogram = groups[0].histogram
        names, sizes = list(self.histogram.axes), self.histogram.sizes
        kept = [any(g.factors[a] is not None and not g.keeps(a) for g in groups) for a in range(len(names))]
        self.whole = [a for a, name in enumerate(names) if kept[a] or name in whole]
        self.rotated = [a for a in range(len(names)) if a not in self.whole]
        self.width = math.prod(sizes[a] for a in self.whole)
        self._rotations = [_rotation(sizes[a]) for a in self.rotated]
        kinds = [(0,) if sizes[a] == 1 else (0, 1) for a in self.rotated]
        self.patterns: list[tuple[int, ...]] = list(product(*kinds))
        self._squares = np.stack([self._whole_matrix(g, squared=True) for g in self.groups])

    def _whole_matrix(self, group: QueryGroup, *, squared: bool) -> NDArray[np.float64]:
        out: NDArray[Any] = np.ones((1, 1))
        for a in self.whole:
            f = group.factor(a)
            out = np.kron(out, f.T @ f if squared else f)
        return out

    def _coefficient(self, group: QueryGroup, pattern: tuple[int, ...]) -> float:
        """Eigenvalue of Q'Q on a pattern, rotated axes only."""
        out = 1.0
        for a, kind in zip(self.rotated, pattern, strict=True):
            if not group.keeps(a):
                out *= 0.0 if kind else self.histogram.sizes[a]
        return out

    def blocks(self, precision: Any, pattern: tuple[int, ...]) -> NDArray[np.float64]:
        """Information block of a pattern, shape (..., W, W), for each ``precision`` (..., groups)."""
        weights = np.array([self._coefficient(g, pattern) for g in self.groups])
        return np.tensordot(np.asarray(precision, float) * weights, self._squares, axes=1)

    def split(self, x: Any) -> dict[tuple[int, ...], NDArray[np.float64]]:
        """Cells (n, cells) in reduced coordinates: pattern -> (n, W, columns).

        Parameters
        ----------
        x
            A histogram, flat or in its shape.
        """
        values = np.asarray(x, float).reshape(-1, *self.histogram.sizes)
        n = values.shape[0]
        values = values.transpose(0, *(a + 1 for a in self.whole), *(a + 1 for a in self.rotated))
        values = values.reshape(n, self.width, *(self.histogram.sizes[a] for a in self.rotated))
        for i, rotation in enumerate(self._rotations):
            values = np.moveaxis(np.moveaxis(values, i + 2, -1) @ rotation.T, -1, i + 2)
        return {
            q: np.ascontiguousarray(values[(slice(None), slice(None), *self._slices(q))]).reshape(
                n, self.width, -1
            )
            for q in self.patterns
        }

    def _slices(self, pattern: tuple[int, ...]) -> list[slice]:
        return [slice(1, None) if kind else slice(0, 1) for kind in pattern]

    def join(self, parts: Mapping[tuple[int, ...], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Undo :meth:`split`: back from its ``parts`` to cells, shape (n, cells)."""
        n = next(iter(parts.values())).shape[0]
        rotated = [self.histogram.sizes[a] for a in self.rotated]
        values = np.empty((n, self.width, *rotated))
        for q, part in parts.items():
            target = values[(slice(None), slice(None), *self._slices(q))]
            target[...] = part.reshape(target.shape)
        for i, rotation in enumerate(self._rotations):
            values = np.moveaxis(np.moveaxis(values, i + 2, -1) @ rotation, -1, i + 2)
        values = values.reshape(n, *(self.histogram.sizes[a] for a in (*self.whole, *self.rotated)))
        back = np.argsort([*self.whole, *self.rotated])
        return values.transpose(0, *(back + 1)).reshape(n, -1)

    def variance(
        self, covariance: Mapping[tuple[int, ...], NDArray[np.float64]], group: QueryGroup
    ) -> NDArray[np.float64]:
        """Variance of every answer of a group, shape (n, size), from ``covariance``: blocks pattern -> (n, W, W)."""
        factor = self._whole_matrix(group, squared=False)
        for a in self.rotated:
            if group.factors[a] is not None and not group.keeps(a):
                msg = f"query {group.name!r} recodes an axis that is rotated: name it in `whole`"
                raise ReleaseError(msg, group.name)
        total: Any = 0.0
        for q, block in covariance.items():
            weight = 1.0
            for a, kind in zip(self.rotated, q, strict=True):
                n = self.histogram.sizes[a]
                if group.keeps(a):
                    weight *= 1 - 1 / n if kind else 1 / n
                else:
                    weight *= 0.0 if kind else n
            if weight:
                total = total + weight * np.einsum("ai,nij,aj->na", factor, block, factor)
        rows = total.shape[0]
        shape = [group.shape[a] if a in self.whole else 1 for a in range(len(group.shape))]
        full: NDArray[np.float64] = np.broadcast_to(total.reshape(rows, *shape), (rows, *group.shape))
        return full.reshape(rows, -1).copy()


def wls(groups: Sequence[QueryGroup], answers: Sequence[Any], sigma2: Sequence[float]) -> NDArray[np.float64]:
    """Weighted least-squares estimate of the cells of one unit.

    Parameters
    ----------
    groups
        Query groups that determine every cell between them.
    answers
        Noisy answers, one array of ``group.size`` values a group.
    sigma2
        Noise of every group, > 0.

    Returns
    -------
    ndarray, shape (cells,)
        (sum Q'Q/sigma^2)^{-1} sum Q'z/sigma^2.

    Raises
    ------
    ReleaseError
        If the groups leave a cell undetermined.

    Examples
    --------
    >>> h = Histogram({"a": 2})
    >>> wls([h.group("a"), h.group("total")], [[3.0, 4.0], [10.0]], [1.0, 1.0]).round(6).tolist()
    [4.0, 5.0]
    """
    reduction = Reduction(groups)
    precision = 1 / np.asarray(sigma2, float)
    h = sum(g.transpose(np.asarray(z, float) * p) for g, z, p in zip(groups, answers, precision, strict=True))
    parts = reduction.split(np.asarray(h)[None])
    inverse = _inverse_blocks(reduction, precision)
    cells: NDArray[np.float64] = reduction.join({q: inverse[q] @ part for q, part in parts.items()})[0]
    return cells


def _inverse_blocks(
    reduction: Reduction, precision: NDArray[np.float64]
) -> dict[tuple[int, ...], NDArray[np.float64]]:
    out = {}
    for q in reduction.patterns:
        block = reduction.blocks(precision, q)
        eigen = np.linalg.eigvalsh(block)
        if eigen[0] <= 1e-12 * max(float(eigen[-1]), 1e-300):
            names = ", ".join(g.name for g in reduction.groups)
            msg = (
                f"queries {names} leave some cells undetermined: add one that asks for every cell, such "
                "as 'detailed'"
            )
            raise ReleaseError(msg, names)
        out[q] = np.linalg.inv(block)
    return out


def wls_variance(
    workload: Sequence[QueryGroup], groups: Sequence[QueryGroup], sigma2: Sequence[float]
) -> list[NDArray[np.float64]]:
    """Variance of the weighted least-squares answers to a workload (the matrix mechanism).

    Parameters
    ----------
    workload
        Query groups whose answers are wanted.
    groups, sigma2
        The strategy: what was measured, and its noise.

    Returns
    -------
    list of ndarray
        diag(W (S'S)^{-1} W') of every workload group, shape (size,).

    Examples
    --------
    >>> h = Histogram({"a": 2})
    >>> [v.round(6).tolist() for v in wls_variance([h.group("total")], [h.group("a")], [3.0])]
    [[6.0]]
    """
    recoded = [
        name
        for a, name in enumerate(groups[0].histogram.axes)
        if any(g.factors[a] is not None and not g.keeps(a) for g in workload)
    ]
    reduction = Reduction(groups, whole=recoded)
    inverse = {q: v[None] for q, v in _inverse_blocks(reduction, 1 / np.asarray(sigma2, float)).items()}
    return [reduction.variance(inverse, g)[0] for g in workload]
