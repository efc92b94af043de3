"""``adversary spine show | osed | privacy``: what is in a spine's file. Nothing here computes.

Held to account by ``tests/test_cli_spine.py``.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from adversary.cli_spine._options import (
    allocation_of,
    allocation_option,
    emit,
    fill_option,
    finite,
    json_option,
    level_lines,
    level_rows,
    spread,
    state_option,
)
from adversary.errors import BudgetError

__all__ = ["osed", "privacy", "show"]

_ENTITIES = {
    "place": "place",
    "cousub": "county subdivision",
    "aian": "AIAN area",
    "block-group": "tabulation block group",
}


@click.command("show")
@click.argument("file", type=click.Path())
@click.argument("unit", required=False)
@click.option("--level", default=None, help="Level of UNIT, where a code names several.")
@click.option("--query", default=None, help="Also the noise of this query, with its level's mix.")
@json_option
def show(file: str, unit: str | None, level: str | None, query: str | None, as_json: bool) -> None:
    """Show the levels of a spine, or the path of one UNIT (a geocode, a GEOID of a block)."""
    from adversary.geography.spine import Spine
    from adversary.geography.spine_file import read_about

    spine, about = Spine.load(file), read_about(file)
    rho = about.get("rho")
    if unit is None:
        rows = level_rows(spine, rho)
        emit(as_json, {"about": about, "units": len(spine), "levels": rows}, level_lines(rows))
        return
    place = spine.index(unit, level)
    noise = None
    if query is not None:
        from adversary.geography.plans import query_noise, query_shares

        allocation = allocation_of(about, None)
        noise = query_noise(spine, query_shares(spine, allocation), allocation.total, query)
    path = []
    for u in spine.path(place):
        share = spine.share(u)
        row: dict[str, Any] = {
            "level": spine.level(u),
            "geocode": str(spine.geocodes[u]),
            "share": str(share),
        }
        row |= {"siblings": int(spine.siblings(u).size), "children": int(spine.children(u).size)}
        if rho:
            row["sigma2"] = float(1 / (Fraction(rho) * share)) if share else None
        if noise is not None:
            row["query_sigma2"] = finite(float(noise[u]))
        path.append(row)
    total = str(spine.path_total(place))
    asked = f"{query[:18]:>20}" if query is not None else ""
    lines = [f"{'level':<20}{'siblings':>9}{'children':>9}{'sigma2':>12}{asked}  share  geocode"]
    for row in path:
        own = f"{row['sigma2']:.4f}" if row.get("sigma2") else "not measured" if rho else ""
        asked = (
            "" if noise is None else f"{row['query_sigma2']:.4f}" if row["query_sigma2"] else "not measured"
        )
        asked = f"{asked:>20}" if noise is not None else ""
        lines.append(
            f"{row['level']:<20}{row['siblings']:>9,}{row['children']:>9,}{own:>12}{asked}  {row['share']}  {row['geocode']}"
        )
    lines.append(f"the path spends {total} of rho")
    emit(as_json, {"unit": str(spine.geocodes[place]), "path": path, "path_total": total}, lines)


# -------------------------------------------------------------------------------------------------------------- osed
@click.command("osed")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--source",
    default=None,
    type=click.Path(),
    help="Blocks with the codes of their entities (see spine --help).",
)
@click.option(
    "--entities",
    type=click.Choice(sorted(_ENTITIES)),
    default="place",
    show_default=True,
    help="With --source.",
)
@click.option(
    "--blocks", default=None, type=click.Path(), help="One set instead: a file with a block code a line."
)
@click.option(
    "--top", default=None, help="Level above which no unit may be used; production stopped at County."
)
@state_option
@fill_option
@click.option("--out", default=None, type=click.Path(dir_okay=False), help="Write all distances (.csv).")
@json_option
def osed(
    files: tuple[str, ...],
    source: str | None,
    entities: str,
    blocks: str | None,
    top: str | None,
    state: str | None,
    fill_zeros: bool,
    out: str | None,
    as_json: bool,
) -> None:
    """Off-spine entity distances under one or more spines (FILES): before and after.

    The distance of a place is the smallest number of geounits that must be added or subtracted to make it.
    """
    from adversary.geography.spine import Spine

    spines = {_stem(f, files): Spine.load(f) for f in files}
    if (source is None) == (blocks is None):
        msg = "give the blocks and their entities (--source) or one set of blocks (--blocks)"
        raise click.UsageError(msg)
    if blocks is not None:
        _one_set(spines, blocks, top, as_json)
        return
    from adversary.geography.accuracy import area_codes, rows_of_leaves, write_distances
    from adversary.geography.off_spine import entity_distances
    from adversary.readers.block_csv import read_blocks

    table = read_blocks(str(source), state=state, fill_zeros=fill_zeros)
    kind = _ENTITIES[entities]
    codes = area_codes(table, kind)
    found = {
        name: entity_distances(spine, codes[rows_of_leaves(spine, table)], top)
        for name, spine in spines.items()
    }
    summary = {name: spread(list(d.values())) for name, d in found.items()}
    if out:
        write_distances(out, {kind: found})
    names = list(found)
    lines = [
        f"{kind}: distances of {summary[names[0]]['entities']} entities",
        f"{'spine':<28}{'mean':>8}{'median':>8}{'largest':>9}",
    ]
    lines += [f"{n:<28}{s['mean']:>8.2f}{s['median']:>8.1f}{s['largest']:>9}" for n, s in summary.items()]
    if len(names) > 1:
        first, last = found[names[0]], found[names[-1]]
        nearer = sum(last[k] < first[k] for k in first)
        further = sum(last[k] > first[k] for k in first)
        lines.append(
            f"from {names[0]} to {names[-1]}: {nearer} nearer, {further} further, {len(first) - nearer - further} as before"
        )
    emit(as_json, {"entities": kind, "top": top, "summary": summary, "distances": found}, lines)


def _stem(file: str, files: tuple[str, ...]) -> str:
    stems = [Path(f).name.removesuffix(".gz").removesuffix(".csv") for f in files]
    mine = Path(file).name.removesuffix(".gz").removesuffix(".csv")
    return mine if stems.count(mine) == 1 else file


def _one_set(spines: dict[str, Any], blocks: str, top: str | None, as_json: bool) -> None:
    from adversary._files import read_text
    from adversary.geography.off_spine import entity_combination

    codes = read_text(blocks).split()
    data: dict[str, Any] = {}
    lines = []
    for name, spine in spines.items():
        weights = entity_combination(spine, codes, top)
        units = [
            {"level": spine.level(u), "geocode": str(spine.geocodes[u]), "sign": w}
            for u, w in weights.items()
        ]
        data[name] = {"distance": len(units), "units": units}
        lines.append(f"{name}: {len(codes):,} blocks are {len(units)} units away")
        lines += [f"  {'+' if u['sign'] > 0 else '-'} {u['level']} {u['geocode']}" for u in units[:20]]
        lines += [f"  and {len(units) - 20} more"] if len(units) > 20 else []
    emit(as_json, data, lines)


# ----------------------------------------------------------------------------------------------------------- privacy
@click.command("privacy")
@click.argument("file", type=click.Path())
@allocation_option
@click.option(
    "--delta", type=float, default=1e-10, show_default=True, help="Probability of failure, in (0, 1]."
)
@json_option
def privacy(file: str, allocation: str | None, delta: float, as_json: bool) -> None:
    """Say what a spine promises: about everything, about an attribute, about where in an area somebody lives.

    On the paths of this very spine, the worst pair of blocks, beside what a certificate made from the table of levels says. All
    under bounded neighbours: one record of a state is replaced by another.
    """
    from adversary.geography.guarantee import promises
    from adversary.geography.spine import Spine
    from adversary.geography.spine_file import read_about

    spine, about = Spine.load(file), read_about(file)
    found = allocation_of(about, allocation) if allocation or about.get("allocation") else None
    rho = about.get("rho") or (str(found.total) if found else None)
    if rho is None:
        msg = "the spine's file names no budget: build it with --allocation or --rho, or give --allocation"
        raise BudgetError(msg, file)
    if not spine.shares.any():
        msg = "no unit of this spine has a share of the budget, so nothing was measured: build it with shares"
        raise BudgetError(msg, file)
    rows = promises(spine, rho, found, delta)
    lines = [
        f"rho = {rho} = {float(Fraction(rho)):.6g}, delta = {delta:g}, bounded neighbours in a state",
        f"{'records that differ in':<48}{'rho':>10}{'epsilon':>10}{'certificate':>13}",
    ]
    for row in rows:
        said = "" if row.certificate_epsilon is None else f"{row.certificate_epsilon:.2f}"
        lines.append(f"{row.what:<48}{float(row.rho):>10.4f}{row.epsilon:>10.2f}{said:>13}")
    looser = [r for r in rows if r.certificate_rho is not None and r.rho > r.certificate_rho]
    lines.append(
        "epsilon: on the paths of this spine, worst pair; certificate: from the table of levels alone"
    )
    lines += [f"{r.what}: this spine promises less than the table of levels says" for r in looser]
    data = {
        "rho": rho,
        "delta": delta,
        "neighbours": "bounded",
        "path_totals": sorted(str(t) for t in spine.path_totals()),
        "promises": [
            {
                "what": r.what,
                "rho": str(r.rho),
                "epsilon": finite(r.epsilon),
                "certificate_rho": None if r.certificate_rho is None else str(r.certificate_rho),
                "certificate_epsilon": r.certificate_epsilon,
            }
            for r in rows
        ],
    }
    emit(as_json, data, lines)
