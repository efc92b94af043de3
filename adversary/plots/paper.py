"""The paper's seven figures, drawn as it draws them, with the stated model beside the literal sampler where they differ.

Each function takes the columns of :mod:`adversary.reproduce.tables` (name -> list) and returns the axes that it drew on. Where
the paper prints a number that belongs in the figure it is marked by a cross; the paper's own curves are not available as
numbers.

Held to account by ``tests/test_reproduce.py``.

Source: Kazan & Reiter (arXiv 2204.04253), figures 1 to 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import whole
from adversary.plots._style import ACCENT, POSTERIOR, PRIOR, SERIES, tidy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["PAPER_FIGURES", "draw"]

_LABELS = {"posterior": "posterior", "risk": "R = averaged posterior / prior"}


def _priors(columns: Mapping[str, Sequence[Any]], key: str) -> list[str]:
    return [c.removeprefix(f"{key}_p_") for c in columns if c.startswith(f"{key}_p_")]


def _curves(ax: Any, x: Any, columns: Mapping[str, Sequence[Any]], key: str, marker: str = "") -> Any:
    for colour, p in zip(SERIES, _priors(columns, key), strict=False):
        ax.plot(x, columns[f"{key}_p_{p}"], marker=marker, ms=3.5, lw=1.2, color=colour, label=f"p = {p}")
    return tidy(ax)


def _pair(page: Any, columns: Mapping[str, Sequence[Any]], x: str, label: str, marker: str = "") -> list[Any]:
    left, right = page.subplots(1, 2)
    for ax, key in ((left, "posterior"), (right, "risk")):
        _curves(ax, columns[x], columns, key, marker)
        ax.set(xlabel=label)
    left.legend(frameon=False, fontsize="small")
    right.axhline(1.0, color=PRIOR, lw=0.8, ls=":")
    return [left, right]


def figure_1(columns: Mapping[str, Sequence[Any]], page: Any) -> list[Any]:
    """Posterior and R' against the noisy count; the cross is the printed 57.4 %."""
    left, right = _pair(page, columns, "x1_star", "noisy count x1*", "o")
    left.set(ylabel="posterior", ylim=(0, 1))
    right.set(ylabel="R' = posterior / prior")
    left.plot([2], [0.574], "x", color=ACCENT, ms=9, mew=2)
    return [left, right]


def figure_2(columns: Mapping[str, Sequence[Any]], page: Any) -> list[Any]:
    """Averaged posterior and R against rho; crosses are the printed 1.05 and 1.21 at the census's rho."""
    left, right = _pair(page, columns, "rho", "rho of the block's count")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.axvline(0.0992264, color=PRIOR, lw=0.8, ls="--")
    left.set(ylabel="averaged posterior", ylim=(0, 1))
    right.set(ylabel=_LABELS["risk"], yscale="log")
    right.plot([0.0992264] * 2, [1.05, 1.21], "x", color=ACCENT, ms=7, mew=2)
    return [left, right]


def figure_3(columns: Mapping[str, Sequence[Any]], page: Any) -> list[Any]:
    """Probability of a right decision against rho; crosses are the printed .5889, .30 and .28."""
    ax = page.subplots()
    _curves(ax, columns["rho"], columns, "right")
    ax.plot([0.0992264, 0.5, 0.6], [0.5889, 0.30, 0.28], "x", color=ACCENT, ms=7, mew=2, label="printed")
    ax.axvline(0.0992264, color=PRIOR, lw=0.8, ls="--")
    ax.set(xlabel="rho of the block's count", ylabel="P[decides present | she is]", ylim=(0, 1))
    ax.legend(frameon=False, fontsize="small")
    return [ax]


def figure_4(columns: Mapping[str, Sequence[Any]], page: Any) -> list[Any]:
    """Tiles on which the second level changes the decision: literal sampler above, stated model below."""
    values = {
        k: np.asarray(columns[k]) for k in ("x1_star", "x2_star", "y1_star", "alone", "model", "literal")
    }
    shown = [-1, 0, 1, 2, 4]
    drawn = []
    rows = page.subplots(2, len(shown), sharex=True, sharey=True)
    for row, word in zip(rows, ("literal", "model"), strict=True):
        for ax, x1 in zip(row, shown, strict=True):
            at = values["x1_star"] == x1
            better = at & (values["alone"] == 0) & (values[word] == 1)
            worse = at & (values["alone"] == 1) & (values[word] == 0)
            ax.plot(values["y1_star"][at], values["x2_star"][at], "s", ms=1.5, color="#dddddd")
            ax.plot(values["y1_star"][better], values["x2_star"][better], "s", ms=1.8, color=POSTERIOR)
            ax.plot(values["y1_star"][worse], values["x2_star"][worse], "s", ms=1.8, color=ACCENT)
            if word == "literal":
                ax.set_title(f"x1* = {x1}", fontsize="small")
            drawn.append(tidy(ax))
        row[0].set_ylabel(f"{'literal sampler' if word == 'literal' else 'stated model'}\nx2*")
    for ax in rows[-1]:
        ax.set_xlabel("y1*")
    page.suptitle(
        "blue: corrected; orange: spoiled; she is there, nobody else in the group", fontsize="medium"
    )
    return drawn


