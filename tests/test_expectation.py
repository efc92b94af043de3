"""The general expected risk against the special sums, against enumeration, and its refusal to draw unasked."""

import itertools

import numpy as np
import pytest

from adversary import Prior, Release, load, measured, scenario
from adversary.errors import ModelError, ScenarioError, UnsupportedModelError
from adversary.expectation import expected_risk, true_counts
from adversary.risk.expected import expected_one_level
from adversary.risk.levels import expected_uniqueness
from adversary.risk.two_level import TwoLevelDesign, expected_two_level

S1, S2 = 0.5 / 0.09922635422547502, 0.5 / 0.24648450960703558


@pytest.mark.parametrize("present", [0, 1])
@pytest.mark.parametrize("p", [0.5, 1 / 864])
def test_one_level_is_the_special_sum(present, p):
    found = expected_risk(
        load("single_level").assuming(known=3, present=Prior("Bernoulli", p=p)),
        {"present": present},
        {"block": S1},
    )
    special = expected_one_level(S1, p=p, truth="present" if present else "absent")
    assert found.risk == pytest.approx(special.risk, abs=2e-12 / p)
    assert found.right == pytest.approx(special.right, abs=2e-12)
    assert found.exceedance(1.1) == pytest.approx(special.exceedance(1.1), abs=2e-12)
    assert 0 < found.left_out_bound <= 1e-12
    assert found.standard_error == 0.0


@pytest.mark.parametrize("total", [1, 4])
def test_two_levels_are_the_special_sum_and_figure_five(total):
    design = {"block": S1, "block_group": S2, "rest": (S1, 27)}
    found = expected_risk(load("two_level"), {"present": 1, "elsewhere": total - 1}, design, tolerance=1e-9)
    special = expected_two_level(TwoLevelDesign(sigma2=S1, group_sigma2=S2, others=27), total, p=0.5)
    assert found.right == pytest.approx(special.right, abs=1e-9)
    assert found.posterior == pytest.approx(special.posterior, abs=1e-9)
    assert found.right == pytest.approx({1: 0.318191, 4: 0.561862}[total], abs=1e-6)
    assert "closed form, two levels" in found.method


def test_uniqueness_is_the_special_sum():
    found = expected_risk(load("uniqueness"), {"present": 1}, {"block": S1, "block_group": S2, "tract": 9.9})
    special = expected_uniqueness([S1, S2, 9.9], p=0.5)
    assert found.posterior == pytest.approx(special.posterior, abs=2e-12)


def test_a_model_without_closed_form_is_summed_by_the_engine_and_equals_enumeration():
    adversary = load("couple").assuming(known=1, stay=0.8)
    design = {"block": 0.7}
    with pytest.raises(UnsupportedModelError, match="no unknown of its own"):
        expected_risk(adversary, {"her": 1, "him": 1}, design)

    @scenario(target="her")
    def her_alone(release, *, her=Prior("Bernoulli", p=0.4)):
        import pymc as pm

        him = pm.Bernoulli("him", p=0.8 * her + 0.2 * (1 - her))
        measured(release["block"], 1 + her + him)

    found = expected_risk(her_alone, {"her": 1, "him": 0}, design)
    assert "exact engine" in found.method
    q = right = 0.0
    total = sum(np.exp(-(n**2) / 1.4) for n in range(-40, 41))
    for noise in range(-12, 13):
        x = 2 + noise
        w = {
            (a, b): (0.4 if a else 0.6) * (0.8 if a == b else 0.2) * np.exp(-((x - 1 - a - b) ** 2) / 1.4)
            for a, b in itertools.product((0, 1), repeat=2)
        }
        post = (w[1, 0] + w[1, 1]) / sum(w.values())
        q += np.exp(-(noise**2) / 1.4) / total * post
        right += np.exp(-(noise**2) / 1.4) / total * (post > 0.5)
    assert found.posterior == pytest.approx(q, abs=3e-12)
    assert found.right == pytest.approx(right, abs=3e-12)
    assert found.risk == pytest.approx(q / 0.4, abs=1e-11)


