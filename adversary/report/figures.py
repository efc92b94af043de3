"""Figures of the report as inline SVG, each with its content in words for those who cannot see it.

What it is: the package's own plots, drawn into text. What it is not: a new plot. Every number that a figure shows stands in a
table of the page too.

Held to account by ``tests/test_report.py``.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.plots import plot_count_posterior, plot_prior_posterior, plot_risks, plot_sensitivity

if TYPE_CHECKING:
    import xarray as xr

    from adversary.report.inputs import Table
    from adversary.results import AttackResult

__all__ = ["Figure", "answer_figures", "study_figure", "svg_of", "table_figure"]

_MOST_VALUES = 60  # bars of a pmf that can still be told apart


@dataclass(frozen=True)
class Figure:
    """An SVG element as text, and what it shows in words.

    Parameters
    ----------
    svg
        The element.
    alt
        What it shows, for readers of screens.
    caption
        What stands below it.
    """

    svg: str
    alt: str
    caption: str


def svg_of(ax: Any, name: str, alt: str) -> str:
    """Return the axes' figure as one ``<svg>`` element that needs nothing outside itself.

    Parameters
    ----------
    ax
        What a plot returned.
    name
        Put before every id, so that several figures live in one page.
    alt
        What it shows, for readers of screens.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "adversary", "svg.fonttype": "path"}):
        ax.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid=")', rf"\1{name}-", text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{name}-", text)
    text = text.replace("*{stroke-linejoin", f"#{name} *{{stroke-linejoin")
    from html import escape

    head = f'<svg id="{name}" role="img" aria-label="{escape(alt, quote=True)}"'
    return text.replace("<svg", head, 1).rstrip()


def answer_figures(result: AttackResult, name: str) -> list[Figure]:
    """Draw before and after, and the posterior of each other scalar count.

    Parameters
    ----------
    result
        A saved answer.
    name
        Put before every id.

    Returns
    -------
    list of Figure
        Empty where the target has more values than can be told apart.
    """
    target = str(result.attrs["target"])
    if len(result.support) > _MOST_VALUES:
        return []
    before, after = (np.exp(result.values("answer", f"log_{w}")) for w in ("prior", "posterior"))
    words = "; ".join(
        f"{target} = {v}: {'not defined' if np.isnan(p) else f'{p:.4g}'} before, {q:.4g} after"
        for v, p, q in zip(result.support, before, after, strict=True)
    )
    alt = f"Bars of her probabilities before and after the release. {words}."
    out = [
        Figure(
            svg_of(plot_prior_posterior(result), f"{name}-answer", alt),
            alt,
            "Her probabilities before she looked (grey) and after (blue).",
        )
    ]
    others = [] if "exact" not in result.tree.children else sorted(result.tree["exact"].data_vars)
    for k, other in enumerate(map(str, others[:2])):
        p = result.values("exact", other)
        if not p.size or not np.isfinite(p).all():
            continue
        support = result.values("exact", f"{other}_value")
        top = int(support[int(np.argmax(p))])
        alt = f"Bars of the posterior of {other}: most probable {top} with {p.max():.4g}, mean {float(p @ support):.4g}."
        out.append(
            Figure(
                svg_of(plot_count_posterior(result, other), f"{name}-count{k}", alt),
                alt,
                f"What she comes to believe about {other}, which she does not know either.",
            )
        )
    return out


def study_figure(data: xr.Dataset, name: str) -> Figure | None:
    """Draw a study of one or two dimensions.

    Parameters
    ----------
    data
        A saved study.
    name
        Put before every id.

    Returns
    -------
    Figure or None
        None where it has more dimensions, or is about a target with many values.
    """
    if (
        "target" in data["posterior"].dims
        or not 1 <= data["posterior"].ndim <= 2
        or data["posterior"].size < 2
    ):
        return None
    posterior = data["posterior"]
    over = " and ".join(map(str, posterior.dims))
    alt = f"Posterior against {over}: from {float(posterior.min()):.4g} to {float(posterior.max()):.4g}."
    return Figure(svg_of(plot_sensitivity(data), name, alt), alt, f"How the posterior moves with {over}.")


def table_figure(table: Table, threshold: float, name: str) -> Figure | None:
    """Draw the risk against the noisy count of each target's cell.

    Parameters
    ----------
    table
        A table of targets.
    threshold
        R' above which a target is listed.
    name
        Put before every id.

    Returns
    -------
    Figure or None
        None where the table has no noisy counts.
    """
    noisy = next((c for c in table.columns if c.startswith("noisy_")), None)
    if noisy is None or not len(table) or not np.isfinite(table.columns["risk"]).all():
        return None
    counts = table.columns[noisy]
    if not np.array_equal(counts, np.rint(counts)):
        return None
    risk = table.columns["risk"]
    alt = (
        f"Bars: how many of {len(table)} targets have which {noisy}, {counts.min():.0f} to {counts.max():.0f}. Points: their "
        f"risk, from {risk.min():.4g} to {risk.max():.4g}; threshold {threshold:g}."
    )
    ax = plot_risks(risk, counts.astype(np.int64), threshold=threshold, label=noisy)
    ax.set_title(f"risk of {len(table)} targets", loc="left", fontsize="medium")
    return Figure(svg_of(ax, name, alt), alt, "Targets by their noisy count (bars) and their risk (points).")
