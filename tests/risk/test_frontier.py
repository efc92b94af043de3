import math

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.frontier import information_gradient, shift_gradient, two_level_frontier
from adversary.risk.levels import effective_information, expected_uniqueness
from adversary.risk.two_level import TwoLevelDesign, expected_two_level


def test_the_closed_gradient_equals_differences_of_the_effective_information():
    sigma2, rest = [5.0, 2.0, 8.0], [60.0, 9.0]

    def measure(information):
        return effective_information([1 / (2 * j) for j in information], rest)

    by_difference = shift_gradient(measure, [1 / (2 * s) for s in sigma2])
    np.testing.assert_allclose(information_gradient(sigma2, rest), by_difference, rtol=1e-7)


def test_levels_at_which_the_target_is_unique_are_worth_the_same():
    """Off the lattice's finest scale R depends on the sum of the rhos, so moving budget changes nothing."""

    def measure(rho):
        return expected_uniqueness([1 / (2 * r) for r in rho], p=0.1).risk

    gradient = shift_gradient(measure, [0.1, 0.25])
    assert gradient[0] == pytest.approx(gradient[1], rel=1e-6)
    assert gradient[0] > 0


def test_a_budget_moved_down_raises_the_risk_and_the_groups_noise():
    design = TwoLevelDesign(sigma2=1.0, group_sigma2=1.0, others=10)
    table = two_level_frontier(design, 8, 0.4, [0.1, 0.5, 0.9], p=0.1)
    assert table[0].risk < table[1].risk < table[2].risk
    assert table[0].group_sd < table[1].group_sd < table[2].group_sd
    assert table[0].block_sd > table[2].block_sd
    row = table[1]
    assert row.sigma2 == pytest.approx(1 / 0.4)
    assert row.block_sd == pytest.approx(math.sqrt(dg.variance(row.sigma2)))
    split = TwoLevelDesign(sigma2=row.sigma2, group_sigma2=row.group_sigma2, others=10)
    assert row.risk == pytest.approx(expected_two_level(split, 8, p=0.1).risk)


def test_a_split_that_another_beats_everywhere_is_marked():
    design = TwoLevelDesign(sigma2=1.0, group_sigma2=1.0, others=10)
    table = two_level_frontier(design, 8, 0.4, [0.5, 0.5, 0.9], p=0.1)
    assert all(r.efficient for r in table)  # equal rows do not beat each other
    with pytest.raises(ModelError, match="strictly between 0 and 1"):
        two_level_frontier(design, 8, 0.4, [1.0], p=0.1)
    with pytest.raises(ModelError, match="rests between"):
        information_gradient([1.0, 2.0], [])
