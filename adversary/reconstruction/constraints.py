"""What is published about a block, as rows ``low <= matrix @ counts <= high`` over its configurations.

What it is: named queries (a table and a cell each), the rows that published answers put on a block, and exact
integer reasoning over them: which configurations are ruled out, how often each can occur, which row no block
can meet. Rounded, suppressed and missing answers become intervals or no row at all, never a zero.

What it is not: the tables themselves (:mod:`adversary.reconstruction.tables`), a solver
(:mod:`adversary.reconstruction.solve`), or noisy measurements (those have a likelihood, not an interval).

Held to account by tests/reconstruction/test_constraints.py. Source: arXiv 2407.04776, section 3 and appendix
E (the rows); the propagation is the usual tightening of bounds by the least and greatest activity of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary.errors import ModelError, ReleaseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.households import Configurations, Predicate

__all__ = ["LARGEST", "UNBOUNDED", "Constraints", "Propagation", "Queries", "Row", "combine", "propagate"]

UNBOUNDED = 2**60
"""Stands for no upper end of a row (its negative: no lower end)."""
LARGEST = 2**31 - 1
"""Largest published count that is believed; more is refused."""


class Row(NamedTuple):
    """One row in words: the ``table`` and ``cell`` it comes from, and its interval ``low..high``."""

    table: str
    cell: str
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Queries:
    """Linear queries on a block: what a set of tables would print.

    Attributes
    ----------
    configurations
        The table of configurations.
    matrix
        One row a query, int64, shape (m, K).
    table, cell
        Names of each row, length m.
    universe
        What each row counts: ``"household"``, ``"person"`` or ``"hud"``, length m.
    """

    configurations: Configurations
    matrix: NDArray[np.int64]
    table: tuple[str, ...]
    cell: tuple[str, ...]
    universe: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    def answers(self, counts: ArrayLike) -> NDArray[np.int64]:
        """Return the exact answers on a block, int64, shape (m,).

        Parameters
        ----------
        counts
            Households by configuration, shape (configurations,).
        """
        return np.asarray(self.matrix @ np.asarray(counts, dtype=np.int64))

    def constraints(self, values: ArrayLike, tolerance: int | ArrayLike = 0) -> Constraints:
        """Return the rows that published answers put on a block.

        Parameters
        ----------
        values
            Published counts, whole and not negative, shape (m,); NaN or -1 where nothing was published (no
            row).
        tolerance
            How far each published count may be from the block's, whole, one for all or one a row.

        Raises
        ------
        ReleaseError
            A count that is negative (other than -1), not whole, or above `LARGEST`.
        """
        published = np.asarray(values, dtype=np.float64)
        if published.shape != (len(self),):
            msg = f"{published.shape} answers for {len(self)} queries: one each, NaN where none is published"
            raise ReleaseError(msg, published.shape)
        there = ~(np.isnan(published) | (published == -1))
        for i in np.flatnonzero(there):
            _check_count(published[i], f"{self.table[i]} {self.cell[i]}")
        slack = np.broadcast_to(np.asarray(tolerance, dtype=np.int64), published.shape)
        if (slack < 0).any():
            msg = "a tolerance must not be negative: 0 means that the count is believed as printed"
            raise ReleaseError(msg, int(slack.min()))
        at = np.flatnonzero(there)
        exact = published[at].astype(np.int64)
        low, high = np.maximum(exact - slack[at], 0), exact + slack[at]
        pick = [int(i) for i in at]
        names = tuple(self.table[i] for i in pick), tuple(self.cell[i] for i in pick)
        return Constraints(self.configurations, self.matrix[at], low, high, *names)


def _check_count(value: float, where: str) -> None:
    if not np.isfinite(value) or value < 0 or value != np.floor(value) or value > LARGEST:
        msg = f"{where} is {value:g}: a published count is whole, 0 to {LARGEST}; NaN or -1 if there is none"
        raise ReleaseError(msg, value)


@dataclass(frozen=True, eq=False)
class Constraints:
    """Everything published about one block: ``low <= matrix @ counts <= high``, whole counts of 0 or more.

    Attributes
    ----------
    configurations
        The table of configurations.
    matrix
        int64, shape (m, K).
    low, high
        Ends of the intervals, int64, shape (m,); `UNBOUNDED` (or its negative) where there is no end.
    table, cell
        Names of each row, length m.
    notes
        What was published but gave no row, and why.
    """

    configurations: Configurations
    matrix: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    table: tuple[str, ...]
    cell: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        m, k = len(self.table), len(self.configurations)
        shapes = (self.matrix.shape, self.low.shape, self.high.shape, len(self.cell))
        if shapes != ((m, k), (m,), (m,), m):
            msg = f"shapes {shapes} for {m} rows over {k} configurations: rows, ends and names must match"
            raise ModelError(msg, shapes)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        tables, size = len(set(self.table)), len(self.configurations)
        return f"<Constraints: {len(self)} rows of {tables} tables over {size} configurations>"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, in order of appearance."""
        return tuple(dict.fromkeys(self.table))

    def row(self, i: int) -> Row:
        """Return one row in words.

        Parameters
        ----------
        i
            Index of the row, from 0.
        """
        return Row(self.table[i], self.cell[i], int(self.low[i]), int(self.high[i]))

    def take(self, rows: ArrayLike) -> Constraints:
        """Keep some rows (indices or a mask)."""
        chosen = np.asarray(rows)
        at = np.arange(len(self))[chosen if chosen.size else chosen.astype(np.intp)]
        table, cell = tuple(self.table[i] for i in at), tuple(self.cell[i] for i in at)
        return replace(
            self, matrix=self.matrix[at], low=self.low[at], high=self.high[at], table=table, cell=cell
        )

    def without(self, tables: Iterable[str]) -> Constraints:
        """Leave out whole tables."""
        names = set(tables)
        unknown = names - set(self.tables)
        if unknown:
            msg = f"no table {sorted(unknown)[0]!r}: there are {', '.join(self.tables)}"
            raise ModelError(msg, sorted(unknown))
        return self.take(np.array([name not in names for name in self.table], dtype=bool))

    def adding(
        self, table: str, cell: str, coefficients: ArrayLike, low: int = -UNBOUNDED, high: int = UNBOUNDED
    ) -> Constraints:
        """Add a row of a ``table`` and ``cell``, ``low <= coefficients @ counts <= high``; coefficients whole, shape (K,)."""
        row = np.asarray(coefficients, dtype=np.int64).reshape(1, -1)
        ends = np.array([low], np.int64), np.array([high], np.int64)
        return combine(self, Constraints(self.configurations, row, *ends, (table,), (cell,)))

    def allowing(
        self, predicate: Predicate | Mapping[str, Any] | ArrayLike, name: str = "support"
    ) -> Constraints:
        """Rule out, as ``name``, all configurations but those that ``predicate`` picks (those of the microdata, say)."""
        outside = ~self.configurations.mask(predicate)
        return self.adding(name, "configurations outside it", outside.astype(np.int64), 0, 0)

    def satisfied_by(self, counts: ArrayLike) -> bool:
        """Whether a block meets every row, checked in whole numbers.

        Parameters
        ----------
        counts
            Households by configuration, shape (configurations,).
        """
        x = np.asarray(counts, dtype=np.int64)
        answers = self.matrix @ x
        return bool((x >= 0).all() and (answers >= self.low).all() and (answers <= self.high).all())

    def violated_by(self, counts: ArrayLike) -> tuple[Row, ...]:
        """Return the rows that a block does not meet.

        Parameters
        ----------
        counts
            Households by configuration, shape (configurations,).
        """
        answers = self.matrix @ np.asarray(counts, dtype=np.int64)
        return tuple(self.row(int(i)) for i in np.flatnonzero((answers < self.low) | (answers > self.high)))

    @cached_property
    def propagation(self) -> Propagation:
        """Least and greatest count of every configuration that single rows leave open (see `propagate`)."""
        return propagate(self.matrix, self.low, self.high)


