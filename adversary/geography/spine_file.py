"""A spine in a file: one line a geounit, exact shares as fractions, read back equal to the last digit.

The file is a table with commas (``.csv``, or ``.csv.gz``). Its first line is a remark, ``#adversary-spine``
and one JSON object: the levels, how many units, how many characters the codes of each level have, a check
sum of the rows, and what the spine was made of (``about``). Then a header and one row a unit, in the order of the spine:

* ``level`` - name of the level;
* ``geocode`` - text; the nation's is empty;
* ``parent`` - number of the parent's row, counted from 1 after the header; empty for a root;
* ``share`` - share of rho, a fraction such as ``1256/4099``; 0 where nothing was measured.

Other programs read it with every column as text and ``#`` for remarks. A file that lost rows, whose codes
went through a spreadsheet and lost their zeros, or of which any other text was changed, is refused.

What this module is not: a reader of anybody else's files (:mod:`adversary.readers`).

Held to account by ``tests/geography/test_spine_file.py``. Source: our own format; user reports P15 and P19.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import zlib
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from adversary._files import csv_rows, whole
from adversary.errors import FileFormatError
from adversary.geography._tree import common_denominator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine

__all__ = ["SavedSpine", "read_about"]

_MARK = "#adversary-spine "
_COLUMNS = ["level", "geocode", "parent", "share"]
_VERSION = 1


class SavedSpine:
    """What a spine can do with a file; :class:`adversary.geography.spine.Spine` has both methods."""

    def save(self: Any, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the spine to a file; see :mod:`adversary.geography.spine_file` for its form.

        Parameters
        ----------
        path
            Name ending in ``.csv`` or ``.csv.gz``.
        about
            What the spine was made of: plain text, numbers, lists and mappings, kept in the first line.

        Raises
        ------
        FileFormatError
            For a name with another ending.

        Examples
        --------
        >>> import tempfile
        >>> from adversary.geography.spine import Spine
        >>> table = {"tract": ["01", "01"], "block": ["011", "012"]}
        >>> spine = Spine.from_blocks(table, {"tract": "2/3", "block": "1/3"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spine.save(f"{folder}/spine.csv")
        ...     again = Spine.load(f"{folder}/spine.csv")
        >>> again, str(again.share("012"))
        (<Spine tract > block: 3 units, 2 leaves>, '1/3')
        """
        spine: Spine = self
        names = [spine.levels[k] for k in spine.level_of.tolist()]
        above = ["" if p < 0 else str(p + 1) for p in spine.parents.tolist()]
        text = [str(s) for s in spine.share_table]
        shares = [text[i] for i in spine.share_index.tolist()]
        head = {
            "version": _VERSION,
            "units": len(spine),
            "levels": list(spine.levels),
            "widths": _widths(spine.levels, spine.geocodes, spine.level_of),
            "sha256": _digest((names, spine.geocodes.tolist(), above, shares)),
            "about": dict(about or {}),
        }
        final = Path(path)
        _checked_name(final)
        with whole(final) as draft, _opened(draft, final, "wt") as file:
            file.write(_MARK + json.dumps(head, ensure_ascii=False) + "\n")
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(_COLUMNS)
            rows.writerows(zip(names, spine.geocodes.tolist(), above, shares, strict=True))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a spine that :meth:`save` wrote: the same units, codes and exact shares.

        Parameters
        ----------
        path
            The file.

        Raises
        ------
        FileFormatError
            For a file that is none, one that was cut, codes that lost characters, a parent that does not come
            before its child, or a share that is no fraction: with the row and the value.
        """
        file = Path(path)
        _checked_name(file)
        with _opened(file, file, "rt") as lines:
            head = _head(file, _first_line(file, lines))
            columns = _read_rows(file, lines, head["levels"], head["units"])
        level_of, geocodes, parents, texts = columns
        _same_widths(file, head, geocodes, level_of)
        share, denominator = _shares(file, texts)
        _unchanged(file, head, columns)
        build: Any = cls
        spine: Self = build.from_arrays(head["levels"], geocodes, parents, level_of, (share, denominator))
        return spine


def read_about(path: str | Path) -> dict[str, Any]:
    """Return what a spine's file says that it was made of.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        What :meth:`SavedSpine.save` was given as ``about``.

    Examples
    --------
    >>> import tempfile
    >>> from adversary.geography.spine import Spine
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Spine.from_blocks({"block": ["011"]}).save(f"{folder}/spine.csv", {"kind": "table"})
    ...     read_about(f"{folder}/spine.csv")
    {'kind': 'table'}
    """
    file = Path(path)
    _checked_name(file)
    with _opened(file, file, "rt") as lines:
        found: dict[str, Any] = _head(file, _first_line(file, lines))["about"]
    return found


def _checked_name(path: Path) -> None:
    if not path.name.lower().endswith((".csv", ".csv.gz")):
        msg = f"a spine's file is called .csv or .csv.gz, got {path.name!r}: choose one of these endings"
        raise FileFormatError(msg, path.name)


def _opened(path: Path, name: Path, mode: str) -> TextIO:
    """Open ``path``, which is or will be called ``name``."""
    packed = name.name.lower().endswith(".gz")
    opener: Any = gzip.open if packed else open
    try:
        file: TextIO = opener(path, mode, encoding="utf-8", newline="")
    except OSError as error:
        msg = f"{name.name!r} cannot be opened ({error.strerror}): check the name and the folder"
        raise FileFormatError(msg, str(name)) from None
    return file


def _first_line(path: Path, lines: TextIO) -> str:
    try:
        return lines.readline(10_000_000)
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        msg = f"{path.name} cannot be read ({error}): no file of Spine.save, or a damaged one"
        raise FileFormatError(msg, path.name) from None


def _widths(
    levels: tuple[str, ...] | list[str], geocodes: NDArray[np.str_], level_of: NDArray[Any]
) -> dict[str, list[int]]:
    """Fewest and most characters of the codes of every level."""
    length = np.char.str_len(geocodes) if geocodes.size else np.zeros(0, np.int64)
    out = {}
    for k, name in enumerate(levels):
        own = length[level_of == k]
        out[name] = [int(own.min()), int(own.max())] if own.size else [0, 0]
    return out


def _head(path: Path, line: str) -> dict[str, Any]:
    try:
        head = json.loads(line.removeprefix(_MARK)) if line.startswith(_MARK) else None
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or not _sound(head):
        msg = f"{path.name}: the first line is not {_MARK.strip()!r} with its JSON: no file of Spine.save"
        raise FileFormatError(msg, line[:80])
    if head.get("version") != _VERSION:
        msg = f"{path.name}: version {head.get('version')} of the form, this program reads {_VERSION}: update it"
        raise FileFormatError(msg, head.get("version"))
    return head


def _sound(head: dict[str, Any]) -> bool:
    levels, units = head.get("levels"), head.get("units")
    if (
        not isinstance(levels, list)
        or not all(isinstance(k, str) for k in levels)
        or not 1 <= len(levels) <= 127
    ):
        return False
    counted = isinstance(units, int) and not isinstance(units, bool) and units >= 0
    return (
        counted
        and len(set(levels)) == len(levels)
        and isinstance(head.get("widths"), dict)
        and isinstance(head.get("about"), dict)
    )


Columns = tuple["NDArray[np.int8]", "NDArray[np.str_]", "NDArray[np.int64]", list[str]]


def _read_rows(path: Path, lines: TextIO, levels: list[str], units: int) -> Columns:
    rows = csv_rows(lines, path.name)
    header = next(rows, [])
    if header != _COLUMNS:
        msg = f"{path.name}: the columns are {', '.join(_COLUMNS)}, got {header}: write the file again"
        raise FileFormatError(msg, header)
    try:
        found = list(_checked(path, rows))
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{path.name} cannot be read to its end ({error}): the file is damaged or was cut"
        raise FileFormatError(msg, path.name) from None
    if len(found) != units:
        msg = f"{path.name}: {len(found)} rows, but the first line promises {units}: the file was cut or added to"
        raise FileFormatError(msg, len(found))
    names, codes, above, shares = (list(c) for c in zip(*found, strict=True)) if found else ([], [], [], [])
    place = {name: k for k, name in enumerate(levels)}
    odd = next((i for i, name in enumerate(names) if name not in place), None)
    if odd is not None:
        msg = f"{path.name} row {odd + 1}: {names[odd]!r} is no level: they are {', '.join(levels)}"
        raise FileFormatError(msg, names[odd])
    level_of = np.array([place[name] for name in names], np.int8)
    geocodes = np.array(codes, str) if codes else np.zeros(0, "<U1")
    return (
        level_of,
        geocodes,
        np.array([_row_number(path, i, a) for i, a in enumerate(above)], np.int64),
        shares,
    )


def _checked(path: Path, rows: Iterator[list[str]]) -> Iterator[list[str]]:
    for i, row in enumerate(rows):
        if len(row) != len(_COLUMNS):
            msg = (
                f"{path.name} row {i + 1}: {len(row)} fields for {len(_COLUMNS)} columns: the file may be cut"
            )
            raise FileFormatError(msg, row)
        yield row


def _row_number(path: Path, row: int, text: str) -> int:
    if text == "":
        return -1
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= row:
        msg = (
            f"{path.name} row {row + 1}: parent {text!r} is no row above it: rows are counted from 1 and a parent "
            "comes before its children"
        )
        raise FileFormatError(msg, text)
    return int(text) - 1


def _same_widths(
    path: Path, head: dict[str, Any], geocodes: NDArray[np.str_], level_of: NDArray[Any]
) -> None:
    found = _widths(head["levels"], geocodes, level_of)
    for name, width in found.items():
        said = head["widths"].get(name)
        if width != said:
            msg = (
                f"{path.name}: codes of level {name} have {width[0]} to {width[1]} characters, the first line says "
                f"{said}: zeros were lost, perhaps in a spreadsheet; take the file as it was written"
            )
            raise FileFormatError(msg, (name, width))


def _digest(columns: tuple[list[str], ...]) -> str:
    """SHA-256 of the columns' texts; line ends do not count, which programs change on their way."""
    total = hashlib.sha256()
    for column in columns:
        total.update("\x1f".join(column).encode())
        total.update(b"\x1e")
    return total.hexdigest()


