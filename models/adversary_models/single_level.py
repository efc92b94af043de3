"""Presence in one block, from the block's noisy count alone."""

from adversary import Prior, measured, scenario
from adversary.samplers.declared import node, prior_log_odds
from adversary.samplers.gibbs import PathProblem


def _gibbs(release, *, known, present):
    return PathProblem(
        known=known, prior_log_odds=prior_log_odds(present), nodes=(node(release, "block"),), rests=()
    )


@scenario(target="present", source="Kazan & Reiter (arXiv 2204.04253), eq. (3.1)", gibbs=_gibbs)
def single_level(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
    """Is the target among the block's people, given that ``known`` others are?

    She knows every other record (``known`` of them share the target's cell) and sees one noisy count. The posterior
    log-odds are logit p + (2(x* - known) - 1) / (2 sigma^2).

    Not used: any other query of the same record, and every higher geounit.
    """
    measured(release["block"], known + present)
