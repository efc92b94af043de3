"""Figures of reconstruction: how much stays open, how good ranked households are, how many blocks are flagged.

Numbers about a synthetic state are about synthetic households only, and the figures say so. Held to account by
``tests/plots/test_reconstruction.py``, which reads the data of the artists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError
from adversary.plots._style import ACCENT, POSTERIOR, PRIOR, SERIES, axes, tidy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from adversary.reconstruction.linkage import Curve, Flags

__all__ = ["plot_flagged_blocks", "plot_precision_recall", "plot_solution_variability"]

SYNTHETIC = "synthetic households only"


def plot_solution_variability(
    shares: Mapping[str, ArrayLike], *, note: str = SYNTHETIC, ax: Any = None
) -> Any:
    """Draw the cumulative share of blocks by the share of their households that a solution can have wrong.

    Parameters
    ----------
    shares
        By name of a line, at most seven: one share a block, 0 to 1, NaN where it is open (such blocks are
        counted in the legend and left out).
    note
        Said in the title.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        A line starts at the share of blocks that are determined.

    Raises
    ------
    AdversaryError
        For shares outside 0 to 1, no line, or more than seven.

    Examples
    --------
    >>> ax = plot_solution_variability({"all tables": [0.0, 0.0, 0.5, 1.0]})
    >>> ax.lines[0].get_ydata().tolist()
    [0.0, 0.5, 0.75, 1.0, 1.0]
    """
    _lines(shares)
    ax = axes(ax)
    for (name, given), color in zip(shares.items(), SERIES, strict=False):
        values = np.asarray(given, dtype=np.float64)
        known = values[~np.isnan(values)]
        if known.size and not (known.min() >= 0 and known.max() <= 1):
            msg = f"shares of {name} run from {known.min():g} to {known.max():g}: give shares from 0 to 1"
            raise AdversaryError(msg, name)
        x, times = np.unique(known, return_counts=True)
        y = np.cumsum(times) / max(known.size, 1)
        left_out = values.size - known.size
        label = f"{name} ({known.size:,} blocks{f', {left_out:,} open' if left_out else ''})"
        # from the bottom at the least share up, and on to the right end
        ends = (
            (np.append(np.insert(x, 0, x[0]), 1.0), np.append(np.insert(y, 0, 0.0), 1.0))
            if x.size
            else ([], [])
        )
        ax.plot(*ends, drawstyle="steps-post", color=color, label=label)
    ax.set(
        xlim=(-0.02, 1.02),
        ylim=(0, 1.03),
        xlabel="solution variability: greatest share that can be wrong",
        ylabel="blocks, cumulative share",
    )
    ax.legend(frameon=False, fontsize="small")
    return tidy(_titled(ax, "What the tables leave open", note))


def plot_precision_recall(
    curves: Mapping[str, Curve], *, base_rate: float | None = None, note: str = SYNTHETIC, ax: Any = None
) -> Any:
    """Draw precision against recall of ranked households, with the range that the order within ties leaves open.

    Parameters
    ----------
    curves
        By name of a mechanism, at most seven (see `adversary.reconstruction.linkage.curve`); those without
        anything to be found are left out and said so.
    base_rate
        Precision of a random guess, drawn as a line; None for none.
    note
        Said in the title.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        A line is the mean over random orders within ties; its band spans the orders against and for the
        adversary.

    Raises
    ------
    AdversaryError
        For no curve, or more than seven.

    Examples
    --------
    >>> from adversary.reconstruction.linkage import curve
    >>> ax = plot_precision_recall({"none": curve([2, 1, 1], [True, True, False])}, base_rate=2 / 3)
    >>> ax.lines[0].get_xdata().tolist()
    [0.5, 0.75, 1.0]
    """
    _lines(curves)
    ax = axes(ax)
    for (name, its), color in zip(curves.items(), SERIES, strict=False):
        if not its.total or not len(its):
            ax.plot([], [], color=color, label=f"{name} (nothing to be found)")
            continue
        low, high = its.precision_range
        least, most = its.recall_range
        band = np.concatenate([least, most[::-1]]), np.concatenate([low, high[::-1]])
        ax.fill(*band, color=color, alpha=0.15, lw=0)
        ax.plot(its.recall, its.precision, color=color, label=name)
    if base_rate is not None:
        ax.axhline(base_rate, ls=":", color=PRIOR, label=f"random guess ({base_rate:.3f})")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.03), xlabel="recall", ylabel="precision")
    ax.legend(frameon=False, fontsize="small")
    return tidy(_titled(ax, "Households named; bands: order within ties", note))


def plot_flagged_blocks(flags: Mapping[str, Flags], *, note: str = SYNTHETIC, ax: Any = None) -> Any:
    """Draw how many blocks each mechanism lets an adversary flag, rightly and wrongly.

    Parameters
    ----------
    flags
        By name of a mechanism (see `adversary.reconstruction.linkage.flags`).
    note
        Said in the title.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        One bar a mechanism, right below wrong; a mark at the number of blocks with the harm, and the precision
        above.

    Raises
    ------
    AdversaryError
        For no mechanism.

    Examples
    --------
    >>> from adversary.reconstruction.linkage import Flags
    >>> ax = plot_flagged_blocks({"none": Flags(3, 3, 6, 9), "noise": Flags(5, 2, 6, 9)})
    >>> [float(bar.get_height()) for bar in ax.patches]
    [3.0, 2.0, 0.0, 3.0]
    """
    if not flags:
        msg = "no mechanism to draw: give one or more"
        raise AdversaryError(msg, flags)
    ax = axes(ax)
    at = np.arange(len(flags))
    right = np.array([its.right for its in flags.values()], dtype=np.float64)
    flagged = np.array([its.flagged for its in flags.values()], dtype=np.float64)
    harmed = np.array([its.harmed for its in flags.values()], dtype=np.float64)
    ax.bar(at, right, width=0.6, color=POSTERIOR, label="flagged, rightly")
    ax.bar(at, flagged - right, width=0.6, bottom=right, color=ACCENT, label="flagged, wrongly")
    ax.hlines(harmed, at - 0.4, at + 0.4, color=PRIOR, lw=2, label="blocks with the harm")
    for x, its in zip(at, flags.values(), strict=True):
        text = f"{its.precision:.0%}" if its.flagged else "none"
        ax.annotate(text, (x, its.flagged), (0, 2), textcoords="offset points", ha="center", fontsize="small")
    ax.set_xticks(at, list(flags), rotation=20, ha="right")
    ax.set(ylabel="blocks", ylim=(0, 1.15 * max(flagged.max(), harmed.max(), 1)))
    ax.legend(frameon=False, fontsize="small")
    return tidy(_titled(ax, "Flagged blocks and their precision", note))


def _lines(given: Mapping[str, Any]) -> None:
    if not 1 <= len(given) <= len(SERIES):
        msg = f"{len(given)} lines to draw: give 1 to {len(SERIES)}, more cannot be told apart"
        raise AdversaryError(msg, len(given))


def _titled(ax: Any, title: str, note: str) -> Any:
    ax.set_title(f"{title} ({note})" if note else title, loc="left", fontsize="medium")
    return ax
