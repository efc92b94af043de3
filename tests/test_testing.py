import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from adversary import Prior, Release, load, measured, scenario
from adversary.cli_study import check_command
from adversary.discover import list_scenarios
from adversary.errors import AdversaryError, ModelError
from adversary.samplers.gibbs import PathProblem
from adversary.testing import check_scenario, example_release

HERE = Path(__file__).parent
BLOCK = Release.from_counts({"block": 1}, rho="1/4")
SHIPPED = (
    "couple",
    "fill_out",
    "fill_out_total",
    "lying",
    "lying_cells",
    "moved",
    "path",
    "presence_total",
    "reconstruction",
    "siblings",
    "single_level",
    "two_level",
    "unique_at",
    "uniqueness",
    "unknown_attribute",
    "unknown_variable",
    "whole_record",
)
_COUNTER = itertools.count(1)


def verdicts(s, release=BLOCK, **options):
    return {c.name: c for c in check_scenario(s, release, quick=True, **options)}


@scenario(target="present", source="a test")
def good(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
    """Is she there?"""
    measured(release["block"], known + present)


@scenario(target="present")
def bare(release, *, present=Prior("Bernoulli", p=0.5)):
    measured(release["block"], present)


@scenario(target="present", source="a test")
def restless(release, *, present=Prior("Bernoulli", p=0.5)):
    """Does something change by itself?"""
    measured(release["block"], next(_COUNTER) + present)


@scenario(target="present", source="a test")
def peeking(release, *, present=Prior("Bernoulli", p=0.5)):
    """Does she look at a count without declaring it?"""
    measured(release["block"], int(release["other"].value > 0) + present)


@scenario(target="present", source="a test")
def idle(release, *, present=Prior("Bernoulli", p=0.5), rumour=Prior("Poisson", mu=3.0)):
    """Does a prior change nothing?"""
    measured(release["block"], present + 0 * rumour)


@scenario(target="present", source="a test")
def forced(release, *, present=Prior("Bernoulli", p=0.5)):
    """Does something other than a count tell her?"""
    import pymc as pm

    pm.Potential("gossip", 2.0 * present)
    measured(release["block"], present)


@scenario(target="present", source="a test")
def hidden(release, *, present=Prior("Bernoulli", p=0.5), others=Prior("Poisson", mu=3.0)):
    """Can the target be told from the others?"""
    measured(release["block"], present + others)


@scenario(target="present", source="a test")
def crooked(release, *, present=Prior("Bernoulli", p=0.5)):
    """Does the builder fall over?"""
    raise ZeroDivisionError(f"with {release['block'].name} and {present}")


def _wrong_reference(release, *, present):
    block = release["block"]  # the noise of another release
    return PathProblem(known=0, prior_log_odds=0.0, nodes=((block.value, block.sigma2 / 3),), rests=())


@scenario(target="present", source="a test", gibbs=_wrong_reference)
def two_minds(release, *, present=Prior("Bernoulli", p=0.5)):
    """Do the reference and the model say the same?"""
    measured(release["block"], present)


def test_a_reference_sampler_of_another_model_is_found_out():
    found = verdicts(two_minds, Release.from_counts({"block": 3}, rho="1/4"))
    assert found["exact"].passed
    assert found["gibbs"].passed is False
    assert "present is disagree" in found["gibbs"].text


def test_a_sampler_that_falls_over_is_a_finding_and_hides_no_other(monkeypatch):
    from adversary import diagnostics

    compare = diagnostics.compare

    def fragile(s, release, samplers, **options):
        if "mcmc" in samplers:
            raise RuntimeError("out of order\nwith a long trace")
        return compare(s, release, samplers, **options)

    monkeypatch.setattr(diagnostics, "compare", fragile)
    found = {c.name: c for c in check_scenario(good, BLOCK, draws=200)}
    assert found["exact"].passed
    assert found["mcmc"].text == "mcmc fell over: RuntimeError: out of order"


def test_a_good_scenario_passes_everything_with_all_samplers():
    found = {c.name: c for c in check_scenario(good, BLOCK, draws=400)}
    assert all(c.passed for c in found.values()), found
    assert {
        "docstring",
        "source",
        "pickles",
        "builds",
        "builds twice",
        "measurements",
        "prior predictive",
        "loud noise",
    } <= set(found)
    assert {"no noise", "priors matter", "exact", "mcmc"} <= set(found)
    assert "agrees with exact within 4 standard errors on present" in found["mcmc"].text


def test_a_scenario_without_question_or_source_is_told_so():
    found = verdicts(bare)
    assert found["docstring"].passed is False
    assert found["source"].passed is False
    assert "names no source" in found["source"].text


def test_a_scenario_that_changes_by_itself_is_found_out():
    found = verdicts(restless)
    assert found["builds twice"].passed is False
    assert "differ" in found["builds twice"].text


def test_looking_at_a_count_without_declaring_it_is_found_out():
    found = verdicts(peeking, Release.from_counts({"block": 1, "other": 3}, rho="1/4"))
    assert found["measurements"].passed is False
    assert "'other'" in found["measurements"].text


def test_a_prior_that_changes_nothing_is_found_out():
    found = verdicts(idle)
    assert found["priors matter"].passed is False
    assert "rumour" in found["priors matter"].text


def test_knowledge_that_is_not_in_the_counts_is_found_out():
    found = verdicts(forced)
    assert found["loud noise"].passed is False
    assert "0.38 away from the prior" in found["loud noise"].text


def test_a_target_that_exact_counts_do_not_reveal_is_said_to_be_unidentified():
    found = verdicts(hidden)
    assert found["no noise"].passed is None
    assert "do not identify" in found["no noise"].text


def test_what_a_function_raises_is_reported_and_not_raised():
    found = verdicts(crooked)
    assert found["builds"].passed is False
    assert "ZeroDivisionError" in found["builds"].text


def test_a_scenario_inside_a_function_is_told_where_to_live():
    @scenario(target="present", source="a test")
    def local(release, *, present=Prior("Bernoulli", p=0.5)):
        """Can she travel?"""
        measured(release["block"], present)

    found = verdicts(local)
    assert found["pickles"].passed is False
    assert "top of a module" in found["pickles"].text


def test_only_a_scenario_can_be_checked():
    with pytest.raises(AdversaryError, match="takes a scenario"):
        check_scenario(lambda release: None)


def test_an_example_release_has_the_names_and_lengths_that_the_scenario_asks_for():
    assert list(example_release(load("two_level"))) == ["block", "rest", "block_group"]
    assert example_release(load("siblings"))["siblings"].size == 3
    assert example_release(load("unknown_attribute"))["cells"].size == 2
    assert "rest_of_tract" in example_release(load("path"))


def test_a_scenario_that_no_example_fits_asks_for_a_release():
    with pytest.raises(ModelError, match="pass one of your own"):
        example_release(crooked)


@pytest.mark.parametrize("name", [n for n in SHIPPED if n not in ("presence_total", "path", "unique_at")])
def test_every_shipped_scenario_conforms(name):
    s = load(name)
    release = None
    if name == "whole_record":  # 2,016 cells work as well, and take longer
        s = s.assuming(cell=Prior("Categorical", p=np.array([0.1, 0.2, 0.3, 0.4])))
    if name == "reconstruction":  # four households work as well, and take longer
        s = s.assuming(households=2)
    failed = [c for c in check_scenario(s, release, quick=True, draws=500) if c.passed is False]
    assert not failed


def test_the_path_conforms_on_three_levels():
    counts = {"block": 2, "rest_of_block_group": 0, "block_group": 4, "rest_of_tract": 3, "tract": 5}
    failed = [
        c
        for c in check_scenario(load("path"), Release.from_counts(counts, rho="1/4"), quick=True)
        if c.passed is False
    ]
    assert not failed


def test_two_scenarios_of_another_package_are_found_and_conform(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE / "third_party"))
    found = list_scenarios()
    assert {"one_of_three", "visitors"} <= set(found)
    assert "could not be loaded" in found["not_there"]
    for name in ("one_of_three", "visitors"):
        failed = [c for c in check_scenario(load(name), quick=True) if c.passed is False]
        assert not failed, (name, failed)


def test_the_command_checks_a_users_file_and_exits_1_where_it_fails(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from adversary import Prior, measured, scenario\n\n\n"
        '@scenario(target="there", source="me")\n'
        'def fine(release, *, there=Prior("Bernoulli", p=0.3)):\n'
        '    "Is she there?"\n'
        '    measured(release["count"], there)\n\n\n'
        '@scenario(target="there")\n'
        'def nameless(release, *, there=Prior("Bernoulli", p=0.3)):\n'
        '    measured(release["count"], there)\n'
    )
    fine = CliRunner().invoke(check_command, [f"{file}::fine", "--quick", "--json"])
    assert fine.exit_code == 0, fine.output
    assert json.loads(fine.stdout)["passed"] is True
    nameless = CliRunner().invoke(check_command, [f"{file}::nameless", "--quick"])
    assert nameless.exit_code == 1
    assert "FAIL docstring" in nameless.stdout
