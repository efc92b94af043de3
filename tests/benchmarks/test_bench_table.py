"""The compiled table of a group against the NumPy closed form and the memory floor, in one run; answers checked."""

import time

import numpy as np

from adversary.samplers.closed import probability, two_level_log_odds
from adversary.samplers.table import TwoLevelTable

N = 1_000_000


def seconds(call, rounds=3):
    best = np.inf
    for _ in range(rounds):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def test_posteriors_of_a_group_by_table(record_property):
    rng = np.random.default_rng(1)
    known, rest = rng.integers(0, 5, N), rng.integers(0, 6, N)
    x1 = known + np.rint(rng.normal(0, 3, N)).astype(np.int64)
    x2 = known + rest + np.rint(rng.normal(0, 3, N)).astype(np.int64)
    y1 = rest + np.rint(rng.normal(0, 10, N)).astype(np.int64)
    table, out = TwoLevelTable(10.0, 10.0, 100.0), np.empty(N)
    table.posterior(x1, x2, y1, known, out)  # compiles
    closed = probability(two_level_log_odds(x1, x2, y1, known, 10.0, 10.0, 100.0, 0.0))
    np.testing.assert_allclose(out, closed, atol=1e-12)
    by_table = seconds(lambda: table.posterior(x1, x2, y1, known, out))
    by_numpy = seconds(lambda: probability(two_level_log_odds(x1, x2, y1, known, 10.0, 10.0, 100.0, 0.0)))
    floor = seconds(lambda: np.add(x1, np.add(x2, y1), out=out, casting="unsafe"))
    record_property("million posteriors a second, table", N / by_table / 1e6)
    record_property("times NumPy's closed form", by_numpy / by_table)
    record_property("times the memory floor", by_table / floor)
    print(
        f"table {N / by_table / 1e6:.1f} M/s, {by_numpy / by_table:.1f} x NumPy, {by_table / floor:.1f} x the memory floor"
    )
    assert by_numpy / by_table > 2
