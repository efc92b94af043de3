"""How far an answer leans on its assumptions: bounds over a class, what moves it most, where a decision turns.

What it is: questions put to the exact engine. What it is not: a sampler's diagnostic; ArviZ's power scaling works on draws
and has no answer for a 0/1 variable, :func:`power_scaling` has, without draws.

Sources: Kazan & Reiter (arXiv 2204.04253), S4 (prior of the rest of the group); Kallioinen, Paananen, Buerkner & Vehtari
(2024), Statistics and Computing 34:57 (power scaling; names of components and diagnoses as in their priorsense).
Held to account by ``tests/test_studies.py``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ScenarioError, UnsupportedModelError
from adversary.priors import Prior, is_plain_prior, is_prior
from adversary.studies.grid import solve_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adversary.language import Scenario
    from adversary.release.measurement import Release

__all__ = ["Bounds", "Moved", "bounds", "break_even_prior", "rank_assumptions"]


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest posterior over a class of assumptions, and where they are reached.

    Attributes
    ----------
    lower, upper : float
        P(target = 1) after she looked.
    at_lower, at_upper : Scenario
        The assumptions that give them.
    """

    lower: float
    upper: float
    at_lower: Scenario
    at_upper: Scenario


@dataclass(frozen=True)
class Moved:
    """How far one assumption, varied alone, moves the answer.

    Attributes
    ----------
    assumption : str
        Its name.
    lower, upper : float
        Smallest and largest P(target = 1) over its alternatives and the scenario's own value.
    spread : float
        Difference of the two in log-odds.
    at_lower, at_upper : str
        The values that give them.
    """

    assumption: str
    lower: float
    upper: float
    spread: float
    at_lower: str
    at_upper: str


