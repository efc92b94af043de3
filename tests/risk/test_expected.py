import math
import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import expected_one_level, risk_ceiling


def _mp_answer(sigma2, p, here):
    """Mean posterior and P[present] by 40-digit sums."""
    mp.mp.dps = 40
    s2, p = mp.mpf(sigma2), mp.mpf(p)
    reach = int(mp.sqrt(200 * s2)) + 12
    weight = {n: mp.exp(-(mp.mpf(n) ** 2) / (2 * s2)) for n in range(-reach, reach + 1)}
    norm = mp.fsum(weight.values())
    odds = {n: mp.log(p) - mp.log1p(-p) + (2 * (n + here) - 1) / (2 * s2) for n in weight}
    mean = mp.fsum(w / (1 + mp.exp(-odds[n])) for n, w in weight.items()) / norm
    yes = mp.fsum(w for n, w in weight.items() if odds[n] > 0) / norm
    return float(mean), float(yes)


@pytest.mark.parametrize("sigma2", [0.005, 0.3, 5.04, 90.0])
@pytest.mark.parametrize("p", [0.5, 0.2, 1 / 864, 0.97])
def test_one_level_equals_forty_digit_sums(sigma2, p):
    for truth, here in (("present", 1), ("absent", 0)):
        mean, yes = _mp_answer(sigma2, p, here)
        found = expected_one_level(sigma2, p=p, truth=truth)
        assert found.posterior == pytest.approx(mean, rel=1e-12)
        assert found.right == pytest.approx(yes if here else 1 - yes, rel=1e-11, abs=1e-15)


@pytest.mark.parametrize("p", [0.5, 0.01, 1e-9])
def test_the_posterior_averages_to_the_prior(p):
    """P E1 + (1 - p) E0 = p."""
    found = expected_one_level(2.0, p=p, truth="average")
    assert found.posterior == pytest.approx(p, rel=1e-13)
    assert found.risk == pytest.approx(1.0, rel=1e-13)


def test_risk_tends_to_exp_two_rho_as_the_prior_vanishes():
    rho = 0.3
    assert expected_one_level(1 / (2 * rho), log_odds=-200.0).risk == pytest.approx(
        math.exp(2 * rho), rel=1e-13
    )


@pytest.mark.parametrize("rho", [0.01, 0.5, 5.0])
def test_risk_stays_below_its_ceiling_and_falls_in_the_prior(rho):
    priors = [1e-6, 0.01, 0.3, 0.9]
    risks = [expected_one_level(1 / (2 * rho), p=p).risk for p in priors]
    assert all(np.diff(risks) < 0)
    for p, risk in zip(priors, risks, strict=True):
        assert 1 < risk <= risk_ceiling(rho, p=p) * (1 + 1e-12) <= min(1 / p, math.exp(2 * rho)) * (1 + 1e-11)


def test_exceedance_and_quantiles_equal_a_sum_over_the_noise():
    sigma2, p = 5.04, 0.1
    found = expected_one_level(sigma2, p=p)
    noise = np.arange(-60, 61)
    weight = np.exp(dg.log_pmf(noise, sigma2))
    ratio = 1 / (p + (1 - p) * np.exp(-(2 * noise + 1) / (2 * sigma2)))
    for bound in (0.7, 1.0, 1.5, 3.0):
        assert found.exceedance(bound) == pytest.approx(weight[ratio > bound].sum(), abs=1e-14)
    for q in (0.05, 0.5, 0.95):
        assert found.quantile(q) == pytest.approx(ratio[np.searchsorted(np.cumsum(weight), q)], rel=1e-12)
    atoms, mass = found.atoms()
    assert atoms @ mass == pytest.approx(found.risk, rel=1e-12)


def test_exceedance_at_an_attained_value_does_not_count_it():
    found = expected_one_level(5.04, p=0.1)
    value = found.quantile(0.5)
    atoms, mass = found.atoms()
    assert found.exceedance(value) == pytest.approx(mass[atoms > value * (1 + 1e-10)].sum(), abs=1e-13)


