"""Scenarios of the paper's kind against a second road: enumeration, NumPy convolutions, and 25-digit reference values."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from adversary.distributions import DiscreteGaussian, DiscreteGaussianSum, FlatCount
from adversary.samplers.exact import compile_exact

RHO = (0.09922635422547502, 0.24648450960703558)
HERE = Path(__file__).parents[2] / "reference"


def reference(prefix):
    with (HERE / "kazan_reiter.json").open() as file:
        found = json.load(file)
    items = found if isinstance(found, list) else found.get("values", found)
    flat = []

    def walk(node):
        if isinstance(node, dict) and "id" in node:
            flat.append(node)
        elif isinstance(node, (dict, list)):
            for child in node.values() if isinstance(node, dict) else node:
                walk(child)

    walk(items)
    return [i for i in flat if i["id"].startswith(prefix) and "xstar1" in i["inputs"]]


class TwoLevel:
    """Two levels with everything that may change held in shared variables."""

    def __init__(self):
        self.counts = {k: pytensor.shared(np.int64(0), name=k) for k in ("xstar1", "xstar2", "ystar", "c")}
        self.numbers = {k: pytensor.shared(np.float64(0.5), name=k) for k in ("s1", "s2", "sy", "p")}
        with pm.Model() as self.model:
            present = pm.Bernoulli("present", p=self.numbers["p"])
            elsewhere = FlatCount("elsewhere")
            block = self.counts["c"] + present
            DiscreteGaussian("block", block, sigma2=self.numbers["s1"], observed=self.counts["xstar1"])
            DiscreteGaussian(
                "group", block + elsewhere, sigma2=self.numbers["s2"], observed=self.counts["xstar2"]
            )
            DiscreteGaussian("rest", elsewhere, sigma2=self.numbers["sy"], observed=self.counts["ystar"])
        self.compiled = compile_exact(self.model, "present", [*self.counts.values(), *self.numbers.values()])

    def solve(self, rho1, rho2, d, p, **counts):
        for name, shared in self.counts.items():
            shared.set_value(np.int64(counts[name]))
        for name, value in (
            ("s1", 0.5 / rho1),
            ("s2", 0.5 / rho2),
            ("sy", d * 0.5 / rho1),
            ("p", Fraction(str(p))),
        ):
            self.numbers[name].set_value(np.float64(value))
        return self.compiled.solve()


@pytest.fixture(scope="module")
def two_level():
    return TwoLevel()


BASE = {"xstar1": 2, "xstar2": 1, "ystar": -1, "c": 0, "rho1": RHO[0], "rho2": RHO[1], "d": 27, "p": "1/2"}


def test_the_paper_s_release_has_log_odds_of_the_reference_to_eleven_digits(two_level):
    answer = two_level.solve(**BASE)
    assert answer.log_odds == pytest.approx(0.013151494790365926, abs=1e-11)
    assert answer.posterior.p[1] == pytest.approx(0.5032878263086942, rel=1e-11)
    assert answer.prior.p.tolist() == [0.5, 0.5]
    assert answer.bound_proven
    assert answer.cut_off_bound < 1e-12
    assert answer.log_evidence is None  # the flat prior makes it a density ratio


@pytest.mark.parametrize("item", reference(("hier_ext_", "hier_exact_")), ids=lambda i: i["id"])
def test_extreme_releases_meet_the_25_digit_reference(two_level, item):
    answer = two_level.solve(**item["inputs"])
    is_odds = "ext" in item["id"] or "odds" in item["id"]
    got = answer.log_odds if is_odds else answer.posterior.p[1]
    tolerance = {item["tolerance_kind"]: item["tolerance"]}
    assert got == pytest.approx(item["exact_value"], **tolerance)


@pytest.mark.parametrize("shift", [10**3, 10**9, 10**15])
def test_known_people_shift_nothing_even_at_1e15(two_level, shift):
    moved = BASE | {"c": shift, "xstar1": 2 + shift, "xstar2": 1 + shift}
    assert two_level.solve(**moved).log_odds == pytest.approx(0.013151494790365926, abs=1e-11)


def test_one_more_noisy_person_shifts_the_log_odds_by_twice_rho(two_level):
    odds = [two_level.solve(**(BASE | {"xstar1": x})).log_odds for x in range(-4, 9)]
    assert np.allclose(np.diff(odds), 2 * RHO[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("p", ["1e-9", "1e-300"])
def test_a_tiny_prior_keeps_its_digits(two_level, p):
    answer = two_level.solve(**(BASE | {"p": p}))
    value = float(p)
    assert answer.prior_log_odds == pytest.approx(np.log(value) - np.log1p(-value), rel=1e-14)
    assert answer.log_odds - answer.prior_log_odds == pytest.approx(0.013151494790365926, abs=1e-11)


def test_a_second_release_compiles_nothing(two_level, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("compiled again")

    monkeypatch.setattr(pytensor, "function", refuse)
    assert two_level.solve(**(BASE | {"xstar1": 5, "xstar2": 5, "ystar": 0})).posterior.p[1] == pytest.approx(
        0.7160598922197129, rel=1e-11
    )


def test_an_answer_does_not_change_when_the_data_do(two_level):
    answer = two_level.solve(**BASE)
    before = answer.marginal("elsewhere")
    two_level.solve(**(BASE | {"ystar": 50, "xstar2": 50}))
    after = answer.marginal("elsewhere")
    assert before == after


def test_noise_that_grows_returns_the_prior_and_noise_that_vanishes_gives_certainty(two_level):
    vague = two_level.solve(**(BASE | {"rho1": 1e-7, "rho2": 1e-7, "d": 1, "p": "0.3"}))
    assert vague.posterior.p[1] == pytest.approx(0.3, abs=2e-3)
    sharp = two_level.solve(
        **(BASE | {"xstar1": 1, "xstar2": 4, "ystar": 3, "rho1": 200.0, "rho2": 200.0, "d": 1})
    )
    assert sharp.log_odds > 190


# ---------------------------------------------------------------------- chains, stars, records
def chain(levels, c=0):
    """Declared as in the paper's figure 7: X_{i+1} = X_i + Y_i."""
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(levels["p"]))
        total = c + b
        DiscreteGaussian("x1", total, sigma2=np.float64(0.5 / levels["rho"][0]), observed=levels["xstar"][0])
        for i, (y, d) in enumerate(zip(levels["ystar"], levels["d"], strict=True)):
            rest = FlatCount(f"y{i}")
            total = total + rest
            DiscreteGaussian(f"ys{i}", rest, sigma2=np.float64(d * 0.5 / levels["rho"][i]), observed=y)
            DiscreteGaussian(
                f"x{i + 2}",
                total,
                sigma2=np.float64(0.5 / levels["rho"][i + 1]),
                observed=levels["xstar"][i + 1],
            )
    return model


