"""The exact law of a sum of d independent N_Z(0, sigma2), next to the one discrete Gaussian that the paper takes for it.

Adding one to every term turns a sum s into s + d, which gives f(d k + r) = exp(-(d k^2 + 2 k r) / (2 sigma2)) f(r): the d values
next to zero hold the whole law, to full relative accuracy however far out. These come from doubling: positive terms only,
in logarithms, over a window outside of which a term is below 1e-30 of the largest.

Given the sum s, the terms lie on a lattice whose dual has 2 d shortest vectors of squared length 1 - 1/d, so that by Poisson
summation f(s) differs from the one discrete Gaussian by a factor 1 +- 2 d exp(-2 pi^2 sigma2 (1 - 1/d)) *at every s*, however far
out. From sigma2 = 4 on that is below 1e-16 and the one law is taken for the other.

Held to account by ``tests/privacy/test_sums.py`` and the ids ``s2_ noise_`` of the reference. Source: Kazan & Reiter (arXiv
2204.04253), eq. (3.7) and S2, by our own derivation.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from adversary.errors import BudgetError
from adversary.privacy._lattice import LARGEST, checked_sigma2, log_pmf, whole_or_real

__all__ = ["sum_log_pmf", "sum_residue_table", "sum_variation"]

_ROWS = 2_000_000  # entries of one block of a convolution
_WIDE = 4.0  # sigma2 from which the sum is one discrete Gaussian in double precision


def _checked_groups(d: int) -> int:
    if isinstance(d, bool) or int(d) != d or d < 1:
        msg = f"d, the number of noisy counts that were added up, must be a whole number >= 1, got {d!r}"
        raise BudgetError(msg, d)
    return int(d)


def _shifted(
    table: npt.NDArray[np.float64], s: npt.NDArray[np.int64], sigma2: float, d: int
) -> npt.NDArray[np.float64]:
    """Log f(s) for any integers from the table of residues -(d // 2) .. d // 2."""
    half = d // 2
    k = (s + half) // d
    r = s - d * k
    far = k.astype(np.float64)
    return np.asarray(table[r + half] - (d * far * far + 2.0 * far * r) / (2.0 * sigma2))


def _convolved(
    a: int, table_a: npt.NDArray[np.float64], b: int, table_b: npt.NDArray[np.float64], sigma2: float
) -> npt.NDArray[np.float64]:
    """Residue table of a + b terms from those of a and of b."""
    d = a + b
    # given the total, the sum of the first a terms spreads like a Gaussian (wide noise) or a hypergeometric (narrow noise)
    reach = math.ceil(12.0 * math.sqrt((sigma2 + 0.25) * a * b / d)) + 12
    offsets = np.arange(-reach, reach + 1)
    right = np.arange(d // 2 + 1)
    out = np.empty(len(right))
    step = max(1, _ROWS // len(offsets))
    for start in range(0, len(right), step):
        r = right[start : start + step, None]
        s = np.rint(r * (a / d)).astype(np.int64) + offsets
        terms = _shifted(table_a, s, sigma2, a) + _shifted(table_b, r - s, sigma2, b)
        top = terms.max(axis=1)
        out[start : start + step] = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
    return np.concatenate([out[:0:-1], out])


@functools.lru_cache(maxsize=64)
def sum_residue_table(sigma2: float, d: int) -> npt.NDArray[np.float64]:
    """Return log P[sum = r] for r = -(d // 2) .. d // 2; with the shift identity they hold the whole law.

    Parameters
    ----------
    sigma2
        Noise parameter of one term, > 0.
    d
        Number of terms, >= 1.

    Returns
    -------
    ndarray, shape (2 (d // 2) + 1,), read-only

    Raises
    ------
    BudgetError
        For a sigma2 or d that cannot be.

    Examples
    --------
    >>> sum_residue_table(5.0, 27).shape
    (27,)
    """
    d = _checked_groups(d)
    if float(checked_sigma2(sigma2)) == 0:
        msg = "the sum of exact counts is exact: there is no noise to tabulate, give sigma2 > 0"
        raise BudgetError(msg, sigma2)
    if sigma2 >= _WIDE:
        table = np.asarray(log_pmf(np.arange(-(d // 2), d // 2 + 1), d * sigma2))
        table.setflags(write=False)
        return table
    unit = np.array([float(log_pmf(0, sigma2))])
    have, table = 1, unit
    for bit in bin(d)[3:]:
        table = _convolved(have, table, have, table, sigma2)
        have *= 2
        if bit == "1":
            table = _convolved(have, table, 1, unit, sigma2)
            have += 1
    table.setflags(write=False)
    return table


def sum_log_pmf(s: npt.ArrayLike, sigma2: float, d: int) -> npt.NDArray[np.float64]:
    """Return the log-pmf of the sum of ``d`` independent N_Z(0, sigma2), exact to rounding.

    Parameters
    ----------
    s
        Integers (or whole floats) of any shape; a float with a fraction has probability 0.
    sigma2
        Noise parameter of one term, > 0.
    d
        Number of terms, >= 1.

    Returns
    -------
    ndarray, shape of ``s``

    Raises
    ------
    BudgetError
        For a sigma2 or d that cannot be.
    ReleaseError
        For an ``s`` that is NaN or beyond 2**62.

    Examples
    --------
    >>> float(sum_log_pmf(3, 5.0, 1) - log_pmf(3, 5.0))
    0.0
    """
    d, sigma2 = _checked_groups(d), float(sigma2)
    where = whole_or_real(s, "s")
    whole = where.astype(np.int64) if where.dtype.kind == "i" else np.floor(where)
    inside = np.abs(whole) <= LARGEST
    out = _shifted(sum_residue_table(sigma2, d), np.where(inside, whole, 0).astype(np.int64), sigma2, d)
    return np.asarray(np.where((whole == where) & inside, out, -np.inf))[()]


@functools.lru_cache(maxsize=1024)
def sum_variation(sigma2: float, d: int) -> float:
    """Return the total variation between the sum of ``d`` independent N_Z(0, sigma2) and N_Z(0, d sigma2).

    Parameters
    ----------
    sigma2
        Noise parameter of one term, > 0.
    d
        Number of terms, >= 1.

    Returns
    -------
    float
        In [0, 1], to 1e-14 absolute; 0 for sigma2 >= 4, where it is below 1e-16 (S2: about 2 d exp(-2 pi^2 sigma2 (1 - 1/d))).

    Examples
    --------
    >>> f"{sum_variation(1.0, 27):.3g}"
    '6.69e-08'
    """
    d = _checked_groups(d)
    if d == 1 or float(checked_sigma2(sigma2)) >= _WIDE:
        return 0.0
    reach = math.ceil(10.0 * math.sqrt(d * sigma2)) + 10
    s = np.arange(-reach, reach + 1)
    return float(0.5 * np.abs(np.exp(sum_log_pmf(s, sigma2, d)) - np.exp(log_pmf(s, d * sigma2))).sum())
