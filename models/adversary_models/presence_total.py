"""Presence, when the adversary does not know how many others share the target's cell."""

from adversary import Prior, measured, scenario


@scenario(target="present", source="after Kazan & Reiter (arXiv 2204.04253), sec. 3.1, with others unknown")
def presence_total(
    release,
    *,
    present=Prior("Bernoulli", p=0.5),
    others=Prior("Poisson", mu=Prior("Gamma", alpha=2.0, beta=1.0)),
):
    """Is the target among the block's people, when the number of others like her is only guessed?

    ``others`` has a prior, here Poisson with an unknown rate (so negative binomial after summing the rate out); the paper
    takes it as known. The less she knows about the others, the less one noisy count tells about the target.
    """
    measured(release["block"], others + present)
