"""Kinds of blocks of a spine, and the averages over releases for each kind. Internal to :mod:`adversary.spine_risk`.

Held to account by ``tests/test_spine_risk.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.geography.accuracy import contracted_estimate
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import noise_window
from adversary.risk.law import average_over_steps
from adversary.samplers.tree import solve_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adversary.geography.spine import Spine
    from adversary.samplers.tree import LeafPrior

    Floats = NDArray[np.float64]

__all__ = ["LATTICES", "Kinds", "averaged", "drawn_outside", "flat", "phi"]

LATTICES = 2  # own counts that are summed exactly, the least noisy first
_LEFT_OUT = 1e-14
_GRID = np.arange(-160, 161) / 16.0  # ten standard deviations; see _mean_posterior


@dataclass(frozen=True, eq=False)
class Kinds:
    """Blocks that an adversary cannot learn more about than about one another: same own counts, same parent."""

    of_leaf: NDArray[np.int64]  # kind of every leaf
    own: Floats  # noise parameters of own counts, least first, inf beyond; shape (kinds, width)
    row: NDArray[np.int64]  # which distinct row of ``own`` a kind has
    own_information: Floats
    outside: Floats  # information of all the rest
    chain: NDArray[np.int64]  # for every unit: the leaf (its place) that is all its blocks, or -1

    @classmethod
    def of(cls, spine: Spine, noise: Floats) -> Kinds:
        merged, estimate = contracted_estimate(spine, noise)
        leaf = merged.unit[spine.leaves]
        place = np.full(len(merged.spine), -1)
        place[leaf] = np.arange(leaf.size)
        chain = place[merged.unit]
        units = np.flatnonzero((chain >= 0) & np.isfinite(noise))
        units = units[np.lexsort((noise[units], chain[units]))]
        holder = chain[units]
        rank = np.arange(units.size) - np.searchsorted(holder, holder)
        own = np.full((leaf.size, max(int(rank.max(initial=0)) + 1, 1)), np.inf)
        own[holder, rank] = noise[units]
        row = np.zeros(leaf.size, np.int64)
        for column in own.T:
            values, index = np.unique(column, return_inverse=True)
            row = np.unique(row * values.size + index, return_inverse=True)[1]
        above = merged.spine.parents[leaf]
        _, first, of_leaf = np.unique(
            row * (len(merged.spine) + 1) + above + 1, return_index=True, return_inverse=True
        )
        own, row = own[first], np.unique(row[first], return_inverse=True)[1]
        information = (0.5 / own).sum(axis=1)
        whole = 0.5 / estimate.variance[leaf[first]]  # 0 where the block's count is not determined at all
        return cls(of_leaf, own, row, information, np.maximum(whole - information, 0.0), chain)


def phi(x: Any) -> Floats:
    """Distribution function of the standard Gaussian."""
    half: Any = np.frompyfunc(lambda v: 0.5 * math.erfc(-v / math.sqrt(2.0)), 1, 1)(np.asarray(x, float))
    return np.asarray(half, dtype=float)


def _lattice(own: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Log-likelihood ratios of the own counts, present and absent, with weights; and the information not on a lattice.

    Of one count, known persons taken off: (2 (noise + there) - 1) / (2 sigma2).
    """
    value, weight, shift = np.zeros(1), np.ones(1), 0.0
    kept = own[np.isfinite(own)]
    for s in kept[:LATTICES].tolist():
        half = noise_window(s, _LEFT_OUT)
        n = np.arange(-half, half + 1)
        value = (value[:, None] + n.astype(float) / s).ravel()
        weight = (weight[:, None] * np.exp(dg.log_pmf(n, s))).ravel()
        shift += 0.5 / s
    order = np.argsort(value, kind="stable")
    value, weight = value[order], weight[order]
    return value + shift, value - shift, weight / weight.sum(), float((0.5 / kept[LATTICES:]).sum())


def flat(kinds: Kinds, prior: float) -> tuple[Floats, Floats, Floats]:
    """Mean posterior given presence, and P[right] with the prior and with 1/2, of every kind."""
    out = np.empty((3, kinds.row.size))
    for row in range(int(kinds.row.max(initial=-1)) + 1):
        mine = np.flatnonzero(kinds.row == row)
        steps = _lattice(kinds.own[mine[0]])
        information = kinds.outside[mine] + steps[3]
        logit = math.log(prior) - math.log1p(-prior)
        out[0, mine] = _mean_posterior(steps, information, logit)
        out[1, mine] = _right(steps, information, prior)
        out[2, mine] = out[1, mine] if prior == 0.5 else _right(steps, information, 0.5)
    return out[0], out[1], out[2]


