"""The command line: reads a file or a pipe, prints sentences or one JSON object, exits 0, 1 (findings) or 2 (usage).

Nothing here computes. PyMC is imported only by commands that build a model. Errors go to standard error in one sentence.
Held to account by ``tests/test_cli.py``.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from importlib.resources import files
from typing import Any, ClassVar

import click

from adversary._version import __version__
from adversary.assumption_text import parse_assumption, parse_value
from adversary.errors import AdversaryError, FileFormatError, ScenarioError

__all__ = ["assume_option", "json_option", "main", "scenario_with", "seed_option", "wanted_ending"]


_ELSEWHERE = {
    "approximation": "adversary.cli_risk:approximation",
    "batch": "adversary.cli_risk:batch",
    "check": "adversary.cli_study:check_command",
    "expect": "adversary.cli_risk:expect",
    "explore": "adversary.cli_explore:explore",
    "largest": "adversary.cli_risk:largest",
    "reconstruct": "adversary.cli_reconstruct:reconstruct",
    "report": "adversary.cli_report:report",
    "reproduce": "adversary.cli_risk:reproduce",
    "run": "adversary.cli_config:run",
    "schema": "adversary.cli_config:schema_command",
    "spine": "adversary.cli_spine:spine_command",
    "study": "adversary.cli_study:study_command",
}
"""Commands that live in files of their own, imported when they are asked for."""


class _Group(click.Group):
    """Finds commands in their files, and turns every error raised on purpose into one sentence and exit code 2."""

    elsewhere: ClassVar[dict[str, str]] = _ELSEWHERE

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.elsewhere:
            return super().get_command(ctx, cmd_name)
        module, name = self.elsewhere[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AdversaryError as error:
            click.echo(f"adversary: {error}", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            ctx.exit(0)


def _cite(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(files("adversary").joinpath("data/citation.bib").read_text(encoding="utf-8").rstrip())
        ctx.exit(0)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="adversary %(version)s")
@click.option(
    "--citation",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_cite,
    help="Print how to cite, as BibTeX.",
)
def main() -> None:
    """What would a determined adversary learn about one person from counts published with noise?"""


def _emit(as_json: bool, data: dict[str, Any], lines: list[str]) -> None:
    click.echo(json.dumps(data, ensure_ascii=False) if as_json else "\n".join(lines))


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=None, help="Seed of the draws; recorded when left out."
)
assume_option = click.option(
    "--assume",
    "assumptions",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change an assumption: known=4, present=Bernoulli(p=0.1), present.p=1/864, elsewhere=Poisson(mu=5).",
)


@main.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the installed scenarios."""
    from adversary.discover import list_scenarios

    found = list_scenarios()
    data: dict[str, Any] = {}
    lines = []
    for name, item in found.items():
        if isinstance(item, str):
            data[name] = {"error": item}
            lines.append(f"{name:<18} {item}")
        else:
            data[name] = {"target": item.target, "question": item.question, "source": item.source}
            lines.append(f"{name:<18} {item.question}")
    _emit(as_json, data, lines)


@main.command()
@click.argument("scenario")
@json_option
def show(scenario: str, as_json: bool) -> None:
    """Show what the adversary knows, believes, sees and wants.

    SCENARIO is a name from `adversary list`, or FILE.py::NAME (the file is executed).
    """
    import inspect

    from adversary.discover import load

    s = load(scenario)
    data: dict[str, Any] = {
        "name": s.name,
        "target": s.target,
        "source": s.source,
        "knows": {k: repr(v) for k, v in s.known.items()},
        "believes": {k: repr(v) for k, v in s.unknowns.items()},
        "text": inspect.getdoc(s.function) or "",
    }
    lines = [f"{s.name}{inspect.signature(s)}", "", data["text"], "", f"wants:    {s.target}"]
    lines += [f"knows:    {k} = {v}" for k, v in data["knows"].items()]
    lines += [f"believes: {k} ~ {v}" for k, v in data["believes"].items()]
    lines += [f"source:   {s.source}"]
    _emit(as_json, data, lines)


def wanted_ending(path: str, what: str, *endings: str) -> None:
    """Refuse a ``path`` whose ending is not among the ``endings`` that ``what`` is written with, before it is computed."""
    if not path.lower().endswith(endings):
        msg = f"--out {path}: {what} is written as {' or '.join(endings)}: give a name that ends so"
        raise FileFormatError(msg, path)


def scenario_with(name: str, assumptions: tuple[str, ...]) -> Any:
    """Load the scenario ``name`` and change its assumptions as the texts of ``--assume`` say."""
    from adversary.discover import load

    scenario = load(name)
    return scenario.assuming(**dict(parse_assumption(a, scenario) for a in assumptions))


