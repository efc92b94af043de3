"""Budgets are exact and named: arithmetic, refusals in their exact words, and the published tables."""

from __future__ import annotations

import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversary.errors import BudgetError
from adversary.privacy.budget import Allocation, Rho, noise_scale

FOLDER = Path(__file__).parents[1] / "reference"
KAZAN = json.loads((FOLDER / "kazan_reiter.json").read_text())
PRIVACY = json.loads((FOLDER / "spines.json").read_text()).get("privacy", {})
PERSONS = "2020-pl94-persons"
BUDGETS = st.fractions(min_value=0, max_value=100)


@given(BUDGETS, BUDGETS)
def test_arithmetic_is_that_of_fractions(a: Fraction, b: Fraction) -> None:
    assert (Rho(a) + Rho(b)).fraction == a + b
    assert (Rho(a) * b).fraction == (b * Rho(a)).fraction == a * b
    assert sum([Rho(a), Rho(b)], Rho(0)) == a + b
    assert (Rho(a) < Rho(b), Rho(a) >= Rho(b), Rho(a) == Rho(b)) == (a < b, a >= b, a == b)
    if b:
        assert (Rho(a) / b).fraction == a / b
    assert Rho(str(a)) == Rho(a)
    assert hash(Rho(a)) == hash(a)
    assert pickle.loads(pickle.dumps(Rho(a))) == Rho(a)


def test_ten_tenths_are_one() -> None:
    assert sum((Rho("0.1") for _ in range(10)), Rho(0)) == 1
    assert Rho("0.1") == Rho("1/10") == Rho(Decimal("0.1")) == Fraction(1, 10)
    assert Rho(np.int64(3)) == Rho(3) == Rho(3.0)


def test_infinity_is_an_exact_count_and_zero_is_not_measured() -> None:  # P13
    for infinite in ("inf", "Infinity", math.inf, Decimal("inf"), np.inf):
        assert Rho(infinite).infinite
        assert noise_scale(infinite, "bounded") == 0.0
    assert (Rho("inf") + 1).infinite
    assert (Rho("inf") * "1/2").infinite
    assert Rho("inf") * 0 == 0
    assert Rho(1) < Rho("inf")
    assert not Rho("inf") < Rho("inf")
    assert Rho("inf") > Rho("1e999")
    assert Rho(2) / "inf" == 0
    assert noise_scale(0, "unbounded") == math.inf
    assert noise_scale("1e-300", "unbounded") == pytest.approx(5e299)
    assert noise_scale("1e-320", "unbounded") == math.inf  # beyond double precision
    assert float(Rho("1e400")) == math.inf
    with pytest.raises(BudgetError, match="an infinite rho is no fraction"):
        _ = Rho("inf").fraction


NEGATIVE = "rho must not be negative, got -1: write 0 if nothing was measured at this level, inf if the count is exact"
NUMBER = "write it as text, '0.1' or '165/4099'; 0 if nothing was measured, inf if the count is exact"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (-1, NEGATIVE),
        ("-1", NEGATIVE),
        (math.nan, f"rho must be a number, got nan: {NUMBER}"),
        ("nan", f"rho must be a number, got 'nan': {NUMBER}"),
        ("lots", f"rho must be a number, got 'lots': {NUMBER}"),
        ("1/0", f"rho must be a number, got '1/0': {NUMBER}"),
        (None, f"rho must be a number, got None: {NUMBER}"),
        (True, f"rho must be a number, got True: {NUMBER}"),
        ("-inf", f"rho must be a number, got '-inf': {NUMBER}"),
        (0.1, "rho must be exact, got the float 0.1: write Rho('0.1') or a fraction such as '165/4099'"),
        (
            np.float32(0.5),
            "rho must be exact, got the float 0.5: write Rho('0.5') or a fraction such as '165/4099'",
        ),
        (
            1e-300,
            "rho must be exact, got the float 1e-300: write Rho('1e-300') or a fraction such as '165/4099'",
        ),
        ("1e-999999999", f"rho must be a number, got '1e-999999999': {NUMBER}"),
        (Decimal("1e999999"), f"rho must be a number, got Decimal('1E+999999'): {NUMBER}"),
    ],
    ids=repr,
)
def test_what_is_no_budget_is_refused_in_these_words(bad: Any, words: str) -> None:
    with pytest.raises(BudgetError) as caught:
        Rho(bad)
    assert str(caught.value) == words
    assert isinstance(caught.value, ValueError)


