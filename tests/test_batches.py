"""Many targets: closed form and compiled engine agree, whatever the scenario is called; folders survive being killed."""

import json
import pickle
import subprocess
import sys
import textwrap

import cloudpickle
import numpy as np
import pytest
import xarray as xr

from adversary import Prior, Release, load, measured, run, scenario
from adversary.batches import batch, batch_to_folder, many, sources
from adversary.distributions import FlatCount
from adversary.errors import FileFormatError, ModelError, ReleaseError, ScenarioError, UnsupportedModelError
from adversary.samplers.closed import two_level_log_odds
from adversary.samplers.recognise import find_closed_form, lattice_gain

RHO1, RHO2 = 0.09922635422547502, 0.24648450960703558
S1, S2 = 0.5 / RHO1, 0.5 / RHO2


@scenario(target="she_is_there")
def renamed(release, *, friends=0, she_is_there=Prior("Bernoulli", p=0.5), strangers=Prior("FlatCount")):
    """The two-level model under other names, in another order."""
    everyone = strangers + friends + she_is_there
    measured(release["county"], everyone)
    measured(release["house"], she_is_there + friends)
    measured(release["street"], strangers)


def two_level_table(n=12, seed=0, **more):
    rng = np.random.default_rng(seed)
    return {
        "block": rng.integers(-4, 9, n),
        "block_group": rng.integers(-3, 30, n),
        "rest": rng.integers(-20, 40, n),
        "block_sigma2": S1,
        "block_group_sigma2": S2,
        "rest_sigma2": S1,
        "rest_groups": 27,
        "known": np.arange(n) % 3,
        "present.p": np.linspace(0.01, 0.9, n),
        **more,
    }


def both_ways(adversary, table):
    closed = batch(adversary, table, engine="closed")
    exact = batch(adversary, table, engine="exact")
    assert exact.attrs["engine"] == "exact engine"
    for name in ("prior", "posterior", "log_odds"):
        np.testing.assert_allclose(closed[name], exact[name], rtol=0, atol=2e-12)
    np.testing.assert_allclose(closed.risk, exact.risk, rtol=2e-12)
    assert (closed.decision == exact.decision).all()
    return closed


def test_two_levels_in_closed_form_are_what_the_engine_sums():
    found = both_ways(load("two_level"), two_level_table())
    assert found.attrs["engine"] == "closed form, two levels"


def test_the_papers_release_has_its_checked_posterior():
    table = {
        "block": 2,
        "block_group": 1,
        "rest": -1,
        "block_sigma2": S1,
        "block_group_sigma2": S2,
        "rest_sigma2": S1,
        "rest_groups": 27,
    }
    assert float(batch(load("two_level"), table).posterior) == pytest.approx(0.5032878263086942, abs=1e-13)


def test_narrow_noise_is_summed_exactly_on_both_roads():
    table = two_level_table(8, rest_sigma2=np.where(np.arange(8) % 2, 0.3, S1), rest_groups=5)
    both_ways(load("two_level"), table)


def test_a_copy_under_other_names_has_the_same_closed_form_and_the_same_numbers():
    table = two_level_table()
    names = {
        "block": "house",
        "block_group": "county",
        "rest": "street",
        "known": "friends",
        "present.p": "she_is_there.p",
    }
    other = {}
    for key, value in table.items():
        stem = next(
            (k for k in sorted(names, key=len, reverse=True) if key == k or key.startswith(f"{k}_")), None
        )
        other[key if stem is None else names[stem] + key[len(stem) :]] = value
    found = batch(renamed, other, engine="closed")
    np.testing.assert_array_equal(found.log_odds, batch(load("two_level"), table).log_odds)
    both_ways(renamed, other)


