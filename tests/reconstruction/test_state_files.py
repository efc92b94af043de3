"""A synthetic state in files: back to the last digit, plain to other software, and every spoiled line named."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict

import numpy as np
import pytest

from adversary.errors import FileFormatError
from adversary.reconstruction.state_files import is_state, read_state, write_state
from adversary.reconstruction.synthetic import StateShape, synthetic_state


@pytest.fixture(scope="module")
def state():
    return synthetic_state(StateShape(blocks=60), seed=5)


@pytest.fixture
def folder(state, tmp_path):
    return write_state(state, tmp_path / "state", seed=5)


def replace(folder, name, old, new, *, keep_digest=False):
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    if not keep_digest:
        head = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        head["files"].pop(name, None)
        (folder / "state.json").write_text(json.dumps(head), encoding="utf-8")


def test_a_state_comes_back_to_the_last_digit(state, folder):
    back = read_state(folder)
    for name in ("records", "block", "tract", "position", "homes", "sample"):
        was, its = getattr(state, name), getattr(back, name)
        assert its.dtype == was.dtype
        assert np.array_equal(its, was)
    assert asdict(back.shape) == asdict(state.shape)
    assert back.census.attributes == state.census.attributes
    assert np.array_equal(back.census.codes, state.census.codes)
    table = state.configurations(3)
    assert np.array_equal(back.counts(3), state.counts(3))
    assert np.array_equal(back.shares(table), state.shares(table))
    assert is_state(folder)
    assert not is_state(folder.parent)


def test_the_same_state_is_the_same_bytes(state, folder, tmp_path):
    again = write_state(read_state(folder), tmp_path / "again", seed=5)
    for path in folder.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


def test_other_software_reads_the_truth_with_a_csv_reader_alone(state, folder):
    with (folder / "households.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    crowded = sum(
        row["property"] != "none"
        and (
            (row["bedrooms"] == "0-1" and int(row["size"]) > 2)
            or (row["bedrooms"] == "2" and int(row["size"]) > 4)
        )
        for row in rows
    )
    subsidised = sum(row["property"] != "none" for row in rows)
    assert len(rows) == len(state.records)
    assert crowded == round(0.034 * subsidised)
    assert json.loads((folder / "state.json").read_text(encoding="utf-8"))["note"].startswith(
        "synthetic households"
    )


def test_a_folder_with_something_in_it_is_left_alone(state, folder, tmp_path):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(FileFormatError, match="not an empty folder"):
        write_state(state, folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    (tmp_path / "empty").mkdir()
    assert is_state(write_state(state, tmp_path / "empty"))
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("households.csv", "\n0,", "\n0,9", "line 2: property is '9"),
        ("households.csv", "\n0,", "\nzero,", "line 2: block is 'zero': a whole number"),
        ("households.csv", "\n0,", "\n59,", "line 3: households stand in the order of their blocks"),
        ("households.csv", "none,NA", "none,2", "bedrooms are NA exactly if property is none"),
        ("households.csv", "block,property", "block,home", "the first line is"),
        ("households.csv", "\n0,", "\n0,0,", "line 2: 8 fields where there are 7"),
        ("blocks.csv", "\n0,", "\n7,", "blocks are numbered 0, 1, 2"),
        ("blocks.csv", "\n1,", "\n1,x", "line 3: tract is"),
        ("sample.csv", "\n1,0,no,", "\n1,0,maybe,", "line 2: elderly is 'maybe': choose one of no, yes"),
        ("state.json", '"version": 1', '"version": 2', "is of"),
        ("state.json", '"smallest"', '"tiniest"', "a shape has no 'tiniest'"),
        ("state.json", '"hispanic"', '"latino"', "attributes must be those of the package"),
        ("state.json", "{", "[", "is not JSON"),
    ],
)
def test_what_cannot_be_is_named_by_file_and_line(folder, name, old, new, words):
    replace(folder, name, old, new, keep_digest=name == "state.json")
    with pytest.raises(FileFormatError, match=words):
        read_state(folder)


def test_a_changed_or_missing_file_is_told(folder):
    replace(folder, "sample.csv", ",", ";", keep_digest=True)
    with pytest.raises(FileFormatError, match=r"sample\.csv was changed since it was written"):
        read_state(folder)
    (folder / "sample.csv").unlink()
    with pytest.raises(FileFormatError, match=r"lacks sample\.csv"):
        read_state(folder)
    (folder / "state.json").unlink()
    with pytest.raises(FileFormatError, match=r"holds no state\.json"):
        read_state(folder)
