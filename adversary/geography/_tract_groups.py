"""Tract groups: the greedy search that brings far off-spine entities closer to a county part. Internal.

The search is the Bureau's (first improving-or-equal pair, lexicographic worst distance first); the
arithmetic is ours: per tract group only the sums of two costs per far entity are kept, so a candidate costs
O(far entities), and all candidates of one group are tried in one array operation. Same answers.

Held to account by ``tests/paper/test_spines.py`` and ``tests/geography/test_optimize.py`` (a plain
recursion).
"""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from adversary.geography.optimize import SpineSettings

__all__ = ["chunks", "tract_groups"]


def chunks(items: Sequence[int], size: int, even: bool) -> list[list[int]]:
    """Consecutive runs of at most ``size``; ``even`` evens them out, unless a run of one or none is left."""
    n = len(items)
    if even and n > size and n % size > 1:
        runs = n // size + 1
        low = n // runs
        cuts = np.cumsum([0] + [low] * (runs - (n - low * runs)) + [low + 1] * (n - low * runs))
        return [list(items[a:b]) for a, b in pairwise(cuts.tolist())]
    return [list(items[i : i + size]) for i in range(0, n, size)]


def _capped(cost: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.minimum(cost, other + 1), np.minimum(other, cost + 1)


def _tract_costs(
    inside: NDArray[np.bool_], group: NDArray[np.int64], tract_of_group: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cost of an entity and of its complement in every tract: block, block group, tract."""
    n_groups = tract_of_group.size
    members = np.bincount(group[inside], minlength=n_groups)
    sizes = np.bincount(group, minlength=n_groups)
    cost, other = _capped(members, sizes - members)
    n_tracts = int(tract_of_group.max()) + 1
    total = np.bincount(tract_of_group, cost, n_tracts).astype(np.int64)
    total_other = np.bincount(tract_of_group, other, n_tracts).astype(np.int64)
    return _capped(total, total_other)


def _far_entities(
    entities: NDArray[np.str_], group: NDArray[np.int64], tract_of_group: NDArray[np.int64], threshold: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Costs per tract of the entities whose distance may exceed the threshold; two arrays (tracts, far)."""
    kept, other = [], []
    for k in range(entities.shape[1]):
        codes, inverse = np.unique(entities[:, k], return_inverse=True)
        for i, code in enumerate(codes.tolist()):
            if set(code) == {"9"}:
                continue
            c, n = _tract_costs(inverse == i, group, tract_of_group)
            if min(int(c.sum()), int(n.sum()) + 1) > threshold:
                kept.append(c)
                other.append(n)
    if not kept:
        empty = np.zeros((int(tract_of_group.max()) + 1, 0), np.int64)
        return empty, empty
    return np.stack(kept, axis=1), np.stack(other, axis=1)


def _no_worse(candidates: NDArray[np.int64], best: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows, sorted descending, are lexicographically at most ``best``."""
    differs = candidates != best
    first = differs.argmax(axis=1)
    rows = np.arange(first.size)
    good: NDArray[np.bool_] = ~differs.any(axis=1) | (candidates[rows, first] < best[first])
    return good


class _Search:
    """The greedy search: tract groups, their sums and costs, the county's sums, the objective."""

    def __init__(
        self, groups: dict[int, list[int]], costs: NDArray[np.int64], others: NDArray[np.int64], cap: int
    ) -> None:
        self.groups, self.order, self.cap = groups, list(groups), cap
        width = costs.shape[1]
        ids = max(groups) + 1
        self.size = np.zeros(ids, np.int64)
        self.sums = np.zeros((2, ids, width), np.int64)
        for g, tracts in groups.items():
            self.size[g] = len(tracts)
            self.sums[0, g], self.sums[1, g] = costs[tracts].sum(axis=0), others[tracts].sum(axis=0)
        self.cost = np.stack(_capped(self.sums[0], self.sums[1]))
        self.county = self.cost[:, self.order].sum(axis=1)
        self.best = self.objective(self.county[0][None], self.county[1][None])[0]

    @staticmethod
    def objective(cost: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        return -np.sort(-np.minimum(cost, other + 1), axis=1)

    def try_pair(self, a: int, candidates: NDArray[np.int64]) -> bool:
        """Merge the first candidate that is no worse into ``a``."""
        fits = candidates[self.size[a] + self.size[candidates] <= self.cap]
        if not fits.size:
            return False
        merged = np.stack(_capped(self.sums[0, a] + self.sums[0, fits], self.sums[1, a] + self.sums[1, fits]))
        county = self.county[:, None] - self.cost[:, a][:, None] - self.cost[:, fits] + merged
        values = self.objective(county[0], county[1])
        good = np.flatnonzero(_no_worse(values, self.best))
        if not good.size:
            return False
        i = int(good[0])
        b = int(fits[i])
        self.sums[:, a] += self.sums[:, b]
        self.cost[:, a] = merged[:, i]
        self.county, self.best = county[:, i], values[i]
        self.size[a] += self.size[b]
        self.groups[a] += self.groups.pop(b)
        self.order.remove(b)
        return True

    def run(self) -> list[list[int]]:
        """Merge until no pair is left; a group that found no partner is never tried first again."""
        done: set[int] = set()
        while len(self.order) > 1:
            open_groups = [g for g in self.order if g not in done]
            found = False
            for i, a in enumerate(open_groups[:-1]):
                found = self.try_pair(a, np.array(open_groups[i + 1 :], np.int64))
                if found:
                    break
                done.add(a)
            if not found:
                break
        return [self.groups[g] for g in self.order]


def tract_groups(
    entities: NDArray[np.str_],
    tract: NDArray[np.int64],
    group: NDArray[np.int64],
    tract_of_group: NDArray[np.int64],
    settings: SpineSettings,
) -> list[list[int]]:
    """Tracts of every tract group, in order (Cumings-Menon et al., sec. 4; choices of production)."""
    n_tracts = tract_of_group.max() + 1
    even = settings.group_type == "even"
    cap = int(sqrt(n_tracts) + settings.fanout_cutoff + (1 if settings.code == "dhc" else 0))
    alike: dict[tuple[str, ...], list[int]] = {}
    seen: list[set[str]] = [set() for _ in range(int(n_tracts))]
    for k in range(entities.shape[1]):
        codes, inverse = np.unique(entities[:, k], return_inverse=True)
        for pair in np.unique(tract * codes.size + inverse).tolist():
            seen[pair // codes.size].add(str(codes[pair % codes.size]))
    for t, codes_of_tract in enumerate(seen):
        alike.setdefault(tuple(sorted(codes_of_tract)), []).append(t)
    runs = {run[0]: run for tracts in alike.values() for run in chunks(tracts, cap, even)}
    groups = dict(sorted(runs.items()))
    costs, others = _far_entities(entities, group, tract_of_group, settings.entity_threshold)
    if not costs.shape[1]:
        # the runs count groups, not tracts: a group may end with more than `cap` tracts, as in production
        return [[t for g in run for t in groups[g]] for run in chunks(list(groups), cap, even)]
    return _Search(groups, costs, others, cap).run()
