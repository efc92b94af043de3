"""The demonstration behind ``make demo``: the main job on an embedded synthetic state, and the paper's example three ways.

What it is not: a result. The people are synthetic (see ``data/demo_pl94/README.md``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adversary._files import make_folder, whole
from adversary.assess import assess_pl94
from adversary.readers.pl94 import demo_folder
from adversary.release.measurement import Release

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["PAPER_RELEASE", "demo_blocks", "run_demo"]

SEED = 1

PAPER_RELEASE = Release.from_counts(
    {"block": 2, "block_group": 1, "rest": -1},
    # 2.56 x level share x query share of Table 2, exact
    rho={"block": "1666368/16793603", "block_group": "103534592/420045025", "rest": "1666368/16793603"},
    groups={"rest": 27},
)
"""D = (2, 1, -1) of Kazan & Reiter, Table 7: one block, its group, and the sum of the 27 others."""


def demo_blocks() -> list[str]:
    """Return a table of 216 made-up blocks of state 03 (unused) as lines of CSV, for ``adversary spine``.

    Two counties of three tracts; places cross block groups, one AIAN area crosses a tract. Nobody lives there.
    """
    lines = ["GEOID20,AIANNHCE,COUSUBFP,PLACEFP"]
    for n in range(216):
        county, tract, group, block = 1 + n // 108, 1 + n // 36 % 3, 1 + n // 12 % 3, n % 12
        place = ("", "07000", "35896")[n // 7 % 3]
        aian = "0010" if 30 <= n < 44 else ""
        lines.append(
            f"03{county:03d}{tract:04d}00{group}{group}{block:02d},{aian},{90000 + n // 54:05d},{place}"
        )
    return lines


def run_demo(out: Path) -> Iterator[str]:
    """Yield the demonstration's lines while it runs; write a table and two figures into a folder.

    Parameters
    ----------
    out
        Folder, made if missing.

    Yields
    ------
    str
        One line of text.
    """
    make_folder(out)
    yield "1. Who is at risk in this state? (synthetic people, one drawn release, every posterior exact)"
    result = assess_pl94(
        demo_folder(), allocation="2020-pl94-persons", convention="bounded", prior=0.5, seed=SEED
    )
    yield from (f"   {line}" for line in result.summary_lines())
    table = result.to_csv(out / "risk.csv")

    from adversary.plots import plot_risks

    ax = plot_risks(
        result.columns["risk"], result.columns["noisy_block"], threshold=result.assumptions["risk_threshold"]
    )
    figure = out / "risk.png"
    with whole(figure) as draft:
        ax.figure.savefig(draft, dpi=150, format="png")
    yield f"   written: {table} and {figure}"
    yield ""
    yield "2. The paper's example D = (2, 1, -1): is she in the block? Three samplers side by side"

    from adversary.diagnostics import compare
    from adversary.discover import load

    two_level = load("two_level")
    comparison = compare(two_level, PAPER_RELEASE, seed=SEED)
    yield from (f"   {line}" for line in comparison.lines())
    yield "   The paper prints 'slightly below 57.4%': its sampler ignores X1 <= X2 in one step, and belongs to no posterior:"
    literal = compare(
        two_level, PAPER_RELEASE, ("exact", "gibbs"), seed=SEED, draws=10_000, mode="literal"
    ).results["gibbs"]
    yield f"   sampler 'gibbs', mode 'literal': {literal.posterior:.4f} (stationary law 0.5777; the stated model 0.5033)"

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from adversary.plots import plot_agreement, plot_count_posterior, plot_prior_posterior

    page = Figure(figsize=(11, 3.4), layout="constrained")
    FigureCanvasAgg(page)
    left, middle, right = page.subplots(1, 3)
    plot_prior_posterior(comparison.results["exact"], left)
    plot_count_posterior(comparison.results["exact"], "elsewhere", middle)
    plot_agreement(comparison, right)
    figure = out / "paper_example.png"
    with whole(figure) as draft:
        page.savefig(draft, dpi=150, format="png")
    yield f"   written: {figure}"
    yield ""
    blocks = out / "blocks.csv"
    with whole(blocks) as draft:
        draft.write_text("\n".join(demo_blocks()) + "\n", encoding="utf-8")
    yield f"3. A table of made-up blocks to build spines from: {blocks}"
    yield ""
    yield "Next: adversary list; adversary show two_level; README.md, 'Declare your own'."
