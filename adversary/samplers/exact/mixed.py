"""One or two continuous unknowns next to the integers: the integers summed out exactly, the rest on a trapezoid grid.

What it is: at every point of a grid over the continuous unknowns (on PyMC's unconstrained scale, where a smooth density
that dies out on both sides makes the trapezoid rule converge faster than any power of the step) the discrete part is
answered exactly; the answers are averaged with the weights. The step is halved until the answer stands, and the last move
is reported as ``cut_off_bound``, with ``bound_proven`` False. What it is not: for more than two continuous scalars; those
are refused with ``sampler="mcmc"``. It supposes one mode in the continuous unknowns.

Draws of continuous unknowns are grid points.

Held to account by ``tests/samplers/exact/test_mixed.py``. Source: Trefethen & Weideman (2014), sec. 5.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor
from pymc.vartypes import discrete_types

from adversary.errors import ModelError, UnsupportedModelError
from adversary.samplers.exact.answer import Pmf
from adversary.samplers.exact.compiled import ExactModel
from adversary.samplers.exact.linear import python_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["MixedAnswer", "MixedModel"]

Array = Any
_DROP = 32.0  # log weight below the top at which the grid ends
_NEGLIGIBLE = 38.0
_FINEST = {1: 11, 2: 7}  # most halvings: 2^11 cells on a line, 2^7 on a side
_GIVE_UP = 1e-5


@dataclass(frozen=True)
class Point:
    """One grid point: unconstrained values, log weight, the exact answer of the discrete part there."""

    theta: tuple[float, ...]
    log_w: float
    payload: Any


class MixedModel:
    """A model with one or two continuous scalars among its unknowns; see the module.

    Parameters
    ----------
    model : pymc.Model
        The declared model.
    target
        A discrete unknown or an integer Deterministic.
    inputs
        As for :func:`~adversary.samplers.exact.compile_exact`.
    """

    def __init__(self, model: Any, target: str, inputs: tuple[Any, ...] = ()) -> None:
        self.model, self.target = model, target
        start = model.initial_point()
        self._continuous = [
            rv for rv in model.free_RVs if model.rvs_to_values[rv].dtype not in discrete_types
        ]
        values = [model.rvs_to_values[rv] for rv in self._continuous]
        self._shared = [
            pytensor.shared(np.asarray(start[v.name], dtype=v.dtype), name=v.name) for v in values
        ]
        self._start = np.concatenate([np.ravel(start[v.name]) for v in values]).astype(float)
        if self._start.size > 2:
            names = ", ".join(rv.name for rv in self._continuous)
            msg = (
                f"{names} make {self._start.size} continuous scalars and the exact engine integrates over two at most: "
                'fix some of them, or use sampler="mcmc"'
            )
            raise UnsupportedModelError(msg, names)
        self.inner = ExactModel(model, target, inputs, dict(zip(values, self._shared, strict=True)))
        for term in self.inner.structure.terms:
            if term.kind == "hyper" and term.cuts:
                msg = (
                    f"the prior of {term.name} is continuous and depends on a discrete unknown: "
                    'turn the dependence round, or use sampler="mcmc"'
                )
                raise UnsupportedModelError(msg, term.name)
        self._backward: Any = None

    def _set(self, theta: Sequence[float]) -> None:
        first = 0
        for shared in self._shared:
            value = shared.get_value(borrow=True)
            size = int(np.size(value))
            shared.set_value(np.reshape(theta[first : first + size], np.shape(value)).astype(value.dtype))
            first += size

    def solve(self, *, tolerance: float = 1e-12, accuracy: float | None = None) -> MixedAnswer:
        """Answer on the current values of the model's other shared variables.

        Parameters
        ----------
        tolerance
            For the discrete part at each grid point, as in :meth:`ExactModel.solve`.
        accuracy
            The step is halved until neither a probability of the target nor the evidence (relatively) moves by more than
            this; 1e-10 for one continuous scalar, 1e-6 for two if not given (the last move is usually far above the error).

        Raises
        ------
        UnsupportedModelError
            Where the integral over the continuous unknowns does not settle.
        """
        accuracy = accuracy or (1e-10 if self._start.size == 1 else 1e-6)

        def posterior(theta: tuple[float, ...]) -> tuple[float, Any]:
            self._set(theta)
            try:
                answer = self.inner.solve(tolerance=tolerance, with_prior=False)
            except ModelError:
                if theta == tuple(self._start):
                    raise
                return -np.inf, None  # the facts are impossible under these continuous values
            return answer.log_weight, answer

        def before(theta: tuple[float, ...]) -> tuple[float, Any]:
            self._set(theta)
            return self.inner.prior_at(tolerance)

        points, log_weight, moved = _integrate(posterior, lambda a: a.posterior, self._start, accuracy)
        prior, prior_odds = None, None
        if self.inner.has_prior:
            prior_points, _, prior_moved = _integrate(before, lambda a: a[0], self._start, accuracy)
            prior = _mixture([(p.log_w, p.payload[0]) for p in prior_points])
            prior_odds, moved = _odds(prior), max(moved, prior_moved)
        target = _mixture([(p.log_w, p.payload.posterior) for p in points])
        first = points[0].payload
        return MixedAnswer(
            target=self.target,
            posterior=target,
            prior=prior,
            log_odds=_odds(target),
            prior_log_odds=prior_odds,
            log_evidence=None if first.log_evidence is None else log_weight,
            log_weight=log_weight,
            cut_off_bound=max([moved, *(p.payload.cut_off_bound for p in points)]),
            bound_proven=False,
            dropped=first.dropped,
            points=tuple(points),
            _names=tuple(rv.name for rv in self._continuous),
            _constrained=self._constrained,
        )

    def _constrained(self, theta: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Map rows of unconstrained values to the continuous unknowns' own scale."""
        if self._backward is None:
            graphs = self.model.replace_rvs_by_values(self._continuous)
            values = [self.model.rvs_to_values[rv] for rv in self._continuous]
            self._backward = pytensor.function(values, graphs, mode=python_mode(), on_unused_input="ignore")
        shapes = [np.shape(s.get_value(borrow=True)) for s in self._shared]
        sizes = [int(np.prod(s, dtype=int)) for s in shapes]
        ends = np.cumsum([0, *sizes])
        rows: list[list[Array]] = [[] for _ in shapes]
        for row in theta:
            parts = [row[a:b].reshape(s) for a, b, s in zip(ends, ends[1:], shapes, strict=False)]
            for out, value in zip(rows, self._backward(*parts), strict=True):
                out.append(value)
        return {rv.name: np.stack(r) for rv, r in zip(self._continuous, rows, strict=True)}


