"""Exact posterior of a small block: dynamic programming over classes of configurations.

What it is: classes are taken in order; a state is the vector of partial sums of the rows that are open (begun
and not finished); a step adds t households of the class. Every path from the empty block to the end is one
table of households by class, its weight is the product of its steps' weights. Going forward gives the evidence and, for
every state, the probability of each way into it; going back from the end gives marginals and independent
draws. All sums have positive terms only and are taken in logs, so that no tail is lost.

What keeps states few: a row leaves the state when its last class is done (noise and ends enter there); a row
that can no longer be broken leaves at once; states from which some row cannot be met are dropped.

What it is not: an approximation, at any size: a block that needs more states than allowed is refused.

Held to account by tests/reconstruction/test_posterior.py (a full enumeration).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adversary.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from adversary.reconstruction._reduced import Reduced

__all__ = ["Graph", "Layer", "group_rows", "order_classes", "solve"]

_FREE = -(2**40)  # stands for the sum of a row that can no longer be broken
_FAR = 2**40
_CHUNK = 4_000_000  # transitions tried at once


class Layer(NamedTuple):
    """The steps of one class, sorted by the state that they lead to.

    Attributes
    ----------
    cls
        The class.
    source
        State before, int32, shape (E,).
    taken
        Households of the class, int16, shape (E,).
    chance
        P(this step | state after, rows so far), shape (E,).
    starts
        First step into each state after, int64, shape (S,).
    """

    cls: int
    source: NDArray[np.int32]
    taken: NDArray[np.int16]
    chance: NDArray[np.float64]
    starts: NDArray[np.int64]

    @property
    def target(self) -> NDArray[np.int64]:
        """State after each step, int64, shape (E,)."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.source))))


@dataclass(frozen=True, eq=False)
class Graph:
    """All blocks that meet the rows, as paths; empty (``layers`` None) if there is none.

    Attributes
    ----------
    problem
        What was solved.
    layers
        One a class, in the order taken.
    log_evidence
        Log-probability of everything published (the rows hold, the noisy values are these).
    """

    problem: Reduced
    layers: tuple[Layer, ...] | None
    log_evidence: float

    @property
    def states(self) -> int:
        """States of the largest layer."""
        return max((len(layer.starts) for layer in self.layers or ()), default=1)

    @property
    def steps(self) -> int:
        """Transitions of all layers."""
        return sum(len(layer.source) for layer in self.layers or ())

    @cached_property
    def log_solutions(self) -> float:
        """Log of the number of blocks (over configurations with positive shares) that meet the rows."""
        log = np.zeros(1)
        for layer in self.layers or ():
            size = len(self.problem.members[layer.cls])
            taken = layer.taken.astype(np.int64)
            ways = np.concatenate([[0.0], np.cumsum(np.log1p((size - 1) / np.arange(1, taken.max() + 1)))])
            log, _ = _gather(log[layer.source] + ways[taken], layer.starts)
        return float(log[0]) if self.layers is not None else -np.inf

    @cached_property
    def class_pmfs(self) -> dict[int, NDArray[np.float64]]:
        """P(t households in the class), for every class, shape (greatest + 1,)."""
        out = {}
        mass = np.ones(1)
        layers = self.layers or ()
        before = [1, *(len(layer.starts) for layer in layers)]
        for i, layer in reversed(list(enumerate(layers))):
            flow = mass[layer.target] * layer.chance
            most = int(self.problem.greatest[layer.cls])
            out[layer.cls] = np.bincount(layer.taken, flow, minlength=most + 1)
            mass = np.bincount(layer.source, flow, minlength=before[i])
        return out

    def marginals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return P(at least one household) and E[households] of every configuration, shape (K,)."""
        weights = self.problem.weights
        present, expected = np.zeros(weights.shares.size), np.zeros(weights.shares.size)
        for cls, pmf in self.class_pmfs.items():
            members = self.problem.members[cls]
            table = weights.member_table(members, len(pmf) - 1)
            present[members], expected[members] = pmf @ table[0], pmf @ table[1]
        return present, expected

    def pmf(self, picked: NDArray[np.bool_], cap: int) -> NDArray[np.float64]:
        """Return the law of the number of picked households, shape (cap + 1,); the last is cap or more."""
        held = np.zeros((1, cap + 1))
        held[0, 0] = 1.0
        for layer in self.layers or ():
            members = self.problem.members[layer.cls]
            its = picked[members]
            before = held[layer.source]
            if its.any():
                most = int(layer.taken.max())
                split = self.problem.weights.split(members[its], members[~its], most)
                before = _shift(before, split[layer.taken])
            held = np.add.reduceat(before * layer.chance[:, None], layer.starts, axis=0)
        return np.asarray(held[0])

    def draw(self, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return independent blocks from the posterior, int64, shape (draws, K)."""
        out = np.zeros((draws, self.problem.weights.shares.size), dtype=np.int64)
        at = np.zeros(draws, dtype=np.int64)
        for layer in reversed(self.layers or ()):
            ends = np.append(layer.starts[1:], len(layer.source))
            up_to = np.cumsum(layer.chance)
            base = up_to[layer.starts[at]] - layer.chance[layer.starts[at]]
            u = base + rng.random(draws) * (up_to[ends[at] - 1] - base)
            step = np.clip(np.searchsorted(up_to, u, side="right"), layer.starts[at], ends[at] - 1)
            members = self.problem.members[layer.cls]
            taken = layer.taken[step].astype(np.int64)
            some = np.flatnonzero(taken)
            out[some[:, None], members] = self.problem.weights.spread(members, taken[some], rng)
            at = layer.source[step].astype(np.int64)
        return out


