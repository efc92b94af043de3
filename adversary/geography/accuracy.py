"""How accurate several spines of the same blocks are for the same areas: one table.

The areas are tabulation geography (states, counties, tracts, block groups, blocks), places, county
subdivisions and AIAN areas, whatever the spine: under the optimised spine a tabulation block group is off the
spine, under the conventional one a place is. The standard deviation is that of the least-squares estimate of
the area's total from all counts of the spine (:mod:`adversary.geography.compare`); all areas of a kind are
worked out in one pass, so that the work grows with the number of blocks and not with blocks times areas.

What this module is not: post-processing (the published tables are not least squares), or risk
(:mod:`adversary.spine_risk`).

Held to account by ``tests/geography/test_accuracy.py`` (one area at a time through ``TreeEstimate``, dense
least squares, and the shape of the specification's table). Sources: Cumings-Menon et al., arXiv 2203.16654,
sec. 7; the project's specification of spines, sec. 5 and 6.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import whole
from adversary.errors import AdversaryError, BudgetError
from adversary.geography.blocks import BlockTable, text_codes
from adversary.geography.compare import total_noise
from adversary.privacy.budget import Rho
from adversary.release.estimate import TreeEstimate, two_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from adversary.geography.spine import Contraction, Spine
    from adversary.release.queries import Strategy

__all__ = [
    "KINDS",
    "Accuracy",
    "AccuracyRow",
    "area_codes",
    "compare_accuracy",
    "contracted_estimate",
    "entity_variances",
    "rows_of_leaves",
    "with_state_totals",
    "write_distances",
]

KINDS = (
    "state",
    "county",
    "tract",
    "tabulation block group",
    "block",
    "place",
    "county subdivision",
    "AIAN area",
    "all AIAN areas",
)
"""Kinds of areas that a table of blocks knows."""

_PREFIX = {"state": 2, "county": 5, "tract": 11, "tabulation block group": 12, "block": 16}


def rows_of_leaves(spine: Spine, blocks: BlockTable) -> NDArray[np.int64]:
    """Row of every leaf in a table of blocks, in the order of ``spine.leaves``.

    Parameters
    ----------
    spine
        A spine whose leaves are blocks: their codes are 15-digit GEOIDs or end in a ``geocode16``.
    blocks
        The table; it may have more blocks than the spine.

    Raises
    ------
    AdversaryError
        For a leaf that is no block of the table.

    Examples
    --------
    >>> from adversary.geography.blocks import BlockTable
    >>> from adversary.geography.das import conventional_spine
    >>> blocks = BlockTable(["440010301001001", "440010301001000"])
    >>> rows_of_leaves(conventional_spine(blocks), blocks).tolist()
    [1, 0]
    """
    row = {code: i for i, code in enumerate(blocks.block.tolist())}
    out = np.empty(spine.leaves.size, np.int64)
    for i, code in enumerate(spine.geocodes[spine.leaves].tolist()):
        wanted = code[:12] + code[11:] if len(code) == 15 else code[-16:]
        found = row.get(wanted)
        if found is None:
            msg = f"leaf {code!r} is no block of the table ({len(blocks)} blocks): give the table it was built from"
            raise AdversaryError(msg, code)
        out[i] = found
    return out


def area_codes(blocks: BlockTable, kind: str) -> NDArray[np.str_]:
    """Code of the area of one kind that every block lies in; blank for none.

    Parameters
    ----------
    blocks
        The blocks.
    kind
        One of :data:`KINDS`. Places and county subdivisions carry the state (and county) in front.

    Returns
    -------
    ndarray of str, shape (blocks,)
        The code; blank for none.

    Raises
    ------
    AdversaryError
        For another kind.

    Examples
    --------
    >>> from adversary.geography.blocks import BlockTable
    >>> area_codes(BlockTable(["440010301001001", "440010301001000"], place=["", "74300"]), "place").tolist()
    ['', '4474300']
    """
    if kind in _PREFIX:
        return blocks.prefix(_PREFIX[kind])
    if kind == "place":
        return np.where(blocks.place == "99999", "", np.strings.add(blocks.state, blocks.place))
    if kind == "county subdivision":
        return np.where(blocks.cousub == "99999", "", np.strings.add(blocks.prefix(5), blocks.cousub))
    if kind in ("AIAN area", "all AIAN areas"):
        inside = blocks.inside_aian()
        code = blocks.aiannhce if kind == "AIAN area" else np.strings.add(blocks.state, "AIAN")
        return np.where(inside, code, "")
    msg = f"{kind!r} is no kind of area: choose from {', '.join(KINDS)}"
    raise AdversaryError(msg, kind)


def contracted_estimate(spine: Spine, noise: NDArray[np.float64]) -> tuple[Contraction, TreeEstimate]:
    """Structure of the least-squares estimates, units that cover the same blocks put together.

    Parameters
    ----------
    spine
        Any spine.
    noise
        Variance of every unit's own count, shape (n,); inf where it was not measured, 0 where it is exact.

    Returns
    -------
    Contraction, TreeEstimate
        The estimate is of ``contraction.spine``; the precision of a merged unit is the sum of its parts'.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "2"], "block": ["11", "21"]})
    >>> merged, answer = contracted_estimate(spine, np.array([2.0, 2.0, 2.0, 2.0]))
    >>> answer.variance[merged.unit].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    merged = spine.contract(mixed=True)
    with np.errstate(divide="ignore"):
        precision = np.bincount(merged.unit, 1.0 / np.asarray(noise, float), minlength=len(merged.spine))
        variance = 1.0 / precision
    return merged, two_pass(merged.spine.parents, np.zeros(variance.size), variance)


