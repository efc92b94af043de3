"""Windows: how far each unknown integer has to be followed, found from the model's own log-probability.

What it is: for every node with a factor of its own (the product of its prior and its measurements: its *curve*) the mode
is climbed to on geometric grids; :meth:`Curve.window` then gives the integers whose curve is within ``drop`` of the
maximum, for any ``drop``, without another evaluation. :func:`propagate` carries intervals through the sums.

What it is not: a proof that nothing was cut. A point outside the windows has some factor more than ``drop`` below that
factor's maximum; whether ``drop`` was enough is judged after the elimination, on the joint weights
(:mod:`adversary.samplers.exact.solution`), and the windows are widened until it was.

Assumption, checked on the tables where it can be (log-concavity): a curve has one mode.

Held to account by ``tests/samplers/exact/test_windows.py``. Source: spec/kazan_reiter.md 1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adversary.samplers.exact.factors import Base
    from adversary.samplers.exact.plan import Constraint
    from adversary.samplers.exact.problem import Problem

__all__ = ["SMALL", "Curve", "climb", "propagate", "structural_supports", "union_of_windows"]

Array = Any
SMALL = 400  # supports up to this size are taken whole
_FAR = 2.0**53


def _offsets(ratio: float) -> Array:
    steps = np.unique(np.rint(ratio ** np.arange(0, np.log(_FAR) / np.log(ratio))))
    return np.concatenate([-steps[::-1], [0.0], steps])


_GRADED = _offsets(1.5)


@dataclass(frozen=True)
class Curve:
    """A node's own log weight at increasing integers ``points``; ``low`` and ``high`` bound its support."""

    points: Array
    values: Array
    low: float
    high: float

    @property
    def top(self) -> float:
        """Largest log weight."""
        return float(self.values.max())

    def window(self, drop: float) -> tuple[float, float]:
        """Return the integers around the mode outside which the curve is below ``top - drop``."""
        inside = np.flatnonzero(self.values >= self.top - drop)
        first, last = int(inside[0]), int(inside[-1])
        low = self.points[first - 1] + 1 if first > 0 else self.low
        high = self.points[last + 1] - 1 if last + 1 < len(self.points) else self.high
        return float(low), float(high)

    def is_concave(self) -> bool:
        """Whether no chord between the points seen lies above the curve: log-concave as far as was looked."""
        finite = np.isfinite(self.values)
        run = np.flatnonzero(finite)
        if not run.size or run[-1] - run[0] + 1 != run.size:
            return False
        x, y = self.points[finite], self.values[finite]
        if len(x) < 3:
            return True
        width = np.diff(x)
        slope = np.diff(y) / width
        noise = 1e-12 * (1.0 + np.maximum(np.abs(y[:-1]), np.abs(y[1:]))) / width
        return bool(np.all(np.diff(slope) <= noise[:-1] + noise[1:]))

    def is_peak(self) -> bool:
        """Whether both integer neighbours of the best point were seen, or lie off the support."""
        k = int(self.values.argmax())
        at = self.points[k]
        left = at <= self.low or (k > 0 and self.points[k - 1] == at - 1)
        right = at >= self.high or (k + 1 < len(self.points) and self.points[k + 1] == at + 1)
        return bool(left and right)

    def vertex(self) -> float:
        """Vertex of the parabola through the best point and its neighbours on the grid: exact for a Gaussian."""
        k = int(np.clip(self.values.argmax(), 1, len(self.points) - 2))
        x, y = self.points[k - 1 : k + 2], self.values[k - 1 : k + 2]
        if not np.all(np.isfinite(y)):
            return float(x[1])
        left, right = x[1] - x[0], x[2] - x[1]
        rise, fall = (y[1] - y[0]) / left, (y[2] - y[1]) / right
        curvature = fall - rise
        if curvature >= 0:
            return float(x[1])
        return float(x[1] + (rise * right + fall * left) / (left + right) / (-2 * curvature / (left + right)))


def climb(
    evaluate: Callable[[dict[int, Array]], dict[int, Array]],
    supports: dict[int, tuple[float, float]],
    hints: dict[int, list[int]],
) -> dict[int, Curve]:
    """Find the curves of all nodes in ``supports``, walking to each mode.

    Parameters
    ----------
    evaluate
        {node: increasing integers} -> {node: log weights}.
    supports
        {node: (lowest, highest)}, infinite where unbounded.
    hints
        {node: likely places of the mode}.
    """
    curves: dict[int, Curve] = {}
    centres: dict[int, list[float]] = {}
    for node, (low, high) in supports.items():
        ends = [e for e in (low, high) if np.isfinite(e)]
        centres[node] = (
            [float(h) for h in hints.get(node, [])][:6] + ends + ([] if hints.get(node) or ends else [0.0])
        )
    for _ in range(80):
        if not centres:
            break
        points = {n: _points(c, *supports[n]) for n, c in centres.items()}
        values = evaluate(points)
        for node in list(centres):
            curve = Curve(points[node], values[node], *supports[node])
            curves[node] = curve
            if curve.is_peak() or not np.isfinite(curve.top):
                del centres[node]
            else:
                best = float(curve.points[curve.values.argmax()])
                centres[node] = [best, float(np.rint(curve.vertex()))]
    return curves