def _shift(held: NDArray[np.float64], kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convolve each row of held with its kernel; what exceeds the last column stays in it."""
    cap = held.shape[1] - 1
    out = np.zeros_like(held)
    for i in range(kernel.shape[1]):
        weight = kernel[:, i, None]
        if i >= cap:
            out[:, cap:] += weight * held.sum(axis=1, keepdims=True)
        else:
            out[:, i:cap] += weight * held[:, : cap - i]
            out[:, cap:] += weight * held[:, cap - i :].sum(axis=1, keepdims=True)
    return out


def _gather(
    log: NDArray[np.float64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum steps into states, in logs; return the sums and each step's share of its sum."""
    top = np.maximum.reduceat(log, starts)
    repeats = np.diff(np.append(starts, len(log)))
    share = np.exp(log - np.repeat(top, repeats))
    total = np.add.reduceat(share, starts)
    share /= np.repeat(total, repeats)
    return top + np.log(total), share


def order_classes(problem: Reduced) -> NDArray[np.int64]:
    """Order classes so that few rows are open at a time: greedily, the least weight of open rows next."""
    used = problem.matrix != 0
    ends = np.where(problem.high < _FAR, problem.high, (np.abs(problem.matrix) @ problem.greatest))
    weight = np.log1p(np.minimum(np.maximum(ends, 0), np.abs(problem.matrix) @ problem.greatest))
    left = used.sum(axis=1)
    begun = np.zeros(len(left), dtype=bool)
    todo = np.ones(used.shape[1], dtype=bool)
    out = []
    for _ in range(used.shape[1]):
        opens = used & ~begun[:, None]
        closes = used & (left == 1)[:, None]
        # a row that this class both opens and closes never enters a state
        cost = weight @ (opens.astype(float) - closes)
        # among equals, a class whose rows are nearest to their end
        near = (used * (weight / np.maximum(left, 1))[:, None]).sum(axis=0)
        pick = int(np.lexsort((-near, np.where(todo, cost, np.inf)))[0])
        out.append(pick)
        begun |= used[:, pick]
        left -= used[:, pick]
        todo[pick] = False
    return np.array(out, dtype=np.int64)


class _Reach(NamedTuple):
    """What the classes still to come can add to each row, by class taken and row."""

    up: NDArray[np.int64]
    down: NDArray[np.int64]
    each_up: NDArray[np.int64]
    each_down: NDArray[np.int64]

    @classmethod
    def of(cls, matrix: NDArray[np.int64], least: NDArray[np.int64], greatest: NDArray[np.int64]) -> _Reach:
        """Sum and take extremes over the classes after each one, shapes (C, m)."""
        a = matrix.T
        most = np.where(a > 0, a * greatest[:, None], a * least[:, None])
        few = np.where(a > 0, a * least[:, None], a * greatest[:, None])

        def after(x: NDArray[np.int64], ufunc: np.ufunc, end: int) -> NDArray[np.int64]:
            back = ufunc.accumulate(x[::-1], axis=0)[::-1]
            return np.vstack([back[1:], np.full((1, x.shape[1]), end)])

        return cls(
            after(most, np.add, 0),
            after(few, np.add, 0),
            after(a, np.maximum, 0),
            after(a, np.minimum, 0),
        )

    def bounds(
        self, i: int, rows: NDArray[np.intp], left_most: NDArray[np.int64], left_least: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and greatest addition to rows after class i, given households left, shape (S, rows)."""
        big, small = self.each_up[i, rows], self.each_down[i, rows]
        up = np.where(big > 0, left_most[:, None] * big, left_least[:, None] * big)
        down = np.where(small > 0, left_least[:, None] * small, left_most[:, None] * small)
        return np.maximum(self.down[i, rows], down), np.minimum(self.up[i, rows], up)


class _Growing:
    """The states of one layer: sums of the open rows, and log-weights."""

    def __init__(self, problem: Reduced, order: NDArray[np.int64]) -> None:
        self.problem, self.order = problem, order
        matrix = problem.matrix[:, order]
        self.reach = _Reach.of(matrix, problem.least[order], problem.greatest[order])
        used = matrix != 0
        size = matrix.shape[1]
        self.first = np.where(used.any(axis=1), used.argmax(axis=1), size)
        self.last = np.where(used.any(axis=1), size - 1 - used[:, ::-1].argmax(axis=1), -1)
        self.matrix, self.positive = matrix, bool((matrix >= 0).all())
        self.rows = np.array([0], dtype=np.intp)  # open rows; row 0 (households) is always open
        self.sums = np.zeros((1, 1), dtype=np.int64)
        self.log = np.zeros(1)

    def step(self, i: int) -> Layer | None:
        """Take the i-th class; None if no state is left."""
        p = self.problem
        new = np.flatnonzero((self.first == i) & (np.arange(len(self.first)) > 0))
        rows = np.append(self.rows, new).astype(np.intp)
        sums = np.hstack([self.sums, np.zeros((len(self.sums), new.size), dtype=np.int64)])
        cls = int(self.order[i])
        a, most = self.matrix[rows, i], int(p.greatest[cls])
        room = np.minimum(most, p.high[0] - sums[:, 0])
        if self.positive:
            for j in np.flatnonzero(a > 0):
                open_ = sums[:, j] > _FREE // 2
                limit = np.where(open_, (p.high[rows[j]] - sums[:, j]) // a[j], most)
                room = np.minimum(room, limit)
        fewest = int(p.least[cls])
        count = np.maximum(room - fewest + 1, 0)
        source = np.repeat(np.arange(len(sums)), count)
        taken = np.arange(source.size) - np.repeat(np.cumsum(count) - count, count) + fewest
        after = sums[source] + taken[:, None] * a
        after[sums[source] <= _FREE // 2] = _FREE
        keep, free = self._alive(i, rows, after)
        after[free] = _FREE
        source, taken, after = source[keep], taken[keep], after[keep]
        if source.size == 0:
            return None
        log = self.log[source] + p.log_weight[cls][taken]
        closed = self.last[rows] == i
        for j in np.flatnonzero(closed):
            if rows[j] in p.potentials:
                log += p.potentials[int(rows[j])].at(after[:, j])
        possible = log > -np.inf  # a number of households between possible ones may have no probability
        if not possible.all():
            source, taken, after, log = source[possible], taken[possible], after[possible], log[possible]
            if source.size == 0:
                return None
        stay = ~closed
        stay[0] = i + 1 < len(self.order)
        key = group_rows(after[:, stay])
        sort = np.argsort(key, kind="stable")
        source, taken, log = source[sort], taken[sort], log[sort]
        starts = np.flatnonzero(np.diff(key[sort], prepend=-1))
        self.log, chance = _gather(log, starts)
        self.rows, self.sums = rows[stay], after[sort[starts]][:, stay]
        return Layer(cls, source.astype(np.int32), taken.astype(np.int16), chance, starts)

    def _alive(
        self, i: int, rows: NDArray[np.intp], after: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Tell which states can still meet every row, and which of their rows nothing can break any more."""
        p = self.problem
        h = after[:, 0]
        at = np.arange(p.high[0] + 1)
        every = np.arange(len(p.low), dtype=np.intp)
        down, up = self.reach.bounds(i, every, p.high[0] - at, np.maximum(p.low[0] - at, 0))
        later = self.first > i
        fine = ((up >= p.low) & (down <= p.high) | ~later).all(axis=1)
        keep = fine[h]
        bottom, top = down[h][:, rows], up[h][:, rows]
        free = after <= _FREE // 2
        keep &= (free | ((after + top >= p.low[rows]) & (after + bottom <= p.high[rows]))).all(axis=1)
        soft = np.array([int(row) in p.potentials for row in rows])
        free |= (after + bottom >= p.low[rows]) & (after + top <= p.high[rows])
        free[:, soft] = False
        return keep, free


def group_rows(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for every distinct row of a table, in whole numbers (no hashing), int64, shape (E,)."""
    key = np.zeros(len(values), dtype=np.int64)
    size = 1
    for column in values.T:
        free = column <= _FREE // 2
        shifted = column - (column[~free].min() if not free.all() else 0) + 1
        shifted[free] = 0
        width = int(shifted.max()) + 1
        if size > 2**62 // width:
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max()) + 1
        key = key * width + shifted
        size *= width
    _, key = np.unique(key, return_inverse=True)
    return key.astype(np.int64)


def solve(
    problem: Reduced,
    states: int,
    megabytes: float,
    watch: Callable[[int, int], None] | None = None,
) -> Graph:
    """Go forward through the classes.

    Parameters
    ----------
    problem
        The reduced block.
    states, megabytes
        Limits of one layer, and of what is kept.
    watch
        Called with the classes done and the states of the layer.

    Raises
    ------
    UnsupportedModelError
        Where a limit would be passed; nothing is approximated.
    """
    if problem.impossible is not None:
        return Graph(problem, None, -np.inf)
    if not problem.members:  # nobody lives here
        nobody = np.zeros(1, np.int64)
        return Graph(problem, (), sum(float(p.at(nobody)[0]) for p in problem.potentials.values()))
    growing = _Growing(problem, order_classes(problem))
    layers, kept = [], 0.0
    constant = sum(
        float(p.at(np.zeros(1, np.int64))[0])
        for row, p in problem.potentials.items()
        if growing.last[row] < 0
    )
    for i in range(len(growing.order)):
        layer = growing.step(i)
        if layer is None:
            return Graph(problem, None, -np.inf)
        layers.append(layer)
        kept += sum(x.nbytes for x in layer[1:]) / 2**20
        if len(layer.starts) > states or kept > megabytes:
            done = f"{i + 1} of {len(growing.order)} classes"
            msg = (
                f"the exact posterior needs {len(layer.starts)} states and {kept:.0f} MB after {done}, more than"
                f" {states} or {megabytes:.0f} MB: allow more, use method='tempering', or leave noisy tables out"
            )
            raise UnsupportedModelError(msg, len(layer.starts))
        if watch is not None:
            watch(i + 1, len(layer.starts))
    return Graph(problem, tuple(layers), float(growing.log[0]) + constant)
