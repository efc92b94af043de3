"""Posterior of blocks too large for dynamic programming: parallel tempering over slack, compiled with numba.

What it is: ladders of chains over lists of households. On rung r a list has its prior weight times
``exp(-beta_r U)`` times the noise's likelihood to the power tau_r, where U is by how much the exact rows are
missed in all; at the bottom nothing but the prior is left, at the top beta is large and tau 1. One move gives
one household any class (Gibbs), the other gives two households any pair of classes with the same exact rows
(Gibbs); neighbouring rungs exchange their lists. Only lists of the top rung with U = 0 are kept, so the
relaxation leaves no bias: on them the law is the posterior. Any list can become any other by single moves, as
no list has weight zero: the chains are irreducible.

What it is not: moves inside the set of blocks that meet the rows, which is not connected by exchanges of a
few households (tests/reconstruction/test_tempering.py shows blocks where they fail); nor exact: it comes with
a verdict.

Held to account by tests/reconstruction/test_tempering.py (dynamic programming on 30 blocks). Sources:
Geyer (1991); the rungs are spaced by the rejection rates as in Syed, Bouchard-Cote, Deligiannidis and Doucet,
arXiv 1905.02939; the relaxation is ours (project's specification, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adversary.errors import UnsupportedModelError
from adversary.reconstruction._dynamic import group_rows
from adversary.reconstruction.constraints import UNBOUNDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from adversary.reconstruction._reduced import Reduced

__all__ = ["Chain", "Moves", "Plan", "respaced", "run_chain"]

_STEEPEST = 6.0  # beta of the top rung to begin with
_STEEPER, _AT_MOST = (
    1.4,
    60.0,
)  # grows by this factor while fewer than _ENOUGH of the top rung's lists meet the rows
_ENOUGH = 0.3
_SINGLES = 8  # single moves a sweep, at least
_RUNGS = 14
_LARGEST = 2_000  # classes up to which pairs are tabulated
_FAR = 2**40


class Moves(NamedTuple):
    """The block as the kernel reads it.

    Attributes
    ----------
    ptr, row, coefficient
        Columns of the classes, compressed.
    low, high, centre, precision
        Ends of the rows, and their noise: precision 0 for none.
    add
        Log-factor of one household more in a class that holds 0, 1, ..., shape (classes, N).
    pair, first, a, b
        Group of each pair of classes (-1: alone in it), and the pairs of each group.
    size
        Households a list, those that stand for none included.
    classes
        Classes proper; one more stands for "no household" where the number is not fixed.
    noisy
        Whether any row has noise.
    """

    ptr: NDArray[np.int64]
    row: NDArray[np.int64]
    coefficient: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    centre: NDArray[np.float64]
    precision: NDArray[np.float64]
    add: NDArray[np.float64]
    pair: NDArray[np.int32]
    first: NDArray[np.int64]
    a: NDArray[np.int32]
    b: NDArray[np.int32]
    size: int
    classes: int
    noisy: bool

    @classmethod
    def of(cls, problem: Reduced) -> Moves:
        """Tabulate a reduced block."""
        numbers = sorted(problem.log_n)
        if numbers[-1] - numbers[0] + 1 != len(numbers):
            msg = f"households of {numbers} have a gap, which single moves do not cross: give a range without gaps"
            raise UnsupportedModelError(msg, numbers)
        most, classes = numbers[-1], len(problem.members)
        fixed = len(numbers) == 1
        matrix = (
            problem.matrix
            if fixed
            else np.hstack([problem.matrix, np.zeros((len(problem.low), 1), np.int64)])
        )
        low = np.where(problem.low > -UNBOUNDED // 2, problem.low, -_FAR)
        high = np.where(problem.high < UNBOUNDED // 2, problem.high, _FAR)
        centre, precision = np.zeros(len(low)), np.zeros(len(low))
        for i, potential in problem.potentials.items():
            if potential.values.size:
                precision[i] = (1 / potential.sigma2).sum()
                centre[i] = (potential.values / potential.sigma2).sum() / precision[i]
        if fixed and precision[0] == 0:  # nothing moves the number of households
            matrix, low, high = matrix[1:], low[1:], high[1:]
            centre, precision = centre[1:], precision[1:]
        soft = (low <= -_FAR) & (high >= _FAR)
        pair, first, a, b = _pairs(matrix[~soft], matrix.shape[1])
        return cls(
            *_columns(matrix),
            low,
            high,
            centre,
            precision,
            _factors(problem, most, fixed),
            pair,
            first,
            a,
            b,
            most,
            classes,
            bool((precision > 0).any()),
        )


def _columns(matrix: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    column, row = np.nonzero(matrix.T)
    ptr = np.searchsorted(column, np.arange(matrix.shape[1] + 1))
    return ptr.astype(np.int64), row.astype(np.int64), matrix[row, column].astype(np.int64)


def _factors(problem: Reduced, most: int, fixed: bool) -> NDArray[np.float64]:
    """Log-factor of one more household in each class, of lists: its count grows, so do the lists with that count."""
    steps = np.log(np.arange(1, most + 1))
    log = [np.diff(problem.weights.log_weight(members, most)) + steps for members in problem.members]
    if not fixed:
        # "no household": its number d leaves most - d households, weighed by the prior of their number
        top = problem.weights.log_top(most) + np.array(
            [problem.log_n.get(n, -np.inf) for n in range(most + 1)]
        )
        with np.errstate(invalid="ignore"):
            more = np.diff(top[::-1])
        log.append(np.where(np.isnan(more), -np.inf, more) + steps)
    return np.ascontiguousarray(np.array(log).reshape(len(log), most))


def _pairs(
    matrix: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Group pairs of classes by the sum of their columns."""
    if not 2 <= classes <= _LARGEST:
        none = np.zeros(0, np.int32)
        return np.full((classes, classes), -1, np.int32), np.zeros(1, np.int64), none, none
    a, b = np.triu_indices(classes)
    sums = matrix.T[a] + matrix.T[b]
    key = group_rows(sums)
    times = np.bincount(key)
    several = times[key] > 1
    a, b, key = a[several], b[several], key[several]
    order = np.argsort(key, kind="stable")
    a, b, key = a[order], b[order], key[order]
    _, key = np.unique(key, return_inverse=True)
    first = np.searchsorted(key, np.arange((key.max() if key.size else -1) + 2))
    pair = np.full((classes, classes), -1, dtype=np.int32)
    pair[a, b] = pair[b, a] = key
    return pair, first.astype(np.int64), a.astype(np.int32), b.astype(np.int32)


