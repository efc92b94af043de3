"""The language of scenarios: ``@scenario`` and ``measured``.

The signature is the threat model. An argument whose default is a prior is unknown to the adversary; any other keyword is
something she knows; ``measured(...)`` is what she sees; ``target=`` is what she wants. Calling a scenario with a release
gives a plain ``pymc.Model`` and nothing else.

What it is not: a registry (see :mod:`adversary.discover`) or an engine (see :mod:`adversary.samplers`).

Decision: the module is not called ``scenario`` because the decorator is, and importing a submodule would overwrite the
name that ``from adversary import scenario`` promises.

Decision: a number that she knows enters the scenario as a plain number, never as a symbol, because ``if known == 0:`` on a
symbol is silently False. Only what cannot decide the shape of the model (published values, noise, parameters of priors)
may be held in shared variables, so that a second release or a grid of priors costs no compilation; a scenario that looks
at such a value itself (``release["block"].value``) is compiled anew when that value changes.

Held to account by ``tests/test_language.py``.
"""

from __future__ import annotations

import contextvars
import importlib
import importlib.util
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.declaring import (
    check_assumption,
    declared_arguments,
    full_precision,
    module_from_file,
    near_miss,
    require_double_precision,
    require_release,
)
from adversary.errors import ScenarioError
from adversary.priors import _PriorSpec, as_number, is_prior
from adversary.privacy.discrete_gaussian import sum_variation

if TYPE_CHECKING:
    from adversary.release.measurement import Measurement, Release

__all__ = ["APPROXIMATION_LIMIT", "Scenario", "measured", "noise_kind", "resolve", "scenario"]

APPROXIMATION_LIMIT = 1e-6
"""Largest total variation at which the noise of a sum is taken as one discrete Gaussian (Kazan & Reiter, eq. (3.7))."""

Hold = Callable[[str, Any], Any]


@dataclass
class _Building:
    """What one call of a scenario has seen so far."""

    release: Release
    hold: Hold | None
    reads: dict[tuple[str, str], Any] = field(default_factory=dict)


_BUILDING: contextvars.ContextVar[_Building | None] = contextvars.ContextVar(
    "adversary_building", default=None
)


class _SeenMeasurement:
    """A measurement as the scenario sees it: reading a value is remembered, because the model may then depend on it."""

    def __init__(self, measurement: Measurement, building: _Building) -> None:
        self._measurement = measurement
        self._building = building
        self.name = measurement.name
        self.size = measurement.size
        self.exact = measurement.exact

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._measurement, attribute)
        self._building.reads[(self.name, attribute)] = value
        return value


@dataclass(frozen=True)
class _NotMeasured:
    """Stands for a name that the release set aside; ``measured`` passes over it."""

    name: str


class _ReleaseView(Mapping[str, Any]):
    """The release as the scenario sees it."""

    def __init__(self, building: _Building) -> None:
        self._building = building

    def __getitem__(self, name: str) -> Any:
        release = self._building.release
        if name in release.not_measured:
            return _NotMeasured(name)
        return _SeenMeasurement(release[name], self._building)

    def __iter__(self) -> Iterator[str]:
        return iter(self._building.release)

    def __len__(self) -> int:
        return len(self._building.release)

    def __contains__(self, name: object) -> bool:
        return name in self._building.release


def measured(measurement: Any, true_value: Any) -> Any:
    """Declare that the adversary sees ``measurement``, a noisy version of ``true_value``.

    Parameters
    ----------
    measurement
        An entry of the release, ``release["block"]``. Its noise, convention and number of summed counts come with it.
    true_value
        What was counted before noise: an integer expression of the unknowns and the known numbers.

    Returns
    -------
    TensorVariable or None
        The observed variable; None where the release says "not measured".

    Raises
    ------
    ScenarioError
        Outside a scenario, for something that is not a measurement, for the same measurement twice, or for shapes that
        do not agree.
    """
    import pymc as pm

    building = _BUILDING.get()
    if building is None:
        msg = (
            "measured(...) belongs inside a function decorated with @scenario, which gives it the open model"
        )
        raise ScenarioError(msg, measurement)
    if isinstance(measurement, _NotMeasured):
        return None
    if not isinstance(measurement, _SeenMeasurement):
        msg = f'measured(...) takes an entry of the release first, as in measured(release["block"], count), got {measurement!r}'
        raise ScenarioError(msg, measurement)
    if measurement.name in pm.modelcontext(None).named_vars:
        msg = (
            f"the model already has a variable called {measurement.name!r}: a measurement is declared once, and no unknown "
            f"may have its name"
        )
        raise ScenarioError(msg, measurement.name)
    return _observe(measurement._measurement, true_value, building)


