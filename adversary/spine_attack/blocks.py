"""All targets of one cell at once: the whole tree, one pass up and one down.

Each target is her own question: the adversary knows how many others of her block are in the cell, asks whether she is there
too, and believes of every *other* block what its prior says. Everything measured in her tree bears on the answer, the other
blocks' counts through the convolution of their messages (:mod:`adversary.samplers.tree`).

What it is not: several cells or queries together, which no exact method covers; what was published beside is named in
``unused`` and not looked at.

Held to account by ``tests/test_spine_attack.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.privacy.semantics import risk_ceiling
from adversary.samplers import closed
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.tilt import tilt_tree
from adversary.samplers.tree import TreePosterior, solve_tree

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import ArrayLike, NDArray

    from adversary.geography.spine import Spine
    from adversary.spine_attack.counts import SpineCounts

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["BlockAnswers", "Question", "Tree", "attack_blocks", "ceilings", "level_codes"]


@dataclass(frozen=True, eq=False)
class BlockAnswers:
    """One row a target.

    Attributes
    ----------
    counts
        What was attacked.
    unit
        Index of each target's block in the spine, shape (targets,).
    known
        Others known to be in the block and cell.
    prior, posterior
        Probability that the target is there.
    log_odds
        Posterior log-odds, natural logarithm.
    risk
        R' = posterior / prior.
    decision
        Whether she is more likely there than not; a tie is "not".
    count_mean, count_sd
        Posterior mean and standard deviation of the block's count for one who knows nobody in it (its leaf prior instead).
    ceiling
        No prior of this p pushes the expected risk above, whatever else she uses these counts for: exp(2 rho)/(1 - p + p
        exp(2 rho)), rho = sum over the path of 1/(2 sigma2).
    left_out_bound
        Bound on the posterior probability outside the windows, the largest over trees.
    bound_proven
        False if a tabulated prior is not log-concave.
    """

    counts: SpineCounts
    unit: Ints
    known: Ints
    prior: Floats
    posterior: Floats
    log_odds: Floats
    risk: Floats
    decision: NDArray[np.bool_]
    count_mean: Floats
    count_sd: Floats
    ceiling: Floats
    left_out_bound: float
    bound_proven: bool
    _trees: tuple[tuple[Ints, TreePosterior], ...] = field(repr=False, default=())

    def __len__(self) -> int:
        """Count the targets."""
        return int(self.unit.size)

    def __repr__(self) -> str:
        """One line: targets, cell, largest risk."""
        top = f", largest risk {np.nanmax(self.risk):.4f}" if np.any(~np.isnan(self.risk)) else ""
        what = f" of {self.counts.query!r} cell {self.counts.cell}" if self.counts.query else ""
        return f"<BlockAnswers {len(self):,} targets{what}{top}>"

    @property
    def geocode(self) -> NDArray[np.str_]:
        """Code of each target's block, text."""
        return np.array(self.counts.spine.geocodes[self.unit].tolist(), np.str_)

    def interval(self, mass: float = 0.9) -> tuple[Ints, Ints]:
        """Smallest and largest count of a central interval of each target's block, for one who knows nobody in it.

        Parameters
        ----------
        mass
            Posterior probability of the interval, at least: (1 - mass)/2 or less is left on either side.

        Returns
        -------
        tuple of ndarray
            Shape (targets,) each.

        Raises
        ------
        ModelError
            For a mass that is not in (0, 1).
        """
        if not 0 < mass < 1:
            msg = f"the mass of an interval must lie strictly between 0 and 1, got {mass}"
            raise ModelError(msg, mass)
        low, high = np.zeros(len(self.counts.spine), np.int64), np.zeros(len(self.counts.spine), np.int64)
        for units, solved in self._trees:
            nodes = np.searchsorted(units, np.intersect1d(units, self.unit))
            low[units[nodes]], high[units[nodes]] = solved.interval(nodes, mass)
        return low[self.unit], high[self.unit]

    def levels(self) -> dict[str, NDArray[np.str_]]:
        """Code of the unit above (or at) each target at every level, text; empty where the path has none."""
        return level_codes(self.counts.spine, self.unit)

    def to_dataset(self) -> xr.Dataset:
        """Return the rows as an xarray Dataset with plain text coordinates.

        Returns
        -------
        xarray.Dataset
            Dim ``target``; coordinates geocode, cell and one column a level. Never a MultiIndex, which neither netCDF nor
            zarr holds; text stays text, zeros in front included.
        """
        import xarray as xr

        names = (
            "known",
            "prior",
            "posterior",
            "log_odds",
            "risk",
            "decision",
            "count_mean",
            "count_sd",
            "ceiling",
        )
        columns = {name: ("target", getattr(self, name)) for name in names}
        coords: dict[str, Any] = {"geocode": ("target", self.geocode)}
        coords |= {name: ("target", code) for name, code in self.levels().items()}
        attrs = {
            "query": self.counts.query,
            "cell": str(self.counts.cell),
            "levels": list(self.counts.spine.levels),
            "unused": "; ".join(self.counts.unused),
            "left_out_bound": self.left_out_bound,
            "bound_proven": int(self.bound_proven),
        }
        return xr.Dataset(columns, coords=coords, attrs=attrs)


