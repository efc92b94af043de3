"""True counts on a spine, by level and state part, and the constraints that hold for them. Internal.

Held to account by ``tests/readers/test_nmf_write.py``. Source: the invariants and bounds of the 2020 redistricting
data (the project's specification of spines, sec. 1 and 9).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import FileFormatError, ReleaseError
from adversary.readers._nmf_rows import Entries, constraint_table
from adversary.release.queries import PL94_PERSONS, PL94_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine
    from adversary.readers.population import BlockCounts

__all__ = ["Truth", "constraint_tables", "facility_counts"]

_MOST = 99_999  # people a facility may hold
_NURSING = 3


@dataclass(frozen=True, eq=False)
class Truth:
    """A spine whose codes nest, and the counts of its leaves."""

    spine: Spine
    counts: BlockCounts
    leaf: NDArray[np.int64]  # unit of every entry

    @classmethod
    def of(cls, spine: Spine, counts: BlockCounts) -> Truth:
        """Find every block in the spine, and check that the spine's codes are those of such files."""
        _check_codes(spine)
        return cls(spine, counts, counts.leaves_of(spine)[counts.block])

    @cached_property
    def positive(self) -> NDArray[np.bool_]:
        """Whether each share of the spine's table is above 0."""
        return np.array([s > 0 for s in self.spine.share_table])

    def measured(self, level: str) -> NDArray[np.bool_]:
        """Whether each unit of a level has a share."""
        return self.positive[self.spine.share_index[self.spine.units(level)]]

    def _above(self, level: str) -> NDArray[np.int64]:
        """Return the unit of ``level`` above (or at) every unit of the spine, -1 above that level."""
        spine, wanted = self.spine, self.spine.levels.index(level)
        unit = np.arange(len(spine))
        while (low := (unit >= 0) & (spine.level_of[unit] > wanted)).any():
            unit[low] = spine.parents[unit[low]]
        return np.where(spine.level_of[unit] == wanted, unit, -1)

    @cached_property
    def _state_of(self) -> tuple[NDArray[np.int64], NDArray[np.str_]] | None:
        if "State" not in self.spine.levels:
            return None
        above = self._above("State")
        codes = self.spine.geocodes[above]
        part = np.where(np.char.str_len(codes) == 2, np.strings.add("0", codes), codes).astype("<U3")
        return above, part

    def parts(self, level: str) -> Iterator[tuple[str | None, NDArray[np.int64]]]:
        """State part (None above the states) and units, sorted by code, of every file of a level."""
        units = self.spine.units(level)
        units = units[np.argsort(self.spine.geocodes[units], kind="stable")]
        if self._state_of is None or self.spine.levels.index(level) < self.spine.levels.index("State"):
            yield None, units
            return
        part = self._state_of[1][units]
        for state in np.unique(part).tolist():
            yield state, units[part == state]

    def entries(self, units: NDArray[np.int64]) -> Entries:
        """Return the counts of some units of one level, numbered as given."""
        level = self.spine.levels[int(self.spine.level_of[units[0]])]
        place = np.full(len(self.spine) + 1, -1)  # the last is for what lies above
        place[units] = np.arange(units.size)
        unit = place[self._leaf_above(level)]
        mine = unit >= 0
        order = np.argsort(unit[mine], kind="stable")
        return Entries(
            units.size, unit[mine][order], self.counts.cell[mine][order], self.counts.count[mine][order]
        )

    def _leaf_above(self, level: str) -> NDArray[np.int64]:
        above: NDArray[np.int64] = self._above(level)[self.leaf]
        return above

    @cached_property
    def state_totals(self) -> dict[str, int]:
        """State FIPS -> everybody, both parts together."""
        if self._state_of is None:
            return {}
        fips = self._state_of[1][self.leaf].astype("<U3")
        names, place = np.unique(np.array([f[-2:] for f in fips.tolist()], np.str_), return_inverse=True)
        total = np.zeros(names.size, np.int64)
        np.add.at(total, place.ravel(), self.counts.count)
        out = dict(zip(names.tolist(), total.tolist(), strict=True))
        empty = {f[-2:] for f in self._state_of[1][self.spine.leaves].tolist()} - set(out)
        return dict(sorted({**out, **dict.fromkeys(empty, 0)}.items()))

    @cached_property
    def minors_in_nursing(self) -> int:
        """People under 18 in nursing facilities, which the 2020 data do not have."""
        if self.counts.histogram is not PL94_PERSONS:
            return 0
        hhgq, adult, _, _ = np.unravel_index(self.counts.cell, PL94_PERSONS.sizes)
        return int(self.counts.count[(hhgq == _NURSING) & (adult == 0)].sum())

    def notes(self, bounded: bool) -> tuple[str, ...]:
        """Return what the constraints of the files do and do not say."""
        out = ["simulated: the noise is pseudo-random"]
        if self.counts.histogram is PL94_PERSONS and not bounded:
            out.append(
                "no facilities were given: the bounds of group quarters in Constraint are the trivial ones"
            )
        if self.minors_in_nursing:
            out.append(
                f"{self.minors_in_nursing:,} people under 18 are in nursing facilities, so no constraint forbids it"
            )
        return tuple(out)


