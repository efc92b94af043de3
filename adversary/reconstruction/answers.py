"""What the questions of a reconstruction are answered with: frozen, each saying how it ended.

What it is: plain records. What it is not: a computation. Held to account by
tests/reconstruction/test_solve.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from adversary.reconstruction._program import Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adversary.reconstruction.constraints import Constraints, Row
    from adversary.reconstruction.households import Configurations

__all__ = ["Bounds", "CellBounds", "Claim", "Clash", "Flag", "Level", "Mend", "Solution", "Status", "Top"]


@dataclass(frozen=True)
class Clash:
    """Rows that cannot hold together.

    Attributes
    ----------
    rows
        The rows, in words.
    irreducible
        Whether leaving out any one of them lets the others hold; False if a limit stopped the filtering.
    """

    rows: tuple[Row, ...]
    irreducible: bool

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that clash."""
        return tuple(dict.fromkeys(row.table for row in self.rows))

    def __str__(self) -> str:
        return " against ".join(f"{r.table} {r.cell} ({_interval(r.low, r.high)})" for r in self.rows)


def _interval(low: int, high: int) -> str:
    from adversary.reconstruction.constraints import UNBOUNDED

    if low == high:
        return str(low)
    if high >= UNBOUNDED:
        return f"{low} or more"
    return f"{max(low, 0)} to {high}"


@dataclass(frozen=True, eq=False)
class Solution:
    """One block that meets every row, or why there is none.

    Attributes
    ----------
    status
        optimal, feasible with gap, infeasible, or time limit (no block found within the limits).
    counts
        The block, int64, shape (K,), checked in whole numbers; None if none was found.
    value, bound
        Cost of the block in thousandths of a nat, and what no block can undercut; None where there is none.
    log_likelihood
        Sum of counts times log share, of an *ordered* list of households (arXiv 2407.04776, eq. 2); None
        without shares.
    seconds
        Wall time.
    limit
        ``"time"`` or ``"memory"`` if that ended the search.
    confirmed
        For infeasible: whether a second way agrees (whole-number propagation or the other solver).
    clash
        For infeasible: the rows that clash, if asked for.
    """

    status: Status
    counts: NDArray[np.int64] | None = None
    value: int | None = None
    bound: int | None = None
    log_likelihood: float | None = None
    seconds: float = 0.0
    limit: str | None = None
    confirmed: bool | None = None
    clash: Clash | None = None

    @property
    def found(self) -> bool:
        """Whether a block was found."""
        return self.counts is not None

    @property
    def gap(self) -> int | None:
        """By how much the block's cost may exceed the least; None if not known."""
        return None if self.value is None or self.bound is None else self.value - self.bound


@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the greatest value of a count over all blocks that meet the rows.

    Attributes
    ----------
    low, high
        Proved: no block lies outside. If ``status`` is optimal both are attained.
    low_block, high_block
        The blocks with the least and the greatest value found; None if none was.
    status
        optimal (both ends proved and attained), feasible with gap (a block is known, an end is not attained),
        infeasible, or time limit.
    seconds
        Wall time.
    confirmed
        Whether a second way agrees that no block has fewer than ``low``: single rows, or the other solver;
        None if it was not asked (``low`` is 0) or did not finish.
    """

    low: int
    high: int
    low_block: NDArray[np.int64] | None
    high_block: NDArray[np.int64] | None
    status: Status
    seconds: float
    confirmed: bool | None = None

    @property
    def certain(self) -> bool:
        """Whether every block that meets the rows has at least one."""
        return self.status is not Status.INFEASIBLE and self.low >= 1

    @property
    def determined(self) -> bool:
        """Whether all blocks agree on the count."""
        return self.status is not Status.INFEASIBLE and self.low == self.high


class Flag(NamedTuple):
    """Whether the rows force a household with the harm on the block (arXiv 2407.04776, eq. 1).

    Attributes
    ----------
    verdict
        ``"flagged"`` (blocks exist, none without), ``"not flagged"``, ``"inconsistent"`` (no block meets the
        rows) or ``"undecided"`` (a limit ended the search).
    witness
        A block without the harm, where not flagged; int64, shape (K,).
    seconds
        Wall time.
    confirmed
        For flagged and inconsistent: whether a second way agrees; None if it did not finish.
    """

    verdict: str
    witness: NDArray[np.int64] | None
    seconds: float
    confirmed: bool | None


@dataclass(frozen=True, eq=False)
class CellBounds:
    """Bounds of every cell of a table over chosen attributes.

    Attributes
    ----------
    cells
        The cells; shape (G,).
    low, high
        Proved bounds, int64, shape (G,).
    attained
        Whether both bounds of a cell are attained by blocks, bool, shape (G,).
    status
        optimal if all are attained; feasible with gap, infeasible or time limit otherwise.
    solves
        Programs solved; the rest followed from single rows and from blocks seen on the way.
    seconds
        Wall time.
    """

    cells: Configurations
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    attained: NDArray[np.bool_]
    status: Status
    solves: int
    seconds: float

    @property
    def determined(self) -> bool:
        """Whether the rows leave a single table."""
        return self.status is not Status.INFEASIBLE and bool((self.low == self.high).all())


@dataclass(frozen=True)
class Claim:
    """A statement that holds in every block that meets the rows.

    Attributes
    ----------
    what
        The cell, in words.
    cell
        Its place in the table of cells.
    count
        How many households match it, in every block.
    """

    what: str
    cell: int
    count: int


class Level(NamedTuple):
    """Blocks of one cost.

    Attributes
    ----------
    cost
        Their cost, thousandths of a nat.
    listed
        How many of them the list holds.
    size
        How many there are; None if only known to be more than are listed.
    """

    cost: int
    listed: int
    size: int | None


@dataclass(frozen=True, eq=False)
class Top:
    """The most likely blocks, level by level.

    Attributes
    ----------
    counts
        Distinct blocks, by cost, then in lexicographic order; int64, shape (found, K).
    costs
        Their costs, int64, shape (found,).
    levels
        The levels that the list touches.
    status
        optimal (the list is what was asked for), feasible with gap (a limit ended it; what is listed is
        right, but others may belong before it), infeasible or time limit.
    exhausted
        Whether no other block exists.
    seconds
        Wall time.
    """

    counts: NDArray[np.int64]
    costs: NDArray[np.int64]
    levels: tuple[Level, ...]
    status: Status
    exhausted: bool
    seconds: float

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def arbitrary(self) -> bool:
        """Whether the last level is cut where the solver stopped: another seed lists other blocks."""
        return any(level.size is None for level in self.levels)

    @property
    def cut(self) -> bool:
        """Whether blocks as likely as the last one are left out."""
        return any(level.size is None or level.size > level.listed for level in self.levels)

    @property
    def tied_share(self) -> float:
        """Share of the list that lies in its most populous level; 1 means that the order says nothing."""
        return max((level.listed for level in self.levels), default=0) / max(len(self), 1)


@dataclass(frozen=True, eq=False)
class Mend:
    """The block that misses the published answers by least.

    Attributes
    ----------
    solution
        The block; its value is the weighted error (in the unit of the weights).
    errors
        Answer of the block less the nearest end of each row's interval, int64, shape (m,); 0 where the row is
        met.
    relaxed
        The rows, widened just so that the block meets them: ask the other questions of these.
    """

    solution: Solution
    errors: NDArray[np.int64] | None
    relaxed: Constraints | None

    @property
    def missed(self) -> int:
        """Number of rows that are not met."""
        return 0 if self.errors is None else int((self.errors != 0).sum())
