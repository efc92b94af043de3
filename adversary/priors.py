"""What the adversary does not know, stated before she looks: ``Prior``.

A ``Prior`` names a PyMC distribution and its parameters and waits; nothing is built until a scenario is called, so a
scenario file can be read without importing PyMC. Anything with a method ``create_variable(name)`` (for example the
``Prior`` of pymc-extras) may stand in its place.

Held to account by ``tests/test_priors.py``.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from adversary.errors import AdversaryError, ScenarioError

__all__ = ["CreatesVariable", "Prior", "as_number", "is_prior"]

Hold = Callable[[str, Any], Any]
_SHAPE_WORDS = ("dims", "shape")
_OURS = ("DiscreteGaussian", "DiscreteGaussianSum", "FlatCount")


@runtime_checkable
class CreatesVariable(Protocol):
    """What may stand as a prior: one method that registers a named variable in the open PyMC model."""

    def create_variable(self, name: str) -> Any:
        """Register the variable under ``name`` and return it."""


def as_number(value: Any) -> Any:
    """Give a Python number or array its full width: int64 or float64.

    PyTensor types ``12`` as int8 and ``50.0`` as float32; log-probabilities follow. Strings, tuples of names and other
    objects pass unchanged.

    Parameters
    ----------
    value
        A number of any kind, or anything else.
    """
    if isinstance(value, bool | np.bool_):
        return np.int64(value)
    if isinstance(value, int | np.integer):
        return np.int64(value)
    if isinstance(value, float | np.floating):
        return np.float64(value)
    if isinstance(value, list | np.ndarray) or (
        isinstance(value, tuple) and value and not isinstance(value[0], str)
    ):
        array = np.asarray(value)
        if array.dtype.kind in "iub":
            return array.astype(np.int64)
        if array.dtype.kind == "f":
            return array.astype(np.float64)
    return value


@dataclass(frozen=True, eq=False)
class _PriorSpec:
    """A PyMC distribution with its parameters, not yet built; see :func:`Prior`."""

    distribution: str
    parameters: Mapping[str, Any]
    dims: tuple[str, ...] | None = None
    shape: tuple[int, ...] | None = None
    _identity: tuple[Any, ...] = field(default=(), repr=False)

    def create_variable(self, name: str, hold: Hold | None = None) -> Any:
        """Register the variable in the open model.

        Parameters
        ----------
        name
            The variable's name.
        hold
            Called with (parameter name, value); returns what is handed to PyMC. The exact engine passes a shared variable
            here so that a grid of parameters needs one compilation.
        """
        parameters = {}
        for key, value in self.parameters.items():
            if isinstance(value, _PriorSpec):
                parameters[key] = value.create_variable(f"{name}_{key}", hold)
            elif callable(getattr(value, "create_variable", None)):
                parameters[key] = value.create_variable(f"{name}_{key}")
            else:
                parameters[key] = hold(f"{name}.{key}", value) if hold else as_number(value)
        shape = {k: v for k in _SHAPE_WORDS if (v := getattr(self, k)) is not None}
        family = _distribution_class(self.distribution)
        try:
            return family(name, **parameters, **shape)
        except AdversaryError:
            raise
        except (TypeError, ValueError) as error:
            there = [k for k in inspect.signature(family.dist).parameters if k not in {"args", "kwargs"}]
            msg = (
                f"the prior {self!r} of {name} is none: {error}; {self.distribution} takes {', '.join(there)}"
            )
            raise ScenarioError(msg, self) from error

    def with_dims_of(self, other: Any) -> _PriorSpec:
        """Return this prior over the dims (or shape) of another one, unless it has its own."""
        if self.dims is not None or self.shape is not None or not isinstance(other, _PriorSpec):
            return self
        return _PriorSpec(self.distribution, self.parameters, other.dims, other.shape, self._identity)

    @property
    def structure(self) -> tuple[Any, ...]:
        """What decides the compiled graph: distribution, names and shapes of parameters, dims."""
        inner = tuple(
            (
                k,
                v.structure
                if isinstance(v, _PriorSpec)
                else object()
                if is_prior(v)
                else (np.shape(v), np.asarray(v).dtype.kind),
            )
            for k, v in sorted(self.parameters.items())
        )
        return (self.distribution, inner, self.dims, self.shape)

    def __reduce__(self) -> Any:
        return _respecify, (self.distribution, dict(self.parameters), self.dims, self.shape, self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PriorSpec) and self._identity == other._identity and self.dims == other.dims

    def __hash__(self) -> int:
        return hash((self._identity, self.dims, self.shape))

    def __repr__(self) -> str:
        parts = [repr(self.distribution)]
        parts += [f"{k}={_short(v)}" for k, v in self.parameters.items()]
        if self.dims is not None:
            parts.append(f"dims={self.dims[0] if len(self.dims) == 1 else self.dims!r}")
        if self.shape is not None:
            parts.append(f"shape={self.shape!r}")
        return f"Prior({', '.join(parts)})"


def _shape_of(value: Any) -> Any:
    """Return shape and kind of a parameter; of a prior of another make nothing that repeats, because it may change."""
    return object() if is_prior(value) else (np.shape(value), np.asarray(value).dtype.kind)


def _respecify(distribution: str, parameters: dict[str, Any], *rest: Any) -> _PriorSpec:
    """Unpickle a prior."""
    return _PriorSpec(distribution, MappingProxyType(parameters), *rest)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.size} values>" if value.size > 6 else repr(value.tolist())
    if isinstance(value, np.generic):
        return repr(value.item())
    return repr(value)


def _freeze(value: Any) -> Any:
    """Make a hashable identity of a parameter value."""
    if isinstance(value, _PriorSpec):
        return value._identity
    if isinstance(value, np.ndarray | list | tuple):
        array = np.asarray(value)
        return (array.shape, str(array.dtype), array.tobytes() if array.dtype.kind in "iufb" else repr(value))
    return value if value.__hash__ else repr(value)


def Prior(distribution: str, /, *, dims: Any = None, shape: Any = None, **parameters: Any) -> Any:
    """State a prior: the name of a PyMC distribution and its parameters.

    Parameters
    ----------
    distribution
        Name of any PyMC distribution (``"Bernoulli"``, ``"Poisson"``, ...) or ``"FlatCount"``, the improper uniform prior
        on {lower, lower + 1, ...} (lower 0 by default).
    dims, shape
        Where the unknown is a vector: names of dimensions (their labels come from the scenario's ``coords``), or sizes.
    **parameters
        Parameters as PyMC names them; a parameter may itself be a ``Prior`` (a hyperprior).

    Returns
    -------
    Any
        A prior, typed ``Any`` as ``dataclasses.field`` is, so that it can be the default of an argument of any type.

    Raises
    ------
    ScenarioError
        For a name that is not a string, or a parameter that is a callable.

    Examples
    --------
    >>> Prior("Bernoulli", p=0.5)
    Prior('Bernoulli', p=0.5)
    >>> Prior("Poisson", mu=3.0, dims="sibling")
    Prior('Poisson', mu=3.0, dims='sibling')
    """
    if callable(distribution):
        msg = (
            "a prior is the name of a PyMC distribution with its parameters, not a function, so that it can be printed, "
            'compared and sent to other processes: write Prior("Poisson", mu=3) instead of a lambda'
        )
        raise ScenarioError(msg, distribution)
    if not isinstance(distribution, str) or not distribution:
        msg = f'a prior begins with the name of a PyMC distribution, got {distribution!r}: write Prior("Bernoulli", p=0.5)'
        raise ScenarioError(msg, distribution)
    for key, value in parameters.items():
        if callable(value) and not callable(getattr(value, "create_variable", None)):
            msg = (
                f"parameter {key} of Prior({distribution!r}) is a function, and only numbers, arrays and priors can be: "
                f"give its value, or declare the dependence inside the scenario"
            )
            raise ScenarioError(msg, value)
        if isinstance(value, str):
            msg = f"parameter {key} of Prior({distribution!r}) is the text {value!r}: give a number, an array or a prior"
            raise ScenarioError(msg, value)
    dims = (dims,) if isinstance(dims, str) else None if dims is None else tuple(dims)
    shape = (
        (int(shape),)
        if isinstance(shape, int | np.integer)
        else None
        if shape is None
        else tuple(map(int, shape))
    )
    values = {k: _parameter(distribution, k, v) for k, v in parameters.items()}
    identity = (distribution, tuple(sorted((k, _freeze(v)) for k, v in values.items())), shape)
    return _PriorSpec(distribution, MappingProxyType(values), dims, shape, identity)


def _parameter(distribution: str, key: str, value: Any) -> Any:
    """Return a parameter as a number or an array; exact fractions become floats, text in lists is refused."""
    if isinstance(value, Fraction | Decimal):
        return float(value)
    if not isinstance(value, list | tuple):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "iufb":
        msg = f"parameter {key} of Prior({distribution!r}) must hold numbers, got {value!r}: give a number, an array or a prior"
        raise ScenarioError(msg, value)
    return array


def is_prior(value: Any) -> bool:
    """Whether a value can stand as a prior."""
    return callable(getattr(value, "create_variable", None))


def is_plain_prior(value: Any) -> bool:
    """Whether a prior is one of ours, whose parameters the engines can see."""
    return isinstance(value, _PriorSpec)


def _distribution_class(name: str) -> Any:
    """Look up a distribution by name: ours first, then PyMC's."""
    import pymc as pm

    from adversary import distributions

    if name in _OURS:
        return getattr(distributions, name)
    cls = getattr(pm, name, None)
    if not (isinstance(cls, type) and hasattr(cls, "dist")):
        known = [n for n in dir(pm.distributions) if isinstance(getattr(pm.distributions, n), type)] + list(
            _OURS
        )
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see the distributions of PyMC, or FlatCount"
        msg = f"there is no distribution called {name!r}: {hint}"
        raise ScenarioError(msg, name)
    return cls
