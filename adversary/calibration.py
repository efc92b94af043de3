"""Is the engine's uncertainty right? Simulation-based calibration, coverage of intervals, predictive checks of counts.

What it is: draw the unknowns from the prior and the noisy counts from the model, answer exactly, and see where the truth
falls. What it is not: a check of the assumptions against the world; data come from the model itself.

Ranks are those of integers, so ties are broken at random: with posterior distribution function F and mass p at the true
value x, the place is u = F(x - 1) + V p(x), V uniform on (0, 1); it is uniform exactly if the posterior is right (no bins of
draws, no Monte Carlo error of ranks). A yes-or-no target has little to show in its ranks, so its log-odds gain is tested too:
regressing the truth on it must give slope 1 (a score test).

An improper flat prior cannot be drawn from: it needs a proper stand-in, which is then the prior on both sides.

Held to account by ``tests/test_calibration.py``, which also proves that noise wrong by 20 % is found.
Sources: Talts, Betancourt, Simpson, Vehtari & Gelman, arXiv 1804.06788; Modrak et al. (2023), Bayesian Analysis 20(2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ScenarioError, UnsupportedModelError
from adversary.priors import Prior, is_plain_prior
from adversary.release.measurement import Measurement, Release

if TYPE_CHECKING:
    import xarray as xr

    from adversary.language import Scenario

__all__ = [
    "STAND_IN",
    "Calibration",
    "CountCheck",
    "calibrate",
    "posterior_predictive_check",
    "with_stand_ins",
]

STAND_IN = Prior("Poisson", mu=3.0)
"""What stands in for a flat prior on counts where the caller names nothing else."""

BINS = 10
PROBS = (0.5, 0.8, 0.94)
"""Probabilities of the equal-tailed intervals."""

_TRACKED = 6  # target and further unknowns followed; a vector is followed in its first entry


@dataclass(frozen=True)
class Calibration:
    """Where the truth fell in its posterior, over many simulated releases.

    Attributes
    ----------
    scenario : str
        Name of the scenario.
    ranks : xarray.Dataset
        For each followed unknown, over ``simulation``: its place u in (0, 1); in attrs what stood in for flat priors.
    intervals : xarray.Dataset
        Over ``variable`` and ``prob``: ``covered`` (share of equal-tailed intervals that hold the truth), ``expected`` (mean
        posterior mass of these intervals, which discreteness puts above ``prob``) and ``z`` (their difference in standard
        errors).
    slope_z : float
        Score test of the log-odds gain of a yes-or-no target, standard normal if right, negative if over-confident; nan
        otherwise.
    """

    scenario: str
    ranks: xr.Dataset
    intervals: xr.Dataset
    slope_z: float

    @property
    def p_values(self) -> dict[str, float]:
        """p-values that are uniform where the posterior is right.

        Of each unknown's places (chi-square, 10 bins), of their spread (the sum of squared normal scores, which notices
        noise of the wrong size soonest), and of the target's slope.
        """
        from scipy import stats

        out = {}
        for name, places in self.ranks.data_vars.items():
            u = np.clip(places.values, 1e-15, 1 - 1e-15)
            counts = np.histogram(u, bins=BINS, range=(0, 1))[0]
            out[str(name)] = float(stats.chisquare(counts).pvalue)
            spread, n = float((stats.norm.ppf(u) ** 2).sum()), len(u)
            out[f"{name}, spread"] = min(
                1.0, 2 * float(min(stats.chi2.sf(spread, n), stats.chi2.cdf(spread, n)))
            )
        if not math.isnan(self.slope_z):
            out["log-odds gain"] = float(2 * stats.norm.sf(abs(self.slope_z)))
        return out

    def uniform(self, level: float = 0.01) -> bool:
        """Whether nothing speaks against the posterior at this level, all tests together (Bonferroni)."""
        found = self.p_values
        return min(found.values()) >= level / len(found)

    def lines(self) -> list[str]:
        """Return the verdict as text."""
        n = self.ranks.sizes["simulation"]
        head = f"{self.scenario}: {n} simulated releases, equal-tailed intervals"
        rows = [f"  {name:<16} p = {p:.3g}" for name, p in self.p_values.items()]
        for name in self.intervals["variable"].values:
            for prob in self.intervals["prob"].values:
                at = self.intervals.sel(variable=name, prob=prob)
                rows.append(
                    f"  {name:<16} {prob:.0%} eti holds the truth in {float(at.covered):.3f} "
                    f"(expected {float(at.expected):.3f}, z = {float(at.z):+.2f})"
                )
        return [head, *rows]


def with_stand_ins(scenario: Scenario, stand_in: Any = None) -> tuple[Scenario, dict[str, str]]:
    """Return the scenario with every flat prior replaced by a proper one, and what was replaced.

    Parameters
    ----------
    scenario
        Any scenario.
    stand_in
        One prior for all, argument -> prior, or None for :data:`STAND_IN`.
    """
    flat = [
        k
        for k, v in scenario.unknowns.items()
        if is_plain_prior(v) and v.distribution in ("FlatCount", "Flat", "HalfFlat")
    ]
    named = (
        stand_in
        if isinstance(stand_in, Mapping)
        else dict.fromkeys(flat, STAND_IN if stand_in is None else stand_in)
    )
    changes = {k: named.get(k, STAND_IN) for k in flat}
    changes |= {k: v for k, v in named.items() if k not in flat}
    return scenario.assuming(**changes), {k: repr(v) for k, v in changes.items()}


def calibrate(
    scenario: Scenario,
    release: Release,
    *,
    simulations: int = 500,
    seed: Any,
    stand_in: Any = None,
    data_sigma2: float = 1.0,
    progressbar: bool = False,
) -> Calibration:
    """Simulate releases from the scenario, answer each exactly, and record where the truth fell.

    Parameters
    ----------
    scenario
        Whose posterior is tested.
    release
        Which counts are published, with which noise; its values do not matter.
    simulations
        How many releases are drawn.
    seed
        int, SeedSequence or Generator.
    stand_in
        Proper prior in place of each flat one, or argument -> prior; Poisson(3) where left out.
    data_sigma2
        Factor on the noise of the *data*; the posterior goes on assuming the release's own. 1 is calibration proper;
        anything else shows what the tests would find.
    progressbar
        Whether to show progress.

    Returns
    -------
    Calibration
        Ranks and coverage, with verdicts.

    Raises
    ------
    ScenarioError
        For fewer than 20 simulations.
    UnsupportedModelError
        Where the exact engine cannot answer the scenario.
    """
    from tqdm.auto import tqdm

    from adversary.samplers.prepared import prepare

    if simulations < 20:
        msg = f"calibration needs at least 20 simulations to say anything, got {simulations}"
        raise ScenarioError(msg, simulations)
    rng = np.random.default_rng(seed)
    proper, replaced = with_stand_ins(scenario, stand_in)
    template = prepare(proper, release).model
    followed = _followed(template, proper.target)
    truth = _simulate(proper, _scaled(release, data_sigma2), followed, simulations, rng)
    ties = rng.random((simulations, len(followed)))
    u = np.empty((simulations, len(followed)))
    covered, mass = (np.empty((simulations, len(followed), len(PROBS))) for _ in range(2))
    score = np.zeros((simulations, 2))
    for i in tqdm(range(simulations), desc="calibrate", unit=" releases", disable=not progressbar):
        seen = _with_values(release, {m: truth[m][i] for m in release})
        answer = prepare(proper, seen).answer(proper, seen)
        for j, (name, index) in enumerate(followed):
            pmf = answer.marginal(name, index)
            x = int(truth[name][i][index] if index else truth[name][i])
            u[i, j], covered[i, j], mass[i, j] = _place(pmf, x, ties[i, j])
        if answer.log_odds is not None and answer.prior_log_odds is not None:
            gain, p = answer.log_odds - answer.prior_log_odds, float(answer.posterior.p[-1])
            score[i] = (truth[proper.target][i] - p) * gain, p * (1 - p) * gain**2
    total = score.sum(axis=0)
    slope_z = float(total[0] / math.sqrt(total[1])) if total[1] > 0 else math.nan
    return _collect(proper, followed, replaced, (u, covered, mass), slope_z)


def _followed(model: Any, target: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the target and the unknown counts to follow; vectors in their first entry."""
    out: list[tuple[str, tuple[int, ...]]] = [(target, ())]
    counts = [v for v in model.free_RVs if v.name != target and v.dtype.startswith("int")]
    out += [(v.name, (0,) * v.ndim) for v in counts]
    return out[:_TRACKED]


