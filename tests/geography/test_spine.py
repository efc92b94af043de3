"""Spines: what is built, what is refused with which ids, and what a path says about privacy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from adversary.errors import AdversaryError, BudgetError, FileFormatError
from adversary.geography.blocks import zero_filled
from adversary.geography.bypass import bypass_only_children
from adversary.geography.spine import Spine
from adversary.release.queries import Histogram, Strategy

TABLE = {
    "county": ["01", "01", "01", "01", "03", "03"],
    "tract": ["011", "011", "011", "012", "031", "031"],
    "block": ["0111", "0112", "0113", "0121", "0311", "0312"],
}
SHARES = {"county": "1/2", "tract": "1/3", "block": "1/6"}


def test_arrays_hold_the_units_and_parents_come_before_children() -> None:
    spine = Spine.from_blocks(TABLE, SHARES)
    assert len(spine) == 11
    assert spine.geocodes.tolist() == ["01", "03", "011", "012", "031", *TABLE["block"]]
    assert spine.parents.tolist() == [-1, -1, 0, 0, 1, 2, 2, 2, 3, 4, 4]
    assert (spine.parents < np.arange(len(spine))).all()
    assert spine.uniform
    assert spine.path_totals() == {Fraction(1)}


def test_a_path_its_siblings_and_children_are_found_by_code() -> None:
    spine = Spine.from_blocks(TABLE, SHARES)
    assert spine.codes(spine.path("0112")) == ["01", "011", "0112"]
    assert spine.codes(spine.siblings("0112")) == ["0111", "0113"]
    assert spine.codes(spine.siblings("01")) == ["03"]
    assert spine.codes(spine.children("01")) == ["011", "012"]
    assert spine.level("012") == "tract"
    assert spine.codes(spine.ancestor("county")) == TABLE["county"]
    assert spine.codes(spine.units("county")) == ["01", "03"]


def test_a_block_is_found_by_geocode16_and_by_geoid() -> None:
    spine = Spine.from_geocodes(["9954400103010011000", "9954400103010011001"], {"state": 3, "block": 19})
    assert spine.index("4400103010011000") == spine.index("440010301001000") == 1
    with pytest.raises(AdversaryError, match=r"'44001' is not in the spine.*leading zeros"):
        spine.index("44001")


def test_the_same_code_at_two_levels_needs_its_level_unless_it_is_one_chain() -> None:
    spine = Spine.from_blocks({"county": ["1", "2"], "tract": ["2", "3"]})
    with pytest.raises(AdversaryError, match="several units"):
        spine.index("2")
    assert spine.index("2", "tract") == 2
    chain = Spine.from_blocks({"county": ["1", "2"], "tract": ["1", "2"]})
    assert chain.level("1") == "tract"


# ------------------------------------------------------------------ P19: missing level, two parents, cycle
def test_p19a_a_ragged_tree_is_a_spine() -> None:
    units = ["A", "B", "AA", "AB", "BA", "BB", "AA1", "AA2", "BB1"]
    parents = ["", "", "A", "A", "B", "B", "AA", "AA", "BB"]
    spine = Spine.from_parents(units, parents, levels=["region", "area", "place"])
    assert spine.codes(spine.leaves) == ["AB", "BA", "AA1", "AA2", "BB1"]
    assert not spine.uniform
    assert spine.with_shares({"region": 1, "area": 2, "place": 3}).path_totals() == {Fraction(3), Fraction(6)}


def test_a_branch_may_skip_a_level() -> None:
    spine = Spine.from_blocks({"province": ["p", "p"], "cercle": ["c", ""], "commune": ["1", "2"]})
    assert spine.codes(spine.path("2")) == ["p", "2"]
    assert spine.codes(spine.path("1")) == ["p", "c", "1"]
    assert not spine.uniform


def test_p19b_two_parents_are_refused_with_the_ids() -> None:
    with pytest.raises(FileFormatError, match="'b' has two parents, 'X' and 'Y'") as error:
        Spine.from_parents(["X", "Y", "b", "b"], ["", "", "X", "Y"])
    assert error.value.value == ("b", "X", "Y")
    with pytest.raises(FileFormatError, match="block 'b1' lies under both 'g1' and 'g2'"):
        Spine.from_blocks({"group": ["g1", "g2"], "block": ["b1", "b1"]})


def test_p19c_a_cycle_is_found_although_the_rest_of_the_tree_is_good() -> None:
    with pytest.raises(FileFormatError, match="units X > Y > X form a cycle") as error:
        Spine.from_parents(["A", "A1", "X", "Y", "below"], ["", "A", "Y", "X", "X"])
    assert error.value.value == ["X", "Y"]
    with pytest.raises(FileFormatError, match="S > S form a cycle"):
        Spine.from_parents(["A", "S"], ["", "S"])


def test_p19d_a_parent_that_is_not_listed_is_named() -> None:
    with pytest.raises(FileFormatError, match="'b' names the parent 'Z', which is not listed"):
        Spine.from_parents(["A", "b"], [None, "Z"])


@pytest.mark.parametrize(
    "build",
    [
        lambda: Spine.from_parents(["A", "b", "b"], ["", "A", "A"]),
        lambda: Spine.from_blocks({"tract": ["A", "A"], "block": ["b", "b"]}),
        lambda: Spine.from_geocodes(["b", "b"], {"block": 1}),
    ],
    ids=["pairs", "table", "prefixes"],
)
def test_p19e_the_same_geocode_twice_is_refused(build: object) -> None:
    with pytest.raises(FileFormatError, match="'b' is listed 2 times"):
        build()  # type: ignore[operator]


def test_crossed_hierarchies_are_refused_with_advice() -> None:
    table = {"place": ["P", "P", "Q"], "tract": ["1", "2", "2"], "block": ["a", "b", "c"]}
    with pytest.raises(FileFormatError, match=r"tract '2' lies under both 'P' and 'Q'.*off-spine entity"):
        Spine.from_blocks(table)
    nested = Spine.from_blocks(table, nested=True)
    assert nested.codes(nested.path("P2b")) == ["P", "P2", "P2b"]


def test_a_block_that_is_also_a_parent_is_refused() -> None:
    with pytest.raises(FileFormatError, match="'t' is a block in one row and the parent of others"):
        Spine.from_blocks({"tract": ["t", "t"], "block": ["", "b"]})


# ------------------------------------------------------------------ P15: leading zeros
def test_p15_codes_that_went_through_a_number_are_refused() -> None:
    with pytest.raises(FileFormatError, match=r"got the number 10010201001000.*leading zeros"):
        Spine.from_blocks({"block": np.array([10010201001000, 440070001011000])})
    with pytest.raises(FileFormatError, match=r"'10010201001000' \(row 0\) has 14 characters, not 15"):
        Spine.from_geocodes(["10010201001000", "440070001011000"], {"state": 2, "block": 15})
    with pytest.raises(FileFormatError, match="a leading zero may be lost"):
        Spine.from_blocks({"tract": ["1001", "01003"], "block": ["a", "b"]})
    with pytest.raises(FileFormatError, match="got the number"):
        Spine.from_parents([1, 2], ["", "1"])


def test_p15_a_repair_is_announced() -> None:
    with pytest.warns(UserWarning, match="1 of 2 block codes were filled"):
        codes = zero_filled([10010201001000, 440070001011000], 15)
    spine = Spine.from_geocodes(codes, {"state": 2, "block": 15})
    assert spine.codes(spine.units("state")) == ["01", "44"]
    with pytest.raises(FileFormatError, match="cannot be filled"):
        zero_filled(["1234"], 3)


# ------------------------------------------------------------------ P14: shares by name
def test_p14_shares_by_position_are_refused() -> None:
    with pytest.raises(BudgetError, match=r"by position they may run the wrong way; write \{'county'"):
        Spine.from_blocks(TABLE, ["1/2", "1/3", "1/6"])  # type: ignore[arg-type]


def test_p14_the_table_shows_level_share_and_noise_and_swapping_changes_the_noise() -> None:
    down = Spine.from_blocks(TABLE, {"county": 0.1, "tract": 0.3, "block": 0.6})
    up = Spine.from_blocks(TABLE, {"county": 0.6, "tract": 0.3, "block": 0.1})
    sigma2 = [spine.table(rho=1)[-1]["sigma2"] for spine in (down, up)]
    assert sigma2 == [Fraction(5, 3), Fraction(10)]
    assert sigma2[1] == 6 * sigma2[0]
    assert "block" in str(down)
    assert "3/5" in str(down)


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ({"county": 1, "tract": 1}, "no entry for level 'block'"),
        ({"county": 1, "tract": 1, "blocks": 1}, "unknown level 'blocks'"),
        ({"county": 1, "tract": 1, "block": -1}, "must not be negative"),
        ({"county": 1, "tract": float("nan"), "block": 1}, "finite number, got nan"),
        ({"county": 1, "tract": float("inf"), "block": 1}, "finite number, got inf"),
        ({"county": 1, "tract": "a", "block": 1}, "finite number, got 'a'"),
    ],
)
def test_shares_that_are_none_are_refused(shares: dict, text: str) -> None:
    with pytest.raises(BudgetError, match=text):
        Spine.from_blocks(TABLE, shares)


# ------------------------------------------------------------------ what a path says about privacy
def brute_force(spine: Spine, strategies: dict, rho: Fraction, worlds: tuple) -> Fraction:
    """Half the sum of squared differences of all true answers over their noise."""
    total = Fraction(0)
    for unit in range(len(spine)):
        share = spine.share(unit)
        if not share:
            continue
        strategy = strategies[spine.level(unit)]
        for name, noise in strategy.sigma2(rho, share).items():
            group = strategy.histogram.group(name)
            answers = []
            for world in worlds:
                cells = np.zeros(group.histogram.cells, int)
                if world is not None and unit in spine.path(world[0]):
                    cells[world[1]] += 1
                answers.append(group.answer(cells))
            total += Fraction(int(((answers[0] - answers[1]) ** 2).sum())) / noise / 2
    return total


def test_rho_between_two_worlds_is_half_the_squared_difference_over_the_noise() -> None:
    histogram = Histogram({"sex": 2, "race": 3})
    mixes = {
        "county": Strategy(histogram, {"total": "1/2", "detailed": "1/2"}),
        "tract": Strategy(histogram, {"sex": "1/5", "race": "4/5"}),
        "block": Strategy(histogram, {"sex": "1/7", "detailed": "6/7"}),
    }
    rho = Fraction(9, 4)
    for spine in (Spine.from_blocks(TABLE, SHARES), bypass_only_children(Spine.from_blocks(TABLE, SHARES))):
        for x, y in (("0111", "0112"), ("0111", "0121"), ("0121", "0311"), ("0121", "0121")):
            for cell, other in ((0, 0), (0, 1), (0, 3), (1, 5)):
                worlds = ((x, cell), (y, other))
                apart = {level: mix.separating(cell, other) for level, mix in mixes.items()}
                assert spine.rho_between(x, y, rho, apart) == brute_force(spine, mixes, rho, worlds)
                if cell == other:
                    assert spine.rho_between(x, y, rho) == brute_force(spine, mixes, rho, worlds)
            assert spine.rho_between(x, None, rho) == brute_force(spine, mixes, rho, ((x, 2), None))


def test_nobody_is_told_apart_from_herself() -> None:
    assert Spine.from_blocks(TABLE, SHARES).rho_between("0111", "0111", 5) == 0


# ------------------------------------------------------------------ other spines of the same blocks
def test_a_contracted_spine_has_no_chains_and_the_same_path_sums() -> None:
    spine = bypass_only_children(Spine.from_blocks(TABLE, SHARES))
    small = spine.contract()
    assert (small.spine.n_children != 1).all()
    assert small.spine.path_totals() == spine.path_totals() == {Fraction(1)}
    assert {small.spine.share(c) for c in TABLE["block"]} == {Fraction(1, 6), Fraction(1, 2)}
    lone = small.spine.index("0121")
    assert small.spine.level(lone) == "tract"  # the budget is spent with the tract's query mix
    assert small.unit[spine.index("012")] == small.unit[spine.index("0121")] == lone
    for leaf in spine.leaves:  # a path keeps its order
        merged = [int(small.unit[u]) for u in spine.path(leaf)]
        assert sorted(set(merged)) == small.spine.path(int(small.unit[leaf]))


def test_a_chain_that_spends_at_two_levels_is_not_merged_unasked() -> None:
    spine = Spine.from_blocks(TABLE, SHARES)
    with pytest.raises(BudgetError, match=r"levels county, tract, whose.*bypass the spine first"):
        spine.contract()
    assert spine.contract(mixed=True).spine.share("0121") == Fraction(1, 2)


def test_units_without_budget_join_two_parts_of_a_state() -> None:
    spine = Spine.from_blocks({"US": ["u"] * 3, "State": ["004", "104", "025"], "Block": ["a", "b", "c"]})
    joined = spine.insert_level("Whole_State", "State", ["04", "25", "04"])  # units in order 004, 025, 104
    assert joined.levels == ("US", "Whole_State", "State", "Block")
    assert joined.codes(joined.path("b")) == ["u", "04", "104", "b"]
    assert joined.codes(joined.siblings("104")) == ["004"]
    assert (joined.parents < np.arange(len(joined))).all()
    shares = spine.with_shares({"US": 1, "State": 2, "Block": 3}).insert_level(
        "W", "State", ["04", "25", "04"]
    )
    assert shares.path_totals() == {Fraction(6)}
    assert shares.share("25") == 0
