"""``adversary spine simulate``: noisy measurement files of people who are known or made up. Nothing here computes.

Held to account by ``tests/test_cli_spine.py``.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from adversary.cli_spine._options import allocation_of, allocation_option, emit, json_option

__all__ = ["simulate"]


@click.command("simulate")
@click.argument("file", type=click.Path())
@click.option(
    "--out", type=click.Path(file_okay=False), required=True, help="Folder of the files, not there yet."
)
@click.option(
    "--seed", type=click.IntRange(min=0), required=True, help="Of the noise, and of made-up people."
)
@click.option(
    "--ppmf", type=click.Path(), default=None, help="Microdata of persons (PPMF, .csv) to take as the truth."
)
@click.option(
    "--mean",
    type=click.FloatRange(min=0, min_open=True),
    default=43.0,
    show_default=True,
    help="Made-up people in a block that is not empty.",
)
@click.option(
    "--query", "queries", multiple=True, help="Queries to write, several times; all of the mix by default."
)
@allocation_option
@json_option
def simulate(
    file: str,
    out: str,
    seed: int,
    ppmf: str | None,
    mean: float,
    queries: tuple[str, ...],
    allocation: str | None,
    as_json: bool,
) -> None:
    """Draw the noise of every geounit of a spine's FILE and write noisy measurement files.

    The people are made up unless --ppmf says who they are: for trying out an attack, never for a finding. The noise is
    pseudo-random: such a folder protects nobody.
    """
    from adversary.geography.plans import strategies_of
    from adversary.geography.spine import Spine
    from adversary.geography.spine_file import read_about
    from adversary.readers.nmf_write import write_nmf
    from adversary.readers.population import synthetic_counts
    from adversary.readers.ppmf import read_ppmf_persons

    spine, about = Spine.load(file), read_about(file)
    budget = allocation_of(about, allocation)
    bar = sys.stderr.isatty() and not as_json
    if ppmf is not None:
        counts = read_ppmf_persons(ppmf, progressbar=bar)
    else:
        histogram = next(iter(strategies_of(spine, budget).values())).histogram
        counts = synthetic_counts(spine, histogram, seed=seed, mean=mean)
    done = write_nmf(
        out, spine, counts, budget, about.get("rho"), seed=seed, queries=queries or None, progressbar=bar
    )
    who = f"people of {ppmf}" if ppmf else "made-up people"
    data: dict[str, Any] = {
        "folder": str(done.folder),
        "people": int(counts.count.sum()),
        "truth": ppmf or "synthetic",
        "rows": done.rows,
        "numbers": done.numbers,
        "seed": seed,
        "notes": list(done.notes),
    }
    lines = [
        f"{data['people']:,} {who}; {done.numbers:,} noisy numbers written to {done.folder}",
        *done.notes,
    ]
    emit(as_json, data, lines)