def level_codes(spine: Spine, units: Ints) -> dict[str, NDArray[np.str_]]:
    """Code of the unit of ``spine`` above (or at) each of some units at every level; empty where there is none."""
    out = {name: np.full(units.size, "", dtype=spine.geocodes.dtype) for name in spine.levels}
    here = units.copy()
    while np.any(here >= 0):
        for k, name in enumerate(spine.levels):
            at = np.flatnonzero((here >= 0) & (spine.level_of[here] == k))
            out[name][at] = spine.geocodes[here[at]]
        here = np.where(here >= 0, spine.parents[here], -1)
    return {name: np.array(code.tolist(), np.str_) for name, code in out.items()}


@dataclass(frozen=True, eq=False)
class Question:
    """Targets, what is known of them and what is believed, checked; internal to the package.

    Attributes
    ----------
    unit, known, log_odds
        Block, others known, prior log-odds of each target.
    priors, prior_of
        Priors of the leaves' counts, and which one each leaf has.
    """

    unit: Ints
    known: Ints
    log_odds: Floats
    priors: tuple[LeafPrior, ...]
    prior_of: Ints

    @classmethod
    def checked(
        cls,
        counts: SpineCounts,
        targets: Any,
        known: ArrayLike,
        prior: ArrayLike,
        leaf_prior: LeafPrior | Sequence[LeafPrior] | None,
        prior_of: ArrayLike | None,
    ) -> Question:
        """Check what was given, or refuse it; parameters as :func:`attack_blocks`."""
        spine = counts.spine
        unit = spine.leaves if targets is None else _leaf_units(spine, targets)
        others = np.broadcast_to(np.asarray(known), unit.shape)
        if others.dtype.kind not in "iu" or np.any(others < 0):
            msg = f"known must be whole numbers, not negative, one for all or one a target, got {known!r:.60}"
            raise ModelError(msg, known)
        priors = tuple(leaf_prior) if isinstance(leaf_prior, Sequence) else (leaf_prior or LeafPrior.flat(),)
        leaves = spine.leaves.size
        which = np.zeros(leaves, np.int64) if prior_of is None else np.asarray(prior_of, np.int64)
        if which.shape != (leaves,) or np.any((which < 0) | (which >= len(priors))):
            msg = f"prior_of must name one of {len(priors)} priors for each of {leaves} leaves"
            raise ModelError(msg, prior_of)
        log_odds = np.array(np.broadcast_to(closed.log_odds_of(prior), unit.shape))
        return cls(unit, np.asarray(others, np.int64), log_odds, priors, which)


def _leaf_units(spine: Spine, targets: Any) -> Ints:
    given = [targets] if isinstance(targets, str | int | np.integer) else list(targets)
    unit = np.array([spine.index(t if isinstance(t, str) else int(t)) for t in given], np.int64)
    inner = np.flatnonzero(spine.n_children[unit] > 0)
    if inner.size:
        code, level = str(spine.geocodes[unit[inner[0]]]), spine.level(int(unit[inner[0]]))
        msg = f"{code!r} is a {level} with units below it: a target lives in a block, so name one"
        raise ModelError(msg, code)
    return unit


