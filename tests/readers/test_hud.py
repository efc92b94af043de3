"""HUD's Picture of Subsidized Households, on files written here; no real file is in the tests."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from adversary.errors import FileFormatError
from adversary.readers.hud import read_hud_picture
from adversary.reconstruction.households import household_configurations
from adversary.reconstruction.tables import HUD_PERCENTS, HudRecord, hud_constraints, publish_hud

if TYPE_CHECKING:
    from pathlib import Path

HEADER = (
    "quarter,program,program_label,sub_program,name,code,total_units,pct_occupied,number_reported,"
    "people_per_unit,pct_bed1,pct_bed2,pct_bed3,pct_minority"
)
LINE: dict[str, Any] = {
    "quarter": "31DEC2022",
    "program": 1,
    "program_label": "Summary of All HUD Programs",
    "sub_program": "NA",
    "name": "Census Tract 201",
    "code": "01001020100",
    "total_units": 40,
    "pct_occupied": 95,
    "number_reported": 38,
    "people_per_unit": 2.1,
    "pct_bed1": 55,
    "pct_bed2": 30,
    "pct_bed3": 15,
    "pct_minority": 60,
}


def picture_file(folder: Path, *lines: dict[str, Any], name: str = "TRACT_AL_2022_2020census.csv") -> Path:
    """Write a file of HUD's layout."""
    rows = [",".join(str({**LINE, **line}[column]) for column in HEADER.split(",")) for line in lines]
    path = folder / name
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_suppressed_number_still_says_fewer_than_eleven(tmp_path: Path) -> None:
    reports = [{"number_reported": value, "name": str(value)} for value in (-4, -1, -5, 12, "NA")]
    picture = read_hud_picture(picture_file(tmp_path, *reports))
    low, high = picture.interval("number_reported")
    assert high.tolist() == [10, np.inf, np.inf, 12, np.inf]
    assert low.tolist() == [0, 0, 0, 12, 0]
    assert np.isnan(picture.number("number_reported")[-1])
    assert picture.number("number_reported")[:4].tolist() == [-4, -1, -5, 12]


def test_a_suppressed_share_says_nothing_and_is_no_zero(tmp_path: Path) -> None:
    picture = read_hud_picture(picture_file(tmp_path, {"pct_bed1": -4}, {"name": "b", "pct_bed1": -1}))
    low, high = picture.interval("pct_bed1")
    assert (low.tolist(), high.tolist()) == ([0, 0], [100, 100])


def test_a_line_becomes_rows_that_the_printed_block_meets(tmp_path: Path) -> None:
    table = household_configurations(max_size=4)
    rng = np.random.default_rng(3)
    counts = np.where(table.mask({"property": "1"}), rng.poisson(0.05, len(table)), 0)
    printed = publish_hud(table, counts)
    assert printed.number_reported == counts.sum() > 11
    shown = {k: int(v) for k, v in printed.percents.items() if k in LINE}
    line = {
        "total_units": printed.total_units,
        "number_reported": printed.number_reported,
        "pct_occupied": 100,
        "people_per_unit": printed.people_per_unit,
        **shown,
    }
    fields = read_hud_picture(picture_file(tmp_path, line)).line(0)
    read = {k: v for k, v in fields["percents"].items() if k in HUD_PERCENTS}
    rows = hud_constraints(table, HudRecord(**{**fields, "percents": read}))
    assert rows.satisfied_by(counts)
    assert len(rows) == 2 + len(shown)
    fewer = counts.copy()
    fewer[np.flatnonzero(counts)[0]] -= 1
    assert not rows.satisfied_by(fewer)


def test_a_lost_leading_zero_is_put_back_and_said(tmp_path: Path) -> None:
    picture = read_hud_picture(picture_file(tmp_path, {"code": 1001020100}), level="tract")
    assert picture.text("code").tolist() == ["01001020100"]
    assert picture.notes == ("1 codes had lost their leading zero",)
    assert read_hud_picture(picture_file(tmp_path, {}), level="tract").notes == ()


def test_a_code_of_another_geography_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="11 digits belong there"):
        read_hud_picture(picture_file(tmp_path, {"code": "01001"}), level="tract")


def test_the_bucket_without_a_place_stays_and_is_told_apart(tmp_path: Path) -> None:
    lines = {"code": "01XXXXXXXXX", "name": "AL Missing"}, {}
    assert read_hud_picture(picture_file(tmp_path, *lines), level="tract").located.tolist() == [False, True]


@pytest.mark.parametrize("quarter", ["31DEC2024", "45657", "45657.0"])
def test_a_day_is_read_as_text_and_as_a_spreadsheets_serial(tmp_path: Path, quarter: str) -> None:
    picture = read_hud_picture(picture_file(tmp_path, {"quarter": quarter}))
    assert picture.quarter == (dt.date(2024, 12, 31),)


def test_all_programmes_together_are_not_added_to_each(tmp_path: Path) -> None:
    lines = [{"program": p, "total_units": u} for p, u in ((1, 60), (2, 40), (3, 20))]
    picture = read_hud_picture(picture_file(tmp_path, *lines))
    assert picture.of_program(1).number("total_units").tolist() == [60]
    with pytest.raises(FileFormatError, match="there are 1, 2, 3"):
        picture.of_program(9)


def test_the_name_of_the_file_tells_the_tracts(tmp_path: Path) -> None:
    line = {"quarter": "31DEC2020"}
    assert read_hud_picture(picture_file(tmp_path, {})).tracts == "2020"
    assert read_hud_picture(picture_file(tmp_path, line, name="TRACT_AL_2020.csv")).tracts == "2010"
    line = {"quarter": "31DEC2005"}
    assert read_hud_picture(picture_file(tmp_path, line, name="TRACT_AL_2005.csv")).tracts is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"number_reported": -2}, "codes are -1 missing"),
        ({"pct_bed1": 101}, "ends at 100"),
        ({"pct_bed1": "half"}, "a number, a code"),
    ],
)
def test_a_value_that_cannot_be_is_refused(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    picture = read_hud_picture(picture_file(tmp_path, line))
    with pytest.raises(FileFormatError, match=message):
        picture.number(next(iter(line)))


def test_files_of_the_nineties_other_files_and_cut_lines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="1996-98"):
        read_hud_picture(picture_file(tmp_path, {"quarter": "31DEC1998"}, name="pic.csv"))
    with pytest.raises(FileFormatError, match="occurs twice"):
        read_hud_picture(picture_file(tmp_path, {}, {}))
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileFormatError, match="no Picture"):
        read_hud_picture(path)
    path.write_text(HEADER + "\n31DEC2022,1\n")
    with pytest.raises(FileFormatError, match="may be cut"):
        read_hud_picture(path)


def test_a_spreadsheet_reads_like_the_csv_file(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    lines = [
        {"code": 1001020100, "quarter": 44926, "sub_program": None},
        {"name": "b", "number_reported": -4.0},
    ]
    book = openpyxl.Workbook()
    book.active.append(HEADER.split(","))
    for line in lines:
        book.active.append([{**LINE, **line}[column] for column in HEADER.split(",")])
    path = tmp_path / "TRACT_AL_2022_2020census.xlsx"
    book.save(path)
    picture = read_hud_picture(path, level="tract")
    assert picture.text("code").tolist() == ["01001020100", "01001020100"]
    assert picture.quarter == (dt.date(2022, 12, 31),) * 2
    assert picture.interval("number_reported")[1].tolist() == [38, 10]
    assert picture.line(0)["people_per_unit"] == 2.1
    with pytest.raises(FileFormatError, match="no sheet"):
        read_hud_picture(path, sheet="other")
