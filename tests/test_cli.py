import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from adversary.assumption_text import parse_assumption
from adversary.cli import main
from adversary.errors import ScenarioError
from adversary.readers.pl94 import demo_folder
from adversary_models.two_level import two_level

PAPER = {
    "convention": "unbounded",
    "measurements": {
        "block": {"value": 2, "rho": "1666368/16793603"},
        "block_group": {"value": 1, "rho": "103534592/420045025"},
        "rest": {"value": -1, "rho": "1666368/16793603", "groups": 27},
    },
}


@pytest.fixture
def release(tmp_path):
    path = tmp_path / "release.json"
    path.write_text(json.dumps(PAPER))
    return str(path)


def call(*arguments, code=0, **options):
    found = CliRunner().invoke(main, list(arguments), **options)
    assert found.exit_code == code, (found.output, found.exception)
    return found


def test_run_prints_one_json_object_with_the_promised_keys(release):
    data = json.loads(call("run", "two_level", release, "--seed", "1", "--json").stdout)
    promised = {
        "scenario",
        "sampler",
        "convention",
        "prior",
        "posterior",
        "risk",
        "log_odds",
        "cut_off_bound",
    }
    assert promised <= set(data)
    assert data["posterior"] == pytest.approx(0.503287826, abs=1e-9)
    assert (data["convention"], data["prior"]) == ("unbounded", 0.5)
    assert data["cut_off_bound"] < 1e-12
    assert data["assumptions"]["elsewhere"] == "Prior('FlatCount')"


def test_run_reads_a_pipe():
    data = json.loads(call("run", "single_level", "-", "--json", input=json.dumps(PAPER)).stdout)
    assert data["posterior"] == pytest.approx(0.573875047, abs=1e-9)
    assert data["unused_evidence"] == ["block_group", "rest"]


def test_run_changes_assumptions_and_samplers(release):
    literal = json.loads(
        call(
            "run",
            "two_level",
            release,
            "--sampler",
            "gibbs",
            "--mode",
            "literal",
            "--seed",
            "1",
            "--draws",
            "5000",
            "--json",
        ).stdout
    )
    assert abs(literal["posterior"] - 0.5777016) < 4 * literal["mcse"]
    poisson = json.loads(
        call("run", "two_level", release, "--assume", "elsewhere=Poisson(mu=5)", "--json").stdout
    )
    assert poisson["posterior"] == pytest.approx(0.3875623427, abs=1e-9)
    rare = json.loads(call("run", "single_level", release, "--assume", "present.p=1/864", "--json").stdout)
    assert rare["prior"] == pytest.approx(1 / 864, rel=1e-14)


def test_run_saves_the_whole_result(release, tmp_path):
    from adversary import AttackResult

    call("run", "two_level", release, "--seed", "1", "--out", str(tmp_path / "result.nc"))
    assert AttackResult.load(tmp_path / "result.nc").posterior == pytest.approx(0.503287826, abs=1e-9)


def test_the_same_command_twice_prints_the_same_bytes(release):
    one, two = (call("run", "two_level", release, "--seed", "1", "--json").stdout for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "two_levl", "RELEASE"), "did you mean two_level?"),
        (("run", "two_level", "none.json"), "there is no such file"),
        (("run", "two_level", "RELEASE", "--assume", "knwon=3"), "it has known, present, elsewhere"),
        (("run", "two_level", "RELEASE", "--assume", "present=Bernoulli(0.1)"), "named parameters"),
        (("run", "two_level", "RELEASE", "--assume", "present.q=0.1"), "no parameter of a prior"),
        (("run", "two_level", "RELEASE", "--assume", "known"), "NAME=VALUE"),
        (("run", "two_level", "RELEASE", "--assume", "known=True"), "is a number, got 'True'"),
        (
            ("run", "two_level", "RELEASE", "--assume", "present=Bernoulli(p=Beta(alpha=1,beta=3))"),
            "must hold numbers",
        ),
        (("run", "two_level", "RELEASE", "--mode", "literal"), "--sampler gibbs"),
        (("account", "--rho", "-1", "--delta", "1e-10"), "rho must not be negative, got -1"),
        (("account", "--rho", "1", "--delta", "0"), "delta must lie in (0, 1]"),
        (("show", "nothing.py::mine"), "no file"),
    ],
    ids=[
        "scenario",
        "file",
        "assumption",
        "prior",
        "parameter",
        "equals",
        "truth",
        "nested",
        "mode",
        "rho",
        "delta",
        "source",
    ],
)
def test_an_error_is_one_sentence_on_standard_error_and_exit_code_two(arguments, words, release):
    found = call(*(release if a == "RELEASE" else a for a in arguments), code=2)
    assert words in found.stderr
    assert found.stdout == ""
    assert "Traceback" not in found.stderr


