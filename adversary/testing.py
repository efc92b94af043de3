"""Conformance of a scenario: what every declared adversary must do, said in words.

What it is: :func:`check_scenario`, for our own scenarios and for those of others. What it is not: a proof that the scenario
says what its author meant; it finds what cannot be meant.

Held to account by ``tests/test_testing.py``, where each check is shown a scenario that it must refuse.
"""

from __future__ import annotations

import inspect
import pickle
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.calibration import with_stand_ins
from adversary.errors import AdversaryError, ModelError, UnsupportedModelError
from adversary.language import Scenario
from adversary.priors import Prior, is_plain_prior
from adversary.release.measurement import Measurement, Release
from adversary.results import Check

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Check", "check_scenario", "example_release"]

LOUD, QUIET = 1e4, 1e-4
"""Noise parameters that stand for infinite noise and for none."""

NEAR = 0.02
"""How far from the prior the posterior may still be under loud noise (a flat prior leaves O(1 / sigma))."""

_ATTEMPTS = 40


def check_scenario(
    scenario: Scenario,
    release: Release | None = None,
    *,
    quick: bool = False,
    seed: Any = 1,
    draws: int = 1000,
) -> list[Check]:
    """Check that a scenario behaves as a declared adversary must.

    Parameters
    ----------
    scenario
        Any scenario.
    release
        What it is tried on; where left out, a small one is made from the names that the scenario asks for.
    quick
        Whether to leave out PyMC's sampler, which takes most of the time.
    seed, draws
        Of the samplers.

    Returns
    -------
    list of Check
        ``passed`` is True, False, or None where the question does not apply; ``text`` says what was found. Checks: docstring,
        source, release, builds, twice, pickles, measurements, prior predictive, loud noise, no noise, priors matter, samplers.

    Examples
    --------
    >>> from adversary import load
    >>> all(c.passed is not False for c in check_scenario(load("single_level"), quick=True))
    True
    """
    if not isinstance(scenario, Scenario):
        msg = f"check_scenario takes a scenario, got {scenario!r}: decorate a function with @scenario"
        raise AdversaryError(msg, scenario)
    found = [_docstring(scenario), _source(scenario), _pickles(scenario)]
    if release is None:
        try:
            release = example_release(scenario)
        except AdversaryError as error:
            return [*found, Check("builds", False, f"no release could be made for it: {error}")]
    trial = _Trial(scenario, release, np.random.SeedSequence(seed) if isinstance(seed, int) else seed, draws)
    built = _guarded("builds", _builds, trial)
    found.append(built)
    if not built.passed:
        return found
    steps: dict[str, Callable[[_Trial], Check]] = {
        "builds twice": _twice,
        "measurements": _measurements,
        "prior predictive": _prior_predictive,
        "loud noise": _loud,
        "no noise": _quiet,
        "priors matter": _priors_matter,
    }
    found += [_guarded(name, step, trial) for name, step in steps.items()]
    return found + _samplers(trial, quick=quick)


@dataclass
class _Trial:
    """What the checks share."""

    scenario: Scenario
    release: Release
    seed: Any
    draws: int
    reads: Any = field(default_factory=dict)
    observed: tuple[str, ...] = ()

    def answer(self, scenario: Scenario | None = None, release: Release | None = None) -> Any:
        from adversary.samplers.prepared import prepare

        s, r = scenario or self.scenario, release or self.release
        return prepare(s, r).answer(s, r)


def _guarded(name: str, step: Callable[[_Trial], Check], trial: _Trial) -> Check:
    """Run one check; what goes wrong inside becomes its text."""
    try:
        return step(trial)
    except UnsupportedModelError as error:
        return Check(name, None, f"not checked: {error}")
    except AdversaryError as error:
        return Check(name, False, str(error))
    except Exception as error:  # noqa: BLE001  (a user's function may raise anything; it is reported, not swallowed)
        return Check(name, False, f"{type(error).__name__}: {error}")


# ---------------------------------------------------------------------- the declaration
def _docstring(s: Scenario) -> Check:
    if s.question:
        return Check("docstring", True, f"asks: {s.question}")
    return Check(
        "docstring",
        False,
        f"{s.name} has no docstring: its first line is the question that the adversary asks",
    )


def _source(s: Scenario) -> Check:
    if s.source:
        return Check("source", True, f"source: {s.source}")
    return Check(
        "source",
        False,
        f'{s.name} names no source: write @scenario(target="{s.target}", source="paper, equation")',
    )


