"""What a given spine promises: about everything, about one attribute, about where somebody lives within an area.

A certificate (:mod:`adversary.privacy.certificates`) is made from the table of levels. A spine with bypassed
units has paths that spend their budget elsewhere, with the mix of the level they moved it to, and an area may
branch further down than its level says. So here every promise is worked out on the paths themselves, exactly,
for the worst pair of blocks. All is under bounded neighbours in one state: one record replaced by another.

What this module is not: risk (see :mod:`adversary.spine_risk`), or a conversion to epsilon
(:func:`adversary.privacy.accounting.epsilon`).

Held to account by ``tests/geography/test_guarantee.py`` (all pairs of blocks of random spines by
``Spine.rho_between``; certificates where nothing is bypassed). Sources: Cumings-Menon et al., arXiv
2203.16654, Theorem 3; the certificates of the 2020 redistricting data; our own derivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError
from adversary.geography._build import common_denominator
from adversary.geography.blocks import text_codes
from adversary.privacy.accounting import epsilon
from adversary.privacy.budget import Rho
from adversary.privacy.certificates import PL94_WORDS, attribute_rho, location_rho, spine_rho
from adversary.privacy.semantics import best_test

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine
    from adversary.privacy.budget import Allocation

__all__ = [
    "LocationWithin",
    "Promise",
    "attribute_guarantee",
    "location_guarantees",
    "location_within",
    "path_profiles",
    "promises",
    "spine_guarantee",
]


def path_profiles(spine: Spine) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Distinct ways in which a root-to-leaf path spends its budget over the levels.

    Parameters
    ----------
    spine
        Any spine with shares.

    Returns
    -------
    profiles : ndarray of int32, shape (profiles, levels)
        Index into ``spine.share_table`` of the unit at each level; -1 where the path skips the level.
    of_leaf : ndarray of int64, shape (leaves,)
        Profile of every leaf, in the order of ``spine.leaves``.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> table = {"tract": ["1", "1", "2"], "block": ["11", "12", "21"]}
    >>> spine = Spine.from_blocks(table, {"tract": "1/2", "block": "1/2"})
    >>> path_profiles(spine)[1].tolist()
    [0, 0, 0]
    """
    table = np.full((spine.leaves.size, len(spine.levels)), -1, np.int32)
    rows, unit = np.arange(spine.leaves.size), spine.leaves.copy()
    while rows.size:
        table[rows, spine.level_of[unit]] = spine.share_index[unit]
        unit = spine.parents[unit]
        rows, unit = rows[unit >= 0], unit[unit >= 0]
    of_leaf = np.zeros(spine.leaves.size, np.int64)
    for column in table.T.astype(np.int64):  # one level after the other: quicker than rows at once
        of_leaf = np.unique(of_leaf * (len(spine.share_table) + 1) + column + 1, return_inverse=True)[1]
    _, first = np.unique(of_leaf, return_index=True)
    return table[first], of_leaf


def spine_guarantee(spine: Spine, rho: Any, neighbours: str = "bounded") -> Rho:
    """Return the zCDP guarantee of everything that is measured on a spine.

    Parameters
    ----------
    spine
        A spine with shares.
    rho
        Whole budget, exact.
    neighbours
        ``"bounded"`` or ``"unbounded"`` (half as much).

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]}, {"tract": "1/2", "block": "1/2"})
    >>> print(spine_guarantee(spine, "2.56"))
    64/25
    """
    return spine_rho(rho, spine.path_totals(), neighbours)


