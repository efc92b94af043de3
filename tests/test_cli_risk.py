"""The commands of risk: the numbers of the paper on the terminal and as JSON, and no PyMC where none is needed."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from adversary.cli import main

RHO1, RHO2 = "1666368/16793603", "103534592/420045025"


def call(*arguments, code=0):
    found = CliRunner().invoke(main, list(arguments))
    assert found.exit_code == code, (found.output, found.exception)
    return found


def test_one_level_prints_table_five():
    data = json.loads(call("expect", "--rho", RHO1, "--prior", "1/864", "--above", "1.2", "--json").stdout)
    assert data["risk"] == pytest.approx(1.2188278396507881, abs=1e-12)
    assert data["threshold"] == 35
    assert 0 < data["above"]["1.2"] < 1
    text = call("expect", "--rho", RHO1, "--prior", "1/864").stdout
    assert "R = 1.21883" in text
    assert "noisy count of 35" in text


def test_the_convention_is_heard():
    paper = json.loads(call("expect", "--rho", RHO1, "--json").stdout)
    census = json.loads(call("expect", "--rho", RHO1, "--convention", "bounded", "--json").stdout)
    assert paper["right"] == pytest.approx(0.588860465787581, abs=1e-12)
    assert census["right"] == pytest.approx(0.5628338379377937, abs=1e-12)
    assert census["sigma2"] == pytest.approx(2 * paper["sigma2"])
    said = call("expect", "--rho", "0.1", "--convention", "bounded").stdout
    assert "sigma2 = 1/rho = 10, bounded neighbours" in said


@pytest.mark.parametrize(
    ("mode", "right"), [("exact", 0.318191), ("literal", 0.594586), ("integer", 0.589726)]
)
def test_two_levels_print_figure_five(mode, right):
    arguments = ("expect", "--rho", RHO1, "--rho2", RHO2, "--d", "27", "--x2", "1", "--mode", mode)
    assert json.loads(call(*arguments, "--json").stdout)["right"] == pytest.approx(right, abs=1e-6)
    assert ("no posterior has these numbers" in call(*arguments).stdout) == (mode == "literal")


def test_truth_absent_and_half_credit_reach_the_sum():
    base = ("expect", "--sigma2", "0.005", "--rho2", "100", "--d", "4", "--x2", "10", "--truth", "absent")
    strict = json.loads(call(*base, "--json").stdout)
    half = json.loads(call(*base, "--ties", "half", "--json").stdout)
    assert strict["truth"] == "absent"
    assert strict["right"] - half["right"] == pytest.approx(strict["near_tie_mass"] / 2, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rho", "0.1", "--sigma2", "5"], "exactly one of --rho and --sigma2"),
        ([], "exactly one of --rho and --sigma2"),
        (["--rho", "0.1", "--rho2", "0.2"], "add --d and --x2"),
        (["--rho", "0.1", "--mode", "literal"], "belongs to two levels"),
        (["--rho", "0.1", "--prior", "a half"], "--prior must be a number"),
        (["--rho", "0.1", "--prior", "1"], "1"),
        (["--rho", "0.1", "--rho2", "0.2", "--d", "3", "--x2", "0"], "rest would be negative"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_two(arguments, words):
    found = call("expect", *arguments, code=2)
    assert words in found.stderr
    assert found.stderr.startswith("adversary: ")
    assert found.stderr.count("\n") == 1


def test_the_approximation_is_weighed():
    data = json.loads(call("approximation", "--rho", "1", "--d", "27", "--json").stdout)
    assert data["total_variation"] == pytest.approx(5.7e-4, rel=0.02)
    assert data["needs_exact_sum"] is True
    n = np.arange(-60, 61)
    one = np.exp(-(n.astype(float) ** 2)) / np.exp(-(n.astype(float) ** 2)).sum()
    law = one
    for _ in range(26):
        law = np.convolve(law, one)
    wide = np.arange(law.size) - law.size // 2
    inside = np.abs(wide) <= data["half_width"]
    gap = np.log(law[inside]) + wide[inside].astype(float) ** 2 / 27
    assert data["log_odds_error"] == pytest.approx(np.abs(np.diff(gap)).max(), rel=1e-6)
    fine = call("approximation", "--rho", RHO1, "--d", "27").stdout
    assert "the approximation serves" in fine


def test_reproduce_prints_each_verdict():
    data = json.loads(call("reproduce", "--json").stdout)
    verdicts = {c["id"]: c["verdict"] for c in data["claims"]}
    assert verdicts["t4_chance_4"] == "not reproduced"
    assert verdicts["t8_x2"] == "not by the stated model; the literal sampler gives it"
    assert data["files"] == []


def test_batch_answers_a_csv_and_a_dry_run_writes_nothing(tmp_path):
    table = tmp_path / "targets.csv"
    table.write_text("block,block_sigma2,known,geoid\n2,5.0,0,1\n0,5.0,0,2\n7,5.0,5,3\n")
    arguments = (
        "batch",
        "single_level",
        str(table),
        "--out",
        str(tmp_path / "out"),
        "--carry",
        "geoid",
        "--chunk",
        "2",
    )
    plan = json.loads(call(*arguments, "--dry-run", "--json").stdout)
    assert (plan["targets"], plan["parts"], plan["engine"]) == (3, 2, "closed form, one level")
    assert not (tmp_path / "out").exists()
    assert "3 targets in 2 parts" in call(*arguments).stdout
    import xarray as xr

    parts = [xr.load_dataset(tmp_path / "out" / f"part-00000{k}.nc", engine="h5netcdf") for k in (0, 1)]
    np.testing.assert_allclose(np.concatenate([p.log_odds for p in parts]), [0.3, -0.1, 0.3], atol=1e-14)
    assert np.concatenate([p.geoid for p in parts]).tolist() == [1, 2, 3]
    assert json.loads(call(*arguments, "--json").stdout)["done_before"] == 2


def test_batch_names_a_strange_column(tmp_path):
    table = tmp_path / "targets.csv"
    table.write_text("block,block_sigma2,kmown\n2,5.0,0\n")
    found = call("batch", "single_level", str(table), "--out", str(tmp_path / "out"), code=2)
    assert "kmown is neither" in found.stderr


@pytest.mark.parametrize(
    "arguments", [["expect", "--rho", "0.1"], ["approximation", "--rho", "0.1", "--d", "3"], ["reproduce"]]
)
def test_risk_commands_start_without_pymc(arguments):
    script = (
        f"import sys\nfrom adversary.cli import main\nmain.main({arguments!r}, standalone_mode=False)\n"
        "heavy = ('pymc', 'pytensor', 'arviz', 'xarray', 'pandas', 'matplotlib')\n"
        "print(' '.join(m for m in heavy if m in sys.modules), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stderr.split() == []


def test_largest_finds_the_safe_root_and_shows_the_dip():
    found = CliRunner().invoke(main, ["largest", "--risk", "1.2", "--prior", "1/864", "--json"])
    data = json.loads(found.stdout)
    assert data["rho"] == pytest.approx(0.091416, abs=5e-7)
    assert data["rho_for_every_prior"] == pytest.approx(math.log(1.2) / 2, rel=1e-15)
    from adversary.risk import expected_one_level

    for factor, holds in ((0.999, True), (1.001, False)):
        assert (expected_one_level(0.5 / (factor * data["rho"]), p=1 / 864).risk <= 1.2) is holds
    text = CliRunner().invoke(main, ["largest", "--risk", "53.2", "--prior", "1/864"]).stdout
    assert "crossings at 2.6435 (broken above), 3.0117 (holds again above), 3.3677 (broken above)" in text
    wrong = CliRunner().invoke(main, ["largest", "--prior", "0.5"])
    assert wrong.exit_code == 2