def test_operations_with_what_is_no_budget_are_refused() -> None:
    with pytest.raises(
        BudgetError, match=r"a share of rho must be exact, got the float 0.1: write the text '0.1'"
    ):
        Rho(1) * 0.1
    with pytest.raises(BudgetError, match="a divisor of rho must be exact"):
        Rho(1) / 0.1
    with pytest.raises(BudgetError, match="cannot be divided by 0"):
        Rho(1) / 0
    with pytest.raises(AttributeError, match="make another Rho"):
        Rho(1).value = 2  # type: ignore[attr-defined]
    assert Rho(1) != "many"
    assert Rho(1) != [1]


def test_noise_follows_the_convention() -> None:
    assert noise_scale("0.1", "bounded") == 2 * noise_scale("0.1", "unbounded") == 10
    assert noise_scale("0.1", "unbounded", 4) == 20
    with pytest.raises(BudgetError, match=r"'unbounded' \(1/\(2 rho\)\) or 'bounded' \(1/rho\), got 'both'"):
        noise_scale(1, "both")
    for bad in (0, "inf", -1):
        with pytest.raises(BudgetError, match="must"):
            noise_scale(1, "bounded", bad)


# --- allocations


def test_positional_lists_are_refused() -> None:  # P14
    for level, query in (
        ([0.6, 0.3, 0.1], {"block": {"total": 1}}),
        ({"block": 1}, [[1]]),
        ({"block": 1}, {"block": [1]}),
    ):
        with pytest.raises(BudgetError, match="a list has no names"):
            Allocation(Rho(1), level, query)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="a list has no names"):
        Allocation.from_rho({"block": ["0.1"]})  # type: ignore[dict-item]


def test_the_order_of_names_does_not_matter_and_swapped_names_do() -> None:  # P14
    one = {"total": 1}
    queries = {"block": one, "tract": one, "county": one}
    shares = {"block": "0.6", "tract": "0.3", "county": "0.1"}
    right = Allocation(Rho("0.5"), shares, queries)
    other_order = Allocation(Rho("0.5"), dict(reversed(shares.items())), queries)
    swapped = Allocation(Rho("0.5"), {"block": "0.1", "tract": "0.3", "county": "0.6"}, queries)
    sigma2 = right.sigma2("block", "total", "bounded")
    assert other_order.sigma2("block", "total", "bounded") == sigma2
    assert swapped.sigma2("block", "total", "bounded") == pytest.approx(6 * sigma2, rel=1e-15)
    table = right.table("bounded").splitlines()
    assert table[1].split() == ["level", "query", "share", "rho", "sigma^2"]
    assert table[2].split() == ["block", "total", "0.6", "0.3", "3.33333"]


