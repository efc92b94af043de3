"""Options and tables that the commands of :mod:`adversary.cli_spine` share. Internal.

Held to account by ``tests/test_cli_spine.py``.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import click

from adversary.errors import BudgetError

__all__ = [
    "PERSONS",
    "allocation_of",
    "allocation_option",
    "emit",
    "fill_option",
    "finite",
    "json_option",
    "level_lines",
    "level_rows",
    "spread",
    "state_option",
]

PERSONS = "2020-pl94-persons"

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
state_option = click.option("--state", default=None, help="Two-digit FIPS, to keep one state of several.")
fill_option = click.option(
    "--fill-zeros", is_flag=True, help="CSV: fill block codes that lost leading zeros, and say how many."
)
allocation_option = click.option(
    "--allocation", default=None, help="Published split of the budget, for example 2020-pl94-persons."
)


def emit(as_json: bool, data: dict[str, Any], lines: list[str]) -> None:
    click.echo(json.dumps(data, ensure_ascii=False) if as_json else "\n".join(lines))


def finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def level_rows(spine: Any, rho: str | None) -> list[dict[str, Any]]:
    rows = spine.table(rho=Fraction(rho)) if rho else spine.table()
    return [
        {
            k: (
                str(v)
                if isinstance(v, Fraction) and k != "sigma2"
                else float(v)
                if k == "sigma2" and v
                else v
            )
            for k, v in r.items()
        }
        for r in rows
    ]


def level_lines(rows: list[dict[str, Any]]) -> list[str]:
    head = f"{'level':<20}{'units':>10}{'measured':>10}{'leaves':>10}"
    head += f"{'sigma2':>12}" if "sigma2" in rows[0] else ""
    lines = [head + "  share of rho"]
    for r in rows:
        least, most = r["least_share"], r["greatest_share"]
        noise = "" if "sigma2" not in r else f"{r['sigma2']:>12.4f}" if r["sigma2"] else f"{'':>12}"
        share = most if least == most else f"{least} to {most}"
        lines.append(
            f"{r['level']:<20}{r['units']:>10,}{r['measured']:>10,}{r['leaves']:>10,}{noise}  {share}"
        )
    if "sigma2" in rows[0]:
        lines.append(
            "sigma2: of a query that has a unit's whole budget, at the greatest share; a fraction alpha of it has sigma2 / alpha"
        )
    return lines


def spread(distances: list[int]) -> dict[str, Any]:
    ordered = sorted(distances)
    n = len(ordered)
    if not n:
        return {"entities": 0, "mean": None, "median": None, "largest": None}
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return {"entities": n, "mean": sum(ordered) / n, "median": middle, "largest": ordered[-1]}


def allocation_of(about: dict[str, Any], name: str | None) -> Any:
    from adversary.privacy.budget import Allocation

    chosen = name or about.get("allocation")
    if not chosen:
        msg = "the spine's file names no allocation, so the queries of its levels are unknown: give --allocation"
        raise BudgetError(msg, about.get("kind"))
    return Allocation.load(chosen)
