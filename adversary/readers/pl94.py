"""Read a PL 94-171 redistricting file (2020 legacy format): one geounit a row, checked until it adds up.

What it is: a reader of the four headerless, pipe-delimited, latin-1 files of one state (geographic header,
and segments 1 to 3), joined on LOGRECNO *as a number* (some copies write ``0000001``, some ``1``). One
summary level is selected; rows of different levels are never added together, since they count the same
people. Every published table of every selected row must add up, or the file, line, geounit and field are
named.

What it is not: noisy measurements. Published tables went through the Bureau's disclosure avoidance and its
post-processing; here they serve as a known truth from which noise can be drawn. A geounit whose blocks do not
add up to it is not an error of the reader (an extract may hold some tracts of a county): `find_mismatches`
reports it.

Held to account by tests/readers/test_pl94.py (a synthetic state written field by field, every way to spoil
it, and, where the files are at hand, the 606 geounits of the 2018 test extract for Rhode Island).

Source: U.S. Census Bureau, 2020 Census State Redistricting Data (Public Law 94-171) Summary File, technical
documentation, chapter on the file layout; tables P1 to P5 and H1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adversary.errors import FileFormatError, shown
from adversary.readers._pl94_layout import (
    AXES,
    GEO_COLUMNS,
    GEOCODE,
    GEOCOMP,
    GEOID,
    H1,
    KEY,
    LEVELS,
    LIMIT,
    LOGRECNO,
    NAME,
    P5_LEAVES,
    POP100,
    QUERIES,
    RACE_LEAVES,
    RACES,
    SECOND,
    SEGMENT_COLUMNS,
    SUMLEV,
    WIDTH,
    Geography,
    Segment,
    TableCheck,
    cell_labels,
    field_name,
    query_axes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "AXES",
    "LEVELS",
    "QUERIES",
    "RACES",
    "Mismatch",
    "Pl94Table",
    "cell_labels",
    "demo_folder",
    "find_mismatches",
    "query_axes",
    "read_pl94",
]


class Mismatch(NamedTuple):
    """A ``geoid`` whose ``own`` row of a ``table`` differs from the sum of its ``children``'s rows (totals)."""

    geoid: str
    table: str
    own: int
    children: int


@dataclass(frozen=True, eq=False)
class Pl94Table:
    """Counts of one summary level of one state, one row a geounit, in the order of the file.

    Attributes
    ----------
    level
        Name of the level: a key of `LEVELS`.
    geoid
        Codes of the geounits, text with all leading zeros (15 digits for a block), shape (n,).
    name
        Names of the geounits as the Bureau writes them, shape (n,).
    logrecno
        Logical record numbers, int64, shape (n,).
    p1, p2, p3, p4
        People by race: everybody; not Hispanic; everybody of 18 and over; not Hispanic of 18 and over. int64,
        shape (n, 63), columns in the order of `RACES` (the leaves of the tables, without their subtotals).
    p5
        People in group quarters: correctional, juvenile, nursing, other institution, college, military,
        other. int64, shape (n, 7).
    h1
        Housing units: occupied, vacant. int64, shape (n, 2).
    parents
        For every level above this one, the code of the geounit that holds each row, shape (n,).
    source
        The folder that was read.
    """

    level: str
    geoid: NDArray[np.str_]
    name: NDArray[np.str_]
    logrecno: NDArray[np.int64]
    p1: NDArray[np.int64]
    p2: NDArray[np.int64]
    p3: NDArray[np.int64]
    p4: NDArray[np.int64]
    p5: NDArray[np.int64]
    h1: NDArray[np.int64]
    parents: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    source: str = ""

    def __len__(self) -> int:
        return len(self.geoid)

    @property
    def total(self) -> NDArray[np.int64]:
        """People in each geounit, shape (n,)."""
        return self.p1.sum(axis=1)

    def histogram(self) -> NDArray[np.int64]:
        """Return the 252 counts a geounit that P1 to P4 determine.

        Hispanic people by race are P1 - P2, people under 18 are everybody less those of 18 and over.

        Returns
        -------
        numpy.ndarray
            int64, shape (n, 2, 2, 63): geounit, voting age, Hispanic, race; labels in `AXES`. Not negative:
            the reader has refused files where it would be.

        Examples
        --------
        >>> blocks = read_pl94(demo_folder())
        >>> blocks.histogram().shape[1:]
        (2, 2, 63)
        >>> bool((blocks.histogram().sum(axis=(1, 2, 3)) == blocks.total).all())
        True
        """
        adults = np.stack([self.p4, self.p3 - self.p4], axis=1)
        everybody = np.stack([self.p2, self.p1 - self.p2], axis=1)
        return np.stack([everybody - adults, adults], axis=1)

    def marginal(self, axes: Sequence[str]) -> NDArray[np.int64]:
        """Return the counts of a query, shape (n, cells): the histogram summed over the axes not named.

        Cells run as the axes stand in `AXES`, the last fastest; `cell_labels` names them.

        Examples
        --------
        >>> read_pl94(demo_folder(), "state").marginal(["votingage"]).tolist()
        [[128, 509]]
        """
        gone = tuple(at for at, axis in enumerate(AXES, start=1) if axis not in axes)
        counts = self.histogram()
        return (counts.sum(axis=gone) if gone else counts).reshape(len(self), -1)


