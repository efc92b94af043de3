"""Where many targets come from: files read piece by piece, or datasets handed over; each with a hash of its content.

What it is: one small class a kind of source. What it is not: a reader of the Census's own formats (see
:mod:`adversary.readers`). pyarrow and zarr are asked for only where a file needs them.

Held to account by ``tests/test_batches.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from adversary._files import check_hdf5, csv_rows
from adversary.errors import AdversaryError, FileFormatError, ScenarioError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Source", "digest_of", "file_digest", "needs", "open_source"]


@dataclass(frozen=True)
class Source:
    """Targets in pieces.

    Parameters
    ----------
    targets
        How many there are; None for an iterator.
    identity
        SHA-256 of the content; None for an iterator, whose pieces are hashed one by one.
    pieces
        Returns the datasets in order, each at most a chunk.
    """

    targets: int | None
    identity: str | None
    pieces: Callable[[], Iterator[xr.Dataset]]


def needs(package: str, what: str) -> None:
    """Refuse where an optional package is missing, with the way out.

    Parameters
    ----------
    package
        Name of the package, as it is imported.
    what
        What needs it, for the message.
    """
    if find_spec(package) is None:
        msg = f"{what} needs {package}, which is not installed: pip install {package}, or use netCDF (.nc)"
        raise ScenarioError(msg, package)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder with their names.

    Parameters
    ----------
    path
        A file, or a folder of files.
    """
    total = hashlib.sha256()
    if path.is_file():
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                total.update(block)
        return total.hexdigest()
    for one in sorted(p for p in path.rglob("*") if p.is_file()):
        total.update(one.relative_to(path).as_posix().encode())
        total.update(file_digest(one).encode())
    return total.hexdigest()


def digest_of(data: xr.Dataset) -> str:
    """SHA-256 of a dataset's names, types and bytes.

    Parameters
    ----------
    data
        A dataset.
    """
    total = hashlib.sha256()
    for name in sorted(map(str, data.variables)):
        values = np.ascontiguousarray(data[name].values)
        total.update(f"{name}:{data[name].dims}:{values.dtype}:{values.shape}".encode())
        total.update(repr(values.tolist()).encode() if values.dtype.kind == "O" else values.tobytes())
    total.update(repr(sorted((str(k), repr(v)) for k, v in data.attrs.items())).encode())
    return total.hexdigest()


def open_source(source: Any, chunk: int) -> Source:
    """Return a source cut into pieces of ``chunk`` targets.

    Parameters
    ----------
    source
        Path of a ``.parquet`` file (or a folder of such), ``.nc``, ``.zarr`` or ``.csv``; an xarray.Dataset or a mapping of
        arrays; or an iterator of datasets, each of which is a piece.
    chunk
        Targets a piece.

    Raises
    ------
    FileFormatError
        For a file of another kind, or one that is not there.
    ScenarioError
        Where a package is missing.
    """
    if isinstance(source, str | Path):
        return _open_file(Path(source), chunk)
    if isinstance(source, xr.Dataset) or hasattr(source, "keys"):
        from adversary.batches.many import _as_dataset

        data = source if isinstance(source, xr.Dataset) else _as_dataset(source)
        return _of_dataset(data, digest_of(data), chunk)
    if hasattr(source, "__iter__"):
        return Source(None, None, lambda: iter(source))
    msg = f"batch_to_folder takes a path, a dataset or an iterator of datasets, got {type(source).__name__}"
    raise ScenarioError(msg, source)


def _open_file(path: Path, chunk: int) -> Source:
    if not path.exists():
        msg = f"there is no {str(path)!r}: give a .parquet, .nc, .zarr or .csv of targets"
        raise FileFormatError(msg, path)
    kind = path.suffix.lower()
    with _named(path):
        if kind == ".nc":
            check_hdf5(path)
            return _of_dataset(xr.open_dataset(path, engine="h5netcdf"), file_digest(path), chunk, path)
        if kind == ".zarr":
            needs("zarr", "reading .zarr")
            data = xr.open_zarr(path, chunks=None, consolidated=False)
            return _of_dataset(data, file_digest(path), chunk, path)
        if kind == ".csv":
            return _of_csv(path, chunk)
        if kind == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
            return _of_parquet(path, chunk)
    msg = f"{path.name!r} is no table of targets that is read: give .parquet, .nc, .zarr or .csv"
    raise FileFormatError(msg, path)