def with_state_totals(spine: Spine) -> Spine:
    """Return the spine with a unit for every whole state, unmeasured, above the parts of a state.

    The total of a state is published as it is, that of its part inside AIAN areas is not. With
    ``exact=lambda s: s.units("State_Total")`` :func:`compare_accuracy` takes it as known.

    Parameters
    ----------
    spine
        A spine with the level ``State``, whose codes end in the state's FIPS.

    Returns
    -------
    Spine
        With the level ``State_Total`` above ``State``.

    Examples
    --------
    >>> from adversary.geography.blocks import BlockTable
    >>> from adversary.geography.das import aian_spine
    >>> with_state_totals(aian_spine(BlockTable(["440010301001000", "440010301001001"], aiannhce=["", "2415"])))
    <Spine State_Total > State > County > Tract > Block_Group > Block: 11 units, 2 leaves>
    """
    states = [str(code)[-2:] for code in spine.geocodes[spine.units("State")]]
    return spine.insert_level("State_Total", "State", np.array(states, str))


def entity_variances(
    spine: Spine, estimate: TreeEstimate, labels: NDArray[np.str_]
) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Variance of the estimated total of every area of one kind, in one pass up the tree.

    Parameters
    ----------
    spine, estimate
        The spine and the estimate on it (contracted, if it has chains).
    labels
        Code of the area of every leaf, in the order of ``spine.leaves``; blank is "in none".

    Returns
    -------
    codes, variances
        Sorted by code.

    Notes
    -----
    Given their parent, the children's estimates have covariance diag(V) - V V'/S, V from the pass up and S
    their sum; so the coefficient of an area on a parent is a = sum a_c V_c / S, and sum a_c^2 V_c - S a^2 is
    its variance given the parent. Where a unit's total is not determined from below (V infinite), every area
    is taken by itself.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> from adversary.release.estimate import two_pass
    >>> spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]})
    >>> entity_variances(spine, two_pass(spine.parents, np.zeros(3), np.ones(3)), np.array(["A", ""]))
    (array(['A'], dtype='<U1'), array([0.66666667]))
    """
    present = labels != ""
    names, entity = np.unique(labels[present], return_inverse=True)
    if not np.isfinite(estimate.up_variance).all():
        return names, _one_by_one(spine, estimate, names, labels)
    v = estimate.up_variance
    total = np.zeros(len(spine))
    below = np.flatnonzero(spine.parents >= 0)
    np.add.at(total, spine.parents[below], v[below])
    share = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    out = np.zeros(names.size)
    leaves, n = spine.leaves[present], len(spine)
    depth = spine.depth_of[leaves]
    unit, ent, coef = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    for d in range(spine.depth, -1, -1):
        here = depth == d
        unit, ent = np.r_[unit, leaves[here]], np.r_[ent, entity[here]]
        coef = np.r_[coef, np.ones(int(here.sum()))]
        if d == 0:
            break
        own = coef * v[unit]
        keys, inverse = np.unique(ent * n + spine.parents[unit], return_inverse=True)
        first, second = np.bincount(inverse, own, keys.size), np.bincount(inverse, coef * own, keys.size)
        ent, unit = keys // n, keys % n
        # an area that holds all of a unit has its coefficient 1 to the last digit, and nothing is left within
        whole_unit = np.bincount(inverse, coef == 1.0, keys.size) == spine.n_children[unit]
        coef = np.where(whole_unit, 1.0, first * share[unit])
        np.add.at(out, ent, np.where(whole_unit, 0.0, np.maximum(second - first * coef, 0.0)))
    np.add.at(out, ent, coef**2 * v[unit])
    return names, out


def _one_by_one(
    spine: Spine, estimate: TreeEstimate, names: NDArray[np.str_], labels: NDArray[np.str_]
) -> NDArray[np.float64]:
    out = np.empty(names.size)
    for i, name in enumerate(names.tolist()):
        weights = np.zeros(len(spine))
        weights[spine.leaves[labels == name]] = 1.0
        out[i] = estimate.variance_of(weights)
    return out


@dataclass(frozen=True)
class AccuracyRow:
    """Accuracy of one spine for one kind of area: standard deviations of totals, in persons.

    Parameters
    ----------
    spine, kind
        Name of the spine; kind of area.
    areas
        How many.
    mean, median, most
        Over the areas; ``most`` is the largest.
    """

    spine: str
    kind: str
    areas: int
    mean: float
    median: float
    most: float


@dataclass(frozen=True, eq=False)
class Accuracy:
    """What several spines of the same blocks leave uncertain about the same areas.

    Parameters
    ----------
    rows
        One a spine and kind of area.
    deviations
        (spine, kind) -> (codes of the areas, standard deviations).
    """

    rows: tuple[AccuracyRow, ...]
    deviations: Mapping[tuple[str, str], tuple[NDArray[np.str_], NDArray[np.float64]]]

    @property
    def spines(self) -> tuple[str, ...]:
        """Names of the spines."""
        return tuple(dict.fromkeys(r.spine for r in self.rows))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of area, those that have an area."""
        return tuple(dict.fromkeys(r.kind for r in self.rows))

    def row(self, spine: str, kind: str) -> AccuracyRow:
        """Return the row of one spine and kind.

        Raises
        ------
        AdversaryError
            If there is none.
        """
        found = [r for r in self.rows if r.spine == spine and r.kind == kind]
        if not found:
            msg = f"no row of spine {spine!r} and kind {kind!r}: there are {self.spines} and {self.kinds}"
            raise AdversaryError(msg, (spine, kind))
        return found[0]

    def lines(self) -> list[str]:
        """Return the table as text: mean standard deviation, the largest in parentheses."""
        width = max(len(k) for k in ("area", *self.kinds)) + 2
        out = [f"{'area':<{width}}{'areas':>8}" + "".join(f"{s:>24}" for s in self.spines)]
        for kind in self.kinds:
            cells = [self.row(s, kind) for s in self.spines]
            out.append(
                f"{kind:<{width}}{cells[0].areas:>8,}"
                + "".join(f"{f'{r.mean:.4g} ({r.most:.4g})':>24}" for r in cells)
            )
        return out

    def to_csv(self, path: str | Path) -> None:
        """Write one row a spine and area: spine, kind, code (text), standard deviation.

        Parameters
        ----------
        path
            Where to; replaced if it is there.
        """
        with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["spine", "kind", "code", "standard_deviation"])
            for (spine, kind), (codes, sd) in self.deviations.items():
                rows.writerows(
                    (spine, kind, code, repr(value))
                    for code, value in zip(codes.tolist(), sd.tolist(), strict=True)
                )