def read_pl94(folder: str | Path, level: str = "block") -> Pl94Table:
    """Read one summary level of the four PL 94-171 files in a folder.

    Parameters
    ----------
    folder
        A folder with the four files of exactly one state: ``xxgeo*.pl``, ``xx00001*.pl``, ``xx00002*.pl``,
        ``xx00003*.pl`` (``xx`` = the state's two letters; upper or lower case).
    level
        ``"block"`` (SUMLEV 750), ``"block_group"`` (150), ``"tract"`` (140), ``"county"`` (050) or
        ``"state"`` (040).

    Returns
    -------
    Pl94Table
        Rows in the order of the geographic header.

    Raises
    ------
    FileFormatError
        A file is missing or doubled, a row has the wrong number of columns, a count is blank, negative, or
        not a whole number, a record number occurs twice or has no partner, a code lost its leading zeros, or
        a table does not add up. The message names the file, the line, the geounit and the field.

    Notes
    -----
    Layout: technical documentation of the 2020 PL 94-171 summary file; 97 columns of geography, segments of
    5 + 71 + 73 (P1, P2), 5 + 71 + 73 + 3 (P3, P4, H1) and 5 + 10 (P5) columns. An additional last column that
    is empty in every row, as some copies have, is left out.

    Examples
    --------
    >>> groups = read_pl94(demo_folder(), level="block_group")
    >>> len(groups), len(groups.geoid[0]), sorted(groups.parents)
    (3, 12, ['county', 'state', 'tract'])
    """
    if level not in LEVELS:
        msg = f"no level {level!r} in a PL 94-171 file: choose one of {', '.join(LEVELS)}"
        raise FileFormatError(msg, level)
    paths = _find_files(Path(folder))
    geo, records = _read_geography(paths["geo"], level)
    segments = {number: _read_segment(paths[str(number)], number, geo, records) for number in SEGMENT_COLUMNS}
    TableCheck(geo, segments).run()
    first, second, third = (segments[number].counts for number in (1, 2, 3))
    arrays = {
        "p1": first[:, RACE_LEAVES],
        "p2": first[:, SECOND + RACE_LEAVES],
        "p3": second[:, RACE_LEAVES],
        "p4": second[:, SECOND + RACE_LEAVES],
        "p5": third[:, P5_LEAVES],
        "h1": second[:, H1 + 1 : H1 + 3],
    }
    parents = {
        upper: geo.geoid.astype(f"<U{WIDTH[upper]}") for upper in LEVELS if WIDTH[upper] < WIDTH[level]
    }
    for array in (*arrays.values(), *parents.values(), geo.geoid, geo.name, geo.logrecno):
        array.setflags(write=False)
    return Pl94Table(level, geo.geoid, geo.name, geo.logrecno, **arrays, parents=parents, source=str(folder))


