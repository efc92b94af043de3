"""Simulated releases: the right noise on every count, streams by name, exact and unmeasured counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from adversary.errors import BudgetError, ReleaseError
from adversary.privacy.budget import Allocation
from adversary.privacy.discrete_gaussian import pmf, sum_log_pmf, variance
from adversary.release.simulate import simulate, stream

K = 40_000


def chi_square_p(noise: np.ndarray, law: np.ndarray, support: np.ndarray) -> float:
    wide = law * noise.size >= 10
    observed = np.array([(noise == k).sum() for k in support[wide]])
    o = np.append(observed, noise.size - observed.sum())
    e = np.append(law[wide] * noise.size, noise.size * (1 - law[wide].sum()))
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), len(o) - 1))


@pytest.mark.parametrize(("convention", "sigma2"), [("unbounded", 5.0), ("bounded", 10.0)])
def test_the_noise_has_the_law_of_the_convention(convention: str, sigma2: float) -> None:
    release = simulate({"cells": [7] * K}, rho="0.1", seed=1, convention=convention)
    assert release["cells"].sigma2 == sigma2
    noise, n = release["cells"].value - 7, np.arange(-40, 41)
    assert chi_square_p(noise, pmf(n, sigma2), n) > 1e-3
    assert chi_square_p(noise, pmf(n, 1.1 * sigma2), n) < 1e-6
    assert chi_square_p(noise, pmf(n, 0.9 * sigma2), n) < 1e-6


def test_a_sum_of_noisy_counts_has_the_noise_of_each() -> None:
    release = simulate({"rest": [100] * K}, sigma2=0.25, groups={"rest": 5}, seed=2)
    assert release["rest"].groups == 5
    noise, n = release["rest"].value - 100, np.arange(-12, 13)
    assert chi_square_p(noise, np.exp(sum_log_pmf(n, 0.25, 5)), n) > 1e-3
    assert chi_square_p(noise, pmf(n, 5 * 0.25), n) < 1e-6  # the paper's approximation is another law here
    assert chi_square_p(noise, np.exp(sum_log_pmf(n, 0.275, 5)), n) < 1e-6


def test_each_count_has_its_own_noise() -> None:
    release = simulate({"a": [0] * K, "b": [0] * K}, sigma2={"a": 0.25, "b": 9.0}, seed=3)
    for name, sigma2 in (("a", 0.25), ("b", 9.0)):
        assert np.var(release[name].value) == pytest.approx(float(variance(sigma2)), rel=0.04)
    mixed = simulate({"c": [0] * K}, sigma2={"c": [0.25, 9.0] * (K // 2)}, seed=3)["c"].value
    for first, sigma2 in ((0, 0.25), (1, 9.0)):
        assert np.var(mixed[first::2]) == pytest.approx(float(variance(sigma2)), rel=0.05)


def test_noise_depends_on_seed_and_name_and_nothing_else() -> None:
    alone = simulate({"b": 5}, rho="0.01", seed=11)["b"].value
    counts = {"a": 1, "b": 5, "c": [1, 2, 3]}
    assert simulate(counts, rho="0.01", seed=11)["b"].value == alone
    assert simulate(dict(reversed(counts.items())), rho="0.01", seed=11)["b"].value == alone
    assert simulate({"b": 6}, rho="0.01", seed=11)["b"].value == alone + 1
    assert simulate({"b": 5}, rho="0.01", seed=np.random.SeedSequence(11))["b"].value == alone
    others = [simulate({"b": 5}, rho="0.01", seed=s)["b"].value for s in range(20)]
    assert len(set(others)) > 10
    names = [simulate({n: 5}, rho="0.01", seed=11)[n].value for n in "cdefghijklmnopq"]
    assert len(set(names)) > 7


def test_streams_of_different_names_are_independent() -> None:
    draws = np.array([stream(5, geoid, "cell").normal(size=400) for geoid in map(str, range(40))])
    off = np.corrcoef(draws)[np.triu_indices(40, 1)]
    assert np.sqrt(400) * np.abs(off).max() < 4.5
    assert stream(5, "a", "bc").random() != stream(5, "ab", "c").random()
    assert stream(np.random.SeedSequence(5, spawn_key=(1,)), "a").random() != stream(5, "a").random()
    assert stream(5, "a").integers(2**31) == 363536061  # the same on every machine and for ever


def test_a_generator_is_used_up_in_order() -> None:
    one, two = (simulate({"a": 1, "b": 2}, rho="0.01", seed=np.random.default_rng(4)) for _ in range(2))
    assert one == two


def test_exact_counts_are_exact_and_unmeasured_ones_leave_no_trace() -> None:
    release = simulate(
        {"state": 1_234_567, "block": 3, "tract": 98_765},
        rho={"state": "inf", "block": "0.1", "tract": 0},
        seed=1,
    )
    assert release["state"].value == 1_234_567
    assert release["state"].exact
    assert release.not_measured == ("tract",)
    assert "tract" not in list(release)
    assert "98765" not in release.to_json()


def test_an_allocation_gives_each_level_the_share_of_its_query() -> None:
    whole = Allocation.load("2020-pl94-persons")
    counts = {"block": 3, "block_group": 40, "tract": 300}
    release = simulate(counts, allocation=whole, query="detailed", seed=1, convention="bounded")
    for level in counts:
        assert release[level].sigma2 == whole.sigma2(level, "detailed", "bounded")
        assert release[level].rho == whole.rho(level, "detailed")


def test_vast_counts_stay_whole() -> None:  # P12
    release = simulate({"n": [2**31 - 1] * 10_000}, sigma2=1e12, seed=12)
    assert release["n"].value.dtype == np.int64
    assert np.var(release["n"].value - (2**31 - 1)) == pytest.approx(1e12, rel=0.05)
    still = simulate({"n": [2**31 - 1] * 10_000}, sigma2=1e-12, seed=12)
    np.testing.assert_array_equal(still["n"].value, 2**31 - 1)


def test_what_cannot_be_simulated_is_refused() -> None:
    whole = Allocation.load("2020-pl94-persons")
    for wrong in ({}, {"rho": "0.1", "sigma2": 5.0}):
        with pytest.raises(ReleaseError):
            simulate({"a": 1}, seed=1, **wrong)
    with pytest.raises(ReleaseError, match="give the query whose share is spent"):
        simulate({"block": 1}, allocation=whole, seed=1)
    with pytest.raises(ReleaseError, match="neither rho nor sigma2"):
        simulate({"block": 1}, allocation=whole, query="detailed", rho="0.1", seed=1)
    with pytest.raises(BudgetError, match="did you mean 'block'"):
        simulate({"blocks": 1}, allocation=whole, query="detailed", seed=1)
    for count in (2.5, math.nan, "many"):
        with pytest.raises(ReleaseError):
            simulate({"a": count}, rho="0.1", seed=1)
    with pytest.raises(BudgetError, match="rho must be exact"):
        simulate({"a": 1}, rho=0.1, seed=1)
    with pytest.raises(BudgetError, match="too wide to draw"):  # P13: 1e-300 is never a release without noise
        simulate({"a": 1}, rho="1e-300", seed=1)
