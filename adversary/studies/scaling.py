"""Power scaling on the exact engine: what happens to the answer when the prior, or the likelihood, counts a little more.

With the prior of an unknown raised to the power alpha, d P(k) / d alpha at alpha = 1 is the posterior covariance of
"the target is k" and the log prior of that unknown; the engine's joint tables give it exactly. A discrete Gaussian
raised to alpha is one with sigma2 / alpha, so the likelihood's part is a difference of two exact answers.

What it is not: Pareto-smoothed importance sampling on draws; :func:`psense` calls ArviZ for that, where it works.
Held to account by ``tests/test_studies.py``.
Source: Kallioinen, Paananen, Buerkner & Vehtari (2024), Statistics and Computing 34:57.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ScenarioError, UnsupportedModelError
from adversary.language import noise_kind
from adversary.priors import _distribution_class, as_number, is_plain_prior
from adversary.release.measurement import Measurement, Release

if TYPE_CHECKING:
    import xarray as xr

    from adversary.language import Scenario

__all__ = ["THRESHOLD", "power_scaling", "psense"]

THRESHOLD = 0.05
"""Sensitivity above which priorsense speaks of a potential problem."""

STEP = 1e-3
"""Step in log alpha of the likelihood's central difference (Richardson extrapolated; error below 1e-9)."""


def power_scaling(scenario: Scenario, release: Release, *, tolerance: float = 1e-12) -> xr.Dataset:
    """Return how the target's posterior moves when prior or likelihood are raised to a power near 1.

    Parameters
    ----------
    scenario, release
        As for :func:`adversary.run`; every unknown has a plain prior with numbers for parameters.
    tolerance
        As for :func:`adversary.studies.study`.

    Returns
    -------
    xarray.Dataset
        Over ``component``: ``prior`` (all unknowns), ``prior[name]`` of each unknown, ``likelihood`` (all measurements).
        ``derivative`` is d P(target = k) / d log2(alpha) at alpha = 1, over ``target`` (its values); ``sensitivity`` the
        gradient of the cumulative Jensen-Shannon distance, as in priorsense, above 0.05 worth a look. Attribute
        ``diagnosis`` is theirs: "potential prior-data conflict", "potential strong prior / weak likelihood", or "-". A flat
        prior counts 0: raised to any power it is the same.

    Raises
    ------
    UnsupportedModelError
        For a hyperprior, an own prior object, or the exact noise of a sum (no discrete Gaussian).
    """
    import xarray as xr

    from adversary.samplers.prepared import prepare

    for name, prior in scenario.unknowns.items():
        _check_prior(name, prior)
    plain = _single_noise(release)
    prepared = prepare(scenario, plain)
    answer = prepared.answer(scenario, plain, tolerance=tolerance)
    support, p = answer.posterior.support, answer.posterior.p
    rows = {"prior": np.zeros(len(p))}
    for name in scenario.unknowns:
        variable = prepared.model[name]
        shape = tuple(int(k) for k in variable.shape.eval()) if variable.ndim else ()
        rows[f"prior[{name}]"] = _prior_derivative(answer, scenario, name, shape)
        rows["prior"] = rows["prior"] + rows[f"prior[{name}]"]
    rows["likelihood"] = _likelihood_derivative(scenario, plain, support, tolerance)
    sensitivity = {k: _distance_gradient(support, p, d) for k, d in rows.items()}
    return xr.Dataset(
        {
            "derivative": (("component", "target"), np.stack(list(rows.values()))),
            "sensitivity": ("component", np.array(list(sensitivity.values()))),
        },
        coords={"component": np.array(list(rows), dtype=object), "target": support},
        attrs={
            "diagnosis": _diagnosis(sensitivity["prior"], sensitivity["likelihood"]),
            "threshold": THRESHOLD,
            "scenario": scenario.name,
            "release_hash": release.hash,
        },
    )


def _diagnosis(prior: float, likelihood: float) -> str:
    if prior > THRESHOLD and likelihood > THRESHOLD:
        return "potential prior-data conflict"
    return "potential strong prior / weak likelihood" if prior > THRESHOLD else "-"


def _single_noise(release: Release, alpha: float = 1.0) -> Release:
    """Return the release with the likelihood raised to ``alpha``: each noise one discrete Gaussian of sigma2 / alpha."""
    out = []
    for m in release.values():
        kind = noise_kind(m)
        if kind == "sum":
            msg = f"{m.name} has the exact noise of a sum, which is no discrete Gaussian: power scaling has no closed form for it"
            raise UnsupportedModelError(msg, m.name)
        out.append(
            m if kind == "exact" else Measurement(m.name, m.value, m.noise_sigma2 / alpha, None, None, 1)
        )
    return Release(out, convention=None, not_measured=list(release.not_measured))


def _check_prior(name: str, prior: Any) -> None:
    if not is_plain_prior(prior):
        msg = f"the prior of {name} is an object of its own, whose probabilities are not read here: use Prior(...)"
        raise UnsupportedModelError(msg, name)
    if any(
        is_plain_prior(v) or not isinstance(as_number(v), np.ndarray | np.generic)
        for v in prior.parameters.values()
    ):
        msg = f"the prior of {name} has a prior within: power scaling takes numbers as parameters"
        raise UnsupportedModelError(msg, name)


