import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

from adversary import Prior, Release, load, measured, run, scenario
from adversary._files import writing
from adversary.cli_study import grid_of, study_command
from adversary.errors import FileFormatError, ModelError, ScenarioError, UnsupportedModelError
from adversary.plots.studies import plot_sensitivity
from adversary.samplers.prepared import prepare
from adversary.studies import (
    UniformTotal,
    bounds,
    break_even_prior,
    power_scaling,
    psense,
    rank_assumptions,
    study,
)
from adversary.studies.points import fingerprint
from adversary_models.two_level import two_level

REFERENCE = {
    e["id"]: e for e in json.loads((Path(__file__).parent / "reference/kazan_reiter.json").read_text())
}
RHO1, RHO2 = 0.09922635422547502, 0.24648450960703558
RELEASE = Release.from_counts(
    {"block": 2, "block_group": 1, "rest": -1},
    rho={"block": repr(RHO1), "block_group": repr(RHO2), "rest": repr(RHO1)},
    groups={"rest": 27},
)
BLOCK = Release.from_counts({"block": 2}, rho=repr(RHO1))


def bernoullis(*p):
    return [Prior("Bernoulli", p=x) for x in p]


def poissons(*mu):
    return [Prior("Poisson", mu=float(x)) for x in mu]


@scenario(target="present", source="a test")
def nosy(release, *, present=Prior("Bernoulli", p=0.5)):
    """Does the likelihood depend on the number inside the target's prior? (It must not; this one cheats.)"""
    import pymc as pm

    p = present.owner.inputs[-1]
    pm.Potential("cheat", 3.0 * p * present)
    measured(release["block"], present)


# ---------------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    ("name", "prior"),
    [
        ("s4_poisson0.1", Prior("Poisson", mu=0.1)),
        ("s4_poisson1", Prior("Poisson", mu=1.0)),
        ("s4_poisson5", Prior("Poisson", mu=5.0)),
        ("s4_geom_q0.9", Prior("NegativeBinomial", n=1.0, p=1 - 0.9)),
        ("s4_negbin_r0.5_mean1", Prior("NegativeBinomial", alpha=0.5, mu=1.0)),
        *((f"s4_unif_N{n}", UniformTotal(n, known=0)) for n in (1, 2, 209, 29364)),
    ],
)
def test_the_priors_of_s4_give_the_checked_posteriors(name, prior):
    found = study([two_level.assuming(elsewhere=prior)], RELEASE)
    assert float(found["posterior"][0]) == pytest.approx(REFERENCE[name]["exact_value"], abs=1e-10)


def test_a_group_known_to_be_empty_elsewhere_and_a_flat_prior_span_what_s4_says():
    flat, none = study([two_level, two_level.assuming(elsewhere=0)], RELEASE)["posterior"].values
    assert flat == pytest.approx(0.5032878263, abs=1e-9)
    # the group's count then is a second count of the same unknown; the rest's count says nothing
    assert none == pytest.approx(1 / (1 + math.exp(-(3 * RHO1 + RHO2))), abs=1e-12)


def test_a_uniform_total_is_not_a_uniform_rest():
    with_factor, without = study(
        [
            two_level.assuming(elsewhere=p)
            for p in (UniformTotal(2, known=0), Prior("DiscreteUniform", lower=0, upper=2))
        ],
        RELEASE,
    )["posterior"].values
    assert abs(with_factor - without) > 0.02


def test_a_uniform_total_shifts_with_the_known_people_and_refuses_another_number():
    # S1.1: with m more known people, m more at the block and at the group change nothing
    shifted = Release.from_json(
        RELEASE.to_json().replace('"value": 2', '"value": 6').replace('"value": 1', '"value": 5')
    )
    assert (shifted["block"].value, shifted["block_group"].value) == (6, 5)
    four = two_level.assuming(known=4)
    found = study([four.assuming(elsewhere=UniformTotal(6, known=4))], shifted)
    assert float(found["posterior"][0]) == pytest.approx(REFERENCE["s4_unif_N2"]["exact_value"], abs=1e-10)
    with pytest.raises(ScenarioError, match="known=4: give UniformTotal the same number"):
        study([four.assuming(elsewhere=UniformTotal(6, known=0))], shifted)
    with pytest.raises(ScenarioError, match="top must be above known"):
        UniformTotal(4, known=4)
    (asked,) = grid_of(two_level, ("known=4", "elsewhere=UniformTotal(6)"))
    assert asked.assumptions["elsewhere"] == UniformTotal(6, known=4)


