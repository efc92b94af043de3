import math

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.approximation import assess_sum, needs_exact_sum


def _convolved(sigma2, d):
    half = math.ceil(30 * math.sqrt(sigma2)) + 5
    one = np.exp(dg.log_pmf(np.arange(-half, half + 1), sigma2))
    out = np.ones(1)
    for _ in range(d):
        out = np.convolve(out, one)
    return out


@pytest.mark.parametrize(("sigma2", "d"), [(1.0, 2), (0.5, 5), (0.25, 27), (0.1, 3)])
def test_total_variation_equals_plain_convolution(sigma2, d):
    exact = _convolved(sigma2, d)
    half = (exact.size - 1) // 2
    other = np.exp(dg.log_pmf(np.arange(-half, half + 1), d * sigma2))
    assert assess_sum(sigma2, d).total_variation == pytest.approx(0.5 * np.abs(exact - other).sum(), rel=1e-8)


@pytest.mark.parametrize(("rho", "d"), [(0.5, 3), (0.5, 27), (0.7, 5)])
def test_log_odds_errors_follow_the_series_of_the_lattice(rho, d):
    """Log ratio = 2d e^-x (e^(x/d) cos(2 pi s/d) - 1), x = pi^2 / rho, for fine noise (spec, S2)."""
    found = assess_sum(1 / (2 * rho), d)
    x = math.pi**2 / rho
    s = np.arange(-found.half_width, found.half_width + 1)
    ratio = 2 * d * math.exp(-x) * (math.exp(x / d) * np.cos(2 * math.pi * s / d) - 1)
    assert found.log_odds_error_bound == pytest.approx(np.ptp(ratio), rel=0.02)
    assert found.log_odds_error <= found.log_odds_error_bound


def test_it_improves_with_finer_noise_and_levels_off_with_more_counts():
    by_noise = [assess_sum(1 / (2 * rho), 27).total_variation for rho in (2.0, 1.0, 0.5)]
    assert by_noise[0] > by_noise[1] > by_noise[2]
    by_count = [assess_sum(0.5, d).total_variation for d in (2, 27, 100, 1000)]
    assert by_count[0] > by_count[1] > by_count[3] > 4e-4  # a plateau, not zero
    assert assess_sum(0.5, 1).total_variation == pytest.approx(0.0, abs=1e-15)


def test_the_switch_to_the_exact_sum_stands_between_rho_a_third_and_one():
    assert not needs_exact_sum(5.04, 27)
    assert not needs_exact_sum(0.05, 1)
    assert needs_exact_sum(0.5, 2)
    assert needs_exact_sum(0.05, 1000)


def test_variance_of_narrow_noise_shrinks():
    assert assess_sum(0.05, 27).variance_ratio == pytest.approx(0.0018, abs=2e-4)


def test_impossible_sums_are_refused():
    for arguments in ((0.0, 3), (1.0, 0), (1.0, 2.5)):
        with pytest.raises(ModelError, match="positive sigma2"):
            assess_sum(*arguments)
    with pytest.raises(ModelError, match="outside"):
        assess_sum(1.0, 2, outside=0.0)