@dataclass(frozen=True)
class MixedAnswer:
    """Posterior of an integer target with continuous unknowns integrated out; attributes as in :class:`ExactAnswer`.

    ``points`` are the grid points that carry weight, each with the exact answer of the discrete part there.
    """

    target: str
    posterior: Pmf
    prior: Pmf | None
    log_odds: float | None
    prior_log_odds: float | None
    log_evidence: float | None
    log_weight: float
    cut_off_bound: float
    bound_proven: bool
    dropped: tuple[str, ...]
    points: tuple[Point, ...] = field(repr=False)
    _names: tuple[str, ...] = field(repr=False)
    _constrained: Callable[[Any], dict[str, Any]] = field(repr=False)

    def marginal(self, name: str, index: tuple[int, ...] | int = ()) -> Pmf:
        """Return the posterior of one entry of a discrete unknown; see :meth:`ExactAnswer.marginal`."""
        if name in self._names:
            msg = f"{name} is continuous: take its posterior from draws, or from points"
            raise ModelError(msg, name)
        return _mixture([(p.log_w, p.payload.marginal(name, index)) for p in self.points])

    def joint(
        self, names: Sequence[str | tuple[str, tuple[int, ...] | int]]
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
        """Return the joint table of one to three entries; see :meth:`ExactAnswer.joint`."""
        tables = [(p.log_w, *p.payload.joint(names)) for p in self.points]
        supports = [
            np.unique(np.concatenate([s[axis] for _, s, _ in tables])) for axis in range(len(tables[0][1]))
        ]
        total = np.zeros([s.size for s in supports])
        for log_w, own, table in tables:
            where = [np.searchsorted(s, o) for s, o in zip(supports, own, strict=True)]
            total[np.ix_(*where)] += np.exp(log_w + table)
        with np.errstate(divide="ignore"):
            return supports, np.log(total)

    def draw(
        self, n: int, seed: int | np.random.SeedSequence | np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        """Draw n times from the joint; continuous unknowns take the values of the grid (:meth:`ExactAnswer.draw`)."""
        rng = np.random.default_rng(seed)
        weights = np.exp([p.log_w for p in self.points])
        which = rng.choice(len(weights), size=n, p=weights / weights.sum())
        out: dict[str, NDArray[Any]] = {}
        for k in np.unique(which):
            rows = np.flatnonzero(which == k)
            for name, value in self.points[k].payload.draw(rows.size, rng).items():
                if name not in out:
                    out[name] = np.empty((n, *value.shape[1:]), dtype=value.dtype)
                out[name][rows] = value
        out.update(self._constrained(np.array([self.points[k].theta for k in which])))
        return out


# ---------------------------------------------------------------------- integration
def _integrate(
    evaluate: Callable[[tuple[float, ...]], tuple[float, Any]],
    pmf_of: Callable[[Any], Pmf],
    start: NDArray[np.float64],
    accuracy: float,
) -> tuple[list[Point], float, float]:
    """Trapezoid rule with halving; returns points with normalised log weights, the log integral, the last move."""
    seen: dict[tuple[float, ...], Point] = {}

    def at(theta: Sequence[float]) -> Point:
        key = tuple(float(t) for t in theta)
        if key not in seen:
            seen[key] = Point(key, *evaluate(key))
        return seen[key]

    low, high = _ranges(at, start)
    pmf, log_integral, moved = None, -np.inf, np.inf
    for level in range(5, _FINEST[len(start)] + 1):
        low, high, points = _grid(at, low, high, level)
        top = max(p.log_w for p in points)
        step = float(np.prod((high - low) / 2**level))
        new_integral = float(np.log(sum(np.exp(p.log_w - top) for p in points) * step) + top)
        kept = [p for p in points if p.log_w > top - _NEGLIGIBLE + 8]
        new_pmf = _mixture([(p.log_w, pmf_of(p.payload)) for p in kept])
        if pmf is not None:
            moved = max(_difference(pmf, new_pmf), abs(float(np.expm1(new_integral - log_integral))))
        pmf, log_integral = new_pmf, new_integral
        if moved <= accuracy:
            break
    if moved > _GIVE_UP:
        msg = (
            f"the integral over the continuous unknowns still moves by {moved:.1g} at the finest grid: "
            'give smoother priors, or use sampler="mcmc"'
        )
        raise UnsupportedModelError(msg, moved)
    total = np.log(sum(np.exp(p.log_w - top) for p in kept)) + top
    return [Point(p.theta, float(p.log_w - total), p.payload) for p in kept], log_integral, moved


def _ranges(at: Callable[[Sequence[float]], Point], start: NDArray[np.float64]) -> tuple[Array, Array]:
    """Climb to the mode axis by axis, then walk out until the weight is ``_DROP`` below it."""
    centre = start.copy()
    low, high = centre.copy(), centre.copy()
    for _ in range(12):
        moved = False
        for axis in range(len(centre)):
            best, (low[axis], high[axis]) = _line(at, centre, axis)
            moved |= abs(best - centre[axis]) > 0.05 * (high[axis] - low[axis])
            centre[axis] = best
        if not moved:
            return low, high
    return low, high


def _line(
    at: Callable[[Sequence[float]], Point], centre: NDArray[np.float64], axis: int
) -> tuple[float, tuple[float, float]]:
    """Return the best place on one axis and the ends at which the weight has dropped enough."""

    def value(x: float) -> float:
        theta = centre.copy()
        theta[axis] = x
        return at(theta.tolist()).log_w

    best, step = float(centre[axis]), 1.0
    while step > 0.02:
        neighbours = {x: value(x) for x in (best - step, best, best + step)}
        winner = max(neighbours, key=lambda x: (neighbours[x], -abs(x - best)))
        if winner == best:
            step /= 2.0
        else:
            best, step = winner, step * 1.5
        if abs(best) > 500.0:
            msg = (
                f"the density of a continuous unknown keeps rising beyond {best:.3g} on its unconstrained scale: "
                "give it a proper prior"
            )
            raise ModelError(msg, best)
    top = value(best)
    ends = []
    for sign in (-1.0, 1.0):
        reach = 0.1
        while value(best + sign * reach) > top - _DROP:
            reach *= 1.6
            if reach > 2000.0:
                msg = "a continuous unknown has no end on its unconstrained scale: give it a proper prior with lighter tails"
                raise ModelError(msg, reach)
        ends.append(best + sign * reach)
    return best, (ends[0], ends[1])


def _grid(
    at: Callable[[Sequence[float]], Point], low: Array, high: Array, level: int
) -> tuple[Array, Array, list[Point]]:
    """Evaluate a regular grid, widened where its edge still carries weight (correlated unknowns)."""
    for _ in range(20):
        axes = [low[k] + (high[k] - low[k]) * np.arange(2**level + 1) / 2**level for k in range(len(low))]
        table = _fill(at, axes, level)
        top = max(p.log_w for p in table.values())
        widened = False
        for k in range(len(low)):
            for end in (0, 2**level):
                edge = max((p.log_w for i, p in table.items() if i[k] == end), default=-np.inf)
                if edge > top - _DROP + 8 and len(low) > 1:
                    span = high[k] - low[k]
                    low[k], high[k] = (
                        (low[k] - 0.5 * span, high[k]) if end == 0 else (low[k], high[k] + 0.5 * span)
                    )
                    widened = True
        if not widened:
            break
    return low, high, list(table.values())


def _fill(
    at: Callable[[Sequence[float]], Point], axes: list[Array], level: int
) -> dict[tuple[int, ...], Point]:
    """Evaluate coarse points first and refine only near those that carry weight."""
    table: dict[tuple[int, ...], Point] = {}
    first = min(4, level)
    for fine in range(first, level + 1):
        stride = 2 ** (level - fine)
        top = max((p.log_w for p in table.values()), default=-np.inf)
        for index in itertools.product(range(0, 2**level + 1, stride), repeat=len(axes)):
            if index in table:
                continue
            if fine > first and not _near(table, index, 2 * stride, top):
                continue
            table[index] = at([axis[i] for axis, i in zip(axes, index, strict=True)])
    return table


def _near(table: dict[tuple[int, ...], Point], index: tuple[int, ...], stride: int, top: float) -> bool:
    """Whether a coarser neighbour of the point carries weight."""
    choices = [{i - i % stride, i - i % stride + (stride if i % stride else 0)} for i in index]
    around = [table[n].log_w for n in itertools.product(*choices) if n in table]
    return any(w > top - _NEGLIGIBLE for w in around)


def _mixture(parts: Sequence[tuple[float, Pmf]]) -> Pmf:
    """Average pmfs with log weights, in log space, and normalise."""
    low = min(int(p.support[0]) for _, p in parts)
    high = max(int(p.support[-1]) for _, p in parts)
    support = (
        np.unique(np.concatenate([p.support for _, p in parts]))
        if high - low > 10**6
        else np.arange(low, high + 1)
    )
    table = np.full((len(parts), support.size), -np.inf)
    for row, (log_w, pmf) in zip(table, parts, strict=True):
        row[np.searchsorted(support, pmf.support)] = log_w + pmf.log_p
    top = table.max(axis=0)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        log_p = np.log(np.exp(table - shift).sum(axis=0)) + shift
    total = np.log(np.exp(log_p - log_p.max()).sum()) + log_p.max()
    possible = {int(s) for _, p in parts for s in p.support}
    keep = np.array([int(s) in possible for s in support])
    return Pmf(support[keep], (log_p - total)[keep])


def _odds(pmf: Pmf) -> float | None:
    if pmf.support.tolist() != [0, 1]:
        return None
    with np.errstate(invalid="ignore"):
        return float(pmf.log_p[1] - pmf.log_p[0])


def _difference(first: Pmf, second: Pmf) -> float:
    a = dict(zip(first.support.tolist(), first.p.tolist(), strict=True))
    b = dict(zip(second.support.tolist(), second.p.tolist(), strict=True))
    return float(max(abs(a.get(k, 0.0) - b.get(k, 0.0)) for k in {*a, *b}))
