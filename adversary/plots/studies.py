"""Figures of a study: how the answer moves with its assumptions; and of a calibration: where the truth fell.

Held to account by ``tests/test_studies.py`` and ``tests/test_calibration.py``, which read the data of the artists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError
from adversary.plots._style import ACCENT, POSTERIOR, PRIOR, SERIES, axes, tidy

if TYPE_CHECKING:
    import xarray as xr

    from adversary.calibration import Calibration

__all__ = ["plot_rank_counts", "plot_sensitivity"]

_LINES = 7  # more curves than colours cannot be told apart


def plot_sensitivity(
    data: xr.Dataset,
    x: str | None = None,
    *,
    variable: str = "posterior",
    hue: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw how the answer moves with one assumption, one curve for each value of another.

    Parameters
    ----------
    data
        What :func:`adversary.studies.study` returns, with one or two dimensions (select first where it has more).
    x
        Dimension along the axis; the first where left out. A numeric one is drawn as curves, one of texts as points.
    variable
        ``"posterior"``, ``"risk"`` or ``"log_odds"``.
    hue
        The other dimension; found where left out. Of more than seven values, seven evenly spaced are drawn.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    AdversaryError
        For more than two dimensions, or names that the study lacks.
    """
    table = data.get(variable, None)
    if table is None or table.ndim > 2:
        what = (
            f"it has {', '.join(map(str, data.data_vars))}"
            if table is None
            else f"{variable} has dims {table.dims}: select two"
        )
        msg = f"a study of one or two dimensions with the variable {variable!r} is wanted: {what}"
        raise AdversaryError(msg, variable)
    dims = [str(d) for d in table.dims]
    x = dims[0] if x is None else x
    hue = next((d for d in dims if d != x), None) if hue is None else hue
    if x not in dims or (hue is not None and hue not in dims):
        msg = f"the study has the dimensions {', '.join(dims)}, not {x if x not in dims else hue}"
        raise AdversaryError(msg, x)
    ax = axes(ax)
    labels = data[x].values if x in data.coords else np.arange(data.sizes[x])
    numeric = np.asarray(labels).dtype.kind in "iuf"
    at = np.asarray(labels, dtype=float) if numeric else np.arange(len(labels))
    order = np.argsort(at, kind="stable")
    chosen = (
        [None]
        if hue is None
        else list(np.unique(np.linspace(0, data.sizes[hue] - 1, _LINES).round().astype(int)))
    )
    for k, i in enumerate(chosen):
        y = (table if i is None else table.isel({hue: i})).values
        label = None if i is None else f"{hue} = {_short(data[hue].values[i] if hue in data.coords else i)}"
        color = POSTERIOR if i is None else SERIES[k % len(SERIES)]
        ax.plot(at[order], y[order], "-" if numeric else "o", color=color, label=label)
    if variable == "posterior" and x in data.coords and "prior" in data and numeric and data["prior"].ndim:
        before = data["prior"] if hue is None else data["prior"].isel({hue: 0})
        ax.plot(at[order], before.values[order], ":", color=PRIOR, label="prior")
    if not numeric:
        ax.set_xticks(at, [str(v) for v in labels], rotation=25, ha="right")
    name = {
        "posterior": f"P({data.attrs.get('target', 'target')} = 1)",
        "risk": "posterior / prior",
        "log_odds": "log-odds",
    }
    ax.set(xlabel=x, ylabel=name.get(variable, variable))
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize="small")
    ax.set_title(
        f"{data.attrs.get('scenario', '')} ({data.attrs.get('convention', '')})",
        loc="left",
        fontsize="medium",
    )
    return tidy(ax)


def _short(value: Any) -> str:
    return f"{float(value):.3g}" if isinstance(value, float | np.floating) else str(value)


def plot_rank_counts(
    calibration: Calibration, name: str | None = None, *, bins: int = 10, ax: Any = None
) -> Any:
    """Draw how often the truth fell in each tenth of its posterior, with the band in which 99 % of fair counts lie.

    Parameters
    ----------
    calibration
        What :func:`adversary.calibration.calibrate` returns.
    name
        Which unknown; the target where left out.
    bins
        How many bars.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    AdversaryError
        For an unknown that was not followed.
    """
    from scipy import stats

    there = [str(v) for v in calibration.ranks.data_vars]
    name = there[0] if name is None else name
    if name not in there:
        msg = f"{name!r} was not followed: there are {', '.join(there)}"
        raise AdversaryError(msg, name)
    ax = axes(ax)
    u = calibration.ranks[name].values
    counts, edges = np.histogram(u, bins=bins, range=(0, 1))
    ax.bar(edges[:-1], counts, width=1 / bins, align="edge", color=POSTERIOR, edgecolor="white")
    low, high = stats.binom.ppf([0.005, 0.995], len(u), 1 / bins)
    ax.axhspan(low, high, color=PRIOR, alpha=0.35, lw=0, label="99 % of fair counts")
    ax.axhline(len(u) / bins, color=ACCENT, lw=1)
    ax.set(
        xlabel=f"place of the true {name} in its posterior (ties at random)",
        ylabel="simulated releases",
        xlim=(0, 1),
    )
    ax.set_title(f"{calibration.scenario}: {len(u)} simulated releases", loc="left", fontsize="medium")
    ax.legend(frameon=False, fontsize="small")
    return tidy(ax)
