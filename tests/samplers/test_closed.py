"""The closed forms against the definition summed with 50 digits, against convolution and checked figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from numpy.polynomial import hermite_e

from adversary.errors import BudgetError, ModelError, ReleaseError, UnsupportedModelError
from adversary.samplers import closed

REFERENCE = Path(__file__).parents[1] / "reference"
RHO1, RHO2 = 165 / 4099 * 2.56 * 3945 / 4097, 1256 / 4099 * 2.56 * 1288 / 4099


def kernel_log_sum(u, v, s2, s3, lower=True):
    """log sum_y exp(-(u-y)^2/2s2 - (v-y)^2/2s3) from the definition, y outward from the largest term."""
    tau = 1 / s2 + 1 / s3
    start = int(mp.nint((mp.mpf(u) / s2 + mp.mpf(v) / s3) / tau))
    start = max(start, 0) if lower else start

    def log_weight(y):
        return -(mp.mpf(u - y) ** 2) / (2 * s2) - mp.mpf(v - y) ** 2 / (2 * s3)

    reference, total, fall = log_weight(start), mp.mpf(1), mp.exp(-tau)
    for sign in (1, -1):
        term, y = mp.mpf(1), start
        ratio = mp.exp(log_weight(start + sign) - reference)
        while term > mp.mpf(10) ** -50 and (sign == 1 or not lower or y > 0):
            term, y, ratio = term * ratio, y + sign, ratio * fall
            total += term
    return reference + mp.log(total)


def definition(release, lower=True):
    """Log-odds with 60 digits."""
    x1, x2, y1, m, s1, s2, s3, prior = (mp.mpf(v) if isinstance(v, float) else int(v) for v in release)
    present = -(mp.mpf(x1 - m - 1) ** 2) / (2 * s1) + kernel_log_sum(x2 - m - 1, y1, s2, s3, lower)
    absent = -(mp.mpf(x1 - m) ** 2) / (2 * s1) + kernel_log_sum(x2 - m, y1, s2, s3, lower)
    return prior + present - absent


def releases(n, seed):
    """Random releases: rho 1e-6..1e3, p to 1e-300, counts to 1e9, noise up to six times what it should be."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        rho1, rho2 = 10 ** rng.uniform(-6, 3, size=2)
        d = int(rng.choice([1, 4, 39, 1000]))
        s1, s2, s3 = (float(s) for s in (0.5 / rho1, 0.5 / rho2, d * 0.5 / rho1))
        m, rest = int(rng.choice([0, 5, 10**9])), int(rng.choice([0, 0, 1, 3, 30, 10**4, 10**9]))
        inside, wild = m + int(rng.integers(2)), float(rng.choice([1, 1, 3, 6]))
        e1, e2, e3 = (round(wild * float(rng.normal()) * math.sqrt(s)) for s in (s1, s2, s3))
        prior = float(rng.choice([0.0, -2.2, 2.2, -30.0, math.log(1e-300), 690.0]))
        rows.append((inside + e1, inside + rest + e2, rest + e3, m, s1, s2, s3, prior))
    return rows


@pytest.fixture(scope="module", autouse=True)
def digits():
    with mp.workdps(60):
        yield


ROWS = releases(400, seed=20)
EDGES = [
    (0, 0, -(10**9), 0, 5.0, 2.0, 5e-4, 0.0),  # a sum far below zero: all digits would cancel
    (1, 10**6, -(10**6), 0, 5.0, 2.0, 135.0, 0.0),
    (-1, 1, -1, 0, 5.0, 5e-4, 5e5, 2.0),
    (10**9 + 1, 10**9 + 3, 2, 10**9, 0.1, 0.1, 0.4, 0.0),
    (1, 10**9 + 1, 10**9, 0, 5e-4, 5e-4, 2e-3, 0.0),
    (3, 2, 1, 0, 5e5, 5e5, 5e8, -690.0),
]


