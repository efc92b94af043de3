"""One scenario made ready for the exact engine: built and compiled once, then fed with releases and priors.

What it is: the cache that makes a second release, or a grid of priors, cost no compilation. What it is not: an engine.
A prepared scenario serves every release of the same structure (names, shapes, which counts are exact, how noise of sums is
declared) and every prior of the same family; a scenario that reads a value itself is prepared anew when that value changes.

Held to account by ``tests/test_attack.py``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.language import Scenario, noise_kind
from adversary.priors import _PriorSpec, as_number, is_prior
from adversary.samplers.exact import compile_exact
from adversary.samplers.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from adversary.release.measurement import Release

__all__ = ["Prepared", "prepare"]

_KEPT = 64  # compiled forms kept for one declaration; a study over shapes would otherwise hold them all


@dataclass(frozen=True)
class Prepared:
    """A compiled exact ``model``, its ``engine``, the shared ``inputs`` that feed it, what each ``reads`` of a release."""

    engine: Any
    model: Any
    inputs: Mapping[str, Any]
    reads: Mapping[tuple[str, str], Any]

    def answer(self, scenario: Scenario, release: Release, *, tolerance: float = 1e-12) -> Any:
        """Return the exact answer for this scenario and release, which must have the structure prepared for.

        Parameters
        ----------
        scenario
            The scenario that was prepared, with any assumptions that only change numbers.
        release
            What she sees.
        tolerance
            Bound asked for on what is cut off.
        """
        for label, value in _held_values(scenario, release):
            shared = self.inputs.get(label)
            if shared is not None:
                shared.set_value(value, borrow=False)
        return self.engine.solve(tolerance=tolerance)


def prepare(scenario: Scenario, release: Release) -> Prepared:
    """Return the compiled form of a scenario for releases like this one, from the cache where there is one.

    Parameters
    ----------
    scenario
        What is to be answered.
    release
        A release of the kind that will be seen.
    """
    key = _structure(scenario, release)
    kept = scenario.cache.setdefault(key, [])
    for prepared in kept:
        if all(_same(getattr(release[name], attr), value) for (name, attr), value in prepared.reads.items()):
            return prepared  # type: ignore[no-any-return]
    inputs = Inputs()
    _check_priors(scenario)
    model, reads = scenario.build(release, inputs.hold)
    prepared = Prepared(compile_exact(model, scenario.target, tuple(inputs.values())), model, inputs, reads)
    kept.append(prepared)
    while sum(map(len, scenario.cache.values())) > _KEPT:
        oldest = next(iter(scenario.cache))
        if len(scenario.cache[oldest]) <= 1:
            del scenario.cache[oldest]
        else:
            scenario.cache[oldest].pop(0)
    return prepared


def _check_priors(scenario: Scenario) -> None:
    """Refuse certainties where a probability is wanted, which PyMC takes silently, and negative means of counts."""
    for label, value in _prior_values(scenario):
        if label.endswith(".p") and np.issubdtype(np.asarray(value).dtype, np.number):
            p = np.asarray(value, dtype=float)
            if p.ndim == 0 and not 0 < p < 1:
                name = label.split(".")[0]
                way_out = f"to take it as a fact, give the value itself, as in assuming({name}={int(p >= 1)})"
                if not 0 <= p <= 1:
                    way_out = "it is no probability"
                elif name == scenario.target:
                    way_out = "a certainty leaves nothing to learn about the target"
                msg = f"the probability of {name} must lie strictly between 0 and 1, got {p}: {way_out}"
                raise ModelError(msg, value)
    _check_means(scenario)


def _check_means(scenario: Scenario) -> None:
    """Refuse negative means of counts here: as a prior without support they would be blamed on the data."""
    for name, prior in scenario.assumptions.items():
        if isinstance(prior, _PriorSpec) and prior.distribution in {"Poisson", "NegativeBinomial"}:
            for key in ("mu", "alpha", "n"):
                value = prior.parameters.get(key)
                if isinstance(value, int | float | np.ndarray | list) and (np.asarray(value) < 0).any():
                    msg = f"{key} of the prior {prior!r} on {name} must not be negative, got {value}"
                    raise ModelError(msg, value)


def _structure(scenario: Scenario, release: Release) -> tuple[Any, ...]:
    assumptions = tuple(
        (k, v.structure if isinstance(v, _PriorSpec) else _foreign(v) if is_prior(v) else _frozen(v))
        for k, v in scenario.assumptions.items()
    )
    published = tuple(
        (m.name, np.shape(m.value), np.shape(m.sigma2), noise_kind(m)) for m in release.values()
    )
    return (assumptions, published, release.not_measured)


def _foreign(prior: Any) -> Any:
    """Return what identifies a prior of another make: its value where it cannot change, nothing that repeats otherwise."""
    fixed = dataclasses.is_dataclass(prior) and getattr(prior, "__dataclass_params__").frozen  # noqa: B009
    return (type(prior), prior) if fixed else object()


def _frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray | list):
        array = np.asarray(value)
        return (array.shape, str(array.dtype), array.tobytes()) if array.dtype.kind in "iufbU" else object()
    try:
        hash(value)
    except TypeError:
        return object()  # nothing identifies it faithfully: compile anew
    return (type(value), repr(value), value)


def _same(a: Any, b: Any) -> bool:
    return (
        bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else bool(a == b)
    )


def _held_values(scenario: Scenario, release: Release) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the labels that ``Scenario.build`` hands to ``hold``, with the values of this release and these priors."""
    for m in release.values():
        yield f"{m.name}:value", np.asarray(m.value, dtype=np.int64)
        yield f"{m.name}:sigma2", np.asarray(m.noise_sigma2, dtype=np.float64)
    _check_priors(scenario)
    yield from _prior_values(scenario)


def _prior_values(scenario: Scenario) -> Iterator[tuple[str, np.ndarray]]:
    for name, prior in scenario.assumptions.items():
        if isinstance(prior, _PriorSpec):
            yield from _parameters(name, prior)


def _parameters(name: str, prior: _PriorSpec) -> Iterator[tuple[str, np.ndarray]]:
    for key, value in prior.parameters.items():
        if isinstance(value, _PriorSpec):
            yield from _parameters(f"{name}_{key}", value)
        else:
            number = as_number(value)
            if isinstance(number, np.ndarray | np.generic):
                yield f"{name}.{key}", np.asarray(number)
