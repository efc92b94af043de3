"""How accurate a spine is: the noise left in the totals of its units and of places that are not on it.

What a unit's own queries say about its total is worked out by the matrix mechanism; two passes over the
tree put all units together; any set of blocks then has its standard deviation. So one budget can be tried
on the conventional, the AIAN and the optimised spine before anything is measured. Totals are estimated from
totals; estimating all cells jointly can only do better. What this module is not: risk (who can be
recognised), or post-processing, which changes accuracy further.

Held to account by ``tests/geography/test_compare.py`` (dense least squares; the variances of the production
run). Sources: Cumings-Menon et al., arXiv 2203.16654, sec. 2 and 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError
from adversary.geography.blocks import text_codes
from adversary.release.estimate import TreeEstimate, two_pass
from adversary.release.queries import Reduction, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine

__all__ = ["entity_deviations", "total_estimate", "total_noise"]


def total_noise(spine: Spine, strategies: Mapping[str, Strategy], rho: Any) -> NDArray[np.float64]:
    """Variance of every unit's total as its own queries alone give it; inf where nothing was measured.

    Parameters
    ----------
    spine
        A spine with shares.
    strategies
        Level -> its query mix. A bypassed share counts with the mix of the level that it moved to.
    rho
        Whole budget (bounded neighbours).

    Returns
    -------
    ndarray, shape (n,)
        Variance of each unit's total; inf where nothing was measured.

    Raises
    ------
    BudgetError
        If a measured level has no strategy.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> from adversary.release.queries import Histogram
    >>> table = {"tract": ["1", "1"], "block": ["11", "12"]}
    >>> spine = Spine.from_blocks(table, {"tract": "1/2", "block": "1/2"})
    >>> h = Histogram({"sex": 2})
    >>> mixes = {"tract": Strategy(h, {"total": 1, "sex": 0}), "block": Strategy(h, {"sex": 1})}
    >>> total_noise(spine, mixes, 1).round(9)
    array([2., 4., 4.])
    """
    shares = spine.shares
    out = np.full(len(spine), np.inf)
    for k, level in enumerate(spine.levels):
        units = np.flatnonzero((spine.level_of == k) & (shares > 0))
        if not units.size:
            continue
        if level not in strategies:
            msg = f"level {level} has budget but no strategy: name the queries of every measured level"
            raise BudgetError(msg, level)
        out[units] = _whole_budget(strategies[level], rho) / shares[units]
    return out


def _whole_budget(strategy: Strategy, rho: Any) -> float:
    """Variance of the total if a unit had all of rho: every noise is proportional to 1 / share.

    The total lies in the pattern "mean of every rotated axis", and every query group partitions the cells,
    so the total is determined even where single cells are not.
    """
    noise = strategy.sigma2(rho)
    reduction = Reduction([strategy.histogram.group(name) for name in noise])
    block = reduction.blocks([1 / float(s) for s in noise.values()], reduction.patterns[0])
    return float(strategy.histogram.cells / reduction.width * np.linalg.pinv(block, hermitian=True).sum())


def total_estimate(
    spine: Spine, strategies: Mapping[str, Strategy], rho: Any, exact: Any = None
) -> TreeEstimate:
    """Covariance structure of the least-squares estimates of all totals (its estimates are all zero).

    Parameters
    ----------
    spine, strategies, rho
        As in :func:`total_noise`.
    exact
        Units whose total is an invariant (state totals), as indices or codes; default: none.

    Returns
    -------
    TreeEstimate
        ``.sd`` of every unit; ``.variance_of(weights)`` of any weighted sum.
    """
    noise = total_noise(spine, strategies, rho)
    if exact is not None:
        noise[[spine.index(u) for u in exact]] = 0.0
    return two_pass(spine.parents, np.zeros(len(spine)), noise)


def entity_deviations(spine: Spine, estimate: TreeEstimate, codes: Any) -> dict[str, float]:
    """Return the standard deviation of the estimated total of every entity of one kind.

    Parameters
    ----------
    spine
        The spine of the estimate.
    estimate
        From :func:`total_estimate`.
    codes
        Code of the entity of every leaf, in the order of ``spine.leaves``; blank is "in none".

    Returns
    -------
    dict
        Code -> standard deviation, in persons; inf if the measurements do not determine the total.
    """
    labels = text_codes(codes, "entity")
    if labels.size != spine.leaves.size:
        msg = f"{labels.size} codes for {spine.leaves.size} leaves: give one a leaf, blank for none"
        raise BudgetError(msg, labels.size)
    out = {}
    for code in np.unique(labels[labels != ""]).tolist():
        weights = np.zeros(len(spine))
        weights[spine.leaves[labels == code]] = 1.0
        out[code] = float(np.sqrt(max(estimate.variance_of(weights), 0.0)))
    return out