@pytest.mark.parametrize(
    ("name", "counts", "known"),
    [
        ("single_level", ["block"], "known"),
        ("uniqueness", ["block", "block_group", "tract"], None),
        ("lying_cells", ["block", "other"], "known_other"),
        ("moved", ["here", "there"], "known_here"),
        ("fill_out_total", ["block", "total"], "known_total"),
    ],
)
def test_counts_of_one_unknown_are_found_in_the_model(name, counts, known):
    rng = np.random.default_rng(3)
    table = {c: rng.integers(-3, 6, 9) for c in counts} | {
        f"{c}_sigma2": 2.0 + k for k, c in enumerate(counts)
    }
    table[f"{counts[0]}_groups"] = np.array([1, 2, 3] * 3)
    if known:
        table[known] = np.arange(9) % 2
    found = both_ways(load(name), table)
    assert found.attrs["engine"].startswith("closed form")


def test_each_target_is_answered_as_run_answers_it_alone():
    table = two_level_table(4)
    found = batch(load("two_level"), table)
    for i in range(4):
        release = Release.from_counts(
            {k: int(table[k][i]) for k in ("block", "block_group", "rest")},
            sigma2={"block": S1, "block_group": S2, "rest": S1},
            groups={"rest": 27},
        )
        p = Prior("Bernoulli", p=float(table["present.p"][i]))
        alone = run(
            load("two_level").assuming(known=int(table["known"][i]), present=p), release, draws=1, seed=1
        )
        assert float(found.posterior[i]) == pytest.approx(alone.posterior, abs=1e-12)
        assert float(found.risk[i]) == pytest.approx(float(alone.risk), rel=1e-11)


def test_one_calls_prior_is_not_remembered_by_the_next():
    table = {"block": [3], "block_sigma2": 5.0}
    for p in (0.01, 0.9):
        assert float(batch(renamed_single, {**table, "here.p": p}).prior[0]) == pytest.approx(p, rel=1e-12)
        assert float(batch(renamed_single, table).prior[0]) == pytest.approx(0.25, rel=1e-12)
        other = renamed_single.assuming(here=Prior("Bernoulli", p=p))
        assert float(batch(other, table).prior[0]) == pytest.approx(p, rel=1e-12)
        assert float(batch(renamed_single.assuming(known=1), table).log_odds[0]) == pytest.approx(
            np.log(1 / 3) + 0.3
        )
        assert float(batch(renamed_single, {**table, "known": 2}).log_odds[0]) == pytest.approx(
            np.log(1 / 3) + 0.1
        )


def test_a_prior_object_that_changes_is_read_again():
    class Elsewhere:
        """Stands for a prior of another package."""

        def __init__(self, lower):
            self.lower = lower

        def create_variable(self, name):
            return FlatCount(name, lower=self.lower)

    mine = Elsewhere(0)
    table = {k: v for k, v in two_level_table(4).items() if k != "present.p"}
    found = []
    for mine.lower in (0, 4):
        found.append(batch(load("two_level").assuming(elsewhere=mine), table, engine="closed"))
        fresh = load("two_level").assuming(elsewhere=Elsewhere(mine.lower))
        np.testing.assert_allclose(
            found[-1].log_odds, batch(fresh, table, engine="exact").log_odds, atol=1e-11
        )
    assert (np.abs(found[0].log_odds - found[1].log_odds) > 1e-3).all()


@scenario(target="here")
def renamed_single(release, *, known=0, here=Prior("Bernoulli", p=0.25)):
    """One level under another name."""
    measured(release["block"], known + here)


def near_misses():
    def one(release, *, present=Prior("Bernoulli", p=0.5), others=Prior("Poisson", mu=1.0)):
        measured(release["block"], present + others)

    def two(release, *, present=Prior("Bernoulli", p=0.5)):
        import pymc as pm

        pm.Potential("hint", 0.3 * present)
        measured(release["block"], present)

    def three(release, *, present=Prior("Bernoulli", p=0.5)):
        measured(release["block"], present + (1 if release["block"].value > 2 else 0))

    def four(release, *, present=Prior("Bernoulli", p=0.5)):
        measured(release["block"], 2 * present)

    def five(release, *, present=Prior("Bernoulli", logit_p=0.3)):
        measured(release["block"], present)

    def six(release, *, present=Prior("Bernoulli", p=0.5)):
        import pymc as pm

        measured(release["block"], present)
        pm.Poisson("also", 2.0 + present, observed=3)

    return {f.__name__: scenario(target="present")(f) for f in (one, two, three, four, five, six)}


