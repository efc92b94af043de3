"""Tables of the risk under several spines: one row a block, a file to join to a map, and a summary in words.

GEOIDs are text. A program that reads these files must be told so (``dtype=str`` for the column GEOID20), or Alabama to
Connecticut lose a zero and match nothing. A map's file has one row a block and joins to the Bureau's block geometry (TIGER/Line
``tabblock20``) by ``GEOID20``; it holds no geometry itself.

What this module is not: a figure (:mod:`adversary.plots.spines`).

Held to account by ``tests/test_spine_risk.py``.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import whole
from adversary.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from adversary.spine_risk.unique import SpineRisk

__all__ = ["difference_lines", "summary_lines", "write_blocks", "write_map"]

_MAPPED = ("posterior", "risk", "right_even", "moved_right_mean", "moved_right_most")


def _written(column: NDArray[Any]) -> list[str]:
    """Text of a column; blank where there is no number (not measured, no other block)."""
    if column.dtype.kind != "f":
        return [str(v) for v in column.tolist()]
    values, where = np.unique(column, return_inverse=True)  # few kinds of block, so few numbers
    text = np.array([repr(v) if np.isfinite(v) else "" for v in values.tolist()], dtype=object)
    out: list[str] = text[where.ravel()].tolist() if text.size else []
    return out


def write_blocks(path: str | Path, risks: Sequence[SpineRisk]) -> int:
    """Write one row a block and spine.

    Parameters
    ----------
    path
        CSV file.
    risks
        What :func:`adversary.spine_risk.spine_risk` returned, one a spine. Levels that a spine lacks are blank.

    Returns
    -------
    int
        Number of rows.
    """
    tables = [risk.columns() for risk in risks]
    names = list(dict.fromkeys(name for table in tables for name in table))
    first = [n for n in names if not n.startswith("sigma2_")][:3]
    noise = [n for n in names if n.startswith("sigma2_")]
    names = [*first, *noise, *(n for n in names if n not in first and n not in noise)]
    count = 0
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(names)
        for table, risk in zip(tables, risks, strict=True):
            blank = [""] * len(risk)
            rows.writerows(zip(*(_written(table[n]) if n in table else blank for n in names), strict=True))
            count += len(risk)
    return count


def write_map(path: str | Path, risks: Sequence[SpineRisk]) -> int:
    """Write one row a block with the numbers of all spines side by side, to join to a map by ``GEOID20``.

    Parameters
    ----------
    path
        CSV file. ``GEOID20`` is text; the others are ``<number>_<spine>``.
    risks
        One a spine, of the same blocks.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    ModelError
        If the spines do not have the same blocks.
    """
    orders = [np.argsort(risk.geoid) for risk in risks]
    geoid = risks[0].geoid[orders[0]]
    columns: dict[str, list[str]] = {"GEOID20": geoid.tolist()}
    for risk, order in zip(risks, orders, strict=True):
        if not np.array_equal(risk.geoid[order], geoid):
            msg = f"spines {risks[0].name!r} and {risk.name!r} have different blocks: compare spines of the same table"
            raise ModelError(msg, risk.name)
        table = risk.columns()
        columns |= {f"{name}_{risk.name}": _written(table[name][order]) for name in _MAPPED}
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return len(geoid)


def summary_lines(risks: Sequence[SpineRisk]) -> list[str]:
    """Return a table with one row a spine, and what its columns are.

    Parameters
    ----------
    risks
        Risks to be summed up.
    """
    head = f"{'spine':<16}{'kinds':>7}{'posterior':>12}{'R':>10}{'largest R':>11}{'right':>10}{'located':>10}{'best':>9}"
    out = [head]
    for risk in risks:
        s = risk.summary()
        none = s["moved_right"] is None
        located = "" if none else f"{s['moved_right']:>10.4f}{s['moved_right_best']:>9.4f}"
        out.append(
            f"{s['spine']:<16}{s['kinds']:>7,}{s['posterior']:>12.5f}{s['risk']:>10.5f}{s['risk_most']:>11.4f}"
            f"{s['right_even']:>10.5f}{located}"
        )
    p = risks[0].person
    out += [
        f"a person alone in her cell of query {p.query!r}, prior {p.prior:g}; means over blocks",
        "posterior, R: averaged over releases when she is present; right: best decision, prior 1/2",
        "located: P[right] of somebody who knows everybody else, all queries, about which of two blocks of the same tabulation",
        "  block group she lives in (Gaussian, prior 1/2), mean over pairs; best: the pair of each block that is told apart best",
        f"method: {risks[0].method}",
    ]
    errors = [r.summary() for r in risks if r.posterior_mcse.any()]
    out += [
        f"Monte Carlo standard errors, {e['spine']}: posterior {e['posterior_mcse']:.2g}, right {e['right_even_mcse']:.2g}"
        for e in errors
    ]
    return out


def difference_lines(base: SpineRisk, other: SpineRisk) -> list[str]:
    """Say for how many blocks another spine (``other``) raises or lowers the risk, against a base.

    Raises
    ------
    ModelError
        If the spines do not have the same blocks.
    """
    a, b = np.argsort(base.geoid), np.argsort(other.geoid)
    if not np.array_equal(base.geoid[a], other.geoid[b]):
        msg = (
            f"spines {base.name!r} and {other.name!r} have different blocks: compare spines of the same table"
        )
        raise ModelError(msg, other.name)
    change = other.right_even[b] - base.right_even[a]
    located = other.moved_right[b] - base.moved_right[a]
    up, down = int((change > 1e-6).sum()), int((change < -1e-6).sum())
    lines = [
        f"{other.name} against {base.name}: presence is easier to tell in {up:,} blocks, harder in {down:,}, "
        f"by {change.mean():+.5f} on average ({change.min():+.5f} to {change.max():+.5f})"
    ]
    if np.isfinite(located).any():
        lines.append(
            f"  her block within the tabulation block group: by {np.nanmean(located):+.4f} on average"
        )
    return lines
