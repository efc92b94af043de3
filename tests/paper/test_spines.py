"""The spines of the Bureau's own code: every case of ``spines.json``, digit for digit, shares as fractions.

The file is read from the folder named by ADVERSARY_REFERENCE if it is set, else from ``tests/reference``; a
section that the file lacks is not tested.
"""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary.geography.bypass import spine_of
from adversary.geography.das import SpineTargets, aian_spine, optimized_spine
from adversary.geography.off_spine import entity_distances
from adversary.geography.optimize import CountyBlocks, CountyPart, SpineSettings, optimize_county
from adversary.geography.spine import Spine
from adversary.privacy.budget import Allocation
from adversary.privacy.certificates import PL94_WORDS, certificate, spine_rho
from adversary.privacy.discrete_gaussian import variance
from adversary.privacy.semantics import best_test
from adversary.readers.baf import block_table_from_grfc
from adversary.release.estimate import two_pass
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.tree import solve_tree

OURS = Path(__file__).parents[1] / "reference"
FOLDER = Path(os.environ.get("ADVERSARY_REFERENCE", OURS))
FOLDER = FOLDER if (FOLDER / "spines.json").is_file() else OURS
REFERENCE: dict[str, Any] = json.loads((FOLDER / "spines.json").read_text())


def section(name: str) -> list[Any]:
    """One parameter a case, named after it."""
    return [pytest.param(case, id=case.get("name", str(i))) for i, case in enumerate(REFERENCE.get(name, []))]


def build(case: dict[str, Any]) -> CountyPart:
    given = case["input"]
    rows = given["blocks"]
    blocks = CountyBlocks(
        np.array([r["block"] for r in rows]),
        np.array([r["tract"] for r in rows]),
        np.array([r["oses"] for r in rows]),
        np.array([r["gq"] for r in rows]),
        np.array([r["prim"] for r in rows]) if given["prim"] else None,
    )
    settings = SpineSettings(
        fanout_cutoff=given["fanout_cutoff"],
        entity_threshold=given["entity_threshold"],
        bypass_cutoff=given["bypass_cutoff"],
        mechanism="zcdp" if given["zcdp"] else "pure",
        tract_groups=given["includes_tract_groups"],
        group_type=given["group_type"],
        code=case["code"],
        primitive=given["prim"],
    )
    return optimize_county(blocks, given["plb"], settings)


@pytest.mark.parametrize("case", section("spine_cases"))
def test_a_county_part_is_the_one_that_the_bureau_s_code_makes(case: dict[str, Any]) -> None:
    part, wanted = build(case), case["output"]
    assert part.settings.levels == tuple(wanted["level_names"])
    assert part.widths == wanted["widths"]
    codes = part.codes(case["input"]["root"])
    assert dict(zip(part.block.tolist(), codes[-1].tolist(), strict=True)) == wanted["geocode_of_block"]
    shares = {}
    for k, level in enumerate(codes):
        shares.update(zip(level.tolist(), part.tree.fractions(k), strict=True))
    assert shares == {code: Fraction(share) for code, share in wanted["plb"].items()}
    spine = spine_of(part.tree, codes, part.settings.levels)
    assert spine.path_totals() == {Fraction(wanted["path_total"])}
    assert spine_rho("293764/114921", spine.path_totals()) == Fraction("293764/114921") * Fraction(
        wanted["path_total"]
    )
    assert canonical(spine) == wanted["canonical"]
    assert distances(spine, case) == wanted["osed"]


def canonical(spine: Spine) -> list[Any]:
    """Blocks and share of every unit, level by level, without numbering."""
    blocks: list[list[str]] = [[] for _ in range(len(spine))]
    for leaf in spine.leaves.tolist():
        for unit in spine.path(leaf):
            blocks[unit].append(str(spine.geocodes[leaf])[-16:])
    rows = [
        [[sorted(blocks[u]), str(spine.share(u))] for u in np.flatnonzero(spine.level_of == k).tolist()]
        for k in range(len(spine.levels))
    ]
    return [sorted(level) for level in rows]


def distances(spine: Spine, case: dict[str, Any]) -> dict[str, int]:
    """Distance of every entity of the case from its county part."""
    entities = {row["block"]: row["oses"] for row in case["input"]["blocks"]}
    leaves = [entities[str(code)[-16:]] for code in spine.geocodes[spine.leaves]]
    found = {}
    for k in range(len(leaves[0])):
        codes = [row[k] if set(row[k]) != {"9"} else "" for row in leaves]
        found.update({f"{k}:{code}": d for code, d in entity_distances(spine, codes).items()})
    return found