def test_every_point_equals_a_run_of_its_own():
    p, mu = (1e-9, 0.1, 0.5, 1 - 1e-9), (0.1, 4.0)
    found = study(two_level.over(present=bernoullis(*p), elsewhere=poissons(*mu)), RELEASE)
    assert found["posterior"].dims == ("present.p", "elsewhere.mu")
    for x in p:
        for m in mu:
            alone = run(
                two_level.assuming(present=Prior("Bernoulli", p=x), elsewhere=Prior("Poisson", mu=m)),
                RELEASE,
                draws=0,
            )
            here = found.sel({"present.p": x, "elsewhere.mu": m})
            assert float(here["log_odds"]) == pytest.approx(alone.log_odds, abs=1e-11)
            assert float(here["posterior"]) == pytest.approx(alone.posterior, rel=1e-11)
            assert float(here["risk"]) == pytest.approx(alone.risk.value, rel=1e-11)
            assert float(here["prior"]) == pytest.approx(x, rel=1e-14)
            assert float(here["cut_off_bound"]) <= 1e-12


def test_a_shared_answer_costs_two_solutions_however_many_priors(monkeypatch):
    engine = type(prepare(two_level, RELEASE).engine)
    calls = []
    solve = engine.solve
    monkeypatch.setattr(engine, "solve", lambda self, **k: calls.append(1) or solve(self, **k))
    study(two_level.over(present=bernoullis(*np.linspace(0.01, 0.99, 500))), RELEASE)
    assert len(calls) == 2


def test_a_scenario_that_reads_its_targets_prior_is_caught_and_solved_point_by_point():
    p = (0.5, 0.2, 0.9)
    found = study(nosy.over(present=bernoullis(*p)), BLOCK)
    for x, log_odds in zip(p, found["log_odds"].values, strict=True):
        assert log_odds == pytest.approx(math.log(x / (1 - x)) + 3 * RHO1 + 3.0 * x, abs=1e-10)


def test_a_target_with_many_values_has_one_probability_each_over_target():
    s = load("unknown_attribute")
    priors = [np.array(p) for p in ([0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3])]
    release = Release.from_counts({"cells": [2, 0, 1]}, sigma2=2.0)
    found = study([s.assuming(value=Prior("Categorical", p=p)) for p in priors], release)
    assert found["posterior"].dims == ("value", "target")
    assert np.isnan(found["log_odds"].values).all()
    for i, p in enumerate(priors):
        weights = p * np.exp(np.array([2, 0, 1]) / 2.0)
        assert found["posterior"].values[i] == pytest.approx(weights / weights.sum(), abs=1e-13)


