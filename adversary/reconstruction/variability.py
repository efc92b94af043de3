"""Solution variability: how far two blocks that both meet the published tables can be apart.

What it is: ``max || table(x) - table(x*) ||_1`` over all blocks x that meet the rows, for one such block x*
and any table (any attributes, any subset of households). Zero means that the rows leave one table only:
certain disclosure of it. Half of it is the greatest number of households in which x* can be wrong.

What it is not: a probability. Blocks far from x* count even if hardly anybody would believe them. Numbers on
synthetic households only.

The program: with cell counts h, ``|h - h*| = h + h* - 2 min(h, h*)``, and ``min`` needs a binary only in the
cells that x* occupies, never in the others: at most one a household. Cells that cannot exceed h* need none at
all.

Held to account by tests/reconstruction/test_variability.py (every value against a full enumeration, the
factor 2, one back end against the other). Source: arXiv 2407.04776, eq. 3, after Abowd et al., arXiv
2312.11283; the formulation over the support of x* is ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction._program import Program, Status, installed, solve
from adversary.reconstruction.constraints import LARGEST, UNBOUNDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.households import Configurations, Predicate
    from adversary.reconstruction.solve import Reconstruction

__all__ = ["Variability", "distance", "simplified", "solution_variability"]


@dataclass(frozen=True, eq=False)
class Variability:
    """How far a block that meets the rows can be from the reference.

    Attributes
    ----------
    status
        optimal (``value`` is the maximum), feasible with gap, infeasible (no block meets the rows) or time
        limit (no reference was found).
    value
        L1 distance between the tables of the reference and of ``farthest``; even if the totals are fixed.
    bound
        No block is farther than this.
    households
        Households of the reference that are counted.
    fixed
        Whether the rows fix the number of households counted (then ``share`` is one).
    reference, farthest
        The two blocks, int64, shape (K,); None if none was found.
    seconds
        Wall time.
    """

    status: Status
    value: int
    bound: int
    households: int
    fixed: bool
    reference: NDArray[np.int64] | None
    farthest: NDArray[np.int64] | None
    seconds: float

    @property
    def unique(self) -> bool:
        """Whether the rows leave one table only: certain disclosure."""
        return self.reference is not None and self.bound == 0

    @property
    def share(self) -> float | None:
        """Greatest share of the reference's households that can be wrong, 0 to 1; None if the number varies.

        An upper bound, unless ``status`` is optimal.
        """
        if not self.fixed or self.reference is None:
            return None
        return self.bound / (2 * self.households) if self.households else 0.0

    @property
    def from_any_reference(self) -> int:
        """No two blocks are farther apart than this: twice the bound, by the triangle inequality."""
        return 2 * self.bound


def distance(
    configurations: Configurations,
    first: ArrayLike,
    second: ArrayLike,
    attributes: Sequence[str] | NDArray[np.int64] | None = None,
    within: Predicate | Mapping[str, Any] | ArrayLike | None = None,
) -> int:
    """Return the L1 distance between the tables of two blocks.

    Parameters
    ----------
    configurations
        The table of configurations.
    first, second
        Counts, shape (K,).
    attributes, within
        As for `solution_variability`.

    Examples
    --------
    >>> from adversary.reconstruction.households import Attribute, Configurations
    >>> table = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    >>> distance(table, [1, 0, 0, 1], [0, 1, 1, 0]), distance(table, [1, 0, 0, 1], [0, 1, 1, 0], ["size"])
    (4, 0)
    """
    cell = _cells(configurations, attributes)
    counted = configurations.mask(within)
    change = np.asarray(first, dtype=np.int64) - np.asarray(second, dtype=np.int64)
    table = np.bincount(cell[counted], change[counted])
    return int(np.abs(table).sum())


def simplified(configurations: Configurations) -> NDArray[np.int64]:
    """Return the cell of every configuration in the paper's simplified table, int64, shape (K,).

    Size, bedrooms, whether the householder is white and not Hispanic, whether a child is present. Give the
    result as ``attributes`` to `solution_variability`.

    Parameters
    ----------
    configurations
        The table of configurations.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> len(set(simplified(household_configurations()).tolist()))
    104
    """
    size, bedrooms = configurations.column("size"), configurations.column("bedrooms")
    white = configurations.labels("race") == "white_nonhispanic"
    keys = np.column_stack(
        [configurations.codes[:, [size, bedrooms]], white, configurations.number("children") > 0]
    )
    _, cell = np.unique(keys, axis=0, return_inverse=True)
    return np.asarray(cell.ravel(), dtype=np.int64)


def solution_variability(
    block: Reconstruction,
    attributes: Sequence[str] | NDArray[np.int64] | None = None,
    within: Predicate | Mapping[str, Any] | ArrayLike | None = None,
    reference: ArrayLike | None = None,
) -> Variability:
    """Return the greatest distance between a reference and any block that meets the rows.

    Parameters
    ----------
    block
        The rows, with back end and limits.
    attributes
        Attributes that make the table; or a cell for every configuration, int64, shape (K,) (see
        `simplified`); None for all attributes.
    within
        Count only these households (those with the harm, say); None for all.
    reference
        A block that meets the rows, shape (K,); None for the first that is found.

    Returns
    -------
    Variability
        Its ``value`` depends on the reference, but by a factor of 2 at most.

    Raises
    ------
    ModelError
        If the reference does not meet the rows.

    Notes
    -----
    arXiv 2407.04776, eq. 3. For references x and y: ``d(x, z) <= d(x, y) + d(y, z) <= 2 d_max(y)`` for every
    z.

    Examples
    --------
    >>> from adversary.reconstruction.households import Attribute, Configurations
    >>> from adversary.reconstruction.constraints import Queries
    >>> from adversary.reconstruction.solve import Reconstruction
    >>> table = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    >>> rows = np.array([[1, 1, 1, 1], [0, 0, 1, 1]])
    >>> asked = Queries(table, rows, ("H3", "H13"), ("households", "of two"), ("household",) * 2)
    >>> block = Reconstruction(asked.constraints([3, 1]))
    >>> found = solution_variability(block, reference=[1, 1, 1, 0])
    >>> found.value, round(found.share, 2), solution_variability(block, ["size"]).unique
    (4, 0.67, True)
    """
    start = time.perf_counter()
    configurations = block.configurations
    cell, counted = _cells(configurations, attributes), configurations.mask(within)
    endless = counted & (block.constraints.propagation.greatest >= LARGEST)
    if endless.any() and block.constraints.propagation.row is None:
        k = int(np.flatnonzero(endless)[0])
        msg = f"no row bounds {configurations.label(k)}: add the block's number of households"
        raise ModelError(msg, k)
    if reference is None:
        first = block.feasible(explain=False)
        if first.counts is None:
            return Variability(first.status, 0, 0, 0, False, None, None, time.perf_counter() - start)
        known = first.counts
    else:
        known = np.asarray(reference, dtype=np.int64)
        if known.shape != (len(configurations),) or not block.constraints.satisfied_by(known):
            msg = "the reference does not meet the rows: take one that `Reconstruction.feasible` found"
            raise ModelError(msg, known)
    program, constant = _program(block, np.where(counted, cell, -1), known)
    outcome = block.run(program, block.limits.seconds - time.perf_counter() + start, confirm=False)
    farthest = known if outcome.values is None else block.expand(outcome.values)
    value = distance(configurations, farthest, known, cell, counted)
    households = int(known[counted].sum())
    fixed = _fixed(block, counted)
    others = households if fixed else _most(block.live.program, counted[block.live.columns])
    bound = households + others
    if outcome.bound is not None:
        bound = min(bound, constant - outcome.bound)
    other = "cpsat" if block.backend == "highs" else "highs"
    if bound == 0 and block.confirm and installed(other):
        # certain disclosure is too grave a claim to rest on one solver
        second = solve(program, other, block.limits, confirm=False)
        if second.values is not None and second.bound is not None and constant - second.bound > 0:
            farthest, bound = block.expand(second.values), constant - second.bound
            value = distance(configurations, farthest, known, cell, counted)
    status = Status.OPTIMAL if value == bound else Status.FEASIBLE
    return Variability(status, value, bound, households, fixed, known, farthest, time.perf_counter() - start)


def _cells(
    configurations: Configurations, attributes: Sequence[str] | NDArray[np.int64] | None
) -> NDArray[np.int64]:
    if isinstance(attributes, np.ndarray):
        if attributes.shape != (len(configurations),) or not np.issubdtype(attributes.dtype, np.integer):
            msg = f"cells {attributes.shape} for {len(configurations)} configurations: one whole number each"
            raise ModelError(msg, attributes.shape)
        return attributes.astype(np.int64)
    return configurations.cells(attributes)[0]


def _program(block: Reconstruction, cell: NDArray[np.int64], known: NDArray[np.int64]) -> tuple[Program, int]:
    """Return the program whose least cost is a constant less the greatest distance, and that constant."""
    live = block.live
    inside = cell[live.columns]
    support = [int(g) for g in np.unique(cell[(known > 0) & (cell >= 0)])]
    size = len(live.columns)
    cost = -(inside >= 0).astype(np.int64)
    rows: list[NDArray[np.int64]] = []
    ends: list[tuple[int, int]] = []
    uppers: list[int] = []
    extra_cost: list[int] = []
    wide: list[tuple[NDArray[np.bool_], int, int]] = []
    constant = 0
    for g in support:
        members = inside == g
        held = int(known[cell == g].sum())
        constant += held
        most = _most(live.program, members)
        if most <= held:  # min(h, held) is h itself
            cost[members] += 2
        else:
            wide.append((members, held, most))
    columns = size + sum(1 if held == 1 else 2 for _, held, _ in wide)
    at = size
    for members, held, most in wide:
        # shared = min(h, held) or more; it costs 2, so that the least cost makes it equal
        row = np.zeros(columns, dtype=np.int64)
        row[:size][members] = 1
        row[at] = -most if held == 1 else -1
        uppers.append(held)
        extra_cost.append(2)
        if held > 1:
            row[at + 1] = held - most
            full = np.zeros(columns, dtype=np.int64)
            full[at], full[at + 1] = 1, -held
            rows.append(full)
            ends.append((0, UNBOUNDED))
            uppers.append(1)
            extra_cost.append(0)
        rows.append(row)
        ends.append((-UNBOUNDED, 0))
        at = len(uppers) + size
    more = len(uppers)
    old = np.hstack([live.program.matrix, np.zeros((len(live.program.low), more), dtype=np.int64)])
    low, high = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    program = Program(
        np.vstack([old, np.array(rows, dtype=np.int64).reshape(len(rows), columns)]),
        np.concatenate([live.program.low, low]),
        np.concatenate([live.program.high, high]),
        np.concatenate([live.program.lower, np.zeros(more, dtype=np.int64)]),
        np.concatenate([live.program.upper, np.array(uppers, dtype=np.int64)]),
        np.concatenate([cost, np.array(extra_cost, dtype=np.int64)]),
    )
    return program, constant


def _most(program: Program, members: NDArray[np.bool_]) -> int:
    """Return a bound on a cell's count: of its configurations' bounds, and of each row that covers it."""
    most = int(program.upper[members].sum())
    matrix = program.matrix
    covers = (matrix >= 0).all(axis=1) & (matrix[:, members] >= 1).all(axis=1)
    if covers.any():
        least = np.maximum(matrix[covers][:, members].min(axis=1), 1)
        most = min(most, int((program.high[covers] // least).min()))
    return most


def _fixed(block: Reconstruction, counted: NDArray[np.bool_]) -> bool:
    """Whether equality rows add up to the number of households counted."""
    live = block.live
    wanted = counted[live.columns].astype(np.float64)
    settled = live.program.lower == live.program.upper
    exact = live.program.low == live.program.high
    basis = live.program.matrix[exact][:, ~settled].astype(np.float64)
    rest = wanted[~settled]
    if not rest.any():
        return True
    if not len(basis):
        return False
    weights = np.linalg.lstsq(basis.T, rest, rcond=None)[0]
    return bool(np.abs(basis.T @ weights - rest).max() < 1e-9)