def attribute_guarantee(
    spine: Spine, allocation: Allocation, attribute: str, words: Mapping[str, str] = PL94_WORDS
) -> Rho:
    """Return the budget that guards one attribute of a record on a given spine, block and all else known.

    Parameters
    ----------
    spine
        A spine whose levels are the allocation's.
    allocation
        Budget and query mixes; its shares of levels are not used, the spine's are.
    attribute, words
        As for :func:`adversary.privacy.certificates.attribute_rho`.

    Returns
    -------
    Rho
        The most over all paths of rho times the shares of the queries that ask for the attribute. At most the
        certificate's where budget only moves to levels that ask for the attribute less.

    Examples
    --------
    >>> from adversary.geography.plans import level_shares
    >>> from adversary.geography.spine import Spine
    >>> from adversary.privacy.budget import Allocation
    >>> allocation = Allocation.load("2020-pl94-persons")
    >>> spine = Spine.from_geocodes(
    ...     ["440010301001000", "440010301001001"],
    ...     {"US": 0, "State": 2, "County": 5, "Tract": 11, "Block_Group": 12, "Block": 15},
    ...     level_shares(allocation),
    ... )
    >>> attribute_guarantee(spine, allocation, "cenrace") == attribute_rho(allocation, "cenrace")
    True
    """
    profiles, _ = path_profiles(spine)
    asked = {}
    for k in np.unique(np.nonzero(_positive(spine)[profiles] & (profiles >= 0))[1]).tolist():
        level = allocation.level_named(spine.levels[k])
        asked[k] = (
            attribute_rho(_only(allocation, level), attribute, words).fraction / allocation.total.fraction
        )
    worst = Fraction(0)
    for profile in profiles.tolist():
        spent = [spine.share_table[i] * asked[k] for k, i in enumerate(profile) if i >= 0 and k in asked]
        worst = max(worst, sum(spent, Fraction(0)))
    return allocation.total * worst


def _positive(spine: Spine) -> NDArray[np.bool_]:
    return np.array([s > 0 for s in spine.share_table])


def _only(allocation: Allocation, level: str) -> Allocation:
    """Allocation that spends everything at one level, with that level's queries."""
    return type(allocation)(allocation.total, {level: 1}, {level: allocation.query[level]})  # type: ignore[dict-item]


def location_guarantees(spine: Spine, rho: Any) -> dict[str, Rho]:
    """Budget that guards the block of a record known to be in one unit of a level: the worst unit of each.

    Parameters
    ----------
    spine
        A spine with shares.
    rho
        Whole budget, exact (bounded neighbours).

    Returns
    -------
    dict
        Level (those with a unit of at least two leaves) -> the most that ``Spine.rho_between`` gives for two
        blocks of one of its units. A level may be a part of what its name says: the state-level unit of an
        AIAN spine is the part of a state inside or outside the areas. For a whole state, or any other area,
        see :func:`location_within`.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> table = {"tract": ["1", "1", "2"], "block": ["11", "12", "21"]}
    >>> spine = Spine.from_blocks(table, {"tract": "2/3", "block": "1/3"})
    >>> {k: str(v) for k, v in location_guarantees(spine, 3).items()}
    {'tract': '1'}
    """
    totals = spine.path_totals()
    if len(totals) > 1:
        msg = f"paths of different sums ({', '.join(sorted(map(str, totals)))}): give a spine whose paths all spend the same"
        raise BudgetError(msg, totals)
    spent, denominator = _spent(spine)
    # the pair that is told apart best meets at the first unit below that branches; -1: no two leaves
    meets = np.where(spine.n_children > 1, np.arange(len(spine)), -1)
    for d in range(spine.depth, 0, -1):
        units = np.flatnonzero(spine.depth_of == d)
        lone = units[spine.n_children[spine.parents[units]] == 1]
        meets[spine.parents[lone]] = meets[lone]
    out = {}
    for level in spine.levels:
        at = meets[spine.units(level)]
        if (at >= 0).any():
            least = min(int(x) for x in spent[at[at >= 0]].tolist())
            out[level] = Rho(Rho(rho).fraction * (next(iter(totals)) - Fraction(least, denominator)))
    return out


@dataclass(frozen=True, eq=False)
class LocationWithin:
    """How well two blocks of the same area can be told apart.

    Parameters
    ----------
    worst
        The most that ``Spine.rho_between`` gives for two blocks of one area, exact; None if no area has two.
    most, mean
        For every leaf, over the other blocks of its area, as floats; NaN where there is none. Shape (leaves,).
    right
        Mean over the other blocks of the probability that the best test of her block against that one is right, prior even
        and Gaussian noise: Phi(d / 2), d^2 twice the budget (:func:`adversary.privacy.semantics.best_test`).
    """

    worst: Rho | None
    most: NDArray[np.float64]
    mean: NDArray[np.float64]
    right: NDArray[np.float64]


