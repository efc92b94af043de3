"""Tables as rows: what is printed contains the truth, no more and no less than rounding and codes allow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from adversary.errors import ModelError, ReleaseError
from adversary.reconstruction.constraints import LARGEST, UNBOUNDED, Constraints, Queries, combine, propagate
from adversary.reconstruction.households import RACES_14, Attribute, Configurations, household_configurations
from adversary.reconstruction.synthetic import BEDROOMS_LOOSE, StateShape, synthetic_state
from adversary.reconstruction.tables import (
    HUD_PERCENTS,
    MISSING,
    NON_REPORTING,
    SUPPRESSED,
    HudRecord,
    census_queries,
    hud_constraints,
    hud_queries,
    publish_hud,
)


@pytest.fixture(scope="module")
def state():
    shape = StateShape(blocks=60, bedrooms=BEDROOMS_LOOSE, properties=(0.5, 0.3, 0.2))
    return synthetic_state(shape, seed=11)


@pytest.fixture(scope="module")
def table():
    return household_configurations(properties=1)


def households(table, counts):
    """One dictionary a household: the slow and plain way to count."""
    names = [a.name for a in table.attributes]
    labels = [table.labels(name)[np.repeat(np.arange(len(table)), counts)] for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*labels, strict=True)]


def test_census_tables_count_what_they_say(state):
    table, counts = state.configurations(3), state.counts(3)
    people = households(table, counts)
    queries = census_queries(table, "rich")
    answers = dict(
        zip(zip(queries.table, queries.cell, strict=True), queries.answers(counts).tolist(), strict=True)
    )
    assert answers["H3", "households"] == len(people)
    for z in range(1, 7):
        label = f"{z} person" + "s" * (z > 1)
        assert answers["H13", label] == sum(int(h["size"]) == z for h in people)
        assert answers["P28 hispanic", label] == sum(
            int(h["size"]) == z and h["race"] == "hispanic" for h in people
        )
    assert answers["H13", "7+ persons"] == sum(int(h["size"]) >= 7 for h in people)
    assert answers["H7", "black_nonhispanic"] == sum(h["race"] == "black_nonhispanic" for h in people)
    assert answers["P16", "under 18"] == sum(int(h["children"]) for h in people)
    assert answers["P16", "18 and over"] == sum(int(h["size"]) - int(h["children"]) for h in people)
    assert answers["P19", "with people under 18"] == sum(int(h["children"]) > 0 for h in people)
    assert answers["P25", "with people of 65 and over"] == sum(h["elderly"] == "yes" for h in people)
    whites = [h for h in people if h["race"] == "white_nonhispanic"]
    assert answers["P16 white_nonhispanic", "under 18"] == sum(int(h["children"]) for h in whites)
    assert answers["P19 white_nonhispanic", "with people under 18"] == sum(
        int(h["children"]) > 0 for h in whites
    )
    assert len(queries) == 20 + 8 * 9


def test_sizes_above_seven_are_printed_as_seven_or_more_and_still_add_up():
    table = household_configurations(census_only=True, max_size=9)
    nine = table.histogram([[8, 3, 0, 0]])
    queries = census_queries(table)
    answers = dict(
        zip(zip(queries.table, queries.cell, strict=True), queries.answers(nine).tolist(), strict=True)
    )
    assert answers["H13", "7+ persons"] == 1
    assert answers["P16", "under 18"] + answers["P16", "18 and over"] == 9


def test_hud_counts_what_it_says(state):
    table, counts = state.configurations(5), state.counts(5)
    its = [h for h in households(table, counts) if h["property"] == "1"]
    queries = hud_queries(table)
    answers = dict(zip(queries.cell, queries.answers(counts).tolist(), strict=True))
    adults = [int(h["size"]) - int(h["children"]) for h in its]
    families = [(h, a) for h, a in zip(its, adults, strict=True) if int(h["children"]) > 0]
    assert answers == {
        "households": len(its),
        "people_per_unit": sum(int(h["size"]) for h in its),
        "pct_bed1": sum(h["bedrooms"] == "0-1" for h in its),
        "pct_bed2": sum(h["bedrooms"] == "2" for h in its),
        "pct_bed3": sum(h["bedrooms"] == "3+" for h in its),
        "pct_minority": sum(h["race"] != "white_nonhispanic" for h in its),
        "pct_black_nonhsp": sum(h["race"] == "black_nonhispanic" for h in its),
        "pct_hispanic": sum(h["race"] == "hispanic" for h in its),
        "pct_1adult": sum(a == 1 for _, a in families),
        "pct_2adults": sum(a >= 2 for _, a in families),
        "pct_age62plus": sum(h["elderly"] == "yes" for h in its),
    }


def test_hispanic_heads_are_found_in_the_finer_list_of_races():
    table = household_configurations(races=RACES_14)
    its = HUD_PERCENTS["pct_hispanic"](table)
    assert its.sum() * 2 == len(table)
    assert not its[table.mask({"race": "white_nonhispanic"})].any()


def _interval(table, reported, field, value):
    record = HudRecord(
        total_units=reported, number_reported=reported, pct_occupied=100, percents={field: value}
    )
    rows = hud_constraints(table, record)
    i = rows.cell.index(field)
    return int(rows.low[i]), int(rows.high[i])


@pytest.mark.parametrize("n", [11, 40, 99, 100, 199, 200, 333])
def test_a_whole_percent_is_the_interval_of_all_counts_that_print_so(table, n):
    for percent in range(101):
        low, high = _interval(table, n, "pct_bed1", percent)
        prints = [y for y in range(n + 1) if abs(200 * y - 2 * percent * n) <= n]
        if prints:
            assert (low, high) == (prints[0], prints[-1])
        else:
            assert low > high, "no count prints this percent: the row clashes with itself"


@pytest.mark.parametrize("n", [11, 13, 20, 50, 64, 98, 99])
def test_rounding_to_whole_percents_hides_nothing_below_a_hundred_households(table, n):
    for y in range(n + 1):
        printed = (200 * y + n) // (2 * n)
        assert _interval(table, n, "pct_minority", printed) == (y, y)


def test_a_mean_to_one_decimal_is_the_interval_of_all_totals_that_print_so(table):
    for n in (11, 17, 60):
        for people in range(n, 5 * n, 7):
            record = HudRecord(n, n, 100, (20 * people + n) // (2 * n) / 10)
            rows = hud_constraints(table, record)
            low, high = int(rows.low[1]), int(rows.high[1])
            mean = record.people_per_unit
            assert [y for y in range(9 * n) if abs(y / n - mean) <= 0.05 + 1e-12] == list(
                range(low, high + 1)
            )


def test_what_hud_prints_about_a_block_holds_for_the_block_with_several_properties_too(state):
    seen = set()
    for b in range(len(state)):
        table, counts = state.configurations(b), state.counts(b)
        queries = census_queries(table)
        parts = [queries.constraints(queries.answers(counts))]
        for home in range(1, int(state.homes[b]) + 1):
            parts.append(hud_constraints(table, publish_hud(table, counts, str(home)), str(home)))
            seen.add(publish_hud(table, counts, str(home)).number_reported == SUPPRESSED)
        rows = combine(*parts)
        assert rows.satisfied_by(counts)
        assert rows.propagation.row is None
        assert (rows.propagation.least <= counts).all()
        assert (counts <= rows.propagation.greatest).all()
        moved = counts.copy()
        at = np.flatnonzero(counts)[0]
        moved[at] -= 1
        assert not rows.satisfied_by(moved), "one household fewer breaks the number of households"
    assert seen == {True, False}


def test_households_that_did_not_report_may_be_anything():
    """Whoever reports, the rows contain the block: checked on random blocks with random reporters."""
    table = household_configurations(properties=1)
    rng = np.random.default_rng(4)
    its = np.flatnonzero(table.mask({"property": "1"}))
    for _ in range(60):
        n = int(rng.integers(14, 60))
        members = rng.choice(its, n)
        reported = members[: int(rng.integers(11, n + 1))]
        x, seen = (np.bincount(m, minlength=len(table)) for m in (members, reported))
        printed = publish_hud(table, seen)
        units = n + int(rng.integers(0, 4))
        percent = (200 * n + units) // (2 * units)
        record = HudRecord(units, len(reported), percent, printed.people_per_unit, printed.percents)
        assert hud_constraints(table, record).satisfied_by(x)


def test_suppressed_says_at_most_ten_families_and_missing_says_nothing(table):
    hidden = dict.fromkeys(HUD_PERCENTS, float(SUPPRESSED))
    rows = hud_constraints(table, HudRecord(SUPPRESSED, SUPPRESSED, SUPPRESSED, SUPPRESSED, hidden))
    assert [rows.row(i) for i in range(len(rows))] == [("HUD 1", "households", 0, 10)]
    assert any("suppressed (-4)" in note for note in rows.notes)
    for code, words in ((MISSING, "missing (-1)"), (NON_REPORTING, "non-reporting (-5)")):
        rows = hud_constraints(table, HudRecord(40, code, code, code, {"pct_bed1": code}))
        assert [tuple(rows.row(i))[1:] for i in range(len(rows))] == [("households", 0, 40)]
        assert sum(words in note for note in rows.notes) == 4
        assert len(rows.notes) == 4


def test_suppressed_reports_do_not_bound_a_property_with_more_occupied_units_than_ten(table):
    rows = hud_constraints(table, HudRecord(50, SUPPRESSED, 90))
    assert tuple(rows.row(0)) == ("HUD 1", "households", 45, 45)
    rows = hud_constraints(table, HudRecord(8, SUPPRESSED, MISSING))
    assert tuple(rows.row(0)) == ("HUD 1", "households", 0, 8)


def test_a_percent_without_a_number_of_reports_gives_no_row_and_says_so(table):
    rows = hud_constraints(table, HudRecord(40, MISSING, 100, 2.1, {"pct_bed1": 50}))
    assert rows.cell == ("households",)
    assert any("pct_bed1" in note and "not known" in note for note in rows.notes)


def test_a_tolerance_widens_each_row_by_as_much(table):
    record = HudRecord(20, 20, 100, 2.0, {"pct_bed1": 50})
    plain, wide = hud_constraints(table, record), hud_constraints(table, record, tolerance=2)
    assert (plain.low - wide.low).tolist() == (wide.high - plain.high).tolist() == [2, 2, 2]
    named = hud_constraints(table, record, tolerance={"pct_bed1": 3})
    assert (named.high - plain.high).tolist() == [0, 0, 3]
    queries = census_queries(table)
    rows = queries.constraints(np.zeros(20), tolerance=1)
    assert rows.low.tolist() == [0] * 20
    assert rows.high.tolist() == [1] * 20


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (HudRecord(20, 20, 100, -2), "codes are"),
        (HudRecord(20, 20, 101), "up to 100"),
        (HudRecord(20, 20, 100, 2.15), "one decimal"),
        (HudRecord(20, 20, 100, 2.1, {"pct_bed1": 45.5}), "whole percent"),
        (HudRecord(20, 20, 100, 2.1, {"pct_bed1": 130}), "whole percent"),
        (HudRecord(20, 20, 100, 2.1, {"pct_bed4": 10}), "not read"),
        (HudRecord(20, 20, 100, float("nan")), "write -1"),
        (HudRecord(2**40, 20, 100), "counts go up to"),
    ],
)
def test_a_line_that_hud_cannot_have_printed_is_refused(table, record, says):
    with pytest.raises(ReleaseError, match=says):
        hud_constraints(table, record)


@pytest.mark.parametrize("value", [-2, 2.5, float("inf"), 2.0**31])
def test_a_count_that_cannot_be_is_refused_with_its_table_and_cell(table, value):
    queries = census_queries(table)
    values = np.zeros(20)
    values[1] = value
    with pytest.raises(ReleaseError, match=r"H13 1 person is .* whole"):
        queries.constraints(values)


@pytest.mark.parametrize("tolerance", [-1, {"pct_bed1": -1}, 0.5, {"pct_bed_1": 1}, {"households": 1.0}])
def test_a_tolerance_that_narrows_a_row_or_names_none_is_refused(table, tolerance):
    """-1 would claim more than is printed; a misspelt cell would be believed to the last household."""
    line = HudRecord(20, 20, 100, percents={"pct_bed1": 50})
    with pytest.raises(ReleaseError, match="a tolerance"):
        hud_constraints(table, line, tolerance=tolerance)
    assert hud_constraints(table, line, tolerance=np.int64(1)).row(0)[2:] == (19, 21)


@pytest.mark.parametrize("record", [HudRecord(percents={"pct_bed1": 101}), HudRecord(people_per_unit=2.25)])
def test_a_value_that_cannot_be_is_refused_where_nobody_is_known_to_report_too(table, record):
    with pytest.raises(ReleaseError, match="it is printed"):
        hud_constraints(table, record)


def test_unpublished_cells_give_no_rows(table):
    queries = census_queries(table)
    values = np.zeros(20)
    values[[2, 5]] = np.nan, -1
    rows = queries.constraints(values)
    assert len(rows) == 18
    assert "2 persons" not in rows.cell


def test_the_number_of_answers_and_the_names_of_tables_are_checked(table):
    queries = census_queries(table)
    with pytest.raises(ReleaseError, match="one each"):
        queries.constraints([1, 2])
    with pytest.raises(ReleaseError, match="must not be negative"):
        queries.constraints(np.zeros(20), tolerance=-1)
    rows = queries.constraints(np.zeros(20))
    with pytest.raises(ModelError, match="no table 'H99'"):
        rows.without(["H99"])
    assert "H13" not in rows.without(["H13"]).tables
    with pytest.raises(ModelError, match="choose base or rich"):
        census_queries(table, "all")
    with pytest.raises(ModelError, match="from one table"):
        combine(rows, census_queries(household_configurations(properties=2)).constraints(np.zeros(20)))
    with pytest.raises(ModelError, match="must match"):
        Constraints(
            table, np.zeros((1, 3), np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64), ("a",), ("b",)
        )


def test_violated_rows_are_named(table):
    queries = census_queries(table)
    one = table.histogram([[0, 0, 1, 0, 0, 0]])
    rows = queries.constraints(queries.answers(one))
    other = table.histogram([[0, 0, 2, 0, 0, 0]])
    assert {(row.table, row.cell) for row in rows.violated_by(other)} == {
        ("H13", "2 persons"),
        ("H13", "3 persons"),
        ("P16", "18 and over"),
    }
    assert rows.violated_by(one) == ()


def _system(rng):
    rows, size = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    matrix = rng.integers(-1, 4, (rows, size))
    low = rng.integers(-2, 8, rows)
    high = low + rng.integers(-1, 4, rows)
    low[rng.random(rows) < 0.2] = -UNBOUNDED
    high[rng.random(rows) < 0.2] = UNBOUNDED
    matrix, low, high = np.vstack([matrix, np.ones(size, int)]), np.append(low, 0), np.append(high, 5)
    everything = np.array([x for x in itertools.product(range(6), repeat=size) if sum(x) <= 5])
    answers = everything @ matrix.T
    return matrix, low, high, everything[((answers >= low) & (answers <= high)).all(axis=1)]


def test_propagation_keeps_every_solution_and_stops_only_where_there_is_none():
    rng = np.random.default_rng(8)
    proved = tight = 0
    for _ in range(600):
        matrix, low, high, solutions = _system(rng)
        p = propagate(matrix, low, high)
        if p.row is not None:
            proved += 1
            assert len(solutions) == 0
            assert 0 <= p.row < len(low)
        elif len(solutions):
            assert (p.least <= solutions.min(axis=0)).all()
            assert (p.greatest >= solutions.max(axis=0)).all()
            tight += bool((p.greatest == solutions.max(axis=0)).all())
    assert proved > 100
    assert tight > 100


def test_a_zero_cell_rules_out_every_configuration_that_it_counts(table):
    queries = census_queries(table)
    x = table.histogram([[0, 0, 1, 0, 0, 0], [1, 2, 3, 1, 0, 1]])
    rows = queries.constraints(queries.answers(x))
    open_ones = rows.propagation.greatest > 0
    assert set(table.labels("size")[open_ones]) == {"2", "4"}
    assert set(table.labels("race")[open_ones]) == {"white_nonhispanic", "black_nonhispanic"}


def test_an_unbounded_configuration_is_said_to_be_so():
    table = Configurations.product(Attribute("size", ("1", "2"), (1, 2)))
    asked = Queries(table, np.array([[1, 0]]), ("H13",), ("1",), ("household",))
    assert asked.constraints([3]).propagation.greatest.tolist() == [3, LARGEST]


def test_configurations_outside_the_support_are_ruled_out_by_a_row_of_their_own(table):
    queries = census_queries(table)
    rows = queries.constraints(np.full(20, np.nan)).allowing({"size": ["1", "2"]}, "sample")
    assert rows.tables == ("sample",)
    assert set(table.labels("size")[rows.propagation.greatest > 0]) == {"1", "2"}
