"""Folders of noisy measurement files: which levels, states and files there are. Internal; opens no file.

A product folder holds ``<Level>.parquet/{DPQuery,Constraint}/[State=004/][County=.../]*.parquet``; the
``.parquet`` names of levels are folders. The State of a folder is text of three digits, AIAN digit and FIPS:
``004`` and ``104`` are the two parts of state 04, and ``001`` is never the number 1.

What this module is not: a reader of columns (see :mod:`adversary.readers._nmf_columns`).

Held to account by ``tests/readers/test_nmf.py`` (user report P16).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CONSTRAINT",
    "DPQUERY",
    "LEVEL_ORDER",
    "Part",
    "find_product",
    "geocode16_of",
    "geoid_of",
    "level_parts",
    "state_parts",
]

DPQUERY, CONSTRAINT = "DPQuery", "Constraint"
LEVEL_ORDER = (
    "US",
    "State",
    "County",
    "Prim",
    "Tract_Group",
    "Tract_Subset_Group",
    "Tract_Subset",
    "Tract",
    "Block_Group",
    "Block",
)
"""Names of levels in the Bureau's files, root to leaf."""

_KINDS = (DPQUERY, CONSTRAINT)


@dataclass(frozen=True, order=True)
class Part:
    """One Parquet file: its state part (None at a level without State folders) and its path."""

    state: str | None
    path: Path

    @property
    def name(self) -> str:
        """The last folders of the path, for messages."""
        return "/".join(self.path.parts[-4:])


def _is_product(folder: Path) -> bool:
    return any(
        (level / kind).is_dir() for level in folder.glob("*.parquet") if level.is_dir() for kind in _KINDS
    )


def find_product(root: str | Path) -> Path:
    """Folder of the one product at ``root``: itself, or the only one in it.

    Raises
    ------
    FileFormatError
        If there is none, or several (they are listed).
    """
    here = Path(root)
    if not here.is_dir():
        msg = f"{here} is no folder: give the product's folder, such as US_Person_PL_PROD, or its parent"
        raise FileFormatError(msg, str(here))
    if _is_product(here):
        return here
    found = sorted(p for p in here.iterdir() if p.is_dir() and not p.name.startswith(".") and _is_product(p))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(p.name for p in found)
        msg = f"{here} holds {len(found)} products, {names}: give the folder of one of them"
        raise FileFormatError(msg, [p.name for p in found])
    msg = (
        f"{here} holds no noisy measurement files: a product folder has <Level>.parquet/DPQuery and "
        "<Level>.parquet/Constraint in it (the .parquet names are folders)"
    )
    raise FileFormatError(msg, str(here))


def _state_of(file: Path, top: Path) -> str | None:
    for folder in file.relative_to(top).parts[:-1]:
        key, equals, value = folder.partition("=")
        if not equals or key != "State":
            continue
        if not re.fullmatch(r"[01][0-9]{2}", value):
            msg = (
                f"{top.parent.name}/{top.name}/{folder}: the State of a folder is an AIAN digit and two digits of "
                f"FIPS, such as 001 or 101, got {value!r}: it was written again as a number; rename the folder"
            )
            raise FileFormatError(msg, value)
        return value
    return None


def level_parts(product: Path) -> dict[str, dict[str, tuple[Part, ...]]]:
    """Level -> kind (``DPQuery``, ``Constraint``) -> files in the order of their states; levels in any order."""
    out: dict[str, dict[str, tuple[Part, ...]]] = {}
    for folder in sorted(product.glob("*.parquet")):
        if not folder.is_dir():
            if folder.name.removesuffix(".parquet") in LEVEL_ORDER:
                msg = (
                    f"{folder.name} is a file, but a level is a folder with DPQuery and Constraint in it: in one file their "
                    "rows cannot be told apart; take the Bureau's folders"
                )
                raise FileFormatError(msg, folder.name)
            continue
        kinds: dict[str, tuple[Part, ...]] = {}
        for kind in _KINDS:
            top = folder / kind
            files = [
                f for f in top.rglob("*.parquet") if f.is_file() and not f.name.startswith((".", "_"))
            ]  # Spark leaves _SUCCESS and .crc files behind
            kinds[kind] = tuple(sorted((Part(_state_of(f, top), f) for f in files), key=_sort_key))
        if any(kinds.values()):
            out[folder.name.removesuffix(".parquet")] = kinds
    return out


def _sort_key(part: Part) -> tuple[str, str]:
    return part.state or "", str(part.path)


def state_parts(states: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """State parts that are asked for: ``"04"`` is ``004`` and ``104``; None for all.

    Raises
    ------
    FileFormatError
        For a number, or text that is neither two nor three digits.

    Examples
    --------
    >>> state_parts("04"), state_parts(["104", "44"])
    (('004', '104'), ('044', '104', '144'))
    """
    if states is None:
        return None
    found: set[str] = set()
    for state in [states] if isinstance(states, str) else list(states):
        if not isinstance(state, str) or not re.fullmatch(r"[01]?[0-9]{2}", state):
            msg = f"a state is text, '04' for both parts, '004' outside and '104' inside the AIAN areas, got {state!r}"
            raise FileFormatError(msg, state)
        found.update((state,) if len(state) == 3 else (f"0{state}", f"1{state}"))
    return tuple(sorted(found))


def _each(codes: Any, lengths: tuple[int, ...], what: str) -> list[str]:
    out = np.asarray(codes).ravel().tolist()
    for code in out:
        if not isinstance(code, str) or not any(
            len(code) == k or (k < 0 and len(code) >= -k) for k in lengths
        ):
            msg = f"{code!r} is no {what}"
            raise FileFormatError(msg, code)
    return out


def geoid_of(codes: Any) -> Any:
    """15-digit Census GEOID of block codes.

    Parameters
    ----------
    codes
        Block codes of a file (their last 16 characters are state 2, county 3, tract 6, block group 1, block 4),
        one or an array.

    Returns
    -------
    str or ndarray of str, as given
        The same without the twelfth of those characters, which repeats the first digit of the block.

    Raises
    ------
    FileFormatError
        For a number, or a code of fewer than 16 characters (it is not a block's).

    Examples
    --------
    >>> geoid_of("044100011000100014400103010011000")
    '440010301001000'
    """
    tails = [c[-16:] for c in _each(codes, (-16,), "block code: it is text that ends in 16 digits")]
    bad = next((c for c in tails if not c.isdigit() or c[11] != c[12]), None)
    if bad is not None:
        msg = f"{bad!r} does not end as a block code does: state 2, county 3, tract 6, block group 1, block 4"
        raise FileFormatError(msg, bad)
    out = [c[:11] + c[12:] for c in tails]
    return out[0] if isinstance(codes, str) else np.array(out, dtype=np.str_).reshape(np.shape(codes))


def geocode16_of(geoids: Any) -> Any:
    """Last 16 characters of the block codes of 15-digit GEOIDs; undoes :func:`geoid_of`.

    Examples
    --------
    >>> geocode16_of("440010301001000")
    '4400103010011000'
    """
    given = _each(
        geoids, (15,), "15-digit GEOID of a block: read it as text, a number loses its leading zeros"
    )
    out = [c[:12] + c[11:] for c in given]
    return out[0] if isinstance(geoids, str) else np.array(out, dtype=np.str_).reshape(np.shape(geoids))
