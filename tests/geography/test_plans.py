"""From an allocation to a spine, by name."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from adversary.errors import BudgetError, ReleaseError
from adversary.geography.blocks import BlockTable
from adversary.geography.bypass import bypass_only_children
from adversary.geography.das import conventional_spine
from adversary.geography.plans import level_shares, one_query, query_noise, query_shares, strategies_of
from adversary.geography.spine import Spine
from adversary.privacy.budget import Allocation

PERSONS = Allocation.load("2020-pl94-persons")


@pytest.mark.parametrize("name", Allocation.names())
def test_every_published_allocation_has_the_levels_of_a_spine_and_spends_all(name: str) -> None:
    shares = level_shares(Allocation.load(name))
    assert sum(shares.values()) == 1
    assert list(shares)[-2:] == ["Block_Group", "Block"]
    assert ("Prim" in shares) == ("dhc" in name)
    assert ("US" in shares) == (not name.endswith("-pr"))


def chain() -> Spine:
    ids = ["440010001001000", "440010002001000", "440010002001001"]
    return conventional_spine(BlockTable(ids), level_shares(PERSONS))


def test_noise_of_a_query_is_the_allocations_where_nothing_moved() -> None:
    spine = chain()
    noise = query_noise(spine, query_shares(spine, PERSONS), PERSONS.total, "hispanic*cenrace")
    for unit in spine.path("440010002001000"):
        assert noise[unit] == PERSONS.sigma2(spine.level(unit), "hispanic * cenrace", "bounded")


def test_budget_that_moved_is_spent_with_the_mix_of_the_level_it_is_now_in() -> None:
    spine = bypass_only_children(chain())
    noise = query_noise(spine, query_shares(spine, PERSONS), PERSONS.total, "detailed")
    path = spine.path("440010001001000")
    tract, block = path[3], path[5]
    share = sum(PERSONS.level[k] for k in ("tract", "block_group", "block"))
    wanted = 1 / (PERSONS.total.fraction * share * PERSONS.query["tract"]["detailed"])
    assert noise[tract] == float(wanted)
    assert np.isinf(noise[block])
    level_table = PERSONS.sigma2("block", "detailed", "bounded")
    assert level_table not in noise[path].tolist()


def test_a_query_that_the_nation_does_not_ask_is_not_measured_there() -> None:
    spine = chain()
    noise = query_noise(spine, query_shares(spine, PERSONS), PERSONS.total, "total")
    assert np.isinf(noise[0])
    assert np.isfinite(noise[1:]).all()


def test_what_cannot_be_is_named() -> None:
    spine = chain()
    mixes = query_shares(spine, PERSONS)
    with pytest.raises(BudgetError, match="no measured level asks the query 'income'"):
        query_noise(spine, mixes, 1, "income")
    with pytest.raises(BudgetError, match="level Block has budget but no queries"):
        query_noise(spine, {k: v for k, v in mixes.items() if k != "Block"}, 1, "detailed")
    other = Spine.from_blocks(
        {"village": ["1", "1"], "house": ["11", "12"]}, {"village": "1/2", "house": "1/2"}
    )
    with pytest.raises(BudgetError, match="no level 'village'"):
        query_shares(other, PERSONS)
    dhc = Allocation.load("2020-dhc-persons")
    shares = dict.fromkeys(("County", "Tract", "Block_Group", "Block"), 0) | {"State": 1}
    plain = conventional_spine(BlockTable(["440010001001000"]), shares)
    with pytest.raises(ReleaseError, match="give histogram="):
        strategies_of(plain, dhc)


def test_persons_and_units_are_told_apart_by_their_queries() -> None:
    spine = chain()
    assert strategies_of(spine, PERSONS)["Tract"].histogram.cells == 2016
    units = conventional_spine(
        BlockTable(["440010001001000"]), level_shares(Allocation.load("2020-pl94-units"))
    )
    assert strategies_of(units, Allocation.load("2020-pl94-units"))["Tract"].histogram.cells == 2
    assert one_query(spine)["Block"].alphas == {"total": Fraction(1)}


def test_an_allocations_own_budget_is_a_budget_for_a_spine() -> None:
    spine = chain()
    assert spine.rho_between("440010002001001", None, PERSONS.total) == PERSONS.total.fraction / 2
    assert spine.table(PERSONS.total)[0]["sigma2"] == 1 / (PERSONS.total.fraction * PERSONS.level["nation"])
