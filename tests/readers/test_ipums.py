"""The 1940 census at IPUMS, on synthetic files written here in its layouts; no real file is in the tests."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adversary.errors import FileFormatError
from adversary.readers import _ipums_lines
from adversary.readers.ipums import EXT1940USCB, read_ddi, read_ipums_1940, write_ipums_1940
from adversary.readers.population import BlockCounts, synthetic_counts
from adversary.release.queries import PL94_PERSONS
from adversary.release.schema import PERSONS_1940, PERSONS_1940_TEST

if TYPE_CHECKING:
    from pathlib import Path

DISTRICTS = [f"{s}{c}{d:04d}" for s in ("01", "37") for c in ("0010", "0550") for d in (10, 20, 281)]


def line(record: str, length: int | None = None, **values: int | str) -> str:
    """One line of EXT1940USCB."""
    out = list(record + " " * ((length or (159 if record == "H" else 92)) - 1))
    for name, value in values.items():
        at = EXT1940USCB.fields[name]
        text = value if isinstance(value, str) else f"{value:0{at.width}d}"
        out[at.start : at.stop] = text
    return "".join(out)


def household(**change: int | str) -> str:
    good: dict[str, int | str] = {"YEAR": 1940, "SERIAL": 1, "NUMPREC": 1, "STATEFIP": 37, "COUNTY": 550}
    return line("H", **(good | {"ENUMDIST": 281, "GQ": 1, "GQTYPE": 0} | change))


def person(**change: int | str) -> str:
    good: dict[str, int | str] = {"YEAR": 1940, "SERIAL": 1, "PERNUM": 1, "AGE": 40, "RACE": 2, "HISPAN": 0}
    return line("P", **(good | change))


def put(folder: Path, *lines: str, name: str = "ext.dat") -> Path:
    path = folder / name
    path.write_bytes("".join(one + "\n" for one in lines).encode("latin-1"))
    return path


def truth(seed: int = 3) -> BlockCounts:
    """Synthetic people of 1940; races 7 to 9 do not occur."""
    made = synthetic_counts(DISTRICTS, PERSONS_1940, seed=seed, mean=60.0, empty=0.2)
    axes = list(np.unravel_index(made.cell, PERSONS_1940.sizes))
    axes[3] = axes[3] % 6
    cells = np.ravel_multi_index(tuple(axes), PERSONS_1940.sizes)
    return BlockCounts.of(made.blocks[made.block], cells, made.count, PERSONS_1940)


def same(one: BlockCounts, other: BlockCounts) -> bool:
    return all(
        getattr(one, name).tolist() == getattr(other, name).tolist()
        for name in ("blocks", "block", "cell", "count")
    )


# -------------------------------------------------------------------- what is read
def test_a_person_of_dare_county_is_in_the_cell_that_her_codes_say(tmp_path: Path) -> None:
    found = read_ipums_1940(put(tmp_path, household(), person()))
    assert found.districts.tolist() == ["3705500281"]
    table = found.counts.dense("3705500281").reshape(PERSONS_1940.sizes)
    assert table[1, 0, 0, 1] == 1  # voting age, not Hispanic, household, Black
    assert table.sum() == 1
    two_races = found.test_counts().dense("3705500281").reshape(PERSONS_1940_TEST.sizes)
    assert two_races[0, 1, 0, 1] == 1


@pytest.mark.parametrize(("code", "place"), [(0, 0), (2, 1), (3, 2), (4, 3), (6, 4), (7, 5), (8, 6), (9, 7)])
def test_group_quarters_have_the_places_of_the_bureaus_reader(tmp_path: Path, code: int, place: int) -> None:
    found = read_ipums_1940(put(tmp_path, household(GQ=3 if code else 1, GQTYPE=code), person()))
    for counts, axis in ((found.counts, 2), (found.test_counts(), 0)):
        at = np.unravel_index(int(counts.cell[0]), counts.histogram.sizes)
        assert at[axis] == place


@pytest.mark.parametrize(("age", "adult"), [(0, 0), (17, 0), (18, 1), (99, 1), (130, 1)])
def test_voting_age_begins_at_eighteen(tmp_path: Path, age: int, adult: int) -> None:
    found = read_ipums_1940(put(tmp_path, household(), person(AGE=age)))
    assert np.unravel_index(int(found.counts.cell[0]), PERSONS_1940.sizes)[0] == adult


def test_an_origin_not_reported_is_a_cell_of_its_own_and_a_choice_in_the_test(tmp_path: Path) -> None:
    people = [person(HISPAN=h, PERNUM=k) for k, h in enumerate((0, 1, 4, 9, 9), start=1)]
    found = read_ipums_1940(put(tmp_path, household(NUMPREC=5), *people))
    origin = np.unravel_index(found.counts.cell, PERSONS_1940.sizes)[1]
    assert dict(zip(origin.tolist(), found.counts.count.tolist(), strict=True)) == {0: 1, 1: 1, 4: 1, 5: 2}
    assert any("2 people did not report an origin" in note for note in found.notes)

    def hispanic(choice: str) -> int:
        counts = found.test_counts(choice)
        return int(counts.count[np.unravel_index(counts.cell, PERSONS_1940_TEST.sizes)[2] == 1].sum())

    assert hispanic("hispanic") == 4
    assert hispanic("not hispanic") == 2
    with pytest.raises(FileFormatError, match="not_reported must be"):
        found.test_counts("maybe")


def test_the_192_cells_are_those_of_the_bureaus_formula(tmp_path: Path) -> None:
    found = read_ipums_1940(write_ipums_1940(tmp_path / "a.dat", truth()))
    test = found.test_counts()
    slow: dict[tuple[str, int], int] = {}
    for b, cell, n in zip(
        found.counts.block.tolist(), found.counts.cell.tolist(), found.counts.count.tolist(), strict=True
    ):
        adult, origin, kind, race = (int(v) for v in np.unravel_index(cell, PERSONS_1940.sizes))
        key = (str(found.counts.blocks[b]), ((kind * 2 + adult) * 2 + (origin > 0)) * 6 + race)
        slow[key] = slow.get(key, 0) + n
    fast = {
        (str(test.blocks[b]), c): n
        for b, c, n in zip(test.block.tolist(), test.cell.tolist(), test.count.tolist(), strict=True)
    }
    assert fast == slow
    races = BlockCounts.of(["3705500281"], [8], [1], PERSONS_1940)
    odd = read_ipums_1940(write_ipums_1940(tmp_path / "b.dat", races))
    with pytest.raises(FileFormatError, match="1 people have RACE 7 to 9"):
        odd.test_counts()


# -------------------------------------------------------------------- forms
@pytest.mark.parametrize("size", [1 << 24, 5_000, 700])
def test_what_is_written_is_read_back_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(_ipums_lines, "_BYTES_AT_ONCE", size)
    people = truth()
    path = write_ipums_1940(tmp_path / "a.dat", people, vacant=[DISTRICTS[0], "4400010010"])
    found = read_ipums_1940(path)
    assert same(found.counts, people)
    assert found.vacant == 2
    assert "4400010010" in found.districts.tolist()  # nobody lives there, yet it is a district
    assert found.households > found.vacant
    packed = tmp_path / "a.dat.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert same(read_ipums_1940(packed).counts, people)
    windows = put(tmp_path, *(one + "\r" for one in path.read_text().splitlines()))
    assert same(read_ipums_1940(windows).counts, people)


def test_a_rectangular_csv_holds_the_same_people_although_its_codes_lost_their_zeros(tmp_path: Path) -> None:
    people = truth()
    path = write_ipums_1940(tmp_path / "a.csv", people, form="csv")
    assert "\n1940,1,1," in path.read_text()  # state 01 is 1 there
    found = read_ipums_1940(path)
    assert same(found.counts, people)
    assert found.districts.tolist() == people.blocks.tolist()


def test_the_spine_tells_districts_of_the_same_number_apart(tmp_path: Path) -> None:
    found = read_ipums_1940(write_ipums_1940(tmp_path / "a.dat", truth(), vacant=DISTRICTS))
    spine = found.spine({"National": "1/4", "State": "1/4", "County": "1/4", "Enumdist": "1/4"})
    assert spine.levels == ("National", "State", "County", "Enumdist")
    assert [row["units"] for row in spine.table()] == [1, 2, 4, 12]
    assert spine.codes(spine.path("3705500281")) == ["", "37", "370550", "3705500281"]
    assert found.counts.leaves_of(spine).size == found.counts.blocks.size


def test_several_files_are_one_census(tmp_path: Path) -> None:
    one = put(tmp_path, household(), person(), name="a.dat")
    two = put(tmp_path, household(STATEFIP=1), person(), name="b.dat")
    assert read_ipums_1940([one, two]).districts.tolist() == ["0105500281", "3705500281"]


# -------------------------------------------------------------------- codebooks
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def codebook(folder: Path, structure: str, fields: dict[str, tuple[int, int, str]], head: str = HEAD) -> Path:
    """A DDI codebook as IPUMS writes them, shortened."""
    parts = "".join(
        f'<var ID="{n}" name="{n}" dcml="0"{f" rectype={chr(34)}{r}{chr(34)}" if r else ""}>'
        f'<location StartPos="{a}" EndPos="{b}" width="{b - a + 1}"/><labl>{n}</labl>'
        "<catgry><catValu>1</catValu><labl>One</labl></catgry></var>"
        for n, (a, b, r) in fields.items()
    )
    path = folder / "usa_00001.xml"
    path.write_text(
        f'{head}<codeBook version="2.5" xmlns="ddi:codebook:2_5"><fileDscr ID="ExtractData"><fileTxt>'
        f'<fileName>usa_00001.dat</fileName><fileStrc type="{structure}"/></fileTxt></fileDscr>'
        f"<dataDscr>{parts}</dataDscr></codeBook>"
    )
    return path


RECTANGULAR = {
    "YEAR": (1, 4, ""),
    "STATEFIP": (5, 6, ""),
    "COUNTYICP": (7, 10, ""),
    "ENUMDIST": (11, 18, ""),
    "GQ": (19, 19, ""),
    "GQTYPE": (20, 20, ""),
    "AGE": (21, 23, ""),
    "RACE": (24, 24, ""),
    "HISPAN": (25, 25, ""),
}


def test_a_rectangular_extract_is_read_by_its_codebook(tmp_path: Path) -> None:
    book = codebook(tmp_path, "rectangular", RECTANGULAR)
    data = put(tmp_path, "1940370550" + "31003690" + "10" + "040" + "20", name="usa_00001.dat")
    found = read_ipums_1940(data, book)
    assert found.districts.tolist() == ["37055031003690"]  # eight digits here, four in the test data
    assert found.spine().depth == 3
    assert found.counts.cell.tolist() == [np.ravel_multi_index((1, 0, 0, 1), PERSONS_1940.sizes)]
    table = tmp_path / "usa_00001.csv"
    table.write_text(
        "YEAR,STATEFIP,COUNTYICP,ENUMDIST,GQ,GQTYPE,AGE,RACE,HISPAN\n1940,37,550,31003690,1,0,40,2,0\n"
    )
    assert same(read_ipums_1940(table, book).counts, found.counts)
    with pytest.raises(
        FileFormatError, match=r"ENUMDIST is 31003690, which has more than 4 digits: give the"
    ):
        read_ipums_1940(table)


def test_a_hierarchical_extract_is_read_by_its_codebook(tmp_path: Path) -> None:
    fields = {n: (f.start + 1, f.stop, " ".join(f.records)) for n, f in EXT1940USCB.fields.items()}
    book = read_ddi(codebook(tmp_path, "hierarchical", fields))
    assert book.hierarchical
    assert {n: (f.start, f.stop, f.records) for n, f in book.fields.items()} == {
        n: (f.start, f.stop, f.records) for n, f in EXT1940USCB.fields.items()
    }
    people = truth()
    assert same(read_ipums_1940(write_ipums_1940(tmp_path / "a.dat", people), book).counts, people)


def test_the_built_in_columns_are_those_of_the_published_syntax_file() -> None:
    columns = {n: (f.start + 1, f.stop) for n, f in EXT1940USCB.fields.items()}
    published = {
        "RECTYPE": (1, 1),
        "SERIAL": (8, 15),
        "NUMPREC": (16, 17),
        "STATEFIP": (54, 55),
        "COUNTY": (56, 59),
    }
    published |= {
        "GQ": (94, 94),
        "GQTYPE": (95, 95),
        "ENUMDIST": (125, 128),
        "AGE": (74, 76),
        "RACE": (85, 85),
    }
    published |= {"HISPAN": (89, 89), "EDMISS": (159, 159), "PERNUM": (16, 19), "YEAR": (2, 5)}
    assert {n: columns[n] for n in published} == published


@pytest.mark.parametrize(
    "attack",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE codeBook SYSTEM "http://localhost/x.dtd">',
    ],
)
@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_a_codebook_with_a_document_type_is_refused_before_anything_is_opened(
    tmp_path: Path, attack: str, coding: str
) -> None:
    path = codebook(tmp_path, "rectangular", RECTANGULAR, head=attack)
    path.write_bytes(path.read_text().encode(coding))
    with pytest.raises(FileFormatError, match="no document type or entities"):
        read_ddi(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<a", "is no XML"),
        ("", "is no XML"),
        ("<a/>", "no codebook of an IPUMS extract: its structure is None"),
        (
            "<codeBook><fileDscr><fileTxt><fileStrc type='flat'/></fileTxt></fileDscr></codeBook>",
            "structure is 'flat'",
        ),
    ],
)
def test_a_file_that_is_no_codebook_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.xml"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=said):
        read_ddi(path)
    with pytest.raises(FileFormatError, match="is no file"):
        read_ddi(tmp_path / "b.xml")


@pytest.mark.parametrize("place", [("0", "3"), ("5", "3"), ("x", "3"), ("", "3"), ("1", "99999999")])
def test_a_variable_that_stands_nowhere_is_refused(tmp_path: Path, place: tuple[str, str]) -> None:
    path = codebook(tmp_path, "rectangular", RECTANGULAR)
    text = path.read_text().replace('StartPos="1" EndPos="4"', f'StartPos="{place[0]}" EndPos="{place[1]}"')
    path.write_text(text)
    with pytest.raises(FileFormatError, match=r"YEAR"):
        read_ddi(path)


def test_an_extract_without_a_needed_variable_is_refused(tmp_path: Path) -> None:
    fewer = {n: f for n, f in RECTANGULAR.items() if n != "GQTYPE"}
    with pytest.raises(FileFormatError, match="the extract has no variable GQTYPE: add it"):
        read_ipums_1940(put(tmp_path, "x" * 30), codebook(tmp_path, "rectangular", fewer))


# -------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            [household(GQTYPE=1), person()],
            r"line 1: GQTYPE is 1: the codes of 1940 are 0, 2, 3, 4, 6, 7, 8, 9",
        ),
        ([household(GQTYPE=5), person()], r"line 1: GQTYPE is 5"),
        ([household(GQ=7), person()], r"line 1: GQ is 7"),
        ([household(YEAR=1930), person()], r"line 1: YEAR is 1930"),
        ([household(ENUMDIST="   1"), person()], r"line 1: ENUMDIST is '   1', but 4 digits"),
        ([household(), person(RACE=0)], r"line 2: RACE is 0"),
        ([household(), person(HISPAN=5)], r"line 2: HISPAN is 5"),
        ([household(), person(AGE=131)], r"line 2: AGE is 131"),
        (
            [household(), person(AGE=999)],
            r"line 2: AGE is 999, missing: say missing_age='adult' or 'leave out'",
        ),
        ([household(), person(AGE="  4")], r"line 2: AGE is '  4', but 3 digits"),
        ([household(GQ=0), person()], r"line 2: a person in a vacant unit"),
        (
            [household(), person(SERIAL=2)],
            r"line 2: SERIAL is 2, but her household's is 1: lines are missing",
        ),
        ([person(), household()], r"line 1: a person comes before any household"),
        ([household(), "X" + person()[1:]], r"line 2: RECTYPE is 'X'"),
        ([household(), person()[:80]], r"line 2: 80 characters, but RACE ends at 85"),
        ([household(NUMPREC=2), person()], r"ends within a household: 2 persons are announced and 1 there"),
        (["", household(), person()], r"line 1: 0 characters, but RECTYPE ends at 1"),
    ],
)
def test_what_1940_does_not_have_is_refused_with_file_and_line(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    with pytest.raises(FileFormatError, match=rf"ext.dat {said}"):
        read_ipums_1940(put(tmp_path, *lines))


def test_lines_are_numbered_through_all_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ipums_lines, "_BYTES_AT_ONCE", 300)
    lines = [one for k in range(1, 21) for one in (household(SERIAL=k), person(SERIAL=k))]
    lines[35] = person(SERIAL=18, RACE=0)
    with pytest.raises(FileFormatError, match="line 36: RACE is 0"):
        read_ipums_1940(put(tmp_path, *lines))


def test_people_of_unknown_age_are_counted_as_the_caller_says(tmp_path: Path) -> None:
    path = put(tmp_path, household(NUMPREC=2), person(AGE=999), person(AGE=8, PERNUM=2))
    adult = read_ipums_1940(path, missing_age="adult")
    gone = read_ipums_1940(path, missing_age="leave out")
    assert (adult.counts.total, gone.counts.total) == (2, 1)
    assert any("1 people of unknown age were counted as adults" in n for n in adult.notes)
    assert any("1 people of unknown age were left out" in n for n in gone.notes)
    with pytest.raises(FileFormatError, match="missing_age must be one of"):
        read_ipums_1940(path, missing_age="guess")


def test_households_with_fewer_people_than_announced_are_said(tmp_path: Path) -> None:
    lines = [household(NUMPREC=3), person(), household(SERIAL=2), person(SERIAL=2)]
    assert any("1 households have another number" in n for n in read_ipums_1940(put(tmp_path, *lines)).notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("RECTYPE,YEAR\n", "a hierarchical CSV file"),
        ("YEAR,AGE\n1940,4\n", "no column 'STATEFIP'"),
        ("STATEFIP,COUNTY,ENUMDIST,GQ,GQTYPE,AGE,RACE,HISPAN\n1,10,1,1,0,4.5,1,0\n", "line 2: AGE is '4.5'"),
        (
            "STATEFIP,COUNTY,ENUMDIST,GQ,GQTYPE,AGE,RACE,HISPAN\n1,10,1,1,0,4,1\n",
            "line 2: 7 fields for 8 columns",
        ),
        (
            "STATEFIP,COUNTY,ENUMDIST,GQ,GQTYPE,AGE,RACE,HISPAN\n100,10,1,1,0,4,1,0\n",
            "STATEFIP is 100, which has",
        ),
    ],
)
def test_tables_that_are_not_rectangular_extracts_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=said):
        read_ipums_1940(path)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="districts of 10 digits, 864 cells"):
        write_ipums_1940(tmp_path / "a.dat", BlockCounts.of(["3705500281"], [0], [1], PL94_PERSONS))
    with pytest.raises(FileFormatError, match="got district '37'"):
        write_ipums_1940(tmp_path / "a.dat", BlockCounts.of(["37"], [0], [1], PERSONS_1940))
    with pytest.raises(FileFormatError, match="form 'xml'"):
        write_ipums_1940(tmp_path / "a.dat", truth(), form="xml")
    with pytest.raises(FileFormatError, match="order the extract at IPUMS"):
        read_ipums_1940(tmp_path / "nowhere.dat")


# -------------------------------------------------------------------- spoilt input
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.integers(0, 600), byte=st.binary(min_size=0, max_size=3), cut=st.booleans(), packed=st.booleans()
)
def test_a_data_file_with_a_few_bytes_changed_is_read_or_refused(
    tmp_path: Path, place: int, byte: bytes, cut: bool, packed: bool
) -> None:
    good = put(
        tmp_path, household(NUMPREC=2), person(), person(), household(SERIAL=2), person(SERIAL=2)
    ).read_bytes()
    good = gzip.compress(good, mtime=0) if packed else good
    path = tmp_path / ("b.dat.gz" if packed else "b.dat")
    path.write_bytes(good[:place] + byte + good[place + (0 if cut else len(byte)) :])
    try:
        found = read_ipums_1940(path)
    except FileFormatError:
        return
    assert found.counts.total <= 4


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 1500), byte=st.binary(min_size=0, max_size=3), cut=st.booleans())
def test_a_codebook_with_a_few_bytes_changed_is_read_or_refused(
    tmp_path: Path, place: int, byte: bytes, cut: bool
) -> None:
    path = codebook(tmp_path, "rectangular", RECTANGULAR)
    good = path.read_bytes()
    path.write_bytes(good[:place] + byte + good[place + (0 if cut else len(byte)) :])
    try:
        book = read_ddi(path)
    except FileFormatError:
        return
    assert len(book.fields) <= len(RECTANGULAR)
