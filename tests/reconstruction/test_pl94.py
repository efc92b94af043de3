"""Real and synthetic redistricting tables as rows; hard inputs end with a name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.readers.pl94 import demo_folder, read_pl94
from adversary.reconstruction.pl94 import QUARTERS, pl94_configurations, pl94_constraints
from adversary.reconstruction.solve import Limits, Reconstruction, Status
from adversary.reconstruction.variability import solution_variability

pytest.importorskip("highspy")
pytest.importorskip("ortools")
HERE = Path(__file__).resolve()
SHARED = Path(os.environ.get("ADVERSARY_SHARED", HERE.parents[3] / "shared")) / "data" / "rhode-island-pl94"
rhode_island = pytest.mark.skipif(
    not SHARED.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)
CELLS = pl94_configurations()
QUARTERED = pl94_configurations(quarters=True)


@pytest.fixture(scope="module")
def blocks():
    return read_pl94(demo_folder())


@pytest.fixture(scope="module")
def real():
    return read_pl94(SHARED)


def test_all_tables_together_are_the_histogram_of_every_block(blocks):
    for row in range(len(blocks)):
        rows = pl94_constraints(blocks, row, configurations=CELLS)
        bounds = Reconstruction(rows).cell_bounds()
        assert bounds.status is Status.OPTIMAL
        assert bounds.determined
        assert (bounds.low == blocks.histogram()[row].ravel()).all()
        assert bounds.solves == 1, "single rows settle every cell"


def test_without_a_table_cells_open_exactly_as_the_two_margins_allow(blocks):
    """Without P4, each race is a 2 x 2 table with known margins: Frechet's bounds, by hand."""
    largest = int(np.argmax(blocks.total))
    rows = pl94_constraints(blocks, largest, ("P1", "P2", "P3"), configurations=CELLS)
    bounds = Reconstruction(rows).cell_bounds()
    p1, p2, p3 = (getattr(blocks, name)[largest] for name in ("p1", "p2", "p3"))
    cells = bounds.low.reshape(2, 2, 63), bounds.high.reshape(2, 2, 63)
    assert (cells[0][1, 0] == np.maximum(p2 + p3 - p1, 0)).all()
    assert (cells[1][1, 0] == np.minimum(p2, p3)).all()
    assert (cells[0][0, 1] == np.maximum(p1 - p2 - p3, 0)).all()
    assert (cells[1][0, 1] == np.minimum(p1 - p2, p1 - p3)).all()
    open_races = np.minimum(p2, p3) - np.maximum(p2 + p3 - p1, 0)
    reference = blocks.histogram()[largest].ravel()
    found = solution_variability(Reconstruction(rows), reference=reference)
    inner = blocks.histogram()[largest][1, 0]
    shift = np.maximum(inner - np.maximum(p2 + p3 - p1, 0), np.minimum(p2, p3) - inner)
    assert found.value == 4 * shift.sum()
    assert found.unique == (open_races.sum() == 0)


def test_one_person_alone_is_unique_and_an_empty_block_is_trivial(blocks):
    for people in (0, 1):
        for row in np.flatnonzero(blocks.total == people)[:3]:
            block = Reconstruction(pl94_constraints(blocks, int(row), configurations=CELLS))
            found = solution_variability(block)
            assert (found.status, found.unique, found.households) == (Status.OPTIMAL, True, people)


def test_codes_and_row_numbers_name_the_same_block(blocks):
    first = pl94_constraints(blocks, str(blocks.geoid[3]))
    assert (first.low == pl94_constraints(blocks, 3).low).all()
    with pytest.raises(ModelError, match="text with all leading zeros"):
        pl94_constraints(blocks, "1")
    with pytest.raises(ModelError, match="rows count from 0"):
        pl94_constraints(blocks, len(blocks))
    with pytest.raises(ModelError, match="no table 'P9'"):
        pl94_constraints(blocks, 0, ["P1", "P9"])
    with pytest.raises(ModelError, match="set quarters=True"):
        pl94_constraints(blocks, 0, household_population=3)
    with pytest.raises(ModelError, match="a count runs from 0"):
        pl94_constraints(blocks, 0, quarters=True, household_population=-3)