def _scaled(release: Release, factor: float) -> Release:
    if factor == 1.0:
        return release
    ms = [
        m
        if m.exact
        else Measurement(
            m.name,
            m.value,
            np.asarray(m.sigma2) * factor if np.ndim(m.sigma2) else m.sigma2 * factor,
            None,
            None,
            m.groups,
        )
        for m in release.values()
    ]
    return Release(ms, convention=None, not_measured=list(release.not_measured))


def _with_values(release: Release, values: Mapping[str, Any]) -> Release:
    """Return the release with other published values."""
    ms = [
        Measurement(
            m.name,
            np.asarray(values[m.name], dtype=np.int64) if np.ndim(m.value) else int(values[m.name]),
            m.sigma2,
            m.rho,
            m.convention,
            m.groups,
        )
        for m in release.values()
    ]
    return Release(ms, convention=release.convention, not_measured=list(release.not_measured))


def _simulate(
    scenario: Scenario,
    release: Release,
    followed: Sequence[tuple[str, tuple[int, ...]]],
    n: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Draw unknowns and noisy counts together from the scenario's own model."""
    import pymc as pm

    model = scenario(release)
    missing = [m for m in release if m not in {v.name for v in model.observed_RVs}]
    names = [*dict.fromkeys(name for name, _ in followed), *(v.name for v in model.observed_RVs)]
    drawn = pm.draw([model[name] for name in names], draws=n, random_seed=rng, mode="FAST_COMPILE")
    out = {name: np.asarray(d) for name, d in zip(names, drawn, strict=True)}
    return out | {m: np.broadcast_to(release[m].value, (n, *np.shape(release[m].value))) for m in missing}


def _place(pmf: Any, x: int, tie: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the randomised place of x, and for each interval whether it holds x, and its mass."""
    p = pmf.p
    cdf = np.cumsum(p) / p.sum()
    at = int(np.searchsorted(pmf.support, x))
    inside = at < len(p) and int(pmf.support[at]) == x
    below = 0.0 if at == 0 else float(cdf[min(at, len(p)) - 1])
    u = below + tie * (float(p[at]) if inside else 0.0)
    covered, mass = np.empty(len(PROBS)), np.empty(len(PROBS))
    for k, prob in enumerate(PROBS):
        low, high = np.searchsorted(cdf, [(1 - prob) / 2, (1 + prob) / 2])
        high = min(int(high), len(p) - 1)
        covered[k] = pmf.support[low] <= x <= pmf.support[high]
        mass[k] = p[low : high + 1].sum()
    return min(u, 1.0), covered, mass


def _collect(
    scenario: Scenario,
    followed: Sequence[tuple[str, tuple[int, ...]]],
    replaced: dict[str, str],
    found: tuple[np.ndarray, np.ndarray, np.ndarray],
    slope_z: float,
) -> Calibration:
    """Label the places, and what the intervals covered."""
    import xarray as xr

    u, covered, mass = found
    names = [name + (f"[{', '.join(map(str, index))}]" if index else "") for name, index in followed]
    ranks = xr.Dataset(
        {name: ("simulation", u[:, j]) for j, name in enumerate(names)},
        coords={"simulation": np.arange(len(u))},
        attrs={"stand_ins": str(replaced), "scenario": scenario.name},
    )
    spread = np.sqrt(np.maximum((mass * (1 - mass)).sum(axis=0), 1e-300))
    z = np.where(spread > 1e-6, (covered - mass).sum(axis=0) / spread, 0.0)
    dims = ("variable", "prob")
    intervals = xr.Dataset(
        {"covered": (dims, covered.mean(axis=0)), "expected": (dims, mass.mean(axis=0)), "z": (dims, z)},
        coords={"variable": np.array(names, dtype=object), "prob": np.array(PROBS)},
        attrs={"interval": "equal-tailed"},
    )
    return Calibration(scenario.name, ranks, intervals, slope_z)


@dataclass(frozen=True)
class CountCheck:
    """One noisy count against what the posterior would publish.

    Attributes
    ----------
    measurement : str
        Its name, with the entry of a vector.
    observed : int
        Published value.
    mean, sd : float
        Of replicated noisy counts.
    p_value : float
        Two-sided: twice the smaller of P(replica <= observed) and P(replica >= observed), each with half of P(equal), at most
        1. The same data inform the posterior, so small values are rarer than their size says.
    """

    measurement: str
    observed: int
    mean: float
    sd: float
    p_value: float


def posterior_predictive_check(
    scenario: Scenario, release: Release, *, seed: Any, draws: int = 2000
) -> tuple[CountCheck, ...]:
    """Publish every noisy count again from the exact posterior, and see whether the real one is among its like.

    Parameters
    ----------
    scenario, release
        As for :func:`adversary.run`.
    seed
        int, SeedSequence or Generator.
    draws
        Replications.

    Returns
    -------
    tuple of CountCheck
        One for each noisy count; invariants, which have no noise, are left out.

    Raises
    ------
    UnsupportedModelError
        Where an unknown that nothing measures has an improper prior, so that nothing can be replicated.

    Examples
    --------
    >>> from adversary import Release, load
    >>> release = Release.from_counts({"block": 2}, rho="0.0992264")
    >>> [c.measurement for c in posterior_predictive_check(load("single_level"), release, seed=1)]
    ['block']
    """
    from adversary.privacy.discrete_gaussian import sample
    from adversary.samplers.prepared import prepare

    rng, noise = np.random.default_rng(seed).spawn(2)
    posterior = prepare(scenario, release).answer(scenario, release).draw(draws, rng)
    model = scenario(release)
    lost = [v.name for v in model.free_RVs if v.name not in posterior]
    if lost:
        msg = f"{lost[0]} has an improper prior and nothing measures it, so no count can be replicated: give it a proper prior"
        raise UnsupportedModelError(msg, lost[0])
    out = []
    for name, mu in _true_counts(model, release, posterior, draws).items():
        m = release[name]
        eta = sample(np.broadcast_to(m.sigma2, (m.groups, *mu.shape)), (m.groups, *mu.shape), noise).sum(
            axis=0
        )
        replicas = (mu + eta).reshape(draws, -1)
        for i, y in enumerate(np.atleast_1d(m.value)):
            column = replicas[:, i]
            equal = float((column == y).mean()) / 2
            p = 2 * min(float((column < y).mean()) + equal, float((column > y).mean()) + equal)
            label = f"{name}[{i}]" if np.ndim(m.value) else name
            out.append(CountCheck(label, int(y), float(column.mean()), float(column.std()), min(p, 1.0)))
    return tuple(out)


def _true_counts(
    model: Any, release: Release, posterior: Mapping[str, Any], draws: int
) -> dict[str, np.ndarray]:
    """Return the true count behind each noisy one, at every draw."""
    import pytensor
    import pytensor.tensor as pt
    from pytensor.graph.replace import vectorize_graph

    names = [v.name for v in model.observed_RVs if v.name in release and not release[v.name].exact]
    centres = [model[n].owner.op.dist_params(model[n].owner)[0] for n in names]
    graphs = model.replace_rvs_by_values(centres)
    values = [v for v in model.value_vars if v.name in posterior]
    batches = [pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape)) for v in values]
    outputs = vectorize_graph(graphs, dict(zip(values, batches, strict=True)))
    function = pytensor.function(batches, outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    found = function(*(posterior[v.name].astype(v.type.dtype) for v in values))
    return {
        n: np.broadcast_to(
            np.asarray(mu, dtype=np.int64).reshape(-1, *np.shape(mu)[1:]),
            (draws, *np.shape(release[n].value)),
        )
        for n, mu in zip(names, found, strict=True)
    }
