"""One attack in one file: a TOML that says what is released, who the adversary is, and how she is answered.

::

    scenario = "two_level"              # a name of `adversary list`, or attacks.py::mine
    sampler = "exact"                   # or a table: name, draws, chains, tolerance, mode, tune
    seed = 1
    out = "result.nc"

    [release]                           # or release = "release.json"
    convention = "unbounded"
    measurements.block = { value = 2, rho = "0.0992264" }

    [assumptions]
    known = 0
    present = "Bernoulli(p=1/864)"      # or present.p = "1/864", or present = { prior = "Bernoulli", p = 0.001 }

Paths are relative to the file. What it is: a reader that refuses what it does not know, with the nearest right name. What it is
not: code; nothing in the file is executed (a scenario *file* that it names is, as everywhere). It loads no scenario either: the
caller does. :data:`KEYS` says what there is; ``adversary/data/config.schema.json`` says the same to editors.

Held to account by ``tests/test_config.py``.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.assumption_text import changed_prior, parse_assumption, parse_value
from adversary.declaring import near_miss
from adversary.errors import FileFormatError, ScenarioError
from adversary.priors import Prior, is_prior
from adversary.release.measurement import Release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adversary.language import Scenario
    from adversary.results import AttackResult

__all__ = ["KEYS", "StudyConfig", "answer", "declared", "plan", "read_config", "schema"]

KEYS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = MappingProxyType(
    {
        "": {
            "scenario": str,
            "release": (str, dict),
            "assumptions": dict,
            "sampler": (str, dict),
            "seed": int,
            "out": str,
        },
        "release": {"convention": str, "measurements": dict},
        "release.measurements": {
            "value": (int, list),
            "rho": (str, int, Decimal, list),
            "sigma2": (str, int, Decimal, list),
            "groups": int,
        },
        "sampler": {
            "name": str,
            "draws": int,
            "chains": int,
            "tolerance": (int, Decimal),
            "mode": str,
            "tune": int,
        },
    }
)
"""Place -> key -> types in which TOML may give it. The keys of ``assumptions`` are the scenario's own."""

SAMPLERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"exact": ("tolerance",), "gibbs": ("mode", "tune"), "mcmc": ("tune",)}
)
"""Sampler -> options of its own; ``draws`` and ``chains`` belong to all."""

DEFAULT_DRAWS, DEFAULT_CHAINS = 1000, 4


@dataclass(frozen=True)
class StudyConfig:
    """What a file says.

    Parameters
    ----------
    path : Path
        The file.
    scenario : str
        A name, or ``FILE.py::NAME`` with its path resolved.
    release : Release
        What is published.
    assumptions : mapping
        As the file has them; :func:`declared` reads them against the scenario.
    sampler : str
        ``"exact"``, ``"gibbs"`` or ``"mcmc"``.
    options : mapping
        draws, chains and the sampler's own.
    seed : int or None
        None draws a fresh one, which is recorded.
    out : Path or None
        Where the result is saved.
    """

    path: Path
    scenario: str
    release: Release
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    sampler: str = "exact"
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    out: Path | None = None


