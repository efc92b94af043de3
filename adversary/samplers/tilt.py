"""A tree whose prior and whose upper counts disagree, rewritten so that no message has to be read in its far tail.

A flat prior on 25,000 blocks expects far more people than a state's count allows. The posterior is sound, but it lies
hundreds of standard deviations from where the messages of :mod:`adversary.samplers.tree` have their windows. Multiplying the
prior of every leaf below a unit by exp(-theta n), and the weight of the unit's own count by exp(theta n), changes nothing:
the unit's count is the sum of its leaves'. With theta = k / sigma2 and k whole, the second factor only moves the unit's noisy
count from z to z + k. So the rewritten tree is again a tree with whole noisy counts, and its posteriors are the same
numbers, not approximations; the choice of k decides only how far out the windows are.

What it is not: a sampler, or an approximation. Where nothing disagrees it returns the tree as it is.

Held to account by ``tests/test_spine_attack.py`` (with and without, enumeration, trees that cannot be solved without).
Source: exponential tilting of a sum (Esscher 1932), used as an identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.release.estimate import check_parents
from adversary.samplers.leaf_prior import LeafPrior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["TiltedTree", "tilt_tree", "tilted_prior"]

_MOST_UNITS = 600  # units that get a tilt of their own; below them it is the same for all leaves
_CONFLICT = 4.0  # standard deviations between a sum and its posterior that are left alone
_ROUNDS = 12
_WINDOW = 12.0  # standard deviations of a leaf's window, for its moments only
_LONGEST = 200_000  # counts of such a window
# Any tilt gives the same answers: where priors and counts exclude each other Newton's steps grow without end, and stop here.
_MOST_TILT = 500.0  # e^-500 is still a number
_LEAST_POISSON = -40.0  # a Poisson mean grows e^40 times
_MOST_SHIFT = 1e12


@dataclass(frozen=True, eq=False)
class TiltedTree:
    """The same tree, rewritten.

    Attributes
    ----------
    noisy
        Noisy counts, moved by whole numbers, int64, shape (nodes,).
    priors, prior_of
        Priors of the leaves, and which one each leaf has, as :func:`adversary.samplers.tree.solve_tree` takes them.
    theta
        Total tilt of every leaf, shape (leaves,): the rewritten tree's ``log_likelihood_ratio`` less ``theta`` is that of
        the tree given; its ``log_ratio``, means and posteriors are the same.
    """

    noisy: Ints
    priors: tuple[LeafPrior, ...]
    prior_of: Ints
    theta: Floats


def tilted_prior(prior: LeafPrior, theta: float) -> LeafPrior:
    """Prior times exp(-theta n): again flat, Poisson, geometric or tabulated.

    Parameters
    ----------
    prior
        Prior of a leaf's count.
    theta
        Tilt; not negative for a flat prior, and above log(ratio) for a geometric one.

    Returns
    -------
    LeafPrior
        The prior after tilting.

    Examples
    --------
    >>> tilted_prior(LeafPrior.poisson(4.0), math.log(2)).parameter
    2.0
    """
    if theta == 0:
        return prior
    if prior.table is not None:
        count = prior.first + np.arange(prior.table.size)
        return LeafPrior(prior.name, table=prior.table - theta * count, first=prior.first)
    if prior.name == "poisson":
        return LeafPrior.poisson(prior.parameter * math.exp(-theta))
    ratio = 1.0 if prior.name == "flat" else prior.parameter
    return LeafPrior.geometric(ratio * math.exp(-theta))


def _least_tilt(priors: Sequence[LeafPrior]) -> float:
    """Least tilt that leaves every prior proper and finite (a flat one: no less than as it is)."""
    least = -_MOST_TILT
    for prior in priors:
        if prior.name == "flat":
            least = max(least, 0.0)
        elif prior.name == "geometric":
            least = max(least, 0.5 * math.log(prior.parameter))
        elif prior.name == "poisson":
            least = max(least, _LEAST_POISSON)
    return least


def tilt_tree(
    parent: Any,
    noisy: Any,
    sigma2: Any,
    priors: Sequence[LeafPrior],
    prior_of: Any,
    *,
    conflict: float = _CONFLICT,
) -> TiltedTree:
    """Rewrite a tree so that upper counts and priors meet.

    Parameters
    ----------
    parent, noisy, sigma2, priors, prior_of
        The tree, as for :func:`adversary.samplers.tree.solve_tree`; ``prior_of`` one a leaf.
    conflict
        Standard deviations between the sum of a unit's children and its posterior that are left alone.

    Returns
    -------
    TiltedTree
        The tree with its tilt.

    Examples
    --------
    >>> tree = tilt_tree([-1, 0, 0], [2, 40, 40], [1.0, 1.0, 1.0], [LeafPrior.flat()], [0, 0])
    >>> tree.noisy.tolist(), tree.theta.tolist()
    ([28, 40, 40], [26.0, 26.0])
    """
    up, layers = check_parents(parent)
    state = _Gaussian(
        up,
        layers,
        np.asarray(noisy, np.int64),
        np.asarray(sigma2, np.float64),
        tuple(priors),
        np.asarray(prior_of, np.int64),
    )
    least = _least_tilt(state.priors)
    for _ in range(_ROUNDS):
        if not state.step(least, conflict):
            break
    return state.rewritten()


class _Gaussian:
    """Moments of all counts, as if all messages were Gaussian: good enough to choose the tilts, used for nothing else."""

    def __init__(
        self,
        parent: Ints,
        layers: list[Ints],
        noisy: Ints,
        sigma2: Floats,
        priors: tuple[LeafPrior, ...],
        prior_of: Ints,
    ) -> None:
        self.parent, self.layers, self.noisy, self.sigma2 = parent, layers, noisy, sigma2
        self.priors, self.prior_of = priors, prior_of
        inner = np.zeros(parent.size, dtype=bool)
        inner[parent[parent >= 0]] = True
        self.leaf = np.flatnonzero(~inner)
        chosen: list[int] = []
        for units in layers:
            mine = units[inner[units]].tolist()
            if len(chosen) + len(mine) > _MOST_UNITS:
                break
            chosen += mine
        self.chosen = chosen
        self.is_chosen = np.zeros(parent.size, dtype=bool)
        self.is_chosen[chosen] = True
        self.theta = np.zeros(parent.size)
        self.shift = np.zeros(parent.size, np.int64)

    def _leaf_moments(self) -> tuple[Floats, Floats]:
        """Mean and variance of every leaf given its own count and its tilted prior."""
        theta = self.theta[self.leaf]
        rows = np.column_stack([self.prior_of, self.noisy[self.leaf], self.sigma2[self.leaf], theta]).astype(
            float
        )
        unique, back = np.unique(rows, axis=0, return_inverse=True)
        mean, variance = np.empty(len(unique)), np.empty(len(unique))
        for i, (k, z, s2, tilt) in enumerate(unique.tolist()):
            mean[i], variance[i] = _moments(self.priors[int(k)], z, s2, tilt)
        back = back.ravel()
        return mean[back], variance[back]

    def _passes(self) -> tuple[Floats, Floats, Floats]:
        """Mean and variance of the sum of every unit's children, and the posterior mean of every unit."""
        n = self.parent.size
        mean, variance, total, spread, expected = (np.zeros(n) for _ in range(5))
        mean[self.leaf], variance[self.leaf] = self._leaf_moments()
        inner = np.ones(n, dtype=bool)
        inner[self.leaf] = False
        measured = np.isfinite(self.sigma2)
        for units in self.layers[::-1]:
            mine = units[inner[units]]
            s, m = spread[mine], total[mine]
            own, s2 = measured[mine], np.where(measured[mine], self.sigma2[mine], 1.0)
            weight = np.where(own, np.divide(s, s + s2, out=np.ones_like(s), where=s + s2 > 0), 0.0)
            mean[mine] = m + weight * (self.noisy[mine] + self.shift[mine] - m)
            variance[mine] = s * (1.0 - weight)
            below = units[self.parent[units] >= 0]
            np.add.at(total, self.parent[below], mean[below])
            np.add.at(spread, self.parent[below], variance[below])
        for units in self.layers:
            above = self.parent[units]
            safe = np.maximum(above, 0)
            share = np.divide(variance[units], spread[safe], out=np.zeros(units.size), where=spread[safe] > 0)
            gap = np.where(above >= 0, expected[safe] - total[safe], 0.0)
            expected[units] = mean[units] + share * gap
        return total, spread, expected

    def step(self, least: float, conflict: float) -> bool:
        """One Newton step of all tilts; False where nothing disagrees any more."""
        total, spread, expected = self._passes()
        chosen = np.array(self.chosen, np.int64)
        gap = total[chosen] - expected[chosen]
        if not chosen.size or np.all(np.abs(gap) <= conflict * np.sqrt(spread[chosen])):
            return False
        wanted = np.zeros(self.parent.size)
        wanted[chosen] = self.theta[chosen] + np.divide(
            gap, spread[chosen], out=np.zeros_like(gap), where=spread[chosen] > 0
        )
        before = self.shift.copy(), self.theta.copy()
        for unit in self.chosen:  # a parent comes before its children
            above = self.theta[self.parent[unit]] if self.parent[unit] >= 0 else 0.0
            s2 = self.sigma2[unit]
            goal = min(max(float(wanted[unit]), least), _MOST_TILT)
            if s2 == 0:  # its count is one number: any tilt is a constant
                self.theta[unit], self.shift[unit] = goal, 0
            elif math.isinf(s2) or abs(goal - above) * s2 > _MOST_SHIFT:  # not measured, or as good as not
                self.theta[unit], self.shift[unit] = above, 0
            else:
                k = round((goal - above) * s2)
                if above + k / s2 < least:
                    k = math.ceil((least - above) * s2)
                self.theta[unit], self.shift[unit] = above + k / s2, k
        for units in self.layers[1:]:
            rest = units[~self.is_chosen[units]]
            self.theta[rest] = self.theta[self.parent[rest]]
        return bool(np.any(self.shift != before[0]) or np.any(self.theta != before[1]))

    def rewritten(self) -> TiltedTree:
        """Return the tree with the tilts in it."""
        theta = self.theta[self.leaf]
        rows = np.column_stack([self.prior_of.astype(float), theta])
        unique, back = np.unique(rows, axis=0, return_inverse=True)
        priors = tuple(tilted_prior(self.priors[int(k)], tilt) for k, tilt in unique.tolist())
        return TiltedTree(self.noisy + self.shift, priors, back.ravel().astype(np.int64), theta)


