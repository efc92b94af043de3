"""Microdata samples, on files written here; no real file is in the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from adversary.errors import FileFormatError
from adversary.readers.pums import household_table, read_pums
from adversary.reconstruction.households import RACES_8

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "RT,SERIALNO,PUMA,PWGTP,AGEP,RAC1P,HISP,RELSHIPP"


def sample_file(folder: Path, *lines: str, header: str = HEADER, name: str = "psam_p44.csv") -> Path:
    """Write a person file of the Bureau's layout."""
    path = folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def drawn_file(folder: Path, seed: int) -> tuple[Path, dict[str, tuple[int, int, bool]]]:
    """Write a random sample, and what each household should come to."""
    rng = np.random.default_rng(seed)
    lines, truth = [], {}
    for i in range(60):
        serial = f"2020HU{i:07d}"
        ages = [int(rng.integers(18, 95)), *rng.integers(0, 95, int(rng.integers(0, 6))).tolist()]
        lines += [
            f"P,{serial},00101,{10 + i},{a},{1 + i % 9},{1 + i % 3},{20 if j == 0 else 25}"
            for j, a in enumerate(ages)
        ]
        truth[serial] = (len(ages), sum(a < 18 for a in ages), any(a >= 65 for a in ages))
    order = rng.permutation(len(lines))
    return sample_file(folder, *(lines[i] for i in order)), truth


def test_households_come_out_of_shuffled_persons(tmp_path: Path) -> None:
    path, truth = drawn_file(tmp_path, 1)
    table = household_table(read_pums(path))
    found = dict(
        zip(
            table.serial.tolist(),
            zip(table.size.tolist(), table.children.tolist(), table.elderly.tolist(), strict=True),
            strict=True,
        )
    )
    assert found == truth
    assert (table.adults == table.size - table.children).all()
    assert table.weight.tolist() == list(range(10, 70))
    assert set(table.race.tolist()) <= set(RACES_8)


def test_serial_numbers_stay_text_with_their_zeros(tmp_path: Path) -> None:
    lines = "P,0000012,00101,1,30,1,01,20", "P,12,00101,1,40,2,01,20"
    table = household_table(read_pums(sample_file(tmp_path, *lines)))
    assert table.serial.tolist() == ["0000012", "12"]
    assert table.size.tolist() == [1, 1]


def test_race_is_the_householders_and_hispanic_people_are_apart(tmp_path: Path) -> None:
    lines = (
        "P,a,00101,1,30,6,01,20",
        "P,a,00101,1,31,1,02,21",
        "P,b,00101,1,30,1,24,20",
        "P,c,00101,1,30,4,01,20",
    )
    table = household_table(read_pums(sample_file(tmp_path, *lines)))
    assert table.race.tolist() == ["asian_nonhispanic", "hispanic", "aian_nonhispanic"]


def test_group_quarters_and_housing_units_are_left_out_and_said(tmp_path: Path) -> None:
    lines = "H,a,00101,1,,,,", "P,a,00101,1,30,1,01,20", "P,2020GQ0000001,00101,1,20,1,01,37"
    sample = read_pums(sample_file(tmp_path, *lines))
    assert len(sample) == 2
    table = household_table(sample)
    assert (len(table), table.notes) == (1, ("1 persons in group quarters left out",))


def test_older_relationship_codes_are_read(tmp_path: Path) -> None:
    header = HEADER.replace("RELSHIPP", "RELP")
    lines = "P,a,00101,1,30,1,1,00", "P,a,00101,1,3,1,1,02", "P,b,00101,1,30,1,1,17"
    assert household_table(read_pums(sample_file(tmp_path, *lines, header=header))).size.tolist() == [2]


def test_pumas_of_two_censuses_are_not_mixed(tmp_path: Path) -> None:
    header = HEADER.replace("PUMA", "PUMA10,PUMA20")
    lines = "P,a,101,-0009,1,30,1,01,20", "P,b,102,-0009,1,30,1,01,20"
    codes, census = read_pums(sample_file(tmp_path, *lines, header=header)).puma
    assert (codes.tolist(), census) == (["00101", "00102"], "2010")
    mixed = sample_file(tmp_path, lines[0], "P,b,-0009,00300,1,30,1,01,20", header=header)
    with pytest.raises(FileFormatError, match="mixes PUMAs"):
        _ = read_pums(mixed).puma


def test_parts_of_a_state_are_joined_and_columns_can_be_chosen(tmp_path: Path) -> None:
    parts = [sample_file(tmp_path, f"P,{s},00101,7,30,1,01,20", name=f"psam_p{s}.csv") for s in ("a", "b")]
    sample = read_pums(*parts, columns=["agep"])
    assert sample.text("SERIALNO").tolist() == ["a", "b"]
    assert list(sample.columns) == ["SERIALNO", "AGEP", "PWGTP"]
    assert sample.weight.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("P,2.02E+12,00101,1,30,1,01,20", "spreadsheet"),
        ("P,a,00101,1,30,1", "may be cut"),
        ("P,a,00101,one,30,1,01,20", "whole number"),
    ],
)
def test_a_spoiled_file_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        read_pums(sample_file(tmp_path, line))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("P,a,00101,1,30,1,01,21", "0 householders"),
        ("P,a,00101,1,300,1,01,20", "0 to 130"),
        ("P,a,00101,1,30,0,01,20", "RAC1P"),
        ("P,a,00101,1,30,1,99,20", "HISP"),
    ],
)
def test_a_household_that_cannot_be_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        household_table(read_pums(sample_file(tmp_path, line)))