def test_nothing_in_an_assumption_is_executed():
    for text in (
        "known=__import__('os').getcwd()",
        "present=Bernoulli(p=__import__('os'))",
        "present=print('x')(p=1)",
    ):
        with pytest.raises(ScenarioError):
            two_level.assuming(**dict([parse_assumption(text, two_level)]))


def test_account_gives_both_epsilons():
    data = json.loads(call("account", "--rho", "2.56", "--delta", "1e-10", "--json").stdout)
    assert data["epsilon"] == pytest.approx(17.158309, abs=1e-6)
    assert data["epsilon_bun_steinke"] == pytest.approx(17.915283, abs=1e-6)


def test_list_and_show_say_what_she_knows_and_wants():
    data = json.loads(call("list", "--json").stdout)
    assert {"single_level", "two_level", "path"} <= set(data)
    text = call("show", "two_level").stdout
    assert "wants:    present" in text
    assert "believes: elsewhere ~ Prior('FlatCount')" in text


def test_compare_exits_one_where_samplers_disagree(release):
    found = call(
        "compare",
        "two_level",
        release,
        "--mode",
        "literal",
        "--seed",
        "1",
        "--draws",
        "3000",
        "--json",
        code=1,
    )
    data = json.loads(found.stdout)
    assert data["agree"] is False
    assert {r["verdict"] for r in data["rows"] if r["sampler"] == "mcmc"} == {"sampled"}


def test_assess_writes_one_row_a_target_and_the_same_bytes_again(tmp_path):
    files = []
    for name in ("a.csv", "b.csv"):
        call(
            *("assess", "pl94", str(demo_folder()), "--level", "block", "--allocation", "2020-pl94-persons"),
            *("--convention", "bounded", "--prior", "0.5", "--seed", "1", "--out", str(tmp_path / name)),
        )
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    rows = files[0].decode().splitlines()
    assert rows[0].startswith("geoid,votingage,hispanic,cenrace,noisy_block,prior,posterior,risk")
    assert len(rows) == 148


def test_assess_exits_one_where_a_target_exceeds_the_threshold(tmp_path):
    arguments = (
        "assess",
        "pl94",
        str(demo_folder()),
        "--rho",
        "2",
        "--prior",
        "1/864",
        "--seed",
        "1",
        "--json",
    )
    data = json.loads(call(*arguments, code=1).stdout)
    assert data["above_threshold"] > 0
    found = call("assess", "pl94", str(tmp_path), "--rho", "1", "--seed", "1", code=2)
    assert str(tmp_path) in found.stderr


def test_version_and_citation():
    assert call("--version").stdout.startswith("adversary 0.1.0")
    assert "2204.04253" in call("--citation").stdout


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["list"], ["account", "--rho", "1", "--delta", "1e-6"], ["show", "couple"]],
    ids=["help", "list", "account", "show"],
)
def test_a_command_that_does_not_sample_imports_no_pymc(arguments):
    code = (
        "import sys\nfrom adversary.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "heavy = {'pymc', 'pytensor', 'arviz', 'matplotlib', 'pandas', 'scipy.stats', 'xarray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
