"""Epsilon and delta of a zCDP budget: published values, 50 digits, monotone everywhere, and back again."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary.errors import BudgetError
from adversary.privacy.accounting import (
    compose,
    epsilon,
    epsilon_bun_steinke,
    epsilon_gaussian,
    log_delta,
    pure_to_zcdp,
    rho_from_epsilon,
)
from adversary.privacy.budget import Rho

FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = json.loads((FOLDER / "kazan_reiter.json").read_text())
RHO = st.one_of(st.floats(0, 1e6), st.floats(-300, 6).map(lambda e: 10.0**e))
DELTA = st.one_of(st.floats(1e-300, 1), st.floats(-300, 0).map(lambda e: 10.0**e))


@pytest.mark.parametrize("case", [c for c in REFERENCE if c["id"].startswith("eps_")], ids=lambda c: c["id"])
def test_every_epsilon_of_the_reference_is_met(case: dict[str, Any]) -> None:
    f = {"bs": epsilon_bun_steinke, "cks": epsilon, "gauss": epsilon_gaussian}[case["id"].split("_")[1]]
    got = f(case["inputs"]["rho"], case["inputs"]["delta"])
    assert got == pytest.approx(case["exact_value"], rel=case["tolerance"], abs=0)


def test_the_paper_prints_theorem_1_cut_off() -> None:
    assert math.floor(100 * epsilon_bun_steinke("2.56", 1e-10)) / 100 == 17.91
    assert round(epsilon_bun_steinke("2.56", 1e-10), 2) == 17.92


def test_the_anchors_of_the_bureau_are_met() -> None:  # P13
    assert epsilon("2.5562", 1e-10) == pytest.approx(17.1435, abs=5e-5)
    assert epsilon("0.07", 1e-10) == pytest.approx(2.3873, abs=5e-5)
    assert round(epsilon("293764/114921", 1e-10), 2) == 17.14
    assert round(epsilon("11417641/152349649", 1e-10), 2) == 2.47


def test_no_budget_no_epsilon_and_no_end_without_one() -> None:  # P13
    assert epsilon(0, 1e-10) == epsilon_bun_steinke(0, 1e-10) == epsilon_gaussian(0, 1e-10) == 0
    assert (
        epsilon("inf", 1e-10)
        == epsilon_bun_steinke("inf", 1e-10)
        == epsilon_gaussian("inf", 1e-10)
        == math.inf
    )
    assert 0 <= epsilon("1e-300", 1e-10) <= epsilon_bun_steinke("1e-300", 1e-10) < 1e-148
    assert epsilon("1e-300", 1e-300) < 1e-148
    assert epsilon("1e400", 1e-10) == math.inf  # beyond double precision: never a smaller promise
    for bad in (-1, -1.0, math.nan, "nan", "-1"):
        for f in (epsilon, epsilon_bun_steinke, epsilon_gaussian):
            with pytest.raises(BudgetError, match="rho must"):
                f(bad, 1e-10)
    for delta in (0, -1e-9, 1.1, math.nan):
        with pytest.raises(BudgetError, match=r"delta must lie in \(0, 1\]"):
            epsilon(1, delta)


def exact_epsilon(rho: float, delta: float) -> Any:
    """The infimum over alpha at 50 digits: root of the derivative."""
    with mpmath.workdps(50):
        r, ell = mpmath.mpf(rho), mpmath.log(mpmath.mpf(delta))

        def at(x: Any) -> Any:
            return r * (1 + x) + mpmath.log(x / (1 + x)) - (mpmath.log1p(x) + ell) / x

        # derivative times x^2: r x^2 + ln(1 + x) + ln(delta), increasing
        low, high = mpmath.mpf("1e-330"), mpmath.mpf("1e330")
        for _ in range(1200):
            middle = mpmath.sqrt(low * high)
            low, high = (middle, high) if r * middle**2 + mpmath.log1p(middle) + ell < 0 else (low, middle)
        return max(mpmath.mpf(0), at(low))


@pytest.mark.parametrize("rho", [1e-12, 1e-6, 1e-3, 0.1, 2.56, 40.0, 1e6])
@pytest.mark.parametrize("delta", [1e-300, 1e-10, 1e-3, 0.4])
def test_epsilon_is_the_infimum_over_all_orders(rho: float, delta: float) -> None:
    wanted = float(exact_epsilon(rho, delta))
    assert epsilon(rho, delta) == pytest.approx(wanted, rel=1e-11, abs=1e-15)
    if wanted > 1e-6:
        assert epsilon(rho, delta) >= wanted * (1 - 1e-13)  # a promise errs upwards if at all


@pytest.mark.parametrize(("rho", "delta"), [(0.1, 1e-6), (2.56, 1e-10), (0.01, 1e-3), (30.0, 1e-20)])
def test_no_gaussian_breaks_the_promise(rho: float, delta: float) -> None:
    assert epsilon_gaussian(rho, delta) < epsilon(rho, delta) < epsilon_bun_steinke(rho, delta)
    eps, mu = epsilon_gaussian(rho, delta), mpmath.sqrt(2 * mpmath.mpf(rho))
    with mpmath.workdps(50):
        got = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
    assert float(got) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("rho", [0.02, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-10])
def test_the_discrete_gaussian_itself_keeps_the_promise(rho: float, delta: float) -> None:
    # (eps, delta)-DP of one count with noise 1/(2 rho): delta is the sum of (p - e^eps q)+
    with mpmath.workdps(50):
        s2, eps = 1 / (2 * mpmath.mpf(rho)), mpmath.mpf(epsilon(rho, delta))
        n = range(-120, 121)
        p = [mpmath.exp(-(k * k) / (2 * s2)) for k in n]
        q = [mpmath.exp(-((k - 1) ** 2) / (2 * s2)) for k in n]
        failure = mpmath.fsum(max(mpmath.mpf(0), a - mpmath.exp(eps) * b) for a, b in zip(p, q, strict=True))
        assert failure / mpmath.fsum(p) <= delta


@settings(max_examples=150, deadline=None)
@given(RHO, RHO, DELTA, DELTA)
def test_epsilon_rises_with_rho_and_falls_with_delta(r1: float, r2: float, d1: float, d2: float) -> None:
    (r1, r2), (d1, d2) = sorted((r1, r2)), sorted((d1, d2))
    for f in (epsilon, epsilon_bun_steinke):
        least, most = f(r1, d2), f(r2, d1)
        for middle in (f(r1, d1), f(r2, d2)):
            assert math.isfinite(middle)
            assert 0 <= least <= middle * (1 + 1e-12) + 1e-14
            assert middle <= most * (1 + 1e-12) + 1e-14
    assert epsilon(r1, d1) <= epsilon_bun_steinke(r1, d1)


@settings(max_examples=100, deadline=None)
@given(RHO, st.floats(0, 1e6), st.floats(0, 1e6))
def test_log_delta_falls_with_epsilon_and_is_never_nan(rho: float, e1: float, e2: float) -> None:
    e1, e2 = sorted((e1, e2))
    more, less = log_delta(rho, e1), log_delta(rho, e2)
    assert less <= more * (1 - 1e-12) + 1e-12 <= 1e-11
    assert not math.isnan(less)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 2.56, 100.0])
@pytest.mark.parametrize("delta", [1e-100, 1e-10, 1e-3])
def test_log_delta_undoes_epsilon(rho: float, delta: float) -> None:
    assert log_delta(rho, epsilon(rho, delta)) == pytest.approx(math.log(delta), rel=1e-9)


def test_log_delta_has_its_ends() -> None:
    assert log_delta(0, 1.0) == -math.inf
    assert log_delta(1.0, math.inf) == -math.inf
    assert log_delta("inf", 1.0) == 0.0
    assert log_delta(5e-324, 1.0) < -1e300  # and no overflow on the way
    assert log_delta(1e6, 0.0) <= 0.0
    with pytest.raises(BudgetError, match="epsilon must not be negative, got -1"):
        log_delta(1.0, -1)


@settings(max_examples=80, deadline=None)
@given(st.floats(-2.9, 250).map(lambda e: 10.0**e), DELTA.filter(lambda d: d < 0.9))
def test_rho_from_epsilon_goes_back(eps: float, delta: float) -> None:
    rho = rho_from_epsilon(eps, delta)
    assert epsilon(rho, delta) == pytest.approx(eps, rel=1e-12)
    assert epsilon(rho, delta) <= eps
    assert epsilon(rho * (1 + 1e-9), delta) > eps


@settings(max_examples=60, deadline=None)
@given(st.floats(-320, -3).map(lambda e: 10.0**e), DELTA.filter(lambda d: d < 0.9))
def test_rho_from_a_tiny_epsilon_promises_no_more(eps: float, delta: float) -> None:
    rho = rho_from_epsilon(eps, delta)
    assert rho >= 0
    assert epsilon(rho, delta) <= eps
    if rho > 1e-290:
        assert epsilon(rho * (1 + 1e-6), delta) > eps


def test_rho_from_epsilon_has_its_ends() -> None:
    assert rho_from_epsilon(0, 1e-10) == 0.0
    assert rho_from_epsilon(math.inf, 1e-10) == math.inf
    assert rho_from_epsilon(1.7e308, 1e-10) == pytest.approx(1.7e308)
    assert rho_from_epsilon(epsilon("293764/114921", 1e-10), 1e-10) == pytest.approx(
        293764 / 114921, rel=1e-12
    )
    for bad in (-1.0, math.nan):
        with pytest.raises(BudgetError, match="epsilon must not be negative"):
            rho_from_epsilon(bad, 1e-10)
    with pytest.raises(BudgetError, match="any rho will do"):
        rho_from_epsilon(1.0, 1.0)


def test_budgets_add_exactly_and_pure_budgets_square() -> None:
    assert compose(["0.1"] * 10) == Rho(1)
    assert compose([]) == Rho(0)
    assert compose(["1/3", "inf"]).infinite
    assert pure_to_zcdp("0.1").fraction == Fraction(1, 200)
    assert pure_to_zcdp("inf").infinite
    with pytest.raises(BudgetError, match="must be exact"):
        pure_to_zcdp(0.1)
    # pure DP by randomised response at epsilon is worst at every order; D_2 <= 2 rho must hold
    for eps in (0.1, 1.0, 3.0):
        p = 1 / (1 + math.exp(-eps))
        d2 = math.log(p * p / (1 - p) + (1 - p) ** 2 / p)
        assert d2 <= 2 * float(pure_to_zcdp(str(eps)))
