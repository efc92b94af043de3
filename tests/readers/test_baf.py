"""Block assignment files: text stays text, blanks are "in none", files must agree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adversary.errors import FileFormatError
from adversary.readers.baf import block_table_from_grfc, read_baf, read_grfc

SHARED = Path(os.environ.get("ADVERSARY_SHARED", Path(__file__).parents[3] / "shared"))
FOLDER = SHARED / "data" / "rhode-island-baf"

FILES = {
    "AIANNH": "BLOCKID|AIANNHCE|COMPTYP\n010010201001000||\n010010201001001|0100|R\n",
    "INCPLACE_CDP": "BLOCKID|PLACEFP\n010010201001000|00124\n010010201001001|\n",
    "MCD": "BLOCKID|COUNTYFP|COUSUBFP\n010010201001000|001|90171\n010010201001001|001|90171\n",
    "SDUNI": "BLOCKID|DISTRICT\n010010201001000|00240\n010010201001001|\n",
    "SDSEC": "BLOCKID|DISTRICT\n010010201001000|\n010010201001001|00011\n",
    "SDELM": "BLOCKID|DISTRICT\n010010201001000|\n010010201001001|00012\n",
}


def write(folder: Path, stem: str = "ST01_AL", **changes: str | None) -> Path:
    for kind, text in {**FILES, **changes}.items():
        if text is not None:
            (folder / f"BlockAssign_{stem}_{kind}.txt").write_text(text, encoding="latin-1")
    return folder


def test_alabama_keeps_its_leading_zero_and_blanks_are_nines(tmp_path: Path) -> None:
    blocks = read_baf(write(tmp_path))
    assert blocks.block.tolist() == ["0100102010011000", "0100102010011001"]
    assert blocks.place.tolist() == ["00124", "99999"]
    assert blocks.aiannhce.tolist() == ["9999", "0100"]
    assert blocks.cousub.tolist() == ["90171", "90171"]
    assert blocks.school.tolist() == ["002409999999999", "999990001100012"]


def test_rows_in_another_order_are_matched_by_block(tmp_path: Path) -> None:
    turned = "BLOCKID|PLACEFP\n010010201001001|\n010010201001000|00124\n"
    assert read_baf(write(tmp_path, INCPLACE_CDP=turned)).place.tolist() == ["00124", "99999"]


def test_several_states_are_joined_and_one_can_be_chosen(tmp_path: Path) -> None:
    write(tmp_path)
    write(
        tmp_path,
        "ST02_AK",
        **{k: v.replace("01001", "02001", 2).replace("\n01001", "\n02001") for k, v in FILES.items()},
    )
    assert sorted(set(read_baf(tmp_path).state.tolist())) == ["01", "02"]
    assert set(read_baf(tmp_path, "02").state.tolist()) == {"02"}


def test_school_districts_are_left_out_unless_all_are_there(tmp_path: Path) -> None:
    assert read_baf(write(tmp_path, SDSEC=None)).school.tolist() == ["", ""]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"AIANNH": None}, "AIANNH.txt is not in"),
        ({"MCD": None}, "no file BlockAssign_ST.*_MCD.txt"),
        ({"INCPLACE_CDP": "BLOCKID,PLACEFP\n1,2\n"}, "INCPLACE_CDP.txt: no column 'BLOCKID'"),
        ({"INCPLACE_CDP": "BLOCKID|PLACEFP\n010010201001000\n"}, "row 2: 1 fields for 2 columns"),
        ({"INCPLACE_CDP": "BLOCKID|PLACEFP\n010010201001000|00124\n"}, "'010010201001001' for one"),
        (
            {"INCPLACE_CDP": FILES["INCPLACE_CDP"].replace("001001|", "001000|")},
            "blocks do not match the 2 of the other files",
        ),
        ({"MCD": FILES["MCD"].replace("0100102", "100102")}, "14 characters, not 15: a leading zero"),
        ({"INCPLACE_CDP": FILES["INCPLACE_CDP"].replace("00124", "124")}, "place code '124'"),
    ],
    ids=[
        "no AIANNH",
        "no MCD",
        "commas",
        "cut row",
        "block missing",
        "block twice",
        "lost zero",
        "lost place zero",
    ],
)
def test_files_that_do_not_follow_the_format_are_refused(tmp_path: Path, changes: dict, text: str) -> None:
    with pytest.raises(FileFormatError, match=text):
        read_baf(write(tmp_path, **changes))


GRFC = (
    "OIDTABBLK|TABBLKST|TABBLKCOU|TABTRACTCE|TABBLKGRPCE|TABBLK|AIANNHCE|COUSUBFP|COUSUBFS|PLACEFP|PLACEFS\n"
    "1|01|001|020100|1|1000|9999|90171|S|00124|A\n"
)


def test_a_reference_file_has_functional_status(tmp_path: Path) -> None:
    path = tmp_path / "grfc.txt"
    path.write_text(GRFC)
    blocks = read_grfc(path)
    assert blocks.block.tolist() == ["0100102010011000"]
    assert blocks.primitive().tolist() == ["010019999900124"]


def test_a_reference_file_without_a_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "grfc.txt"
    path.write_text(GRFC.replace("AIANNHCE", "AIANNH"))
    with pytest.raises(FileFormatError, match="no column 'AIANNHCE'"):
        read_grfc(path)
    with pytest.raises(FileFormatError, match="has the column 'TABBLKCOU'"):
        block_table_from_grfc({"TABBLKST": ["01"]})
    row = {"TABBLKST": "1", "TABBLKCOU": "001", "TABTRACTCE": "020100", "TABBLK": "1000"}
    row |= {"AIANNHCE": "9999", "COUSUBFP": "90171", "PLACEFP": "99999"}
    with pytest.raises(FileFormatError, match="TABBLKST code '1'"):
        block_table_from_grfc({k: [v] for k, v in row.items()})


@pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)
def test_rhode_island_has_25649_blocks() -> None:
    blocks = read_baf(FOLDER)
    assert len(blocks) == 25_649
    assert len(set(blocks.prefix(12).tolist())) == 792
    assert len(set(blocks.prefix(11).tolist())) == 250
    assert len(set(blocks.prefix(5).tolist())) == 5
    assert len(set(blocks.cousub.tolist())) == 40
    assert len(set(blocks.place.tolist()) - {"99999"}) == 36
