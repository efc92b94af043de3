"""Whether chains of counts have met: split r_hat and effective sample size, in NumPy.

What it is: the two numbers of every sampler's verdict, for this room, which may not import ArviZ. What it is
not: rank-normalised; counts have no heavy tails. A chain that never moves gets no verdict (nan).

Held to account by tests/reconstruction/test_tempering.py (autoregressive chains of known efficiency; ArviZ).
Source: Gelman et al., Bayesian Data Analysis, 3rd edition, sec. 11.4-11.5 (Geyer's initial monotone sequence).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ess", "split_r_hat"]


def _split(chains: NDArray[np.float64]) -> NDArray[np.float64]:
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]])


def split_r_hat(chains: NDArray[np.float64]) -> float:
    """Return the potential scale reduction of half chains; chains of shape (chains, draws); nan if constant."""
    x = _split(np.asarray(chains, dtype=np.float64))
    n = x.shape[1]
    if n < 2:
        return math.nan
    within = float(x.var(axis=1, ddof=1).mean())
    between = float(n * x.mean(axis=1).var(ddof=1))
    if within == 0:
        return math.nan if between == 0 else math.inf
    return math.sqrt((n - 1) / n + between / (n * within))


def ess(chains: NDArray[np.float64]) -> float:
    """Return the effective number of draws for the mean; chains of shape (chains, draws); nan if constant."""
    x = _split(np.asarray(chains, dtype=np.float64))
    m, n = x.shape
    if n < 4 or x.std() == 0:
        return math.nan
    centred = x - x.mean(axis=1, keepdims=True)
    power = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    autocovariance = np.fft.irfft(power, axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1)
    pooled = within * (n - 1) / n + float(x.mean(axis=1).var(ddof=1))
    rho = 1 - (within - autocovariance * n / (n - 1)) / pooled
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    pairs[0] = 1 + rho[1]
    negative = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: negative[0] if negative.size else len(pairs)])
    time = -1 + 2 * float(pairs.sum())
    return float(min(m * n / max(time, 1 / math.log10(m * n)), m * n * math.log10(m * n)))
