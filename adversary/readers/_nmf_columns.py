"""Columns of one noisy measurement file as arrays: text stays text, integers of any width become int64. Internal.

Rows are read in batches of a few million numbers, row group by row group; row groups without the asked query are
not decoded. A row whose variance is infinite carries no information and is set aside; a value that is missing
although its variance is finite, or that is no whole number, is refused with file and row (counted from 0).

What this module is not: the folders (:mod:`adversary.readers._nmf_layout`) or the law of the noise
(:mod:`adversary.readers._nmf_noise`).

Held to account by ``tests/readers/test_nmf.py`` (user reports P5, P15, P16, P17).
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from adversary.readers._nmf_layout import Part

__all__ = [
    "Rows",
    "check_codes",
    "column_types",
    "geocodes_of",
    "noise_census",
    "read_rows",
    "require_pyarrow",
    "spellings",
    "words_in",
]

BATCH_NUMBERS = 4_000_000
_LARGEST_FLOAT = 2.0**53


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of one query: only those that carry information, and the codes of the others."""

    geocode: NDArray[np.str_]
    values: NDArray[np.int64]  # (n, size)
    variance: NDArray[np.float64]  # (n,), finite
    shape: tuple[int, ...] | None
    sign: NDArray[np.str_] | None
    dropped: NDArray[np.str_]


def require_pyarrow() -> None:
    """Refuse where pyarrow is missing, with the way out."""
    if find_spec("pyarrow") is None:
        msg = "noisy measurement files are Parquet, which needs pyarrow: pip install 'dp-adversary[readers]'"
        raise FileFormatError(msg, "pyarrow")


def spellings(name: str, suffix: str) -> tuple[str, ...]:
    """Ways in which a file may write a name: with its suffix, or without.

    Examples
    --------
    >>> spellings("hispanic*cenrace", "_dpq")
    ('hispanic * cenrace_dpq', 'hispanic * cenrace')
    """
    plain = " * ".join(word.strip() for word in name.strip().removesuffix(suffix).split("*"))
    return plain + suffix, plain


@contextlib.contextmanager
def _open(part: Part, needed: Sequence[str] = ()) -> Iterator[Any]:
    """Yield the open file; whatever Arrow finds wrong in it, at the start or later, is said in one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        there = pq.read_schema(part.path).names
        missing = [c for c in needed if c not in there]
        if missing:
            msg = f"{part.name}: no column {missing[0]!r}, it has {', '.join(there)}: this is no measurement file"
            raise FileFormatError(msg, missing[0])
        with pq.ParquetFile(part.path, read_dictionary=[c for c in there if c == "query_name"]) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        msg = f"{part.name} is no Parquet file, or was cut short or damaged: {why}"
        raise FileFormatError(msg, str(part.path)) from error


def column_types(part: Part) -> dict[str, Any]:
    """Column -> Arrow type, in the order of the file."""
    with _open(part) as file:
        return {field.name: field.type for field in file.schema_arrow}


def _text(column: Any, name: str, part: Part) -> NDArray[np.str_]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        first = column[0].as_py() if len(column) else None
        msg = (
            f"{part.name}: {name} is {kind}, not text, {first!r} for one: leading zeros are lost; take the Bureau's "
            f"file, or write the column again as text, filled with zeros to the level's width"
        )
        raise FileFormatError(msg, first)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        msg = (
            f"{part.name}: {name} is missing in row {row} of a batch: every row names its unit and its query"
        )
        raise FileFormatError(msg, row)
    if not len(column):
        return np.zeros(0, np.str_)
    plain = pa.concat_arrays([column.cast(pa.string())])
    width = pc.min_max(pc.binary_length(plain)).as_py()
    if width["min"] == width["max"] > 0:  # one width: the characters lie side by side
        offset = int(np.frombuffer(plain.buffers()[1], np.int32, 1, plain.offset * 4)[0])
        raw = np.frombuffer(plain.buffers()[2], f"S{width['max']}", len(plain), offset)
        if all(byte < 128 for byte in raw[0]):
            return raw.astype(f"<U{width['max']}")
    return np.array(plain.to_pylist(), dtype=np.str_)


def words_in(part: Part, column: str = "query_name") -> list[str]:
    """Return the distinct entries of a text column, sorted."""
    import pyarrow.compute as pc

    found: set[str] = set()
    with _open(part, [column]) as file:
        for batch in file.iter_batches(batch_size=1 << 20, columns=[column]):
            found.update(pc.unique(batch.column(0)).to_pylist())
    return sorted(str(word) for word in found)


def geocodes_of(part: Part) -> NDArray[np.str_]:
    """Return the distinct geocodes of a file, sorted; all of one width, and of the folder's state."""
    import pyarrow.compute as pc

    found: list[NDArray[np.str_]] = []
    with _open(part, ["geocode"]) as file:
        for batch in file.iter_batches(batch_size=1 << 20, columns=["geocode"]):
            column = batch.column(0)
            if column.type in _text_types():
                column = pc.unique(column)
            found.append(_text(column, "geocode", part))
    codes = np.unique(np.concatenate(found)) if found else np.zeros(0, np.str_)
    check_codes(codes, part)
    return codes


