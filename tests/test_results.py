import json
import math

import numpy as np
import pytest
import xarray as xr

from adversary import AttackResult, Prior, Release, load, run
from adversary.errors import FileFormatError, ModelError

RELEASE = Release.from_counts(
    {"block": 2, "block_group": 1, "rest": -1, "tract": 8, "county": 5},
    rho={"block": "0.0992264", "block_group": "0.2464845", "rest": "0.0992264", "tract": "0.1", "county": 0},
    groups={"rest": 27},
)


@pytest.fixture(scope="module")
def exact():
    return run(load("two_level"), RELEASE, seed=1, draws=20)


def test_saving_the_tree_saves_the_result(exact, tmp_path):
    loaded = AttackResult.load(exact.save(tmp_path / "result.nc"))
    assert loaded == exact
    assert loaded.summary() == exact.summary()
    assert loaded.release == RELEASE
    assert repr(loaded) == repr(exact)


def test_every_number_of_the_view_comes_from_the_tree(exact):
    tree = exact.tree.copy(deep=True)
    tree["answer"].attrs["log_odds"] = 1.25
    tree["answer"]["log_posterior"].values[:] = np.log([0.25, 0.75])
    changed = AttackResult(tree)
    assert changed.posterior == 0.75
    assert changed.risk.value == pytest.approx(1.5, rel=1e-15)
    assert changed.log_odds_gain == 1.25
    assert changed != exact


def test_risk_is_the_ratio_and_says_its_baseline(exact):
    assert exact.risk.value == pytest.approx(exact.posterior / exact.prior, rel=1e-14)
    assert (exact.risk.baseline, exact.risk.mcse) == (1.0, 0.0)
    assert exact.risk.interval == (exact.risk.value, exact.risk.value)
    assert exact.log_odds == pytest.approx(math.log(exact.posterior / (1 - exact.posterior)), rel=1e-10)


def test_what_was_published_and_not_used_is_named(exact):
    assert exact.unused_evidence() == ("tract",)
    texts = " ".join(c.text for c in exact.checks)
    assert "1 measurement carries no information: county" in texts
    assert "divergences: not applicable" in texts


def test_the_tree_has_the_groups_that_every_arviz_function_wants(exact):
    import arviz as az

    assert {"posterior", "answer", "exact", "observed_data", "constant_data"} <= set(exact.tree.children)
    assert exact.tree["posterior"]["present"].dims == ("chain", "draw")
    assert exact.tree["posterior"]["present"].dtype == np.int64
    assert np.isfinite(float(az.ess(exact.tree["posterior"].to_dataset())["elsewhere"]))
    assert exact.tree.attrs["release_hash"] == RELEASE.hash
    assert json.loads(exact.tree.attrs["versions"])["pymc"]


def test_a_target_of_many_values_has_a_pmf():
    cells = Release.from_counts({"cells": [2, -1, 1]}, sigma2=5.0)
    result = run(load("whole_record").assuming(cell=Prior("Categorical", p=[0.5, 0.3, 0.2])), cells, draws=0)
    assert isinstance(result.posterior, xr.DataArray)
    assert float(result.posterior.sum()) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(result.risk.values, result.posterior.values / [0.5, 0.3, 0.2], rtol=1e-12)
    assert result.decision == 0
    assert set(result.summary()["posterior"]) == {"0", "1", "2"}


def test_rank_top_and_entropy_of_a_record_follow_from_its_pmf():
    cells = Release.from_counts({"cells": [2, -1, 1, 1]}, sigma2=5.0)
    prior = Prior("Categorical", p=[0.25, 0.25, 0.25, 0.25])
    result = run(load("whole_record").assuming(cell=prior), cells, draws=0)
    w = np.exp(np.array([2, -1, 1, 1]) / 5.0)
    p = w / w.sum()
    assert result.entropy == pytest.approx(-(p @ np.log(p)), rel=1e-12)
    assert [value for value, _ in result.top(3)] == [0, 2, 3]
    assert result.top(1)[0][1] == pytest.approx(p[0], rel=1e-12)
    assert (result.rank(0), result.rank(2), result.rank(3), result.rank(1)) == (
        (1, 1),
        (2, 3),
        (2, 3),
        (4, 4),
    )
    with pytest.raises(ModelError, match="no value of cell"):
        result.rank(7)


