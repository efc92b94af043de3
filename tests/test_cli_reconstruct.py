"""The commands of reconstruction: what the library answers, as sentences and as one JSON object, and their exits."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from adversary.cli import main
from adversary.readers.pl94 import demo_folder, read_pl94
from adversary.reconstruction.ask import StateView, ask_state
from adversary.reconstruction.believe import Belief, believe_state
from adversary.reconstruction.evaluation import evaluate
from adversary.reconstruction.folders import open_folder, parse_mechanism
from adversary.reconstruction.households import OVER_LIMIT
from adversary.reconstruction.mechanisms import MECHANISMS
from adversary.reconstruction.questions import SIMPLIFIED, Question
from adversary.reconstruction.sentences import answer_sentence
from adversary.reconstruction.state_files import read_state
from adversary.reconstruction.study import StudyOptions, reconstruct_state
from adversary.reconstruction.synthetic import StateShape, synthetic_state

pytest.importorskip("highspy")
pytest.importorskip("ortools")
SHAPE = ("--blocks", "30", "--smallest", "5", "--largest", "18", "--violating", "0.1")
DEMO = str(demo_folder())
NOTE = "synthetic households only"


def call(*arguments, code=0):
    found = CliRunner().invoke(main, ["reconstruct", *map(str, arguments)])
    assert found.exit_code == code, (found.output, found.exception)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "state"
    call("simulate", "--out", path, "--seed", 1, *SHAPE)
    return path


@pytest.fixture(scope="module")
def state(folder):
    return read_state(folder)


def untimed(answers):
    return {b: {k: v for k, v in a.items() if k not in {"seconds", "finding"}} for b, a in answers.items()}


def test_simulate_writes_the_state_of_its_seed(folder, state, tmp_path):
    wanted = synthetic_state(StateShape(blocks=30, smallest=5, largest=18, violating=0.1), seed=1)
    assert np.array_equal(state.records, wanted.records)
    told = json.loads(call("simulate", "--out", tmp_path / "again", "--seed", 1, *SHAPE, "--json").stdout)
    assert told["households"] == len(state.records)
    assert NOTE in told["note"]
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    assert "not an empty folder" in call("simulate", "--out", folder, "--seed", 2, *SHAPE, code=2).stderr


@pytest.mark.parametrize(
    ("question", "harm"),
    [
        ("feasible", OVER_LIMIT),
        ("bounds", OVER_LIMIT),
        ("most-likely", None),
        ("top", OVER_LIMIT),
        ("claims", None),
        ("closest", None),
    ],
)
def test_the_six_questions_answer_as_the_library_does_and_name_what_they_are_about(
    folder, state, question, harm
):
    names = ("size", "bedrooms") if question == "claims" else ()
    more = ("--attributes", ",".join(names)) if names else ()
    blocks = ("--block", "3,4", "--block", "5")
    wanted = ask_state(state, StateView(), Question(question, harm, names, 7), [3, 4, 5])
    found = any(a["finding"] for a in wanted.values())
    run = call("solve", folder, "--question", question, "--top", 7, *blocks, *more, "--json", code=int(found))
    told = json.loads(run.stdout)
    assert untimed(told["answers"]) == untimed(wanted)
    assert told["blocks"] == 3
    assert NOTE in told["note"]
    text = call("solve", folder, "--question", question, "--top", 7, *blocks, *more, code=int(found)).stdout
    assert NOTE in text
    for name, answer in wanted.items():
        assert f"{name}: {answer_sentence(question, answer)}" in text


def test_a_certain_harm_is_exit_one_and_said(folder, state):
    wanted = ask_state(state, StateView(), Question("bounds", OVER_LIMIT), range(12))
    certain = [name for name, a in wanted.items() if a["finding"]]
    assert certain
    run = call("solve", folder, "--question", "bounds", "--first", 12, code=1)
    assert f"{len(certain)} with a finding" in run.stdout
    one = str(int(certain[0].removeprefix("block-")))
    assert "CERTAIN" in call("solve", folder, "--question", "bounds", "--block", one, code=1).stdout
    assert "; flagged: CERTAIN" in call("solve", folder, "--block", one, code=1).stdout
    other = next(str(i) for i, a in enumerate(wanted.values()) if not a["finding"])
    assert "not flagged" in call("solve", folder, "--block", other).stdout


def test_variability_of_a_state_and_its_figure(folder, state, tmp_path):
    wanted = ask_state(state, StateView(), Question("variability", None, SIMPLIFIED), range(4))
    code = int(any(a["finding"] for a in wanted.values()))
    picture = tmp_path / "open.png"
    arguments = ("variability", folder, "--attributes", "simplified", "--first", 4, "--figure", picture)
    told = json.loads(call(*arguments, "--json", code=code).stdout)
    assert untimed(told["answers"]) == untimed(wanted)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_posterior_of_a_state_and_its_threshold(folder, state):
    wanted = believe_state(state, StateView(), Belief(bedrooms="to-need", draws=10), [3, 4, 5])
    arguments = ("posterior", folder, "--bedrooms", "to-need", "--draws", 10, "--block", "3,4,5")
    most = max(a["probability"] for a in wanted.values())
    told = json.loads(call(*arguments, "--threshold", most, "--json").stdout)
    assert untimed(told["answers"]) == untimed(wanted)
    assert NOTE in told["note"]
    text = call(*arguments, "--threshold", most / 2, code=1).stdout
    assert "violates the occupancy limit" in text
    assert NOTE in text
    assert f"P = {most:.4f}" in text


def test_the_study_answers_as_the_library_does_and_goes_on_where_it_stopped(folder, state, tmp_path):
    out, figures = tmp_path / "out", tmp_path / "figures"
    arguments = ("evaluate", folder, "--mechanism", "none", "--mechanism", "swapping-10", "--top", 3)
    call(*arguments, "--seed", 4, "--first", 2, "--out", out)
    run = call(*arguments, "--seed", 4, "--first", 3, "--out", out, "--figures", figures, "--json")
    told = json.loads(run.stdout)
    result = reconstruct_state(
        state, ["none", "swapping 10 %"], seed=4, blocks=range(3), options=StudyOptions(top=3)
    )
    wanted = evaluate(state, result, seed=4)
    for name, its in wanted.flags.items():
        assert [told["flags"][name][field] for field in its._fields] == list(its)
    assert told["statuses"] == {m: dict(s) for m, s in wanted.statuses.items()}
    for row, (setting, its) in zip(told["linkage"], wanted.curves.items(), strict=True):
        assert row["mechanism"] == setting.mechanism
        assert (row["households"], row["harmed"]) == (len(its), its.total)
        k = min(its.total, len(its))
        if k:
            low, high = its.precision_range
            mean = row["precision_at_harmed"]["mean"]
            assert mean == pytest.approx(its.precision[k - 1])
            assert low[k - 1] == row["precision_at_harmed"]["low"] <= mean <= high[k - 1] + 1e-12
    assert sorted(p.name for p in figures.iterdir()) == ["flagged-blocks.png", "precision-recall.png"]
    text = call(*arguments, "--seed", 4, "--first", 3, "--out", out).stdout
    assert NOTE in text
    assert "projected for 10,224 blocks" in text
    assert "another question" in call(*arguments, "--seed", 5, "--first", 3, "--out", out, code=2).stderr


def test_real_tables_are_asked_by_the_same_commands():
    told = json.loads(call("variability", DEMO, "--tables", "P1,P2,P3", "--json", code=1).stdout)
    assert told["summary"]["blocks"] == len(told["blocks"]) == 40
    assert told["summary"]["not_determined"] > 0
    assert NOTE not in told["note"]
    largest = max(told["blocks"].values(), key=lambda b: b["people"])
    assert all("votingage=" in told["cells"][k] for k in largest["cell"])
    text = call("variability", DEMO, code=1).stdout
    assert "40 blocks" in text
    assert "the published, protected file" in text
    open_only = call("variability", DEMO, "--tables", "P1", "--json").stdout
    assert json.loads(open_only)["summary"]["determined_with_people"] == 0
    harm = ("--harm", "votingage=under_18,hispanic=hispanic", "--first", 12)
    bounds = json.loads(call("solve", DEMO, "--question", "bounds", *harm, "--json", code=1).stdout)
    table = read_pl94(DEMO)
    minors = table.histogram()[:12, 0, 1].sum(axis=1)
    assert [a["low"] for a in bounds["answers"].values()] == minors.tolist()
    guess = call("posterior", DEMO, *harm, "--tables", "P1,P2,P3", "--json", "--threshold", 1)
    for name, a in json.loads(guess.stdout)["answers"].items():
        assert a["status"] == "exact", name
        assert 0 <= a["probability"] <= 1


def test_persons_in_households_that_cannot_be_are_infeasible_with_the_tables_named():
    """Report P20: the total and the persons in households do not add up; the next block goes on."""
    table = read_pl94(DEMO)
    row = int(np.flatnonzero(table.total >= 5)[0])
    code, following = str(table.geoid[row]), str(table.geoid[row + 1])
    wrong = f"{code}={int(table.total[row]) + 1}"
    arguments = ("variability", DEMO, "--households", wrong, "--block", f"{code},{following}")
    told = json.loads(call(*arguments, "--json", code=int(table.total[row + 1] > 0)).stdout)["blocks"]
    assert told[code]["status"] == "infeasible"
    assert "households" in told[code]["clash_tables"]
    assert told[following]["status"] == "optimal"
    text = call(*arguments, code=int(table.total[row + 1] > 0)).stdout
    assert f"{code}: infeasible, " in text
    assert "households persons" in text


def test_no_time_is_said_and_is_no_finding(folder):
    run = call("solve", folder, "--question", "bounds", "--first", 3, "--seconds", 0)
    assert "time limit" in run.stdout
    run = call("variability", DEMO, "--tables", "P1,P3", "--seconds", 0, "--json")
    statuses = json.loads(run.stdout)["summary"]["statuses"]
    assert statuses["time limit"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("solve", "{state}", "--harm", "size"), "a harm is over-limit or subsidised"),
        (("solve", "{state}", "--harm", "size=99"), "size has no level '99'"),
        (("solve", "{state}", "--block", "x"), "numbers from 0 to 29"),
        (("solve", "{state}", "--block", "30"), "no block 30"),
        (("solve", "{state}", "--block", "3", "--first", "2"), "exclude each other"),
        (("solve", "{state}", "--mechanism", "magic"), "no mechanism 'magic'"),
        (("solve", "{state}", "--mechanism", "swap=x"), "swap=x is no share"),
        (("solve", "{state}", "--tables", "P1"), "no set of tables 'P1'"),
        (("solve", "{demo}", "--tables", "P9"), "no table 'P9'"),
        (("solve", "{demo}", "--households", "x"), "CODE=PERSONS"),
        (("solve", "{demo}", "--block", "1"), "no geounit '1'"),
        (("posterior", "{demo}"), "--harm is needed"),
        (("variability", "{demo}", "--harm", "size=1"), "belongs to a synthetic state"),
        (("solve", "{demo}/nothing"), "is not a folder"),
        (("evaluate", "{demo}"), "holds no state.json"),
        (("evaluate", "{state}", "--mechanism", "magic"), "no mechanism 'magic'"),
        (("simulate", "--out", "{demo}/x", "--seed", "1", "--violating", "2"), "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_two(folder, arguments, words):
    filled = [text.format(state=folder, demo=DEMO) for text in arguments]
    assert words in call(*filled, code=2).stderr


def test_a_block_that_cannot_be_asked_is_exit_two_and_the_others_are_told(folder, state):
    two = next(b for b in range(30) if state.homes[b] == 2)
    one = next(b for b in range(30) if state.homes[b] == 1)
    run = call("solve", folder, "--harm", "property=2", "--block", f"{one},{two}", code=2)
    assert "property has no level '2'" in run.stdout
    assert "1 blocks could not be asked" in run.stderr
    assert f"block-{two:06d}: optimal" in run.stdout


def test_mechanisms_are_read_by_name_and_by_their_numbers():
    assert parse_mechanism("2020 budget") is parse_mechanism("2020-budget") is MECHANISMS["2020 budget"]
    assert parse_mechanism("swap=0.05").swap_rate == 0.05
    assert parse_mechanism("census=0.1,hud=0.01").census_rho == "0.1"
    assert open_folder(DEMO).blocks(["1", "2,3"], None) == ["1", "2", "3"]


def test_a_missing_extra_is_said_at_once(folder, monkeypatch):
    from adversary.reconstruction import _program

    monkeypatch.setattr(_program, "installed", lambda backend: backend != "cpsat")
    for arguments in (
        ("solve", folder, "--question", "top"),
        ("evaluate", folder),
        ("solve", folder, "--backend", "cpsat"),
    ):
        assert "pip install 'dp-adversary[reconstruct]'" in call(*arguments, code=2).stderr
    call("solve", folder, "--first", 1)
    monkeypatch.setattr(_program, "installed", lambda backend: False)
    for command in ("solve", "variability", "posterior"):
        assert "needs highspy" in call(command, folder, code=2).stderr


@pytest.mark.parametrize(
    "command", [[], ["solve"], ["simulate"], ["variability"], ["posterior"], ["evaluate"]]
)
def test_help_imports_no_solver_and_nothing_that_samples_or_draws(command):
    heavy = ("highspy", "ortools", "scipy", "numba", "xarray", "pymc", "matplotlib", "pandas")
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom adversary.cli import main\n"
        f"assert CliRunner().invoke(main, ['reconstruct', *{command!r}, '--help']).exit_code == 0\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
