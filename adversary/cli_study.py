"""Commands about many assumptions: ``adversary study`` and ``adversary check``.

Nothing here computes. The commands are plain click commands, which :mod:`adversary.cli` adds to its group.
Held to account by ``tests/test_studies.py`` and ``tests/test_testing.py``.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import click

from adversary.assumption_text import parse_assumption
from adversary.errors import ScenarioError

__all__ = ["check_command", "grid_of", "study_command"]


_FILES = {".nc", ".zarr", ".csv", ".json", ".parquet", ".toml", ".html"}
_MOST_POINTS = 1_000_000
_BYTES_A_POINT = 2500  # a scenario, its prior and its row, measured


def _split(text: str) -> list[str]:
    """Split at commas outside brackets and parentheses."""
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [p.strip() for p in [*parts, current] if p.strip()]


def _values(text: str) -> list[str]:
    """Read ``0.1,0.2`` as two values and ``0.1:0.9:5`` as five from 0.1 to 0.9."""
    start, colon, rest = text.partition(":")
    if not colon or "(" in text:
        return _split(text)
    stop, colon, number = rest.partition(":")
    try:
        low, high, n = float(start), float(stop), int(number)
    except ValueError:
        n = 0
    if not colon or not 2 <= n <= _MOST_POINTS:
        msg = f"a range is FROM:TO:HOW_MANY, with 2 to {_MOST_POINTS:,} points, got {text!r}: for example 0.1:0.9:9"
        raise ScenarioError(msg, text)
    return [repr(low + (high - low) * i / (n - 1)) for i in range(n)]


def grid_of(scenario: Any, over: tuple[str, ...]) -> list[Any]:
    """Return the product of the ``--over`` options, last one fastest.

    Parameters
    ----------
    scenario
        The scenario to vary.
    over
        Texts such as ``present.p=0.1,0.2``, ``known=0,1`` or ``elsewhere=FlatCount(),Poisson(mu=5)``.
        ``elsewhere=UniformTotal(209)`` is read too; name ``known`` before it.
    """
    if not over:
        msg = "a study needs something to vary: --over present.p=0.1,0.2,0.5 or --over known=0,1"
        raise ScenarioError(msg, over)
    axes = []
    for text in over:
        name, equals, values = text.partition("=")
        found = _values(values)
        if not equals or not found:
            msg = f"--over takes NAME=VALUE,VALUE,..., got {text!r}: for example present.p=0.1,0.2"
            raise ScenarioError(msg, text)
        axes.append([f"{name}={v}" for v in found])
    many = math.prod(len(a) for a in axes)
    if many > _MOST_POINTS:
        msg = (
            f"{many:,} points take about {many * _BYTES_A_POINT / 1e9:,.0f} GB before the first is answered: ask for at most "
            f"{_MOST_POINTS:,}, in several studies"
        )
        raise ScenarioError(msg, many)
    points = []
    for point in itertools.product(*axes):
        one = scenario
        for text in point:
            one = one.assuming(**dict([_assumption(text, one)]))
        points.append(one)
    return points


def _assumption(text: str, scenario: Any) -> tuple[str, Any]:
    """Read one assumption; ``elsewhere=UniformTotal(209)`` takes the known people from the scenario."""
    from adversary.studies import UniformTotal

    total = re.fullmatch(r"\s*(\w+)\s*=\s*UniformTotal\(\s*(?:top\s*=\s*)?(\d+)\s*\)\s*", text)
    if total is None:
        return parse_assumption(text, scenario)
    return total[1], UniformTotal(
        int(total[2]), known=int(scenario.known.get("known", 0)), target=scenario.target
    )


def _number(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


@click.command("study")
@click.argument("scenario")
@click.argument("release", type=click.Path(allow_dash=True))
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=V1,V2,...",
    help="What varies: present.p=0.1,0.5, present.p=0.1:0.9:9, known=0,1, elsewhere=FlatCount(),Poisson(mu=5).",
)
@click.option(
    "--assume",
    "assumptions",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change an assumption at every point.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default=None,
    help="Folder that keeps finished parts; run again to go on.",
)
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def study_command(
    scenario: str,
    release: str,
    over: tuple[str, ...],
    assumptions: tuple[str, ...],
    out: str | None,
    processes: int,
    as_json: bool,
) -> None:
    """Answer SCENARIO on RELEASE over a grid of assumptions, exactly."""
    from adversary.discover import load
    from adversary.release.measurement import Release
    from adversary.studies import study

    if out and Path(out).suffix.lower() in _FILES:
        msg = f"--out {out}: a study is kept in a folder (result.nc in it is the answer): give a name without {Path(out).suffix}"
        raise ScenarioError(msg, out)
    base = load(scenario)
    for text in assumptions:
        base = base.assuming(**dict([parse_assumption(text, base)]))
    grid = grid_of(base, over)
    data = study(
        grid,
        Release.read(release),
        processes=processes,
        out=out,
        progressbar=sys.stderr.isatty() and not as_json,
    )
    posterior = data["posterior"]
    if as_json:
        table = {
            "scenario": data.attrs["scenario"],
            "target": data.attrs["target"],
            "points": len(grid),
            "dims": list(posterior.dims),
            "coords": {str(k): [_number(x) for x in v.values] for k, v in data.coords.items()},
            "variables": {str(k): _nested(v.values) for k, v in data.data_vars.items()},
            "release_hash": data.attrs["release_hash"],
            "out": out,
        }
        click.echo(json.dumps(table, ensure_ascii=False))
        return
    for line in _lines(data, len(grid), out):
        click.echo(line)


def _nested(values: Any) -> Any:
    return [_nested(v) for v in values] if getattr(values, "ndim", 0) else _number(values)


def _brief(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _lines(data: Any, points: int, out: str | None) -> list[str]:
    """Say what moved, and where the ends are."""
    posterior = data["posterior"]
    lines = [
        f"{data.attrs['scenario']}: {points} points, exact; cut-off bound {float(data['cut_off_bound'].max()):.1e}"
    ]
    if "target" in posterior.dims:
        lines.append(f"one probability for each value of {data.attrs['target']}: see the file, or --json")
    else:
        ends = [("lowest", posterior.argmin(...)), ("highest", posterior.argmax(...))]
        if bool(
            data["risk"].notnull().any()
        ):  # the ends of the posterior follow the prior; the risk's say more
            ends.append(("riskiest", data["risk"].argmax(...)))
        for word, at in ends:
            here = data.isel({d: int(i.values) for d, i in at.items()})
            where = ", ".join(f"{k} = {_brief(here[k].values.item())}" for k in here.coords)
            lines.append(
                f"  {word:<8} P({data.attrs['target']}) = {float(here.posterior):.6f}  (prior {float(here.prior):.6g}, "
                f"risk {float(here.risk):.4g})  at {where}"
            )
    return [*lines, *([f"written to {out}"] if out else [])]


@click.command("check")
@click.argument("scenario")
@click.argument("release", type=click.Path(allow_dash=True), required=False)
@click.option("--quick", is_flag=True, help="Leave out PyMC's sampler.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_command(scenario: str, release: str | None, quick: bool, seed: int, as_json: bool) -> None:
    """Check that SCENARIO (FILE.py::NAME, or an installed name) behaves as a declared adversary must; exit 1 where it does not.

    RELEASE may be left out: a small one is made from the names that the scenario asks for.
    """
    from adversary.discover import load
    from adversary.release.measurement import Release
    from adversary.testing import check_scenario

    found = check_scenario(load(scenario), Release.read(release) if release else None, quick=quick, seed=seed)
    failed = any(c.passed is False for c in found)
    if as_json:
        rows = [{"name": c.name, "passed": c.passed, "text": c.text} for c in found]
        click.echo(json.dumps({"passed": not failed, "checks": rows}, ensure_ascii=False))
    else:
        for c in found:
            click.echo(
                f"{'ok  ' if c.passed else '--  ' if c.passed is None else 'FAIL'} {c.name:<16} {c.text}"
            )
    if failed:
        sys.exit(1)
