"""The command line of noisy measurement files: ``adversary assess nmf``.

Nothing here computes, and nothing draws. The group ``assess`` in :mod:`adversary.cli` finds the command by name.

Held to account by ``tests/test_cli_nmf.py``.
"""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from typing import Any

import click

from adversary.errors import ReleaseError

__all__ = ["assess_nmf"]


def _probability(text: str) -> float:
    """Read 0.5 or 1/864."""
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError):
        msg = f"--prior must be a number such as 0.5 or 1/864, got {text!r}"
        raise ReleaseError(msg, text) from None


def _cells(text: str) -> Any:
    """Read ``all``, or numbers and ranges: ``0,3,10-19``."""
    if text == "all":
        return text
    out: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            msg = f"--cells must be all, or numbers and ranges such as 0,3,10-19, got {text!r}"
            raise ReleaseError(msg, text)
        out += range(int(first), int(last or first) + 1)
    return out


@click.command("nmf")
@click.argument("folder", type=click.Path())
@click.option(
    "--out", type=click.Path(file_okay=False), default=None, help="Folder of the parts; run again to go on."
)
@click.option(
    "--query", default="detailed", show_default=True, help="Query whose cells are attacked, one by one."
)
@click.option("--cells", default="all", show_default=True, help="Places in the query's answer: 0,3,10-19.")
@click.option(
    "--targets",
    type=click.Path(dir_okay=False),
    default=None,
    help="Table of targets instead (.csv): geoid or geocode, cell, and known or prior where they differ.",
)
@click.option(
    "--known",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Others known to be in the cell.",
)
@click.option("--prior", default="0.5", show_default=True, help="Prior probability of presence: 0.5, 1/864.")
@click.option(
    "--leaf-prior",
    default="flat",
    show_default=True,
    help="Prior on every other block's count: flat, poisson:MEAN or geometric:RATIO.",
)
@click.option("--states", default=None, help="State parts: 44 for both, 044 for one, several with commas.")
@click.option(
    "--levels", default=None, help="Levels to use, with commas; fewer from the top need less memory."
)
@click.option(
    "--allocation", default=None, help="The release's budget (2020-pl94-persons): sigma2 is then exact."
)
@click.option(
    "--threshold", type=float, default=1.5, show_default=True, help="R' above which a target is a finding."
)
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--dry-run", is_flag=True, help="Measure one cell, say time and memory, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def assess_nmf(
    folder: str,
    out: str | None,
    query: str,
    cells: str,
    targets: str | None,
    known: int,
    prior: str,
    leaf_prior: str,
    states: str | None,
    levels: str | None,
    allocation: str | None,
    threshold: float,
    processes: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Attack every block in every chosen cell of a FOLDER of noisy measurement files.

    For each target, the exact posterior from all noisy counts of her cell at every level of her state's tree, other blocks'
    included. Other queries of the release bear on her too; they are named and not used. The answers go to --out as Parquet, in
    parts; a run that was interrupted goes on where it stopped. Exit 1 where a target's risk exceeds the threshold.
    """
    if out is None and not dry_run:
        msg = "--out is missing: name the folder of the parts, or ask for --dry-run"
        raise click.UsageError(msg)
    from adversary.batches.nmf import assess_nmf as assess
    from adversary.readers.nmf import NoisyMeasurements

    found = assess(
        NoisyMeasurements.open(folder, allocation),
        out,
        query=query,
        cells=_cells(cells),
        targets=targets,
        known=known,
        prior=_probability(prior),
        leaf_prior=leaf_prior,
        states=states.split(",") if states else None,
        levels=levels.split(",") if levels else None,
        threshold=threshold,
        workers=processes,
        dry_run=dry_run,
        progressbar=sys.stderr.isatty() and not as_json,
    )
    click.echo(json.dumps(found.summary(), ensure_ascii=False) if as_json else "\n".join(found.lines()))
    if found.found and found.found["above_threshold"]:
        sys.exit(1)
