"""What a determined tester found wrong, silently: frozen entries of vectors, peaks out of sight, nested equalities."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from adversary import Prior, Release, measured, run, scenario
from adversary.privacy import discrete_gaussian as dg

BIT = Prior("DiscreteUniform", lower=0, upper=1)


def test_a_vector_of_sums_and_products_equals_enumeration():
    @scenario(target="both")
    def pair(release, *, her=Prior("Bernoulli", p=0.5), him=Prior("Bernoulli", p=0.5)):
        pm.Deterministic("both", her * him)
        measured(release["cells"], pt.stack([her + him, her * him]))

    w = {(a, b): dg.pmf(2 - a - b, 1.0) * dg.pmf(1 - a * b, 1.0) for a in (0, 1) for b in (0, 1)}
    result = run(pair, Release.from_counts({"cells": [2, 1]}, sigma2=1.0), draws=0)
    assert result.posterior == pytest.approx(w[1, 1] / sum(w.values()), abs=1e-12)


def test_an_exact_remainder_has_peaks_everywhere_and_none_is_missed():
    @scenario(target="x")
    def remainder(release, *, x=Prior("Poisson", mu=40.0)):
        measured(release["m"], x % 7)

    k = np.arange(400)
    w = stats.poisson(40).pmf(k) * (k % 7 == 3)
    result = run(remainder, Release.from_counts({"m": 3}, rho="inf"), draws=0)
    np.testing.assert_allclose(result.posterior.values, (w / w.sum())[result.support], atol=1e-12)
    assert "checked by widening" in result.checks[0].text, "not proven: the argument is not linear"


@pytest.mark.parametrize("gap", [50, 200, 400])
def test_a_distance_leaves_two_peaks_however_far_apart(gap):
    @scenario(target="above")
    def distance(release, *, x=Prior("NegativeBinomial", mu=500.0, alpha=1.0)):
        pm.Deterministic("above", pt.cast(pt.ge(x, 500), "int64"))
        measured(release["gap"], pt.abs(x - 500))

    x = np.arange(20_000)
    log_w = stats.nbinom(1.0, 1 / 501).logpmf(x) + dg.log_pmf(gap - np.abs(x - 500), 4.0)
    wanted = np.logaddexp.reduce(log_w[x >= 500]) - np.logaddexp.reduce(log_w[x < 500])
    result = run(distance, Release.from_counts({"gap": gap}, sigma2=4.0), draws=0)
    assert result.log_odds == pytest.approx(wanted, abs=1e-9)


def test_an_exact_distance_is_no_contradiction():
    @scenario(target="x")
    def distance(release, *, x=Prior("Poisson", mu=45.0)):
        measured(release["gap"], pt.abs(x - 50))

    a, b = stats.poisson(45).pmf([40, 60])
    top = dict(run(distance, Release.from_counts({"gap": 10}, rho="inf"), draws=0).top(2))
    assert top == pytest.approx({40: a / (a + b), 60: b / (a + b)}, abs=1e-12)


def test_a_table_of_proportions_may_have_a_spike_far_from_its_body():
    p = np.exp(-np.arange(3000) * 0.2)
    p[1777] = p.sum()
    p /= p.sum()

    @scenario(target="x")
    def spike(release, *, x=Prior("Categorical", p=p)):
        measured(release["b"], x)

    result = run(spike, Release.from_counts({"b": 0}, sigma2=1e9), draws=0)
    w = p * dg.pmf(-np.arange(3000), 1e9)
    assert dict(result.top(1))[1777] == pytest.approx(w[1777] / w.sum(), abs=1e-10)


def test_nested_equalities_count_what_is_on_at_zero():
    @scenario(target="two")
    def zeros(release, *, a=BIT, b=BIT, c=BIT):
        n = sum(pt.cast(pt.eq(v, 0), "int64") for v in (a, b, c))
        pm.Deterministic("two", pt.cast(pt.eq(n, 2), "int64"))
        measured(release["x"], a + b + c)

    w = np.array([dg.pmf(2 - k, 1.0) * m for k, m in enumerate((1, 3, 3, 1))])
    result = run(zeros, Release.from_counts({"x": 2}, sigma2=1.0), draws=0)
    assert result.prior == pytest.approx(3 / 8, abs=1e-14)
    assert result.posterior == pytest.approx(w[1] / w.sum(), abs=1e-12)


def test_what_she_knows_in_a_mapping_is_read_anew():
    @scenario(target="x")
    def mapped(release, *, known=None, x=Prior("Bernoulli", p=0.3)):
        measured(release["b"], x + int(known["a"][1000]))

    release = Release.from_counts({"b": 3}, sigma2=1.0)
    one, two = np.zeros(3000, dtype=int), np.zeros(3000, dtype=int)
    two[1000] = 3
    odds = [run(mapped.assuming(known={"a": a}), release, draws=0).log_odds for a in (one, two)]
    assert odds[0] - odds[1] == pytest.approx(3.0, abs=1e-12)


def test_a_certain_event_is_decided_for():
    @scenario(target="any")
    def certain(release, *, x=Prior("Poisson", mu=1000.0)):
        pm.Deterministic("any", pt.cast(pt.ge(x, 1), "int64"))
        measured(release["b"], x)

    assert run(certain, Release.from_counts({"b": 1000}, sigma2=4.0), draws=0).decision == 1
