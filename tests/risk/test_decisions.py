import math

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.risk.decisions import decision_masses, decision_thresholds, sampled_decision_masses
from adversary.risk.expected import expected_one_level
from adversary.risk.two_level import TwoLevelDesign, expected_two_level, two_level_log_odds

DESIGN = TwoLevelDesign(sigma2=2.0, group_sigma2=1.0, others=5)


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_the_net_gain_is_the_difference_of_the_two_accuracies(p):
    masses = decision_masses(DESIGN, 3, p=p)
    gain = expected_two_level(DESIGN, 3, p=p).right - expected_one_level(2.0, p=p).right
    assert masses.net == pytest.approx(gain, abs=1e-11)
    assert masses.covered == pytest.approx(1.0, abs=1e-12)


def test_many_draws_decide_as_the_posterior_does_and_few_do_worse():
    exact = decision_masses(DESIGN, 3, p=0.5)
    many = sampled_decision_masses(DESIGN, 3, 10**7, p=0.5)
    few = sampled_decision_masses(DESIGN, 3, 11, p=0.5)
    assert many.corrected == pytest.approx(exact.corrected, abs=1e-3)
    assert few.net < many.net


def test_one_draw_is_right_with_the_posteriors_own_probability():
    box = ((3, 3), (2, 2))
    one = sampled_decision_masses(DESIGN, 3, 1, p=0.5, box=box)
    exact = decision_masses(DESIGN, 3, p=0.5, box=box)
    half = 14
    block = 1 + np.arange(-half, half + 1)
    odds = two_level_log_odds(DESIGN, block, np.array([3]), np.array([2]), p=0.5)[:, 0, 0]
    weight = np.exp(-((block - 1.0) ** 2) / 4)
    weight *= exact.covered / weight.sum()
    yes = 1 / (1 + np.exp(-odds))
    assert one.corrected == pytest.approx(weight[block <= 0] @ yes[block <= 0], rel=1e-8)
    assert one.near_tie_mass == 0.0


def test_thresholds_are_where_the_decision_turns():
    rest = np.arange(-40, 41)
    group = np.arange(-2, 8)
    found = decision_thresholds(DESIGN, 1, group, rest, p=0.5)
    for g, last in zip(group, found, strict=True):
        if last is None or last == 40:
            continue
        odds = two_level_log_odds(DESIGN, np.array([1]), np.array([g]), np.array([last, last + 1]), p=0.5)[
            0, 0
        ]
        assert odds[0] > 1e-9 >= odds[1]
    assert any(last is not None for last in found)


def test_a_box_without_releases_and_no_draws_are_refused():
    with pytest.raises(ModelError, match="a box is"):
        decision_masses(DESIGN, 3, p=0.5, box=((1, 0), (0, 1)))
    with pytest.raises(ModelError, match="draws must be at least 1"):
        sampled_decision_masses(DESIGN, 3, 0, p=0.5)


def test_half_of_an_even_number_of_draws_is_counted_as_a_tie():
    two = sampled_decision_masses(DESIGN, 3, 2, p=0.5, box=((3, 3), (2, 2)))
    assert 0 < two.near_tie_mass < two.covered / 2 + 1e-12
    assert math.isfinite(two.net)
