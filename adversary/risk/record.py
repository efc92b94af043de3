"""Expected disclosure risk for a whole record: the adversary asks in which of K cells the target lies.

All K cells of the block are published with the same noise and the adversary knows the other persons of each.
Her posterior is a softmax of ``log prior + excess / sigma2`` (spec, S1.2). Its K noises are independent given
the true cell, so nothing needs drawing:

* the mean posterior of the true cell is ``E[A / (A + S)] = integral of E[A exp(-u A)] E[exp(-u S)] du``, one
  integral of a smooth positive function, with E[exp(-u S)] a product over cells; the step is halved until
  nothing moves;
* the chance that the true cell is among the k most probable ones is a sum over its own noise of
  Poisson-binomial probabilities: exact;
* the expected rank is a sum over pairs of cells: exact.

Cells with equal priors are exchangeable and are treated together, so K = 2,016 costs no more than their
number of different priors. Not here: cells with different noise, and sums of cells published beside them.

Held to account by tests/risk/test_record.py (direct sums over two and three cells, simulation for many).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import noise_window

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["RecordRisk", "expected_whole_record"]

_SCORE_TIE = 1e-9


@dataclass(frozen=True, eq=False)
class RecordRisk:
    """Risk for a whole record, averaged over releases.

    Parameters
    ----------
    posterior
        Mean posterior probability of the true cell.
    risk
        The same divided by the mean prior probability of the true cell.
    top
        Probability that the true cell is among the ``k`` most probable, ties broken by lot.
    top_strict, top_lenient
        The same with every tie against, and for, the true cell: bounds that bracket any rule.
    expected_rank
        Mean rank of the true cell, 1 = most probable, ties at the middle.
    near_tie_mass
        ``top_lenient - top_strict``.
    left_out_bound
        Bound on the probability outside the windows.
    integration_error
        Last change of ``posterior`` when the step of the integral was halved (observed, not proven).
    """

    posterior: float
    risk: float
    top: float
    top_strict: float
    top_lenient: float
    expected_rank: float
    near_tie_mass: float
    left_out_bound: float
    integration_error: float


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells grouped by equal prior: log prior of each group, and how many cells it holds."""

    log_prior: NDArray[np.float64]
    count: NDArray[np.int64]
    noise: NDArray[np.int64]
    pmf: NDArray[np.float64]
    sigma2: float

    def others(self, group: int) -> NDArray[np.int64]:
        """Count the cells per group beside a true cell of ``group``."""
        rest = self.count.copy()
        rest[group] -= 1
        return rest


def _cells(
    log_prior: NDArray[np.float64], sigma2: float, left_out: float
) -> tuple[_Cells, NDArray[np.int64]]:
    scaled = log_prior - log_prior.max()
    scaled = scaled - np.log(np.exp(scaled).sum())
    value, group, count = np.unique(scaled.round(13), return_inverse=True, return_counts=True)
    half = noise_window(sigma2, left_out)
    noise = np.arange(-half, half + 1)
    return _Cells(value, count, noise, np.exp(dg.log_pmf(noise, sigma2)), sigma2), group


def expected_whole_record(
    sigma2: float,
    *,
    cells: int | None = None,
    log_prior: ArrayLike | None = None,
    true_cell: int | None = None,
    top: int = 1,
    tolerance: float = 1e-12,
) -> RecordRisk:
    """Disclosure risk if the adversary asks for the cell of the target, averaged over the noise.

    Parameters
    ----------
    sigma2
        Noise parameter of each cell.
    cells
        Number of cells with a uniform prior; or give ``log_prior``.
    log_prior
        Log prior of each cell, normalised here.
    true_cell
        Index of the target's cell; by default averaged over the prior.
    top
        k of the top-k success.
    tolerance
        Bound on the probability left out by the noise windows.

    Returns
    -------
    RecordRisk
        All numbers given the truth, or averaged over it.

    Raises
    ------
    ModelError
        If fewer than two cells, a bad index or noise parameter.
    UnsupportedModelError
        If ``sigma2`` is beyond 1e7.

    Examples
    --------
    >>> two = expected_whole_record(5.0, cells=2)
    >>> round(two.posterior, 6), round(two.expected_rank, 4)
    (0.54567, 1.3769)
    """
    if (cells is None) == (log_prior is None):
        msg = f"give cells or log_prior, one of the two, got cells={cells!r} and log_prior={log_prior!r}"
        raise ModelError(msg, (cells, log_prior))
    weights = np.zeros(int(cells)) if cells is not None else np.asarray(log_prior, dtype=np.float64)
    if weights.ndim != 1 or weights.size < 2 or not np.all(np.isfinite(weights)):
        msg = (
            f"a record needs at least two cells with finite log priors, got {weights}: "
            "leave impossible cells out"
        )
        raise ModelError(msg, weights)
    if not sigma2 > 0:
        msg = f"sigma2 must be positive, got {sigma2}: exact cells give the record away"
        raise ModelError(msg, sigma2)
    if sigma2 > 1e7:
        msg = f"sigma2 = {sigma2} is too wide to sum, the posterior is within {2 / sigma2:.0e} of the prior"
        raise UnsupportedModelError(msg, sigma2)
    if true_cell is not None and not 0 <= true_cell < weights.size:
        msg = f"true_cell must be an index below {weights.size}, got {true_cell}"
        raise ModelError(msg, true_cell)
    if not 1 <= top < weights.size:
        msg = (
            f"top must be between 1 and {weights.size - 1}, got {top}: among all cells the true one always is"
        )
        raise ModelError(msg, top)
    grouped, group = _cells(weights, sigma2, tolerance / weights.size)
    share = np.exp(grouped.log_prior) * grouped.count
    if true_cell is not None:
        share = (np.arange(share.size) == group[true_cell]).astype(np.float64)
    parts = [_given(grouped, int(g), top) for g in np.flatnonzero(share)]
    mean = np.average(np.array(parts), axis=0, weights=share[share > 0])
    posterior, error, lot, strict, lenient, rank = (float(v) for v in mean)
    prior = float(share @ np.exp(grouped.log_prior))
    return RecordRisk(
        posterior=posterior,
        risk=posterior / prior,
        top=lot,
        top_strict=strict,
        top_lenient=lenient,
        expected_rank=rank,
        near_tie_mass=lenient - strict,
        left_out_bound=tolerance,
        integration_error=error,
    )


