"""Risk under a spine: every release of small trees, one at a time; Rhode Island where its files lie."""

from __future__ import annotations

import csv
import itertools
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from adversary.errors import BudgetError, ModelError
from adversary.geography.blocks import BlockTable
from adversary.geography.bypass import bypass_only_children
from adversary.geography.das import aian_spine, conventional_spine, optimized_spine
from adversary.geography.plans import level_shares, query_noise, query_shares
from adversary.geography.spine import Spine
from adversary.privacy import discrete_gaussian as dg
from adversary.privacy.budget import Allocation
from adversary.readers.baf import read_baf
from adversary.risk import TwoLevelDesign, expected_two_level, expected_uniqueness
from adversary.samplers.leaf_prior import LeafPrior
from adversary.spine_attack import measurements_of
from adversary.spine_risk import (
    UniquePerson,
    difference_lines,
    geoids_of,
    spine_risk,
    summary_lines,
    write_blocks,
    write_map,
)

PERSONS = Allocation.load("2020-pl94-persons")
ONE = {"top": {"total": 1}, "leaf": {"total": 1}}
SHARED = Path(os.environ.get("ADVERSARY_SHARED", Path(__file__).parents[2] / "shared"))
FOLDER = SHARED / "data" / "rhode-island-baf"


def two_levels(leaves: int, groups: int = 1) -> Spine:
    table = {
        "top": [f"{g:03d}" for g in range(groups) for _ in range(leaves)],
        "leaf": [f"{g:03d}{i:02d}" for g in range(groups) for i in range(leaves)],
    }
    return Spine.from_blocks(table, {"top": "2/5", "leaf": "3/5"})


def by_brute_force(
    sigma2: tuple[float, float], siblings: int, prior: float, others: list[float] | None
) -> tuple[float, float]:
    """Mean posterior given presence and P[right] of one leaf of a group: releases summed, sibling by sibling.

    ``others`` None: siblings are any whole number alike, true counts 0. Otherwise a table of their count's prior.
    """
    top, leaf = sigma2
    own = np.arange(-14, 15)
    noise = np.arange(-11, 12)
    span = np.arange(-45, 46)
    f_top, f_leaf = dg.pmf(noise, top), dg.pmf(noise, leaf)
    logit = math.log(prior / (1 - prior))
    table = [1.0] if others is None else others
    mean = right = 0.0
    for truth in itertools.product(range(len(table)), repeat=siblings):
        chance = math.prod(table[t] for t in truth)
        for z in itertools.product(range(noise.size), repeat=siblings):
            weight = chance * math.prod(f_leaf[i] for i in z)
            if weight < 1e-13:
                continue
            law = np.ones(1)
            start = 0
            for t, i in zip(
                truth, z, strict=True
            ):  # what she believes of the siblings' sum, their counts seen
                support = span if others is None else np.arange(len(table))
                believed = 1.0 if others is None else np.array(table)
                law = np.convolve(law, believed * np.exp(-((noise[i] + t - support) ** 2) / (2 * leaf)))
                start += int(support[0])
            total = start + np.arange(law.size)
            for there in (1, 0):
                seen = sum(truth) + there + noise
                likely = [np.exp(-((seen[:, None] - total - x) ** 2) / (2 * top)) @ law for x in (0, 1)]
                outside = np.log(likely[1] / likely[0])
                odds = logit + outside[:, None] + (2.0 * (own + there) - 1.0) / (2 * leaf)
                mass = weight * f_top[:, None] * dg.pmf(own, leaf)
                if there:
                    mean += float((mass / (1 + np.exp(-odds))).sum())
                right += float(mass[(odds > 1e-9) == bool(there)].sum()) * (prior if there else 1 - prior)
    return mean, right


def noises(rho: Fraction) -> tuple[float, float]:
    return float(1 / (rho * Fraction(2, 5))), float(1 / (rho * Fraction(3, 5)))


@pytest.mark.parametrize(("leaves", "prior"), [(2, 0.5), (2, 0.1), (3, 0.3)])
def test_with_nothing_believed_of_others_every_release_of_a_small_tree_gives_the_same(
    leaves: int, prior: float
) -> None:
    rho = Fraction(6, 5)  # noise 2.08 and 1.39
    found = spine_risk(two_levels(leaves), ONE, rho, UniquePerson("total", prior=prior))
    mean, right = by_brute_force(noises(rho), leaves - 1, prior, None)
    assert found.posterior == pytest.approx(np.full(leaves, mean), abs=2e-6)
    assert found.right == pytest.approx(
        np.full(leaves, right), abs=2e-3
    )  # P[right] jumps where odds are even
    assert found.risk == pytest.approx(found.posterior / prior)
    wrong = spine_risk(two_levels(leaves), ONE, rho * Fraction(11, 10), UniquePerson("total", prior=prior))
    assert abs(wrong.posterior[0] - mean) > 1e-3


