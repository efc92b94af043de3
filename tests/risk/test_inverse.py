import math

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.risk.expected import expected_one_level
from adversary.risk.inverse import (
    Criterion,
    guaranteed_information,
    largest_factor,
    largest_information,
    scaled_two_level,
    scaled_uniqueness,
)
from adversary.risk.two_level import TwoLevelDesign

PRIORS = [1 / 2, 1 / 5, 1 / 10, 1 / 50, 1 / 864]


def _risk(rho, p):
    return expected_one_level(1 / (2 * rho), p=p).risk


@pytest.mark.parametrize("p", PRIORS)
def test_the_largest_rho_for_a_risk_of_one_point_two_is_checked_from_both_sides(p):
    found = largest_information(Criterion("risk", 1.2), p)
    assert _risk(found.safe * (1 - 1e-9), p) < 1.2 < _risk(found.safe * (1 + 1e-9), p)
    assert found.value == pytest.approx(1.2, abs=1e-9)
    # everything below is safe too, which is what the word promises
    assert all(_risk(rho, p) <= 1.2 for rho in np.geomspace(1e-3, found.safe, 50))


def test_the_closed_guarantee_is_safe_for_every_prior_and_nearly_needed_for_a_tiny_one():
    rho = guaranteed_information(1.2)
    assert all(_risk(rho, p) <= 1.2 for p in [*PRIORS, 1e-9])
    found = largest_information(Criterion("risk", 1.2), 1e-9)
    assert rho <= found.safe < rho * 1.0001


def test_the_dip_gives_three_crossings_and_the_first_is_the_safe_one():
    """At p = 1/864 the mean posterior falls between rho 2.8 and 3.2: a bound there is crossed three times."""
    bound, p = 0.0615 * 864, 1 / 864
    found = largest_information(Criterion("risk", bound), p)
    assert [c.breaks for c in found.crossings] == [True, False, True]
    assert found.safe == found.crossings[0].low
    assert 2.5 < found.safe < 2.8 < found.crossings[1].low < 3.2 < found.crossings[2].low < 3.5
    for crossing in found.crossings:
        sides = [_risk(crossing.low * (1 - 1e-7), p) <= bound, _risk(crossing.high * (1 + 1e-7), p) <= bound]
        assert sides == [crossing.breaks, not crossing.breaks]


def test_a_decision_that_jumps_is_bracketed_at_the_jump():
    """P[right] leaps where the threshold falls: for p = 1/5 at ln 4 / 3 and ln 4."""
    found = largest_information(Criterion("right", 0.29), 1 / 5)
    assert found.safe == pytest.approx(math.log(4) / 3, rel=1e-9)
    assert found.crossings[0].jump > 0.2
    assert abs(found.crossings[1].jump) < 1e-9
    assert found.crossings[2].low == pytest.approx(math.log(4), rel=1e-9)


def test_an_exceedance_is_safe_below_and_broken_above():
    criterion = Criterion("exceedance", 0.05, ratio=1.5)
    found = largest_information(criterion, 1 / 10)
    values = [
        expected_one_level(1 / (2 * rho), p=0.1).exceedance(1.5)
        for rho in (found.safe * (1 - 1e-9), found.crossings[0].high * (1 + 1e-9))
    ]
    assert values[0] <= 0.05 < values[1]


def test_a_class_of_priors_is_as_safe_as_its_worst_member():
    criterion = Criterion("risk", 1.2)
    both = largest_information(criterion, (1 / 50, 1 / 2))
    assert both.safe == pytest.approx(largest_information(criterion, 1 / 50).safe, rel=1e-9)
    assert both.prior_log_odds == pytest.approx(-math.log(49))
    right = largest_information(Criterion("right", 0.4), (1 / 50, 1 / 5), low=0.05)
    assert right.prior_log_odds == pytest.approx(-math.log(4))


def test_a_whole_allocation_is_scaled_until_the_bound_is_met():
    evaluate = scaled_two_level(TwoLevelDesign(sigma2=5.0, group_sigma2=2.0, others=27), 10)
    found = largest_factor(Criterion("risk", 1.2), evaluate, 0.1, low=0.3, high=3.0, points=7)
    odds = -math.log(9)
    assert evaluate(found.safe * (1 - 1e-9), odds).risk < 1.2 < evaluate(found.safe * (1 + 1e-9), odds).risk


def test_the_worst_of_a_table_of_targets_counts():
    criterion = Criterion("risk", 1.5)
    mild, harsh = scaled_uniqueness([5.0]), scaled_uniqueness([5.0, 2.0])
    alone = largest_factor(criterion, harsh, 0.1, points=9)
    table = largest_factor(criterion, [mild, harsh], 0.1, points=9)
    assert table.safe == pytest.approx(alone.safe, rel=1e-9)
    assert largest_factor(criterion, mild, 0.1, points=9).safe > table.safe


def test_a_bound_that_is_never_reached_or_already_broken_is_said_so():
    never = largest_information(Criterion("risk", 3.0), 0.5)
    assert never.safe == math.inf
    assert never.crossings == ()
    broken = largest_information(Criterion("risk", 1.2), 0.1, low=1.0)
    assert broken.safe == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Criterion("risk", 1.0), "risk must exceed 1"),
        (lambda: Criterion("odds", 2.0), "measure must be"),
        (lambda: Criterion("exceedance", 0.1), "ratio goes with"),
        (lambda: Criterion("risk", 1.2, ratio=2.0), "only with it"),
        (lambda: Criterion("exceedance", 0.1, ratio=1.0), "ratio must exceed 1"),
        (lambda: guaranteed_information(1.0), "bound on R must"),
        (lambda: largest_information(Criterion("risk", 1.2), (0.5, 0.1)), "p0 <= p1"),
        (lambda: largest_information(Criterion("risk", 1.2), 0.5, low=2.0, high=1.0), "low < high"),
        (lambda: largest_factor(Criterion("risk", 1.2), [], 0.5), "at least one target"),
    ],
)
def test_impossible_questions_are_refused(call, message):
    with pytest.raises(ModelError, match=message):
        call()
