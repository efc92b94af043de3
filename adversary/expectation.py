"""Expected disclosure risk of any declared scenario, averaged over the releases that a truth gives rise to.

What it is: the general road. The truth fixes every unknown of the model, the model says what would have been counted, the
design says what noise is added; each release is answered exactly (:func:`adversary.batch`) and weighted by its probability.
Where the lattice of releases is small enough, all of it is summed, with a bound on the probability that was left out; where it
is not, releases are drawn, and only when the caller gives a seed; the result says which.

What it is not: the fast road. One level, two levels, paths, uniqueness and whole records have sums of their own in
:mod:`adversary.risk`, which this module is checked against.

Held to account by ``tests/test_expectation.py``.

Source: Kazan & Reiter (arXiv 2204.04253), equations (3.3) to (3.6), for any model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from adversary.batches import batch
from adversary.errors import ModelError, ScenarioError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.release.measurement import Measurement, Release
from adversary.risk.expected import ExpectedRisk, noise_window, summarise
from adversary.risk.law import LogOddsLaw
from adversary.risk.measures import decide
from adversary.samplers.recognise import find_closed_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from adversary.language import Scenario

__all__ = ["expected_risk", "true_counts"]

_BOX = 40_000_000  # points whose probability is formed before the light ones are dropped
_CLOSED, _ENGINE = 4_000_000, 20_000  # releases that are summed: by a closed form, by the compiled engine


@dataclass(frozen=True)
class _Count:
    """One noisy integer of the release: where it belongs, its truth and its noise."""

    name: str
    entry: int | None
    truth: int
    sigma2: float
    groups: int

    def log_pmf(self, n: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(dg.sum_log_pmf(n, self.sigma2, self.groups))


def expected_risk(  # noqa: PLR0913 - the question and its three ways
    scenario: Scenario,
    truth: Mapping[str, Any],
    design: Release | Mapping[str, Any],
    *,
    tolerance: float = 1e-12,
    limit: int | None = None,
    draws: int = 2000,
    seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    progressbar: bool = False,
) -> ExpectedRisk:
    """Average an adversary's answer over the releases of one truth.

    Parameters
    ----------
    scenario
        Who she is, with all that she knows.
    truth
        A value for every unknown of her model, the target's 0 or 1 among them: ``{"present": 1, "elsewhere": 0}``.
    design
        What is published: a release whose values are not looked at, or name -> sigma2 (or ``(sigma2, groups)``).
    tolerance
        Bound on the probability of the releases that are left out of the sum, in (1e-60, 0.1).
    limit
        Releases that may be summed: 4,000,000 where the model has a closed form and 20,000 where it has none.
    draws, seed
        Where the sum is larger: how many releases to draw, and from where. Without a seed nothing is drawn.
    progressbar
        Show how many releases are done.

    Returns
    -------
    ExpectedRisk
        ``method`` says how. Summed: ``standard_error`` is 0, and no probability is wrong by more than ``left_out_bound``
        (and what the answers themselves leave out). Drawn: both standard errors are above 0 and ``left_out_bound`` is 0.

    Raises
    ------
    UnsupportedModelError
        If the sum is too large and no seed was given; says how many releases there are.
    ScenarioError
        For a truth that misses an unknown or names another.
    ModelError
        For a truth that the model excludes.

    Examples
    --------
    >>> from adversary import load
    >>> found = expected_risk(load("single_level"), {"present": 1}, {"block": 5.0389839})
    >>> round(found.risk, 6), found.method.split(":")[0], found.left_out_bound <= 1e-12
    (1.047333, 'sum over a lattice of 33 releases', True)
    """
    if not 1e-60 < tolerance < 0.1:
        msg = f"tolerance must lie between 1e-60 and 0.1, got {tolerance}: 1e-12 is the default"
        raise ModelError(msg, tolerance)
    template = _template(design)
    counts, present = _counts(scenario, truth, template)
    form, _ = find_closed_form(scenario, template)
    most = limit if limit is not None else (_CLOSED if form is not None else _ENGINE)
    noise, weight, left_out, size = _lattice(counts, tolerance, most)
    drawn = noise is None
    if noise is None:
        if seed is None:
            msg = (
                f"the releases to sum are about {size:,} and at most {most:,} are summed: give seed= (and draws=) to draw "
                "them and get a standard error, raise limit=, or raise tolerance="
            )
            raise UnsupportedModelError(msg, size)
        rng = np.random.default_rng(seed)
        noise = np.stack([dg.sample(c.sigma2, (draws, c.groups), rng).sum(axis=1) for c in counts], axis=1)
        weight, left_out = np.full(draws, 1.0 / draws), 0.0
    answers = _answers(scenario, template, counts, noise, progressbar)
    odds, prior = answers["log_odds"].values, float(_logit(answers["prior"].values.ravel()[0], answers))
    law = LogOddsLaw(odds, weight, np.zeros(1), np.ones(1), left_out)
    engine = answers.attrs["engine"]
    method = (
        f"{draws} releases drawn: {engine}"
        if drawn
        else f"sum over a lattice of {len(odds)} releases: {engine}"
    )
    if present:
        found = summarise(law, None, prior, "present", "strict", method=method)
    else:
        found = summarise(None, law, prior, "absent", "strict", method=method)
    if not drawn:
        return found
    q = answers["posterior"].values
    right = decide(odds) == bool(present)
    errors = [float(np.std(v, ddof=1)) / math.sqrt(draws) for v in (q, right.astype(float))]
    return replace(found, standard_error=errors[0], right_standard_error=errors[1])


def _logit(p: float, answers: xr.Dataset) -> float:
    """Prior log-odds from the answers: posterior odds less the gain would round, so the probability is used."""
    if not 0 < p < 1:
        msg = f"the prior probability of {answers.attrs['target']} is {p}: nothing can be learnt"
        raise ModelError(msg, p)
    return math.log(p) - math.log1p(-p)


def _template(design: Release | Mapping[str, Any]) -> Release:
    """Return a release of zeros with the design's names and noise."""
    if isinstance(design, Release):
        given = [(m.name, np.zeros_like(np.asarray(m.value)), m.sigma2, m.groups) for m in design.values()]
    else:
        given = []
        for name, noise in design.items():
            sigma2, groups = noise if isinstance(noise, tuple) else (noise, 1)
            given.append((name, np.zeros(np.shape(sigma2), dtype=np.int64), sigma2, int(groups)))
    return Release(Measurement(n, v if v.ndim else 0, s, groups=g) for n, v, s, g in given)


