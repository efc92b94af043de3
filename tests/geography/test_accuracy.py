"""Accuracy of areas under three spines: one area at a time, dense least squares, and the specification's table in shape."""

from __future__ import annotations

import csv
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from adversary.errors import AdversaryError, BudgetError
from adversary.geography.accuracy import (
    KINDS,
    Accuracy,
    area_codes,
    compare_accuracy,
    contracted_estimate,
    entity_variances,
    rows_of_leaves,
    with_state_totals,
    write_distances,
)
from adversary.geography.blocks import BlockTable
from adversary.geography.bypass import bypass_only_children
from adversary.geography.das import aian_spine, conventional_spine, optimized_spine
from adversary.geography.off_spine import entity_distances
from adversary.geography.plans import level_shares, strategies_of
from adversary.geography.spine import Spine
from adversary.privacy.budget import Allocation
from adversary.release.estimate import two_pass

if TYPE_CHECKING:
    from pathlib import Path

PERSONS = Allocation.load("2020-pl94-persons")


def synthetic_state(seed: int = 1) -> BlockTable:
    """2,400 blocks, 3 counties, 24 places with one block in twenty flipped, 2 AIAN areas; made up."""
    rng = random.Random(seed)
    ids, places, areas = [], [], []
    for county in (1, 3, 5):
        for tract in range(10):
            for group in range(1, 5):
                for block in range(20):
                    i = len(ids)
                    ids.append(f"45{county:03d}{tract:04d}00{group}{block:03d}")
                    # runs of 115 blocks do not end where tracts of 80 do; 8 places a county, then nothing
                    place = (i % 800) // 115 + 1 + 10 * county if (i % 800) < 800 else 0
                    if rng.random() < 0.05:
                        place = rng.randint(1, 8) + 10 * county
                    places.append(f"{place:05d}")
                    inside = (30 <= i < 60 and i % 3 == 0) or 1500 <= i < 1700
                    areas.append(("0100" if i < 60 else "2415") if inside else "9999")
    return BlockTable(ids, aiannhce=areas, place=places)


@pytest.fixture(scope="module")
def compared() -> Accuracy:
    blocks, shares = synthetic_state(), level_shares(PERSONS)
    spines = {
        "conventional": conventional_spine(blocks, shares),
        "AIAN": aian_spine(blocks, shares),
        "optimised": optimized_spine(blocks, shares),
    }
    return compare_accuracy(spines, blocks, lambda s: strategies_of(s, PERSONS), PERSONS.total)


def test_the_made_up_state_has_the_shape_of_the_specifications(compared: Accuracy) -> None:
    rows = {r.kind: r.areas for r in compared.rows if r.spine == "optimised"}
    assert rows["block"] == 2_400
    assert (rows["county"], rows["place"], rows["AIAN area"], rows["state"]) == (3, 24, 2, 1)


def test_places_gain_an_order_of_magnitude_and_tabulation_block_groups_lose_it(compared: Accuracy) -> None:
    def mean(kind: str, spine: str) -> float:
        return compared.row(spine, kind).mean

    assert mean("place", "conventional") > 60
    assert mean("place", "AIAN") == pytest.approx(mean("place", "conventional"), rel=0.05)
    assert mean("place", "optimised") < 0.1 * mean("place", "conventional")
    for spine in ("conventional", "AIAN"):
        assert mean("tabulation block group", spine) < 3
    assert mean("tabulation block group", "optimised") > 20 * mean("tabulation block group", "conventional")
    assert mean("all AIAN areas", "conventional") > 10 * mean("all AIAN areas", "AIAN")
    assert mean("AIAN area", "AIAN") == pytest.approx(mean("AIAN area", "optimised"), rel=0.3)
    # counties that the areas cut lose a little; tracts and blocks stay as they were
    assert 1 < mean("county", "AIAN") / mean("county", "conventional") < 1.5
    assert mean("tract", "optimised") == pytest.approx(mean("tract", "conventional"), rel=0.3)
    assert mean("block", "optimised") == pytest.approx(mean("block", "conventional"), rel=0.05)


