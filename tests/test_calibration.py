import logging

import numpy as np
import pytest
from scipy import stats

from adversary import Prior, Release, load, measured, scenario
from adversary.calibration import STAND_IN, calibrate, posterior_predictive_check, with_stand_ins
from adversary.errors import AdversaryError, ScenarioError, UnsupportedModelError
from adversary.plots.studies import plot_rank_counts

TWO = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, rho="0.3", groups={"rest": 2})
ONE = Release.from_counts({"block": 2}, rho="1/2")
pytestmark = pytest.mark.filterwarnings("error:Numba will use object mode")  # a user cannot act on it

RELEASES = {
    "single_level": ONE,
    "fill_out": ONE,
    "lying": ONE,
    "unknown_variable": ONE,
    "couple": ONE,
    "presence_total": ONE,
    "fill_out_total": Release.from_counts({"block": 2, "total": 3}, rho="1/4"),
    "lying_cells": Release.from_counts({"block": 2, "other": 3}, rho="1/4"),
    "moved": Release.from_counts({"here": 2, "there": 3}, rho="1/4"),
    "two_level": TWO,
    "path": Release.from_counts({"block": 2, "block_group": 3, "rest_of_block_group": 2}, rho="1/4"),
    "siblings": Release.from_counts({"block": 2, "block_group": 3, "siblings": [1, 2]}, rho="1/4"),
    "uniqueness": Release.from_counts({"block": 2, "block_group": 3}, rho="1/4"),
    "unique_at": Release.from_counts({"block": 2, "block_group": 3, "tract": 3}, rho="1/2"),
    "unknown_attribute": Release.from_counts({"cells": [1, 0]}, rho="1/4"),
    "whole_record": Release.from_counts({"cells": [1, 0, 0, 2]}, rho="1/4"),
    "reconstruction": Release.from_counts(
        {"people": 4, "subsidised": 1, "people_subsidised": 3, "one_bedroom": 1}, rho="1/4"
    ),
}


def shipped(name):
    s = load(name)
    if name == "reconstruction":
        return s.assuming(households=2)
    return (
        s.assuming(cell=Prior("Categorical", p=np.array([0.4, 0.3, 0.2, 0.1])))
        if name == "whole_record"
        else s
    )


@scenario(target="often", source="a test")
def visits(release, *, number=Prior("Poisson", mu=6.0)):
    """Does she come more than five times?"""
    import pymc as pm
    import pytensor.tensor as pt

    pm.Deterministic("often", pt.cast(pt.gt(number, 5), "int64"))
    measured(release["block"], number)


@pytest.mark.parametrize("name", RELEASES)
def test_the_truth_falls_evenly_in_the_posterior_of_every_shipped_scenario(name):
    simulations = 20 if name == "presence_total" else 120
    found = calibrate(shipped(name), RELEASES[name], simulations=simulations, seed=20260101)
    assert found.uniform(level=0.001), found.lines()
    assert float(np.abs(found.intervals["z"]).max()) < 4


def test_noise_that_is_right_passes_and_noise_wrong_by_a_fifth_fails_for_counts():
    s = load("two_level").assuming(elsewhere=Prior("Poisson", mu=900.0), known=50)
    release = Release.from_counts({"block": 51, "block_group": 950, "rest": 900}, rho="1/100")
    right = calibrate(s, release, simulations=1100, seed=3)
    wrong = calibrate(s, release, simulations=1100, seed=3, data_sigma2=1.2)
    assert right.uniform(level=0.01), right.lines()
    assert not wrong.uniform(level=0.01), wrong.lines()
    assert wrong.p_values["elsewhere, spread"] < 1e-3 < right.p_values["elsewhere, spread"]
    assert float(right.intervals["z"].sel(variable="elsewhere", prob=0.94)) > -2
    assert (
        float(wrong.intervals["z"].sel(variable="elsewhere", prob=0.94)) < -2
    )  # over-confident: intervals miss


def test_noise_that_is_right_passes_and_noise_wrong_by_a_fifth_fails_for_an_event():
    s, release = load("single_level"), Release.from_counts({"block": 0}, rho="2")
    right = calibrate(s, release, simulations=2500, seed=4)
    wrong = calibrate(s, release, simulations=2500, seed=4, data_sigma2=1.2)
    assert abs(right.slope_z) < 3
    assert wrong.slope_z < -3
    assert not wrong.uniform(level=0.01)


def test_a_place_is_uniform_for_any_posterior_because_ties_are_broken_at_random():
    from adversary.calibration import _place
    from adversary.samplers.exact import Pmf

    p = np.array([0.05, 0.6, 0.1, 0.25])
    pmf = Pmf(np.array([3, 4, 5, 6]), np.log(p))
    rng = np.random.default_rng(5)
    draws = rng.choice([3, 4, 5, 6], size=4000, p=p)
    u = [_place(pmf, int(x), float(t))[0] for x, t in zip(draws, rng.random(4000), strict=True)]
    assert stats.kstest(u, "uniform").pvalue > 0.01
    skewed = rng.choice([3, 4, 5, 6], size=4000, p=[0.05, 0.5, 0.2, 0.25])
    u = [_place(pmf, int(x), float(t))[0] for x, t in zip(skewed, rng.random(4000), strict=True)]
    assert stats.kstest(u, "uniform").pvalue < 1e-6


