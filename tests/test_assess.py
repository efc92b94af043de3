"""The main job: who the targets are, what the adversary answers, and that it can be repeated to the byte."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from adversary.assess import TIE, assess_pl94
from adversary.errors import AdversaryError, BudgetError, FileFormatError, ModelError, ReleaseError
from adversary.privacy.budget import Allocation
from adversary.readers.pl94 import AXES, QUERIES, demo_folder, read_pl94
from adversary.samplers.closed import rest_noise_error

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("make_demo_pl94", HERE / "make_demo_pl94.py")
writer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(writer)

SHARED = Path(os.environ.get("ADVERSARY_SHARED", HERE.parents[1] / "shared")) / "data" / "rhode-island-pl94"
TWO = {"rho": {"block": "0.0992264", "block_group": "0.2464845"}, "levels": ("block", "block_group")}


@pytest.fixture(scope="module")
def one():
    return assess_pl94(demo_folder(), rho="0.0992264", seed=1)


@pytest.fixture(scope="module")
def two():
    return assess_pl94(demo_folder(), seed=1, **TWO)


def rows_of(result):
    columns = [column.tolist() for column in result.columns.values()]
    return [dict(zip(result.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def test_the_targets_are_the_people_alone_in_their_cell(one):
    expected = [
        (code, *cell)
        for code, unit in writer.demo_blocks().items()
        for cell, n in unit["people"].items()
        if n == 1
    ]
    got = [(row["geoid"], row["votingage"], row["hispanic"], row["cenrace"]) for row in rows_of(one)]
    assert sorted(got) == sorted(expected)
    assert len(one) == 147


def brute_force(row, prior, sigma2_block, sigma2_group):
    """P(present) summed from the definition: Gaussian kernels, people elsewhere 0..400."""
    logs = []
    for present in (0, 1):
        weight = math.log(prior if present else 1 - prior)
        weight -= (row["noisy_block"] - present) ** 2 / (2 * sigma2_block)
        if "groups" in row and row["groups"] == 0:
            weight -= (row["noisy_block_group"] - present) ** 2 / (2 * sigma2_group)
        elif "groups" in row:
            y = np.arange(401)
            terms = -((row["noisy_block_group"] - present - y) ** 2) / (2 * sigma2_group)
            terms = terms - (row["noisy_rest"] - y) ** 2 / (2 * row["groups"] * sigma2_block)
            weight += float(np.logaddexp.reduce(terms))
        logs.append(weight)
    return 1 / (1 + math.exp(logs[0] - logs[1]))


@pytest.mark.parametrize("prior", [0.5, 0.02])
@pytest.mark.parametrize("levels", [1, 2])
def test_every_posterior_is_the_sum_of_the_definition(prior, levels):
    options = {"rho": "0.0992264"} if levels == 1 else TWO
    result = assess_pl94(demo_folder(), seed=5, prior=prior, **options)
    sigma2 = result.assumptions["sigma2"]
    for row in rows_of(result):
        posterior = brute_force(row, prior, sigma2["block"], sigma2.get("block_group"))
        assert row["posterior"] == pytest.approx(posterior, rel=1e-11)
        assert row["risk"] == pytest.approx(posterior / prior, rel=1e-11)
        assert row["log_odds"] == pytest.approx(math.log(posterior / (1 - posterior)), abs=1e-10)
        assert row["decision"] == ("present" if posterior > 0.5 + 1e-9 else "absent")


def test_a_loud_budget_uses_the_exact_law_of_the_summed_noise():
    """rho = 2 a count, unbounded: the sum of the siblings' noise is far from one discrete Gaussian."""
    result = assess_pl94(
        demo_folder(), rho="2", levels=("block", "block_group"), convention="unbounded", seed=3
    )
    sigma2 = result.assumptions["sigma2"]["block"]
    grid = np.arange(-40, 41)
    one = np.exp(-(grid**2) / (2 * sigma2))
    one /= one.sum()
    worst = 0.0
    for row in rows_of(result):
        assert row["groups"] == 0 or float(rest_noise_error(sigma2, row["groups"])) > 1e-6
        if row["groups"] == 0:
            continue
        law = np.array([1.0])
        for _ in range(row["groups"]):
            law = np.convolve(law, one)
        y = np.arange(401)
        at = row["noisy_rest"] - y + 40 * row["groups"]
        noise = np.where((at >= 0) & (at < law.size), law[np.clip(at, 0, law.size - 1)], 0.0)
        like = [
            math.exp(-((row["noisy_block"] - k) ** 2) / (2 * sigma2))
            * (np.exp(-((row["noisy_block_group"] - k - y) ** 2) / (2 * sigma2)) @ noise)
            for k in (0, 1)
        ]
        assert row["posterior"] == pytest.approx(like[1] / sum(like), rel=1e-9)
        worst = max(worst, abs(row["posterior"] - brute_force(row, 0.5, sigma2, sigma2)))
    assert worst > 1e-4  # the approximation would not have passed


