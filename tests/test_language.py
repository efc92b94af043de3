import inspect
import pickle

import numpy as np
import pytest

from adversary import Prior, Release, measured, scenario
from adversary.errors import AdversaryError, ModelError, ScenarioError
from adversary.language import resolve
from adversary_models.two_level import two_level

RELEASE = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, rho="0.1", groups={"rest": 27})


@scenario(target="present", source="a test")
def one(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
    """Is she there?"""
    measured(release["block"], known + present)


def test_calling_a_scenario_gives_a_plain_pymc_model():
    import pymc as pm

    model = one(RELEASE)
    assert type(model) is pm.Model
    assert [v.name for v in model.free_RVs] == ["present"]
    assert [v.name for v in model.observed_RVs] == ["block"]


def test_the_signature_prints_the_threat_model():
    assert "present=Prior('Bernoulli', p=0.5)" in str(inspect.signature(one))
    assert "known=4" in str(inspect.signature(one.assuming(known=4)))
    assert inspect.getdoc(one) == "Is she there?"
    assert one.question == "Is she there?"


def test_assuming_returns_another_scenario_and_leaves_the_first():
    other = one.assuming(known=4, present=Prior("Bernoulli", p=0.1))
    assert one.known == {"known": 0}
    assert other.known == {"known": 4}
    assert other.unknowns["present"].parameters["p"] == 0.1


def test_a_wrong_assumption_is_answered_with_the_right_ones():
    with pytest.raises(ScenarioError, match=r"'knwon': it has known, present \(did you mean known\?\)"):
        one.assuming(knwon=3)


def test_over_is_the_product_of_the_grids():
    grid = one.over(known=[0, 1], present=[Prior("Bernoulli", p=p) for p in (0.1, 0.2, 0.3)])
    assert [(s.known["known"], s.unknowns["present"].parameters["p"]) for s in grid] == [
        (k, p) for k in (0, 1) for p in (0.1, 0.2, 0.3)
    ]
    with pytest.raises(ScenarioError, match="grid of known"):
        one.over(known=3)


def test_a_target_that_the_model_lacks_is_refused_with_what_there_is():
    @scenario(target="absent")
    def wrong(release, *, present=Prior("Bernoulli", p=0.5)):
        measured(release["block"], present)

    with pytest.raises(ScenarioError, match="target 'absent', and its model has present"):
        wrong(RELEASE)


def test_a_measurement_that_the_release_lacks_is_refused_with_what_there_is():
    with pytest.raises(AdversaryError, match=r"no measurement called 'rest'.*it has block"):
        two_level(Release.from_counts({"block": 2}, rho="0.1"))


def test_an_argument_that_is_never_used_is_refused():
    with pytest.raises(ScenarioError, match="never uses its argument 'known'"):

        @scenario(target="present")
        def lazy(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
            measured(release["block"], present)


def test_an_argument_used_only_in_an_inner_function_counts_as_used():
    @scenario(target="present")
    def inner(release, *, known=0, present=Prior("Bernoulli", p=0.5)):
        def total():
            return known + present

        measured(release["block"], total())

    assert inner(RELEASE)["block"] is not None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(data, *, x=1):\n    return data, x", "must be release"),
        ("def f(release, *args):\n    return release, args", "takes \\*args"),
    ],
)
def test_a_function_that_is_no_scenario_is_refused(source, words):
    space = {}
    exec(source, space)
    with pytest.raises(ScenarioError, match=words):
        scenario(target="x")(space["f"])


def test_measured_outside_a_scenario_is_refused():
    with pytest.raises(ScenarioError, match="belongs inside"):
        measured(RELEASE["block"], 1)


def test_measuring_twice_is_refused():
    @scenario(target="present")
    def twice(release, *, present=Prior("Bernoulli", p=0.5)):
        measured(release["block"], present)
        measured(release["block"], present)

    with pytest.raises(ScenarioError, match="already has a variable called 'block'"):
        twice(RELEASE)


def test_a_number_that_is_no_count_is_refused_as_true_value():
    @scenario(target="present")
    def half(release, *, present=Prior("Bernoulli", p=0.5)):
        measured(release["block"], 0.5 * present)

    with pytest.raises(ScenarioError, match="not a whole number"):
        half(RELEASE)


