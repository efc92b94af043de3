"""Tail sums of N_Z(mu, sigma2): cdf, sf, their logarithms, and the quantile.

The lower tail up to x <= mu is summed downward from x relative to its first term (at most 128 terms) where the noise
is narrow (sigma < 14) or x lies far out; elsewhere the Euler-Maclaurin sum about x + 1/2 with five corrections of the
Gaussian integral is used. Both keep their relative accuracy however far out x is. Probabilities above the middle are
one minus the opposite tail, never a long sum.

What it is not: public; see `adversary.privacy.discrete_gaussian`. Held to account by
tests/privacy/test_discrete_gaussian.py (mpmath, 50 digits).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from adversary.errors import AdversaryError
from adversary.privacy._lattice import Floats, checked_sigma2, distance, relative_log_pmf

__all__ = ["cdf", "log_cdf", "log_sf", "ppf", "sf"]

TERMS = 128
SIGMA_EM = 14.0  # from here on Euler-Maclaurin is right to 1e-13 if the slope is at most SLOPE_EM
SLOPE_EM = 0.3
WIDEST = 1e24  # sigma2 from which neighbours cannot be told apart: the Gaussian's quantile is right to a double's digits
EULER_MACLAURIN = (-1 / 24, 7 / 5760, -31 / 967680, 127 / 154828800, -73 / 3503554560)


def _direct_tail(k: Floats, f: Floats, s2: Floats) -> Floats:
    """Log P(X <= round(mu) + k), k <= f, by the sum downward from its first and largest term."""
    t = f - k
    rest = np.zeros(t.shape)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for j in range(1, TERMS):
            term = np.exp(-(j * (2.0 * t + j)) / (2.0 * s2))
            rest += term
            if not (term > 1e-18).any():
                break
        return np.asarray(relative_log_pmf(k, f, s2) + np.log1p(rest))


def _smooth_tail(k: Floats, f: Floats, s2: Floats) -> Floats:
    """Log P(X <= round(mu) + k), k <= f, wide noise, by Euler-Maclaurin about the middle of the next gap."""
    from scipy.special import erfcx

    s = np.sqrt(s2)
    z = (0.5 - (f - k)) / s
    w, v = z / s, 1.0 / s2
    # derivatives of the kernel, scaled: P_{n+1} = w P_n - n v P_{n-1}
    before, here = np.ones_like(w), w
    correction = np.zeros_like(w)
    for i, c in enumerate(EULER_MACLAURIN):
        correction -= c * here
        for n in (2 * i + 1, 2 * i + 2):
            before, here = here, w * here - n * v * before
    integral = erfcx(-z / math.sqrt(2.0))
    return np.asarray(
        -0.5 * z * z
        + np.log(0.5 * integral)
        + np.log1p(2.0 * correction / (s * math.sqrt(2.0 * math.pi) * integral))
    )


def _log_lower_tail(k: Floats, f: Floats, s2: Floats) -> Floats:
    """Log P(X <= round(mu) + k) for k <= f; -inf at k = -inf."""
    smooth = (s2 >= SIGMA_EM**2) & (f - k - 0.5 <= SLOPE_EM * s2)
    finite = np.isfinite(k)
    out = np.full(k.shape, -np.inf)
    for chosen, tail in ((finite & ~smooth, _direct_tail), (finite & smooth, _smooth_tail)):
        if chosen.any():
            out[chosen] = tail(k[chosen], f[chosen], s2[chosen])
    return np.asarray(np.minimum(out, 0.0))


def _log_cdf(k: Floats, f: Floats, s2: Floats) -> Floats:
    k, f, s2 = (np.array(a, ndmin=1) for a in np.broadcast_arrays(k, f, s2))
    lower = k <= f
    # P(X > x) is the lower tail of -X at -(x + 1)
    tail = _log_lower_tail(np.where(lower, k, -(k + 1.0)), np.where(lower, f, -f), s2)
    with np.errstate(divide="ignore"):
        other = np.where(tail < -0.7, np.log1p(-np.exp(tail)), np.log(-np.expm1(np.minimum(tail, -0.0))))
    return np.where(lower, tail, other)


def log_cdf(x: npt.ArrayLike, sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Log P(X <= x) under N_Z(mu, sigma2).

    Parameters
    ----------
    x
        Real; a fraction is rounded down. -inf and inf are allowed.
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    numpy.ndarray
        Broadcast shape; relative accuracy in both tails.

    Raises
    ------
    BudgetError, ReleaseError
        As `log_pmf`.

    Examples
    --------
    >>> print(round(float(log_cdf(-7, 1 / (2 * 0.09922635422547502))), 10))
    -6.3468916163
    """
    s2 = checked_sigma2(sigma2)
    k, f = distance(x, mu)
    shape = np.broadcast_shapes(k.shape, f.shape, s2.shape)
    return _log_cdf(np.floor(k), f, s2).reshape(shape)[()]


