"""The prior of S4 that is no plain prior: the group's total uniform up to a number, given the block's.

What it is not: a distribution of its own; it is PyMC's DiscreteUniform with a bound that depends on the target.
Held to account by ``tests/test_studies.py``. Source: Kazan & Reiter (arXiv 2204.04253), sec. 3.2 and S4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from adversary.errors import ScenarioError

__all__ = ["UniformTotal"]


@dataclass(frozen=True)
class UniformTotal:
    """Prior of the rest of a group such that the group's total is uniform on {k, ..., top} where the block holds k.

    This is the proper version of the paper's "X2 | X1 = k1 uniform on {k1, k1 + 1, ...}". Its mass 1 / (top - k1 + 1) depends on
    whether the target is there, which multiplies her odds by (top - known + 1) / (top - known); a plain
    ``Prior("DiscreteUniform", lower=0, upper=top)`` on the rest has no such factor and is another model.

    Parameters
    ----------
    top
        Largest possible total of the group, > known.
    known
        How many others the adversary knows to be in the block; it must be the scenario's own number.
    target
        Name of the 0/1 unknown, which the scenario must name before this one.

    Examples
    --------
    >>> UniformTotal(209, known=0)
    UniformTotal(top=209, known=0, target='present')
    """

    top: int
    known: int
    target: str = "present"

    def __post_init__(self) -> None:
        if self.top <= self.known:
            msg = f"top must be above known = {self.known}, so that the target has room in the group, got {self.top}"
            raise ScenarioError(msg, self.top)

    def create_variable(self, name: str) -> Any:
        """Register the variable in the open model.

        Parameters
        ----------
        name
            Name of the variable in the model.
        """
        import pymc as pm

        model = pm.modelcontext(None)
        if self.target not in model.named_vars:
            msg = f"UniformTotal for {name} needs the unknown {self.target!r} before it: name it first among the arguments"
            raise ScenarioError(msg, self.target)
        room = np.int64(self.top - self.known) - model[self.target]
        return pm.DiscreteUniform(name, lower=np.int64(0), upper=room)