def test_the_sum_over_the_rest_and_the_group_are_counts_of_the_same_release(two):
    """Exact bookkeeping: with noise of 1e-6 every noisy count is the true one."""
    quiet = assess_pl94(demo_folder(), seed=1, rho=10**5, levels=("block", "block_group"))
    table = read_pl94(demo_folder())
    histogram = table.histogram()
    groups = table.parents["block_group"]
    for row in rows_of(quiet):
        cell = tuple(AXES[axis].index(row[axis]) for axis in AXES)
        inside = groups == row["geoid"][:12]
        total = histogram[inside][(slice(None), *cell)].sum()
        assert (row["noisy_block"], row["noisy_block_group"], row["noisy_rest"]) == (1, total, total - 1)
        assert row["groups"] == inside.sum() - 1
        assert row["posterior"] == 1.0
    assert {row["groups"] for row in rows_of(two)} == {23, 14, 0}


def test_a_block_that_is_its_whole_group_is_seen_twice(two):
    only = [row for row in rows_of(two) if row["groups"] == 0]
    sigma2 = two.assumptions["sigma2"]
    assert only
    for row in only:
        odds = (2 * row["noisy_block"] - 1) / (2 * sigma2["block"])
        odds += (2 * row["noisy_block_group"] - 1) / (2 * sigma2["block_group"])
        assert row["log_odds"] == pytest.approx(odds, abs=1e-13)
        assert row["noisy_rest"] == 0


def test_the_noise_drawn_has_the_stated_law_and_a_tenth_more_would_be_seen(tmp_path):
    cells = [(a, h, r) for a in AXES["votingage"] for h in AXES["hispanic"] for r in AXES["cenrace"]]
    blocks = {
        f"010010201001{n:03d}": writer.add(dict.fromkeys(cells, 1), [0] * 7, [0, 0]) for n in range(100)
    }
    folder = writer.write_pl94(tmp_path, blocks)
    result = assess_pl94(folder, rho="0.1", seed=8)
    noise = result.columns["noisy_block"] - 1
    n = noise.size
    assert n == 25_200
    z_mean = noise.mean() / math.sqrt(10 / n)
    for sigma2, passes in ((10.0, True), (11.0, False), (9.0, False)):
        z_variance = (noise.var() / sigma2 - 1) / math.sqrt(2 / n)
        assert bool(abs(z_variance) < 4) is passes
    assert abs(z_mean) < 4
    by_block = noise.reshape(100, 252)
    assert len({tuple(row) for row in by_block.tolist()}) == 100  # no two geounits share their noise
    assert abs(np.corrcoef(by_block[1:].ravel(), by_block[:-1].ravel())[0, 1]) < 4 / math.sqrt(n)


# ------------------------------------------------------------ repeatability


@pytest.mark.parametrize("options", [{"rho": "0.0992264"}, TWO], ids=["one_level", "two_levels"])
def test_the_same_command_writes_the_same_bytes(tmp_path, options):
    first = assess_pl94(demo_folder(), seed=7, **options).to_csv(tmp_path / "a.csv").read_bytes()
    second = assess_pl94(demo_folder(), seed=7, **options).to_csv(tmp_path / "b.csv").read_bytes()
    other = assess_pl94(demo_folder(), seed=8, **options).to_csv(tmp_path / "c.csv").read_bytes()
    assert first == second != other
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [n + end for n in ("a.csv", "b.csv", "c.csv") for end in ("", ".about.json")]


