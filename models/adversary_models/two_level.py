"""Presence in one block, from the counts of the block, of its block group, and of the rest of the group."""

from adversary import Prior, measured, scenario
from adversary.samplers.declared import node, prior_log_odds, rest
from adversary.samplers.gibbs import PathProblem


def _gibbs(release, *, known, present, elsewhere):
    return PathProblem(
        known=known,
        prior_log_odds=prior_log_odds(present),
        nodes=(node(release, "block"), node(release, "block_group")),
        rests=(rest(release, "rest", elsewhere),),
    )


@scenario(
    target="present", source="Kazan & Reiter (arXiv 2204.04253), sec. 3.2, eqs. (3.7)-(3.9)", gibbs=_gibbs
)
def two_level(release, *, known=0, present=Prior("Bernoulli", p=0.5), elsewhere=Prior("FlatCount")):
    """Is the target among the block's people, when the block group is published too?

    ``rest`` is the sum of the noisy counts of the group's other blocks (``groups`` says how many); ``elsewhere`` is their
    true sum, flat on {0, 1, ...} independently of ``present``. That X2 >= X1 needs no line: it is the support of
    ``elsewhere``. The paper's printed numbers come from a sampler that ignores this constraint in one of its two steps;
    ``sampler="gibbs", mode="literal"`` reproduces them (0.5777 where this model gives 0.5033).

    Not used: the other blocks one by one (see ``siblings``), and every level above.
    """
    block = known + present
    measured(release["block"], block)
    measured(release["rest"], elsewhere)
    measured(release["block_group"], block + elsewhere)
