"""Measures of disclosure risk for one release: posterior, risk ratio, gain, decision and its threshold.

Everything is a function of two log-odds (before and after the release), so that a prior of 1e-300 and a
posterior that rounds to one are both exact. The noise enters only as ``sigma2``, the parameter of the
discrete Gaussian: no neighbour convention is assumed here.

It is not an average over releases (see :mod:`adversary.risk.expected`) and it draws nothing.

Held to account by tests/risk/test_measures.py and the ids ``post_ risk_ thr_ ext_ alt_ s13_ cells`` of the
reference.

Sources: Kazan & Reiter (arXiv 2204.04253), equations (3.1), (3.2), (3.5), (3.6) and S1.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError, ReleaseError
from adversary.samplers.closed import log_odds_of as prior_log_odds
from adversary.samplers.closed import one_level_log_odds

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "TIE_TOLERANCE",
    "decide",
    "decision_threshold",
    "log_odds_gain",
    "log_posterior",
    "near_tie",
    "one_level_log_odds",
    "posterior",
    "prior_log_odds",
    "record_log_posterior",
    "risk_ratio",
    "uniqueness_log_odds",
]

TIE_TOLERANCE = 1e-9
"""Log-odds up to this count as a tie, and a tie is answered with absent (the paper's strict rule)."""


def log_posterior(log_odds: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log probabilities of both classes, present first, from log-odds of any size.

    Parameters
    ----------
    log_odds
        Log-odds that the target is present, any shape, infinite values allowed.

    Returns
    -------
    tuple of ndarray
        ``(log P[present], log P[absent])``; each is exact to a relative 1e-15, however close to 0 or to -inf.

    Examples
    --------
    >>> present, absent = log_posterior(-700.0)
    >>> float(present), float(absent)
    (-700.0, -9.85967654375977e-305)
    """
    odds = np.asarray(log_odds, dtype=np.float64)
    return -np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)


def posterior(log_odds: ArrayLike) -> NDArray[np.float64]:
    """Probability that the target is present, from log-odds.

    Parameters
    ----------
    log_odds
        Log-odds, any shape.

    Returns
    -------
    ndarray
        Probabilities in [0, 1].

    Examples
    --------
    >>> round(float(posterior(0.29767906)), 6)
    0.573875
    """
    odds = np.asarray(log_odds, dtype=np.float64)
    small = np.exp(-np.abs(odds))
    return np.asarray(np.where(odds >= 0, 1.0, small) / (1.0 + small))


def _whole(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Integers, exactly: the difference of two counts is taken before anything becomes a float."""
    given = np.asarray(values)
    if given.dtype.kind not in "iu":
        as_float = given.astype(np.float64)
        if (
            not np.all(np.isfinite(as_float))
            or np.any(as_float != np.floor(as_float))
            or np.any(abs(as_float) > 2.0**53)
        ):
            msg = (
                f"{what} must be whole numbers within 2^53, got {given}: "
                "a noisy count is an integer, round nothing"
            )
            raise ReleaseError(msg, values)
    return given.astype(np.int64)


def _positive_sigma2(sigma2: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(sigma2, dtype=np.float64)
    if not np.all((values > 0) & np.isfinite(values)):
        msg = (
            f"sigma2 must be positive and finite, got {sigma2!r}: "
            "leave an unmeasured count out, an exact one needs no risk"
        )
        raise ModelError(msg, sigma2)
    return values


def uniqueness_log_odds(noisy: ArrayLike, sigma2: ArrayLike, log_odds: ArrayLike) -> NDArray[np.float64]:
    """Posterior log-odds that a record exists which would be alone in its cell at several levels (S1.3).

    Parameters
    ----------
    noisy
        Whole numbers, last axis = levels.
    sigma2
        Noise parameter of each level, broadcast against ``noisy``.
    log_odds
        Prior log-odds.

    Returns
    -------
    ndarray
        Posterior log-odds, the last axis summed.

    Examples
    --------
    >>> round(float(uniqueness_log_odds([2, 1], [5.0, 2.0], 0.0)), 3)
    0.55
    """
    excess = _whole(noisy, "noisy counts")
    return np.asarray(
        np.asarray(log_odds) + np.sum((2.0 * excess - 1.0) / (2.0 * _positive_sigma2(sigma2)), axis=-1)
    )


def record_log_posterior(
    excess: ArrayLike, sigma2: float, log_prior: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Log posterior over the cells that one record may lie in, all cells noisy with the same ``sigma2``.

    Parameters
    ----------
    excess
        ``noisy - known`` for each cell, whole numbers, last axis = cells.
    sigma2
        Noise parameter of one cell.
    log_prior
        Log prior weights of the cells (need not be normalised); uniform by default.

    Returns
    -------
    ndarray
        Log probabilities, normalised over the last axis: a softmax of ``log_prior + excess / sigma2``.

    Examples
    --------
    >>> np.exp(record_log_posterior([2, -1, 1], 5.0, np.log([0.5, 0.3, 0.2]))).round(6).tolist()
    [0.603581, 0.198751, 0.197668]
    """
    score = _whole(excess, "excess counts") / float(_positive_sigma2(sigma2))
    if log_prior is not None:
        score = score + np.asarray(log_prior, dtype=np.float64)
    score = score - score.max(axis=-1, keepdims=True)
    return np.asarray(score - np.log(np.exp(score).sum(axis=-1, keepdims=True)))


def risk_ratio(log_odds: ArrayLike, prior: ArrayLike) -> NDArray[np.float64]:
    """Risk R' = posterior probability / prior probability (equation (3.2)).

    Parameters
    ----------
    log_odds
        Posterior log-odds.
    prior
        Prior **log-odds** (see :func:`prior_log_odds`).

    Returns
    -------
    ndarray
        Ratios in (0, 1/p); below one where the release speaks against the target.

    Examples
    --------
    >>> round(float(risk_ratio(0.29767906, 0.0)), 3)
    1.148
    """
    return np.asarray(np.exp(log_posterior(log_odds)[0] - log_posterior(prior)[0]))


def log_odds_gain(log_odds: ArrayLike, prior: ArrayLike) -> NDArray[np.float64]:
    """Take the difference that the release makes to the log-odds: free of the prior for one level.

    Parameters
    ----------
    log_odds, prior
        Posterior and prior log-odds.

    Returns
    -------
    ndarray
        The difference.

    Examples
    --------
    >>> float(log_odds_gain(1.5, 1.0))
    0.5
    """
    return np.asarray(np.asarray(log_odds, dtype=np.float64) - np.asarray(prior, dtype=np.float64))


def decide(log_odds: ArrayLike, tie_tolerance: float = TIE_TOLERANCE) -> NDArray[np.bool_]:
    """Bayes decision under 0-1 loss, strict: present only if its probability exceeds 1/2 (equation (3.5)).

    Parameters
    ----------
    log_odds
        Posterior log-odds.
    tie_tolerance
        Log-odds up to this value count as a tie, and a tie goes to absent. Ties are real: with two levels,
        equal noise and an even number of siblings, several per cent of all releases lie on one, and float64
        breaks them by rounding.

    Returns
    -------
    ndarray of bool
        True where the adversary says present.

    Examples
    --------
    >>> decide([0.0, 1e-12, 0.1]).tolist()
    [False, False, True]
    """
    return np.asarray(np.asarray(log_odds) > tie_tolerance)


def near_tie(log_odds: ArrayLike, tie_tolerance: float = TIE_TOLERANCE) -> NDArray[np.bool_]:
    """Where the decision hangs on the tie rule.

    Parameters
    ----------
    log_odds
        Posterior log-odds.
    tie_tolerance
        See :func:`decide`.

    Returns
    -------
    ndarray of bool
        True where the log-odds are within the tolerance of zero.

    Examples
    --------
    >>> near_tie([0.0, 0.1]).tolist()
    [True, False]
    """
    return np.asarray(np.abs(np.asarray(log_odds)) <= tie_tolerance)


def decision_threshold(log_odds: ArrayLike, sigma2: ArrayLike) -> NDArray[np.int64]:
    """Smallest ``noisy - known`` at which the adversary says present (equation (3.6)).

    ``floor(1/2 - log_odds * sigma2) + 1``; a value of ``1/2 - log_odds * sigma2`` that is an integer but for
    rounding is a tie and goes to absent, as in :func:`decide`.

    Parameters
    ----------
    log_odds
        Prior log-odds.
    sigma2
        Noise parameter.

    Returns
    -------
    ndarray of int
        The threshold; 1 for a prior of one half whatever the noise.

    Examples
    --------
    >>> decision_threshold(prior_log_odds([0.5, 0.2, 0.1]), 5.0389839).tolist()
    [1, 8, 12]
    """
    edge = 0.5 - np.asarray(log_odds, dtype=np.float64) * _positive_sigma2(sigma2)
    nearest = np.rint(edge)
    tied = np.abs(edge - nearest) <= 4e-16 * np.maximum(1.0, np.abs(edge)) * 4
    return np.asarray(np.where(tied, nearest, np.floor(edge)) + 1, dtype=np.int64)