def compare_accuracy(
    spines: Mapping[str, Spine],
    areas: BlockTable | Mapping[str, Callable[[Spine], Any]],
    strategies: Mapping[str, Mapping[str, Strategy]] | Callable[[Spine], Mapping[str, Strategy]],
    rho: Any,
    *,
    kinds: tuple[str, ...] = KINDS,
    exact: Callable[[Spine], Any] | None = None,
) -> Accuracy:
    """Return the standard deviations of the totals of areas under several spines with one budget.

    Parameters
    ----------
    spines
        Name -> spine, all of the same blocks and with shares.
    areas
        The table of blocks that the spines were built from; or kind -> function that gives the codes of a
        spine's leaves.
    strategies
        Name of the spine -> level -> query mix; or a function that makes the mixes of a spine, such as
        ``lambda spine: strategies_of(spine, allocation)``.
    rho
        Whole budget, exact (bounded neighbours).
    kinds
        Kinds of area, where ``areas`` is a table of blocks.
    exact
        Function that names units of a spine whose total is published as it is (invariants).

    Returns
    -------
    Accuracy
        Kinds without any area are left out.

    Raises
    ------
    BudgetError
        If a function gives another number of codes than there are leaves, or a measured level has no mix.

    Examples
    --------
    >>> from adversary.geography.blocks import BlockTable
    >>> from adversary.geography.das import conventional_spine
    >>> from adversary.geography.plans import one_query
    >>> blocks = BlockTable(["440010301001001", "440010301001000"], place=["", "74300"])
    >>> levels = ("State", "County", "Tract", "Block_Group", "Block")
    >>> spine = conventional_spine(blocks, dict.fromkeys(levels, "1/5"))
    >>> found = compare_accuracy({"conventional": spine}, blocks, one_query, 1, kinds=("state", "place"))
    >>> [(r.kind, round(r.mean, 3)) for r in found.rows]
    [('state', 1.054), ('place', 1.667)]
    """
    rows, deviations = [], {}
    for name, spine in spines.items():
        mixes = strategies(spine) if callable(strategies) else strategies[name]
        noise = total_noise(spine, mixes, Rho(rho).fraction)
        if exact is not None:
            noise[[spine.index(u) for u in exact(spine)]] = 0.0
        merged, estimate = contracted_estimate(spine, noise)
        for kind, codes in _codes_of(spine, areas, kinds).items():
            labels = text_codes(codes, kind)
            if labels.size != spine.leaves.size:
                msg = f"{labels.size} codes of kind {kind!r} for {spine.leaves.size} leaves: give one a leaf"
                raise BudgetError(msg, labels.size)
            found, variance = entity_variances(merged.spine, estimate, _in_order(spine, merged, labels))
            if not found.size:
                continue
            sd = np.sqrt(variance)
            deviations[name, kind] = found, sd
            rows.append(
                AccuracyRow(name, kind, found.size, float(sd.mean()), float(np.median(sd)), float(sd.max()))
            )
    return Accuracy(tuple(rows), deviations)