def _moments(prior: LeafPrior, noisy: float, sigma2: float, theta: float) -> tuple[float, float]:
    """Mean and variance of one leaf's count, summed over a window."""
    if sigma2 == 0:
        return noisy, 0.0
    if math.isinf(sigma2):
        if prior.table is None and prior.name == "flat" and theta <= 0:
            return 0.0, 1e12  # nothing bounds it from below the tree
        high = min(prior.reach(60.0), 60.0 / theta if theta > 0 else math.inf, 1e5)
        count = np.arange(prior.first, int(high) + 1)
        log_weight = prior.log_weight(count) - theta * count
    else:
        centre, width = noisy - sigma2 * theta, _WINDOW * math.sqrt(sigma2)
        low = max(0, math.floor(min(centre, noisy) - width), prior.first if prior.table is not None else 0)
        high = max(low + 2 * width, centre + width)
        if prior.table is not None:
            low, high = prior.first, prior.first + prior.table.size - 1.0
        elif prior.name != "flat":
            high = max(high, min(prior.reach(60.0), low + 1e5))
        count = np.arange(low, min(math.floor(high), low + _LONGEST) + 1)
        log_weight = prior.log_weight(count) - theta * count - (noisy - count) ** 2 / (2.0 * sigma2)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = float(weight @ count)
    return mean, float(weight @ (count - mean) ** 2)
