"""Shared variables that stand for the numbers of a release and of priors while a scenario is built.

What it is: the one ``hold`` that `Scenario.build` is given by whoever feeds a compiled model with new numbers
afterwards. Held to account by ``tests/test_attack.py`` and ``tests/test_batches.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adversary.priors import as_number

__all__ = ["Inputs"]


class Inputs(dict[str, Any]):
    """Label -> shared variable, filled by :meth:`hold`."""

    def hold(self, label: str, value: Any) -> Any:
        """Return a shared variable of this label for a ``value`` that is a number, anything else as it is."""
        import pytensor

        number = as_number(value)
        if not isinstance(number, np.ndarray | np.generic):
            return number
        self[label] = pytensor.shared(np.asarray(number), name=label, shape=np.shape(number))
        return self[label]