SIX = {
    "xstar": [2, 1, 3, 5, 12, 40],
    "ystar": [-1, 4, 2, 6, 30],
    "rho": [
        RHO[0],
        RHO[1],
        0.05041620668560395,
        0.051377734724347125,
        0.0504877958589351,
        0.050937795778547346,
    ],
    "d": [27, 3, 20, 99, 50],
    "p": 0.5,
}


def chain_by_messages(levels, reach=1500):
    """Messages from the top down on a dense grid: the second road."""
    grid = np.arange(reach)
    rho, xs = levels["rho"], levels["xstar"]
    message = -rho[-1] * (xs[-1] - grid) ** 2.0
    for i in range(len(levels["ystar"]) - 1, -1, -1):
        rest = -(rho[i] / levels["d"][i]) * (levels["ystar"][i] - grid) ** 2.0
        size = reach // 2
        sums = np.array(
            [np.logaddexp.reduce(rest[: reach - size] + message[x : x + reach - size]) for x in range(size)]
        )
        message = np.full(reach, -np.inf)
        message[:size] = sums - rho[i] * (xs[i] - grid[:size]) ** 2.0
        grid = np.arange(reach)
    return message[1] - message[0]


def test_six_levels_meet_the_reference_and_the_messages():
    answer = compile_exact(chain(SIX), "b").solve()
    assert answer.log_odds == pytest.approx(-0.12263880901530388, abs=1e-10)
    assert answer.log_odds == pytest.approx(chain_by_messages(SIX), abs=1e-10)
    assert answer.bound_proven


def star(sibling_values, sibling_sigma2, total, total_sigma2, prior=FlatCount):
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.25))
        y = prior("y", shape=len(sibling_values))
        DiscreteGaussian("ys", y, sigma2=np.float64(sibling_sigma2), observed=sibling_values)
        DiscreteGaussian("group", b + y.sum(), sigma2=np.float64(total_sigma2), observed=total)
    return model