def demo_folder() -> Path:
    """Return the folder of the synthetic PL 94-171 files that ship with the package.

    Forty blocks in three block groups of one tract; nobody in them exists (see the README beside the files).

    Examples
    --------
    >>> sorted(path.name for path in demo_folder().glob("*.pl"))
    ['zz000012020.pl', 'zz000022020.pl', 'zz000032020.pl', 'zzgeo2020.pl']
    """
    return Path(str(files("adversary") / "data" / "demo_pl94"))


def find_mismatches(parent: Pl94Table, child: Pl94Table) -> tuple[Mismatch, ...]:
    """Compare the rows of one level with the sums of the rows of a level below.

    Parameters
    ----------
    parent, child
        Two levels of the same state, the coarser first.

    Returns
    -------
    tuple of Mismatch
        One entry for every geounit and table (p1 to p4, p5, h1) with any differing count; the totals of the
        table are shown. Empty if everything adds up. A geounit without any child counts as having children
        with nobody.

    Raises
    ------
    FileFormatError
        If the second table is not of a level below the first.

    Examples
    --------
    >>> find_mismatches(read_pl94(demo_folder(), "tract"), read_pl94(demo_folder(), "block"))
    ()
    """
    if parent.level not in child.parents:
        msg = f"{child.level!r} does not lie below {parent.level!r}: give the coarser level first"
        raise FileFormatError(msg, child.level)
    place = {code: row for row, code in enumerate(parent.geoid.tolist())}
    codes = child.parents[parent.level].tolist()
    known = np.array([code in place for code in codes], dtype=bool)
    rows = np.array([place[code] for code in codes if code in place], dtype=np.intp)
    found = []
    for table in ("p1", "p2", "p3", "p4", "p5", "h1"):
        own: NDArray[np.int64] = getattr(parent, table)
        summed = np.zeros_like(own)
        np.add.at(summed, rows, getattr(child, table)[known])
        found += [
            Mismatch(str(parent.geoid[row]), table, int(own[row].sum()), int(summed[row].sum()))
            for row in np.flatnonzero((own != summed).any(axis=1))
        ]
    return tuple(found)


def _find_files(folder: Path) -> dict[str, Path]:
    """Return the paths of the four files under the keys ``geo``, ``1``, ``2``, ``3``."""
    if not folder.is_dir():
        msg = f"{folder} is not a folder: give the folder that holds the four .pl files of one state"
        raise FileFormatError(msg, str(folder))
    found: dict[str, list[Path]] = {key: [] for key in ("geo", "1", "2", "3")}
    states = set()
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"([a-z]{2})(geo|0000([123]))[^/]*\.pl", path.name.lower())
        if match and path.is_file():
            states.add(match[1])
            found[match[3] or "geo"].append(path)
    if len(states) > 1:
        msg = f"{folder} holds files of several states ({', '.join(sorted(states))}): keep one state a folder"
        raise FileFormatError(msg, sorted(states))
    xx = next(iter(states), "xx")
    missing = [f"{xx}geo*.pl" if key == "geo" else f"{xx}0000{key}*.pl" for key in found if not found[key]]
    if missing:
        msg = f"{folder} lacks {', '.join(missing)}: a state is four files, geography and segments 1 to 3"
        raise FileFormatError(msg, missing)
    for paths in found.values():
        if len(paths) > 1:
            names = ", ".join(path.name for path in paths)
            msg = f"{folder} holds {names} for the same part: keep one of them"
            raise FileFormatError(msg, names)
    return {key: paths[0] for key, paths in found.items()}


