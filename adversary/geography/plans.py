"""From an allocation to a spine: the share of every level, and the queries that the level asks.

An :class:`~adversary.privacy.budget.Allocation` names its levels in small letters (``nation``,
``block_group``); the spines of :mod:`adversary.geography.das` are called as the Bureau's files are (``US``,
``Block_Group``). The functions here translate and never guess: a level that has budget but is not in the
allocation is named.

What this module is not: a budget (:mod:`adversary.privacy.budget`) or the noise of a unit, which comes from
its own share and its level's mix.

Held to account by ``tests/geography/test_plans.py``. Source: U.S. Census Bureau,
DAS_2020_Redistricting_Production_Code (names of levels); the project's specification of spines, sec. 4.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy.budget import Rho
from adversary.release.queries import PL94_PERSONS, PL94_UNITS, Histogram, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine
    from adversary.privacy.budget import Allocation

__all__ = ["level_shares", "one_query", "query_noise", "query_shares", "strategies_of"]


def level_shares(allocation: Allocation) -> dict[str, Fraction]:
    """Share of rho of every level, by the names that the spines of the 2020 system have.

    Parameters
    ----------
    allocation
        Budget and levels.

    Returns
    -------
    dict
        Level of the spine -> exact share.

    Examples
    --------
    >>> from adversary.privacy.budget import Allocation
    >>> shares = level_shares(Allocation.load("2020-pl94-persons"))
    >>> list(shares), str(shares["Block"])
    (['US', 'State', 'County', 'Tract', 'Block_Group', 'Block'], '165/4099')
    """
    return {_das_name(level): share for level, share in allocation.level.items()}


def _das_name(level: str) -> str:
    return "US" if level == "nation" else "_".join(part.capitalize() for part in level.split("_"))


def _measured(spine: Spine) -> list[str]:
    positive = np.array([s > 0 for s in spine.share_table])[spine.share_index]
    return [spine.levels[k] for k in np.unique(spine.level_of[positive]).tolist()]


def query_shares(spine: Spine, allocation: Allocation) -> dict[str, dict[str, Fraction]]:
    """Return the query mix of every measured level of a spine: level -> query -> share of the level's budget.

    Raises
    ------
    BudgetError
        If a measured level is not in the allocation.
    """
    return {level: dict(allocation.query[allocation.level_named(level)]) for level in _measured(spine)}


def one_query(spine: Spine) -> dict[str, Strategy]:
    """Return strategies that ask one count a unit with all of its budget, for a spine without an allocation."""
    return dict.fromkeys(_measured(spine), Strategy(Histogram({"persons": 1}), {"total": 1}))


def strategies_of(
    spine: Spine, allocation: Allocation, histogram: Histogram | None = None
) -> dict[str, Strategy]:
    """Query mix of every measured level of a spine, on a histogram.

    Parameters
    ----------
    spine
        The spine.
    allocation
        Budget, levels and queries.
    histogram
        What the queries are asked of; default: persons or units of the redistricting data, whichever knows
        the queries' words. An allocation that asks nothing but ``detailed`` and ``total`` is the units'.

    Raises
    ------
    BudgetError
        If a measured level is not in the allocation.
    ReleaseError
        If the queries have words that neither histogram knows (DHC): give one that does.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> from adversary.privacy.budget import Allocation
    >>> table = {"Block_Group": ["1", "1"], "Block": ["11", "12"]}
    >>> spine = Spine.from_blocks(table, {"Block_Group": "1/2", "Block": "1/2"})
    >>> str(strategies_of(spine, Allocation.load("2020-pl94-persons"))["Block"].alphas["detailed"])
    '3945/4097'
    """
    mixes = query_shares(spine, allocation)
    if histogram is None:
        asked = {query for mix in mixes.values() for query in mix}
        histogram = PL94_UNITS if asked <= {"detailed", "total"} else PL94_PERSONS
    for mix in mixes.values():
        for query in mix:
            try:
                histogram.group(query)
            except ReleaseError as error:
                msg = (
                    f"{error}; the queries of this allocation need a histogram of their own: give histogram="
                )
                raise ReleaseError(msg, query) from None
    return {level: Strategy(histogram, mix) for level, mix in mixes.items()}


def query_noise(
    spine: Spine, mixes: Mapping[str, Mapping[str, Any]], rho: Any, query: str
) -> NDArray[np.float64]:
    """Noise parameter of one query's counts at every unit: 1 / (rho share alpha); inf where it was not asked.

    Parameters
    ----------
    spine
        A spine with shares.
    mixes
        Level -> query -> share of the level's budget; from :func:`query_shares`.
    rho
        Whole budget, exact (bounded neighbours).
    query
        Name of the query, such as ``"detailed"``.

    Returns
    -------
    ndarray, shape (n,)
        sigma2 of one count. A share that was bypassed upwards counts with the mix of the level that it is
        now in, which is how the 2020 system spent it; a table of levels would be wrong there.

    Raises
    ------
    BudgetError
        If no measured level asks the query, a measured level has no mix, or rho is not finite.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]}, {"tract": "1/2", "block": "1/2"})
    >>> mixes = {"tract": {"total": "1/2", "sex": "1/2"}, "block": {"sex": 1}}
    >>> query_noise(spine, mixes, 2, "sex").tolist()
    [2.0, 1.0, 1.0]
    """
    budget = Rho(rho).fraction
    measured = _measured(spine)
    missing = [level for level in measured if level not in mixes]
    if missing:
        msg = f"level {missing[0]} has budget but no queries: name the mix of every measured level"
        raise BudgetError(msg, missing[0])
    word = _plain(query)
    alpha = {
        level: next((Fraction(a) for name, a in mixes[level].items() if _plain(name) == word), Fraction(0))
        for level in measured
    }
    if not any(alpha.values()):
        there = dict.fromkeys(name for level in measured for name in mixes[level])
        msg = f"no measured level asks the query {query!r}: the queries are {', '.join(there)}"
        raise BudgetError(msg, query)
    out = np.full(len(spine), np.inf)
    for k, level in enumerate(spine.levels):
        if level not in alpha or not alpha[level]:
            continue
        noise = [
            float(1 / (budget * s * alpha[level])) if budget * s > 0 else np.inf for s in spine.share_table
        ]
        units = np.flatnonzero(spine.level_of == k)
        out[units] = np.array(noise)[spine.share_index[units]]
    return out


def _plain(query: str) -> str:
    return " * ".join(part.strip() for part in query.lower().split("*"))