Steps = tuple["Floats", "Floats", "Floats", float]


def _mean_posterior(steps: Steps, information: Floats, logit: float) -> Floats:
    """E[expit(logit + own + outside)] given presence; the outside is N(I, 2 I).

    The integrand is analytic within pi of the real line, so a trapezoid with step h standard deviations errs by about
    exp(-2 pi^2 / (h sqrt(2 I))): below 1e-14 for information up to 50.
    """
    present, _, weight, _ = steps
    base = logit + information[:, None] + np.sqrt(2.0 * information)[:, None] * _GRID
    mass = np.exp(-0.5 * _GRID**2)
    flat = base.ravel()
    given = average_over_steps(flat, present, weight) * np.exp(-np.logaddexp(0.0, -flat))
    return np.asarray(given.reshape(base.shape) @ (mass / mass.sum()))


def _right(steps: Steps, information: Floats, prior: float) -> Floats:
    """P[the more probable of the two is true]; a tie is answered with absent."""
    present, absent, weight, _ = steps
    logit = math.log(prior) - math.log1p(-prior)
    out = np.empty(information.size)
    for i, value in enumerate(information.tolist()):
        if value == 0.0:
            yes, no = (present + logit > 1e-9).astype(float), (absent + logit <= 1e-9).astype(float)
        else:
            spread = math.sqrt(2.0 * value)
            yes = phi((logit + value + present) / spread)
            no = phi(-(logit - value + absent) / spread)
        out[i] = weight @ (prior * yes + (1.0 - prior) * no)
    return out


def drawn_outside(
    spine: Spine, noise: Floats, kinds: Kinds, others: LeafPrior, draws: int, seed: Any
) -> Floats:
    """Log-likelihood ratio of everything but the own counts on a lattice, target absent; shape (draws, leaves).

    The rest of the tree does not depend on how many are in a block, so all who are there are taken as known, in every block at
    once. NaN where one more would be beyond the end of a tabulated prior; that, too, does not depend on the rest.
    """
    rng = np.random.default_rng(seed)
    parents, sigma2, leaves = spine.parents, noise, spine.leaves
    roots = np.flatnonzero(parents < 0)
    shift = 0 if roots.size == 1 else 1  # a forest gets an unmeasured unit on top
    up = parents + shift if shift else parents
    s2 = np.r_[np.inf, sigma2] if shift else sigma2
    up = np.r_[-1, up] if shift else up
    seen = np.flatnonzero(np.isfinite(sigma2))
    subtract = _lattice_units(noise, kinds)
    out = np.empty((draws, leaves.size))
    table = np.arange(int(others.reach(50.0)) + 1)
    chance = np.exp(others.log_weight(table))
    cumulative = np.cumsum(chance / chance.sum())
    for draw in range(draws):
        truth = np.zeros(len(spine), np.int64)
        truth[leaves] = np.minimum(
            np.searchsorted(cumulative, rng.random(leaves.size), side="right"), table[-1]
        )
        for d in range(spine.depth, 0, -1):
            units = np.flatnonzero(spine.depth_of == d)
            np.add.at(truth, parents[units], truth[units])
        z = truth.copy()
        z[seen] += dg.sample(sigma2[seen], seen.size, rng)
        released = np.r_[0, z] if shift else z
        known = (
            truth[leaves] if others.table is None else np.where(truth[leaves] < table[-1], truth[leaves], -1)
        )
        answer = solve_tree(up, released, s2, others, known=known, tolerance=1e-9)
        out[draw] = answer.log_likelihood_ratio
        direct = (2.0 * (z[subtract] - truth[subtract]) - 1.0) / (2.0 * sigma2[subtract])
        out[draw] -= np.bincount(kinds.chain[subtract], direct, minlength=leaves.size)
    return np.where(np.isfinite(out), out, np.nan)