def _rows(path: Path, columns: int) -> list[tuple[int, bytes]]:
    """Return (line number, content) of the rows that are not empty, each with the right number of columns."""
    rows = [
        (n, row.rstrip(b"\r")) for n, row in enumerate(path.read_bytes().split(b"\n"), start=1) if row.strip()
    ]
    if not rows:
        msg = f"{path.name}: no rows: download the file again"
        raise FileFormatError(msg, path.name)
    if all(row.count(b"|") == columns and row.endswith(b"|") for _, row in rows):
        rows = [(n, row[:-1]) for n, row in rows]
    for n, row in rows:
        if row.count(b"|") != columns - 1:
            got = row.count(b"|") + 1
            hint = "the file is cut off or of another year" if got > 1 else "fields are parted by |"
            msg = f"{path.name}, line {n}: {got} columns where the 2020 format has {columns}: {hint}"
            raise FileFormatError(msg, got)
    return rows


def _whole(text: str, where: str, rule: str = "a count is a whole number, 0 or more") -> int:
    """Turn one field into a count, or say what is wrong with it."""
    if text.isdecimal() and len(text) < 16:  # nearly all of them; latin-1 has no decimals but 0 to 9
        return int(text)
    text = text.strip()
    if re.fullmatch(r"[0-9]+(\.0*)?", text):
        digits = text.split(".", maxsplit=1)[0].lstrip("0") or "0"
        if len(digits) < 17 and int(digits) < LIMIT:
            return int(digits)
        msg = f"{where} is {shown(text)}: counts of 2^53 and more cannot be kept exactly"
        raise FileFormatError(msg, text)
    msg = f"{where} is {shown(text) if len(text) > 80 else text or 'blank'}: {rule}; mend the file or download it again"
    raise FileFormatError(msg, text)


def _read_geography(path: Path, level: str) -> tuple[Geography, frozenset[int]]:
    """Read the rows of one summary level of the header, and the record numbers of all its rows."""
    rows: list[tuple[int, int, int]] = []
    codes, names = [], []
    seen: dict[int, int] = {}
    levels: set[str] = set()
    for n, row in _rows(path, GEO_COLUMNS):
        cells = row.decode("latin-1").split("|")
        record = _record(cells[LOGRECNO], path, n, seen)
        levels.add(cells[SUMLEV])
        # parts of a geounit (its urban part, say) carry another component: they repeat people of the whole
        if cells[SUMLEV] != LEVELS[level] or cells[GEOCOMP] not in {"00", "0", ""}:
            continue
        where = f"{path.name}, line {n} (LOGRECNO {record})"
        codes.append(_checked_code(cells, level, where))
        names.append(cells[NAME])
        rows.append((n, record, _whole(cells[POP100], f"{where}: POP100")))
    if not codes:
        there = ", ".join(sorted(levels))
        msg = f"{path.name}: no rows of level {level} (SUMLEV {LEVELS[level]}); the file has SUMLEV {there}"
        raise FileFormatError(msg, level)
    first: dict[str, int] = {}
    for code, (n, _, _) in zip(codes, rows, strict=True):
        if first.setdefault(code, n) != n:
            msg = (
                f"{path.name}, line {n}: geounit {code} stands on line {first[code]} too, so that its people"
                " would count twice: keep one of the rows"
            )
            raise FileFormatError(msg, code)
    lines, records, population = np.array(rows, dtype=np.int64).T.copy()
    geoid, name = np.array(codes, dtype=f"<U{WIDTH[level]}"), np.array(names, dtype=np.str_)
    return Geography(path.name, lines, records, geoid, name, population), frozenset(seen)


