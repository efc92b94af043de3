"""What breaks for people who do this kind of work: each public report as a small input, and what a user must see.

The numbers P1 ... are those of the project's list of reports; the threads are named there.
"""

import math
import pickle

import numpy as np
import pymc as pm
import pytest

from adversary import Allocation, Prior, Release, Rho, load, measured, run, scenario, simulate
from adversary.errors import AdversaryError, ModelError, SamplingError, UnsupportedModelError
from adversary.privacy import accounting
from adversary.privacy import discrete_gaussian as dg

single_level, two_level = load("single_level"), load("two_level")


def test_p1_single_precision_is_refused_with_the_value():
    import pytensor

    with pytensor.config.change_flags(floatX="float32"), pytest.raises(ModelError, match="39538223"):
        single_level(Release.from_counts({"block": 39_538_223}, sigma2=1.21))


@pytest.mark.parametrize("total", [2**31 + 5, 2**40])
def test_p2_counts_beyond_two_to_the_31_do_not_wrap(total):
    release = Release.from_counts({"block": total + 1}, sigma2=5.0)
    expected = run(single_level, Release.from_counts({"block": 1}, sigma2=5.0), draws=0).log_odds
    assert run(single_level.assuming(known=total), release, draws=0).log_odds == expected
    model = single_level.assuming(known=total)(release)
    assert int(model.rvs_to_values[model["block"]].data) == total + 1
    with pytest.raises(AdversaryError, match="2\\^53"):
        Release.from_counts({"block": 2**60}, sigma2=5.0)


@scenario(target="n", source="P3")
def at_most_ten(release, *, n=Prior("DiscreteUniform", lower=0, upper=10)):
    """How many are there, knowing from a table that at most ten?"""
    measured(release["fact"], n)


@pytest.mark.parametrize("sampler", ["exact", "mcmc"])
def test_p3_a_fact_outside_the_prior_is_named_before_anything_runs(sampler):
    release = Release.from_counts({"fact": 12}, rho="inf")
    with pytest.raises((ModelError, SamplingError)) as caught:
        run(at_most_ten, release, sampler, draws=50, seed=1)
    text = str(caught.value)
    assert "fact" in text
    assert "12" in text
    if sampler == "exact":
        assert "0..10" in text


@scenario(target="a", source="P4")
def tied(
    release, *, a=Prior("DiscreteUniform", lower=0, upper=200), b=Prior("DiscreteUniform", lower=0, upper=200)
):
    """What is a, when a + b is known exactly?"""
    measured(release["total"], a + b)
    measured(release["a_noisy"], a)
    measured(release["b_noisy"], b)


def test_p4_a_tie_is_summed_out_and_a_chain_that_cannot_move_is_an_error():
    release = Release.from_counts(
        {"total": 100, "a_noisy": 40, "b_noisy": 60}, sigma2={"total": 0.0, "a_noisy": 0.49, "b_noisy": 0.49}
    )
    posterior = run(tied, release, draws=0).posterior
    assert [float(posterior.sel(target=a)) for a in (39, 40, 41)] == pytest.approx(
        [0.10308, 0.79339, 0.10308], abs=5e-6
    )
    with pytest.raises(SamplingError, match="exact"):
        run(tied, release, "mcmc", draws=50, seed=1)


def test_p5_a_count_without_information_is_set_aside_and_said():
    with_nan = Release.from_json(
        '{"measurements": {"block": {"value": 2, "sigma2": 5}, "block_group": {"value": NaN, "sigma2": Infinity},'
        ' "rest": {"value": 1, "sigma2": 5}}}'
    )
    result = run(two_level, with_nan, draws=0)
    assert any("1 measurement carries no information: block_group" in c.text for c in result.checks)
    assert result.posterior == pytest.approx(run(single_level, with_nan, draws=0).posterior, abs=1e-14)
    with pytest.raises(AdversaryError, match="although its variance is finite"):
        Release.from_json('{"measurements": {"block": {"value": NaN, "sigma2": 5}}}')


@pytest.mark.parametrize("sampler", ["nuts", "nutpie"])
def test_p6_a_gradient_sampler_for_an_integer_names_the_variable(sampler):
    release = Release.from_counts({"block": 2}, sigma2=5.0)
    with pytest.raises(UnsupportedModelError, match="present"):
        run(single_level, release, "mcmc", draws=10, nuts_sampler=sampler)


def test_p7_a_seed_gives_the_same_draws_in_every_form_order_and_number_of_processes():
    release = Release.from_counts({"block": 2}, sigma2=5.0)

    def draws(seed, **options):
        return run(single_level, release, "mcmc", seed=seed, draws=20, tune=10, chains=2, **options).values(
            "posterior", "present"
        )

    np.testing.assert_array_equal(draws(42), draws(42))
    np.testing.assert_array_equal(draws(42), draws(np.random.SeedSequence(42)))
    np.testing.assert_array_equal(draws(np.random.default_rng(42)), draws(np.random.default_rng(42)))
    forward = simulate({"a": 1, "b": 2}, rho="0.1", seed=42)
    backward = simulate({"b": 2, "a": 1}, rho="0.1", seed=42)
    assert dict(forward) == dict(backward)


