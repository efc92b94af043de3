"""Priors of a leaf's count for :mod:`adversary.samplers.tree`: flat, Poisson, geometric, tabulated.

A leaf is a geounit without children: a block, or the sum of a block's siblings. Not here: priors as PyMC
distributions (see :mod:`adversary.priors`).

Held to account by tests/samplers/test_tree.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["LeafPrior"]


@dataclass(frozen=True, eq=False)
class LeafPrior:
    """Prior of a leaf's count on 0, 1, 2, ...

    Parameters
    ----------
    name
        In words.
    parameter
        Mean (Poisson) or ratio (geometric).
    table
        Log weights of ``first``, ``first + 1``, ... (tabulated); none beyond.
    first
        First count of the table.

    Examples
    --------
    >>> LeafPrior.poisson(2.0).log_weight(np.array([0, 1])).round(4).tolist()
    [-2.0, -1.3069]
    """

    name: str
    parameter: float = math.nan
    table: NDArray[np.float64] | None = field(default=None, repr=False)
    first: int = 0

    @classmethod
    def flat(cls) -> LeafPrior:
        """Every count alike: improper."""
        return cls("flat")

    @classmethod
    def poisson(cls, mean: float) -> LeafPrior:
        """Poisson with a mean above 0."""
        if not (mean > 0 and math.isfinite(mean)):
            msg = f"a Poisson mean must be positive, got {mean}: give sigma2 = 0 for a count that is known"
            raise ModelError(msg, mean)
        return cls("poisson", float(mean))

    @classmethod
    def geometric(cls, ratio: float) -> LeafPrior:
        """Geometric: each further person multiplies the probability by ``ratio``, in (0, 1)."""
        if not 0 < ratio < 1:
            msg = f"a geometric ratio must lie between 0 and 1, got {ratio}: use LeafPrior.flat() for 1"
            raise ModelError(msg, ratio)
        return cls("geometric", float(ratio))

    @classmethod
    def tabulated(cls, probabilities: ArrayLike) -> LeafPrior:
        """Any weights of 0, 1, ..., K; need not sum to one.

        Parameters
        ----------
        probabilities
            Probability of 0, 1, 2, ..., shape (k,).
        """
        weights = np.asarray(probabilities, dtype=np.float64)
        if (
            weights.ndim != 1
            or not np.all(weights >= 0)
            or not np.all(np.isfinite(weights))
            or not weights.sum() > 0
        ):
            msg = f"a tabulated prior is a list of weights, not negative, not all zero, got {probabilities!r}"
            raise ModelError(msg, probabilities)
        with np.errstate(divide="ignore"):
            return cls("tabulated", table=np.log(weights / weights.sum()))

    @classmethod
    def pair(cls, known: int) -> LeafPrior:
        """Prior of a target's own leaf: ``known`` or ``known + 1`` persons, alike."""
        return cls("tabulated", table=np.log([0.5, 0.5]), first=int(known))

    @property
    def log_concave(self) -> bool:
        """Whether the bound on what windows leave out is proven for it."""
        if self.table is None:
            return True
        support = np.flatnonzero(np.isfinite(self.table))
        inner = self.table[support[0] : support[-1] + 1]
        return bool(np.all(np.isfinite(inner)) and np.all(np.diff(inner, 2) <= 1e-12))

    def log_weight(self, count: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log weight of counts, ``-inf`` where impossible.

        Parameters
        ----------
        count
            Whole numbers >= 0, any shape.
        """
        n = np.asarray(count)
        if self.table is not None:
            place = n - self.first
            inside = (place >= 0) & (place < self.table.size)
            return np.where(inside, self.table[np.where(inside, place, 0)], -np.inf)
        out = np.zeros(n.shape)
        if self.name == "poisson":
            size = int(np.max(n, initial=0)) + 1
            log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, size + 1.0)))])
            out = np.asarray(n * math.log(self.parameter) - self.parameter - log_factorial[np.maximum(n, 0)])
        elif self.name == "geometric":
            out = np.asarray(n * math.log(self.parameter) + math.log1p(-self.parameter))
        return np.where(n < 0, -np.inf, out)

    def reach(self, depth: float) -> float:
        """Count beyond which the prior's weight is below ``exp(-depth)``: infinite if flat."""
        if self.table is not None:
            return float(self.first + self.table.size - 1)
        if self.name == "poisson":
            return math.ceil(self.parameter + math.sqrt(2.0 * depth * self.parameter) + depth)
        if self.name == "geometric":
            return math.ceil(depth / -math.log(self.parameter))
        return math.inf
