"""Privacy-Protected Microdata Files of the 2020 redistricting data, persons: people to counts of blocks.

A file has one line a person, ``2020_ppmf_person_<fips>.csv``, with the codes of her block and four attributes; all of
it is read as text and every code is checked, so that a file that went through numbers (``CENRACE`` 01 become 1) is
refused. The file is read in pieces; what is kept is :class:`adversary.readers.population.BlockCounts`.

What this module is not: a reader of noisy measurements. A PPMF is post-processed: its counts are whole, consistent and
never negative, and their errors have no simple law. It must not be given the noise of the noisy measurements; here it
serves as a known truth that a release can be simulated from. Blocks without people have no line.

Held to account by ``tests/readers/test_ppmf.py``. Source: U.S. Census Bureau, 2020 Privacy-Protected Microdata File,
record layout, as read in the project's specification (no real file was at hand).
"""

from __future__ import annotations

import csv
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import LONGEST_FIELD, whole
from adversary.errors import FileFormatError, shown
from adversary.readers._tally import Tally
from adversary.release.queries import PL94_PERSONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from numpy.typing import NDArray

    from adversary.readers.population import BlockCounts

__all__ = ["read_ppmf_persons", "write_ppmf_persons"]

# column (a digit at its end may tell its width) -> number of characters, allowed values
_BLOCK = {"TABBLKST": 2, "TABBLKCOU": 3, "TABTRACTCE": 6, "TABBLKGRPCE": 1, "TABBLK": 4}
_ATTRIBUTES = {"GQTYPE_PL": (1, 0, 7), "VOTING_AGE": (1, 1, 2), "CENHISP": (1, 1, 2), "CENRACE": (2, 1, 63)}
_LINES_AT_ONCE = 200_000
_LONGEST_HEADER = 10_000  # characters
_ABOUT = re.compile(r"^\s*#")


def read_ppmf_persons(paths: str | Path | Sequence[str | Path], *, progressbar: bool = False) -> BlockCounts:
    """Read counts of blocks by the 2,016 cells of the redistricting histogram.

    Parameters
    ----------
    paths
        A file, several, or a folder of ``2020_ppmf_person_*.csv``; commas or pipes between the columns, in any order.
        Others than those of the block, ``GQTYPE_PL``, ``VOTING_AGE``, ``CENHISP``, ``CENRACE`` and ``RTYPE`` are left alone.
    progressbar
        Show the people read.

    Returns
    -------
    BlockCounts
        Blocks by their 16 characters: state 2, county 3, tract 6, block group 1, block 4. The cell is
        ((gq x 2 + voting age - 1) x 2 + Hispanic - 1) x 63 + race - 1.

    Raises
    ------
    FileFormatError
        For a column that lacks, a line that is cut, a code outside its values or that lost a zero, a block that is not in
        its block group, a household that is a group quarter: with file and line.

    Examples
    --------
    >>> import tempfile
    >>> from adversary.readers.population import BlockCounts
    >>> people = BlockCounts.of(["4400103010011000"], [64], [3], PL94_PERSONS)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_ppmf_persons(Path(folder) / "2020_ppmf_person_44.csv", people)
    ...     read_ppmf_persons(path)
    <BlockCounts 3 in 1 blocks, 1 non-empty cells of 2,016 a block>
    """
    from tqdm import tqdm

    tally = Tally()
    with tqdm(unit="person", unit_scale=True, disable=not progressbar) as bar:
        for path in _files(paths):
            for block, cell in _pieces(path):
                tally.add(block, cell)
                bar.update(block.size)
    return tally.result(16, PL94_PERSONS)


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(p) for p in paths]
    out: list[Path] = []
    for path in given:
        inside = sorted(path.glob("*ppmf_person_*.csv")) if path.is_dir() else [path]
        if not inside or not inside[0].is_file():
            msg = f"{path}: no file, and no folder of 2020_ppmf_person_<fips>.csv: unpack the Bureau's archive there"
            raise FileFormatError(msg, str(path))
        out += inside
    if len({p.resolve() for p in out}) < len(out):
        msg = "a file is listed twice: its people would count double"
        raise FileFormatError(msg, [str(p) for p in out])
    return out


