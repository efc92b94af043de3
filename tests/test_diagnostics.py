import math

import numpy as np
import pytest
import xarray as xr

from adversary import Prior, Release, load, run
from adversary.diagnostics import compare, summarize
from adversary.results import AttackResult

RELEASE = Release.from_counts(
    {"block": 2, "block_group": 1, "rest": -1},
    rho={"block": "0.0992264", "block_group": "0.2464845", "rest": "0.0992264"},
    groups={"rest": 27},
)


@pytest.fixture(scope="module")
def comparison():
    return compare(load("two_level"), RELEASE, seed=1, draws=1000)


def test_three_samplers_agree_within_four_standard_errors(comparison):
    assert comparison.agree
    assert {r.sampler for r in comparison.rows} == {"exact", "gibbs", "mcmc"}
    for row in comparison.rows:
        if row.variable == "present" and row.sampler != "exact":
            assert abs(row.mean - 0.503288) < 4 * row.mcse
            assert row.exact_mean == pytest.approx(0.503288, abs=1e-6)


def test_the_table_says_the_probability_of_its_intervals_and_can_be_saved(comparison, tmp_path):
    assert "94% eti" in comparison.lines()[0]
    path = tmp_path / "rows.nc"
    comparison.to_dataset().to_netcdf(path, engine="h5netcdf")
    with xr.open_dataset(path, engine="h5netcdf") as back:
        assert back["verdict"].values.tolist() == [r.verdict for r in comparison.rows]


def test_the_literal_sampler_is_found_to_disagree_with_its_model():
    found = compare(load("two_level"), RELEASE, ("exact", "gibbs"), seed=1, draws=5000, mode="literal")
    assert not found.agree
    assert {r.verdict for r in found.rows if r.variable == "present"} == {"exact", "disagree"}


def test_a_sampler_that_cannot_answer_is_skipped_with_the_reason():
    found = compare(load("couple"), RELEASE, ("exact", "gibbs"), seed=1)
    assert "no hand-written reference" in found.skipped["gibbs"]
    assert found.agree


def _frozen(result, value):
    tree = result.tree.copy(deep=True)
    tree["posterior"] = xr.DataTree(xr.full_like(result.tree["posterior"].to_dataset()[["present"]], value))
    tree.attrs["sampler"] = "mcmc"
    return AttackResult(tree)


def test_a_chain_that_never_moves_is_stuck_unless_exact_says_it_cannot_move():
    exact = run(load("single_level"), RELEASE, draws=100, seed=1)
    (row,) = summarize(_frozen(exact, 1), exact)
    assert row.verdict == "stuck"
    assert not row.ok
    certain = run(load("single_level"), Release.from_counts({"block": 1}, rho="inf"), draws=100, seed=1)
    (row,) = summarize(_frozen(certain, 1), certain)
    assert row.verdict == "constant by construction"
    assert row.ok
    (row,) = summarize(_frozen(exact, 1))
    assert row.verdict == "constant, no exact answer to compare with"


def test_a_wrong_mean_is_found_to_disagree():
    exact = run(load("single_level"), RELEASE, draws=2000, seed=1)
    biased = run(
        load("single_level").assuming(present=Prior("Bernoulli", p=0.6)), RELEASE, "gibbs", draws=2000, seed=1
    )
    row = next(r for r in summarize(biased, exact) if r.variable == "present")
    assert row.verdict == "disagree"


def test_exact_rows_are_the_moments_of_the_exact_pmf():
    exact = run(load("two_level"), RELEASE, draws=0)
    row = next(r for r in summarize(exact) if r.variable == "elsewhere")
    support, p = exact.values("exact", "elsewhere_value"), exact.values("exact", "elsewhere")
    assert row.mean == pytest.approx(float(p @ support), rel=1e-14)
    assert row.sd == pytest.approx(math.sqrt(float(p @ (support - row.mean) ** 2)), rel=1e-12)
    assert p[(support >= row.lower) & (support <= row.upper)].sum() >= 0.94
    assert np.isclose(p.sum(), 1, atol=1e-12)