def combine(*parts: Constraints) -> Constraints:
    """Join the rows of several sources (``parts``) about the same block.

    Raises
    ------
    ModelError
        If they are over different tables of configurations.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> from adversary.reconstruction.tables import HudRecord, census_queries, hud_constraints
    >>> table = household_configurations()
    >>> census = census_queries(table).constraints([1, 1] + [0] * 6 + [1] + [0] * 8 + [1, 0, 0])
    >>> combine(census, hud_constraints(table, HudRecord(total_units=1)))
    <Constraints: 21 rows of 7 tables over 1792 configurations>
    """
    first = parts[0]
    for part in parts:
        if part.configurations is not first.configurations:
            same = part.configurations.attributes == first.configurations.attributes
            if not same or not np.array_equal(part.configurations.codes, first.configurations.codes):
                msg = "rows over different configurations: build all parts from one table"
                raise ModelError(msg, part)
    return Constraints(
        first.configurations,
        np.concatenate([p.matrix for p in parts]),
        np.concatenate([p.low for p in parts]),
        np.concatenate([p.high for p in parts]),
        sum((p.table for p in parts), ()),
        sum((p.cell for p in parts), ()),
        sum((p.notes for p in parts), ()),
    )


class Propagation(NamedTuple):
    """What single rows say about single configurations.

    Attributes
    ----------
    least, greatest
        Bounds on the count of every configuration, int64, shape (K,); valid, not always attained.
        ``greatest`` is `LARGEST` where no row bounds it.
    row
        None; or the first row that no block within these bounds can meet, so that there is no solution at
        all.
    """

    least: NDArray[np.int64]
    greatest: NDArray[np.int64]
    row: int | None


