"""Run one attack: a scenario, a release, a sampler; out comes an :class:`~adversary.results.AttackResult`.

What it is: the one place where a scenario meets an engine. What it is not: a place for assumptions (those belong to the
scenario: ``scenario.assuming(...)``) or for many targets (see ``adversary.batch`` and :mod:`adversary.studies`).

Exact is the default wherever it is possible; the Gibbs reference and PyMC are the checks and the way out.
Held to account by ``tests/test_attack.py`` and ``tests/paper``.
"""

from __future__ import annotations

import inspect
import json
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from adversary._version import __version__
from adversary.declaring import require_release
from adversary.errors import ModelError, ScenarioError, UnsupportedModelError
from adversary.language import Scenario, noise_kind
from adversary.results import AttackResult, build_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adversary.release.measurement import Release

__all__ = ["SAMPLERS", "run"]

PRIOR_DRAWS = 20_000
"""Draws of the prior where it cannot be summed exactly (continuous unknowns)."""


def run(
    scenario: Scenario,
    release: Release,
    sampler: str = "exact",
    *,
    seed: Any = None,
    draws: int = 1000,
    chains: int = 4,
    **options: Any,
) -> AttackResult:
    """Answer one attack.

    Parameters
    ----------
    scenario
        Who the adversary is. What she knows and believes is changed with ``scenario.assuming(...)``, not here.
    release
        What she sees.
    sampler
        ``"exact"`` (sums the declared model out; the default), ``"gibbs"`` (the hand-written reference, for scenarios that
        declare one) or ``"mcmc"`` (PyMC with steps that are right for counts).
    seed
        int, ``numpy.random.SeedSequence`` or ``numpy.random.Generator``; None draws fresh entropy, which is recorded. An exact
        probability does not depend on it, the draws that come with it do.
    draws, chains
        Draws in each chain, and chains. For ``exact`` the draws are i.i.d. from the exact joint posterior.
    **options
        ``exact``: ``tolerance`` (bound asked for on what is cut off, 1e-12). ``gibbs``: ``mode`` (``"exact"`` or
        ``"literal"``), ``tune``. ``mcmc``: ``tune``, ``cores``, ``progressbar``, and what ``pymc.sample`` takes.

    Returns
    -------
    AttackResult
        The answer, with its checks.

    Raises
    ------
    ScenarioError
        For an unknown sampler or a scenario that does not fit the release.
    ModelError
        When what she knows, believes and sees cannot all be true.
    UnsupportedModelError
        When the sampler cannot answer this model; the message names one that can.

    Examples
    --------
    >>> from adversary import Release, load, run
    >>> release = Release.from_counts({"block": 2}, rho="0.0992264")
    >>> run(load("single_level"), release, draws=10)
    <AttackResult single_level (exact): P(present) 0.500 -> 0.574, odds x1.35; unbounded>
    """
    if not isinstance(scenario, Scenario):
        msg = f"run takes a scenario first, got {scenario!r}: adversary.load('two_level') returns one"
        raise ScenarioError(msg, scenario)
    require_release(scenario.name, release)
    if sampler not in SAMPLERS:
        msg = f"there is no sampler called {sampler!r}: there are {', '.join(SAMPLERS)}"
        raise ScenarioError(msg, sampler)
    mistaken = sorted(set(options) & set(scenario.assumptions))
    if mistaken:
        way_out = f"write {scenario.name}.assuming({mistaken[0]}=...)"
        msg = f"{mistaken[0]} is an assumption of the scenario, not an option of the sampler: {way_out}"
        raise ScenarioError(msg, mistaken[0])
    if scenario.target in scenario.known:
        way_out = "give it a prior, as in Bernoulli(p=0.1)"
        msg = f"the target {scenario.target!r} is fixed by assumption, so nothing is left to learn: {way_out}"
        raise ModelError(msg, scenario.target)
    seed = _recorded(seed)
    parts = SAMPLERS[sampler](scenario, release, seed=seed, draws=draws, chains=chains, **options)
    attrs = _attrs(
        scenario,
        release,
        sampler,
        seed,
        {"draws": draws, "chains": chains, **options},
        parts.pop("attrs", {}),
    )
    tree = build_tree(attrs=attrs, release=release, **parts)
    return AttackResult(tree)


