"""One target: the tree contracted to her path, and which measurements her answer comes from.

Of everything below a sibling of a path unit only one thing reaches her block: the message about the sibling's count. So the
tree shrinks to the path and one leaf a sibling, whose prior is that message. The answer is that of the whole tree
(:func:`attack_blocks`), to what the messages' windows leave out, which is bounded; where the bound is not small enough the
whole tree answers.

The explanation is in the precisions of generalised least squares, since a posterior has no parts of its own: how much the
precision of the block's estimate grows when what is measured at one more unit of the path, and below its siblings, is used.

Held to account by ``tests/test_spine_attack.py``. Sources: Cumings-Menon et al., arXiv 2404.13164 (two passes); project's
specification of spines, sec. 8.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError
from adversary.privacy.semantics import risk_ceiling
from adversary.release.estimate import two_pass
from adversary.samplers import closed
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.tree import TreePosterior, solve_tree
from adversary.spine_attack.blocks import Question, Tree, attack_blocks, ceilings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from adversary.spine_attack.counts import SpineCounts

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["BlockAnswer", "PathStep", "attack_block"]


@dataclass(frozen=True)
class PathStep:
    """One unit of the target's path.

    Attributes
    ----------
    level, geocode
        Which unit.
    share
        Its share of rho, of all queries; 0 where nothing was measured.
    noisy, sigma2
        Its noisy count and noise; ``inf`` where it was not measured, 0 where it is exact.
    siblings
        Other units below the same parent.
    siblings_variance
        Variance of the sum of the siblings' own estimates, each from everything measured in and below it.
    precision
        What the block's precision (1/variance) gains by this step: the block's own count, or a parent's with its other
        children's. The steps add up to the precision of the least-squares estimate.
    """

    level: str
    geocode: str
    share: Fraction
    noisy: int
    sigma2: float
    siblings: int
    siblings_variance: float
    precision: float


@dataclass(frozen=True)
class BlockAnswer:
    """Answer about one target, with its reasons.

    Attributes
    ----------
    target, known
        Code of her block, others known to be in it.
    prior, posterior, log_odds, risk, decision, count_mean, count_sd
        As :class:`~adversary.spine_attack.blocks.BlockAnswers`.
    steps
        The path, block first, root last.
    rho
        Sum of 1/(2 sigma2) over the path: what this cell's counts can tell of her presence.
    ceiling
        No prior of this p pushes the *expected* R' above, from these counts.
    rho_of_all, ceiling_of_all
        The same for everything published with the spine's shares; None where no budget was given.
    unused
        What was published and not used.
    road
        ``"path"`` or ``"whole tree"``.
    left_out_bound
        Bound on the posterior probability outside all windows.
    """

    target: str
    known: int
    prior: float
    posterior: float
    log_odds: float
    risk: float
    decision: bool
    count_mean: float
    count_sd: float
    steps: tuple[PathStep, ...]
    rho: float
    ceiling: float
    rho_of_all: Fraction | None
    ceiling_of_all: float | None
    unused: tuple[str, ...]
    road: str
    left_out_bound: float

    def lines(self) -> list[str]:
        """Return the answer and its reasons as sentences.

        Returns
        -------
        list of str
            Sentences.
        """
        total = sum(s.precision for s in self.steps)
        out = [
            f"P[she is in {self.target}] = {self.posterior:.6g} (before: {self.prior:.6g}), R' = {self.risk:.6g}; "
            f"{self.known} others known",
            f"the block's count without that knowledge: {self.count_mean:.3f}, sd {self.count_sd:.3f}",
            "her path, with what each step adds to the precision of the block's least-squares estimate:",
        ]
        for step in self.steps:
            part = f"{step.precision / total:6.1%}" if math.isfinite(total) and total > 0 else "   n/a"
            seen = (
                "not measured"
                if math.isinf(step.sigma2)
                else f"exactly {step.noisy}"
                if step.sigma2 == 0
                else f"noisy count {step.noisy}, sigma2 {step.sigma2:.5g}"
            )
            beside = f"; {step.siblings} siblings by their messages" if step.siblings else ""
            out.append(f"  {step.level:<12} {step.geocode or '(all)'}: {seen}{beside}; {part}")
        out.append(
            f"guarantee: these counts are worth rho {self.rho:.6g}, expected R' at most {self.ceiling:.6g}"
        )
        if self.rho_of_all is not None:
            out.append(
                f"  everything published of her: rho {float(self.rho_of_all):.6g}, expected R' at most {self.ceiling_of_all:.6g}"
            )
        out.append(f"published and not used: {', '.join(self.unused) or 'nothing that was named'}")
        return out


def attack_block(  # noqa: PLR0913 - what an adversary knows and believes, by name
    counts: SpineCounts,
    target: str | int,
    *,
    known: int = 0,
    prior: float = 0.5,
    leaf_prior: LeafPrior | Sequence[LeafPrior] | None = None,
    prior_of: Any = None,
    rho: Any = None,
    tolerance: float = 1e-12,
) -> BlockAnswer:
    """Answer one target along her path, and say where the answer comes from.

    Parameters
    ----------
    counts
        Noisy counts on a spine.
    target
        Code or index of her block.
    known, prior, leaf_prior, prior_of, tolerance
        As :func:`attack_blocks`.
    rho
        Whole budget under bounded neighbours, exact: adds what everything published can tell (``Spine.rho_between``).

    Returns
    -------
    BlockAnswer
        The answer, and how it was reached.

    Raises
    ------
    ModelError, SamplingError
        As :func:`attack_blocks`.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> from adversary.spine_attack.counts import SpineCounts
    >>> spine = Spine.from_blocks({"tract": ["1", "1", "1"], "block": ["11", "12", "13"]})
    >>> answer = attack_block(SpineCounts(spine, [12, -3, 4, 2], 10.09), "11")
    >>> round(answer.posterior, 4), [round(s.precision, 4) for s in answer.steps]
    (0.4548, [0.0991, 0.033])
    """
    q = Question.checked(counts, target, known, prior, leaf_prior, prior_of)
    units = np.flatnonzero(counts.roots == counts.roots[q.unit[0]])
    tree = Tree.of(counts, q, units)
    found = _along_the_path(tree, int(np.searchsorted(units, q.unit[0])), int(q.known[0]), tolerance)
    road = "path"
    if found is None:
        road = "whole tree"
        answers = attack_blocks(
            counts,
            q.unit,
            known=known,
            prior=prior,
            leaf_prior=q.priors,
            prior_of=q.prior_of,
            tolerance=tolerance,
        )
        gain = float(answers.log_odds[0] - q.log_odds[0])
        found = gain, float(answers.count_mean[0]), float(answers.count_sd[0]), answers.left_out_bound
    gain, mean, sd, bound = found
    unit, log_odds = int(q.unit[0]), float(q.log_odds[0]) + gain
    everything = None if rho is None else counts.spine.rho_between(unit, None, rho)
    return BlockAnswer(
        target=str(counts.spine.geocodes[unit]),
        known=int(q.known[0]),
        prior=float(closed.probability(q.log_odds[0])),
        posterior=float(closed.probability(log_odds)),
        log_odds=log_odds,
        risk=float(closed.risk(log_odds, q.log_odds[0])),
        decision=log_odds > 0,
        count_mean=mean,
        count_sd=sd,
        steps=_steps(counts, unit, units),
        rho=float(counts.rho_of_presence[unit]),
        ceiling=float(ceilings(counts.rho_of_presence[[unit]], q.log_odds)[0]),
        rho_of_all=everything,
        ceiling_of_all=None
        if everything is None
        else risk_ceiling(everything, log_odds=float(q.log_odds[0])),
        unused=counts.unused,
        road=road,
        left_out_bound=bound,
    )


# ------------------------------------------------------------------------------------------ along the path
def _subtree(parent: Ints, top: int) -> Ints:
    """Nodes at and below one, in order."""
    inside = np.zeros(parent.size, dtype=bool)
    inside[top] = True
    for node in range(top + 1, parent.size):
        inside[node] = inside[parent[node]]
    return np.flatnonzero(inside)


def _most(tree: Tree, leaves: Ints) -> float:
    """Return the largest count that some leaves can have together; infinite where a prior has no end."""
    total = 0.0
    for leaf, k in zip(tree.leaf[leaves], tree.prior_of[leaves], strict=True):
        prior = tree.priors[int(k)]
        end = math.inf if prior.table is None else prior.first + prior.table.size - 1.0
        total += float(tree.noisy[leaf]) if tree.sigma2[leaf] == 0 else end
    return total


def _message(tree: Tree, top: int, tolerance: float) -> tuple[LeafPrior, float, float]:
    """Return what is measured in and below a unit says about its count, as a prior; a bound on what that leaves out; its end."""
    nodes = _subtree(tree.parent, top)
    place = np.full(tree.parent.size, -1, np.int64)
    place[nodes] = np.arange(nodes.size)
    parent = place[np.maximum(tree.parent[nodes], 0)]
    parent[0] = -1
    leaves = np.flatnonzero(np.isin(tree.leaf, nodes))
    solved = solve_tree(
        parent,
        tree.noisy[nodes],
        tree.sigma2[nodes],
        tree.priors,
        prior_of=tree.prior_of[leaves],
        tolerance=tolerance,
    )
    support, p = solved.pmf(0)
    with np.errstate(divide="ignore"):
        table = np.log(p)
    return (
        LeafPrior("tabulated", table=table, first=int(support[0])),
        solved.left_out_bound,
        _most(tree, leaves),
    )


@dataclass(frozen=True, eq=False)
class _Contraction:
    """The path and one leaf a sibling; the target's block is node ``target``, a leaf like the others."""

    parent: list[int]
    noisy: list[int]
    sigma2: list[float]
    priors: list[LeafPrior]  # one a leaf
    message: dict[int, float]  # nodes whose prior is a message -> where that is cut, infinite where it is not
    target: int
    bound: float

    def solve(self, tolerance: float, known: int | None = None) -> TreePosterior:
        """Posterior of the contracted tree; with ``known``, her block held to known and known + 1 persons."""
        sigma2, priors = list(self.sigma2), list(self.priors)
        others = np.full(len(priors), -1)
        leaf = np.setdiff1d(np.arange(len(self.parent)), self.parent)
        if known is not None:
            mine = int(np.searchsorted(leaf, self.target))
            sigma2[self.target], priors[mine], others[mine] = math.inf, LeafPrior.pair(known), known
        return solve_tree(
            self.parent,
            self.noisy,
            sigma2,
            priors,
            prior_of=np.arange(len(priors)),
            known=others,
            tolerance=tolerance,
        )