@pytest.mark.parametrize("lower", [True, False], ids=["two_level", "integer"])
def test_the_closed_form_is_the_definition_to_1e_12_in_probability(lower):
    function = closed.two_level_log_odds if lower else closed.integer_log_odds
    rows = ROWS + EDGES if lower else ROWS[:80]
    got = function(*(np.array(column) for column in zip(*rows, strict=True)))
    for value, row in zip(got.tolist(), rows, strict=True):
        exact = definition(row, lower)
        error = abs(1 / (1 + mp.exp(-exact)) - 1 / (1 + mp.exp(-mp.mpf(value))))
        assert error < 1e-12, row
        # small probabilities keep their digits too, whatever they are
        x1, x2, y1, m, s1, s2, s3, prior = row
        size = 1 + abs(prior) + abs(2 * (x1 - m) - 1) / s1
        size += min(abs(2 * (x2 - m - y1) - 1) / (s2 + s3) + 1 / s2, abs(2 * (x2 - m) - 1) / s2)
        assert abs(exact - mp.mpf(value)) < 3e-15 * size + 1e-14, row


def test_numbers_and_arrays_of_parameters_give_the_same_answer():
    rng = np.random.default_rng(3)
    x1, x2, y1, m = rng.integers(-5, 9, size=(4, 500))
    for s2, s3 in ((2.0, 135.0), (50.0, 2000.0), (0.3, 0.9), (5e4, 5e5)):
        plain = closed.two_level_log_odds(x1, x2, y1, m, 5.0, s2, s3, 0.3)
        full = np.full(500, 1.0)
        spread = closed.two_level_log_odds(x1, x2, y1, m, 5 * full, s2 * full, s3 * full, 0.3 * full)
        np.testing.assert_allclose(spread, plain, rtol=0, atol=1e-13)
        one = [
            float(closed.two_level_log_odds(*row, 5.0, s2, s3, 0.3))
            for row in zip(x1, x2, y1, m, strict=True)
        ]
        np.testing.assert_allclose(one, plain, rtol=0, atol=1e-13)


def test_chunks_leave_no_seam():
    rng = np.random.default_rng(4)
    counts = rng.integers(-5, 9, size=(4, 2 * 8192 + 3))
    whole = closed.two_level_log_odds(*counts, 5.0, 2.0, 135.0, 0.0)
    at = [0, 8191, 8192, 8193, 16384, 16386]
    np.testing.assert_array_equal(closed.two_level_log_odds(*counts[:, at], 5.0, 2.0, 135.0, 0.0), whole[at])


def test_the_euler_maclaurin_remainder_is_as_small_as_stated():
    """|R| <= 2 zeta(16)/(2 pi)^16 * integral of |f^(16)|, f(y) = f = exp(-a y - tau y^2/2)."""
    he16 = hermite_e.HermiteE.basis(16)
    worst = 0.0
    for tau in np.geomspace(1e-8, 0.05, 40):
        for a in np.linspace(0.0, 0.5, 11):
            y = np.linspace(0.0, min(40 / max(a, 1e-9), 9 / math.sqrt(tau)), 40_001)
            f = np.exp(-a * y - 0.5 * tau * y**2)
            derivative = tau**8 * np.abs(he16((a + tau * y) / math.sqrt(tau))) * f
            worst = max(worst, np.trapezoid(derivative, y) / np.trapezoid(f, y))
    assert 2 * float(mp.zeta(16)) / (2 * math.pi) ** 16 * worst < 1e-14


def test_one_more_person_shifts_the_log_odds_linearly():
    x = np.arange(-50, 50)
    odds = closed.one_level_log_odds(x, 3, 5.0, -1.0)
    np.testing.assert_allclose(np.diff(odds), 1 / 5.0, rtol=1e-13)
    assert odds[53] == pytest.approx(-1.0 - 1 / 10.0)


def test_a_shift_of_everybody_changes_nothing():
    rng = np.random.default_rng(5)
    x1, x2, y1 = rng.integers(-9, 9, size=(3, 200))
    at = closed.two_level_log_odds(x1, x2, y1, 0, 5.0, 2.0, 135.0, 0.0)
    for shift in (1, 17, 10**9, 10**15):
        np.testing.assert_array_equal(
            closed.two_level_log_odds(x1 + shift, x2 + shift, y1, shift, 5.0, 2.0, 135.0, 0.0), at
        )