@pytest.mark.parametrize("options", [{"rho": "0.0992264"}, TWO], ids=["one_level", "two_levels"])
def test_the_order_of_the_rows_changes_no_answer(tmp_path, options):
    blocks = writer.demo_blocks()
    turned = writer.write_pl94(tmp_path, dict(reversed(blocks.items())))
    straight = assess_pl94(demo_folder(), seed=2, **options).to_csv(tmp_path / "a.csv")
    reverse = assess_pl94(turned, seed=2, **options).to_csv(tmp_path / "b.csv")
    assert sorted(straight.read_text().splitlines()) == sorted(reverse.read_text().splitlines())


def test_a_geounit_gets_the_same_noise_whoever_its_neighbours_are(tmp_path, one):
    few = dict(list(writer.demo_blocks().items())[20:30])
    part = assess_pl94(writer.write_pl94(tmp_path, few), rho="0.0992264", seed=1)
    whole = {tuple(row.values()) for row in rows_of(one)}
    assert len(part) > 10
    assert {tuple(row.values()) for row in rows_of(part)} < whole


def test_seeds_may_be_sequences_and_generators():
    def noisy(seed):
        return assess_pl94(demo_folder(), rho="0.1", seed=seed).columns["noisy_block"].tolist()

    assert noisy(np.random.SeedSequence(4)) == noisy(np.random.SeedSequence(4)) == noisy(4)
    assert (
        noisy(np.random.default_rng(4)) == noisy(np.random.default_rng(4)) != noisy(np.random.default_rng(5))
    )
    generator = np.random.default_rng(4)
    assert noisy(generator) != noisy(generator)


def test_the_table_reads_back_with_its_zeros_and_all_digits(tmp_path, two):
    path = two.to_csv(tmp_path / "risk.csv")
    with path.open(encoding="utf-8", newline="") as file:
        back = list(csv.DictReader(file))
    assert len(back) == len(two)
    assert b"\r" not in path.read_bytes()
    for read, row in zip(back, rows_of(two), strict=True):
        assert read["geoid"] == row["geoid"]
        assert len(read["geoid"]) == 15
        for name in ("prior", "posterior", "risk", "log_odds"):
            assert float(read[name]) == row[name]


def test_a_failed_write_leaves_the_old_file(tmp_path, one, monkeypatch):
    path = tmp_path / "risk.csv"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(FileFormatError, match=r"risk.csv: could not be written \(no space"):
        one.to_csv(path)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["risk.csv"]
    assert path.read_text() == "old"
    with pytest.raises(FileFormatError, match="does not exist: make it first"):
        one.to_csv(tmp_path / "nowhere" / "risk.csv")


# ------------------------------------------------------------ summary


def test_the_summary_counts_what_the_rows_say(two):
    found = two.summary()
    risk = two.columns["risk"]
    assert (found["geounits"], found["people"], found["targets"]) == (40, 637, len(two))
    assert found["above_threshold"] == (risk > 1.5).sum()
    assert found["mean_risk"] == pytest.approx(risk.mean())
    top = found["largest_risk"]
    assert top["risk"] == risk.max()
    assert top["geoid"] == two.columns["geoid"][risk.argmax()]
    assert json.loads(json.dumps(found)) == found
    assert (found["convention"], found["query"], found["prior"], found["seed"]) == (
        "bounded",
        QUERIES[-1],
        0.5,
        1,
    )
    assert found["rho"] == {"block": str(Fraction("0.0992264")), "block_group": str(Fraction("0.2464845"))}
    assert found["sigma2"]["block"] == pytest.approx(1 / 0.0992264)


def test_the_guarantee_counts_one_person_in_one_cell_under_either_convention():
    """Bounded noise is sigma2 = 1/rho; one person more in a cell then costs rho/2, not rho."""
    for convention, weight in (("bounded", 0.05), ("unbounded", 0.1)):
        found = assess_pl94(demo_folder(), rho="0.1", prior=0.2, convention=convention, seed=1).summary()
        assert found["rho_effective"] == pytest.approx(weight)
        odds = math.exp(2 * weight)
        assert found["ceiling"] == pytest.approx(odds / (0.8 + 0.2 * odds))