def _lattice_units(noise: Floats, kinds: Kinds) -> NDArray[np.int64]:
    """Units whose counts are own counts on a lattice."""
    units = np.flatnonzero((kinds.chain >= 0) & np.isfinite(noise))
    units = units[np.lexsort((noise[units], kinds.chain[units]))]
    holder = kinds.chain[units]
    rank = np.arange(units.size) - np.searchsorted(holder, holder)
    return np.asarray(units[rank < LATTICES])


Three = tuple["Floats", "Floats", "Floats"]


def averaged(kinds: Kinds, outside: Floats, prior: float) -> tuple[Three, Three, tuple[float, float, float]]:
    """Means over draws for every kind, their standard errors, and those of the means over blocks.

    What is drawn given absence is weighted by its likelihood ratio to stand for presence: the release's law given presence is
    its law given absence times that ratio.
    """
    count = int(kinds.of_leaf.max()) + 1
    size = np.bincount(kinds.of_leaf, minlength=count)
    logit = math.log(prior) - math.log1p(-prior)
    tops = np.zeros((5, outside.shape[0], count))  # weighted sums: posterior, yes, yes at 1/2; no, no at 1/2
    weights = np.zeros((outside.shape[0], count))
    used = np.zeros((outside.shape[0], count))
    for row in range(int(kinds.row.max(initial=-1)) + 1):
        mine = np.flatnonzero(kinds.row[kinds.of_leaf] == row)
        present, absent, weight, _ = _lattice(kinds.own[np.flatnonzero(kinds.row == row)[0]])
        tail = np.concatenate([np.cumsum(weight[::-1])[::-1], [0.0]])
        for draw in range(outside.shape[0]):
            leaves = mine[np.isfinite(outside[draw, mine])]
            if not leaves.size:
                continue
            values, of = outside[draw, leaves], kinds.of_leaf[leaves]
            tilt = np.exp(values)
            base = values + logit
            mean = average_over_steps(base, present, weight) * np.exp(-np.logaddexp(0.0, -base))
            yes = [tail[np.searchsorted(present, 1e-9 - values - at, side="right")] for at in (logit, 0.0)]
            no = [
                1.0 - tail[np.searchsorted(absent, 1e-9 - values - at, side="right")] for at in (logit, 0.0)
            ]
            parts = (tilt * mean, tilt * yes[0], tilt * yes[1], no[0], no[1])
            for k, part in enumerate(parts):
                tops[k, draw] += np.bincount(of, part, minlength=count)
            weights[draw] += np.bincount(of, tilt, minlength=count)
            used[draw] += np.bincount(of, minlength=count)
    if not used.sum(axis=0).all():
        msg = f"{outside.shape[0]} draws left a kind of block without a truth below the end of the prior's table: draw more"
        raise ModelError(msg, outside.shape[0])
    ratio, error = zip(
        *(_means(top, weights if k < 3 else None, used, kinds.row) for k, top in enumerate(tops)), strict=True
    )
    combined = (
        (ratio[0], error[0]),
        *(
            (p * ratio[i] + (1 - p) * ratio[j], p * error[i] + (1 - p) * error[j])
            for p, i, j in ((prior, 1, 3), (0.5, 2, 4))
        ),
    )
    draws = outside.shape[0]
    inflate = math.sqrt(draws / (draws - 1.0))
    mcse = tuple(inflate * np.sqrt((e**2).sum(axis=0)) for _, e in combined)
    whole = tuple(inflate * float(np.sqrt(((e @ (size / size.sum())) ** 2).sum())) for _, e in combined)
    means = tuple(r for r, _ in combined)
    return means, mcse, whole  # type: ignore[return-value]


def _means(top: Floats, tilt: Floats | None, used: Floats, row: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Means over draws for every kind, and each draw's part in their errors; shapes (kinds,), (draws, kinds).

    The likelihood ratio's mean is known to be 1. A ratio of sums would be biased where a kind has few blocks; so the ratio over
    all kinds with the same own counts is taken off every value and added again, which is unbiased but for that ratio's own error.
    """
    total = used.sum(axis=0)
    centre = np.zeros(row.size)
    if tilt is not None:
        pooled = np.bincount(row, top.sum(axis=0)) / np.bincount(row, tilt.sum(axis=0))
        centre = pooled[row]
        top = top - centre * tilt
    rest = top.sum(axis=0) / total
    return rest + centre, (top - rest * used) / total
