"""The longer questions behind `Reconstruction`: bounds of all cells, the top t, clashes, the least error.

What it is: the algorithms. What it is not: public; :mod:`adversary.reconstruction.solve` documents each
question. Held to account by tests/reconstruction/test_solve.py.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction._program import Program, Status, installed, require, solve
from adversary.reconstruction.answers import CellBounds, Clash, Level, Mend, Solution, Top
from adversary.reconstruction.constraints import LARGEST, UNBOUNDED, Constraints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.solve import Reconstruction

__all__ = ["cell_bounds", "clash", "closest", "top"]


def cell_bounds(block: Reconstruction, names: Sequence[str] | None, within: Any) -> CellBounds:
    """Bound every cell, letting blocks seen on the way serve all cells."""
    start = time.perf_counter()
    cell, cells = block.configurations.cells(names)
    counted = block.configurations.mask(within)
    live, p = block.live, block.constraints.propagation
    size = len(cells)
    if p.row is None and (p.greatest[counted] >= LARGEST).any():
        k = int(np.flatnonzero(counted & (p.greatest >= LARGEST))[0])
        msg = f"no row bounds {block.configurations.label(k)}: add the block's number of households"
        raise ModelError(msg, k)

    def table(counts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(cell[counted], counts[counted], minlength=size).astype(np.int64)

    low, high = table(p.least), table(p.greatest)
    first = block.feasible(explain=False)
    if first.counts is None:
        attained = np.zeros(size, dtype=bool)
        return CellBounds(cells, low, high, attained, first.status, 1, time.perf_counter() - start)
    seen_low = table(first.counts)
    seen_high = seen_low.copy()
    inside = np.where(counted, cell, -1)[live.columns]
    solves = 1
    for g in range(size):
        for sign in (1, -1):
            if (low[g] >= seen_low[g]) if sign == 1 else (high[g] <= seen_high[g]):
                continue
            left = block.limits.seconds - time.perf_counter() + start
            cost = sign * (inside == g).astype(np.int64)
            outcome = block.run(replace(live.program, cost=cost), left, confirm=False)
            solves += 1
            if outcome.values is not None:
                found = table(block.expand(outcome.values))
                seen_low, seen_high = np.minimum(seen_low, found), np.maximum(seen_high, found)
            if outcome.bound is not None and sign == 1:
                low[g] = max(low[g], outcome.bound)
            elif outcome.bound is not None:
                high[g] = min(high[g], -outcome.bound)
    attained = (low == seen_low) & (high == seen_high)
    status = Status.OPTIMAL if attained.all() else Status.FEASIBLE
    return CellBounds(cells, low, high, attained, status, solves, time.perf_counter() - start)


def clash(block: Reconstruction, seconds: float) -> Clash:
    """Delete tables, then rows, as long as the rest is still infeasible."""
    start = time.perf_counter()
    sure = True

    def infeasible(rows: NDArray[np.int64]) -> bool:
        nonlocal sure
        part = block.constraints.take(rows)
        if part.propagation.row is not None:
            return True
        left = seconds - time.perf_counter() + start
        smaller = replace(block, constraints=part, shares=None, confirm=False)
        status = smaller.run(smaller.live.program, left).status
        sure = sure and status is not Status.TIME_LIMIT
        return status is Status.INFEASIBLE

    names = np.array(block.constraints.table)
    rows = np.arange(len(names))
    for name in reversed(block.constraints.tables):
        rest = rows[names[rows] != name]
        if infeasible(rest):
            rows = rest
    kept = list(rows)
    for row in reversed(rows.tolist()):
        rest = np.array([i for i in kept if i != row], dtype=np.int64)
        if infeasible(rest):
            kept = rest.tolist()
    return Clash(tuple(block.constraints.row(int(i)) for i in kept), sure)


def closest(block: Reconstruction, hard: Sequence[str], sigma: ArrayLike | None, backend: str | None) -> Mend:
    """Add a shortfall and an excess to every soft row and make their weighted sum least."""
    if backend is None:
        backend = "cpsat" if installed("cpsat") else block.backend
    start = time.perf_counter()
    c = block.constraints
    firm = np.array([name in set(hard) for name in c.table], dtype=bool)
    weights = np.ones(len(c), dtype=np.int64)
    if sigma is not None:
        spread = np.broadcast_to(np.asarray(sigma, dtype=np.float64), (len(c),))
        if not (spread > 0).all():
            msg = "a standard deviation of a row's error must be above 0: make exact rows hard instead"
            raise ModelError(msg, float(spread.min()))
        weights = np.maximum(np.rint(1000 / spread), 1).astype(np.int64)
    base = replace(block, constraints=c.take(firm), shares=None)
    if base.constraints.propagation.row is not None:
        status = Solution(Status.INFEASIBLE, seconds=time.perf_counter() - start, confirmed=True)
        return Mend(status, None, None)
    ends = np.concatenate([np.abs(c.low[c.low > -UNBOUNDED]), np.abs(c.high[c.high < UNBOUNDED]), [1]])
    columns = base.live.columns
    upper = np.minimum(base.constraints.propagation.greatest[columns], ends.max())
    program, at = _softened(c.take(~firm), base, upper, weights[~firm])
    outcome = solve(program, backend, block.limits, confirm=block.confirm)
    if outcome.values is None:
        return Mend(
            Solution(outcome.status, seconds=time.perf_counter() - start, limit=outcome.limit), None, None
        )
    counts = np.zeros(len(c.configurations), dtype=np.int64)
    counts[columns] = outcome.values[:at]
    answers = c.matrix @ counts
    errors = answers - np.clip(answers, c.low, c.high)
    relaxed = replace(c, low=np.minimum(c.low, answers), high=np.maximum(c.high, answers))
    value = int(weights @ np.abs(errors))
    solution = Solution(
        outcome.status,
        counts,
        value,
        outcome.bound,
        seconds=time.perf_counter() - start,
        limit=outcome.limit,
    )
    return Mend(solution, errors, relaxed)


def _softened(
    soft: Constraints, base: Reconstruction, upper: NDArray[np.int64], weights: NDArray[np.int64]
) -> tuple[Program, int]:
    """Return the program of least error; its first columns are the live configurations of the hard rows."""
    live = base.live
    matrix = soft.matrix[:, live.columns]
    up, down = np.maximum(matrix, 0), np.minimum(matrix, 0)
    smallest, largest = up @ live.program.lower + down @ upper, up @ upper + down @ live.program.lower
    short, over = np.flatnonzero(smallest < soft.low), np.flatnonzero(largest > soft.high)
    eye = np.eye(len(soft), dtype=np.int64)
    body = np.hstack([matrix, eye[:, short], -eye[:, over]])
    firm = np.hstack(
        [live.program.matrix, np.zeros((len(live.program.low), len(short) + len(over)), dtype=np.int64)]
    )
    slack = np.concatenate([(soft.low - smallest)[short], (largest - soft.high)[over]])
    zero = np.zeros_like(slack)
    program = Program(
        np.vstack([firm, body]),
        np.concatenate([live.program.low, soft.low]),
        np.concatenate([live.program.high, soft.high]),
        np.concatenate([live.program.lower, zero]),
        np.concatenate([upper, slack]),
        np.concatenate([np.zeros_like(upper), weights[short], weights[over]]),
        presolve=True,
    )
    return program, len(live.columns)


def top(block: Reconstruction, t: int) -> Top:
    """List the cheapest level, then windows of cost above it; a window counts only once it is complete."""
    start = time.perf_counter()
    require("cpsat")
    costs = block.costs
    first = block.most_likely()
    if first.counts is None or first.value is None:
        return _top(block, {}, [], first.status, start)
    if first.status is not Status.OPTIMAL:
        level = Level(first.value, 1, None)
        return _top(block, {first.value: [first.counts]}, [level], Status.FEASIBLE, start)
    program = replace(block.live.program, cost=costs[block.live.columns])

    def listed(low: int, high: int, cap: int) -> tuple[dict[int, list[NDArray[np.int64]]], bool]:
        from adversary.reconstruction import _cpsat

        left = block.limits.seconds - time.perf_counter() + start
        if left <= 0:
            return {}, False
        found = _cpsat.enumerate_solutions(program, low, high, cap, replace(block.limits, seconds=left))
        groups: dict[int, list[NDArray[np.int64]]] = {}
        for values in found.values:
            groups.setdefault(int(program.cost @ values), []).append(block.expand(values))
        return groups, found.complete

    return _windows(block, t, first, listed, start)


def _windows(
    block: Reconstruction,
    t: int,
    first: Solution,
    listed: Callable[[int, int, int], tuple[dict[int, list[NDArray[np.int64]]], bool]],
    start: float,
) -> Top:
    """Walk up the levels of cost until t blocks are listed, none is left, or a limit ends it."""
    best = first.value or 0
    kept, whole = listed(best, best, t + 1)
    if not kept and first.counts is not None:
        kept = {best: [first.counts]}
    cut = None if whole else best  # the level that is listed in part, in the solver's order
    done, width, ceiling, ended = best, 100, None, False
    while cut is None and not ended and _size(kept) < t:
        ceiling = _dearest(block) if ceiling is None else ceiling
        if done >= ceiling:
            break
        need = t - _size(kept)
        groups, whole = listed(done + 1, done + width, 4 * need + 1)
        if whole:
            kept.update(groups)
            done += width
            width *= 3 if _size(groups) <= need // 4 else 1
        elif time.perf_counter() - start >= block.limits.seconds:
            ended = True
        elif width == 1:
            kept.update(groups)
            cut = done + 1
        else:
            width = max(1, width // 4)
    chosen: dict[int, list[NDArray[np.int64]]] = {}
    levels: list[Level] = []
    for cost in sorted(kept):
        room = t - _size(chosen)
        group = sorted(kept[cost], key=lambda counts: counts.tolist())[:room]
        if group:
            chosen[cost] = group
            levels.append(Level(cost, len(group), None if cost == cut else len(kept[cost])))
    exhausted = cut is None and ceiling is not None and done >= ceiling and _size(kept) <= t
    status = Status.OPTIMAL if exhausted or _size(chosen) == t else Status.FEASIBLE
    return _top(block, chosen, levels, status, start, exhausted=exhausted)


def _size(groups: dict[int, list[NDArray[np.int64]]]) -> int:
    return sum(len(group) for group in groups.values())


def _dearest(block: Reconstruction) -> int:
    """Return a cost that no block exceeds."""
    outcome = block.run(replace(block.live.program, cost=-block.costs[block.live.columns]), confirm=False)
    if outcome.bound is not None:
        return -outcome.bound
    return int((block.costs[block.live.columns] * block.live.program.upper).sum())


def _top(
    block: Reconstruction,
    groups: dict[int, list[NDArray[np.int64]]],
    levels: list[Level],
    status: Status,
    start: float,
    *,
    exhausted: bool = False,
) -> Top:
    rows = [(cost, counts) for cost in sorted(groups) for counts in groups[cost]]
    counts = np.array([row[1] for row in rows], dtype=np.int64).reshape(len(rows), len(block.configurations))
    found = np.array([row[0] for row in rows], dtype=np.int64)
    return Top(counts, found, tuple(levels), status, exhausted, time.perf_counter() - start)