# ---------------------------------------------------------------------- labels
def test_a_product_has_one_dimension_for_each_thing_that_differs_and_no_multiindex(tmp_path):
    found = study(two_level.over(elsewhere=[Prior("FlatCount"), *poissons(1)], known=[0, 1, 2]), RELEASE)
    assert dict(found.sizes) == {"known": 3, "elsewhere": 2}
    assert found["elsewhere"].values.tolist() == ["FlatCount()", "Poisson(mu=1.0)"]
    one = float(found["posterior"].sel(known=2, elsewhere="Poisson(mu=1.0)"))
    alone = run(two_level.assuming(known=2, elsewhere=Prior("Poisson", mu=1.0)), RELEASE, draws=0)
    assert one == pytest.approx(alone.posterior, abs=1e-12)
    found.to_netcdf(tmp_path / "study.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "study.nc", engine="h5netcdf") as again:
        xr.testing.assert_equal(found, again.load())


def test_points_that_are_no_product_lie_along_one_dimension():
    found = study(two_level.over(known=[0, 1], elsewhere=poissons(1, 2))[:3], RELEASE)
    assert found["posterior"].dims == ("point",)
    assert found["known"].values.tolist() == [0, 0, 1]
    assert found["elsewhere.mu"].values.tolist() == [1.0, 2.0, 1.0]


def test_priors_that_print_alike_are_told_apart():
    long = [np.full(8, 1 / 8), np.arange(1, 9) / 36]
    s = load("whole_record")
    release = Release.from_counts({"cells": [1, 0, 0, 0, 0, 0, 0, 2]}, rho="1/4")
    found = study([s.assuming(cell=Prior("Categorical", p=p)) for p in long], release)
    assert len(set(found["cell"].values)) == 2


def test_a_fingerprint_says_everything_that_repr_leaves_out():
    one, other = np.zeros(20), np.zeros(20)
    other[10] = 1e-300
    assert fingerprint(Prior("Categorical", p=one)) != fingerprint(Prior("Categorical", p=other))
    assert fingerprint(UniformTotal(3, known=0)) != fingerprint(UniformTotal(4, known=0))


# ---------------------------------------------------------------------- refusals
def test_what_cannot_be_studied_is_refused_in_words():
    with pytest.raises(ScenarioError, match="at least one scenario"):
        study([], RELEASE)
    with pytest.raises(ScenarioError, match="takes a Release"):
        study([two_level], {"block": 2})
    with pytest.raises(ScenarioError, match="processes"):
        study([two_level], RELEASE, processes=0)
    with pytest.raises(ModelError, match="fixed by assumption"):
        study([two_level.assuming(present=1)], RELEASE)
    with pytest.raises(ModelError, match=r"at <Scenario two_level.*strictly between 0 and 1"):
        study(two_level.over(present=bernoullis(0.5, 1.0)), RELEASE)


def test_a_scenario_that_cannot_travel_is_refused_before_any_work():
    @scenario(target="present", source="a test")
    def local(release, *, present=Prior("Bernoulli", p=0.5)):
        """Can she travel?"""
        measured(release["block"], present)

    with pytest.raises(ScenarioError, match="top of a module"):
        study(local.over(present=bernoullis(0.1, 0.2)), BLOCK, processes=2)


# ---------------------------------------------------------------------- files
GRID = (
    "two_level.over(known=list(range(8)), elsewhere=[Prior('Poisson', mu=0.5 + m / 10) for m in range(40)])"
)
SCRIPT = f"""
import sys
from adversary import Prior, Release
from adversary.studies import study
from adversary_models.two_level import two_level
if __name__ == "__main__":
    study({GRID}, Release.from_json(open(sys.argv[1]).read()), out=sys.argv[2])
"""


def grid():
    return eval(GRID)


def digests(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(Path(folder).iterdir())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies") / "whole"
    return folder, study(grid(), RELEASE, out=folder)


def test_a_study_killed_at_a_random_moment_goes_on_and_ends_with_the_same_bytes(whole, tmp_path):
    script, release, folder = tmp_path / "study.py", tmp_path / "release.json", tmp_path / "killed"
    script.write_text(SCRIPT)
    release.write_text(RELEASE.to_json())
    worker = subprocess.Popen([sys.executable, script, release, folder], env=dict(os.environ))
    try:
        deadline = time.monotonic() + 60
        while not list(folder.glob("chunk_*.npz")) and worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(np.random.default_rng().uniform(0, 0.3))
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    finished = len(list(folder.glob("chunk_*.npz")))
    assert finished >= 1
    (folder / ".chunk_000009.npz.part").write_bytes(b"half a chunk")
    again = study(grid(), RELEASE, out=folder)
    xr.testing.assert_identical(again, whole[1])
    assert digests(folder) == digests(whole[0])


def test_finished_parts_are_not_computed_again(whole, tmp_path, monkeypatch):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(whole[0], folder)
    (folder / "chunk_000003.npz").unlink()
    done = []
    from adversary.studies import grid as module

    solve = module._solve
    monkeypatch.setattr(module, "_solve", lambda unit, *rest: done.extend(unit.points) or solve(unit, *rest))
    study(grid(), RELEASE, out=folder)
    assert len(done) == 32
    assert digests(folder) == digests(whole[0])


def test_two_processes_write_the_same_bytes_as_one(whole, tmp_path):
    folder = tmp_path / "two"
    study(grid(), RELEASE, out=folder, processes=2)
    assert digests(folder) == digests(whole[0])


def test_the_folder_of_another_study_is_refused(whole, tmp_path):
    with pytest.raises(ScenarioError, match=r"another study \(release differ"):
        study(grid(), Release.from_json(RELEASE.to_json().replace('"value": 2', '"value": 3')), out=whole[0])
    with pytest.raises(ScenarioError, match=r"another study \(tolerance differ"):
        study(grid(), RELEASE, out=whole[0], tolerance=1e-9)
    other = grid()
    other[7] = other[7].assuming(known=99)
    with pytest.raises(ScenarioError, match=r"another study \(the assumptions differ"):
        study(other, RELEASE, out=whole[0])
    (tmp_path / "letter.txt").write_text("not a study")
    with pytest.raises(ScenarioError, match=r"'letter\.txt' and no study"):
        study(grid(), RELEASE, out=tmp_path)


def test_a_damaged_part_is_named_and_not_believed(whole, tmp_path):
    import shutil

    folder = tmp_path / "damaged"
    shutil.copytree(whole[0], folder)
    (folder / "chunk_000002.npz").write_bytes(b"PK damaged")
    with pytest.raises(FileFormatError, match=r"chunk_000002\.npz: not a chunk"):
        study(grid(), RELEASE, out=folder)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        FileFormatError, match=r"file/inside: this folder cannot be made \(.*file is a file\)"
    ):
        study([two_level], RELEASE, out=tmp_path / "file" / "inside")
    with pytest.raises(ScenarioError, match="is a file"):
        study([two_level], RELEASE, out=tmp_path / "file")


def test_a_second_writer_is_refused(whole):
    with writing(whole[0]), pytest.raises(ScenarioError, match="another process is writing"):
        study(grid(), RELEASE, out=whole[0])


# ---------------------------------------------------------------------- sensitivity
def test_bounds_over_an_interval_and_a_family_are_those_of_a_fine_grid():
    family = [Prior("FlatCount"), *poissons(0.1, 1, 5)]
    found = bounds(two_level, RELEASE, elsewhere=family, present=(0.2, 0.7))
    grid = study(two_level.over(present=bernoullis(*np.linspace(0.2, 0.7, 41)), elsewhere=family), RELEASE)[
        "posterior"
    ]
    assert found.lower == pytest.approx(float(grid.min()), abs=1e-12)
    assert found.upper == pytest.approx(float(grid.max()), abs=1e-12)
    assert found.at_lower.assumptions["elsewhere"] == Prior("Poisson", mu=5.0)
    assert found.at_upper.assumptions["present"] == Prior("Bernoulli", p=0.7)
    with pytest.raises(ScenarioError, match="need not be monotone in elsewhere"):
        bounds(two_level, RELEASE, elsewhere=(1, 5))
    with pytest.raises(ScenarioError, match="inside"):
        bounds(two_level, RELEASE, present=(0.0, 0.5))


@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_at_the_break_even_prior_the_posterior_is_the_threshold(threshold):
    p, log_odds = break_even_prior(two_level, RELEASE, threshold=threshold)
    assert run(
        two_level.assuming(present=Prior("Bernoulli", p=p)), RELEASE, draws=0
    ).posterior == pytest.approx(threshold, abs=1e-12)
    assert log_odds == pytest.approx(math.log(p / (1 - p)), abs=1e-12)
    with pytest.raises(UnsupportedModelError, match="no prior of its own"):
        break_even_prior(load("couple"), BLOCK)


def test_the_assumption_that_moves_the_answer_most_comes_first():
    ranked = rank_assumptions(
        two_level, RELEASE, {"known": [1], "present": bernoullis(0.45), "elsewhere": poissons(0.1, 5)}
    )
    assert [m.assumption for m in ranked] == ["elsewhere", "known", "present"]
    assert (ranked[0].lower, ranked[0].upper) == pytest.approx((0.3875623427, 0.6217043429), abs=1e-9)
    assert ranked[2].spread == pytest.approx(math.log(0.55 / 0.45), abs=1e-12)
    default = rank_assumptions(load("single_level"), BLOCK)
    assert default[0].assumption == "present"
    assert default[0].spread == pytest.approx(math.log(4), abs=1e-12)  # odds halved and doubled


def test_power_scaling_is_the_derivative_of_brute_force():
    mu, p, h = 1.3, 0.3, 1e-5
    y = np.arange(80)
    log_factorial = np.cumsum(np.log(np.maximum(y, 1)))
    s = two_level.assuming(present=Prior("Bernoulli", p=p), elsewhere=Prior("Poisson", mu=mu))

    def posterior(present=1.0, elsewhere=1.0, likelihood=1.0):
        w = [
            present * math.log(p if x else 1 - p)
            + elsewhere * (y * math.log(mu) - log_factorial)
            - likelihood * (RHO1 * (2 - x) ** 2 + RHO2 * (1 - x - y) ** 2 + RHO1 / 27 * (-1 - y) ** 2)
            for x in (0, 1)
        ]
        zero, one = (np.exp(v).sum() for v in w)
        return one / (zero + one)

    def slope(**power):
        up, down = (dict.fromkeys(power, 1 + sign * h) for sign in (1, -1))
        return math.log(2) * (posterior(**up) - posterior(**down)) / (2 * h)

    found = power_scaling(s, RELEASE)
    derivative = found["derivative"].sel(target=1)
    assert float(derivative.sel(component="prior[present]")) == pytest.approx(slope(present=1), abs=1e-8)
    assert float(derivative.sel(component="prior[elsewhere]")) == pytest.approx(slope(elsewhere=1), abs=1e-8)
    assert float(derivative.sel(component="prior")) == pytest.approx(slope(present=1, elsewhere=1), abs=1e-8)
    assert float(derivative.sel(component="likelihood")) == pytest.approx(slope(likelihood=1), abs=1e-8)


def test_a_flat_prior_has_no_power_and_a_uniform_one_no_slope():
    found = power_scaling(two_level, RELEASE)
    assert found["sensitivity"].sel(component="prior").item() == pytest.approx(0.0, abs=1e-12)
    assert found["sensitivity"].sel(component="likelihood").item() > 1e-3
    assert found.attrs["diagnosis"] == "-"


def test_a_hyperprior_is_refused_by_power_scaling_with_the_reason():
    with pytest.raises(UnsupportedModelError, match="prior of others has a prior within"):
        power_scaling(load("presence_total"), BLOCK)


def test_arviz_answers_for_counts_and_not_for_events(recwarn):
    release = Release.from_counts({"block": 2, "block_group": 30, "siblings": [3, 8, 5, 9]}, rho="0.1")
    s = load("siblings").assuming(elsewhere=Prior("Poisson", mu=np.array([2.3, 5.1, 6.7, 9.9])))
    table = psense(s, release, seed=1, draws=500)
    assert list(table.index) == [f"elsewhere[{i}]" for i in range(4)]
    assert (table["likelihood"].astype(float) > 0).all()
    with pytest.raises(ScenarioError, match="power_scaling"):
        psense(load("single_level"), BLOCK, seed=1, draws=50)


# ---------------------------------------------------------------------- command and figure
def test_the_command_studies_a_grid_and_keeps_it(tmp_path):
    file = tmp_path / "release.json"
    file.write_text(RELEASE.to_json())
    out = tmp_path / "kept"
    arguments = [
        "two_level",
        str(file),
        "--over",
        "present.p=0.1:0.5:3",
        "--over",
        "elsewhere=FlatCount(),Poisson(mu=5)",
    ]
    found = CliRunner().invoke(study_command, [*arguments, "--out", str(out), "--json"])
    assert found.exit_code == 0, found.output
    table = json.loads(found.stdout)
    assert table["dims"] == ["present.p", "elsewhere"]
    assert table["variables"]["posterior"][2] == pytest.approx([0.5032878263, 0.3875623427], abs=1e-9)
    with xr.open_dataset(out / "result.nc", engine="h5netcdf") as kept:
        assert kept["present.p"].values == pytest.approx([0.1, 0.3, 0.5])
    said = CliRunner().invoke(study_command, arguments)
    assert "highest  P(present) = 0.503288" in said.stdout
    assert "elsewhere = Poisson(mu=5)" in said.stdout


def test_values_in_brackets_are_one_value_and_mistakes_are_explained():
    points = grid_of(two_level, ("elsewhere=NegativeBinomial(mu=1,alpha=0.5),FlatCount()", "known=0,3"))
    assert [(repr(s.assumptions["elsewhere"])[:15], s.known["known"]) for s in points] == [
        ("Prior('Negative", 0),
        ("Prior('Negative", 3),
        ("Prior('FlatCoun", 0),
        ("Prior('FlatCoun", 3),
    ]
    with pytest.raises(ScenarioError, match="FROM:TO:HOW_MANY"):
        grid_of(two_level, ("present.p=0.1:0.9",))
    with pytest.raises(ScenarioError, match="something to vary"):
        grid_of(two_level, ())


def test_the_figure_draws_the_numbers_of_the_study():
    data = study(two_level.over(present=bernoullis(0.3, 0.1, 0.5), elsewhere=poissons(1, 5)), RELEASE)
    ax = plot_sensitivity(data, "present.p")
    first = ax.lines[0]
    assert first.get_xdata().tolist() == [0.1, 0.3, 0.5]
    expected = data["posterior"].sel({"present.p": [0.1, 0.3, 0.5], "elsewhere.mu": 1.0}).values
    assert first.get_ydata() == pytest.approx(expected)
    assert ax.get_legend_handles_labels()[1] == ["elsewhere.mu = 1", "elsewhere.mu = 5", "prior"]
    texts = plot_sensitivity(study(two_level.over(elsewhere=[Prior("FlatCount"), *poissons(1)]), RELEASE))
    assert [t.get_text() for t in texts.get_xticklabels()] == ["FlatCount()", "Poisson(mu=1.0)"]


OWN = """
from adversary import Prior, Release, measured, scenario
from adversary.studies import study


@scenario(target="present", source="a script")
def own(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
    "Is she there?"
    measured(release["block"], known + present)


if __name__ == "__main__":
    release = Release.from_counts({"block": 2}, rho="1/4")
    points = own.over(known=list(range(40)))
    alone, together = (study(points, release, processes=n) for n in (1, 2))
    assert alone.identical(together)
    print(float(together["log_odds"][0]))
"""


def test_a_scenario_declared_in_a_script_travels_to_other_processes(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(OWN)
    found = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) == pytest.approx((2 * 2 - 1) / 4, abs=1e-12)


@pytest.mark.parametrize("mu", [1, 1.0, 5, 5.0])
def test_a_prior_s_whole_number_is_varied_like_the_same_float(mu):
    from adversary.studies import rank_assumptions

    release = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, rho="0.1", groups={"rest": 27})
    ranked = rank_assumptions(load("two_level").assuming(elsewhere=Prior("Poisson", mu=mu)), release)
    as_float = rank_assumptions(load("two_level").assuming(elsewhere=Prior("Poisson", mu=float(mu))), release)
    assert {m.assumption for m in ranked} == {"present", "known", "elsewhere"}
    assert [m.spread for m in ranked] == [m.spread for m in as_float]


def test_a_flat_prior_is_ranked_too_against_proper_ones():
    ranked = {m.assumption: m for m in rank_assumptions(two_level, RELEASE)}
    assert set(ranked) == {"known", "present", "elsewhere"}
    assert ranked["elsewhere"].lower == pytest.approx(0.3875623427, abs=1e-9)  # Poisson(5), as above
    assert "FlatCount" in ranked["elsewhere"].at_upper or "mu=1" in ranked["elsewhere"].at_upper
