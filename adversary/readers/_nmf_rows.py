"""Rows of noisy measurement files as Arrow tables, and the noise in them. Internal: see :mod:`adversary.readers.nmf_write`.

Units are taken in blocks of a fixed number; every block of every query has a random stream of its own, so the noise
depends neither on how many rows are made at once nor on the order of states and queries.

Held to account by ``tests/readers/test_nmf_write.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.privacy.discrete_gaussian import sample
from adversary.readers._nmf_noise import published_variance
from adversary.release.simulate import stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from adversary.release.queries import QueryGroup

__all__ = ["UNITS_A_STREAM", "Entries", "answer_index", "constraint_table", "noisy_chunks", "query_table"]

UNITS_A_STREAM = 256  # part of the law of the seed: another number gives other values
_NUMBERS_AT_ONCE = 2_000_000


@dataclass(frozen=True, eq=False)
class Entries:
    """True counts of the units of one part of one level: unit (0 to n - 1, rising), cell, count."""

    n: int
    unit: NDArray[np.int64]
    cell: NDArray[np.int64]
    count: NDArray[np.int64]

    def answers(self, index: NDArray[np.int64], size: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return the true answers at units ``start`` to ``stop``, shape (stop - start, size)."""
        mine = slice(*np.searchsorted(self.unit, (start, stop)).tolist())
        flat = (self.unit[mine] - start) * size + index[self.cell[mine]]
        out = np.zeros((stop - start) * size, np.int64)
        np.add.at(out, flat, self.count[mine])
        return out.reshape(stop - start, size)


def answer_index(group: QueryGroup) -> NDArray[np.int64]:
    """Place of every cell of the histogram in the answers of a query group, shape (cells,)."""
    sizes = group.histogram.sizes
    places = np.unravel_index(np.arange(group.histogram.cells), sizes)
    asked = [
        np.zeros_like(p) if f is None else np.asarray(f)[p]
        for f, p in zip(group.factors, places, strict=True)
    ]
    return np.ravel_multi_index(tuple(asked), group.shape).astype(np.int64)


def noisy_chunks(
    entries: Entries,
    group: QueryGroup,
    sigma2: NDArray[np.float64],
    seed: tuple[np.random.SeedSequence, Sequence[str]],
) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Noisy answers of the units in order, some millions of numbers at a time.

    Parameters
    ----------
    entries, group
        True counts and the query.
    sigma2
        Noise of every unit, shape (n,), finite.
    seed
        Base and the names of the stream: level, state part, query.
    """
    index, size = answer_index(group), group.size
    base, names = seed
    step = max(1, _NUMBERS_AT_ONCE // (size * UNITS_A_STREAM)) * UNITS_A_STREAM
    for start in range(0, entries.n, step):
        stop = min(start + step, entries.n)
        values = entries.answers(index, size, start, stop)
        for first in range(start, stop, UNITS_A_STREAM):
            rng = stream(base, *names, str(first // UNITS_A_STREAM))
            here = slice(first, min(first + UNITS_A_STREAM, stop))
            noise = values[here.start - start : here.stop - start]
            for s in np.unique(sigma2[here]).tolist():
                mine = sigma2[here] == s
                noise[mine] += sample(s, (int(mine.sum()), size), rng)
        yield slice(start, stop), values


def _lists(values: NDArray[Any], kind: Any) -> Any:
    import pyarrow as pa

    n, size = values.shape
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * np.int32(size), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel(), kind))


def _common(
    geocode: NDArray[np.str_], name: str, axes: dict[str, str], shape: Sequence[int], values: Any
) -> dict[str, Any]:
    import pyarrow as pa

    n = geocode.size
    shapes = np.tile(np.array(shape, np.int32), (n, 1))
    return {
        "geocode": pa.array(geocode.tolist(), pa.string()),
        "query_name": pa.repeat(pa.scalar(name), n),
        **{axis: pa.repeat(pa.scalar(word), n) for axis, word in axes.items()},
        "query_shape": _lists(shapes, pa.int32()),
        "value": values,
    }


def query_table(
    geocode: NDArray[np.str_],
    group: QueryGroup,
    values: NDArray[np.int64],
    sigma2: NDArray[np.float64],
    wide: bool,
) -> Any:
    """Arrow table of DPQuery rows."""
    import pyarrow as pa

    lists = _lists(values, pa.int64() if wide else pa.int32())
    columns = _common(geocode, f"{group.name}_dpq", _axis_words(group), group.shape, lists)
    columns["variance"] = pa.array(published_variance(sigma2).astype(np.float32))
    return pa.table(columns)


def _axis_words(group: QueryGroup) -> dict[str, str]:
    """Return what the axis columns say: ``*`` summed out, ``detailed``, or the name of a recode."""
    words = {}
    asked = set(group.name.split(" * "))
    for k, axis in enumerate(group.histogram.axes):
        if group.factors[k] is None:
            words[axis] = "*"
        elif group.keeps(k):
            words[axis] = "detailed"
        else:
            recodes = (r for r, (of, _) in group.histogram.recodes.items() if of == axis and r in asked)
            words[axis] = next(recodes, "recoded")
    return words


def constraint_table(
    geocode: NDArray[np.str_],
    name: str,
    sign: str,
    values: NDArray[np.int64],
    axes: dict[str, str],
) -> Any:
    """Arrow table of Constraint rows; the first axis of several answers is the one they run over."""
    import pyarrow as pa

    shape = [values.shape[1], *[1] * (len(axes) - 1)]
    columns = _common(geocode, f"{name}_con", axes, shape, _lists(values, pa.int64()))
    columns["sign"] = pa.repeat(pa.scalar(sign), geocode.size)
    return pa.table(columns)
