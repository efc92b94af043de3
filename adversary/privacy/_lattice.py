"""Sums of a Gaussian over the integers: the normaliser, the log-pmf and the moments of N_Z(mu, sigma2).

N_Z(mu, sigma2) gives integer n the probability exp(-(n - mu)^2 / (2 sigma2)) / S(mu, sigma2). The sum S has two fast
series, one for either side of sigma2 = 1 / (2 pi), equal by Poisson summation:

* narrow: sum over the few integers next to mu, *relative to the nearest one*, so that a probability next to one keeps
  the digits of its logarithm;
* wide: sigma sqrt(2 pi) (1 + 2 sum_k exp(-2 pi^2 sigma2 k^2) cos(2 pi k f)), f the fraction of mu.

Eight terms of the first or three of the second leave out less than 1e-21.

What it is not: public. The public face is `adversary.privacy.discrete_gaussian`. Held to account by
tests/privacy/test_discrete_gaussian.py (mpmath, 50 digits). Source: Canonne, Kamath, Steinke, "The discrete Gaussian
for differential privacy" (2020), definition 1 and Fact 18 (Poisson summation).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from adversary.errors import BudgetError, ReleaseError

__all__ = [
    "Floats",
    "checked_sigma2",
    "distance",
    "entropy",
    "log_norm",
    "log_pmf",
    "mean",
    "refuse_exact_fraction",
    "relative_log_pmf",
    "variance",
    "whole_or_real",
]

type Floats = npt.NDArray[np.float64]

WIDE = 1.0 / (2.0 * math.pi)  # the terms of both series fall like exp(-pi k^2) here
LARGEST = 2**62  # a difference of two such counts is still a 64-bit integer
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def checked_sigma2(sigma2: npt.ArrayLike) -> Floats:
    """Return ``sigma2`` as float64, or refuse what cannot be a noise parameter."""
    s2 = np.asarray(sigma2, dtype=np.float64)
    bad = ~np.isfinite(s2) | (s2 < 0)
    if bad.any():
        value = float(s2[bad].flat[0])
        way_out = (
            "a count with unlimited noise was not measured, leave it out"
            if value == math.inf
            else "write 0 for an exact count"
        )
        msg = f"sigma2 must be a finite number that is not negative, got {value}: {way_out}"
        raise BudgetError(msg, value)
    return s2


def whole_or_real(x: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Return ``x`` as int64 if its type is one of integers, as float64 otherwise."""
    a = np.asarray(x)
    if a.dtype.kind in "biu":
        # min and max, because abs(-2**63) is negative
        if a.size and (int(a.max()) > LARGEST or int(a.min()) < -LARGEST):
            worst = max(int(a.max()), int(a.min()), key=abs)
            msg = f"{name} must lie within +-2**62, got {worst}: counts are 64-bit integers"
            raise ReleaseError(msg, worst)
        return a.astype(np.int64)
    if a.dtype.kind != "f":
        msg = f"{name} must be a number, got {x!r}: integers up to 2**62"
        raise ReleaseError(msg, x)
    a = a.astype(np.float64)
    if np.isnan(a).any():
        msg = f"{name} must be a number, got nan: leave out what was not published"
        raise ReleaseError(msg, x)
    return a