def test_an_interval_covers_what_its_mass_says():
    from adversary.calibration import _place
    from adversary.samplers.exact import Pmf

    pmf = Pmf(np.arange(4), np.log([0.1, 0.4, 0.3, 0.2]))
    _, covered, mass = _place(pmf, 0, 0.5)
    assert mass == pytest.approx(
        [0.7, 1.0, 1.0]
    )  # 50 %: from 1 to 2; 80 %: 0.1 is at the end, and is taken in
    assert covered.tolist() == [0.0, 1.0, 1.0]


def test_a_flat_prior_gets_a_proper_stand_in_and_says_so():
    proper, replaced = with_stand_ins(load("two_level"))
    assert proper.assumptions["elsewhere"] == STAND_IN
    assert replaced == {"elsewhere": "Prior('Poisson', mu=3.0)"}
    own, _ = with_stand_ins(load("two_level"), Prior("Poisson", mu=40.0))
    assert own.assumptions["elsewhere"].parameters["mu"] == 40.0
    wide, _ = with_stand_ins(load("siblings"), {"elsewhere": Prior("Poisson", mu=2.0)})
    assert wide.assumptions["elsewhere"].dims == ("sibling",)


def test_a_few_simulations_are_refused():
    with pytest.raises(ScenarioError, match="at least 20"):
        calibrate(load("single_level"), ONE, simulations=5, seed=1)


def test_calibration_repeats_itself_with_a_seed():
    one, two = (calibrate(load("single_level"), ONE, simulations=50, seed=8) for _ in range(2))
    assert one.ranks.identical(two.ranks)


# ---------------------------------------------------------------------- predictive checks
def test_predictive_p_values_are_those_of_the_convolution():
    s, release = load("single_level"), Release.from_counts({"block": 3}, sigma2=2.0)
    (found,) = posterior_predictive_check(s, release, seed=1, draws=40_000)
    k = np.arange(-40, 41)
    noise = np.exp(-(k**2) / 4.0)
    noise /= noise.sum()
    posterior = 1 / (1 + np.exp(-(2 * 3 - 1) / 4.0))
    at_least = posterior * noise[k >= 2].sum() + (1 - posterior) * noise[k >= 3].sum()
    equal = posterior * noise[k == 2].sum() + (1 - posterior) * noise[k == 3].sum()
    expected = 2 * (at_least - equal / 2)
    assert found.p_value == pytest.approx(expected, abs=4 * np.sqrt(expected / 40_000))
    assert found.mean == pytest.approx(posterior, abs=0.03)
    assert (found.measurement, found.observed) == ("block", 3)


def test_counts_that_cannot_belong_together_are_found_out():
    fair = posterior_predictive_check(load("two_level"), TWO, seed=2)
    clash = Release.from_counts({"block": 0, "block_group": 40, "rest": 3}, rho="1")
    foul = posterior_predictive_check(load("two_level"), clash, seed=2)
    assert min(c.p_value for c in fair) > 0.05
    assert min(c.p_value for c in foul) < 1e-3
    assert {c.measurement for c in foul} == {"block", "block_group", "rest"}


def test_each_entry_of_a_vector_is_checked_and_an_invariant_is_not():
    release = Release.from_counts(
        {"block": 1, "siblings": [1, 9], "block_group": 11},
        sigma2={"block": 2.0, "siblings": 2.0, "block_group": 0},
    )
    found = posterior_predictive_check(load("siblings"), release, seed=3, draws=500)
    assert [c.measurement for c in found] == ["block", "siblings[0]", "siblings[1]"]


def test_nothing_is_said_on_the_way(caplog, capsys):
    with caplog.at_level(logging.DEBUG, logger="pymc"):
        posterior_predictive_check(load("single_level"), ONE, seed=1, draws=50)
    assert not [r for r in caplog.records if r.name.startswith("pymc")]
    assert capsys.readouterr().err == ""


def test_an_unknown_that_nothing_measures_cannot_be_replicated():
    release = Release.from_counts(
        {"block": 2, "block_group": 3, "rest": 0}, rho={"block": "1/2", "block_group": 0, "rest": 0}
    )
    with pytest.raises(UnsupportedModelError, match="improper prior"):
        posterior_predictive_check(load("two_level"), release, seed=1)


def test_the_figure_counts_the_places():
    found = calibrate(load("single_level"), ONE, simulations=60, seed=8)
    ax = plot_rank_counts(found, bins=6)
    heights = [b.get_height() for b in ax.patches if b.get_width() == pytest.approx(1 / 6)]
    assert heights == np.histogram(found.ranks["present"].values, 6, (0, 1))[0].tolist()
    with pytest.raises(AdversaryError, match="was not followed"):
        plot_rank_counts(found, "elsewhere")
