"""Counting people by area and cell while a file is read in pieces. Internal.

Held to account by ``tests/readers/test_ppmf.py`` and ``tests/readers/test_ipums.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adversary.readers.population import BlockCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adversary.release.queries import Histogram

__all__ = ["Tally"]

_WAITING = 2_000_000  # entries that may wait to be added up


class Tally:
    """Counts by (area, cell); the memory is that of the distinct pairs, not of the people."""

    def __init__(self) -> None:
        self._keys = [np.zeros((2, 0), np.int64)]
        self._counts = [np.zeros(0, np.int64)]

    def add(self, area: NDArray[np.int64], cell: NDArray[np.int64]) -> None:
        """Count one person an entry."""
        keys, counts = _added([np.stack([area, cell])], [np.ones(area.size, np.int64)])
        self._keys.append(keys)
        self._counts.append(counts)
        if sum(k.shape[1] for k in self._keys[1:]) > max(self._keys[0].shape[1], _WAITING):
            self._settle()

    def _settle(self) -> None:
        keys, counts = _added(self._keys, self._counts)
        self._keys, self._counts = [keys], [counts]

    def result(self, width: int, histogram: Histogram) -> BlockCounts:
        """Return the counts; areas as text of this many digits."""
        self._settle()
        (area, cell), counts = self._keys[0], self._counts[0]
        numbers, place = np.unique(area, return_inverse=True)
        codes = np.array([f"{n:0{width}d}" for n in numbers.tolist()], np.str_)
        return BlockCounts.of(codes[place.ravel()] if codes.size else codes, cell, counts, histogram)


def _added(
    keys: list[NDArray[np.int64]], counts: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Add up the counts of equal pairs."""
    both, count = np.concatenate(keys, axis=1), np.concatenate(counts)
    order = np.lexsort((both[1], both[0]))
    both, count = both[:, order], count[order]
    if not count.size:
        return both, count
    first = np.flatnonzero(np.r_[True, (np.diff(both, axis=1) != 0).any(axis=0)])
    return both[:, first], np.add.reduceat(count, first)
