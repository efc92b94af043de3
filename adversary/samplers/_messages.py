"""Many short log-concave sequences at once: the arithmetic under :mod:`adversary.samplers.tree`.

A message is a run of non-negative weights on consecutive counts, scaled to a largest value of one. They are
kept end to end in one flat array and gathered into padded batches of similar width, so that NumPy convolves
hundreds of pairs in one call. All sums are of positive terms (never a Fourier transform): small probabilities
keep their digits.

Not public. Held to account by tests/samplers/test_tree.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Pool", "chunks"]

_ROWS = 192  # rows of a batch: its arrays stay in the second-level cache
_FEW = (
    1024  # so many messages are cheap: near the root, where conflicts gather, they are cut three times deeper
)
_DEEPEST = 640.0  # -log of the deepest cut; e^-640 is still a normal double
_WIDE = 40  # from this width of the narrower message on, pair by pair beats the batch: its rows no longer fit the cache


def chunks(*widths: Ints) -> Iterator[Ints]:
    """Yield indices in batches of similar widths."""
    order = np.lexsort(widths)
    for start in range(0, order.size, _ROWS):
        yield order[start : start + _ROWS]


class Pool:
    """All messages of a tree: weights from below (``value``) and from ``outside`` on the same windows.

    Parameters
    ----------
    capacity
        Largest number of messages.
    depth
        Weights below ``exp(-depth)`` of a message's largest are dropped at its ends, one depth a message.
    """

    def __init__(self, capacity: int, depth: Floats) -> None:
        self.depth = np.minimum(depth, _DEEPEST)
        self.count = 0
        self.used = 0
        self.value = np.empty(1 << 16)
        self.outside = np.empty(0)
        self.offset = np.zeros(capacity, dtype=np.int64)
        self.low = np.zeros(capacity, dtype=np.int64)
        self.width = np.zeros(capacity, dtype=np.int64)
        self.cut_low = np.zeros(capacity, dtype=bool)
        self.cut_high = np.zeros(capacity, dtype=bool)

    def reserve(self, size: int) -> Ints:
        """Names for ``size`` messages to come."""
        names = np.arange(self.count, self.count + size)
        self.count += size
        return names

    def put(self, names: Ints, batch: Floats, low: Ints, width: Ints, siblings: int) -> None:
        """Store a padded batch (zero beyond ``width``) out of ``siblings`` messages, light ends cut off."""
        top = batch.max(axis=1, keepdims=True)
        depth = self.depth[names] * (3.0 if siblings <= _FEW else 1.0)
        heavy = batch > np.exp(-np.minimum(depth, _DEEPEST))[:, None] * top
        first = heavy.argmax(axis=1)
        last = batch.shape[1] - 1 - heavy[:, ::-1].argmax(axis=1)
        batch *= 1.0 / top
        self.put_exactly(names, batch, low, first, last)
        self.cut_low[names] = first > 0
        self.cut_high[names] = last < width - 1

    def put_exactly(self, names: Ints, batch: Floats, low: Ints, first: Ints, last: Ints) -> None:
        """Store the columns ``first..last`` of every row."""
        size = last - first + 1
        column = np.arange(batch.shape[1])
        flat = batch[(column >= first[:, None]) & (column <= last[:, None])]
        while self.used + flat.size > self.value.size:
            self.value = np.concatenate([self.value, np.empty(self.value.size)])
        self.value[self.used : self.used + flat.size] = flat
        self.offset[names] = self.used + np.concatenate([[0], np.cumsum(size)[:-1]])
        self.low[names], self.width[names] = low + first, size
        self.used += flat.size

    def begin_down(self) -> None:
        """Make room for the weights from outside."""
        self.value = self.value[: self.used]
        self.outside = np.zeros(self.used)

    def padded(self, store: Floats, names: Ints) -> Floats:
        """Messages as rows, zero beyond their widths."""
        width = self.width[names]
        column = np.arange(int(width.max()))
        inside = column < width[:, None]
        return np.where(inside, store[np.where(inside, self.offset[names][:, None] + column, 0)], 0.0)

    def placed(self, store: Floats, names: Ints, low: Ints, size: int) -> Floats:
        """Messages as rows on windows of ``size`` counts from ``low``, zero elsewhere."""
        column = np.arange(size) + (low - self.low[names])[:, None]
        inside = (column >= 0) & (column < self.width[names][:, None])
        return np.where(inside, store[np.where(inside, self.offset[names][:, None] + column, 0)], 0.0)

    def write_outside(self, names: Ints, batch: Floats) -> None:
        """Store weights from outside on the windows of ``names``, scaled."""
        width = self.width[names]
        column = np.arange(batch.shape[1])
        inside = column < width[:, None]
        batch = np.where(inside, batch, 0.0)
        top = batch.max(axis=1, keepdims=True)
        batch = batch / np.where(top > 0, top, 1.0)
        self.outside[(self.offset[names][:, None] + column)[inside]] = batch[inside]

    def convolved(self, left: Ints, right: Ints) -> Ints:
        """Messages of sums of two counts each."""
        names = self.reserve(left.size)
        for part in chunks(self.width[left], self.width[right]):
            a, b = self.padded(self.value, left[part]), self.padded(self.value, right[part])
            out = _sums(a, b)
            low = self.low[left[part]] + self.low[right[part]]
            self.put(names[part], out, low, self.width[left[part]] + self.width[right[part]] - 1, left.size)
        return names

    def divide(self, left: Ints, right: Ints, whole: Ints) -> None:
        """Weights from outside for the parts of sums: the sum's, correlated with the other's."""
        for part in chunks(self.width[left], self.width[right]):
            one, two = left[part], right[part]
            a, b = self.padded(self.value, one), self.padded(self.value, two)
            size = a.shape[1] + b.shape[1] - 1
            above = self.placed(self.outside, whole[part], self.low[one] + self.low[two], size)
            self.write_outside(one, _differences(above, b))
            self.write_outside(two, _differences(above, a))

    def tail_bounds(self) -> Floats:
        """Bound the posterior probability beyond the cut ends of every message (log-concave ratio bound)."""
        bound = np.zeros(self.count)
        open_ends = np.flatnonzero(self.cut_low[: self.count] | self.cut_high[: self.count])
        for part in chunks(self.width[open_ends]):
            names = open_ends[part]
            belief = self.padded(self.value, names) * self.padded(self.outside, names)
            total = belief.sum(axis=1)
            # scaled first: the square of a small weight underflows and would pass for no tail at all
            with np.errstate(divide="ignore", invalid="ignore"):
                belief /= total[:, None]
            width = self.width[names]
            row = np.arange(names.size)
            for cut, edge, inner in (
                (self.cut_low[names], np.zeros_like(width), np.minimum(1, width - 1)),
                (self.cut_high[names], width - 1, np.maximum(width - 2, 0)),
            ):
                last, before = belief[row, edge], belief[row, inner]
                with np.errstate(divide="ignore", invalid="ignore"):
                    tail = np.where(
                        last < before, last * last / (before - last), np.where(last > 0, np.inf, 0.0)
                    )
                    share = np.where(total > 0, tail, np.inf)
                bound[names] += np.where(cut, share, 0.0)
        return bound


def _sums(a: Floats, b: Floats) -> Floats:
    """Convolve row by row; sums of positive terms on either road."""
    if a.shape[1] > b.shape[1]:
        a, b = b, a
    out = np.zeros((a.shape[0], a.shape[1] + b.shape[1] - 1))
    if a.shape[1] >= _WIDE:
        for k in range(a.shape[0]):
            out[k] = np.convolve(b[k], a[k])
        return out
    product = np.empty_like(b)
    for k in range(a.shape[1]):
        np.multiply(a[:, k : k + 1], b, out=product)
        out[:, k : k + b.shape[1]] += product
    return out


def _differences(above: Floats, other: Floats) -> Floats:
    """Weights of one part of a sum from those of the sum and of the other part, row by row: a correlation."""
    size = above.shape[1] - other.shape[1] + 1
    out = np.zeros((above.shape[0], size))
    if min(size, other.shape[1]) >= _WIDE:
        for k in range(above.shape[0]):
            out[k] = np.correlate(above[k], other[k], "valid")
        return out
    product = np.empty_like(out)
    for k in range(other.shape[1]):
        np.multiply(other[:, k : k + 1], above[:, k : k + size], out=product)
        out += product
    return out
