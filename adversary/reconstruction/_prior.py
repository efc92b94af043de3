"""What she believes of a block when nothing but its number of households is known.

What it is: the questions of :mod:`adversary.reconstruction.posterior`, in closed form, before anything else
was published. Held to account by tests/reconstruction/test_posterior.py (a full enumeration).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.reconstruction._reduced import Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.households import Configurations, Predicate

    Picked = Predicate | Mapping[str, Any] | ArrayLike | None

__all__ = ["HouseholdPrior"]


@dataclass(frozen=True, eq=False)
class HouseholdPrior:
    """What she believes when nothing but the number of households is known.

    Attributes
    ----------
    configurations
        The table of configurations.
    shares
        Probability of each, shape (K,), adding up to 1.
    likelihood
        ``"exchangeable"`` or ``"ordered"``.
    households
        Probability of each possible number of households.

    Examples
    --------
    >>> from adversary.reconstruction.households import Attribute, Configurations
    >>> cells = Configurations.product(Attribute("size", ("1", "2")))
    >>> prior = HouseholdPrior(cells, np.array([0.75, 0.25]), "exchangeable", {2: 1.0})
    >>> round(prior.probability({"size": "2"}), 10), prior.expected_number({"size": "2"})
    (0.4375, 0.5)
    """

    configurations: Configurations
    shares: NDArray[np.float64]
    likelihood: str
    households: Mapping[int, float]

    @cached_property
    def _weights(self) -> Weights:
        return Weights(self.likelihood == "ordered", self.shares)

    @cached_property
    def _marginals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        seen = np.flatnonzero(self.shares > 0)
        most = max(self.households)
        tables = self._weights.member_table(seen, most)
        out = np.zeros((2, len(self.shares)))
        for n, p in self.households.items():
            out[:, seen] += p * np.array([tables[0][n], tables[1][n]])
        return out[0], out[1]

    @property
    def present(self) -> NDArray[np.float64]:
        """P(at least one household of the configuration), shape (K,)."""
        return self._marginals[0]

    @property
    def expected(self) -> NDArray[np.float64]:
        """Expected households of the configuration, shape (K,)."""
        return self._marginals[1]

    def pmf(self, harm: Picked) -> NDArray[np.float64]:
        """Return the law of the number of households with the harm, from 0 on."""
        its = self.configurations.mask(harm)
        most = max(self.households)
        split = self._weights.split(np.flatnonzero(its), np.flatnonzero(~its), most)
        return np.asarray(sum(p * split[n] for n, p in self.households.items()))

    def probability(self, harm: Picked) -> float:
        """Return P(at least one household with the harm)."""
        return float(self.pmf(harm)[1:].sum())

    def expected_number(self, harm: Picked) -> float:
        """Return the expected number of households with the harm."""
        return float(self.expected[self.configurations.mask(harm)].sum())
