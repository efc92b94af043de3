"""Layout of the 2020 PL 94-171 files, and the sums that must hold in them.

What it is: the places of the columns, the names the Bureau gives them, and the checks that the published
tables of a geounit agree with each other. What it is not: a reader (that is pl94.py, which re-exports the
public names here). Held to account by tests/readers/test_pl94.py. Source: technical documentation of the 2020
PL 94-171 summary file.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adversary.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_ALONE = ("white", "black", "aian", "asian", "nhopi", "sor")
RACES: tuple[str, ...] = tuple("+".join(c) for k in range(1, 7) for c in combinations(_ALONE, k))
"""The 63 races in the order of the tables: one race, then every combination of two, of three, ... of six."""

AXES: dict[str, tuple[str, ...]] = {
    "votingage": ("under_18", "18_and_over"),
    "hispanic": ("not_hispanic", "hispanic"),
    "cenrace": RACES,
}
"""Axes of `Pl94Table.histogram` after the first, and the labels along each."""

QUERIES: tuple[str, ...] = (
    "votingage",
    "hispanic",
    "cenrace",
    "votingage * hispanic",
    "votingage * cenrace",
    "hispanic * cenrace",
    "votingage * hispanic * cenrace",
)
"""Queries whose counts P1 to P4 determine; those with group quarters by race are in no published table."""

LEVELS: dict[str, str] = {
    "state": "040",
    "county": "050",
    "tract": "140",
    "block_group": "150",
    "block": "750",
}
"""Levels that can be read and the summary level (SUMLEV) that marks their rows."""

WIDTH = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
GEO_COLUMNS = 97
SUMLEV, GEOCOMP, LOGRECNO, GEOID, GEOCODE, NAME, POP100 = 2, 4, 7, 8, 9, 87, 90
SEGMENT_COLUMNS = {1: 149, 2: 152, 3: 15}
KEY = 5  # FILEID, STUSAB, CHARITER, CIFSN, LOGRECNO stand before the first count of a segment
LIMIT = 2**53

# A race table: the total, the people of one race, six leaves, "two or more", then for each of two to six
# races a subtotal and its leaves. Pairs of (column of the subtotal, columns of its leaves), counted from 0.
SUBTOTALS: tuple[tuple[int, range], ...] = (
    (1, range(2, 8)),
    (9, range(10, 25)),
    (25, range(26, 46)),
    (46, range(47, 62)),
    (62, range(63, 69)),
    (69, range(70, 71)),
)
RACE_LEAVES = np.array([column for _, leaves in SUBTOTALS for column in leaves])
P5_LEAVES = np.array([2, 3, 4, 5, 7, 8, 9])
SECOND = 71 + 2  # a table by Hispanic origin has the total and the Hispanic people before its race table
H1 = 71 + 73


def query_axes(query: str) -> tuple[str, tuple[str, ...]]:
    """Return a query's name as `QUERIES` writes it, and its axes.

    Examples
    --------
    >>> query_axes("Hispanic*CENRACE")
    ('hispanic * cenrace', ('hispanic', 'cenrace'))
    """
    parts = [part.strip() for part in str(query).lower().split("*")]
    name = " * ".join(parts)
    if name not in QUERIES:
        msg = f"tables P1 to P4 do not give the counts of query {query!r}: choose one of {'; '.join(QUERIES)}"
        raise FileFormatError(msg, query)
    return name, tuple(parts)


def cell_labels(axes: Sequence[str], cell: NDArray[np.intp]) -> dict[str, NDArray[np.str_]]:
    """Return the labels of cells of `Pl94Table.marginal` along every axis; ``*`` along those summed over.

    Examples
    --------
    >>> labels = cell_labels(("hispanic", "cenrace"), np.array([64]))
    >>> {axis: str(label[0]) for axis, label in labels.items()}
    {'votingage': '*', 'hispanic': 'hispanic', 'cenrace': 'black'}
    """
    at = dict(zip(axes, np.unravel_index(cell, [len(AXES[axis]) for axis in axes]), strict=True))
    return {
        axis: np.array(labels)[at[axis]] if axis in at else np.full(cell.shape, "*")
        for axis, labels in AXES.items()
    }


class Geography(NamedTuple):
    """Rows of one level of the geographic header."""

    file: str
    lines: NDArray[np.int64]
    logrecno: NDArray[np.int64]
    geoid: NDArray[np.str_]
    name: NDArray[np.str_]
    population: NDArray[np.int64]


class Segment(NamedTuple):
    """Counts of the same rows from one segment, every column after the key."""

    file: str
    number: int
    lines: NDArray[np.int64]
    counts: NDArray[np.int64]


def field_name(number: int, at: int) -> str:
    """Return the Bureau's name of count ``at`` of segment ``number``: P0010001 and so on."""
    tables = {
        1: (("P001", 71), ("P002", 73)),
        2: (("P003", 71), ("P004", 73), ("H001", 3)),
        3: (("P005", 10),),
    }
    for table, length in tables[number]:
        if at < length:
            return f"{table}{at + 1:04d}"
        at -= length
    raise AssertionError(number)