@main.command()
@click.argument("scenario")
@click.argument("release", type=click.Path(allow_dash=True))
@assume_option
@click.option(
    "--mode",
    type=click.Choice(["exact", "literal"]),
    default="exact",
    show_default=True,
    help="Mode of the Gibbs reference.",
)
@seed_option
@click.option("--draws", type=click.IntRange(min=100), default=2000, show_default=True)
@json_option
def compare(
    scenario: str,
    release: str,
    assumptions: tuple[str, ...],
    mode: str,
    seed: int | None,
    draws: int,
    as_json: bool,
) -> None:
    """Answer one attack with every sampler and hold them against each other; exit 1 where they disagree."""
    from dataclasses import asdict

    from adversary.diagnostics import compare as hold_together
    from adversary.release.measurement import Release

    found = hold_together(
        scenario_with(scenario, assumptions),
        Release.read(release),
        seed=seed,
        draws=draws,
        mode=mode,
        progressbar=sys.stderr.isatty() and not as_json,
    )
    rows = [{k: _json_number(v) for k, v in asdict(r).items()} for r in found.rows]
    _emit(as_json, {"agree": found.agree, "rows": rows, "skipped": dict(found.skipped)}, found.lines())
    if not found.agree:
        sys.exit(1)


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@main.command()
@click.option("--rho", required=True, help="zCDP budget, exact: 2.56, 104/4099.")
@click.option("--delta", required=True, type=float, help="Probability of failure, in (0, 1].")
@json_option
def account(rho: str, delta: float, as_json: bool) -> None:
    """Convert a zCDP budget into (epsilon, delta)."""
    from adversary.privacy.accounting import epsilon, epsilon_bun_steinke
    from adversary.privacy.budget import Rho

    budget = Rho(rho)
    tight, loose = float(epsilon(budget, delta)), float(epsilon_bun_steinke(budget, delta))
    data = {
        "rho": str(budget),
        "delta": delta,
        "epsilon": _json_number(tight),
        "epsilon_bun_steinke": _json_number(loose),
    }
    lines = [
        f"rho = {budget} is ({tight:.6f}, {delta:g})-DP (Canonne, Kamath & Steinke)",
        f"                 ({loose:.6f}, {delta:g})-DP (Bun & Steinke, the paper's Theorem 1)",
    ]
    _emit(as_json, data, lines)


class _Assess(_Group):
    elsewhere: ClassVar[dict[str, str]] = {"nmf": "adversary.cli_nmf:assess_nmf"}


@main.group(cls=_Assess)
def assess() -> None:
    """Assess everybody: the unique persons of a real table, or all blocks of noisy measurement files."""


@assess.command("pl94")
@click.argument("folder", type=click.Path())
@click.option(
    "--level",
    default="block",
    show_default=True,
    help="Level of the targets: block, block_group, tract, county, state.",
)
@click.option("--levels", default=None, help="Levels whose counts she sees, for example block,block_group.")
@click.option(
    "--allocation", default=None, help="Published split of the budget, for example 2020-pl94-persons."
)
@click.option(
    "--rho",
    default=None,
    help="Budget of the query at each level instead: 0.05, or block=0.1,block_group=0.25.",
)
@click.option(
    "--query",
    default="votingage * hispanic * cenrace",
    show_default=True,
    help="Query whose own share is spent.",
)
@click.option(
    "--convention", type=click.Choice(["bounded", "unbounded"]), default="bounded", show_default=True
)
@click.option(
    "--prior", default="0.5", show_default=True, help="Prior probability of presence, in (0, 1): 0.5, 1/864."
)
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Seed of the drawn release.")
@click.option(
    "--threshold", type=float, default=1.5, show_default=True, help="R' above which a target is a finding."
)
@click.option("--out", type=click.Path(dir_okay=False), default=None, help="Write one row a target (.csv).")
@json_option
def assess_pl94(
    folder: str,
    level: str,
    levels: str | None,
    allocation: str | None,
    rho: str | None,
    query: str,
    convention: str,
    prior: str,
    seed: int,
    threshold: float,
    out: str | None,
    as_json: bool,
) -> None:
    """Attack everyone who is alone in her cell of a PL 94-171 FOLDER.

    Draws one noisy release of the query's counts, takes every person who is unique in her geounit as a target of an adversary
    who knows everyone else in it, and computes every posterior exactly. With two levels any number of people in the group's other
    geounits is equally likely to her (FlatCount). Exit 1 where a target's risk exceeds the threshold.

    Columns: geoid, her cell, the drawn counts (noisy_rest: sum over the group's other geounits), prior, posterior, risk (R'),
    log_odds (posterior, natural logarithm), decision (present where the posterior exceeds 1/2).
    """
    from adversary.assess import assess_pl94 as assess_folder

    if out:
        wanted_ending(out, "the table", ".csv")
    budget: Any = rho
    if rho is not None and "=" in rho:
        budget = dict(part.split("=", 1) for part in rho.split(","))
    p = parse_value(prior)
    if not isinstance(p, float | int):
        msg = f"--prior must be a number such as 0.5 or 1/864, got {prior!r}"
        raise ScenarioError(msg, prior)
    result = assess_folder(
        folder,
        level=level,
        levels=levels.split(",") if levels else None,
        allocation=allocation,
        rho=budget,
        query=query,
        convention=convention,
        prior=float(p),
        seed=seed,
        risk_threshold=threshold,
    )
    lines = result.summary_lines()
    if out:
        result.to_csv(out)
        lines.append(f"{len(result)} rows written to {out}")
    summary = result.summary()
    _emit(as_json, summary, lines)
    if summary["above_threshold"]:
        sys.exit(1)


@main.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="demo_output",
    show_default=True,
    help="Folder for table and figures.",
)
def demo(out: str) -> None:
    """Run the main job on an embedded synthetic state, then the paper's example with three samplers side by side."""
    from pathlib import Path

    from adversary.demo import run_demo

    for line in run_demo(Path(out)):
        click.echo(line)
