"""Lines of fixed-width microdata, by the million: fields as integers straight from the bytes. Internal.

Held to account by ``tests/readers/test_ipums.py``.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import FileFormatError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from adversary.readers._ipums_ddi import Field

__all__ = ["Lines", "blocks_of_lines"]

_BYTES_AT_ONCE = 1 << 24
_LONGEST = 1 << 20  # bytes of a line


@dataclass(frozen=True, eq=False)
class Lines:
    """Whole lines of a file.

    Attributes
    ----------
    source
        Name of the file.
    data
        Bytes.
    start, stop
        Where each line begins, and where it ends (line feed and carriage return not included), int64.
    number
        Number of the first line in the file, from 1.
    """

    source: str
    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    number: int

    def character(self, field: Field) -> NDArray[np.uint8]:
        """Return the one character of a field, of every line."""
        self._long_enough(field, np.arange(self.start.size))
        return self.data[self.start + field.start]

    def whole(self, field: Field, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a field of some lines as whole numbers; blanks and letters are refused with the line."""
        self._long_enough(field, rows)
        places = self.start[rows, None] + np.arange(field.start, field.stop)
        digits = self.data[places].astype(np.int64) - ord("0")
        wrong = ((digits < 0) | (digits > 9)).any(axis=1)
        if wrong.any():
            k = int(wrong.argmax())
            text = bytes(self.data[places[k]]).decode("latin-1")
            self.refuse(
                int(rows[k]), f"{field.name} is {shown(text)}, but {field.width} digits are expected", text
            )
        return np.asarray(digits @ 10 ** np.arange(field.width - 1, -1, -1), np.int64)

    def _long_enough(self, field: Field, rows: NDArray[np.int64]) -> None:
        short = self.stop[rows] - self.start[rows] < field.stop
        if short.any():
            row = int(rows[int(short.argmax())])
            length = int(self.stop[row] - self.start[row])
            self.refuse(
                row,
                f"{length} characters, but {field.name} ends at {field.stop}: the file may be cut",
                length,
            )

    def refuse(self, row: int, what: str, value: Any) -> None:
        """Raise an error that names the file and the line."""
        msg = f"{self.source} line {self.number + row}: {what}"
        raise FileFormatError(msg, value)


def blocks_of_lines(path: Path) -> Iterator[Lines]:
    """Lines of a file, plain or ``.gz``, some megabytes at a time."""
    number, rest = 1, b""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            while piece := handle.read(_BYTES_AT_ONCE):
                cut = piece.rfind(b"\n") + 1
                if not cut:
                    rest += piece
                    if len(rest) > _LONGEST + _BYTES_AT_ONCE:
                        break
                    continue
                lines = _lines(path.name, rest + piece[:cut], number)
                rest = piece[cut:]
                number += lines.start.size
                yield lines
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{path.name} cannot be read ({error}): it is no file of lines, or was cut short"
        raise FileFormatError(msg, str(path)) from error
    if len(rest) > _LONGEST:
        msg = f"{path.name} line {number}: more than {_LONGEST:,} characters: this is no file of lines"
        raise FileFormatError(msg, number)
    if rest:
        yield _lines(path.name, rest + b"\n", number)


def _lines(source: str, text: bytes, number: int) -> Lines:
    data = np.frombuffer(text, np.uint8)
    stop = np.flatnonzero(data == ord("\n")).astype(np.int64)
    start = np.r_[0, stop[:-1] + 1].astype(np.int64)
    returned = (stop > start) & (data[stop - 1] == ord("\r"))
    return Lines(source, data, start, stop - returned, number)
