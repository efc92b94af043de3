"""The tables that put rows on a block: census tables of households and HUD's Picture.

What it is: the queries that 2010-style block tables and the project-level Picture of Subsidized Households
answer, what HUD would print about a block, and the reading of what it printed back into intervals. A whole
percent of n households is an interval of counts; for n < 100 that interval holds at most one count, so the
rounding protects nothing. -4 (suppressed) says that at most ten families reported; -1 (missing) and -5
(non-reporting) say nothing.

What it is not: a file reader, no noise, and no tables of persons (:mod:`adversary.reconstruction.pl94`).

Held to account by tests/reconstruction/test_constraints.py. Sources: arXiv 2407.04776, section 3; the table
shells of the 2010 Summary File 1; the file layout of HUD's Picture of Subsidized Households (codes: -1
missing, -4 suppressed, -5 non-reporting).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary.errors import ModelError, ReleaseError
from adversary.reconstruction.constraints import LARGEST, UNBOUNDED, Constraints, Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.households import Configurations

    _Named = tuple[str, str, NDArray[Any], str]
    _Rule = Callable[[Configurations], NDArray[np.bool_]]

__all__ = [
    "HUD_PERCENTS",
    "MISSING",
    "NON_REPORTING",
    "SUPPRESSED",
    "HudRecord",
    "census_queries",
    "hud_constraints",
    "hud_queries",
    "printed_hud",
    "publish_hud",
]

MISSING, SUPPRESSED, NON_REPORTING = -1, -4, -5
_FEWEST = 11  # HUD prints characteristics of a property only if at least so many families reported


def census_queries(configurations: Configurations, tables: str = "base") -> Queries:
    """Return the census tables of one block as queries over household configurations.

    Parameters
    ----------
    configurations
        A table with the attributes size, children, elderly, race (see `household_configurations`).
    tables
        ``"base"``: H3 (households), H13 (by size, 7+ last), H7 (by race and ethnicity), P16 (people under 18
        and over), P19 (with people under 18), P25 (with people of 65 and over). ``"rich"``: also size, people
        by age and children by race of the householder (P28A-I, P16A-I, P19A-I).

    Returns
    -------
    Queries
        In the order above; universe ``"household"`` or ``"person"``.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> queries = census_queries(household_configurations(census_only=True))
    >>> len(queries), queries.table[1], queries.cell[7]
    (20, 'H13', '7+ persons')
    """
    if tables not in {"base", "rich"}:
        msg = f"no set of tables {tables!r}: choose base or rich"
        raise ModelError(msg, tables)
    z, c = configurations.number("size"), configurations.number("children")
    race = configurations.labels("race")
    races = configurations.attribute("race").levels
    rows: list[_Named] = []
    rows.append(("H3", "households", np.ones(len(z), np.int64), "household"))
    rows += _sizes("H13", z, np.ones(len(z), bool))
    rows += [("H7", label, race == label, "household") for label in races]
    rows += [("P16", "under 18", c, "person"), ("P16", "18 and over", z - c, "person")]
    rows.append(("P19", "with people under 18", c > 0, "household"))
    rows.append(("P25", "with people of 65 and over", configurations.labels("elderly") == "yes", "household"))
    if tables == "rich":
        for label in races:
            its = race == label
            rows += _sizes(f"P28 {label}", z, its)
            rows.append((f"P16 {label}", "under 18", c * its, "person"))
            rows.append((f"P19 {label}", "with people under 18", its & (c > 0), "household"))
    return _queries(configurations, rows)


def _sizes(table: str, z: NDArray[np.int64], its: NDArray[np.bool_]) -> list[_Named]:
    rows = [(table, f"{j} person{'s' if j > 1 else ''}", its & (z == j), "household") for j in range(1, 7)]
    return [*rows, (table, "7+ persons", its & (z >= 7), "household")]


def _queries(configurations: Configurations, rows: Sequence[_Named]) -> Queries:
    matrix = np.array([row[2] for row in rows], dtype=np.int64).reshape(len(rows), len(configurations))
    table, cell, universe = (tuple(str(row[i]) for row in rows) for i in (0, 1, 3))
    return Queries(configurations, matrix, table, cell, universe)


def _hispanic(t: Configurations) -> NDArray[np.bool_]:
    return np.array(
        [label == "hispanic" or label.endswith("_hispanic") for label in t.labels("race")], dtype=bool
    )


def _is(name: str, level: str) -> _Rule:
    return lambda t: np.asarray(t.labels(name) == level)


def _with_children(adults: Callable[[NDArray[np.int64]], NDArray[np.bool_]]) -> _Rule:
    return lambda t: (t.number("children") > 0) & adults(t.number("size") - t.number("children"))


HUD_PERCENTS: Mapping[str, _Rule] = MappingProxyType(
    {
        "pct_bed1": _is("bedrooms", "0-1"),
        "pct_bed2": _is("bedrooms", "2"),
        "pct_bed3": _is("bedrooms", "3+"),
        "pct_minority": lambda t: np.asarray(t.labels("race") != "white_nonhispanic"),
        "pct_black_nonhsp": _is("race", "black_nonhispanic"),
        "pct_hispanic": _hispanic,
        "pct_1adult": _with_children(lambda adults: adults == 1),
        "pct_2adults": _with_children(lambda adults: adults >= 2),
        "pct_age62plus": _is("elderly", "yes"),
    }
)
"""Fields of HUD's file that are percentages of reporting households, and whom each counts.

