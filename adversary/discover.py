"""Find scenarios: by name through the entry point group ``adversary.scenarios``, in a module, or in a file.

What it is not: a registry filled by imports. A broken plug-in is reported where it is listed, and stops nothing else.
Held to account by ``tests/test_discover.py``.
"""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from adversary.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adversary.language import Scenario

__all__ = ["GROUP", "list_scenarios", "load"]

GROUP = "adversary.scenarios"
"""Entry point group under which a package offers its scenarios."""


def _offered() -> Mapping[str, EntryPoint]:
    return {e.name: e for e in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def load(name: str) -> Scenario:
    """Return a scenario.

    Parameters
    ----------
    name
        ``"two_level"`` (an installed scenario), ``"attacks.py::mine"`` (a file, which is executed: a scenario file is code)
        or ``"package.module:name"``.

    Returns
    -------
    Scenario
        The scenario.

    Raises
    ------
    ScenarioError
        When there is none of that name; the message lists those there are.

    Examples
    --------
    >>> load("two_level").target
    'present'
    """
    from adversary.language import resolve

    if "::" in name or ":" in name:
        return resolve(name)
    offered = _offered()
    if name not in offered:
        near = difflib.get_close_matches(name, offered, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        msg = (
            f"there is no scenario called {name!r}{hint}: there are "
            f"{', '.join(offered) or 'none installed'}; or give FILE.py::NAME"
        )
        raise ScenarioError(msg, name)
    return resolve(offered[name].value)


def list_scenarios() -> dict[str, Scenario | str]:
    """Return all installed scenarios, in order of name.

    Returns
    -------
    dict
        Name -> scenario, or the reason why it could not be loaded (text).
    """
    found: dict[str, Scenario | str] = {}
    for name in _offered():
        try:
            found[name] = load(name)
        except Exception as error:  # noqa: BLE001  (a broken plug-in must not hide the others)
            found[name] = f"could not be loaded: {type(error).__name__}: {error}"
    return found