def attack_blocks(  # noqa: PLR0913 - what an adversary knows and believes, by name
    counts: SpineCounts,
    targets: Any = None,
    *,
    known: ArrayLike = 0,
    prior: ArrayLike = 0.5,
    leaf_prior: LeafPrior | Sequence[LeafPrior] | None = None,
    prior_of: ArrayLike | None = None,
    tolerance: float = 1e-12,
    far: float = np.inf,
) -> BlockAnswers:
    """Answer all targets of one cell exactly.

    Parameters
    ----------
    counts
        Noisy counts on a spine.
    targets
        Codes (geocode, geocode16 or GEOID) or indices of blocks, each a target; a block may be named several times with
        different ``known``. Default: every leaf.
    known
        Others known to be in the target's block and cell, one for all or one a target.
    prior
        Probability of presence, likewise, in (0, 1).
    leaf_prior
        Prior of every other block's count: one, or several with ``prior_of``. Flat by default: any number is equally likely.
        On many blocks that is a strong belief about their *total*, which the counts above then correct.
    prior_of
        With several priors, which one each leaf has, in the order of ``spine.leaves``.
    tolerance
        Bound asked of what the windows leave out.
    far
        Targets whose block's own noisy count, or that of a unit above that holds no other block, lies more than so many sigma
        from both counts that her knowledge allows (known and known + 1) get NaN instead of an answer: what she knows is wrong
        there. Default: all are answered, which takes long where it is many.

    Returns
    -------
    BlockAnswers
        One answer a target.

    Raises
    ------
    ModelError
        For a target that is no block, impossible known counts, or a release that nothing bounds.
    SamplingError
        Where the counts lie too far from every possible truth.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> from adversary.spine_attack.counts import SpineCounts
    >>> spine = Spine.from_blocks({"tract": ["1", "1", "1"], "block": ["11", "12", "13"]})
    >>> answers = attack_blocks(SpineCounts(spine, [12, -3, 4, 2], 10.09))
    >>> answers.posterior.round(4).tolist()
    [0.4548, 0.6683, 0.6038]
    """
    q = Question.checked(counts, targets, known, prior, leaf_prior, prior_of)
    spine = counts.spine
    gain, mean, sd = np.full(q.unit.size, np.nan), np.zeros(len(spine)), np.zeros(len(spine))
    wrong = _contradicted(counts, q, far)
    roots = counts.roots
    wanted = np.unique(roots[q.unit])
    trees: list[tuple[Ints, TreePosterior]] = []
    bound, proven = 0.0, True
    for root in wanted.tolist():
        units = np.flatnonzero(roots == root)
        tree = Tree.of(counts, q, units)
        mine = np.flatnonzero(roots[q.unit] == root)
        for rows in _rounds(q.unit, mine):
            solved, gain[rows] = tree.solve(q.unit[rows], np.where(wrong[rows], -1, q.known[rows]), tolerance)
            bound, proven = max(bound, solved.left_out_bound), proven and solved.bound_proven
        mean[units], sd[units] = solved.mean, solved.sd
        trees.append((units, solved))
    log_odds = q.log_odds + gain
    rho = counts.rho_of_presence[q.unit]
    with np.errstate(invalid="ignore"):  # NaN is no answer
        posterior, risk = closed.probability(log_odds), closed.risk(log_odds, q.log_odds)
    return BlockAnswers(
        counts=counts,
        unit=q.unit,
        known=q.known,
        prior=closed.probability(q.log_odds),
        posterior=posterior,
        log_odds=log_odds,
        risk=risk,
        decision=log_odds > 0,
        count_mean=mean[q.unit],
        count_sd=sd[q.unit],
        ceiling=ceilings(rho, q.log_odds),
        left_out_bound=bound,
        bound_proven=proven,
        _trees=tuple(trees),
    )


