"""The seal of a saved answer: a hash of its content, so that an edited file is noticed before anybody reads a number off it.

What it is: SHA-256 over the attributes, dimensions and values of a tree or a dataset in one canonical order, with every
number as eight bytes and every text as UTF-8. It says the same of the tree in memory and of the file it was read from, whatever
types netCDF chose on the way. What it is not: a signature. Whoever can run this package can seal anything; against that, keep
the hash somewhere else (the report prints it).

Held to account by ``tests/test_sealing.py`` and ``tests/test_results.py``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["SEAL", "content_hash", "sealed", "unsealed"]

SEAL = "content_sha256"
"""Name of the attribute that holds the hash in a file; no tree in memory has it."""


def content_hash(data: Any) -> str:
    """Return the SHA-256 of everything in a tree or dataset but its seal.

    Parameters
    ----------
    data
        An ``xarray.DataTree`` or ``xarray.Dataset``.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> import xarray as xr
    >>> a = xr.Dataset({"x": ("k", np.array([1, 2], dtype=np.int8))}, attrs={"n": 3})
    >>> b = xr.Dataset({"x": ("k", np.array([1, 2], dtype=np.int64))}, attrs={"n": np.int64(3)})
    >>> content_hash(a) == content_hash(b)
    True
    """
    digest = hashlib.sha256()
    for part in _parts(data):
        # the length first, so that no two contents can be cut into the same bytes
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(data: Any) -> Iterator[bytes]:
    for path, node in sorted(_nodes(data)):
        yield b"group"
        yield path.encode()
        yield from _attributes({k: v for k, v in node.attrs.items() if k != SEAL})
        for name in sorted(map(str, node.variables)):
            variable = node.variables[name]
            yield b"variable"
            yield name.encode()
            yield repr([(str(d), int(n)) for d, n in variable.sizes.items()]).encode()
            yield from _values(variable.values)
            yield from _attributes(variable.attrs)


def _nodes(data: Any) -> list[tuple[str, Any]]:
    if not hasattr(data, "subtree"):
        return [("/", data)]
    return [(str(n.path), n.to_dataset(inherit=False)) for n in data.subtree]


def _attributes(attrs: Mapping[Any, Any]) -> Iterator[bytes]:
    for name in sorted(map(str, attrs)):
        yield b"attribute"
        yield name.encode()
        yield from _values(np.asarray(attrs[name]))


def _values(array: Any) -> Iterator[bytes]:
    """Yield the kind and the bytes of an array: its shape is no part of it, because netCDF keeps none for attributes."""
    array = np.asarray(array)
    if array.dtype.kind in "iub":
        yield b"whole"
        yield np.ascontiguousarray(array, dtype="<i8").tobytes()
    elif array.dtype.kind == "f":
        yield b"real"
        numbers = np.array(array, dtype="<f8")
        numbers[np.isnan(numbers)] = np.nan  # one of the many nan
        yield numbers.tobytes()
    else:
        yield b"text"
        for item in array.ravel().tolist():
            yield str(item).encode()


def sealed(data: Any) -> Any:
    """Return a copy that carries the hash of its content, to be written to a file.

    Parameters
    ----------
    data
        A tree or dataset.
    """
    copy = data.copy()
    copy.attrs = {**data.attrs, SEAL: content_hash(data)}
    return copy


def unsealed(data: Any, path: str | Path) -> bool:
    """Take the seal off what was read from a file, after comparing it with the content.

    Parameters
    ----------
    data
        What was read; its seal is removed.
    path
        Where from, for the message.

    Returns
    -------
    bool
        Whether there was a seal.

    Raises
    ------
    FileFormatError
        Where the content is not what was sealed.
    """
    said = data.attrs.pop(SEAL, None)
    if said is None:
        return False
    found = content_hash(data)
    if said != found:
        msg = (
            f"{path}: this file was changed after it was saved (sealed as {str(said)[:12]}..., holds {found[:12]}...): "
            "run it again and leave the file alone"
        )
        raise FileFormatError(msg, path)
    return True
