"""HUD's Picture of Subsidized Households: one line a geography (or project) and programme, codes kept.

What it is: a reader of the yearly files (csv; xlsx through openpyxl where that is installed) since 2000. Every
column stays text until it is asked for as numbers, and a code stays a code: -1 missing, -4 suppressed (fewer
than 11 families reported), -5 non-reporting (fewer than half reported). `HudPicture.interval` turns codes
into what they say: -4 of ``number_reported`` is 0 to 10, never NaN and never 0. What it is not: rows on a
block (:mod:`adversary.reconstruction.tables` makes them), a reader of the files of 1996-98 (whose codes mean
something else: they are refused), or a source of coordinates' truth.

Traps that are handled: geographic codes that a spreadsheet stored as numbers and that lost the zero of states
01-09; ``quarter`` as text (31DEC2025) in one year and as a spreadsheet's serial day (45657) in the next; a
bucket "XX Missing"; lines of all programmes (1) beside lines of each, so that adding up everything counts
twice; tracts of 2010 in files up to 2021, of 2020 in files named ``..._2020census``.

Held to account by tests/readers/test_hud.py, on files written there; no real file is in the tests. Source of
the codes: HUD's data dictionary as two public readers cite it. Whether -4 also says *at least one* family is
not settled there, so that it is not used.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import csv_rows
from adversary.errors import FileFormatError, UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["CODES", "HudPicture", "read_hud_picture"]

CODES: Mapping[int, str] = MappingProxyType(
    {
        -1: "missing",
        -4: "suppressed: fewer than 11 families reported",
        -5: "non-reporting: fewer than half of the families reported",
    }
)
"""What the negative values stand for, in files since 2000."""

_NOT_APPLICABLE = {"", "NA", "N/A", "."}
_WIDTH = {"state": 2, "county": 5, "place": 7, "tract": 11, "zipcode": 5}
_NEEDED = ("program", "name", "code", "total_units", "number_reported")
_KEY = ("quarter", "program", "sub_program", "name", "code")
_LINE = ("total_units", "number_reported", "pct_occupied", "people_per_unit")
_FEWEST = 11
_DAY_ZERO = dt.date(1899, 12, 30)
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_DATE = re.compile(r"(\d{1,2})([A-Z]{3})(\d{4})")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


@dataclass(frozen=True, eq=False)
class HudPicture:
    """Lines of the file.

    Attributes
    ----------
    columns
        Every column as text, by its name in lower case; arrays of one length.
    source
        Name of the file.
    level
        What ``code`` names (``"tract"``, ...), None if it was not said.
    tracts
        ``"2010"`` or ``"2020"``: the census whose geography the codes follow, from the name of the file; None
        if the name does not tell.
    notes
        What was mended on the way.
    """

    columns: Mapping[str, NDArray[np.str_]]
    source: str
    level: str | None
    tracts: str | None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["code"])

    def __repr__(self) -> str:
        return f"<HudPicture: {len(self)} lines, {len(self.columns)} columns of {self.source}>"

    def text(self, name: str) -> NDArray[np.str_]:
        """Return a column as text.

        Parameters
        ----------
        name
            Name of the column, lower case.
        """
        if name not in self.columns:
            msg = f"{self.source} has no column {name!r}: there are {', '.join(self.columns)}"
            raise FileFormatError(msg, name)
        return self.columns[name]

    def number(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers with the codes left in: -1, -4, -5; NaN where not applicable.

        Do not add these up before the codes are taken out: use `interval`.

        Parameters
        ----------
        name
            Name of the column, lower case.

        Raises
        ------
        FileFormatError
            For another negative value, a percentage above 100, or text that is no number.
        """
        out = np.empty(len(self), dtype=np.float64)
        for i, cell in enumerate(self.text(name).tolist()):
            out[i] = _number(cell, name, f"{self.source} row {i + 2}")
        return out

    def interval(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest value that each printed value leaves open.

        Parameters
        ----------
        name
            Name of the column, lower case.

        Returns
        -------
        tuple
            Two float arrays, inf for no upper end. A suppressed ``number_reported`` (-4) is 0 to 10; a
            suppressed percentage 0 to 100; missing and non-reporting say nothing. Published numbers are taken
            as printed: rounding of percentages is undone by :func:`adversary.reconstruction.tables.hud_constraints`,
            which knows of how many families they are.
        """
        value = self.number(name)
        known = value >= 0
        top = 100.0 if name.startswith("pct_") else np.inf
        high = np.where(known, value, top)
        if name == "number_reported":
            high = np.where(value == -4, float(_FEWEST - 1), high)
        return np.where(known, value, 0.0), high

    def line(self, i: int) -> dict[str, Any]:
        """Return one line as keyword arguments of :class:`adversary.reconstruction.tables.HudRecord`.

        Codes stay codes; what is not applicable or not in the file becomes -1 (missing). ``percents`` has
        every ``pct_`` column of the file but ``pct_occupied``; `HudRecord` is to be given those it reads.

        Parameters
        ----------
        i
            Index of the line, from 0.
        """
        cells: dict[str, Any] = {}
        where = f"{self.source} row {i + 2}"
        for name in _LINE:
            value = _number(str(self.columns[name][i]), name, where) if name in self.columns else np.nan
            value = -1.0 if np.isnan(value) else value
            whole = name != "people_per_unit"
            if whole and value != int(value):
                msg = f"{where}: {name} is {value}, but it is printed as a whole number: is this HUD's file?"
                raise FileFormatError(msg, value)
            cells[name] = int(value) if whole else value
        percents = {}
        for name in self.columns:
            if name.startswith("pct_") and name not in {"pct_occupied", "pct_reported"}:
                value = _number(str(self.columns[name][i]), name, where)
                percents[name] = -1.0 if np.isnan(value) else value
        cells["percents"] = percents
        return cells

    def take(self, rows: ArrayLike) -> HudPicture:
        """Keep some lines (indices or a mask).

        Parameters
        ----------
        rows
            Indices, or a mask of shape (lines,).
        """
        chosen = np.arange(len(self))[np.asarray(rows)]
        columns = MappingProxyType({name: cells[chosen] for name, cells in self.columns.items()})
        return HudPicture(columns, self.source, self.level, self.tracts, self.notes)

    def of_program(self, program: int | str) -> HudPicture:
        """Keep the lines of one programme: 1 all together, 2 public housing, 3 vouchers, ...

        Parameters
        ----------
        program
            Code of the programme.
        """
        wanted = str(program)
        its = np.array([_plain_code(cell) == wanted for cell in self.text("program").tolist()], dtype=bool)
        if not its.any():
            there = sorted({_plain_code(cell) for cell in self.text("program").tolist()})
            msg = f"{self.source} has no lines of program {wanted}: there are {', '.join(there)}"
            raise FileFormatError(msg, program)
        return self.take(its)

    @property
    def quarter(self) -> tuple[dt.date | None, ...]:
        """The day each line describes; None where it is blank."""
        return tuple(_date(cell, self.source) for cell in self.text("quarter").tolist())

    @property
    def located(self) -> NDArray[np.bool_]:
        """Whether each line has a place; False for the bucket "XX Missing"."""
        return np.array(
            [
                bool(code) and "missing" not in f"{code} {name}".lower()
                for code, name in zip(self.text("code").tolist(), self.text("name").tolist(), strict=True)
            ],
            dtype=bool,
        )


def read_hud_picture(path: str | Path, level: str | None = None, sheet: str | None = None) -> HudPicture:
    r"""Read one file of HUD's Picture of Subsidized Households.

    Parameters
    ----------
    path
        A csv file, or an xlsx file (needs openpyxl: the extra ``readers``).
    level
        ``state``, ``county``, ``place``, ``tract`` or ``zipcode``: geographic codes are then checked to have
        the right number of digits, and a lost leading zero is put back (and noted). None to leave codes as
        they are (project files, whose ``code`` is no geography).
    sheet
        Sheet of an xlsx file; None for the first.

    Returns
    -------
    HudPicture
        All lines, in the order of the file.

    Raises
    ------
    FileFormatError
        No header of HUD's, a line of another length, a line twice, a code of a wrong length, or a file of
        1996-98.
    UnsupportedModelError
        An xlsx file where openpyxl is not installed.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "TRACT_AL_2022_2020census.csv"
    >>> _ = file.write_text("quarter,program,name,code,total_units,number_reported,pct_bed1\n"
    ...                     "31DEC2022,1,Tract 1,1001020100,40,38,55\n"
    ...                     "31DEC2022,1,Tract 2,1001020200,12,-4,-4\n")
    >>> picture = read_hud_picture(file, level="tract")
    >>> picture.text("code").tolist(), picture.tracts
    (['01001020100', '01001020200'], '2020')
    >>> low, high = picture.interval("number_reported")
    >>> low.tolist(), high.tolist()
    ([38.0, 0.0], [38.0, 10.0])
    >>> folder.cleanup()
    """
    path = Path(path)
    if level is not None and level not in _WIDTH:
        msg = f"no level {level!r}: choose {', '.join(_WIDTH)}, or None to leave codes alone"
        raise FileFormatError(msg, level)
    rows = _xlsx_rows(path, sheet) if path.suffix.lower() in {".xlsx", ".xlsm"} else _csv_rows(path)
    header = [name.strip().lower() for name in rows[0]] if rows else []
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        msg = f"{path.name}: no column {missing[0]!r} in the header: this is no Picture of Subsidized Households"
        raise FileFormatError(msg, missing[0])
    twice = [name for name, n in Counter(header).items() if n > 1 and name]
    if twice:
        msg = f"{path.name}: column {twice[0]!r} occurs twice: leave one out"
        raise FileFormatError(msg, twice[0])
    body = [row for row in rows[1:] if any(cell.strip() for cell in row)]
    for i, row in enumerate(body):
        if len(row) != len(header):
            msg = f"{path.name} row {i + 2}: {len(row)} fields for {len(header)} columns: the file may be cut"
            raise FileFormatError(msg, i + 2)
    columns = {
        name: np.array([row[j].strip() for row in body], dtype=np.str_)
        for j, name in enumerate(header)
        if name
    }
    notes: list[str] = []
    if level is not None:
        columns["code"] = _codes(columns, level, path.name, notes)
    picture = HudPicture(
        MappingProxyType(columns), path.name, level, _tracts(path.name, columns), tuple(notes)
    )
    _refuse(picture)
    return picture


def _csv_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as handle:
            return list(csv_rows(handle, path.name))
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error}): give one of HUD's yearly files"
        raise FileFormatError(msg, path) from error


def _xlsx_rows(path: Path, sheet: str | None) -> list[list[str]]:
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        msg = f"{path.name} needs openpyxl: pip install 'dp-adversary[readers]', or save it as csv"
        raise UnsupportedModelError(msg, path.name) from error
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        if sheet is not None and sheet not in book.sheetnames:
            msg = f"{path.name} has no sheet {sheet!r}: there are {', '.join(book.sheetnames)}"
            raise FileFormatError(msg, sheet)
        page = book[sheet] if sheet is not None else book[book.sheetnames[0]]
        return [[_cell(value) for value in row] for row in page.iter_rows(values_only=True)]
    finally:
        book.close()


def _cell(value: Any) -> str:
    """Write a spreadsheet's value as the text that a csv file would hold."""
    if value is None:
        return ""
    if isinstance(value, dt.date):
        return f"{value.day:02d}{_MONTHS[value.month - 1]}{value.year}"
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


def _plain_code(cell: str) -> str:
    return cell.removesuffix(".0")


def _number(cell: str, name: str, where: str) -> float:
    text = cell.strip()
    if text.upper() in _NOT_APPLICABLE:
        return float("nan")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        value = float(text)
    except ValueError as error:
        msg = f"{where}: {name} is {cell!r}, but a number, a code ({', '.join(map(str, CODES))}) or a blank belongs there"
        raise FileFormatError(msg, cell) from error
    if not np.isfinite(value) or (value < 0 and value not in CODES):
        msg = f"{where}: {name} is {cell}: codes are {', '.join(f'{k} {v}' for k, v in CODES.items())}"
        raise FileFormatError(msg, value)
    if name.startswith("pct_") and value > 100:
        msg = f"{where}: {name} is {cell}, but a percentage ends at 100: was a count put in its place?"
        raise FileFormatError(msg, value)
    return value


def _codes(
    columns: Mapping[str, NDArray[np.str_]], level: str, source: str, notes: list[str]
) -> NDArray[np.str_]:
    width, out, mended = _WIDTH[level], [], 0
    for i, (cell, name) in enumerate(zip(columns["code"].tolist(), columns["name"].tolist(), strict=True)):
        code = _plain_code(cell)
        if "missing" in f"{code} {name}".lower() or not code:
            out.append(code)
        elif not (code.isascii() and code.isdigit()) or len(code) not in {width - 1, width}:
            msg = f"{source} row {i + 2}: code {cell!r} is no {level}: {width} digits belong there"
            raise FileFormatError(msg, cell)
        else:
            mended += len(code) == width - 1
            out.append(code.zfill(width))
    if mended:
        notes.append(f"{mended} codes had lost their leading zero")
    return np.array(out, dtype=np.str_)


def _date(cell: str, source: str) -> dt.date | None:
    text = cell.strip().upper()
    if text in _NOT_APPLICABLE:
        return None
    named = _DATE.fullmatch(text)
    if named and named[2] in _MONTHS:
        with contextlib.suppress(ValueError):  # there is no 31FEB
            return dt.date(int(named[3]), _MONTHS.index(named[2]) + 1, int(named[1]))
    serial = _plain_code(text)
    if serial.isascii() and serial.isdigit() and len(serial) < 6 and 20_000 <= int(serial) <= 80_000:
        return _DAY_ZERO + dt.timedelta(days=int(serial))
    msg = f"{source}: quarter is {cell!r}: a day such as 31DEC2025, or a spreadsheet's serial day, belongs there"
    raise FileFormatError(msg, cell)


def _tracts(name: str, columns: Mapping[str, NDArray[np.str_]]) -> str | None:
    if "2020census" in name.lower():
        return "2020"
    days = (_date(cell, name) for cell in columns.get("quarter", np.array([], dtype=np.str_)).tolist())
    years = {day.year for day in days if day is not None}
    found = re.findall(r"(?:19|20)\d{2}", name)
    years |= {int(found[-1])} if found else set()
    return "2010" if years and min(years) >= 2012 and max(years) <= 2021 else None


def _refuse(picture: HudPicture) -> None:
    found = re.findall(r"(?:19|20)\d{2}", picture.source)
    days = [day for day in picture.quarter if day is not None] if "quarter" in picture.columns else []
    old = [year for year in (*(d.year for d in days), *map(int, found)) if year < 2000]
    if old:
        msg = f"{picture.source} is of {old[0]}: files of 1996-98 code values otherwise and are not read"
        raise FileFormatError(msg, old[0])
    keys: Sequence[NDArray[np.str_]] = [picture.columns[k] for k in _KEY if k in picture.columns]
    lines = list(zip(*(key.tolist() for key in keys), strict=True))
    counted: Counter[tuple[str, ...]] = Counter(lines)
    again = next((line for line in lines if counted[line] > 1), None)
    if again is not None:
        msg = f"{picture.source}: the line {', '.join(again)} occurs twice: it would count twice"
        raise FileFormatError(msg, again)
