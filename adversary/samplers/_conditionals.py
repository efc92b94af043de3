"""Full conditionals of the path, (3.8), (3.9) and their like: tables with a proved bound on what is cut off.

What it is: weights, modes, windows. What it is not: the sampler (:mod:`adversary.samplers.gibbs`). NumPy
only.

Held to account by ``tests/samplers/test_gibbs.py``. Sources: Kazan & Reiter, arXiv 2204.04253, (3.8), (3.9),
S3.
"""

from __future__ import annotations

import math

import numpy as np

from adversary.errors import ModelError, UnsupportedModelError
from adversary.samplers._path import Chain, FloatArray, IntArray, LogMass, Rest, pooled

__all__ = ["expit", "log_odds_x1", "table"]

_TAIL = 1e-16  # mass that a conditional's grid may lose, relative to what it keeps
_WIDEST = 2**22  # cells of a grid beyond which a conditional is refused rather than ground through


def _gaussian(seen: tuple[tuple[int, float], ...], k: IntArray, pivot: int) -> FloatArray:
    """Log weight of the counts at k minus that at the pivot: differences of squares, in integers first."""
    total = np.zeros(k.shape)
    for value, sigma2 in seen:
        if sigma2 > 0:
            total += (k - pivot) * (2 * value - k - pivot).astype(np.float64) / (2 * sigma2)
        else:
            total += np.where(k == value, 0.0, -np.inf)
    return total


def log_odds_x1(chain: Chain, above: int | None, *, constrained: bool = True) -> float:
    """Log-odds of X1 = c + 1 given X2: (3.8); ``constrained=False`` leaves 1[k1 <= k2] out (literal)."""
    c = chain.known
    total = chain.prior_log_odds
    for value, sigma2 in chain.seen[0]:
        if sigma2 > 0:
            total += (2 * (value - c) - 1) / (2 * sigma2)
        elif value in (c, c + 1):
            total += math.inf if value == c + 1 else -math.inf
        else:
            msg = (
                f"the exact count {value} is neither {c} nor {c + 1}, which is all that the adversary holds "
                "possible"
            )
            raise ModelError(msg, value)
    if above is None or not chain.rests:
        return _sound(total, chain)
    rest = chain.rests[0]
    y = np.array([above - c, above - c - 1], dtype=np.int64)
    if rest.value is not None and rest.sigma2 > 0 and pooled(rest.sigma2, rest.groups):
        total += (2 * (above - c - rest.value) - 1) / (2 * rest.sigma2 * rest.groups)
    elif rest.value is not None:
        noise = rest.log_noise(y)
        total += float(noise[1] - noise[0])
    if constrained:
        inside = (y >= rest.low) & (y <= (np.inf if rest.high is None else rest.high))
        if not inside.any():
            return _sound(math.nan, chain)
        if not inside.all():
            return _sound(total + (math.inf if inside[1] else -math.inf), chain)
        mass = rest.log_mass(y)
        total += float(mass[1] - mass[0])
    return _sound(total, chain)


def _sound(log_odds: float, chain: Chain) -> float:
    """Refuse log-odds that are no number: both counts are excluded."""
    if math.isnan(log_odds):
        msg = (
            f"neither {chain.known} nor {chain.known + 1} is left for the first count: what the "
            "adversary knows "
            "and sees cannot all be true"
        )
        raise ModelError(msg, chain.known)
    return log_odds


def expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def table(chain: Chain, level: int, below: int, above: int | None) -> tuple[IntArray, FloatArray]:
    """Return (support, probabilities) of X_level (0-based, >= 1) given its neighbours: (3.9) and its like."""
    under = chain.rests[level - 1]
    over = chain.rests[level] if above is not None else None
    low = below + under.low
    highs = [] if under.high is None else [below + under.high]
    if over is not None and above is not None:
        highs.append(above - over.low)
        low = low if over.high is None else max(low, above - over.high)
    exact = [value for value, sigma2 in chain.seen[level] if sigma2 == 0]
    high = min(highs + exact) if highs or exact else None
    low = max([low, *exact])
    pivot = _centre(chain.seen[level], under, over, below, above, low, high)

    def weigh(k: IntArray, *, envelope: bool = False) -> FloatArray:
        total = _gaussian(chain.seen[level], k, pivot) + under.log_noise(k - below)
        total += (under.envelope if envelope else under.log_mass)(k - below)
        if over is not None and above is not None:
            total += over.log_noise(above - k) + (over.envelope if envelope else over.log_mass)(above - k)
        return np.asarray(total, dtype=np.float64)

    return _window(weigh, lambda k: weigh(k, envelope=True), low, high, pivot)


def _centre(
    seen: tuple[tuple[int, float], ...],
    under: Rest,
    over: Rest | None,
    below: int,
    above: int | None,
    low: int,
    high: int | None,
) -> int:
    """Guess the mode from the Gaussian parts alone; the search starts there."""
    if high is not None and high < low:
        msg = (
            f"no count between {low} and {high} is left: what the adversary knows and sees cannot all be true"
        )
        raise ModelError(msg, (low, high))
    parts = [(v, s) for v, s in seen if s > 0]
    if under.value is not None and under.sigma2 > 0:
        parts.append((below + under.value, under.sigma2 * under.groups))
    if over is not None and above is not None and over.value is not None and over.sigma2 > 0:
        parts.append((above - over.value, over.sigma2 * over.groups))
    if not parts:
        return low
    weight = sum(1 / s for _, s in parts)
    centre = low + round(sum((v - low) / s for v, s in parts) / weight)
    return max(low, centre if high is None else min(high, centre))


def _window(
    weigh: LogMass, envelope: LogMass, low: int, high: int | None, start: int
) -> tuple[IntArray, FloatArray]:
    """Normalise weights on the smallest doubled window about the mode whose tails are proved to hold < 1e-16.

    The envelope is log-concave, so its ratios fall as one walks out: beyond the edge lies at most w r / (1 -
    r).
    """
    steps = np.r_[0, 2 ** np.arange(50), -(2 ** np.arange(50))].astype(np.int64)
    mode = start
    for _ in range(200):
        k = mode + steps
        k = k[(k >= low) & (k <= (2**62 if high is None else high))]
        best = int(k[np.argmax(envelope(k))])
        if best == mode:
            break
        mode = best
    half = 16
    while half <= _WIDEST:
        a, b = max(low, mode - half), mode + half if high is None else min(high, mode + half)
        support = np.arange(a, b + 1, dtype=np.int64)
        log_w, log_e = weigh(support), envelope(support)
        top = float(log_w.max())
        if math.isfinite(top):
            w = np.exp(log_w - top)
            tails = (0.0 if a == low else _tail(log_e[0], log_e[1], top)) + (
                0.0 if b == high else _tail(log_e[-1], log_e[-2], top)
            )
            if tails <= _TAIL * w.sum():
                return support, w / w.sum()
        elif a == low and b == high:
            msg = (
                f"every count between {low} and {high} is impossible: what the adversary knows and sees "
                "cannot all be true"
            )
            raise ModelError(msg, (low, high))
        half *= 2
    msg = (
        f"a conditional needs more than {_WIDEST} counts about {mode}: the noise is too wide for the "
        "reference, use sampler='exact'"
    )
    raise UnsupportedModelError(msg, mode)


def _tail(edge: float, inner: float, top: float) -> float:
    ratio = math.exp(min(edge - inner, 0.0)) if math.isfinite(edge) else 0.0
    return (
        0.0
        if ratio == 0
        else math.inf
        if ratio == 1
        else math.exp(min(edge - top, 700.0)) * ratio / (1 - ratio)
    )