def test_loud_noise_leaves_the_prior_and_silence_tells_all():
    for prior in (-3.0, 0.0, 2.0):
        assert float(closed.two_level_log_odds(2, 1, -1, 0, 1e40, 1e40, 1e42, prior)) == pytest.approx(prior)
    assert float(closed.probability(closed.two_level_log_odds(1, 1, 0, 0, 1e-4, 1e-4, 1e-4, 0.0))) == 1.0
    assert float(closed.probability(closed.two_level_log_odds(0, 0, 0, 0, 1e-4, 1e-4, 1e-4, 0.0))) == 0.0


def test_the_posterior_averages_to_the_prior():
    """sum over x1*, x2*, y1* of P(release) P(present | release) = p."""
    s1, s2, s3, p, top = 0.8, 0.6, 1.1, 0.3, 60
    grid = np.arange(-14, top + 16)
    noise = {s: np.exp(-((grid[:, None] - grid[None, :]) ** 2) / (2 * s)) for s in (s1, s2, s3)}
    x1 = np.arange(-9, 11)
    law = np.exp(-(np.arange(-12, 13) ** 2) / (2 * s1)).sum()
    totals = np.zeros(2)
    for present, weight in ((0, 1 - p), (1, p)):
        like1 = np.exp(-((x1 - present) ** 2) / (2 * s1)) / law
        for rest in range(25):
            like2 = noise[s2][:, 14 + rest + present] / noise[s2][:, 40].sum()
            like3 = noise[s3][:, 14 + rest] / noise[s3][:, 40].sum()
            joint = like1[:, None, None] * like2[None, :, None] * like3[None, None, :] * weight
            a, b, c = np.meshgrid(x1, grid, grid, indexing="ij")
            keep = (b + c) < 2 * 12  # a set of releases that the truth 25.. cannot reach but with 1e-12
            post = closed.probability(
                closed.two_level_log_odds(a, b, c, 0, s1, s2, s3, closed.log_odds_of(p))
            )
            totals += (joint[keep].sum() * present, (joint * post)[keep].sum())
    assert totals[1] == pytest.approx(totals[0], rel=1e-9)


# ------------------------------------------------------------ figures


def test_the_base_case_of_the_paper():
    s1, s2 = 0.5 / RHO1, 0.5 / RHO2
    two = closed.two_level_log_odds(2, 1, -1, 0, s1, s2, 27 * s1, 0.0)
    assert float(closed.probability(two)) == pytest.approx(0.503288, abs=5e-7)
    one = closed.one_level_log_odds(2, 0, s1, 0.0)
    assert float(closed.probability(one)) == pytest.approx(0.573875, abs=5e-7)
    free = closed.integer_log_odds(2, 1, -1, 0, s1, s2, 27 * s1, 0.0)
    assert float(closed.probability(free)) == pytest.approx(0.576529, abs=5e-7)


def reference_rows():
    """Two-level posteriors and log-odds of the checked list, those of the literal sampler apart."""
    rows = json.loads((REFERENCE / "kazan_reiter.json").read_text(encoding="utf-8"))
    prefixes = ("hier_exact", "hier_integer", "hier_shift", "hier_ext", "noise_approx", "noise_exact")
    return [row for row in rows if row["id"].startswith(prefixes)]


@pytest.mark.parametrize("row", reference_rows(), ids=lambda row: row["id"])
def test_the_checked_list_is_met(row):
    given, name = row["inputs"], row["id"]
    p = given["p"]
    top, _, bottom = str(p).partition("/")
    prior = closed.log_odds_of(float(top) / float(bottom or 1))
    s1, s2, d = 0.5 / given["rho1"], 0.5 / given["rho2"], given["d"]
    counts = [given[key] for key in ("xstar1", "xstar2", "ystar", "c")]
    if name.startswith("noise_exact"):
        odds = closed.two_level_grouped_log_odds(*counts, s1, s2, s1, d, prior)
    elif name.startswith("hier_integer"):
        odds = closed.integer_log_odds(*counts, s1, s2, d * s1, prior)
    else:
        odds = closed.two_level_log_odds(*counts, s1, s2, d * s1, prior)
    value = float(odds if "log-odds" in row["description"] else closed.probability(odds))
    kind = {row["tolerance_kind"]: row["tolerance"]}
    assert value == pytest.approx(row["exact_value"], rel=kind.get("rel", 0.0), abs=kind.get("abs", 0.0))


