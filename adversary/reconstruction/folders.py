"""What a folder holds that can be rebuilt, and mechanisms written as text.

What it is: one door for a synthetic state and for a folder of PL 94-171 files, with the sentence that belongs
beside every number about it. What it is not: a reader of either. Held to account by
tests/test_cli_reconstruct.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adversary.errors import ModelError
from adversary.readers.pl94 import read_pl94
from adversary.reconstruction.mechanisms import MECHANISMS, Mechanism
from adversary.reconstruction.state_files import NOTE, is_state, read_state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Source", "open_folder", "parse_mechanism"]

_PUBLISHED = "published tables: what is rebuilt is the published, protected file"


@dataclass(frozen=True, eq=False)
class Source:
    """What a folder holds: one of the two.

    Attributes
    ----------
    state
        A `SyntheticState`; or None.
    table
        Redistricting tables, `Pl94Table`; or None.
    """

    state: Any  # or None, as is the other one: callers ask which it is before they use it
    table: Any

    @property
    def note(self) -> str:
        """What is to be said beside every number."""
        return NOTE if self.table is None else _PUBLISHED

    def blocks(self, names: Sequence[str], first: int | None) -> list[Any] | None:
        """Read names of blocks: numbers of a state's, codes of geounits; None for all.

        Parameters
        ----------
        names
            As text, each one or several with commas between them.
        first
            Only the first so many, if no names are given.
        """
        chosen = [name.strip() for text in names for name in text.split(",")]
        if self.table is not None:
            codes = [str(code) for code in self.table.geoid[:first]]
            return chosen or (None if first is None else codes)
        size = 0 if self.state is None else len(self.state)
        if not chosen:
            return None if first is None else list(range(min(first, size)))
        if not all(name.isdecimal() for name in chosen):
            msg = f"blocks of a synthetic state are numbers from 0 to {size - 1}, got {', '.join(chosen)}"
            raise ModelError(msg, chosen)
        return [int(name) for name in chosen]


def open_folder(folder: str | Path, level: str = "block") -> Source:
    """Read a folder as what it is.

    Parameters
    ----------
    folder
        What `adversary.reconstruction.state_files.write_state` wrote, or PL 94-171 files.
    level
        Summary level of the latter.

    Examples
    --------
    >>> from adversary.readers.pl94 import demo_folder
    >>> source = open_folder(demo_folder())
    >>> source.state is None, len(source.blocks([], 3))
    (True, 3)
    """
    if is_state(folder):
        return Source(read_state(folder), None)
    return Source(None, read_pl94(folder, level))


def parse_mechanism(text: str) -> Mechanism:
    """Read a mechanism: a name, or ``swap=0.05``, ``census=0.1``, ``census=2020,hud=0.0165``.

    Parameters
    ----------
    text
        As it was typed.

    Examples
    --------
    >>> parse_mechanism("swapping-10").swap_rate, parse_mechanism("census=2020, hud=0.01").hud_rho
    (0.1, '0.01')
    """
    known = {**MECHANISMS, **{m.folder: m for m in MECHANISMS.values()}}
    if text in known:
        return known[text]
    parts = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(","))
    if not set(parts) <= {"swap", "census", "hud"} or not all(parts.values()):
        names = ", ".join(m.folder for m in MECHANISMS.values())
        msg = f"no mechanism {text!r}: choose {names}, or write swap=0.05, census=0.1 or census=2020,hud=0.01"
        raise ModelError(msg, text)
    try:
        rate = float(parts.get("swap", "0"))
    except ValueError:
        msg = f"swap={parts['swap']} is no share: write a number from 0 to 1"
        raise ModelError(msg, text) from None
    return Mechanism(text, rate, parts.get("census"), parts.get("hud"))
