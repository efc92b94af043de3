"""Ceilings that hold whatever the adversary believes, against exact sums over the discrete Gaussian."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import pytest

from adversary.errors import BudgetError
from adversary.privacy.accounting import epsilon_bun_steinke
from adversary.privacy.semantics import best_power, best_test, odds_bound, rho_for_risk, risk_ceiling

FOLDER = Path(__file__).parents[1] / "reference"
SPINES = json.loads((FOLDER / "spines.json").read_text())
RHOS = (0.001, 0.01, 0.0992, 0.5, 2.0, 8.0, 50.0)


def worlds(rho: float) -> tuple[list[Any], list[Any]]:
    """Laws of one noisy count when the target is absent and when she is present."""
    s2 = 1 / (2 * mpmath.mpf(rho))
    n = range(-int(14 * math.sqrt(float(s2))) - 4, int(14 * math.sqrt(float(s2))) + 6)
    weights = [[mpmath.exp(-((k - mu) ** 2) / (2 * s2)) for k in n] for mu in (0, 1)]
    total = mpmath.fsum(weights[0])
    return [w / total for w in weights[0]], [w / total for w in weights[1]]


def power(rho: float, alpha: float) -> Any:
    """Power of the most powerful test of level alpha: whole counts from the right, then a coin at the edge."""
    absent, present = worlds(rho)
    false_alarm = found = mpmath.mpf(0)
    for p0, p1 in zip(reversed(absent), reversed(present), strict=True):
        if false_alarm + p0 > alpha:
            return found + p1 * (alpha - false_alarm) / p0
        false_alarm, found = false_alarm + p0, found + p1
    return found


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("alpha", [0.0, 1e-9, 1e-4, 0.01, 0.05, 0.3, 0.7, 0.999, 1.0])
def test_no_test_of_a_noisy_count_beats_the_ceiling(rho: float, alpha: float) -> None:
    assert best_power(rho, alpha) >= power(rho, alpha) - mpmath.mpf(10) ** -40
    assert alpha <= best_power(rho, alpha) <= 1


def test_the_ceiling_on_power_says_something() -> None:
    assert best_power("0.001", 0.05) < 0.08
    assert best_power("0.0992", 0.05) < 0.15
    assert best_power(0, 0.05) == 0.05
    assert best_power("inf", 0.05) == 1.0
    assert best_power(50.0, 0.05) == pytest.approx(1.0)
    powers = [best_power(r, 0.05) for r in RHOS]
    assert powers == sorted(powers)
    with pytest.raises(BudgetError, match=r"alpha must lie in \[0, 1\], got 1.5"):
        best_power(1.0, 1.5)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("p", [1e-6, 1 / 864, 0.1, 0.5, 0.99])
def test_no_adversary_s_expected_risk_beats_the_ceiling(rho: float, p: float) -> None:
    absent, present = worlds(rho)
    risk = mpmath.fsum(p1 * p1 / (p * p1 + (1 - p) * p0) for p0, p1 in zip(absent, present, strict=True))
    ceiling = risk_ceiling(rho, p)
    assert 1 <= risk <= ceiling * (1 + 1e-14)
    assert ceiling <= min(math.exp(2 * rho), 1 / p) * (1 + 1e-14)
    assert risk_ceiling(0, p) == pytest.approx(1)
    assert risk_ceiling("inf", p) == 1 / p


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_a_prior_of_nothing_or_all_is_refused(p: float) -> None:
    with pytest.raises(BudgetError, match="strictly between 0 and 1"):
        risk_ceiling("0.1", p)


def test_rho_for_risk_keeps_the_ratio_for_every_prior() -> None:
    for ratio in (1.0, 1.0001, 1.2, 3.0, 1e6):
        rho = rho_for_risk(ratio)
        assert all(risk_ceiling(rho, p) <= ratio * (1 + 1e-12) for p in (1e-9, 0.01, 0.5, 0.999))
        if ratio > 1:
            assert risk_ceiling(rho * 1.01, 1e-12) > ratio  # the largest
    with pytest.raises(BudgetError, match=r"got 0\.9: ask for a ratio of at least 1"):
        rho_for_risk(0.9)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-6])
def test_odds_pass_their_bound_no_more_often_than_delta(rho: float, delta: float) -> None:
    absent, present = worlds(rho)
    bound = odds_bound(rho, delta)
    assert bound == pytest.approx(math.exp(epsilon_bun_steinke(rho, delta)))
    passed = mpmath.fsum(p1 for p0, p1 in zip(absent, present, strict=True) if p1 > bound * p0)
    assert passed <= delta


def test_a_bound_beyond_double_precision_is_infinite() -> None:
    assert odds_bound("inf", 1e-6) == math.inf
    assert odds_bound("1000", 1e-6) == math.inf
    assert odds_bound(0, 1e-6) == 1.0


CASES = SPINES.get("adversary_two_blocks", [])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["lowest_common"])
def test_two_blocks_are_told_apart_as_often_as_in_the_reference(case: dict[str, Any]) -> None:
    assert best_test(case["rho"]) == pytest.approx(case["best_test"], rel=1e-13)
    with mpmath.workdps(50):
        wanted = mpmath.ncdf(mpmath.mpf(case["d"]) / 2)
    assert best_test(case["rho"]) == pytest.approx(float(wanted), rel=1e-14)


def test_the_best_test_runs_from_a_coin_to_certainty() -> None:
    assert best_test(0) == 0.5
    assert best_test("inf") == 1.0
    values = [best_test(r) for r in RHOS]
    assert values == sorted(values)