def test_p8_a_scenario_from_a_cell_can_be_sent_to_a_worker_and_a_lambda_says_what_to_write():
    space = {"__name__": "__main__", "Prior": Prior, "measured": measured, "scenario": scenario}
    cell = (
        "@scenario(target='present')\n"
        "def mine(release, *, present=Prior('Bernoulli', p=0.5)):\n"
        "    measured(release['block'], present)\n"
    )
    exec(cell, space)
    sent = pickle.loads(pickle.dumps(space["mine"].assuming(present=Prior("Bernoulli", p=0.1))))
    release = Release.from_counts({"block": 2}, sigma2=5.0)
    assert run(sent, release, draws=0).prior == pytest.approx(0.1, rel=1e-15)
    with pytest.raises(AdversaryError, match="instead of a lambda"):
        single_level.assuming(present=lambda: pm.Bernoulli("present", 0.5))


def test_p9_no_progress_bar_is_silence(capfd):
    run(
        single_level,
        Release.from_counts({"block": 2}, sigma2=5.0),
        "mcmc",
        draws=20,
        tune=10,
        chains=1,
        seed=1,
        progressbar=False,
    )
    captured = capfd.readouterr()
    assert captured.out == ""


def test_p10_divergences_are_not_applicable_without_a_gradient_sampler():
    release = Release.from_counts({"block": 2}, sigma2=5.0)
    for sampler in ("exact", "gibbs"):
        checks = run(single_level, release, sampler, draws=50, seed=1).checks
        assert any(c.text.startswith("divergences: not applicable") and c.passed is None for c in checks)


def test_p11_answers_by_geounit_are_saved_with_plain_coordinates_and_leading_zeros(tmp_path):
    import xarray as xr

    from adversary import batch

    geoid = ["010010201001000", "010010201001001", "440070001011000"]
    data = xr.Dataset(
        {"block": ("target", [2, 0, 5]), "block_sigma2": 5.0},
        coords={"geoid": ("target", geoid), "state": ("target", [g[:2] for g in geoid])},
    )
    found = batch(single_level, data.set_index(target=["state", "geoid"]))
    found.to_netcdf(tmp_path / "found.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "found.nc", engine="h5netcdf") as back:
        assert back["geoid"].values.tolist() == geoid
        assert back["state"].values.tolist() == ["01", "01", "44"]
        np.testing.assert_array_equal(back["posterior"].values, found["posterior"].values)


def test_p12_integer_noise_does_not_overflow():
    rng = np.random.default_rng(1)
    noisy = dg.sample(1e12, 10_000, rng, mu=2**31 - 1)
    assert noisy.var() == pytest.approx(1e12, rel=0.05)
    assert (dg.sample(1e-12, 10_000, rng, mu=2**31 - 1) == 2**31 - 1).all()


def test_p13_no_budget_and_all_of_it():
    assert accounting.epsilon(0, 1e-10) == 0
    release = Release.from_counts(
        {"block": 1, "block_group": 3, "rest": 2}, rho={"block": 0, "block_group": "inf", "rest": "inf"}
    )
    assert release.not_measured == ("block",)
    assert run(two_level, release, draws=0).posterior == 1.0
    for wrong in ("-1", "nan"):
        with pytest.raises(AdversaryError, match="rho"):
            Rho(wrong)
    tiny = Release.from_counts({"block": 1}, rho="1e-300")
    assert run(single_level, tiny, draws=0).posterior == pytest.approx(0.5, abs=1e-15)
    assert accounting.epsilon("2.5562", 1e-10) == pytest.approx(17.1435, abs=5e-5)
    assert accounting.epsilon("0.07", 1e-10) == pytest.approx(2.3873, abs=5e-5)


def test_p14_a_budget_is_named_never_positional():
    shares = {"block": "3/5", "tract": "3/10", "county": "1/10"}
    queries = {name: {"total": 1} for name in shares}
    named = Allocation(Rho(1), shares, queries)
    swapped = Allocation(Rho(1), {"block": "1/10", "tract": "3/10", "county": "3/5"}, queries)
    assert swapped.sigma2("block", "total", "bounded") == pytest.approx(
        6 * named.sigma2("block", "total", "bounded")
    )
    with pytest.raises(AdversaryError, match="a list has no names"):
        Allocation(Rho(1), ["3/5", "3/10", "1/10"], queries)
    assert "block" in named.table("bounded").splitlines()[2]


@pytest.mark.parametrize("value", [3, 3.0, "3", "3.0"], ids=["int", "float", "text", "decimal"])
def test_p17_integers_survive_nullable_columns(value, tmp_path):
    path = tmp_path / "release.csv"
    path.write_text(f"name,value,sigma2\nblock,{value},5\nnone,,inf\nlow,-2.0,5\n")
    release = Release.read(path)
    assert (release["block"].value, release["low"].value, release.not_measured) == (3, -2, ("none",))
    path.write_text("name,value,sigma2\nblock,2.5,5\n")
    with pytest.raises(AdversaryError, match=r"release.csv.*2\.5"):
        Release.read(path)


@scenario(target="n", source="P18")
def zero_to_five(release, *, n=Prior("DiscreteUniform", lower=0, upper=5)):
    """How many are there?"""
    measured(release["block"], n)


def test_p18_counts_that_disagree_because_of_noise_are_no_error():
    posterior = run(zero_to_five, Release.from_counts({"block": -3}, sigma2=10.09), draws=0).posterior
    expected = [0.380937, 0.269281, 0.172392, 0.099951, 0.052482, 0.024957]
    assert posterior.values == pytest.approx(expected, abs=1e-6)
    assert float(posterior @ posterior["target"]) == pytest.approx(1.248631, abs=1e-6)
    family = Release.from_counts({"block_group": 12, "block": -3, "siblings": [4, 2]}, sigma2=5.0)
    assert math.isfinite(run(load("siblings"), family, draws=0).log_odds)
