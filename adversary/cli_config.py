"""Commands that answer one attack: ``adversary run`` (from options or from a TOML file) and ``adversary schema``.

Nothing here computes. Held to account by ``tests/test_config.py`` and ``tests/test_cli.py``.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from adversary.cli import assume_option, json_option, scenario_with, seed_option, wanted_ending
from adversary.errors import FileFormatError

if TYPE_CHECKING:
    from adversary.config import StudyConfig

__all__ = ["run", "schema_command"]


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of the TOML files that `adversary run` reads."""
    from adversary.config import schema

    click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))


@click.command("run")
@click.argument("scenario", metavar="SCENARIO|STUDY.toml")
@click.argument("release", type=click.Path(allow_dash=True), required=False)
@assume_option
@click.option(
    "--sampler", type=click.Choice(["exact", "gibbs", "mcmc"]), default=None, help="exact where left out."
)
@click.option(
    "--mode",
    type=click.Choice(["exact", "literal"]),
    default=None,
    help="gibbs only: literal repeats the paper's sampler.",
)
@seed_option
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    default=None,
    help="Draws in each of 4 chains; 1000 where left out.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False), default=None, help="Save the whole result as netCDF (.nc)."
)
@click.option("--dry-run", is_flag=True, help="Print what would be run, build the model, and sample nothing.")
@json_option
def run(
    scenario: str,
    release: str | None,
    assumptions: tuple[str, ...],
    sampler: str | None,
    mode: str | None,
    seed: int | None,
    draws: int | None,
    out: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Answer one attack: SCENARIO on RELEASE (.json, .csv, or - for a pipe), or what STUDY.toml says.

    With a TOML file only --seed, --out, --dry-run and --json may be given beside it; `adversary schema` prints its keys.
    """
    from adversary.config import answer, plan

    if out:
        wanted_ending(out, "the result", ".nc")
    own = {"--assume": assumptions, "--sampler": sampler, "--mode": mode, "--draws": draws}
    if scenario.lower().endswith(".toml"):
        given = [k for k, v in own.items() if v] + (["RELEASE"] if release else [])
        if given:
            msg = f"{given[0]} belongs into {scenario} when there is one: only --seed, --out, --dry-run and --json go beside it"
            raise click.UsageError(msg)
        config = _of_file(scenario, seed, out)
        declared = scenario_with(config.scenario, ())
    else:
        if release is None:
            msg = f"{scenario} needs a release to be run on (.json, .csv, or - for a pipe), or give a study (.toml)"
            raise click.UsageError(msg)
        if mode is not None and sampler != "gibbs":
            msg = f"--mode belongs to --sampler gibbs, got --sampler {sampler or 'exact'}"
            raise click.UsageError(msg)
        options = {k: v for k, v in (("mode", mode), ("draws", draws)) if v is not None}
        config = _of_options(scenario, release, sampler or "exact", options, seed, out)
        declared = scenario_with(scenario, assumptions)
    if config.out is not None and not config.out.parent.is_dir():
        msg = f"{config.out}: the folder {config.out.parent} does not exist: make it first"
        raise FileFormatError(msg, config.out)
    if dry_run:
        _print_plan(plan(config, declared), as_json)
        return
    _print_answer(answer(config, declared), as_json)


def _of_file(path: str, seed: int | None, out: str | None) -> StudyConfig:
    from dataclasses import replace
    from pathlib import Path

    from adversary.config import read_config

    config = read_config(path)
    if seed is not None:
        config = replace(config, seed=seed)
    if out:
        config = replace(config, out=Path(out))
    return config


def _of_options(
    scenario: str, release: str, sampler: str, options: dict[str, Any], seed: int | None, out: str | None
) -> StudyConfig:
    from pathlib import Path

    from adversary.config import StudyConfig
    from adversary.release.measurement import Release

    return StudyConfig(
        path=Path(release),
        scenario=scenario,
        release=Release.read(release),
        sampler=sampler,
        options=options,
        seed=seed,
        out=Path(out) if out else None,
    )


def _print_answer(result: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result.summary(), ensure_ascii=False))
    else:
        lines = [repr(result), "  with " + ", ".join(f"{k} = {v}" for k, v in result.assumptions.items())]
        if result.is_event:
            lines.append(f"  risk R' = posterior / prior = {result.risk.value:.6g}")
        lines += [
            f"  {'ok  ' if c.passed else '--  ' if c.passed is None else 'FAIL'} {c.text}"
            for c in result.checks
        ]
        click.echo("\n".join(lines))
    if any(c.passed is False for c in result.checks):
        sys.exit(1)


def _print_plan(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    lines = [f"{found['scenario']}: {found['question']}", f"  target      {found['target']}"]
    lines += [f"  assumes     {k} = {v}" for k, v in found["assumptions"].items()]
    for m in found["measurements"]:
        noise = ", ".join(f"{s:.6g}" for s in m["sigma2"])
        many = f", {m['values']} values" if m["values"] > 1 else ""
        summed = f", sum of {m['groups']}" if m["groups"] > 1 else ""
        told = f", {m['convention']}" if m["convention"] else ""
        lines.append(
            f"  {'sees        ' if m['used'] else 'not used    '}{m['name']}: sigma2 {noise}{summed}{many}{told}"
        )
    lines += [f"  no number   {name}" for name in found["not_measured"]]
    unknowns = ", ".join(k if n == 1 else f"{k} ({n} values)" for k, n in found["unknowns"].items())
    options = ", ".join(f"{k} = {v}" for k, v in found["options"].items())
    lines += [
        f"  unknown     {unknowns}",
        f"  sampler     {found['sampler']} ({options}), seed {'fresh, recorded' if found['seed'] is None else found['seed']}",
        f"  draws kept  {found['draws_bytes'] / 1e6:.3g} MB",
        f"  result      {found['out'] or 'printed, not saved'}",
        "nothing was sampled",
    ]
    click.echo("\n".join(lines))
