"""Census microdata samples (PUMS): household and person files of a state, joined and counted.

What it is: a reader of the csv files of the American Community Survey's PUMS (``psam_h44.csv``,
``psam_p44.csv``, or one file of both). All columns stay text; ``SERIALNO`` is never a number (recent years
write ``2020GQ0000123``, and a number would lose leading zeros and join wrong households). `household_table`
turns persons into the households of the reconstruction: size, children, elderly, race of the householder,
with weights. What it is not: the configurations themselves (:mod:`adversary.reconstruction.households`), the
fixed-width PUMS of 2000 and before, or a check of the Bureau's weights.

Households of vacant units (no persons) and group quarters are left out of `household_table` and counted in
its notes. PUMA codes follow the census of 2010 in files up to 2021 and that of 2020 from 2022; five-year
files of 2022-25 mix both (``PUMA10`` and ``PUMA20``): `Pums.puma` refuses to mix them.

Held to account by tests/readers/test_pums.py, on files written there. Source: the Bureau's ACS PUMS data
dictionaries (RAC1P, HISP, RELSHIPP since 2019, RELP before).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

import numpy as np

from adversary._files import csv_rows
from adversary.errors import FileFormatError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["HouseholdTable", "Pums", "household_table", "read_pums"]

_LARGEST = 2**53
_HOUSEHOLDER = {"RELSHIPP": "20", "RELP": "0", "REL": "0"}
_GROUP_QUARTERS = {"RELSHIPP": {"37", "38"}, "RELP": {"16", "17"}, "REL": {"13", "14"}}
_RACES = MappingProxyType(
    {
        "1": "white",
        "2": "black",
        "3": "aian",
        "4": "aian",
        "5": "aian",
        "6": "asian",
        "7": "nhopi",
        "8": "other",
        "9": "two_or_more",
    }
)
"""RAC1P, the three codes of American Indians and Alaska Natives together."""


@dataclass(frozen=True, eq=False)
class Pums:
    """Person records of a sample.

    Attributes
    ----------
    columns
        Every column as text, by its name in upper case; arrays of one length.
    weight
        Person weights (``PWGTP``), int64; ones if the file has none.
    sources
        Names of the files.
    """

    columns: Mapping[str, NDArray[np.str_]]
    weight: NDArray[np.int64]
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.weight)

    def __repr__(self) -> str:
        return f"<Pums: {len(self)} persons, {len(self.columns)} columns of {', '.join(self.sources)}>"

    def text(self, name: str) -> NDArray[np.str_]:
        """Return a column as text.

        Parameters
        ----------
        name
            Name of the column, upper case.
        """
        if name not in self.columns:
            msg = f"{', '.join(self.sources)} has no column {name!r}: there are {', '.join(self.columns)}"
            raise FileFormatError(msg, name)
        return self.columns[name]

    def whole(self, name: str) -> NDArray[np.int64]:
        """Return a column as whole numbers; a blank is refused.

        Parameters
        ----------
        name
            Name of the column, upper case.
        """
        cells = self.text(name)
        return np.array([_whole(c, name, self.sources[0], i) for i, c in enumerate(cells.tolist())], np.int64)

    @property
    def puma(self) -> tuple[NDArray[np.str_], str | None]:
        """PUMA of every person (five digits, zeros in front), and the census whose PUMAs they are.

        Raises
        ------
        FileFormatError
            For a five-year file that mixes PUMAs of both censuses.
        """
        both = [name for name in ("PUMA10", "PUMA20") if name in self.columns]
        if both:
            used = [n for n in both if not np.isin(self.columns[n], ["", "-9", "-0009", "-00009"]).all()]
            if len(used) != 1:
                msg = f"{self.sources[0]} mixes PUMAs of 2010 and 2020: take the years of one vintage"
                raise FileFormatError(msg, tuple(both))
            return _padded(self.columns[used[0]]), "20" + used[0][-2:]
        return _padded(self.text("PUMA")), None


@dataclass(frozen=True, eq=False)
class HouseholdTable:
    """Households of the sample, one a row.

    Attributes
    ----------
    serial
        ``SERIALNO``, text.
    size, children, adults
        Persons; under 18; 18 and over; int64.
    elderly
        Whether somebody is 65 or over, bool.
    race
        Race of the householder, Hispanic people apart: labels of
        ``adversary.reconstruction.households.RACES_8``.
    weight
        The householder's person weight, int64.
    notes
        What was left out.
    """

    serial: NDArray[np.str_]
    size: NDArray[np.int64]
    children: NDArray[np.int64]
    adults: NDArray[np.int64]
    elderly: NDArray[np.bool_]
    race: NDArray[np.str_]
    weight: NDArray[np.int64]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.serial)


def read_pums(*paths: str | Path, columns: Sequence[str] | None = None) -> Pums:
    r"""Read person files (or files of both record types) of a census microdata sample.

    Parameters
    ----------
    *paths
        One or more csv files with the same columns; a state with parts a, b, ... is read from all of them.
    columns
        Columns to keep beside SERIALNO; None for all (PUMS has 280).

    Returns
    -------
    Pums
        Lines of persons only: where a column ``RT`` (or ``RECTYPE``) tells, lines of housing units are passed
        over.

    Raises
    ------
    FileFormatError
        No SERIALNO, a line of another length, or a serial number that went through a spreadsheet
        (``2.02E+12``).

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "psam_p44.csv"
    >>> _ = file.write_text("RT,SERIALNO,PUMA,PWGTP,AGEP,RAC1P,HISP,RELSHIPP\n"
    ...                     "P,0000123,00101,20,34,1,01,20\nP,0000123,00101,21,5,1,02,25\n")
    >>> sample = read_pums(file)
    >>> sample, sample.text("SERIALNO").tolist()
    (<Pums: 2 persons, 8 columns of psam_p44.csv>, ['0000123', '0000123'])
    >>> households = household_table(sample)
    >>> households.size.tolist(), households.children.tolist(), households.race.tolist()
    ([2], [1], ['white_nonhispanic'])
    >>> folder.cleanup()
    """
    if not paths:
        msg = "no file given: name one or more person files of the sample"
        raise FileFormatError(msg, paths)
    parts = [_read(Path(path), columns) for path in paths]
    names = list(parts[0])
    for path, part in zip(paths, parts, strict=True):
        if list(part) != names:
            msg = f"{Path(path).name} has other columns than {Path(paths[0]).name}: take files of one year"
            raise FileFormatError(msg, str(path))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in names}
    sources = tuple(Path(path).name for path in paths)
    weight = np.ones(len(joined["SERIALNO"]), dtype=np.int64)
    if "PWGTP" in joined:
        weight = np.array(
            [_whole(c, "PWGTP", sources[0], i) for i, c in enumerate(joined["PWGTP"].tolist())], np.int64
        )
    return Pums(MappingProxyType(joined), weight, sources)


def household_table(sample: Pums) -> HouseholdTable:
    """Count the persons of every household.

    Parameters
    ----------
    sample
        Person records.

    Raises
    ------
    FileFormatError
        A household without exactly one householder, an age or a race outside the dictionary.
    """
    relation = next((name for name in _HOUSEHOLDER if name in sample.columns), None)
    if relation is None:
        msg = f"{sample.sources[0]} has no relationship column: RELSHIPP, RELP or REL is needed"
        raise FileFormatError(msg, relation)
    link = np.array([c.lstrip("0") or "0" for c in sample.text(relation).tolist()], dtype=np.str_)
    quarters = np.isin(link, sorted(_GROUP_QUARTERS[relation]))
    serial, age = sample.text("SERIALNO")[~quarters], sample.whole("AGEP")[~quarters]
    if age.size and not (age.min() >= 0 and age.max() <= 130):
        bad = int(age.min() if age.min() < 0 else age.max())
        msg = f"{sample.sources[0]}: AGEP is {bad}: an age is 0 to 130"
        raise FileFormatError(msg, bad)
    names, at = np.unique(serial, return_inverse=True)
    at = at.ravel()
    heads = np.flatnonzero(link[~quarters] == _HOUSEHOLDER[relation])
    of = np.bincount(at[heads], minlength=len(names))
    if (of != 1).any():
        which = str(names[of != 1][0])
        n = int(of[of != 1][0])
        msg = f"{sample.sources[0]}: household {which} has {n} householders: the file may be cut, or serials clash"
        raise FileFormatError(msg, which)
    head = np.empty(len(names), dtype=np.int64)
    head[at[heads]] = heads
    size = np.bincount(at, minlength=len(names)).astype(np.int64)
    children = np.bincount(at, weights=age < 18, minlength=len(names)).astype(np.int64)
    elderly = np.bincount(at, weights=age >= 65, minlength=len(names)) > 0
    race = _race(sample, np.flatnonzero(~quarters)[head])
    left = f"{int(quarters.sum())} persons in group quarters left out"
    weight = sample.weight[~quarters][head]
    return HouseholdTable(names, size, children, size - children, elderly, race, weight, (left,))


def _race(sample: Pums, rows: NDArray[np.int64]) -> NDArray[np.str_]:
    out = []
    for code, origin in zip(
        sample.text("RAC1P")[rows].tolist(), sample.text("HISP")[rows].tolist(), strict=True
    ):
        if code not in _RACES:
            msg = f"{sample.sources[0]}: RAC1P is {code!r}: codes run from 1 to 9"
            raise FileFormatError(msg, code)
        if not (origin.isascii() and origin.isdigit()) or not 1 <= int(origin) <= 24:
            msg = f"{sample.sources[0]}: HISP is {origin!r}: codes run from 01 (not Hispanic) to 24"
            raise FileFormatError(msg, origin)
        out.append("hispanic" if int(origin) > 1 else f"{_RACES[code]}_nonhispanic")
    return np.array(out, dtype=np.str_)


def _read(path: Path, columns: Sequence[str] | None) -> dict[str, NDArray[np.str_]]:
    with _opened(path) as handle:
        lines = csv_rows(handle, path.name)
        header = [name.strip().upper() for name in next(lines, [])]
        if "SERIALNO" not in header:
            msg = f"{path.name}: no column 'SERIALNO' in the header: this is no PUMS file"
            raise FileFormatError(msg, "SERIALNO")
        wanted = header if columns is None else ["SERIALNO", *(c.upper() for c in columns)]
        unknown = [name for name in wanted if name not in header]
        if unknown:
            msg = f"{path.name}: no column {unknown[0]!r} in the header: check the year's dictionary"
            raise FileFormatError(msg, unknown[0])
        kept = dict.fromkeys(n for n in (*wanted, "PWGTP") if n in header)
        at = [header.index(name) for name in kept]
        kind = next((header.index(n) for n in ("RT", "RECTYPE") if n in header), None)
        body = []
        for i, row in enumerate(lines):
            if not row:
                continue
            if len(row) != len(header):
                msg = f"{path.name} row {i + 2}: {len(row)} fields for {len(header)} columns: the file may be cut"
                raise FileFormatError(msg, i + 2)
            if kind is None or row[kind].strip().upper() == "P":
                body.append([row[j].strip() for j in at])
    out = {name: np.array([row[j] for row in body], dtype=np.str_) for j, name in enumerate(kept)}
    spoiled = [s for s in out["SERIALNO"].tolist() if "E+" in s.upper() or "." in s or not s]
    if spoiled:
        msg = (
            f"{path.name}: SERIALNO is {spoiled[0]!r}: it went through a spreadsheet; take the Bureau's file"
        )
        raise FileFormatError(msg, spoiled[0])
    return out


def _opened(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error}): give a person file of the sample"
        raise FileFormatError(msg, path) from error


def _whole(cell: str, name: str, source: str, i: int) -> int:
    try:
        value = int(cell)
    except ValueError as error:
        msg = f"{source} person {i + 1}: {name} is {shown(cell)}, but a whole number belongs there"
        raise FileFormatError(msg, cell) from error
    if abs(value) > _LARGEST:
        msg = f"{source} person {i + 1}: {name} is {shown(cell)}, beyond 2^53: the file is damaged"
        raise FileFormatError(msg, cell)
    return value


def _padded(cells: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.array([cell.zfill(5) for cell in cells.tolist()], dtype=np.str_)
