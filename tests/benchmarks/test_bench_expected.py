"""One point of expected two-level risk: the sum against a million drawn releases, as the paper draws them.

Not in the default run: ``make bench``.
"""

import time

import numpy as np

from adversary.privacy import discrete_gaussian as dg
from adversary.risk.two_level import TwoLevelDesign, expected_two_level
from adversary.samplers.closed import two_level_log_odds

S1, S2, OTHERS, TOTAL, DRAWS = 0.5 / 0.09922635422547502, 0.5 / 0.24648450960703558, 27, 4, 1_000_000
DESIGN = TwoLevelDesign(sigma2=S1, group_sigma2=S2, others=OTHERS)


def drawn(seed):
    """P[right] from draws: every release answered by the fastest closed form there is."""
    rng = np.random.default_rng(seed)
    x1 = dg.sample(S1, DRAWS, rng) + 1
    x2 = dg.sample(S2, DRAWS, rng) + TOTAL
    y1 = dg.sample(OTHERS * S1, DRAWS, rng) + TOTAL - 1
    odds = two_level_log_odds(x1, x2, y1, 0, S1, S2, OTHERS * S1, 0.0)
    q = 1 / (1 + np.exp(-odds))
    return float(q.mean()), float(q.std() / np.sqrt(DRAWS))


def seconds_of(function, *arguments):
    start = time.process_time()
    out = function(*arguments)
    return time.process_time() - start, out


def test_a_sum_is_a_hundred_times_faster_than_a_million_draws_and_has_eight_more_digits(benchmark):
    fine = expected_two_level(DESIGN, TOTAL, p=0.5, tolerance=1e-15)
    sums, draws = [], []
    for seed in range(3):
        t, answers = seconds_of(lambda: [expected_two_level(DESIGN, TOTAL, p=0.5) for _ in range(10)])
        sums.append(t / 10)
        t, (mean, error) = seconds_of(drawn, seed)
        draws.append(t)
        assert abs(mean - fine.posterior) < 4.5 * error
        assert abs(answers[0].posterior - fine.posterior) < 1e-12
    one, many = float(np.median(sums)), float(np.median(draws))
    benchmark.pedantic(lambda: expected_two_level(DESIGN, TOTAL, p=0.5), rounds=20)
    info = benchmark.extra_info
    info["one point of expected two-level risk, summed (left out < 1e-12)"] = f"{1e3 * one:.2f} ms"
    ratio = f"{many:.2f} s (standard error {error:.1e}), {many / one:,.0f} x the sum"
    info["the same from 1,000,000 draws with the closed form"] = ratio
    assert many > 100 * one
    assert error > 1e8 * answers[0].left_out_bound