def test_five_people_but_six_in_households_and_quarters_is_infeasible_with_the_tables_named(blocks):
    row = int(np.flatnonzero(blocks.total >= 5)[0])
    p5 = np.zeros_like(blocks.p5)
    p5[row, 4] = 2  # two of them in college quarters
    table = replace(blocks, p5=p5)
    people = int(blocks.total[row])
    good = pl94_constraints(
        table, row, quarters=True, household_population=people - 2, configurations=QUARTERED
    )
    assert Reconstruction(good).feasible().status is Status.OPTIMAL
    bad = pl94_constraints(
        table, row, quarters=True, household_population=people - 1, configurations=QUARTERED
    )
    for backend in ("highs", "cpsat"):
        answer = Reconstruction(bad, backend=backend).feasible()
        assert (answer.status, answer.confirmed, answer.counts) == (Status.INFEASIBLE, True, None)
        assert "households" in answer.clash.tables
        assert "P5" in answer.clash.tables
        assert set(answer.clash.tables) & {"P1", "P2", "P3", "P4"}
        assert answer.clash.irreducible


def test_quarters_bound_who_may_live_in_them(blocks):
    row = int(np.argmax(blocks.total))
    p5 = np.zeros_like(blocks.p5)
    p5[row, 2] = 3
    rows = pl94_constraints(replace(blocks, p5=p5), row, quarters=True, configurations=QUARTERED)
    block = Reconstruction(rows)
    bounds = block.cell_bounds(["quarters", "votingage"])
    nursing = bounds.cells.mask({"quarters": QUARTERS[3]})
    minors = int(blocks.histogram()[row][0].sum())
    adults = int(blocks.histogram()[row][1].sum())
    assert bounds.low[nursing].tolist() == [max(0, 3 - adults), max(0, 3 - minors)]
    assert bounds.high[nursing].tolist() == [min(3, minors), min(3, adults)]


@rhode_island
def test_every_real_block_is_determined_by_its_five_tables(real):
    histogram = real.histogram()
    assert (real.total == 0).sum() == 215
    for row in [
        *np.flatnonzero(real.total == 0)[:5],
        *np.flatnonzero(real.total == 1),
        int(np.argmax(real.total)),
    ]:
        bounds = Reconstruction(pl94_constraints(real, int(row), configurations=CELLS)).cell_bounds()
        assert (bounds.status, bounds.determined) == (Status.OPTIMAL, True)
        assert (bounds.low == histogram[row].ravel()).all()


@rhode_island
@pytest.mark.parametrize("seconds", [0.0, 0.05, 20.0])
def test_the_largest_real_block_is_answered_or_honestly_limited(real, seconds):
    """Report P20: a limit of 0.05 s for the block of 513 persons, and then the next block goes on."""
    row = int(np.argmax(real.total))
    assert real.total[row] == 513
    rows = pl94_constraints(real, row, ("P1", "P2", "P3"), configurations=CELLS)
    reference = real.histogram()[row].ravel()
    block = Reconstruction(rows, limits=Limits(seconds))
    found = solution_variability(block, reference=reference)
    assert found.status in {Status.OPTIMAL, Status.FEASIBLE}
    assert found.value <= found.bound <= 2 * 513
    assert found.farthest is not None
    answer = block.feasible()
    assert answer.status is (Status.TIME_LIMIT if seconds == 0 else answer.status)
    assert answer.status is not Status.INFEASIBLE
    if seconds == 20.0:
        assert found.status is Status.OPTIMAL
    after = Reconstruction(
        pl94_constraints(real, row + 1, configurations=CELLS), limits=Limits(5.0)
    ).feasible()
    assert after.status is Status.OPTIMAL
