"""Noisy measurement files of the 2020 Census: every noisy count that the Bureau published, with its noise.

``NoisyMeasurements.open`` looks at the folders only; a file is opened when something in it is asked for, and read
in batches. What comes out is ready for an attack: geocodes as text, values as int64, and sigma^2, the parameter
of the discrete Gaussian (not its variance, which is what the file gives), as float64.

What this module is not: post-processed tables or microdata (:mod:`adversary.readers.pl94`,
:mod:`adversary.readers.ppmf`), which must not be given this noise; nor an attack.

Not seen by the authors: a production file. The layout is that of the Bureau's public readers of these files, so
the first real file may hold a surprise; everything that does not fit is refused with file and row.

Held to account by ``tests/readers/test_nmf.py`` (user reports P5, P15 to P18) and ``tests/readers/test_nmf_write.py``
(written and read again). Sources: U.S. Census Bureau, 2020 PL 94-171 and DHC Noisy Measurement Files; Cumings-Menon
et al., arXiv 2203.16654; the project's specification of spines, sec. 9.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import FileFormatError
from adversary.privacy.budget import Allocation, noise_scale
from adversary.readers import _nmf_columns as _columns
from adversary.readers import _nmf_noise as _noise
from adversary.readers import _nmf_spine as _spine
from adversary.readers._nmf_answers import Answers, Constraint, gathered, joined, place_in
from adversary.readers._nmf_layout import (
    CONSTRAINT,
    DPQUERY,
    LEVEL_ORDER,
    Part,
    find_product,
    geocode16_of,
    geoid_of,
    level_parts,
    state_parts,
)
from adversary.release.queries import PL94_PERSONS, PL94_UNITS, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine

    States = str | Sequence[str] | None

__all__ = [
    "DHC_PERSONS",
    "Answers",
    "Constraint",
    "NoisyMeasurements",
    "geocode16_of",
    "geoid_of",
]

DHC_PERSONS = Histogram({"relgq": 42, "sex": 2, "age": 116, "hispanic": 2, "cenrace": 63})
"""Persons of the 2020 Demographic and Housing Characteristics: 1,227,744 cells. The recodes are not here."""

_PRODUCTS = {
    ("hhgq", "votingage", "hispanic", "cenrace"): ("persons", PL94_PERSONS),
    ("h1",): ("units", PL94_UNITS),
    ("relgq", "sex", "age", "hispanic", "cenrace"): ("dhc-persons", DHC_PERSONS),
}
_NO_AXES = ("geocode", "query_name", "query_shape", "value", "variance", "sign", "plb", "State", "County")
_SIGNS = {"=": "=", "==": "=", "<=": "<=", "le": "<=", ">=": ">=", "ge": ">="}


@dataclass(frozen=True, eq=False)
class NoisyMeasurements:
    """Noisy measurement files in a folder, level by level in ``parts``; make it with :meth:`open`.

    Attributes
    ----------
    folder
        The product's folder.
    product
        ``"persons"``, ``"units"``, ``"dhc-persons"``, or the names of the axes of an unknown product.
    levels
        Levels there, root to leaf.
    histogram
        What the queries are asked of; None where that is not known.
    allocation
        The budget, if one was given: sigma^2 is then exact and the spine has shares.
    convention
        Neighbours of the budget; production's are ``"bounded"``.
    state_totals
        State FIPS -> population, from outside (the files do not hold it), or None.
    """

    folder: Path
    product: str
    levels: tuple[str, ...]
    parts: Mapping[str, Mapping[str, tuple[Part, ...]]] = field(repr=False)
    histogram: Histogram | None = None
    allocation: Allocation | None = None
    convention: str = "bounded"
    state_totals: Mapping[str, int] | None = None

    # ---------------------------------------------------------------- opening
    @classmethod
    def open(
        cls,
        root: str | Path,
        allocation: Allocation | str | None = None,
        *,
        convention: str = "bounded",
        histogram: Histogram | None = None,
        state_totals: Mapping[str, int] | str | Path | None = None,
    ) -> NoisyMeasurements:
        """Look at a folder of noisy measurement files; nothing is read but the columns of one file.

        Parameters
        ----------
        root
            Folder of one product, such as ``US_Person_PL_PROD``, or its parent if it holds only one.
        allocation
            The run's budget (or the name of a published one, such as ``"2020-pl94-persons"``). With it sigma^2 is the
            exact 1 / (rho gamma alpha) instead of a number printed with 24 bits, and :meth:`spine` has shares.
        convention
            Neighbours of the budget: ``"bounded"`` in production.
        histogram
            What the queries are asked of, for a product that is none of the Bureau's.
        state_totals
            State FIPS -> population (invariant, but not in the files), or a CSV file with the columns ``geocode`` and
            ``value``.

        Raises
        ------
        FileFormatError
            If there is no product, or there are several; if pyarrow is missing; for a folder whose State was made a
            number (``State=1``).
        """
        _columns.require_pyarrow()
        folder = find_product(root)
        parts = level_parts(folder)
        axes = next(_axes(kinds) for kinds in parts.values())
        product, known = _PRODUCTS.get(axes, (" x ".join(axes), None))
        budget = Allocation.load(allocation) if isinstance(allocation, str) else allocation
        totals = (
            _spine.read_state_totals(state_totals) if isinstance(state_totals, str | Path) else state_totals
        )
        noise_scale(1, convention)  # refuses an unknown convention
        return cls(
            folder,
            product,
            _ordered(parts),
            parts,
            histogram or known or _spine.histogram_from_files(axes, parts),
            budget,
            convention,
            None if totals is None else _spine.checked_totals(totals),
        )

    # ---------------------------------------------------------------- what is there
    def __repr__(self) -> str:
        """One line: product, levels, state parts; no file is read for it."""
        states = self.states
        said = "one part" if not states else f"{len(states)} state part{'s' if len(states) > 1 else ''}"
        return f"<NoisyMeasurements {self.folder.name}: {self.product}, {' > '.join(self.levels)}, {said}>"

    @cached_property
    def states(self) -> tuple[str, ...]:
        """State parts that have files, text of three digits."""
        found = {p.state for kinds in self.parts.values() for parts in kinds.values() for p in parts}
        return tuple(sorted(s for s in found if s is not None))

    def _files(self, level: str, kind: str, states: States) -> tuple[Part, ...]:
        if level not in self.levels:
            msg = f"{level!r} is no level of {self.folder.name}: it has {', '.join(self.levels)}"
            raise FileFormatError(msg, level)
        files = self.parts[level][kind]
        wanted = state_parts(states)
        if wanted is None or all(p.state is None for p in files):
            return files
        if not set(wanted) & set(self.states):
            msg = f"no files of state {', '.join(wanted)} in {self.folder.name}: it has {', '.join(self.states)}"
            raise FileFormatError(msg, states)
        return tuple(p for p in files if p.state in wanted)

    def measured(self, level: str, states: States = None) -> tuple[str, ...]:
        """Names of the queries measured at a level (in ``states``), without their ending; reads the names of all its rows."""
        found = {w for part in self._files(level, DPQUERY, states) for w in _columns.words_in(part)}
        return tuple(sorted({w.removesuffix("_dpq") for w in found}, key=lambda w: (w.count("*"), w)))

    def units(self, level: str, states: States = None) -> NDArray[np.str_]:
        """Codes of all units of a level (in ``states``), sorted, text: from Constraint, for bypassed units have no measurement.

        Where a level has no Constraint folder, the codes of DPQuery are all there is: then a bypassed unit is
        missing, and a warning says so.
        """
        files = self._files(level, CONSTRAINT, states)
        if not files:
            files = self._files(level, DPQUERY, states)
            _spine.warn_without_constraint(level)
        return _spine.one_width([_columns.geocodes_of(part) for part in files], level)

    def spine(self, states: States = None, levels: Sequence[str] | None = None) -> Spine:
        """Tree of the units, from the prefixes of their codes, of whatever widths the files have.

        Parameters
        ----------
        states
            Which states; then the level above the states is left out, for its counts are of all states.
        levels
            Levels to use; default: all.

        Returns
        -------
        Spine
            With exact shares of rho if the files were opened with an allocation: a unit without measurements has 0.

        Raises
        ------
        FileFormatError
            For codes that are not nested; for a top level that counts more people than the states at hand.
        BudgetError
            If the shares of some path do not sum to the whole budget.
        """
        return _spine.build(self, states, levels)

    # ---------------------------------------------------------------- measurements
    def batches(
        self, level: str, name: str, states: States = None, *, rows: int | None = None
    ) -> Iterator[Answers]:
        """Noisy answers to one query, a batch of one file's rows at a time, in the order of the files.

        Parameters
        ----------
        level, name
            Level and query (``"total"``, ``"hispanic * cenrace"``, with or without ``_dpq``).
        states
            ``"04"`` for both parts of a state, ``"004"`` or ``"104"`` for one, a list, or None for all.
        rows
            Most rows of a file to decode at once; default: as many as hold some four million numbers.

        Yields
        ------
        Answers
            A batch may have no unit, only dropped ones.

        Raises
        ------
        FileFormatError
            For a query that was not measured there, a unit that Constraint does not list, a unit measured twice, a value
            that is missing or no whole number, each with file and row.
        """
        wanted = _columns.spellings(name, "_dpq")
        any_rows = False
        for part in self._files(level, DPQUERY, states):
            seen: list[NDArray[np.str_]] = []
            for found in _columns.read_rows(part, wanted, rows):
                any_rows = True
                seen += [found.geocode, found.dropped]
                yield self._answers(level, wanted[1], found)
            if seen:
                self._check_units(level, part, np.concatenate(seen), wanted[1])
        if not any_rows:
            there = ", ".join(self.measured(level, states)) or "nothing"
            msg = f"query {name!r} was not measured at level {level}: {there} was"
            raise FileFormatError(msg, name)

    def _answers(self, level: str, name: str, rows: _columns.Rows) -> Answers:
        sigma2, share, shares = self._sigma2(level, name, rows.variance)
        shape = rows.shape
        if shape is None and self.histogram is not None:
            shape = _spine.shape_of(self.histogram, name)
        return Answers(level, name, rows.geocode, rows.values, sigma2, shape, rows.dropped, share, shares)

    def _sigma2(
        self, level: str, name: str, variance: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64] | None, tuple[Fraction, ...]]:
        if self.allocation is None:
            return _noise.sigma2_of(variance), None, ()
        shares = _noise.gamma_candidates(self.allocation, level, self.levels)
        here = self.allocation.level_named(level)
        part = self.allocation.rho(level, name) / self.allocation.level[here]
        candidates = [(g, noise_scale(part * g, self.convention)) for g in shares]
        sigma2, index = _noise.snapped(variance, candidates, f"{level} {name}")
        return sigma2, index, shares

    def _check_units(self, level: str, part: Part, codes: NDArray[np.str_], name: str) -> None:
        units, times = np.unique(codes, return_counts=True)
        if units.size < codes.size:
            twice = str(units[times > 1][0])
            msg = f"{part.name}: {twice!r} has {int(times.max())} rows of the query {name!r}: one is expected"
            raise FileFormatError(msg, twice)
        _columns.check_codes(units, part)
        listing = [p for p in self.parts[level][CONSTRAINT] if p.state == part.state]
        if not listing:
            return
        known = np.concatenate([_columns.geocodes_of(p) for p in listing])
        strange = np.setdiff1d(units, known)
        if strange.size:
            odd = str(strange[0])
            msg = f"{part.name}: {odd!r} was measured but Constraint does not list it: the files are of two releases"
            raise FileFormatError(msg, odd)

    def query(self, level: str, name: str, states: States = None) -> Answers:
        """Noisy answers to the query ``name`` at all units of a level, sorted by code; see :meth:`batches`.

        What does not fit into memory is refused: a national ``detailed`` at blocks is 95 GB. Then take :meth:`batches`,
        :meth:`cell`, or fewer states.
        """
        return gathered(self.batches(level, name, states))

    def cell(self, level: str, name: str, cell: int | Sequence[int], states: States = None) -> Answers:
        """One answer of a query at all units of a level, without keeping the others.

        Parameters
        ----------
        level, name, states
            As for :meth:`batches`.
        cell
            Place of the answer in C order, or its place on every axis of the query's shape.

        Returns
        -------
        Answers
            With ``values`` of shape (n,).
        """
        found = []
        for batch in self.batches(level, name, states):
            size = batch.values.shape[1]
            k = cell if isinstance(cell, int | np.integer) else place_in(cell, batch.shape)
            if len(batch) and not 0 <= k < size:
                msg = f"cell {cell} of {name!r} is not in 0..{size - 1}"
                raise FileFormatError(msg, cell)
            column = batch.values[:, int(k)].copy() if size else np.zeros(0, np.int64)
            found.append(replace(batch, values=column))
        return joined(found)

    def constraints(
        self, level: str, names: Sequence[str] | None = None, states: States = None
    ) -> tuple[Constraint, ...]:
        """Invariants and bounds of a level, one object a name.

        Parameters
        ----------
        level, states
            As for :meth:`batches`.
        names
            Which, with or without ``_con``; default: all.

        Raises
        ------
        FileFormatError
            For a sign that is none, or is missing where the name does not tell it.
        """
        files = self._files(level, CONSTRAINT, states)
        if names is None:
            names = sorted({w.removesuffix("_con") for part in files for w in _columns.words_in(part)})
        return tuple(self._constraint(level, name, files) for name in names)

    def _constraint(self, level: str, name: str, files: Sequence[Part]) -> Constraint:
        wanted = _columns.spellings(name, "_con")
        found = [(p, r) for p in files for r in _columns.read_rows(p, wanted, noisy=False)]
        if not found:
            msg = f"level {level} has no constraint {name!r}"
            raise FileFormatError(msg, name)
        signs = {s for p, r in found for s in _spine.signs(r, p, wanted[1], _SIGNS)}
        if len(signs) > 1:
            msg = f"constraint {name!r} of level {level} has the signs {sorted(signs)}: one is expected"
            raise FileFormatError(msg, sorted(signs))
        answers = [
            Answers(level, wanted[1], r.geocode, r.values, np.zeros(r.geocode.size), r.shape)
            for _, r in found
        ]
        whole = joined(answers)
        return Constraint(level, wanted[1], signs.pop(), whole.geocode, whole.values, whole.shape)

    # ---------------------------------------------------------------- overview
    @property
    def noise_note(self) -> str:
        """Where sigma^2 comes from, in a sentence."""
        if self.allocation is None:
            return (
                "sigma2 is turned back from the published variance, which has 24 bits (relative error 6e-8)"
            )
        return (
            f"sigma2 is exact, 1/(rho gamma alpha) of {self.allocation.title or 'the allocation given'} "
            f"(rho = {self.allocation.total}, {self.convention}); every published variance agreed to 24 bits"
        )

    def table(self, states: States = None) -> str:
        """Table of levels and queries (in ``states``): units, measured units, answers, sigma^2, rows dropped; reads every row."""
        return _spine.table(self, states)


def _axes(kinds: Mapping[str, tuple[Part, ...]]) -> tuple[str, ...]:
    part = next(p for parts in kinds.values() for p in parts)
    return tuple(c for c in _columns.column_types(part) if c not in _NO_AXES)


def _ordered(parts: Mapping[str, Mapping[str, tuple[Part, ...]]]) -> tuple[str, ...]:
    """Levels root to leaf: the Bureau's by name, others by the width of their codes."""
    if set(parts) <= set(LEVEL_ORDER):
        return tuple(k for k in LEVEL_ORDER if k in parts)
    width = {}
    for level, kinds in parts.items():
        part = next(p for k in (CONSTRAINT, DPQUERY) for p in kinds[k])
        width[level] = max((len(c) for c in _columns.geocodes_of(part).tolist()), default=0)
    return tuple(sorted(parts, key=lambda k: (width[k], k)))