def _pickles(s: Scenario) -> Check:
    way_out = "define it at the top of a module, so that it can be sent to other processes"
    try:
        again = pickle.loads(pickle.dumps(s))
    except Exception as error:  # noqa: BLE001
        return Check("pickles", False, f"{s.name} cannot be pickled ({error}): {way_out}")
    same = {k: repr(v) for k, v in again.assumptions.items()} == {
        k: repr(v) for k, v in s.assumptions.items()
    }
    if again.name == s.name and same:
        return Check("pickles", True, "comes back equal from pickling")
    return Check("pickles", False, f"{s.name} comes back from pickling as {again!r}: {way_out}")


def _builds(t: _Trial) -> Check:
    model, t.reads = t.scenario.build(t.release)
    t.observed = tuple(v.name for v in model.observed_RVs)
    unknowns = ", ".join(v.name for v in model.free_RVs)
    if not unknowns:
        return Check(
            "builds",
            False,
            f"{t.scenario.name} has no unknown: nothing is left to learn; give an argument a prior",
        )
    return Check("builds", True, f"builds; unknowns {unknowns}; wants {t.scenario.target}")


def _twice(t: _Trial) -> Check:
    from pytensor.graph.basic import Constant, equal_computations

    one, other = t.scenario(t.release), t.scenario(t.release)
    names = [v.name for v in one.basic_RVs]
    if names != [v.name for v in other.basic_RVs]:
        return Check(
            "builds twice",
            False,
            "two builds of one release have different variables: something in it changes by itself",
        )
    graphs = [[m.logp(), *m.replace_rvs_by_values([m[t.scenario.target]])] for m in (one, other)]
    inputs = [
        [*m.value_vars, *(v for v in m.dim_lengths.values() if not isinstance(v, Constant))]
        for m in (one, other)
    ]
    same = {k: v.eval() for k, v in one.dim_lengths.items()} == {
        k: v.eval() for k, v in other.dim_lengths.items()
    }
    same = same and equal_computations(graphs[0], graphs[1], inputs[0], inputs[1])
    if same:
        return Check("builds twice", True, "two builds are equal")
    return Check(
        "builds twice",
        False,
        "two builds of one release differ: take random numbers and counters out of the function",
    )


def _measurements(t: _Trial) -> Check:
    peeked = sorted({name for name, attribute in t.reads if attribute == "value" and name not in t.observed})
    if peeked:
        text = f'looks at the value of {peeked[0]!r} and never declares it: write measured(release["{peeked[0]}"], true_value)'
        return Check("measurements", False, text)
    if not t.observed:
        return Check(
            "measurements",
            False,
            "sees nothing of this release: declare what is published with measured(...)",
        )
    unused = [m for m in t.release if m not in t.observed]
    more = f"; published and not used: {', '.join(unused)}" if unused else ""
    return Check("measurements", True, f"sees {', '.join(t.observed)}{more}")


# ---------------------------------------------------------------------- behaviour
def _with(release: Release, sigma2: float, values: dict[str, Any] | None = None) -> Release:
    """Return the release with other noise, and other values where given."""
    out = []
    for m in release.values():
        value: Any = m.value if values is None or m.name not in values else values[m.name]
        value = np.asarray(value, dtype=np.int64) if np.ndim(m.value) else int(value)
        noise: Any = np.full(np.shape(m.value), sigma2) if np.ndim(m.sigma2) else sigma2
        out.append(Measurement(m.name, value, noise, None, None, 1))
    return Release(out, convention=None, not_measured=list(release.not_measured))


def _simulated(t: _Trial, release: Release, n: int) -> tuple[Scenario, dict[str, np.ndarray], dict[str, str]]:
    """Draw target and published counts from the model, flat priors replaced by stand-ins."""
    import pymc as pm

    proper, replaced = with_stand_ins(t.scenario)
    model = proper(release)
    names = [t.scenario.target, *(v.name for v in model.observed_RVs)]
    drawn = pm.draw(
        [model[x] for x in names], draws=n, random_seed=np.random.default_rng(t.seed), mode="FAST_COMPILE"
    )
    return (
        proper,
        {x: np.asarray(d).reshape(n, *np.shape(d)[1:]) for x, d in zip(names, drawn, strict=True)},
        replaced,
    )


def _prior_predictive(t: _Trial) -> Check:
    _, drawn, replaced = _simulated(t, t.release, 100)
    for name, values in drawn.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return Check(
                "prior predictive",
                False,
                f"{name} is not finite under the prior: look at the prior's parameters",
            )
        if name in t.release and np.abs(values.astype(float)).max() > 2**53:
            return Check(
                "prior predictive", False, f"{name} exceeds 2^53 under the prior: no population is that large"
            )
    aside = (
        f" (with {', '.join(f'{k} ~ {v}' for k, v in replaced.items())} in place of a flat prior)"
        if replaced
        else ""
    )
    return Check("prior predictive", True, f"100 releases drawn from the prior are finite{aside}")


