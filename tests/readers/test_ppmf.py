"""Microdata files of persons, written here; no real file is in the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adversary.errors import FileFormatError
from adversary.readers import ppmf
from adversary.readers.population import BlockCounts, synthetic_counts
from adversary.readers.ppmf import read_ppmf_persons, write_ppmf_persons
from adversary.release.queries import PL94_PERSONS, PL94_UNITS

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "TABBLKST,TABBLKCOU,TABTRACTCE,TABBLKGRPCE,TABBLK,EPNUM,RTYPE,GQTYPE_PL,VOTING_AGE,CENHISP,CENRACE"
GOOD = "01,001,020100,1,1000,000000001,3,0,2,1,01"


def put(folder: Path, *lines: str, header: str = HEADER, name: str = "2020_ppmf_person_01.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_person_is_in_the_cell_that_the_formula_says(tmp_path: Path) -> None:
    lines = [
        GOOD,
        GOOD,
        "01,001,020100,1,1000,000000003,5,3,2,2,63",
        "01,001,020100,2,2007,000000004,3,0,1,1,02",
    ]
    counts = read_ppmf_persons(put(tmp_path, *lines))
    assert counts.blocks.tolist() == ["0100102010011000", "0100102010022007"]
    first = counts.dense("0100102010011000").reshape(PL94_PERSONS.sizes)
    assert first.sum() == 3
    assert first[0, 1, 0, 0] == 2
    assert first[3, 1, 1, 62] == 1
    assert counts.dense("0100102010022007").reshape(PL94_PERSONS.sizes)[0, 0, 0, 1] == 1
    assert counts.cell.tolist() == [126, ((3 * 2 + 1) * 2 + 1) * 63 + 62, 1]


def test_what_is_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [f"44001{t:06d}{b}" for t in range(5) for b in range(1000, 1040)]
    truth = synthetic_counts(codes, seed=4, mean=12.0)
    path = write_ppmf_persons(tmp_path / "2020_ppmf_person_44.csv", truth)
    assert len(path.read_text().splitlines()) == truth.total + 1
    monkeypatch.setattr(ppmf, "_LINES_AT_ONCE", 97)
    back = read_ppmf_persons(tmp_path)
    assert [c[:11] + c[12:] for c in back.blocks.tolist()] == truth.blocks.tolist()
    for name in ("block", "cell", "count"):
        assert getattr(back, name).tolist() == getattr(truth, name).tolist()


def test_several_states_are_one_table_and_a_file_twice_is_refused(tmp_path: Path) -> None:
    one = put(tmp_path, GOOD)
    two = put(tmp_path, GOOD.replace("01,001", "44,001", 1), name="2020_ppmf_person_44.csv")
    assert read_ppmf_persons([one, two]).blocks.tolist() == ["0100102010011000", "4400102010011000"]
    assert read_ppmf_persons(tmp_path).total == 2
    with pytest.raises(FileFormatError, match="listed twice"):
        read_ppmf_persons([one, one])


def test_columns_in_another_order_with_pipes_and_widths_in_their_names_are_the_same(tmp_path: Path) -> None:
    header = "CENRACE|CENHISP|VOTING_AGE|GQTYPE_PL|TABBLK4|TABBLKGRPCE1|TABTRACTCE6|TABBLKCOU3|TABBLKST2"
    counts = read_ppmf_persons(put(tmp_path, "01|1|2|0|1000|1|020100|001|01", header=header))
    assert counts.blocks.tolist() == ["0100102010011000"]
    assert counts.cell.tolist() == [126]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (GOOD[:-2] + "1", r"line 3: CENRACE is '1', but 2 digits are expected: leading zeros"),
        (GOOD[:-2] + "64", r"line 3: CENRACE is 64: codes run from 1 to 63"),
        (GOOD[:-2] + "00", r"line 3: CENRACE is 00: codes run from 1 to 63"),
        (GOOD[1:], r"line 3: TABBLKST is '1', but 2 digits"),
        (GOOD.replace("020100", "20100"), r"line 3: TABTRACTCE is '20100', but 6 digits"),
        (GOOD.replace(",3,0,2,", ",3,0,3,"), r"line 3: VOTING_AGE is 3: codes run from 1 to 2"),
        (GOOD.replace(",3,0,2,", ",3,0,,"), r"line 3: VOTING_AGE is '', but 1 digit is"),
        (GOOD.replace(",3,0,", ",5,8,"), r"line 3: GQTYPE_PL is 8: codes run from 0 to 7"),
        (GOOD.replace(",3,0,", ",5,0,"), r"line 3: RTYPE is 5 and GQTYPE_PL 0"),
        (GOOD.replace(",3,0,", ",3,4,"), r"line 3: RTYPE is 3 and GQTYPE_PL 4"),
        (GOOD.replace(",1,1000,", ",2,1000,"), r"line 3: block 1000 is not in block group 2"),
        (GOOD[:-3], r"line 3: 10 fields for 11 columns"),
        (GOOD.replace(",2,1,01", ",2,0,01"), r"line 3: CENHISP is 0"),
    ],
)
def test_a_code_that_cannot_be_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = put(tmp_path, GOOD, line)
    with pytest.raises(FileFormatError, match=rf"2020_ppmf_person_01.csv {said}"):
        read_ppmf_persons(path)


def test_the_line_is_right_in_a_later_piece_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppmf, "_LINES_AT_ONCE", 2)
    path = put(tmp_path, *[GOOD] * 5, GOOD[:-2] + "99")
    with pytest.raises(FileFormatError, match="line 7: CENRACE is 99"):
        read_ppmf_persons(path)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    path = put(tmp_path, GOOD)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_ppmf_persons(path).total == 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no column 'GQTYPE_PL'"):
        read_ppmf_persons(put(tmp_path, "x", header=HEADER.replace("GQTYPE_PL", "HH_STATUS")))
    with pytest.raises(FileFormatError, match="no file, and no folder"):
        read_ppmf_persons(tmp_path / "nowhere")
    with pytest.raises(FileFormatError, match="a column a code"):
        read_ppmf_persons(put(tmp_path, "x", header="hello"))


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"\xff\xfe" + GOOD.encode(), "in UTF-8"),
        (b'"' + GOOD.encode() + b"\n" * 2000, "a field of over 1000 characters"),
        (b"x" * 200_000, "no rows of a CSV file|a field of over 1000 characters"),
    ],
)
def test_bytes_that_are_no_lines_are_refused(tmp_path: Path, tail: bytes, said: str) -> None:
    path = put(tmp_path, GOOD)
    path.write_bytes(path.read_bytes() + tail)
    with pytest.raises(FileFormatError, match=said):
        read_ppmf_persons(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 300), byte=st.binary(min_size=0, max_size=3), cut=st.booleans())
def test_a_file_with_a_few_bytes_changed_is_read_or_refused(
    tmp_path: Path, place: int, byte: bytes, cut: bool
) -> None:
    path = put(tmp_path, GOOD, GOOD, GOOD)
    good = path.read_bytes()
    path.write_bytes(good[:place] + byte + good[place + (0 if cut else len(byte)) :])
    try:
        counts = read_ppmf_persons(path)
    except FileFormatError:
        return
    assert counts.total <= 4


def test_a_file_without_people_is_empty_and_a_wrong_truth_is_not_written(tmp_path: Path) -> None:
    assert read_ppmf_persons(put(tmp_path)).total == 0
    units = BlockCounts.of(["4400103010011000"], [1], [2], PL94_UNITS)
    with pytest.raises(FileFormatError, match="2,016 cells"):
        write_ppmf_persons(tmp_path / "a.csv", units)
    odd = BlockCounts.of(["4400103010021000"], [1], [2], PL94_PERSONS)
    with pytest.raises(FileFormatError, match="is no block code"):
        write_ppmf_persons(tmp_path / "a.csv", odd)
    assert not (tmp_path / "a.csv").exists()


def test_counts_agree_with_a_slow_count_of_the_lines(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    lines = []
    for i in range(500):
        gq, g = int(rng.integers(0, 8)), int(rng.integers(1, 4))
        lines.append(
            f"44,007,000{rng.integers(1, 3)}00,{g},{g}00{rng.integers(0, 3)},{i:09d},{5 if gq else 3},{gq},"
            f"{rng.integers(1, 3)},{rng.integers(1, 3)},{rng.integers(1, 64):02d}"
        )
    counts = read_ppmf_persons(put(tmp_path, *lines))
    slow: dict[str, np.ndarray] = {}
    for line in lines:
        f = line.split(",")
        cell = ((int(f[7]) * 2 + int(f[8]) - 1) * 2 + int(f[9]) - 1) * 63 + int(f[10]) - 1
        slow.setdefault("".join(f[:5]), np.zeros(2016, int))[cell] += 1
    assert counts.blocks.tolist() == sorted(slow)
    assert all((counts.dense(code) == table).all() for code, table in slow.items())