@pytest.mark.parametrize("sigma2", [0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("groups", [1, 2, 3, 5, 27])
def test_the_bound_on_the_sum_of_noises_holds(sigma2, groups):
    law, half = convolved(sigma2, groups)
    s = np.arange(-half, half + 1)
    smooth = np.exp(-(s**2) / (2 * groups * sigma2))
    smooth /= smooth.sum()
    seen = (smooth > 1e-200) & (law > 1e-200)
    ratio = np.abs(np.log(law[seen] / smooth[seen])).max()
    bound = float(closed.rest_noise_error(sigma2, groups))
    # the effect on a probability is at most half the largest log-ratio; within rounding of the logs
    assert ratio / 2 <= bound + 1e-13
    if groups > 1 and 1e-9 < bound < 1e-2:
        assert ratio > 0.4 * bound  # it is not a bound by being huge


def convolved(sigma2, groups):
    """The law of a sum by plain convolution."""
    reach = math.ceil(math.sqrt(2 * sigma2 * 700))
    n = np.arange(-reach, reach + 1)
    one = np.exp(-(n**2) / (2 * sigma2))
    one /= one.sum()
    law = np.array([1.0])
    for _ in range(groups):
        law = np.convolve(law, one)
    return law, reach * groups


def exact_by_sums(case, s1, s2, sigma2, groups, prior):
    """Log-odds with the convolved noise, people elsewhere summed to 300."""
    x1, x2, y1, m = case
    law, half = convolved(sigma2, groups)
    y = np.arange(0, 300)
    inside = np.abs(y1 - y) <= half
    noise = np.where(inside, law[np.clip(y1 - y + half, 0, 2 * half)], 0.0)
    weights = [np.exp(-((x2 - m - k - y) ** 2) / (2 * s2)) @ noise for k in (0, 1)]
    return prior + (2 * (x1 - m) - 1) / (2 * s1) + math.log(weights[1] / weights[0])


@pytest.mark.parametrize("rho", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("groups", [2, 5])
def test_loud_budgets_use_the_exact_law_of_the_sum(rho, groups):
    s = 0.5 / rho
    cases = [(2, 1, -1, 0), (1, 4, 3, 0), (0, 0, 0, 0), (3, 2, 5, 1), (1, 12, 11, 0)]
    args = [np.array(column) for column in zip(*cases, strict=True)]
    got = closed.two_level_grouped_log_odds(*args, s, s, s, groups, -0.4)
    for value, case in zip(got.tolist(), cases, strict=True):
        assert value == pytest.approx(exact_by_sums(case, s, s, s, groups, -0.4), abs=1e-11)
    rough = closed.two_level_log_odds(*args, s, s, groups * s, -0.4)
    if rho >= 1:
        assert np.abs(rough - got).max() > 1e-3  # the approximation would have been wrong


def test_any_log_concave_noise_is_summed_in_a_proven_window():
    """A geometric noise far from the block: the window must find and widen to it."""
    rate = 0.02

    def log_noise(s):
        return -rate * np.abs(s)

    y = np.arange(0, 6000)
    for x2, y1 in ((40, -60), (1500, 900), (0, 2000), (-300, -5)):
        logs = [-((x2 - k - y) ** 2) / (2 * 30.0) - rate * np.abs(y1 - y) for k in (0, 1)]
        want = 0.1 + (2 * 2 - 1) / 10.0 + np.logaddexp.reduce(logs[1]) - np.logaddexp.reduce(logs[0])
        got = closed.two_level_exact_noise_log_odds(2, x2, y1, 0, 5.0, 30.0, 5000.0, 0.1, log_noise)
        assert float(got) == pytest.approx(want, abs=1e-11)


def test_a_law_that_does_not_fall_is_refused():
    with pytest.raises(UnsupportedModelError, match="log-concave"):
        closed.two_level_exact_noise_log_odds(0, 0, 0, 0, 1.0, 1e99, 1.0, 0.0, lambda s: 0.0 * s)


def test_counts_that_contradict_each_other_beyond_rounding_are_refused():
    with pytest.raises(UnsupportedModelError, match="contradict each other"):
        closed.two_level_exact_noise_log_odds(0, 10**9, 0, 0, 1.0, 1.0, 1.0, 0.0, lambda s: -0.5 * s * s)


def test_an_only_block_is_seen_twice():
    """d = 0: nobody elsewhere, so x2* is a second look at the same people (uniqueness at two levels)."""
    x1, x2 = np.arange(-3, 4), np.arange(3, -4, -1)
    got = closed.two_level_grouped_log_odds(x1, x2, 10**6, 0, 5.0, 2.0, 5.0, 0, -1.0)
    weight1 = -((x1 - 1) ** 2) / 10.0 - (x2 - 1) ** 2 / 4.0
    weight0 = -(x1**2) / 10.0 - x2**2 / 4.0
    np.testing.assert_allclose(got, -1.0 + weight1 - weight0, atol=1e-14)


def test_group_sizes_may_be_mixed():
    d = np.array([0, 1, 27, 0, 3])
    mixed = closed.two_level_grouped_log_odds(2, 1, -1, 0, 10.08, 4.06, 10.08, d, 0.0)
    alone = [
        float(closed.two_level_grouped_log_odds(2, 1, -1, 0, 10.08, 4.06, 10.08, int(k), 0.0)) for k in d
    ]
    np.testing.assert_allclose(mixed, alone, atol=1e-14)
    assert mixed[2] == pytest.approx(
        float(closed.two_level_log_odds(2, 1, -1, 0, 10.08, 4.06, 27 * 10.08, 0.0))
    )


# ------------------------------------------------------------ probabilities and risk


def test_log_odds_turn_into_probabilities_and_risk_without_loss():
    for p in (1e-300, 1e-9, 0.5, 1 - 1e-9):
        prior = closed.log_odds_of(p)
        assert float(closed.probability(prior)) == pytest.approx(p, rel=2e-13)
        for gain in (-5.0, -1e-9, 0.0, 0.3, 20.0):
            exact = 1 / (mp.mpf(p) + (1 - mp.mpf(p)) * mp.exp(-mp.mpf(gain)))
            assert float(closed.risk(prior + gain, prior)) == pytest.approx(float(exact), rel=5e-13)
    assert float(closed.log_risk(-1e6, -1e6 + 2)) == pytest.approx(-2.0)


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_priors_that_no_release_can_move_are_refused(p):
    with pytest.raises(ModelError, match="strictly between 0 and 1") as caught:
        closed.log_odds_of(p)
    assert caught.value.value is not None


@pytest.mark.parametrize("value", [2.5, math.nan, math.inf, 2**53, -(2**60), "2"])
def test_counts_that_are_not_whole_are_refused(value):
    with pytest.raises(ReleaseError, match=r"x2_star must hold whole numbers below 2\^53"):
        closed.two_level_log_odds(1, value, 0, 0, 1.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_noise_that_is_none_or_infinite_is_refused(value):
    with pytest.raises(BudgetError, match="sigma2_rest must be above 0 and finite"):
        closed.two_level_log_odds(1, 1, 0, 0, 1.0, 1.0, value, 0.0)


def test_other_senseless_input_is_refused():
    with pytest.raises(ReleaseError, match="groups must not be negative"):
        closed.two_level_grouped_log_odds(1, 1, 0, 0, 1.0, 1.0, 1.0, -1, 0.0)
    with pytest.raises(ReleaseError, match="prior_log_odds has a NaN"):
        closed.one_level_log_odds(1, 0, 1.0, math.nan)


def test_floats_that_are_whole_and_empty_tables_are_read():
    assert float(closed.one_level_log_odds(2.0, 0.0, 5.0, 0.0)) == pytest.approx(0.3)
    assert closed.two_level_log_odds([], [], [], 0, 1.0, 1.0, 1.0, 0.0).shape == (0,)
    assert closed.two_level_grouped_log_odds([], [], [], 0, 1.0, 1.0, 1.0, 3, 0.0).shape == (0,)
