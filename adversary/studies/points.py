"""What differs between the points of a study: labels, dimensions, and an identity that can be written down.

What it is: the reading of a list of scenarios. What it is not: it answers nothing.

A prior that differs in one number becomes a numeric coordinate called ``argument.parameter``; anything else that differs
becomes a text coordinate called ``argument``. Where the points are a full product each coordinate is a dimension of its
own; otherwise there is one dimension, ``point``. There is never a MultiIndex, which netCDF cannot hold.

Held to account by ``tests/test_studies.py``.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ScenarioError
from adversary.priors import as_number, is_plain_prior

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from adversary.language import Scenario

__all__ = ["Axis", "Layout", "Memo", "declaration", "fingerprint", "identity", "layout"]

_ABSENT = object()
RESERVED = ("prior", "posterior", "risk", "log_odds", "cut_off_bound", "target", "point")


def fingerprint(value: Any) -> str:
    """Return a text that says everything about an assumption, the same in every process.

    Parameters
    ----------
    value
        An assumption.

    Examples
    --------
    >>> fingerprint(3) == fingerprint(np.int64(3))
    True
    """
    if is_plain_prior(value):
        inner = ",".join(f"{k}={fingerprint(v)}" for k, v in sorted(value.parameters.items()))
        return f"{value.distribution}({inner};{value.dims};{value.shape})"
    number = as_number(value)
    if isinstance(number, np.generic):
        return f"{number.dtype}:{number.item()!r}"
    if isinstance(number, np.ndarray) and number.dtype != object:
        digest = hashlib.sha256(np.ascontiguousarray(number).tobytes()).hexdigest()
        return f"{number.dtype}{number.shape}:{digest}"
    if isinstance(value, str | bool | type(None)):
        return repr(value)
    if isinstance(value, tuple):
        return f"({','.join(fingerprint(v) for v in value)})"
    try:  # an own prior object: what it is made of, not where it lives
        return f"{type(value).__qualname__}:{hashlib.sha256(pickle.dumps(value, protocol=4)).hexdigest()}"
    except Exception as error:
        msg = f"{value!r} cannot be written down ({error}): declare it in a module, as a class with plain attributes"
        raise ScenarioError(msg, value) from error


class Memo:
    """Fingerprints, each computed once; equal priors share one."""

    def __init__(self) -> None:
        self._texts: dict[Hashable, tuple[str, Any]] = {}

    def __call__(self, value: Any) -> str:
        """Return the fingerprint of a value."""
        # what has no text of its own identity is known by its place in memory, and kept there
        key: Hashable = (value._identity, value.dims) if is_plain_prior(value) else id(value)
        found = self._texts.get(key)
        if found is None:
            found = self._texts[key] = ("absent" if value is _ABSENT else fingerprint(value), value)
        return found[0]


def declaration(scenario: Scenario) -> str:
    """Return a digest of the declared function, so that a study of an edited scenario is another study."""
    try:
        body = inspect.getsource(scenario.function)
    except (OSError, TypeError):
        code = scenario.function.__code__
        body = f"{code.co_code!r}{code.co_consts!r}{code.co_names!r}"
    return hashlib.sha256(f"{scenario.name}\n{scenario.target}\n{body}".encode()).hexdigest()


@dataclass(frozen=True)
class Axis:
    """One thing that differs: ``name``, ``labels`` of the points, ``codes`` of the ``size`` distinct ones at each point."""

    name: str
    labels: np.ndarray
    codes: np.ndarray
    size: int

    @property
    def distinct(self) -> np.ndarray:
        """Labels in order of first appearance, shape (size,)."""
        first = np.unique(self.codes, return_index=True)[1]
        return self.labels[first]


@dataclass(frozen=True)
class Layout:
    """The ``axes`` of a study, whether they are a full ``product`` of some ``shape``, and the ``places`` of the points in it."""

    axes: tuple[Axis, ...]
    product: bool
    places: np.ndarray
    shape: tuple[int, ...]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return tuple(a.name for a in self.axes) if self.product else ("point",)

    def coords(self) -> dict[str, Any]:
        """Coordinates for xarray."""
        if self.product:
            return {a.name: (a.name, a.distinct) for a in self.axes}
        return {a.name: ("point", a.labels) for a in self.axes}


def layout(scenarios: Sequence[Scenario]) -> Layout:
    """Read what differs between the points, and whether the points are a full product.

    Parameters
    ----------
    scenarios
        One for each point.

    Returns
    -------
    Layout
        Dimensions, coordinates and the place of every point.
    """
    memo = Memo()
    columns: dict[str, list[Any]] = {}
    if len({declaration(s) for s in {id(s.function): s for s in scenarios}.values()}) > 1:
        columns["scenario"] = [s.name for s in scenarios]
    for name in dict.fromkeys(k for s in scenarios for k in s.assumptions):
        columns |= _differing(name, [s.assumptions.get(name, _ABSENT) for s in scenarios], memo)
    axes = tuple(_axis(_free(name), values, memo) for name, values in columns.items())
    n, shape = len(scenarios), tuple(a.size for a in axes)
    if axes and int(np.prod(shape)) == n:
        places = np.ravel_multi_index([a.codes for a in axes], shape)
        if len(np.unique(places)) == n:
            return Layout(axes, True, places, shape)
    return Layout(axes, False, np.arange(n), (n,))


def _free(name: str) -> str:
    return f"assumption.{name}" if name in RESERVED else name


def _differing(name: str, values: list[Any], memo: Memo) -> dict[str, list[Any]]:
    """Return the columns in which an argument differs: none, one for each number, or one of texts."""
    distinct = {memo(v): v for v in values}
    if len(distinct) == 1:
        return {}
    kinds = {
        (v.distribution, tuple(sorted(v.parameters)), v.dims, v.shape) if is_plain_prior(v) else None
        for v in distinct.values()
    }
    if len(kinds) == 1 and None not in kinds:
        first = next(iter(distinct.values()))
        moving = [
            p for p in first.parameters if len({fingerprint(v.parameters[p]) for v in distinct.values()}) > 1
        ]
        if all(_is_number(v.parameters[p]) for v in distinct.values() for p in moving):
            return {f"{name}.{p}": [v.parameters[p] for v in values] for p in moving}
    return {name: values}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _axis(name: str, values: list[Any], memo: Memo) -> Axis:
    """Label one column; equal texts of different things are told apart by a number."""
    distinct: dict[str, int] = {}
    codes = np.array([distinct.setdefault(memo(v), len(distinct)) for v in values])
    first = dict(zip(codes[::-1].tolist(), values[::-1], strict=True))
    if all(_is_number(v) for v in first.values()):
        labels = np.array([as_number(first[k]) for k in range(len(distinct))])
    else:
        texts = [
            "not an assumption" if first[k] is _ABSENT else _text(first[k]) for k in range(len(distinct))
        ]
        seen: dict[str, int] = {}
        for k, text in enumerate(texts):
            seen[text] = seen.get(text, 0) + 1
            texts[k] = text if seen[text] == 1 else f"{text} #{seen[text]}"
        labels = np.array(texts, dtype=object)
    return Axis(name, labels[codes], codes, len(distinct))


def _text(value: Any) -> str:
    """Write an assumption as ``--assume`` reads it: ``Poisson(mu=1.0)``."""
    if is_plain_prior(value):
        inside = (
            repr(value).removeprefix(f"Prior({value.distribution!r}").removesuffix(")").removeprefix(", ")
        )
        return f"{value.distribution}({inside})"
    return value if isinstance(value, str) else repr(value)


def identity(scenarios: Sequence[Scenario], keys: Mapping[str, str]) -> str:
    """Return the SHA-256 of a study: every assumption of every point, and ``keys`` (release, version, ...).

    Parameters
    ----------
    scenarios
        The points.
    keys
        What else decides whether a folder belongs to the study.
    """
    digest = hashlib.sha256("\n".join(f"{k}={v}" for k, v in sorted(keys.items())).encode())
    memo = Memo()
    bodies: dict[int, str] = {}
    for s in scenarios:
        if id(s.function) not in bodies:
            bodies[id(s.function)] = declaration(s)
        parts = [bodies[id(s.function)], *(f"{k}={memo(v)}" for k, v in s.assumptions.items())]
        digest.update("\x1f".join(parts).encode())
    return digest.hexdigest()
