"""The law of the posterior log-odds over releases, as a sum of two independent discrete parts.

Given a truth, the posterior log-odds of a release are ``base + step`` where ``base`` depends on the counts
further up and ``step`` on a count of its own. Everything that is asked of the law (the mean of the posterior,
the chance of a decision, of a risk above a bound, quantiles) is a one-pass sum over ``base`` with a look-up
in the sorted ``step``: the product of the two is never formed.

It knows nothing of mechanisms or truths: :mod:`adversary.risk.expected` builds it. What the windows left out
is carried as ``left_out``, a bound on the probability that is missing.

Held to account by tests/risk/test_law.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LogOddsLaw", "average_over_steps", "mean_risk"]

_CHUNK = 1 << 13  # numbers worked on at once: they stay in the first caches


class _Grid(NamedTuple):
    """Chebyshev points of an interval of half-length ``half`` about 0, scaled to -1..1."""

    half: float
    nodes: NDArray[np.float64]
    to_coefficients: NDArray[np.float64]

    @classmethod
    def of(cls, half: float, count: int) -> _Grid:
        angle = np.pi * (np.arange(count) + 0.5) / count
        to_coefficients = np.cos(np.outer(angle, np.arange(count))) * (2.0 / count)
        to_coefficients[:, 0] *= 0.5
        return cls(half, np.cos(angle), to_coefficients)


_SHORT = _Grid.of(0.25, 15)  # many evaluations: short polynomials; proof of both in average_over_steps
_LONG = _Grid.of(1.0, 29)  # few evaluations: few points


@dataclass(frozen=True, eq=False)
class LogOddsLaw:
    """A discrete law of log-odds, ``base[i] + step[j]`` with probability ``base_weight[i] * step_weight[j]``.

    Parameters
    ----------
    base, base_weight
        Values and probabilities of the first part, shape (m,).
    step, step_weight
        Values in increasing order and probabilities of the second part, shape (s,).
    left_out
        Bound on the probability of releases outside the windows.

    Examples
    --------
    >>> law = LogOddsLaw(np.array([0.0]), np.array([1.0]), np.array([-1.0, 1.0]), np.array([0.25, 0.75]), 0.0)
    >>> law.above(0.0), law.quantile(0.5), round(law.mean_posterior(), 6)
    (0.75, 1.0, 0.615529)
    """

    base: NDArray[np.float64]
    base_weight: NDArray[np.float64]
    step: NDArray[np.float64]
    step_weight: NDArray[np.float64]
    left_out: float
    _tail: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tail = np.concatenate([np.cumsum(self.step_weight[::-1])[::-1], [0.0]])
        object.__setattr__(self, "_tail", tail)

    def above(self, level: float, tie_tolerance: float = 0.0) -> float:
        """Probability that the log-odds exceed ``level`` by more than ``tie_tolerance``."""
        where = np.searchsorted(self.step, level + tie_tolerance - self.base, side="right")
        return float(self.base_weight @ self._tail[where])

    def near(self, level: float, tie_tolerance: float) -> float:
        """Probability that the log-odds are within ``tie_tolerance`` of ``level``."""
        return self.above_and_near(level, tie_tolerance)[1]

    def above_and_near(self, level: float, tie_tolerance: float) -> tuple[float, float]:
        """Return :meth:`above` and :meth:`near` at the price of one of them.

        Parameters
        ----------
        level
            Log-odds.
        tie_tolerance
            Half the width of what counts as near.
        """
        first = np.searchsorted(self.step, level - tie_tolerance - self.base, side="left")
        last = np.searchsorted(self.step, level + tie_tolerance - self.base, side="right")
        beyond = self._tail[last]
        hit = last > first
        tied = self.base_weight[hit] @ (self._tail[first[hit]] - beyond[hit])
        return float(self.base_weight @ beyond), float(tied)

    def quantile(self, q: float) -> float:
        """Smallest attained value ``l`` with ``P[log-odds <= l] >= q``, not an interpolation."""
        low = float(self.base.min() + self.step[0]) - 1.0
        high = float(self.base.max() + self.step[-1]) + 1.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            if middle in (low, high) or high - low <= 1e-13 * max(1.0, abs(high)):
                break
            if 1.0 - self.above(middle) >= q:
                high = middle
            else:
                low = middle
        where = np.searchsorted(self.step, high - self.base, side="right") - 1
        inside = where >= 0
        return float(np.max(self.base[inside] + self.step[where[inside]]))

    def mean_posterior(self) -> float:
        """Mean of ``expit(log-odds)``."""
        return mean_risk(self, 0.0) * 0.5

    def atoms(self, limit: int = 1_000_000) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All values with their probabilities, sorted; equal values are not merged.

        Parameters
        ----------
        limit
            The largest number of atoms to form; more are refused (``ValueError``): use :meth:`above` and
            :meth:`quantile`.
        """
        if self.base.size * self.step.size > limit:
            msg = (
                f"the law has {self.base.size * self.step.size} atoms, more than {limit}: "
                "raise limit or ask for quantiles"
            )
            raise ValueError(msg)
        value = (self.base[:, None] + self.step).ravel()
        weight = (self.base_weight[:, None] * self.step_weight).ravel()
        order = np.argsort(value, kind="stable")
        return value[order], weight[order]


