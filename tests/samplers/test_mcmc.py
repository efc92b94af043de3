"""Sampling with PyMC: right steps by default, and no silent failure."""

from __future__ import annotations

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest

from adversary.distributions import DiscreteGaussian, FlatCount
from adversary.errors import ModelError, SamplingError, UnsupportedModelError
from adversary.samplers.grid_gibbs import GridGibbs
from adversary.samplers.mcmc import sample_mcmc

RHO1, RHO2 = 0.09922635422547502, 0.24648450960703558
S1, S2 = 1 / (2 * RHO1), 1 / (2 * RHO2)


def two_level(rest, *, known=4, data=(6, 66, 57), sigma2=(5.0, 2.5, 50.0)):
    with pm.Model() as model:
        b = pm.Bernoulli("b", 0.5)
        y = rest()
        DiscreteGaussian("x1", known + b, sigma2=sigma2[0], observed=data[0])
        DiscreteGaussian("x2", known + b + y, sigma2=sigma2[1], observed=data[1])
        DiscreteGaussian("y1", y, sigma2=sigma2[2], observed=data[2])
    return model


def brute(sigma2_top=2.5):
    y = np.arange(400)
    w = np.stack(
        [
            np.exp(-((6 - k) ** 2) / 10 - (66 - k - y) ** 2 / (2 * sigma2_top) - (57 - y) ** 2 / 100)
            for k in (4, 5)
        ]
    )
    mean = (w * y).sum() / w.sum()
    return w[1].sum() / w.sum(), mean, (w * (y - mean) ** 2).sum() / w.sum()


def z_score(draws, mean):
    return abs(float(draws.mean()) - mean) / float(az.mcse(draws.astype(float)))


@pytest.fixture(scope="module")
def wide():
    return sample_mcmc(two_level(lambda: pm.DiscreteUniform("y", 0, 10**6)), draws=4_000, chains=2, seed=1)[
        "posterior"
    ]


def test_a_prior_a_million_wide_gives_the_brute_force_answer(wide):
    present, rest, spread = brute()
    assert z_score(wide["b"], present) < 4
    assert z_score(wide["y"], rest) < 4
    assert z_score((wide["y"] - rest) ** 2, spread) < 4
    assert max(float(az.rhat(wide[v].astype(float))) for v in ("b", "y")) < 1.01


def test_noise_that_is_wrong_by_a_fifth_is_noticed(wide):
    _, rest, _ = brute()
    for factor in (1.2, 1 / 1.2):
        assert z_score((wide["y"] - rest) ** 2, brute(2.5 * factor)[2]) > 4


def test_the_paper_s_example_has_the_exact_answer():
    model = two_level(lambda: FlatCount("y"), known=0, data=(2, 1, -1), sigma2=(S1, S2, 27 * S1))
    tree = sample_mcmc(model, draws=4_000, chains=2, seed=2)
    assert z_score(tree["posterior"]["b"], 0.5032878263) < 4
    assert float(az.rhat(tree["posterior"]["y"].astype(float))) < 1.01
    assert tree.attrs["never_moved"] == "[]"


def test_draws_do_not_depend_on_processes_or_on_how_the_seed_is_written():
    model = two_level(lambda: FlatCount("y"))

    def draws(seed, **options):
        tree = sample_mcmc(model, draws=60, tune=40, chains=2, seed=seed, **options)
        return np.stack([tree["posterior"][v].values for v in ("b", "y")])

    one = draws(42)
    spawned = np.random.SeedSequence(42)
    spawned.spawn(2)
    assert np.array_equal(one, draws(42, cores=2))
    assert np.array_equal(one, draws(spawned))
    assert np.array_equal(draws(np.random.default_rng(42)), draws(np.random.default_rng(42)))
    assert not np.array_equal(one, draws(43))
    assert not np.array_equal(one[:, 0], one[:, 1])


def test_integers_and_a_probability_are_sampled_together():
    m, noisy = np.array([3, 0, 5, 2, 7, 1]), np.array([4, 1, 5, 3, 9, 0])
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        b = pm.Bernoulli("b", p, shape=6)
        DiscreteGaussian("x", m + b, sigma2=1.0, observed=noisy)
    tree = sample_mcmc(model, draws=1_500, chains=2, seed=3, log_likelihood=True, log_prior=True)
    grid = (np.arange(4000) + 0.5) / 4000
    odds = np.exp(((noisy - m) ** 2 - (noisy - m - 1) ** 2) / 2)
    w = np.prod(1 - grid[:, None] + grid[:, None] * odds, axis=1)
    assert z_score(tree["posterior"]["p"], (w * grid).sum() / w.sum()) < 4
    assert tree["posterior"]["b"].dtype == np.int64
    assert {"log_likelihood", "log_prior"} <= set(tree.children)


def test_unknowns_tied_by_a_hard_fact_are_an_error():
    with pm.Model() as model:  # report P4
        a, b = pm.DiscreteUniform("a", 0, 200), pm.DiscreteUniform("b", 0, 200)
        pm.DiscreteUniform("total", a + b, a + b, observed=100)
        DiscreteGaussian("na", a, sigma2=0.49, observed=40)
        DiscreteGaussian("nb", b, sigma2=0.49, observed=60)
    with pytest.raises(SamplingError, match=r"cannot move: with . held"):
        sample_mcmc(model, draws=30, tune=20, chains=2, seed=1)
    tree = sample_mcmc(model, draws=30, tune=20, chains=2, seed=1, on_constant="record")
    assert tree.attrs["never_moved"] == '["a", "b"]'


