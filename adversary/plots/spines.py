"""Figures about spines: how accurate, how risky, how near places are, before and after.

Held to account by ``tests/test_plots_spines.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.plots._style import ACCENT, POSTERIOR, PRIOR, SERIES, axes, tidy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["plot_entity_distances", "plot_spine_accuracy", "plot_spine_risk"]


def plot_spine_accuracy(accuracy: Any, *, kinds: Sequence[str] | None = None, ax: Any = None) -> Any:
    """Draw the standard deviation of the totals of areas under several spines, one row a kind of area.

    Parameters
    ----------
    accuracy
        What :func:`adversary.geography.accuracy.compare_accuracy` returns.
    kinds
        Kinds of area, top to bottom; default: all that are not known exactly.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        A point is the mean over areas, the line to its right reaches the largest; the abscissa is logarithmic.
    """
    ax = axes(ax, (6.4, 4.2))
    spines = accuracy.spines
    # what is published as it is has no place on a logarithmic scale
    shown = list(kinds or [k for k in accuracy.kinds if any(accuracy.row(s, k).most > 0 for s in spines)])
    step = 0.7 / max(len(spines), 1)
    for i, spine in enumerate(spines):
        rows = [accuracy.row(spine, kind) for kind in shown]
        place = np.arange(len(shown)) + (i - (len(spines) - 1) / 2) * step
        mean, most = np.array([r.mean for r in rows]), np.array([r.most for r in rows])
        ax.hlines(place, mean, most, color=SERIES[i % len(SERIES)], lw=1)
        ax.plot(mean, place, "o", color=SERIES[i % len(SERIES)], markersize=5, label=spine)
    ax.set_xscale("log")
    ax.set_yticks(np.arange(len(shown)), shown)
    ax.invert_yaxis()
    ax.set_xlabel("standard deviation of the total (point: mean; line: to the largest)")
    ax.legend(frameon=False)
    ax.set_title("accuracy of one budget on several spines, least squares", loc="left", fontsize="medium")
    return tidy(ax)


def plot_spine_risk(risks: Sequence[Any], *, what: str = "right_even", ax: Any = None) -> Any:
    """Draw the share of blocks with at least a given risk, one step line a spine.

    Parameters
    ----------
    risks
        What :func:`adversary.spine_risk.spine_risk` returns, one a spine.
    what
        Column: ``right_even``, ``right``, ``risk``, ``posterior``, ``moved_rho_most``, ``moved_right_mean`` or
        ``moved_right_most``.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        Steps, never smoothed: the ordinate is the share of blocks whose risk is at least the abscissa.
    """
    ax = axes(ax, (6.4, 3.8))
    words = {
        "right_even": "P[decision right], prior 1/2",
        "right": "P[decision right]",
        "risk": "R = averaged posterior / prior, when she is present",
        "posterior": "averaged posterior, when she is present",
        "moved_rho_most": "rho that tells her block from another of the block group",
        "moved_right_mean": "P[right about which of two blocks of the block group], mean over pairs",
        "moved_right_most": "P[right about which of two blocks of the block group], best pair",
    }
    for i, risk in enumerate(risks):
        values = np.sort(np.asarray(risk.columns()[what], dtype=float))
        values = values[np.isfinite(values)]
        share = 1.0 - np.arange(values.size) / max(values.size, 1)
        ax.step(values, share, where="pre", color=SERIES[i % len(SERIES)], lw=1.5, label=risk.name)
    ax.set_yscale("log")
    ax.set(xlabel=words.get(what, what), ylabel="share of blocks with at least this")
    ax.legend(frameon=False)
    person = risks[0].person
    ax.set_title(
        f"a person alone in her cell of her block, query {person.query!r}, prior {person.prior:g}",
        loc="left",
        fontsize="medium",
    )
    return tidy(ax)


def plot_entity_distances(
    before: Mapping[str, int],
    after: Mapping[str, int],
    *,
    labels: tuple[str, str] = ("before", "after"),
    what: str = "entity",
    ax: Any = None,
) -> Any:
    """Draw the off-spine distance of every entity under two spines, one against the other.

    Parameters
    ----------
    before, after
        Code -> distance, from :func:`adversary.geography.off_spine.entity_distances`; of the same entities.
    labels
        Names of the two spines.
    what
        What the entities are.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        A point below the diagonal came nearer. The scale is logarithmic from 1 on.
    """
    ax = axes(ax, (4.6, 4.4))
    codes = sorted(before)
    x, y = np.array([before[c] for c in codes], float), np.array([after[c] for c in codes], float)
    top = float(max(x.max(initial=1), y.max(initial=1)))
    ax.plot([0, top], [0, top], color=PRIOR, lw=1)
    nearer = y < x
    ax.plot(x[nearer], y[nearer], "o", color=POSTERIOR, markersize=5, label=f"nearer: {int(nearer.sum())}")
    further = y > x
    ax.plot(x[further], y[further], "o", color=ACCENT, markersize=5, label=f"further: {int(further.sum())}")
    same = y == x
    ax.plot(x[same], y[same], "o", color=PRIOR, markersize=4, label=f"as before: {int(same.sum())}")
    ax.set_xscale("symlog", linthresh=1)
    ax.set_yscale("symlog", linthresh=1)
    ax.set(xlabel=f"distance, {labels[0]} spine", ylabel=f"distance, {labels[1]} spine")
    ax.legend(frameon=False)
    ax.set_title(f"off-spine distance, {len(codes)} of kind {what}", loc="left", fontsize="medium")
    return tidy(ax)
