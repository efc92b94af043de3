"""True counts of blocks, sparse: what a release is simulated from. ``BlockCounts`` and a synthetic population.

Most cells of most blocks are empty (2,016 cells, some tens of people), so only the others are kept. A population made by
:func:`synthetic_counts` is synthetic: it has the size and the emptiness of a state's blocks and nothing else of it, and
any number found on it says how a method behaves, not what a state's data disclose.

What this module is not: a release, or a file (:mod:`adversary.readers.ppmf` reads one).

Held to account by ``tests/readers/test_population.py``. Source: the layout of the histogram is that of the 2020
redistricting data (:data:`adversary.release.queries.PL94_PERSONS`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ReleaseError
from adversary.geography.blocks import text_codes
from adversary.geography.spine import Spine
from adversary.release.queries import PL94_PERSONS, PL94_UNITS, Histogram
from adversary.release.simulate import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BlockCounts", "synthetic_counts"]

_NURSING, _JUVENILE = 3, 2  # places on the axis hhgq


@dataclass(frozen=True, eq=False)
class BlockCounts:
    """Counts of the non-empty cells of blocks; build it with :meth:`of`.

    Attributes
    ----------
    histogram
        What the cells are of.
    blocks
        Codes of the blocks that have somebody, text, sorted, shape (b,).
    block
        Index into ``blocks`` of every entry, int64, shape (n,), rising.
    cell
        Cell of every entry, int64, shape (n,), rising within a block.
    count
        Its count, int64 and positive, shape (n,).

    Examples
    --------
    >>> counts = BlockCounts.of(["b", "a", "b"], [3, 0, 3], [1, 2, 1], PL94_PERSONS)
    >>> counts, counts.count.tolist()
    (<BlockCounts 4 in 2 blocks, 2 non-empty cells of 2,016 a block>, [2, 2])
    """

    histogram: Histogram
    blocks: NDArray[np.str_]
    block: NDArray[np.int64]
    cell: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, codes: Any, cells: Any, counts: Any, histogram: Histogram) -> BlockCounts:
        """Entries in any order, a cell of a block as often as it comes (its counts are added).

        Parameters
        ----------
        codes
            Block of every entry, text, shape (n,).
        cells
            Cell of every entry, 0 to ``histogram.cells - 1``.
        counts
            Whole numbers, >= 0.
        histogram
            What the cells are of.

        Raises
        ------
        ReleaseError
            For a cell that is not in the histogram, or a count that is negative or no whole number.
        FileFormatError
            For codes that are numbers.
        """
        names, block = np.unique(text_codes(codes, "block"), return_inverse=True)
        cell, count = np.asarray(cells), np.asarray(counts)
        if not block.size == cell.size == count.size:
            msg = f"{block.size} blocks, {cell.size} cells and {count.size} counts: give one of each an entry"
            raise ReleaseError(msg, block.size)
        if cell.size and not (cell.dtype.kind in "iu" and cell.min() >= 0 and cell.max() < histogram.cells):
            bad = cell.min() if cell.min() < 0 else cell.max()
            msg = f"cell {bad} is not in 0..{histogram.cells - 1}"
            raise ReleaseError(msg, bad.item())
        if count.size and not (count.dtype.kind in "iu" and count.min() >= 0):
            msg = f"counts of people must be whole and >= 0, got {count.min()} ({count.dtype})"
            raise ReleaseError(msg, count.min().item())
        keys, place = np.unique(block.astype(np.int64) * histogram.cells + cell, return_inverse=True)
        total = np.zeros(keys.size, np.int64)
        np.add.at(total, place.ravel(), count)
        keys, total = keys[total > 0], total[total > 0]
        used, block = np.unique(keys // histogram.cells, return_inverse=True)
        return cls(histogram, names[used], block.astype(np.int64).ravel(), keys % histogram.cells, total)

    def __repr__(self) -> str:
        """One line: the total, blocks and cells."""
        return (
            f"<BlockCounts {self.total:,} in {self.blocks.size:,} blocks, {self.cell.size:,} non-empty cells of "
            f"{self.histogram.cells:,} a block>"
        )

    @cached_property
    def total(self) -> int:
        """Everybody."""
        return int(self.count.sum())

    def dense(self, code: str) -> NDArray[np.int64]:
        """Histogram of one block, shape (cells,); all 0 for a block that is not there.

        Parameters
        ----------
        code
            Geocode of a block.
        """
        out = np.zeros(self.histogram.cells, np.int64)
        place = int(np.searchsorted(self.blocks, code))
        if place < self.blocks.size and self.blocks[place] == code:
            mine = slice(*np.searchsorted(self.block, (place, place + 1)).tolist())
            out[self.cell[mine]] = self.count[mine]
        return out

    def leaves_of(self, spine: Spine) -> NDArray[np.int64]:
        """Return the unit of the spine of every block of ``blocks``, shape (b,).

        A block is found by the code that the spine has for it, by the 16 characters that such a code ends in, or by
        its 15-digit GEOID.

        Raises
        ------
        ReleaseError
            For a block that the spine lacks.
        """
        leaves = spine.leaves
        codes = spine.geocodes[leaves]
        width = len(self.blocks[0]) if self.blocks.size else 0
        if codes.size and width and len(codes[0]) != width:
            tails = [c[-16:] for c in codes.tolist()]
            codes = np.array([t[:11] + t[12:] for t in tails] if width == 15 else tails)
        order = np.argsort(codes)
        place = np.searchsorted(codes[order], self.blocks).clip(0, max(codes.size - 1, 0))
        found = leaves[order[place]] if codes.size else np.zeros(self.blocks.size, np.int64)
        strange = (
            np.flatnonzero(codes[order][place] != self.blocks) if codes.size else np.arange(self.blocks.size)
        )
        if strange.size:
            odd = str(self.blocks[strange[0]])
            msg = (
                f"block {odd!r} has people but is not in the spine ({strange.size:,} such; its codes look like "
                f"{spine.geocodes[-1]!s}): use the spine of the same blocks"
            )
            raise ReleaseError(msg, odd)
        return np.asarray(found, np.int64)


def synthetic_counts(
    blocks: Spine | Any,
    histogram: Histogram = PL94_PERSONS,
    *,
    seed: Any,
    mean: float = 43.0,
    empty: float = 0.35,
) -> BlockCounts:
    """Made-up people (or housing units) for blocks: synthetic, for simulation only.

    Block sizes are skewed, a share of the blocks is empty, and what a block's people are like varies between blocks. Of the
    redistricting histogram one inhabited block in a hundred has a group quarter; there are no minors in nursing homes.

    Parameters
    ----------
    blocks
        A spine (its leaves are the blocks), or codes of blocks as text.
    histogram
        Default: persons of the redistricting data.
    seed
        int or SeedSequence: the same blocks and seed give the same people, whatever the blocks' order.
    mean
        Mean number in a block that is not empty; for Rhode Island's 25,649 blocks 66 gives about its population.
    empty
        Share of blocks with nobody, in [0, 1).

    Returns
    -------
    BlockCounts
        Made-up people of every block; nobody in it exists.

    Raises
    ------
    ReleaseError
        For a mean that is not positive, or a share outside [0, 1).

    Examples
    --------
    >>> synthetic_counts(["440010301001000", "440010301001001"], seed=1, empty=0.0).blocks.tolist()
    ['440010301001000', '440010301001001']
    """
    if not (mean > 0 and 0 <= empty < 1):
        msg = f"mean must be positive and empty in [0, 1), got {mean} and {empty}"
        raise ReleaseError(msg, (mean, empty))
    codes = _codes(blocks)
    rng = stream(seed, "synthetic population")
    size = np.where(
        rng.random(codes.size) < empty, 0, rng.negative_binomial(1.2, 1.2 / (1.2 + mean), codes.size)
    )
    person = np.repeat(np.arange(codes.size), size)
    cell = _persons(person, codes.size, rng) if histogram is PL94_PERSONS else _cells(person, histogram, rng)
    return BlockCounts.of(codes[person], cell, np.ones(person.size, np.int64), histogram)


def _codes(blocks: Any) -> NDArray[np.str_]:
    """Sorted codes; of a spine of the 2020 system the 16 characters that its leaves end in."""
    if not isinstance(blocks, Spine):
        return np.unique(text_codes(blocks, "block"))
    codes = blocks.geocodes[blocks.leaves]
    wide = codes.size and len(codes[0]) > 16
    return np.unique(np.array([c[-16:] for c in codes.tolist()]) if wide else codes)


def _cells(person: NDArray[np.int64], histogram: Histogram, rng: np.random.Generator) -> NDArray[np.int64]:
    weights = (
        np.array([0.1, 0.9]) if histogram is PL94_UNITS else rng.dirichlet(np.full(histogram.cells, 0.3))
    )
    return rng.choice(histogram.cells, person.size, p=weights)


def _persons(person: NDArray[np.int64], blocks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Cells of the redistricting histogram: age, origin and race vary with the block; few group quarters."""
    race = 0.6 ** np.arange(63.0) * 1e-2
    race[:6] = (0.70, 0.06, 0.01, 0.04, 0.002, 0.10)
    common = rng.choice(63, person.size, p=race / race.sum())
    own = rng.choice(63, blocks, p=race / race.sum())  # a block's people are alike
    cenrace = np.where(rng.random(person.size) < 0.5, common, own[person])
    adult = rng.random(person.size) < rng.beta(16, 4, blocks)[person]
    hispanic = rng.random(person.size) < rng.beta(0.8, 4, blocks)[person]
    kind = np.where(rng.random(blocks) < 0.01, rng.integers(1, 8, blocks), 0)
    inside = rng.random(person.size) < 0.6
    hhgq = np.where(inside, kind[person], 0)
    adult = np.where(hhgq == _NURSING, True, np.where(hhgq == _JUVENILE, False, adult))
    index = ((hhgq * 2 + adult) * 2 + hispanic) * 63 + cenrace
    return np.asarray(index, np.int64)
