"""Answers and constraints of noisy measurement files, as arrays; joining batches. Internal: see :mod:`adversary.readers.nmf`.

Held to account by ``tests/readers/test_nmf.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

__all__ = ["Answers", "Constraint", "gathered", "joined", "place_in"]


@dataclass(frozen=True, eq=False)
class Answers:
    """Noisy answers to one query at the units of one level that were measured.

    Attributes
    ----------
    level, name
        Level and query, the latter without its ending.
    geocode
        Codes of the units, text, shape (n,), sorted (in a batch: in the order of the file).
    values
        Noisy answers, int64, shape (n, size), in C order of ``shape``; for one cell, shape (n,).
    sigma2
        Parameter of the discrete Gaussian noise of each answer of the unit, float64, shape (n,). Not the variance.
    shape
        Answers per axis, None where the file does not say.
    dropped
        Codes of units whose row carries no information (infinite variance); they are in no other array.
    share
        Index of each unit's share in ``shares``, or None if no budget was given.
    shares
        Shares of rho that a unit can have, exact.
    """

    level: str
    name: str
    geocode: NDArray[np.str_]
    values: NDArray[np.int64]
    sigma2: NDArray[np.float64]
    shape: tuple[int, ...] | None = None
    dropped: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))
    share: NDArray[np.int64] | None = None
    shares: tuple[Fraction, ...] = ()

    def __len__(self) -> int:
        """Count the units."""
        return int(self.geocode.size)

    def __repr__(self) -> str:
        """One line: units, answers, sigma^2, and what was dropped."""
        noise = " ".join(f"{s:.6g}" for s in np.unique(self.sigma2)[:4].tolist())
        more = " ..." if np.unique(self.sigma2).size > 4 else ""
        said = f"; {self.report}" if self.dropped.size else ""
        size = self.values.shape[1] if self.values.ndim > 1 else 1
        return f"<Answers {self.level} {self.name!r}: {len(self):,} units x {size:,}, sigma2 {noise}{more}{said}>"

    @property
    def report(self) -> str:
        """What was dropped, in a sentence."""
        n = int(self.dropped.size)
        if not n:
            return "every measurement carries information"
        which = f"{self.dropped[0]!s}" + (" for one" if n > 1 else "")
        return f"{n:,} measurement{'s carry' if n > 1 else ' carries'} no information (infinite variance): {which}"

    def aligned(self, geocodes: Any) -> Answers:
        """Return the answers at these units, in this order; 0 with sigma^2 = inf where nothing was measured.

        Parameters
        ----------
        geocodes
            Codes of units of the level, text, such as ``spine.geocodes[spine.units(level)]``.

        Raises
        ------
        FileFormatError
            If a measured unit is not among them.
        """
        wanted = np.asarray(geocodes, np.str_)
        order = np.argsort(wanted)
        place = np.searchsorted(wanted[order], self.geocode).clip(0, max(wanted.size - 1, 0))
        strange = (
            np.flatnonzero(wanted[order][place] != self.geocode) if wanted.size else np.arange(len(self))
        )
        if strange.size:
            odd = str(self.geocode[strange[0]])
            msg = f"{self.level} {odd!r} was measured but is not among the {wanted.size} units: take the file's own spine"
            raise FileFormatError(msg, odd)
        rows = order[place]
        values = np.zeros((wanted.size, *self.values.shape[1:]), np.int64)
        values[rows] = self.values
        sigma2 = np.full(wanted.size, np.inf)
        sigma2[rows] = self.sigma2
        return replace(self, geocode=wanted, values=values, sigma2=sigma2, share=None, shares=())


@dataclass(frozen=True, eq=False)
class Constraint:
    """An invariant, or a bound, that the Bureau published without noise.

    Attributes
    ----------
    level, name
        Level and name, the latter without its ending.
    sign
        ``"="``, ``"<="`` or ``">="``: the answers of the true counts stand so to ``values``.
    geocode
        Codes of the units, text, shape (n,), sorted.
    values
        int64, shape (n, size).
    shape
        Answers per axis.
    """

    level: str
    name: str
    sign: str
    geocode: NDArray[np.str_]
    values: NDArray[np.int64]
    shape: tuple[int, ...] | None = None


def free_memory() -> int | None:
    """Bytes that this machine can still give, None where it does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable: +(\d+) kB", text, re.MULTILINE)
    return None if found is None else int(found.group(1)) * 1024


def gathered(batches: Iterator[Answers]) -> Answers:
    """Join batches, refusing what does not fit into memory (it is held twice while it is sorted)."""
    room, held = free_memory(), 0
    found: list[Answers] = []
    for batch in batches:
        found.append(batch)
        held += batch.values.nbytes + batch.geocode.nbytes
        if room is not None and 2 * held > room:
            msg = (
                f"the answers to {batch.name!r} at {batch.level} need more than the {room / 1e9:.1f} GB that are free: name some "
                "states, take one cell of it (cell), or go through it in pieces (batches)"
            )
            raise FileFormatError(msg, room)
    return joined(found)


def joined(found: list[Answers]) -> Answers:
    """Batches as one, sorted by code."""
    if not found:
        msg = "no rows: nothing was measured there"
        raise FileFormatError(msg, found)
    full = [a for a in found if len(a)] or found[:1]
    shapes = {a.shape for a in full} | {a.values.shape[1:] for a in full if a.shape is None}
    if len(shapes) > 1 or len({a.values.shape[1:] for a in full}) > 1:
        msg = f"{full[0].level} {full[0].name!r} has answers of several shapes, {sorted(map(str, shapes))}"
        raise FileFormatError(msg, shapes)
    geocode = np.concatenate([a.geocode for a in full])
    order = np.argsort(geocode, kind="stable")
    geocode = geocode[order]
    twice = np.flatnonzero(geocode[1:] == geocode[:-1])
    if twice.size:
        odd = str(geocode[twice[0]])
        msg = f"{full[0].level} {odd!r} is in two files of {full[0].name!r}: one row is expected"
        raise FileFormatError(msg, odd)
    share = None if full[0].share is None else np.concatenate([_index(a) for a in full])[order]
    return replace(
        full[0],
        geocode=geocode,
        values=np.concatenate([a.values for a in full])[order],
        sigma2=np.concatenate([a.sigma2 for a in full])[order],
        dropped=np.sort(np.concatenate([a.dropped for a in found])),
        share=share,
    )


def _index(answers: Answers) -> NDArray[np.int64]:
    return np.zeros(0, np.int64) if answers.share is None else answers.share


def place_in(cell: Sequence[int], shape: tuple[int, ...] | None) -> int:
    if (
        shape is None
        or len(cell) != len(shape)
        or any(not 0 <= c < n for c, n in zip(cell, shape, strict=True))
    ):
        msg = f"cell {tuple(cell)} is not within the query's shape {shape}"
        raise FileFormatError(msg, tuple(cell))
    return int(np.ravel_multi_index(tuple(cell), shape))