def propagate(
    matrix: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    greatest: NDArray[np.int64] | None = None,
    rounds: int = 60,
) -> Propagation:
    """Tighten the bounds of every count by the least and greatest activity of every row, in whole numbers.

    Parameters
    ----------
    matrix, low, high
        Rows, shapes (m, K), (m,), (m,).
    greatest
        Upper bounds known already, shape (K,).
    rounds
        Passes over the rows; each pass keeps the bounds valid, so stopping early is safe.

    Returns
    -------
    Propagation
        A row in ``.row`` proves that there is no solution; None proves nothing.

    Examples
    --------
    >>> rows = np.array([[1, 1, 1], [0, 2, 3]])
    >>> propagate(rows, np.array([2, 3]), np.array([2, 3])).greatest.tolist()
    [1, 0, 1]
    """
    size = matrix.shape[1]
    least = np.zeros(size, dtype=np.int64)
    most = np.full(size, LARGEST, dtype=np.int64) if greatest is None else greatest.astype(np.int64)
    row_of, column = np.nonzero(matrix)
    a = matrix[row_of, column]
    up = a > 0
    for _ in range(rounds):
        bottom = np.where(up, a * least[column], a * most[column])
        top = np.where(up, a * most[column], a * least[column])
        smallest = np.bincount(row_of, bottom, len(low)).astype(np.int64)
        largest = np.bincount(row_of, top, len(low)).astype(np.int64)
        bad = np.flatnonzero((smallest > high) | (largest < low) | (low > high))
        if bad.size:
            return Propagation(least, most, int(bad[0]))
        # room of one term: what the row's ends leave once all other terms are at their best
        room_high = np.minimum(high[row_of], UNBOUNDED) - (smallest[row_of] - bottom)
        room_low = np.maximum(low[row_of], -UNBOUNDED) - (largest[row_of] - top)
        at_most = np.where(up, room_high // a, room_low // a)
        at_least = np.where(up, -((-room_low) // a), -((-room_high) // a))
        new_most, new_least = most.copy(), least.copy()
        np.minimum.at(new_most, column, at_most)
        np.maximum.at(new_least, column, at_least)
        crossed = np.flatnonzero(new_least > new_most)
        if crossed.size:
            rows = row_of[column == crossed[0]]
            return Propagation(least, most, int(rows[0]))
        if np.array_equal(new_most, most) and np.array_equal(new_least, least):
            break
        most, least = new_most, new_least
    return Propagation(least, most, None)
