"""The numbers of the explorer: one adversary, one release, one or two levels, in closed form.

What it is: posterior, R', decision and ceiling for the settings of the sliders, fast enough to follow a slider. What it is not:
an engine (:mod:`adversary.samplers.closed` computes) or a place for other scenarios (declare them, and `adversary run`).

Held to account by ``tests/explore/test_numbers.py`` (the same settings answered by the exact engine from the declared scenarios).
Sources: Kazan & Reiter, arXiv 2204.04253, equation (3.1) and section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.privacy.accounting import epsilon
from adversary.privacy.budget import Rho, noise_scale
from adversary.privacy.semantics import risk_ceiling
from adversary.risk.measures import decide
from adversary.samplers import closed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DELTA", "Explored", "explored"]

DELTA = 1e-10
"""delta of the epsilon that is shown beside the budget, as in the Census's certificates."""
_WIDEST = 20


@dataclass(frozen=True, eq=False)
class Explored:
    """What the release does to the adversary's belief that the target is in the block.

    Parameters
    ----------
    prior, posterior
        Probability that the target is present.
    risk
        R' = posterior / prior of this release.
    decision
        ``"present"`` where the posterior exceeds 1/2, else ``"absent"``; ties are absent (the paper's rule).
    ceiling
        Bound on the *average* of R' over releases with the target present, for this prior: exp(2S) / (1 - p + p exp(2S)). One
        release can exceed it.
    information
        S = sum over the counts that the target changes of 1 / (2 sigma^2).
    epsilon
        The budget of these counts as (epsilon, `DELTA`)-DP.
    sigma2
        Noise parameter of the block's count and of the group's, if seen.
    counts, by_count
        Noisy block counts around the one given, and the posterior at each, the other counts held.
    """

    prior: float
    posterior: float
    risk: float
    decision: str
    ceiling: float
    information: float
    epsilon: float
    sigma2: tuple[float, ...]
    counts: NDArray[np.int64]
    by_count: NDArray[np.float64]


def explored(
    *,
    rho: Any,
    prior: float,
    block: int,
    known: int = 0,
    group: tuple[Any, int, int, int] | None = None,
    convention: str = "unbounded",
) -> Explored:
    """Answer one setting of the sliders.

    Parameters
    ----------
    rho
        Budget of the block's count; text, int, Fraction or float.
    prior
        Probability that the target is present, in (0, 1).
    block
        Noisy count of the block.
    known
        Other people in it whom she knows.
    group
        None: she sees the block alone. Else (rho of the group's count, noisy group count, noisy sum over the group's other
        blocks, number of those): any number of people there is equally likely to her.
    convention
        ``"unbounded"``: sigma^2 = 1 / (2 rho); ``"bounded"``: 1 / rho.

    Returns
    -------
    Explored
        Every number that the page shows.

    Raises
    ------
    BudgetError, ModelError, ReleaseError
        For a budget, prior or count that is none.

    Examples
    --------
    >>> round(explored(rho="0.0992264", prior=0.5, block=2).posterior, 4)
    0.5739
    >>> seen = explored(rho="0.0992264", prior=0.5, block=2, group=("0.2464845", 1, -1, 27))
    >>> round(seen.posterior, 6), round(seen.risk, 5), seen.decision
    (0.503288, 1.00658, 'present')
    """
    if known < 0:
        msg = f"known must not be negative, got {known}: she cannot know fewer than no one"
        raise ModelError(msg, known)
    odds = float(closed.log_odds_of(prior))
    sigma2 = [noise_scale(_exact(rho), convention)]
    spread = min(_WIDEST, int(np.ceil(3.0 * np.sqrt(sigma2[0]))) + 1)
    counts = np.arange(known - spread, known + spread + 2)
    counts = np.union1d(counts, [block])
    budget = _exact(rho)
    if group is None:
        log_odds = closed.one_level_log_odds(counts, known, sigma2[0], odds)
    else:
        rho_group, noisy_group, rest, others = group
        sigma2.append(noise_scale(_exact(rho_group), convention))
        budget = budget + _exact(rho_group)
        log_odds = closed.two_level_grouped_log_odds(
            counts, noisy_group, rest, known, sigma2[0], sigma2[1], sigma2[0], others, odds
        )
    after = closed.probability(log_odds)
    at = int(np.searchsorted(counts, block))
    information = sum(0.5 / s for s in sigma2)
    return Explored(
        prior=float(prior),
        posterior=float(after[at]),
        risk=float(closed.risk(log_odds[at], odds)),
        decision="present" if bool(decide(log_odds[at])) else "absent",
        ceiling=risk_ceiling(information, float(prior)),
        information=information,
        epsilon=float(epsilon(budget, DELTA)),
        sigma2=tuple(sigma2),
        counts=counts,
        by_count=after,
    )


def _exact(rho: Any) -> Rho:
    """Return a budget; of a slider's float, its shortest decimal is what was meant."""
    return Rho(repr(rho) if isinstance(rho, float) else rho)