def _contracted(tree: Tree, block: int, tolerance: float) -> _Contraction:
    path = [block]
    while tree.parent[path[-1]] >= 0:
        path.append(int(tree.parent[path[-1]]))
    path.reverse()
    parent, noisy, sigma2 = [-1], [int(tree.noisy[path[0]])], [float(tree.sigma2[path[0]])]
    priors: list[LeafPrior] = []
    message: dict[int, float] = {}
    bound, above = 0.0, 0
    own = {int(n): tree.priors[int(k)] for n, k in zip(tree.leaf, tree.prior_of, strict=True)}
    for unit, below in itertools.pairwise(path):
        for child in np.flatnonzero(tree.parent == unit).tolist():
            if child == below:
                continue
            parent.append(above)
            if child in own:
                noisy.append(int(tree.noisy[child]))
                sigma2.append(float(tree.sigma2[child]))
                priors.append(own[child])
                continue
            prior, more, most = _message(tree, child, tolerance)
            bound += more
            end = prior.reach(0.0)
            if tree.sigma2[child] > 0:  # an exact count has nothing beyond
                message[len(parent) - 1] = end if end < most else math.inf
            noisy.append(0)
            sigma2.append(math.inf)
            priors.append(prior)
        parent.append(above)
        noisy.append(int(tree.noisy[below]))
        sigma2.append(float(tree.sigma2[below]))
        above = len(parent) - 1
    priors.append(own[block])
    return _Contraction(parent, noisy, sigma2, priors, message, above, bound)