def _recorded(seed: Any) -> np.random.SeedSequence:
    """Return a seed sequence whose entropy can be written down and used again."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, np.random.Generator):
        # a generator has a state and no name: one draw of it names the stream, so two equal generators agree
        return np.random.SeedSequence(int(seed.integers(0, 2**63, dtype=np.int64)))
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
        msg = f"seed must be a whole number >= 0, a SeedSequence or a Generator, got {seed!r}"
        raise ScenarioError(msg, seed)
    return np.random.SeedSequence(None if seed is None else int(seed))


def _attrs(
    scenario: Scenario,
    release: Release,
    sampler: str,
    seed: np.random.SeedSequence,
    options: Mapping[str, Any],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    import arviz
    import pymc

    unused = [m for m in release if m not in more["used"]]
    more = {k: v for k, v in more.items() if k != "used"}
    versions = {
        "adversary": __version__,
        "pymc": pymc.__version__,
        "arviz": arviz.__version__,
        "numpy": np.__version__,
    }
    return {
        "scenario": scenario.name,
        "origin": _origin(scenario),
        "target": scenario.target,
        "source": scenario.source,
        "question": scenario.question,
        "text": inspect.getdoc(scenario.function) or "",
        "signature": f"{scenario.name}{inspect.signature(scenario)}",
        "code": _code(scenario),
        "assumptions": json.dumps({k: repr(v) for k, v in scenario.assumptions.items()}),
        "sampler": sampler,
        "seed": f"{seed.entropy}" + (f" {list(seed.spawn_key)}" if seed.spawn_key else ""),
        "options": json.dumps(options, default=repr),
        "versions": json.dumps(versions),
        "release": release.to_json(),
        "release_hash": release.hash,
        "unused_evidence": json.dumps(unused),
        "pooled": json.dumps(
            [m.name for m in release.values() if m.name not in unused and noise_kind(m) == "pooled"]
        ),
        **more,
    }


def _origin(scenario: Scenario) -> str:
    """Return where the scenario came from; of a file its name alone, because a result is passed on to others."""
    where, separator, name = scenario.origin.rpartition("::")
    return f"{Path(where).name}::{name}" if separator else scenario.origin


def _code(scenario: Scenario) -> str:
    """Return the declaration as it was written, where its source can be found."""
    try:
        return textwrap.dedent(inspect.getsource(scenario.function))
    except (OSError, TypeError):
        return ""


def _declared(model: Any, reads: Any, scenario: Scenario, release: Release) -> dict[str, Any]:
    """Say what the model uses, and what the guarantee's ceiling needs, where it can be read off."""
    from adversary.samplers.changes import count_changes, improper_unknowns

    return {
        "used": [v.name for v in model.observed_RVs],
        "changes": json.dumps(count_changes(model, scenario.target, release, reads)),
        "improper": json.dumps(improper_unknowns(model)),
    }


def _exact(
    scenario: Scenario,
    release: Release,
    *,
    seed: np.random.SeedSequence,
    draws: int,
    chains: int,
    tolerance: float = 1e-12,
) -> dict[str, Any]:
    from adversary.samplers.prepared import prepare

    prepared = prepare(scenario, release)
    answer = prepared.answer(scenario, release, tolerance=tolerance)
    flat = answer.draw(draws * chains, np.random.default_rng(seed)) if draws else {}
    posterior = {k: v.reshape(chains, draws, *v.shape[1:]) for k, v in flat.items()}
    groups = {"exact": _marginals(answer, prepared.model, scenario.target)}
    if posterior:
        groups["posterior"] = _draws(posterior, prepared.model)
    numbers = {
        "log_odds": answer.log_odds,
        "prior_log_odds": answer.prior_log_odds,
        "log_evidence": answer.log_evidence,
        "cut_off_bound": answer.cut_off_bound,
        "bound_proven": int(answer.bound_proven),
        "mcse": 0.0,
    }
    return {
        "support": answer.posterior.support,
        "log_prior": _aligned(answer.prior, answer.posterior.support),
        "log_posterior": answer.posterior.log_p,
        "answer_attrs": _finite_attrs(numbers),
        "groups": groups,
        "attrs": _declared(prepared.model, prepared.reads, scenario, release),
    }


