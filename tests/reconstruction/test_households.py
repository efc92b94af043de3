"""Configurations, labelled counts, and the synthetic state of the paper's shape."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from adversary.errors import ModelError
from adversary.reconstruction.households import (
    OVER_LIMIT,
    RACES_8,
    RACES_14,
    SUBSIDISED,
    Attribute,
    Configurations,
    Predicate,
    from_xarray,
    household_configurations,
    to_xarray,
)
from adversary.reconstruction.synthetic import (
    BEDROOMS_LOOSE,
    BEDROOMS_RIGHT_SIZED,
    BEDROOMS_TO_NEED,
    StateShape,
    synthetic_state,
)

SIZE = Attribute("size", ("1", "2", "3"), (1, 2, 3))
CHILD = Attribute("child", ("no", "yes"))


@pytest.fixture(scope="module")
def state():
    return synthetic_state(StateShape(blocks=200), seed=7)


def test_every_household_configuration_has_fewer_children_than_persons_and_a_unit_if_and_only_if_subsidised():
    table = household_configurations(properties=2, races=RACES_14)
    census = sum(z for z in range(1, 8)) * 2 * 14
    assert len(table) == census * (1 + 2 * 3)
    assert (table.number("children") < table.number("size")).all()
    assert ((table.labels("property") == "none") == (table.labels("bedrooms") == "NA")).all()


def test_the_occupancy_limit_is_two_people_a_bedroom_below_three_bedrooms():
    table = household_configurations()
    limits = {"0-1": 2, "2": 4, "3+": 99, "NA": 99}
    picked = table.mask(OVER_LIMIT)
    for bedrooms, size, over in zip(table.labels("bedrooms"), table.labels("size"), picked, strict=True):
        assert over == (int(size) > limits[str(bedrooms)])
    assert picked.sum() == sum(z * 2 * 8 for z in range(3, 8)) + sum(z * 2 * 8 for z in range(5, 8))
    assert table.mask(OVER_LIMIT)[table.mask({"bedrooms": "3+"})].sum() == 0
    assert not table.mask(OVER_LIMIT)[~table.mask(SUBSIDISED)].any()


def test_any_predicate_may_be_the_harm():
    table = household_configurations()
    lone = Predicate("lone parent", lambda t: t.number("size") - t.number("children") == 1)
    both = table.mask(lone) & table.mask({"children": ["1", "2"]})
    assert (
        both.sum()
        == (table.mask({"size": "2", "children": "1"}) | table.mask({"size": "3", "children": "2"})).sum()
    )


def test_records_and_counts_are_inverse_up_to_order():
    table = household_configurations(properties=2)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(40, np.full(len(table), 1 / len(table)))
    records = table.records(counts)
    assert len(records) == 40
    assert (table.histogram(rng.permutation(records)) == counts).all()


def test_a_record_outside_the_table_is_found_nowhere_and_refused_in_a_histogram():
    table = Configurations.product(SIZE, CHILD).select({"size": ["1", "3"]})
    assert table.find([[0, 0], [1, 0], [2, 1], [5, 0], [-1, 1]]).tolist() == [0, -1, 3, -1, -1]
    with pytest.raises(ModelError, match=r"record \[1, 0\] has no configuration"):
        table.histogram([[1, 0]])


def test_cells_merge_configurations_that_agree():
    table = household_configurations()
    cell, cells = table.cells(["size", "race"])
    assert len(cells) == 7 * 8
    for name in ("size", "race"):
        assert (cells.labels(name)[cell] == table.labels(name)).all()


def test_values_of_the_census_part_are_carried_over_by_its_attributes():
    census = household_configurations(census_only=True)
    table = household_configurations(properties=2)
    carried = table.carry(np.arange(len(census)) + 1, census)
    for k in (0, 77, len(table) - 1):
        at = census.find(table.codes[k, 2:])[0]
        assert carried[k] == at + 1


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda: Configurations((SIZE,), np.array([[0], [0]])), "occurs twice"),
        (lambda: Configurations((SIZE,), np.array([[3]])), "has no level 3"),
        (lambda: Configurations((SIZE, CHILD), np.array([[0]])), "one column each"),
        (lambda: Configurations.product(SIZE).mask({"size": "9"}), "no level '9'"),
        (lambda: Configurations.product(SIZE).mask({"sice": "1"}), "no attribute 'sice'"),
        (lambda: Configurations.product(SIZE).mask([True]), "one bool each"),
        (lambda: Configurations.product(CHILD).number("child"), "are no numbers"),
        (lambda: household_configurations(properties=-1), "0 or more"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(broken, says):
    with pytest.raises(ModelError, match=says):
        broken()


def test_labelled_counts_survive_a_round_trip_with_and_without_blocks():
    table = household_configurations(properties=2, max_size=3)
    rng = np.random.default_rng(1)
    for shape in ((len(table),), (4, len(table))):
        counts = rng.integers(0, 3, shape)
        labelled = to_xarray(table, counts)
        assert labelled.coords["size"].dims == ("configuration",)
        back, again = from_xarray(labelled)
        assert back.attributes == table.attributes
        assert (back.codes == table.codes).all()
        assert (again == counts).all()


def test_a_plain_labelled_table_becomes_configurations():
    array = xr.DataArray(
        [[1, 0], [0, 2]], dims=("size", "child"), coords={"size": [1, 2], "child": ["no", "yes"]}
    )
    table, counts = from_xarray(array)
    assert table.number("size").tolist() == [1, 1, 2, 2]
    assert counts.tolist() == [1, 0, 0, 2]


@pytest.mark.parametrize("values", [[[1, 0], [0, -2]], [[1.5, 0], [0, 2]], [[np.nan, 0], [0, 2]]])
def test_counts_that_are_no_counts_are_refused(values):
    array = xr.DataArray(values, dims=("size", "child"), coords={"size": [1, 2], "child": ["no", "yes"]})
    with pytest.raises(ModelError, match="whole and not negative"):
        from_xarray(array)


def test_a_dimension_without_labels_is_refused():
    with pytest.raises(ModelError, match="no labels"):
        from_xarray(xr.DataArray([1, 2], dims=("size",)))


def test_the_three_shares_of_the_paper_hold_to_the_nearest_household_and_block(state):
    table = state.configurations()
    at = table.find(state.records)
    subsidised, harmed = table.mask(SUBSIDISED)[at], table.mask(OVER_LIMIT)[at]
    assert subsidised.sum() == round(0.47 * len(at))
    assert harmed.sum() == round(0.034 * subsidised.sum())
    assert len(np.unique(state.block[harmed])) == round(0.449 * len(state))
    assert harmed.sum() > len(np.unique(state.block[harmed])), "some blocks hold more than one"


def test_every_block_has_a_property_and_every_property_a_household(state):
    for b in range(len(state)):
        homes = np.unique(state.block_records(b)[:, 0])
        assert set(homes) - {0} == set(range(1, int(state.homes[b]) + 1))
    assert (state.homes == 1).mean() > 0.7
    assert (state.homes > 1).any()


def test_counts_of_a_block_are_its_records(state):
    for b in (0, 50, 199):
        table = state.configurations(b)
        counts = state.counts(b)
        assert counts.sum() == (state.block == b).sum()
        assert (np.sort(table.find(state.block_records(b))) == np.repeat(np.arange(len(table)), counts)).all()
        wide = state.counts(b, state.configurations())
        assert wide.sum() == counts.sum()


def test_households_within_the_limit_follow_the_rule_for_bedrooms():
    for rule in (BEDROOMS_RIGHT_SIZED, BEDROOMS_TO_NEED, BEDROOMS_LOOSE):
        state = synthetic_state(
            StateShape(blocks=400, bedrooms=rule, violating=0, violating_blocks=0), seed=3
        )
        table = state.configurations()
        at = table.find(state.records)
        assert not table.mask(OVER_LIMIT)[at].any()
        for size in (1, 2, 3):
            its = (state.records[:, 2] == size - 1) & (state.records[:, 0] > 0)
            for unit in (1, 2, 3):
                expected, n = rule[size - 1][unit - 1], its.sum()
                seen = (state.records[its, 1] == unit).mean()
                sd = np.sqrt(max(expected * (1 - expected), 1e-12) / n)
                assert abs(seen - expected) <= 4 * sd + 1e-9, (rule, size, unit)


def test_the_rules_for_bedrooms_can_be_told_apart_at_this_size():
    """Power of the test above: the rule of another table is refused."""
    state = synthetic_state(
        StateShape(blocks=400, bedrooms=BEDROOMS_TO_NEED, violating=0, violating_blocks=0), seed=3
    )
    its = (state.records[:, 2] == 1) & (state.records[:, 0] > 0)
    seen = (state.records[its, 1] == 1).mean()
    wrong = 0.9 * BEDROOMS_TO_NEED[1][0]
    assert abs(seen - wrong) > 4 * np.sqrt(wrong * (1 - wrong) / its.sum())


def test_the_same_seed_gives_the_same_state_and_another_seed_another():
    first, second, third = (synthetic_state(StateShape(blocks=40), seed=s) for s in (5, 5, 6))
    for name in ("records", "block", "tract", "position", "homes", "sample"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.records[:50], third.records[:50])
    generator = synthetic_state(StateShape(blocks=40), seed=np.random.default_rng(5))
    assert np.array_equal(first.records, generator.records)


def test_blocks_hold_only_what_the_sample_shows_unless_asked_otherwise():
    small = {"blocks": 300, "households": 20_000}
    for within in (True, False):
        state = synthetic_state(StateShape(**small, within_sample=within), seed=1)
        table = state.configurations()
        unseen = (state.shares(table)[table.find(state.records)] == 0).sum()
        assert (unseen == 0) == within


def test_the_sample_is_a_tenth_of_the_state_and_knows_no_subsidy(state):
    assert state.sample.sum() == 200_000
    table = state.configurations(0)
    shares = state.shares(table)
    free = table.mask({"property": "none"})
    assert shares[free].sum() == pytest.approx(1)
    at = state.census.find(table.codes[:, 2:])
    assert (shares == (state.sample / 200_000)[at]).all()


def test_wholly_subsidised_blocks_take_the_share_asked_for():
    state = synthetic_state(StateShape(blocks=400, whole=0.3), seed=2)
    alone = np.array([(state.block_records(b)[:, 0] > 0).all() for b in range(400)])
    assert 0.27 <= alone[state.block].mean() <= 0.33


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"blocks": 50, "violating": 0.001}, "cannot lie in exactly"),
        ({"blocks": 50, "subsidised": 0.1}, "lower whole="),
        ({"blocks": 50, "violating": 1.5}, "between 0 and 1"),
        ({"blocks": 0}, "1 or more"),
        ({"smallest": 20, "largest": 10}, "the smaller first"),
    ],
)
def test_shapes_that_cannot_be_are_refused(shape, says):
    with pytest.raises(ModelError, match=says):
        synthetic_state(StateShape(**shape), seed=1)


def test_the_room_is_entered_without_pymc_solvers_or_xarray():
    names = ("households", "constraints", "tables", "synthetic", "solve", "variability", "pl94")
    code = (
        "import sys\n"
        + "\n".join(f"import adversary.reconstruction.{name}" for name in names)
        + "\nheavy = {'pymc', 'pytensor', 'arviz', 'matplotlib', 'xarray', 'pandas', 'scipy', 'highspy', 'ortools'}"
        + "\nprint(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_race_lists_have_the_groups_of_the_tables():
    assert len(RACES_8) == 8
    assert len(set(RACES_14)) == 14
    assert all(
        f"{a}_{b}" in RACES_14 for a, b in itertools.product(["white", "asian"], ["hispanic", "nonhispanic"])
    )
