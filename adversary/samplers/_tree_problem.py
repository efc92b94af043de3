"""A tree of geounits with its noisy counts and priors, checked, for :mod:`adversary.samplers.tree`.

Not public. Held to account by tests/samplers/test_tree.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.samplers.leaf_prior import LeafPrior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["TreeProblem"]


@dataclass(frozen=True, eq=False)
class TreeProblem:
    parent: Ints
    noisy: Ints
    sigma2: Floats
    depth: Ints
    leaf: Ints
    children: Ints  # all nodes but the root, by parent
    priors: tuple[LeafPrior, ...]
    prior_of: Ints
    known: Ints | None
    cap: Floats  # exact totals above a node bound its count

    def prior_gain(self) -> Floats:
        """Log prior of known + 1 less that of known, for every leaf."""
        assert self.known is not None
        out = np.zeros(self.leaf.size)
        for k, prior in enumerate(self.priors):
            mine = self.prior_of == k
            with np.errstate(invalid="ignore"):
                out[mine] = prior.log_weight(self.known[mine] + 1) - prior.log_weight(self.known[mine])
        return out

    @classmethod
    def checked(
        cls,
        parent: ArrayLike,
        noisy: ArrayLike,
        sigma2: ArrayLike,
        prior: LeafPrior | Sequence[LeafPrior] | None,
        prior_of: ArrayLike | None,
        known: ArrayLike | None,
    ) -> TreeProblem:
        up = np.asarray(parent, dtype=np.int64)
        if (
            up.ndim != 1
            or up.size == 0
            or up[0] != -1
            or np.any((up[1:] < 0) | (up[1:] >= np.arange(1, up.size)))
        ):
            msg = f"parents must precede their children and node 0 be the root with parent -1, got {up}"
            raise ModelError(msg, parent)
        s2 = np.broadcast_to(np.asarray(sigma2, dtype=np.float64), up.shape)
        if np.any(np.isnan(s2) | (s2 < 0)):
            msg = "sigma2 must not be negative or NaN: write 0 for an exact count, inf for one not measured"
            raise ModelError(msg, sigma2)
        given = np.asarray(noisy)
        if given.shape != up.shape or np.any(given[np.isfinite(s2)] != np.floor(given[np.isfinite(s2)])):
            msg = f"noisy counts must be whole numbers, one for each of {up.size} nodes"
            raise ModelError(msg, noisy)
        counts = np.where(np.isfinite(s2), given, 0).astype(np.int64)
        leaf = np.setdiff1d(np.arange(up.size), up)
        priors = (prior or LeafPrior.flat(),) if isinstance(prior, LeafPrior | None) else tuple(prior)
        which = (
            np.zeros(leaf.size, dtype=np.int64) if prior_of is None else np.asarray(prior_of, dtype=np.int64)
        )
        others = None if known is None else np.broadcast_to(np.asarray(known, dtype=np.int64), leaf.shape)
        if which.shape != leaf.shape or np.any((which < 0) | (which >= len(priors))):
            msg = f"prior_of must name one of {len(priors)} priors for each of {leaf.size} leaves"
            raise ModelError(msg, prior_of)
        depth = np.zeros(up.size, dtype=np.int64)
        cap = np.full(up.size, np.inf)
        for node in range(up.size):
            above = up[node]
            if above >= 0:
                depth[node], cap[node] = depth[above] + 1, cap[above]
            if s2[node] == 0:
                cap[node] = min(cap[node], counts[node])
        if np.any(cap < 0) or (others is not None and np.any(others < -1)):
            msg = "exact and known counts must not be negative"
            raise ModelError(msg, (noisy, known))
        children = 1 + np.argsort(up[1:], kind="stable")
        return cls(up, counts, s2, depth, leaf, children, priors, which, others, cap)