def _prior_derivative(answer: Any, scenario: Scenario, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return d P(target) / d log2(alpha) for one unknown's prior to the power alpha: a posterior covariance."""
    p, prior = answer.posterior.p, scenario.unknowns[name]
    if prior.distribution == "FlatCount":
        return np.zeros(len(p))
    total = np.zeros(len(p))
    for index in np.ndindex(*shape):
        if name == scenario.target:
            support, joint = answer.posterior.support, np.diag(p)
        else:
            (ours, support), log_joint = answer.joint([scenario.target, (name, index)])
            joint = np.zeros((len(p), len(support)))
            joint[np.searchsorted(answer.posterior.support, ours)] = np.exp(log_joint)
        log_prior = _log_prior(prior, support, index)
        weighted = joint @ np.where(joint.sum(axis=0) > 0, log_prior, 0.0)
        total += weighted - p * weighted.sum()
    return math.log(2) * total


def _log_prior(prior: Any, support: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Evaluate a prior's log-probabilities at integers."""
    import pymc as pm

    parameters = {}
    for key, value in prior.parameters.items():
        number = as_number(value)
        batched = index and np.ndim(number) == len(index)
        parameters[key] = number[index] if batched else number
    rv = _distribution_class(prior.distribution).dist(**parameters)
    return np.asarray(pm.logp(rv, np.asarray(support, dtype=np.int64)).eval())


def _likelihood_derivative(
    scenario: Scenario, release: Release, support: np.ndarray, tolerance: float
) -> np.ndarray:
    """Return d P(target) / d log2(alpha) for the likelihood to the power alpha, by extrapolated central differences."""
    from adversary.samplers.prepared import prepare

    def p(log_alpha: float) -> np.ndarray:
        scaled = _single_noise(release, math.exp(log_alpha))
        pmf = prepare(scenario, scaled).answer(scenario, scaled, tolerance=tolerance).posterior
        at = np.searchsorted(support, pmf.support)
        inside = (at < len(support)) & (support[np.minimum(at, len(support) - 1)] == pmf.support)
        out = np.zeros(len(support))
        out[at[inside]] = pmf.p[inside]
        return out

    coarse = (p(2 * STEP) - p(-2 * STEP)) / (4 * STEP)
    fine = (p(STEP) - p(-STEP)) / (2 * STEP)
    return np.asarray(math.log(2) * (4 * fine - coarse) / 3)


def _distance_gradient(
    support: np.ndarray, p: np.ndarray, derivative: np.ndarray, step: float = 0.01
) -> float:
    """Return the gradient of the cumulative Jensen-Shannon distance in log2(alpha), both tails considered."""
    if len(p) < 2 or not np.any(derivative):
        return 0.0
    found = []
    for sign in (-1, 1):
        q = np.clip(p + sign * step * derivative, 0, None)
        q = q / q.sum()
        ahead, back = (
            _cjs(np.cumsum(p), np.cumsum(q), support),
            _cjs(np.cumsum(p[::-1]), np.cumsum(q[::-1]), -support[::-1]),
        )
        found.append(max(ahead, back))
    return sum(found) / (2 * step)


def _cjs(p: np.ndarray, q: np.ndarray, x: np.ndarray) -> float:
    """Return the cumulative Jensen-Shannon distance of two distribution functions on the same points."""
    width = np.diff(x)
    p, q = p[:-1], q[:-1]
    middle = (p + q) / 2

    def part(a: np.ndarray, b: np.ndarray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(a > 0, a * np.log2(a / middle), 0.0)
        return float((width * logs).sum() + 0.5 / math.log(2) * (width * (b - a)).sum())

    bound = float((width * (p + q)).sum())
    return math.sqrt(max(part(p, q) + part(q, p), 0.0) / bound) if bound > 0 else 0.0


def psense(scenario: Scenario, release: Release, *, seed: Any, draws: int = 2000) -> Any:
    """Return ArviZ's own power-scaling summary, for the unknowns for which it has one.

    Parameters
    ----------
    scenario, release
        As for :func:`adversary.run`.
    seed
        As for :func:`adversary.run`.
    draws
        i.i.d. draws of the exact posterior in each of four chains, in place of a sampler's.

    Returns
    -------
    pandas.DataFrame
        What ``arviz.psense_summary`` returns, one row a count. 0/1 unknowns are left out, because it fails on them:
        :func:`power_scaling` answers for these.

    Raises
    ------
    ScenarioError
        Where every unknown is 0/1.
    UnsupportedModelError
        Where ArviZ refuses, as it does for counts whose log prior takes few values.
    """
    import arviz as az
    import pymc as pm
    import xarray as xr

    from adversary.attack import run

    result = run(scenario, release, seed=seed, draws=draws)
    model = scenario(release)
    free = [v.name for v in model.free_RVs]
    posterior = result.tree["posterior"].to_dataset()[free]
    counts = [n for n in free if len(np.unique(posterior[n].values)) > 2]
    if not counts:
        msg = f"every unknown of {scenario.name} is 0/1, and arviz.psense_summary has no answer for these: use power_scaling"
        raise ScenarioError(msg, scenario.name)
    tree = xr.DataTree.from_dict({"posterior": posterior})
    with model:
        pm.compute_log_prior(tree, progressbar=False)
        pm.compute_log_likelihood(tree, progressbar=False)
    try:
        return az.psense_summary(tree, var_names=counts)
    except ValueError as error:
        msg = f"arviz.psense_summary has no answer for {scenario.name} ({error}): use power_scaling, which needs no draws"
        raise UnsupportedModelError(msg, scenario.name) from error