def test_a_states_total_that_is_published_is_known_and_helps_its_counties(compared: Accuracy) -> None:
    blocks, shares = synthetic_state(), level_shares(PERSONS)
    for nation in (True, False):
        own = shares if nation else {k: v for k, v in shares.items() if k != "US"}
        spine = with_state_totals(aian_spine(blocks, own))
        assert spine.codes(spine.units("State_Total")) == ["45"]
        assert spine.children(spine.index("45", "State_Total")).size == 2
        known = compare_accuracy(
            {"AIAN": spine},
            blocks,
            lambda s: strategies_of(s, PERSONS),
            PERSONS.total,
            exact=lambda s: s.units("State_Total"),
        )
        assert known.row("AIAN", "state").most == pytest.approx(0.0, abs=1e-6)
        assert known.row("AIAN", "county").mean < compared.row("AIAN", "county").mean
        assert known.row("AIAN", "all AIAN areas").mean < compared.row("AIAN", "all AIAN areas").mean


def test_all_areas_in_one_pass_are_the_areas_one_by_one_and_dense_least_squares() -> None:
    rng = np.random.default_rng(4)
    rows = [(a, b, c) for a in range(3) for b in range(rng.integers(1, 4)) for c in range(rng.integers(1, 5))]
    table = {
        "county": [f"{a}" for a, _, _ in rows],
        "tract": [f"{a}{b}" for a, b, _ in rows],
        "block": [f"{a}{b}{c}" for a, b, c in rows],
    }
    spine = Spine.from_blocks(table)
    noise = rng.uniform(0.5, 20, len(spine))
    noise[rng.random(len(spine)) < 0.15] = np.inf
    noise[spine.leaves] = rng.uniform(2, 50, spine.leaves.size)
    noise[0] = 0.0  # an invariant
    labels = rng.choice(["A", "B", "C", ""], spine.leaves.size)
    merged, estimate = contracted_estimate(spine, noise)
    place = {u: i for i, u in enumerate(merged.unit[spine.leaves].tolist())}
    ordered = labels[[place[u] for u in merged.spine.leaves.tolist()]]
    names, variance = entity_variances(merged.spine, estimate, ordered)
    whole = two_pass(spine.parents, np.zeros(len(spine)), noise)
    incidence = np.zeros((len(spine), spine.leaves.size))
    for i, leaf in enumerate(spine.leaves.tolist()):
        incidence[spine.path(leaf), i] = 1
    seen = np.isfinite(noise) & (noise > 0)
    information = incidence[seen].T @ (incidence[seen] / noise[seen, None])
    cov = np.linalg.inv(information)
    exact = incidence[0]
    cov -= np.outer(cov @ exact, cov @ exact) / (exact @ cov @ exact)
    for name, value in zip(names.tolist(), variance.tolist(), strict=True):
        weights = np.zeros(len(spine))
        weights[spine.leaves[labels == name]] = 1.0
        assert value == pytest.approx(whole.variance_of(weights), rel=1e-10)
        w = (labels == name).astype(float)
        assert value == pytest.approx(w @ cov @ w, rel=1e-8)


def test_where_blocks_are_not_measured_areas_are_taken_one_by_one() -> None:
    spine = Spine.from_blocks({"tract": ["1", "1", "2", "2"], "block": ["11", "12", "21", "22"]})
    noise = np.array([1.0, 2.0, np.inf, 3.0, np.inf, np.inf])
    estimate = two_pass(spine.parents, np.zeros(6), noise)
    names, variance = entity_variances(spine, estimate, np.array(["A", "A", "B", ""]))
    assert names.tolist() == ["A", "B"]
    assert variance.tolist() == [1.0, np.inf]