def test_thirty_siblings_one_by_one_equal_a_numpy_convolution(hand):
    rng = np.random.default_rng(3)
    values = rng.poisson(4, 30) + rng.integers(-3, 4, 30)
    answer = compile_exact(star(values, 5.0, 150, 2.0), "b").solve()
    grid = np.arange(120)
    sibling = [np.exp(-((v - grid) ** 2) / 10.0) for v in values]

    def total_of(which):
        p = np.ones(1)
        for i in which:
            p = np.convolve(p, sibling[i])
        return p

    whole = total_of(range(30))
    weight = [
        pb * (whole * np.exp(-((150 - b - np.arange(whole.size)) ** 2) / 4.0)).sum()
        for b, pb in ((0, 0.75), (1, 0.25))
    ]
    assert answer.log_odds == pytest.approx(np.log(weight[1] / weight[0]), abs=1e-10)
    rest = total_of(range(1, 30))
    first = np.array(
        [
            sibling[0][k]
            * sum(
                pb * (rest * np.exp(-((150 - b - k - np.arange(rest.size)) ** 2) / 4.0)).sum()
                for b, pb in ((0, 0.75), (1, 0.25))
            )
            for k in grid
        ]
    )
    first /= first.sum()
    hand.agree(answer.marginal("y", 0), dict(enumerate(first.tolist())))


def test_the_whole_record_over_2016_cells_is_a_softmax():
    rng = np.random.default_rng(5)
    cells = 2016
    prior, known = rng.dirichlet(np.ones(cells)), rng.poisson(0.3, cells)
    noisy = known + rng.integers(-3, 4, cells)
    data = pytensor.shared(noisy)
    with pm.Model() as model:
        cell = pm.Categorical("cell", p=pytensor.shared(prior))
        DiscreteGaussian("n", known + pt.eq(np.arange(cells), cell), sigma2=np.float64(2.0), observed=data)
    compiled = compile_exact(model, "cell", [data])
    for shift in (0, 7):
        data.set_value(np.roll(noisy, shift))
        log_p = np.log(prior) + (2 * (np.roll(noisy, shift) - known) - 1) / 4.0
        p = np.exp(log_p - log_p.max())
        answer = compiled.solve()
        assert np.abs(answer.posterior.p - p / p.sum()).max() < 1e-13
        assert np.abs(answer.prior.p - prior).max() < 1e-13


def test_a_cell_and_unknown_neighbours_in_every_cell(hand):
    """The target's cell among three, each cell also holding an unknown number of others."""
    noisy = np.array([2, 0, 3])
    with pm.Model() as model:
        cell = pm.Categorical("cell", p=np.array([0.2, 0.5, 0.3]))
        others = pm.DiscreteUniform("others", lower=np.int64(0), upper=np.int64(4), shape=3)
        DiscreteGaussian("n", others + pt.eq(np.arange(3), cell), sigma2=np.float64(1.5), observed=noisy)
        DiscreteGaussian("total", others.sum() + 1, sigma2=np.float64(0.8), observed=6)
    answer = compile_exact(model, "cell").solve()
    supports = {"cell": range(3)} | {f"o{k}": range(5) for k in range(3)}

    def log_weight(x):
        o = [x["o0"], x["o1"], x["o2"]]
        value = np.log([0.2, 0.5, 0.3][x["cell"]]) - 3 * np.log(5)
        value += sum(hand.log_discrete_gaussian(noisy[k] - o[k] - (x["cell"] == k), 1.5) for k in range(3))
        return value + hand.log_discrete_gaussian(6 - sum(o) - 1, 0.8)

    oracle = hand.enumerate(supports, log_weight)
    hand.agree(answer.posterior, oracle.pmf(lambda x: x["cell"]))
    hand.agree(answer.marginal("others", 2), oracle.pmf(lambda x: x["o2"]))
    assert answer.log_evidence == pytest.approx(oracle.log_evidence, abs=1e-10)


def test_a_couple_appears_together_as_often_as_the_four_cases_say():
    stay = np.float64(0.9)
    with pm.Model() as model:
        her = pm.Bernoulli("her", p=np.float64(0.5))
        him = pm.Bernoulli("him", p=stay * her + (1 - stay) * (1 - her))
        pm.Deterministic("both", her * him)
        DiscreteGaussian("block", her + him, sigma2=np.float64(3.0), observed=2)
    answer = compile_exact(model, "both").solve()
    prior = 0.5 * np.array([[0.9, 0.1], [0.1, 0.9]])
    weight = prior * np.exp(-((2 - np.add.outer([0, 1], [0, 1])) ** 2) / 6.0)
    assert answer.prior.p == pytest.approx([0.55, 0.45], abs=1e-14)
    assert answer.log_odds == pytest.approx(np.log(weight[1, 1] / (weight.sum() - weight[1, 1])), abs=1e-13)
    assert answer.prior_log_odds == pytest.approx(np.log(0.45 / 0.55), abs=1e-13)


