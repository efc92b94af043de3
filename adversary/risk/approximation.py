"""The paper's approximation of the noise of a sum of counts, beside the exact law (supplement S2).

The sum of d discrete Gaussians of parameter sigma2 is replaced by one of parameter d sigma2, equation (3.7).
The exact law comes from direct convolution (all terms positive, so the tails keep their digits); this module
puts the two side by side and says what the difference does to an adversary's log-odds. The approximation is
exact to rounding for the noise of the 2020 Census and useless for narrow noise; it does not become exact as d
grows.

Held to account by tests/risk/test_approximation.py and the ids ``s2_ noise_`` of the reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adversary.errors import ModelError
from adversary.privacy import discrete_gaussian as dg

__all__ = ["SumApproximation", "assess_sum", "needs_exact_sum"]


@dataclass(frozen=True)
class SumApproximation:
    """Exact law of a sum of noisy counts against the approximation.

    Parameters
    ----------
    sigma2, count
        Noise parameter of one count, and how many are summed.
    total_variation
        Half the summed absolute difference of the two laws.
    log_odds_error
        Largest change of the log-odds of an adversary who compares two neighbouring values of the sum, over
        the window.
    log_odds_error_bound
        Spread of the log ratio of the two laws over the window: no adversary's log-odds change by more.
    half_width, outside
        The window ``|noise| <= half_width``, and the bound on the probability outside it.
    variance_ratio
        Variance of the exact sum divided by that of the approximation.
    """

    sigma2: float
    count: int
    total_variation: float
    log_odds_error: float
    log_odds_error_bound: float
    half_width: int
    outside: float
    variance_ratio: float

    @property
    def probability_error(self) -> float:
        """Bound on the change of any posterior on releases inside the window: a quarter of the log-odds'."""
        return 0.25 * self.log_odds_error_bound


def assess_sum(sigma2: float, count: int, outside: float = 1e-6) -> SumApproximation:
    """Compare the exact noise of a sum of noisy counts with the approximation.

    Parameters
    ----------
    sigma2
        Noise parameter of one count.
    count
        Number of counts summed.
    outside
        Bound on the probability of noise outside the window on which log-odds are compared.

    Returns
    -------
    SumApproximation
        Total variation over all integers; log-odds errors over the window.

    Raises
    ------
    ModelError
        If an argument cannot be.

    Examples
    --------
    >>> assess_sum(1 / (2 * 1.0), 27).total_variation > 5e-4
    True
    >>> assess_sum(5.0389839, 27).log_odds_error_bound < 1e-12
    True
    """
    if not (sigma2 > 0 and math.isfinite(sigma2)) or int(count) != count or count < 1:
        msg = f"a sum needs a positive sigma2 and at least one count, got {sigma2} and {count}"
        raise ModelError(msg, (sigma2, count))
    if not 0 < outside < 1:
        msg = f"outside must lie between 0 and 1, got {outside}"
        raise ModelError(msg, outside)
    half = math.floor(math.sqrt(2.0 * count * sigma2 * math.log(2.0 / outside)))
    n = np.arange(-half, half + 1)
    gap = np.asarray(dg.sum_log_pmf(n, sigma2, count)) - np.asarray(dg.log_pmf(n, count * sigma2))
    return SumApproximation(
        sigma2=float(sigma2),
        count=int(count),
        total_variation=float(dg.sum_variation(sigma2, count)),
        log_odds_error=float(np.max(np.abs(np.diff(gap)), initial=0.0)),
        log_odds_error_bound=float(gap.max() - gap.min()),
        half_width=half,
        outside=outside,
        variance_ratio=float(count * dg.variance(sigma2) / dg.variance(count * sigma2)),
    )


def needs_exact_sum(sigma2: float, count: int, tolerance: float = 1e-6) -> bool:
    """Whether the approximation would change a posterior probability by more than a tolerance.

    Parameters
    ----------
    sigma2, count
        As for :func:`assess_sum`.
    tolerance
        In probability; releases of total probability ``tolerance`` are set aside.

    Returns
    -------
    bool
        True if the exact convolution should be used.

    Examples
    --------
    >>> needs_exact_sum(5.0, 27), needs_exact_sum(0.5, 27)
    (False, True)
    """
    if count == 1:
        return False
    found = assess_sum(sigma2, count, outside=tolerance)
    return max(found.total_variation, found.probability_error) > tolerance