def test_a_bypassed_chain_has_all_its_budget_in_one_unit() -> None:
    shares = {"tract": "1/2", "block": "1/2"}
    spine = bypass_only_children(
        Spine.from_blocks({"tract": ["1", "2", "2"], "block": ["11", "21", "22"]}, shares)
    )
    noise = np.where(spine.shares > 0, 1 / np.maximum(spine.shares, 1e-300), np.inf)
    merged, estimate = contracted_estimate(spine, noise)
    assert estimate.variance[merged.unit[spine.index("11")]] == pytest.approx(1.0)
    assert merged.unit[spine.index("1")] == merged.unit[spine.index("11")]


def test_rows_of_leaves_find_geoids_geocodes_and_production_codes() -> None:
    ids = ["010010201001001", "010010201001000", "010010201002000"]
    blocks = BlockTable(ids, place=["", "00124", ""])
    shares = level_shares(PERSONS)
    plain = Spine.from_geocodes(ids, {"county": 5, "block": 15})
    for spine in (
        plain,
        conventional_spine(blocks, shares),
        aian_spine(blocks, shares),
        optimized_spine(blocks, shares),
    ):
        rows = rows_of_leaves(spine, blocks)
        for leaf, row in zip(spine.leaves.tolist(), rows.tolist(), strict=True):
            code = str(spine.geocodes[leaf])
            assert code in (ids[row], code[:-16] + str(blocks.block[row]))
    with pytest.raises(AdversaryError, match="is no block of the table"):
        rows_of_leaves(plain, blocks.take(np.array([0])))


def test_kinds_of_area_carry_their_state_and_county() -> None:
    blocks = BlockTable(
        ["440010301001000", "250010301001000"], place=["74300", "74300"], cousub=["05140", ""]
    )
    assert area_codes(blocks, "place").tolist() == ["4474300", "2574300"]
    assert area_codes(blocks, "county subdivision").tolist() == ["4400105140", ""]
    with pytest.raises(AdversaryError, match="'village' is no kind of area: choose from state, county"):
        area_codes(blocks, "village")


def test_what_a_function_of_areas_must_give_is_said() -> None:
    spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]}, {"tract": "1/2", "block": "1/2"})
    from adversary.geography.plans import one_query

    with pytest.raises(BudgetError, match="1 codes of kind 'park' for 2 leaves"):
        compare_accuracy({"a": spine}, {"park": lambda _: ["A"]}, one_query, 1)
    found = compare_accuracy(
        {"a": spine}, {"park": lambda _: ["A", ""]}, one_query, 1, exact=lambda s: [s.index("1")]
    )
    assert found.row("a", "park").mean == pytest.approx(
        1.0
    )  # the total is known: half of the difference is left
    with pytest.raises(AdversaryError, match="no row of spine 'b'"):
        found.row("b", "park")


def test_tables_keep_codes_as_text(tmp_path: Path) -> None:
    blocks = BlockTable(["010010201001000", "010010201001001"], place=["00124", ""])
    shares = level_shares(PERSONS)
    spine = conventional_spine(blocks, shares)
    found = compare_accuracy(
        {"conventional": spine}, blocks, lambda s: strategies_of(s, PERSONS), PERSONS.total
    )
    found.to_csv(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    of = {(r["kind"], r["code"]): float(r["standard_deviation"]) for r in rows}
    assert of["place", "0100124"] == found.row("conventional", "place").mean
    assert "all AIAN areas" not in {k for k, _ in of}
    assert any("place" in line and "(" in line for line in found.lines())
    codes = area_codes(blocks, "place")[rows_of_leaves(spine, blocks)]
    write_distances(tmp_path / "d.csv", {"place": {"conventional": entity_distances(spine, codes)}})
    assert (tmp_path / "d.csv").read_text() == "kind,code,conventional\nplace,0100124,1\n"
    assert set(found.kinds) < set(KINDS)
