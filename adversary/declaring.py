"""What a declaration must satisfy before it becomes a scenario: its function, its file, and the precision of its numbers.

What it is not: the language itself (see :mod:`adversary.language`). Held to account by ``tests/test_language.py``.
"""

from __future__ import annotations

import contextlib
import difflib
import dis
import hashlib
import importlib.util
import inspect
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, ScenarioError, shown
from adversary.priors import is_prior
from adversary.release.measurement import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


__all__ = [
    "check_assumption",
    "declared_arguments",
    "full_precision",
    "module_from_file",
    "near_miss",
    "require_double_precision",
    "require_release",
]


def module_from_file(path: Path) -> Any:
    """Execute a Python file once and return it as a module; a scenario file is code.

    Parameters
    ----------
    path
        A Python file, which is executed.
    """
    path = path.resolve()
    if not path.is_file():
        msg = f"there is no file {str(path)!r}: write the path of a Python file, two colons and the scenario's name"
        raise ScenarioError(msg, path)
    name = f"adversary_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{str(path)!r} cannot be read as a Python file: its name must end in .py"
        raise ScenarioError(msg, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def declared_arguments(function: Callable[..., None]) -> dict[str, Any]:
    """Return argument -> default of a scenario function, or refuse it."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "release":
        msg = f"the first argument of {function.__name__} must be release, what the adversary sees"
        raise ScenarioError(msg, function)
    variadic = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if variadic:
        msg = f"{function.__name__} takes *{variadic[0]}: name every assumption, so that the signature is the threat model"
        raise ScenarioError(msg, function)
    loaded: set[str] = set()
    for step in dis.get_instructions(function):
        if step.opname.startswith("LOAD"):
            loaded.update(step.argval if isinstance(step.argval, tuple) else [step.argval])
    unused = [p.name for p in parameters if p.name not in loaded]
    if unused:
        what = "what is released" if unused[0] == "release" else "an assumption that changes nothing"
        msg = f"{function.__name__} never uses its argument {unused[0]!r} ({what}): use it or take it out"
        raise ScenarioError(msg, unused[0])
    return {p.name: p.default for p in parameters[1:]}


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Let PyTensor read a Python number as int64 or float64 while a scenario is built.

    Its own habit is the smallest type that holds the number, and log-probabilities follow: ``pm.Poisson("y", 50)`` is then
    off by 3.7e-6 at 60, silently.

    Yields
    ------
    None
        Python numbers are read at full width for as long as the block runs.
    """
    from pytensor.scalar import basic

    before = basic.autocast_int.dtypes
    basic.autocast_int.dtypes = ("int64",)
    try:
        with basic.autocast_float_as("float64"):
            yield
    finally:
        basic.autocast_int.dtypes = before


def require_double_precision(release: Release) -> None:
    """Refuse single precision, in which PyMC would wrap observed counts, naming the largest count of the release."""
    import pytensor

    if pytensor.config.floatX != "float64":
        worst = max((int(np.max(np.abs(m.value))) for m in release.values()), default=0)
        msg = (
            f"pytensor.config.floatX is {pytensor.config.floatX}, in which a count such as {worst} is not kept (limit 2^15 for "
            "observed counts): unset it, or set floatX=float64"
        )
        raise ModelError(msg, pytensor.config.floatX)


def require_release(name: str, release: Any) -> None:
    """Refuse what is not a release, with the way to build one.

    Parameters
    ----------
    name
        Name of the scenario.
    release
        What was given in place of a release.
    """
    if not isinstance(release, Release):
        given = type(release).__name__
        msg = f"{name} takes a Release, got {given}: build one with Release.from_counts or Release.read"
        raise ScenarioError(msg, release)


def near_miss(name: str, there: Iterable[str]) -> str:
    """Return `` (did you mean two_level?)`` where one of the names there is near, else nothing.

    Parameters
    ----------
    name
        What was asked for.
    there
        The names that there are.
    """
    near = difflib.get_close_matches(name, list(there), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def check_assumption(scenario: str, name: str, value: Any, there: Iterable[str]) -> None:
    """Refuse a name that is not there, a function, and a negative number of known people.

    Arguments called ``known`` or ``known_...`` are counts.

    Parameters
    ----------
    scenario
        Name of the scenario.
    name
        Name of the argument.
    value
        What it is to be.
    there
        Names of the scenario's assumptions.
    """
    if name not in there:
        msg = (
            f"{scenario} has no assumption called {name!r}: it has {', '.join(there)}{near_miss(name, there)}"
        )
        raise ScenarioError(msg, name)
    if callable(value) and not is_prior(value):
        msg = (
            f"{name} of {scenario} is a function, and an assumption is a value or a prior, so that it can be printed and "
            f'sent to other processes: write Prior("Bernoulli", p=0.1) instead of a lambda'
        )
        raise ScenarioError(msg, value)
    counts = name == "known" or name.startswith("known_")
    if counts and isinstance(value, int | float | np.number | list | tuple | np.ndarray):
        try:
            numbers = np.asarray(value)
        except ValueError:
            msg = f"{name} is a number of people, or a list of such, got {shown(value)}: a list of lists of one length at most"
            raise ScenarioError(msg, value) from None
        if numbers.dtype.kind in "if" and numbers.size and numbers.min() < 0:
            msg = f"{name} is a number of people, so it cannot be negative, got {shown(value)}"
            raise ScenarioError(msg, value)