def _contradicted(counts: SpineCounts, q: Question, far: float) -> NDArray[np.bool_]:
    """Whether the count of a block, or of a unit that holds no other, is more than ``far`` sigma from known and known + 1."""
    wrong = np.zeros(q.unit.size, dtype=bool)
    if np.isinf(far):
        return wrong
    spine, unit, alone = counts.spine, q.unit.copy(), np.ones(q.unit.size, dtype=bool)
    while alone.any():
        noisy, sigma2 = counts.counts[unit], counts.noise[unit]
        away = np.maximum(np.maximum(q.known - noisy, noisy - q.known - 1), 0)
        wrong |= alone & (sigma2 > 0) & (away > far * np.sqrt(sigma2))
        above = spine.parents[unit]  # a lone block's budget is spent above it, and says as much
        alone &= (above >= 0) & (spine.n_children[np.maximum(above, 0)] == 1)
        unit = np.where(alone, above, unit)
    return wrong


def ceilings(rho: Floats, log_odds: Floats) -> Floats:
    """Ceiling of the expected risk for many targets of prior ``log_odds``; 1/p where an exact count makes rho infinite."""
    pairs, back = np.unique(np.column_stack([rho, log_odds]), axis=0, return_inverse=True)
    found = [
        float(closed.risk(np.inf, lo)) if np.isinf(r) else risk_ceiling(float(r), log_odds=float(lo))
        for r, lo in pairs.tolist()
    ]
    return np.array(found)[back.ravel()] if found else np.zeros(0)


def _rounds(unit: Ints, mine: Ints) -> list[Ints]:
    """Rows in rounds in which no block is named twice."""
    if not mine.size:
        return []
    order = mine[np.argsort(unit[mine], kind="stable")]
    new = np.r_[True, unit[order][1:] != unit[order][:-1]]
    start = np.flatnonzero(new)
    place = np.arange(order.size) - np.repeat(start, np.diff(np.r_[start, order.size]))
    return [order[place == k] for k in range(int(place.max()) + 1)]


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree of a forest, tilted so that its messages can be read.

    Attributes
    ----------
    units
        Indices of its units in the spine, parents first.
    parent
        Place of every unit's parent among them, -1 for the root.
    sigma2, noisy
        Noise parameter and noisy count of every unit.
    leaf
        Places of the leaves.
    priors, prior_of
        Priors of leaves, and which of them each leaf has.
    theta
        Tilt of every unit.
    """

    units: Ints
    parent: Ints
    sigma2: Floats
    leaf: Ints
    noisy: Ints
    priors: tuple[LeafPrior, ...]
    prior_of: Ints
    theta: Floats

    @classmethod
    def of(cls, counts: SpineCounts, question: Question, units: Ints) -> Tree:
        """Take one tree, given by its units in order, out of the spine of ``counts``, with the priors of a ``question``."""
        spine = counts.spine
        place = np.full(len(spine), -1, np.int64)
        place[units] = np.arange(units.size)
        above = spine.parents[units]
        parent = np.where(above >= 0, place[np.maximum(above, 0)], -1)
        leaf = np.flatnonzero(spine.n_children[units] == 0)
        which = question.prior_of[np.searchsorted(spine.leaves, units[leaf])]
        sigma2 = counts.noise[units]
        tilted = tilt_tree(parent, counts.counts[units], sigma2, question.priors, which)
        return cls(units, parent, sigma2, leaf, tilted.noisy, tilted.priors, tilted.prior_of, tilted.theta)

    def solve(self, targets: Ints, known: Ints, tolerance: float) -> tuple[TreePosterior, Floats]:
        """Posterior of the tree, and the log likelihood ratio of each of ``targets`` (``known`` people, ``tolerance``)."""
        place = np.searchsorted(self.units[self.leaf], targets)
        others = np.full(self.leaf.size, -1, np.int64)
        others[place] = known
        solved = solve_tree(
            self.parent,
            self.noisy,
            self.sigma2,
            self.priors,
            prior_of=self.prior_of,
            known=others,
            tolerance=tolerance,
        )
        gain = solved.log_likelihood_ratio[place] - self.theta[place]
        lost = np.isnan(gain) & (known >= 0)
        if np.any(lost):
            at = int(np.flatnonzero(lost)[0])
            msg = (
                f"unit {int(targets[at])} cannot hold the {int(known[at])} persons that are known to be in it, nor one more: an "
                "exact count, or a prior, says otherwise"
            )
            raise ModelError(msg, int(known[at]))
        return solved, gain
