"""``adversary assess nmf``: what it prints, how it ends, what it refuses."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from adversary.cli import main
from adversary.cli_nmf import _cells
from adversary.errors import ReleaseError
from adversary.geography.blocks import BlockTable
from adversary.geography.das import optimized_spine
from adversary.geography.plans import level_shares
from adversary.privacy.budget import Allocation
from adversary.readers.nmf_write import write_nmf
from adversary.readers.population import synthetic_counts
from adversary.release.queries import Histogram

pytest.importorskip("pyarrow")


@pytest.fixture(scope="session")
def release(tmp_path_factory):
    ids = [f"44001000000{g}00{b}" for g in (1, 2) for b in range(8)]
    table = BlockTable(ids, aiannhce=[""] * 16, cousub=["11111"] * 16, place=["22222"] * 16)
    levels = ("nation", "state", "county", "tract", "block_group", "block")
    mix = {level: {"age": "1/4", "detailed": "3/4"} for level in levels}
    budget = Allocation("8", dict.fromkeys(levels, "1/6"), mix)
    spine = optimized_spine(table, level_shares(budget))
    counts = synthetic_counts(spine, Histogram({"age": 2, "race": 2}), seed=1, mean=6.0)
    folder = tmp_path_factory.mktemp("cli_nmf")
    return str(write_nmf(folder / "r", spine, counts, budget, seed=7).folder)


def call(*arguments):
    return CliRunner().invoke(main, ["assess", "nmf", *map(str, arguments)])


def test_findings_end_with_1_and_the_same_run_again_has_nothing_to_do(release, tmp_path):
    first = call(release, "--out", tmp_path / "a", "--json")
    assert first.exit_code == 1, first.output
    data = json.loads(first.stdout)
    assert data["targets"] == 64
    assert data["done"] == 0
    assert data["found"]["above_threshold"] > 0
    assert "query 'age'" in data["unused"]
    again = call(release, "--out", tmp_path / "a", "--threshold", 5)
    assert again.exit_code == 0, again.output
    for words in (
        "64 targets",
        "there already",
        "largest posterior",
        "0 above 5",
        "guarantee",
        "published and not used",
    ):
        assert words in again.output


def test_a_dry_run_writes_nothing(release, tmp_path):
    found = call(release, "--out", tmp_path / "a", "--dry-run", "--cells", "0-1")
    assert found.exit_code == 0, found.output
    assert "would take about" in found.output
    assert not (tmp_path / "a").exists()


def test_another_question_and_a_wrong_use_end_with_2(release, tmp_path):
    assert call(release).exit_code == 2
    assert call(release, "--out", tmp_path / "a", "--cells", "0", "--threshold", 9).exit_code == 0
    other = call(release, "--out", tmp_path / "a", "--cells", "1")
    assert other.exit_code == 2
    assert "another question" in other.output
    for options in (["--prior", "x"], ["--cells", "0-"], ["--leaf-prior", "normal:1"], ["--states", "02"]):
        wrong = call(release, "--out", tmp_path / "b", *options)
        assert wrong.exit_code == 2, options
        assert wrong.output.startswith("adversary: ")
    assert call(tmp_path / "nothing", "--out", tmp_path / "b").exit_code == 2


def test_cells_are_read_as_numbers_and_ranges():
    assert _cells("0,3, 10-12") == [0, 3, 10, 11, 12]
    with pytest.raises(ReleaseError, match="ranges such as"):
        _cells("a")


def test_the_group_lists_it_and_help_imports_nothing_heavy():
    code = (
        "import sys; from click.testing import CliRunner; from adversary.cli import main\n"
        "out = CliRunner().invoke(main, ['assess', '--help']).output\n"
        "assert 'nmf' in out and 'pl94' in out, out\n"
        "out = CliRunner().invoke(main, ['assess', 'nmf', '--help']).output\n"
        "assert '--leaf-prior' in out, out\n"
        "heavy = {'pymc', 'pytensor', 'arviz', 'pandas', 'xarray', 'pyarrow', 'scipy.special', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
