"""``adversary report``: one HTML page from saved answers, for a disclosure review board.

Nothing here computes. Held to account by ``tests/test_cli_report.py``.
"""

from __future__ import annotations

import json

import click

from adversary.cli import json_option, wanted_ending

__all__ = ["report"]


@click.command("report")
@click.argument("results", nargs=-1, required=True, type=click.Path(), metavar="RESULT...")
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="The page to write (.html).")
@click.option(
    "--threshold",
    type=float,
    default=1.5,
    show_default=True,
    help="R' above which a target of a table is listed.",
)
@click.option(
    "--release",
    "current",
    type=click.Path(allow_dash=True),
    default=None,
    help="What is published now: results of another release are refused as stale.",
)
@click.option("--title", default=None, help="Heading of the page.")
@json_option
def report(
    results: tuple[str, ...],
    out: str,
    threshold: float,
    current: str | None,
    title: str | None,
    as_json: bool,
) -> None:
    """Write one page about saved RESULTs that needs no network and prints well.

    RESULT is a result of `adversary run` (.nc), a study (its folder or result.nc), a table of `adversary assess` (.csv) or a
    folder of `adversary batch`. Every number comes from these files; an edited one is refused.
    """
    wanted_ending(out, "a report", ".html", ".htm")
    from adversary.release.measurement import Release
    from adversary.report import read_inputs, write_report

    inputs = read_inputs(results, release=Release.read(current) if current else None)
    write_report(inputs, out, title=title, threshold=threshold)
    found = {
        "out": out,
        "results": [a.name for a in inputs.answers],
        "studies": [s.name for s in inputs.studies],
        "tables": [t.name for t in inputs.tables],
    }
    parts = [
        f"{len(v)} {k if len(v) != 1 else k.rstrip('s').replace('studie', 'study')}"
        for k, v in found.items()
        if k != "out" and v
    ]
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else f"{out}: {', '.join(parts)}")