def test_expected_risk_stays_below_the_ceiling_but_single_risks_do_not():
    """Summed over releases of a present target, R equals the paper's figure and lies under the guarantee."""
    found = assess_pl94(demo_folder(), rho="0.1", seed=1).summary()
    sigma2 = found["sigma2"]["block"]
    n = np.arange(-200, 201)
    law = np.exp(-(n**2) / (2 * sigma2))
    expected = 2 * (law / law.sum()) @ (1 / (1 + np.exp(-(2 * n + 1) / (2 * sigma2))))
    assert 1 < expected < found["ceiling"] < found["largest_risk"]["risk"]


def test_sentences_name_convention_noise_query_and_the_largest(two):
    text = "\n".join(two.summary_lines())
    top = two.summary()["largest_risk"]
    for word in (
        "bounded",
        "block rho 0.0992264, sigma2 10.078",
        "block_group rho 0.246484",
        top["geoid"],
        QUERIES[-1],
    ):
        assert word in text
    assert "above 1.5" in text
    assert "stand for the truth" in text  # published tables are not the truth, and the reader is told


def test_a_place_where_nobody_is_alone_is_answered_and_not_an_error(tmp_path):
    pair = {("under_18", "hispanic", "white"): 2}
    folder = writer.write_pl94(tmp_path / "zz", {"010010201001000": writer.add(pair, [0] * 7, [0, 0])})
    for options in ({"rho": "0.1"}, TWO):
        result = assess_pl94(folder, seed=1, **options)
        assert len(result) == 0
        assert result.summary()["mean_risk"] is None
        assert "nobody is alone" in result.summary_lines()[2]
        assert len(result.to_csv(tmp_path / "empty.csv").read_text().splitlines()) == 1


def test_marginal_queries_have_fewer_cells_and_their_own_targets():
    table = read_pl94(demo_folder())
    result = assess_pl94(demo_folder(), query="cenrace", rho="0.1", seed=1)
    assert len(result) == (table.p1 == 1).sum()
    assert set(result.columns["votingage"]) == {"*"}
    result = assess_pl94(demo_folder(), query="votingage * hispanic", rho="0.1", seed=1, level="block")
    assert len(result) == (table.histogram().sum(axis=3) == 1).sum()


def test_an_allocation_gives_the_querys_own_share_of_the_budget():
    """Production, persons: rho = (542/339)^2 times the level's share times the query's."""
    whole = Allocation.load("2020-pl94-persons")
    result = assess_pl94(
        demo_folder(), allocation="2020-pl94-persons", seed=1, levels=("block", "block_group")
    )
    for level in ("block", "block_group"):
        share = whole.level[level] * whole.query[level][QUERIES[-1]]
        rho = Fraction(542, 339) ** 2 * share
        assert result.assumptions["rho"][level] == str(rho)
        assert result.assumptions["sigma2"][level] == pytest.approx(float(1 / rho), rel=1e-15)
    assert result.summary()["allocation"] == "2020-pl94-persons"
    assert "allocation 2020-pl94-persons (rho 2.55623 in all)" in result.summary_lines()[1]
    assert "other queries of a real release would tell more" in result.summary_lines()[-1]
    given = assess_pl94(demo_folder(), allocation=whole, seed=1, levels=("block", "block_group"))
    np.testing.assert_array_equal(given.columns["log_odds"], result.columns["log_odds"])
    with pytest.raises(BudgetError, match=r"no allocation called '2020-pl94-person'.*2020-pl94-persons"):
        assess_pl94(demo_folder(), allocation="2020-pl94-person", seed=1)
    with pytest.raises(BudgetError, match=r"no query"):
        assess_pl94(demo_folder(), allocation="2020-pl94-units", seed=1)


def test_a_querys_name_may_be_written_loosely():
    tight = assess_pl94(demo_folder(), rho="0.1", seed=1, query="VotingAge*Hispanic*CENRACE")
    assert tight.assumptions["query"] == QUERIES[-1]


