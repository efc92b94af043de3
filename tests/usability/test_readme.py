"""Every snippet of the READMEs is run as it is printed."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from adversary.cli import main
from adversary.demo import demo_blocks
from adversary.readers.pl94 import demo_folder

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall(README)
PYTHON = [text for language, text in BLOCKS if language == "python"]
PAGES = [  # the commands of one fence follow each other in one folder
    [
        c
        for line in text.splitlines()
        if (c := line.removeprefix("$ ").split("  #")[0].strip()).startswith("adversary ")
    ]
    for language, text in BLOCKS
    if not language
]
COMMANDS = [command for page in PAGES for command in page]
ELSEWHERE = ("adversary reproduce",)  # half a minute: notebooks/06 and tests/test_reproduce.py run it


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (release,) = [text for language, text in BLOCKS if language == "json"]
    (tmp_path / "release.json").write_text(release)
    (attack,) = [text for language, text in BLOCKS if language == "toml"]
    (tmp_path / "attack.toml").write_text(attack)
    for text in PYTHON:
        if text.startswith("# attacks.py"):
            (tmp_path / "attacks.py").write_text(text)
    (tmp_path / "blocks.csv").write_text("\n".join(demo_blocks()) + "\n")  # what `make demo` leaves
    return tmp_path


def test_the_readme_has_snippets():
    assert len(PYTHON) >= 3
    assert len(COMMANDS) >= 18


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python_snippet(number, folder):
    exec(compile(PYTHON[number], f"README.md snippet {number}", "exec"), {"__name__": "snippet"})


@pytest.mark.parametrize("page", [p for p in PAGES if p], ids=lambda p: " ".join(p[0].split()[:3]))
def test_commands(page, folder):
    for command in page:
        if command.startswith(ELSEWHERE):
            continue
        arguments = [str(demo_folder()) if a == "DIR" else a for a in shlex.split(command)[1:]]
        found = CliRunner().invoke(main, arguments)
        findings = 1 if "# exit 1" in README.split(command)[1].split("\n")[0] else 0
        assert found.exit_code == findings, (command, found.output, found.exception)


def test_the_first_answer_is_printed_as_it_comes_out(folder):
    printed = next(
        text for language, text in BLOCKS if not language and text.startswith("$ adversary run two_level")
    )
    command, *wanted = printed.splitlines()
    found = CliRunner().invoke(main, shlex.split(command)[2:])
    assert found.stdout.splitlines() == wanted


def test_the_skeleton_in_the_models_readme_is_a_scenario_that_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
    skeleton = next(body for language, body in FENCE.findall(text) if language == "python")
    Path("attacks.py").write_text(skeleton)
    Path("release.json").write_text('{"measurements": {"block": {"value": 2, "sigma2": 5}}}')
    for arguments in (["show", "attacks.py::mine"], ["run", "attacks.py::mine", "release.json"]):
        found = CliRunner().invoke(main, arguments)
        assert found.exit_code == 0, (found.output, found.exception)
