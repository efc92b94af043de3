"""The lowest versions that are tried (``make lowest``) are those that pyproject.toml admits."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APART = {"explore", "docs", "test"}  # programs of their own, not libraries that the package calls


def numbers(text):
    return [int(n) for n in re.findall(r"\d+", text)]


def test_every_lower_bound_has_its_line_and_every_line_its_bound():
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(d for k, v in extras.items() if k not in APART for d in v)]
    bounds = {re.split(r"[\[<>=]", d)[0]: re.search(r">=([0-9.]+)", d)[1] for d in lines}
    text = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8")
    tried = dict(line.split("==") for line in text.splitlines() if "==" in line)
    assert set(bounds) == set(tried)
    for name, lowest in bounds.items():
        given = numbers(lowest)
        assert numbers(tried[name])[: len(given)] == given, name


def test_the_versions_tested_together_are_within_the_bounds():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    tested = dict(line.split("==") for line in text.splitlines() if "==" in line)
    for line in PROJECT["dependencies"]:
        name = re.split(r"[\[<>=]", line)[0]
        assert numbers(tested[name]) >= numbers(re.search(r">=([0-9.]+)", line)[1]), name