def true_counts(scenario: Scenario, truth: Mapping[str, Any], release: Release) -> dict[str, Any]:
    """Evaluate what would have been counted: the model's own expression of each measurement, at the truth.

    Parameters
    ----------
    scenario, release
        Names and shapes of what is measured; the release's values are not used.
    truth
        A value for every unknown.

    Returns
    -------
    dict
        Name -> int or int array.

    Raises
    ------
    ScenarioError
        For a missing or a strange unknown.
    ModelError
        For a truth without probability under the priors.
    UnsupportedModelError
        Where the scenario looks at published values itself, so that the truth is no function of the unknowns.

    Examples
    --------
    >>> from adversary import Release, load
    >>> release = Release.from_counts({"block": 0, "block_group": 0, "rest": 0}, sigma2=5.0, groups={"rest": 27})
    >>> true_counts(load("two_level"), {"present": 1, "elsewhere": 4}, release)
    {'block': 1, 'rest': 4, 'block_group': 5}
    """
    import pytensor
    from pytensor.graph.replace import clone_replace

    from adversary.samplers.exact.linear import python_mode

    model, reads = scenario.build(release)
    looked = [name for name, attribute in reads if attribute == "value"]
    if looked:
        msg = f"{scenario.name} looks at the published value of {looked[0]}, so its model differs from release to release"
        raise UnsupportedModelError(msg, looked)
    unknowns = {rv.name: model.rvs_to_values[rv] for rv in model.free_RVs}
    wrong = sorted(set(truth) ^ set(unknowns))
    if wrong:
        msg = f"the truth must give a value for each of {', '.join(unknowns)} and nothing else, got {', '.join(truth)}"
        raise ScenarioError(msg, wrong)
    fixed = {
        v: pytensor.tensor.constant(np.asarray(truth[k], dtype=v.type.dtype)) for k, v in unknowns.items()
    }
    observed = [rv for rv in model.observed_RVs if rv.name in release]
    graphs = model.replace_rvs_by_values([rv.owner.op.dist_params(rv.owner)[0] for rv in observed])
    priors = model.logp(vars=model.free_RVs, sum=False)
    found = pytensor.function([], clone_replace([*graphs, *priors], fixed), mode=python_mode())()
    for rv, value in zip(model.free_RVs, found[len(graphs) :], strict=True):
        if not np.isfinite(value).all():
            msg = (
                f"{rv.name} = {truth[rv.name]} has no probability under the prior: the truth must be possible"
            )
            raise ModelError(msg, truth[rv.name])
    return {
        rv.name: int(value) if np.ndim(value) == 0 else np.asarray(value, dtype=np.int64)
        for rv, value in zip(observed, found, strict=False)
    }


