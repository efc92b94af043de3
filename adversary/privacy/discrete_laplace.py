"""The discrete Laplace on the integers, P[X = n] proportional to exp(-|n - mu| / scale): the noise of pure differential privacy.

A count released with scale Delta / epsilon is epsilon-DP; the 2020 system used it in its first demonstrations and keeps it as an
option. With q = exp(-1 / scale) everything has a closed form: P[X = n] = q^|n - mu| (1 - q) / (1 + q). Everything broadcasts;
``scale = 0`` is a point mass, an exact count.

What it is not: a mechanism for releasing data (see :func:`sample`).

Held to account by ``tests/privacy/test_discrete_laplace.py`` against 50-digit sums. Sources: Ghosh, Roughgarden & Sundararajan
(2009), two-sided geometric mechanism; Cumings-Menon et al. (arXiv 2203.16654), lemmas 1 and 5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy._lattice import Floats, distance
from adversary.privacy.budget import CONVENTIONS, Rho

__all__ = ["cdf", "laplace_scale", "log_cdf", "log_pmf", "log_sf", "pmf", "sample", "sf", "variance"]

_WIDEST = 1e12  # scale; beyond, draws would pass 2^53 and lose their last digits


def laplace_scale(epsilon: Any, neighbours: str, sensitivity: int = 1) -> float:
    """Return the scale of the noise that makes a histogram epsilon-DP.

    Parameters
    ----------
    epsilon
        Pure privacy-loss budget, exact: text, int, Fraction. inf for an exact count.
    neighbours
        ``"unbounded"`` (one record added or removed changes one cell: Delta / epsilon) or ``"bounded"`` (one replaced changes
        two: 2 Delta / epsilon).
    sensitivity
        Delta, change of one cell by one record.

    Returns
    -------
    float
        0 for an infinite epsilon, inf for none.

    Raises
    ------
    BudgetError
        For unknown neighbours, or an impossible epsilon or sensitivity.

    Examples
    --------
    >>> laplace_scale("0.5", "unbounded"), laplace_scale("0.5", "bounded")
    (2.0, 4.0)
    """
    if neighbours not in CONVENTIONS:
        msg = f"the neighbours must be 'unbounded' (1/epsilon) or 'bounded' (2/epsilon), got {neighbours!r}"
        raise BudgetError(msg, neighbours)
    exact, change = Rho(epsilon), Rho(sensitivity)
    if change.infinite or not change:
        msg = f"sensitivity must be positive, got {sensitivity}"
        raise BudgetError(msg, sensitivity)
    if exact.infinite:
        return 0.0
    if not exact:
        return math.inf
    return float(Rho((1 if neighbours == "unbounded" else 2) * change.fraction / exact.fraction))


def _checked(n: npt.ArrayLike, scale: npt.ArrayLike, mu: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return n - mu and the scale, or refuse what cannot be."""
    b = np.asarray(scale, dtype=np.float64)
    bad = ~np.isfinite(b) | (b < 0)
    if bad.any():
        value = float(b[bad].flat[0])
        msg = f"scale must be a finite number that is not negative, got {value}: write 0 for an exact count"
        raise BudgetError(msg, value)
    k, fraction = distance(n, mu)
    if fraction.any():
        msg = f"mu must be a whole number, got {mu!r}: the noise is added to a count"
        raise ReleaseError(msg, mu)
    return k, b


