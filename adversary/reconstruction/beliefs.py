"""What an adversary believes of a household before she looks: shares of configurations, bedrooms included.

What it is: shares of census configurations (a microdata sample's) spread over what no sample knows: whether
the household is subsidised, in which property, and with how many bedrooms given its size. What it is not: an
estimate of anything; the three are assumptions, and the last decides the answer. On 80 synthetic blocks the
posterior of a violation separated blocks with an area under the curve of .99 where she knew how units are
fitted to need, and .53 where she took all bedrooms for equally likely (project's specification, section 4):
so study them, and say which was taken.

Held to account by tests/reconstruction/test_beliefs.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction.synthetic import BEDROOMS_RIGHT_SIZED

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.households import Configurations

__all__ = ["BEDROOMS_FLAT", "attacker_shares", "bedrooms_given_size"]

BEDROOMS_FLAT: tuple[tuple[float, float, float], ...] = ((1 / 3, 1 / 3, 1 / 3),) * 7
"""P(0-1, 2, 3+ bedrooms | size): nothing known of how units are fitted to need."""


def bedrooms_given_size(
    within: ArrayLike = BEDROOMS_RIGHT_SIZED, violating: float = 0.034, two: float = 0.85
) -> NDArray[np.float64]:
    """Return P(0-1, 2, 3+ bedrooms | size) with some households over the occupancy limit, shape (7, 3).

    Parameters
    ----------
    within
        The same for households within the limit, seven rows of three (`BEDROOMS_RIGHT_SIZED`,
        ``BEDROOMS_TO_NEED`` or ``BEDROOMS_LOOSE`` of `adversary.reconstruction.synthetic`).
    violating
        P(over the limit | subsidised, three persons or more), 0 to 1.
    two
        Of those of five or more, the share in 2 bedrooms; the others, and all smaller ones, in 0-1.

    Examples
    --------
    >>> bedrooms_given_size(violating=0.1)[[0, 2, 4]].round(3).tolist()
    [[1.0, 0.0, 0.0], [0.1, 0.9, 0.0], [0.015, 0.085, 0.9]]
    """
    table = np.array(within, dtype=np.float64)
    if table.shape != (7, 3) or not (0 <= violating <= 1 and 0 <= two <= 1):
        msg = (
            f"within of shape {table.shape}, violating={violating}, two={two}: (7, 3), and shares from 0 to 1"
        )
        raise ModelError(msg, (table.shape, violating, two))
    over = np.array([[1.0, 0.0, 0.0]] * 4 + [[1 - two, two, 0.0]] * 3)
    share = np.where(np.arange(7) >= 2, violating, 0.0)[:, None]
    return np.asarray((1 - share) * table + share * over)


def attacker_shares(
    configurations: Configurations,
    census_shares: ArrayLike,
    *,
    subsidised: float | ArrayLike = 0.47,
    bedrooms: ArrayLike = BEDROOMS_FLAT,
) -> NDArray[np.float64]:
    """Spread census shares over subsidy, property and bedrooms.

    Parameters
    ----------
    configurations
        A table with property, bedrooms and size (see `household_configurations`).
    census_shares
        Share of the census part of each configuration, in any unit, shape (K,), as
        `SyntheticState.shares` returns it: the same for all that differ in property and bedrooms only.
    subsidised
        P(subsidised) of a household, one number or one for each configuration (the same within a census
        part); 0.47 of the paper. Properties share it equally.
    bedrooms
        P(0-1, 2, 3+ bedrooms | size) of a subsidised household, shape (7, 3), rows adding up to 1:
        `BEDROOMS_FLAT` or `bedrooms_given_size`. Sizes above 7 take the last row.

    Returns
    -------
    ndarray
        Probabilities, shape (K,), adding up to 1.

    Examples
    --------
    >>> from adversary.reconstruction.households import OVER_LIMIT, SUBSIDISED, household_configurations
    >>> table = household_configurations()
    >>> p = attacker_shares(table, np.ones(len(table)), bedrooms=bedrooms_given_size(violating=0.1))
    >>> float(p[table.mask(SUBSIDISED)].sum().round(3)), float(p[table.mask(OVER_LIMIT)].sum().round(4))
    (0.47, 0.042)
    """
    census = np.asarray(census_shares, dtype=np.float64)
    table, p = np.asarray(bedrooms, dtype=np.float64), np.asarray(subsidised, dtype=np.float64)
    size = len(configurations)
    if census.shape != (size,) or (census < 0).any() or not np.isfinite(census).all() or not census.any():
        msg = f"census shares of shape {census.shape} for {size} configurations: finite, 0 or more, not all 0"
        raise ModelError(msg, census.shape)
    rows_add_up = table.ndim == 2 and table.shape[1] == 3 and np.allclose(table.sum(axis=1), 1)
    if not rows_add_up or (table < 0).any() or p.shape not in ((), (size,)) or ((p < 0) | (p > 1)).any():
        msg = "bedrooms= takes rows of three probabilities, subsidised= probabilities from 0 to 1, one or one each"
        raise ModelError(msg, (table.shape, p.shape))
    outside = configurations.labels("property") == "none"
    homes = len(configurations.attribute("property").levels) - 1
    persons = np.minimum(configurations.number("size"), len(table)) - 1
    levels = np.array(
        [{"0-1": 0, "2": 1, "3+": 2}.get(label, 0) for label in configurations.labels("bedrooms")]
    )
    inside = p * table[persons, levels] / max(homes, 1)
    out = census * np.where(outside, 1 - p, inside)
    if not out.sum() > 0:
        msg = "no configuration is left with a positive share: check subsidised= against the table of configurations"
        raise ModelError(msg, out.sum())
    return np.asarray(out / out.sum())