def test_ties_are_decided_absent():
    """At p = 1/2 one level has no tie; two levels tie when they cancel."""
    result = assess_pl94(demo_folder(), rho="0.1", levels=("block", "block_group"), seed=1)
    odds = result.columns["log_odds"]
    np.testing.assert_array_equal(result.columns["decision"] == "present", odds > TIE)
    only = [row for row in rows_of(result) if row["groups"] == 0]
    tied = [row for row in only if row["noisy_block"] + row["noisy_block_group"] == 1]
    for seed in range(2, 40):
        if tied:
            break
        again = assess_pl94(demo_folder(), rho="0.1", levels=("block", "block_group"), seed=seed)
        tied = [
            row
            for row in rows_of(again)
            if row["groups"] == 0 and row["noisy_block"] + row["noisy_block_group"] == 1
        ]
    assert tied
    assert all(row["decision"] == "absent" and abs(row["log_odds"]) < TIE for row in tied)


# ------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"prior": 0.0}, ModelError, "strictly between 0 and 1, got 0.0"),
        ({"prior": 1}, ModelError, "strictly between 0 and 1, got 1.0"),
        ({"prior": math.nan}, ModelError, "strictly between 0 and 1"),
        ({"prior": "half"}, ReleaseError, "strictly between 0 and 1, got 'half'"),
        (
            {"query": "detailed"},
            FileFormatError,
            "'detailed': choose one of votingage; .*hispanic \\* cenrace",
        ),
        (
            {"level": "street"},
            FileFormatError,
            "no level 'street': choose from state, county, tract, block_group, bl",
        ),
        ({"levels": ("block", "street")}, FileFormatError, "no level 'street'"),
        ({"levels": ("block_group", "block")}, FileFormatError, "a level above it"),
        (
            {"level": "tract", "levels": ("tract", "block")},
            FileFormatError,
            "'block' does not lie above 'tract'",
        ),
        ({"levels": ("block", "block_group", "tract")}, FileFormatError, "levels must be"),
        ({"rho": None}, BudgetError, "either an allocation .* or rho, not neither"),
        ({"allocation": "2020-pl94-persons"}, BudgetError, "not both"),
        ({"rho": {"tract": "0.1"}}, BudgetError, "rho names tract where the levels are block"),
        ({"rho": 0.1}, BudgetError, "0.1"),
        ({"rho": "inf"}, BudgetError, "at level block publishes the counts exactly: .* above 0 and finite"),
        ({"rho": "0"}, BudgetError, "rho 0 at level block measures nothing"),
        ({"convention": "local"}, BudgetError, "no neighbour convention 'local': 'bounded'"),
        ({"risk_threshold": 0}, ReleaseError, "risk_threshold must be a positive number, got 0"),
        ({"seed": -1}, ReleaseError, "seed must be a whole number >= 0"),
        ({"seed": 1.5}, ReleaseError, "seed must be a whole number"),
        ({"seed": None}, ReleaseError, "seed must be a whole number"),
    ],
)
def test_bad_input_is_refused_with_the_way_out(options, error, words):
    with pytest.raises(error, match=words):
        assess_pl94(demo_folder(), **({"rho": "0.1", "seed": 1} | options))


def test_groups_whose_blocks_are_missing_are_refused_for_two_levels_only(tmp_path):
    rows = [row for row in writer.all_levels(writer.demo_blocks()) if row[1] != "030010001002000"]
    folder = writer.write_pl94(tmp_path, {}, rows=rows)
    assert len(assess_pl94(folder, rho="0.1", seed=1)) > 100
    with pytest.raises(FileFormatError, match=r"block_group 030010001002 has .*the folder lacks some"):
        assess_pl94(folder, seed=1, **TWO)


def test_all_errors_are_of_the_package(tmp_path):
    with pytest.raises(AdversaryError, match="lacks"):
        assess_pl94(tmp_path, rho="0.1", seed=1)


@pytest.mark.skipif(
    not SHARED.is_dir(), reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED"
)
@pytest.mark.parametrize("options", [{"rho": "0.0992264"}, TWO], ids=["one_level", "two_levels"])
def test_rhode_island_is_assessed_whole(tmp_path, options):
    result = assess_pl94(SHARED, seed=1, **options)
    assert len(result) == 51
    sigma2 = result.assumptions["sigma2"]
    for row in rows_of(result):
        posterior = brute_force(row, 0.5, sigma2["block"], sigma2.get("block_group"))
        assert row["posterior"] == pytest.approx(posterior, rel=1e-10)
    again = assess_pl94(SHARED, seed=1, **options).to_csv(tmp_path / "b.csv").read_bytes()
    assert result.to_csv(tmp_path / "a.csv").read_bytes() == again
