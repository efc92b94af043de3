"""How to get an answer again: the TOML file that `adversary run` reads, written from the saved tree, or why there is none.

Held to account by ``tests/test_report.py``, which runs what it writes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from adversary.assumption_text import parse_prior, parse_value
from adversary.errors import AdversaryError
from adversary.priors import is_prior

if TYPE_CHECKING:
    from adversary.results import AttackResult

__all__ = ["toml_of"]

_OPTIONS = {
    "exact": {"draws", "chains", "tolerance"},
    "gibbs": {"draws", "chains", "mode", "tune"},
    "mcmc": {"draws", "chains", "tune"},
}
_NOT_PART_OF_THE_ANSWER = {"cores", "progressbar"}


def toml_of(result: AttackResult) -> tuple[str | None, str]:
    """Return the study's TOML text and what it needs, or None and why it cannot be written.

    Parameters
    ----------
    result
        A saved answer.

    Returns
    -------
    tuple
        (text or None, a sentence).
    """
    attrs = result.attrs
    origin = str(attrs["origin"])
    if origin.startswith("__main__") or "<locals>" in origin:
        return (
            None,
            "the scenario was declared in a notebook or a script, not in a file that could be read again",
        )
    if not re.fullmatch(r"\d+", str(attrs["seed"])):
        return None, "the seed was one of several spawned from another, which no file can name"
    options = {k: v for k, v in json.loads(str(attrs["options"])).items() if k not in _NOT_PART_OF_THE_ANSWER}
    strange = sorted(set(options) - _OPTIONS[result.sampler])
    if strange:
        return None, f"the sampler's option {strange[0]} has no place in a file"
    lines = [f"scenario = {_text(origin)}", f"seed = {attrs['seed']}", 'out = "result.nc"', "", "[sampler]"]
    lines += [f"name = {_text(result.sampler)}", *(f"{k} = {_plain(v)}" for k, v in options.items())]
    lines += ["", "[assumptions]"]
    for name, said in result.assumptions.items():
        found = _assumption(said)
        if found is None:
            return None, f"the assumption {name} = {said} was too long or too special to be kept as text"
        lines.append(f"{_key(name)} = {found}")
    lines += _release(json.loads(str(attrs["release"])))
    needs = (
        f"it needs the file {origin.rpartition('::')[0]} beside it, unchanged (its scenario is printed above)"
        if "::" in origin
        else "it needs the versions printed above"
    )
    return "\n".join(lines) + "\n", needs


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _plain(value: Any) -> str:
    return _text(value) if isinstance(value, str) else repr(value)


def _assumption(said: str) -> str | None:
    """Return a TOML value that is read back as what was said; None where the text does not say all."""
    try:
        if said.startswith("Prior("):
            prior = parse_prior(said)
            return _text(said) if is_prior(prior) and repr(prior) == said else None
        value = parse_value(said)
    except (AdversaryError, ValueError):
        return None
    if isinstance(value, int | float) and repr(value) == said:
        return said
    if isinstance(value, list | tuple) and repr(value) == said:
        flat = [*value]
        if all(isinstance(v, int | float | str) and not isinstance(v, bool) for v in flat):
            return "[" + ", ".join(_plain(v) for v in flat) + "]"
    if isinstance(value, str) and len(said) > 2 and said[0] == said[-1] == "'":
        return _text(said[1:-1])
    return None


def _release(found: dict[str, Any]) -> list[str]:
    lines = ["", "[release]"]
    if "convention" in found:
        lines.append(f"convention = {_text(found['convention'])}")
    for name, entry in found["measurements"].items():
        lines += ["", f"[release.measurements.{_key(name)}]"]
        lines += [f"{k} = {_value(v)}" for k, v in entry.items()]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_plain(v) for v in value) + "]"
    return _plain(value)