def pipeline(case: dict[str, Any]) -> Spine:
    rows = case["grfc"]
    columns = {k: [row[k] for row in rows] for k in rows[0]}
    plain = block_table_from_grfc(columns)
    blocks = block_table_from_grfc(
        columns, [case["gq"][b] for b in plain.block.tolist()] if case["gq"] else None
    )
    given = case["settings"] or {}
    levels = [case["widths"][w] for w in sorted(case["widths"], key=int)]
    if case["plb"] is None:
        redefine = SpineTargets(redefine_counties=given.get("redefine_counties", "nowhere"))
        return aian_spine(blocks, dict.fromkeys(levels, 0), redefine)
    settings = SpineSettings(
        fanout_cutoff=given.get("fanout_cutoff", 12),
        entity_threshold=given.get("entity_threshold", 9),
        bypass_cutoff=given.get("bypass_cutoff", 150),
        mechanism="zcdp" if given.get("zcdp", given.get("epsilon_delta", True)) else "pure",
        tract_groups="Tract_Group" in levels,
        group_type=given.get("group_type", "orig"),
        code=case["code"],
        primitive="Prim" in levels,
    )
    targets = SpineTargets(
        redefine_counties=given.get("redefine_counties", "nowhere"),
        each_aian_area=given.get("target_aians", True),
        block_groups=given.get("target_orig_bgs", False),
        school_districts=given.get("target_school_dists", False),
    )
    return optimized_spine(blocks, dict(zip(levels, given["user_plbs"], strict=True)), settings, targets)


@pytest.mark.parametrize("case", section("pipeline_cases"))
def test_a_whole_pipeline_gives_the_bureau_s_codes_and_shares(case: dict[str, Any]) -> None:
    spine = pipeline(case)
    leaves = [str(c) for c in spine.geocodes[spine.leaves]]
    assert {c[-16:]: c for c in leaves} == case["geocode_of_block"]
    first = [str(spine.geocodes[spine.units(level)[0]]) for level in spine.levels]
    assert {str(len(c)): level for c, level in zip(first, spine.levels, strict=True)} == case["widths"]
    if case["plb"] is not None:
        shares = {str(code): spine.share(u) for u, code in enumerate(spine.geocodes)}
        assert shares == {code: Fraction(share) for code, share in case["plb"].items()}
        assert spine.path_totals() == {Fraction(t) for t in case["path_totals"]}


@pytest.mark.parametrize("case", section("adversary_two_blocks") if "privacy" in REFERENCE else [])
def test_two_blocks_are_told_apart_by_the_levels_below_their_lowest_common_unit(case: dict[str, Any]) -> None:
    persons = REFERENCE["privacy"]["persons"]
    levels = list(persons["US"]["geolevel"])
    common = levels.index(case["lowest_common"])
    table = {level: ["a", "a" if k <= common else "b"] for k, level in enumerate(levels)}
    spine = Spine.from_blocks(table, persons["US"]["geolevel"])
    rho = spine.rho_between("a", "b", persons["rho"])
    assert rho == Fraction(case["rho"])
    assert math.sqrt(2 * rho) == pytest.approx(case["d"], rel=1e-14)
    assert best_test(rho) == pytest.approx(case["best_test"], rel=1e-13)


PRIVACY: dict[str, Any] = REFERENCE.get("privacy", {})
PLACES = [
    pytest.param(product, place, id=f"{product}-{place}")
    for product in ("persons", "units")
    for place in ("US", "PR")
    if place in PRIVACY.get(product, {})
]


def allocation_of(product: str, place: str) -> Allocation:
    return Allocation.load(f"2020-{product}{'' if place == 'US' else '-pr'}")


def levels_of(product: str, place: str) -> dict[str, Fraction]:
    table = PRIVACY[product][place]
    return {level: Fraction(share) for level, share in table.get("geolevel", table).items()}


@pytest.mark.parametrize(("product", "place"), PLACES)
def test_the_levels_share_the_budget_as_in_production(product: str, place: str) -> None:
    allocation = allocation_of(f"pl94-{product}", place)
    assert allocation.total == Fraction(PRIVACY[product]["rho"])
    assert allocation.total == 1 / Fraction(PRIVACY[product]["global_scale"]) ** 2
    shares = {allocation.level_named(level): share for level, share in levels_of(product, place).items()}
    assert dict(allocation.level) == shares
    assert allocation.levels == tuple(shares)  # from the top down


@pytest.mark.parametrize(
    ("place", "level"),
    [
        pytest.param(place, level, id=f"{place}-{level}")
        for place in ("US", "PR")
        for level in PRIVACY.get("persons", {}).get(place, {}).get("query", ())
    ],
)
def test_the_queries_of_persons_share_a_level_as_in_production(place: str, level: str) -> None:
    allocation, table = allocation_of("pl94-persons", place), PRIVACY["persons"][place]
    queries = {query: Fraction(share) for query, share in table["query"][level].items()}
    assert dict(allocation.query[allocation.level_named(level)]) == queries
    for query, sigma2 in table.get("sigma2", {}).get(level, {}).items():
        assert 1 / allocation.rho(level, query).fraction == Fraction(sigma2)
        assert allocation.sigma2(level, query, "bounded") == float(Fraction(sigma2))


