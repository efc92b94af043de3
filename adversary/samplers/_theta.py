"""One-sided theta sums: what the hierarchy adds to the log-odds of two levels.

Two levels, with m people known, e = x1* - m, u = x2* - m, v = y1*, noise parameters s1, s2, s3, and
tau = 1/s2 + 1/s3, mu = (u/s2 + v/s3)/tau: y people elsewhere have a weight that is a Gaussian kernel of
precision tau, about mu if the target is absent and about mu - w, w = 1/(s2 tau), if she is present.

    log-odds = prior + (2e - 1)/(2 s1) + (2(u - v) - 1)/(2(s2 + s3)) + T(mu - w) - T(mu)
    T(mu) = log sum_{y >= 0} exp(-tau (y - mu)^2 / 2)

T is taken, with what is left out given relative to the sum:

* tau <= 1/2 and mu - w more than 8.6 standard deviations above zero: both T are one constant. Left out: the
  theta term 2 exp(-2 pi^2/tau) <= 1.5e-17 and a normal tail of 4e-18.
* tau <= 1/2, mu > 0: that constant less the missing tail y < 0.
* mu <= 0: the largest term, y = 0, is divided out of both sums; two tails are left. The third term of the
  log-odds is not formed here, because it would cancel against T (a sum y1* far below zero would cost all
  digits).
* tau > 1/2, mu > 0: sums to both sides of the largest term, until terms are below exp(-37.5).
* A tail sum_{y >= 0} exp(-a y - tau y^2/2) with tau <= 1/20 and a <= 1/2: erfcx and eight Euler-Maclaurin
  terms. Left out: at most 2 zeta(16)/(2 pi)^16 times the integral of the sixteenth derivative's size, below
  1e-14 (a test integrates it; measured 2e-15).
* Any other tail: term by term, at most 78 terms. The terms are log-concave, so what is left out is at most
  t r/(1 - r), t the last term and r its ratio to the one before: below 1e-16.

Counts are subtracted as integers before any float is made, and mu is measured from the nearer of the two
counts. The error of the log-odds is a few units in the last place of the largest of its terms.

Held to account, with `closed.py`, by tests/samplers/test_closed.py.

Sources: Kazan & Reiter (arXiv 2204.04253) section 3.2; Euler-Maclaurin remainder: NIST DLMF 2.10.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_CUT = 37.5  # exp(-37.5) = 5e-17: a term this far below the largest is not seen in a double
_FAR = 8.6  # standard deviations: the normal tail beyond is 4e-18
_HOPELESS = 1e7  # logs of this size carry 1e-9 of rounding
_SHARP, _SMOOTH, _SLOPE = 0.5, 0.05, 0.5
_BERNOULLI = (  # B_2k/(2k)!, k = 1..8
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
)


def log_ratio(excess: Integers, sigma2: Floats) -> Floats:
    """Log-likelihood ratio of one more person: (2 excess - 1)/(2 sigma2)."""
    return np.asarray((2.0 * excess - 1.0) / (2.0 * sigma2))


def pick(values: Any, at: NDArray[Any]) -> Any:
    """Take entries of an array; a number stands for all entries."""
    return values[at] if np.ndim(values) else values


# ------------------------------------------------------------------------------------------------------ the
# work


def hierarchy(u: Integers, v: Integers, s2: Any, s3: Any, lower: bool) -> Floats:
    """Return what x2* and y1* add to the log-odds; u = x2* - known, v = y1*."""
    i2, i3 = 1.0 / s2, 1.0 / s3
    tau = i2 + i3
    shift = u * i2 + v * i3  # tau mu
    sharp = np.broadcast_to(tau > _SHARP, u.shape)
    out = (2.0 * (u - v) - 1.0) / (2.0 * (s2 + s3))
    below = (shift <= 0.0) if lower else np.zeros(u.shape, dtype=bool)
    if lower:
        near = np.flatnonzero(~(below | sharp | (shift - i2 > _FAR * np.sqrt(tau))))
        if near.size:
            t, h, less = pick(tau, near), shift[near], pick(i2, near)
            out[near] += _missing(t + h - less, t) - _missing(t + h, t)
        at = np.flatnonzero(below)
        if at.size:
            t, h, less = pick(tau, at), shift[at], pick(i2, at)
            out[at] = log_ratio(u[at], pick(s2, at)) + np.log(_tail(less - h, t)) - np.log(_tail(-h, t))
    at = np.flatnonzero(sharp & ~below)
    if at.size:
        out[at] = _both_sides(u[at], v[at], pick(i2, at), pick(i3, at), lower)
    return np.asarray(out)


def _missing(slope: Floats, tau: Any) -> Floats:
    """Return log(1 - share of the full theta sum that lies at y < 0), slope = tau (1 + mu)."""
    root = np.sqrt(tau)
    share = np.exp(-0.5 * (slope / root) ** 2) * _tail(slope, tau) * (root / math.sqrt(2.0 * math.pi))
    return np.asarray(np.log1p(-share))


def _tail(slope: Floats, tau: Any) -> Floats:
    """Return sum_{y >= 0} exp(-slope y - tau y^2/2), slope >= 0."""
    smooth = (slope <= _SLOPE) & (tau <= _SMOOTH)
    if not smooth.any():
        return _direct(slope, tau)
    out = np.empty_like(slope)
    at = np.flatnonzero(smooth)
    out[at] = _euler_maclaurin(slope[at], pick(tau, at))
    at = np.flatnonzero(~smooth)
    if at.size:
        out[at] = _direct(slope[at], pick(tau, at))
    return out


def _direct(slope: Floats, tau: Any) -> Floats:
    """Term by term; the ratio of neighbours falls by exp(-tau) each step."""
    terms = math.ceil(float(np.max(2.0 * _CUT / (slope + np.sqrt(slope * slope + 2.0 * tau * _CUT))))) + 1
    ratio, fall = np.exp(-slope - 0.5 * tau), np.exp(-tau)
    term, total = ratio.copy(), 1.0 + ratio
    for _ in range(terms):
        ratio *= fall
        term *= ratio
        total += term
    return np.asarray(total)


def _euler_maclaurin(slope: Floats, tau: Any) -> Floats:
    """Integral, half the first term, and eight derivatives at 0 through Hermite polynomials."""
    from scipy.special import erfcx

    root = np.sqrt(tau)
    z = slope / root
    before, hermite = np.ones_like(z), z.copy()
    power = root * np.ones_like(z)
    total = (
        math.sqrt(math.pi / 2.0) / root * erfcx(z / math.sqrt(2.0)) + 0.5 + _BERNOULLI[0] * power * hermite
    )
    for k, weight in enumerate(_BERNOULLI[1:], start=1):
        before = z * hermite - (2 * k - 1) * before
        hermite = z * before - 2 * k * hermite
        power *= tau
        total += weight * power * hermite
    return np.asarray(total)


def _both_sides(u: Integers, v: Integers, i2: Any, i3: Any, lower: bool) -> Floats:
    """Return the same for tau > 1/2, by sums around the largest term of each hypothesis."""
    first, slope0 = _mode(u, v, i2, i3, lower)
    second, slope1 = _mode(u - 1, v, i2, i3, lower)
    same = 0.5 * i2 * (2.0 * (u - first) - 1.0)
    one_less = -0.5 * i3 * (2.0 * (v - first) + 1.0)
    tau = i2 + i3
    lead = np.where(second == first, same, one_less)
    return np.asarray(
        lead + np.log(_around(slope1, tau, second, lower)) - np.log(_around(slope0, tau, first, lower))
    )


def _mode(u: Integers, v: Integers, i2: Any, i3: Any, lower: bool) -> tuple[Integers, Floats]:
    """Return the most likely number of people elsewhere, and tau times its distance from mu."""
    tau = i2 + i3
    gap = u - v
    # from the nearer of the two counts, so that the fraction of mu survives counts of 1e9
    y = np.where(i2 < i3, v + np.rint(gap * (i2 / tau)), u - np.rint(gap * (i3 / tau))).astype(np.int64)
    y -= np.rint(-((u - y) * i2 + (v - y) * i3) / tau).astype(np.int64)
    if lower:
        y = np.maximum(y, 0)
    return y, np.asarray(-((u - y) * i2 + (v - y) * i3))


def _around(slope: Floats, tau: Any, mode: Integers, lower: bool) -> Floats:
    """sum_y exp(-slope (y - mode) - tau (y - mode)^2/2), over y >= 0 or over all integers."""
    right, left = np.exp(-slope - 0.5 * tau), np.exp(np.minimum(slope - 0.5 * tau, 0.0))
    fall = np.exp(-tau)
    up, down = right.copy(), left.copy()
    total = 1.0 + up
    for j in range(1, math.ceil(math.sqrt(2.0 * _CUT / float(np.min(tau)))) + 2):
        total += np.where(mode >= j, down, 0.0) if lower else down
        right *= fall
        left *= fall
        up *= right
        down *= left
        total += up
    return np.asarray(total)


def windowed(
    u: Integers, v: Integers, s2: Floats, s3: Floats, log_noise: Callable[[Integers], Floats]
) -> Floats:
    """Return what x2* and y1* add to the log-odds, for noise of y1* with any log-concave law."""
    absent, size0, lead0 = _window_sum(u, v, s2, s3, log_noise)
    present, size1, lead1 = _window_sum(u - 1, v, s2, s3, log_noise)
    lead = -(lead1 - lead0).astype(float) * (lead1 + lead0) / (2.0 * s2)
    if np.maximum(size0, size1).max(initial=0.0) > _HOPELESS:
        msg = (
            f"the counts contradict each other (log-probability below -{_HOPELESS:g}), beyond what the law"
            " of the noise can tell apart: check that they belong to one block group"
        )
        raise UnsupportedModelError(msg, float(np.maximum(size0, size1).max()))
    return np.asarray(lead + (present - absent))


def _window_sum(
    u: Integers, v: Integers, s2: Floats, s3: Floats, log_noise: Callable[[Integers], Floats]
) -> tuple[Floats, Floats, Integers]:
    """Sum exp(-(u - y)^2/(2 s2)) noise(v - y) over y >= 0, widened until the bound on the rest is met.

    Returns the log of the sum over exp(-lead^2/(2 s2)), the size of the logs that were added up, and lead.
    """
    out, size, lead = np.empty(u.size), np.empty(u.size), np.empty(u.size, dtype=np.int64)
    todo = np.arange(u.size)
    middle, _ = _mode(u, v, 1.0 / s2, 1.0 / s3, lower=True)
    half = 16
    while todo.size:
        if half > 2**20:
            msg = "the sum over people elsewhere does not close: the noise must have a log-concave law"
            raise UnsupportedModelError(msg, half)
        y = np.maximum(middle[todo] - half, 0)[:, None] + np.arange(2 * half + 1)
        values, back = np.unique(v[todo, None] - y, return_inverse=True)
        noise = np.asarray(log_noise(values))[back.reshape(y.shape)]
        start = (u[todo] - middle[todo])[:, None]
        gap = u[todo, None] - y
        weight = noise - (gap - start).astype(float) * (gap + start) / (2.0 * s2[todo, None])
        top = weight.max(axis=1)
        total = np.exp(weight - top[:, None]).sum(axis=1)
        right = _beyond(weight[:, -1] - top, weight[:, -2] - top)
        left = np.where(y[:, 0] == 0, 0.0, _beyond(weight[:, 0] - top, weight[:, 1] - top))
        done = right + left < 1e-16 * total
        finished = todo[done]
        out[finished], lead[finished] = (top + np.log(total))[done], start[done, 0]
        size[finished] = (np.abs(top) + start[:, 0].astype(float) ** 2 / s2[todo])[done]
        middle[todo] = y[np.arange(todo.size), weight.argmax(axis=1)]
        todo = todo[~done]
        half *= 2
    return out, size, lead


def _beyond(edge: Floats, inner: Floats) -> Floats:
    """Bound the mass beyond a window's edge; infinite where the terms still rise."""
    ratio = np.exp(np.minimum(edge - inner, 0.0))
    return np.where(ratio < 1.0, np.exp(edge) * ratio / np.maximum(1.0 - ratio, 1e-300), np.inf)