@pytest.mark.parametrize(
    ("level", "query", "words"),
    [
        ({"a": "1/2"}, {"a": {"q": 1}}, "shares of levels must sum to 1, got 1/2 from a: 1/2"),
        ({"a": 1}, {"a": {"q": "2/3"}}, "shares of queries of a must sum to 1"),
        ({"a": 1}, {"b": {"q": 1}}, "level 'a' has a share or queries, but not both"),
        ({"a": "3/2", "b": "-1/2"}, {"a": {"q": 1}, "b": {"q": 1}}, "the share of b must not be negative"),
        ({"a": 0.5, "b": 0.5}, {}, "the share of a must be exact, got the float 0.5: write the text '0.5'"),
        ({"a": "inf"}, {"a": {"q": 1}}, "the share of a must be finite"),
    ],
)
def test_shares_that_cannot_be_are_refused(level: Any, query: Any, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        Allocation(Rho(1), level, query)


def test_near_misses_are_named() -> None:
    whole = Allocation.load(PERSONS)
    with pytest.raises(BudgetError, match="did you mean 2020-pl94-persons"):
        Allocation.load("2020-pl94-person")
    with pytest.raises(BudgetError, match=r"no level 'blocks' \(did you mean 'block'\?\)"):
        whole.share("blocks", "detailed")
    with pytest.raises(
        BudgetError, match=r"no query 'detailed_' at level block \(did you mean 'detailed'\?\)"
    ):
        whole.share("block", "detailed_")
    assert whole.share("Block_Group", "Hispanic*CenRace") == whole.share("block group", "hispanic * cenrace")
    assert whole.share("US", "detailed") == whole.share("nation", "detailed")


def test_an_allocation_of_budgets_has_their_shares() -> None:
    made = Allocation.from_rho({"state": {"total": "0.1"}, "block": {"total": 0, "detailed": "0.3"}})
    assert made.total == Rho("0.4")
    assert made.level == {"state": Fraction(1, 4), "block": Fraction(3, 4)}
    assert made.rho("block", "detailed") == Rho("0.3")
    assert made.rho("block", "total") == 0
    assert made.sigma2("block", "total", "bounded") == math.inf
    for bad in ({"a": {"q": "inf"}}, {"a": {"q": 0}}, {"a": {}}):
        with pytest.raises(BudgetError, match="must be finite and not all 0"):
            Allocation.from_rho(bad)


@pytest.mark.parametrize("name", Allocation.names())
def test_every_published_allocation_spends_its_budget_exactly(name: str) -> None:
    whole = Allocation.load(name)
    spent = sum((whole.rho(lev, q) for lev in whole.levels for q in whole.query[lev]), Rho(0))
    assert spent == whole.total
    assert whole.title
    assert "Census" in whole.source
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert len(whole.table("bounded").splitlines()) == 2 + sum(len(q) for q in whole.query.values())


QUERY = {
    "block": "3945/4097",
    "block_group": "1288/4099",
    "tract": "482/4102",
    "county": "754/4097",
    "state": "230/4097",
}


@pytest.mark.parametrize(
    "case", [c for c in KAZAN if c["id"].startswith(("t2_", "sigma2_"))], ids=lambda case: case["id"]
)
def test_table_2_of_the_paper_is_met(case: dict[str, Any]) -> None:
    whole = Allocation.load(PERSONS).scaled_to("2.56")
    kind, level = case["id"].split("_")[1], case["id"].split("_", 2)[2]
    if level == "nation" and kind != "level":
        # the paper spends what the triple has, too; the table of production has "detailed" at 189/241 = 3213/4097
        assert whole.query["nation"]["detailed"] == Fraction(3213, 4097)
    got = {
        "level": lambda: float(whole.total * whole.level[level]),
        "gvhr": lambda: float(whole.rho(level, "detailed")),
        "prod": lambda: whole.sigma2(level, "detailed", "bounded"),
    }[kind]()
    assert got == pytest.approx(case["exact_value"], rel=case["tolerance"], abs=0)
    if case.get("paper_value") is not None:
        assert round(got, 3 if case["paper_value"] != 0.05 else 2) == case["paper_value"]


TABLES = [
    (product, place)
    for product in ("persons", "units")
    for place in ("US", "PR")
    if place in PRIVACY.get(product, {})
]


@pytest.mark.parametrize(("product", "place"), TABLES)
def test_every_share_of_production_is_that_of_the_reference(product: str, place: str) -> None:
    whole = Allocation.load(f"2020-pl94-{product}{'' if place == 'US' else '-pr'}")
    wanted = PRIVACY[product][place]
    levels = (
        wanted["geolevel"] if product == "persons" else {k: v for k, v in wanted.items() if "/" in str(v)}
    )
    assert (
        whole.total
        == Fraction(PRIVACY[product]["rho"])
        == 1 / Fraction(PRIVACY[product]["global_scale"]) ** 2
    )
    assert len(whole.levels) == len(levels)
    for level, share in levels.items():
        assert whole.level[whole.level_named(level)] == Fraction(share)
        queries = wanted["query"][level] if product == "persons" else {"detailed": "1"}
        assert dict(whole.query[whole.level_named(level)]) == {q: Fraction(s) for q, s in queries.items()}
        for query, sigma2 in wanted.get("sigma2", {}).get(level, {}).items():
            assert 1 / whole.rho(level, query).fraction == Fraction(sigma2)
            assert whole.sigma2(level, query, "bounded") == float(Fraction(sigma2))


@pytest.mark.parametrize("strategy", PRIVACY.get("dhc", {}))
def test_every_budget_of_the_dhc_is_that_of_the_reference(strategy: str) -> None:
    product = "persons" if "DHCP" in strategy else "households"
    whole = Allocation.load(f"2020-dhc-{product}{'-pr' if '_PR_' in strategy else ''}")
    wanted = PRIVACY["dhc"][strategy]
    assert (
        whole.total
        == Fraction(wanted["total"])
        == Fraction({"persons": "4.9622", "households": "7.7005"}[product])
    )
    assert len(whole.levels) == len(wanted["levels"])
    for level, rows in wanted["levels"].items():
        queries = {**rows["queries"], **rows["unit_queries"]}
        assert len(whole.query[whole.level_named(level)]) == len(queries)
        assert whole.level[whole.level_named(level)] == Fraction(rows["share"])
        for query, rho in queries.items():
            assert whole.rho(level, query) == rho
