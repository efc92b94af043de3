"""The histograms of 2020 and 1940 have the cells that the paper counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adversary.errors import ReleaseError
from adversary.release.schema import HISTOGRAMS, histogram

FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = {c["id"]: c for c in json.loads((FOLDER / "kazan_reiter.json").read_text())}


@pytest.mark.parametrize(
    ("case", "name"), [("cells_2020", "2020-pl94-persons"), ("cells_1940", "1940-persons")]
)
def test_the_paper_s_cells_are_counted(case: str, name: str) -> None:
    assert histogram(name).cells == REFERENCE[case]["exact_value"] == REFERENCE[case]["paper_value"]


def test_the_bureau_s_1940_test_has_192_cells() -> None:
    there = histogram("1940-TEST-persons")
    assert there.cells == 192
    assert there.group("votingage * hispanic * cenrace").size == 24
    assert there.group("hhgq").size == 8


def test_every_histogram_answers_its_detailed_query_cell_by_cell() -> None:
    for name in HISTOGRAMS:
        assert histogram(name).group("detailed").size == histogram(name).cells
        assert histogram(name).group("total").size == 1


def test_a_misspelt_name_is_put_right() -> None:
    with pytest.raises(
        ReleaseError, match=r"no histogram called '1940-person' \(did you mean 1940-persons\?\)"
    ):
        histogram("1940-person")
