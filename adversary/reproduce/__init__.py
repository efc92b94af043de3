"""The first paper, side by side: its tables 2, 4, 5, 7, 8 and figures 1 to 7, recomputed as sums.

What it is: a job on top of everything, next to the demonstration; needs no PyMC and draws nothing. What it is not: a claim
about the authors' code, which is not public.

Held to account by ``tests/test_reproduce.py``.

Source: Kazan & Reiter (arXiv 2204.04253).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adversary._files import make_folder, whole
from adversary.reproduce.claims import Claim, Printed, compare_all, printed_values
from adversary.reproduce.tables import FIGURES, TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from adversary.reproduce.tables import Columns

__all__ = [
    "FIGURES",
    "TABLES",
    "Claim",
    "Printed",
    "Reproduction",
    "compare_all",
    "printed_values",
    "reproduce",
]


@dataclass(frozen=True)
class Reproduction:
    """What was compared and written.

    Parameters
    ----------
    claims
        Every printed value with what we find.
    files
        What was written; empty without a folder.
    """

    claims: tuple[Claim, ...]
    files: tuple[Path, ...]

    def lines(self) -> list[str]:
        """Return a table for a terminal, and a sentence."""
        rows = [c.row() for c in self.claims]
        wide = {k: max(len(k), *(len(r[k]) for r in rows)) for k in ("place", "printed", "model", "literal")}
        head = "  ".join(k.ljust(n) for k, n in wide.items())
        out = [f"{head}  verdict", "-" * (len(head) + 9)]
        for r in rows:
            out.append("  ".join(r[k].ljust(n) for k, n in wide.items()) + f"  {r['verdict']}")
            out.append(f"    {r['statement']}{'; ' + r['note'] if r['note'] else ''}")
        counts: dict[str, int] = {}
        for c in self.claims:
            counts[c.verdict] = counts.get(c.verdict, 0) + 1
        out += ["", *(f"{n:>3}  {verdict}" for verdict, n in counts.items())]
        return out + [f"written: {f}" for f in self.files]


def reproduce(out: str | Path | None = None, *, progressbar: bool = False) -> Reproduction:
    """Compare every printed value, and write tables and figures into a folder.

    Parameters
    ----------
    out
        Folder for ``comparison.csv``, one CSV behind each table and figure, and the figures; nothing is written without one.
    progressbar
        Show the figures go by.

    Returns
    -------
    Reproduction
        Every claim with its verdict, and the files written.

    Examples
    --------
    >>> found = reproduce()
    >>> [c.verdict for c in found.claims if c.printed.id == "t8_x2"]
    ['not by the stated model; the literal sampler gives it']
    """
    claims = tuple(compare_all())
    if out is None:
        return Reproduction(claims, ())
    folder = make_folder(out)
    rows = [c.row() for c in claims]
    written = [_write(folder / "comparison.csv", {k: [r[k] for r in rows] for k in rows[0]})]
    written += [_write(folder / f"{name}.csv", make()) for name, make in TABLES.items()]
    from adversary.plots.paper import draw

    jobs: Any = FIGURES.items()
    if progressbar:
        from tqdm import tqdm

        jobs = tqdm(jobs, total=len(FIGURES), unit="figure")
    for name, make in jobs:
        columns = make()
        written.append(_write(folder / f"{name}.csv", columns))
        draw(name, columns, folder / f"{name}.png")
        written.append(folder / f"{name}.png")
    return Reproduction(claims, tuple(written))


def _write(path: Path, columns: Columns) -> Path:
    with whole(path) as draft, draft.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
