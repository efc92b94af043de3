"""Read declared priors and measurements as plain numbers, for the reference sampler that knows no PyMC.

Held to account by ``tests/test_attack.py`` and ``tests/models``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from adversary.errors import UnsupportedModelError
from adversary.priors import _PriorSpec
from adversary.samplers._path import PathProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from adversary.release.measurement import Release

__all__ = ["node", "one_count", "prior_log_odds", "rest", "rest_prior"]


def node(release: Release, name: str) -> tuple[int, float] | None:
    """Return (value, sigma2) of the count ``name`` of a ``release`` on the path, None where it was not measured."""
    if name in release.not_measured:
        return None
    return release[name].value, release[name].sigma2


def one_count(target: str, name: str = "block") -> Callable[..., PathProblem]:
    """Return the ``gibbs=`` of a scenario in which the target adds one to ``known`` others in one noisy count.

    Parameters
    ----------
    target
        Name of the 0/1 unknown, with a Bernoulli prior.
    name
        Name of the measurement.
    """

    def problem(release: Release, *, known: int, **assumptions: Any) -> PathProblem:
        log_odds = prior_log_odds(assumptions[target])
        return PathProblem(known=known, prior_log_odds=log_odds, nodes=(node(release, name),), rests=())

    return problem


def rest(
    release: Release, name: str, prior: Any
) -> tuple[int | None, float, int, tuple[str, dict[str, float]]]:
    """Return (value or None, sigma2 of one count, groups, prior) of the sum ``name`` of a ``release`` over other geounits."""
    if name in release.not_measured:
        return None, 1.0, 1, rest_prior(prior)
    m = release[name]
    return m.value, m.sigma2, m.groups, rest_prior(prior)


def prior_log_odds(present: Any) -> float:
    """Return logit p of a Bernoulli prior, computed from log p and log1p(-p).

    Parameters
    ----------
    present
        ``Prior("Bernoulli", p=...)`` (or ``logit_p=``) with a plain number.

    Raises
    ------
    UnsupportedModelError
        For any other prior: the reference sampler is written for a known probability.
    """
    if isinstance(present, _PriorSpec) and present.distribution == "Bernoulli":
        p, logit = present.parameters.get("p"), present.parameters.get("logit_p")
        if isinstance(logit, int | float):
            return float(logit)
        if isinstance(p, int | float) and 0 < p < 1:
            return math.log(p) - math.log1p(-p)
    msg = (
        f"the reference sampler needs present=Prior('Bernoulli', p=...) with 0 < p < 1, got "
        f"{present!r}: use sampler='exact' or 'mcmc'"
    )
    raise UnsupportedModelError(msg, present)


def rest_prior(elsewhere: Any) -> tuple[str, dict[str, float]]:
    """Return (family, parameters) of the prior ``elsewhere`` on a rest, as :class:`~adversary.samplers.gibbs.PathProblem` asks.

    Raises
    ------
    UnsupportedModelError
        For a family that the reference sampler does not know.
    """
    if isinstance(elsewhere, int | float) and not isinstance(elsewhere, bool):
        return "point", {"value": float(elsewhere)}
    if isinstance(elsewhere, _PriorSpec):
        given = {k: v for k, v in elsewhere.parameters.items() if isinstance(v, int | float)}
        if len(given) == len(elsewhere.parameters):
            match elsewhere.distribution, given:
                case "FlatCount", {**rest} if rest.get("lower", 0) == 0:
                    return "flat", {}
                case "DiscreteUniform", {"lower": 0, "upper": upper}:
                    return "uniform", {"upper": float(upper)}
                case "Poisson", {"mu": mu}:
                    return "poisson", {"mu": float(mu)}
                case "NegativeBinomial", {"n": n, "p": p}:
                    return "negative_binomial", {"alpha": float(n), "mu": float(n * (1 - p) / p)}
                case "NegativeBinomial", {"alpha": alpha, "mu": mu}:
                    return "negative_binomial", {"alpha": float(alpha), "mu": float(mu)}
    msg = (
        f"the reference sampler knows the priors FlatCount, DiscreteUniform(0, N), Poisson, NegativeBinomial and a number on a "
        f"rest, got {elsewhere!r}: use sampler='exact' or 'mcmc'"
    )
    raise UnsupportedModelError(msg, elsewhere)
