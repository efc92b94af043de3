"""The PL 94-171 reader against a writer that shares no code with it, spoiled files, and real rows."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from adversary.errors import FileFormatError
from adversary.readers.pl94 import AXES, LEVELS, RACES, demo_folder, find_mismatches, read_pl94

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("make_demo_pl94", HERE.parent / "make_demo_pl94.py")
writer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(writer)

SHARED = Path(os.environ.get("ADVERSARY_SHARED", HERE.parents[2] / "shared")) / "data" / "rhode-island-pl94"
rhode_island = pytest.mark.skipif(
    not SHARED.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)


@pytest.fixture
def blocks():
    return writer.demo_blocks()


@pytest.fixture
def folder(tmp_path, blocks):
    return writer.write_pl94(tmp_path / "zz", blocks)


def spoil(folder, part, line, column, text):
    """Replace one field (line from 1, column by its number from 0)."""
    path = next(folder.glob(f"zz{part}*.pl"))
    rows = path.read_bytes().split(b"\n")
    cells = rows[line - 1].split(b"|")
    cells[column] = text.encode("latin-1")
    rows[line - 1] = b"|".join(cells)
    path.write_bytes(b"\n".join(rows))


def line_of(folder, part, record):
    """The line of a record in a segment (the writer turns the order round)."""
    rows = next(folder.glob(f"zz{part}*.pl")).read_bytes().splitlines()
    return 1 + next(i for i, row in enumerate(rows) if int(row.split(b"|")[4]) == record)


def test_every_count_comes_back_in_its_cell(folder, blocks):
    table = read_pl94(folder)
    histogram = table.histogram()
    assert table.geoid.tolist() == list(blocks)
    for row, unit in enumerate(blocks.values()):
        expected = np.zeros((2, 2, 63), dtype=int)
        for (age, origin, race), n in unit["people"].items():
            cell = tuple(
                AXES[axis].index(label) for axis, label in zip(AXES, (age, origin, race), strict=True)
            )
            expected[cell] += n
        np.testing.assert_array_equal(histogram[row], expected)
        assert table.p5[row].tolist() == unit["quarters"]
        assert table.h1[row].tolist() == unit["homes"]
        assert table.total[row] == sum(unit["people"].values())


def test_each_of_the_252_cells_has_its_own_place(tmp_path):
    cells = [
        (age, origin, race)
        for age in AXES["votingage"]
        for origin in AXES["hispanic"]
        for race in writer.RACES
    ]
    unit = writer.add({cell: n for n, cell in enumerate(cells)}, [1, 2, 3, 4, 5, 6, 7], [8, 9])
    table = read_pl94(writer.write_pl94(tmp_path, {"010010201001000": unit}))
    np.testing.assert_array_equal(table.histogram().ravel(), np.arange(252))
    assert table.p5.tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    assert table.h1.tolist() == [[8, 9]]
    assert tuple(writer.RACES) == RACES


def test_levels_are_selected_and_never_added_together(folder, blocks):
    people = sum(sum(unit["people"].values()) for unit in blocks.values())
    rows = {level: len(read_pl94(folder, level)) for level in LEVELS}
    assert rows == {"state": 1, "county": 1, "tract": 1, "block_group": 3, "block": 40}
    for level in LEVELS:
        assert read_pl94(folder, level).total.sum() == people


def test_codes_keep_their_leading_zeros_and_name_their_parents(folder):
    table = read_pl94(folder)
    assert table.geoid[0] == "030010001001000"
    assert {level: str(codes[0]) for level, codes in table.parents.items()} == {
        "state": "03",
        "county": "03001",
        "tract": "03001000100",
        "block_group": "030010001001",
    }


def test_names_are_latin_1(folder):
    assert read_pl94(folder, "county").name.tolist() == ["Condado de Ñandú 3001"]


def test_record_numbers_join_with_and_without_zeros(folder, blocks, tmp_path):
    padded = read_pl94(folder)
    writer.write_pl94(tmp_path / "bare", blocks, record="{:d}")
    for name in ("zz000012020.pl", "zz000032020.pl"):
        (folder / name).write_bytes((tmp_path / "bare" / name).read_bytes())
    np.testing.assert_array_equal(read_pl94(folder).histogram(), padded.histogram())


@pytest.mark.parametrize("names", [("ZZ", "2020"), ("zz", "2018_2020Style"), ("zz", "")])
def test_any_file_names_of_a_state_will_do(tmp_path, blocks, names):
    state, suffix = names
    table = read_pl94(writer.write_pl94(tmp_path, blocks, state=state, suffix=suffix))
    assert len(table) == 40


def test_an_empty_last_column_and_carriage_returns_are_left_out(folder):
    before = read_pl94(folder).histogram()
    for path in folder.glob("*.pl"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"|\r\n"))
    np.testing.assert_array_equal(read_pl94(folder).histogram(), before)


def test_whole_numbers_written_as_decimals_are_read(folder):
    before = read_pl94(folder).histogram()
    line = line_of(folder, "00001", 10)
    path = folder / "zz000012020.pl"
    rows = path.read_bytes().split(b"\n")
    cells = rows[line - 1].split(b"|")
    rows[line - 1] = b"|".join(cells[:5] + [cell + b".0" for cell in cells[5:]])
    path.write_bytes(b"\n".join(rows))
    np.testing.assert_array_equal(read_pl94(folder).histogram(), before)


def test_arrays_cannot_be_changed(folder):
    with pytest.raises(ValueError, match="read-only"):
        read_pl94(folder).p1[0, 0] = 5


RECORD = 10  # the fourth block, line 10 of the header


@pytest.mark.parametrize(
    ("column", "text", "words"),
    [
        (7, "2.5", r"zz000012020\.pl, line \d+ \(LOGRECNO 10, geoid 030010001001003\): P0010003 is 2\.5"),
        (7, "", "P0010003 is blank: a count is a whole number, 0 or more"),
        (78, "-3", "P0020003 is -3: a count is a whole number, 0 or more"),
        (7, "nan", "P0010003 is nan"),
        (7, "9007199254740993", r"P0010003 is 2\^53 or more"),
        (7, "99999999999999999999999", r"P0010003 is 2\^53 or more"),
        (7, "400", r"P0010002 is \d+ but its races make \d+"),
        (14, "400", r"P0010010 is|P0010009 is 400"),
        (77, "9", r"P0020001 is \d+ but Hispanic and not Hispanic make \d+"),
    ],
)
def test_a_bad_count_is_named_with_file_line_geounit_and_field(folder, column, text, words):
    spoil(folder, "00001", line_of(folder, "00001", RECORD), column, text)
    with pytest.raises(FileFormatError, match=words):
        read_pl94(folder)


def test_a_bad_count_of_another_level_does_not_stop_the_read(folder):
    spoil(folder, "00001", line_of(folder, "00001", RECORD), 7, "2.5")
    assert len(read_pl94(folder, "tract")) == 1


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        (
            "00002",
            {5: 1, 6: 1, 7: 1, 76: 1, 78: 1, 79: 1, 80: 1},
            r"P0030003 is \d+, more than P0010003 \(white\)",
        ),
        ("00002", {149: 1}, r"H0010001 is \d+ but occupied and vacant make \d+"),
        ("00003", {12: 1}, "P0050007 is 0 but its three kinds make 1"),
        (
            "00003",
            {5: 999, 6: 999, 7: 999},
            r"P0050001 is 999, more than P0010001, of which it is a part: \d+",
        ),
        ("geo", {90: 1}, r"P0010001 is \d+ but POP100 of zzgeo2020\.pl make \d+"),
    ],
)
def test_tables_that_do_not_add_up_are_refused(folder, part, changes, words):
    """Each change keeps the other sums of the row, so that the check it is meant for must find it."""
    line = RECORD if part == "geo" else line_of(folder, part, RECORD)
    cells = next(folder.glob(f"zz{part}*.pl")).read_bytes().split(b"\n")[line - 1].split(b"|")
    for column, change in changes.items():
        extra = 1000 if part == "00002" and column < 149 else change
        spoil(folder, part, line, column, str(int(cells[column]) + extra))
    with pytest.raises(FileFormatError, match=words) as caught:
        read_pl94(folder)
    assert caught.value.value == "030010001001003"


def test_more_young_hispanic_people_than_there_are_is_refused(tmp_path):
    """A row whose four tables each add up but whose difference of differences would be negative."""
    everybody = {("under_18", "not_hispanic", "white"): 5, ("18_and_over", "hispanic", "black"): 5}
    folder = writer.write_pl94(tmp_path, {"010010201001000": writer.add(everybody, [0] * 7, [0, 0])})
    line = line_of(folder, "00001", 5)
    # move the five Hispanic people of P1 to "not Hispanic" in P2: P3 - P4 (adults) then exceeds P1 - P2
    for column, value in {77: 0, 78: 10, 79: 10, 81: 5}.items():
        spoil(folder, "00001", line, column, str(value))
    with pytest.raises(FileFormatError, match=r"P0030004 - P0040006 is 5, more than .*Hispanic, black"):
        read_pl94(folder)


def test_wrong_column_count_is_refused_with_its_line(folder):
    path = folder / "zz000032020.pl"
    rows = path.read_bytes().split(b"\n")
    rows[2] = rows[2].rsplit(b"|", 1)[0]
    path.write_bytes(b"\n".join(rows))
    with pytest.raises(
        FileFormatError, match=r"zz000032020\.pl, line 3: 14 columns where the 2020 format has 15"
    ):
        read_pl94(folder)


def test_missing_files_are_named(folder, tmp_path):
    (folder / "zz000022020.pl").unlink()
    with pytest.raises(FileFormatError, match=r"lacks zz00002\*\.pl"):
        read_pl94(folder)
    with pytest.raises(FileFormatError, match=r"is not a folder"):
        read_pl94(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileFormatError, match=r"lacks xxgeo\*\.pl, xx00001\*\.pl, xx00002\*\.pl, xx00003\*\.pl"
    ):
        read_pl94(tmp_path / "empty")


def test_two_states_or_two_copies_in_a_folder_are_refused(folder, blocks):
    writer.write_pl94(folder, blocks, suffix="2010")
    with pytest.raises(FileFormatError, match=r"zzgeo2010\.pl, zzgeo2020\.pl for the same part"):
        read_pl94(folder)
    writer.write_pl94(folder, blocks, state="yy")
    with pytest.raises(FileFormatError, match="several states"):
        read_pl94(folder)


@pytest.mark.parametrize("part", ["geo", "00001", "00002", "00003"])
def test_a_record_number_twice_is_refused(folder, part):
    spoil(folder, part, 12, 7 if part == "geo" else 4, "5")
    with pytest.raises(FileFormatError, match=r"LOGRECNO 5 stands on line \d+ too"):
        read_pl94(folder)


@pytest.mark.parametrize("part", ["geo", "00002"])
def test_a_record_without_partner_is_refused(folder, part):
    spoil(folder, part, 12, 7 if part == "geo" else 4, "7777")
    with pytest.raises(FileFormatError, match=r"no row for LOGRECNO \d+.*of different releases"):
        read_pl94(folder)


def test_a_geounit_twice_is_refused(tmp_path, blocks):
    rows = writer.all_levels(blocks)
    writer.write_pl94(tmp_path, blocks, rows=[*rows, rows[-1]])
    with pytest.raises(FileFormatError, match=r"geounit 030010001003000 stands on line 46 too"):
        read_pl94(tmp_path)


def test_a_lost_leading_zero_is_refused(folder):
    spoil(folder, "geo", RECORD, 9, "30010001001003")
    with pytest.raises(
        FileFormatError, match=r"'30010001001003' must have 15 digits at level block: leading zeros"
    ):
        read_pl94(folder)


def test_two_codes_for_one_geounit_are_refused(folder):
    spoil(folder, "geo", RECORD, 9, "030010001001999")
    with pytest.raises(FileFormatError, match="name different geounits"):
        read_pl94(folder)


def test_an_unknown_or_absent_level_says_what_there_is(folder, tmp_path, blocks):
    with pytest.raises(
        FileFormatError, match=r"no level 'precinct'.*state, county, tract, block_group, block"
    ):
        read_pl94(folder, "precinct")
    rows = [row for row in writer.all_levels(blocks) if row[0] in {"140", "150"}]
    writer.write_pl94(tmp_path / "few", blocks, rows=rows)
    with pytest.raises(
        FileFormatError, match=r"no rows of level block \(SUMLEV 750\); the file has SUMLEV 140, 150"
    ):
        read_pl94(tmp_path / "few")


def test_parts_of_a_geounit_are_not_geounits(folder):
    """A row of another geographic component repeats people of the whole and must be passed over."""
    spoil(folder, "geo", RECORD, 4, "01")
    assert len(read_pl94(folder)) == 39


def test_mismatch_between_levels_is_reported_and_not_an_error(tmp_path, blocks):
    rows = [row for row in writer.all_levels(blocks) if row[1] != "030010001003000"]
    writer.write_pl94(tmp_path, blocks, rows=rows)
    groups, table = read_pl94(tmp_path, "block_group"), read_pl94(tmp_path)
    found = find_mismatches(groups, table)
    own = sum(blocks["030010001003000"]["people"].values())
    assert {m.geoid for m in found} == {"030010001003"}
    assert (found[0].table, found[0].own, found[0].children) == ("p1", own, 0)
    with pytest.raises(FileFormatError, match="does not lie below"):
        find_mismatches(table, groups)


def test_the_shipped_demonstration_is_what_its_script_writes(tmp_path):
    folder = writer.write_pl94(tmp_path, writer.demo_blocks())
    for path in folder.iterdir():
        assert path.read_bytes() == (demo_folder() / path.name).read_bytes()
    assert sum(path.stat().st_size for path in demo_folder().iterdir()) < 150_000
    assert "synthetic" in (demo_folder() / "README.md").read_text(encoding="utf-8").lower()


@rhode_island
def test_rhode_island_has_the_known_totals():
    table = read_pl94(SHARED)
    assert (len(table), table.total.sum(), (table.total == 0).sum(), table.total.max()) == (
        569,
        29225,
        215,
        513,
    )
    assert ((table.total == 1).sum(), (table.p5.sum(axis=1) > 0).sum()) == (2, 9)
    assert table.histogram().min() == 0
    assert (len(read_pl94(SHARED, "block_group")), len(read_pl94(SHARED, "tract"))) == (28, 7)


@rhode_island
def test_rhode_island_groups_and_tracts_are_the_sums_of_blocks_but_the_county_is_not():
    table = read_pl94(SHARED)
    assert find_mismatches(read_pl94(SHARED, "block_group"), table) == ()
    assert find_mismatches(read_pl94(SHARED, "tract"), table) == ()
    county = find_mismatches(read_pl94(SHARED, "county"), table)
    assert (county[0].own, county[0].children) == (614053, 29225)
