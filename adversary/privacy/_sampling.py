"""Draws of N_Z(mu, sigma2) with a NumPy generator: alias tables for one noise, rejection for many or wide ones.

What it is not: a mechanism for releasing data. Uniforms have 53 bits and come from a pseudo-random generator: for assessing
risk, never for releasing. It is not ``round(normal)`` either, which has another law (variance 0.0018 instead of 0.507 in
units of sigma2 = 0.05).

Held to account by ``tests/privacy/test_sampling.py``. Sources: Walker (1977) and Vose (1991) for alias tables; Canonne, Kamath
& Steinke (arXiv 2004.00010), algorithm 3, for the rejection.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy._lattice import checked_sigma2, log_pmf, refuse_exact_fraction

__all__ = ["sample"]

_WIDEST_TABLE = 1e6  # sigma2; beyond, the table would outgrow the cache and rejection is as fast
_WIDEST = 1e24  # sigma2; beyond, draws would pass 2^53 and lose their last digits
_MANY = 64  # different noises in one call from which rejection is the shorter way
_REACH = 8.6  # standard deviations: the mass outside is below 2^-53


@functools.lru_cache(maxsize=32)
def _alias_table(sigma2: float) -> tuple[int, npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the first value, the probability of staying, and the alias, one entry a value."""
    reach = math.ceil(_REACH * math.sqrt(sigma2)) + 1
    values = np.arange(-reach, reach + 1)
    p = np.exp(log_pmf(values, sigma2))
    scaled = p / p.sum() * len(p)
    stay, alias = np.ones(len(p)), np.arange(len(p), dtype=np.int64)
    small = [i for i, v in enumerate(scaled) if v < 1]
    large = [i for i, v in enumerate(scaled) if v >= 1]
    rest = scaled.tolist()
    while small and large:
        low, high = small.pop(), large[-1]
        stay[low], alias[low] = rest[low], high
        rest[high] -= 1 - rest[low]
        if rest[high] < 1:
            small.append(large.pop())
    stay.setflags(write=False)
    alias.setflags(write=False)
    return -reach, stay, alias


def _from_table(sigma2: float, n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    if sigma2 == 0:
        return np.zeros(n, dtype=np.int64)
    first, stay, alias = _alias_table(sigma2)
    spread = rng.random(n)
    spread *= len(stay)
    slot = spread.astype(np.int64)
    # the fraction that chose the slot is kept apart from the one that decides whether to stay: 53 bits for each
    moved = rng.random(n) >= stay[slot]
    slot[moved] = alias[slot[moved]]
    slot += first
    return slot


def _by_rejection(
    sigma2: npt.NDArray[np.float64], fraction: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Discrete Laplace proposals of scale floor(sigma) + 1, accepted with the ratio to the exact maximum over integers."""
    out = np.zeros(sigma2.size, dtype=np.int64)
    todo = np.flatnonzero(sigma2 > 0)
    scale = np.floor(np.sqrt(sigma2)) + 1.0
    f = np.abs(fraction)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.floor(f + sigma2 / scale)
        top = np.maximum(*(-0.5 * (y - f) ** 2 / sigma2 + y / scale for y in (near, near + 1)))
    while todo.size:
        s2, t = sigma2[todo], scale[todo]
        p = -np.expm1(-1.0 / t)
        y = rng.geometric(p).astype(np.float64) - rng.geometric(p)
        log_ratio = -0.5 * (y - fraction[todo]) ** 2 / s2 + np.abs(y) / t - top[todo]
        accepted = -rng.standard_exponential(todo.size) < log_ratio
        out[todo[accepted]] = y[accepted].astype(np.int64)
        todo = todo[~accepted]
    return out


def sample(
    sigma2: npt.ArrayLike, size: Any, rng: np.random.Generator, mu: npt.ArrayLike = 0
) -> npt.NDArray[np.int64]:
    """Draw from N_Z(mu, sigma2): for assessing risk, never for releasing (53-bit floats, a pseudo-random generator).

    Parameters
    ----------
    sigma2
        Noise parameter, >= 0, broadcast to ``size``; 0 gives ``mu``.
    size
        Shape of the result; None for the broadcast shape of ``sigma2`` and ``mu``.
    rng
        Generator; its state advances.
    mu
        Centre, broadcast to ``size``; integer or real.

    Returns
    -------
    ndarray of int64, shape ``size``

    Raises
    ------
    BudgetError
        For a sigma2 that is negative, not finite or above 1e24, or 0 about a ``mu`` that is no integer.
    ReleaseError
        For a centre beyond 2^53.

    Examples
    --------
    >>> sample(5.0, 4, np.random.default_rng(1)).dtype
    dtype('int64')
    """
    s2, centre = checked_sigma2(sigma2), np.asarray(mu)
    shape = (
        np.broadcast_shapes(s2.shape, centre.shape) if size is None else tuple(np.atleast_1d(size).tolist())
    )
    if centre.size and not bool(np.all(np.abs(centre) <= 2**53)):
        msg = f"mu must lie within +-2**53, got {centre.flat[int(np.argmax(np.abs(centre)))]}: digits are lost beyond"
        raise ReleaseError(msg, mu)
    if s2.size and float(s2.max()) > _WIDEST:
        widest = float(s2.max())
        msg = f"sigma2 = {widest} is too wide to draw from (the limit is {_WIDEST:g}): such a count was not measured"
        raise BudgetError(msg, widest)
    n = math.prod(shape)
    whole = np.rint(centre) if centre.dtype.kind == "f" else centre
    fraction = np.asarray(centre - whole, dtype=np.float64)
    refuse_exact_fraction(s2, fraction)
    if not fraction.any() and s2.size == 1 and float(s2.flat[0]) <= _WIDEST_TABLE:
        noise = _from_table(float(s2.flat[0]), n, rng)
    else:
        noise = _each(np.broadcast_to(s2, shape).ravel(), np.broadcast_to(fraction, shape).ravel(), rng)
    return noise.reshape(shape) + np.asarray(whole).astype(np.int64)


def _each(
    s2: npt.NDArray[np.float64], fraction: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw one value for each noise: a table for each of a few, rejection for the rest."""
    different = np.unique(s2)
    if fraction.any() or len(different) > _MANY or (different > _WIDEST_TABLE).any():
        return _by_rejection(s2, fraction, rng)
    out = np.empty(s2.size, dtype=np.int64)
    for value in different:
        mine = s2 == value
        out[mine] = _from_table(float(value), int(mine.sum()), rng)
    return out
