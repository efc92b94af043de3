"""Expected disclosure risk over releases drawn from the mechanism: a sum with a bound, not a simulation.

What is here: the answer (:class:`ExpectedRisk`) and the one-level attack. Two levels are in
:mod:`adversary.risk.two_level`, paths and uniqueness in :mod:`adversary.risk.levels`, whole records in
:mod:`adversary.risk.record`. What is not here: any convention about neighbours. Noise enters as ``sigma2``
only; with the paper's convention ``sigma2 = 1 / (2 rho)``, with the Census Bureau's ``1 / rho``.

Held to account by tests/risk/test_expected.py and the ids ``t5_ f2_ f3_ ext_ alt_`` of the reference.

Sources: Kazan & Reiter (arXiv 2204.04253), equations (3.3) to (3.6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.privacy.semantics import risk_ceiling
from adversary.risk.law import LogOddsLaw, mean_risk
from adversary.risk.measures import TIE_TOLERANCE, decision_threshold, prior_log_odds

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ExpectedRisk", "expected_one_level", "risk_ceiling"]

Truth = Literal["present", "absent", "average"]
Ties = Literal["strict", "half"]


@dataclass(frozen=True, eq=False)
class ExpectedRisk:
    """Disclosure risk averaged over releases, given a truth.

    Parameters
    ----------
    truth
        ``"present"``, ``"absent"``, or ``"average"`` (weighted by the prior).
    prior_log_odds
        Prior log-odds that the target is present.
    posterior
        Mean posterior probability that the target is **present**.
    risk
        ``posterior / prior``: the paper's R when the truth is ``"present"``.
    right, log_right
        Probability that the decision is right, and its logarithm (finite where ``right`` underflows).
    near_tie_mass
        Probability of releases on which the decision hangs on the rule for ties.
    left_out_bound
        Bound on the probability of releases that the sum left out; neither probability is wrong by more.
    threshold
        Smallest ``noisy - known`` that is answered with present (one level), else None.
    ties
        ``"strict"``: a tie is answered with absent. ``"half"``: it counts one half.
    standard_error, right_standard_error
        Zero for a summation; the Monte Carlo error where drawing was asked for.
    method
        How the numbers came about, in words.
    laws
        ``(weight, law)`` pairs: the law of the posterior log-odds, for quantiles and exceedances.
    """

    truth: Truth
    prior_log_odds: float
    posterior: float
    risk: float
    right: float
    log_right: float
    near_tie_mass: float
    left_out_bound: float
    threshold: int | None
    ties: Ties
    method: str
    standard_error: float = 0.0
    right_standard_error: float = 0.0
    laws: tuple[tuple[float, LogOddsLaw], ...] = field(default=(), repr=False)

    @property
    def prior(self) -> float:
        """Prior probability that the target is present."""
        return math.exp(-float(np.logaddexp(0.0, -self.prior_log_odds)))

    def exceedance(self, ratio: float) -> float:
        """Probability that a release has R' > ``ratio``.

        Parameters
        ----------
        ratio
            The bound on posterior / prior; from 1/p on the answer is 0.

        Examples
        --------
        >>> round(expected_one_level(5.0389839, p=0.5).exceedance(1.1), 4)
        0.4111
        """
        if ratio <= 0:
            return 1.0
        log_product = math.log(ratio) - float(np.logaddexp(0.0, -self.prior_log_odds))
        if log_product >= 0:
            return 0.0
        level = log_product - math.log(-math.expm1(log_product))
        # a release exactly at the bound is not above it, whatever the rounding of the bound
        slack = 1e-12 * max(1.0, abs(level))
        return float(sum(w * law.above(level, slack) for w, law in self.laws))

    def quantile(self, q: float) -> float:
        """Quantile of R' over releases: the smallest attained value ``v`` with ``P[R' <= v] >= q``.

        Parameters
        ----------
        q
            In (0, 1).

        Raises
        ------
        ModelError
            If ``q`` is outside (0, 1).

        Examples
        --------
        >>> round(expected_one_level(5.0389839, p=0.5).quantile(0.5), 3)
        1.05
        """
        if not 0 < q < 1:
            msg = (
                f"a quantile lies strictly between 0 and 1, got {q}: use the extremes of atoms() for the ends"
            )
            raise ModelError(msg, q)
        level = _mixture_quantile(self.laws, q)
        return math.exp(float(np.logaddexp(0.0, -self.prior_log_odds) - np.logaddexp(0.0, -level)))

    def atoms(self, limit: int = 1_000_000) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All values of R' with their probabilities, in increasing order.

        Parameters
        ----------
        limit
            The largest number of atoms to form; more are refused.
        """
        parts = [(law.atoms(limit), w) for w, law in self.laws]
        level = np.concatenate([a[0] for a, _ in parts])
        weight = np.concatenate([a[1] * w for a, w in parts])
        order = np.argsort(level, kind="stable")
        ratio = np.exp(np.logaddexp(0.0, -self.prior_log_odds) - np.logaddexp(0.0, -level[order]))
        return ratio, weight[order]


