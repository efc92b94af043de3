"""The hand-written Gibbs reference against the paper, its chains' exact laws and brute-force sums."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from adversary.errors import ModelError, SamplingError, UnsupportedModelError
from adversary.samplers.gibbs import (
    PathProblem,
    conditional,
    conditional_x1,
    conditional_x2,
    rest_log_pmf,
    sample,
    stationary_target,
)

RHO1, RHO2 = 0.09922635422547502, 0.24648450960703558
S1, S2 = 1 / (2 * RHO1), 1 / (2 * RHO2)
REFERENCE = Path(__file__).parents[1] / "reference" / "kazan_reiter.json"


def base(prior=("flat", {}), s1=S1, s2=S2, d=27, data=(2, 1, -1), log_odds=0.0, known=0):
    return PathProblem(
        known, log_odds, nodes=((data[0], s1), (data[1], s2)), rests=((data[2], s1, d, prior),)
    )


def three_levels():
    return PathProblem(
        0,
        math.log(0.3 / 0.7),
        nodes=((2, 3.0), None, (14, 2.0)),
        rests=((1, 4.0, 3), (2, 6.0, 2, ("poisson", {"mu": 2.0}))),
    )


def brute_three_levels(sigma2_top=2.0):
    """Double sum over the two rests, written out from the definition."""
    y1, y2 = np.meshgrid(np.arange(200), np.arange(200), indexing="ij")
    factorial = np.array([math.lgamma(k + 1) for k in range(200)])
    weights = []
    for k, prior in ((0, 0.7), (1, 0.3)):
        log_w = math.log(prior) - (2 - k) ** 2 / 6 - (1 - y1) ** 2 / 24 - (2 - y2) ** 2 / 24
        log_w = log_w + y2 * math.log(2.0) - factorial[y2] - (14 - k - y1 - y2) ** 2 / (2 * sigma2_top)
        weights.append(np.exp(log_w))
    total = weights[0].sum() + weights[1].sum()
    return weights[1].sum() / total, (y1 * (weights[0] + weights[1])).sum() / total


def effective_error(draws):
    """Standard error of a mean of chains, from the spread of batch means."""
    batches = draws[:, : draws.shape[1] // 50 * 50].reshape(draws.shape[0] * 50, -1).mean(axis=1)
    return batches.std(ddof=1) / math.sqrt(batches.size)


@pytest.fixture(scope="module")
def reference():
    if not REFERENCE.exists():
        pytest.fail(f"{REFERENCE} is missing: copy the reference numbers there")
    return {x["id"]: x["exact_value"] for x in json.loads(REFERENCE.read_text())}


def test_full_conditional_of_presence_is_equation_3_8(reference):
    assert conditional_x1(base(), 0)[1] == reference["fc38_x2_0"]
    assert conditional_x1(base(), 2)[1] == pytest.approx(reference["fc38_x2_2"], rel=1e-12)


@pytest.mark.parametrize(("x1", "x2"), [(0, 2), (1, 1), (1, 2)])
def test_full_conditional_of_the_group_is_equation_3_9(reference, x1, x2):
    support, p = conditional_x2(base(), x1)
    assert p[support == x2][0] == pytest.approx(reference[f"fc39_x1_{x1}_x2_{x2}"], rel=1e-11)
    assert support[0] == x1
    assert p.sum() == pytest.approx(1, abs=1e-15)


def test_long_run_law_of_each_mode_is_the_reference(reference):
    assert stationary_target(base()) == pytest.approx(reference["hier_exact_post"], rel=1e-11)
    assert stationary_target(base(), "literal") == pytest.approx(reference["hier_literal_post"], rel=1e-10)


@pytest.mark.parametrize(("mode", "target"), [("exact", 0.5032878263), ("literal", 0.5777015968)])
def test_draws_have_the_long_run_law(mode, target):
    found = sample(base(), draws=25_000, seed=7, mode=mode)
    assert abs(found["x1"].mean() - target) < 4 * effective_error(found["x1"])
    assert found.joint_distribution is (mode == "exact")


@pytest.mark.parametrize("mode", ["exact", "literal"])
def test_draws_of_the_group_have_table_8(reference, mode):
    found = sample(base(), draws=25_000, seed=8, mode=mode)
    for k in (1, 2, 3):
        if f"t8_{mode}_x2_{k}" in reference:
            hit = (found["x2"] == k).astype(float)
            assert abs(hit.mean() - reference[f"t8_{mode}_x2_{k}"]) < 4 * effective_error(hit)


def test_literal_visits_impossible_states_and_says_so():
    literal = sample(base(), draws=20_000, seed=9, mode="literal")
    assert literal.impossible == pytest.approx(0.063, abs=0.003)
    assert (literal["y1"] < 0).mean() == literal.impossible
    assert sample(base(), draws=2_000, seed=9).impossible == 0


def test_one_level_is_equation_3_1():
    one = PathProblem(0, 0.0, nodes=((2, S1),))
    assert stationary_target(one) == pytest.approx(0.5738750466012639, rel=1e-13)
    found = sample(one, draws=20_000, seed=1)
    assert abs(found["x1"].mean() - 0.5738750466) < 4 * effective_error(found["x1"])


def test_three_levels_agree_with_a_double_sum():
    present, rest = brute_three_levels()
    found = sample(three_levels(), draws=25_000, seed=3)
    assert abs(found["x1"].mean() - present) < 4 * effective_error(found["x1"])
    assert abs(found["y1"].mean() - rest) < 4 * effective_error(found["y1"])


def test_three_levels_notice_noise_that_is_wrong_by_a_fifth():
    # power: the same statistic against a double sum whose top noise is 20 % off must fail
    found = sample(three_levels(), draws=25_000, seed=3)
    _, rest = brute_three_levels(sigma2_top=2.0 * 1.2)
    assert abs(found["y1"].mean() - rest) > 4 * effective_error(found["y1"])


@pytest.mark.parametrize(
    ("prior", "name"),
    [
        (("poisson", {"mu": 0.1}), "s4_poisson0.1"),
        (("poisson", {"mu": 5.0}), "s4_poisson5"),
        (("geometric", {"p": 0.1}), "s4_geom_q0.9"),
        (("negative_binomial", {"alpha": 0.5, "mu": 1.0}), "s4_negbin_r0.5_mean1"),
        (("point", {"value": 0}), "hier_known_y0"),
    ],
)
def test_priors_on_the_rest_move_the_answer_as_in_the_reference(reference, prior, name):
    assert stationary_target(base(prior)) == pytest.approx(reference[name], rel=1e-11)


def test_a_prior_function_equals_its_named_form():
    def poisson(y):
        return y * math.log(3.0) - 3.0 - np.array([math.lgamma(k + 1) for k in y])

    named = stationary_target(base(("poisson", {"mu": 3.0})))
    assert stationary_target(base(poisson)) == pytest.approx(named, rel=1e-13)


def test_uniform_is_independent_of_presence():
    y = np.arange(4)
    w = [
        np.exp(-((2 - k) ** 2) / (2 * S1) - (1 - k - y) ** 2 / (2 * S2) - (1 + y) ** 2 / (54 * S1)).sum()
        for k in (0, 1)
    ]
    assert stationary_target(base(("uniform", {"upper": 3}))) == pytest.approx(w[1] / sum(w), rel=1e-13)


@pytest.mark.parametrize("name", ["noise_exact_rho1_1", "noise_exact_rho1_2"])
def test_little_noise_uses_the_exact_law_of_the_sum(reference, name):
    s1 = 1 / (2 * float(name[-1]))
    p = stationary_target(base(s1=s1))
    assert math.log(p / (1 - p)) == pytest.approx(reference[name], rel=1e-9)


def test_the_rule_for_sums_takes_the_kernel_where_it_is_exact_to_a_millionth():
    s = np.arange(-6, 7)
    assert np.array_equal(rest_log_pmf(s, 5.0, 9), -(s**2) / 90.0)
    exact = rest_log_pmf(s, 0.25, 9)
    assert np.abs((exact - exact[6]) - (-(s**2) / 4.5)).max() > 1e-3


@pytest.mark.parametrize("shift", [5, 10**9, 10**15])
def test_shifting_everybody_changes_nothing(shift):
    moved = base(data=(2 + shift, 1 + shift, -1), known=shift)
    assert stationary_target(moved) == pytest.approx(stationary_target(base()), rel=1e-13)


@pytest.mark.parametrize("name", ["a", "b", "e"])
def test_far_counts_keep_every_digit(reference, name):
    data = {"a": (10**6, 10**6, -(10**6)), "b": (-(10**6), -(10**6), 10**6), "e": (1, 10**6, -(10**6))}[name]
    exact = reference[f"hier_ext_{name}"]
    assert stationary_target(base(data=data)) == (1.0 if exact > 0 else 0.0)


def test_a_known_rest_does_not_freeze_the_sampler():
    found = sample(base(("point", {"value": 0})), draws=20_000, seed=2)
    assert (found["y1"] == 0).all()
    assert abs(found["x1"].mean() - 0.6327804381) < 4 * effective_error(found["x1"])


def test_an_exact_count_above_is_honoured():
    problem = PathProblem(0, 0.0, nodes=((1, 2.0), (3, 0.0)), rests=((3, 4.0, 1),))
    w = [math.exp(-((1 - k) ** 2) / 4 - (3 - (3 - k)) ** 2 / 8) for k in (0, 1)]
    found = sample(problem, draws=20_000, seed=4)
    assert (found["x2"] == 3).all()
    assert abs(found["x1"].mean() - w[1] / sum(w)) < 4 * effective_error(found["x1"])


def test_equal_seeds_give_equal_draws_however_they_are_written():
    def draws(seed):
        return sample(base(), draws=50, chains=2, seed=seed)["x2"].tolist()

    sequence = np.random.SeedSequence(42)
    sequence.spawn(3)
    assert draws(42) == draws(np.random.SeedSequence(42)) == draws(sequence)
    assert draws(np.random.default_rng(42)) == draws(np.random.default_rng(42))
    assert draws(42) != draws(43)


def test_chains_do_not_depend_on_how_many_there_are():
    two, four = (sample(base(), draws=60, chains=c, seed=5)["x2"] for c in (2, 4))
    assert np.array_equal(two, four[:2])
    assert not np.array_equal(four[0], four[1])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: PathProblem(0, math.inf, nodes=((2, 5.0),)), ModelError),
        (lambda: PathProblem(0, 0.0, nodes=((2.5, 5.0),)), ModelError),
        (lambda: PathProblem(0, 0.0, nodes=((2, -1.0),)), ModelError),
        (lambda: PathProblem(0, 0.0, nodes=((2, 5.0), (1, 5.0))), ModelError),
        (lambda: base(("poisson", {"mu": -1})), ModelError),
        (lambda: base(d=0), ModelError),
        (lambda: base(lambda y: np.where(y % 2 == 0, -1.0, -np.inf)), UnsupportedModelError),
        (
            lambda: sample(PathProblem(0, 0.0, nodes=((2, 5.0), None), rests=((None, 1.0, 1),)), draws=5),
            ModelError,
        ),
        (lambda: sample(PathProblem(0, 0.0, nodes=((7, 0.0),)), draws=5), ModelError),
        (
            lambda: sample(PathProblem(0, 0.0, nodes=((1, 0.0), (0, 0.0)), rests=((1, 5.0, 1),)), draws=5),
            ModelError,
        ),
        (lambda: sample(three_levels(), draws=5, mode="literal"), UnsupportedModelError),
        (lambda: sample(base(), draws=0), SamplingError),
        (lambda: stationary_target(three_levels()), UnsupportedModelError),
        (lambda: conditional(three_levels(), 2, 0), ModelError),
    ],
    ids=[
        "a certain prior",
        "half a person",
        "negative noise",
        "no rest between two levels",
        "a negative Poisson mean",
        "no groups in a rest",
        "a prior with gaps",
        "a count that nothing bounds",
        "an exact count out of reach",
        "exact counts that exclude each other",
        "literal on three levels",
        "no draws",
        "the two-state law of three levels",
        "a middle level with nothing above",
    ],
)
def test_what_cannot_be_is_refused(make, error):
    with pytest.raises(error):
        make()