class TableCheck:
    """Refuses the first row whose published tables contradict themselves, each other or the header."""

    def __init__(self, geo: Geography, segments: Mapping[int, Segment]) -> None:
        self.geo, self.segments = geo, segments

    def run(self) -> None:
        """Check everything; silent if all adds up."""
        first, second, third = (self.segments[number] for number in (1, 2, 3))
        for segment in (first, second):
            self._race_table(segment, 0)
            total, hispanic, other = (segment.counts[:, 71 + i] for i in range(3))
            self._agree(segment, 71, total, hispanic + other, "Hispanic and not Hispanic")
            self._race_table(segment, SECOND)
            self._agree(segment, 71, total, segment.counts[:, 0], field_name(segment.number, 0))
        units = second.counts[:, H1:]
        self._agree(second, H1, units[:, 0], units[:, 1] + units[:, 2], "occupied and vacant")
        people = third.counts
        self._agree(third, 1, people[:, 1], people[:, 2:6].sum(axis=1), "its four kinds")
        self._agree(third, 6, people[:, 6], people[:, 7:10].sum(axis=1), "its three kinds")
        self._agree(third, 0, people[:, 0], people[:, 1] + people[:, 6], "the two parts")
        # HU100 is not compared with H0010001: where there are group quarters, the 2018 test file counts them
        # in it
        self._agree(first, 0, first.counts[:, 0], self.geo.population, f"POP100 of {self.geo.file}")
        self._part(third, "P0050001", people[:, 0], first.counts[:, 0], "P0010001")
        for column, race in zip(RACE_LEAVES.tolist(), RACES, strict=True):
            self._parts_of(column, race)

    def _race_table(self, segment: Segment, start: int) -> None:
        table = segment.counts[:, start : start + 71]
        for subtotal, leaves in SUBTOTALS:
            made = table[:, leaves.start : leaves.stop].sum(axis=1)
            self._agree(segment, start + subtotal, table[:, subtotal], made, "its races")
        more = table[:, [column for column, _ in SUBTOTALS[1:]]].sum(axis=1)
        self._agree(segment, start + 8, table[:, 8], more, "two to six races")
        self._agree(segment, start, table[:, 0], table[:, 1] + table[:, 8], "one race and more")

    def _parts_of(self, column: int, race: str) -> None:
        """Adults are a part of everybody and people who are not Hispanic a part of all, race by race."""
        first, second = self.segments[1], self.segments[2]
        p1, p2 = first.counts[:, column], first.counts[:, SECOND + column]
        p3, p4 = second.counts[:, column], second.counts[:, SECOND + column]
        n1, n2 = field_name(1, column), field_name(1, SECOND + column)
        n3, n4 = field_name(2, column), field_name(2, SECOND + column)
        self._part(first, n2, p2, p1, f"{n1} ({race})")
        self._part(second, n3, p3, p1, f"{n1} ({race})")
        self._part(second, n4, p4, p3, f"{n3} ({race})")
        self._part(second, n4, p4, p2, f"{n2} ({race})")
        self._part(second, f"{n3} - {n4}", p3 - p4, p1 - p2, f"{n1} - {n2} (Hispanic, {race})")

    def _agree(
        self, segment: Segment, at: int, value: NDArray[np.int64], wanted: NDArray[np.int64], what: str
    ) -> None:
        bad = np.flatnonzero(value != wanted)
        if bad.size:
            row = int(bad[0])
            name = field_name(segment.number, at)
            self._refuse(segment, row, f"{name} is {value[row]} but {what} make {wanted[row]}")

    def _part(
        self, segment: Segment, name: str, part: NDArray[np.int64], whole: NDArray[np.int64], what: str
    ) -> None:
        bad = np.flatnonzero(part > whole)
        if bad.size:
            row = int(bad[0])
            self._refuse(
                segment, row, f"{name} is {part[row]}, more than {what}, of which it is a part: {whole[row]}"
            )

    def _refuse(self, segment: Segment, row: int, text: str) -> None:
        geoid = str(self.geo.geoid[row])
        where = (
            f"{segment.file}, line {segment.lines[row]} (LOGRECNO {self.geo.logrecno[row]}, geoid {geoid})"
        )
        msg = f"{where}: {text}; the file is damaged or joins rows of different releases: download it again"
        raise FileFormatError(msg, geoid)