def _gap(a: Any, b: Any) -> float:
    """Return the largest difference of two pmfs."""
    one = dict(zip(a.support.tolist(), a.p.tolist(), strict=True))
    two = dict(zip(b.support.tolist(), b.p.tolist(), strict=True))
    return float(max(abs(one.get(k, 0.0) - two.get(k, 0.0)) for k in {*one, *two}))


def _loud(t: _Trial) -> Check:
    far, near = (t.answer(release=_with(t.release, s)) for s in (LOUD / 100, LOUD))
    if near.prior is None:
        return Check(
            "loud noise", None, "not checked: the target has an improper prior, to which nothing can return"
        )
    gap, before = _gap(near.posterior, near.prior), _gap(far.posterior, far.prior)
    if gap <= NEAR and gap <= before + 1e-9:
        return Check(
            "loud noise",
            True,
            f"as noise grows the posterior returns to the prior (within {gap:.1g} at sigma2 = {LOUD:g})",
        )
    text = (
        f"under noise of sigma2 = {LOUD:g} the posterior is still {gap:.2g} away from the prior: something other than "
        "the published counts tells her about the target"
    )
    return Check("loud noise", False, text)


def _quiet(t: _Trial) -> Check:
    n = 6
    proper, drawn, _ = _simulated(t, _with(t.release, QUIET), n)
    lost, known = [], 0
    for i in range(n):
        seen = _with(t.release, QUIET, {m: drawn[m][i] for m in t.release if m in drawn})
        pmf, truth = t.answer(proper, seen).posterior, int(drawn[t.scenario.target][i])
        p = float(pmf.p[pmf.support == truth].sum())
        if p < 1e-9:
            text = (
                f"with exact counts the truth {t.scenario.target} = {truth} gets probability {p:.1g}: the engine or the model "
                f"takes the counts for something else (most likely {pmf.mode()})"
            )
            return Check("no noise", False, text)
        if p > 1 - 1e-6:
            known += 1
        else:
            lost.append(p)
    if not lost:
        return Check("no noise", True, "without noise the target is known")
    text = (
        f"without noise the target is known in {known} of {n} draws, and left at P(truth) = {min(lost):.3f} otherwise: the "
        "counts alone do not identify it"
    )
    return Check("no noise", None, text)


def _other_prior(prior: Any) -> Any:
    """Return another prior of the same kind, or None where there is no obvious one."""
    if not is_plain_prior(prior):
        return None
    if prior.distribution == "FlatCount":
        return Prior("Poisson", mu=2.0)
    if prior.distribution == "Categorical" and "p" in prior.parameters:
        p = np.asarray(prior.parameters["p"], dtype=float)
        tilted = p * np.linspace(1.0, 2.0, p.shape[-1])
        return Prior("Categorical", p=tilted / tilted.sum(axis=-1, keepdims=True))
    parameters = dict(prior.parameters)
    for key, value in parameters.items():
        if is_plain_prior(value):
            inner = _other_prior(value)
            if inner is not None:
                return Prior(
                    prior.distribution, dims=prior.dims, shape=prior.shape, **{**parameters, key: inner}
                )
        elif np.asarray(value).dtype.kind in "if":
            number = np.asarray(value, dtype=float)
            changed = (
                number / (1 + number)
                if key == "p"
                else number + 1
                if prior.distribution == "DiscreteUniform"
                else 2 * number + (number == 0)
            )
            keep = changed.astype(np.int64) if np.asarray(value).dtype.kind == "i" else changed
            parameters[key] = keep if np.ndim(value) else keep.item()
            return Prior(prior.distribution, dims=prior.dims, shape=prior.shape, **parameters)
    return None


def _priors_matter(t: _Trial) -> Check:
    base = t.answer().posterior
    moved, skipped = [], []
    for name, prior in t.scenario.unknowns.items():
        other = _other_prior(prior)
        if other is None:
            skipped.append(name)
            continue
        if _gap(base, t.answer(t.scenario.assuming(**{name: other})).posterior) < 1e-12:
            text = f"another prior of {name} ({other!r}) changes nothing: {name} reaches no measurement and no target"
            return Check("priors matter", False, text)
        moved.append(name)
    aside = f"; not tried: {', '.join(skipped)}" if skipped else ""
    return Check(
        "priors matter",
        True if moved else None,
        f"the answer moves with the prior of {', '.join(moved) or 'nothing'}{aside}",
    )


