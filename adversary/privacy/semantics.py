"""What the guarantee promises whatever the adversary believes: ceilings on odds, on risk, on any test.

What it is not: the risk of one release or one adversary, which is smaller (see :mod:`adversary.risk`).

Held to account by ``tests/privacy/test_semantics.py`` and ``adversary_two_blocks`` of the spines' reference. Sources: Kazan &
Reiter (arXiv 2204.04253), sec. 4.1, by our own derivation (E0[L] = 1, E1[L] = E0[L^2] = exp(2 rho) for the likelihood ratio L,
and Jensen); Bun & Steinke (2016); Dong, Roth & Su (2022) for the Gaussian trade-off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError
from adversary.privacy.accounting import epsilon, epsilon_bun_steinke
from adversary.privacy.budget import Rho

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["best_power", "best_test", "divergence_of", "odds_bound", "rho_for_risk", "risk_ceiling"]

_LARGEST_EXPONENT = 709.0  # of e, in double precision


def _rho(rho: Any) -> float:
    return float(rho) if isinstance(rho, float) and rho >= 0 else float(Rho(rho))


def _probability(p: float) -> float:
    if not 0 < p < 1:
        msg = f"the prior probability must lie strictly between 0 and 1, got {p}"
        raise BudgetError(msg, p)
    return float(p)


def divergence_of(counts: Iterable[tuple[Any, Any]]) -> float:
    """Return the divergence rho between two worlds that differ in some counts: sum of change^2 / (2 sigma^2).

    Parameters
    ----------
    counts
        (change, sigma2) of each count in which the two worlds differ or not; a change is a whole number and sigma2 >= 0 the
        noise parameter of one noisy count; either may be an array over the entries of a vector, and they broadcast.

    Returns
    -------
    float
        The zCDP of discrete (or continuous) Gaussian noise for this pair of worlds; inf where a count without noise differs.

    Raises
    ------
    BudgetError
        For a negative sigma2.

    Examples
    --------
    >>> divergence_of([(1, 5.0), ([1, -1], 10.0)])
    0.2
    """
    parts = []
    for change, sigma2 in counts:
        d, s = np.broadcast_arrays(np.asarray(change, dtype=float), np.asarray(sigma2, dtype=float))
        if not (s >= 0).all():
            msg = f"sigma2 must not be negative, got {sigma2}: 0 is a count without noise"
            raise BudgetError(msg, sigma2)
        d, s = d[d != 0], s[d != 0]
        if (s == 0).any():
            return math.inf
        parts += (d**2 / (2 * s)).tolist()
    return math.fsum(parts)


def risk_ceiling(rho: Any, p: float | None = None, *, log_odds: float | None = None) -> float:
    """Return the ceiling exp(2 rho) / (1 - p + p exp(2 rho)) of R = E[posterior] / prior.

    Parameters
    ----------
    rho
        Divergence between the two worlds of the attack: sum over the counts used of (change)^2 / (2 sigma^2). Under the
        unbounded convention this is the budget of the counts that the target changes; under the bounded one, an attack
        on one cell (present or absent) has half of it.
    p, log_odds
        Prior, given once: a probability in (0, 1), or its log-odds where p is too close to 0 or 1.

    Returns
    -------
    float
        Holds for every use of the release and every noise that is rho-zCDP; below exp(2 rho) and below 1/p, and
        approached as p goes to 0.

    Raises
    ------
    BudgetError
        For an impossible rho, a p outside (0, 1), or a prior not given exactly once.

    Examples
    --------
    >>> round(risk_ceiling("0.0992264", 0.5), 4)
    1.0989
    >>> risk_ceiling("0.5", log_odds=-800.0) == math.e
    True
    """
    if (p is None) == (log_odds is None):
        msg = f"give the prior once, as p or as log_odds, got p={p} and log_odds={log_odds}"
        raise BudgetError(msg, (p, log_odds))
    r = _rho(rho)
    if p is not None:
        return 1 / (_probability(p) + (1 - p) * math.exp(-2 * r))
    prior = float(log_odds)  # type: ignore[arg-type]
    if not math.isfinite(prior):
        msg = f"prior log-odds must be finite, got {prior}: an adversary who is certain learns nothing"
        raise BudgetError(msg, prior)
    return math.exp(_softplus(-prior) - _softplus(-prior - 2 * r))


def _softplus(x: float) -> float:
    """Return log(1 + e^x), also where e^x overflows."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def rho_for_risk(ratio: float) -> float:
    """Return the largest rho that keeps R <= ratio for every prior: ln(ratio) / 2.

    Parameters
    ----------
    ratio
        Largest acceptable R = E[posterior] / prior, >= 1.

    Returns
    -------
    float
        The largest rho that keeps the promise.

    Raises
    ------
    BudgetError
        For a ratio below 1.

    Examples
    --------
    >>> round(rho_for_risk(1.2), 6)
    0.091161
    """
    if not ratio >= 1:
        msg = f"R is never below 1 for all priors, got {ratio}: ask for a ratio of at least 1"
        raise BudgetError(msg, ratio)
    return 0.5 * math.log(ratio)


