"""Presence in a block of a small spine, every block of it one by one."""

import numpy as np

from adversary import Prior, measured, scenario


def _others(release):
    return {"sibling": np.arange(release["siblings"].size), "cousin": np.arange(release["cousins"].size)}


@scenario(
    target="present",
    source="exact trees of geounits, after Cumings-Menon et al. (arXiv 2203.16654), sec. 2",
    coords=_others,
)
def on_spine(
    release,
    *,
    known=0,
    present=Prior("Bernoulli", p=0.5),
    elsewhere=Prior("FlatCount", dims="sibling"),
    beyond=Prior("FlatCount", dims="cousin"),
):
    """Is the target among the block's people, when a spine's blocks and the units above them are published?

    The smallest spine with a fork: her ``block`` and its ``siblings`` make the ``block_group``, which with the ``cousins``
    (the blocks of the other groups) makes the ``tract``; ``other_groups`` is the sum of the cousins. A unit that was not
    measured is left out of the release with sigma2 = inf, an invariant has rho = inf. Each block has a prior of its own:
    one with a vector of parameters gives them one by one. For spines of any size the same question is answered by
    ``adversary.spine_attack``.

    Not used: levels above the tract.
    """
    block = known + present
    group, rest = block + elsewhere.sum(), beyond.sum()
    measured(release["block"], block)
    measured(release["siblings"], elsewhere)
    measured(release["cousins"], beyond)
    measured(release["block_group"], group)
    measured(release["other_groups"], rest)
    measured(release["tract"], group + rest)