def _steps(k: Floats, b: Floats) -> Floats:
    """Return k / b with 0 / 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.where(k == 0, 0.0, k / b))


def _log_mass(b: Floats) -> Floats:
    """Return log((1 - q) / (1 + q)), to relative accuracy however near 0 or -inf."""
    with np.errstate(divide="ignore", over="ignore"):
        rate = 1.0 / b
        q = np.exp(-rate)
        one_less = np.where(q < 0.5, np.log1p(-np.minimum(q, 0.5)), np.log(-np.expm1(-rate)))
    return np.asarray(one_less - np.log1p(q))


def log_pmf(n: npt.ArrayLike, scale: npt.ArrayLike, mu: npt.ArrayLike = 0) -> Floats:
    """Return the log-probability of integer ``n``.

    Parameters
    ----------
    n
        Integers; a float with a fraction has probability 0.
    scale
        Scale of the noise, >= 0 and finite; 1 / epsilon for a count under unbounded neighbours. 0 is a point mass.
    mu
        Centre, whole.

    Returns
    -------
    ndarray
        Broadcast shape; relative error below 1e-13.

    Raises
    ------
    BudgetError
        For a scale that is negative, NaN or infinite.
    ReleaseError
        For ``n`` or ``mu`` NaN or beyond 2**62, or a ``mu`` with a fraction.

    Examples
    --------
    >>> print(round(float(log_pmf(3, 2.0)), 12))
    -2.906829113747
    """
    k, b = _checked(n, scale, mu)
    out = _log_mass(b) - _steps(np.abs(k), b)
    return np.asarray(np.where(k == np.floor(k), out, -np.inf))[()]


def pmf(n: npt.ArrayLike, scale: npt.ArrayLike, mu: npt.ArrayLike = 0) -> Floats:
    """Return P[X = n].

    Parameters
    ----------
    n
        Integers; a float with a fraction has probability 0.
    scale
        Scale of the noise, >= 0 and finite.
    mu
        Centre, whole.

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
    >>> float(pmf(0, 0.0))
    1.0
    """
    return np.asarray(np.exp(log_pmf(n, scale, mu)))[()]


def _log_cdf(k: Floats, b: Floats) -> Floats:
    """Log P[X - mu <= k] for whole k."""
    with np.errstate(divide="ignore", over="ignore"):
        log_one_more = np.log1p(np.exp(-1.0 / b))
    lower = k <= 0
    # the tail on the side of k: P[X <= k] below the centre, P[X > k] above
    tail = -_steps(np.where(lower, -k, k + 1.0), b) - log_one_more
    with np.errstate(divide="ignore"):
        other = np.where(tail < -0.7, np.log1p(-np.exp(tail)), np.log(-np.expm1(np.minimum(tail, -0.0))))
    return np.asarray(np.where(lower, tail, other))


def log_cdf(x: npt.ArrayLike, scale: npt.ArrayLike, mu: npt.ArrayLike = 0) -> Floats:
    """Return log P[X <= x], to relative accuracy in both tails.

    Parameters
    ----------
    x
        Real; a fraction is rounded down.
    scale
        Scale of the noise, >= 0 and finite.
    mu
        Centre, whole.

    Returns
    -------
    ndarray
        Broadcast shape.

    Raises
    ------
    BudgetError, ReleaseError
        As :func:`log_pmf`.

    Examples
    --------
    >>> print(round(float(log_cdf(-10, 2.0)), 12))
    -5.47407698418
    """
    k, b = _checked(x, scale, mu)
    return _log_cdf(np.floor(k), b)[()]


def log_sf(x: npt.ArrayLike, scale: npt.ArrayLike, mu: npt.ArrayLike = 0) -> Floats:
    """Return log P[X > x], to relative accuracy in both tails.

    Parameters
    ----------
    x
        Real; a fraction is rounded down.
    scale
        Scale of the noise, >= 0 and finite.
    mu
        Centre, whole.

    Returns
    -------
    ndarray
        Broadcast shape.

    Raises
    ------
    BudgetError, ReleaseError
        As :func:`log_pmf`.

    Examples
    --------
    >>> bool(log_sf(9, 2.0) == log_cdf(-10, 2.0))
    True
    """
    k, b = _checked(x, scale, mu)
    return _log_cdf(-(np.floor(k) + 1.0), b)[()]


def cdf(x: npt.ArrayLike, scale: npt.ArrayLike, mu: npt.ArrayLike = 0) -> Floats:
    """Return P[X <= x].

    Parameters
    ----------
    x
        Real; a fraction is rounded down.
    scale
        Scale of the noise, >= 0 and finite.
    mu
        Centre, whole.

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
    >>> print(round(float(cdf(0, 2.0)), 12))
    0.622459331202
    """
    return np.asarray(np.exp(log_cdf(x, scale, mu)))[()]


def sf(x: npt.ArrayLike, scale: npt.ArrayLike, mu: npt.ArrayLike = 0) -> Floats:
    """Return P[X > x].

    Parameters
    ----------
    x
        Real; a fraction is rounded down.
    scale
        Scale of the noise, >= 0 and finite.
    mu
        Centre, whole.

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
    >>> print(round(float(sf(-1, 2.0)), 12))
    0.622459331202
    """
    return np.asarray(np.exp(log_sf(x, scale, mu)))[()]


def variance(scale: npt.ArrayLike) -> Floats:
    """Return the variance 2 q / (1 - q)^2, below 2 scale^2 by about 1/6.

    Parameters
    ----------
    scale
        Scale of the noise, >= 0 and finite.

    Returns
    -------
    ndarray
        Same shape; 0 for an exact count.

    Raises
    ------
    BudgetError
        As :func:`log_pmf`.

    Examples
    --------
    >>> print(round(float(variance(2.0)), 12))
    7.835396178066
    """
    _, b = _checked(0, scale, 0)
    with np.errstate(divide="ignore", over="ignore"):
        rate = 1.0 / b
        return np.asarray(2.0 * np.exp(-rate) / np.expm1(-rate) ** 2)[()]


def sample(
    scale: npt.ArrayLike, size: Any, rng: np.random.Generator, mu: npt.ArrayLike = 0
) -> npt.NDArray[np.int64]:
    """Draw from the discrete Laplace: for assessing risk, never for releasing (a pseudo-random generator).

    Parameters
    ----------
    scale
        Scale of the noise, >= 0, broadcast to ``size``; 0 gives ``mu``.
    size
        Shape of the result; None for the broadcast shape of ``scale`` and ``mu``.
    rng
        Generator; its state advances.
    mu
        Centre, whole, broadcast to ``size``.

    Returns
    -------
    ndarray of int64, shape ``size``
        Whole numbers of the shape asked for.

    Raises
    ------
    BudgetError
        For a scale that is negative, not finite or above 1e12.
    ReleaseError
        For a centre with a fraction or beyond 2**53.

    Examples
    --------
    >>> sample(0.0, 3, np.random.default_rng(1), 7).tolist()
    [7, 7, 7]
    """
    centre, b = _checked(mu, scale, 0)
    if (np.abs(centre) > 2**53).any() or (centre != np.floor(centre)).any():
        msg = f"mu must be a whole number within +-2**53, got {mu!r}"
        raise ReleaseError(msg, mu)
    if b.size and float(b.max()) > _WIDEST:
        msg = f"scale = {float(b.max())} is too wide to draw from (the limit is {_WIDEST:g}): such a count was not measured"
        raise BudgetError(msg, float(b.max()))
    shape = (
        np.broadcast_shapes(b.shape, centre.shape) if size is None else tuple(np.atleast_1d(size).tolist())
    )
    with np.errstate(divide="ignore"):
        p = np.broadcast_to(-np.expm1(-1.0 / b), shape)
    # the difference of two geometric numbers of trials
    noise = rng.geometric(p) - rng.geometric(p)
    return np.asarray(noise + centre.astype(np.int64), dtype=np.int64)
