"""Six questions against a full enumeration, one solver against the other, and every way a question can end."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from adversary.errors import DisagreementError, ModelError, UnsupportedModelError
from adversary.reconstruction import _cpsat, _program
from adversary.reconstruction._program import Limits, Outcome, Program, Status, solve
from adversary.reconstruction.constraints import Constraints, Queries, combine
from adversary.reconstruction.households import (
    OVER_LIMIT,
    SUBSIDISED,
    Attribute,
    Configurations,
    household_configurations,
)
from adversary.reconstruction.solve import SUPPORT, Reconstruction
from adversary.reconstruction.synthetic import StateShape, synthetic_state
from adversary.reconstruction.tables import HudRecord, census_queries, hud_constraints, publish_hud

from .small_blocks import contradiction, every_block, small_block

pytest.importorskip("highspy")
pytest.importorskip("ortools")
BACKENDS = ("highs", "cpsat")
SEEDS = range(12)


def rows_of(state, b):
    table, counts = state.configurations(b), state.counts(b)
    queries = census_queries(table)
    parts = [queries.constraints(queries.answers(counts))]
    homes = [str(home) for home in range(1, int(state.homes[b]) + 1)]
    parts += [hud_constraints(table, publish_hud(table, counts, home), home) for home in homes]
    return combine(*parts)


@pytest.fixture(scope="module")
def state():
    return synthetic_state(StateShape(blocks=60, largest=40, violating=0.06), seed=4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_is_found_and_a_harm_is_flagged_exactly_where_enumeration_says_so(seed, backend):
    rows, truth, shares = small_block(seed)
    everything = every_block(rows, int(truth.sum()))
    block = Reconstruction(rows, shares, backend)
    found = block.feasible()
    assert found.status is Status.OPTIMAL
    assert (everything == found.counts).all(axis=1).any()
    for harm in (OVER_LIMIT, SUBSIDISED, {"size": "2"}):
        least = everything[:, rows.configurations.mask(harm)].sum(axis=1).min()
        flag = block.flag(harm)
        assert flag.verdict == ("flagged" if least >= 1 else "not flagged")
        if flag.witness is not None:
            assert rows.satisfied_by(flag.witness)
            assert flag.witness[rows.configurations.mask(harm)].sum() == 0


def test_the_enumerated_blocks_have_flags_of_both_kinds_and_many_solutions():
    """Power of the tests on small blocks: all verdicts occur, and solutions are many."""
    sizes, verdicts = [], []
    for seed in SEEDS:
        rows, truth, _ = small_block(seed)
        everything = every_block(rows, int(truth.sum()))
        sizes.append(len(everything))
        verdicts += [everything[:, rows.configurations.mask(OVER_LIMIT)].sum(axis=1).min() >= 1]
    assert 2 <= sum(verdicts) <= len(verdicts) - 2
    assert max(sizes) > 20
    assert min(sizes) <= 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_of_any_count_are_the_extremes_over_all_solutions(seed, backend):
    rows, truth, _ = small_block(seed)
    everything = every_block(rows, int(truth.sum()))
    table = rows.configurations
    block = Reconstruction(rows, backend=backend)
    for of, weights in ((OVER_LIMIT, None), ({"race": "hispanic"}, None), (SUBSIDISED, table.number("size"))):
        values = everything @ (table.mask(of) * (1 if weights is None else weights))
        bounds = block.bounds(of, weights)
        assert (bounds.low, bounds.high, bounds.status) == (values.min(), values.max(), Status.OPTIMAL)
        assert bounds.certain == (values.min() >= 1)
        assert bounds.determined == (values.min() == values.max())
        for seen in (bounds.low_block, bounds.high_block):
            assert rows.satisfied_by(seen)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_of_every_cell_and_the_certain_claims_equal_enumeration(seed, backend):
    rows, truth, _ = small_block(seed)
    everything = every_block(rows, int(truth.sum()))
    table = rows.configurations
    block = Reconstruction(rows, backend=backend)
    for names, within in ((None, None), (["size", "race"], None), (["bedrooms"], SUBSIDISED)):
        cell, cells = table.cells(names)
        counted = table.mask(within)
        tables = np.array([np.bincount(cell[counted], x[counted], len(cells)) for x in everything]).astype(
            int
        )
        bounds = block.cell_bounds(names, within)
        assert bounds.status is Status.OPTIMAL
        assert (bounds.low == tables.min(axis=0)).all()
        assert (bounds.high == tables.max(axis=0)).all()
        assert bounds.determined == (len(np.unique(tables, axis=0)) == 1)
        if names:
            claims = {(c.cell, c.count) for c in block.certain_claims(names, within)}
            same = (tables == tables[0]).all(axis=0) & (tables[0] >= 1)
            assert claims == {(int(g), int(tables[0, g])) for g in np.flatnonzero(same)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_most_likely_block_costs_no_more_than_any_other(seed, backend):
    rows, truth, shares = small_block(seed)
    everything = every_block(rows, int(truth.sum()))
    block = Reconstruction(rows, shares, backend)
    best = block.most_likely()
    costs = everything @ np.rint(-1000 * np.log(shares)).astype(int)
    assert (best.status, best.value, best.gap) == (Status.OPTIMAL, costs.min(), 0)
    assert rows.satisfied_by(best.counts)
    assert best.log_likelihood == pytest.approx(float(best.counts @ np.log(shares)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tied", [False, True])
def test_the_top_t_is_the_head_of_the_sorted_list_with_its_ties_told(seed, tied):
    rows, truth, shares = small_block(seed)
    if tied:  # the paper's case: shares that differ by few attributes only
        shares = np.where(rows.configurations.mask({"race": "hispanic"}), 0.1, 0.2)
    everything = every_block(rows, int(truth.sum()))
    costs = np.sort(everything @ np.rint(-1000 * np.log(shares)).astype(int))
    for t in (1, 3, len(everything), len(everything) + 5):
        top = Reconstruction(rows, shares).top(t)
        expected = costs[:t]
        assert top.costs.tolist() == expected.tolist()
        assert top.status is Status.OPTIMAL
        assert len(np.unique(top.counts, axis=0)) == len(top), "no block twice"
        assert all((everything == x).all(axis=1).any() for x in top.counts)
        assert top.cut == ((costs == expected[-1]).sum() > (expected == expected[-1]).sum())
        for level in top.levels:
            size = int((costs == level.cost).sum())
            assert level.listed == (expected == level.cost).sum()
            assert level.size == size or (level.size is None and size > level.listed)
        assert not top.exhausted or t >= len(everything)
        if t > len(everything):
            assert top.exhausted
        assert top.tied_share == pytest.approx(max(level.listed for level in top.levels) / len(top))


def test_within_a_level_blocks_stand_in_lexicographic_order():
    rows, _, _ = small_block(3)
    top = Reconstruction(rows, np.full(len(rows.configurations), 0.1)).top(50)
    listed = top.counts.tolist()
    assert len(top.levels) == 1
    assert listed == sorted(listed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_least_error_and_the_widened_rows_equal_enumeration(seed, backend):
    rows, n = contradiction(seed)
    tried = every_block(rows.take([i for i, name in enumerate(rows.table) if name == "H3"]), n)
    rng = np.random.default_rng(seed)
    for sigma in (None, rng.uniform(0.5, 3, len(rows))):
        weights = np.ones(len(rows), int) if sigma is None else np.rint(1000 / sigma).astype(int)
        answers = tried @ rows.matrix.T
        errors = np.abs(answers - np.clip(answers, rows.low, rows.high)) @ weights
        mend = Reconstruction(rows).closest(sigma=sigma, backend=backend)
        assert (mend.solution.status, mend.solution.value) == (Status.OPTIMAL, errors.min())
        assert int(weights @ np.abs(mend.errors)) == errors.min()
        assert mend.relaxed.satisfied_by(mend.solution.counts)
        assert mend.missed == (mend.relaxed.low < rows.low).sum() + (mend.relaxed.high > rows.high).sum()
        assert Reconstruction(mend.relaxed, backend=backend).feasible().found


@pytest.mark.parametrize("backend", BACKENDS)
def test_clashing_rows_are_named_and_none_of_them_can_be_spared(backend):
    clashes = 0
    for seed in range(20):
        rows, n = contradiction(seed)
        if len(every_block(rows, n)):
            continue
        clashes += 1
        answer = Reconstruction(rows, backend=backend).feasible()
        assert (answer.status, answer.confirmed, answer.found) == (Status.INFEASIBLE, True, False)
        named = [next(i for i in range(len(rows)) if rows.row(i) == r) for r in answer.clash.rows]
        assert answer.clash.irreducible
        tried = np.vstack([every_block(rows.take([]), m) for m in range(8)])
        meets = (tried @ rows.matrix.T >= rows.low) & (tried @ rows.matrix.T <= rows.high)
        assert not meets[:, named].all(axis=1).any()
        for spared in named:
            rest = [i for i in named if i != spared]
            assert meets[:, rest].all(axis=1).any()
        assert all(r.table in str(answer.clash) for r in answer.clash.rows)
    assert clashes >= 8


@pytest.mark.parametrize("b", range(6))
def test_both_solvers_find_the_same_optimum_bounds_and_flags_on_blocks_of_the_papers_shape(state, b):
    rows = rows_of(state, b)
    shares = state.shares(rows.configurations)
    highs, cpsat = (Reconstruction(rows, shares, name, Limits(60)) for name in BACKENDS)
    first, second = highs.most_likely(), cpsat.most_likely()
    assert first.status is second.status is Status.OPTIMAL
    assert first.value == second.value
    harm, other = highs.bounds(OVER_LIMIT), cpsat.bounds(OVER_LIMIT)
    assert (harm.low, harm.high) == (other.low, other.high)
    truth = int(state.counts(b)[rows.configurations.mask(OVER_LIMIT)].sum())
    assert harm.low <= truth <= harm.high
    assert highs.flag(OVER_LIMIT).verdict == ("flagged" if harm.low >= 1 else "not flagged")


def test_the_list_of_a_typical_block_is_an_arbitrary_part_of_a_tie_and_says_so(state):
    rows = rows_of(state, 0)
    block = Reconstruction(rows, state.shares(rows.configurations))
    top = block.top(20)
    assert top.arbitrary
    assert top.cut
    assert top.tied_share == 1
    again = block.top(20)
    assert (top.counts == again.counts).all(), "one seed, one list"
    other = replace(block, limits=Limits(seed=9)).top(20)
    assert (other.costs == top.costs).all()
    assert (other.counts != top.counts).any()


def test_a_configuration_outside_the_sample_is_ruled_out_by_a_row_with_a_name(state):
    rows = rows_of(state, 1)
    counts = state.counts(1)
    shares = state.shares(rows.configurations).copy()
    shares[np.flatnonzero(counts)] = 0
    block = Reconstruction(rows, shares)
    answer = block.feasible()
    if answer.status is Status.INFEASIBLE:
        assert SUPPORT in answer.clash.tables
    assert SUPPORT in block.constraints.tables
    assert not block.constraints.satisfied_by(counts)


def two_cells():
    table = Configurations.product(Attribute("size", ("1", "2"), (1, 2)), Attribute("child", ("no", "yes")))
    rows = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 2, 2]])
    return Queries(
        table, rows, ("H3", "H13", "P16"), ("households", "2 persons", "persons"), ("household",) * 3
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_block_without_households_has_one_solution_with_nobody(backend):
    block = Reconstruction(two_cells().constraints([0, 0, 0]), np.full(4, 0.25), backend)
    assert block.feasible().counts.tolist() == [0, 0, 0, 0]
    assert block.most_likely().value == 0
    assert block.cell_bounds().determined
    top = block.top(10)
    assert (len(top), top.exhausted, top.cut) == (1, True, False)
    assert block.flag({"size": "2"}).verdict == "not flagged"
    assert block.closest().missed == 0
    assert block.certain_claims(["size"]) == ()


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_rows_at_all_or_all_suppressed_leave_a_question_open_or_refuse_it(backend):
    table = two_cells().configurations
    none = Reconstruction(two_cells().constraints([np.nan, -1, np.nan]), np.full(4, 0.25), backend)
    assert len(none.constraints) == 0
    assert none.feasible().found
    for ask in (none.bounds, none.cell_bounds):
        with pytest.raises(
            ModelError, match="no row bounds size=1, child=no: add the block's number of households"
        ):
            ask()
    household = Reconstruction(two_cells().constraints([3, -1, -1]), backend=backend)
    bounds = household.bounds({"size": "2"})
    assert (bounds.low, bounds.high) == (0, 3)
    assert len(table) == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_contradictory_tables_end_as_infeasible_for_every_question(backend):
    block = Reconstruction(two_cells().constraints([3, 1, 5]), np.full(4, 0.25), backend)
    answer = block.feasible()
    assert answer.status is Status.INFEASIBLE
    assert answer.clash.tables == ("H3", "H13", "P16")
    assert "P16 persons (5)" in str(answer.clash)
    assert block.most_likely().status is Status.INFEASIBLE
    assert block.bounds({"size": "2"}).status is Status.INFEASIBLE
    assert not block.bounds({"size": "2"}).certain
    assert not block.bounds({"size": "2"}).determined
    assert block.cell_bounds().status is Status.INFEASIBLE
    assert block.flag({"size": "2"}).verdict == "inconsistent"
    assert block.certain_claims(["size"]) == ()
    top = block.top(5)
    assert (top.status, len(top), top.counts.shape) == (Status.INFEASIBLE, 0, (0, 4))
    assert block.clash().rows == answer.clash.rows
    hard = block.closest(hard=["H3", "H13", "P16"])
    assert (hard.solution.status, hard.relaxed, hard.missed) == (Status.INFEASIBLE, None, 0)


def test_a_row_whose_interval_is_empty_clashes_with_itself():
    table = two_cells().configurations
    row = Constraints(
        table, np.ones((1, 4), np.int64), np.array([3]), np.array([2]), ("HUD 1",), ("pct_bed1",)
    )
    answer = Reconstruction(row).feasible()
    assert answer.status is Status.INFEASIBLE
    assert [r.cell for r in answer.clash.rows] == ["pct_bed1"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_limit_of_no_time_ends_every_question_with_a_status(state, backend):
    rows = rows_of(state, 2)
    block = Reconstruction(rows, state.shares(rows.configurations), backend, Limits(0.0))
    for answer in (block.feasible(), block.most_likely()):
        assert (answer.status, answer.limit, answer.counts, answer.gap) == (
            Status.TIME_LIMIT,
            "time",
            None,
            None,
        )
    bounds = block.bounds(OVER_LIMIT)
    truth = int(state.counts(2)[rows.configurations.mask(OVER_LIMIT)].sum())
    assert bounds.status is Status.TIME_LIMIT
    assert bounds.low <= truth <= bounds.high, "bounds from single rows still hold"
    assert block.flag(OVER_LIMIT).verdict == "undecided"
    cells = block.cell_bounds(["size"])
    assert cells.status is Status.TIME_LIMIT
    assert not cells.attained.any()
    assert block.top(5).status is Status.TIME_LIMIT
    assert block.closest().solution.status is Status.TIME_LIMIT
    assert block.certain_claims(["bedrooms"]) is not None


@pytest.mark.parametrize("sign", [-1, 1])
def test_cpsat_cut_short_proves_no_more_than_it_came_to(sign):
    """Cut short in its presolve, CP-SAT reports the bound 0; a maximum asked as a least cost was "proved" to be 0."""
    pytest.importorskip("ortools")
    ones = np.ones((1, 40), dtype=np.int64)
    ends = (np.array([30]), np.array([30]))
    program = Program(ones, *ends, np.zeros(40, np.int64), np.full(40, 30), np.full(40, sign, np.int64))
    for seconds in (1e-9, 1e-4):
        outcome = _cpsat.run(program, Limits(seconds))
        assert outcome.bound is not None
        assert outcome.bound <= 30 * sign
    assert _cpsat.run(program, Limits(1e-9)).status is Status.TIME_LIMIT
    assert _cpsat.run(program, Limits()).bound == 30 * sign


def test_answers_under_a_short_time_limit_are_true_and_marked():
    state = synthetic_state(StateShape(blocks=20, smallest=150, largest=200), seed=1)
    rows = rows_of(state, 0)
    shares = state.shares(rows.configurations)
    for backend in BACKENDS:
        for seconds in (0.02, 0.2):
            block = Reconstruction(rows, shares, backend, Limits(seconds))
            answer = block.bounds(OVER_LIMIT)
            assert answer.status in {Status.TIME_LIMIT, Status.FEASIBLE, Status.OPTIMAL}
            assert (answer.status is Status.TIME_LIMIT) == (
                answer.low_block is None and answer.high_block is None
            )
            truth = int(state.counts(0)[rows.configurations.mask(OVER_LIMIT)].sum())
            assert answer.low <= truth <= answer.high
            top = replace(block, limits=Limits(seconds)).top(30)
            assert top.status in set(Status)
            assert all(rows.satisfied_by(x) for x in top.counts)


def test_a_memory_limit_ends_the_search_and_is_named(monkeypatch, state):
    from adversary.reconstruction import _highs

    rows = rows_of(state, 2)
    block = Reconstruction(rows, limits=Limits(megabytes=1.0))
    grown = itertools.count(100.0, 50.0)
    monkeypatch.setattr(_highs, "resident_megabytes", lambda: next(grown))
    outcome = block.run(replace(block.live.program, cost=np.arange(len(block.live.columns))))
    assert outcome.limit == "memory"
    assert outcome.status in {Status.TIME_LIMIT, Status.FEASIBLE}
    assert _program.resident_megabytes() > 10


def test_limits_that_cannot_be_kept_are_refused():
    for broken in ({"seconds": -1}, {"seconds": float("nan")}, {"megabytes": 0}, {"threads": 0}):
        with pytest.raises(ModelError, match="cannot be kept"):
            Limits(**broken)


def test_a_missing_package_is_named_with_the_way_to_install_it(monkeypatch):
    block = Reconstruction(two_cells().constraints([3, 1, 4]), np.full(4, 0.25))
    monkeypatch.setattr(_program, "find_spec", lambda name: None)
    for ask in (block.feasible, block.most_likely, block.top):
        with pytest.raises(UnsupportedModelError, match=r"pip install 'dp-adversary\[reconstruct\]'"):
            ask()


def test_questions_that_make_no_sense_are_refused():
    rows = two_cells().constraints([3, 1, 4])
    with pytest.raises(UnsupportedModelError, match="choose highs or cpsat"):
        Reconstruction(rows, backend="gurobi").feasible()
    with pytest.raises(ModelError, match="nothing is likely without shares"):
        Reconstruction(rows).most_likely()
    with pytest.raises(ModelError, match="ask for 1 or more"):
        Reconstruction(rows, np.full(4, 0.25)).top(0)
    for shares in (np.full(3, 0.3), np.array([0.5, -0.1, 0.3, 0.3]), np.array([0.5, np.nan, 0.3, 0.2])):
        with pytest.raises(ModelError, match="one finite number"):
            Reconstruction(rows, shares)
    with pytest.raises(ModelError, match="make exact rows hard"):
        Reconstruction(rows).closest(sigma=[1.0, 0.0, 1.0])


def _toy(high):
    one = np.ones(1, dtype=np.int64)
    return Program(np.array([[2]]), one * 1, one * high, one * 0, one * 5, one * 0)


def test_a_solver_that_wrongly_says_infeasible_is_overruled_by_the_other(monkeypatch):
    real = _program._run

    def lying(program, backend, limits):
        return Outcome(Status.INFEASIBLE) if backend == "highs" else real(program, backend, limits)

    monkeypatch.setattr(_program, "_run", lying)
    outcome = solve(_toy(4), "highs", Limits())
    assert outcome.status is Status.OPTIMAL
    assert _toy(4).holds(outcome.values)
    agreed = solve(_toy(1), "highs", Limits())
    assert (agreed.status, agreed.confirmed) == (Status.INFEASIBLE, True)


def test_values_that_break_a_row_are_never_returned(monkeypatch):
    real = _program._run
    wrong = Outcome(Status.OPTIMAL, np.array([5]), 0)
    monkeypatch.setattr(_program, "_run", lambda p, b, limits: wrong if b == "highs" else real(p, b, limits))
    outcome = solve(_toy(4), "highs", Limits())
    assert _toy(4).holds(outcome.values)
    assert solve(_toy(1), "highs", Limits()).status is Status.INFEASIBLE
    monkeypatch.setattr(_program, "find_spec", lambda name: None if name == "ortools" else object())
    with pytest.raises(DisagreementError, match="broke a row"):
        solve(_toy(4), "highs", Limits())


def test_solvers_print_nothing(capfd, state):
    rows = rows_of(state, 3)
    block = Reconstruction(rows, state.shares(rows.configurations), limits=Limits(megabytes=4000))
    block.feasible()
    block.most_likely()
    block.top(3)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_a_suppressed_property_leaves_its_size_open_between_none_and_ten(state):
    rows = two_cells().constraints([30, 10, -1])
    assert rows.tables == ("H3", "H13")
    table = household_configurations(properties=1, max_size=2)
    census = census_queries(table)
    truth = np.zeros(len(table), dtype=np.int64)
    truth[[0, 20, -1]] = 20, 4, 6
    known = census.constraints(census.answers(truth))
    rows = combine(known, hud_constraints(table, HudRecord(-4, -4, -4, -4, {"pct_bed1": -4})))
    bounds = Reconstruction(rows).bounds(SUBSIDISED)
    assert (bounds.low, bounds.high) == (0, 10)
    missing = combine(known, hud_constraints(table, HudRecord(-1, -1, -1, -1, {"pct_bed1": -1})))
    assert Reconstruction(missing).bounds(SUBSIDISED).high == 30


def test_a_wrong_certainty_of_one_solver_is_caught_by_the_other(monkeypatch):
    """HiGHS made to return a dearer block as the optimum: no certain count, no certain claim rests on it."""
    from adversary.reconstruction import _highs

    block = Reconstruction(two_cells().constraints([3, np.nan, np.nan]))
    harm = {"size": "2"}
    assert block.bounds(harm).low == 0

    def lying(program, limits):
        worst = np.array([0, 0, 3, 0])
        return Outcome(Status.OPTIMAL, worst, int(program.cost @ worst))

    monkeypatch.setattr(_highs, "run", lying)
    bounds = block.bounds(harm)
    assert (bounds.low, bounds.certain, bounds.confirmed) == (0, False, None)
    assert bounds.low_block[2:].sum() < 3
    assert block.certain_claims(["size"]) == ()
    alone = replace(block, confirm=False)
    assert alone.bounds(harm).certain, "without the second solver the lie passes: the check has power"
    assert len(alone.certain_claims(["size"])) == 1


def test_a_certain_count_says_whether_it_was_confirmed():
    block = Reconstruction(two_cells().constraints([3, np.nan, 5]))
    bounds = block.bounds({"size": "2"})
    assert (bounds.low, bounds.high, bounds.confirmed) == (2, 2, True)
    assert replace(block, confirm=False).bounds({"size": "2"}).confirmed in {None, True}
    assert (
        Reconstruction(two_cells().constraints([3, np.nan, np.nan])).bounds({"size": "2"}).confirmed is None
    )