def distance(n: npt.ArrayLike, mu: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return k = n - round(mu) and f = mu - round(mu); the difference is taken in integers when both are integers."""
    count, centre = whole_or_real(n, "n"), whole_or_real(mu, "mu")
    if centre.dtype.kind == "f":
        if centre.size and not (np.abs(centre) <= LARGEST).all():
            msg = f"mu must lie within +-2**62, got {centre.flat[int(np.argmax(np.abs(centre)))]}"
            raise ReleaseError(msg, mu)
        nearest = np.rint(centre)
        fraction = centre - nearest
        centre = nearest.astype(np.int64)
    else:
        fraction = np.zeros(centre.shape)
    if count.dtype.kind == "f":
        return count - centre.astype(np.float64), fraction
    return (count - centre).astype(np.float64), fraction


def refuse_exact_fraction(s2: Floats, f: Floats) -> None:
    """Refuse a point mass between two integers."""
    if ((s2 == 0) & (f != 0)).any():
        msg = "sigma2 = 0 needs an integer mu: an exact count has no fraction; give sigma2 > 0 or round mu"
        raise BudgetError(msg, 0.0)


def _narrow(s2: Floats, f: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return sums over the neighbours k of the nearest integer, k = 0 left out, of w, k w, k^2 w and e w.

    w = exp(-e) with e = (k^2 - 2 k f) / (2 s2) >= 0: weights relative to the nearest integer.
    """
    weight, first, second, energy = (np.zeros(np.broadcast_shapes(s2.shape, f.shape)) for _ in range(4))
    for k in (4, -4, 3, -3, 2, -2, 1, -1):  # small terms first
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            e = (k * (k - 2.0 * f)) / (2.0 * s2)
        e = np.where(np.isnan(e), np.inf, e)
        w = np.exp(-e)
        weight += w
        first += k * w
        second += k * k * w
        energy += np.where(w > 0, e, 0.0) * w
    return weight, first, second, energy


def _harmonics(s2: Floats, f: Floats) -> tuple[Floats, Floats, Floats]:
    """Return 2 sum q_k cos, 4 pi sum k q_k sin and 8 pi^2 sum k^2 q_k cos, q_k = exp(-2 pi^2 s2 k^2), k = 3, 2, 1."""
    value, slope, curve = (np.zeros(np.broadcast_shapes(s2.shape, f.shape)) for _ in range(3))
    for k in (3, 2, 1):
        q = np.exp(-2.0 * math.pi**2 * k * k * s2)
        c, s = np.cos(2.0 * math.pi * k * f), np.sin(2.0 * math.pi * k * f)
        value += 2.0 * q * c
        slope += 4.0 * math.pi * k * q * s
        curve += 8.0 * math.pi**2 * k * k * q * c
    return value, slope, curve


def _split(s2: Floats) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
    """Return which are narrow, and s2 held inside the range of either series."""
    return s2 < WIDE, np.minimum(s2, WIDE), np.maximum(s2, WIDE)


def relative_log_pmf(k: Floats, f: Floats, s2: Floats) -> Floats:
    """Log-pmf at round(mu) + k; ``s2`` > 0 or (``s2`` = 0 and ``f`` = 0)."""
    refuse_exact_fraction(s2, f)
    narrow, low, high = _split(s2)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        near = k * (k - 2.0 * f) / (2.0 * low)
        # 0 / 0 is the point mass's own place; inf - inf cannot occur since |f| <= 1/2
        near = np.where(k == 0, 0.0, near)
        near = -near - np.log1p(_narrow(low, f)[0])
        far = -0.5 * (k - f) * ((k - f) / high) - 0.5 * np.log(high) - LOG_SQRT_2PI
    far = far - np.log1p(_harmonics(high, f)[0])
    return np.asarray(np.where(narrow, near, far))


def log_norm(sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Logarithm of the normaliser, log sum_n exp(-(n - mu)^2 / (2 sigma2)).

    Parameters
    ----------
    sigma2
        Noise parameter, >= 0 and finite; any shape.
    mu
        Centre, real; only its fraction matters. Broadcasts with ``sigma2``.

    Returns
    -------
    numpy.ndarray
        Broadcast shape; absolute error below 1e-15 (1 + |result|).

    Raises
    ------
    BudgetError
        ``sigma2`` negative, NaN or infinite, or 0 with a fractional ``mu``.

    Examples
    --------
    >>> print(round(float(log_norm(1 / (2 * 0.09922635422547502))), 12))
    1.727540759114
    """
    s2 = checked_sigma2(sigma2)
    f = distance(0, mu)[1]
    refuse_exact_fraction(s2, f)
    narrow, low, high = _split(s2)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        offset = np.where(f == 0, 0.0, f * (f / (2.0 * low)))
    near = np.log1p(_narrow(low, f)[0]) - offset
    far = LOG_SQRT_2PI + 0.5 * np.log(high) + np.log1p(_harmonics(high, f)[0])
    return np.asarray(np.where(narrow, near, far))[()]


def log_pmf(n: npt.ArrayLike, sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Log-probability of integer ``n`` under N_Z(mu, sigma2).

    Parameters
    ----------
    n
        Integers (any integer type, or whole floats); a float with a fraction has probability 0.
    sigma2
        Noise parameter, >= 0 and finite. It is *not* the variance when small. 0 is a point mass.
    mu
        Centre, real; the difference n - mu is taken in 64-bit integers when both are integers.

    Returns
    -------
    numpy.ndarray
        Broadcast shape; relative error at most 1e-13.

    Raises
    ------
    BudgetError
        ``sigma2`` negative, NaN or infinite, or 0 with a fractional ``mu``.
    ReleaseError
        ``n`` or ``mu`` NaN or beyond 2**62.

    Examples
    --------
    >>> print(round(float(log_pmf(3, sigma2=1 / (2 * 0.09922635422547502))), 12))
    -2.620577947144
    >>> float(log_pmf(2**53 - 1, sigma2=0.01, mu=2**53))
    -50.0
    """
    s2 = checked_sigma2(sigma2)
    k, f = distance(n, mu)
    out = relative_log_pmf(k, f, s2)
    return np.asarray(np.where(k == np.floor(k), out, -np.inf))[()]


def mean(sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Mean of N_Z(mu, sigma2): mu itself when mu is a multiple of one half, else drawn to the nearest integer.

    Parameters
    ----------
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    numpy.ndarray
        Broadcast shape.

    Raises
    ------
    BudgetError
        As `log_norm`.

    Examples
    --------
    >>> print(round(float(mean(0.05, mu=2.25)), 6), float(mean(5.0, mu=2)))
    2.006693 2.0
    """
    s2 = checked_sigma2(sigma2)
    f = distance(0, mu)[1]
    refuse_exact_fraction(s2, f)
    nearest = np.rint(np.asarray(mu, dtype=np.float64))
    return np.asarray(nearest + f + _mean_shift(s2, f))[()]


def _mean_shift(s2: Floats, f: Floats) -> Floats:
    """Return mean - mu."""
    narrow, low, high = _split(s2)
    weight, first, _, _ = _narrow(low, f)
    value, slope, _ = _harmonics(high, f)
    shift = np.where(narrow, first / (1.0 + weight) - f, -high * slope / (1.0 + value))
    return np.asarray(np.where(np.abs(f) == 0.5, 0.0, shift))


def _second_moment(s2: Floats, f: Floats) -> Floats:
    """Return E (X - mu)^2 of the wide series."""
    value, _, curve = _harmonics(s2, f)
    return np.asarray(s2 - s2 * s2 * curve / (1.0 + value))


def variance(sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Variance of N_Z(mu, sigma2): smaller than ``sigma2`` when that is small.

    Parameters
    ----------
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    numpy.ndarray
        Broadcast shape; relative error about 1e-14, also when tiny.

    Raises
    ------
    BudgetError
        As `log_norm`.

    Examples
    --------
    >>> print(round(float(variance(0.25)), 12), float(variance(10.0)))
    0.215012675088 10.0
    """
    s2 = checked_sigma2(sigma2)
    f = distance(0, mu)[1]
    refuse_exact_fraction(s2, f)
    narrow, low, high = _split(s2)
    weight, first, second, _ = _narrow(low, f)
    near = second / (1.0 + weight) - (first / (1.0 + weight)) ** 2
    far = _second_moment(high, f) - np.where(narrow, 0.0, _mean_shift(high, f)) ** 2
    return np.asarray(np.where(narrow, near, far))[()]


def entropy(sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Shannon entropy of N_Z(mu, sigma2) in nats.

    Parameters
    ----------
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    numpy.ndarray
        Broadcast shape, not negative.

    Raises
    ------
    BudgetError
        As `log_norm`.

    Examples
    --------
    >>> print(round(float(entropy(5.0)), 6), float(entropy(0.0)))
    2.223657 0.0
    """
    s2 = checked_sigma2(sigma2)
    f = distance(0, mu)[1]
    refuse_exact_fraction(s2, f)
    narrow, low, high = _split(s2)
    weight, _, _, energy = _narrow(low, f)
    near = np.log1p(weight) + energy / (1.0 + weight)
    far = (
        LOG_SQRT_2PI
        + 0.5 * np.log(high)
        + np.log1p(_harmonics(high, f)[0])
        + _second_moment(high, f) / (2.0 * high)
    )
    return np.asarray(np.where(narrow, near, far))[()]
