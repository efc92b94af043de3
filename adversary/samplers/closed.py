"""Closed-form posterior of one and of two levels, many targets in one call.

What it is: the adversary's log-odds that the target is present, given the noisy count of the cell in the
target's block (one level), or that count, the block group's, and the sum over the group's other blocks (two
levels, flat prior on the people elsewhere). Nothing is sampled and nothing iterates until convergence: all
hard work is a one-sided theta function, taken by the method whose error is bounded in its region.

What it is not: the paper's printed two-level numbers. Those fit a sampler whose step for the target forgets
that a block group holds no fewer people than its block; its stationary law lives in
`adversary.samplers.gibbs` as mode ``"literal"``. Nor is it a model with several cells, priors on the people
elsewhere, or more levels: see `adversary.samplers.exact`.

How each sum is taken, and the bound on what it leaves out, is written in `_theta.py`.

Held to account by tests/samplers/test_closed.py: the definition summed with 50 digits over rho 1e-6..1e3, p
down to 1e-300, counts to 1e9; reference/kazan_reiter.json.

Sources: Kazan & Reiter (arXiv 2204.04253) sections 3.1, 3.2; Euler-Maclaurin remainder: NIST DLMF 2.10.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import BudgetError, ModelError, ReleaseError
from adversary.samplers._theta import hierarchy, log_ratio, pick, windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = [
    "integer_log_odds",
    "log_odds_of",
    "log_risk",
    "one_level_log_odds",
    "probability",
    "rest_noise_error",
    "risk",
    "two_level_exact_noise_log_odds",
    "two_level_grouped_log_odds",
    "two_level_log_odds",
]

_CHUNK = 8192  # the working arrays of a chunk stay in the cache
_LIMIT = 2**53


def one_level_log_odds(
    x_star: ArrayLike, known: ArrayLike, sigma2: ArrayLike, prior_log_odds: ArrayLike
) -> Floats:
    """Posterior log-odds that the target is in the cell, from one noisy count.

    Parameters
    ----------
    x_star
        Noisy count of the cell, any integer.
    known
        People in the cell whom the adversary knows, the target apart.
    sigma2
        Noise parameter of the discrete Gaussian, above 0.
    prior_log_odds
        log(p/(1-p)) of the prior, see `log_odds_of`.

    Returns
    -------
    numpy.ndarray
        prior + (2(x* - known) - 1)/(2 sigma2), of the shape the arguments broadcast to.

    Raises
    ------
    ReleaseError
        A count is not a whole number below 2^53.
    BudgetError
        A noise parameter is not above 0 and finite.

    Notes
    -----
    Kazan & Reiter eq. (3.1) with sigma2 = 1/(2 rho).

    Examples
    --------
    >>> round(float(probability(one_level_log_odds(2, 0, 5.03898, 0.0))), 4)
    0.5739
    """
    excess = _whole("x_star", x_star) - _whole("known", known)
    return np.asarray(
        _numbers("prior_log_odds", prior_log_odds) + log_ratio(excess, _noise("sigma2", sigma2))
    )


def two_level_log_odds(  # noqa: PLR0913, PLR0917 (the release has three counts with their noise)
    x1_star: ArrayLike,
    x2_star: ArrayLike,
    y1_star: ArrayLike,
    known: ArrayLike,
    sigma2_1: ArrayLike,
    sigma2_2: ArrayLike,
    sigma2_rest: ArrayLike,
    prior_log_odds: ArrayLike,
) -> Floats:
    """Posterior log-odds from the counts of the block, of its group, and of the rest.

    Parameters
    ----------
    x1_star, x2_star, y1_star
        Noisy counts of the cell in the block, in the block group, and summed over the group's other blocks.
    known
        People in the block's cell whom the adversary knows, the target apart.
    sigma2_1, sigma2_2
        Noise parameters of the block's and the block group's count.
    sigma2_rest
        Noise parameter of y1*, taken as one discrete Gaussian: (number of other blocks) x sigma2_1. Good to
        1e-6 in probability where `rest_noise_error` says so; `two_level_grouped_log_odds` chooses by itself.
    prior_log_odds
        log(p/(1-p)) of the prior.

    Returns
    -------
    numpy.ndarray
        Log-odds, of the shape the arguments broadcast to. Parameters may differ from target to target; those
        given as one number cost less.

    Raises
    ------
    ReleaseError, BudgetError
        As `one_level_log_odds`.

    Notes
    -----
    Kazan & Reiter section 3.2, as the product of its factors: the number of people elsewhere is flat on {0,
    1, ...} and independent of the target.

    Examples
    --------
    >>> s1, s2 = 1 / (2 * 0.0992264), 1 / (2 * 0.2464845)
    >>> round(float(probability(two_level_log_odds(2, 1, -1, 0, s1, s2, 27 * s1, 0.0))), 6)
    0.503288
    """
    return _two_level(
        _counts(x1_star, x2_star, y1_star, known),
        (sigma2_1, sigma2_2, sigma2_rest),
        prior_log_odds,
        lower=True,
    )


def integer_log_odds(  # noqa: PLR0913, PLR0917 (as two_level_log_odds)
    x1_star: ArrayLike,
    x2_star: ArrayLike,
    y1_star: ArrayLike,
    known: ArrayLike,
    sigma2_1: ArrayLike,
    sigma2_2: ArrayLike,
    sigma2_rest: ArrayLike,
    prior_log_odds: ArrayLike,
) -> Floats:
    """Two-level log-odds for an adversary who forgets that no count is below zero.

    The number of people elsewhere runs over all integers; a yardstick for what the constraint does, not a
    posterior to report. Arguments, result and errors as `two_level_log_odds`.

    Examples
    --------
    >>> s1, s2 = 1 / (2 * 0.0992264), 1 / (2 * 0.2464845)
    >>> round(float(probability(integer_log_odds(2, 1, -1, 0, s1, s2, 27 * s1, 0.0))), 6)
    0.576529
    """
    return _two_level(
        _counts(x1_star, x2_star, y1_star, known),
        (sigma2_1, sigma2_2, sigma2_rest),
        prior_log_odds,
        lower=False,
    )


def two_level_grouped_log_odds(  # noqa: PLR0913, PLR0917 (as two_level_log_odds)
    x1_star: ArrayLike,
    x2_star: ArrayLike,
    y1_star: ArrayLike,
    known: ArrayLike,
    sigma2_1: ArrayLike,
    sigma2_2: ArrayLike,
    sigma2_each: ArrayLike,
    groups: ArrayLike,
    prior_log_odds: ArrayLike,
) -> Floats:
    """Two-level log-odds where the law of the noise of y1* is chosen by its size.

    Parameters
    ----------
    x1_star, x2_star, y1_star, known, sigma2_1, sigma2_2, prior_log_odds
        As `two_level_log_odds`.
    sigma2_each
        Noise parameter of each count in the sum y1*.
    groups
        Number of counts in the sum: the group's *other* blocks. Where it is 0 the block is its whole group,
        y1* is not looked at, and both counts see the same number of people.

    Returns
    -------
    numpy.ndarray
        Log-odds. The sum's noise is taken as one discrete Gaussian where that moves no probability by more
        than 1e-6 (`rest_noise_error`), and as the exact convolution elsewhere.

    Raises
    ------
    ReleaseError, BudgetError
        As `one_level_log_odds`; also if ``groups`` is negative.

    Examples
    --------
    An only block: the same people are counted twice.

    >>> float(two_level_grouped_log_odds(2, 1, 0, 0, 5.0, 2.0, 5.0, 0, 0.0))
    0.55
    """
    counts = _counts(x1_star, x2_star, y1_star, known)
    s1, s2 = _noise("sigma2_1", sigma2_1), _noise("sigma2_2", sigma2_2)
    each, d = _noise("sigma2_each", sigma2_each), _whole("groups", groups)
    if (d < 0).any():
        msg = f"groups must not be negative, got {d.min()}: give the number of other blocks"
        raise ReleaseError(msg, int(d.min()))
    prior = _numbers("prior_log_odds", prior_log_odds)
    shape = np.broadcast_shapes(*(a.shape for a in (*counts, s1, s2, each, d, prior)))
    x1, x2, y1, m, s1, s2, each, d, prior = (
        np.broadcast_to(a, shape).ravel() for a in (*counts, s1, s2, each, d, prior)
    )
    out = prior + log_ratio(x1 - m, s1) + log_ratio(x2 - m, s2)
    rough = rest_noise_error(each, d) > 1e-6
    plain = (d > 0) & ~rough
    at = np.flatnonzero(plain)
    out[at] = two_level_log_odds(
        x1[at], x2[at], y1[at], m[at], s1[at], s2[at], (each * d)[at], prior[at]
    )  # fmt: skip
    for sigma2, number in np.unique(np.stack([each, d.astype(float)], axis=1)[rough], axis=0):
        at = np.flatnonzero(rough & (each == sigma2) & (d == number))
        law = _sum_law(float(sigma2), int(number))
        start = np.array(sigma2 * number)
        out[at] = two_level_exact_noise_log_odds(
            x1[at], x2[at], y1[at], m[at], s1[at], s2[at], start, prior[at], law
        )  # fmt: skip
    return out.reshape(shape)


def two_level_exact_noise_log_odds(  # noqa: PLR0913, PLR0917 (as two_level_log_odds)
    x1_star: ArrayLike,
    x2_star: ArrayLike,
    y1_star: ArrayLike,
    known: ArrayLike,
    sigma2_1: ArrayLike,
    sigma2_2: ArrayLike,
    sigma2_rest: ArrayLike,
    prior_log_odds: ArrayLike,
    log_noise: Callable[[Integers], Floats],
) -> Floats:
    """Log-odds of two levels where the noise of y1* has any log-concave law.

    Parameters
    ----------
    x1_star, x2_star, y1_star, known, sigma2_1, sigma2_2, prior_log_odds
        As `two_level_log_odds`.
    sigma2_rest
        About the variance of the noise of y1*: says only where the search for the largest term starts.
    log_noise
        Log-probability of each integer under the noise of y1*, up to a constant; log-concave.

    Returns
    -------
    numpy.ndarray
        Log-odds. The window over the people elsewhere is widened until the bound w r/(1 - r) on what lies
        beyond each edge (w the edge term, r < 1 its ratio to the one before, which can only fall further out)
        is below 1e-16 of the sum.

    Raises
    ------
    ReleaseError, BudgetError
        As `one_level_log_odds`.
    UnsupportedModelError
        The window does not close (the law is not log-concave), or the counts contradict each other so much
        that rounding would show (log-probability below -1e7).

    Examples
    --------
    >>> s1, s2 = 1 / (2 * 0.0992264), 1 / (2 * 0.2464845)
    >>> log_noise = lambda s: -(s**2) / (2 * 27 * s1)
    >>> odds = two_level_exact_noise_log_odds(2, 1, -1, 0, s1, s2, 27 * s1, 0.0, log_noise)
    >>> round(float(probability(odds)), 6)
    0.503288
    """
    counts = _counts(x1_star, x2_star, y1_star, known)
    noises = [_noise(name, a) for name, a in (("sigma2_1", sigma2_1), ("sigma2_2", sigma2_2))]
    prior, s3 = _numbers("prior_log_odds", prior_log_odds), _noise("sigma2_rest", sigma2_rest)
    shape = np.broadcast_shapes(*(a.shape for a in (*counts, *noises, s3, prior)))
    x1, x2, y1, m, s1, s2, s3, prior = (
        np.broadcast_to(a, shape).ravel() for a in (*counts, *noises, s3, prior)
    )
    out = prior + log_ratio(x1 - m, s1)
    for start in range(0, out.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        out[part] += windowed((x2 - m)[part], y1[part], s2[part], s3[part], log_noise)
    return np.asarray(out.reshape(shape))


def rest_noise_error(sigma2: ArrayLike, groups: ArrayLike) -> Floats:
    """Bound the error in probability from taking a sum of noises as one discrete Gaussian.

    Parameters
    ----------
    sigma2
        Noise parameter of each count.
    groups
        How many counts are summed.

    Returns
    -------
    numpy.ndarray
        B = 2 d (exp(-x (d-1)/d) + exp(-x)), x = 2 pi^2 sigma2: twice the largest effect on a probability, to
        leading order, at whatever release. 0 for one count. Above 1e-6 the exact law should be used.

    Notes
    -----
    The log of (law of the sum)/(discrete Gaussian) is 2 d exp(-x) (exp(x/d) cos(2 pi s/d) - 1) at s, by
    Poisson summation (supplement S2 of Kazan & Reiter). Each of two log-sums moves by at most its maximum,
    the log-odds by twice that, the probability by a quarter of the log-odds: B/2; the factor two covers the
    higher orders.

    Examples
    --------
    >>> bool(rest_noise_error(10.08, 27) < 1e-80), bool(rest_noise_error(0.5, 27) > 1e-6)
    (True, True)
    """
    d = np.maximum(_whole("groups", groups), 1)
    x = 2.0 * math.pi**2 * _noise("sigma2", sigma2)
    return np.asarray(np.where(d > 1, 2.0 * d * (np.exp(-x * (d - 1) / d) + np.exp(-x)), 0.0))


# ------------------------------------------------------------------------------------------ from log-odds to
# numbers


def log_odds_of(p: ArrayLike) -> Floats:
    """Return log(p/(1-p)) of a probability strictly between 0 and 1.

    Parameters
    ----------
    p
        Prior probability, any shape.

    Returns
    -------
    numpy.ndarray
        ``log p - log1p(-p)``. Where 1 - p matters below 1e-16, give log-odds to the functions that accept them.

    Raises
    ------
    ModelError
        For 0, 1, a value outside, or NaN: a certain adversary learns nothing.

    Examples
    --------
    >>> float(log_odds_of(0.5)), round(float(log_odds_of(1e-300)), 3)
    (0.0, -690.776)
    """
    value = np.asarray(p, dtype=np.float64)
    if not ((value > 0) & (value < 1)).all():
        bad = float(value[~((value > 0) & (value < 1))].flat[0])
        msg = (
            f"the prior p must lie strictly between 0 and 1, got {bad}: no release can move 0 or 1; "
            "give the prior log-odds if p is too close to them"
        )
        raise ModelError(msg, bad)
    return np.asarray(np.log(value) - np.log1p(-value))


def probability(log_odds: ArrayLike) -> Floats:
    """Probability with the given ``log_odds``; no overflow, relative accuracy down to 1e-308.

    Examples
    --------
    >>> [float(p) for p in probability([-800.0, 0.0, 40.0])]
    [0.0, 0.5, 1.0]
    """
    return np.exp(_log_probability(np.asarray(log_odds, dtype=np.float64)))


def log_risk(log_odds: ArrayLike, prior_log_odds: ArrayLike) -> Floats:
    """Return log R' (eq. 3.2) from ``log_odds`` and ``prior_log_odds``, with no loss for a prior of 1e-300.

    Examples
    --------
    >>> round(float(log_risk(-689.0, -690.0)), 12)
    1.0
    """
    posterior = _log_probability(np.asarray(log_odds, dtype=np.float64))
    return np.asarray(posterior - _log_probability(np.asarray(prior_log_odds, dtype=np.float64)))


def risk(log_odds: ArrayLike, prior_log_odds: ArrayLike) -> Floats:
    """Return R' = posterior/prior from ``log_odds`` and ``prior_log_odds``: how many times likelier the target became.

    Examples
    --------
    >>> round(float(risk(0.0, log_odds_of(0.2))), 12)
    2.5
    """
    return np.exp(log_risk(log_odds, prior_log_odds))


def _log_probability(log_odds: Floats) -> Floats:
    return np.asarray(-np.logaddexp(0.0, -log_odds))


# ---------------------------------------------------------------------------------------------------------
# inputs


def _whole(name: str, value: ArrayLike) -> Integers:
    array = np.asarray(value)
    if array.dtype.kind == "f" and (np.isfinite(array) & (array == np.floor(array))).all():
        whole = bool((np.abs(array) < _LIMIT).all())
    elif array.dtype.kind in "iub":
        whole = bool(((array < _LIMIT) & (array > -_LIMIT)).all()) if array.dtype.itemsize > 4 else True
    else:
        whole = False
    if not whole:
        msg = f"{name} must hold whole numbers below 2^53, got {value!r}: noisy counts are integers"
        raise ReleaseError(msg, value)
    return array.astype(np.int64)


def _counts(x1: ArrayLike, x2: ArrayLike, y1: ArrayLike, known: ArrayLike) -> list[Integers]:
    named = (("x1_star", x1), ("x2_star", x2), ("y1_star", y1), ("known", known))
    return [_whole(name, value) for name, value in named]


def _noise(name: str, value: ArrayLike) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if not ((array > 1e-100) & (array < 1e100)).all():
        msg = (
            f"{name} must be above 0 and finite, got {value!r}: an exact count or one that was not measured"
            " makes another attack, with the term left out"
        )
        raise BudgetError(msg, value)
    return array


def _numbers(name: str, value: ArrayLike) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if np.isnan(array).any():
        msg = f"{name} has a NaN: give log(p/(1-p)) for 0 < p < 1"
        raise ReleaseError(msg, value)
    return array


def _two_level(
    counts: list[Integers], sigma2: tuple[ArrayLike, ArrayLike, ArrayLike], prior: ArrayLike, *, lower: bool
) -> Floats:
    """Cut the targets into chunks that fit the cache; numbers stay numbers."""
    names = ("sigma2_1", "sigma2_2", "sigma2_rest")
    noises = [_noise(name, value) for name, value in zip(names, sigma2, strict=True)]
    log_odds = _numbers("prior_log_odds", prior)
    shape = np.broadcast_shapes(*(a.shape for a in (*counts, *noises, log_odds)))
    x1, x2, y1, m = (np.broadcast_to(a, shape).reshape(-1) for a in counts)
    flat = [
        float(a.reshape(-1)[0]) if a.size == 1 else np.broadcast_to(a, shape).reshape(-1)
        for a in (*noises, log_odds)
    ]
    out = np.empty(x1.size)
    for start in range(0, x1.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        s1, s2, s3, base = (pick(a, part) for a in flat)  # type: ignore[arg-type]
        known = m[part]
        out[part] = base + log_ratio(x1[part] - known, s1)
        out[part] += hierarchy(x2[part] - known, y1[part], s2, s3, lower)
    return out.reshape(shape)


def _sum_law(sigma2: float, groups: int) -> Callable[[Integers], Floats]:
    """Exact log-pmf of a sum of discrete Gaussian noises."""
    from adversary.privacy.discrete_gaussian import sum_log_pmf

    def law(s: Integers) -> Floats:
        return np.asarray(sum_log_pmf(s, sigma2, groups))

    return law
