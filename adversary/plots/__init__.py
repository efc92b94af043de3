"""Figures: one function each.

A figure takes what another function returns and an optional ``ax``, returns ``Axes``, sets no global style and never calls
``show()``. Counts are drawn as bars, never smoothed.
"""

from adversary.plots.answers import plot_agreement, plot_by_count, plot_count_posterior, plot_prior_posterior
from adversary.plots.reconstruction import (
    plot_flagged_blocks,
    plot_precision_recall,
    plot_solution_variability,
)
from adversary.plots.risks import plot_frontier, plot_risks
from adversary.plots.spines import plot_entity_distances, plot_spine_accuracy, plot_spine_risk
from adversary.plots.studies import plot_rank_counts, plot_sensitivity

__all__ = [
    "plot_agreement",
    "plot_by_count",
    "plot_count_posterior",
    "plot_entity_distances",
    "plot_flagged_blocks",
    "plot_frontier",
    "plot_precision_recall",
    "plot_prior_posterior",
    "plot_rank_counts",
    "plot_risks",
    "plot_sensitivity",
    "plot_solution_variability",
    "plot_spine_accuracy",
    "plot_spine_risk",
]
