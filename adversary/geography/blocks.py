"""A table of census blocks with the codes that a spine is built from: ``BlockTable``.

All codes are text, because every one of them may begin with a zero; "not in any" is a code made only of
nines, as in the Bureau's reference files. What this module is not: a reader (see
:mod:`adversary.readers.baf`) or a spine.

Held to account by ``tests/geography/test_blocks.py`` and, through the whole pipeline,
``tests/paper/test_spines.py``. Sources: Cumings-Menon et al., arXiv 2203.16654, sec. 3-4; the ranges of
AIANNHCE codes, the strong-MCD states and the primitive geography are those of the 2020 Disclosure Avoidance
System.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError, FileFormatError

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

__all__ = [
    "AIAN_AREAS",
    "PRODUCTION_AIAN_AREAS",
    "STRONG_MCD_STATES",
    "BlockTable",
    "text_codes",
    "zero_filled",
]

AIAN_AREAS: dict[str, tuple[int, int]] = {
    "federal_legal": (1, 4799),
    "joint_use": (4800, 4989),
    "hawaiian_home_land": (5000, 5499),
    "oklahoma": (5500, 5899),
    "joint_oklahoma": (5900, 5999),
    "alaska_village": (6000, 7999),
    "tribal_designated": (8000, 8999),
    "state_legal": (9000, 9499),
    "state_designated": (9500, 9998),
}
"""Ranges of AIANNHCE (inclusive) of every kind of area; 9999 is "in none"; 4990-4999 are no codes."""

PRODUCTION_AIAN_AREAS = tuple(k for k in AIAN_AREAS if k not in ("tribal_designated", "state_designated"))
"""The kinds that the 2020 production runs put inside the AIAN part of a state."""

STRONG_MCD_STATES = ("09", "23", "25", "26", "27", "33", "34", "36", "42", "44", "50", "55")
"""States whose county subdivisions, not places, are the off-spine entities outside AIAN areas."""

_PLACES_KEPT = (("22", "36255"), ("11", "50000"), ("15", "71550"), ("20", "71450"))  # functional status aside
_NO_GROUP_QUARTERS = "0000000"


def text_codes(values: Any, name: str, width: int | tuple[int, ...] | None = None) -> NDArray[np.str_]:
    """Codes as an array of text, refused if they have been through a number.

    Parameters
    ----------
    values
        Codes, shape (n,).
    name
        What they are, for the message.
    width
        Number of characters that every code must have (or one of several widths, the same for all).

    Returns
    -------
    ndarray of str, shape (n,)
        The codes, unchanged.

    Raises
    ------
    FileFormatError
        For numbers, for widths that differ among codes, and for a width other than ``width``.

    Examples
    --------
    >>> text_codes(["010010201001000"], "block", 15)
    array(['010010201001000'], dtype='<U15')
    """
    codes = np.asarray(values)
    if codes.dtype.kind == "O" and all(isinstance(code, str) for code in codes.ravel()):
        codes = codes.astype(str)
    if codes.dtype.kind != "U" and codes.size:
        bad = next(c for c in codes.ravel().tolist() if not isinstance(c, str))
        msg = (
            f"{name} codes must be text, got the number {bad!r}: a number has lost its leading zeros; "
            "read the file with every column as text (dtype=str) or repair it with zero_filled"
        )
        raise FileFormatError(msg, bad)
    codes = codes.astype(str).ravel()
    if width is None or not codes.size:
        return codes
    lengths = np.char.str_len(codes)
    allowed = (width,) if isinstance(width, int) else width
    wrong = np.flatnonzero(~np.isin(lengths, allowed))
    if wrong.size == 0 and np.ptp(lengths):
        wrong = np.flatnonzero(lengths < lengths.max())
    if wrong.size:
        bad = str(codes[wrong[0]])
        wanted = " or ".join(str(w) for w in allowed)
        msg = (
            f"{name} code {bad!r} (row {wrong[0]}) has {len(bad)} characters, not {wanted}: a leading zero "
            f"may be lost ({wrong.size} of {codes.size} codes); read the file as text or repair it with "
            "zero_filled"
        )
        raise FileFormatError(msg, bad)
    return codes


def _column(values: Any, n: int, name: str, width: int | None, missing: str) -> NDArray[np.str_]:
    """Return a column of n codes; blank is ``missing``."""
    if values is None:
        return np.full(n, missing)
    codes = text_codes(values, name)
    codes = np.where(codes == "", missing, codes).astype(str)
    if codes.shape != (n,):
        msg = f"column {name} has {codes.size} codes for {n} blocks: give one code a block"
        raise FileFormatError(msg, codes.size)
    return text_codes(codes, name, width)


@dataclass(frozen=True, eq=False)
class BlockTable:
    """Blocks of one or more states with the codes of the entities they lie in.

    Parameters
    ----------
    block
        ``geocode16`` (state 2, county 3, tract 6, block group 1, block 4) or 15-digit GEOIDs, shape (n,),
        unique.
    aiannhce
        AIANNHCE, four digits, 9999 (or blank) in none; codes 4990 to 4999 are refused.
    cousub, place
        County subdivision and place, five digits, 99999 (or blank) in none.
    school
        School districts (unified, secondary, elementary joined), any text.
    cousub_status, place_status
        Functional status, or None where the file has none (block assignment files); needed only for
        ``primitive``.
    group_quarters
        Seven characters 0/1: the block has a facility of major type 1 to 7.

    Raises
    ------
    FileFormatError
        For codes that are numbers, of the wrong width, or blocks named twice.

    Examples
    --------
    >>> table = BlockTable(["440010301001000", "440010301001001"], place=["", "74300"])
    >>> table.block.tolist(), table.place.tolist()
    (['4400103010011000', '4400103010011001'], ['99999', '74300'])
    """

    block: Any
    aiannhce: Any = None
    cousub: Any = None
    place: Any = None
    school: Any = None
    cousub_status: Any = None
    place_status: Any = None
    group_quarters: Any = field(default=None)

    def __post_init__(self) -> None:
        """Turn every column into text of its width, or refuse it."""
        block = text_codes(self.block, "block", (15, 16))
        n = block.size
        if n and len(block[0]) == 15:
            head = np.array([code[:12] + code[11:] for code in block.tolist()])
            block = head
        codes, times = np.unique(block, return_counts=True)
        if codes.size < n:
            twice = str(codes[times > 1][0])
            msg = f"block {twice!r} is listed {times.max()} times: keep one row a block"
            raise FileFormatError(msg, twice)
        object.__setattr__(self, "block", block)
        columns: tuple[tuple[str, int | None, str], ...] = (
            ("aiannhce", 4, "9999"),
            ("cousub", 5, "99999"),
            ("place", 5, "99999"),
            ("school", None, ""),
            ("group_quarters", 7, _NO_GROUP_QUARTERS),
        )
        for name, width, missing in columns:
            object.__setattr__(self, name, _column(getattr(self, name), n, name, width, missing))
        for name in ("cousub_status", "place_status"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _column(getattr(self, name), n, name, None, ""))
        self._check_aian()

    def _check_aian(self) -> None:
        codes = self.aiannhce
        bad = codes[(codes >= "4990") & (codes <= "4999")]
        if bad.size:
            code = str(bad[0])
            msg = f"AIANNHCE {code!r} is not in the code list (4990 to 4999 are unused): check the column"
            raise FileFormatError(msg, str(bad[0]))

    def __len__(self) -> int:
        """Count the blocks."""
        return int(self.block.size)

    def __repr__(self) -> str:
        """One line: how many blocks in how many states."""
        return f"<BlockTable {len(self):,} blocks, states {', '.join(np.unique(self.state).tolist())}>"

    def prefix(self, width: int) -> NDArray[np.str_]:
        """Return the first characters of every code: 2 state, 5 county, 11 tract, 12 block group.

        Parameters
        ----------
        width
            How many characters, from the left.
        """
        codes: NDArray[np.str_] = self.block.astype(f"<U{width}") if len(self) else self.block
        return codes

    def characters(self, start: int, stop: int) -> NDArray[np.str_]:
        """Characters ``start`` to ``stop`` of every block code."""
        letters = self.block.astype("<U16").view("<U1").reshape(-1, 16)[:, start:stop]
        return np.ascontiguousarray(letters).view(f"<U{stop - start}").ravel()

    @property
    def state(self) -> NDArray[np.str_]:
        """State FIPS of every block, two characters."""
        return self.prefix(2)

    @property
    def geoid(self) -> NDArray[np.str_]:
        """15-digit GEOID of every block."""
        return np.strings.add(self.prefix(11), self.characters(12, 16))

    def inside_aian(self, areas: Collection[str] = PRODUCTION_AIAN_AREAS) -> NDArray[np.bool_]:
        """Whether each block lies in one of the chosen kinds of AIAN area; shape (n,).

        Parameters
        ----------
        areas
            Kinds of area, keys of `AIAN_AREAS`.
        """
        unknown = [a for a in areas if a not in AIAN_AREAS]
        if unknown:
            msg = f"{unknown[0]!r} is no kind of AIAN area: choose from {', '.join(AIAN_AREAS)}"
            raise AdversaryError(msg, unknown[0])
        codes = self.aiannhce
        inside = np.zeros(len(self), bool)
        for kind in areas:
            low, high = AIAN_AREAS[kind]
            inside |= (codes >= f"{low:04d}") & (codes <= f"{high:04d}")
        inside &= codes != "9999"
        return inside

    def place_or_mcd(self, inside: NDArray[np.bool_]) -> NDArray[np.str_]:
        """County subdivision in strong-MCD states outside AIAN areas, place otherwise; shape (n,).

        Parameters
        ----------
        inside
            Whether each block lies in an AIAN area, shape (blocks,).
        """
        strong = np.isin(self.state, STRONG_MCD_STATES) & ~inside
        codes: NDArray[np.str_] = np.where(strong, self.cousub, self.place)
        return codes

    def primitive(self) -> NDArray[np.str_]:
        """DHC primitive geography: state, county, county subdivision, place (15 characters), shape (n,).

        Raises
        ------
        FileFormatError
            If the table has no functional status: only a GRF-C has it, a block assignment file has not.
        """
        if self.cousub_status is None or self.place_status is None:
            msg = (
                "the primitive geography needs COUSUBFS and PLACEFS, got none: read a GRF-C, not block "
                "assignment files"
            )
            raise FileFormatError(msg)
        county, state = self.prefix(5), self.state
        strong = np.isin(county, np.unique(county[np.isin(self.cousub_status, ("A", "B", "C"))]))
        kept = np.isin(self.place_status, ("A", "B", "F"))
        for fips, code in _PLACES_KEPT:
            kept |= (state == fips) & (self.place == code)
        island = state == "72"
        cousub = np.where(strong & ~island, self.cousub, "99999")
        place = np.where(kept & ~island, self.place, "99999")
        return np.strings.add(np.strings.add(county, cousub), place)

    def take(self, rows: NDArray[Any]) -> BlockTable:
        """Return the table of some rows (indices or mask)."""
        names = (
            "block",
            "aiannhce",
            "cousub",
            "place",
            "school",
            "cousub_status",
            "place_status",
            "group_quarters",
        )
        return BlockTable(**{k: None if getattr(self, k) is None else getattr(self, k)[rows] for k in names})


def zero_filled(values: Any, width: int, name: str = "block") -> NDArray[np.str_]:
    """Codes brought back to their width, with a warning that says how many were changed.

    Parameters
    ----------
    values
        Codes as text or integers, shape (n,).
    width
        Number of characters of a whole code.
    name
        What they are, for the messages.

    Returns
    -------
    ndarray of str, shape (n,)
        The codes, each ``width`` characters long.

    Raises
    ------
    FileFormatError
        For a code with a character that is no digit, or longer than ``width``.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     zero_filled([10010201001000], 15).tolist()
    ['010010201001000']
    """
    codes = np.array([str(v) for v in np.asarray(values).ravel().tolist()], dtype=np.str_)
    bad = [c for c in codes.tolist() if not (c.isascii() and c.isdigit()) or len(c) > width]
    if bad:
        msg = (
            f"{name} code {bad[0]!r} cannot be filled to {width} digits: only digits, and no more than "
            f"{width}"
        )
        raise FileFormatError(msg, bad[0])
    if not codes.size:  # NumPy cannot fill no code at all
        return codes
    filled = np.strings.zfill(codes, width).astype(str)
    changed = int((filled != codes).sum())
    if changed:
        text = f"{changed} of {codes.size} {name} codes were filled with leading zeros to {width} digits"
        warnings.warn(text, stacklevel=2)
    return filled
