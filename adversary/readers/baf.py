"""Block assignment files and the geographic reference file: which entities every 2020 census block lies in.

``read_baf`` reads the files ``BlockAssign_ST<fips>_<usps>_<TYPE>.txt`` of one or more states, ``read_grfc``
a reference file with codes (GRF-C). Both give a :class:`adversary.geography.blocks.BlockTable`; every
column stays text. A blank is "not in any", not missing. What this module is not: a spine
(:mod:`adversary.geography.das`).

Held to account by ``tests/readers/test_baf.py`` and ``tests/paper/test_spines.py``. Sources: the Bureau's
description of the 2020 block assignment files; the columns that the Disclosure Avoidance System reads from
a GRF-C.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import LONGEST_FIELD, read_text
from adversary.errors import FileFormatError
from adversary.geography.blocks import BlockTable, text_codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["block_table_from_grfc", "read_baf", "read_grfc"]

_FIELDS = {
    "AIANNH": "AIANNHCE",
    "INCPLACE_CDP": "PLACEFP",
    "MCD": "COUSUBFP",
    "SDUNI": "DISTRICT",
    "SDSEC": "DISTRICT",
    "SDELM": "DISTRICT",
}
_GRFC = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK", "AIANNHCE", "COUSUBFP", "PLACEFP")
_SCHOOL = ("SDUNILEA", "SDSECLEA", "SDELMLEA")


def _read_columns(path: Path, fields: Sequence[str]) -> dict[str, NDArray[np.str_]]:
    """Read some columns of a pipe-delimited text file with a header, as text."""
    text = read_text(path, "latin-1")
    lines = text.removeprefix("\xef\xbb\xbf").replace("\r\n", "\n").split("\n")
    header = lines[0].split("|") if lines else []
    missing = [f for f in fields if f not in header]
    if missing:
        msg = (
            f"{path.name}: no column {missing[0]!r} in the header {header}: a file of another kind, or "
            "not pipe-delimited"
        )
        raise FileFormatError(msg, missing[0])
    body = [line for line in lines[1:] if line]
    short = next((i for i, line in enumerate(body) if line.count("|") != len(header) - 1), None)
    if short is not None:
        count = body[short].count("|") + 1
        msg = f"{path.name} row {short + 2}: {count} fields for {len(header)} columns: the file may be cut"
        raise FileFormatError(msg, body[short])
    if body and (longest := max(map(len, body))) > LONGEST_FIELD:
        msg = f"{path.name}: a row of {longest} characters: a file of another kind, or damaged"
        raise FileFormatError(msg, longest)
    columns = list(zip(*(line.split("|") for line in body), strict=True)) if body else [()] * len(header)
    return {f: np.array(columns[header.index(f)], dtype=str) for f in fields}


def _aligned(path: Path, field: str, block: NDArray[np.str_], order: NDArray[np.int64]) -> NDArray[np.str_]:
    """Codes of one file, one per block of ``block``, whatever the order of its rows."""
    found = _read_columns(path, ("BLOCKID", field))
    own = text_codes(found["BLOCKID"], f"{path.name}: BLOCKID", 15)
    if own.size == block.size and (own == block).all():
        return found[field]
    own_order = np.argsort(own, kind="stable")
    if own.size != block.size or (own[own_order] != block[order]).any():
        only = np.setxor1d(own, block)
        which = str(only[0]) if only.size else str(own[own_order][0])
        msg = (
            f"{path.name}: {own.size} blocks do not match the {block.size} of the other files, block "
            f"{which!r} for one: "
            "take all files of a state from one vintage, each block once"
        )
        raise FileFormatError(msg, which)
    out = np.empty_like(found[field])
    out[order] = found[field][own_order]
    return out


def read_baf(folder: str | Path, state: str | None = None) -> BlockTable:
    """Blocks of the states whose block assignment files lie in a folder.

    Parameters
    ----------
    folder
        Folder with ``BlockAssign_ST44_RI_MCD.txt`` and its like. AIANNH, INCPLACE_CDP and MCD are needed;
        SDUNI, SDSEC and SDELM are used if all are there; other kinds are left alone.
    state
        Two-digit FIPS, to read one state of several; default: all.

    Returns
    -------
    BlockTable
        Without functional status (the files have none), so no primitive geography.

    Raises
    ------
    FileFormatError
        No such files; a column that lacks; a row that is cut; files that list different blocks; a block id
        that is not 15 digits.

    Notes
    -----
    The AIANNHCE of the files is the area's code; blank is 9999. ``COUSUBFP`` 00000 (no subdivision defined:
    water) stays.
    """
    here = Path(folder)
    wanted = f"BlockAssign_ST{state or '*'}_*_MCD.txt"
    firsts = sorted(here.glob(wanted))
    if not firsts:
        msg = f"no file {wanted} in {here}: unpack the state's block assignment files there"
        raise FileFormatError(msg, str(here))
    tables: list[dict[str, NDArray[np.str_]]] = []
    for first in firsts:
        stem = first.name.removesuffix("MCD.txt")
        found = _read_columns(first, ("BLOCKID", "COUSUBFP"))
        block = text_codes(found["BLOCKID"], f"{first.name}: BLOCKID", 15)
        order = np.argsort(block, kind="stable")
        columns = {"block": block, "MCD": found["COUSUBFP"]}
        for kind, field in _FIELDS.items():
            path = here / f"{stem}{kind}.txt"
            if kind == "MCD":
                continue
            if path.is_file():
                columns[kind] = _aligned(path, field, block, order)
            elif not kind.startswith("SD"):
                msg = f"{path.name} is not in {here}: the spine needs AIANNH, INCPLACE_CDP and MCD"
                raise FileFormatError(msg, path.name)
        tables.append(columns)
    joined = {k: np.concatenate([t[k] for t in tables]) for k in tables[0] if all(k in t for t in tables)}
    return BlockTable(
        joined["block"],
        aiannhce=joined["AIANNH"],
        cousub=joined["MCD"],
        place=joined["INCPLACE_CDP"],
        school=_schools(joined, ("SDUNI", "SDSEC", "SDELM")),
    )


def _schools(columns: Mapping[str, NDArray[np.str_]], names: Sequence[str]) -> NDArray[np.str_] | None:
    """Unified, secondary and elementary district joined, five characters each; None unless all are there."""
    if any(name not in columns for name in names):
        return None
    parts = [np.where(columns[name] == "", "99999", columns[name]) for name in names]
    return np.strings.add(np.strings.add(parts[0], parts[1]), parts[2])


def block_table_from_grfc(columns: Mapping[str, Any], group_quarters: Any = None) -> BlockTable:
    """Blocks from the columns of a geographic reference file with codes.

    Parameters
    ----------
    columns
        Column name -> codes as text, one row a block: TABBLKST, TABBLKCOU, TABTRACTCE, TABBLK, AIANNHCE,
        COUSUBFP, PLACEFP; for the DHC spines also SDUNILEA, SDSECLEA, SDELMLEA, COUSUBFS, PLACEFS.
    group_quarters
        Seven characters 0/1 a block, or None.

    Returns
    -------
    BlockTable
        The blocks, codes joined.

    Examples
    --------
    >>> row = dict(TABBLKST="44", TABBLKCOU="001", TABTRACTCE="030100", TABBLK="1000")
    >>> row |= dict(AIANNHCE="9999", COUSUBFP="05140", PLACEFP="99999")
    >>> block_table_from_grfc({k: [v] for k, v in row.items()}).block.tolist()
    ['4400103010011000']
    """
    missing = [c for c in _GRFC if c not in columns]
    if missing:
        msg = f"a GRF-C has the column {missing[0]!r}, this table has {sorted(columns)}: read another file"
        raise FileFormatError(msg, missing[0])
    text = {k: text_codes(v, k) for k, v in columns.items()}
    block = text["TABBLKST"]
    for name, width in (("TABBLKST", 2), ("TABBLKCOU", 3), ("TABTRACTCE", 6), ("TABBLK", 4)):
        text_codes(text[name], name, width)
    for part in (text["TABBLKCOU"], text["TABTRACTCE"], text["TABBLK"].astype("<U1"), text["TABBLK"]):
        block = np.strings.add(block, part)
    return BlockTable(
        block,
        aiannhce=text["AIANNHCE"],
        cousub=text["COUSUBFP"],
        place=text["PLACEFP"],
        school=_schools(text, _SCHOOL),
        cousub_status=text.get("COUSUBFS"),
        place_status=text.get("PLACEFS"),
        group_quarters=group_quarters,
    )


def read_grfc(path: str | Path) -> BlockTable:
    """Blocks of a reference file (pipe-delimited, header); see :func:`block_table_from_grfc`.

    Parameters
    ----------
    path
        The file.
    """
    file = Path(path)
    header = (
        read_text(file, "latin-1").removeprefix("\xef\xbb\xbf").partition("\n")[0].rstrip("\r").split("|")
    )
    known = (*_GRFC, *_SCHOOL, "COUSUBFS", "PLACEFS")
    return block_table_from_grfc(_read_columns(file, [k for k in known if k in header or k in _GRFC]))
