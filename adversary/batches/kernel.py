"""What answers a piece of many targets: arrays in, five arrays out; the same numbers for any cut into pieces.

What it is: a picklable function of columns. It groups targets whose models are one and the same (same known numbers, same
kinds of noise), reads that model once for a closed form, and evaluates the closed form on all of them; where there is none
it asks the compiled exact engine, one solution a target. What it is not: a place for arguments (see
:mod:`adversary.batches.many`).

The exact engine reads shared variables, so its use is serialised by a lock: two threads that fed one compiled model would
answer each other's questions. Closed forms run outside of the lock.

Held to account by ``tests/test_batches.py``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ReleaseError, ScenarioError, UnsupportedModelError
from adversary.language import noise_kind
from adversary.priors import Prior, _PriorSpec
from adversary.release.measurement import Measurement, Release
from adversary.risk.measures import decide, posterior, risk_ratio
from adversary.samplers.closed import rest_noise_error
from adversary.samplers.recognise import ClosedForm, Column, find_closed_form, prior_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from adversary.language import Scenario

    Array = NDArray[Any]

__all__ = ["OUTPUTS", "Kernel", "with_values"]

OUTPUTS = ("prior", "posterior", "risk", "log_odds", "decision")
_ENGINE = threading.RLock()  # building and solving PyMC models is not safe in two threads
_WHOLE = 2**53
_KINDS = ("one", "exact", "pooled", "sum")


def with_values(scenario: Scenario, values: dict[str, Any]) -> Scenario:
    """Return the scenario with assumptions, or parameters of their priors (``"present.p"``), at the given values.

    Raises
    ------
    ScenarioError
        For a name that is neither.
    """
    changes: dict[str, Any] = {}
    for name, value in values.items():
        argument, dot, parameter = name.partition(".")
        if not dot:
            changes[name] = value
            continue
        old: Any = changes.get(argument, scenario.assumptions.get(argument))
        if not hasattr(old, "parameters") or parameter not in old.parameters:
            msg = (
                f"{name} is no parameter of a prior of {scenario.name}: its assumptions are "
                f"{', '.join(scenario.assumptions)}"
            )
            raise ScenarioError(msg, name)
        given = {**old.parameters, parameter: value}
        changes[argument] = Prior(old.distribution, dims=old.dims, shape=old.shape, **given)
    return scenario.assuming(**changes) if changes else scenario


@dataclass
class Kernel:
    """A scenario, and the names of the columns that it is given.

    Parameters
    ----------
    scenario
        The adversary.
    columns
        Names in the order of the arrays: ``block``, ``block_sigma2``, ``known``, ``present.p``, ...
    measurements
        Which of them are published values.
    wide
        Those with more than one number a target (vectors): they exclude closed forms.
    tolerance
        For the exact engine.
    engine
        ``"auto"``, or the one road to take.
    used, unused
        Measurements that the scenario looked at and did not, filled while it answers.
    """

    scenario: Scenario
    columns: tuple[str, ...]
    measurements: tuple[str, ...]
    wide: frozenset[str] = frozenset()
    tolerance: float = 1e-12
    engine: str = "auto"
    used: set[str] = field(default_factory=set, repr=False)
    unused: set[str] = field(default_factory=set, repr=False)

    def __call__(self, *arrays: Any) -> tuple[Array, ...]:
        """Return prior, posterior, risk, log-odds and decision of each target."""
        shape = np.broadcast_shapes(*(self._lead(n, a) for n, a in zip(self.columns, arrays, strict=True)))
        n = int(np.prod(shape, dtype=np.int64))
        flat: dict[str, Array] = {}
        for name, array in zip(self.columns, arrays, strict=True):
            a = np.asarray(array)
            if name in self.wide:
                flat[name] = np.broadcast_to(a, (*shape, a.shape[-1])).reshape(n, a.shape[-1])
            else:
                flat[name] = a.reshape(1) if a.size == 1 else np.broadcast_to(a, shape).reshape(n)
        prior = np.empty(n)
        odds = np.empty(n)
        if n:
            for at, values in self._groups(flat):
                prior[at], odds[at] = self._answer(at, values, flat)
        q, p = posterior(odds), posterior(prior)
        out = (p, q, risk_ratio(odds, prior), odds, decide(odds))
        return tuple(np.asarray(a).reshape(shape) for a in out)

    def _lead(self, name: str, array: Any) -> tuple[int, ...]:
        shape: tuple[int, ...] = np.shape(array)
        return shape[:-1] if name in self.wide else shape

    # ---------------------------------------------------------------- which targets share a model
    def _groups(self, flat: dict[str, Array]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield targets that share known numbers and kinds of noise, with those numbers."""
        known = [c for c in self.columns if not self._of_release(c) and "." not in c and c not in self.wide]
        self._check(flat)
        kinds = [self._kinds(m, flat) for m in self.measurements]
        keys = [flat[c] for c in known] + kinds
        varying = [k for k in keys if k.size > 1 and (k != k[0]).any()]
        if not varying:
            yield slice(None), {c: flat[c][0].item() for c in known}
            return
        _, first, inverse = np.unique(
            np.stack([np.unique(k, return_inverse=True)[1] for k in varying]),
            axis=1,
            return_index=True,
            return_inverse=True,
        )
        order = np.argsort(inverse.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(inverse.ravel(), minlength=first.size))
        for start, end, f in zip(np.r_[0, ends[:-1]], ends, first, strict=True):
            yield order[start:end], {c: _one(flat[c], f) for c in known}

    def _check(self, flat: dict[str, Array]) -> None:
        for m in self.measurements:
            value = flat[m]
            whole = value.dtype.kind in "iu" or (
                value.dtype.kind == "f" and bool((value == np.floor(value)).all())
            )
            if not whole or not (np.abs(value.astype(np.float64)) < _WHOLE).all():
                msg = f"{m} must hold whole numbers below 2^53 without gaps, got {value.dtype}: noisy counts are integers"
                raise ReleaseError(msg, m)
            flat[m] = value.astype(np.int64)
            sigma2 = flat[f"{m}_sigma2"] = flat[f"{m}_sigma2"].astype(np.float64)
            if not ((sigma2 >= 0) & np.isfinite(sigma2)).all():
                msg = f"{m}_sigma2 must be finite and not negative, got {sigma2[~(sigma2 >= 0) | ~np.isfinite(sigma2)][0]}"
                raise ReleaseError(msg, m)
            groups = flat.setdefault(f"{m}_groups", np.ones(1, dtype=np.int64))
            if not ((groups >= 1) & (groups == np.floor(groups))).all():
                msg = f"{m}_groups must be whole numbers of at least 1 (how many noisy counts were summed), got {groups.min()}"
                raise ReleaseError(msg, m)
            flat[f"{m}_groups"] = groups.astype(np.int64)

    def _kinds(self, name: str, flat: dict[str, Array]) -> Array:
        """Kind of noise of each target's count, as the language would declare it."""
        sigma2, groups = flat[f"{name}_sigma2"], flat[f"{name}_groups"]
        if name in self.wide:
            sigma2 = sigma2.min(axis=-1) if sigma2.ndim > 1 else sigma2
            return np.zeros(1, dtype=np.int64) if (sigma2 > 0).all() else np.where(sigma2 > 0, 0, 1)
        sigma2, groups = np.broadcast_arrays(sigma2, groups)
        kind = np.where(sigma2 == 0, 1, np.where(groups == 1, 0, 2))
        # below 1e-9 the bound settles it; the rest is asked one by one, as `measured` does
        doubt = np.flatnonzero(
            (kind == 2) & (rest_noise_error(np.where(sigma2 > 0, sigma2, 1.0), groups) > 1e-9)
        )
        if doubt.size:
            pairs, inverse = np.unique(
                np.stack([sigma2[doubt], groups[doubt].astype(float)]), axis=1, return_inverse=True
            )
            asked = [noise_kind(Measurement(name, 0, float(s), groups=int(d))) for s, d in pairs.T]
            kind[doubt] = np.array([_KINDS.index(k) for k in asked])[inverse.ravel()]
        return kind

    def _of_release(self, column: str) -> bool:
        return any(column in (m, f"{m}_sigma2", f"{m}_groups") for m in self.measurements)

    # ---------------------------------------------------------------- answers
    def _answer(self, at: Any, values: dict[str, Any], flat: dict[str, Array]) -> tuple[Array, Array]:
        parameters = [c for c in self.columns if "." in c]
        form = None
        if self.engine != "exact" and not self.wide:
            form = self._form(at, values, flat)
        if form is not None and not set(parameters) - {form.prior_label}:
            columns = {
                m: Column(*(_take(flat[f"{m}{s}"], at) for s in ("", "_sigma2", "_groups")))
                for m in self.measurements
            }
            prior = prior_of(form, {c: _take(flat[c], at) for c in parameters})
            self.used.add(form.name)
            self.unused |= set(self.measurements) - form.measured
            return prior, form.log_odds(columns, prior)
        if self.engine == "closed":
            msg = f"{self.scenario.name} has no closed form for these targets: leave engine='auto', the exact engine answers it"
            raise UnsupportedModelError(msg, self.scenario.name)
        self.used.add("exact engine")
        return self._exact(at, values, flat)

    def _form(self, at: Any, values: dict[str, Any], flat: dict[str, Array]) -> ClosedForm | None:
        """Return the closed form of one group, read from its first target's model."""
        first = 0 if isinstance(at, slice) else int(at[0])
        release = self._release(first, flat)
        # with the scenario's own prior: what this call gives instead must not be remembered for the next one
        adversary = with_values(self.scenario, values)
        own = tuple((k, _identity(v)) for k, v in adversary.assumptions.items())
        key = (own, tuple((m, noise_kind(release[m])) for m in self.measurements))
        with _ENGINE:
            # one entry of the declaration's own cache, so that the next part, or the next call, reads no model again
            forms = self.scenario.cache.setdefault("closed forms", [{}])[0]
            if any(identity is None for _, identity in own):  # nobody knows when such an object changes
                forms = {}
            if key not in forms:
                forms[key] = find_closed_form(adversary, release)
            form: ClosedForm | None = forms[key][0]
        return form

    def _release(self, i: int, flat: dict[str, Array]) -> Release:
        return Release(
            Measurement(
                m, _one(flat[m], i), _one(flat[f"{m}_sigma2"], i), groups=int(_one(flat[f"{m}_groups"], i))
            )
            for m in self.measurements
        )

    def _exact(self, at: Any, values: dict[str, Any], flat: dict[str, Array]) -> tuple[Array, Array]:
        from adversary.samplers.prepared import prepare

        more = [c for c in self.columns if "." in c or (c in self.wide and not self._of_release(c))]
        n = max(a.shape[0] for a in flat.values())
        rows = np.arange(n)[at]
        prior, odds = np.empty(rows.size), np.empty(rows.size)
        scenario = with_values(self.scenario, values)
        for k, i in enumerate(rows):
            mine = with_values(scenario, {c: _one(flat[c], i) for c in more}) if more else scenario
            release = self._release(int(i), flat)
            with _ENGINE:
                prepared = prepare(mine, release)
                answer = prepared.answer(mine, release, tolerance=self.tolerance)
                self.unused |= set(self.measurements) - {v.name for v in prepared.model.observed_RVs}
            if answer.log_odds is None or answer.prior_log_odds is None:
                msg = (
                    f"{self.scenario.target} of {self.scenario.name} is not a yes or no with a proper prior, and batch "
                    "reports odds: ask adversary.run for each release"
                )
                raise UnsupportedModelError(msg, self.scenario.target)
            prior[k], odds[k] = answer.prior_log_odds, answer.log_odds
        return prior, odds


def _identity(value: Any) -> Any:
    """Return what tells one assumption from another, hashable; None for an object that may change."""
    if isinstance(value, _PriorSpec):
        return (value, value.shape)
    if isinstance(value, np.ndarray | list):
        array = np.asarray(value)
        return None if array.dtype.kind == "O" else (array.shape, str(array.dtype), array.tobytes())
    if isinstance(value, tuple):
        parts = tuple(map(_identity, value))
        return None if None in parts else parts
    return (type(value).__name__, value) if isinstance(value, int | float | str | np.generic | None) else None


def _take(array: Array, at: Any) -> Array:
    return array if array.shape[0] == 1 else array[at]


def _one(array: Array, i: int) -> Any:
    row = array[i if array.shape[0] > 1 else 0]
    return row.item() if np.ndim(row) == 0 else row
