"""The working form of one county part: a tree of uniform depth as integer arrays, and its codes. Internal.

Level k holds, per unit, its parent in level k-1, its place among its siblings and its share of rho as an
integer over a common denominator. The last level is the blocks and is never reordered, so a block keeps its
index throughout. What it is not: public (see :class:`adversary.geography.spine.Spine`).

Held to account by ``tests/paper/test_spines.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Tree", "common_denominator", "run_starts"]


def common_denominator(shares: Sequence[Fraction], depth: int) -> tuple[list[int], int, Any]:
    """Numerators, the denominator, and a dtype in which ``depth`` of them add up without overflow."""
    denominator = math.lcm(1, *(s.denominator for s in shares))
    numerators = [int(s * denominator) for s in shares]
    # the pure-DP rule multiplies a share by a number of children: leave 24 bits for it
    small = max([denominator, *numerators], default=1) * max(depth, 1) < 2**38
    return numerators, denominator, np.int64 if small else object


def run_starts(sorted_keys: NDArray[Any]) -> NDArray[np.int64]:
    """Index of the first entry of each run of equal keys."""
    if not sorted_keys.size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.r_[True, sorted_keys[1:] != sorted_keys[:-1]])


@dataclass
class Tree:
    """Levels of one county part, top (the county) to bottom (its blocks)."""

    parent: list[NDArray[np.int64]]
    seq: list[NDArray[np.int64]]
    share: list[NDArray[Any]]
    denominator: int

    @property
    def depth(self) -> int:
        """Number of levels."""
        return len(self.parent)

    def children(self, k: int) -> NDArray[np.int64]:
        """Count the children of each unit of level k."""
        return np.bincount(self.parent[k + 1], minlength=self.parent[k].size).astype(np.int64)

    def order(self) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Units of every level in path order, and each unit's number (from 1) among its siblings."""
        orders, numbers = [], []
        rank = np.zeros(1, np.int64)
        for parent, seq in zip(self.parent, self.seq, strict=True):
            above = rank[parent]
            order = np.lexsort((seq, above))
            sorted_above = above[order]
            starts = run_starts(sorted_above)
            sizes = np.diff(np.r_[starts, order.size])
            number = np.empty(order.size, np.int64)
            number[order] = np.arange(order.size) - np.repeat(starts, sizes) + 1
            rank = np.empty(order.size, np.int64)
            rank[order] = np.arange(order.size)
            orders.append(order)
            numbers.append(number)
        return orders, numbers

    def widths(self) -> list[int]:
        """Digits that the largest fan-out of each level but the blocks needs."""
        _, numbers = self.order()
        return [len(str(int(n.max()))) for n in numbers[:-1]]

    def codes(self, root: str, widths: Sequence[int], names: NDArray[np.str_]) -> list[NDArray[np.str_]]:
        """Codes of all units, level by level: ``root``, then running numbers, then the block's own name."""
        _, numbers = self.order()
        above = np.array([root])
        out = []
        for k, width in enumerate(widths):
            own = np.strings.zfill(numbers[k].astype(str), width) if width else np.full(numbers[k].size, "")
            above = np.strings.add(above[self.parent[k]], own)
            out.append(above)
        out.append(np.strings.add(above[self.parent[-1]], names))
        return out

    def fractions(self, k: int) -> list[Fraction]:
        """Exact shares of the units of level k."""
        return [Fraction(int(x), self.denominator) for x in self.share[k].tolist()]