def _points(centres: Iterable[float], low: float, high: float) -> Array:
    grid = np.concatenate([np.clip(c, low, high) + _GRADED for c in centres])
    return np.unique(grid[(grid >= low) & (grid <= high)])


def propagate(
    low: dict[int, float], high: dict[int, float], constraints: Iterable[Constraint], rounds: int = 60
) -> bool:
    """Narrow the intervals in place until they agree with ``t = u + c v``; False where one becomes empty."""
    constraints = list(constraints)
    for _ in range(rounds):
        changed = False
        for total, left, c, right in constraints:
            a, b = (c * low[right], c * high[right]) if c > 0 else (c * high[right], c * low[right])
            changed |= _clip(low, high, total, low[left] + a, high[left] + b)
            changed |= _clip(low, high, left, low[total] - b, high[total] - a)
            p, q = low[total] - high[left], high[total] - low[left]
            if c < 0:
                p, q = q, p
            changed |= _clip(low, high, right, np.ceil(p / c), np.floor(q / c))
        if not changed:
            break
        constraints.reverse()
    return all(low[n] <= high[n] for n in low)


def _clip(low: dict[int, float], high: dict[int, float], node: int, new_low: float, new_high: float) -> bool:
    changed = False
    if new_low > low[node]:
        low[node], changed = float(new_low), True
    if new_high < high[node]:
        high[node], changed = float(new_high), True
    return changed


def structural_supports(problem: Problem, base: Base) -> tuple[dict[int, float], dict[int, float], list[int]]:
    """Return what the distributions and the sums allow each node, before any window: lowest, highest, nodes left with nothing."""
    low = dict.fromkeys(problem.nodes, -np.inf)
    high = dict.fromkeys(problem.nodes, np.inf)
    for node in problem.nodes:
        kind = problem.structure.nodes[node].kind
        if kind in {"indicator", "zero"}:
            low[node], high[node] = 0.0, 1.0 if kind == "indicator" else 0.0
    for _ in range(20):
        before = (dict(low), dict(high))
        for node, (lower, upper) in problem.scalar_bounds.items():
            if lower is not None:
                low[node] = max(low[node], np.ceil(_extreme(problem, base, lower, low, high, -np.inf)))
            if upper is not None:
                high[node] = min(high[node], np.floor(_extreme(problem, base, upper, high, low, np.inf)))
        if not propagate(low, high, problem.constraints):
            return low, high, [n for n in problem.nodes if not low[n] <= high[n]]
        if before == (low, high):
            break
    return low, high, []


def _extreme(
    problem: Problem, base: Base, bound: Any, same: dict[int, float], other: dict[int, float], unknown: float
) -> float:
    """Extreme value of a bound: a number, or a number plus a form of other unknowns; ``unknown`` where one is out of sight."""
    value = float(base.outputs[bound.output].ravel()[bound.index])
    if bound.linear is not None:
        for i, c in bound.linear.coefs:
            node = problem.structure.node_of.get(((i, 1),))
            if node is None or node not in same:
                return unknown
            value += float(c) * (same[node] if c > 0 else other[node])
    return value


def union_of_windows(
    evaluate: Any, count: int, low: float, high: float, drop: float
) -> tuple[float, float] | None:
    """Climb on ``count`` curves at once; return the hull of their windows, None where one does not end."""
    centre = np.full(count, low if np.isfinite(low) else high if np.isfinite(high) else 0.0)
    for _ in range(80):
        points = np.clip(centre[:, None] + _GRADED, low, high)
        values = evaluate(points)
        best = points[np.arange(count), values.argmax(axis=1)]
        if np.array_equal(best, centre):
            break
        centre = best
    top = values.max(axis=1, keepdims=True)
    alive = np.isfinite(top[:, 0])
    if not alive.any():
        return None
    inside = (values >= top - drop)[alive]
    points = points[alive]
    middle = len(_GRADED) // 2
    left = np.where(~inside[:, :middle], points[:, :middle] + 1, -np.inf).max(axis=1)
    right = np.where(~inside[:, middle:], points[:, middle:] - 1, np.inf).min(axis=1)
    return float(max(left.min(), low)), float(min(right.max(), high))
