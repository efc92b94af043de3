"""What a budget promises in the words of others: zCDP to (epsilon, delta) and back, composition, pure DP to zCDP.

Two conversions are offered and always named: Bun & Steinke's (the paper's Theorem 1) and the tight one of Canonne, Kamath &
Steinke (the Census's). Plain :mod:`math` in logarithms, so that rho from 0 to 1e6 and delta from 1e-300 to 1 give numbers;
results are monotone in both. What it is not: a statement about one release (see :mod:`adversary.risk`).

Held to account by ``tests/privacy/test_accounting.py`` and the ids ``eps_`` of the reference. Sources: Bun & Steinke (2016),
Prop. 1.3 and 1.4; Canonne, Kamath & Steinke (arXiv 2004.00010), Prop. 12 and Cor. 13; Balle & Wang (2018), Thm. 8 (Gaussian).
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from adversary.errors import BudgetError
from adversary.privacy.budget import Rho

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "compose",
    "epsilon",
    "epsilon_bun_steinke",
    "epsilon_gaussian",
    "log_delta",
    "pure_to_zcdp",
    "rho_from_epsilon",
]

_GOLDEN = (math.sqrt(5) - 1) / 2


def _number(rho: Any) -> float:
    if isinstance(rho, float) and not rho >= 0:
        msg = (
            f"rho must not be negative, got {rho}: write 0 if nothing was measured at this level, inf if the "
            "count is exact"
        )
        raise BudgetError(msg, rho)
    return rho if isinstance(rho, float) else float(Rho(rho))


def _checked_delta(delta: float) -> float:
    delta = float(delta)
    if not 0 < delta <= 1:
        msg = (
            f"delta must lie in (0, 1], got {delta}: with delta = 0 no epsilon is finite under Gaussian noise"
        )
        raise BudgetError(msg, delta)
    return delta


def epsilon_bun_steinke(rho: Any, delta: float) -> float:
    """Return epsilon such that rho-zCDP implies (epsilon, delta)-DP: rho + 2 sqrt(rho ln(1/delta)).

    Parameters
    ----------
    rho
        zCDP budget, >= 0; exact or float.
    delta
        Probability of failure, in (0, 1].

    Returns
    -------
    float
        Epsilon at this delta.

    Raises
    ------
    BudgetError
        For a negative rho or a delta outside (0, 1].

    Notes
    -----
    Kazan & Reiter, Theorem 1 (Bun & Steinke, Prop. 1.3). The paper prints 17.91 at (2.56, 1e-10): 17.915283 cut off.

    Examples
    --------
    >>> round(epsilon_bun_steinke("2.56", 1e-10), 6)
    17.915283
    """
    r, delta = _number(rho), _checked_delta(delta)
    return r + 2 * math.sqrt(r) * math.sqrt(-math.log(delta)) if math.isfinite(r) else math.inf


def _minimum(f: Callable[[float], float], low: float, high: float) -> float:
    """Least value of a function with one valley on [low, high], by golden section to the end of double precision."""
    a, b = low, high
    x, y = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    fx, fy = f(x), f(y)
    for _ in range(200):
        if fx <= fy:
            b, y, fy = y, x, fx
            x = b - _GOLDEN * (b - a)
            fx = f(x)
        else:
            a, x, fx = x, y, fy
            y = a + _GOLDEN * (b - a)
            fy = f(y)
        if b - a <= 1e-15 * max(1.0, abs(a)):
            break
    return min(fx, fy)


def epsilon(rho: Any, delta: float) -> float:
    """Return the smallest epsilon that rho-zCDP implies at this delta by the bound of Canonne, Kamath & Steinke.

    Parameters
    ----------
    rho
        zCDP budget, >= 0; exact or float.
    delta
        Probability of failure, in (0, 1].

    Returns
    -------
    float
        The infimum over alpha > 1 of alpha rho + ln(1 - 1/alpha) - (ln(alpha) + ln(delta)) / (alpha - 1), not below 0.

    Notes
    -----
    Canonne, Kamath & Steinke, Prop. 12 / Cor. 13: what the Census's certificates use (17.14 at production's rho).

    Examples
    --------
    >>> round(epsilon("2.56", 1e-10), 6)
    17.158309
    """
    r, delta = _number(rho), _checked_delta(delta)
    if r == 0 or delta == 1:
        return 0.0
    if math.isinf(r):
        return math.inf
    log_delta_ = math.log(delta)

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        # ln(1 - 1/alpha) without taking one logarithm from another
        return r * (1 + excess) - math.log1p(1 / excess) - (math.log1p(excess) + log_delta_) / excess

    # the optimum lies near alpha - 1 = sqrt(ln(1/delta)/rho); the valley is wide open on the logarithmic scale
    centre = 0.5 * (math.log(max(-log_delta_, 1e-300)) - math.log(r))
    best = _minimum(at, centre - 20.0, centre + 20.0)
    return max(0.0, min(best, epsilon_bun_steinke(r, delta)))


def log_delta(rho: Any, epsilon_: float) -> float:
    """Return log(delta) at which rho-zCDP implies (epsilon, delta)-DP by the bound of Canonne, Kamath & Steinke.

    Parameters
    ----------
    rho
        zCDP budget, >= 0.
    epsilon_
        Epsilon, >= 0.

    Returns
    -------
    float
        Natural log of delta, <= 0; -inf where rho is 0.

    Notes
    -----
    The infimum over alpha > 1 of (alpha - 1)(alpha rho - epsilon) + alpha ln(1 - 1/alpha) - ln(alpha - 1).

    Examples
    --------
    >>> round(math.exp(log_delta("2.56", 17.158308712)) * 1e10, 6)
    1.0
    """
    r = _number(rho)
    if not epsilon_ >= 0:
        msg = f"epsilon must not be negative, got {epsilon_}"
        raise BudgetError(msg, epsilon_)
    if r == 0 or math.isinf(epsilon_):
        return -math.inf
    if math.isinf(r):
        return 0.0

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)
        alpha = 1 + excess
        return excess * (alpha * r - epsilon_) - alpha * math.log1p(1 / excess) - log_excess

    # the optimum lies near alpha - 1 = (epsilon / rho - 1) / 2; every alpha in reach of a double gives a bound
    guess = max(math.log(max(epsilon_, 1e-300)) - math.log(2 * r), -28.0)
    low, high = min(guess - 20.0, 660.0), min(guess + 20.0, 700.0)
    return min(0.0, _minimum(at, low, high))


def rho_from_epsilon(epsilon_: float, delta: float) -> float:
    """Return the largest rho whose (epsilon, delta) by :func:`epsilon` does not exceed ``epsilon_``.

    Parameters
    ----------
    epsilon_
        Epsilon, >= 0.
    delta
        Probability of failure, in (0, 1).

    Returns
    -------
    float
        ``epsilon(rho_from_epsilon(e, d), d) == e`` to 1e-12 relative where epsilon is above 1e-3; below, epsilon rises
        from 0 ever more steeply in rho, and what holds is that it does not exceed ``e``. 0 where rho would be below 1e-300.

    Raises
    ------
    BudgetError
        For a negative epsilon, or a delta outside (0, 1).

    Examples
    --------
    >>> round(rho_from_epsilon(17.158308712, 1e-10), 6)
    2.56
    """
    delta = _checked_delta(delta)
    if not epsilon_ >= 0 or delta == 1:
        msg = f"epsilon must not be negative and delta below 1, got {epsilon_} and {delta}: at delta = 1 any rho will do"
        raise BudgetError(msg, (epsilon_, delta))
    if epsilon_ == 0 or math.isinf(epsilon_):
        return 0.0 if epsilon_ == 0 else math.inf
    # Bun & Steinke's epsilon is never below, so their rho is never above (less room for rounding)
    ell = -math.log(delta)
    low = (1 - 1e-13) * (epsilon_ / (math.sqrt(ell + epsilon_) + math.sqrt(ell))) ** 2
    if low < 1e-300:
        low = 1e-300 if epsilon(1e-300, delta) <= epsilon_ else 0.0
        if low == 0.0:
            return 0.0
    high = low
    while math.isfinite(high) and epsilon(high, delta) <= epsilon_:
        low, high = high, high * 2
    high = min(high, sys.float_info.max)
    for _ in range(200):
        middle = low + 0.5 * (high - low)
        if middle in (low, high):
            break
        low, high = (middle, high) if epsilon(middle, delta) <= epsilon_ else (low, middle)
    return low


def epsilon_gaussian(rho: Any, delta: float) -> float:
    """Return epsilon on the exact (epsilon, delta) curve of one continuous Gaussian with mu = sqrt(2 rho).

    Parameters
    ----------
    rho
        zCDP budget, >= 0.
    delta
        Probability of failure, in (0, 1].

    Returns
    -------
    float
        What a continuous Gaussian with the same budget would promise: a lower bound for orientation, not a guarantee of
        the discrete mechanism or of a composition.

    Notes
    -----
    Solves delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Balle & Wang, Thm. 8). Loads SciPy when called.

    Examples
    --------
    >>> round(epsilon_gaussian("2.56", 1e-10), 6)
    16.479388
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    r, delta = _number(rho), _checked_delta(delta)
    if r == 0 or delta == 1:
        return 0.0
    if math.isinf(r):
        return math.inf
    mu = math.sqrt(2 * r)

    def log_failure(eps: float) -> float:
        first, second = float(log_ndtr(mu / 2 - eps / mu)), eps + float(log_ndtr(-mu / 2 - eps / mu))
        return first + math.log(-math.expm1(min(second - first, -1e-300)))

    target = math.log(delta)
    if log_failure(0.0) <= target:
        return 0.0
    return float(
        brentq(lambda e: log_failure(e) - target, 0.0, epsilon_bun_steinke(r, delta), xtol=1e-14, rtol=1e-14)
    )


def compose(budgets: Iterable[Any]) -> Rho:
    """Return the budget of several releases of the same people: zCDP budgets add, exactly (Bun & Steinke, Lemma 1.7).

    Parameters
    ----------
    budgets
        Budgets, exact; see :class:`~adversary.privacy.budget.Rho`.

    Returns
    -------
    Rho
        Their sum; infinite if one is.

    Raises
    ------
    BudgetError
        For what is no budget.

    Examples
    --------
    >>> compose(["0.1", "0.2"])
    Rho('3/10')
    """
    return sum((Rho(b) for b in budgets), Rho(0))


def pure_to_zcdp(epsilon_: Any) -> Rho:
    """Return the zCDP budget that pure epsilon-DP implies: epsilon^2 / 2, exact (Bun & Steinke, Prop. 1.4).

    Parameters
    ----------
    epsilon_
        Pure budget, exact: text, int, Fraction.

    Returns
    -------
    Rho
        The zCDP budget that pure epsilon implies.

    Raises
    ------
    BudgetError
        For what is no budget.

    Examples
    --------
    >>> pure_to_zcdp("0.5")
    Rho('1/8')
    """
    exact = Rho(epsilon_)
    return exact if exact.infinite else Rho(exact.fraction**2 / 2)