def test_a_lambda_as_a_prior_says_what_to_write():
    with pytest.raises(ScenarioError, match="instead of a lambda"):
        one.assuming(present=lambda: 0.5)
    with pytest.raises(ScenarioError, match="instead of a lambda"):
        Prior(lambda: 0.5)


def test_an_unknown_distribution_is_answered_with_its_neighbours():
    with pytest.raises(ScenarioError, match="did you mean Bernoulli"):
        one.assuming(present=Prior("Bernouli", p=0.5))(RELEASE)


def test_what_was_not_measured_is_passed_over():
    release = Release.from_counts(
        {"block": 2, "block_group": 1, "rest": 5}, rho={"block": "0.1", "block_group": 0, "rest": "0.1"}
    )
    assert [v.name for v in two_level(release).observed_RVs] == ["block", "rest"]


def test_a_scenario_pickles_by_reference_with_its_assumptions():
    changed = two_level.assuming(known=3, present=Prior("Bernoulli", p=0.25))
    again = pickle.loads(pickle.dumps(changed))
    assert again.function is two_level.function
    assert again.assumptions == changed.assumptions


def test_a_scenario_from_a_file_loads_and_pickles(tmp_path):
    path = tmp_path / "attacks.py"
    path.write_text(
        "from adversary import Prior, measured, scenario\n"
        "@scenario(target='present')\n"
        "def mine(release, *, known=0, present=Prior('Bernoulli', p=0.5)):\n"
        "    'Mine.'\n"
        "    measured(release['block'], known + present)\n"
    )
    mine = resolve(f"{path}::mine").assuming(known=2)
    assert pickle.loads(pickle.dumps(mine)).known == {"known": 2}
    with pytest.raises(ScenarioError, match="has mine"):
        resolve(f"{path}::yours")
    with pytest.raises(ScenarioError, match="no file"):
        resolve(f"{tmp_path / 'none.py'}::mine")


def test_numbers_written_in_a_scenario_keep_full_precision():
    import pymc as pm
    from scipy import stats

    @scenario(target="others")
    def fifty(release, *, present=Prior("Bernoulli", p=0.5)):
        others = pm.Poisson("others", 50)
        measured(release["block"], present + others)

    model = fifty(RELEASE)
    with model:
        log_p = model.compile_logp(vars=[model["others"]], sum=False)
    assert float(log_p({"others": 60, "present": 0})[0]) == pytest.approx(
        stats.poisson(50).logpmf(60), rel=1e-13
    )
    assert pm.math.constant(0.5).dtype != "float64", "the habit of PyTensor is left as it was"


def test_single_precision_is_refused_with_the_count_it_would_spoil():
    import pytensor

    with pytensor.config.change_flags(floatX="float32"), pytest.raises(ModelError, match="39538223"):
        one(Release.from_counts({"block": 39538223}, rho="0.1"))


def test_a_prior_of_another_make_may_stand_in(monkeypatch):
    import pymc as pm

    class Foreign:
        dims = ()

        def create_variable(self, name):
            return pm.Bernoulli(name, p=np.float64(0.25))

    model = one.assuming(present=Foreign())(RELEASE)
    assert [v.name for v in model.free_RVs] == ["present"]


def test_priors_compare_and_print_by_what_they_say():
    assert Prior("Poisson", mu=3) == Prior("Poisson", mu=3)
    assert Prior("Poisson", mu=3) != Prior("Poisson", mu=4)
    assert Prior("Poisson", mu=[1, 2], dims="a") == Prior("Poisson", mu=[1, 2], dims=("a",))
    assert repr(Prior("Poisson", mu=Prior("Gamma", alpha=2.0, beta=1.0))) == (
        "Prior('Poisson', mu=Prior('Gamma', alpha=2.0, beta=1.0))"
    )


def test_a_prior_put_in_place_of_a_vector_prior_takes_its_dims():
    from adversary_models.siblings import siblings

    changed = siblings.assuming(elsewhere=Prior("Poisson", mu=2.0))
    assert changed.unknowns["elsewhere"].dims == ("sibling",)


@pytest.mark.parametrize("known", [-1, [0, -2]], ids=["number", "list"])
def test_a_negative_number_of_known_people_is_refused(known):
    with pytest.raises(ScenarioError, match="cannot be negative"):
        one.assuming(known=known)
