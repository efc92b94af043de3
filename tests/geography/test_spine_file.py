"""A spine in a file: read back equal, and refused where it was changed."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from adversary.errors import FileFormatError
from adversary.geography.blocks import BlockTable
from adversary.geography.bypass import bypass_only_children
from adversary.geography.das import optimized_spine
from adversary.geography.spine import Spine
from adversary.geography.spine_file import read_about

if TYPE_CHECKING:
    from pathlib import Path

LEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")


def alabama() -> Spine:
    ids = [f"01{c:03d}{t:06d}{b}" for c in (1, 3) for t in (100, 20000) for b in (1000, 1001, 2000)]
    shares = dict(zip(LEVELS, ("1/7", "2/7", "1/14", "3/14", "1/7", "1/7"), strict=True))
    blocks = BlockTable(ids, aiannhce=["0010"] + [""] * (len(ids) - 1), place=["00124"] * len(ids))
    return optimized_spine(blocks, shares)


def equal(a: Spine, b: Spine) -> bool:
    same = all(np.array_equal(getattr(a, k), getattr(b, k)) for k in ("geocodes", "parents", "level_of"))
    shares = [[s.share_table[i] for i in s.share_index.tolist()] for s in (a, b)]
    return same and a.levels == b.levels and shares[0] == shares[1]


@pytest.mark.parametrize("name", ["spine.csv", "spine.csv.gz"])
def test_a_spine_comes_back_equal_with_its_zeros_and_its_empty_code(tmp_path: Path, name: str) -> None:
    spine = alabama()
    about = {"kind": "optimized", "rho": "293764/114921", "settings": {"fanout_cutoff": 12}}
    spine.save(tmp_path / name, about)
    back = Spine.load(tmp_path / name)
    assert equal(spine, back)
    assert back.geocodes[0] == ""
    assert back.codes(back.units("State")) == ["001", "101"]
    assert back.path_totals() == {Fraction(1)}
    assert read_about(tmp_path / name) == about


def test_random_ragged_trees_with_awkward_codes_and_long_fractions_come_back_equal(tmp_path: Path) -> None:
    rng = random.Random(5)
    letters = ['a,"b', "é", "0", "00", "x\ty", "#", "-1"]
    for _ in range(30):
        n = rng.randint(1, 25)
        codes = [f"{rng.choice(letters)}{i:03d}" for i in range(n)]
        parents = ["" if i == 0 or rng.random() < 0.1 else codes[rng.randrange(i)] for i in range(n)]
        spine = Spine.from_parents(codes, parents)
        denominator = rng.choice([4099, 10**30 + 57])
        spine = spine.with_numerators(
            np.array([rng.randint(0, 10**18) for _ in range(n)], object), denominator
        )
        spine = bypass_only_children(spine)
        spine.save(tmp_path / "s.csv")
        assert equal(spine, Spine.load(tmp_path / "s.csv"))


def changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text(encoding="utf-8")
    assert old in text
    other = path.with_name("changed.csv")
    other.write_text(text.replace(old, new, 1), encoding="utf-8")
    return other


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("State,001,1", "State,1,1", "State have 1 to 3 characters.*zeros were lost"),
        ("State,001,1", "State,001,77", "row 2: parent '77' is no row above it"),
        ("State,001,1", "State,001,2", "row 2: parent '2' is no row above it"),
        ("State,001,1", "Land,001,1", "'Land' is no level: they are US, State"),
        ("State,001,1,", "State,001,1,-", "share '-.*' is no fraction"),
        ("State,001,1,", "State,001,1,nan", "share 'nan.*' is no fraction"),
        ("State,001,1,", "State,001,", "row 2: 3 fields for 4 columns"),
        ("level,geocode", "stage,geocode", "the columns are level, geocode, parent, share"),
        ("State,001,1", "State,002,1", "the rows are not those that were written"),
        ("State,001,1,", "State,001,1,0", "the rows are not those that were written"),
        ('"version": 1', '"version": 9', "version 9 of the form"),
        ("#adversary-spine", "# something", "first line is not '#adversary-spine'"),
    ],
)
def test_a_file_that_was_changed_is_refused_with_the_value(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "s.csv"
    alabama().save(path)
    with pytest.raises(FileFormatError, match=words):
        Spine.load(changed(path, old, new))


def test_line_ends_may_change_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    alabama().save(path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert equal(Spine.load(path), alabama())


def test_a_file_that_lost_its_last_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    alabama().save(path)
    path.write_text("\n".join(path.read_text().splitlines()[:-2]) + "\n")
    with pytest.raises(FileFormatError, match="the first line promises"):
        Spine.load(path)


def test_names_that_are_no_table_and_files_that_are_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"called .csv or .csv.gz, got 's.npz'"):
        alabama().save(tmp_path / "s.npz")
    with pytest.raises(FileFormatError, match="cannot be opened"):
        Spine.load(tmp_path / "nothing.csv")


def test_a_packed_file_that_is_damaged_is_said_and_a_failed_write_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "s.csv.gz"
    spine = alabama()
    spine.save(path)
    whole = path.read_bytes()
    for part in (whole[:40], whole[:-30], b"nothing packed", b""):
        path.write_bytes(part)
        with pytest.raises(FileFormatError):
            Spine.load(path)
        with pytest.raises(FileFormatError):
            Spine.load(path)
    path.write_bytes(whole)
    with pytest.raises(TypeError):
        spine.save(path, {"kind": object()})
    assert equal(Spine.load(path), spine)