def _mixture_quantile(laws: tuple[tuple[float, LogOddsLaw], ...], q: float) -> float:
    if len(laws) == 1:
        return laws[0][1].quantile(q)
    # a mixture's quantile lies between those of its parts
    low = min(law.quantile(q) for _, law in laws) - 1e-9
    high = max(law.quantile(q) for _, law in laws)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high) or high - low <= 1e-13 * max(1.0, abs(high)):
            break
        if 1.0 - sum(w * law.above(middle) for w, law in laws) >= q:
            high = middle
        else:
            low = middle
    return high


def checked_prior(p: float | None, log_odds: float | None) -> float:
    """Prior log-odds from exactly one of a probability and log-odds."""
    if (p is None) == (log_odds is None):
        msg = f"give the prior once, as p or as log_odds, got p={p} and log_odds={log_odds}"
        raise ModelError(msg, (p, log_odds))
    if p is not None:
        return float(prior_log_odds(p))
    value = float(log_odds)  # type: ignore[arg-type]
    if not math.isfinite(value):
        msg = f"prior log-odds must be finite, got {value}: an adversary who is certain learns nothing"
        raise ModelError(msg, value)
    return value


def checked_choice(value: str, allowed: tuple[str, ...], what: str) -> None:
    """Refuse a word that is not one of the allowed ones."""
    if value not in allowed:
        msg = f"{what} must be one of {', '.join(allowed)}, got {value!r}"
        raise ModelError(msg, value)


def noise_window(sigma2: float, left_out: float) -> int:
    """Half-width h with ``P[|noise| > h] <= left_out``, by sub-Gaussianity (Canonne et al. 2020)."""
    return math.floor(math.sqrt(2.0 * sigma2 * math.log(2.0 / left_out)))


def summarise(
    present: LogOddsLaw | None,
    absent: LogOddsLaw | None,
    prior: float,
    truth: Truth,
    ties: Ties,
    *,
    method: str,
    with_risk: bool = True,
) -> ExpectedRisk:
    """Put the laws given either truth together into the answer for the truth that was asked for."""
    share = {"present": 1.0, "absent": 0.0, "average": math.exp(-float(np.logaddexp(0.0, -prior)))}[truth]
    laws = tuple(
        (w, law) for w, law in ((share, present), (1.0 - share, absent)) if w > 0 and law is not None
    )
    risk = sum(w * mean_risk(law, prior) for w, law in laws) if with_risk else math.nan
    credit = 0.5 if ties == "half" else 0.0
    right = near = 0.0
    for w, law in laws:
        yes, tied = law.above_and_near(0.0, TIE_TOLERANCE)
        is_present = law is present
        hit = (
            yes + credit * tied
            if is_present
            else max(float(law.step_weight.sum()) - yes - credit * tied, 0.0)
        )
        right += w * hit
        near += w * tied
    return ExpectedRisk(
        truth=truth,
        prior_log_odds=prior,
        posterior=risk * math.exp(-float(np.logaddexp(0.0, -prior))),
        risk=risk,
        right=right,
        log_right=math.log(right) if right > 0 else -math.inf,
        near_tie_mass=near,
        left_out_bound=max(law.left_out for _, law in laws),
        threshold=None,
        ties=ties,
        method=method,
        laws=laws,
    )