def _check_codes(spine: Spine) -> None:
    """Refuse a spine that cannot be told from the prefixes of its codes."""
    if not spine.uniform:
        msg = "a path of the spine skips a level: noisy measurement files have every unit at every level"
        raise FileFormatError(msg, spine)
    lengths = np.char.str_len(spine.geocodes)
    for k, level in enumerate(spine.levels):
        mine = lengths[spine.level_of == k]
        if np.ptp(mine):
            msg = f"codes of level {level} have {mine.min()} to {mine.max()} characters: give them one width"
            raise FileFormatError(msg, level)
    below = np.flatnonzero(spine.parents >= 0)
    above = spine.geocodes[spine.parents[below]]
    wrong = np.flatnonzero(
        ~np.strings.startswith(spine.geocodes[below], above)
        | (lengths[below] <= lengths[spine.parents[below]])
    )
    if wrong.size:
        odd, parent = str(spine.geocodes[below[wrong[0]]]), str(above[wrong[0]])
        msg = f"code {odd!r} does not begin with its parent's, {parent!r}, and go on: join the codes (nested=True)"
        raise FileFormatError(msg, odd)
    if "State" in spine.levels:
        codes = spine.codes(spine.units("State"))
        bad = next((c for c in codes if not re.fullmatch(r"[01]?\d{2}", c)), None)
        if bad is not None:
            msg = f"State {bad!r} is neither two digits of FIPS nor an AIAN digit and FIPS: rename the level"
            raise FileFormatError(msg, bad)


def facility_counts(truth: Truth, facilities: BlockCounts) -> tuple[NDArray[np.int64], Truth]:
    """Facilities of every leaf, shape (units of the spine, 8), checked against the true counts."""
    if (
        tuple(facilities.histogram.axes.items()) != (("hhgq", 8),)
        or truth.counts.histogram is not PL94_PERSONS
    ):
        msg = (
            "facilities are counts of Histogram({'hhgq': 8}) beside persons of the redistricting data, got "
            f"{dict(facilities.histogram.axes)}"
        )
        raise ReleaseError(msg, facilities)
    own = Truth.of(truth.spine, facilities)
    gates = np.zeros((len(truth.spine), 8), np.int64)
    np.add.at(gates, (own.leaf, facilities.cell), facilities.count)
    people = np.zeros_like(gates)
    hhgq = np.unravel_index(truth.counts.cell, PL94_PERSONS.sizes)[0]
    np.add.at(people, (truth.leaf, hhgq), truth.counts.count)
    least = gates.copy()
    least[:, 0] = 0  # housing units may be vacant
    bad = np.argwhere((people < least) | (people > _MOST * gates))
    if bad.size:
        unit, kind = int(bad[0, 0]), int(bad[0, 1])
        msg = (
            f"block {truth.spine.geocodes[unit]!s} has {people[unit, kind]} people in {gates[unit, kind]} facilities of "
            f"type {kind} of hhgq (0 is housing units): a facility holds 1 to {_MOST:,}, a housing unit 0 or more"
        )
        raise ReleaseError(msg, (str(truth.spine.geocodes[unit]), kind))
    return gates, own


def constraint_tables(truth: Truth, level: str, units: NDArray[np.int64], gates: Any) -> Iterator[Any]:
    """Arrow tables of the constraints of some units of a level; every unit is in at least one."""
    spine, histogram = truth.spine, truth.counts.histogram
    codes, axes = spine.geocodes[units], dict.fromkeys(histogram.axes, "*")
    zeros = np.zeros((units.size, 1), np.int64)
    entries = truth.entries(units)
    total = entries.answers(np.zeros(histogram.cells, np.int64), 1, 0, units.size)
    if histogram is PL94_UNITS:  # the number of housing units is an invariant at every level
        yield constraint_table(codes, "total", "=", total, axes)
        return
    if histogram is not PL94_PERSONS:
        yield constraint_table(codes, "total_lb", ">=", zeros, axes)
    else:
        by_type = {**axes, "hhgq": "detailed"}
        bounds = np.zeros((units.size, 8), np.int64)
        if gates is not None:
            given = gates[1].entries(units).answers(np.arange(8), 8, 0, units.size)
            bounds = given.copy()
            bounds[:, 0] = 0
            yield constraint_table(codes, "hhgq_total_ub", "<=", _MOST * given, by_type)
        yield constraint_table(codes, "hhgq_total_lb", ">=", bounds, by_type)
        if not truth.minors_in_nursing:
            where = {**axes, "hhgq": "gqNursingTotal", "votingage": "nonvoting"}
            yield constraint_table(codes, "nurse_nva_0", "=", zeros, where)
    if spine.levels.index(level) == 0 and units.size == spine.units(level).size == 1:
        yield constraint_table(codes, "total", "=", total, axes)  # one root: its total is an invariant
