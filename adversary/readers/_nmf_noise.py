"""From the variance that a noisy measurement file publishes to sigma^2, the parameter of its noise. Internal.

Production publishes, as a 32-bit float, the true variance of the discrete Gaussian where sigma^2 <= 100 and
sigma^2 itself beyond. Without a budget the variance is turned back; with one, sigma^2 is one of the values
1 / (rho gamma alpha) that the budget can give, gamma being the share of a level or, at a unit that took over
the share of its only child, of a run of levels from it downwards.

What this module is not: the law of the noise (:mod:`adversary.privacy.discrete_gaussian`).

Held to account by ``tests/readers/test_nmf.py``. Sources: the Bureau's ``discrete_gaussian_utility.py`` as read in
the project's specification of spines, sec. 7; Cumings-Menon et al., arXiv 2203.16654, sec. 5.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError, FileFormatError
from adversary.privacy.discrete_gaussian import variance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from adversary.privacy.budget import Allocation

__all__ = ["gamma_candidates", "published_variance", "sigma2_of", "snapped"]

TRUE_VARIANCE_UP_TO = 100.0
_SINGLE = 2.0**-22  # two roundings to 24 bits


def published_variance(sigma2: Any) -> NDArray[np.float64]:
    """Variance that is published for a noise: the true one up to sigma^2 = 100, sigma^2 beyond."""
    s2 = np.asarray(sigma2, float)
    return np.where(s2 <= TRUE_VARIANCE_UP_TO, variance(np.minimum(s2, TRUE_VARIANCE_UP_TO)), s2)


def sigma2_of(published: NDArray[np.float64]) -> NDArray[np.float64]:
    """Noise parameter whose published variance this is; finite and >= 0, any shape.

    Bisection in log sigma^2 on the distinct values; for sigma^2 of 3 or more the two agree to the last bit.
    """
    values, place = np.unique(np.asarray(published, float), return_inverse=True)
    out = values.copy()
    narrow = (values > 0) & (values < 3.0)
    if narrow.any():
        target = values[narrow]
        low, high = np.full(target.size, 1e-4), np.full(target.size, 4.0)
        for _ in range(80):
            middle = np.sqrt(low * high)
            above = variance(middle) > target
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        out[narrow] = np.sqrt(low * high)
    return out[place].reshape(np.shape(published))


def gamma_candidates(allocation: Allocation, level: str, levels: Sequence[str]) -> tuple[Fraction, ...]:
    """Shares that a unit of ``level`` can have: its level's, and with the levels below it, one after another."""
    below = levels[levels.index(level) :]
    shares = (allocation.level[allocation.level_named(name)] for name in below)
    return tuple(accumulate(shares))


def snapped(
    published: NDArray[np.float64],
    candidates: Sequence[tuple[Fraction, float]],
    where: str,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Exact sigma^2 of every published variance, and which candidate it is.

    Parameters
    ----------
    published
        Finite, shape (n,).
    candidates
        (share, sigma^2) pairs.
    where
        Level and query, for the message.

    Raises
    ------
    FileFormatError
        For a variance that is none of the candidates' to 32 bits.
    BudgetError
        Where no candidate has a budget.
    """
    usable = [(k, s) for k, (_, s) in enumerate(candidates) if np.isfinite(s) and s > 0]
    if not usable:
        msg = f"{where} has no budget in the allocation, but the file has measurements: give the right allocation"
        raise BudgetError(msg, where)
    index = np.array([k for k, _ in usable], np.int64)
    sigma2 = np.array([s for _, s in usable])
    expected = published_variance(sigma2)
    values, place = np.unique(published, return_inverse=True)
    nearest = np.abs(values[:, None] - expected).argmin(axis=1)
    bad = np.flatnonzero(np.abs(values - expected[nearest]) > _SINGLE * expected[nearest])
    if bad.size:
        odd = float(values[bad[0]])
        near = ", ".join(f"{v:.7g}" for v in expected[:8])
        msg = (
            f"{where}: a variance of {odd:.7g} is none that the allocation gives ({near}): it is another run's; "
            "open the files without it, and the noise is taken from them"
        )
        raise FileFormatError(msg, odd)
    chosen = nearest[place.ravel()]
    return sigma2[chosen], index[chosen]
