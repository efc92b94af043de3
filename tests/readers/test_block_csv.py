"""Tables of blocks that users have: text stays text, lost zeros are refused or filled aloud, kinds of file are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adversary.errors import FileFormatError
from adversary.readers.block_csv import read_blocks, read_levels, read_pairs, read_table

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_of_blocks_is_read_whatever_its_columns_are_called(tmp_path: Path) -> None:
    for name in ("GEOID20", "BLOCKID", "geoid", "block"):
        path = write(
            tmp_path / "b.csv",
            f"\ufeff{name},PLACEFP,AIANNHCE\n010010201001000,00124,\n010010201001001,,0100\n",
        )
        blocks = read_blocks(path)
        assert blocks.geoid.tolist() == ["010010201001000", "010010201001001"]
        assert blocks.place.tolist() == ["00124", "99999"]
        assert blocks.aiannhce.tolist() == ["9999", "0100"]


def test_lost_zeros_are_refused_and_filled_only_when_asked_with_a_word(tmp_path: Path) -> None:
    path = write(tmp_path / "b.csv", "GEOID20,PLACEFP\n10010201001000,124\n440070001011000,74300\n")
    with pytest.raises(FileFormatError, match=r"'10010201001000'.*leading zero"):
        read_blocks(path)
    with pytest.warns(UserWarning, match=r"1 of 2 .* codes were filled"):
        blocks = read_blocks(path, fill_zeros=True)
    assert blocks.geoid.tolist() == ["010010201001000", "440070001011000"]
    assert blocks.place.tolist() == ["00124", "74300"]
    odd = write(tmp_path / "c.csv", "GEOID20\n1001020100\n")
    with pytest.raises(FileFormatError, match=r"code '1001020100'|longest block code"):
        read_blocks(odd)
    with pytest.warns(UserWarning, match="1 of 1 block codes"):
        read_blocks(odd, fill_zeros=True)


def test_one_state_of_several_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "b.csv", "GEOID20\n010010201001000\n440070001011000\n")
    assert read_blocks(path, state="44").geoid.tolist() == ["440070001011000"]
    with pytest.raises(FileFormatError, match="no block of state '09': there are 01, 44"):
        read_blocks(path, state="09")


def test_a_reference_file_is_known_by_its_bars(tmp_path: Path) -> None:
    path = write(
        tmp_path / "grfc.txt",
        "TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|AIANNHCE|COUSUBFP|PLACEFP\n44|001|030100|1000|9999|05140|99999\n",
    )
    assert read_blocks(path).geoid.tolist() == ["440010301001000"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("PLACEFP\n00124\n", "no column of block codes among PLACEFP"),
        ("GEOID20,GEOID20\n1,2\n", "names 'GEOID20' twice"),
        ("", "is empty"),
        ("GEOID20,PLACEFP\n010010201001000\n", "row 1: 1 fields for 2 columns"),
    ],
)
def test_what_is_no_table_of_blocks_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        read_blocks(write(tmp_path / "b.csv", text))


def test_files_that_are_not_there_or_no_text_are_said(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot be opened"):
        read_blocks(tmp_path / "none.csv")
    with pytest.raises(FileFormatError, match="no such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00a,b\n")
    with pytest.raises(FileFormatError, match="not text in utf-8"):
        read_table(tmp_path / "x.csv")


def test_levels_and_pairs_are_taken_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", "block,tract,note\n011,01,x\n012,01,y\n")
    assert {k: v.tolist() for k, v in read_levels(path, ["tract", "block"]).items()} == {
        "tract": ["01", "01"],
        "block": ["011", "012"],
    }
    with pytest.raises(FileFormatError, match="no column 'county': the columns are block, tract, note"):
        read_levels(path, ["county"])
    pairs = write(tmp_path / "p.csv", "parent,unit\n,A\nA,A1\n")
    assert [c.tolist() for c in read_pairs(pairs)] == [["A", "A1"], ["", "A"]]