def test_a_sampled_answer_has_its_standard_error():
    result = run(load("single_level"), RELEASE, "gibbs", seed=1, draws=2000)
    assert 0 < result.mcse < 0.02
    low, high = result.risk.interval
    assert low < result.risk.value < high
    assert high - low == pytest.approx(2 * 1.96 * result.mcse / 0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "none.nc", "no such file"),
        (lambda p: _write(p / "text.nc", b"not netcdf"), "no netCDF file"),
        (lambda p: _other(p / "other.nc"), "not a result of this version"),
    ],
    ids=["missing", "text", "other"],
)
def test_what_is_no_result_is_refused_with_its_name(make, words, tmp_path):
    path = make(tmp_path)
    with pytest.raises(FileFormatError, match=words) as caught:
        AttackResult.load(path)
    assert path.name in str(caught.value)


def _write(path, content):
    path.write_bytes(content)
    return path


def _other(path):
    xr.DataTree.from_dict({"/a": xr.Dataset({"x": 1})}).to_netcdf(path, engine="h5netcdf")
    return path


def test_a_missing_folder_is_said_and_nothing_is_left_behind(exact, tmp_path):
    with pytest.raises(FileFormatError, match="does not exist"):
        exact.save(tmp_path / "none" / "result.nc")
    assert list(tmp_path.iterdir()) == []


def test_an_edited_file_is_refused_and_an_unsealed_one_says_so(exact, tmp_path):
    import h5py

    path = exact.save(tmp_path / "result.nc")
    with h5py.File(path, "r+") as file:
        file["answer/log_posterior"][0] += 0.1
    with pytest.raises(FileFormatError, match="changed after it was saved"):
        AttackResult.load(path)
    exact.tree.to_netcdf(tmp_path / "bare.nc", engine="h5netcdf")
    bare = AttackResult.load(tmp_path / "bare.nc")
    assert next(c.text for c in bare.checks if c.name == "seal").startswith("not sealed")
    assert not any(c.name == "seal" for c in exact.checks)
    again = AttackResult.load(bare.save(tmp_path / "again.nc"))
    assert any(c.name == "seal" for c in again.checks)  # saving anew seals no doubt away


def test_a_result_of_the_first_schema_is_still_read(exact, tmp_path):
    old = exact.tree.copy(deep=True)
    old.attrs = {
        k: v for k, v in old.attrs.items() if k not in ("text", "signature", "code", "changes", "improper")
    }
    old.attrs["schema_version"] = 1
    old.to_netcdf(tmp_path / "old.nc", engine="h5netcdf")
    read = AttackResult.load(tmp_path / "old.nc")
    assert read.posterior == exact.posterior
    assert (read.divergence, read.risk_ceiling) == (None, None)


def test_the_text_and_the_signature_of_the_scenario_are_in_the_tree(exact):
    assert exact.attrs["signature"].startswith(
        "two_level(release, *, known=0, present=Prior('Bernoulli', p=0.5)"
    )
    assert "Is the target among the block's people" in exact.attrs["text"]
    assert "measured(release[" in exact.attrs["code"]


def test_a_result_names_the_scenarios_file_but_not_the_way_to_it(tmp_path):
    file = tmp_path / "attacks.py"
    file.write_text(
        "from adversary import Prior, measured, scenario\n"
        "@scenario(target='present')\n"
        "def mine(release, *, present=Prior('Bernoulli', p=0.5)):\n"
        "    'Is she there?'\n"
        "    measured(release['block'], present)\n"
    )
    result = run(load(f"{file}::mine"), RELEASE, draws=0)
    assert result.attrs["origin"] == "attacks.py::mine"
    assert str(tmp_path) not in json.dumps({k: str(v) for k, v in result.attrs.items()})


def test_a_result_is_saved_under_a_name_that_says_what_it_is(exact, tmp_path):
    with pytest.raises(FileFormatError, match=r"ends in \.nc"):
        exact.save(tmp_path / "result.csv")
