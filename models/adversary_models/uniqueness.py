"""A record that is unique at several levels at once; and at which levels she is unique."""

from adversary import Prior, measured, scenario


@scenario(target="present", source="Kazan & Reiter (arXiv 2204.04253), S1.3")
def uniqueness(release, *, present=Prior("Bernoulli", p=0.5)):
    """Is the target there, when nobody else at any of the released levels shares her cell?

    Every count in the release is the same unknown 0 or 1 with noise of its own:
    log-odds = logit p + sum_i (2 x*_i - 1) / (2 sigma_i^2). Release only the levels at which she is unique.
    """
    for level in release:
        measured(release[level], present)


def _above(release, levels):
    return {"above": [level for level in levels[1:] if level in release]}


@scenario(
    target="unique",
    source="Kazan & Reiter (arXiv 2204.04253), S1.3, uniqueness itself unknown",
    coords=_above,
)
def unique_at(
    release,
    *,
    levels=("block", "block_group", "tract", "county", "state", "nation"),
    level="block_group",
    others=Prior("Poisson", mu=1.0, dims="above"),
):
    """Is the target, who is known to be alone of her kind in her block, unique at ``level`` too?

    ``others`` are the people like her whom each further level adds; she is unique at a level where they sum to zero. Ask
    for each level in turn: ``unique_at.over(level=["block_group", "tract"])``. The prior on ``others`` must be proper, and the
    answer leans on it.
    """
    import pymc as pm
    import pytensor.tensor as pt

    there = [one for one in levels if one in release]
    measured(release[there[0]], 1)
    for i, one in enumerate(there[1:]):
        measured(release[one], 1 + others[: i + 1].sum())
        if one == level:
            pm.Deterministic("unique", pt.cast(pt.eq(others[: i + 1].sum(), 0), "int64"))