def _as_data(_: str, value: Any) -> Any:
    """Hand a published value to PyMC as float64, which holds every count to 2^53.

    PyMC casts observed integers to int32 (2^31 + 5 becomes -2147483643, silently); floats it keeps, and casts them to the
    int64 of the distribution.
    """
    return value.astype(np.float64)


def noise_kind(m: Measurement) -> str:
    """Say how the noise of a measurement ``m`` is declared.

    Returns
    -------
    {"exact", "one", "pooled", "sum"}
        No noise; one discrete Gaussian; a sum of several taken as one discrete Gaussian of groups x sigma2 (eq. (3.7)); a sum
        of several by exact convolution, where the former would be off by more than :data:`APPROXIMATION_LIMIT`.
    """
    if m.exact:
        return "exact"
    if m.groups == 1:
        return "one"
    off = sum_variation(float(np.min(m.sigma2)), m.groups)
    return "sum" if off > APPROXIMATION_LIMIT else "pooled"


def _observe(m: Measurement, true_value: Any, building: _Building) -> Any:
    import pymc as pm
    import pytensor.tensor as pt

    from adversary.distributions import DiscreteGaussian, DiscreteGaussianSum

    hold = building.hold or _as_data
    mu = pt.as_tensor_variable(as_number(true_value))
    if mu.dtype.startswith("float"):
        msg = f"the true value of {m.name!r} is not a whole number ({mu.dtype}): counts are sums of integer unknowns"
        raise ScenarioError(msg, m.name)
    mu = pt.cast(mu, "int64")
    if mu.ndim != np.ndim(m.value):
        msg = (
            f"{m.name!r} holds {'a list of values' if np.ndim(m.value) else 'one value'}, and its true value is "
            f"{'a vector' if mu.ndim else 'one number'}: sum the vector, or measure one entry each"
        )
        raise ScenarioError(msg, m.name)
    static = mu.type.shape[0] if mu.ndim else None
    if static is not None and static not in (m.size, 1):
        msg = f"{m.name!r} holds {m.size} values and its true value has {static}: the two must have one order and one length"
        raise ScenarioError(msg, m.name)
    value = hold(f"{m.name}:value", np.asarray(m.value, dtype=np.int64))
    if m.exact:
        return pm.DiscreteUniform(m.name, lower=mu, upper=mu, observed=value)
    if noise_kind(m) == "sum":
        if np.ndim(m.sigma2):
            msg = (
                f"{m.name!r} is a list of sums with little noise: give each sum a measurement of its own, so that its noise "
                "is exact"
            )
            raise ScenarioError(msg, m.name)
        building.reads[(m.name, "sigma2")], building.reads[(m.name, "groups")] = m.sigma2, m.groups
        return DiscreteGaussianSum(m.name, mu, sigma2=m.sigma2, groups=m.groups, observed=value)
    sigma2 = hold(f"{m.name}:sigma2", np.asarray(m.noise_sigma2, dtype=np.float64))
    return DiscreteGaussian(m.name, mu, sigma2=sigma2, observed=value)