def test_two_entries_tied_inside_a_vector_are_an_error_though_a_third_moves():
    with pm.Model() as model:
        y = pm.DiscreteUniform("y", 0, 60, shape=3)
        pm.DiscreteUniform("total", y[0] + y[1], y[0] + y[1], observed=50)
        DiscreteGaussian("ny", y, sigma2=1.0, observed=[20, 30, 7])
    with pytest.raises(SamplingError, match="y cannot move"):
        sample_mcmc(model, draws=30, tune=20, chains=2, seed=1)


def test_chains_stuck_at_different_values_are_an_error():
    with pm.Model() as model:  # two events that are equal, surely
        a, b = pm.Bernoulli("a", 0.5), pm.Bernoulli("b", 0.5)
        pm.Potential("equal", pm.math.switch(pm.math.eq(a, b), 0.0, -np.inf))
    with pytest.raises(SamplingError, match="different values"):
        sample_mcmc(model, draws=30, tune=0, chains=2, seed=1)


def test_a_rare_value_that_was_never_drawn_is_an_error():
    with pm.Model() as model:
        b = pm.Bernoulli("b", 0.5)
        DiscreteGaussian("x", b, sigma2=0.01, observed=1)
    with pytest.raises(SamplingError, match="never moved in 60 draws although"):
        sample_mcmc(model, draws=30, tune=5, chains=2, seed=1)


def test_what_a_fact_fixes_is_recorded_as_constant_by_construction():
    with pm.Model() as model:
        b, y = pm.Bernoulli("b", 0.5), FlatCount("y")
        pm.DiscreteUniform("x1", 4 + b, 4 + b, observed=5)
        DiscreteGaussian("x2", 4 + b + y, sigma2=3.0, observed=50)
    tree = sample_mcmc(model, draws=60, tune=20, chains=2, seed=1)
    assert tree.attrs["constant_by_construction"] == '["b"]'
    assert (tree["posterior"]["b"] == 1).all()


def test_a_fact_outside_the_prior_is_named_with_its_value_and_the_bounds():
    with pm.Model() as model:  # report P3
        people = pm.DiscreteUniform("people", 0, 10)
        pm.DiscreteUniform("n", people, people, observed=12)
    with pytest.raises(SamplingError, match=r"fact n=12 .*prior's support \(people in 0\.\.10\)"):
        sample_mcmc(model, seed=1)


@pytest.mark.parametrize(
    "option", [{"nuts_sampler": "nutpie"}, {"step": "nuts"}, {"nuts_sampler": "numpyro"}]
)
def test_gradient_samplers_on_integers_are_refused_by_name(option):
    with pytest.raises(UnsupportedModelError, match=r"b is an integer .*sampler='exact'"):  # report P6
        sample_mcmc(two_level(lambda: FlatCount("y")), seed=1, **option)


@pytest.mark.parametrize(
    "make",
    [
        lambda v: pm.Slice([v]),
        lambda v: pm.DEMetropolisZ([v]),
        lambda v: pm.CategoricalGibbsMetropolis([v], proposal="proportional"),
    ],
    ids=["Slice", "DEMetropolisZ", "CategoricalGibbs"],
)
def test_steps_that_are_wrong_on_integers_are_refused(make):
    with pm.Model() as model:
        b = pm.Bernoulli("b", 0.5)
        step = make(b)
    with pytest.raises(UnsupportedModelError, match="wrong answers on the integer b"):
        sample_mcmc(model, step=step, seed=1)


def test_a_multinomial_unknown_is_refused_with_a_way_out():
    with pm.Model() as model:
        x = pm.Multinomial("x", 5, [0.2, 0.8])
        DiscreteGaussian("seen", x, sigma2=1.0, observed=[1, 3])
    with pytest.raises(UnsupportedModelError, match="chain of Binomials"):
        sample_mcmc(model, seed=1)


def test_single_precision_is_refused_before_anything_runs():
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:  # report P1
        pm.Poisson("y", 3.0)
        with pytest.raises(SamplingError, match="floatX=float64"):
            sample_mcmc(model, seed=1)


def test_steps_that_cannot_travel_are_refused_before_work_starts():
    with pm.Model() as model:  # report P8
        y = pm.Poisson("y", 3.0)
        step = GridGibbs([y])
    step.luggage = (i for i in range(3))
    with pytest.raises(SamplingError, match=r"define what it uses in a module, or use cores=1"):
        sample_mcmc(model, step=step, cores=2, mp_ctx="spawn", seed=1)


def test_one_bar_or_none(capfd):
    with pm.Model() as model:  # report P9
        pm.Poisson("y", 3.0)
    sample_mcmc(model, draws=20, tune=5, chains=2, seed=1)
    assert capfd.readouterr() == ("", "")
    sample_mcmc(model, draws=20, tune=5, chains=2, seed=1, progressbar=True)
    shown = capfd.readouterr().err
    assert "50/50" in shown
    assert shown.count("100%") == 1


def test_options_that_would_break_the_promises_are_refused():
    model = two_level(lambda: FlatCount("y"))
    with pytest.raises(SamplingError, match="write seed="):
        sample_mcmc(model, random_seed=1)
    with pytest.raises(SamplingError, match="'error' or 'record'"):
        sample_mcmc(model, on_constant="ignore")
    with pytest.raises(ModelError, match="no unknowns"):
        sample_mcmc(pm.Model())
