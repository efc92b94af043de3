"""Colours (Okabe & Ito's, safe for colour-blind readers) and the few habits that all figures share."""

from __future__ import annotations

from typing import Any

PRIOR = "#999999"
POSTERIOR = "#0072B2"
ACCENT = "#D55E00"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def axes(ax: Any, size: tuple[float, float] = (6.0, 3.6)) -> Any:
    """Return the given axes, or new ones that belong to no global state."""
    if ax is not None:
        return ax
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def tidy(ax: Any) -> Any:
    """Take away the frame that carries no data."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax
