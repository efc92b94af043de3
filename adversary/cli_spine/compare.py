"""``adversary spine compare``: three spines of the same blocks and budget. Nothing here computes.

Held to account by ``tests/test_cli_spine.py``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adversary.cli_spine._options import PERSONS, emit, fill_option, json_option, spread, state_option
from adversary.errors import BudgetError

if TYPE_CHECKING:
    from adversary.geography.blocks import BlockTable
    from adversary.privacy.budget import Allocation
    from adversary.spine_risk import UniquePerson

__all__ = ["compare"]


def _others(text: str) -> Any:
    """Read ``any`` or ``poisson:0.3``, ``geometric:0.2``."""
    from adversary.samplers.leaf_prior import LeafPrior

    if text == "any":
        return None
    name, _, value = text.partition(":")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if name not in ("poisson", "geometric") or math.isnan(number):
        msg = f"--others is any, poisson:MEAN or geometric:RATIO, got {text!r}: for example poisson:0.3"
        raise BudgetError(msg, text)
    return LeafPrior.poisson(number) if name == "poisson" else LeafPrior.geometric(number)


@click.command("compare")
@click.argument("source", type=click.Path())
@click.option("--allocation", default=PERSONS, show_default=True, help="Published split of the budget.")
@click.option(
    "--query", default="detailed", show_default=True, help="Query whose counts of her cell are attacked."
)
@click.option("--prior", default="1/10", show_default=True, help="Prior probability of presence: 0.5, 1/864.")
@click.option(
    "--others",
    default="any",
    show_default=True,
    help="Count of the cell in each other block, as she believes: any whole number, or poisson:MEAN, geometric:RATIO (drawn).",
)
@click.option("--draws", type=click.IntRange(min=2), default=10, show_default=True, help="With --others.")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="With --others: seed of the draws.")
@state_option
@fill_option
@click.option("--out", default=None, type=click.Path(file_okay=False), help="Folder for tables and figures.")
@json_option
def compare(
    source: str,
    allocation: str,
    query: str,
    prior: str,
    others: str,
    draws: int,
    seed: int | None,
    state: str | None,
    fill_zeros: bool,
    out: str | None,
    as_json: bool,
) -> None:
    """Hold the conventional, the AIAN and the optimised spine of the same blocks and budget against each other.

    Accuracy: standard deviations of the least-squares totals of counties, tracts, places, ..., state totals known. Risk: a person
    alone in her cell of her block, in every block. With --out: accuracy.csv, distances.csv, risk_by_block.csv, risk_map.csv (one
    row a GEOID20, to join to a map) and three figures.
    """
    from adversary.privacy.budget import Allocation
    from adversary.readers.block_csv import read_blocks
    from adversary.spine_risk import difference_lines, summary_lines

    split, person = Allocation.load(allocation), _person(query, prior, others, draws, seed)
    _of_persons(split, allocation)
    blocks = read_blocks(source, state=state, fill_zeros=fill_zeros)
    accuracy, distances, risks = _compared(blocks, split, person)
    lines = ["standard deviation of totals: mean (largest); state totals are published as they are"]
    lines += [*accuracy.lines(), "", "off-spine entity distance: mean (largest)"]
    for kind, found in distances.items():
        spreads = [spread(list(d.values())) for d in found.values()]
        cells = "".join(f"{s['mean']:>16.2f} ({s['largest']})" for s in spreads)
        lines.append(f"{kind:<24}{spreads[0]['entities']:>8,}{cells}")
    lines += ["", *summary_lines(risks), *difference_lines(risks[0], risks[2])]
    files = _write_comparison(Path(out), accuracy, risks, distances) if out else []
    data = {
        "allocation": allocation,
        "blocks": len(blocks),
        "accuracy": [vars(r) for r in accuracy.rows],
        "distances": {k: {n: spread(list(d.values())) for n, d in v.items()} for k, v in distances.items()},
        "risk": [r.summary() for r in risks],
        "others": others,
        "seed": person.seed,
        "files": files,
    }
    lines += [f"seed: {person.seed}"] if person.seed is not None else []
    lines += [f"written: {', '.join(files)}"] if files else []
    emit(as_json, data, lines)


def _person(query: str, prior: str, others: str, draws: int, seed: int | None) -> UniquePerson:
    from adversary.spine_risk import UniquePerson

    believed, p = _others(others), _probability(prior)
    if believed is not None:
        return UniquePerson(query, p, believed, draws, 0 if seed is None else seed)
    if seed is not None:
        msg = f"--seed belongs to --others poisson:MEAN or geometric:RATIO, got --seed {seed}: nothing is drawn otherwise"
        raise BudgetError(msg, seed)
    return UniquePerson(query, p)


def _of_persons(split: Allocation, name: str) -> None:
    """Refuse an allocation whose spine or whose totals leave nothing to compare."""
    if "prim" in split.levels:
        msg = f"{name} is of a spine with primitive geography, which no other spine has the levels of: take a PL 94-171 one"
        raise BudgetError(msg, name)
    if "units" in name.lower():
        msg = f"{name} is of housing units, whose number is published as it is in every block: take one of persons"
        raise BudgetError(msg, name)


def _compared(blocks: BlockTable, split: Allocation, person: UniquePerson) -> tuple[Any, dict[str, Any], Any]:
    """Accuracy, distances and risks under the three spines, from the library."""
    from adversary.geography.accuracy import (
        area_codes,
        compare_accuracy,
        rows_of_leaves,
        with_state_totals,
    )
    from adversary.geography.das import aian_spine, conventional_spine, optimized_spine
    from adversary.geography.off_spine import entity_distances
    from adversary.geography.plans import level_shares, query_shares, strategies_of
    from adversary.spine_risk import spine_risk

    shares = level_shares(split)
    builders = {"conventional": conventional_spine, "AIAN": aian_spine, "optimised": optimized_spine}
    spines = {name: build(blocks, shares) for name, build in builders.items()}  # type: ignore[operator]
    accuracy = compare_accuracy(
        {name: with_state_totals(s) for name, s in spines.items()},
        blocks,
        lambda s: strategies_of(s, split),
        split.total,
        exact=lambda s: s.units("State_Total"),
    )
    distances = {
        kind: {
            n: entity_distances(s, area_codes(blocks, kind)[rows_of_leaves(s, blocks)])
            for n, s in spines.items()
        }
        for kind in ("place", "county subdivision", "AIAN area")
    }
    risks = [spine_risk(s, query_shares(s, split), split.total, person, n) for n, s in spines.items()]
    return accuracy, {k: found for k, found in distances.items() if next(iter(found.values()))}, risks


def _probability(text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        msg = f"--prior must be a number such as 0.5 or 1/864, got {text!r}"
        raise BudgetError(msg, text) from None


def _write_comparison(folder: Path, accuracy: Any, risks: Any, distances: dict[str, Any]) -> list[str]:
    from adversary._files import make_folder, whole
    from adversary.geography.accuracy import write_distances
    from adversary.plots.spines import plot_entity_distances, plot_spine_accuracy, plot_spine_risk
    from adversary.spine_risk import write_blocks, write_map

    make_folder(folder)
    accuracy.to_csv(folder / "accuracy.csv")
    write_blocks(folder / "risk_by_block.csv", risks)
    write_map(folder / "risk_map.csv", risks)
    figures = {"accuracy.png": plot_spine_accuracy(accuracy), "risk.png": plot_spine_risk(risks)}
    if distances:
        write_distances(folder / "distances.csv", distances)
        kind = "county subdivision" if "county subdivision" in distances else next(iter(distances))
        first, *_, last = distances[kind]
        figures["distances.png"] = plot_entity_distances(
            distances[kind][first], distances[kind][last], labels=(first, last), what=kind
        )
    for name, ax in figures.items():
        with whole(folder / name) as draft:
            ax.figure.savefig(draft, dpi=150, format="png")
    tables = ["accuracy.csv", "risk_by_block.csv", "risk_map.csv", *(["distances.csv"] if distances else [])]
    return sorted(str(folder / name) for name in (*tables, *figures))