def figure_5(columns: Mapping[str, Sequence[Any]], page: Any) -> list[Any]:
    """Probability of a right decision against the true group count, as printed and in the stated model."""
    left, right = page.subplots(1, 2)
    x = columns["x2"]
    for ax in (left, right):
        ax.plot(x, columns["literal"], "o-", ms=3.5, lw=1, color=ACCENT, label="literal sampler")
        ax.plot(x, columns["no_hierarchy"], ":", color=PRIOR, label="block alone")
        ax.set(xlabel="true count of the block group x2")
        tidy(ax)
    right.plot(x, columns["model"], "o-", ms=3.5, lw=1, color=POSTERIOR, label="stated model")
    left.axhline(0.5905, color="black", lw=0.8, ls="--", label="printed: centred on 59.05 %")
    left.set(ylabel="P[decides present | she is]", ylim=(0.587, 0.597), title="as the paper draws it")
    right.set(ylim=(0.3, 0.62), title="the stated model")
    left.legend(frameon=False, fontsize="small")
    right.legend(frameon=False, fontsize="small")
    return [left, right]


def figure_6(columns: Mapping[str, Sequence[Any]], page: Any) -> list[Any]:
    """Probability of a right decision against the group's budget; the band is what the rule for ties decides."""
    axes = list(page.subplots(1, 2))
    for ax, word in zip(axes, ("literal", "model"), strict=True):
        for colour, x2 in zip(SERIES, (1, 10, 100), strict=False):
            low = np.asarray(columns[f"{word}_x2_{x2}"], dtype=float)
            tied = np.asarray(columns[f"{word}_x2_{x2}_near_ties"], dtype=float)
            ax.plot(columns["rho2"], low, lw=1.2, color=colour, label=f"x2 = {x2}")
            ax.fill_between(columns["rho2"], low, low + tied, color=colour, alpha=0.25, lw=0)
        ax.plot(columns["rho2"], columns["no_hierarchy"], ":", color=PRIOR, label="block alone")
        ax.set(xscale="log", xlabel="rho2 of the block group's count")
        tidy(ax)
    axes[0].plot([100], [0.592], "x", color="black", ms=7, mew=2, label="printed: 59.2 %")
    axes[0].set(ylabel="P[decides present | she is]", title="literal sampler, as the paper draws it")
    axes[1].set(title="the stated model")
    axes[0].legend(frameon=False, fontsize="small")
    return axes


def figure_7(columns: Mapping[str, Sequence[Any]], page: Any) -> list[Any]:
    """Averaged posterior and R against the number of levels at which she is unique."""
    left, right = _pair(page, columns, "levels", "levels at which she is unique", "o")
    left.set(ylabel="averaged posterior", ylim=(0, 1))
    right.set(ylabel=_LABELS["risk"])
    return [left, right]


PAPER_FIGURES: Mapping[str, Callable[[Any, Any], list[Any]]] = {
    f"figure_{k}": f
    for k, f in enumerate((figure_1, figure_2, figure_3, figure_4, figure_5, figure_6, figure_7), start=1)
}
"""Figure -> function of (columns, page), where a page is a matplotlib figure or subfigure."""


def draw(name: str, columns: Mapping[str, Sequence[Any]], path: Any = None) -> list[Any]:
    """Draw one of the paper's figures.

    Parameters
    ----------
    name
        ``"figure_1"`` to ``"figure_7"``.
    columns
        From ``adversary.reproduce.tables.FIGURES[name]()``.
    path
        Where to save it as PNG; left out, nothing is saved.

    Returns
    -------
    list of matplotlib.axes.Axes
        The axes of the figure.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = Figure(figsize=(11.0, 5.0) if name == "figure_4" else (9.0, 3.6), layout="constrained")
    FigureCanvasAgg(page)
    axes = PAPER_FIGURES[name](columns, page)
    if path is not None:
        with whole(path) as draft:
            page.savefig(draft, dpi=150, format="png", metadata={"Software": None})
    return axes
