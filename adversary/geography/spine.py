"""A geographic spine: a tree of geounits with an exact share of the privacy-loss budget at each.

Arrays hold the geounits: a code, a parent, a level and the index of a share per unit. Shares are fractions,
so "every path spends exactly the whole budget" is a statement about integers. Ragged trees (leaves at
several levels), levels that a branch skips, units with one child and forests are all spines. What is
refused, with the ids: cycles (also those that no root reaches), two parents, an unlisted parent, the same
code twice, hierarchies that cross, and codes that lost a leading zero.

What this module is not: the choice of geounits (:mod:`adversary.geography.optimize`), a reader
(:mod:`adversary.readers.baf`) or an estimator (:mod:`adversary.release.estimate`).

Held to account by ``tests/geography/test_spine.py`` and ``tests/paper/test_spines.py``. Sources:
Cumings-Menon et al., arXiv 2203.16654, sec. 2-3; user reports P14, P15 and P19 of the project's
specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError, BudgetError
from adversary.geography import _build
from adversary.geography.spine_file import SavedSpine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Contraction", "Spine"]


@dataclass(frozen=True, eq=False)
class Spine(SavedSpine):
    """A tree (or forest) of geounits with exact shares of rho; build it with a ``from_*`` method.

    Parameters
    ----------
    levels
        Names of the levels, root to leaf.
    geocodes
        Code of every unit, text, shape (n,); unique within a level.
    parents
        Index of every unit's parent, -1 for a root; int64, shape (n,). A parent comes before its children.
    level_of
        Index of every unit's level, int8, shape (n,), never falling along the array.
    share_table
        The distinct shares of rho, exact.
    share_index
        Index into ``share_table``, int32, shape (n,).

    Examples
    --------
    >>> spine = Spine.from_blocks(
    ...     {"tract": ["01", "01", "02"], "block": ["011", "012", "021"]}, {"tract": "2/3", "block": "1/3"}
    ... )
    >>> spine
    <Spine tract > block: 5 units, 3 leaves>
    >>> spine.codes(spine.path("012")), str(spine.path_total("012"))
    (['01', '012'], '1')
    """

    levels: tuple[str, ...]
    geocodes: NDArray[np.str_]
    parents: NDArray[np.int64]
    level_of: NDArray[np.int8]
    share_table: tuple[Fraction, ...]
    share_index: NDArray[np.int32]

    def __post_init__(self) -> None:
        """Refuse arrays that are no spine, and lock them."""
        _build.check_arrays(self.levels, (self.geocodes, self.parents, self.level_of, self.share_index))
        for name in ("geocodes", "parents", "level_of", "share_index"):
            locked = getattr(self, name).view()
            locked.flags.writeable = False
            object.__setattr__(self, name, locked)

    # ---------------------------------------------------------------- construction
    @classmethod
    def from_arrays(
        cls,
        levels: Sequence[str],
        geocodes: NDArray[np.str_],
        parents: NDArray[np.int64],
        level_of: NDArray[np.int8],
        shares: tuple[NDArray[Any], int] | None = None,
    ) -> Spine:
        """Spine of ``levels`` from ``geocodes``, ``parents``, ``level_of``; ``shares`` = (numerators, denominator) or None."""
        n = geocodes.size
        spine = cls(
            tuple(levels),
            geocodes,
            np.asarray(parents, np.int64),
            np.asarray(level_of, np.int8),
            (Fraction(0),),
            np.zeros(n, np.int32),
        )
        return spine if shares is None else spine.with_numerators(*shares)

    @classmethod
    def from_blocks(
        cls, table: Mapping[str, Any], shares: Mapping[str, Any] | None = None, *, nested: bool = False
    ) -> Spine:
        """Spine from a table with one row a block and one column of codes a level, root to leaf.

        Parameters
        ----------
        table
            Level name -> codes as text, shape (blocks,). A blank code skips the level for that block (a
            ragged tree).
        shares
            Level name -> share of rho (Fraction, int, text such as ``"165/4099"``, or a decimal taken as
            written); 0 where nothing was measured. None: no budget yet.
        nested
            True if codes are only unique within their parent (tract 000100 of every county): they are joined.

        Raises
        ------
        FileFormatError
            Codes that are numbers or lost a zero; the same leaf twice; a unit under two parents.
        BudgetError
            Shares by position, of unknown or missing levels, or negative.
        """
        return cls.from_arrays(*_build.from_block_columns(table, nested))._maybe(shares)

    @classmethod
    def from_geocodes(
        cls, geocodes: Any, widths: Mapping[str, int], shares: Mapping[str, Any] | None = None
    ) -> Spine:
        """Spine from leaf codes whose first characters are the codes of the units above.

        Parameters
        ----------
        geocodes
            Codes of the leaves, text, all as long as the last width.
        widths
            Level name -> total length of its codes, root to leaf, rising; 0 for a root whose code is empty.
        shares
            As in :meth:`from_blocks`.

        Examples
        --------
        >>> Spine.from_geocodes(["440010301001000"], {"state": 2, "county": 5, "tract": 11, "block": 15})
        <Spine state > county > tract > block: 4 units, 1 leaves>
        """
        return cls.from_arrays(*_build.from_prefixes(geocodes, widths))._maybe(shares)

    @classmethod
    def from_parents(
        cls,
        units: Any,
        parents: Any,
        *,
        levels: Sequence[str] | None = None,
        shares: Mapping[str, Any] | None = None,
    ) -> Spine:
        """Spine from a list of (unit, parent) pairs in any order; a root's parent is ``""`` or None.

        Parameters
        ----------
        units, parents
            Codes as text, shape (n,).
        levels
            Names of the levels, one per depth; default ``level 0``, ``level 1``, ...
        shares
            As in :meth:`from_blocks`.

        Raises
        ------
        FileFormatError
            The same unit twice, a unit with two parents, a parent that is not listed, a cycle: each with
            its ids.

        Examples
        --------
        >>> Spine.from_parents(["A", "AA", "AB", "B", "AA1"], ["", "A", "A", "", "AA"])
        <Spine level 0 > level 1 > level 2: 5 units, 3 leaves>
        """
        return cls.from_arrays(*_build.from_pairs(units, parents, levels))._maybe(shares)

    def _maybe(self, shares: Mapping[str, Any] | None) -> Spine:
        return self if shares is None else self.with_shares(shares)

    def with_shares(self, shares: Mapping[str, Any]) -> Spine:
        """Return the same units with ``shares`` of rho per level, by name; 0 where nothing was measured."""
        by_level = _build.shares_by_level(shares, self.levels)
        table = tuple(dict.fromkeys(by_level))
        index = np.array([table.index(s) for s in by_level], np.int32)[self.level_of]
        return Spine(self.levels, self.geocodes, self.parents, self.level_of, table, index)

    def with_numerators(self, numerators: NDArray[Any], denominator: int) -> Spine:
        """Return the same units with shares ``numerators / denominator``, one per unit."""
        values, index = np.unique(numerators, return_inverse=True)
        table = tuple(Fraction(int(v), denominator) for v in values.tolist())
        return Spine(self.levels, self.geocodes, self.parents, self.level_of, table, index.astype(np.int32))

    # ---------------------------------------------------------------- shape
    def __len__(self) -> int:
        """Count the geounits."""
        return int(self.parents.size)

    def __repr__(self) -> str:
        """One line: levels, units, leaves."""
        return f"<Spine {' > '.join(self.levels)}: {len(self):,} units, {self.leaves.size:,} leaves>"

    def __str__(self) -> str:
        """Return the table of levels: units, leaves, shares."""
        return _build.format_table(self.table())

    @cached_property
    def depth_of(self) -> NDArray[np.int64]:
        """Number of units above each unit, shape (n,)."""
        return _build.depths(self.parents)

    @cached_property
    def depth(self) -> int:
        """Greatest number of units on a path, less one."""
        return int(self.depth_of.max(initial=0))

    @cached_property
    def n_children(self) -> NDArray[np.int64]:
        """Number of children of each unit, shape (n,)."""
        return np.bincount(self.parents[self.parents >= 0], minlength=len(self)).astype(np.int64)

    @cached_property
    def leaves(self) -> NDArray[np.int64]:
        """Indices of the units without children."""
        return np.flatnonzero(self.n_children == 0)

    @cached_property
    def uniform(self) -> bool:
        """Whether every path passes through every level."""
        below = self.parents >= 0
        steps = self.level_of[below] == self.level_of[self.parents[below]] + 1
        roots = self.level_of[~below] == 0
        return bool(
            steps.all() and roots.all() and (self.level_of[self.leaves] == len(self.levels) - 1).all()
        )

    @cached_property
    def _child_index(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self.parents, kind="stable")
        return order, np.searchsorted(self.parents[order], np.arange(len(self) + 1))

    @cached_property
    def _lookup(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for unit, code in enumerate(self.geocodes.tolist()):
            found.setdefault(code, []).append(unit)
        for unit in self.leaves.tolist():
            code = str(self.geocodes[unit])
            if len(code) > 16:  # production codes end in the block's geocode16
                found.setdefault(code[-16:], []).append(unit)
        return found

    def index(self, unit: str | int, level: str | None = None) -> int:
        """Index of a unit (at one ``level``), given its code, a block's ``geocode16`` or GEOID, or already its index.

        Raises
        ------
        AdversaryError
            For a code that is not in the spine, or one that names units of several levels that are not one
            chain.
        """
        if not isinstance(unit, str):
            if not 0 <= int(unit) < len(self):
                msg = f"unit {unit} is not in 0..{len(self) - 1}"
                raise AdversaryError(msg, unit)
            return int(unit)
        found = self._lookup.get(unit, [])
        if not found and len(unit) == 15:
            found = self._lookup.get(unit[:12] + unit[11:], [])
        if level is not None:
            found = [u for u in found if self.levels[self.level_of[u]] == level]
        if not found:
            where = f"level {level}" if level else "the spine"
            msg = (
                f"geocode {unit!r} is not in {where}: codes look like {str(self.geocodes[-1])!r}; were leading "
                "zeros lost?"
            )
            raise AdversaryError(msg, unit)
        if len(found) > 1 and not set(found) <= set(self.path(found[-1])):
            names = ", ".join(self.levels[self.level_of[u]] for u in found)
            msg = f"geocode {unit!r} names several units (levels {names}): say which level"
            raise AdversaryError(msg, unit)
        return found[-1]

    def codes(self, units: Any) -> list[str]:
        """Codes of some units."""
        return [str(code) for code in self.geocodes[np.asarray(units, np.int64)]]

    def level(self, unit: str | int) -> str:
        """Name of a unit's level."""
        return self.levels[int(self.level_of[self.index(unit)])]

    def units(self, level: str) -> NDArray[np.int64]:
        """Return the indices of the units of one level."""
        if level not in self.levels:
            msg = f"{level!r} is no level of this spine: choose from {', '.join(self.levels)}"
            raise AdversaryError(msg, level)
        return np.flatnonzero(self.level_of == self.levels.index(level))

    def path(self, unit: str | int) -> list[int]:
        """Return the indices of the units from the root down to ``unit``."""
        u = self.index(unit)
        path = [u]
        while (u := int(self.parents[u])) >= 0:
            path.append(u)
        return path[::-1]

    def children(self, unit: str | int) -> NDArray[np.int64]:
        """Return the indices of a unit's children."""
        order, start = self._child_index
        u = self.index(unit)
        return order[start[u] : start[u + 1]]

    def siblings(self, unit: str | int) -> NDArray[np.int64]:
        """Return the indices of the other children of a unit's parent (of the other roots, for a root)."""
        u = self.index(unit)
        above = int(self.parents[u])
        family = self.children(above) if above >= 0 else np.flatnonzero(self.parents < 0)
        others: NDArray[np.int64] = family[family != u]
        return others

    def ancestor(self, level: str) -> NDArray[np.int64]:
        """Index of the unit of ``level`` above (or at) every leaf, -1 for none; shape (leaves,)."""
        wanted = self.levels.index(level) if level in self.levels else -1
        if wanted < 0:
            self.units(level)
        unit = self.leaves.copy()
        while (up := (unit >= 0) & (self.level_of[unit] > wanted)).any():
            unit[up] = self.parents[unit[up]]
        return np.where((unit >= 0) & (self.level_of[unit] == wanted), unit, -1)

    # ---------------------------------------------------------------- budget
    def share(self, unit: str | int) -> Fraction:
        """Exact share of rho of a unit; 0 means that it was not measured."""
        return self.share_table[int(self.share_index[self.index(unit)])]

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shares of all units as floats, shape (n,)."""
        return np.array([float(s) for s in self.share_table])[self.share_index]

    def path_total(self, unit: str | int) -> Fraction:
        """Exact sum of the shares from the root down to ``unit``."""
        return sum((self.share(u) for u in self.path(unit)), Fraction(0))

    def path_totals(self) -> set[Fraction]:
        """Return the distinct sums of shares over all root-to-leaf paths; one value in a sound spine."""
        numerators, denominator, dtype = _build.common_denominator(self.share_table, self.depth + 1)
        total = np.array(numerators, dtype=dtype)[self.share_index]
        for d in range(1, self.depth + 1):
            units = np.flatnonzero(self.depth_of == d)
            total[units] += total[self.parents[units]]
        return {Fraction(int(t), denominator) for t in np.unique(total[self.leaves]).tolist()}

    def rho_between(
        self,
        x: str | int,
        y: str | int | None,
        rho: Any = 1,
        separating: Mapping[str, Any] | None = None,
    ) -> Fraction:
        """Budget that tells one person in block x from the same person in block y (or from nobody).

        Parameters
        ----------
        x, y
            Leaves (blocks). ``y=None``: present in x or absent (unbounded neighbours). ``y=x`` with
            ``separating``: the same block, another cell of the histogram.
        rho
            Whole budget under bounded neighbours, noise 1 / (rho share alpha) per query; exact.
        separating
            Level name -> share of the level's queries whose answers differ between her two cells (1 in a
            level where all do). None: she has the same cell in both worlds.

        Returns
        -------
        Fraction
            rho* = half the sum of squared differences over noise: the two worlds differ by d = sqrt(2
            rho*), and the best test, prior even, is right with probability Phi(d / 2).

        Notes
        -----
        Below the lowest common unit every query sees the move, once at x's side and once at y's; at and
        above it, only the queries that separate the cells do (Cumings-Menon et al., Theorem 3; Lemmas 3 and
        5).

        Examples
        --------
        >>> table = {"tract": ["1", "1"], "block": ["11", "12"]}
        >>> spine = Spine.from_blocks(table, {"tract": "2/3", "block": "1/3"})
        >>> str(spine.rho_between("11", "12", rho=3))
        '1'
        """
        total = _build.exact(rho, "rho")
        for unit in (x, y):
            if unit is not None and self.n_children[self.index(unit)]:
                msg = f"unit {unit!r} is no leaf: a person lives in a block, so name two blocks"
                raise AdversaryError(msg, unit)
        here = self.path(x)
        if y is None:
            if separating is not None:
                msg = "separating has no meaning against absence: every query counts her or not"
                raise AdversaryError(msg, separating)
            return total * self.path_total(x) / 2
        there = self.path(y)
        common = 0
        while common < min(len(here), len(there)) and here[common] == there[common]:
            common += 1
        below = sum((self.share(u) for u in (*here[common:], *there[common:])), Fraction(0)) / 2
        if separating is None:
            return total * below
        asked = _build.shares_by_level(separating, self.levels, "separating")
        apart = sum((self.share(u) * asked[self.level_of[u]] for u in here[:common]), Fraction(0))
        return total * (below + apart)

    def table(self, rho: Any = None) -> list[dict[str, Any]]:
        """One row a level: units, measured, leaves, least and greatest share, sigma^2 of a whole budget.

        Parameters
        ----------
        rho
            Whole budget (bounded neighbours): adds ``sigma2`` = 1 / (rho share), exact, at the greatest
            share. A query with a fraction alpha of its level's budget has sigma2 / alpha.
        """
        return _build.level_rows(self, None if rho is None else _build.exact(rho, "rho"))

    # ---------------------------------------------------------------- other spines of the same blocks
    def contract(self, *, mixed: bool = False) -> Contraction:
        """Merge units that cover the same blocks, so that every share on a path has its own people.

        Parameters
        ----------
        mixed
            Allow chains that spend budget at more than one level. Their shares are added, which is right
            for an estimate of the total but wrong for any noise read from one level's query mix; refused
            unless asked for.

        Returns
        -------
        Contraction
            The smaller spine and, for every old unit, the new one. A merged unit keeps the code of the
            lowest of the chain and the level of the one that was measured (of the lowest, if none was).

        Raises
        ------
        BudgetError
            For a chain measured at two levels, unless ``mixed``.
        """
        spine, unit = _build.contract(self, mixed=mixed)
        return Contraction(Spine(*spine), unit)

    def insert_level(self, name: str, above: str, groups: Any) -> Spine:
        """Return the spine with unmeasured units between a level and its parents, one per (parent, group).

        Parameters
        ----------
        name
            Name of the new level.
        above
            The level whose units get a new parent.
        groups
            Group of each unit of that level, text, in the order of :meth:`units`. Example: the state FIPS
            of the two parts of every state, so that the known state total can be laid on their sum.
        """
        return Spine(*_build.insert_level(self, name, above, groups))


@dataclass(frozen=True, eq=False)
class Contraction:
    """A contracted spine, and where each unit of the old one went.

    Parameters
    ----------
    spine
        The spine without chains.
    unit
        Index in ``spine`` of every unit of the old spine, shape (n,).
    """

    spine: Spine
    unit: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Refuse a map that does not cover the spine."""
        if np.unique(self.unit).size != len(self.spine):
            msg = (
                f"{np.unique(self.unit).size} units are named for a spine of {len(self.spine)}: every "
                "unit needs a source"
            )
            raise BudgetError(msg, self.unit)
