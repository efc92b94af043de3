"""The promises of whole allocations: the certificates' epsilons, and budgets against plain sums over two records."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from adversary.errors import BudgetError
from adversary.privacy.accounting import epsilon
from adversary.privacy.budget import Allocation, Rho
from adversary.privacy.certificates import PL94_WORDS, attribute_rho, certificate, location_rho, spine_rho

FOLDER = Path(__file__).parents[1] / "reference"
PRIVACY = json.loads((FOLDER / "spines.json").read_text()).get("privacy", {})
PERSONS = {"US": "2020-pl94-persons", "PR": "2020-pl94-persons-pr"}


@pytest.mark.parametrize("place", [p for p in PERSONS if p in PRIVACY.get("persons", {})])
def test_the_certificates_of_persons_are_met_to_the_digit(place: str) -> None:
    allocation = Allocation.load(PERSONS[place])
    made, wanted = certificate(allocation, words=PL94_WORDS), PRIVACY["persons"][place]
    assert round(made.epsilon, 2) == PRIVACY["persons"]["certificate"]["epsilon"] == 17.14
    assert made.epsilon == pytest.approx(PRIVACY["persons"]["epsilon"], rel=1e-9)
    assert {k: round(v, 2) for k, v in made.attributes.items()} == wanted["certificate_attribute_epsilon"]
    within = {allocation.level_named(k): v for k, v in wanted["certificate_block_within_epsilon"].items()}
    assert {k: round(v, 2) for k, v in made.locations.items()} == within


def test_the_figures_in_print_are_met() -> None:
    us, pr = (certificate(Allocation.load(name), words=PL94_WORDS) for name in PERSONS.values())
    assert [round(us.attributes[a], 2) for a in ("hhgq", "votingage", "hispanic", "cenrace")] == [
        7.24,
        7.57,
        10.04,
        10.08,
    ]
    assert [round(e, 2) for e in us.locations.values()] == [2.93, 9.38, 11.70, 13.05, 16.89]
    assert [round(e, 2) for e in pr.locations.values()] == [2.93, 11.18, 13.51, 15.41]
    assert "value of hispanic" in us.table()
    assert us.table().splitlines()[-1].split() == ["block", "within", "nation", "16.89"]


@pytest.mark.skipif("units" not in PRIVACY, reason="the reference has no units")
def test_the_certificate_of_housing_units_is_met() -> None:
    allocation = Allocation.load("2020-pl94-units")
    made, wanted = certificate(allocation), PRIVACY["units"]
    assert round(made.epsilon, 2) == wanted["certificate"]["epsilon"]
    within = {allocation.level_named(k): v for k, v in wanted["certificate_block_within_epsilon_US"].items()}
    assert {k: round(v, 2) for k, v in made.locations.items()} == within
    assert made.attributes == {}
    # whether a unit is occupied is all that is asked, so its value has the whole budget
    assert attribute_rho(allocation, "h1", {"h1": "h1"}) == allocation.total


def direct(allocation: Allocation, path_a: tuple[str, ...], path_b: tuple[str, ...], cells: Any) -> Fraction:
    """Half the sum of (change of an entry)^2 / sigma^2 when a record moves from one path and cell to another."""
    a, b = cells
    cost = Fraction(0)
    for level, unit_a, unit_b in zip(allocation.levels, path_a, path_b, strict=True):
        for query in allocation.query[level]:
            words = set(PL94_WORDS) if query == "detailed" else set(query.split(" * ")) - {"total"}
            entry = {
                cell_name: (unit, tuple(cell[PL94_WORDS[w]] for w in sorted(words)))
                for cell_name, unit, cell in (("a", unit_a, a), ("b", unit_b, b))
            }
            changed = 0 if entry["a"] == entry["b"] else 2
            sigma2 = 1 / allocation.rho(level, query).fraction
            cost += Fraction(changed, 2) / sigma2
    return cost


@pytest.mark.parametrize("name", PERSONS.values())
def test_promises_are_what_one_replaced_record_costs(name: str) -> None:
    allocation = Allocation.load(name)
    depth = len(allocation.levels)
    here = tuple(f"a{k}" for k in range(depth))
    cell = dict.fromkeys(PL94_WORDS.values(), 0)
    for attribute in set(PL94_WORDS.values()):
        other = {**cell, attribute: 1}
        assert direct(allocation, here, here, (cell, other)) == attribute_rho(allocation, attribute)
    for k, level in enumerate(allocation.levels[:-1]):
        there = here[: k + 1] + tuple(f"b{j}" for j in range(k + 1, depth))
        assert direct(allocation, here, there, (cell, cell)) == location_rho(allocation, level)
        for changed in itertools.product((0, 1), repeat=4):
            other = dict(zip(cell, changed, strict=True))
            cost = direct(allocation, here, there, (cell, other))
            assert cost <= spine_rho(allocation.total, {1}).fraction
    elsewhere = here[:1] + tuple(f"b{j}" for j in range(1, depth))
    # the highest level asks no total: moving away and changing everything spends the whole budget
    assert direct(allocation, here, elsewhere, (cell, dict.fromkeys(cell, 1))) == allocation.total.fraction
    everything = direct(allocation, here, here, (cell, dict.fromkeys(cell, 1)))
    with_total = [lev for lev in allocation.levels if "total" in allocation.query[lev]]
    untouched = sum((allocation.rho(lev, "total").fraction for lev in with_total), Fraction(0))
    assert everything == allocation.total.fraction - untouched  # in one block the total stays


def test_a_spine_promises_what_its_dearest_path_spends() -> None:
    assert spine_rho("293764/114921", {Fraction(1)}) == Rho("293764/114921")
    assert spine_rho("2", ["1/2", "5/4"]) == Rho("5/2")
    assert spine_rho("2", ["1/2", "5/4"], "unbounded") == Rho("5/4")
    assert spine_rho(0, [1]) == 0
    assert spine_rho("inf", [1]).infinite
    with pytest.raises(BudgetError, match="a spine without paths"):
        spine_rho(1, [])
    with pytest.raises(BudgetError, match="'bounded' or 'unbounded', got 'both'"):
        spine_rho(1, [1], "both")
    with pytest.raises(BudgetError, match="must not be negative"):
        spine_rho(1, [-1])


def test_what_is_not_asked_or_not_known_is_refused() -> None:
    allocation = Allocation.load("2020-pl94-persons")
    with pytest.raises(BudgetError, match="no query asks for attribute 'age': there are hhgq, votingage"):
        attribute_rho(allocation, "age")
    with pytest.raises(BudgetError, match="not known which attribute 'age_18_64_116' asks for"):
        attribute_rho(Allocation.load("2020-dhc-persons"), "hispanic")
    with pytest.raises(BudgetError, match="within a block there is no smaller area"):
        location_rho(allocation, "block")
    with pytest.raises(BudgetError, match="did you mean 'tract'"):
        location_rho(allocation, "trakt")


@pytest.mark.parametrize(("name", "rho"), [("2020-dhc-persons", "4.9622"), ("2020-dhc-households", "7.7005")])
def test_the_dhc_have_a_promise_too(name: str, rho: str) -> None:
    made = certificate(Allocation.load(name))
    assert made.epsilon == epsilon(rho, 1e-10)
    assert list(made.locations) == [*reversed(Allocation.load(name).levels[:-1])]
    assert sorted(made.locations.values()) == list(made.locations.values())