def _samplers(t: _Trial, *, quick: bool) -> list[Check]:
    """Hold each sampler against the exact answer, one check each."""
    names = ["exact", *(["gibbs"] if t.scenario.gibbs is not None else []), *([] if quick else ["mcmc"])]
    return [_sampler(t, name) for name in names]


def _sampler(t: _Trial, name: str) -> Check:
    from adversary.diagnostics import compare

    try:
        found = compare(
            t.scenario, t.release, list(dict.fromkeys(["exact", name])), seed=t.seed, draws=t.draws
        )
    except Exception as error:  # noqa: BLE001  (an engine that falls over is a finding about scenario and engine)
        first = str(error).strip().split("\n", 1)[0]
        return Check(name, False, f"{name} fell over: {type(error).__name__}: {first[:200]}")
    if name in found.skipped:
        return Check(name, None, f"{name}: {found.skipped[name]}")
    rows = [r for r in found.rows if r.sampler == name]
    bad = [r for r in rows if not r.ok]
    if bad:
        text = (
            f"{name}: {bad[0].variable} is {bad[0].verdict} (mean {bad[0].mean:.4g}, exact {bad[0].exact_mean:.4g}, "
            f"{bad[0].difference:+.1f} standard errors)"
        )
        return Check(name, False, text)
    if name == "exact":
        return Check(name, True, "exact answers")
    held = [r.variable for r in rows if np.isfinite(r.difference)]
    if not held:
        return Check(name, None, f"{name} runs; there is no exact answer to hold it against")
    return Check(name, True, f"{name} agrees with exact within 4 standard errors on {', '.join(held)}")


# ---------------------------------------------------------------------- a release to try
def example_release(scenario: Scenario, *, rho: str = "1/4") -> Release:
    """Make a small release by trying the names that the scenario asks for.

    Parameters
    ----------
    scenario
        Any scenario whose arguments all have values.
    rho
        Budget of each count.

    Returns
    -------
    Release
        Counts of 1 (vectors 1, 0, 0, ... in as many entries as the scenario's priors speak of), unbounded convention.

    Raises
    ------
    ModelError
        Where no release of this kind fits; pass one of your own.

    Examples
    --------
    >>> from adversary import load
    >>> list(example_release(load("two_level")))
    ['block', 'rest', 'block_group']
    """
    lengths = [
        np.shape(v.parameters["p"])[-1]
        for v in scenario.unknowns.values()
        if is_plain_prior(v) and np.ndim(v.parameters.get("p", 0))
    ]
    entries = lengths[0] if lengths else 3
    counts: dict[str, Any] = {"block": 1, "block_group": 1} if _walks(scenario) else {}
    error: Exception | None = None
    for _ in range(_ATTEMPTS):
        release = _Probe(counts, rho)
        try:
            scenario.build(release)
        except Exception as problem:  # noqa: BLE001  (what it asks for next is in the message)
            error = problem
            name = getattr(problem, "value", None)
            if name in counts and np.ndim(counts[name]) == 0 and "one value" in str(problem):
                counts[name] = [1] + [0] * (entries - 1)
                continue
            sizes = re.search(r"holds \d+ values and its true value has (\d+)", str(problem))
            if name in counts and sizes:
                counts[name] = [1] + [0] * (int(sizes[1]) - 1)
                continue
            if release.asked_for <= set(counts):
                break
            counts |= dict.fromkeys(release.asked_for - set(counts), 1)
            continue
        counts |= dict.fromkeys((n for n in release.order if n not in counts), 1)
        kept = {n: counts[n] for n in dict.fromkeys([*release.order, *counts])}
        return Release.from_counts(kept, rho=rho)
    msg = f"no example release fits {scenario.name} ({error}): pass one of your own"
    raise ModelError(msg, scenario.name) from error


def _walks(scenario: Scenario) -> bool:
    """Whether the scenario walks over whatever is released, so that nothing can be found out by asking."""
    source = inspect.getsource(scenario.function)
    return bool(re.search(r"\bin\s+(list\()?release\b(?!\[)", source)) and not re.search(
        r"if\s+\w+\s+in\s+release", source
    )


class _Probe(Release):
    """A release that has every name asked for, and remembers the names."""

    def __init__(self, counts: dict[str, Any], rho: str) -> None:
        made = Release.from_counts(counts or {"nothing": 0}, rho=rho)
        super().__init__(made.values() if counts else (), convention=made.convention, not_measured=())
        self.asked_for: set[str] = set()
        self.order: list[str] = []
        self._rho = rho

    def __getitem__(self, name: str) -> Measurement:
        self.asked_for.add(name)
        if name not in self.order:
            self.order.append(name)
        if super().__contains__(name):
            return super().__getitem__(name)
        return Release.from_counts({name: 1}, rho=self._rho)[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)