def _marginals(answer: Any, model: Any, target: str) -> xr.Dataset:
    """Collect the exact pmf of every scalar unknown and integer sum other than the target."""
    data, coords = {}, {}
    for variable in [*model.free_RVs, *model.deterministics]:
        if variable.ndim or variable.name == target:
            continue
        try:
            pmf = answer.marginal(variable.name)
        except (
            ModelError
        ):  # no table: a Deterministic that is no integer sum, or an unknown that nothing measures
            continue
        data[variable.name] = (f"{variable.name}_value", pmf.p)
        coords[f"{variable.name}_value"] = pmf.support
    return xr.Dataset(data, coords=coords)


def _aligned(prior: Any, support: np.ndarray) -> np.ndarray | None:
    """Return the prior's log-probabilities at the posterior's support; nan where the prior was not followed so far."""
    if prior is None:
        return None
    place = {int(v): p for v, p in zip(prior.support, prior.log_p, strict=True)}
    return np.array([place.get(int(v), np.nan) for v in support])


def _finite_attrs(numbers: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in numbers.items() if v is not None}


def _draws(values: Mapping[str, np.ndarray], model: Any) -> xr.Dataset:
    """Label draws (chain, draw, ...) with the model's own dims and coords."""
    data: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    for name, array in values.items():
        dims = model.named_vars_to_dims.get(name) or [f"{name}_dim_{i}" for i in range(array.ndim - 2)]
        data[name] = (("chain", "draw", *dims), np.asarray(array))
        coords |= {d: np.asarray(model.coords[d]) for d in dims if model.coords.get(d) is not None}
    chains, draws = next(iter(values.values())).shape[:2]
    return xr.Dataset(data, coords={"chain": np.arange(chains), "draw": np.arange(draws), **coords})


def _gibbs(  # noqa: PLR0913
    scenario: Scenario,
    release: Release,
    *,
    seed: np.random.SeedSequence,
    draws: int,
    chains: int,
    mode: str = "exact",
    tune: int = 500,
    progressbar: bool = False,
) -> dict[str, Any]:
    from adversary.samplers import gibbs

    if scenario.gibbs is None:
        msg = (
            f"{scenario.name} has no hand-written reference sampler: use sampler='exact' or 'mcmc' (single_level, two_level and "
            "path have one)"
        )
        raise UnsupportedModelError(msg, scenario.name)
    problem = scenario.gibbs(release, **scenario.assumptions)
    found = gibbs.sample(
        problem, draws=draws, tune=tune, chains=chains, seed=seed, mode=mode, progressbar=progressbar
    )
    present = np.asarray(found["x1"]) - problem.known
    posterior = {scenario.target: present, **{k: np.asarray(v) for k, v in found.items()}}
    data = xr.Dataset(
        {k: (("chain", "draw"), v) for k, v in posterior.items()},
        coords={"chain": np.arange(chains), "draw": np.arange(draws)},
    )
    p = problem.prior_log_odds
    log_prior = np.array([-np.logaddexp(0.0, p), -np.logaddexp(0.0, -p)])
    model, reads = scenario.build(release)
    return {
        **_from_draws(present, np.array([0, 1]), log_prior),
        "groups": {"posterior": data},
        "attrs": {
            **_declared(model, reads, scenario, release),
            "mode": mode,
            "joint_distribution": int(mode != "literal" or not problem.rests),
        },
    }