class Chain(NamedTuple):
    """What one ladder kept.

    Attributes
    ----------
    counts
        Households by class of the lists kept, int16, shape (kept, C).
    feasible
        Share of the top rung's lists that meet every row.
    swaps
        Share of exchanges accepted between neighbouring rungs, shape (rungs - 1,).
    trips
        Times a list came from the bottom rung to the top.
    """

    counts: NDArray[np.int16]
    feasible: float
    swaps: NDArray[np.float64]
    trips: int


@dataclass(frozen=True)
class Plan:
    """How a ladder is run: sweeps to warm up and to keep, moves a sweep as shares of the list's length."""

    sweeps: int
    draws: int
    singles: float = 0.25
    doubles: float = 2.0
    rungs: int = _RUNGS
    steepest: float = _STEEPEST


def rungs_of(at: NDArray[np.float64], steepest: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return beta and tau of rungs at places from 0 (the prior alone) to 1."""
    return steepest * at, at.copy()


def respaced(at: NDArray[np.float64], rejected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move rungs so that neighbours reject exchanges equally often, the number of rungs and the ends kept.

    Examples
    --------
    >>> respaced(np.array([0.0, 0.5, 1.0]), np.array([0.3, 0.1])).round(3).tolist()
    [0.0, 0.333, 1.0]
    """
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejected, 1e-3))])
    out = np.interp(np.linspace(0, barrier[-1], len(at)), barrier, at)
    out[0], out[-1] = at[0], at[-1]
    return np.asarray(out)


def run_chain(
    moves: Moves,
    plan: Plan,
    rng: np.random.Generator,
    watch: Callable[[int], object] | None = None,
    start: NDArray[np.int64] | None = None,
) -> Chain:
    """Warm one ladder up, space its rungs, and keep lists of its top rung that meet every row.

    Parameters
    ----------
    moves
        The block.
    plan
        How long.
    rng
        The same generator gives the same lists.
    watch
        Called with sweeps done.
    start
        Class of every household to begin with, on all rungs; None for draws from the prior's shares.
    """
    from adversary.reconstruction._ladder import ladder  # compiles, and loads numba

    classes, size = moves.add.shape[0], moves.size
    if size == 0:
        return Chain(
            np.zeros((plan.draws, moves.classes), np.int16), 1.0, np.ones(max(plan.rungs - 1, 1)), plan.rungs
        )
    odds = np.exp(moves.add[:, 0] - moves.add[:, 0].max())
    drawn = rng.choice(classes, (plan.rungs, size), p=odds / odds.sum()).astype(np.int32)
    house = drawn if start is None else np.tile(np.asarray(start, np.int32), (plan.rungs, 1))
    count = np.array([np.bincount(line, minlength=classes) for line in house]).astype(np.int64)
    matrix = np.zeros((classes, len(moves.low)), np.int64)
    matrix[np.repeat(np.arange(classes), np.diff(moves.ptr)), moves.row] = moves.coefficient
    sums = count @ matrix
    span = np.column_stack([np.minimum(matrix.min(axis=0), 0), np.maximum(matrix.max(axis=0), 0)])
    each = (max(round(plan.singles * size), _SINGLES), round(plan.doubles * size))
    at = np.linspace(0, 1, plan.rungs) ** 1.5 if plan.rungs > 1 else np.ones(1)
    steepest, rounds = plan.steepest, 4 if plan.rungs > 1 else 1
    tune = max(plan.sweeps // rounds, 10)
    for attempt in range(3 * rounds):
        trial = np.zeros((tune, moves.classes), np.int16)
        args = (*rungs_of(at, steepest), (tune, 1, *each), trial)
        found, looked, _, swaps = ladder(rng, moves, span, house, count, sums, *args)
        enough = found >= _ENOUGH * looked or plan.rungs == 1
        if plan.rungs > 1:
            at = respaced(at, 1 - swaps)
            steepest *= 1.0 if enough or attempt == 0 else min(_STEEPER, _AT_MOST / steepest)
        if watch is not None and attempt < rounds:
            watch(tune)
        if attempt + 1 >= rounds and enough:
            break
    thin = max(plan.sweeps // plan.draws, 1)
    kept = np.zeros((plan.draws, moves.classes), np.int16)
    args = (*rungs_of(at, steepest), (plan.sweeps, thin, *each), kept)
    found, looked, trips, swaps = ladder(rng, moves, span, house, count, sums, *args)
    if watch is not None:
        watch(plan.sweeps)
    return Chain(kept[:found], found / max(looked, 1), swaps, int(trips))