def _pieces(path: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Block (as a number of sixteen digits) and cell of every person, some hundred thousand at a time."""
    with path.open(encoding="utf-8", newline="") as handle:
        start, header, mark = _header(handle, path)
        at = {name: _place(header, name, path) for name in (*_BLOCK, *_ATTRIBUTES)}
        kind = header.index("RTYPE") if "RTYPE" in header else None
        lines = csv.reader(handle, delimiter=mark)
        while rows := _some(lines, (path, start)):
            short = next((i for i, row in enumerate(rows) if len(row) != len(header)), None)
            if short is not None:
                fields = f"{len(rows[short])} fields for {len(header)} columns"
                msg = f"{path.name} line {start + short}: {fields}: the file may be cut"
                raise FileFormatError(msg, start + short)
            columns = list(zip(*rows, strict=True))
            where = (path, start)
            text = {name: np.array(columns[k], np.str_) for name, k in at.items()}
            block = _blocks(text, where)
            cell = _cells(text, where)
            if kind is not None:
                _check_kind(np.array(columns[kind], np.str_), text["GQTYPE_PL"], where)
            yield block, cell
            start += len(rows)


def _some(lines: Any, where: tuple[Path, int]) -> list[list[str]]:
    """Return the next lines as rows; bytes that are no text, or a quotation mark without its end, are refused."""
    path, start = where
    try:
        rows = list(islice(lines, _LINES_AT_ONCE))
    except (csv.Error, UnicodeError) as error:
        msg = f"{path.name} after line {start - 1}: no rows of a CSV file in UTF-8 ({shown(str(error))}): take the Bureau's file"
        raise FileFormatError(msg, start) from error
    long = next((i for i, row in enumerate(rows) if max(map(len, row), default=0) > LONGEST_FIELD), None)
    if long is not None:
        msg = f"{path.name} line {start + long}: a field of over {LONGEST_FIELD} characters: a quotation mark may lack its end"
        raise FileFormatError(msg, start + long)
    return rows


def _header(handle: TextIO, path: Path) -> tuple[int, list[str], str]:
    """Line number of the first person, names of the columns, and what stands between them."""
    number = 1
    try:
        line = handle.readline(_LONGEST_HEADER).removeprefix("\ufeff")
        while _ABOUT.match(line):
            line, number = handle.readline(_LONGEST_HEADER), number + 1
    except UnicodeError as error:
        msg = f"{path.name}: the header is no text in UTF-8: take the Bureau's file"
        raise FileFormatError(msg, number) from error
    mark = "|" if line.count("|") > line.count(",") else ","
    names = [name.strip().strip('"').upper() for name in line.rstrip("\r\n").split(mark)]
    if len(names) < len(_BLOCK):
        msg = f"{path.name}: the header is {line.strip()[:60]!r}: a PPMF of persons has a column a code"
        raise FileFormatError(msg, line)
    return number + 1, names, mark


def _place(header: list[str], name: str, path: Path) -> int:
    spelled = [name, f"{name}{_BLOCK[name]}"] if name in _BLOCK else [name]
    there = next((s for s in spelled if s in header), None)
    if there is None:
        said = shown(", ".join(header))
        msg = f"{path.name}: no column {name!r} in the header {said}: a file of units, or of another year"
        raise FileFormatError(msg, name)
    return header.index(there)


def _digits(column: NDArray[np.str_], name: str, width: int, where: tuple[Path, int]) -> NDArray[np.int64]:
    """Codes as numbers, all digits and of their width."""
    path, start = where
    characters = (
        column.astype(f"<U{max(width, column.dtype.itemsize // 4)}").view("<u4").reshape(column.size, -1)
    )
    digits = characters[:, :width].astype(np.int64) - ord("0")
    wrong = ((digits < 0) | (digits > 9)).any(axis=1) | (characters[:, width:] > 0).any(axis=1)
    if wrong.any():
        line = int(wrong.argmax())
        odd = str(column[line])
        msg = (
            f"{path.name} line {start + line}: {name} is {shown(odd)}, but {width} digit{'s are' if width > 1 else ' is'} "
            "expected: leading zeros may be lost, take the Bureau's file"
        )
        raise FileFormatError(msg, odd)
    return np.asarray(digits @ 10 ** np.arange(width - 1, -1, -1), np.int64)


def _blocks(text: dict[str, NDArray[np.str_]], where: tuple[Path, int]) -> NDArray[np.int64]:
    out = np.zeros(text["TABBLK"].size, np.int64)
    for name, width in _BLOCK.items():
        out = out * 10**width + _digits(text[name], name, width, where)
    group, block = text["TABBLKGRPCE"], text["TABBLK"]
    bad = np.flatnonzero(block.astype("<U1") != group)
    if bad.size:
        i = int(bad[0])
        msg = f"{where[0].name} line {where[1] + i}: block {block[i]!s} is not in block group {group[i]!s}: columns were mixed up"
        raise FileFormatError(msg, str(block[i]))
    return out


def _cells(text: dict[str, NDArray[np.str_]], where: tuple[Path, int]) -> NDArray[np.int64]:
    """Cell of the histogram of every person."""
    found = []
    for name, (width, low, high) in _ATTRIBUTES.items():
        codes = _digits(text[name], name, width, where)
        bad = np.flatnonzero((codes < low) | (codes > high))
        if bad.size:
            i = int(bad[0])
            msg = f"{where[0].name} line {where[1] + i}: {name} is {text[name][i]!s}: codes run from {low} to {high}"
            raise FileFormatError(msg, str(text[name][i]))
        found.append(codes - low)
    quarters, adult, hispanic, race = found
    return ((quarters * 2 + adult) * 2 + hispanic) * 63 + race


def _check_kind(kind: NDArray[np.str_], quarters: NDArray[np.str_], where: tuple[Path, int]) -> None:
    """Refuse a record type other than 3 for a household and 5 for a group quarter."""
    bad = np.flatnonzero(kind != np.where(quarters == "0", "3", "5"))
    if bad.size:
        i = int(bad[0])
        msg = (
            f"{where[0].name} line {where[1] + i}: RTYPE is {kind[i]!s} and GQTYPE_PL {quarters[i]!s}: people in households "
            "have 3 and 0, in group quarters 5 and 1 to 7 (2 and 4 are units)"
        )
        raise FileFormatError(msg, str(kind[i]))


def write_ppmf_persons(path: str | Path, counts: BlockCounts) -> Path:
    """Write people as a file of this layout: for simulations and tests, never a PPMF of the Bureau's.

    Parameters
    ----------
    path
        Where; it appears whole or not at all.
    counts
        Counts of the redistricting histogram, of blocks with codes of 16 characters or 15.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    FileFormatError
        For another histogram, or codes that are not a block's.

    Examples
    --------
    >>> import tempfile
    >>> from adversary.readers.population import BlockCounts
    >>> people = BlockCounts.of(["4400103010011000"], [64], [3], PL94_PERSONS)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_ppmf_persons(Path(folder) / "2020_ppmf_person_44.csv", people).name
    '2020_ppmf_person_44.csv'
    """
    if counts.histogram is not PL94_PERSONS:
        msg = f"a PPMF has the {PL94_PERSONS.cells:,} cells of the redistricting data, got {counts.histogram.cells:,}"
        raise FileFormatError(msg, counts.histogram.cells)
    codes = [c[:12] + c[11:] if len(c) == 15 else c for c in counts.blocks.tolist()]
    bad = next((c for c in codes if len(c) != 16 or not c.isdigit() or c[11] != c[12]), None)
    if bad is not None:
        msg = f"{bad!r} is no block code: 16 characters (state, county, tract, block group, block) or a GEOID of 15"
        raise FileFormatError(msg, bad)
    axes = [a.tolist() for a in np.unravel_index(counts.cell, PL94_PERSONS.sizes)]
    head = ("SCHEMA_TYPE_CODE", "SCHEMA_BUILD_ID", *_BLOCK, "EPNUM", "RTYPE", *_ATTRIBUTES)
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as handle:
        handle.write(",".join(head) + "\n")
        number = 0
        for b, n, gq, adult, hisp, race in zip(
            counts.block.tolist(), counts.count.tolist(), *axes, strict=True
        ):
            c = codes[b]
            place = f"MPD,SIMULATED,{c[:2]},{c[2:5]},{c[5:11]},{c[11]},{c[12:]}"
            person = f"{5 if gq else 3},{gq},{adult + 1},{hisp + 1},{race + 1:02d}"
            for _ in range(n):
                number += 1
                handle.write(f"{place},{number:09d},{person}\n")
    return Path(path)