def _counts(scenario: Scenario, truth: Mapping[str, Any], template: Release) -> tuple[list[_Count], bool]:
    true = true_counts(scenario, truth, template)
    target = truth.get(scenario.target)
    if target is None:
        msg = f"the target {scenario.target} is no unknown of its own, so the truth cannot say if a decision is right"
        raise UnsupportedModelError(msg, scenario.target)
    if target not in (0, 1):
        msg = f"the target's truth must be 0 or 1, got {target!r}"
        raise ScenarioError(msg, target)
    counts = []
    for m in template.values():
        if m.name not in true:
            msg = f"{scenario.name} does not use {m.name}: leave it out of the design"
            raise ScenarioError(msg, m.name)
        if m.exact:
            msg = f"{m.name} has no noise, and an average over releases is about noise: condition on it as known"
            raise UnsupportedModelError(msg, m.name)
        flat = np.broadcast_to(true[m.name], np.shape(m.value)).ravel()
        noise = np.broadcast_to(m.sigma2, flat.shape)
        for entry, (t, s) in enumerate(zip(flat, noise, strict=True)):
            counts.append(_Count(m.name, entry if np.ndim(m.value) else None, int(t), float(s), m.groups))
    return counts, bool(target)


def _lattice(
    counts: list[_Count], tolerance: float, most: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.float64], float, int]:
    """All releases but the least likely, whose probability is below ``tolerance``; None if they are too many.

    Windows leave out half of the tolerance, by sub-Gaussianity (a sum of d noises has parameter d sigma2); of the box, the
    lightest releases are dropped up to the other half.
    """
    share = 0.5 * tolerance / len(counts)
    halves = [noise_window(c.sigma2 * c.groups, share) for c in counts]
    size = math.prod(2 * h + 1 for h in halves)
    nothing = np.empty(0)
    if size > min(_BOX, 40 * most):
        return None, nothing, 0.0, size
    lines = [np.arange(-h, h + 1) for h in halves]
    log_weight = np.zeros(())
    for c, n in zip(counts, lines, strict=True):
        log_weight = np.add.outer(log_weight, c.log_pmf(n))
    flat = np.exp(log_weight.ravel())
    order = np.argsort(flat)
    light = np.cumsum(flat[order])
    first = int(np.searchsorted(light, 0.5 * tolerance, side="right"))
    keep = np.sort(order[first:])
    if keep.size > most:
        return None, nothing, 0.0, int(keep.size)
    at = np.unravel_index(keep, log_weight.shape)
    noise = np.stack([n[i] for n, i in zip(lines, at, strict=True)], axis=1)
    left_out = 0.5 * tolerance + (float(light[first - 1]) if first else 0.0)
    return noise, flat[keep], left_out, int(keep.size)


def _answers(
    scenario: Scenario,
    template: Release,
    counts: list[_Count],
    noise: NDArray[np.int64],
    progressbar: bool,
) -> xr.Dataset:
    """Answer every release: truth plus its row of noise."""
    seen = noise + np.array([c.truth for c in counts])
    data: dict[str, xr.DataArray] = {}
    within = []
    for m in template.values():
        at = [k for k, c in enumerate(counts) if c.name == m.name]
        if np.ndim(m.value):
            dim = f"entry of {m.name}"
            within.append(dim)
            data[m.name] = xr.DataArray(seen[:, at], dims=("release", dim))
            wide = np.ndim(m.sigma2) > 0
            data[f"{m.name}_sigma2"] = xr.DataArray(m.sigma2, dims=(dim,) if wide else ())
        else:
            data[m.name] = xr.DataArray(seen[:, at[0]], dims="release")
            data[f"{m.name}_sigma2"] = xr.DataArray(m.sigma2)
        data[f"{m.name}_groups"] = xr.DataArray(m.groups)
    return batch(scenario, xr.Dataset(data), within=within, tolerance=1e-13, progressbar=progressbar)