@contextlib.contextmanager
def _named(path: Path | None) -> Iterator[None]:
    """Turn the errors of the libraries that read a file into one that names it."""
    try:
        yield
    except AdversaryError:
        raise
    except _their_errors() as error:
        if path is None:
            raise
        msg = f"{path.name}: damaged, or no {path.suffix} file ({type(error).__name__}: {str(error)[:200]}): write it again"
        raise FileFormatError(msg, path) from error


def _their_errors() -> tuple[type[Exception], ...]:
    """Return what libraries raise on damaged files; Arrow's own errors (names that are no UTF-8) are of no usual kind."""
    arrow = sys.modules.get("pyarrow")
    usual = (OSError, ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, RuntimeError)
    return usual if arrow is None else (*usual, arrow.lib.ArrowException)


def _of_dataset(data: xr.Dataset, identity: str, chunk: int, path: Path | None = None) -> Source:
    """Cut along the longest dim, so that a piece has about ``chunk`` targets."""
    if not data.sizes:
        return Source(1, identity, lambda: iter([data]))
    first = max(data.sizes, key=lambda d: data.sizes[d])
    shape = {d: n for v in data.data_vars.values() for d, n in v.sizes.items()}
    targets = int(np.prod(list(shape.values()), dtype=np.int64))
    rows = max(1, chunk // max(targets // max(data.sizes[first], 1), 1))

    def pieces() -> Iterator[xr.Dataset]:
        for start in range(0, data.sizes[first], rows):
            with _named(path):
                piece = data.isel({first: slice(start, start + rows)}).load()
            yield piece

    return Source(targets, identity, pieces)


def _of_parquet(path: Path, chunk: int) -> Source:
    needs("pyarrow", "reading .parquet")
    import pyarrow.dataset as ds

    table = ds.dataset(path, format="parquet")

    def pieces() -> Iterator[xr.Dataset]:
        import pyarrow as pa

        kept: list[Any] = []
        size = 0
        # one file after the other, in the order of their names: the order of rows is part of the answer
        for rest in _batches(table, chunk, path):
            at = 0
            while at < rest.num_rows:
                taken = rest.slice(at, chunk - size)
                kept.append(taken)
                size += taken.num_rows
                at += taken.num_rows
                if size == chunk:
                    yield _of_arrow(pa.Table.from_batches(kept), path)
                    kept, size = [], 0
        if kept:
            yield _of_arrow(pa.Table.from_batches(kept), path)

    return Source(table.count_rows(), file_digest(path), pieces)


def _batches(table: Any, chunk: int, path: Path) -> Iterator[Any]:
    batches = iter(table.to_batches(batch_size=chunk))
    while True:
        with _named(path):
            found = next(batches, None)
        if found is None:
            return
        yield found


def _of_arrow(table: Any, path: Path) -> xr.Dataset:
    with _named(path):  # names of columns may be no text
        columns = {}
        for name in table.column_names:
            column = table.column(name)
            if column.null_count:
                msg = f"{path.name}: column {name!r} has {column.null_count} empty entries: drop these targets, or fill them"
                raise FileFormatError(msg, name)
            columns[name] = ("target", column.to_numpy())
        return xr.Dataset(columns)


def _of_csv(path: Path, chunk: int) -> Source:
    with path.open("rb") as handle:
        rows = max(sum(1 for line in handle if line.strip()) - 1, 0)

    def pieces() -> Iterator[xr.Dataset]:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = (row for row in csv_rows(handle, path.name) if row)
            names = next(reader, [])
            if len(set(names)) < len(names):
                msg = f"{path.name}: a column is named twice in {', '.join(names)}: keep one"
                raise FileFormatError(msg, names)
            line = 2
            while part := list(islice(reader, chunk)):
                short = next((i for i, row in enumerate(part) if len(row) != len(names)), None)
                if short is not None:
                    msg = f"{path.name}, line {line + short}: {len(part[short])} fields for {len(names)} columns: mend it"
                    raise FileFormatError(msg, part[short])
                columns = zip(names, zip(*part, strict=True), strict=True)
                yield xr.Dataset({n: ("target", _numbers(c, n, path, line)) for n, c in columns})
                line += len(part)

    return Source(rows, file_digest(path), pieces)


def _numbers(text: Sequence[str], name: str, path: Path, line: int) -> Any:
    """Read a column as whole numbers, else as numbers; refuse with the line."""
    try:
        return np.array([int(t) for t in text], dtype=np.int64)
    except (OverflowError, ValueError):
        pass
    out = np.empty(len(text))
    for i, t in enumerate(text):
        try:
            out[i] = float(t)
        except ValueError:
            msg = f"{path.name}, line {line + i}, column {name!r}: {shown(t)} is no number: correct it, or carry the column"
            raise FileFormatError(msg, t) from None
    return out
