"""Presence in one block, from the counts along the whole path from the block to the nation."""

from adversary import Prior, measured, scenario
from adversary.samplers.declared import node, prior_log_odds, rest
from adversary.samplers.gibbs import PathProblem

CENSUS_LEVELS = ("block", "block_group", "tract", "county", "state", "nation")


def _above(release, levels):
    return {"above": [level for level in levels[1:] if level in release]}


def _gibbs(release, *, levels, known, present, elsewhere):
    there = [level for level in levels if level in release]
    return PathProblem(
        known=known,
        prior_log_odds=prior_log_odds(present),
        nodes=tuple(node(release, level) for level in there),
        rests=tuple(rest(release, f"rest_of_{level}", elsewhere) for level in there[1:]),
    )


@scenario(
    target="present",
    source="Kazan & Reiter (arXiv 2204.04253), sec. 3.2, any number of levels",
    coords=_above,
    gibbs=_gibbs,
)
def path(
    release,
    *,
    levels=CENSUS_LEVELS,
    known=0,
    present=Prior("Bernoulli", p=0.5),
    elsewhere=Prior("FlatCount", dims="above"),
):
    """Is the target among the block's people, when every level above is published too?

    For each level above the first (``block_group``, ...) the release has its noisy count and ``rest_of_<level>``, the sum of
    the noisy counts of the other geounits below it. Levels that the release lacks are passed over; give ``levels`` from the
    finest to the coarsest where yours have other names. With two levels this is ``two_level``.

    Not used: the geounits off the path one by one.
    """
    there = [level for level in levels if level in release]
    count = known + present
    measured(release[there[0]], count)
    for i, level in enumerate(there[1:]):
        measured(release[f"rest_of_{level}"], elsewhere[i])
        count = count + elsewhere[i]
        measured(release[level], count)