def _text_types() -> tuple[Any, ...]:
    import pyarrow as pa

    return pa.string(), pa.large_string()


def check_codes(codes: NDArray[np.str_], part: Part) -> None:
    """Refuse codes of several widths, and codes of another state than their folder's."""
    if not codes.size:
        return
    lengths = np.char.str_len(codes)
    if np.ptp(lengths):
        short = str(codes[int(lengths.argmin())])
        msg = (
            f"{part.name}: geocode {short!r} has {len(short)} characters where others have {int(lengths.max())}: "
            "leading zeros are lost; take the Bureau's file, or fill the codes to the level's width"
        )
        raise FileFormatError(msg, short)
    if part.state is None or lengths[0] < 2:
        return
    # a code of production begins with the three digits of its folder; a conventional one with the state's two
    head = codes.astype("<U3")
    wrong = np.flatnonzero((head != part.state) & (codes.astype("<U2") != part.state[1:]))
    if part.state[0] == "1":
        wrong = np.flatnonzero(head != part.state)
    if wrong.size:
        odd = str(codes[wrong[0]])
        msg = f"{part.name}: geocode {odd!r} lies in the folder State={part.state}: the files were mixed up"
        raise FileFormatError(msg, odd)


def _may_hold(group: Any, wanted: Sequence[str]) -> bool:
    for i in range(group.num_columns):
        column = group.column(i)
        if column.path_in_schema == "query_name":
            stats = column.statistics
            if stats is not None and stats.has_min_max and isinstance(stats.min, str):
                return any(stats.min <= name <= stats.max for name in wanted)
    return True


def _rows_a_batch(group: Any) -> int:
    most = max((group.column(i).num_values for i in range(group.num_columns)), default=1)
    return max(256, int(BATCH_NUMBERS * group.num_rows / max(most, 1)))


