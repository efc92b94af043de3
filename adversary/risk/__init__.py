"""Disclosure risk: measures, expectations over releases, inverse problems, ceilings.

NumPy only, and only sums with a stated bound: nothing is drawn unless draws are asked for. Noise is given as
``sigma2``, the parameter of the discrete Gaussian, so that no convention about neighbours is hidden in a
number.
"""

from __future__ import annotations

from adversary.risk.approximation import SumApproximation, assess_sum, needs_exact_sum
from adversary.risk.decisions import (
    DecisionMasses,
    decision_masses,
    decision_thresholds,
    sampled_decision_masses,
)
from adversary.risk.expected import ExpectedRisk, expected_one_level, risk_ceiling
from adversary.risk.frontier import FrontierPoint, information_gradient, shift_gradient, two_level_frontier
from adversary.risk.inverse import (
    Criterion,
    Crossing,
    InverseAnswer,
    guaranteed_information,
    largest_factor,
    largest_information,
    scaled_two_level,
    scaled_uniqueness,
)
from adversary.risk.levels import (
    PathDesign,
    averaged_logistic_normal,
    effective_information,
    expected_path,
    expected_uniqueness,
)
from adversary.risk.record import RecordRisk, expected_whole_record
from adversary.risk.two_level import TwoLevelDesign, expected_two_level, two_level_log_odds

__all__ = [
    "Criterion",
    "Crossing",
    "DecisionMasses",
    "ExpectedRisk",
    "FrontierPoint",
    "InverseAnswer",
    "PathDesign",
    "RecordRisk",
    "SumApproximation",
    "TwoLevelDesign",
    "assess_sum",
    "averaged_logistic_normal",
    "decision_masses",
    "decision_thresholds",
    "effective_information",
    "expected_one_level",
    "expected_path",
    "expected_two_level",
    "expected_uniqueness",
    "expected_whole_record",
    "guaranteed_information",
    "information_gradient",
    "largest_factor",
    "largest_information",
    "needs_exact_sum",
    "risk_ceiling",
    "sampled_decision_masses",
    "scaled_two_level",
    "scaled_uniqueness",
    "shift_gradient",
    "two_level_frontier",
    "two_level_log_odds",
]