@pytest.mark.parametrize(("leaves", "prior"), [(5, 0.5), (28, 0.1)])
def test_two_levels_agree_with_the_sum_over_releases_of_the_two_level_attack(
    leaves: int, prior: float
) -> None:
    rho = Fraction(1, 3)  # noise 7.5 and 5
    found = spine_risk(two_levels(leaves), ONE, rho, UniquePerson("total", prior=prior))
    top, leaf = noises(rho)
    design = TwoLevelDesign(sigma2=leaf, group_sigma2=top, others=leaves - 1, mode="integer")
    present = expected_two_level(design, 60, p=prior)
    average = expected_two_level(design, 60, p=prior, truth="average")
    assert found.posterior[0] == pytest.approx(present.posterior, abs=1e-6)
    assert found.right[0] == pytest.approx(average.right, abs=1e-4)


@pytest.mark.parametrize("others", [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]])
def test_with_a_prior_of_others_draws_agree_with_every_release_of_a_small_tree(others: list[float]) -> None:
    rho, prior = Fraction(3, 2), 0.2
    spine = two_levels(2, groups=450)
    person = UniquePerson("total", prior=prior, others=LeafPrior.tabulated(others), draws=25, seed=7)
    found = spine_risk(spine, ONE, rho, person)
    mean, right = by_brute_force(noises(rho), 1, prior, others)
    summary = found.summary()
    assert summary["posterior_mcse"] < 0.004
    assert abs(summary["posterior"] - mean) < 4 * summary["posterior_mcse"]
    assert abs(summary["right"] - right) < 4 * summary["right_mcse"]
    less, more = (
        by_brute_force(noises(rho * f), 1, prior, others)[0] for f in (Fraction(4, 5), Fraction(6, 5))
    )
    assert abs(summary["posterior"] - less) > 4 * summary["posterior_mcse"]  # 20 % off would be seen
    assert abs(summary["posterior"] - more) > 4 * summary["posterior_mcse"]


def test_a_prior_that_leaves_nothing_to_draw_is_said() -> None:
    person = UniquePerson("total", others=LeafPrior.tabulated([0.001, 0.999]), draws=2, seed=1)
    with pytest.raises(ModelError, match="draw more"):
        spine_risk(two_levels(2), ONE, 1, person)


def test_standard_errors_are_the_spread_of_answers_over_seeds() -> None:
    spine = two_levels(3, groups=20)
    answers = [
        spine_risk(
            spine,
            ONE,
            1,
            UniquePerson("total", others=LeafPrior.poisson(0.3), draws=10, seed=seed),
        ).summary()
        for seed in range(36)
    ]
    for name in ("posterior", "right_even"):
        spread = float(np.std([a[name] for a in answers], ddof=1))
        said = float(np.mean([a[f"{name}_mcse"] for a in answers]))
        assert 0.75 < said / spread < 1.35


def test_knowing_that_counts_are_few_tells_her_more_than_knowing_nothing() -> None:
    spine = two_levels(3, groups=100)
    nothing = spine_risk(spine, ONE, 1, UniquePerson("total")).summary()
    few = spine_risk(
        spine, ONE, 1, UniquePerson("total", others=LeafPrior.poisson(0.05), draws=10, seed=1)
    ).summary()
    assert few["right_even"] > nothing["right_even"] + 5 * few["right_even_mcse"]


def test_information_is_half_the_precision_of_dense_least_squares_on_three_levels() -> None:
    rng = np.random.default_rng(2)
    rows = [(a, b, c) for a in range(2) for b in range(rng.integers(1, 4)) for c in range(rng.integers(1, 4))]
    table = {
        "county": [f"{a}" for a, _, _ in rows],
        "tract": [f"{a}{b}" for a, b, _ in rows],
        "block": [f"{a}{b}{c}" for a, b, c in rows],
    }
    spine = bypass_only_children(Spine.from_blocks(table, {"county": "1/5", "tract": "1/2", "block": "3/10"}))
    mixes = {
        "county": {"total": "1/2", "sex": "1/2"},
        "tract": {"sex": 1},
        "block": {"sex": "1/3", "total": "2/3"},
    }
    found = spine_risk(spine, mixes, 2, UniquePerson("sex"))
    noise = query_noise(spine, mixes, 2, "sex")
    np.testing.assert_allclose(noise, measurements_of(spine, mixes, 2, query="sex"))
    incidence = np.zeros((len(spine), spine.leaves.size))
    for i, leaf in enumerate(spine.leaves.tolist()):
        incidence[spine.path(leaf), i] = 1
    seen = np.isfinite(noise)
    information = incidence[seen].T @ (incidence[seen] / noise[seen, None])
    precision = 1 / np.diag(np.linalg.inv(information))
    np.testing.assert_allclose(found.own_information + found.outside_information, precision / 2, rtol=1e-10)
    # and the best test is right as the Gaussian says, nearly
    assert found.right_even == pytest.approx(found.right_even_gaussian, abs=0.02)