def test_the_average_truth_mixes_both_laws():
    one = {t: expected_one_level(2.0, p=0.3, truth=t) for t in ("present", "absent", "average")}
    assert one["average"].right == pytest.approx(0.3 * one["present"].right + 0.7 * one["absent"].right)
    mixed = 0.3 * one["present"].exceedance(1.2) + 0.7 * one["absent"].exceedance(1.2)
    assert one["average"].exceedance(1.2) == pytest.approx(mixed)
    q = one["average"].quantile(0.6)
    assert one["average"].exceedance(q * (1 - 1e-9)) >= 0.4 >= one["average"].exceedance(q * (1 + 1e-9))


def test_a_tie_is_reported_and_half_credit_shares_it():
    # log-odds -1.5 with sigma2 = 1: the noisy count known + 2 is a tie
    strict = expected_one_level(1.0, log_odds=-1.5)
    half = expected_one_level(1.0, log_odds=-1.5, ties="half")
    tied = float(np.exp(dg.log_pmf(1, 1.0)))
    assert strict.near_tie_mass == pytest.approx(tied)
    assert half.right - strict.right == pytest.approx(tied / 2)


def test_the_decision_probability_is_kept_as_a_logarithm_far_below_underflow():
    found = expected_one_level(5000.0, p=1e-9)
    assert found.right == 0.0
    assert found.log_right == pytest.approx(-1073632.723135128, rel=1e-10)


def test_a_seeded_simulation_agrees_and_would_notice_wrong_noise():
    rng = np.random.default_rng(7)
    n = 200_000
    found = expected_one_level(5.0, p=0.2)
    for factor, agrees in ((1.0, True), (1.2, False)):
        noise = dg.sample(5.0 * factor, n, rng)
        posterior = 1 / (1 + 4 * np.exp(-(2 * noise + 1) / (2 * 5.0)))
        z = (posterior.mean() - found.posterior) / (posterior.std() / math.sqrt(n))
        spread = (posterior.std() - math.sqrt(_variance(found))) / (posterior.std() / math.sqrt(n))
        assert bool(abs(z) < 4 and abs(spread) < 6) is agrees


def _variance(found):
    ratio, mass = found.atoms()
    return float(mass @ (ratio * found.prior - found.posterior) ** 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma2": 0.0, "p": 0.5}, "positive and finite"),
        ({"sigma2": math.inf, "p": 0.5}, "positive and finite"),
        ({"sigma2": 1.0}, "give the prior once"),
        ({"sigma2": 1.0, "p": 0.5, "log_odds": 0.0}, "give the prior once"),
        ({"sigma2": 1.0, "p": 1.0}, "strictly between"),
        ({"sigma2": 1.0, "log_odds": math.inf}, "must be finite"),
        ({"sigma2": 1.0, "p": 0.5, "truth": "maybe"}, "truth must be one of"),
        ({"sigma2": 1.0, "p": 0.5, "ties": "coin"}, "ties must be one of"),
    ],
)
def test_impossible_arguments_are_refused_in_words(arguments, message):
    with pytest.raises(ModelError, match=message):
        expected_one_level(**arguments)


def test_noise_too_wide_to_sum_is_refused_with_the_way_out():
    with pytest.raises(UnsupportedModelError, match="risk_ceiling"):
        expected_one_level(1e10, p=0.5)


def test_a_quantile_outside_the_unit_interval_is_refused():
    with pytest.raises(ModelError, match="strictly between 0 and 1"):
        expected_one_level(1.0, p=0.5).quantile(1.0)


def test_the_room_of_risk_imports_numpy_alone():
    code = "import sys, adversary.risk, adversary.samplers.tree; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"scipy", "pandas", "xarray", "pymc", "pytensor", "arviz", "matplotlib"}
    assert "numpy" in loaded
    assert heavy.isdisjoint(loaded)
