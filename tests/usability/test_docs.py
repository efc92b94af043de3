"""The pages under docs/ are run as they are printed, lead somewhere, and the API pages can be built."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from adversary.cli import main
from adversary.readers.pl94 import demo_folder

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(adversary [^`]+)`")
EXAMPLES = ("attacks.py::mine",)  # a name in a sentence, not a file that is there
SLOW = ("adversary reproduce",)  # tests/test_reproduce.py and the notebooks run it


def blocks(page):
    return FENCE.findall(page.read_text(encoding="utf-8"))


def commands(page):
    """Commands of a page: lines in fences, and those in sentences."""
    text = page.read_text(encoding="utf-8")
    fenced = [
        line.removeprefix("$ ").split("  #")[0].strip()
        for _, body in FENCE.findall(text)
        for line in body.splitlines()
    ]
    inline = [found for found in INLINE.findall(FENCE.sub("", text)) if "..." not in found]
    found = [c for c in [*fenced, *inline] if c.startswith("adversary ")]
    return [c for c in dict.fromkeys(found) if not c.startswith(SLOW) and not any(e in c for e in EXAMPLES)]


ALL = [(page.name, command) for page in PAGES for command in commands(page)]
WITHOUT_ARGUMENTS = re.compile(r"adversary [a-z-]+( [a-z0-9]+)?$")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for page in PAGES:
        for language, text in blocks(page):
            if language == "json":
                (tmp_path / "release.json").write_text(text)
            if language == "python" and text.startswith("# attacks.py"):
                (tmp_path / "attacks.py").write_text(text)
    return tmp_path


def test_there_are_pages_and_commands():
    assert {"what-this-number-means.md", "where-the-papers-differ.md", "scenario-files-are-code.md"} <= {
        p.name for p in PAGES
    }
    assert len(ALL) >= 4


@pytest.mark.parametrize(("page", "command"), ALL, ids=[f"{n}-{page}" for n, (page, _) in enumerate(ALL)])
def test_every_command_of_the_pages_runs(page, command, folder):
    arguments = [str(demo_folder()) if a == "DIR" else a for a in shlex.split(command)[1:]]
    if WITHOUT_ARGUMENTS.match(command) and arguments != [
        "list"
    ]:  # "see `adversary compare`": that it is there is what is said
        arguments = [*arguments, "--help"]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, (page, found.output, found.exception)


def test_the_numbers_of_the_first_answer_are_those_that_come_out(folder):
    page = (ROOT / "docs" / "what-this-number-means.md").read_text(encoding="utf-8")
    found = CliRunner().invoke(main, ["run", "two_level", "release.json"]).output
    for printed in (
        "P(present) 0.500 -> 0.503",
        "= 1.00658",
        "odds x1.01",
        "cut-off bound 1.3e-28 (proven)",
        "unbounded",
    ):
        assert printed in found
        assert printed in page


def test_what_the_pages_say_of_the_paper_is_what_reproduce_says():
    page = (ROOT / "docs" / "where-the-papers-differ.md").read_text(encoding="utf-8")
    from adversary import Release, load, run
    from adversary.privacy.accounting import epsilon, epsilon_bun_steinke

    paper = Release.from_counts(
        {"block": 2, "block_group": 1, "rest": -1},
        rho={"block": "1666368/16793603", "block_group": "103534592/420045025", "rest": "1666368/16793603"},
        groups={"rest": 27},
    )
    assert f"{run(load('two_level'), paper, draws=0).posterior:.4f}" == "0.5033"
    for number in (
        f"{float(epsilon('2.56', 1e-10)):.6f}",
        f"{float(epsilon_bun_steinke('2.56', 1e-10)):.6f}",
        "0.5033",
        "0.5777",
    ):
        assert number in page


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "README.md", ROOT / "models" / "README.md"],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_every_link_within_the_repository_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    heads = {
        re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-")
        for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        assert not path or (page.parent / path).exists(), target
        assert not anchor or path or anchor in heads, target


def test_every_table_has_as_many_cells_in_each_row():
    for page in PAGES:
        width = 0
        for line in FENCE.sub("", page.read_text(encoding="utf-8")).splitlines():
            cells = line.replace("\\|", "").count("|") if line.startswith("|") else 0
            assert not (cells and width) or cells == width, (page.name, line)
            width = cells


def test_api_pages_are_built_from_the_docstrings(tmp_path):
    pytest.importorskip("pdoc")
    spec = importlib.util.spec_from_file_location("build_api", ROOT / "docs" / "build_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {"adversary", "adversary.results", "adversary.readers.pl94"} <= set(module.public_modules())
    assert not [m for m in module.public_modules() if "._" in m or ".cli" in m]
    module.build(tmp_path, ["adversary.errors", "adversary.release.measurement"])
    page = (tmp_path / "adversary" / "release" / "measurement.html").read_text(encoding="utf-8")
    assert "from_counts" in page
    assert "Neighbour convention" in page
