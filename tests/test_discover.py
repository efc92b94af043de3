import importlib.metadata

import pytest

from adversary import Release, load, run
from adversary.discover import list_scenarios
from adversary.errors import ScenarioError


def test_every_shipped_scenario_loads_and_says_its_question():
    found = list_scenarios()
    assert len(found) >= 16
    assert not [text for text in found.values() if isinstance(text, str)]
    for s in found.values():
        assert s.question.endswith("?")
        assert s.source


def test_the_three_doors_lead_to_the_same_scenario(tmp_path):
    from adversary_models.two_level import two_level

    assert load("two_level") is two_level
    assert load("adversary_models.two_level:two_level") is two_level
    path = tmp_path / "attacks.py"
    path.write_text(
        "from adversary import Prior, measured, scenario\n\n"
        "@scenario(target='present')\n"
        "def mine(release, *, known=0, present=Prior('Bernoulli', p=0.5)):\n"
        "    measured(release['block'], known + present)\n"
    )
    release = Release.from_counts({"block": 2}, rho="0.1")
    assert (
        run(load(f"{path}::mine"), release, draws=0).posterior
        == run(load("single_level"), release, draws=0).posterior
    )


def test_a_broken_plug_in_is_reported_and_hides_nothing(monkeypatch):
    real = importlib.metadata.entry_points
    broken = importlib.metadata.EntryPoint("broken", "no_such_module:thing", "adversary.scenarios")

    def with_broken(**selection):
        return (*real(**selection), broken)

    monkeypatch.setattr("adversary.discover.entry_points", with_broken)
    found = list_scenarios()
    assert "could not be loaded: ModuleNotFoundError" in found["broken"]
    assert not isinstance(found["two_level"], str)


def test_a_wrong_name_is_answered_with_the_right_ones():
    with pytest.raises(ScenarioError, match="did you mean two_level"):
        load("two_levels")
