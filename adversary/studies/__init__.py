"""Studies: how an answer depends on the assumptions behind it.

:func:`study` answers a grid of assumptions, in several processes and resumable; the other names ask one question of it:
bounds over a class of priors, what moves the answer most, the prior at which a decision turns.

What it is not: an engine, or a place for many targets under one set of assumptions (``adversary.assess``).
Held to account by ``tests/test_studies.py``.
"""

from adversary.studies.grid import study
from adversary.studies.scaling import power_scaling, psense
from adversary.studies.sensitivity import (
    Bounds,
    Moved,
    bounds,
    break_even_prior,
    rank_assumptions,
)
from adversary.studies.total import UniformTotal

__all__ = [
    "Bounds",
    "Moved",
    "UniformTotal",
    "bounds",
    "break_even_prior",
    "power_scaling",
    "psense",
    "rank_assumptions",
    "study",
]
