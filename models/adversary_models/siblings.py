"""Presence in one block, with the other blocks of the group one by one."""

import numpy as np

from adversary import Prior, measured, scenario


def _siblings(release):
    return {"sibling": np.arange(release["siblings"].size)}


@scenario(
    target="present",
    source="Kazan & Reiter (arXiv 2204.04253), sec. 3.2, blocks one by one",
    coords=_siblings,
)
def siblings(
    release, *, known=0, present=Prior("Bernoulli", p=0.5), elsewhere=Prior("FlatCount", dims="sibling")
):
    """Is the target among the block's people, when each other block of the group is published on its own?

    ``release["siblings"]`` is the vector of the other blocks' noisy counts. Each true count is at least 0, which is sharper
    than ``two_level``, where only their sum is. Flat priors on the blocks are not a flat prior on their sum: d blocks give
    the sum y the weight C(y + d - 1, d - 1).

    Not used: every level above the group.
    """
    block = known + present
    measured(release["block"], block)
    measured(release["siblings"], elsewhere)
    measured(release["block_group"], block + elsewhere.sum())
