"""Record swapping as published for 2010: households at risk trade places with a like household nearby.

What it is: households of a state in order of risk (rare signature in their tract first, small block first),
in four tiers that are swapped with probability 1, 0.6, 0.3 and 0.1; partners share the swap key (persons and
adults), are drawn from the five nearest not yet swapped in another place, and the walk stops when the rate is
reached. What it is not: the Bureau's program of 2010, whose key, rate and order are confidential; nor a
privacy guarantee.

The whole census record trades places; subsidy and bedrooms stay with the dwelling, and HUD's file is printed
from the file before swapping. As the walk stops at the rate, at 10 % hardly anybody beyond the riskiest fifth
is ever reached.

Held to account by tests/reconstruction/test_swapping.py. Source: arXiv 2407.04776, footnote 12 (tiers,
probabilities, partners), and the public code that its synthetic data come from (order, key, stopping rule).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction.households import CENSUS_ATTRIBUTES

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.synthetic import SyntheticState

__all__ = ["SwapDesign", "Swapped", "risk_order", "swap", "swap_state"]


@dataclass(frozen=True)
class SwapDesign:
    """How many are swapped, and whom.

    Attributes
    ----------
    rate
        Share of households at which the walk stops, 0 to 1.
    tiers
        Shares of households in each tier, riskiest first; together 1.
    probabilities
        Probability that a household of the tier is swapped when its turn comes.
    partners
        Partners are drawn from this many nearest.
    """

    rate: float = 0.10
    tiers: tuple[float, ...] = (0.005, 0.195, 0.3, 0.5)
    probabilities: tuple[float, ...] = (1.0, 0.6, 0.3, 0.1)
    partners: int = 5

    def __post_init__(self) -> None:
        shares = (self.rate, *self.tiers, *self.probabilities)
        if not all(0 <= share <= 1 for share in shares) or self.partners < 1:
            msg = (
                f"{self} cannot be: rate, tiers and probabilities lie between 0 and 1, with a partner or more"
            )
            raise ModelError(msg, self)
        if len(self.tiers) != len(self.probabilities) or abs(sum(self.tiers) - 1) > 1e-9:
            msg = f"tiers {self.tiers} must add up to 1, with one probability each ({self.probabilities})"
            raise ModelError(msg, self.tiers)


@dataclass(frozen=True, eq=False)
class Swapped:
    """Who traded places with whom.

    Attributes
    ----------
    partner
        The household each one traded places with, int64, shape (n,); -1 for none.
    design
        What was asked for.
    """

    partner: NDArray[np.int64]
    design: SwapDesign

    @property
    def share(self) -> float:
        """Share of households that were swapped."""
        return float((self.partner >= 0).mean()) if self.partner.size else 0.0

    @property
    def short(self) -> bool:
        """Whether the walk ended before the rate was reached: a higher rate changes nothing then."""
        return self.share < self.design.rate

    def apply(self, records: ArrayLike) -> NDArray[np.int64]:
        """Return what stands in every household's place: its own record or its partner's, shape as given.

        Parameters
        ----------
        records
            Any array with one row a record, in the order that was swapped.
        """
        rows = np.asarray(records, dtype=np.int64)
        return np.asarray(rows[np.where(self.partner >= 0, self.partner, np.arange(len(self.partner)))])


def risk_order(signature: ArrayLike, tract: ArrayLike, block_people: ArrayLike) -> NDArray[np.int64]:
    """Return households from the riskiest to the least: rare in their tract first, then small blocks first.

    Parameters
    ----------
    signature
        What makes a household stand out (race and ethnicity), one whole number each, shape (n,).
    tract
        Tract of every household, shape (n,).
    block_people
        Persons in the household's block, shape (n,).

    Returns
    -------
    ndarray
        Indices, int64, shape (n,). Ties keep the order of the file.

    Examples
    --------
    >>> risk_order([0, 0, 1, 0], [0, 0, 0, 1], [9, 5, 9, 9]).tolist()
    [2, 3, 1, 0]
    """
    pairs = np.column_stack([np.asarray(signature), np.asarray(tract)])
    _, at, times = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return np.lexsort((np.asarray(block_people), times[at.ravel()])).astype(np.int64)


def swap(
    order: ArrayLike,
    key: ArrayLike,
    position: ArrayLike,
    design: SwapDesign | None = None,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator,
) -> Swapped:
    """Walk the households in order and let them trade places.

    Parameters
    ----------
    order
        From the riskiest to the least, a permutation of 0 .. n - 1 (see `risk_order`).
    key
        Swap key, one whole number each; partners have the same, shape (n,).
    position
        Where each household lives, shape (n, 2); households in one place never trade.
    design
        None for the paper's: 10 %, four tiers, five partners.
    seed
        The same seed gives the same swaps.

    Returns
    -------
    Swapped
        Nobody is swapped twice; `Swapped.short` says that the rate was out of reach.

    Notes
    -----
    Households as far away as each other (one block) are taken in random order. A household without a partner
    of its key in another place stays where it is. A pair may lift the share above the rate by one household.

    Examples
    --------
    >>> place = [[0, 0], [1, 0], [5, 0], [0, 0]]
    >>> swap([0, 1, 2, 3], [7, 7, 7, 7], place, SwapDesign(0.5, (1.0,), (1.0,), 1), seed=1).partner.tolist()
    [1, 0, -1, -1]
    """
    design = SwapDesign() if design is None else design
    rng = np.random.default_rng(seed)
    walk, keys = np.asarray(order, dtype=np.int64), np.asarray(key)
    place = np.asarray(position, dtype=np.float64)
    n = len(keys)
    if walk.shape != (n,) or place.shape != (n, 2) or not np.array_equal(np.sort(walk), np.arange(n)):
        msg = f"an order of {walk.shape} and places of {place.shape} for {n} households: one of each, every one once"
        raise ModelError(msg, (walk.shape, place.shape))
    partner = np.full(n, -1, dtype=np.int64)
    tier = np.searchsorted(np.cumsum(design.tiers)[:-1] * n, np.arange(n), side="right")
    called = rng.random(n) < np.array(design.probabilities)[tier]
    alike = _groups(keys, rng)
    swapped = 0
    for turn, i in enumerate(walk.tolist()):
        if swapped >= design.rate * n:
            break
        if not called[turn] or partner[i] >= 0:
            continue
        others = alike[keys[i].item()]
        others = others[partner[others] < 0]
        alike[keys[i].item()] = others  # those swapped never come back
        away = ((place[others] - place[i]) ** 2).sum(axis=1)
        elsewhere, away = others[away > 0], away[away > 0]
        if elsewhere.size == 0:
            continue
        near = elsewhere[np.argsort(away, kind="stable")[: design.partners]]
        j = int(near[rng.integers(near.size)])
        partner[i], partner[j] = j, i
        swapped += 2
    return Swapped(partner, design)


def _groups(keys: NDArray[np.int64], rng: np.random.Generator) -> dict[int, NDArray[np.int64]]:
    """Households of every key, in random order, so that equal distances are broken at random."""
    mixed = rng.permutation(len(keys))
    order = mixed[np.argsort(keys[mixed], kind="stable")]
    names, first = np.unique(keys[order], return_index=True)
    ends = np.append(first, len(keys))[1:]
    return {
        name: order[a:b] for name, a, b in zip(names.tolist(), first.tolist(), ends.tolist(), strict=True)
    }


def swap_state(
    state: SyntheticState,
    design: SwapDesign | None = None,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator,
) -> tuple[Swapped, NDArray[np.int64]]:
    """Swap the census records of a synthetic state.

    Parameters
    ----------
    state, design, seed
        See `swap`; the key is (persons, adults), the signature race and ethnicity of the householder.

    Returns
    -------
    tuple
        Who was swapped; and the census records as tabulated afterwards, in the place of the household that
        lives there: int64, shape (n, 4), columns size, children, elderly, race.

    Examples
    --------
    >>> from adversary.reconstruction.synthetic import StateShape, synthetic_state
    >>> swapped, census = swap_state(synthetic_state(StateShape(blocks=60), seed=1), seed=2)
    >>> round(swapped.share, 2), census.shape[1]
    (0.1, 4)
    """
    table = state.configurations()
    columns = [table.column(name) for name in CENSUS_ATTRIBUTES]
    census = state.records[:, columns]
    size, children = (
        np.array(table.attribute(name).values)[state.records[:, table.column(name)]]
        for name in ("size", "children")
    )
    people = np.bincount(state.block, weights=size, minlength=len(state)).astype(np.int64)
    race = state.records[:, table.column("race")]
    order = risk_order(race, state.tract[state.block], people[state.block])
    key = size * 100 + (size - children)
    swapped = swap(order, key, state.position[state.block], design, seed=seed)
    return swapped, swapped.apply(census)