def read_rows(
    part: Part, wanted: Sequence[str], rows: int | None = None, *, noisy: bool = True
) -> Iterator[Rows]:
    """Rows of the query (or constraint) of one of the wanted names, a batch at a time.

    Parameters
    ----------
    part
        The file.
    wanted
        Spellings of the name.
    rows
        Most rows of the file to hold at once; default: as many as hold some four million numbers.
    noisy
        False for constraints, whose variance, if the file has one, means nothing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = list(column_types(part))
    needed = ("geocode", "query_name", "value", *(("variance",) if noisy else ()))
    missing = [c for c in needed if c not in columns]
    if missing:
        msg = (
            f"{part.name}: no column {missing[0]!r}, it has {', '.join(columns)}: this is no measurement file"
        )
        raise FileFormatError(msg, missing[0])
    used = [c for c in (*needed, "query_shape", "sign") if c in columns and c != "query_name"]
    names = pa.array(list(wanted))
    base = 0
    with _open(part, needed) as file:
        there = file.schema_arrow.names
        used = [c for c in (*needed, "query_shape", "sign") if c in there and c != "query_name"]
        for g in range(file.num_row_groups):
            group = file.metadata.row_group(g)
            start, base = base, base + group.num_rows
            if not _may_hold(group, wanted):
                continue
            query = file.read_row_group(g, columns=["query_name"]).column(0).cast(pa.string())
            mask = pc.is_in(query, value_set=names).to_numpy()
            if not mask.any():
                continue
            for batch in file.iter_batches(rows or _rows_a_batch(group), row_groups=[g], columns=used):
                here = mask[: batch.num_rows]
                mask = mask[batch.num_rows :]
                if here.any():
                    number = start + np.flatnonzero(here)
                    yield _decoded(batch.filter(pa.array(here)), number, part)
                start += batch.num_rows


def _decoded(batch: Any, number: NDArray[np.int64], part: Part) -> Rows:
    """Turn a batch of one query into arrays, or refuse it."""
    names = batch.schema.names
    geocode = _text(batch.column("geocode"), "geocode", part)
    lengths, flat, gone = _flat(batch.column("value"), part)
    missing = np.bincount(np.repeat(np.arange(lengths.size), lengths), weights=gone, minlength=lengths.size)
    if "variance" in names:
        keep, variance = _informative(batch.column("variance"), missing, lengths, (number, part))
    else:
        keep, variance = missing == 0, np.full(lengths.size, 0.0)
    bad = np.flatnonzero(keep & ((missing > 0) | (lengths == 0)))
    if bad.size or not ("variance" in names or keep.all()):
        row = int(number[bad[0]] if bad.size else number[~keep][0])
        said = f", but its variance is finite ({float(variance[bad[0]]):.6g})" if bad.size else ""
        msg = f"{part.name} row {row}: a value is missing{said}: the file is damaged"
        raise FileFormatError(msg, row)
    if not keep.all():
        flat = flat[np.repeat(keep, lengths)]
    size = np.unique(lengths[keep])
    if size.size > 1:
        row = int(number[keep][int((lengths[keep] != lengths[keep][0]).argmax())])
        msg = f"{part.name} row {row}: {int(size[0])} and {int(size[1])} values in one query: the file is damaged"
        raise FileFormatError(msg, row)
    width = int(size[0]) if size.size else 0
    values = _whole(flat, width, number[keep], part).reshape(int(keep.sum()), width)
    shape = _shape(batch.column("query_shape"), width, (number, part)) if "query_shape" in names else None
    sign = _text(batch.column("sign"), "sign", part)[keep] if "sign" in names else None
    return Rows(geocode[keep], values, variance[keep], shape, sign, geocode[~keep])


def _flat(column: Any, part: Part) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.bool_]]:
    """Lengths of the rows, all values in one array, and which of them are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if lists:
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        flat = column.flatten()
    else:  # one number a row
        lengths, flat = np.ones(len(column), np.int64), column
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)):
        msg = f"{part.name}: value is {kind}, but noisy counts are whole numbers: take the Bureau's file"
        raise FileFormatError(msg, str(kind))
    gone = np.zeros(len(flat), bool)
    if flat.null_count:
        gone = flat.is_null().to_numpy(zero_copy_only=False)
        flat = pc.fill_null(flat, 0)
    numbers = flat.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        gone = gone | np.isnan(numbers)
        numbers = np.where(gone, 0.0, numbers)
    return lengths.astype(np.int64), numbers, gone


