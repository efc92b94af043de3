"""The 1940 full count of IPUMS USA: people to counts of enumeration districts, and their spine.

Read are the hierarchical fixed-width file that was made for tests of the 2020 system (EXT1940USCB; a line a household, then
a line a person), fixed-width extracts with their DDI codebook, and rectangular CSV extracts. Every code is checked against
those of 1940; what a code means where it is doubtful (an origin that was not reported, an age that is missing) is asked
of the caller or said in the notes.

What this module is not: a source of the data. IPUMS's terms forbid to pass them on; the files have to be ordered there,
and nothing of them is in this package. The population that :func:`write_ipums_1940` writes is whatever it is given:
in the tests it is synthetic.

Held to account by ``tests/readers/test_ipums.py``, on files written there (no real file was at hand). Sources: IPUMS USA,
doi 10.18128/D010.V8.0.EXT1940USCB and its SPSS syntax file (columns); IPUMS USA, variable descriptions (codes); the
Bureau's 1940 end-to-end reader as read in the project's specification (the 192 cells); Kazan & Reiter (arXiv 2204.04253),
sec. 4 (the 864).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import LONGEST_FIELD
from adversary.errors import FileFormatError, shown
from adversary.geography.spine import Spine
from adversary.readers._ipums_codes import GQTYPE, HISPAN, RACE
from adversary.readers._ipums_ddi import EXT1940USCB, Codebook, read_ddi
from adversary.readers._ipums_lines import Lines, blocks_of_lines
from adversary.readers._ipums_write import write_ipums_1940
from adversary.readers._tally import Tally
from adversary.readers.population import BlockCounts
from adversary.release.schema import PERSONS_1940, PERSONS_1940_TEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["EXT1940USCB", "Codebook", "Ipums1940", "read_ddi", "read_ipums_1940", "write_ipums_1940"]

_GQ = tuple(range(7))  # 0 vacant, 1 2 5 household, 3 institution, 4 other group quarters, 6 fragment
_ADULT, _MISSING_AGE, _OLDEST = 18, 999, 130
_COUNTY = ("COUNTY", "COUNTYICP", "COUNTYNHG")
_ROWS_AT_ONCE = 200_000
_MISSING = ("refuse", "adult", "leave out")
_PERSON = ("STATEFIP", "ENUMDIST", "GQ", "GQTYPE", "AGE", "RACE", "HISPAN")


@dataclass(frozen=True, eq=False)
class Ipums1940:
    """The 1940 census by enumeration district.

    Attributes
    ----------
    counts
        People by district and the 864 cells of ``PERSONS_1940``.
    districts
        Codes of all districts, those without people too: STATEFIP 2, COUNTY 4, ENUMDIST as wide as in the file; sorted.
    households, vacant
        Household lines, and those of them that are vacant; 0 where the file has only persons.
    notes
        What was assumed or left out, in sentences.
    """

    counts: BlockCounts
    districts: NDArray[np.str_]
    households: int = 0
    vacant: int = 0
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        """One line: people and districts."""
        return f"<Ipums1940 {self.counts.total:,} people in {self.districts.size:,} enumeration districts>"

    def spine(self, shares: Mapping[str, Any] | None = None) -> Spine:
        """Return National > State > County > Enumdist; codes are prefixes, that of the nation is empty.

        Districts of the same number in two counties are two districts.

        Parameters
        ----------
        shares
            Level name -> share of rho; None: no budget.
        """
        width = len(self.districts[0]) if self.districts.size else 10
        widths = {"National": 0, "State": 2, "County": 6, "Enumdist": width}
        return Spine.from_geocodes(self.districts, widths, shares)

    def test_counts(self, not_reported: str = "hispanic") -> BlockCounts:
        """People by the 192 cells of the Bureau's end-to-end test on these data.

        Parameters
        ----------
        not_reported
            What an origin that was not reported (HISPAN 9) becomes: ``"hispanic"``, as in the Bureau's reader, which asks
            whether the code is above 0, or ``"not hispanic"``.

        Raises
        ------
        FileFormatError
            For another choice, or people of RACE 7 to 9, which have no cell.
        """
        if not_reported not in ("hispanic", "not hispanic"):
            msg = f"not_reported must be 'hispanic' (as the Bureau's reader) or 'not hispanic', got {not_reported!r}"
            raise FileFormatError(msg, not_reported)
        adult, origin, quarters, race = np.unravel_index(self.counts.cell, PERSONS_1940.sizes)
        if (race >= 6).any():
            n = int(self.counts.count[race >= 6].sum())
            msg = f"{n:,} people have RACE 7 to 9, which the test's 192 cells do not hold: use the 864"
            raise FileFormatError(msg, n)
        last = len(HISPAN) - 1
        hispanic = (origin > 0) & ((origin < last) | (not_reported == "hispanic"))
        cell = np.ravel_multi_index((quarters, adult, hispanic.astype(int), race), PERSONS_1940_TEST.sizes)
        return BlockCounts.of(
            self.counts.blocks[self.counts.block], cell, self.counts.count, PERSONS_1940_TEST
        )


@dataclass
class _Reading:
    """What is known of the files read so far."""

    missing_age: str
    tally: Tally
    districts: set[int]
    households: int = 0
    vacant: int = 0
    uneven: int = 0
    left_out: int = 0
    width: int = 4
    county: str = "COUNTY"


def read_ipums_1940(
    paths: str | Path | Sequence[str | Path],
    codebook: Codebook | str | Path | None = None,
    *,
    missing_age: str = "refuse",
    progressbar: bool = False,
) -> Ipums1940:
    """Read people of the 1940 census into counts of enumeration districts.

    Parameters
    ----------
    paths
        A data file or several: fixed width (``.dat``, ``.txt``, or these in ``.gz``), or rectangular ``.csv``.
    codebook
        DDI codebook of the extract, or the path of its ``.xml``. Default: the columns of EXT1940USCB, which only that
        file has. A CSV file needs one if its ENUMDIST has more than four digits.
    missing_age
        An AGE of 999 is missing: ``"refuse"`` the file, count her as an ``"adult"`` (as a reader does that asks whether
        999 is at least 18), or ``"leave out"`` the person; the last two say in the notes how many.
    progressbar
        Show the people read.

    Returns
    -------
    Ipums1940
        Counts by enumeration district.

    Raises
    ------
    FileFormatError
        For codes that 1940 does not have, blanks, people in a vacant unit, a person line without its household's, another
        year, a file that ends within a household: with file and line.

    Examples
    --------
    >>> import tempfile
    >>> people = BlockCounts.of(["4400100010"], [0], [3], PERSONS_1940)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_ipums_1940(Path(folder) / "a.dat", people)
    ...     read_ipums_1940(path)
    <Ipums1940 3 people in 1 enumeration districts>
    """
    from tqdm import tqdm

    if missing_age not in _MISSING:
        msg = f"missing_age must be one of {', '.join(map(repr, _MISSING))}, got {missing_age!r}"
        raise FileFormatError(msg, missing_age)
    book = read_ddi(codebook) if isinstance(codebook, str | Path) else codebook
    state = _Reading(missing_age, Tally(), set())
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(p) for p in paths]
    with tqdm(unit="person", unit_scale=True, disable=not progressbar) as bar:
        for file in files:
            if not file.is_file():
                msg = f"{file} is no file: order the extract at IPUMS, whose terms forbid to pass it on"
                raise FileFormatError(msg, str(file))
            for people in _people(file, book, state):
                bar.update(people)
    counts = state.tally.result(6 + state.width, PERSONS_1940)
    codes = np.array([f"{d:0{6 + state.width}d}" for d in sorted(state.districts)], np.str_)
    return Ipums1940(counts, codes, state.households, state.vacant, _notes(state, counts))


def _people(file: Path, book: Codebook | None, state: _Reading) -> Iterator[int]:
    if ".csv" in file.suffixes:
        yield from _csv(file, book, state)
        return
    layout = EXT1940USCB if book is None else book
    _set_width(state, layout.field("ENUMDIST").width, layout.source)
    state.county = layout.field(*_COUNTY).name
    fields = {n: layout.field(n) for n in _PERSON} | {"COUNTY": layout.field(*_COUNTY)}
    if layout.hierarchical:
        yield from _hierarchical(file, layout, state)
        return
    if "YEAR" in layout.fields:
        fields["YEAR"] = layout.fields["YEAR"]
    for lines in blocks_of_lines(file):
        rows = np.arange(lines.start.size)
        numbers = {name: lines.whole(at, rows) for name, at in fields.items()}
        yield _count(numbers, state, lines.refuse)


def _set_width(state: _Reading, width: int, source: str) -> None:
    if state.districts and width != state.width:
        msg = f"{source}: ENUMDIST has {width} digits here and {state.width} in another file: read them apart"
        raise FileFormatError(msg, width)
    if not 1 <= width <= 10:
        msg = f"{source}: ENUMDIST has {width} characters: take the extract's own codebook"
        raise FileFormatError(msg, width)
    state.width = width


_HOUSEHOLD = ("SERIAL", "STATEFIP", "COUNTY", "ENUMDIST", "GQ", "GQTYPE", "NUMPREC")


def _hierarchical(file: Path, layout: Codebook, state: _Reading) -> Iterator[int]:
    """Households and then their persons; the last household of a block may go on in the next."""
    kind = layout.field("RECTYPE")
    last = {name: np.zeros(0, np.int64) for name in _HOUSEHOLD}
    inside = 0  # people of the last household so far
    for lines in blocks_of_lines(file):
        record = lines.character(kind)
        strange = np.flatnonzero((record != ord("H")) & (record != ord("P")))
        if strange.size:
            row = int(strange[0])
            lines.refuse(
                row, f"RECTYPE is {chr(record[row])!r}: H for a household or P for a person is expected", row
            )
        units, people = np.flatnonzero(record == ord("H")), np.flatnonzero(record == ord("P"))
        own = _units(lines, units, layout)
        held = {name: np.concatenate([last[name], own[name]]) for name in _HOUSEHOLD}
        carried = last["SERIAL"].size
        of = np.searchsorted(units, people, side="right") - 1 + carried
        if of.size and of[0] < 0:
            lines.refuse(int(people[0]), "a person comes before any household: the file may be cut", 0)
        serial = lines.whole(layout.field("SERIAL"), people)
        wrong = np.flatnonzero(serial != held["SERIAL"][of])
        if wrong.size:
            k = int(wrong[0])
            said = f"SERIAL is {serial[k]}, but her household's is {held['SERIAL'][of[k]]}: lines are missing"
            lines.refuse(int(people[k]), said, int(serial[k]))
        size = np.bincount(of, minlength=held["SERIAL"].size)
        if carried:
            size[0] += inside
        numbers = {n: held[n][of] for n in ("STATEFIP", "COUNTY", "ENUMDIST", "GQ", "GQTYPE")}
        numbers |= {n: lines.whole(layout.field(n), people) for n in ("AGE", "RACE", "HISPAN")}
        state.households += units.size
        state.vacant += int((own["GQ"] == 0).sum())
        state.districts.update(np.unique(_district(own, state)).tolist())
        state.uneven += int((size[:-1] != held["NUMPREC"][:-1]).sum())
        if size.size:
            last, inside = {n: v[-1:] for n, v in held.items()}, int(size[-1])
        yield _count(
            numbers, state, lambda row, what, value, at=lines, p=people: at.refuse(int(p[row]), what, value)
        )
    if last["SERIAL"].size and inside != last["NUMPREC"][0] and "NUMPREC" in layout.fields:
        msg = f"{file.name} ends within a household: {last['NUMPREC'][0]} persons are announced and {inside} there: it was cut"
        raise FileFormatError(msg, inside)
    if "NUMPREC" not in layout.fields:
        state.uneven = 0


def _units(lines: Lines, rows: NDArray[np.int64], layout: Codebook) -> dict[str, NDArray[np.int64]]:
    """Numbers of household lines, checked."""
    own = {n: lines.whole(layout.field(n), rows) for n in ("SERIAL", "STATEFIP", "ENUMDIST", "GQ", "GQTYPE")}
    own["COUNTY"] = lines.whole(layout.field(*_COUNTY), rows)
    own["NUMPREC"] = (
        lines.whole(layout.fields["NUMPREC"], rows)
        if "NUMPREC" in layout.fields
        else np.zeros(rows.size, np.int64)
    )
    checks = [("GQ", _GQ), ("GQTYPE", GQTYPE)]
    if "YEAR" in layout.fields:
        own["YEAR"] = lines.whole(layout.fields["YEAR"], rows)
        checks.append(("YEAR", (1940,)))
    for name, codes in checks:
        bad = np.flatnonzero(~np.isin(own[name], codes))
        if bad.size:
            k = int(bad[0])
            lines.refuse(int(rows[k]), _said(name, own[name][k], codes), int(own[name][k]))
    return own


def _said(name: str, value: Any, codes: Sequence[int]) -> str:
    return f"{name} is {int(value)}: the codes of 1940 are {', '.join(map(str, codes))}"


def _district(numbers: Mapping[str, NDArray[np.int64]], state: _Reading) -> NDArray[np.int64]:
    code = (numbers["STATEFIP"] * 10_000 + numbers["COUNTY"]) * 10**state.width + numbers["ENUMDIST"]
    return np.asarray(code, np.int64)


def _count(numbers: dict[str, NDArray[np.int64]], state: _Reading, refuse: Any) -> int:
    """Check and count some people; ``refuse(row, what, value)`` names the line."""
    checks = [("GQ", _GQ), ("GQTYPE", GQTYPE), ("RACE", RACE), ("HISPAN", HISPAN)]
    if "YEAR" in numbers:
        checks.append(("YEAR", (1940,)))
    for name, codes in checks:
        bad = np.flatnonzero(~np.isin(numbers[name], codes))
        if bad.size:
            refuse(int(bad[0]), _said(name, numbers[name][bad[0]], codes), int(numbers[name][bad[0]]))
    ghosts = np.flatnonzero(numbers["GQ"] == 0)
    if ghosts.size:
        refuse(
            int(ghosts[0]), "a person in a vacant unit (GQ 0): the columns may be those of another extract", 0
        )
    age, missing = numbers["AGE"], numbers["AGE"] == _MISSING_AGE
    bad = np.flatnonzero((age > _OLDEST) & ~missing)
    if bad.size:
        refuse(
            int(bad[0]),
            f"AGE is {int(age[bad[0]])}: an age is 0 to {_OLDEST}, 999 if missing",
            int(age[bad[0]]),
        )
    if missing.any() and state.missing_age == "refuse":
        said = "AGE is 999, missing: say missing_age='adult' or 'leave out'"
        refuse(int(missing.argmax()), said, _MISSING_AGE)
    state.left_out += int(missing.sum())
    kept = ~missing if state.missing_age == "leave out" else np.ones(age.size, bool)
    axes = (
        (age >= _ADULT).astype(np.int64),
        np.searchsorted(HISPAN, numbers["HISPAN"]),
        np.searchsorted(GQTYPE, numbers["GQTYPE"]),
        numbers["RACE"] - 1,
    )
    cell = np.ravel_multi_index(tuple(a[kept] for a in axes), PERSONS_1940.sizes)
    area = _district(numbers, state)
    state.districts.update(np.unique(area).tolist())
    state.tally.add(area[kept], np.asarray(cell, np.int64))
    return int(age.size)


def _csv(file: Path, book: Codebook | None, state: _Reading) -> Iterator[int]:
    """Rectangular rows; IPUMS writes codes as numbers there, so zeros are filled to the widths of the codebook."""
    with file.open(encoding="utf-8-sig", newline="") as handle:
        lines = csv.reader(handle)
        header = [name.strip().upper() for name in _rows(lines, file, 1, 1)[0]]
        if "RECTYPE" in header:
            msg = f"{file.name}: a hierarchical CSV file: order the extract as rectangular, or as fixed width"
            raise FileFormatError(msg, "RECTYPE")
        county = next((c for c in _COUNTY if c in header), "COUNTY")
        names = {n: n for n in _PERSON} | {"COUNTY": county}
        if "YEAR" in header:
            names["YEAR"] = "YEAR"
        lacking = [n for n in names.values() if n not in header]
        if lacking:
            msg = f"{file.name}: no column {lacking[0]!r} in the header: add the variable to the extract"
            raise FileFormatError(msg, lacking[0])
        width = 4 if book is None else book.field("ENUMDIST").width
        _set_width(state, width, file.name)
        state.county = county
        widest = {"STATEFIP": 2, "COUNTY": 4, "ENUMDIST": width}
        start = 2
        while rows := _rows(lines, file, start, _ROWS_AT_ONCE):
            short = next((i for i, row in enumerate(rows) if len(row) != len(header)), None)
            if short is not None:
                _refuse_row(file, start, short, f"{len(rows[short])} fields for {len(header)} columns", short)
            columns = list(zip(*rows, strict=True))
            numbers = {n: _numbers(columns[header.index(c)], c, (file, start)) for n, c in names.items()}
            for name, digits in widest.items():
                bad = np.flatnonzero(numbers[name] >= 10**digits)
                if bad.size:
                    value = int(numbers[name][bad[0]])
                    said = (
                        f"{name} is {value}, which has more than {digits} digits: give the extract's codebook"
                    )
                    _refuse_row(file, start, int(bad[0]), said, value)

            def refuse(row: int, what: str, value: Any, at: int = start) -> None:
                _refuse_row(file, at, row, what, value)

            yield _count(numbers, state, refuse)
            start += len(rows)


def _rows(lines: Any, file: Path, start: int, n: int) -> list[list[str]]:
    try:
        rows = list(islice(lines, n))
    except (csv.Error, UnicodeError) as error:
        msg = f"{file.name} after line {start - 1}: no rows of a CSV file in UTF-8 ({shown(str(error))}): take IPUMS's file"
        raise FileFormatError(msg, start) from error
    if start == 1 and not rows:
        msg = f"{file.name} is empty: take IPUMS's file"
        raise FileFormatError(msg, file.name)
    long = next((i for i, row in enumerate(rows) if max(map(len, row), default=0) > LONGEST_FIELD), None)
    if long is not None:
        _refuse_row(file, start, long, f"a field of over {LONGEST_FIELD} characters", long)
    return rows


def _refuse_row(file: Path, start: int, row: int, what: str, value: Any) -> None:
    msg = f"{file.name} line {start + row}: {what}"
    raise FileFormatError(msg, value)


def _numbers(column: Sequence[str], name: str, where: tuple[Path, int]) -> NDArray[np.int64]:
    bad = next(
        (
            i
            for i, c in enumerate(column)
            if not (c.strip().isascii() and c.strip().isdigit() and len(c.strip()) <= 12)
        ),
        None,
    )
    if bad is not None:
        said = f"{name} is {shown(column[bad])}, but a whole number is expected"
        _refuse_row(where[0], where[1], bad, said, column[bad])
    return np.array([int(c.strip()) for c in column], np.int64)  # int() alone strips fewer characters


def _notes(state: _Reading, counts: BlockCounts) -> tuple[str, ...]:
    out = ["ENUMDIST repeats between counties: a district's code is state, county and number"]
    if state.county == "COUNTYNHG":
        out.append("counties are those of NHGIS (COUNTYNHG), not the ICPSR codes of the 1940 test data")
    if state.uneven:
        out.append(
            f"{state.uneven:,} households have another number of persons than NUMPREC says: an extract of some people?"
        )
    if state.left_out:
        what = "counted as adults" if state.missing_age == "adult" else "left out"
        out.append(f"{state.left_out:,} people of unknown age were {what}")
    origin = np.unravel_index(counts.cell, PERSONS_1940.sizes)[1]
    unknown = int(counts.count[origin == len(HISPAN) - 1].sum())
    if unknown:
        out.append(f"{unknown:,} people did not report an origin (HISPAN 9): a cell of its own in the 864")
    return tuple(out)