def location_within(spine: Spine, areas: Any, rho: Any) -> LocationWithin:
    """Budget that tells one block from the other blocks of its area, whether or not the area is on the spine.

    Parameters
    ----------
    spine
        A spine whose paths all spend the same sum.
    areas
        Code of the area of every leaf, text, in the order of ``spine.leaves``; blank for none.
    rho
        Whole budget, exact (bounded neighbours).

    Returns
    -------
    LocationWithin
        The budget that tells her block from the others of the area.

    Raises
    ------
    BudgetError
        If paths have different sums, or there is not one code a leaf.

    Notes
    -----
    Two blocks whose lowest common unit is c are told apart by rho (T - C(c)), T the sum of a path and C that
    from the root to c (:meth:`adversary.geography.spine.Spine.rho_between`); blocks without a common unit by
    rho T. Of an area's n_u blocks under a unit u with children c, those under c have n_u - n_c partners that
    meet them at u. One pass over pairs of area and unit does all.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> table = {"tract": ["1", "1", "2"], "block": ["11", "12", "21"]}
    >>> spine = Spine.from_blocks(table, {"tract": "2/3", "block": "1/3"})
    >>> found = location_within(spine, ["A", "A", "A"], 3)
    >>> str(found.worst), found.most.tolist(), found.mean.tolist()
    ('3', [3.0, 3.0, 3.0], [2.0, 2.0, 3.0])
    """
    labels = text_codes(areas, "area")
    totals = spine.path_totals()
    if labels.size != spine.leaves.size or len(totals) > 1:
        counted = labels.size == spine.leaves.size
        what = "paths of different sums" if counted else f"{labels.size} codes for {spine.leaves.size} leaves"
        msg = f"{what}: give one code a leaf, of a spine whose paths all spend the same"
        raise BudgetError(msg, labels.size)
    present = np.flatnonzero(labels != "")
    nan = np.full(labels.size, np.nan)
    if not present.size:
        return LocationWithin(None, nan, nan.copy(), nan.copy())
    entity = np.unique(labels[present], return_inverse=True)[1]
    spent, denominator = _spent(spine)
    scale = Rho(rho).fraction / denominator
    whole = int(next(iter(totals)) * denominator)
    met = _Meetings.of(spine, present, entity)
    sums, index = np.unique(spent, return_inverse=True)
    prices = np.array([float(scale * (whole - int(s))) for s in sums.tolist()])
    cost = np.r_[float(scale * whole), prices[index.ravel()]]  # the first: no common unit
    test = np.array([best_test(float(r)) for r in np.unique(cost).tolist()])
    tests = test[np.searchsorted(np.unique(cost), cost)][met.unit + 1]
    most, mean, right = nan.copy(), nan.copy(), nan.copy()
    partners = np.maximum(met.partners.sum(axis=0), 1)
    some = met.partners.sum(axis=0) > 0
    costs = cost[met.unit + 1]
    most[present[some]] = np.where(met.partners > 0, costs, -1.0).max(axis=0)[some]
    mean[present[some]] = ((met.partners * costs).sum(axis=0) / partners)[some]
    right[present[some]] = ((met.partners * tests).sum(axis=0) / partners)[some]
    if not some.any():
        return LocationWithin(None, most, mean, right)
    least = min(0 if u < 0 else int(spent[u]) for u in np.unique(met.unit[met.partners > 0]).tolist())
    return LocationWithin(Rho(scale * (whole - least)), most, mean, right)


def _spent(spine: Spine) -> tuple[NDArray[Any], int]:
    """Share spent from the root down to every unit, as numerators over a denominator."""
    numerators, denominator, dtype = common_denominator(spine.share_table, spine.depth + 1)
    spent = np.array(numerators, dtype=dtype)[spine.share_index]
    for d in range(1, spine.depth + 1):
        units = np.flatnonzero(spine.depth_of == d)
        spent[units] = spent[units] + spent[spine.parents[units]]
    return spent, denominator