def _given(cells: _Cells, group: int, top: int) -> tuple[float, ...]:
    posterior, error = _mean_posterior(cells, group)
    lot, strict, lenient, rank = _ranking(cells, group, top)
    return posterior, error, lot, strict, lenient, rank


def _mean_posterior(cells: _Cells, group: int) -> tuple[float, float]:
    """``E[A / (A + S)]`` by the trapezoid in log u, halved until it rests; the integrand decays both ways."""
    own = cells.log_prior[group] + (cells.noise + 1.0) / cells.sigma2
    others = cells.others(group)
    # A exp(-u A) du, u = exp(v): largest at v = -log A; below it falls as e^v, above doubly exponentially
    low = -float(own.max()) - 45.0
    high = -float(own.min()) + 5.0
    step = 0.5
    before = total = math.inf
    for _ in range(12):
        v = np.arange(low, high + step, step)
        total = step * float(_integrand(cells, own, others, v).sum())
        if abs(total - before) <= 1e-14 * total:
            break
        before, step = total, step / 2.0
    return total, abs(total - before)


def _integrand(
    cells: _Cells, own: NDArray[np.float64], others: NDArray[np.int64], v: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``E[u A exp(-u A)] * prod over the other cells of E[exp(-u S_k)]`` at ``u = exp(v)``."""
    out = np.empty(v.size)
    rows = max(1, 200_000 // own.size)
    for start in range(0, v.size, rows):
        part = v[start : start + rows, None]
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.exp(part + own)
            value = (scaled * np.exp(-scaled)) @ cells.pmf
            log_rest = np.zeros(value.size)
            for log_prior, count in zip(cells.log_prior, others, strict=True):
                if count:
                    # 1 - E[exp(-s)] by expm1: exact where u is small, so that the power K loses nothing
                    load = np.exp(part + (log_prior + cells.noise / cells.sigma2))
                    gone = np.minimum(-np.expm1(-load) @ cells.pmf, 0.5)
                    kept = np.maximum(np.exp(-load) @ cells.pmf, 1e-300)
                    log_rest += count * np.where(gone < 0.5, np.log1p(-gone), np.log(kept))
            out[start : start + rows] = value * np.exp(log_rest)
    return out


def _ranking(cells: _Cells, group: int, top: int) -> tuple[float, float, float, float]:
    """Top-k success by lot, strictly, leniently, and the expected rank, given a true cell of ``group``."""
    others = cells.others(group)
    own = cells.log_prior[group] + (cells.noise + 1.0) / cells.sigma2
    tail = np.concatenate([np.cumsum(cells.pmf[::-1])[::-1], [0.0]])
    above = np.empty((own.size, others.size))
    equal = np.empty((own.size, others.size))
    for k, log_prior in enumerate(cells.log_prior):
        score = log_prior + cells.noise / cells.sigma2
        first = np.searchsorted(score, own - _SCORE_TIE, side="left")
        last = np.searchsorted(score, own + _SCORE_TIE, side="right")
        above[:, k] = tail[last]
        equal[:, k] = tail[first] - tail[last]
    rank = 1.0 + float(cells.pmf @ ((above + 0.5 * equal) @ others))
    strict = float(cells.pmf @ _fewer_than(top, above + equal, others))
    lenient = float(cells.pmf @ _fewer_than(top, above, others))
    # a lot: every tied cell beats the true one with the same uniform chance u
    lot, before, points = 0.0, math.inf, 8
    while points <= 128:
        node, weight = np.polynomial.legendre.leggauss(points)
        lot = sum(
            0.5
            * float(w)
            * float(cells.pmf @ _fewer_than(top, above + 0.5 * (1.0 + float(x)) * equal, others))
            for x, w in zip(node, weight, strict=True)
        )
        if abs(lot - before) < 1e-13:
            break
        before, points = lot, 2 * points
    return lot, strict, lenient, rank


def _fewer_than(k: int, chance: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    """P[fewer than k successes] for independent groups of trials, by a polynomial cut at degree k."""
    state = np.zeros((chance.shape[0], k))
    state[:, 0] = 1.0
    for group, trials in enumerate(count):
        if trials == 0:
            continue
        q = np.clip(chance[:, group], 0.0, 1.0)
        term = np.empty((q.size, min(k, int(trials) + 1)))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_q, log_miss = np.log(q), np.log1p(-q)
            log_choose = 0.0
            for j in range(term.shape[1]):
                hits = np.where(j == 0, 0.0, j * log_q)
                misses = np.where(trials - j == 0, 0.0, (int(trials) - j) * log_miss)
                term[:, j] = np.exp(log_choose + hits + misses)
                log_choose += math.log(max(int(trials) - j, 1)) - math.log(j + 1.0)
        new = np.zeros_like(state)
        for j in range(term.shape[1]):
            new[:, j:] += state[:, : k - j] * term[:, j, None]
        state = new
    return np.asarray(state.sum(axis=1))
