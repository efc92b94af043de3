"""A tree of geounits with its noisy counts and priors, checked, for :mod:`adversary.samplers.tree`.

Not public. Held to account by tests/samplers/test_tree.py.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.samplers.leaf_prior import LeafPrior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from adversary.samplers._messages import Pool

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["TreeProblem", "beside_path"]


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


def beside_path(problem: TreeProblem, pool: Pool, name: Ints, k: int) -> tuple[TreeProblem, Ints]:
    """One leaf's path, and of every sibling of it the message of all below it; the leaf, last, held to known and known + 1.

    Sibling leaves are taken as they are: their windows can then be cut deeper. ``name`` is the message of every node. Also
    returned: for every leaf of the small tree the message that it stands for, -1 where it is itself.
    """
    assert problem.known is not None
    known, path = int(problem.known[k]), [int(problem.leaf[k])]
    while problem.parent[path[-1]] >= 0:
        path.append(int(problem.parent[path[-1]]))
    path.reverse()
    parent, node = [-1], [path[0]]
    for unit, below in itertools.pairwise(path):
        above = len(parent) - 1
        siblings = problem.children[problem.parent[problem.children] == unit]
        for child in (
            *siblings[siblings != below].tolist(),
            below,
        ):  # the path last: its place is the next parent
            parent.append(above)
            node.append(child)
    nodes = np.array(node)
    leaf = np.setdiff1d(np.arange(nodes.size), parent)
    itself = np.isin(nodes[leaf], problem.leaf)
    standing = np.where(itself, -1, name[nodes[leaf]])
    priors: list[LeafPrior] = []
    for unit, message in zip(nodes[leaf].tolist(), standing.tolist(), strict=True):
        if message < 0:
            priors.append(problem.priors[int(problem.prior_of[np.searchsorted(problem.leaf, unit)])])
            continue
        weight = pool.value[pool.offset[message] : pool.offset[message] + pool.width[message]]
        with np.errstate(divide="ignore"):
            priors.append(LeafPrior("tabulated", table=np.log(weight), first=int(pool.low[message])))
    priors[-1] = LeafPrior.pair(known)
    sigma2 = problem.sigma2[nodes].copy()
    sigma2[leaf[~itself]] = sigma2[leaf[-1]] = np.inf
    others = np.full(leaf.size, -1)
    others[-1] = known
    small = TreeProblem.checked(parent, problem.noisy[nodes], sigma2, priors, np.arange(leaf.size), others)
    return small, standing
