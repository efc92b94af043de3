"""An adversary on a spine: everything of one cell that bears on a target's block, answered by the exact tree.

``measurements_of`` gives the noise of every unit from its own share of the budget; ``attack_blocks`` answers all targets of a
cell at once; ``attack_block`` answers one along her path and explains the answer. NumPy only.

Room below ``assess``. Held to account by ``tests/test_spine_attack.py`` and ``tests/models/test_on_spine.py``.
"""

from __future__ import annotations

from adversary.spine_attack.blocks import BlockAnswers, attack_blocks
from adversary.spine_attack.counts import SpineCounts, measurements_of, simulate_counts
from adversary.spine_attack.one import BlockAnswer, PathStep, attack_block

__all__ = [
    "BlockAnswer",
    "BlockAnswers",
    "PathStep",
    "SpineCounts",
    "attack_block",
    "attack_blocks",
    "measurements_of",
    "simulate_counts",
]
