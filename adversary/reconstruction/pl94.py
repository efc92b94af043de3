"""Redistricting tables (PL 94-171) of one block as rows over persons: race by Hispanic origin by voting age.

What it is: the 252 cells (or 2,016, crossed with group quarters) as configurations of persons, and tables P1
to P5 as rows on them, so that every question of :mod:`adversary.reconstruction.solve` can be asked of a real
block. P1 to P4 together fix all 252 cells (Hispanic adults of a race are P3 - P4, and so on): the tables
*are* the histogram. Leave a table out, or ask who lives in group quarters, and cells open up.

What it is not: an attack on confidential records. Published tables went through disclosure avoidance, so what
is rebuilt here is what was published.

Held to account by tests/reconstruction/test_pl94.py. Source: U.S. Census Bureau, 2020 Census State
Redistricting Data (Public Law 94-171) Summary File, tables P1 to P5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.readers.pl94 import AXES
from adversary.reconstruction.constraints import LARGEST, UNBOUNDED, Constraints
from adversary.reconstruction.households import Attribute, Configurations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from adversary.readers.pl94 import Pl94Table

__all__ = ["PL94_TABLES", "QUARTERS", "pl94_configurations", "pl94_constraints"]

PL94_TABLES: tuple[str, ...] = ("P1", "P2", "P3", "P4", "P5")
QUARTERS: tuple[str, ...] = (
    "household",
    "correctional",
    "juvenile",
    "nursing",
    "other institution",
    "college",
    "military",
    "other",
)
"""Where a person lives: in a household, or in one of the seven kinds of group quarters of table P5."""


def pl94_configurations(quarters: bool = False) -> Configurations:
    """Return the cells of persons: voting age x Hispanic x race, 252; with group quarters, 2,016.

    Examples
    --------
    >>> len(pl94_configurations()), len(pl94_configurations(quarters=True))
    (252, 2016)
    """
    axes = [Attribute(name, labels) for name, labels in AXES.items()]
    return Configurations.product(*([Attribute("quarters", QUARTERS)] if quarters else []), *axes)


def pl94_constraints(
    table: Pl94Table,
    block: str | int,
    tables: Sequence[str] = PL94_TABLES,
    *,
    quarters: bool = False,
    household_population: int | None = None,
    configurations: Configurations | None = None,
) -> Constraints:
    """Turn the redistricting tables of one block into rows.

    Parameters
    ----------
    table
        What `read_pl94` returns.
    block
        Code of the geounit, or its row.
    tables
        Which of P1 to P5 the attacker sees.
    quarters
        Cross the cells with group quarters (P5 then counts persons of each kind; otherwise it only bounds the
        total from below).
    household_population
        Persons in households from another source, if known (needs ``quarters``).
    configurations
        Ready table of `pl94_configurations` to share between blocks.

    Returns
    -------
    Constraints
        A row for the total and for each of 63 races in each of P1 to P4, and P5; zero cells included.

    Raises
    ------
    ModelError
        For a block or a table that is not there.

    Examples
    --------
    >>> from adversary.readers.pl94 import demo_folder, read_pl94
    >>> blocks = read_pl94(demo_folder())
    >>> rows = pl94_constraints(blocks, 0)
    >>> rows.tables, rows.satisfied_by(blocks.histogram()[0].ravel())
    (('P1', 'P2', 'P3', 'P4', 'P5'), True)
    """
    unknown = set(tables) - set(PL94_TABLES)
    if unknown:
        msg = f"no table {sorted(unknown)[0]!r}: choose among {', '.join(PL94_TABLES)}"
        raise ModelError(msg, sorted(unknown))
    at = _row_of(table, block)
    cells = configurations or pl94_configurations(quarters)
    rows: list[tuple[str, str, NDArray[np.bool_], int, int]] = []
    race, every = cells.labels("cenrace"), np.ones(len(cells), dtype=bool)
    not_hispanic, adult = (
        cells.labels("hispanic") == "not_hispanic",
        cells.labels("votingage") == "18_and_over",
    )
    wholes = {"P1": every, "P2": not_hispanic, "P3": adult, "P4": adult & not_hispanic}
    for name, whole in wholes.items():
        if name not in tables:
            continue
        counts: list[int] = getattr(table, name.lower())[at].tolist()
        rows.append((name, "total", whole, sum(counts), sum(counts)))
        for label, count in zip(AXES["cenrace"], counts, strict=True):
            rows.append((name, label, whole & (race == label), count, count))
    if "P5" in tables:
        people: list[int] = table.p5[at].tolist()
        if quarters:
            homes = cells.labels("quarters")
            for label, count in zip(QUARTERS[1:], people, strict=True):
                rows.append(("P5", label, homes == label, count, count))
        else:
            rows.append(("P5", "everybody in group quarters", every, sum(people), UNBOUNDED))
    if household_population is not None:
        rows.append(_households(cells, household_population, quarters=quarters))
    return Constraints(
        cells,
        np.array([row[2] for row in rows], dtype=np.int64).reshape(len(rows), len(cells)),
        np.array([row[3] for row in rows], dtype=np.int64),
        np.array([row[4] for row in rows], dtype=np.int64),
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
    )


def _households(
    cells: Configurations, people: int, *, quarters: bool
) -> tuple[str, str, NDArray[np.bool_], int, int]:
    if not quarters:
        msg = f"{people} persons in households cannot be placed without group quarters: set quarters=True"
        raise ModelError(msg, people)
    if not 0 <= people <= LARGEST:
        msg = f"{people} persons in households: a count runs from 0 to {LARGEST}"
        raise ModelError(msg, people)
    return "households", "persons", np.asarray(cells.labels("quarters") == "household"), people, people


def _row_of(table: Pl94Table, block: str | int) -> int:
    if isinstance(block, str):
        found = np.flatnonzero(table.geoid == block)
        if not found.size:
            msg = f"no geounit {block!r} at level {table.level}: codes are text with all leading zeros"
            raise ModelError(msg, block)
        return int(found[0])
    if not 0 <= block < len(table):
        msg = f"no row {block} in a table of {len(table)} geounits: rows count from 0"
        raise ModelError(msg, block)
    return int(block)