`pct_age62plus` is read as the census's elderly households; where the two differ, leave it out or allow a
tolerance."""


@dataclass(frozen=True)
class HudRecord:
    """One property's line of HUD's Picture of Subsidized Households, as printed.

    Attributes
    ----------
    total_units, number_reported
        Units, and households that reported; or a code (-1 missing, -4 suppressed, -5 non-reporting).
    pct_occupied
        Whole percent of the units, or a code.
    people_per_unit
        Mean persons a reporting household, one decimal, or a code.
    percents
        Whole percents of the reporting households, by field (`HUD_PERCENTS`), or codes.
    """

    total_units: int = MISSING
    number_reported: int = MISSING
    pct_occupied: int = MISSING
    people_per_unit: float = MISSING
    percents: Mapping[str, float] = field(default_factory=dict)


def hud_queries(configurations: Configurations, home: str = "1") -> Queries:
    """Return what HUD counts about one property, as exact queries.

    Households, persons, and the count behind every percentage, in the order of `HUD_PERCENTS`.

    Parameters
    ----------
    configurations
        A table with property and bedrooms.
    home
        Level of ``property``.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> hud_queries(household_configurations()).cell[:3]
    ('households', 'people_per_unit', 'pct_bed1')
    """
    its = configurations.mask({"property": home})
    table = f"HUD {home}"
    rows = [
        (table, "households", its.astype(np.int64), "hud"),
        (table, "people_per_unit", its * configurations.number("size"), "hud"),
        *((table, name, its & rule(configurations), "hud") for name, rule in HUD_PERCENTS.items()),
    ]
    return _queries(configurations, rows)


def publish_hud(configurations: Configurations, counts: ArrayLike, home: str = "1") -> HudRecord:
    """Print a property of a known block as HUD would: rounded, and suppressed below 11 households.

    Parameters
    ----------
    configurations, counts
        The block.
    home
        Level of ``property``.

    Returns
    -------
    HudRecord
        With everybody reporting and all units occupied.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> table = household_configurations()
    >>> couples = table.histogram([[1, 1, 1, 0, 0, 0]]) * 12  # in property 1, 0-1 bedrooms, size 2
    >>> printed = publish_hud(table, couples)
    >>> printed.number_reported, printed.people_per_unit, printed.percents["pct_bed1"]
    (12, 2.0, 100.0)
    >>> publish_hud(table, couples // 2).number_reported
    -4
    """
    return printed_hud(hud_queries(configurations, home).answers(counts).tolist())


def printed_hud(answers: Sequence[int]) -> HudRecord:
    """Print the counts behind a line of HUD's file (`hud_queries`), which may be noisy.

    Parameters
    ----------
    answers
        Households, persons, and the count behind every percentage. Negative percents and those above 100, and
        fewer persons than households, are set to the nearest value that can be printed.

    Examples
    --------
    >>> printed_hud([20, 15, 25, -3, 0, 0, 0, 0, 0, 0, 0]).percents["pct_bed1"]
    100.0
    """
    n, people, *parts = answers
    if n < _FEWEST:
        hidden = dict.fromkeys(HUD_PERCENTS, float(SUPPRESSED))
        return HudRecord(SUPPRESSED, SUPPRESSED, SUPPRESSED, SUPPRESSED, hidden)
    within = [min(max(y, 0), n) for y in parts]
    percents = {name: float((200 * y + n) // (2 * n)) for name, y in zip(HUD_PERCENTS, within, strict=True)}
    return HudRecord(n, n, 100, (20 * max(people, n) + n) // (2 * n) / 10, percents)


class _Interval(NamedTuple):
    low: int
    high: int


def hud_constraints(
    configurations: Configurations, record: HudRecord, home: str = "1", tolerance: Mapping[str, int] | int = 0
) -> Constraints:
    """Turn a printed line of HUD's file into rows on the block.

    Parameters
    ----------
    configurations
        A table with property and bedrooms.
    record
        The line.
    home
        Level of ``property`` that the line describes.
    tolerance
        Households (or persons) by which every row may be off, or a mapping from cell to that; for differences
        of date and definition between the two sources.

    Returns
    -------
    Constraints
        Table ``HUD <home>``; ``.notes`` names the fields that gave no row.

    Raises
    ------
    ReleaseError
        A value that its field cannot have: an unknown code, more than 100 percent, more decimals than are
        printed; a tolerance that is negative, not whole, or of a cell that HUD does not print.

    Notes
    -----
    A whole percent p of R reporting households is ``ceil(R (2p - 1) / 200) <= count <= floor(R (2p + 1) /
    200)``, a mean m to one decimal likewise, in exact arithmetic. Households of the property that did not
    report may be anything, so the upper ends grow by their greatest number. A suppressed number of reports
    leaves at most 10 households in the property, which takes it that all of them report.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> line = HudRecord(total_units=250, number_reported=250, pct_occupied=100, percents={"pct_bed1": 40})
    >>> rows = hud_constraints(household_configurations(), line)
    >>> rows.row(1)
    Row(table='HUD 1', cell='pct_bed1', low=99, high=101)
    """
    queries = hud_queries(configurations, home)
    slack = _tolerances(tolerance, queries.cell)
    reported, households, notes = _households(record, home)
    low, high, keep = [households.low - slack["households"]], [households.high + slack["households"]], [0]
    largest = max(configurations.attribute("size").values)
    printed: dict[str, float] = {"people_per_unit": record.people_per_unit, **record.percents}
    for name, value in printed.items():
        if name not in queries.cell:
            msg = f"HUD {home} has a field {name!r} that is not read: use {', '.join(HUD_PERCENTS)}"
            raise ReleaseError(msg, name)
        ends = _printed(value, reported, mean=name == "people_per_unit", where=f"HUD {home} {name}")
        if ends is None:
            notes.append(f"HUD {home} {name}: no row, {_reason(value)}")
            continue
        silent = min(households.high, LARGEST) - reported.low
        each = largest if name == "people_per_unit" else 1
        bounded = households.high < UNBOUNDED
        low.append(ends.low - slack[name])
        high.append(ends.high + silent * each + slack[name] if bounded else UNBOUNDED)
        keep.append(queries.cell.index(name))
    return Constraints(
        configurations,
        queries.matrix[keep],
        np.maximum(np.array(low, dtype=np.int64), 0),
        np.array(high, dtype=np.int64),
        tuple(queries.table[i] for i in keep),
        tuple(queries.cell[i] for i in keep),
        tuple(notes),
    )


def _tolerances(given: Mapping[str, int] | int, cells: Sequence[str]) -> dict[str, int]:
    """Return the tolerance of every cell: a negative one would claim more than is printed, a misspelt one less."""
    told = dict(given) if isinstance(given, Mapping) else dict.fromkeys(cells, given)
    for cell, value in told.items():
        if cell not in cells:
            msg = f"a tolerance for {cell!r}, which HUD does not print: use {', '.join(cells)}"
            raise ReleaseError(msg, cell)
        if not isinstance(value, int | np.integer) or value < 0:
            msg = f"a tolerance of {value!r} for {cell}: give a whole number of households (or persons), 0 or more"
            raise ReleaseError(msg, value)
    return {cell: int(told.get(cell, 0)) for cell in cells}


def _households(record: HudRecord, home: str) -> tuple[_Interval, _Interval, list[str]]:
    """Return intervals for the reporting households and for all households of a property."""
    notes: list[str] = []
    for name in ("total_units", "number_reported", "pct_occupied"):
        value = getattr(record, name)
        _check_code(value, f"HUD {home} {name}")
        if value != int(value) or (name == "pct_occupied" and value > 100):
            msg = f"HUD {home} {name} is {value}: it is printed as a whole number, percents up to 100"
            raise ReleaseError(msg, value)
        if value < 0 and not (name == "number_reported" and value == SUPPRESSED):
            notes.append(f"HUD {home} {name}: no row, {_reason(value)}")
    occupied = _Interval(0, UNBOUNDED)
    if record.total_units >= 0:
        occupied = _Interval(0, record.total_units)
        if record.pct_occupied >= 0:
            occupied = _share(record.pct_occupied, record.total_units, 200)
            occupied = _Interval(occupied.low, min(occupied.high, record.total_units))
    if record.number_reported == SUPPRESSED:
        reported = _Interval(0, _FEWEST - 1)
        if (
            occupied.low >= _FEWEST
        ):  # more households than could report: some did not, and -4 bounds only reports
            return reported, occupied, notes
        return reported, _Interval(occupied.low, min(_FEWEST - 1, occupied.high)), notes
    if record.number_reported < 0:
        return _Interval(0, UNBOUNDED), occupied, notes
    reported = _Interval(record.number_reported, record.number_reported)
    return reported, _Interval(max(reported.low, occupied.low), occupied.high), notes


def _printed(value: float, reported: _Interval, *, mean: bool, where: str) -> _Interval | None:
    """Return the interval of counts that a printed percent or mean stands for, None if there is none."""
    _check_code(value, where)
    if value < 0:
        return None
    printed = round(value * 10) if mean else round(value)
    if mean and abs(value * 10 - printed) > 1e-6:
        msg = f"{where} is {value}: it is printed with one decimal"
        raise ReleaseError(msg, value)
    if not mean and (value != printed or value > 100):
        msg = f"{where} is {value}: it is printed as a whole percent from 0 to 100"
        raise ReleaseError(msg, value)
    if reported.low != reported.high or reported.low == 0:
        return None
    if mean:
        return _share(printed, reported.low, 20)
    ends = _share(printed, reported.low, 200)
    return _Interval(ends.low, min(ends.high, reported.low))


def _share(printed: int, base: int, halves: int) -> _Interval:
    """Invert rounding: counts y with ``printed - 1/2 <= y * (halves / 2) / base <= printed + 1/2``."""
    return _Interval(max(-((base * (1 - 2 * printed)) // halves), 0), base * (2 * printed + 1) // halves)


def _check_code(value: float, where: str) -> None:
    if np.isnan(value) or value > LARGEST:
        msg = f"{where} is {value}: write -1 for a missing value; counts go up to {LARGEST}"
        raise ReleaseError(msg, value)
    if value < 0 and value not in {MISSING, SUPPRESSED, NON_REPORTING}:
        msg = f"{where} is {value}: codes are -1 missing, -4 suppressed, -5 non-reporting"
        raise ReleaseError(msg, value)


def _reason(value: float) -> str:
    codes = {MISSING: "missing (-1)", SUPPRESSED: "suppressed (-4)", NON_REPORTING: "non-reporting (-5)"}
    return codes.get(int(value), "the number of reporting households is not known")