def _record(text: str, path: Path, n: int, seen: dict[int, int]) -> int:
    """Read a record number as a number, so that 0000001 and 1 meet, and note its line; refuse a double."""
    record = _whole(text, f"{path.name}, line {n}: LOGRECNO", "a record number is a whole number")
    if record in seen:
        msg = (
            f"{path.name}, line {n}: LOGRECNO {record} stands on line {seen[record]} too:"
            " a record number belongs to one geounit, keep one of the rows"
        )
        raise FileFormatError(msg, record)
    seen[record] = n
    return record


def _checked_code(cells: Sequence[str], level: str, where: str) -> str:
    """Return the geounit's code; refuse one that went through an integer column and lost its zeros."""
    code, width = cells[GEOCODE].strip(), WIDTH[level]
    if len(code) != width or not code.isdecimal():
        short = code.isdecimal() and len(code) < width
        why = "leading zeros are lost, keep codes as text" if short else "it is not a code of this level"
        msg = f"{where}: GEOCODE {code!r} must have {width} digits at level {level}: {why}"
        raise FileFormatError(msg, code)
    tail = cells[GEOID].strip().partition("US")[2]
    if tail and tail != code:
        msg = f"{where}: GEOID {cells[GEOID]!r} and GEOCODE {code!r} name different geounits: mend the file"
        raise FileFormatError(msg, code)
    return code


def _read_segment(path: Path, number: int, geo: Geography, records: frozenset[int]) -> Segment:
    """Read the counts of the selected geounits from one segment, in the order of the geography."""
    wanted = {record: row for row, record in enumerate(geo.logrecno.tolist())}
    columns = SEGMENT_COLUMNS[number]
    seen: dict[int, int] = {}
    order, bodies = [], []
    for n, row in _rows(path, columns):
        *_, key, body = row.split(b"|", KEY)
        record = _record(key.decode("latin-1"), path, n, seen)
        if record in wanted:
            geoid = geo.geoid[wanted[record]]
            bodies.append(_plain(body, number, f"{path.name}, line {n} (LOGRECNO {record}, geoid {geoid})"))
            order.append(wanted[record])
    for lost, has, lacks in (
        (records - set(seen), geo.file, path.name),
        (set(seen) - records, path.name, geo.file),
    ):
        if lost:
            one = min(lost)
            geoid = f" (geoid {geo.geoid[wanted[one]]})" if one in wanted else ""
            msg = (
                f"{lacks}: no row for LOGRECNO {one}{geoid}, which {has} has ({len(lost)} such rows):"
                " the files are of different releases or one is cut off"
            )
            raise FileFormatError(msg, sorted(lost))
    # one call for all rows; every byte is known to be a digit or a bar by now
    values = np.fromstring(b"|".join(bodies).decode("ascii"), dtype=np.int64, sep="|")
    counts = np.empty((len(bodies), columns - KEY), dtype=np.int64)
    counts[order] = values.reshape(counts.shape)
    if counts.max() >= LIMIT:  # longer numbers than int64 holds come out at its end, so none escapes
        row, at = np.argwhere(counts >= LIMIT)[0]
        where = f"{path.name}, line {seen[int(geo.logrecno[row])]} (geoid {geo.geoid[row]})"
        name = field_name(number, int(at))
        msg = f"{where}: {name} is 2^53 or more, which cannot be kept exactly: mend the file"
        raise FileFormatError(msg, int(counts[row, at]))
    lines = np.array([seen[record] for record in geo.logrecno.tolist()], dtype=np.int64)
    return Segment(path.name, number, lines, counts)


def _plain(body: bytes, number: int, where: str) -> bytes:
    """Return the fields if all are runs of digits; otherwise look at each and refuse or repair (3.0) it."""
    if not body.translate(None, b"0123456789|") and b"||" not in b"|" + body + b"|":
        return body
    cells = body.decode("latin-1").split("|")
    fixed = [_whole(cell, f"{where}: {field_name(number, at)}") for at, cell in enumerate(cells)]
    return "|".join(map(str, fixed)).encode()