def _from_draws(values: np.ndarray, support: np.ndarray, log_prior: np.ndarray | None) -> dict[str, Any]:
    """Estimate the target's probabilities from draws (chain, draw), with their Monte Carlo error."""
    import arviz as az

    counts = np.array([(values == v).sum() for v in support])
    with np.errstate(divide="ignore"):
        log_posterior = np.log(counts / values.size)
    numbers: dict[str, float] = {}
    if set(support.tolist()) == {0, 1}:
        numbers["log_odds"] = float(log_posterior[1] - log_posterior[0])
        if log_prior is not None:
            numbers["prior_log_odds"] = float(log_prior[1] - log_prior[0])
    sd = float(np.std(values))
    if sd > 0 and values.shape[1] >= 4:
        ess = float(az.ess(values.astype(float), method="mean"))
        numbers |= {
            "mcse": sd / math.sqrt(max(ess, 1.0)),
            "r_hat": float(az.rhat(values.astype(float))),
            "ess_bulk": ess,
        }
    else:
        numbers["mcse"] = math.nan
    return {
        "support": support,
        "log_prior": log_prior,
        "log_posterior": log_posterior,
        "answer_attrs": numbers,
    }


def _mcmc(
    scenario: Scenario,
    release: Release,
    *,
    seed: np.random.SeedSequence,
    draws: int,
    chains: int,
    **options: Any,
) -> dict[str, Any]:
    from adversary.samplers.mcmc import sample_mcmc

    model, reads = scenario.build(release)
    sampled = sample_mcmc(model, draws=draws, chains=chains, seed=seed, **options)
    posterior = sampled["posterior"].to_dataset()
    if scenario.target not in posterior:
        msg = f"the sampler kept no draws of {scenario.target!r}: leave var_names alone"
        raise ScenarioError(msg, scenario.target)
    target = posterior[scenario.target]
    if target.ndim != 2 or target.dtype.kind not in "iub":
        msg = (
            f"the target {scenario.target!r} is not one whole number a draw (shape {target.shape[2:]}, {target.dtype}): "
            "name a scalar count or event with pm.Deterministic"
        )
        raise UnsupportedModelError(msg, scenario.target)
    values = np.asarray(target.values).astype(np.int64)
    prior, prior_draws = _prior_of_target(model, scenario, release, seed)
    low, high = int(values.min()), int(values.max())
    seen = {0, 1} if {low, high} <= {0, 1} else set(np.unique(values).tolist())
    support = np.array(sorted(seen | (set() if prior is None else {0, 1} & set(prior))), dtype=np.int64)
    log_prior = None if prior is None else np.array([prior.get(int(v), -np.inf) for v in support])
    groups = {
        name: node.to_dataset()
        for name, node in sampled.children.items()
        if name not in ("observed_data", "constant_data")
    }
    return {
        **_from_draws(values, support, log_prior),
        "groups": groups,
        "attrs": {**_declared(model, reads, scenario, release), "prior_draws": prior_draws},
    }


def _prior_of_target(
    model: Any, scenario: Scenario, release: Release, seed: np.random.SeedSequence
) -> tuple[dict[int, float] | None, int]:
    """Return log-probabilities of the target under the prior alone, and from how many draws (0: exact).

    The first is None where the target has an improper prior.
    """
    import pymc as pm

    from adversary.samplers.prepared import prepare

    try:
        pmf = prepare(scenario, release).answer(scenario, release).prior
    except UnsupportedModelError:
        pass
    else:
        exact = (
            None if pmf is None else {int(v): float(p) for v, p in zip(pmf.support, pmf.log_p, strict=True)}
        )
        return exact, 0
    try:
        drawn = pm.draw(
            model[scenario.target],
            draws=PRIOR_DRAWS,
            random_seed=np.random.default_rng(seed),
            mode="FAST_COMPILE",
        )
    except ModelError:  # an improper prior cannot be drawn from
        return None, 0
    values, counts = np.unique(drawn, return_counts=True)
    return {int(v): math.log(c / drawn.size) for v, c in zip(values, counts, strict=True)}, PRIOR_DRAWS


SAMPLERS: Mapping[str, Callable[..., dict[str, Any]]] = {"exact": _exact, "gibbs": _gibbs, "mcmc": _mcmc}
"""The engines by name."""