class Scenario:
    """A declared adversary; made by :func:`scenario`, changed only into other ones by :meth:`assuming`.

    Attributes
    ----------
    name, target, source : str
        Its name, what she wants to know, and where it comes from.
    assumptions : mapping
        Argument -> prior (what she does not know) or value (what she knows).
    cache : dict
        Compiled forms, shared by all variants of one declaration; dropping it loses nothing but time.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *,
        target: str,
        source: str = "",
        coords: Callable[..., Mapping[str, Any]] | None = None,
        gibbs: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.target = target
        self.source = source
        self.coords = coords
        self.gibbs = gibbs
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__, self.__wrapped__ = function.__module__, function.__doc__, function
        self.origin = f"{function.__module__}:{function.__qualname__}"
        self.defaults = MappingProxyType(declared_arguments(function))
        self.assumptions: Mapping[str, Any] = self.defaults
        self.cache: dict[Any, Any] = {}

    def __call__(self, release: Release) -> Any:
        """Return the adversary's model of this release: a plain ``pymc.Model``."""
        return self.build(release)[0]

    def build(self, release: Release, hold: Hold | None = None) -> tuple[Any, Mapping[tuple[str, str], Any]]:
        """Return the model, and which values of the release the scenario looked at itself.

        Parameters
        ----------
        release
            What is published.
        hold
            Called with a label and a value wherever a number cannot decide the model's shape (published values, noise,
            parameters of priors); returns what stands in its place.

        Raises
        ------
        ScenarioError
            For a target that the model lacks, a measurement that the release lacks, an argument without value.
        """
        import pymc as pm
        import pytensor.tensor as pt

        require_release(self.name, release)
        require_double_precision(release)
        missing = [k for k, v in self.assumptions.items() if v is inspect.Parameter.empty]
        if missing:
            msg = f"{self.name} needs a value for {', '.join(missing)}: write {self.name}.assuming({missing[0]}=...)"
            raise ScenarioError(msg, missing)
        building = _Building(release, hold)
        view = _ReleaseView(building)
        token = _BUILDING.set(building)
        try:
            with full_precision(), pm.Model(coords=self._coords(view)) as model:
                arguments = {k: self._argument(k, v, hold) for k, v in self.assumptions.items()}
                self.function(view, **arguments)
                if self.target in arguments and self.target not in model.named_vars:
                    pm.Deterministic(self.target, pt.as_tensor_variable(arguments[self.target]))
        finally:
            _BUILDING.reset(token)
        if self.target not in model.named_vars:
            there = (
                ", ".join(v.name for v in [*model.free_RVs, *model.deterministics]) or "no unknowns at all"
            )
            msg = (
                f"{self.name} names the target {self.target!r}, and its model has {there}: name one "
                f"of these, or add pm.Deterministic({self.target!r}, ...)"
            )
            raise ScenarioError(msg, self.target)
        if not model.observed_RVs and not release.not_measured:
            msg = f'{self.name} sees nothing: declare what is published with measured(release["..."], true_value)'
            raise ScenarioError(msg, self.name)
        return model, MappingProxyType(building.reads)

    def _argument(self, name: str, value: Any, hold: Hold | None) -> Any:
        if isinstance(value, _PriorSpec):
            return value.create_variable(name, hold)
        return value.create_variable(name) if is_prior(value) else as_number(value)

    def _coords(self, view: _ReleaseView) -> Mapping[str, Any]:
        if self.coords is None:
            return {}
        wanted = inspect.signature(self.coords).parameters
        known = {k: as_number(v) for k, v in self.assumptions.items() if k in wanted}
        return self.coords(view, **known)

    def assuming(self, **changes: Any) -> Scenario:
        """Return another scenario in which some assumptions are others.

        Parameters
        ----------
        **changes
            Argument -> value or prior. A number in the place of a prior conditions on it; a prior in the place of a number
            makes it unknown.

        Raises
        ------
        ScenarioError
            For a name that is not an argument; the message lists those there are.
        """
        for k, v in changes.items():
            check_assumption(self.name, k, v, self.assumptions)
        other = object.__new__(Scenario)
        other.__dict__.update(self.__dict__)
        old = self.assumptions
        new = {k: v.with_dims_of(old[k]) if isinstance(v, _PriorSpec) else v for k, v in changes.items()}
        other.assumptions = MappingProxyType({**old, **new})
        return other

    def over(self, **grids: Any) -> list[Scenario]:
        """Return one scenario for each point of the product of the grids, last name fastest.

        Parameters
        ----------
        **grids
            Argument -> sequence of values or priors.

        Returns
        -------
        list of Scenario
            One scenario a point.
        """
        for name, grid in grids.items():
            if isinstance(grid, str) or not hasattr(grid, "__len__"):
                msg = f"the grid of {name} must be a list of values or priors, got {grid!r}"
                raise ScenarioError(msg, grid)
        return [
            self.assuming(**dict(zip(grids, point, strict=True)))
            for point in itertools.product(*grids.values())
        ]

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """What she does not know: argument -> prior."""
        return {k: v for k, v in self.assumptions.items() if is_prior(v)}

    @property
    def known(self) -> Mapping[str, Any]:
        """What she knows: argument -> value."""
        return {k: v for k, v in self.assumptions.items() if not is_prior(v)}

    @property
    def question(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    @property
    def __signature__(self) -> inspect.Signature:
        """The threat model, with the assumptions of this variant as defaults."""
        old = inspect.signature(self.function)
        return old.replace(
            parameters=[
                p.replace(default=self.assumptions[n]) if n in self.assumptions else p
                for n, p in old.parameters.items()
            ]
        )

    def __repr__(self) -> str:
        changed = [f"{k}={v!r}" for k, v in self.assumptions.items() if v is not self.defaults[k]]
        return f"<Scenario {self.name}{'' if not changed else '.assuming(' + ', '.join(changed) + ')'}>"

    def __reduce__(self) -> Any:
        changed = {k: v for k, v in self.assumptions.items() if v is not self.defaults[k]}
        if self.__module__ == "__main__":
            import cloudpickle

            fixed = {k: getattr(self, k) for k in ("target", "source", "coords", "gibbs")}
            return _rebuild, (cloudpickle.dumps((self.function, fixed)), changed)
        return _restore, (self.origin, changed)


def _rebuild(declaration: bytes, changed: dict[str, Any]) -> Scenario:
    """Unpickle a scenario that was declared in a notebook cell or a script."""
    import cloudpickle

    function, fixed = cloudpickle.loads(declaration)
    return Scenario(function, **fixed).assuming(**changed)


def _restore(origin: str, changed: dict[str, Any]) -> Scenario:
    return resolve(origin).assuming(**changed)


def resolve(origin: str) -> Scenario:
    """Return the scenario at an ``origin`` of the form ``module:name`` or ``file.py::name``.

    A scenario file is code: it is executed.

    Raises
    ------
    ScenarioError
        When there is no such module, file or scenario; the message lists what is there.
    """
    if "::" in origin:
        path_text, name = origin.rsplit("::", 1)
        module = module_from_file(Path(path_text))
    else:
        module_name, name = origin.split(":", 1)
        module = importlib.import_module(module_name)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Scenario):
        there = [k for k, v in vars(module).items() if isinstance(v, Scenario)]
        msg = (
            f"{origin!r} is not a scenario{near_miss(name, there)}: {module.__name__} has "
            f"{', '.join(there) or 'none (decorate a function with @scenario)'}"
        )
        raise ScenarioError(msg, origin)
    if "::" in origin:
        found.origin = f"{Path(path_text).resolve()}::{name}"
    return found


