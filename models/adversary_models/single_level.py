"""Presence in one block, from the block's noisy count alone."""

from adversary import Prior, measured, scenario
from adversary.samplers.declared import one_count


@scenario(target="present", source="Kazan & Reiter (arXiv 2204.04253), eq. (3.1)", gibbs=one_count("present"))
def single_level(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
    """Is the target among the block's people, given that ``known`` others are?

    She knows every other record (``known`` of them share the target's cell) and sees one noisy count. The posterior
    log-odds are logit p + (2(x* - known) - 1) / (2 sigma^2).

    Not used: any other query of the same record, and every higher geounit.
    """
    measured(release["block"], known + present)