def odds_bound(rho: Any, delta: float) -> float:
    """Return the factor by which posterior odds can exceed prior odds except on releases of probability delta.

    Parameters
    ----------
    rho
        zCDP budget of everything that the target changes.
    delta
        Probability that the bound is allowed to fail with, in (0, 1].

    Returns
    -------
    float
        exp(epsilon) with Bun & Steinke's epsilon: under rho-zCDP the privacy loss exceeds epsilon with probability at most
        exp(-(epsilon - rho)^2 / (4 rho)), which is delta there. inf where that is beyond double precision.

    Raises
    ------
    BudgetError
        For an impossible rho or a delta outside (0, 1].

    Examples
    --------
    >>> round(odds_bound("0.1", 1e-6), 3)
    11.597
    """
    bound = epsilon_bun_steinke(rho, delta)
    return math.exp(bound) if bound < _LARGEST_EXPONENT else math.inf


def best_power(rho: Any, alpha: float, *, steps: int = 400) -> float:
    """Return a ceiling on the power of any test of "present" against "absent" at level alpha, from the guarantee alone.

    Parameters
    ----------
    rho
        zCDP budget of everything that the target changes.
    alpha
        Probability of a false alarm, in [0, 1].
    steps
        How many delta are tried.

    Returns
    -------
    float
        The least of min(1, exp(epsilon(rho, delta)) alpha + delta) over delta; valid for every rho-zCDP mechanism. For what a
        Gaussian with this budget allows, see :func:`best_test`.

    Raises
    ------
    BudgetError
        For an impossible rho, or an alpha outside [0, 1].

    Examples
    --------
    >>> round(best_power("0.1", 0.05), 3)
    0.135
    """
    r = _rho(rho)
    if not 0 <= alpha <= 1:
        msg = f"alpha must lie in [0, 1], got {alpha}"
        raise BudgetError(msg, alpha)
    if r == 0:
        return float(alpha)
    best = 1.0
    for k in range(1, steps + 1):
        delta = math.exp(-0.1 * k)
        eps = epsilon(r, delta)
        if eps < _LARGEST_EXPONENT:
            best = min(best, math.exp(eps) * alpha + delta)
        best = min(best, 1 - math.exp(-eps) * max(0.0, 1 - alpha - delta))
    return max(float(alpha), min(1.0, best))


def best_test(rho: Any) -> float:
    """Return how often the best test is right about two equally likely neighbours under Gaussian noise: Phi(sqrt(2 rho) / 2).

    Parameters
    ----------
    rho
        Divergence between the two worlds: half the sum of (change)^2 / sigma^2.

    Returns
    -------
    float
        Between 1/2 (rho = 0) and 1. Continuous Gaussian with the same budget; the discrete one differs by its lattice.

    Examples
    --------
    >>> round(best_test("1173587180/471061179"), 6)
    0.867811
    """
    return 0.5 * math.erfc(-math.sqrt(2 * _rho(rho)) / 2 / math.sqrt(2))