def scenario(
    *,
    target: str,
    source: str = "",
    coords: Callable[..., Mapping[str, Any]] | None = None,
    gibbs: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., None]], Scenario]:
    """Declare an adversary: decorate a function of a release and of what she knows and believes.

    Parameters
    ----------
    target
        Name of the variable that she wants to know (an argument with a prior, or a ``pm.Deterministic`` of the model).
    source
        Where the attack comes from: paper and equation.
    coords
        Function of the release (and of any known arguments, by name) that returns labels of the dims used by priors.
    gibbs
        Function of the release and of all assumptions that returns the problem for the hand-written reference sampler.

    Returns
    -------
    callable
        Turns the function into a :class:`Scenario`.

    Raises
    ------
    ScenarioError
        For a function without ``release``, with ``*args``, or with an argument that it never uses.

    Examples
    --------
    >>> from adversary import Prior
    >>> @scenario(target="present", source="Kazan & Reiter, eq. (3.1)")
    ... def single_level(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
    ...     "Is the target among the block's people?"
    ...     measured(release["block"], known + present)
    """
    if callable(target):
        msg = 'say what she wants to know: @scenario(target="present")'
        raise ScenarioError(msg, target)

    def declare(function: Callable[..., None]) -> Scenario:
        return Scenario(function, target=target, source=source, coords=coords, gibbs=gibbs)

    return declare