@pytest.mark.parametrize("name", ["one", "two", "three", "four", "five", "six"])
def test_a_near_miss_is_never_answered_by_the_closed_form_and_still_answered_right(name):
    adversary = near_misses()[name]
    table = {"block": np.array([2, 3]), "block_sigma2": 5.0}
    with pytest.raises(UnsupportedModelError, match="no closed form"):
        batch(adversary, table, engine="closed")
    found = batch(adversary, table)
    one_level = np.array([3.0, 5.0]) / 10
    assert found.attrs["engine"] == "exact engine"
    assert (np.abs(found.log_odds - one_level) > 1e-3).any()  # the closed form would be wrong here
    for i, x in enumerate(table["block"]):
        alone = run(adversary, Release.from_counts({"block": int(x)}, sigma2=5.0), draws=1, seed=1)
        assert float(found.posterior[i]) == pytest.approx(alone.posterior, abs=1e-12)


def test_the_flat_counts_lower_bound_is_part_of_the_closed_form():
    both_ways(load("two_level").assuming(elsewhere=Prior("FlatCount", lower=3)), two_level_table(6))


def test_an_exact_count_goes_to_the_engine():
    table = two_level_table(6, block_sigma2=np.where(np.arange(6) < 3, S1, 0.0))
    table["block"] = np.arange(6) % 2 + table["known"]
    found = batch(load("two_level"), table)
    assert found.attrs["engine"] == "closed form, two levels, exact engine"
    np.testing.assert_allclose(found.posterior[3:], np.arange(3, 6) % 2, atol=1e-12)


def test_dims_and_coordinates_are_kept_and_broadcast():
    data = xr.Dataset(
        {
            "block": (("place", "release"), [[2, 0], [1, 5], [3, 3]], {"units": "persons"}),
            "block_sigma2": ("release", [5.0, 2.0]),
            "known": ("place", [0, 1, 2]),
        },
        coords={"place": ["a", "b", "c"]},
        attrs={"present.p": 0.2, "title": "of no concern"},
    )
    found = batch(load("single_level"), data)
    assert found.risk.dims == ("place", "release")
    assert found.risk.attrs == {"long_name": "posterior / prior"}
    assert found.place.values.tolist() == ["a", "b", "c"]
    expected = np.log(0.25) + (2 * (np.array([[2, 0], [1, 5], [3, 3]]) - [[0], [1], [2]]) - 1) / (
        2 * np.array([5.0, 2.0])
    )
    np.testing.assert_allclose(found.log_odds, expected, atol=1e-14)
    assert "present.p" in found.attrs["columns"]
    assert "title" not in found.attrs["columns"]