def lone_block() -> Spine:
    ids = ["440010001001000", "440010002001000", "440010002001001", "440010002002000", "440010002002001"]
    return conventional_spine(BlockTable(ids), level_shares(PERSONS))


def test_a_block_alone_in_its_tract_is_attacked_through_the_tracts_count_and_mix() -> None:
    plain = lone_block()
    moved = bypass_only_children(plain)
    mixes = query_shares(plain, PERSONS)
    before, after = (spine_risk(s, mixes, PERSONS.total, UniquePerson(prior=0.1)) for s in (plain, moved))
    lone = geoids_of(plain).tolist().index("440010001001000")
    tract, group, block = 3, 4, 5
    assert np.isfinite(before.sigma2[lone, [tract, group, block]]).all()
    assert np.isfinite(after.sigma2[lone, [tract, group, block]]).tolist() == [True, False, False]
    share = moved.share(moved.path("440010001001000")[tract])
    alpha = PERSONS.query["tract"]["detailed"]
    assert after.sigma2[lone, tract] == float(1 / (PERSONS.total.fraction * share * alpha))
    # three counts of her block alone, and the outside as one more: S1.3's sum over lattices
    own = sorted(before.sigma2[lone, [tract, group, block]].tolist())
    alone = expected_uniqueness([*own, 0.5 / before.outside_information[lone]], p=0.1, tolerance=1e-6)
    assert before.posterior[lone] == pytest.approx(alone.posterior, abs=1e-5)
    # nobody's total budget changed, but what her block alone spends on this query did
    assert before.own_rho[lone] == pytest.approx(after.own_rho[lone], rel=1e-12)
    assert after.own_information[lone] != pytest.approx(before.own_information[lone], rel=0.01)


def test_only_own_counts_are_left_where_the_rest_says_nothing() -> None:
    spine = Spine.from_blocks({"leaf": ["1", "2"]}, {"leaf": 1})
    found = spine_risk(spine, {"leaf": {"total": 1}}, "1/3", UniquePerson("total", prior=0.3))
    exact = expected_uniqueness([3.0], p=0.3)
    assert found.outside_information.tolist() == [0.0, 0.0]
    assert found.posterior[0] == pytest.approx(exact.posterior, abs=1e-12)
    average = expected_uniqueness([3.0], p=0.3, truth="average")
    assert found.right[0] == pytest.approx(average.right, abs=1e-10)


def test_kinds_are_blocks_that_cannot_be_told_apart_and_cost_no_more() -> None:
    ids = [f"44001{t:06d}{b}" for t in (100, 200) for b in (*range(1000, 1040), *range(2000, 2005))]
    spine = conventional_spine(BlockTable(ids), level_shares(PERSONS))
    found = spine_risk(spine, query_shares(spine, PERSONS), PERSONS.total, UniquePerson())
    assert found.summary()["kinds"] == 4
    assert np.unique(found.posterior).size == 2  # the two tracts are alike
    assert len({(k, r) for k, r in zip(found.profile.tolist(), found.right.tolist(), strict=True)}) == 4


def test_where_she_lives_within_a_tabulation_block_group_is_told_by_the_pair_apart_best() -> None:
    ids = [f"44001000100{b}" for b in (1000, 1001, 1002, 1003)]
    blocks = BlockTable(ids, cousub=["11111", "11111", "22222", "22222"])
    shares = level_shares(PERSONS)
    mixes = query_shares(conventional_spine(blocks, shares), PERSONS)
    person = UniquePerson()
    plain = spine_risk(conventional_spine(blocks, shares), mixes, PERSONS.total, person)
    best = optimized_spine(blocks, shares)
    drawn = spine_risk(best, mixes, PERSONS.total, person)
    assert plain.moved_most == pytest.approx(np.full(4, float(PERSONS.total.fraction * shares["Block"])))
    apart = best.rho_between("440010001001000", "440010001001002", PERSONS.total.fraction)
    assert drawn.moved_most == pytest.approx(np.full(4, float(apart)))
    assert apart > 5 * PERSONS.total.fraction * shares["Block"]  # the town line now cuts the block group
    lines = "\n".join(difference_lines(plain, drawn))
    assert "within the tabulation block group: by +" in lines


