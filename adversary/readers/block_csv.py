"""Tables of blocks that users have: a CSV file with one row a block, or one row a geounit and its parent.

``read_blocks`` finds out which of four things it was given: a folder of block assignment files, a geographic
reference file (pipe-delimited), a table of blocks with the codes of their entities, and says so if it is none.
``read_levels`` reads a table whose columns are the levels of a spine, ``read_pairs`` one with the columns
``unit`` and ``parent``. Every column stays text, so that no code loses its zeros here; a code that lost them
before is refused, or filled up with a warning where that was asked for.

What this module is not: a spine (:mod:`adversary.geography.das`, ``Spine.from_blocks``).

Held to account by ``tests/readers/test_block_csv.py``. Sources: the Bureau's names of columns; user reports
P15 and P19.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adversary._files import csv_rows, read_text
from adversary.errors import FileFormatError
from adversary.geography.blocks import BlockTable, zero_filled
from adversary.readers.baf import read_baf, read_grfc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["read_blocks", "read_levels", "read_pairs", "read_table"]

_NAMES = {
    "block": ("geoid20", "blockid", "geocode16", "geocode", "geoid", "block", "geoid10", "tabblk20"),
    "aiannhce": ("aiannhce",),
    "cousub": ("cousubfp", "cousub"),
    "place": ("placefp", "place"),
    "cousub_status": ("cousubfs",),
    "place_status": ("placefs",),
    "group_quarters": ("group_quarters", "gq"),
}
_WIDTH = {"aiannhce": 4, "cousub": 5, "place": 5}


def read_table(path: str | Path) -> dict[str, NDArray[np.str_]]:
    """Columns of a CSV file, all as text.

    Parameters
    ----------
    path
        File with a header.

    Returns
    -------
    dict
        Column -> text, shape (rows,).

    Raises
    ------
    FileFormatError
        For a file that is not there or is not text, a column named twice, or a row that is cut.
    """
    file = Path(path)
    rows = list(csv_rows(io.StringIO(read_text(file), newline=""), file.name))
    header = [name.strip() for name in rows[0]] if rows else []
    twice = [name for name in header if header.count(name) > 1]
    if not header or twice:
        what = f"names {twice[0]!r} twice" if twice else "is empty"
        msg = f"{file.name}: the header {what}: give one name a column"
        raise FileFormatError(msg, header)
    body = [row for row in rows[1:] if row]
    short = next((i for i, row in enumerate(body) if len(row) != len(header)), None)
    if short is not None:
        msg = f"{file.name} row {short + 1}: {len(body[short])} fields for {len(header)} columns: the file may be cut"
        raise FileFormatError(msg, body[short])
    columns = zip(*body, strict=True) if body else ((),) * len(header)
    return {k: np.char.strip(np.array(c, dtype=str)) for k, c in zip(header, columns, strict=True)}


def read_blocks(path: str | Path, *, state: str | None = None, fill_zeros: bool = False) -> BlockTable:
    """Blocks from a folder of block assignment files, a reference file (GRF-C), or a CSV table.

    Parameters
    ----------
    path
        The folder or file. A CSV table has a column of block codes (15-digit GEOID or 16-digit geocode, called
        GEOID20, BLOCKID, geocode or block) and may have AIANNHCE, COUSUBFP, PLACEFP, COUSUBFS, PLACEFS.
    state
        Two-digit FIPS, to keep one state of several.
    fill_zeros
        CSV only: fill codes up to their width, with a warning that says how many; otherwise a code that lost
        its zeros is refused.

    Returns
    -------
    BlockTable
        The blocks, in the order of the file.

    Raises
    ------
    FileFormatError
        For what is none of the three, and for codes of another width.
    """
    source = Path(path)
    if source.is_dir():
        return _only_digits(read_baf(source, state), source)
    blocks = read_grfc(source) if _is_grfc(source) else _from_columns(source, fill_zeros=fill_zeros)
    _only_digits(blocks, source)
    if state is None:
        return blocks
    rows = np.flatnonzero(blocks.state == state)
    if not rows.size:
        there = ", ".join(np.unique(blocks.state).tolist())
        msg = f"{source.name}: no block of state {state!r}: there are {there}"
        raise FileFormatError(msg, state)
    return blocks.take(rows)


def _only_digits(blocks: BlockTable, path: Path) -> BlockTable:
    """Refuse block codes with anything but the digits 0 to 9."""
    if len(blocks):
        letters = np.ascontiguousarray(blocks.block.astype("<U16")).view(np.uint32).reshape(-1, 16)
        wrong = np.flatnonzero(((letters < ord("0")) | (letters > ord("9"))).any(axis=1))
        if wrong.size:
            bad = str(blocks.block[wrong[0]])
            msg = f"{path.name}: block code {bad!r} has a character that is no digit: check the column"
            raise FileFormatError(msg, bad)
    return blocks


def _is_grfc(path: Path) -> bool:
    try:
        with path.open(encoding="latin-1") as lines:
            first = lines.readline(10_000)
    except OSError as error:
        msg = f"{str(path)!r} cannot be opened ({error.strerror}): check the name"
        raise FileFormatError(msg, str(path)) from None
    return first.count("|") > first.count(",")


def _from_columns(path: Path, *, fill_zeros: bool) -> BlockTable:
    table = read_table(path)
    lower = {name.lower(): name for name in table}
    found = {}
    for kind, names in _NAMES.items():
        here = [lower[n] for n in names if n in lower]
        if here:
            found[kind] = table[here[0]]
    if "block" not in found:
        msg = (
            f"{path.name}: no column of block codes among {', '.join(table)}: call it GEOID20, BLOCKID, geocode or "
            "block"
        )
        raise FileFormatError(msg, list(table))
    if fill_zeros:
        found["block"] = zero_filled(found["block"], _full_width(found["block"]))
        for kind, width in _WIDTH.items():
            if kind in found:
                given = found[kind] != ""
                filled = found[kind].astype(f"<U{max(width, found[kind].dtype.itemsize // 4)}")
                filled[given] = zero_filled(found[kind][given], width, kind)
                found[kind] = filled
    return BlockTable(**found)


def _full_width(codes: NDArray[np.str_]) -> int:
    """15 or 16 digits: the longest code decides; a file of GEOIDs that all lost a zero is 14 long."""
    longest = int(np.char.str_len(codes).max(initial=15))
    if longest not in (14, 15, 16):
        msg = f"the longest block code has {longest} characters, not 15 or 16: check the column"
        raise FileFormatError(msg, longest)
    return max(longest, 15)


def read_levels(path: str | Path, levels: Sequence[str] | None = None) -> dict[str, NDArray[np.str_]]:
    """Table of blocks with one column of codes a level, for ``Spine.from_blocks``.

    Parameters
    ----------
    path
        CSV file.
    levels
        Columns to take, root to leaf; default: all, in their order.

    Raises
    ------
    FileFormatError
        For a column that is not there.
    """
    table = read_table(path)
    wanted = list(table) if levels is None else list(levels)
    missing = [name for name in wanted if name not in table]
    if missing:
        msg = f"{Path(path).name}: no column {missing[0]!r}: the columns are {', '.join(table)}"
        raise FileFormatError(msg, missing[0])
    return {name: table[name] for name in wanted}


def read_pairs(path: str | Path) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    """Units and their parents from a CSV file with these two columns, for ``Spine.from_parents``.

    Parameters
    ----------
    path
        CSV file with the columns ``unit`` and ``parent``, in any order of rows; a root's parent is empty.

    Raises
    ------
    FileFormatError
        If one of the columns is not there.
    """
    table = read_levels(path, ("unit", "parent"))
    return table["unit"], table["parent"]
