import numpy as np
import pytest

from adversary.errors import ModelError, ReleaseError
from adversary.risk import measures


def test_one_more_person_shifts_the_log_odds_linearly():
    odds = measures.one_level_log_odds(np.arange(-5, 6), 0, 5.0, 0.3)
    np.testing.assert_allclose(np.diff(odds), 1 / 5.0, rtol=1e-14)


@pytest.mark.parametrize("shift", [1, 10**9, 10**15])
def test_known_persons_and_count_shift_together_without_a_trace(shift):
    assert measures.one_level_log_odds(2 + shift, shift, 5.0, 0.0) == measures.one_level_log_odds(
        2, 0, 5.0, 0.0
    )


@pytest.mark.parametrize("noisy", [2.5, np.nan, 2.0**60])
def test_a_count_that_is_not_whole_is_refused(noisy):
    with pytest.raises(ReleaseError, match="whole numbers"):
        measures.uniqueness_log_odds([noisy], 5.0, 0.0)


def test_noise_that_is_not_positive_is_refused():
    with pytest.raises(ModelError, match="positive and finite"):
        measures.uniqueness_log_odds([1], 0.0, 0.0)


def test_both_log_posteriors_add_up_to_one_and_survive_extremes():
    odds = np.array([-1e6, -50.0, 0.0, 50.0, 1e6])
    present, absent = measures.log_posterior(odds)
    np.testing.assert_allclose(np.exp(present) + np.exp(absent), 1.0)
    assert present[0] == -1e6
    assert absent[-1] == -1e6
    # 1 - p by a second road: expm1
    np.testing.assert_allclose(absent[:3], np.log1p(-np.exp(present[:3])), rtol=1e-12)


def test_threshold_is_the_first_count_that_is_decided_present():
    for p in (0.5, 0.2, 0.02, 1 / 864, 0.9):
        for sigma2 in (0.05, 0.5, 5.04, 200.0):
            prior = measures.prior_log_odds(p)
            first = int(measures.decision_threshold(prior, sigma2))
            below, at = measures.one_level_log_odds([first - 1, first], 0, sigma2, prior)
            assert below <= 1e-12
            assert at > 0
            assert not measures.decide(below)
            assert measures.decide(at)


def test_a_tie_is_answered_with_absent_and_flagged():
    # p = 1/2 and an uneven break: 1/2 - logit * sigma2 is a whole number
    prior, sigma2 = -1.5, 1.0
    assert measures.decision_threshold(prior, sigma2) == 3
    tied = measures.one_level_log_odds(2, 0, sigma2, prior)
    assert measures.near_tie(tied)
    assert not measures.decide(tied)


def test_risk_ratio_exceeds_one_exactly_from_one_more_than_known():
    prior = measures.prior_log_odds(0.01)
    ratio = measures.risk_ratio(measures.one_level_log_odds([0, 1], 0, 5.0, prior), prior)
    assert ratio[0] < 1 < ratio[1]
    assert measures.risk_ratio(1e6, prior) == pytest.approx(100.0)


def test_record_posterior_with_two_cells_doubles_the_information():
    log_p = measures.record_log_posterior([2, -1], 5.0)
    assert log_p[0] - log_p[1] == pytest.approx(3 / 5.0)