def test_files_keep_geoids_as_text_and_join_by_block(tmp_path: Path) -> None:
    ids = [f"01001000100{b}" for b in (1000, 1001, 2000)]
    blocks = BlockTable(ids, aiannhce=["0010", "", ""])
    shares = level_shares(PERSONS)
    spines = {
        "conventional": conventional_spine(blocks, shares),
        "optimised": optimized_spine(blocks, shares),
    }
    risks = [
        spine_risk(s, query_shares(s, PERSONS), PERSONS.total, UniquePerson(), n) for n, s in spines.items()
    ]
    assert write_blocks(tmp_path / "blocks.csv", risks) == 6
    assert write_map(tmp_path / "map.csv", risks) == 3
    assert risks[0].to_csv(tmp_path / "one.csv") == 3
    assert (tmp_path / "one.csv").read_text().splitlines()[1].startswith("010010001001000,conventional,")
    with (tmp_path / "map.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["GEOID20"] for r in rows] == ids
    for risk in risks:
        of = dict(zip(risk.geoid.tolist(), risk.posterior.tolist(), strict=True))
        assert [float(r[f"posterior_{risk.name}"]) for r in rows] == [of[i] for i in ids]
    with (tmp_path / "blocks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lone = next(r for r in rows if r["spine"] == "optimised" and r["GEOID20"] == ids[0])
    assert lone["sigma2_Block"] == ""  # bypassed: not measured
    assert "posterior, R: averaged over releases when she is present" in "\n".join(summary_lines(risks))
    other = spine_risk(two_levels(2), ONE, 1, UniquePerson("total"))
    for wrong in (
        lambda: write_map(tmp_path / "m.csv", [risks[0], other]),
        lambda: difference_lines(risks[0], other),
    ):
        with pytest.raises(ModelError, match="different blocks"):
            wrong()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prior": 1.0}, "strictly between 0 and 1"),
        ({"others": LeafPrior.flat(), "draws": 5, "seed": 1}, "flat prior"),
        ({"others": LeafPrior.poisson(1.0)}, "needs draws= of at least 2 and seed="),
        ({"draws": 5, "seed": 1}, "belong to a prior"),
    ],
)
def test_what_cannot_be_asked_is_said(arguments: dict, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        UniquePerson(**arguments)


def test_a_query_that_nobody_asked_is_named() -> None:
    with pytest.raises(BudgetError, match="no measured level asks the query 'income'"):
        spine_risk(two_levels(2), ONE, 1, UniquePerson("income"))


@pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)
def test_rhode_island_presence_hardly_changes_but_her_block_is_found_more_easily() -> None:
    blocks = read_baf(FOLDER)
    shares = level_shares(PERSONS)
    found = {}
    for name, build in (
        ("conventional", conventional_spine),
        ("AIAN", aian_spine),
        ("optimised", optimized_spine),
    ):
        spine = build(blocks, shares)
        found[name] = spine_risk(
            spine, query_shares(spine, PERSONS), PERSONS.total, UniquePerson(prior=0.1), name
        )
    summaries = {k: v.summary() for k, v in found.items()}
    assert all(len(v) == 25_649 for v in found.values())
    assert [v["kinds"] for v in summaries.values()] == [792, 795, 1_238]
    assert summaries["conventional"]["risk"] == pytest.approx(1.084704, abs=2e-6)
    assert summaries["optimised"]["risk"] == pytest.approx(1.086310, abs=2e-6)
    # a block group of the conventional spine: the certificate's rho of 0.1029, right in 0.590 (spec, section 8)
    assert summaries["conventional"]["moved_right"] == pytest.approx(0.5897194150418472, abs=1e-9)
    assert summaries["conventional"]["moved_right_best"] == pytest.approx(0.5897194150418472, abs=1e-9)
    assert 0.72 < summaries["optimised"]["moved_right_best"] < 0.75
    assert 0.64 < summaries["optimised"]["moved_right"] < summaries["optimised"]["moved_right_best"]
    assert summaries["optimised"]["moved_rho_most"] < 2.4914