def _along_the_path(
    tree: Tree, block: int, known: int, tolerance: float
) -> tuple[float, float, float, float] | None:
    """Log likelihood ratio, mean, sd and bound from the contracted tree; None where its windows do not carry the answer."""
    own = float(tree.sigma2[block])
    if own == 0:
        return None
    try:
        small = _contracted(tree, block, tolerance)
        held, free = small.solve(tolerance, known), small.solve(tolerance)
    except AdversaryError:  # the whole tree says what is wrong, or finds the way
        return None
    ratio = float(held.log_likelihood_ratio[-1])
    if not math.isfinite(ratio):
        return None
    rarer = float(closed.probability(-abs(float(held.log_ratio[-1]))))
    outside = _outside(held, small.message) / max(rarer, 1e-300)
    if not max(outside, _outside(free, small.message)) <= tolerance:
        return None
    if math.isfinite(own):
        ratio += (2.0 * (int(tree.noisy[block]) - known) - 1.0) / (2.0 * own)
    theta = float(tree.theta[np.searchsorted(tree.leaf, block)])
    bound = small.bound + outside + max(held.left_out_bound, free.left_out_bound)
    return ratio - theta, float(free.mean[small.target]), float(free.sd[small.target]), bound


def _outside(solved: TreePosterior, nodes: dict[int, float]) -> float:
    """Bound on the posterior probability beyond the ends of messages that stand for whole subtrees (log-concave)."""
    total = 0.0
    for node, end in nodes.items():
        support, p = solved.pmf(node)
        ends = []
        if support[-1] >= end:  # otherwise an exact count above ends it
            ends.append((p[-1], p[-2] if p.size > 1 else 0.0))
        if support[0] > 0:
            ends.append((p[0], p[1] if p.size > 1 else 0.0))
        for last, before in ends:
            if last > 0:
                total += last * last / (before - last) if last < before else math.inf
    return float(total)


