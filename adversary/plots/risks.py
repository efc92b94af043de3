"""Figures over many targets: the distribution of the risk, and what drives it.

Held to account by ``tests/test_plots.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adversary.plots._style import ACCENT, POSTERIOR, PRIOR, axes, tidy

__all__ = ["plot_frontier", "plot_risks"]


def plot_risks(
    risk: Any,
    noisy: Any,
    *,
    threshold: float | None = None,
    label: str = "noisy count of her cell",
    ax: Any = None,
) -> Any:
    """Draw how many targets have which noisy count, and the risk R' at that count.

    Parameters
    ----------
    risk
        R' of each target, shape (n,).
    noisy
        Published count of each target's cell, shape (n,), integers.
    threshold
        Risk above which a target is a finding; drawn as a line.
    label
        What the counts are.
    ax
        Axes to draw on; new ones where left out. The risk goes on a second axis to the right.

    Returns
    -------
    matplotlib.axes.Axes
        The axes of the bars; the risk's are ``ax.figure.axes[-1]``.
    """
    ax = axes(ax, (6.4, 3.8))
    risk, noisy = np.asarray(risk, dtype=float), np.asarray(noisy, dtype=np.int64)
    values, counts = np.unique(noisy, return_counts=True)
    ax.bar(values, counts, width=0.9, color=PRIOR)
    ax.set(xlabel=label, ylabel="targets")
    right = ax.twinx()
    order = np.argsort(noisy, kind="stable")
    right.plot(noisy[order], risk[order], ".", color=POSTERIOR, markersize=4)
    right.axhline(1.0, color=POSTERIOR, lw=0.8, ls=":")
    if threshold is not None:
        right.axhline(threshold, color=ACCENT, lw=1)
        right.annotate(
            f"threshold {threshold:g}",
            (1, threshold),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            color=ACCENT,
        )
    right.set_ylabel("R' = posterior / prior", color=POSTERIOR)
    right.set_ylim(0, None)
    right.spines["top"].set_visible(False)
    ax.set_title(f"risk of {len(risk)} unique persons", loc="left", fontsize="medium")
    tidy(ax)
    ax.spines["right"].set_visible(True)
    return ax


def plot_frontier(points: Any, *, label: str | None = None, ax: Any = None) -> Any:
    """Draw risk against accuracy for the ways to split a budget over block and block group.

    Parameters
    ----------
    points
        What :func:`adversary.risk.two_level_frontier` returns.
    label
        Name of the curve in a legend.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        Abscissa: standard deviation of the block's noise; ordinate: averaged risk R. Full points are efficient, hollow ones
        are beaten by another split at both levels; the block's share of the budget is written beside each end.
    """
    ax = axes(ax)
    sd, risk = np.array([p.block_sd for p in points]), np.array([p.risk for p in points])
    efficient = np.array([p.efficient for p in points], dtype=bool)
    ax.plot(sd, risk, "-", color=POSTERIOR, lw=1, label=label)
    ax.plot(sd[efficient], risk[efficient], "o", color=POSTERIOR, markersize=5)
    ax.plot(sd[~efficient], risk[~efficient], "o", color=POSTERIOR, markersize=5, markerfacecolor="white")
    for point in (points[0], points[-1]):
        ax.annotate(
            f"block {point.block_share:.0%}",
            (point.block_sd, point.risk),
            xytext=(5, 5),
            textcoords="offset points",
        )
    ax.set(xlabel="standard deviation of the block's noise", ylabel="R = averaged posterior / prior")
    ax.set_title("risk against accuracy, one budget split over two levels", loc="left", fontsize="medium")
    return tidy(ax)
