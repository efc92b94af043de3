"""Moving budget between levels: what it does to the risk, and what it costs in accuracy.

Budget is counted as information, ``1 / (2 sigma2)`` of a level's counts, which is the paper's rho and half
the Census Bureau's; a level that gets twice the information has half the noise parameter. The table sets the
disclosure risk beside the standard deviation of the noise at every level, so that a release can be chosen on
the frontier between the two.

Held to account by tests/risk/test_frontier.py.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.two_level import TwoLevelDesign, expected_two_level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["FrontierPoint", "information_gradient", "shift_gradient", "two_level_frontier"]


@dataclass(frozen=True)
class FrontierPoint:
    """One way to split a budget over two levels.

    Parameters
    ----------
    block_share
        Share of the total information that the block's count gets; the group's gets the rest.
    sigma2, group_sigma2
        Noise parameters that follow.
    block_sd, group_sd
        Standard deviations of the noise (not the square roots of the parameters where those are small).
    risk, right
        R and P[right] for a target that is present.
    efficient
        False if another split of the table has no more risk and no more noise at either level, and less of
        one.
    """

    block_share: float
    sigma2: float
    group_sigma2: float
    block_sd: float
    group_sd: float
    risk: float
    right: float
    efficient: bool


def information_gradient(sigma2: Sequence[float], rest_sigma2: Sequence[float]) -> NDArray[np.float64]:
    """Gradient of the effective information of a path in the information of each level, off the constraint.

    The derivative of :func:`adversary.risk.levels.effective_information` in closed form, the noise of the
    rests held fixed: one for the block; for each level up the product of the squared shares ``1 / (1 + 2
    rest_sigma2 J)`` on the way.

    Parameters
    ----------
    sigma2
        Noise parameters of the h counts on the path, block first.
    rest_sigma2
        Noise parameters of the h - 1 sums over siblings.

    Returns
    -------
    ndarray
        Shape (h,), between 0 and 1, decreasing.

    Examples
    --------
    >>> information_gradient([5.0, 2.0], [135.0]).round(6).tolist()
    [1.0, 0.000213]
    """
    if len(rest_sigma2) != len(sigma2) - 1:
        msg = f"{len(sigma2)} levels have {len(sigma2) - 1} rests between them, got {len(rest_sigma2)}"
        raise ModelError(msg, rest_sigma2)
    information = [0.0] * len(sigma2)
    information[-1] = 1.0 / (2.0 * sigma2[-1])
    for level in range(len(sigma2) - 2, -1, -1):
        above = 1.0 / (1.0 / information[level + 1] + 2.0 * rest_sigma2[level])
        information[level] = 1.0 / (2.0 * sigma2[level]) + above
    shares = [1.0] + [(1.0 + 2.0 * r * j) ** -2 for r, j in zip(rest_sigma2, information[1:], strict=True)]
    return np.cumprod(shares)


def shift_gradient(
    measure: Callable[[Sequence[float]], float], information: Sequence[float], step: float = 1e-3
) -> NDArray[np.float64]:
    """Change of a risk per unit of information added to each level, by central differences of fourth order.

    To move budget from level i to level j changes the risk by the difference of their entries.

    Parameters
    ----------
    measure
        Risk as a function of the information of every level (for instance of :func:`expected_two_level` or
        :func:`expected_uniqueness`); must be smooth: R is, P[right] is not.
    information
        Where: ``1 / (2 sigma2)`` of each level.
    step
        Relative step; the error is of the order ``step**4``.

    Returns
    -------
    ndarray
        Shape (levels,).

    Examples
    --------
    >>> shift_gradient(lambda rho: rho[0] ** 2 + 3 * rho[1], [1.0, 2.0]).round(9).tolist()
    [2.0, 3.0]
    """
    at = [float(v) for v in information]
    out = np.empty(len(at))
    for level, value in enumerate(at):
        h = step * value
        moved = [measure([*at[:level], value + k * h, *at[level + 1 :]]) for k in (-2, -1, 1, 2)]
        out[level] = (moved[0] - 8.0 * moved[1] + 8.0 * moved[2] - moved[3]) / (12.0 * h)
    return out


def two_level_frontier(
    design: TwoLevelDesign,
    total: int,
    information: float,
    block_shares: Sequence[float],
    *,
    p: float | None = None,
    log_odds: float | None = None,
) -> list[FrontierPoint]:
    """Risk and accuracy for each way to split a budget over block and block group.

    Parameters
    ----------
    design
        Everything but the noise parameters, which are replaced.
    total
        True count of the group less the known persons of the block.
    information
        Budget, ``1/(2 sigma2)`` summed over the two levels.
    block_shares
        Shares of the block, each in (0, 1).
    p, log_odds
        Prior, given once.

    Returns
    -------
    list of FrontierPoint
        One for each share, in the order given.

    Examples
    --------
    >>> design = TwoLevelDesign(sigma2=1.0, group_sigma2=1.0, others=10)
    >>> table = two_level_frontier(design, 5, 0.5, [0.25, 0.75], p=0.1)
    >>> table[0].risk < table[1].risk, table[0].block_sd > table[1].block_sd
    (True, True)
    """
    rows = []
    for share in block_shares:
        if not 0 < share < 1:
            msg = (
                f"a share must lie strictly between 0 and 1, got {share}: "
                "use expected_one_level for a single level"
            )
            raise ModelError(msg, share)
        block, group = 1.0 / (2.0 * share * information), 1.0 / (2.0 * (1.0 - share) * information)
        split = dataclasses.replace(design, sigma2=block, group_sigma2=group, rest_sigma2=None)
        answer = expected_two_level(split, total, p=p, log_odds=log_odds)
        sd = [math.sqrt(float(dg.variance(s))) for s in (block, group)]
        rows.append(FrontierPoint(float(share), block, group, sd[0], sd[1], answer.risk, answer.right, True))
    cost = np.array([(r.risk, r.block_sd, r.group_sd) for r in rows]).reshape(-1, 3)
    beaten = [bool(np.any(np.all(cost <= c, axis=1) & np.any(cost < c, axis=1))) for c in cost]
    return [dataclasses.replace(r, efficient=not b) for r, b in zip(rows, beaten, strict=True)]