def log_sf(x: npt.ArrayLike, sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Log P(X > x) under N_Z(mu, sigma2).

    Parameters
    ----------
    x
        Real; a fraction is rounded down.
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    numpy.ndarray
        Broadcast shape; relative accuracy in both tails.

    Raises
    ------
    BudgetError, ReleaseError
        As `log_pmf`.

    Examples
    --------
    >>> print(round(float(log_sf(39, sigma2=1.0)), 9))
    -800.918938539
    """
    s2 = checked_sigma2(sigma2)
    k, f = distance(x, mu)
    shape = np.broadcast_shapes(k.shape, f.shape, s2.shape)
    return _log_cdf(-(np.floor(k) + 1.0), -f, s2).reshape(shape)[()]


def cdf(x: npt.ArrayLike, sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """P(X <= x) under N_Z(mu, sigma2).

    Parameters
    ----------
    x
        Real; a fraction is rounded down.
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    ndarray
        Broadcast shape, in [0, 1]; below 1e-308 it is 0: use the logarithm.

    Raises
    ------
    BudgetError, ReleaseError
        As :func:`log_pmf`.

    Examples
    --------
    >>> print(round(float(cdf(-1, sigma2=4.0) + cdf(0, sigma2=4.0)), 12))
    1.0
    """
    return np.asarray(np.exp(log_cdf(x, sigma2, mu)))[()]


def sf(x: npt.ArrayLike, sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """P(X > x) under N_Z(mu, sigma2).

    Parameters
    ----------
    x
        Real; a fraction is rounded down.
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    ndarray
        Broadcast shape, in [0, 1]; below 1e-308 it is 0: use the logarithm.

    Raises
    ------
    BudgetError, ReleaseError
        As :func:`log_pmf`.

    Examples
    --------
    >>> print(f"{float(sf(2, sigma2=0.05)):.3e}")
    8.193e-40
    """
    return np.asarray(np.exp(log_sf(x, sigma2, mu)))[()]


def ppf(q: npt.ArrayLike, sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Smallest integer x with P(X <= x) >= q under N_Z(mu, sigma2).

    Parameters
    ----------
    q
        Probabilities in [0, 1]. Equality is judged up to four units in the last place, so that ppf(cdf(x)) is x
        wherever the cdf of neighbours can be told apart.
    sigma2
        Noise parameter, >= 0 and finite.
    mu
        Centre, real.

    Returns
    -------
    numpy.ndarray
        Whole float64 numbers, -inf at q = 0 and inf at q = 1 unless sigma2 = 0.

    Raises
    ------
    AdversaryError
        ``q`` outside [0, 1] or NaN.
    BudgetError, ReleaseError
        As `log_pmf`.

    Examples
    --------
    >>> ppf([0.025, 0.5, 0.975], sigma2=10.0, mu=100)
    array([ 94., 100., 106.])
    """
    from scipy.special import ndtri

    prob = np.asarray(q, dtype=np.float64)
    if not ((prob >= 0) & (prob <= 1)).all():
        msg = f"q must lie in [0, 1], got {q!r}: give probabilities"
        raise AdversaryError(msg, q)
    s2 = checked_sigma2(sigma2)
    f = distance(0, mu)[1]
    nearest = np.rint(np.asarray(mu, dtype=np.float64))
    shape = np.broadcast_shapes(prob.shape, f.shape, s2.shape)
    p, frac, var = (np.array(np.broadcast_to(a, shape)).ravel() for a in (prob, f, s2))
    out = np.where(p == 0, -np.inf, np.inf)
    out[var == 0] = 0.0
    todo = np.flatnonzero((p > 0) & (p < 1) & (var > 0))
    x = np.ceil(frac[todo] + np.sqrt(var[todo]) * ndtri(p[todo]) - 0.5)

    def reached(k: Floats, i: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """P(X <= k) >= p, asked of the smaller tail so that no digits are lost."""
        pi = p[i]
        low = _log_cdf(k, frac[i], var[i]) >= np.log(pi) - 8e-16 * (1 + np.abs(np.log(pi)))
        high = np.exp(_log_cdf(-(k + 1.0), -frac[i], var[i])) <= (1.0 - pi) * (1 + 8e-16) + 2.3e-16
        return np.where(pi <= 0.5, low, high)

    for direction in (-1, 1):
        active = np.flatnonzero(var[todo] <= WIDEST)
        step = np.ones(todo.size)
        while active.size:
            here = x[active]
            hit = reached(here - 1.0, todo[active]) if direction < 0 else ~reached(here, todo[active])
            active = active[hit]
            x[active] += direction * step[active]
    out[todo] = x
    return (nearest + out.reshape(shape))[()]