@pytest.mark.parametrize(("product", "place"), PLACES)
def test_the_certificates_say_what_the_bureau_published(product: str, place: str) -> None:
    allocation, table = allocation_of(f"pl94-{product}", place), PRIVACY[product]
    made = certificate(allocation, words=PL94_WORDS if product == "persons" else None)
    assert round(made.epsilon, 2) == table["certificate"]["epsilon"]
    assert made.epsilon == pytest.approx(table["epsilon"], rel=1e-9)
    attributes = table[place].get("certificate_attribute_epsilon", {})
    assert {name: round(eps, 2) for name, eps in made.attributes.items()} == attributes
    within = table[place].get("certificate_block_within_epsilon") or table.get(
        f"certificate_block_within_epsilon_{place}"
    )
    if within:
        found = {name: round(eps, 2) for name, eps in made.locations.items()}
        assert found == {allocation.level_named(level): eps for level, eps in within.items()}


@pytest.mark.parametrize(
    ("strategy", "level"),
    [
        pytest.param(name, level, id=f"{name}-{level}")
        for name, strategy in PRIVACY.get("dhc", {}).items()
        for level in strategy["levels"]
    ],
)
def test_the_budgets_of_the_dhc_are_those_of_its_strategies(strategy: str, level: str) -> None:
    product = "dhc-persons" if "DHCP" in strategy else "dhc-households"
    allocation = allocation_of(product, "PR" if "_PR_" in strategy else "US")
    wanted = PRIVACY["dhc"][strategy]
    rows, at = wanted["levels"][level], allocation.level_named(level)
    assert allocation.total == Fraction(wanted["total"])
    assert allocation.total * allocation.level[at] == Fraction(rows["rho"])
    assert allocation.level[at] == Fraction(rows["share"])
    budgets = {query: Fraction(rho) for query, rho in (rows["queries"] | rows["unit_queries"]).items()}
    assert {query: allocation.rho(level, query).fraction for query in allocation.query[at]} == budgets


@pytest.mark.parametrize(("sigma2", "wanted"), REFERENCE.get("discrete_gaussian_variance", {}).items())
def test_the_variance_of_the_noise_is_below_sigma2_where_that_is_small(sigma2: str, wanted: float) -> None:
    assert float(variance(float(sigma2))) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("case", section("gls"))
def test_two_pass_estimates_are_generalised_least_squares(case: dict[str, Any]) -> None:
    parents = np.full(len(case["v"]), -1)
    for unit, children in case["kids"].items():
        parents[children] = int(unit)
    order = np.argsort(two_pass_depth(parents), kind="stable")
    rank = np.argsort(order)
    ordered = np.where(parents[order] < 0, -1, rank[parents[order]])
    got = two_pass(ordered, np.array(case["z"])[order], np.array(case["v"])[order])
    np.testing.assert_allclose(got.estimate[rank], case["estimate"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(got.variance[rank], case["variance"], rtol=0, atol=1e-10)


def two_pass_depth(parents: np.ndarray) -> np.ndarray:
    """Depth of every unit, whatever the order of the units."""
    depth = np.zeros(parents.size, int)
    for unit in range(parents.size):
        above = parents[unit]
        while above >= 0:
            depth[unit] += 1
            above = parents[above]
    return depth


@pytest.mark.parametrize("case", section("exact_posterior"))
def test_exact_posteriors_on_a_spine_are_those_of_enumeration(case: dict[str, Any]) -> None:
    above = {child: unit for unit, children in case["kids"].items() for child in children}
    spine = Spine.from_parents(list(case["z"]), [above.get(unit, "") for unit in case["z"]])
    codes = spine.codes(range(len(spine)))
    noisy = [case["exact"].get(c, case["z"][c] or 0) for c in codes]
    noise = [
        0.0 if c in case["exact"] else (np.inf if case["z"][c] is None else case["sigma2"][c]) for c in codes
    ]
    priors = [LeafPrior.tabulated(case["prior"][c]) for c in spine.codes(spine.leaves)]
    answer = solve_tree(spine.parents, noisy, noise, priors, prior_of=np.arange(len(priors)))
    support, p = answer.pmf(spine.index(case["target"]))
    found = np.zeros(len(case["posterior"]))
    found[support] = p
    np.testing.assert_allclose(found, case["posterior"], rtol=1e-10, atol=1e-13)