def test_a_sum_with_narrow_noise_is_weighted_by_its_exact_law():
    design = TwoLevelDesign(sigma2=0.3, group_sigma2=0.4, others=3, noise="exact")
    special = expected_two_level(design, 2, p=0.3)
    found = expected_risk(
        load("two_level").assuming(present=Prior("Bernoulli", p=0.3)),
        {"present": 1, "elsewhere": 1},
        {"block": 0.3, "block_group": 0.4, "rest": (0.3, 3)},
    )
    rough = expected_two_level(TwoLevelDesign(sigma2=0.3, group_sigma2=0.4, others=3), 2, p=0.3)
    assert found.posterior == pytest.approx(special.posterior, abs=2e-12)
    assert abs(rough.posterior - special.posterior) > 1e-4  # the approximation would be seen


def test_nothing_is_drawn_without_a_seed_and_what_is_drawn_says_so():
    design = {"block": S1, "block_group": S2, "rest": (S1, 27)}
    truth = {"present": 1, "elsewhere": 1}
    with pytest.raises(UnsupportedModelError, match="give seed="):
        expected_risk(load("two_level"), truth, design, limit=1000)
    drawn = expected_risk(load("two_level"), truth, design, limit=1000, draws=40_000, seed=11)
    again = expected_risk(load("two_level"), truth, design, limit=1000, draws=40_000, seed=11)
    exact = expected_two_level(TwoLevelDesign(sigma2=S1, group_sigma2=S2, others=27), 2, p=0.5)
    assert drawn.method.startswith("40000 releases drawn")
    assert drawn.posterior == again.posterior
    assert 0 < drawn.standard_error < 2e-3
    assert abs(drawn.posterior - exact.posterior) < 4 * drawn.standard_error
    assert abs(drawn.right - exact.right) < 4 * drawn.right_standard_error
    # power: at another truth the same draws are told apart
    other = expected_two_level(TwoLevelDesign(sigma2=S1, group_sigma2=S2, others=27), 3, p=0.5)
    assert abs(drawn.posterior - other.posterior) > 4 * drawn.standard_error


def test_the_stated_bound_holds():
    rough = expected_risk(load("single_level"), {"present": 1}, {"block": S1}, tolerance=1e-3)
    exact = expected_one_level(S1, p=0.5)
    assert 0 < exact.posterior - rough.posterior <= rough.left_out_bound <= 1e-3


def test_vectors_are_counted_one_by_one():
    release = Release.from_counts(
        {"block": 0, "block_group": 0, "siblings": [0, 0]},
        sigma2={"block": 0.4, "block_group": 0.4, "siblings": 0.4},
    )
    truth = {"present": 1, "elsewhere": [0, 2]}
    counts = true_counts(load("siblings"), truth, release)
    assert (counts["block"], counts["block_group"], counts["siblings"].tolist()) == (1, 3, [0, 2])
    with pytest.raises(UnsupportedModelError, match="give seed="):
        expected_risk(load("siblings"), truth, release, tolerance=1e-4, limit=50)
    found = expected_risk(load("siblings"), truth, release, tolerance=1e-2)
    assert "exact engine" in found.method
    assert 0.5 < found.posterior < 1


@pytest.mark.parametrize(
    ("truth", "error", "words"),
    [
        ({"present": 1}, ScenarioError, "each of present, elsewhere"),
        ({"present": 1, "elsewhere": 0, "x": 1}, ScenarioError, "nothing else"),
        ({"present": 1, "elsewhere": -1}, ModelError, "no probability"),
        ({"present": 2, "elsewhere": 0}, ModelError, "no probability"),
    ],
)
def test_a_truth_that_cannot_be_is_refused(truth, error, words):
    with pytest.raises(error, match=words):
        expected_risk(load("two_level"), truth, {"block": S1, "block_group": S2, "rest": (S1, 27)})
