"""Exact posteriors of all counts on a tree of geounits, for one cell, by passing messages up and down.

Every geounit may have a noisy count of its own, an exact one (an invariant), or none; a parent is the sum of
its children; the leaves have a prior each. Up: the weight of a node's count given everything below it is its
own likelihood times the convolution over its children. Down: the weight given everything else. Their product
is the posterior, for every block at once, siblings' own measurements used.

The weights are log-concave (Gaussian likelihoods, log-concave priors, and both operations keep it), so what
lies beyond the end of a window is at most ``f(end) r / (1 - r)`` with r the last ratio. That is checked on
the *posterior* of every message when all is done; if the release is so strange that it fails, everything is
done again with longer windows.

It is not a sampler, needs no compiled code, and does not estimate by least squares. A prior that is flat on
the leaves is not flat on totals: it implies C(y + d - 1, d - 1) on a total of d leaves.

Held to account by tests/samplers/test_tree.py: enumeration on small trees, the vectors ``exact_posterior`` of
spines.json, the ids ``tree_ t8_ s4_`` of kazan_reiter.json.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import AdversaryError, ModelError, SamplingError, UnsupportedModelError
from adversary.samplers._messages import Pool, chunks
from adversary.samplers._tree_problem import TreeProblem, beside_path
from adversary.samplers.leaf_prior import LeafPrior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["LeafPrior", "TreePosterior", "solve_tree"]

_DEPTHS = (62.0, 140.0, 320.0, 640.0)  # -log of the cut; a whole state passes the first (1e-27) at once
_ATTEMPTS = 4
_FEW_ALONE = 8  # leaves far from their known persons are solved one by one if no more than these ..
_MOST_ALONE = 256  # .. or these, when no deeper cut is left
_WIDEST = 200_000


@dataclass(frozen=True, eq=False)
class TreePosterior:
    """Posterior of every count of a tree.

    Parameters
    ----------
    leaf
        Node numbers of the leaves, in order.
    mean, sd
        Posterior mean and standard deviation of every node's count, shape (nodes,).
    log_likelihood_ratio
        For every leaf: log of P[release | count = known + 1] / P[release | count = known], the leaf's own
        prior left aside, so that a target's posterior log-odds are ``logit(p) + log_likelihood_ratio``; NaN
        where no ``known`` was given.
    log_ratio
        The same with the leaf's prior: log of P[count = known + 1 | release] / P[count = known | release].
    left_out_bound
        Bound on the posterior probability outside the windows, summed over all messages.
    bound_proven
        False if a tabulated prior is not log-concave.
    cut
        Relative weight at which the leaves' windows were cut (largest).
    """

    leaf: NDArray[np.int64]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    log_likelihood_ratio: NDArray[np.float64]
    log_ratio: NDArray[np.float64]
    left_out_bound: float
    bound_proven: bool
    cut: float
    _pool: Pool = field(repr=False)
    _name: NDArray[np.int64] = field(repr=False)

    def pmf(self, node: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Posterior of one node's count.

        Parameters
        ----------
        node
            Node number.

        Returns
        -------
        tuple of ndarray
            Consecutive counts, and their probabilities.
        """
        name = self._name[node : node + 1]
        belief = (self._pool.padded(self._pool.value, name) * self._pool.padded(self._pool.outside, name))[0]
        return int(self._pool.low[name[0]]) + np.arange(belief.size), belief / belief.sum()

    def interval(self, nodes: NDArray[np.int64], mass: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Smallest and largest count of a central interval, for many nodes.

        Parameters
        ----------
        nodes
            Node numbers, shape (n,).
        mass
            Posterior probability of the interval, at least; at most (1 - mass)/2 is left out on either side.

        Returns
        -------
        tuple of ndarray
            Shape (n,) each.
        """
        pool, names, tail = self._pool, self._name[nodes], (1.0 - mass) / 2.0
        low, high = np.empty(names.size, np.int64), np.empty(names.size, np.int64)
        for part in chunks(pool.width[names]):
            belief = pool.padded(pool.value, names[part]) * pool.padded(pool.outside, names[part])
            below = np.cumsum(belief / belief.sum(axis=1, keepdims=True), axis=1)
            low[part] = pool.low[names[part]] + (below > tail).argmax(axis=1)
            high[part] = pool.low[names[part]] + (below >= 1.0 - tail - 1e-12).argmax(axis=1)
        return low, high


def solve_tree(
    parent: ArrayLike,
    noisy: ArrayLike,
    sigma2: ArrayLike,
    prior: LeafPrior | Sequence[LeafPrior] | None = None,
    *,
    prior_of: ArrayLike | None = None,
    known: ArrayLike | None = None,
    tolerance: float = 1e-12,
) -> TreePosterior:
    """Exact posterior of every count of a tree, for one cell.

    Parameters
    ----------
    parent
        Number of each node's parent, smaller than its own; -1 for the root, which is node 0.
    noisy
        Noisy counts, one a node; not read where not measured.
    sigma2
        Noise parameters, one a node: 0 = the count is exact, ``inf`` = not measured.
    prior
        Prior of the leaves (flat by default), or several.
    prior_of
        With several: which one each *leaf* has, in order of leaves.
    known
        For each leaf the number of persons known to be in it, for the log ratios; -1 where not wanted.
    tolerance
        Largest bound on what the windows leave out.

    Returns
    -------
    TreePosterior
        For all nodes.

    Raises
    ------
    ModelError
        If the tree is none, an exact count cannot be met, or nothing bounds a leaf's count.
    UnsupportedModelError
        If a window would exceed 200,000 counts.
    SamplingError
        If the release lies so far from every possible truth that the weights underflow.

    Examples
    --------
    >>> solved = solve_tree([-1, 0, 0], [3, 1, 1], [1.0, 2.0, 2.0], known=[0, 0])
    >>> solved.mean.round(4).tolist()
    [2.8645, 1.4323, 1.4323]
    """
    problem = TreeProblem.checked(parent, noisy, sigma2, prior, prior_of, known)
    sweep, bound, unsafe = _settled(problem, tolerance, alone=False)
    answer = sweep.answer(bound)
    for k in unsafe:
        alone = _solved_along_its_path(sweep, int(k), tolerance)
        answer.log_likelihood_ratio[k] = _solved_alone(problem, int(k), tolerance) if alone is None else alone
        answer.log_ratio[k] = answer.log_likelihood_ratio[k] + problem.prior_gain()[k]
    return answer


def _settled(problem: TreeProblem, tolerance: float, *, alone: bool) -> tuple[_Sweep, float, Ints]:
    """Sweep with deeper and deeper cuts until the bound holds and few log ratios hang on what was cut."""
    for depth in _DEPTHS:
        depths = np.full(2 * problem.parent.size + 2, depth)
        for _ in range(_ATTEMPTS):
            sweep = _Sweep(problem, depths)
            bounds = sweep.run()
            if bounds is None:
                break
            if bounds.sum() <= tolerance:
                unsafe = sweep.unsafe()
                if unsafe.size <= (0 if alone else _FEW_ALONE if depth < _DEPTHS[-1] else _MOST_ALONE):
                    return sweep, float(bounds.sum()), unsafe
                break
            # cut deeper only where it is felt: usually a few messages near the root
            depths = depths * np.where(bounds > 1e-3 * tolerance / bounds.size, 2.0, 1.0)
    msg = (
        "the release contradicts itself, or the known persons the release, by more than 35 standard deviations: "
        "check the counts and exact totals, and give known = -1 for leaves that are no targets"
    )
    raise SamplingError(msg, problem.noisy)


def _solved_along_its_path(sweep: _Sweep, k: int, tolerance: float) -> float | None:
    """As :func:`_solved_alone`, from the messages of the siblings of its path; None where their cuts would be felt.

    A sweep of the whole tree for one leaf takes seconds on a state; what is below a sibling does not change with the leaf.
    """
    problem, pool = sweep.problem, sweep.pool
    small, standing = beside_path(problem, pool, sweep.name, k)
    try:
        held, _, _ = _settled(small, tolerance, alone=True)
    except AdversaryError:  # the whole tree says what is wrong, or finds the way
        return None
    mine = np.flatnonzero(standing >= 0)  # leaves of the small tree that stand for all below a unit
    held.pool.cut_low[mine] = pool.cut_low[standing[mine]]
    held.pool.cut_high[mine] = pool.cut_high[standing[mine]]
    bound = float(held.pool.tail_bounds().sum())
    answer = held.answer(bound)
    p = answer.pmf(int(answer.leaf[-1]))[1]
    if p.size != 2 or not bound <= tolerance * float(p.min()):
        return None
    return float(answer.log_likelihood_ratio[-1]) + _own_ratio(problem, k)


def _own_ratio(problem: TreeProblem, k: int) -> float:
    """Log likelihood ratio of known + 1 against known in a leaf's own count."""
    assert problem.known is not None
    leaf, known = problem.leaf[k], int(problem.known[k])
    return (2.0 * (int(problem.noisy[leaf]) - known) - 1.0) / (2.0 * float(problem.sigma2[leaf]))


def _solved_alone(problem: TreeProblem, k: int, tolerance: float) -> float:
    """Log likelihood ratio of one leaf from everything but itself: its count is held to known and known + 1.

    Where a leaf's own count all but excludes the known persons, the windows of the sums above it do too, and
    the ratio would be read off from what they cut.
    """
    assert problem.known is not None
    leaf, known = problem.leaf[k], int(problem.known[k])
    sigma2 = problem.sigma2.copy()
    sigma2[leaf] = np.inf
    which = problem.prior_of.copy()
    which[k] = len(problem.priors)
    others = np.full(problem.leaf.size, -1)
    others[k] = known
    held = dataclasses.replace(
        problem,
        sigma2=sigma2,
        priors=(*problem.priors, LeafPrior.pair(known)),
        prior_of=which,
        known=others,
    )
    sweep, bound, _ = _settled(held, tolerance, alone=True)
    return float(sweep.answer(bound).log_likelihood_ratio[k]) + _own_ratio(problem, k)


class _Sweep:
    """One pass up and one down with windows cut at ``exp(-depth)``, a depth for each message."""

    def __init__(self, problem: TreeProblem, depth: Floats) -> None:
        self.problem = problem
        self.pool = Pool(depth.size, depth)
        self.leaf_depth = self.pool.depth[: problem.leaf.size]
        self.name = np.full(problem.parent.size, -1, dtype=np.int64)  # message of a node, its own count used
        self.sum_name = np.full(problem.parent.size, -1, dtype=np.int64)  # of the sum of its children
        self.steps: list[tuple[Ints, list[tuple[Ints, Ints, Ints]]]] = []

    def run(self) -> Floats | None:
        """Do both passes; a bound for each message, or None if an exact count lay outside a window."""
        internal = np.zeros(self.problem.parent.size, dtype=bool)
        internal[self.problem.parent[1:]] = True
        self._leaves()
        for depth in range(int(self.problem.depth.max()), -1, -1):
            nodes = np.flatnonzero(internal & (self.problem.depth == depth))
            if nodes.size and not self._up(nodes):
                return None
        self._down()
        bounds = np.zeros(self.pool.depth.size)
        bounds[: self.pool.count] = self.pool.tail_bounds()
        return bounds

    # ------------------------------------------------------------------ up
    def _leaf_windows(self) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """First and last count of each leaf's window, and whether the last one is a natural end."""
        p = self.problem
        centre, s2, cap = p.noisy[p.leaf].astype(np.float64), p.sigma2[p.leaf], p.cap[p.leaf]
        proper = np.array([prior.reach(float(self.leaf_depth.max())) for prior in p.priors])[p.prior_of]
        is_flat = np.isinf(proper)
        measured = np.isfinite(s2)
        width = np.sqrt(2.0 * np.where(measured, s2, 0.0) * self.leaf_depth)
        high = np.where(measured, centre + np.sqrt(np.minimum(centre, 0.0) ** 2 + width**2), np.inf)
        start = np.array([prior.first for prior in p.priors])[p.prior_of]
        low = np.where(is_flat & measured, np.maximum(centre - width, 0.0), start)
        # a prior that never grows leaves the likelihood's end an end, however slowly it falls itself
        falling = is_flat | np.array([prior.name == "geometric" for prior in p.priors])[p.prior_of]
        ends = np.minimum(np.minimum(high, self._soft_cap()), proper)
        high = np.where(falling, ends, np.where(measured, np.maximum(high, proper), proper))
        table_end = np.array(
            [math.inf if prior.table is None else prior.first + prior.table.size - 1.0 for prior in p.priors]
        )
        natural = np.minimum(cap, table_end[p.prior_of])
        ended = natural <= high
        high = np.minimum(high, natural)
        if np.any(np.isinf(high)):
            node = int(p.leaf[np.isinf(high)][0])
            msg = (
                f"nothing bounds the count of leaf {node}: "
                "measure it or one above it, or give it a proper prior"
            )
            raise ModelError(msg, node)
        if p.known is not None:
            low = np.where(p.known >= 0, np.minimum(low, p.known), low)
            high = np.minimum(np.maximum(high, p.known + 1), natural)
        low, high = np.minimum(np.floor(low), np.floor(high)), np.floor(high)
        exact = s2 == 0
        low, high = np.where(exact, centre, low), np.where(exact, centre, high)
        if np.any(high - low >= _WIDEST):
            msg = (
                f"a leaf's window holds {int((high - low).max())} counts, more than {_WIDEST}: "
                "measure it less coarsely"
            )
            raise UnsupportedModelError(msg, int((high - low).max()))
        return low.astype(np.int64), high.astype(np.int64), ended | exact

    def _soft_cap(self) -> Floats:
        """For leaves without a measurement: the noisy counts above bound them, softly."""
        p = self.problem
        reach = np.full(p.parent.size, np.inf)
        seen = np.isfinite(p.sigma2)
        spread = np.sqrt(
            np.minimum(p.noisy[seen], 0.0) ** 2 + 2.0 * float(self.leaf_depth.max()) * p.sigma2[seen]
        )
        reach[seen] = p.noisy[seen] + spread
        for node in range(1, p.parent.size) if not seen[p.leaf].all() else ():
            reach[node] = min(reach[node], reach[p.parent[node]]) if not seen[node] else reach[node]
        return np.asarray(np.where(seen[p.leaf], np.inf, np.maximum(reach[p.leaf], 2.0)))

    def _leaves(self) -> None:
        p = self.problem
        low, high, ended = self._leaf_windows()
        names = self.pool.reserve(p.leaf.size)
        self.name[p.leaf] = names
        width = high - low + 1
        for part in chunks(width):
            count = low[part, None] + np.arange(int(width[part].max()))
            node = p.leaf[part]
            exponent = self._log_likelihood(node, count)
            for k, prior in enumerate(p.priors):
                mine = p.prior_of[part] == k
                if prior.name != "flat" and mine.any():
                    exponent[mine] += prior.log_weight(count[mine])
            exponent[count > high[part, None]] = -np.inf
            top = exponent.max(axis=1, keepdims=True)
            if not np.all(np.isfinite(top)):
                bad = int(node[~np.isfinite(top[:, 0])][0])
                msg = f"leaf {bad} has no possible count: its exact count is outside its prior"
                raise ModelError(msg, bad)
            first = np.zeros(part.size, dtype=np.int64)
            self.pool.put_exactly(names[part], np.exp(exponent - top), low[part], first, width[part] - 1)
        start = np.array([prior.first for prior in p.priors])[p.prior_of]
        self.pool.cut_low[names] = (low > start) & (p.sigma2[p.leaf] > 0)
        self.pool.cut_high[names] = ~ended

    def _log_likelihood(self, node: Ints, count: Ints) -> Floats:
        """Log likelihood of counts (a row a node), free of a constant a row, by integer differences."""
        s2, centre = self.problem.sigma2[node][:, None], self.problem.noisy[node][:, None]
        nearest = np.abs(count - centre).min(axis=1, keepdims=True)
        excess = (np.abs(count - centre) - nearest) * (np.abs(count - centre) + nearest)
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = excess / (-2.0 * s2)
        return np.asarray(
            np.where(s2 == 0, np.where(count == centre, 0.0, -np.inf), np.where(np.isinf(s2), 0.0, exponent))
        )

    def _up(self, nodes: Ints) -> bool:
        p = self.problem
        inner = np.zeros(p.parent.size, dtype=bool)
        inner[nodes] = True
        child = p.children[inner[p.parent[p.children]]]
        above, current = p.parent[child], self.name[child]
        rounds = []
        while True:
            start = np.flatnonzero(np.concatenate([[True], above[1:] != above[:-1]]))
            place = np.arange(above.size) - np.repeat(start, np.diff(np.append(start, above.size)))
            second = np.flatnonzero(place % 2 == 1)
            if second.size == 0:
                break
            whole = self.pool.convolved(current[second - 1], current[second])
            rounds.append((current[second - 1], current[second], whole))
            current[second - 1] = whole
            keep = np.ones(above.size, dtype=bool)
            keep[second] = False
            above, current = above[keep], current[keep]
        self.sum_name[above] = current
        self.steps.append((above, rounds))
        self.name[above] = current
        measured = above[np.isfinite(p.sigma2[above])]
        return self._weigh(measured) if measured.size else True

    def _weigh(self, nodes: Ints) -> bool:
        """Use the nodes' own counts; False if an exact one lies outside the window."""
        below = self.sum_name[nodes]
        names = self.pool.reserve(nodes.size)
        self.name[nodes] = names
        for part in chunks(self.pool.width[below]):
            batch = self.pool.padded(self.pool.value, below[part])
            count = self.pool.low[below[part]][:, None] + np.arange(batch.shape[1])
            width = self.pool.width[below[part]]
            exponent = self._log_likelihood(nodes[part], np.minimum(count, count[:, :1] + width[:, None] - 1))
            batch *= np.exp(exponent)
            if not np.all(batch.max(axis=1) > 0):
                return False
            self.pool.put(names[part], batch, self.pool.low[below[part]], width, nodes.size)
        exact = names[self.problem.sigma2[nodes] == 0]
        self.pool.cut_low[exact] = self.pool.cut_high[exact] = False
        return True

    # ---------------------------------------------------------------- down
    def _down(self) -> None:
        pool = self.pool
        pool.begin_down()
        root = self.name[:1]
        pool.write_outside(root, np.ones((1, int(pool.width[root[0]]))))
        for nodes, rounds in reversed(self.steps):
            weighed = nodes[self.name[nodes] != self.sum_name[nodes]]
            for part in chunks(pool.width[self.sum_name[weighed]]) if weighed.size else ():
                node = weighed[part]
                below = self.sum_name[node]
                size = int(pool.width[below].max())
                batch = pool.placed(pool.outside, self.name[node], pool.low[below], size)
                count = pool.low[below][:, None] + np.arange(size)
                low = pool.low[self.name[node]][:, None]
                inside = np.clip(count, low, low + pool.width[self.name[node]][:, None] - 1)
                pool.write_outside(below, batch * np.exp(self._log_likelihood(node, inside)))
            for left, right, whole in reversed(rounds):
                pool.divide(left, right, whole)

    # -------------------------------------------------------------- answer
    def _at_known(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Weights from below, and from outside, of known and of known + 1; zero beyond a window."""
        p, pool = self.problem, self.pool
        name = self.name[p.leaf]
        found = []
        for store in (pool.value, pool.outside):
            for shift in (0, 1):
                place = np.asarray(p.known) + shift - pool.low[name]
                inside = (place >= 0) & (place < pool.width[name])
                found.append(np.where(inside, store[pool.offset[name] + np.where(inside, place, 0)], 0.0))
        return (found[0], found[1]), (found[2], found[3])

    def unsafe(self) -> Ints:
        """Leaves whose log ratio may hang on what was cut: known persons of a posterior not far above the cut."""
        p, pool = self.problem, self.pool
        if p.known is None:
            return np.zeros(0, dtype=np.int64)
        name = self.name[p.leaf]
        total = np.empty(name.size)
        for part in chunks(pool.width[name]):
            names = name[part]
            total[part] = (pool.padded(pool.value, names) * pool.padded(pool.outside, names)).sum(axis=1)
        wanted = (p.known >= 0) & (p.known + 1 <= p.cap[p.leaf]) & (p.sigma2[p.leaf] > 0)
        absent, present = (below * above for below, above in zip(*self._at_known(), strict=True))
        floor = math.exp(32.0 - float(self.leaf_depth.min()))
        return np.flatnonzero(wanted & ~(np.minimum(absent, present) > floor * total))

    def answer(self, bound: float) -> TreePosterior:
        p, pool = self.problem, self.pool
        mean, sd = np.empty(p.parent.size), np.empty(p.parent.size)
        for part in chunks(pool.width[self.name]):
            names = self.name[part]
            belief = pool.padded(pool.value, names) * pool.padded(pool.outside, names)
            belief /= belief.sum(axis=1, keepdims=True)
            place = np.arange(belief.shape[1])
            centre = belief @ place
            sd[part] = np.sqrt(np.maximum(((place - centre[:, None]) ** 2 * belief).sum(axis=1), 0.0))
            mean[part] = pool.low[names] + centre
        likelihood_ratio = np.full(p.leaf.size, np.nan)
        ratio = likelihood_ratio.copy()
        if p.known is not None:
            absent, present = self._at_known()[1]
            s2 = p.sigma2[p.leaf]
            with np.errstate(divide="ignore", invalid="ignore"):
                own = np.where(np.isinf(s2), 0.0, (2.0 * (p.noisy[p.leaf] - p.known) - 1.0) / (2.0 * s2))
                likelihood_ratio = np.log(present) - np.log(absent) + own
            likelihood_ratio[p.known < 0] = np.nan
            with np.errstate(invalid="ignore"):
                ratio = likelihood_ratio + p.prior_gain()
        cut = math.exp(-float(self.leaf_depth.min()))
        proven = all(prior.log_concave for prior in p.priors)
        return TreePosterior(p.leaf, mean, sd, likelihood_ratio, ratio, bound, proven, cut, pool, self.name)
