"""Noisy counts of one cell of one query at the units of a spine: where the noise comes from, and what a release looks like.

The noise of a unit is 1 / (rho gamma alpha): gamma is the share of *that unit*, alpha the share of the query in the mix of
the level that the unit is measured at. It is never read from a table of levels: after bypassing, two units of one level can
have different shares.

What it is not: a reader of files (:mod:`adversary.readers.nmf`), or an attack.

Held to account by ``tests/test_spine_attack.py``. Source: Cumings-Menon et al., arXiv 2203.16654, sec. 3 (shares of units,
query mixes, bypassing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy.budget import Allocation, Rho, noise_scale
from adversary.privacy.discrete_gaussian import sample
from adversary.release.queries import Strategy
from adversary.release.simulate import stream

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import ArrayLike, NDArray

    from adversary.geography.spine import Spine

__all__ = ["SpineCounts", "measurements_of", "simulate_counts"]


@dataclass(frozen=True, eq=False)
class SpineCounts:
    """One noisy count a unit, of one cell of one query.

    Parameters
    ----------
    spine
        The units.
    noisy
        Noisy counts, whole numbers, shape (units,); any number where nothing was measured. A count below 0, and children
        that do not add up to their parent, are what noise does: nothing is refused for it.
    sigma2
        Noise parameters, shape (units,): 0 = exact (an invariant), ``inf`` = not measured.
    query, cell
        Which, for what is printed.
    unused
        What was published and is not in these counts, in words.

    Raises
    ------
    ReleaseError
        For counts that are not whole or not one a unit, and a noise that cannot be.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1", "1"], "block": ["11", "12", "13"]})
    >>> SpineCounts(spine, [12, -3, 4, 2], 10.09)
    <SpineCounts tract > block: 4 of 4 units measured>
    """

    spine: Spine
    noisy: ArrayLike
    sigma2: ArrayLike
    query: str = ""
    cell: int | str = ""
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check, and lock."""
        n = len(self.spine)
        s2 = np.array(np.broadcast_to(np.asarray(self.sigma2, np.float64), (n,)))
        if np.any(np.isnan(s2) | (s2 < 0)):
            unit = int(np.flatnonzero(np.isnan(s2) | (s2 < 0))[0])
            msg = f"sigma2 of {self.spine.geocodes[unit]!r} is {s2[unit]}: write 0 for an exact count, inf for one not measured"
            raise ReleaseError(msg, float(s2[unit]))
        given = np.asarray(self.noisy)
        if given.shape != (n,):
            msg = f"{given.size} noisy counts for {n} units: give one a unit, in the order of the spine"
            raise ReleaseError(msg, given.shape)
        seen = np.isfinite(s2)
        if given.dtype.kind not in "iu" and np.any(given[seen] != np.floor(given[seen])):
            unit = int(np.flatnonzero(seen)[np.flatnonzero(given[seen] != np.floor(given[seen]))[0]])
            msg = f"the noisy count of {self.spine.geocodes[unit]!r} is {given[unit]}, not a whole number: are these estimates?"
            raise ReleaseError(msg, given[unit])
        counts = np.where(seen, given, 0).astype(np.int64)
        for name, value in (("noisy", counts), ("sigma2", s2)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """One line: levels, units measured."""
        what = f"{self.query!r} cell {self.cell}, " if self.query else ""
        there = int(np.isfinite(self.sigma2).sum())
        return f"<SpineCounts {' > '.join(self.spine.levels)}: {what}{there:,} of {len(self.spine):,} units measured>"

    @property
    def counts(self) -> NDArray[np.int64]:
        """Noisy counts as an array."""
        return np.asarray(self.noisy, np.int64)

    @property
    def noise(self) -> NDArray[np.float64]:
        """Noise parameters as an array."""
        return np.asarray(self.sigma2, np.float64)

    @cached_property
    def rho_of_presence(self) -> NDArray[np.float64]:
        """Sum of 1 / (2 sigma2) over the path of every unit, shape (units,): what one person more in it changes.

        ``inf`` below an exact count.
        """
        with np.errstate(divide="ignore"):
            total = 0.5 / self.noise
        depth = self.spine.depth_of
        for d in range(1, self.spine.depth + 1):
            units = np.flatnonzero(depth == d)
            total[units] += total[self.spine.parents[units]]
        return np.asarray(total)

    @cached_property
    def roots(self) -> NDArray[np.int64]:
        """Root above every unit, shape (units,)."""
        root = np.arange(len(self.spine))
        depth = self.spine.depth_of
        for d in range(1, self.spine.depth + 1):
            units = np.flatnonzero(depth == d)
            root[units] = root[self.spine.parents[units]]
        return root


def _alpha(strategy: Any, level: str, query: str) -> Fraction:
    """Share of a level's budget that the query has, exact."""
    if isinstance(strategy, Allocation):
        here = strategy.level_named(level)
        return strategy.share(here, query) / strategy.level[here]
    if level not in strategy:
        msg = f"no query mix for level {level!r}, which has units with a share: the strategy names {', '.join(strategy)}"
        raise BudgetError(msg, level)
    given = strategy[level]
    if isinstance(given, Strategy):
        given = given.alphas
    if isinstance(given, Mapping):
        given = given.get(query, 0)
    share = Rho(given).fraction
    if share > 1:
        msg = f"query {query!r} has a fraction of {share} of level {level!r}: a fraction is at most 1"
        raise BudgetError(msg, share)
    return share


def measurements_of(
    spine: Spine, strategy: Any, rho: Any, *, query: str = "detailed", convention: str = "bounded"
) -> NDArray[np.float64]:
    """Noise of every unit's count, from its share and its level's query mix.

    Parameters
    ----------
    spine
        With shares of rho.
    strategy
        Level -> :class:`~adversary.release.queries.Strategy`, or -> query -> fraction, or -> the fraction; or an
        :class:`~adversary.privacy.budget.Allocation`, of which only the queries' fractions are read.
    rho
        Whole budget, exact.
    query
        Which query's cell.
    convention
        ``"bounded"`` (sigma2 = 1 / rho, the Bureau's) or ``"unbounded"`` (1 / (2 rho)).

    Returns
    -------
    ndarray
        sigma2, shape (units,); ``inf`` for a unit without a share, or a level that does not ask the query.

    Raises
    ------
    BudgetError
        For a level without a mix, an impossible fraction, or an unknown convention.

    Notes
    -----
    A bypassed block's share is spent at the level above, with that level's mix (Cumings-Menon et al., sec. 3).

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]}, {"tract": "2/3", "block": "1/3"})
    >>> measurements_of(spine, {"tract": "1/2", "block": {"total": "1/4", "detailed": "3/4"}}, rho=3).tolist()
    [1.0, 1.3333333333333333, 1.3333333333333333]
    """
    budget = Rho(rho)
    noise_scale(1, convention)  # refuses an unknown convention
    alpha: dict[int, Fraction] = {}
    pairs = spine.level_of.astype(np.int64) * len(spine.share_table) + spine.share_index
    unique, back = np.unique(pairs, return_inverse=True)
    out = np.empty(unique.size)
    for i, pair in enumerate(unique.tolist()):
        level, share = divmod(pair, len(spine.share_table))
        gamma = spine.share_table[share]
        if gamma == 0:
            out[i] = np.inf
            continue
        if level not in alpha:
            alpha[level] = _alpha(strategy, spine.levels[level], query)
        spent = budget * (gamma * alpha[level])
        out[i] = float(noise_scale(spent, convention)) if spent else np.inf
    return out[back]


def simulate_counts(
    spine: Spine, truth: ArrayLike, sigma2: ArrayLike, *, seed: Any, **named: Any
) -> SpineCounts:
    """Draw one release of one cell at all units of a spine.

    Parameters
    ----------
    spine
        The units.
    truth
        True counts of the leaves, in the order of ``spine.leaves``, not negative.
    sigma2
        Noise of every unit, as :func:`measurements_of` gives it.
    seed
        int, SeedSequence or Generator. With an int or a SeedSequence the noise of a level does not depend on other levels.
    **named
        ``query``, ``cell``, ``unused`` of :class:`SpineCounts`.

    Returns
    -------
    SpineCounts
        Noisy counts of every unit.

    Raises
    ------
    ReleaseError
        For true counts that cannot be.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]})
    >>> simulate_counts(spine, [3, 1], [0.0, 2.0, 2.0], seed=1).counts[0].item()
    4
    """
    given = np.asarray(truth)
    if given.shape != spine.leaves.shape or given.dtype.kind not in "iu" or np.any(given < 0):
        msg = f"true counts are whole numbers, not negative, one for each of {spine.leaves.size} leaves, got {given!r:.60}"
        raise ReleaseError(msg, truth)
    total = np.zeros(len(spine), np.int64)
    total[spine.leaves] = given
    for d in range(spine.depth, 0, -1):
        units = np.flatnonzero(spine.depth_of == d)
        np.add.at(total, spine.parents[units], total[units])
    s2 = np.broadcast_to(np.asarray(sigma2, np.float64), total.shape)
    noisy = total.copy()
    for k, level in enumerate(spine.levels):
        units = np.flatnonzero((spine.level_of == k) & np.isfinite(s2) & (s2 > 0))
        rng = seed if isinstance(seed, np.random.Generator) else stream(seed, "spine", level)
        if units.size:
            noisy[units] += sample(s2[units], units.size, rng)
    return SpineCounts(spine, noisy, s2, **named)
