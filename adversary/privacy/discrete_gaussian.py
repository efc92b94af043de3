"""The discrete Gaussian N_Z(mu, sigma^2): P[X = n] proportional to exp(-(n - mu)^2 / (2 sigma^2)) on the integers.

The public face of the formulas: log-pmf, pmf, cdf, sf (and their logs), ppf, mean, variance, entropy, draws, and the law of a
sum of several. Everything broadcasts as NumPy does. The parameter is ``sigma2``, which is not the variance where it is
small (sigma2 = 0.25 has variance 0.215); ``sigma2 = 0`` is a point mass, an exact count.

What it is not: a mechanism for releasing data (see :func:`sample`), or a PyMC distribution (see
:mod:`adversary.distributions`, a skin over these formulas).

Right for sigma from 1e-3 to 1e9 and counts to 2^53: relative error of the log-pmf below 1e-13, tails by logarithm. Held to
account by ``tests/privacy`` against 50-digit arithmetic and by the ids ``dg_`` of the reference. Sources: Canonne, Kamath &
Steinke (arXiv 2004.00010); Kazan & Reiter (arXiv 2204.04253), S2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from adversary.privacy._lattice import Floats, entropy, log_norm, log_pmf, mean, variance
from adversary.privacy._sampling import sample
from adversary.privacy._sums import sum_log_pmf, sum_residue_table, sum_variation
from adversary.privacy._tails import cdf, log_cdf, log_sf, ppf, sf

__all__ = [
    "cdf",
    "entropy",
    "log_cdf",
    "log_norm",
    "log_pmf",
    "log_sf",
    "mean",
    "pmf",
    "ppf",
    "sample",
    "sf",
    "sum_log_pmf",
    "sum_residue_table",
    "sum_variation",
    "variance",
]


def pmf(n: npt.ArrayLike, sigma2: npt.ArrayLike, mu: npt.ArrayLike = 0.0) -> Floats:
    """Return P[X = n] under N_Z(mu, sigma2).

    Parameters
    ----------
    n
        Integers; a float with a fraction has probability 0.
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
    >>> float(pmf(0, 0.0))
    1.0
    """
    return np.asarray(np.exp(log_pmf(n, sigma2, mu)))[()]
