"""What a spine does to risk: unique persons in every block, under one or several spines with the same budget."""

from __future__ import annotations

from adversary.spine_risk.tables import difference_lines, summary_lines, write_blocks, write_map
from adversary.spine_risk.unique import SpineRisk, UniquePerson, geoids_of, spine_risk

__all__ = [
    "SpineRisk",
    "UniquePerson",
    "difference_lines",
    "geoids_of",
    "spine_risk",
    "summary_lines",
    "write_blocks",
    "write_map",
]
