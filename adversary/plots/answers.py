"""Figures of one answer: prior against posterior, counts as bars, samplers against each other.

Held to account by ``tests/test_plots.py``, which reads the data of the artists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import AdversaryError
from adversary.plots._style import ACCENT, POSTERIOR, PRIOR, SERIES, axes, tidy

if TYPE_CHECKING:
    from adversary.diagnostics import Comparison
    from adversary.results import AttackResult

__all__ = ["plot_agreement", "plot_by_count", "plot_count_posterior", "plot_prior_posterior"]

NEGLIGIBLE = 1e-4
"""Probability below which a value in a tail is not drawn."""


def plot_prior_posterior(result: AttackResult, ax: Any = None) -> Any:
    """Draw the target's probabilities before and after the release as bars side by side.

    Parameters
    ----------
    result
        Any answer.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.
    """
    ax = axes(ax)
    support = result.support.astype(float)
    before, after = (np.exp(result.values("answer", f"log_{which}")) for which in ("prior", "posterior"))
    ax.bar(support - 0.2, np.nan_to_num(before), width=0.38, color=PRIOR, label="prior")
    ax.bar(support + 0.2, after, width=0.38, color=POSTERIOR, label=f"posterior ({result.sampler})")
    if len(support) <= 20:
        ax.set_xticks(support, [str(v) for v in result.support])
    top = float(np.nanmax(np.r_[before, after]))
    ax.set(xlabel=str(result.attrs["target"]), ylabel="probability", ylim=(0, 1.25 * top))
    ax.set_title(f"{result.scenario} ({result.convention})", loc="left", fontsize="medium")
    ax.legend(frameon=False, loc="upper center", ncols=2, fontsize="small")
    return tidy(ax)


def plot_by_count(found: Any, block: int, ax: Any = None) -> Any:
    """Draw the posterior at every noisy count of the block as bars, the published one marked, the prior as a line.

    Parameters
    ----------
    found
        What :func:`adversary.explore.explored` returns.
    block
        The published count.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.
    """
    ax = axes(ax)
    here = found.counts == block
    ax.bar(found.counts[~here], found.by_count[~here], width=0.9, color=POSTERIOR, label="posterior")
    ax.bar(found.counts[here], found.by_count[here], width=0.9, color=ACCENT, label=f"published: {block}")
    ax.axhline(found.prior, color=PRIOR, linestyle="--", label="prior")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="noisy count of the block", ylabel="P(present)", ylim=(0, 1.05))
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return tidy(ax)


def plot_count_posterior(
    result: AttackResult, name: str, ax: Any = None, *, color: str = POSTERIOR, label: str | None = None
) -> Any:
    """Draw the posterior of one unknown count as bars, exact where there is an exact answer.

    Values in the tails with probability below 1e-4 are left out of the picture, not of any number.

    Parameters
    ----------
    result
        Any answer.
    name
        A scalar unknown, the target, or a variable with draws.
    ax, color, label
        Where and how to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    AdversaryError
        For a name that the result does not hold.
    """
    ax = axes(ax)
    support, p = _pmf(result, name)
    seen = np.flatnonzero(p > NEGLIGIBLE)
    support, p = support[seen[0] : seen[-1] + 1], p[seen[0] : seen[-1] + 1]
    ax.bar(support, p, width=0.9, color=color, label=label)
    ax.set(xlabel=name, ylabel="posterior probability", ylim=(0, None))
    ax.set_title(f"{result.scenario} ({result.sampler})", loc="left", fontsize="medium")
    return tidy(ax)


def _pmf(result: AttackResult, name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == result.attrs["target"]:
        return result.support, np.exp(result.values("answer", "log_posterior"))
    if "exact" in result.tree.children and f"{name}_value" in result.tree["exact"].coords:
        return result.values("exact", f"{name}_value"), result.values("exact", name)
    if "posterior" in result.tree.children and name in result.tree["posterior"].data_vars:
        draws = result.values("posterior", name)
        if draws.ndim == 2:
            support, counts = np.unique(draws, return_counts=True)
            return support, counts / draws.size
    there = (
        list(result.tree["posterior"].data_vars)
        if "posterior" in result.tree.children
        else list(result.tree["exact"].data_vars)
    )
    msg = f"the result holds no scalar count called {name!r}: it has {', '.join(map(str, there))}"
    raise AdversaryError(msg, name)


def plot_agreement(comparison: Comparison, ax: Any = None) -> Any:
    """Draw each sampler's mean with 4 Monte Carlo standard errors against the exact mean, one row a variable.

    Parameters
    ----------
    comparison
        What :func:`adversary.diagnostics.compare` returns.
    ax
        Axes to draw on; new ones where left out.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.
    """
    ax = axes(ax)
    rows = [r for r in comparison.rows if r.sampler != "exact" and np.isfinite(r.difference)]
    samplers = list(dict.fromkeys(r.sampler for r in rows))
    labels = list(dict.fromkeys(r.variable for r in rows))
    for i, sampler in enumerate(samplers):
        mine = [r for r in rows if r.sampler == sampler]
        y = [labels.index(r.variable) + 0.16 * (i - (len(samplers) - 1) / 2) for r in mine]
        x = [r.difference for r in mine]
        ax.errorbar(
            x, y, xerr=1.0, fmt="o", color=SERIES[i % len(SERIES)], label=sampler, capsize=2, markersize=4
        )
    ax.axvspan(-4, 4, color=PRIOR, alpha=0.15, lw=0)
    ax.axvline(0, color=ACCENT, lw=1)
    ax.set_yticks(range(len(labels)), labels)
    ax.set(xlabel="difference from exact, in standard errors", ylim=(-0.6, max(len(labels), 1) - 0.1))
    ax.set_title("samplers against exact (shaded: 4 s.e.)", loc="left", fontsize="medium")
    if samplers:
        ax.legend(frameon=False, loc="upper center", ncols=3, fontsize="small")
    return tidy(ax)