def _unchanged(path: Path, head: dict[str, Any], columns: Columns) -> None:
    level_of, geocodes, parents, shares = columns
    names = [head["levels"][k] for k in level_of.tolist()]
    above = ["" if p < 0 else str(p + 1) for p in parents.tolist()]
    if _digest((names, geocodes.tolist(), above, shares)) != head.get("sha256"):
        msg = f"{path.name}: the rows are not those that were written (their SHA-256 differs): take the file as it was"
        raise FileFormatError(msg, path.name)


def _shares(path: Path, texts: list[str]) -> tuple[NDArray[Any], int]:
    distinct: dict[str, Fraction] = {}
    for row, text in enumerate(texts):
        if text in distinct:
            continue
        try:
            share = Fraction(text) if len(text) <= 4000 else None
        except (ValueError, ZeroDivisionError):
            share = None
        if share is None or share < 0 or "e" in text.lower():
            msg = f"{path.name} row {row + 1}: share {text[:40]!r} is no fraction of at least 0, such as 165/4099"
            raise FileFormatError(msg, text[:40])
        distinct[text] = share
    values, denominator, dtype = common_denominator(list(distinct.values()), 1)
    of_text = dict(zip(distinct, values, strict=True))
    return np.array([of_text[t] for t in texts], dtype), denominator
