"""The posterior of a block: which households live there, given everything published about it.

What it is: the adversary who believes that households are drawn from known shares and conditions on what is
published, exactly: rows that hold, intervals, and tables with discrete Gaussian noise. Answers are the
probability that a household of each configuration is present, the law of the number of households with a
harm, and independent draws of whole blocks; each with the same under the prior, so that risk = posterior /
prior. Small blocks are answered exactly by dynamic programming; what needs more states than allowed is refused
or, with ``method="tempering"`` (or ``"auto"``), sampled, with a verdict.

What it is not: certain knowledge (:mod:`adversary.reconstruction.solve` proves what holds in every block), nor
free of assumptions: what she believes of bedrooms given size decides what she finds
(:mod:`adversary.reconstruction.beliefs`). Validated on synthetic households only.

Held to account by tests/reconstruction/test_posterior.py (a full enumeration; simulation-based calibration).
Source: ours; it takes the place of the most likely list of arXiv 2407.04776, eq. 2, whose likelihood is
``likelihood="ordered"``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, SamplingError, UnsupportedModelError
from adversary.reconstruction import _dynamic
from adversary.reconstruction import _sampled as sampled
from adversary.reconstruction._diagnostics import ess
from adversary.reconstruction._prior import HouseholdPrior
from adversary.reconstruction._program import installed
from adversary.reconstruction._reduced import (
    LIKELIHOODS,
    Reduced,
    Weights,
    households_of_rows,
    households_prior,
    reduce,
)
from adversary.reconstruction.answers import Clash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr
    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.constraints import Constraints
    from adversary.reconstruction.households import Configurations, Predicate
    from adversary.reconstruction.noise import NoisyRows
    from adversary.results import Check

    Picked = Predicate | Mapping[str, Any] | ArrayLike | None

__all__ = ["Cells", "Effort", "HouseholdPosterior", "HouseholdPrior", "household_posterior"]

_METHODS = ("auto", "exact", "tempering")


@dataclass(frozen=True)
class Effort:
    """What may be spent on one block.

    Attributes
    ----------
    states, megabytes
        Limits of the exact posterior: states of one layer, and memory of the steps kept (twice that at the
        peak).
    chains, sweeps
        Of the sampler: independent ladders of chains, and sweeps of each after as many again for warming up.
        One sweep is a move or two of every household on every rung.
    doublings
        How often the sampler begins again with twice the sweeps while a check fails.
    """

    states: int = 400_000
    megabytes: float = 1_000.0
    chains: int = 4
    sweeps: int = 1_000
    doublings: int = 2

    def __post_init__(self) -> None:
        if not (self.states >= 1 and self.megabytes > 0 and self.chains >= 2 and self.sweeps >= 100):
            msg = (
                f"{self} cannot be: one state or more, some memory, two chains or more of 100 sweeps or more"
            )
            raise ModelError(msg, self)


@dataclass(frozen=True, eq=False)
class Cells:
    """What is believed of the cells of a table over some attributes.

    Attributes
    ----------
    cells
        The cells; shape (G,).
    present, expected
        P(at least one household in the cell), expected households; shape (G,).
    prior_present, prior_expected
        The same before anything but the number of households was published.
    """

    cells: Configurations
    present: NDArray[np.float64]
    expected: NDArray[np.float64]
    prior_present: NDArray[np.float64]
    prior_expected: NDArray[np.float64]

    @property
    def risk(self) -> NDArray[np.float64]:
        """Posterior / prior of each cell being occupied, shape (G,); nan where the prior is 0."""
        none = np.full(len(self.present), np.nan)
        return np.asarray(np.divide(self.present, self.prior_present, out=none, where=self.prior_present > 0))


@dataclass(frozen=True, eq=False)
class HouseholdPosterior:
    """What she believes of a block after looking at everything published.

    Attributes
    ----------
    constraints, noisy
        What was published.
    prior
        The same questions before it was, the number of households given.
    method
        ``"exact"`` or ``"tempering"``.
    present, expected
        P(at least one household of the configuration), expected households; shape (K,).
    draws
        Blocks drawn from the posterior, int64, shape (chains, draws, K); independent if exact.
    log_evidence
        Log-probability of everything published, given the number of households' prior; nan if sampled.
    checks
        What was checked, with the outcome in words.
    seed
        Of the draws, as text.
    """

    constraints: Constraints
    noisy: NoisyRows | None
    prior: HouseholdPrior
    method: str
    present: NDArray[np.float64]
    expected: NDArray[np.float64]
    draws: NDArray[np.int64]
    log_evidence: float
    checks: tuple[Check, ...]
    seed: str
    _graph: _dynamic.Graph | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        n = sorted(self.prior.households)
        numbers = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
        verdict = "" if self.sound else "; A CHECK FAILED"
        return (
            f"<HouseholdPosterior of {numbers} households ({self.method}, {self.prior.likelihood}){verdict}>"
        )

    @property
    def configurations(self) -> Configurations:
        """The table of configurations."""
        return self.constraints.configurations

    @property
    def sound(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def solutions(self) -> float:
        """Number of blocks that meet the exact rows, over configurations with a positive share; nan if sampled."""
        if self._graph is None:
            return math.nan
        log = self._graph.log_solutions
        return float(round(math.exp(log))) if log < 36 else math.exp(min(log, 709.0))

    def pmf(self, harm: Picked) -> NDArray[np.float64]:
        """Return the law of the number of households with the harm, from 0 on.

        Parameters
        ----------
        harm
            A predicate, a mapping from attribute to level(s), or a mask of shape (K,).
        """
        its = self.configurations.mask(harm)
        if self._graph is not None:
            classes = zip(self._graph.problem.members, self._graph.problem.greatest, strict=True)
            most = sum(int(t) for members, t in classes if its[members].any())
            return self._graph.pmf(its, max(min(most, max(self.prior.households)), 1))
        number = self.draws[..., its].sum(axis=-1).ravel()
        return np.bincount(number) / number.size

    def probability(self, harm: Picked) -> float:
        """Return P(at least one household with the harm)."""
        its = self.configurations.mask(harm)
        if self._graph is not None:
            return float(self._graph.pmf(its, 1)[1])
        return float((self.draws[..., its].sum(axis=-1) > 0).mean())

    def mcse(self, harm: Picked) -> float:
        """Return the Monte Carlo standard error of `probability`; 0 if exact, nan if no chain ever changed.

        Parameters
        ----------
        harm
            What is asked of a household.
        """
        if self._graph is not None:
            return 0.0
        event = (self.draws[..., self.configurations.mask(harm)].sum(axis=-1) > 0).astype(float)
        return math.sqrt(event.var() / ess(event))

    def expected_number(self, harm: Picked) -> float:
        """Return the expected number of households with the harm."""
        return float(self.expected[self.configurations.mask(harm)].sum())

    def risk(self, harm: Picked) -> float:
        """Return posterior / prior of at least one household with the harm; nan where the prior is 0."""
        before = self.prior.probability(harm)
        return self.probability(harm) / before if before > 0 else math.nan

    def cells(self, names: Sequence[str] | None = None, within: Picked = None) -> Cells:
        """Return what is believed of every cell of the table over some attributes.

        Parameters
        ----------
        names
            Attributes that make the cells; None for all.
        within
            Count only these configurations; None for all.
        """
        cell, cells = self.configurations.cells(names)
        counted = self.configurations.mask(within)
        size = len(cells)
        tables = [np.bincount(cell[counted], x[counted], size) for x in (self.expected, self.prior.expected)]
        present, before = np.zeros(size), np.zeros(size)
        for g in range(size):
            its = counted & (cell == g)
            present[g] = self.probability(its) if tables[0][g] > 0 else 0.0
            before[g] = self.prior.probability(its)
        return Cells(cells, present, tables[0], before, tables[1])

    def to_tree(self, harm: Predicate | Mapping[str, Any] | ArrayLike) -> xr.DataTree:
        """Return the answer to "is a household with the harm present?" in the tree that every attack has.

        Parameters
        ----------
        harm
            As for `pmf`. The target is 1 where at least one household has it.

        Returns
        -------
        xarray.DataTree
            `adversary.results.AttackResult` reads it; draws are in ``posterior``, the law of the number in
            ``exact``, all configurations in ``households``, the rows in ``rows``.
        """
        from adversary.reconstruction._tree import tree_of

        return tree_of(self, harm)


def household_posterior(  # noqa: PLR0913
    constraints: Constraints,
    shares: ArrayLike,
    *,
    noisy: NoisyRows | None = None,
    likelihood: str = "exchangeable",
    households: int | range | Mapping[int, float] | None = None,
    method: str = "auto",
    draws: int = 1000,
    seed: int | np.random.SeedSequence | np.random.Generator = 0,
    effort: Effort | None = None,
    progressbar: bool = False,
) -> HouseholdPosterior:
    """Condition households drawn from shares on everything published about their block.

    Parameters
    ----------
    constraints
        Exact rows and intervals; they must hold.
    shares
        How probable a household of each configuration is, in any unit, shape (K,); zero rules it out. See
        `adversary.reconstruction.beliefs.attacker_shares`.
    noisy
        Tables with noise; None for none.
    likelihood
        ``"exchangeable"``: households are drawn one by one (blocks have the multinomial coefficient).
        ``"ordered"``: blocks are weighed by ``prod shares^counts``, the score of arXiv 2407.04776, eq. 2.
    households
        Number of households: a number, a range (equally likely) or probabilities by number; None if the rows
        fix it.
    method
        ``"exact"``, ``"tempering"``, or ``"auto"``: exact where the effort allows it.
    draws
        Blocks to draw; if sampled, how many are kept of each chain at most.
    seed
        The same seed gives the same draws; exact probabilities do not depend on it.
    effort
        Limits; None for the defaults.
    progressbar
        Whether to show progress.

    Returns
    -------
    HouseholdPosterior
        The posterior, exact or drawn, as it says itself.

    Raises
    ------
    ModelError
        No block meets the rows (``.value`` is the `Clash`, where one was found); no number of households.
    UnsupportedModelError
        ``method="exact"`` and the limits do not suffice.
    SamplingError
        The sampler found too few blocks, or no list came all the way up its rungs: nothing could be checked.

    Notes
    -----
    With ``"exchangeable"``: ``P(x | n) = n! prod p_k^x_k / x_k!``; with ``"ordered"`` ``prod p_k^x_k`` over
    its sum for n households. The posterior is proportional to ``P(n) P(x | n) 1[rows hold] prod N_Z(values |
    rows, sigma^2)``.

    Examples
    --------
    >>> from adversary.reconstruction.constraints import Queries
    >>> from adversary.reconstruction.households import Attribute, Configurations
    >>> cells = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    >>> rows = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1]])
    >>> asked = Queries(cells, rows, ("H3", "H13", "P19"), ("all", "2", "yes"), ("household",) * 3)
    >>> found = household_posterior(asked.constraints([3, 1, 1]), [0.5, 0.0, 0.25, 0.25])
    >>> found.solutions, found.present.tolist()
    (1.0, [1.0, 0.0, 0.0, 1.0])
    >>> loose = household_posterior(asked.constraints([3, -1, 1]), [0.4, 0.1, 0.25, 0.25])
    >>> both = {"size": "2", "child": "yes"}
    >>> round(loose.probability(both), 4), round(loose.prior.probability(both), 4)
    (0.7143, 0.5781)
    """
    effort = Effort() if effort is None else effort
    if method not in _METHODS or likelihood not in LIKELIHOODS:
        msg = f"method={method!r}, likelihood={likelihood!r}: choose of {_METHODS} and of {LIKELIHOODS}"
        raise ModelError(msg, (method, likelihood))
    p = _normalised(shares, len(constraints.configurations))
    log_n = _number(constraints, p, households)
    prior = HouseholdPrior(
        constraints.configurations, p, likelihood, {n: math.exp(log) for n, log in log_n.items()}
    )
    problem = reduce(constraints, noisy, Weights(likelihood == "ordered", p), log_n)
    root = seed if isinstance(seed, np.random.SeedSequence) else None
    rng = np.random.default_rng(seed)
    name = f"{root.entropy}" if root is not None else ("a generator" if rng is seed else f"{seed}")
    if method != "tempering":
        try:
            graph = _exact(problem, effort, progressbar)
        except UnsupportedModelError:
            if method == "exact":
                raise
        else:
            if graph.layers is None:
                raise _impossible(problem, constraints, p)
            present, expected = graph.marginals()
            blocks = graph.draw(draws, rng)[None]
            found = (present, expected, blocks, graph.log_evidence, _exact_checks(graph), name)
            return HouseholdPosterior(constraints, noisy, prior, "exact", *found, graph)
    if problem.impossible is not None:
        raise _impossible(problem, constraints, p)
    try:
        counts, verdict = sampled.run(problem, effort, draws, rng, progressbar=progressbar)
    except SamplingError as error:
        clashing = _impossible(problem, constraints, p) if error.value == 0 and installed("highs") else None
        if clashing is None or clashing.value is None:
            raise
        raise clashing from error
    blocks, (present, expected) = sampled.written_out(problem, counts, rng)
    checks = (*verdict, _validation())
    return HouseholdPosterior(
        constraints, noisy, prior, "tempering", present, expected, blocks, math.nan, checks, name
    )


def _normalised(shares: ArrayLike, size: int) -> NDArray[np.float64]:
    p = np.asarray(shares, dtype=np.float64)
    if p.shape != (size,) or not np.isfinite(p).all() or (p < 0).any() or not p.sum() > 0:
        msg = f"shares of shape {p.shape}: one finite number of 0 or more for each of {size} configurations, not all 0"
        raise ModelError(msg, p)
    return np.asarray(p / p.sum())


def _number(rows: Constraints, p: NDArray[np.float64], households: Any) -> dict[int, float]:
    if households is not None:
        return households_prior(households)
    fixed = households_of_rows(rows, p > 0)
    if fixed is None:
        msg = "the rows do not fix the number of households: give households= a number, a range or probabilities"
        raise ModelError(msg, None)
    return households_prior(fixed)


def _exact(problem: Reduced, effort: Effort, progressbar: bool) -> _dynamic.Graph:
    from tqdm.auto import tqdm

    with tqdm(total=len(problem.members), desc="posterior", unit=" classes", disable=not progressbar) as bar:

        def watch(done: int, states: int) -> None:
            bar.update(done - bar.n)
            bar.set_postfix(states=states)

        return _dynamic.solve(problem, effort.states, effort.megabytes, watch)


def _exact_checks(graph: _dynamic.Graph) -> tuple[Check, ...]:
    from adversary.results import Check

    text = f"exact: no block is left out ({graph.states} states, {graph.steps} steps); draws are independent"
    return Check("error", True, text), _validation()


def _validation() -> Check:
    from adversary.results import Check

    return Check("validation", None, "the method was validated on synthetic households only")


def _impossible(problem: Reduced, rows: Constraints, p: NDArray[np.float64]) -> ModelError:
    """Name the rows that no block meets: by the solver where it is here, else the first that single rows break."""
    from adversary.reconstruction.solve import Reconstruction

    numbers = sorted(problem.log_n)
    counted = rows.adding("households", "given", np.ones(len(p), np.int64), numbers[0], numbers[-1])
    if (p == 0).any():
        counted = counted.allowing(p > 0, "shares above 0")
    clash = Reconstruction(counted).clash() if installed("highs") else None
    if clash is None and problem.impossible is not None:
        at = problem.impossible - 1
        clash = Clash((counted.row(at if at >= 0 else len(rows)),), irreducible=False)
    where = "the rows clash" if clash is None else f"{clash}"
    msg = f"no block of households with positive shares meets the rows: {where}; widen them (Reconstruction.closest)"
    return ModelError(msg, clash)