def _codes_of(
    spine: Spine, areas: BlockTable | Mapping[str, Callable[[Spine], Any]], kinds: tuple[str, ...]
) -> dict[str, Any]:
    if isinstance(areas, BlockTable):
        rows = rows_of_leaves(spine, areas)
        return {kind: area_codes(areas, kind)[rows] for kind in kinds}
    return {kind: codes(spine) for kind, codes in areas.items()}


def _in_order(spine: Spine, merged: Contraction, labels: NDArray[np.str_]) -> NDArray[np.str_]:
    """Labels of the leaves in the order that the contracted spine has them in."""
    place = np.empty(len(merged.spine), np.int64)
    place[merged.unit[spine.leaves]] = np.arange(spine.leaves.size)
    return labels[place[merged.spine.leaves]]


def write_distances(path: str | Path, distances: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
    """Write off-spine entity distances: one row an entity, one column a spine.

    Parameters
    ----------
    path
        CSV file; codes are text.
    distances
        Kind -> spine -> (code -> distance), from :func:`adversary.geography.off_spine.entity_distances`.
    """
    names = list(dict.fromkeys(name for found in distances.values() for name in found))
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["kind", "code", *names])
        for kind, found in distances.items():
            for code in sorted({code for d in found.values() for code in d}):
                rows.writerow([kind, code, *(found[n].get(code, "") if n in found else "" for n in names)])
