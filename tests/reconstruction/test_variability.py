"""Solution variability against a full enumeration of both blocks, and its factor of 2."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.reconstruction.constraints import Queries, combine
from adversary.reconstruction.households import OVER_LIMIT, SUBSIDISED, Attribute, Configurations
from adversary.reconstruction.solve import Limits, Reconstruction, Status
from adversary.reconstruction.synthetic import StateShape, synthetic_state
from adversary.reconstruction.tables import census_queries, hud_constraints, publish_hud
from adversary.reconstruction.variability import distance, simplified, solution_variability

from .small_blocks import every_block, small_block

pytest.importorskip("highspy")
pytest.importorskip("ortools")
BACKENDS = ("highs", "cpsat")
SEEDS = range(10)
TABLES = ((None, None), (["size", "race"], None), (["bedrooms"], SUBSIDISED), (["size"], OVER_LIMIT))


def distances(table, everything, attributes, within):
    """All distances between all solutions, the plain way."""
    cell, cells = (attributes, None) if isinstance(attributes, np.ndarray) else table.cells(attributes)
    size = int(cell.max()) + 1 if cells is None else len(cells)
    counted = table.mask(within)
    tables = np.array([np.bincount(cell[counted], x[counted], size) for x in everything])
    return np.abs(tables[:, None] - tables[None]).sum(axis=2).astype(int)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_variability_is_the_greatest_distance_over_all_solutions_from_any_reference(seed, backend):
    rows, truth, _ = small_block(seed)
    everything = every_block(rows, int(truth.sum()))
    table = rows.configurations
    block = Reconstruction(rows, backend=backend)
    rng = np.random.default_rng(seed)
    references = rng.choice(len(everything), min(3, len(everything)), replace=False)
    for attributes, within in (*TABLES, (simplified(table), None)):
        every = distances(table, everything, attributes, within)
        for i in references:
            found = solution_variability(block, attributes, within, everything[i])
            assert (found.status, found.value, found.bound) == (
                Status.OPTIMAL,
                every[i].max(),
                every[i].max(),
            )
            assert distance(table, found.reference, found.farthest, attributes, within) == found.value
            assert rows.satisfied_by(found.farthest)
            assert found.unique == (every.max() == 0)
            held = int(everything[i][table.mask(within)].sum())
            assert found.households == held
            if found.fixed:
                assert len(set(everything[:, table.mask(within)].sum(axis=1).tolist())) == 1
                assert found.share == (found.value / (2 * held) if held else 0.0)
                assert 0 <= found.share <= 1
            else:
                assert found.share is None
        if within is None:
            assert found.fixed


@pytest.mark.parametrize("seed", SEEDS)
def test_one_reference_certifies_every_other_up_to_a_factor_of_two(seed):
    rows, truth, _ = small_block(seed, n=4, size=9)
    everything = every_block(rows, int(truth.sum()))
    block = Reconstruction(rows)
    for attributes, within in TABLES:
        every = distances(rows.configurations, everything, attributes, within)
        farthest = every.max(axis=1)
        assert (farthest[:, None] <= 2 * farthest[None]).all()
        found = solution_variability(block, attributes, within)
        assert every.max() <= found.from_any_reference


def test_the_small_blocks_hold_unique_and_open_tables_and_references_that_differ():
    """Power of the tests above."""
    unique = different = 0
    for seed in SEEDS:
        rows, truth, _ = small_block(seed)
        every = distances(rows.configurations, every_block(rows, int(truth.sum())), None, None)
        unique += every.max() == 0
        different += len(set(every.max(axis=1).tolist())) > 1
    assert unique >= 1
    assert different >= 2


def test_both_solvers_agree_on_blocks_of_the_papers_shape():
    state = synthetic_state(StateShape(blocks=60, largest=40, violating=0.06), seed=4)
    for b in (1, 3):
        table, counts = state.configurations(b), state.counts(b)
        queries = census_queries(table)
        homes = [str(home) for home in range(1, int(state.homes[b]) + 1)]
        hud = [hud_constraints(table, publish_hud(table, counts, home), home) for home in homes]
        rows = combine(queries.constraints(queries.answers(counts)), *hud)
        for attributes, within in ((None, None), (simplified(table), None), (None, OVER_LIMIT)):
            values = [
                solution_variability(Reconstruction(rows, backend=name), attributes, within, counts).value
                for name in BACKENDS
            ]
            assert values[0] == values[1]


def test_cells_held_by_several_households_are_counted_once_each():
    """Two cells of 3 and 1 households, exchanged: every case of the formulation (no, one, two columns a cell)."""
    table = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    queries = Queries(table, np.array([[1, 1, 1, 1]]), ("H3",), ("households",), ("household",))
    for reference in ([4, 0, 0, 0], [3, 1, 0, 0], [2, 1, 1, 0], [1, 1, 1, 1]):
        for backend in BACKENDS:
            found = solution_variability(
                Reconstruction(queries.constraints([4]), None, backend), None, None, reference
            )
            assert found.value == 2 * (4 - min(reference))
            assert found.share == found.value / 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_without_households_without_solutions_and_without_time(backend):
    table = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    rows = np.array([[1, 1, 1, 1], [0, 0, 1, 1]])
    queries = Queries(table, rows, ("H3", "H13"), ("households", "2"), ("household",) * 2)
    empty = solution_variability(Reconstruction(queries.constraints([0, 0]), None, backend))
    assert (empty.value, empty.unique, empty.share, empty.status) == (0, True, 0.0, Status.OPTIMAL)
    none = solution_variability(Reconstruction(queries.constraints([1, 2]), None, backend))
    assert (none.status, none.unique, none.share, none.farthest) == (Status.INFEASIBLE, False, None, None)
    late = Reconstruction(queries.constraints([5, 2]), None, backend, Limits(0.0))
    assert solution_variability(late).status is Status.TIME_LIMIT
    known = solution_variability(late, reference=[3, 0, 2, 0])
    assert (known.status, known.value, known.unique) == (Status.FEASIBLE, 0, False)
    assert known.bound >= 10, "the bound holds although the search never began"


def test_a_reference_that_breaks_a_row_and_cells_of_another_table_are_refused():
    table = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    queries = Queries(table, np.array([[1, 1, 1, 1]]), ("H3",), ("households",), ("household",))
    block = Reconstruction(queries.constraints([2]))
    for reference in ([1, 0, 0, 0], [3, -1, 0, 0], [2, 0, 0]):
        with pytest.raises(ModelError, match="does not meet the rows"):
            solution_variability(block, reference=reference)
    with pytest.raises(ModelError, match="one whole number each"):
        solution_variability(block, np.arange(3))
    with pytest.raises(ModelError, match="no row bounds"):
        solution_variability(Reconstruction(queries.constraints([-1])))


def test_a_wrong_uniqueness_of_one_solver_is_caught_by_the_other(monkeypatch):
    from adversary.reconstruction import _highs
    from adversary.reconstruction._program import Outcome

    table = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    queries = Queries(table, np.array([[1, 1, 1, 1]]), ("H3",), ("households",), ("household",))
    block = Reconstruction(queries.constraints([2]))
    reference = np.array([1, 0, 1, 0])

    def lying(program, limits):
        same = np.zeros(program.matrix.shape[1], dtype=np.int64)
        same[:4] = reference
        same[4:] = program.upper[4:]
        return Outcome(Status.OPTIMAL, same, int(program.cost @ same))

    monkeypatch.setattr(_highs, "run", lying)
    found = solution_variability(block, reference=reference)
    assert (found.value, found.unique) == (4, False)