def test_vectors_within_a_target_go_to_the_engine():
    data = {
        "block": [2, 1],
        "block_group": [4, 1],
        "siblings": xr.DataArray([[0, 1], [2, 0]], dims=("target", "sibling")),
        "block_sigma2": 2.0,
        "block_group_sigma2": 1.0,
        "siblings_sigma2": 2.0,
    }
    found = batch(load("siblings"), data, within="sibling")
    for i in range(2):
        release = Release.from_counts(
            {
                "block": data["block"][i],
                "block_group": data["block_group"][i],
                "siblings": data["siblings"].values[i].tolist(),
            },
            sigma2={"block": 2.0, "block_group": 1.0, "siblings": 2.0},
        )
        alone = run(load("siblings"), release, draws=1, seed=1)
        assert float(found.posterior[i]) == pytest.approx(alone.posterior, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"kmown": 1}, ScenarioError, "kmown is neither"),
        ({"block_sigma2": -1.0}, ReleaseError, "block_sigma2"),
        ({"block": [2.5, 1.0]}, ReleaseError, "whole numbers"),
        ({"block": [np.nan, 1.0]}, ReleaseError, "whole numbers"),
        ({"present.p": 1.0}, ModelError, "strictly between 0 and 1"),
        ({"present.q": 0.3}, ScenarioError, "no parameter"),
        ({"present": 1}, ScenarioError, "fixed by assumption"),
        ({"block_groups": 0}, ReleaseError, "at least 1"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(change, error, words):
    with pytest.raises(error, match=words):
        batch(load("single_level"), {"block": [2, 1], "block_sigma2": 5.0, **change})


def test_a_target_that_is_no_yes_or_no_is_refused():
    data = {"cells": xr.DataArray([[1, 0]], dims=("target", "cell")), "cells_sigma2": 2.0}
    with pytest.raises(UnsupportedModelError, match=r"adversary\.run"):
        batch(
            load("unknown_attribute").assuming(value=Prior("Categorical", p=np.array([0.2, 0.3, 0.5]))),
            {**data, "cells": xr.DataArray([[1, 0, 2]], dims=("target", "cell"))},
            within="cell",
        )


# ------------------------------------------------------------------------------------------------ dask


def test_any_number_of_workers_and_chunks_gives_the_same_values():
    dask = pytest.importorskip("dask")
    table = two_level_table(1000)
    del table["known"]
    plain = batch(load("two_level"), table, chunk=300)
    for chunk, scheduler in ((100, "synchronous"), (250, "threads")):
        lazy = batch(load("two_level"), table, lazy=True, chunk=chunk)
        assert lazy.risk.chunks is not None
        with dask.config.set(scheduler=scheduler, num_workers=3):
            xr.testing.assert_equal(lazy.compute(), plain)


def test_threads_do_not_answer_each_others_questions_in_the_exact_engine():
    dask = pytest.importorskip("dask")
    table = two_level_table(24)
    del table["known"]
    plain = batch(load("two_level"), table, engine="exact")
    lazy = batch(load("two_level"), table, engine="exact", lazy=True, chunk=3)
    with dask.config.set(scheduler="threads", num_workers=4):
        xr.testing.assert_equal(lazy.compute(), plain)


def test_without_dask_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr(many, "find_spec", lambda _: None)
    with pytest.raises(ScenarioError, match="pip install dask"):
        batch(load("single_level"), {"block": [2], "block_sigma2": 5.0}, lazy=True)


# ------------------------------------------------------------------------------------------------ folders


def plain_table(n=70):
    table = two_level_table(n)
    return {k: np.broadcast_to(v, n).copy() for k, v in table.items() if k != "known"}


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_a_folder_holds_what_one_call_gives(tmp_path):
    plan = batch_to_folder(load("two_level"), plain_table(), tmp_path, chunk=30)
    assert (plan.targets, plan.parts, plan.done) == (70, 3, 0)
    parts = [xr.load_dataset(tmp_path / f"part-00000{k}.nc", engine="h5netcdf") for k in range(3)]
    whole = xr.concat(parts, "target", data_vars="all")
    np.testing.assert_array_equal(whole.log_odds, batch(load("two_level"), plain_table()).log_odds)
    assert json.loads((tmp_path / "manifest.json").read_text())["complete"] is True


def test_two_workers_write_the_same_bytes_as_one(tmp_path):
    for workers in (1, 2):
        batch_to_folder(
            load("single_level"),
            {"block": np.arange(50), "block_sigma2": np.full(50, 5.0)},
            tmp_path / str(workers),
            chunk=20,
            workers=workers,
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert len(contents(tmp_path / "1")) == 4


def test_a_killed_run_is_continued_to_the_same_bytes(tmp_path):
    script = textwrap.dedent("""
        import os, sys, numpy as np, xarray as xr
        from adversary import load
        from adversary.batches import batch_to_folder

        def pieces(kill):
            for k in range(4):
                if k == 2 and kill:
                    open(sys.argv[1] + "/.part-000002.nc.99", "w").write("half a part")
                    os._exit(9)
                yield xr.Dataset({"block": ("target", np.arange(k, k + 5)), "block_sigma2": 5.0})

        plan = batch_to_folder(load("single_level"), pieces(sys.argv[2] == "kill"), sys.argv[1], chunk=5)
        print(plan.done, plan.parts)
    """)

    def go(folder, word):
        return subprocess.run(
            [sys.executable, "-c", script, folder, word], capture_output=True, text=True, check=False
        )

    killed = go(str(tmp_path / "a"), "kill")
    assert killed.returncode == 9
    assert sorted(contents(tmp_path / "a")) == [
        ".part-000002.nc.99",
        "manifest.json",
        "part-000000.nc",
        "part-000001.nc",
    ]
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["complete"] is False
    assert go(str(tmp_path / "a"), "go on").stdout.split() == ["2", "4"]
    assert go(str(tmp_path / "b"), "go on").stdout.split() == ["0", "4"]
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_shorter_iterator_leaves_no_part_of_the_longer_one(tmp_path):
    def pieces(n):
        return (xr.Dataset({"block": ("target", [k, k + 1]), "block_sigma2": 5.0}) for k in range(n))

    batch_to_folder(load("single_level"), pieces(3), tmp_path)
    plan = batch_to_folder(load("single_level"), pieces(2), tmp_path)
    assert (plan.targets, plan.parts) == (4, 2)
    assert sorted(contents(tmp_path)) == ["manifest.json", "part-000000.nc", "part-000001.nc"]


def test_a_damaged_part_is_made_again(tmp_path):
    table = {"block": np.arange(6), "block_sigma2": np.full(6, 5.0)}
    batch_to_folder(load("single_level"), table, tmp_path, chunk=3)
    sound = contents(tmp_path)
    (tmp_path / "part-000001.nc").write_bytes(b"cut off")
    assert batch_to_folder(load("single_level"), table, tmp_path, chunk=3).done == 1
    assert contents(tmp_path) == sound


def test_zarr_in_zarr_out(tmp_path):
    pytest.importorskip("zarr")
    table = {"block": np.arange(7), "block_sigma2": np.full(7, 5.0)}
    xr.Dataset({k: ("target", v) for k, v in table.items()}).to_zarr(tmp_path / "t.zarr", consolidated=False)
    plan = batch_to_folder(load("single_level"), tmp_path / "t.zarr", tmp_path / "out", chunk=3)
    assert (plan.targets, plan.parts) == (7, 3)
    parts = [
        xr.open_zarr(p, chunks=None, consolidated=False) for p in sorted((tmp_path / "out").glob("*.zarr"))
    ]
    np.testing.assert_allclose(
        np.concatenate([p.log_odds for p in parts]), (2 * np.arange(7) - 1) / 10, atol=1e-14
    )
    assert batch_to_folder(load("single_level"), tmp_path / "t.zarr", tmp_path / "out", chunk=3).done == 3


def test_a_published_count_that_is_not_used_is_named():
    table = {"block": [2], "block_sigma2": 5.0, "tract": [3], "tract_sigma2": 5.0}
    for engine in ("closed", "exact"):
        assert batch(load("single_level"), table, engine=engine).attrs["unused_evidence"] == "tract"
    assert batch(load("uniqueness"), table).attrs["unused_evidence"] == ""


def test_a_kernel_sent_to_another_process_answers_the_same():
    kernel, arrays, _ = many.read_columns(load("two_level"), plain_table(), 1e-12, ())
    here = kernel(*arrays)
    for other in (pickle.loads(pickle.dumps(kernel)), cloudpickle.loads(cloudpickle.dumps(kernel))):
        for a, b in zip(here, other(*arrays), strict=True):
            np.testing.assert_array_equal(a, b)


def test_priors_that_print_alike_are_not_mixed_in_a_folder(tmp_path):
    def declared(p):
        return load("presence_total").assuming(others=Prior("Categorical", p=p))

    one, other = np.full(40, 1 / 40), np.r_[0.5, np.full(39, 0.5 / 39)]
    assert repr(declared(one)) == repr(declared(other))
    table = {"block": [1, 2], "block_sigma2": [5.0, 5.0]}
    batch_to_folder(declared(one), table, tmp_path)
    with pytest.raises(ScenarioError, match=r"another question \(declaration"):
        batch_to_folder(declared(other), table, tmp_path)


@pytest.mark.parametrize("what", ["input", "assumptions", "chunk"])
def test_another_question_is_not_mixed_into_a_folder(tmp_path, what):
    table = {"block": np.arange(6), "block_sigma2": np.full(6, 5.0)}
    batch_to_folder(load("single_level"), table, tmp_path, chunk=3)
    before = contents(tmp_path)
    adversary, chunk = load("single_level"), 3
    if what == "input":
        table["block"] = table["block"] + 1
    elif what == "chunk":
        chunk = 2
    else:
        adversary = adversary.assuming(known=1)
    with pytest.raises(ScenarioError, match=f"another question \\({what}"):
        batch_to_folder(adversary, table, tmp_path, chunk=chunk)
    assert contents(tmp_path) == before


def test_a_dry_run_writes_nothing_and_says_how_much(tmp_path):
    plan = batch_to_folder(load("two_level"), plain_table(), tmp_path / "none", chunk=30, dry_run=True)
    assert not (tmp_path / "none").exists()
    assert (plan.targets, plan.parts, plan.engine) == (70, 3, "closed form, two levels")
    assert plan.bytes_per_worker > 0
    assert plan.seconds > 0
    assert any("70 targets in 3 parts" in line for line in plan.lines())


def test_csv_is_read_in_pieces_and_a_bad_cell_is_named(tmp_path):
    path = tmp_path / "targets.csv"
    path.write_text("block,block_sigma2\n" + "".join(f"{k},5.0\n" for k in range(7)))
    plan = batch_to_folder(load("single_level"), path, tmp_path / "out", chunk=3)
    assert (plan.targets, plan.parts) == (7, 3)
    last = xr.load_dataset(tmp_path / "out" / "part-000002.nc", engine="h5netcdf")
    assert float(last.log_odds[0]) == pytest.approx((2 * 6 - 1) / 10, abs=1e-14)
    path.write_text("block,block_sigma2\n1,5.0\ntwo,5.0\n")
    with pytest.raises(FileFormatError, match=r"line 3, column 'block': 'two'"):
        batch_to_folder(load("single_level"), path, tmp_path / "bad", chunk=3)


def test_parquet_in_parquet_out_with_a_carried_identifier(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = plain_table(50)
    pq.write_table(
        pa.table({**table, "geoid": np.arange(50) + 10**12}), tmp_path / "t.parquet", row_group_size=7
    )
    with pytest.raises(ScenarioError, match="geoid is neither"):
        batch_to_folder(load("two_level"), tmp_path / "t.parquet", tmp_path / "bad", chunk=20)
    batch_to_folder(load("two_level"), tmp_path / "t.parquet", tmp_path / "out", chunk=20, carry=["geoid"])
    back = [pq.read_table(p) for p in sorted((tmp_path / "out").glob("*.parquet"))]
    assert [t.num_rows for t in back] == [20, 20, 10]
    whole = pa.concat_tables(t.replace_schema_metadata(None) for t in back)
    np.testing.assert_array_equal(whole["log_odds"].to_numpy(), batch(load("two_level"), table).log_odds)
    assert whole["geoid"].to_pylist() == list(range(10**12, 10**12 + 50))


def test_without_pyarrow_the_way_out_is_named(monkeypatch, tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setattr(sources, "find_spec", lambda _: None)
    with pytest.raises(ScenarioError, match="pip install pyarrow"):
        batch_to_folder(load("single_level"), tmp_path / "t.parquet", tmp_path / "out")


def test_the_reason_why_there_is_no_closed_form_is_told():
    release = Release.from_counts({"block": 2}, sigma2=5.0)
    assert find_closed_form(near_misses()["two"], release) == (None, "it has a potential")
    assert "looks at value of block" in find_closed_form(near_misses()["three"], release)[1]


@pytest.mark.parametrize("noise", [(0.05, 0.3), (0.3, 135.0), (2.0, 5.0), (60.0, 3000.0), (1e4, 0.05)])
def test_the_table_of_repeated_counts_has_the_closed_forms_bits(noise):
    rng = np.random.default_rng(1)
    u, v = rng.integers(-8, 40, 30_000), rng.integers(-40, 60, 30_000)
    gain = lattice_gain(u, v, *(np.array([s]) for s in noise))
    np.testing.assert_array_equal(gain, two_level_log_odds(0, u, v, 0, 1e99, *noise, 0.0))
    assert lattice_gain(u * 1000, v, *(np.array([s]) for s in noise)) is None  # too wide to pay
    assert lattice_gain(u, v, np.full(u.size, noise[0]), np.linspace(1, 2, u.size)) is None


def test_targets_by_table_and_by_closed_form_are_the_same_bytes():
    table = two_level_table(12_000)
    del table["known"]
    xr.testing.assert_identical(batch(load("two_level"), table), batch(load("two_level"), table, chunk=1000))


# ------------------------------------------------------------------------------------------------ random declarations


def random_declaration(seed):
    """A scenario of up to four counts, each some small integer form of the target, a flat count and a known number."""
    rng = np.random.default_rng(seed)
    flat = bool(rng.integers(2))
    forms = [
        (int(rng.choice([-1, 1, 1, 1, 1, 1, 2, 0])), 0, int(rng.integers(-2, 3)))
        for _ in range(rng.integers(1, 3))
    ]
    if flat:
        forms += [
            (1, 1, int(rng.integers(0, 3))),
            (0, int(rng.choice([1, 1, 1, 2])), int(rng.integers(0, 3))),
        ]
        if rng.integers(4) == 0:
            forms.append((0, 1, 0))
    forms = [forms[k] for k in rng.permutation(len(forms))]
    lower = int(rng.integers(0, 2))

    def declared(
        release,
        *,
        known=0,
        target=Prior("Bernoulli", p=0.5),
        more=Prior("FlatCount", lower=lower),
    ):
        for k, (a, b, c) in enumerate(forms):
            count = c + a * target + known
            measured(release[f"m{k}"], count + b * more)

    def without(release, *, known=0, target=Prior("Bernoulli", p=0.5)):
        for k, (a, _, c) in enumerate(forms):
            measured(release[f"m{k}"], c + a * target - known)

    adversary = scenario(target="target")(declared if flat else without)
    n = 5
    table = {"known": int(rng.integers(0, 2)), "target.p": rng.uniform(0.001, 0.999, n)}
    for k in range(len(forms)):
        table[f"m{k}"] = rng.integers(-3, 9, n)
        table[f"m{k}_sigma2"] = float(rng.choice([0.3, 2.0, 9.0, 40.0]))
        table[f"m{k}_groups"] = int(rng.choice([1, 1, 4]))
    return adversary, table


def test_random_declarations_are_answered_alike_on_both_roads():
    closed = 0
    for seed in range(10):
        adversary, table = random_declaration(seed)
        found, exact = batch(adversary, table), batch(adversary, table, engine="exact")
        closed += "closed form" in found.attrs["engine"]
        np.testing.assert_allclose(
            found.log_odds, exact.log_odds, rtol=1e-10, atol=1e-10, err_msg=f"seed {seed}"
        )
        np.testing.assert_allclose(
            found.posterior, exact.posterior, rtol=0, atol=2e-12, err_msg=f"seed {seed}"
        )
    assert 2 <= closed <= 8  # both kinds are met


def test_counts_beyond_32_bits_and_priors_of_one_in_a_googol_agree():
    big = 2**40 + 7
    table = {
        "block": [big + 2, 3],
        "block_group": [big + 4, 2],
        "rest": [1, 0],
        "block_sigma2": S1,
        "block_group_sigma2": S2,
        "rest_sigma2": S1,
        "rest_groups": 27,
        "known": [big, 0],
        "present.p": [0.5, 1e-100],
    }
    found = both_ways(load("two_level"), table)
    assert float(found.risk[1]) > 0
    assert float(found.prior[1]) == pytest.approx(1e-100, rel=1e-12)


def test_arrow_s_own_errors_name_the_file_too(tmp_path):
    import pyarrow as pa

    from adversary.batches.sources import _named

    with pytest.raises(FileFormatError, match=r"a\.parquet: damaged"), _named(tmp_path / "a.parquet"):
        raise pa.lib.ArrowException("Unknown error: Wrapping failed")