# ---------------------------------------------------------------------- user reports
def test_report_p4_a_hard_sum_and_two_sharp_noisy_parts():
    with pm.Model() as model:
        a = pm.DiscreteUniform("a", lower=np.int64(0), upper=np.int64(200))
        b = pm.DiscreteUniform("b", lower=np.int64(0), upper=np.int64(200))
        pm.Potential("fact", pt.switch(pt.eq(a + b, 100), np.float64(0.0), -np.inf))
        pm.Potential("seen_a", -((a - 40) ** 2) / (2 * np.float64(0.49)))
        pm.Potential("seen_b", -((b - 60) ** 2) / (2 * np.float64(0.49)))
    answer = compile_exact(model, "a").solve()
    p = dict(zip(answer.posterior.support.tolist(), answer.posterior.p.tolist(), strict=True))
    assert [round(p[k], 5) for k in (39, 40, 41)] == [0.10308, 0.79339, 0.10308]


def test_report_p18_a_negative_noisy_total_of_a_block():
    with pm.Model() as model:
        n = pm.DiscreteUniform("n", lower=np.int64(0), upper=np.int64(5))
        DiscreteGaussian("total", n, sigma2=np.float64(10.09), observed=-3)
    answer = compile_exact(model, "n").solve()
    expected = [0.380937, 0.269281, 0.172392, 0.099951, 0.052482, 0.024957]
    assert answer.posterior.p == pytest.approx(expected, abs=6e-7)
    assert answer.posterior.mean() == pytest.approx(1.248631, abs=6e-7)


@pytest.mark.parametrize("flat", [True, False], ids=["flat", "uniform to a million"])
def test_an_exact_total_ties_the_unknowns(flat):
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.3))
        y = FlatCount("y") if flat else pm.DiscreteUniform("y", lower=np.int64(0), upper=np.int64(10**6))
        pm.DiscreteUniform("total", lower=b + y, upper=b + y, observed=37)
        DiscreteGaussian("rest", y, sigma2=np.float64(4.0), observed=36)
    answer = compile_exact(model, "b").solve()
    assert answer.log_odds == pytest.approx(np.log(0.3 / 0.7) + 1 / 8, abs=1e-13)
    assert answer.marginal("y").support.tolist() == [36, 37]


def test_a_far_measurement_of_a_wide_prior_is_found():
    with pm.Model() as model:
        n = pm.DiscreteUniform("n", lower=np.int64(0), upper=np.int64(10**6))
        DiscreteGaussian("total", n, sigma2=np.float64(50.0), observed=500_000)
    posterior = compile_exact(model, "n").solve().posterior
    assert posterior.mode() == 500_000
    assert posterior.mean() == pytest.approx(500_000, abs=1e-9)
    assert posterior.support.size < 400
    grid = posterior.support - 500_000
    p = np.exp(-(grid**2) / 100.0)
    assert np.abs(posterior.p - p / p.sum()).max() < 1e-13


def test_noise_of_a_sum_declared_exactly_is_the_convolution():
    sigma2, d = 0.3, 5
    single = np.exp(-(np.arange(-40, 41) ** 2) / (2 * sigma2))
    single /= single.sum()
    noise = np.ones(1)
    for _ in range(d):
        noise = np.convolve(noise, single)
    middle = noise.size // 2
    with pm.Model() as model:
        n = pm.DiscreteUniform("n", lower=np.int64(0), upper=np.int64(6))
        DiscreteGaussianSum("total", n, sigma2=sigma2, groups=d, observed=2)
    answer = compile_exact(model, "n").solve()
    p = np.array([noise[middle + 2 - k] for k in range(7)])
    assert np.abs(answer.posterior.p - p / p.sum()).max() < 1e-13


def test_observed_shared_counts_beyond_int32_are_not_wrapped():
    data = pytensor.shared(np.int64(2**40 + 3))
    with pm.Model() as model:
        b = pm.Bernoulli("b", p=np.float64(0.5))
        DiscreteGaussian("block", np.int64(2**40 + 2) + b, sigma2=np.float64(2.0), observed=data)
    assert compile_exact(model, "b").solve().log_odds == pytest.approx(0.25, abs=1e-12)