# ------------------------------------------------------------------------------------------ where it comes from
def _inverse(value: float) -> float:
    return math.inf if value == 0 else 1.0 / value


def _steps(counts: SpineCounts, target: int, units: Ints) -> tuple[PathStep, ...]:
    """Path, block first, with the precision that each step adds (flat prior, Gaussian)."""
    spine = counts.spine
    place = np.full(len(spine), -1, np.int64)
    place[units] = np.arange(units.size)
    above = spine.parents[units]
    parent = np.where(above >= 0, place[np.maximum(above, 0)], -1)
    from_below = two_pass(parent, counts.counts[units].astype(float), counts.noise[units]).up_variance
    path = spine.path(target)
    siblings = [spine.siblings(u) if spine.parents[u] >= 0 else np.zeros(0, np.int64) for u in path]
    spread = [float(from_below[place[s]].sum()) if s.size else 0.0 for s in siblings]

    def precision(top: int) -> float:
        """Precision of the block when nothing above path unit ``top`` is known."""
        outside = math.inf
        for k in range(top, len(path) - 1):
            own = _inverse(float(counts.noise[path[k]])) + _inverse(outside)
            outside = _inverse(own) + spread[k + 1]
        return _inverse(float(counts.noise[target])) + _inverse(outside)

    steps, so_far = [], 0.0
    for k in range(len(path) - 1, -1, -1):
        unit, reached = path[k], precision(k)
        steps.append(
            PathStep(
                level=spine.level(unit),
                geocode=str(spine.geocodes[unit]),
                share=spine.share(unit),
                noisy=int(counts.counts[unit]),
                sigma2=float(counts.noise[unit]),
                siblings=int(siblings[k].size),
                siblings_variance=spread[k],
                precision=reached - so_far
                if math.isfinite(reached)
                else (math.inf if math.isfinite(so_far) else 0.0),
            )
        )
        so_far = reached
    return tuple(steps)