def mean_risk(law: LogOddsLaw, prior: float) -> float:
    """Mean of ``expit(log-odds) / expit(prior)``: no loss of digits for a tiny prior.

    Parameters
    ----------
    law
        Law of the posterior log-odds.
    prior
        Prior log-odds.

    Examples
    --------
    >>> one = np.array([1.0])
    >>> mean_risk(LogOddsLaw(np.array([-800.0]), one, np.array([1.0]), one, 0.0), -800.0)
    2.718281828459045
    """
    return float(law.base_weight @ conditional_risk(law, prior))


def conditional_risk(law: LogOddsLaw, prior: float) -> NDArray[np.float64]:
    """``E[expit(base + step) / expit(prior) | base]`` for every value of ``base``."""
    scale = np.logaddexp(0.0, -prior) - np.logaddexp(0.0, -law.base)
    return np.asarray(np.exp(scale) * average_over_steps(law.base, law.step, law.step_weight))


def average_over_steps(
    base: NDArray[np.float64], step: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``H(c) = E[expit(c + step)] / expit(c)`` at c = ``base``, steps of some ``weight``; a sum, or a polynomial of proven error.

    When there are many more values of ``c`` than a table needs, H is interpolated at n + 1 Chebyshev points
    on intervals of half-length h. With ``|1 + exp(-z)| >= (1 + exp(-Re z)) cos(Im z / 2)`` each summand is at
    most ``1/cos 1`` times its value at the real part on the ellipse that reaches ``|Im z| = 2``; on the real
    line ``|d log H / dc| <= 1``, so ``|H(z)| <= exp(sqrt(h^2 + 4) + h) / cos(1) * H(c)`` there for every c of
    the interval; the ellipse has parameter ``r = (2 + sqrt(h^2 + 4)) / h``, and the interpolation is off by
    at most ``4 exp(sqrt(h^2 + 4) + h) / cos(1) / ((r - 1) r^n) * H(c)``: below 2e-16 for h = 1, n = 28 and
    for h = 1/4, n = 14.
    """
    low = float(base.min())
    span = (float(base.max()) - low) / (2.0 * _SHORT.half)
    if base.size * step.size < 20_000 or span > 1e6:
        return _direct(base, step, weight)
    piece = (base - low).astype(np.float64)
    piece *= 0.5 / _SHORT.half
    where = piece.astype(np.int64)
    used = np.flatnonzero(np.bincount(where))
    nodes, to_coefficients = _SHORT.nodes, _SHORT.to_coefficients
    if base.size <= 2 * used.size * nodes.size:
        return _direct(base, step, weight)
    centre = low + _SHORT.half * (2.0 * used + 1.0)
    points = (centre[:, None] + _SHORT.half * nodes).ravel()
    table = _direct(points, step, weight).reshape(-1, nodes.size) @ to_coefficients
    row = np.zeros(int(used[-1]) + 1, dtype=np.int64)
    row[used] = np.arange(used.size)
    out = np.empty(base.size)
    for start in range(0, base.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        # place within the interval, in -1..1: twice the fraction less one
        place = 2.0 * (piece[part] - where[part]) - 1.0
        out[part] = _clenshaw(table, row[where[part]], place)
    return out


def _direct(
    base: NDArray[np.float64], step: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum directly, in the form that neither overflows nor cancels: (1 + e^-c) / (1 + e^-(c+s))."""
    out = np.empty(base.size)
    rows = max(1, (1 << 16) // max(step.size, 1))
    for start in range(0, base.size, rows):
        c = base[start : start + rows, None]
        moved = c + step
        with np.errstate(over="ignore", under="ignore"):
            small, moved_small = np.exp(-np.abs(c)), np.exp(-np.abs(moved))
            ratio = (1.0 + small) / (1.0 + moved_small)
            # exp(max(-c, 0) - max(-(c+s), 0)) restores the factor that was taken out of both
            ratio *= np.exp(np.maximum(-c, 0.0) - np.maximum(-moved, 0.0))
        out[start : start + rows] = ratio @ weight
    return out


def _clenshaw(
    table: NDArray[np.float64], piece: NDArray[np.int64], t: NDArray[np.float64]
) -> NDArray[np.float64]:
    ahead = np.zeros_like(t)
    further = np.zeros_like(t)
    twice = 2.0 * t
    for k in range(table.shape[1] - 1, 0, -1):
        ahead, further = table[piece, k] + twice * ahead - further, ahead
    return np.asarray(table[piece, 0] + t * ahead - further)


def average_in_turn(start: float, steps: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float:
    """``E[expit(start + s_1 + ... + s_l)] / expit(start)`` for independent steps, one level at a time.

    Averaging keeps the bound of :func:`average_over_steps`, so each level adds at most 2e-16 of relative
    error.
    """
    nodes, to_coefficients = _LONG.nodes, _LONG.to_coefficients
    reach_low = np.cumsum([0.0] + [float(s[0]) for s, _ in steps])
    reach_high = np.cumsum([0.0] + [float(s[-1]) for s, _ in steps])
    table: NDArray[np.float64] | None = None
    low = 0.0
    for level in range(len(steps) - 1, -1, -1):
        step, weight = steps[level]
        first, last = start + reach_low[level], start + reach_high[level]
        pieces = int((last - first) // 2.0) + 1
        points = (
            np.array([start])
            if level == 0
            else (first + 1.0 + 2.0 * np.arange(pieces)[:, None] + nodes).ravel()
        )
        values = _direct(points, step, weight) if table is None else _moved(points, step, weight, table, low)
        if level == 0:
            return float(values[0])
        table, low = values.reshape(-1, nodes.size) @ to_coefficients, first
    return 1.0


def _moved(
    points: NDArray[np.float64],
    step: NDArray[np.float64],
    weight: NDArray[np.float64],
    table: NDArray[np.float64],
    low: float,
) -> NDArray[np.float64]:
    """Average of a tabulated H over one more step: E[H(c+s) expit(c+s)] / expit(c)."""
    out = np.zeros(points.size)
    for s, w in zip(step, weight, strict=True):
        moved = points + s
        piece = np.clip(((moved - low) * 0.5).astype(np.int64), 0, table.shape[0] - 1)
        inner = _clenshaw(table, piece, moved - (low + 1.0 + 2.0 * piece))
        out += w * np.exp(np.logaddexp(0.0, -points) - np.logaddexp(0.0, -moved)) * inner
    return out
