"""The inverse problem: how much may be published while the risk stays within a bound.

A criterion (R <= r, P[right] <= q, or P[R' > r] <= a) is followed as everything published is scaled by one
factor. It need not be monotone: the mean posterior of a target with p = 1/864 *falls* between rho = 2.8 and
3.2, and P[right] jumps up and slides down again at every change of the decision's threshold. A bisection
would return any of the crossings. Therefore the range is scanned, every crossing is bracketed, and the one
that is called *safe* is the largest factor **below which the criterion holds throughout**: whoever publishes
less than was planned, or whose prior is a little off, stays within the bound. All other crossings are
returned beside it. For one level the places of the jumps are known and are part of the scan.

Without any computation: R <= exp(2 rho) for every prior, so ``rho <= ln(r) / 2`` is always enough
(:func:`guaranteed_information`).

Held to account by tests/risk/test_inverse.py (forward evaluation on both sides of every crossing).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from adversary.errors import ModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.privacy.semantics import rho_for_risk
from adversary.risk.expected import ExpectedRisk, expected_one_level
from adversary.risk.levels import expected_uniqueness
from adversary.risk.measures import decision_threshold, prior_log_odds
from adversary.risk.two_level import TwoLevelDesign, expected_two_level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Evaluate = Callable[[float, float], ExpectedRisk]
    Measure = Callable[[float, float], float]

__all__ = [
    "Criterion",
    "Crossing",
    "InverseAnswer",
    "guaranteed_information",
    "largest_factor",
    "largest_information",
    "scaled_two_level",
    "scaled_uniqueness",
]


@dataclass(frozen=True)
class Criterion:
    """What must stay within a bound.

    Parameters
    ----------
    measure
        ``"risk"`` (R), ``"right"`` (probability of a right decision) or ``"exceedance"`` (P[R' > ratio]).
    bound
        The largest value that is allowed.
    ratio
        For ``"exceedance"``: the r of R' > r.

    Raises
    ------
    ModelError
        If the bound cannot be met by publishing nothing, or ``ratio`` is missing or superfluous.

    Examples
    --------
    >>> Criterion("risk", 1.2).value(expected_one_level(5.04, p=0.1)) < 1.2
    True
    """

    measure: Literal["risk", "right", "exceedance"]
    bound: float
    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.measure not in ("risk", "right", "exceedance"):
            msg = f"measure must be risk, right or exceedance, got {self.measure!r}"
            raise ModelError(msg, self.measure)
        if (self.ratio is None) == (self.measure == "exceedance"):
            msg = f"ratio goes with measure='exceedance' and only with it, got {self.ratio}"
            raise ModelError(msg, self.ratio)
        if not self.bound > (1.0 if self.measure == "risk" else 0.0) or not math.isfinite(self.bound):
            msg = (
                f"the bound on {self.measure} must exceed {1 if self.measure == 'risk' else 0}, "
                f"got {self.bound}"
            )
            raise ModelError(msg, self.bound)
        if self.ratio is not None and not self.ratio > 1.0:
            msg = (
                f"ratio must exceed 1, got {self.ratio}: "
                "half of all releases have R' above 1 whatever the noise"
            )
            raise ModelError(msg, self.ratio)

    def value(self, answer: ExpectedRisk) -> float:
        """Read the measure off an answer."""
        if self.measure == "risk":
            return answer.risk
        return answer.right if self.ratio is None else answer.exceedance(self.ratio)


@dataclass(frozen=True)
class Crossing:
    """A place where the criterion begins or ceases to hold.

    Parameters
    ----------
    low, high
        Bracket: the criterion differs at its ends; relative width at most 1e-12.
    breaks
        True if it holds at ``low`` and is broken at ``high``.
    jump
        Difference of the measure between the ends: near zero where it is continuous.
    """

    low: float
    high: float
    breaks: bool
    jump: float


@dataclass(frozen=True)
class InverseAnswer:
    """Answer to an inverse problem.

    Parameters
    ----------
    safe
        Largest factor below which the criterion holds throughout the range; ``inf`` if it is nowhere broken
        in it, 0 if already at its lower end.
    crossings
        All crossings found, in increasing order; ``safe`` is the ``low`` of the first.
    value
        The measure at ``safe``.
    prior_log_odds
        The prior, of those asked for, that is worst just above ``safe``.
    low, high, points
        What was scanned. A violation narrower than the grid's step can be missed, except for one level, where
        every jump is a point of the grid.
    """

    safe: float
    crossings: tuple[Crossing, ...]
    value: float
    prior_log_odds: float
    low: float
    high: float
    points: int


def guaranteed_information(ratio: float) -> float:
    """Total rho that guarantees R <= ``ratio`` for every prior and every scenario: ``ln(ratio) / 2``.

    Parameters
    ----------
    ratio
        Bound on posterior / prior, above 1.

    Returns
    -------
    float
        In units of ``1/(2 sigma2)`` summed over the counts that the target changes.

    Examples
    --------
    >>> round(guaranteed_information(1.2), 6)
    0.091161
    """
    if not ratio > 1.0:
        msg = (
            f"the bound on R must exceed 1, got {ratio}: any release that is informative at all has R above 1"
        )
        raise ModelError(msg, ratio)
    return rho_for_risk(ratio)


def _one_level(criterion: Criterion) -> Measure:
    """Measure of one level: decisions and exceedances are one tail probability, no sum over releases."""

    def value(information: float, log_odds: float) -> float:
        sigma2 = 1.0 / (2.0 * information)
        if criterion.measure == "risk":
            return expected_one_level(sigma2, log_odds=log_odds).risk
        level = _level(criterion, log_odds)
        if math.isinf(level):
            return 0.0
        return math.exp(float(dg.log_sf(int(decision_threshold(log_odds - level, sigma2)) - 2, sigma2)))

    return value


def _level(criterion: Criterion, log_odds: float) -> float:
    """Posterior log-odds above which a release counts: 0 for a decision, else those of R' = ratio."""
    if criterion.ratio is None:
        return 0.0
    log_product = math.log(criterion.ratio) - float(np.logaddexp(0.0, -log_odds))
    return math.inf if log_product >= 0 else log_product - math.log(-math.expm1(log_product))


def scaled_two_level(design: TwoLevelDesign, total: int, tolerance: float = 1e-12) -> Evaluate:
    """Two levels with every noise parameter divided by the factor.

    Parameters
    ----------
    design, total, tolerance
        As for :func:`adversary.risk.two_level.expected_two_level`; the target is present.

    Returns
    -------
    callable
        ``(factor, prior log-odds) -> ExpectedRisk``, for :func:`largest_factor`.

    Examples
    --------
    >>> evaluate = scaled_two_level(TwoLevelDesign(sigma2=1.0, group_sigma2=1.0, others=4), 3)
    >>> evaluate(1.0, 0.0).right > 0.5
    True
    """

    def evaluate(factor: float, log_odds: float) -> ExpectedRisk:
        scaled = dataclasses.replace(
            design,
            sigma2=design.sigma2 / factor,
            group_sigma2=design.group_sigma2 / factor,
            rest_sigma2=design.one_rest_sigma2 / factor,
        )
        return expected_two_level(scaled, total, log_odds=log_odds, tolerance=tolerance)

    return evaluate


def scaled_uniqueness(sigma2: Sequence[float]) -> Evaluate:
    """Uniqueness at several levels with every noise parameter divided by the factor.

    Parameters
    ----------
    sigma2
        Noise parameters at factor 1.

    Returns
    -------
    callable
        ``(factor, prior log-odds) -> ExpectedRisk``, for :func:`largest_factor`.

    Examples
    --------
    >>> scaled_uniqueness([5.0, 2.0])(1.0, 0.0).risk > 1.0
    True
    """
    return lambda factor, log_odds: expected_uniqueness([s / factor for s in sigma2], log_odds=log_odds)


def _priors(prior: float | tuple[float, float], points: int) -> list[float]:
    if isinstance(prior, tuple):
        first, last = (float(prior_log_odds(p)) for p in prior)
        if not first <= last:
            msg = f"a class of priors is an interval (p0, p1) with p0 <= p1, got {prior}"
            raise ModelError(msg, prior)
        return [float(v) for v in np.linspace(first, last, points)]
    return [float(prior_log_odds(prior))]


def largest_information(
    criterion: Criterion,
    prior: float | tuple[float, float],
    *,
    low: float = 1e-3,
    high: float = 50.0,
    points: int = 241,
) -> InverseAnswer:
    """Largest rho of one noisy count under which the criterion holds.

    Parameters
    ----------
    criterion
        What must stay within a bound, for a target that is present.
    prior
        One prior probability, or ``(p0, p1)`` for all between. With one level the ends suffice: R and P[R' >
        r] fall in p and P[right] rises, so the class is as risky as one of its ends.
    low, high, points
        Range of rho and number of points of the scan, spaced by logarithm; jumps are added.

    Returns
    -------
    InverseAnswer
        In units of ``rho = 1/(2 sigma2)``.

    Examples
    --------
    >>> answer = largest_information(Criterion("risk", 1.2), 1 / 10)
    >>> round(answer.safe, 4), len(answer.crossings)
    (0.1176, 1)
    """
    chosen = _priors(prior, 2)
    knots = sorted({k for log_odds in chosen for k in _jumps(criterion, log_odds, low, high)})
    # between two jumps decisions and exceedances are monotone: no peak is hidden, only R's can be
    search = _Search(criterion.bound, (_one_level(criterion),), tuple(chosen))
    return search.run(_grid(low, high, points, knots), climb=criterion.measure == "risk")


def largest_factor(
    criterion: Criterion,
    evaluate: Evaluate | Sequence[Evaluate],
    prior: float | tuple[float, float],
    *,
    low: float = 0.05,
    high: float = 20.0,
    points: int = 41,
) -> InverseAnswer:
    """Largest factor by which a whole allocation may be scaled, for one target or the worst of many.

    Parameters
    ----------
    criterion
        What must stay within a bound.
    evaluate
        ``(factor, prior log-odds) -> ExpectedRisk``, such as :func:`scaled_two_level` gives; or several, for
        a table of targets: the worst counts.
    prior
        One prior probability, or ``(p0, p1)``: then nine priors evenly spaced in log-odds are tried.
    low, high, points
        Range of the factor and number of points of the scan.

    Returns
    -------
    InverseAnswer
        In units of the factor.

    Examples
    --------
    >>> answer = largest_factor(Criterion("risk", 1.2), scaled_uniqueness([5.0, 5.0]), 0.1, points=11)
    >>> 0.5 < answer.safe < 0.7
    True
    """
    targets = [evaluate] if callable(evaluate) else list(evaluate)
    if not targets:
        msg = "give at least one target to evaluate, got none"
        raise ModelError(msg, evaluate)
    measures = tuple(_measure_of(criterion, target) for target in targets)
    search = _Search(criterion.bound, measures, tuple(_priors(prior, 9)))
    return search.run(_grid(low, high, points, []), climb=True)


def _measure_of(criterion: Criterion, evaluate: Evaluate) -> Measure:
    return lambda x, log_odds: criterion.value(evaluate(x, log_odds))


def _grid(low: float, high: float, points: int, knots: Sequence[float]) -> list[float]:
    if not 0 < low < high or points < 3:
        msg = f"scan a range 0 < low < high at 3 points or more, got {low}, {high}, {points}"
        raise ModelError(msg, (low, high, points))
    sides = [k * (1.0 + s) for k in knots for s in (-1e-12, 1e-12)]
    return sorted(
        {*(float(v) for v in np.geomspace(low, high, points)), *(s for s in sides if low < s < high)}
    )


def _jumps(criterion: Criterion, log_odds: float, low: float, high: float) -> list[float]:
    """Values of rho at which one level's decision, or its set of releases with R' > r, changes."""
    if criterion.measure == "risk":
        return []
    distance = _level(criterion, log_odds) - log_odds
    if math.isinf(distance):
        return []
    # posterior log-odds reach the level at rho (2a - 1) = distance, for a whole number a
    most = min(int(abs(distance) / low) + 2, 4001)
    odd = np.arange(1, most, 2)
    where = abs(distance) / odd
    return [float(v) for v in where if low < v < high]


@dataclass(frozen=True)
class _Search:
    """Scan, climb, bracket: the worst of some measures over some priors against a bound."""

    bound: float
    measures: tuple[Measure, ...]
    priors: tuple[float, ...]

    def worst(self, x: float) -> tuple[float, float]:
        """Largest value, and the prior that has it."""
        return max((measure(x, log_odds), log_odds) for measure in self.measures for log_odds in self.priors)

    def run(self, grid: list[float], *, climb: bool) -> InverseAnswer:
        found = {x: self.worst(x)[0] for x in grid}
        if climb:
            found |= self._hidden_peaks(grid, found)
        grid = sorted(found)
        crossings = []
        for left, right in pairwise(grid):
            holds = found[left] <= self.bound
            if holds != (found[right] <= self.bound):
                crossings.append(self._bracket(left, right, holds))
        if found[grid[0]] > self.bound:
            safe, at = 0.0, grid[0]
        else:
            safe = crossings[0].low if crossings else math.inf
            at = min(safe, grid[-1])
        above = crossings[0].high if 0.0 < safe < math.inf else at
        return InverseAnswer(
            safe=safe,
            crossings=tuple(crossings),
            value=self.worst(at)[0],
            prior_log_odds=self.worst(above)[1],
            low=grid[0],
            high=grid[-1],
            points=len(grid),
        )

    def _hidden_peaks(self, grid: list[float], found: dict[float, float]) -> dict[float, float]:
        """Climb every local peak of the scan within the bound: it may break it between two points."""
        extra = {}
        for before, here, after in zip(grid, grid[1:], grid[2:], strict=False):
            values = found[before], found[here], found[after]
            if values[1] != max(values) or values[1] > self.bound or values[0] == values[1] == values[2]:
                continue
            low, high = before, after
            for _ in range(30):
                a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
                low, high = (low, b) if self.worst(a)[0] >= self.worst(b)[0] else (a, high)
            x = 0.5 * (low + high)
            extra[x] = self.worst(x)[0]
        return extra

    def _bracket(self, low: float, high: float, holds: bool) -> Crossing:
        while high - low > 1e-12 * high:
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            if (self.worst(middle)[0] <= self.bound) == holds:
                low = middle
            else:
                high = middle
        return Crossing(low, high, holds, self.worst(high)[0] - self.worst(low)[0])
