"""One block, six questions: is there one, what is certain, likely, likeliest, and what if none fits.

What it is: `Reconstruction`, a block's rows with a back end and limits. It answers whether any block meets
the rows; the least and greatest value of any count over all of them (a harm is certain iff its least count is
1 or more); the most likely block given shares of a microdata sample; the t most likely; which statements hold
in all of them; and, where the rows clash, which do and which block misses them by least. Every question ends
with a status, never None.

What it is not: a posterior. The likelihood knows neither subsidy nor bedrooms, so the most likely block is
one of very many that are equally likely; `Top` says so. Validation is on synthetic households only.

Held to account by tests/reconstruction/test_solve.py (every answer against a full enumeration, one back end
against the other). Sources: arXiv 2407.04776, eq. 1 and 2 and appendix C; certain claims: arXiv 2504.21199;
level sets, the deletion filter and the statuses are ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction import _questions
from adversary.reconstruction._program import Limits, Outcome, Program, Status, installed, solve
from adversary.reconstruction.answers import Bounds, CellBounds, Claim, Clash, Flag, Mend, Solution, Top
from adversary.reconstruction.constraints import LARGEST, UNBOUNDED, Constraints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.households import Configurations, Predicate

    Picked = Predicate | Mapping[str, Any] | ArrayLike | None

__all__ = ["SCALE", "SUPPORT", "Limits", "Reconstruction", "Status"]

SCALE = 1000
"""Costs are whole thousandths of a nat, so that both solvers compare likelihoods exactly."""
SUPPORT = "microdata sample"
"""Name of the row that rules out configurations with share zero."""
_HARD = ("H3", SUPPORT)
_LARGE = 1200  # configurations above which HiGHS's presolve pays for bounds


class _Live(NamedTuple):
    """The rows that still say something, over the configurations that are not ruled out."""

    columns: NDArray[np.int64]
    program: Program


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """The rows of one block, ready to be asked.

    Attributes
    ----------
    constraints
        The rows. Where ``shares`` has zeros, a row `SUPPORT` is added that rules those configurations out.
    shares
        Share of every configuration in the microdata sample, shape (K,); None if nothing is to be called
        likely.
    backend
        ``"highs"`` or ``"cpsat"``. `top` always enumerates with CP-SAT.
    limits
        Time, memory, threads and seed, for each question.
    confirm
        Put infeasible programs to the other solver too.

    Examples
    --------
    >>> from adversary.reconstruction.households import Attribute, Configurations
    >>> from adversary.reconstruction.constraints import Queries
    >>> cells = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    >>> rows = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1]])
    >>> asked = Queries(cells, rows, ("H3", "H13", "P19"), ("all", "2", "yes"), ("household",) * 3)
    >>> block = Reconstruction(asked.constraints([3, 2, 2]), shares=np.array([0.4, 0.0, 0.3, 0.3]))
    >>> bounds = block.bounds({"size": "2", "child": "yes"})
    >>> bounds.low, bounds.high, bounds.certain
    (2, 2, True)
    >>> best = block.most_likely()
    >>> best.status, best.counts.tolist()
    (<Status.OPTIMAL: 'optimal'>, [1, 0, 0, 2])
    >>> top = block.top(5)
    >>> len(top), top.exhausted, top.cut
    (1, True, False)
    >>> block.flag({"child": "yes"}).verdict, block.flag({"size": "2", "child": "no"}).verdict
    ('flagged', 'not flagged')
    >>> block.certain_claims(["size"])[0].what
    'size=1'
    >>> wrong = Reconstruction(asked.constraints([3, 4, 2]))
    >>> str(wrong.feasible().clash)
    'H3 all (3) against H13 2 (4)'
    >>> wrong.closest().missed
    1
    """

    constraints: Constraints
    shares: NDArray[np.float64] | None = None
    backend: str = "highs"
    limits: Limits = field(default_factory=Limits)
    confirm: bool = True

    def __post_init__(self) -> None:
        if self.shares is None:
            return
        shares = np.asarray(self.shares, dtype=np.float64)
        if shares.shape != (len(self.configurations),) or not np.isfinite(shares).all() or (shares < 0).any():
            msg = f"shares of shape {shares.shape}: one finite number of 0 or more for each configuration"
            raise ModelError(msg, shares.shape)
        object.__setattr__(self, "shares", shares)
        if (shares == 0).any() and SUPPORT not in self.constraints.tables:
            object.__setattr__(self, "constraints", self.constraints.allowing(shares > 0, SUPPORT))

    @property
    def configurations(self) -> Configurations:
        """The table of configurations."""
        return self.constraints.configurations

    @cached_property
    def costs(self) -> NDArray[np.int64]:
        """Cost of one household of every configuration, ``round(-1000 log share)``, int64, shape (K,)."""
        if self.shares is None:
            msg = "nothing is likely without shares: give shares= of a microdata sample"
            raise ModelError(msg, None)
        seen = self.shares > 0
        return np.rint(-SCALE * np.log(np.where(seen, self.shares, 1.0))).astype(np.int64)

    @cached_property
    def live(self) -> _Live:
        """Rows and configurations that single rows do not settle."""
        c, p = self.constraints, self.constraints.propagation
        columns = np.flatnonzero(p.greatest > 0)
        matrix = c.matrix[:, columns]
        lower, upper = p.least[columns], np.minimum(p.greatest[columns], self._ceiling)
        up, down = np.maximum(matrix, 0), np.minimum(matrix, 0)
        smallest, largest = up @ lower + down @ upper, up @ upper + down @ lower
        rows = (smallest < c.low) | (largest > c.high)
        cost = np.zeros(len(columns), dtype=np.int64)
        return _Live(columns, Program(matrix[rows], c.low[rows], c.high[rows], lower, upper, cost))

    @cached_property
    def _ceiling(self) -> int:
        """Beyond the largest end of any row, more of a configuration gains nothing."""
        c = self.constraints
        if (c.matrix < 0).any():
            return LARGEST
        ends = np.concatenate([np.abs(c.low[c.low > -UNBOUNDED]), np.abs(c.high[c.high < UNBOUNDED]), [1]])
        return int(min(ends.max(), LARGEST))

    def expand(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write values of the live configurations out over the whole table."""
        counts = np.zeros(len(self.configurations), dtype=np.int64)
        counts[self.live.columns] = values[: len(self.live.columns)]
        return counts

    def run(self, program: Program, seconds: float | None = None, confirm: bool | None = None) -> Outcome:
        """Solve a program over the live configurations (and columns after them) in ``seconds``; ``confirm`` a refusal."""
        if self.constraints.propagation.row is not None:
            return Outcome(Status.INFEASIBLE, confirmed=True)
        limits = self.limits if seconds is None else replace(self.limits, seconds=max(seconds, 0.0))
        return solve(program, self.backend, limits, confirm=self.confirm if confirm is None else confirm)

    def feasible(self, without: Picked = None, *, explain: bool = True) -> Solution:
        """Look for any block that meets every row.

        Parameters
        ----------
        without
            Configurations that must not occur (the harm, say); None for none.
        explain
            For an infeasible block, find the rows that clash; only if nothing is ruled out by ``without``.

        Returns
        -------
        Solution
            ``optimal`` if a block was found (any is as good as another), infeasible, or time limit.
        """
        start = time.perf_counter()
        program = replace(self.live.program, first=True)
        if self.shares is not None:
            program = replace(program, cost=self.costs[self.live.columns])
        if without is not None:
            barred = self.configurations.mask(without)[self.live.columns]
            program = replace(program, upper=np.where(barred, 0, program.upper))
            if (program.lower > program.upper).any():
                return Solution(Status.INFEASIBLE, seconds=time.perf_counter() - start, confirmed=True)
        outcome = self.run(program)
        solution = self._solution(outcome, start)
        if outcome.status is Status.INFEASIBLE and explain and without is None:
            left = self.limits.seconds - time.perf_counter() + start
            clash = _questions.clash(self, left)
            return replace(solution, clash=clash, seconds=time.perf_counter() - start)
        return solution

    def flag(self, harm: Predicate | Mapping[str, Any] | ArrayLike) -> Flag:
        """Decide whether every block that meets the rows has a household with the harm.

        Notes
        -----
        arXiv 2407.04776, eq. 1. Rows that no block meets flag nothing; they are told apart as
        ``"inconsistent"``.
        """
        start = time.perf_counter()
        free = self.feasible(without=harm, explain=False)
        if free.found:
            return Flag("not flagged", free.counts, time.perf_counter() - start, None)
        if free.status is not Status.INFEASIBLE:
            return Flag("undecided", None, time.perf_counter() - start, None)
        left = max(self.limits.seconds - time.perf_counter() + start, 0.0)
        any_block = replace(self, limits=replace(self.limits, seconds=left)).feasible(explain=False)
        names = {Status.INFEASIBLE: "inconsistent", Status.TIME_LIMIT: "undecided"}
        verdict = names.get(any_block.status, "flagged")
        confirmed = any_block.confirmed if verdict == "inconsistent" else free.confirmed
        return Flag(verdict, None, time.perf_counter() - start, confirmed)

    def bounds(self, of: Picked = None, weights: ArrayLike | None = None) -> Bounds:
        """Return the least and greatest value of a count over all blocks that meet the rows.

        Parameters
        ----------
        of
            Which configurations are counted; None for all.
        weights
            What each household of a configuration counts for (persons, say), whole, shape (K,); None for 1.

        Raises
        ------
        ModelError
            If no row bounds what is counted.
        """
        start = time.perf_counter()
        coefficients = self.configurations.mask(of).astype(np.int64)
        if weights is not None:
            coefficients *= np.asarray(weights, dtype=np.int64)
        p = self.constraints.propagation
        endless = (coefficients != 0) & (p.greatest >= LARGEST)
        if endless.any() and p.row is None:
            k = int(np.flatnonzero(endless)[0])
            msg = f"no row bounds {self.configurations.label(k)}: add the block's number of households"
            raise ModelError(msg, k)
        return self._bounds(coefficients, start)

    def _bounds(self, coefficients: NDArray[np.int64], start: float) -> Bounds:
        live = self.live
        cost = coefficients[live.columns]
        ends = np.stack([cost * live.program.lower, cost * live.program.upper])
        low, high = int(ends.min(axis=0).sum()), int(ends.max(axis=0).sum())
        plain = low
        # a block found first serves as a witness for both ends, should the search for them be cut short
        first = self.feasible(explain=False)
        blocks: list[NDArray[np.int64] | None] = [first.counts, first.counts]
        statuses = [first.status]
        program = replace(live.program, presolve=len(live.columns) > _LARGE)
        for side, sign in enumerate((1, -1)):
            if first.status is Status.INFEASIBLE:
                break
            left = self.limits.seconds - time.perf_counter() + start
            outcome = self.run(replace(program, cost=sign * cost), left)
            statuses.append(outcome.status)
            if outcome.values is not None:
                blocks[side] = self.expand(outcome.values)
            if outcome.status is Status.INFEASIBLE:
                break
            if outcome.bound is not None:
                low, high = (max(low, outcome.bound), high) if side == 0 else (low, min(high, -outcome.bound))
        confirmed: bool | None = None
        if low >= 1 and Status.INFEASIBLE not in statuses:
            # a certain harm is too grave a claim to rest on one solver's floating point
            fewer = self.exists(coefficients, high=low - 1) if low > plain else None
            if low <= plain or (fewer is not None and fewer.status is Status.INFEASIBLE):
                confirmed = True
            elif fewer is not None and fewer.values is not None:
                blocks[0], low = self.expand(fewer.values), plain
        seen = [int(coefficients @ block) for block in blocks if block is not None]
        if Status.INFEASIBLE in statuses:
            status = Status.INFEASIBLE
        elif seen and min(seen) == low and max(seen) == high:
            status = Status.OPTIMAL
        else:
            status = Status.FEASIBLE if seen else Status.TIME_LIMIT
        return Bounds(low, high, blocks[0], blocks[1], status, time.perf_counter() - start, confirmed)

    def exists(
        self, coefficients: NDArray[np.int64], low: int = -UNBOUNDED, high: int = UNBOUNDED
    ) -> Outcome | None:
        """Ask the *other* solver for a block with ``coefficients`` @ counts in ``low..high``; None if not asked."""
        other = "cpsat" if self.backend == "highs" else "highs"
        if not self.confirm or not installed(other):
            return None
        p = self.live.program
        matrix = np.vstack([p.matrix, coefficients[self.live.columns]])
        ends = np.append(p.low, low), np.append(p.high, high)
        program = replace(p, matrix=matrix, low=ends[0], high=ends[1], first=True)
        return solve(program, other, self.limits, confirm=False)

    def cell_bounds(self, names: Sequence[str] | None = None, within: Picked = None) -> CellBounds:
        """Return the bounds of every cell of the table over some attributes.

        Parameters
        ----------
        names
            Attributes that make the cells; None for all.
        within
            Count only these configurations; None for all.

        Notes
        -----
        The limits hold for the question as a whole. Blocks seen for one cell serve the others: a cell whose
        bound from single rows was already attained needs no program.
        """
        return _questions.cell_bounds(self, names, within)

    def certain_claims(
        self, names: Sequence[str], within: Picked = None, bounds: CellBounds | None = None
    ) -> tuple[Claim, ...]:
        """Return what holds in every block: cells with the same positive count in all of them.

        Parameters
        ----------
        names, within
            As for `cell_bounds`.
        bounds
            What `cell_bounds` returned for the same names and subset, if it was asked before; its status says
            whether a limit left cells open.

        Notes
        -----
        Verified iff least = greatest (arXiv 2504.21199 adds ``count != m`` and finds it infeasible: the
        same). Cells that a limit left open are no claims.
        """
        b = self.cell_bounds(names, within) if bounds is None else bounds
        if b.status is Status.INFEASIBLE:
            return ()
        cell, _ = self.configurations.cells(names)
        counted, p = self.configurations.mask(within), self.constraints.propagation
        claims = []
        for g in np.flatnonzero((b.low == b.high) & (b.low >= 1)).tolist():
            count, its = int(b.low[g]), (counted & (cell == g)).astype(np.int64)
            if int(its @ p.least) < count or int(its @ p.greatest) > count:  # single rows do not settle it
                others = (self.exists(its, high=count - 1), self.exists(its, low=count + 1))
                if any(other is not None and other.values is not None for other in others):
                    continue
            claims.append(Claim(b.cells.label(g), g, count))
        return tuple(claims)

    def most_likely(self) -> Solution:
        """Return a block of least cost, that is of greatest likelihood given the shares.

        Notes
        -----
        arXiv 2407.04776, eq. 2: ``max sum counts * log share``, the likelihood of an ordered list of
        households (no multinomial coefficient), rounded to thousandths. Ties are usual: see `top`.
        """
        start = time.perf_counter()
        outcome = self.run(replace(self.live.program, cost=self.costs[self.live.columns]))
        return replace(self._solution(outcome, start), bound=outcome.bound)

    def top(self, t: int = 100) -> Top:
        """Return the t most likely blocks, level by level (see `Top` for the rule on ties).

        Parameters
        ----------
        t
            How many, 1 or more; 100 in arXiv 2407.04776.
        """
        if t < 1:
            msg = f"the top {t} of a list is nothing: ask for 1 or more"
            raise ModelError(msg, t)
        return _questions.top(self, t)

    def closest(
        self, hard: Sequence[str] | None = None, sigma: ArrayLike | None = None, backend: str | None = None
    ) -> Mend:
        """Return the block that misses the rows by least.

        Parameters
        ----------
        hard
            Tables that must hold exactly; None for the number of households (H3) and `SUPPORT`, where
            present.
        sigma
            Standard deviation of each row's error, shape (m,); None for 1 each (swapping). Errors are weighed
            by ``round(1000 / sigma)``.
        backend
            ``"highs"`` or ``"cpsat"``; None for CP-SAT where it is installed, else that of the reconstruction.

        Notes
        -----
        arXiv 2407.04776, appendix C (the program is ours): ``min sum |error| / sigma``.
        """
        return _questions.closest(self, _HARD if hard is None else hard, sigma, backend)

    def clash(self) -> Clash | None:
        """Return rows that cannot hold together, as few as deletion leaves; None if a block was found."""
        solution = self.feasible(explain=True)
        return solution.clash

    def _solution(self, outcome: Outcome, start: float) -> Solution:
        counts = None if outcome.values is None else self.expand(outcome.values)
        value = likelihood = None
        if counts is not None and self.shares is not None:
            value = int(self.costs @ counts)
            at = np.flatnonzero(counts)
            likelihood = float(counts[at] @ np.log(self.shares[at]))
        return Solution(
            outcome.status,
            counts,
            value,
            None,
            likelihood,
            time.perf_counter() - start,
            outcome.limit,
            outcome.confirmed,
        )
