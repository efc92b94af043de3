"""What the second level does to the adversary's decision: corrected, spoiled, decided by draws (Figure 4).

For a truth with the target present, the decision from the block's count alone is compared with the decision
from all three counts on every release of a box, or of all releases. ``sampled_decision_masses`` gives what is
to be *expected* when every tile is decided by a number of posterior draws instead of the posterior itself:
the published masses come from 10,000 draws a tile.

Held to account by tests/risk/test_decisions.py and the ids ``f4_ mc_`` of the reference.

Source: Kazan & Reiter (arXiv 2204.04253), section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import checked_prior, noise_window
from adversary.risk.measures import decide, near_tie, posterior
from adversary.risk.two_level import TwoLevelDesign, two_level_log_odds

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DecisionMasses", "decision_masses", "decision_thresholds", "sampled_decision_masses"]


@dataclass(frozen=True)
class DecisionMasses:
    """Probability of releases on which the second level changes the decision, given a present target.

    Parameters
    ----------
    corrected
        Wrong from the block alone, right from all counts.
    spoiled
        Right from the block alone, wrong from all counts.
    covered
        Probability of the releases looked at.
    near_tie_mass
        Probability of releases that hang on the rule for ties.
    """

    corrected: float
    spoiled: float
    covered: float
    near_tie_mass: float

    @property
    def net(self) -> float:
        """Gain in the probability of a right decision."""
        return self.corrected - self.spoiled


@dataclass(frozen=True, eq=False)
class _Box:
    log_odds: NDArray[np.float64]
    alone: NDArray[np.bool_]
    weight: NDArray[np.float64]
    covered: float


def _box(
    design: TwoLevelDesign,
    total: int,
    prior: float,
    box: tuple[tuple[int, int], tuple[int, int]] | None,
) -> _Box:
    left_out = 1e-13
    half = noise_window(design.sigma2, left_out)
    block = 1 + np.arange(-half, half + 1)
    if box is None:
        h2, h3 = noise_window(design.group_sigma2, left_out), noise_window(design.summed_sigma2, left_out)
        box = ((total - h2, total + h2), (total - 1 - h3, total - 1 + h3))
    group, rest = (np.arange(first, last + 1) for first, last in box)
    if group.size == 0 or rest.size == 0:
        msg = f"a box is ((first, last), (first, last)) of the group's and the rest's noisy counts, got {box}"
        raise ModelError(msg, box)
    size = int(np.abs(rest - (total - 1)).max())
    w1 = np.exp(dg.log_pmf(block - 1, design.sigma2))
    w2 = np.exp(dg.log_pmf(group - total, design.group_sigma2))
    w3 = np.exp(design.log_rest_noise(size, read=False))[rest - (total - 1) + size]
    log_odds = two_level_log_odds(design, block, group, rest, log_odds=prior)
    alone = decide(prior + (2.0 * block - 1.0) / (2.0 * design.sigma2))
    return _Box(log_odds, alone, w1[:, None, None] * w2[:, None] * w3, float(w1.sum() * w2.sum() * w3.sum()))


def decision_masses(
    design: TwoLevelDesign,
    total: int,
    *,
    p: float | None = None,
    log_odds: float | None = None,
    box: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> DecisionMasses:
    """Probability that the second level corrects, and that it spoils, the decision about a present target.

    Parameters
    ----------
    design, total
        As for :func:`adversary.risk.two_level.expected_two_level`.
    p, log_odds
        Prior, given once.
    box
        ``((first, last), (first, last))`` of the group's and the rest's noisy counts; all releases by
        default.

    Returns
    -------
    DecisionMasses
        Strict rule: a tie is answered with absent.

    Examples
    --------
    >>> rho1, rho2 = 0.09922635422547502, 0.24648450960703558
    >>> design = TwoLevelDesign(sigma2=1 / (2 * rho1), group_sigma2=1 / (2 * rho2), others=27)
    >>> masses = decision_masses(design, 1, p=0.5, box=((-3, 5), (-30, 30)))
    >>> round(masses.spoiled, 4), round(masses.covered, 4)
    (0.2698, 0.9898)
    """
    found = _box(design, total, checked_prior(p, log_odds), box)
    alone = found.alone[:, None, None]
    yes = decide(found.log_odds)
    return DecisionMasses(
        corrected=float(found.weight[~alone & yes].sum()),
        spoiled=float(found.weight[alone & ~yes].sum()),
        covered=found.covered,
        near_tie_mass=float(found.weight[near_tie(found.log_odds)].sum()),
    )


def sampled_decision_masses(
    design: TwoLevelDesign,
    total: int,
    draws: int,
    *,
    p: float | None = None,
    log_odds: float | None = None,
    box: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> DecisionMasses:
    """Expect the same over the sampling, when each release is decided by independent posterior draws.

    Parameters
    ----------
    design, total, p, log_odds, box
        As for :func:`decision_masses`.
    draws
        Number of posterior draws a release; present is said if more than half of them say so.

    Returns
    -------
    DecisionMasses
        ``near_tie_mass`` is the probability of releases with an exact half of the draws.

    Examples
    --------
    >>> design = TwoLevelDesign(sigma2=5.0, group_sigma2=2.0, others=27, mode="integer")
    >>> sampled_decision_masses(design, 3, 100, p=0.5).corrected > decision_masses(design, 3, p=0.5).corrected
    True
    """
    from scipy.special import betainc, gammaln

    if draws < 1:
        msg = f"draws must be at least 1, got {draws}"
        raise ModelError(msg, draws)
    found = _box(design, total, checked_prior(p, log_odds), box)
    q = posterior(found.log_odds)
    least = draws // 2 + 1
    # P[Binomial(draws, q) >= least]
    yes = betainc(least, draws - least + 1, q)
    tie = 0.0
    if draws % 2 == 0:
        half = draws // 2
        with np.errstate(divide="ignore", invalid="ignore"):
            log_tie = gammaln(draws + 1) - 2 * gammaln(half + 1) + half * (np.log(q) + np.log1p(-q))
        tie = float((found.weight * np.exp(np.where(np.isnan(log_tie), -np.inf, log_tie))).sum())
    alone = np.broadcast_to(found.alone[:, None, None], yes.shape)
    return DecisionMasses(
        corrected=float((found.weight * yes)[~alone].sum()),
        spoiled=float((found.weight * (1.0 - yes))[alone].sum()),
        covered=found.covered,
        near_tie_mass=tie,
    )


def decision_thresholds(
    design: TwoLevelDesign,
    block: int,
    group: NDArray[np.int64],
    rest: NDArray[np.int64],
    *,
    p: float | None = None,
    log_odds: float | None = None,
) -> list[int | None]:
    """Where the decision turns as the noisy rest grows, for each noisy group count.

    Parameters
    ----------
    design
        What is published and how it is read.
    block
        Noisy count of the block less the known persons.
    group, rest
        Runs of consecutive noisy counts.
    p, log_odds
        Prior, given once.

    Returns
    -------
    list
        For each of ``group`` the largest noisy rest that is answered with present, None if there is none in
        ``rest``. More people elsewhere speak against the target, so everything below is answered with present
        too.

    Examples
    --------
    >>> design = TwoLevelDesign(sigma2=5.0389839, group_sigma2=2.0285249, others=27, mode="literal")
    >>> decision_thresholds(design, 0, np.arange(-3, 0), np.arange(-60, 61), p=0.5)
    [-14, -14, -14]
    """
    yes = decide(two_level_log_odds(design, np.array([block]), group, rest, p=p, log_odds=log_odds)[0])
    return [int(rest[np.flatnonzero(row)[-1]]) if row.any() else None for row in yes]