def _points(scenarios: list[Scenario], release: Release, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return posterior and log-odds of each scenario; the target must be a yes-or-no question."""
    rows = solve_points(scenarios, release, tolerance=tolerance)
    if any(not set(r.support.tolist()) <= {0, 1} for r in rows):
        msg = f"{scenarios[0].name} asks for a value of {scenarios[0].target!r}, which is no yes-or-no target: use study(...)"
        raise UnsupportedModelError(msg, scenarios[0].target)
    posterior = [float(np.exp(r.log_posterior)[r.support == 1].sum()) for r in rows]
    return np.array(posterior), np.array([r.log_odds for r in rows])


def bounds(scenario: Scenario, release: Release, *, tolerance: float = 1e-12, **classes: Any) -> Bounds:
    """Return the smallest and the largest posterior over a class of assumptions.

    Parameters
    ----------
    scenario, release
        As for :func:`adversary.run`; the target is a yes-or-no question.
    tolerance
        As for :func:`study`.
    **classes
        For the target: a pair ``(p0, p1)``, all prior probabilities in [p0, p1], 0 < p0 <= p1 < 1. For any assumption: a list
        of values or priors, of which all combinations are tried.

    Returns
    -------
    Bounds
        Exact over [p0, p1], because the posterior increases with p whatever else is assumed.

    Raises
    ------
    ScenarioError
        For a pair that is no interval of probabilities, or a pair for something that is not the target.

    Examples
    --------
    >>> from adversary import Release, load
    >>> release = Release.from_counts({"block": 2}, rho="0.0992264")
    >>> found = bounds(load("single_level"), release, present=(0.1, 0.5))
    >>> round(found.lower, 4), round(found.upper, 4)
    (0.1302, 0.5739)
    """
    if not classes:
        msg = f"bounds needs a class: {scenario.target}=(0.1, 0.9), or a list of priors for any assumption"
        raise ScenarioError(msg, scenario.name)
    grids = {name: _members(scenario, name, given) for name, given in classes.items()}
    names = list(grids)
    scenarios = [
        scenario.assuming(**dict(zip(names, point, strict=True)))
        for point in itertools.product(*grids.values())
    ]
    posterior, _ = _points(scenarios, release, tolerance)
    low, high = int(np.argmin(posterior)), int(np.argmax(posterior))
    return Bounds(float(posterior[low]), float(posterior[high]), scenarios[low], scenarios[high])


def _members(scenario: Scenario, name: str, given: Any) -> list[Any]:
    """Return the members of a class that have to be tried."""
    pair = isinstance(given, tuple) and len(given) == 2 and not any(is_prior(g) for g in given)
    if not pair:
        if isinstance(given, str) or not hasattr(given, "__len__") or len(given) == 0:
            msg = f"the class of {name} must be a list of values or priors, or (p0, p1) for the target, got {given!r}"
            raise ScenarioError(msg, given)
        return list(given)
    if name != scenario.target:
        msg = (
            f"the posterior need not be monotone in {name}, so the ends of {given!r} bound nothing: give a list of the values "
            "or priors to try"
        )
        raise ScenarioError(msg, given)
    low, high = float(given[0]), float(given[1])
    if not 0 < low <= high < 1:
        msg = f"the prior probabilities of {name} must be an interval inside (0, 1), got {given!r}"
        raise ScenarioError(msg, given)
    return [Prior("Bernoulli", p=low), Prior("Bernoulli", p=high)]


def break_even_prior(
    scenario: Scenario, release: Release, *, threshold: float = 0.5, tolerance: float = 1e-12
) -> tuple[float, float]:
    """Return the prior probability at which the posterior equals a threshold: above it the decision turns.

    Parameters
    ----------
    scenario, release
        As for :func:`adversary.run`; the target is a 0/1 argument of the scenario with a prior.
    threshold
        Posterior probability, in (0, 1); at 1/2 it is the Bayes decision under 0-1 loss that turns.
    tolerance
        As for :func:`study`.

    Returns
    -------
    tuple of float
        The prior probability and its log-odds: logit(threshold) minus the gain in log-odds, which no prior of the target
        moves.

    Raises
    ------
    UnsupportedModelError
        Where the target is made of other unknowns, so that it has no prior of its own to vary.

    Examples
    --------
    >>> from adversary import Release, load
    >>> release = Release.from_counts({"block": 2}, rho="0.0992264")
    >>> round(break_even_prior(load("single_level"), release)[0], 4)
    0.4261
    """
    if not 0 < threshold < 1:
        msg = f"threshold must lie strictly between 0 and 1, got {threshold!r}"
        raise ScenarioError(msg, threshold)
    if scenario.target not in scenario.assumptions:
        msg = (
            f"the target {scenario.target!r} of {scenario.name} has no prior of its own to vary: vary those of "
            f"{', '.join(scenario.unknowns)} with study(...)"
        )
        raise UnsupportedModelError(msg, scenario.target)
    even = scenario.assuming(**{scenario.target: Prior("Bernoulli", p=0.5)})
    _, gain = _points([even], release, tolerance)
    log_odds = math.log(threshold) - math.log1p(-threshold) - float(gain[0])
    p = 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else math.exp(log_odds)
    return p, log_odds


def rank_assumptions(
    scenario: Scenario,
    release: Release,
    alternatives: Mapping[str, Sequence[Any]] | None = None,
    *,
    tolerance: float = 1e-12,
) -> list[Moved]:
    """Say which assumption moves the answer most, each varied alone.

    Parameters
    ----------
    scenario, release
        As for :func:`adversary.run`; the target is a yes-or-no question.
    alternatives
        Assumption -> values or priors to try. Where left out: the odds of a probability halved and doubled, any other
        positive parameter of a prior halved and doubled, a known count one less and one more, a flat prior on a count
        replaced by Poisson(1) and Poisson(5).
    tolerance
        As for :func:`study`.

    Returns
    -------
    list of Moved
        The one that moves the log-odds most first.

    Raises
    ------
    ScenarioError
        Where nothing is left to vary, or a name is no assumption.
    """
    tried = {k: list(v) for k, v in alternatives.items()} if alternatives else _neighbours(scenario)
    if not any(tried.values()):
        msg = f"{scenario.name} has no assumption with an obvious alternative: name them, as in {{'elsewhere': [Prior(...)]}}"
        raise ScenarioError(msg, scenario.name)
    wrong = [k for k in tried if k not in scenario.assumptions]
    if wrong:
        msg = (
            f"{scenario.name} has no assumption called {wrong[0]!r}: it has {', '.join(scenario.assumptions)}"
        )
        raise ScenarioError(msg, wrong[0])
    found = []
    for name, others in tried.items():
        if not others:
            continue
        values = [scenario.assumptions[name], *others]
        posterior, log_odds = _points([scenario.assuming(**{name: v}) for v in values], release, tolerance)
        low, high = int(np.argmin(log_odds)), int(np.argmax(log_odds))
        spread = float(log_odds[high] - log_odds[low])
        found.append(
            Moved(
                name,
                float(posterior[low]),
                float(posterior[high]),
                spread,
                repr(values[low]),
                repr(values[high]),
            )
        )
    return sorted(found, key=lambda m: -m.spread)


def _neighbours(scenario: Scenario) -> dict[str, list[Any]]:
    """Return what lies next to each assumption."""
    out: dict[str, list[Any]] = {}
    for name, value in scenario.assumptions.items():
        if is_plain_prior(value) and value.distribution == "FlatCount":
            out[name] = [Prior("Poisson", dims=value.dims, shape=value.shape, mu=mu) for mu in (1, 5)]
        elif is_plain_prior(value):
            out[name] = [
                Prior(
                    value.distribution, dims=value.dims, shape=value.shape, **{**value.parameters, key: other}
                )
                for key, number in value.parameters.items()
                for other in _nearby(value.distribution, key, number)
            ]
        elif isinstance(value, int | np.integer) and not isinstance(value, bool):
            out[name] = [value + 1] if value <= 0 else [value - 1, value + 1]
    return out


_WHOLE = {"lower", "upper"}  # parameters that stay whole numbers, and those of these families
_WHOLE_IN = {"Binomial": {"n"}, "BetaBinomial": {"n"}, "HyperGeometric": {"N", "k", "n"}}


def _nearby(distribution: str, key: str, number: Any) -> list[float]:
    """Return a parameter halved and doubled (a probability: its odds); whole numbers stay whole where they must."""
    if not isinstance(number, int | float | np.number) or isinstance(number, bool):
        return []
    if key == "p" and 0 < number < 1:
        odds = float(number) / (1 - float(number))
        return [odds / 2 / (1 + odds / 2), 2 * odds / (1 + 2 * odds)]
    if number <= 0:
        return []
    if key in _WHOLE or key in _WHOLE_IN.get(distribution, set()):
        whole = int(number)
        return [*([whole // 2] if whole > 1 else []), 2 * whole]
    return [float(number) / 2, float(number) * 2]
