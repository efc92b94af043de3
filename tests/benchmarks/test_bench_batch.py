"""Many targets: posteriors a second on one core, against the memory floor, and what dask adds.

Not in the default run: ``make bench``. The floor is one pass that reads the inputs and writes the outputs.
"""

import time
import tracemalloc

import numpy as np
import pytest

from adversary import load
from adversary.batches import batch
from adversary.privacy import discrete_gaussian as dg
from adversary.samplers.closed import one_level_log_odds, two_level_log_odds
from adversary.samplers.recognise import lattice_gain

N = 1_000_000
S1, S2 = 0.5 / 0.09922635422547502, 0.5 / 0.24648450960703558


@pytest.fixture(scope="module")
def table():
    """Releases of blocks with a few people in groups with some tens: what a census has."""
    rng = np.random.default_rng(0)
    x1, y1 = rng.poisson(0.5, N), rng.poisson(12, N)
    return {
        "block": x1 + dg.sample(S1, N, rng),
        "block_group": x1 + y1 + dg.sample(S2, N, rng),
        "rest": y1 + dg.sample(27 * S1, N, rng),
        "block_sigma2": S1,
        "block_group_sigma2": S2,
        "rest_sigma2": S1,
        "rest_groups": 27,
    }


def best(function, rounds=5):
    """Least CPU seconds of several rounds, and the answer: what the code costs without its neighbours."""
    times, out = [], None
    for _ in range(rounds):
        start = time.process_time()
        out = function()
        times.append(time.process_time() - start)
    return min(times), out


def check(odds, table, at):
    """Definition summed over 0..400 people elsewhere, on a few targets."""
    y = np.arange(400)
    for i in at:
        x1, x2, y1 = (int(table[k][i]) for k in ("block", "block_group", "rest"))
        w = [
            np.logaddexp.reduce(
                -((x1 - k) ** 2) / (2 * S1) - (x2 - k - y) ** 2 / (2 * S2) - (y1 - y) ** 2 / (54 * S1)
            )
            for k in (0, 1)
        ]
        assert odds[i] == pytest.approx(w[1] - w[0], abs=1e-11)


def test_targets_a_second(benchmark, table):
    x = [table[k] for k in ("block", "block_group", "rest")]
    closed, odds = best(lambda: two_level_log_odds(*x, 0, S1, S2, 27 * S1, 0.0))
    s2, s3 = np.array([S2]), np.array([27 * S1])
    tabled, same = best(lambda: one_level_log_odds(x[0], 0, S1, 0.0) + lattice_gain(x[1], x[2], s2, s3))
    assert np.array_equal(same, odds)
    two_level = load("two_level")
    batch(two_level, {k: v[:10] if np.ndim(v) else v for k, v in table.items()})  # read the model once
    whole, found = best(lambda: batch(two_level, table), rounds=3)
    floor, _ = best(lambda: [a.copy() for a in (*x, odds, odds, odds, odds)])
    check(odds, table, range(0, N, N // 20))
    assert np.array_equal(found.log_odds.values, odds)
    benchmark.pedantic(lambda: two_level_log_odds(*x, 0, S1, S2, 27 * S1, 0.0), rounds=3)
    info = benchmark.extra_info
    for what, seconds in (
        ("log-odds, closed form in NumPy", closed),
        ("log-odds, the same with the table of repeated pairs of counts", tabled),
        ("adversary.batch (prior, posterior, risk, odds, decision)", whole),
    ):
        info[f"two-level posteriors, one core: {what}"] = (
            f"{N / seconds / 1e6:.1f} M/s, {seconds / floor:.0f} x the memory floor"
        )


def test_one_level_targets_a_second(benchmark, table):
    single = load("single_level")
    small = {"block": table["block"], "block_sigma2": S1}
    batch(single, {"block": [1], "block_sigma2": S1})
    whole, found = best(lambda: batch(single, small), rounds=3)
    assert found.log_odds.values == pytest.approx((2 * table["block"] - 1) / (2 * S1), abs=1e-14)
    benchmark.pedantic(lambda: batch(single, small), rounds=3)
    benchmark.extra_info["one-level posteriors through adversary.batch"] = f"{N / whole / 1e6:.1f} M/s"


def test_dask_costs_little_and_holds_a_chunk(benchmark, table):
    dask = pytest.importorskip("dask")
    two_level = load("two_level")
    batch(two_level, {k: v[:10] if np.ndim(v) else v for k, v in table.items()})

    def few(found):
        return found.log_odds.values[::1000].copy()

    def through_dask():
        with dask.config.set(scheduler="synchronous"):
            return batch(two_level, table, lazy=True).compute()  # chunks of 262,144

    plain, lazy = [], []
    # interleaved; answers are let go, so that both find the memory that the last round left
    for _ in range(8):
        plain.append(best(lambda: few(batch(two_level, table)), rounds=1))
        lazy.append(best(lambda: few(through_dask()), rounds=1))
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(plain, lazy, strict=True))
    ratio = min(t for t, _ in lazy) / min(t for t, _ in plain)
    peaks = []
    for chunk in (50_000, 200_000):  # what is held at once, with the answers let go
        tracemalloc.start()
        with dask.config.set(scheduler="synchronous"):
            batch(two_level, table, lazy=True, chunk=chunk).risk.max().compute()
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    benchmark.pedantic(through_dask, rounds=2)
    benchmark.extra_info.update(
        {
            "1,000,000 two-level targets through dask (chunks of 262,144), one worker, against the plain call": f"{ratio:.2f} x",
            "peak memory of that, chunks of 50,000 and of 200,000 targets": f"{peaks[0]:.0f} MB and {peaks[1]:.0f} MB",
        }
    )
    assert ratio < 1.5
    assert peaks[0] < 0.7 * peaks[1]