def schema() -> dict[str, Any]:
    """Return the JSON Schema of such files, as ``adversary schema`` prints it.

    Examples
    --------
    >>> sorted(schema()["properties"]) == sorted(KEYS[""])
    True
    """
    text = files("adversary").joinpath("data/config.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def read_config(path: str | Path) -> StudyConfig:
    """Read a file.

    Parameters
    ----------
    path
        A TOML file.

    Returns
    -------
    StudyConfig
        What the file asks for, checked.

    Raises
    ------
    FileFormatError
        For a file that is missing, is no TOML, has an unknown key (the message names the nearest right one) or a value of
        another type than the key's.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except FileNotFoundError as error:
        msg = f"{path}: there is no such file: give the path of a study (.toml)"
        raise FileFormatError(msg, path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ArithmeticError, RecursionError) as error:
        msg = f"{path}: not TOML ({error}): see `adversary schema`"
        raise FileFormatError(msg, path) from error
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error})"
        raise FileFormatError(msg, path) from error
    _known(data, "", path)
    sampler, options = _sampler(data.get("sampler", "exact"), path)
    for key in ("scenario", "release"):
        if key not in data:
            way_out = 'scenario = "two_level"' if key == "scenario" else 'release = "release.json"'
            msg = f"{path}: {key} is missing: write {way_out}"
            raise FileFormatError(msg, key)
    seed = data.get("seed")
    if seed is not None and seed < 0:
        msg = f"{path}: seed must be a whole number >= 0, got {seed}"
        raise FileFormatError(msg, seed)
    return StudyConfig(
        path=path,
        scenario=_beside(data["scenario"], path),
        release=_release(data["release"], path),
        assumptions=MappingProxyType(data.get("assumptions", {})),
        sampler=sampler,
        options=MappingProxyType(options),
        seed=seed,
        out=_out(data.get("out"), path),
    )


def _known(table: Mapping[str, Any], place: str, path: Path) -> None:
    """Refuse a key that is not there, and a value of another type."""
    keys = KEYS[place]
    for key, value in table.items():
        where = f"{place}.{key}".lstrip(".")
        if key not in keys:
            inside = f"[{place}]" if place else "a study"
            msg = f"{path}: unknown key {where!r}{near_miss(key, keys)}: {inside} has {', '.join(keys)}"
            raise FileFormatError(msg, key)
        if isinstance(value, bool) or not isinstance(value, keys[key]):
            wanted = keys[key] if isinstance(keys[key], tuple) else (keys[key],)
            words = " or ".join(dict.fromkeys(_WORDS[t] for t in wanted))  # type: ignore[index, union-attr]
            msg = f"{path}: {where} must be {words}, got {_shown(value)}"
            raise FileFormatError(msg, value)


_WORDS = {
    str: "a text in quotes",
    dict: "a table",
    list: "a list",
    int: "a whole number",
    Decimal: "a number",
}


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


def _beside(scenario: str, path: Path) -> str:
    """Resolve the path of a scenario's file against the TOML's folder."""
    where, colons, name = scenario.rpartition("::")
    return f"{path.parent / where}::{name}" if colons else scenario


def _out(name: str | None, path: Path) -> Path | None:
    if name is None:
        return None
    if not name.endswith(".nc"):
        msg = f"{path}: out is the file of the result, so its name must end in .nc, got {name!r}"
        raise FileFormatError(msg, name)
    return path.parent / name


def _release(given: str | dict[str, Any], path: Path) -> Release:
    if isinstance(given, str):
        return Release.read(path.parent / given)
    _known(given, "release", path)
    entries = given.get("measurements", {})
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            msg = f'{path}: release.measurements.{name} must be a table such as {{ value = 2, rho = "0.1" }}, got {_shown(entry)}'
            raise FileFormatError(msg, entry)
        try:
            _known(entry, "release.measurements", path)
        except FileFormatError as error:
            msg = str(error).replace("release.measurements.", f"release.measurements.{name}.", 1)
            raise FileFormatError(msg, error.value) from None
    # through the one reader of releases, with every number as the text that the file has, so that rho stays exact
    text = json.dumps({**given, "measurements": entries}, default=str)
    return Release.from_json(text, where=f"{path}, release")


def _sampler(given: str | dict[str, Any], path: Path) -> tuple[str, dict[str, Any]]:
    table: dict[str, Any] = {"name": given} if isinstance(given, str) else dict(given)
    _known(table, "sampler", path)
    name = table.pop("name", "exact")
    if name not in SAMPLERS:
        msg = f"{path}: there is no sampler called {name!r}{near_miss(name, SAMPLERS)}: there are {', '.join(SAMPLERS)}"
        raise FileFormatError(msg, name)
    foreign = [k for k in table if k not in ("draws", "chains", *SAMPLERS[name])]
    if foreign:
        whose = ", ".join(s for s, own in SAMPLERS.items() if foreign[0] in own)
        msg = f"{path}: sampler.{foreign[0]} belongs to {whose}, and the sampler is {name}: take it out, or change sampler.name"
        raise FileFormatError(msg, foreign[0])
    for key in ("draws", "chains", "tune"):
        # the exact engine's probabilities need no draws
        least = 0 if key == "tune" or (key == "draws" and name == "exact") else 1
        if key in table and table[key] < least:
            msg = f"{path}: sampler.{key} must be at least {least}, got {table[key]}"
            raise FileFormatError(msg, table[key])
    if "mode" in table and table["mode"] not in ("exact", "literal"):
        msg = f"{path}: sampler.mode must be 'exact' or 'literal', got {table['mode']!r}"
        raise FileFormatError(msg, table["mode"])
    if "tolerance" in table:
        table["tolerance"] = float(table["tolerance"])
    return name, table


# ---------------------------------------------------------------------- against a scenario
def declared(config: StudyConfig, scenario: Scenario) -> Scenario:
    """Return the scenario with the file's assumptions.

    Parameters
    ----------
    config
        What a file says.
    scenario
        What ``config.scenario`` names; the caller loads it.

    Raises
    ------
    ScenarioError
        For a name that is no assumption of the scenario, or a value that is none; the message names the file and the key.
    """
    for name, value in config.assumptions.items():
        try:
            scenario = scenario.assuming(**{name: _assumption(scenario, name, value)})
        except ScenarioError as error:
            msg = f"{config.path}: assumptions.{name}: {error}"
            raise ScenarioError(msg, error.value) from error
    return scenario


def _assumption(scenario: Scenario, name: str, value: Any) -> Any:
    if isinstance(value, str):
        return parse_assumption(f"{name}={value}", scenario)[1]
    if isinstance(value, dict) and "prior" in value:
        return _prior(value)
    if isinstance(value, dict):
        if name in scenario.assumptions and not is_prior(scenario.assumptions[name]):
            msg = f'{name} of {scenario.name} has no prior to change: write {name} = {{ prior = "Poisson", mu = 1 }}, or a value'
            raise ScenarioError(msg, value)
        if name not in scenario.assumptions:
            return 0  # refused by name, by the caller
        return changed_prior(scenario, name, {k: _number(v, k) for k, v in value.items()})
    found = _number(value, name)
    if isinstance(found, list) and any(isinstance(v, str) for v in found):
        if isinstance(scenario.assumptions.get(name), int | float):
            msg = f"{name} of {scenario.name} is a number, got {value!r}: write one, or a list of numbers"
            raise ScenarioError(msg, value)
        return tuple(found)  # names
    return found


def _prior(table: dict[str, Any]) -> Any:
    """Read ``{ prior = "Poisson", mu = 5 }``; a parameter may be such a table itself."""
    own = {k: v for k, v in table.items() if k != "prior"}
    dims, shape = own.pop("dims", None), own.pop("shape", None)
    if not isinstance(table["prior"], str):
        msg = (
            f'prior names a distribution, as in {{ prior = "Poisson", mu = 5 }}, got {_shown(table["prior"])}'
        )
        raise ScenarioError(msg, table["prior"])
    parameters = {
        k: _prior(v) if isinstance(v, dict) and "prior" in v else _number(v, k) for k, v in own.items()
    }
    return Prior(table["prior"], dims=dims, shape=shape, **parameters)


def _number(value: Any, name: str) -> Any:
    """Read a number, a fraction as text, or a list of these."""
    if isinstance(value, list):
        return [_number(v, name) for v in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str):
        return parse_value(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    msg = f'{name} must be a number, a list, or a text such as "Bernoulli(p=0.1)", got {_shown(value)}'
    raise ScenarioError(msg, value)


def answer(config: StudyConfig, scenario: Scenario) -> AttackResult:
    """Run what the file says on the scenario that it names, and save the result where it says.

    Parameters
    ----------
    config
        What a file says.
    scenario
        What ``config.scenario`` names; the caller loads it.

    Returns
    -------
    AttackResult
        As :func:`adversary.run` gives it.
    """
    from adversary.attack import run

    result = run(
        declared(config, scenario), config.release, config.sampler, seed=config.seed, **config.options
    )
    if config.out is not None:
        result.save(config.out)
    return result


def plan(config: StudyConfig, scenario: Scenario) -> dict[str, Any]:
    """Say what would be run, without sampling; the model is built, so that what does not fit is refused here.

    Parameters
    ----------
    config
        What a file says.
    scenario
        What ``config.scenario`` names; the caller loads it.

    Returns
    -------
    dict
        scenario, question, target, assumptions; measurements (name, values, sigma2 of one count, groups, convention, used);
        not_measured; unknowns (name -> how many values); sampler, options, seed, out; draws_bytes, the memory of the draws
        kept. The time is not known before the model is compiled, and is not guessed.
    """
    ready = declared(config, scenario)
    model, _ = ready.build(config.release)
    used = {rv.name for rv in model.observed_RVs}
    shapes = model.eval_rv_shapes()
    sizes = {rv.name: int(np.prod(shapes[rv.name], dtype=np.int64)) for rv in model.free_RVs}
    draws = config.options.get("draws", DEFAULT_DRAWS) * config.options.get("chains", DEFAULT_CHAINS)
    rows = [
        {
            "name": m.name,
            "values": m.size,
            "sigma2": np.unique(np.asarray(m.sigma2)).tolist(),
            "groups": m.groups,
            "convention": m.convention,
            "used": m.name in used,
        }
        for m in config.release.values()
    ]
    return {
        "scenario": ready.name,
        "question": ready.question,
        "target": ready.target,
        "assumptions": {k: repr(v) for k, v in ready.assumptions.items()},
        "measurements": rows,
        "not_measured": list(config.release.not_measured),
        "unknowns": sizes,
        "sampler": config.sampler,
        "options": {"draws": DEFAULT_DRAWS, "chains": DEFAULT_CHAINS, **config.options},
        "seed": config.seed,
        "out": None if config.out is None else str(config.out),
        "draws_bytes": 8 * draws * sum(sizes.values()),
        "dry_run": True,
    }
