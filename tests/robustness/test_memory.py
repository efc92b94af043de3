"""What would not fit in memory is refused before it is taken, with the way out."""

import numpy as np
import pytest

from adversary import Prior, Release, load, measured, run, scenario
from adversary.batches import batch_to_folder
from adversary.cli_study import grid_of
from adversary.errors import AdversaryError, FileFormatError, ScenarioError
from adversary.readers.hud import read_hud_picture


def test_a_grid_of_too_many_points_says_how_much_it_would_take():
    with pytest.raises(
        ScenarioError, match=r"4,000,000 points take about 10 GB .* at most 1,000,000, in several studies"
    ):
        grid_of(load("two_level"), ("present.p=0.1:0.9:2000", "elsewhere.lower=0:9:2000"))
    with pytest.raises(ScenarioError, match="2 to 1,000,000 points"):
        grid_of(load("two_level"), ("present.p=0.1:0.9:99999999999",))


def test_a_dry_run_says_what_a_worker_takes(tmp_path):
    data = {"block": np.arange(1000), "block_sigma2": np.full(1000, 5.0)}
    plan = batch_to_folder(load("single_level"), data, tmp_path / "out", dry_run=True)
    assert plan.bytes_per_worker > 1000 * 16
    assert any("MB a worker" in line for line in plan.lines())
    assert not (tmp_path / "out").exists()


@scenario(target="a", source="test")
def tangled(
    release,
    *,
    a=Prior("DiscreteUniform", lower=0, upper=9999),
    b=Prior("DiscreteUniform", lower=0, upper=9999),
    c=Prior("DiscreteUniform", lower=0, upper=9999),
):
    """What is a, when products of three unknowns are published?"""
    measured(release["one"], a * b * c)
    measured(release["two"], a * b + b * c + c * a)


def test_a_table_of_a_trillion_cells_is_refused_with_the_way_out():
    release = Release.from_counts({"one": 10, "two": 10}, sigma2=1e9)
    with pytest.raises(AdversaryError, match=r"narrower|mcmc"):
        run(tangled, release, draws=0)


def test_one_long_field_does_not_fill_the_memory(tmp_path):
    """A quotation mark without its end makes one field of the rest; a column as wide as it would take gigabytes."""
    lines = [f"1,tract {i},{i},10,5" for i in range(2000)]
    lines[1000] = '1,"' + "x" * 100_000 + '",1,10,5'
    (tmp_path / "hud.csv").write_text(
        "program,name,code,total_units,number_reported\n" + "\n".join(lines) + "\n"
    )
    with pytest.raises(FileFormatError, match=r"hud\.csv, line 1002: a field of 100000 characters"):
        read_hud_picture(tmp_path / "hud.csv")