@dataclass(frozen=True, eq=False)
class _Meetings:
    """For every leaf of an area and every depth: its unit there (-1: none common) and how many partners meet it first there."""

    unit: NDArray[np.int64]
    partners: NDArray[np.int64]

    @classmethod
    def of(cls, spine: Spine, present: NDArray[np.int64], entity: NDArray[np.int64]) -> _Meetings:
        unit = spine.leaves[present].copy()
        n = len(spine)
        before = np.ones(unit.size, np.int64)  # partners met so far, the leaf itself with them
        units, partners = [], []
        for d in range(spine.depth - 1, -1, -1):
            down = spine.depth_of[unit] > d
            unit[down] = spine.parents[unit[down]]
            count = np.unique(entity * n + unit, return_inverse=True, return_counts=True)
            here = np.where(down, count[2][count[1]], before)
            units.append(unit.copy())
            partners.append(here - before)
            before = here
        size = np.bincount(entity)[entity]
        units.append(np.full(unit.size, -1))
        partners.append(size - before)
        return cls(np.stack(units), np.stack(partners))


@dataclass(frozen=True)
class Promise:
    """One promise of a spine, beside the certificate's.

    Parameters
    ----------
    what
        In what two records differ.
    rho, epsilon
        Budget on the paths of this spine, and its epsilon at the delta asked for.
    certificate_rho, certificate_epsilon
        The same from the table of levels; None where a certificate says nothing.
    """

    what: str
    rho: Rho
    epsilon: float
    certificate_rho: Rho | None = None
    certificate_epsilon: float | None = None


def promises(
    spine: Spine, rho: Any, allocation: Allocation | None, delta: float, words: Mapping[str, str] = PL94_WORDS
) -> list[Promise]:
    """Everything that a spine promises under bounded neighbours in a state, at one delta.

    Parameters
    ----------
    spine
        A spine with shares.
    rho
        Whole budget, exact.
    allocation
        Query mixes, for attributes, and shares of levels, for the certificate's numbers (with this rho); None for neither.
    delta
        Probability of failure, in (0, 1].
    words
        Word in a query's name -> attribute; queries with other words: no promise about attributes.

    Returns
    -------
    list of Promise
        Anything; each attribute, her block and all else known; her block within the units of each level, and within a whole
        state where the spine splits it.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]}, {"tract": "1/2", "block": "1/2"})
    >>> [(p.what, str(p.rho), round(p.epsilon, 2)) for p in promises(spine, 1, None, 1e-6)]
    [('anything', '1', 7.77), ('her block within a tract', '1/2', 5.22)]
    """
    allocation = None if allocation is None else allocation.scaled_to(rho)

    def said(what: str, found: Rho, certified: Rho | None) -> Promise:
        other = None if certified is None else epsilon(certified, delta)
        return Promise(what, found, epsilon(found, delta), certified, other)

    out = [said("anything", spine_guarantee(spine, rho), None if allocation is None else Rho(rho))]
    if allocation is not None and _all_known(allocation, words):
        for attribute in dict.fromkeys(words.values()):
            own = attribute_guarantee(spine, allocation, attribute, words)
            out.append(said(f"value of {attribute}", own, attribute_rho(allocation, attribute, words)))
    parts = _whole_states(spine)
    for level, worst in reversed(location_guarantees(spine, rho).items()):
        certified = None
        if allocation is not None:
            at = allocation.level_named(level)
            certified = location_rho(allocation, at) if at != allocation.levels[-1] else None
        out.append(said(f"her block within {_area(level, split=parts is not None)}", worst, certified))
    if parts is not None:
        worst_in_state = location_within(spine, parts, rho).worst
        if worst_in_state is not None:
            out.append(said("her block within a whole state", worst_in_state, None))
    return out


def _all_known(allocation: Allocation, words: Mapping[str, str]) -> bool:
    asked = {w.strip() for mix in allocation.query.values() for query in mix for w in query.split("*")}
    return len(asked) > 1 and asked <= {*words, "total", "detailed"}


def _area(level: str, *, split: bool) -> str:
    if level == "US":
        return "the nation (by formula)"  # states are no neighbours: their totals are published
    if level == "State" and split:
        return "a state, in or out of AIAN areas"
    return f"a {level.replace('_', ' ').lower()}"


def _whole_states(spine: Spine) -> NDArray[np.str_] | None:
    """State FIPS of every leaf of an AIAN or optimised spine; None for another, or where no state is split."""
    codes = spine.geocodes[spine.leaves]
    if "State" not in spine.levels or not codes.size or int(np.char.str_len(codes).min()) <= 16:
        return None
    states = np.array([code[-16:-14] for code in codes.tolist()])
    part = spine.ancestor("State")
    split = np.unique(part).size > np.unique(states).size
    return states if split else None
