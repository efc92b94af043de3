"""Tables of blocks: codes stay text, entities follow the Bureau's rules."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.errors import AdversaryError, FileFormatError
from adversary.geography.blocks import AIAN_AREAS, BlockTable


def table(n: int, **columns: object) -> BlockTable:
    return BlockTable([f"{44001030100 + i:011d}1000" for i in range(n)], **columns)


def test_a_geoid_becomes_geocode16_and_back() -> None:
    blocks = BlockTable(["010010201001234"])
    assert blocks.block.tolist() == ["0100102010011234"]
    assert blocks.geoid.tolist() == ["010010201001234"]
    assert blocks.state.tolist() == ["01"]
    assert blocks.characters(5, 11).tolist() == ["020100"]


def test_ranges_of_aian_codes_are_inclusive() -> None:
    codes = [
        "0001",
        "4799",
        "4800",
        "4989",
        "5000",
        "5999",
        "7999",
        "8000",
        "8999",
        "9000",
        "9499",
        "9500",
        "9998",
        "",
    ]
    inside = table(len(codes), aiannhce=codes).inside_aian()
    assert inside.tolist() == [True] * 7 + [False, False, True, True, False, False, False]
    every = table(len(codes), aiannhce=codes).inside_aian(tuple(AIAN_AREAS))
    assert every.tolist() == [True] * 13 + [False]
    with pytest.raises(AdversaryError, match="'reservations' is no kind"):
        table(1).inside_aian(("reservations",))


def test_codes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(FileFormatError, match="AIANNHCE '4990' is not in the code list"):
        table(1, aiannhce=["4990"])
    with pytest.raises(FileFormatError, match=r"place code '123' \(row 1\) has 3 characters, not 5"):
        table(2, place=["12345", "123"])
    with pytest.raises(FileFormatError, match="got the number 12345"):
        table(1, place=[12345])
    with pytest.raises(FileFormatError, match="column place has 1 codes for 2 blocks"):
        table(2, place=["12345"])
    with pytest.raises(FileFormatError, match="is listed 2 times"):
        BlockTable(["440010301001000"] * 2)
    with pytest.raises(FileFormatError, match="14 characters, not 15 or 16"):
        BlockTable(["10010201001000"])


def test_strong_mcd_states_use_subdivisions_outside_aian_areas_only() -> None:
    blocks = BlockTable(
        ["440010301001000", "440010301001001", "040010301001000"],
        cousub=["11111"] * 3,
        place=["22222"] * 3,
        aiannhce=["", "2415", ""],
    )
    assert blocks.place_or_mcd(blocks.inside_aian()).tolist() == ["11111", "22222", "22222"]


def test_primitive_geography_needs_functional_status() -> None:
    ids = ["250010301001000", "250010301001001", "250030301001000", "220010301001000", "720010301001000"]
    blocks = BlockTable(
        ids,
        cousub=["11111"] * 5,
        place=["22222", "22222", "22222", "36255", "22222"],
        cousub_status=["A", "N", "N", "N", "A"],
        place_status=["A", "S", "B", "N", "A"],
    )
    assert [p[5:] for p in blocks.primitive().tolist()] == [
        "1111122222",
        "1111199999",
        "9999922222",
        "9999936255",
        "9999999999",
    ]
    with pytest.raises(FileFormatError, match="COUSUBFS and PLACEFS"):
        table(1).primitive()


def test_rows_can_be_taken() -> None:
    blocks = table(3, place=["", "22222", "33333"], cousub_status=["A", "B", "C"])
    part = blocks.take(np.array([True, False, True]))
    assert part.place.tolist() == ["99999", "33333"]
    assert part.cousub_status.tolist() == ["A", "C"]
    assert "3 blocks, states 44" in repr(blocks)