def _informative(
    column: Any, missing: NDArray[Any], lengths: NDArray[np.int64], where: tuple[NDArray[np.int64], Part]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Rows with a finite variance, and the variances; a negative or missing one is refused."""
    import pyarrow as pa

    number, part = where
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        msg = f"{part.name}: variance is {column.type}, not a number: take the Bureau's file"
        raise FileFormatError(msg, str(column.type))
    variance = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(float)
    empty = missing == lengths
    bad = np.flatnonzero((variance < 0) | (np.isnan(variance) & ~empty))
    if bad.size:
        row, odd = int(number[bad[0]]), float(variance[bad[0]])
        said = "is missing, but there is a value" if math.isnan(odd) else f"is {odd:g}, but must be >= 0"
        msg = f"{part.name} row {row}: the variance {said}: the file is damaged"
        raise FileFormatError(msg, row)
    return np.isfinite(variance), variance


def _whole(flat: NDArray[Any], width: int, number: NDArray[np.int64], part: Part) -> NDArray[np.int64]:
    """Values as int64; a fraction, or a number that has lost its last digits, is refused."""
    if flat.dtype.kind == "f":
        bad = np.flatnonzero((flat != np.rint(flat)) | (np.abs(flat) >= _LARGEST_FLOAT))
    elif flat.dtype == np.uint64:
        bad = np.flatnonzero(flat > np.uint64(2**63 - 1))
    else:
        bad = np.zeros(0, np.int64)
    if bad.size:
        row, odd = int(number[bad[0] // width]), flat[bad[0]].item()
        msg = f"{part.name} row {row}: value {odd!r} is no whole number below 2^53: noisy counts are integers"
        raise FileFormatError(msg, odd)
    return flat.astype(np.int64)


def _shape(column: Any, width: int, where: tuple[NDArray[np.int64], Part]) -> tuple[int, ...] | None:
    """Return the query shape that all rows of a batch agree on, checked against the number of values."""
    import pyarrow as pa

    number, part = where
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        msg = f"{part.name}: query_shape is {column.type}, not a list: take the Bureau's file"
        raise FileFormatError(msg, str(column.type))
    if column.null_count or column.flatten().null_count:
        row = (
            int(number[column.is_null().to_numpy(zero_copy_only=False)][0])
            if column.null_count
            else int(number[0])
        )
        msg = f"{part.name} row {row}: query_shape, or a part of it, is missing: the file is damaged"
        raise FileFormatError(msg, row)
    first = column[0].as_py()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    same = flat.size == len(column) * len(first) > 0 and min(first) >= 1
    rows = flat.reshape(len(column), -1) if same else None
    if rows is None or (rows != rows[0]).any():
        odd = 0 if rows is None else int((rows != rows[0]).any(axis=1).argmax())
        msg = f"{part.name} row {int(number[odd])}: query_shape is empty or differs within one query: the file is damaged"
        raise FileFormatError(msg, int(number[odd]))
    if width and math.prod(first) != width:
        msg = (
            f"{part.name} row {int(number[0])}: query_shape {first} asks for {math.prod(first)} values, there are "
            f"{width}: the file is damaged"
        )
        raise FileFormatError(msg, first)
    return tuple(int(k) for k in first)


def noise_census(part: Part) -> tuple[dict[str, dict[float, int]], dict[str, int]]:
    """Name -> (variance -> rows), and name -> number of answers; the values are not decoded."""
    counts: dict[str, dict[float, int]] = {}
    sizes: dict[str, int] = {}
    with _open(part, ["query_name", "variance"]) as file:
        columns = [c for c in ("query_name", "variance", "query_shape") if c in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=1 << 18, columns=columns):
            name = batch.column(0).dictionary_encode()
            code = name.indices.to_numpy(zero_copy_only=False)
            words = name.dictionary.to_pylist()
            variance = batch.column(1).to_numpy(zero_copy_only=False).astype(float)
            for k, word in enumerate(words):
                mine = code == k
                if not mine.any():
                    continue
                here = counts.setdefault(word, {})
                values, times = np.unique(
                    np.where(np.isnan(variance[mine]), np.inf, variance[mine]), return_counts=True
                )
                for value, n in zip(values.tolist(), times.tolist(), strict=True):
                    here[value] = here.get(value, 0) + n
                if "query_shape" in columns and word not in sizes:
                    first = batch.column(2)[int(mine.argmax())].as_py()
                    sizes[word] = math.prod(first or [])
    return counts, sizes