def expected_one_level(
    sigma2: float,
    *,
    p: float | None = None,
    log_odds: float | None = None,
    truth: Truth = "present",
    ties: Ties = "strict",
) -> ExpectedRisk:
    """Disclosure risk from one noisy count, averaged over its noise.

    Parameters
    ----------
    sigma2
        Noise parameter of the count (positive, at most 1e9).
    p, log_odds
        Prior that the target is present, given once.
    truth
        ``"present"`` (equation (3.3)), ``"absent"``, or ``"average"`` over the prior.
    ties
        ``"strict"`` or ``"half"``.

    Returns
    -------
    ExpectedRisk
        ``risk`` is equation (3.4), ``right`` (3.6); ``log_right`` is exact far below 1e-308.

    Raises
    ------
    ModelError
        If the prior or ``sigma2`` cannot be.
    UnsupportedModelError
        If ``sigma2`` exceeds 1e9, where R is within 1e-9 of 1 (see :func:`risk_ceiling`).

    Examples
    --------
    >>> block = expected_one_level(1 / (2 * 0.09922635422547502), p=1 / 5)
    >>> round(block.risk, 6), block.threshold, round(block.right, 8)
    (1.127115, 8, 0.00175219)
    """
    prior = checked_prior(p, log_odds)
    checked_choice(truth, ("present", "absent", "average"), "truth")
    checked_choice(ties, ("strict", "half"), "ties")
    if not (sigma2 > 0 and math.isfinite(sigma2)):
        msg = f"sigma2 must be positive and finite, got {sigma2}: unmeasured, the posterior is the prior"
        raise ModelError(msg, sigma2)
    if sigma2 > 1e9:
        msg = (
            f"sigma2 = {sigma2} is too wide to sum: use risk_ceiling, which bounds R within {1 / sigma2:.1e}"
        )
        raise UnsupportedModelError(msg, sigma2)
    laws = one_count_laws(sigma2, prior)
    answer = summarise(*laws, prior, truth, ties, method="sum over one lattice")
    # far tails: the decision probability from the log of the survival function instead of the sum
    threshold = int(decision_threshold(prior, sigma2))
    yes = float(
        dg.log_sf(threshold - 2, sigma2)
    )  # log_sf(n) = log P[noise > n]; present: noise >= threshold - 1
    no = float(dg.log_cdf(threshold - 1, sigma2))
    if answer.near_tie_mass == 0.0:
        log_prior = -float(np.logaddexp(0.0, -prior)), -float(np.logaddexp(0.0, prior))
        log_right = {
            "present": yes,
            "absent": no,
            "average": float(np.logaddexp(log_prior[0] + yes, log_prior[1] + no)),
        }[truth]
    else:
        log_right = answer.log_right
    return ExpectedRisk(
        **{
            **{name: getattr(answer, name) for name in ExpectedRisk.__dataclass_fields__},
            "threshold": threshold,
            "log_right": log_right,
            "right": math.exp(log_right),
        }
    )


def one_count_laws(sigma2: float, prior: float) -> tuple[LogOddsLaw, LogOddsLaw]:
    """Laws of the log-odds from one count, given present and absent; windows leave out less than 1e-300."""
    half = min(noise_window(sigma2, 1e-300), 2_000_000)
    noise = np.arange(-half, half + 1)
    whole = noise.astype(np.float64)
    left_out = 2.0 * math.exp(-((half + 1.0) ** 2) / (2.0 * sigma2))
    weight = np.exp(dg.log_pmf(noise, sigma2))
    base, one = np.array([prior]), np.array([1.0])
    return (
        LogOddsLaw(base, one, (2.0 * whole + 1.0) / (2.0 * sigma2), weight, left_out),
        LogOddsLaw(base, one, (2.0 * whole - 1.0) / (2.0 * sigma2), weight, left_out),
    )
