"""A county of 21,120 blocks: every block's posterior, exact, in one pass up and one down.

Not in the default run: ``make bench``.
"""

import time

import numpy as np
import pytest

from adversary.privacy import discrete_gaussian as dg
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.tree import solve_tree

SIGMA2 = {"county": 9.7318, "tract": 9.9174, "group": 2.02852, "block": 5.03898}


def county(tracts=60, groups=4, blocks=88, seed=0):
    rng = np.random.default_rng(seed)
    tract = 1 + np.arange(tracts)
    group = 1 + tracts + np.arange(tracts * groups)
    parent = np.concatenate([[-1], np.zeros(tracts, int), np.repeat(tract, groups), np.repeat(group, blocks)])
    level = np.repeat(list(SIGMA2), [1, tracts, tracts * groups, tracts * groups * blocks])
    true = np.where(level == "block", rng.poisson(0.3, parent.size), 0)
    for v in range(parent.size - 1, 0, -1):
        true[parent[v]] += true[v]
    sigma2 = np.array([SIGMA2[k] for k in level])
    return parent, true + dg.sample(sigma2, None, rng), sigma2, true


@pytest.mark.parametrize("name", ["flat", "poisson"])
def test_a_county_of_blocks(benchmark, name):
    prior = LeafPrior.flat() if name == "flat" else LeafPrior.poisson(0.3)
    parent, noisy, sigma2, true = county()
    leaves = int((sigma2 == SIGMA2["block"]).sum())
    times = []
    for _ in range(3):
        start = time.process_time()
        solved = solve_tree(parent, noisy, sigma2, prior)
        times.append(time.process_time() - start)
    assert solved.left_out_bound < 1e-12
    # a total's mean is the sum of its parts' means, at every node
    sums = np.zeros(parent.size)
    np.add.at(sums, parent[1:], solved.mean[1:])
    inner = np.unique(parent[1:])
    np.testing.assert_allclose(sums[inner], solved.mean[inner], rtol=1e-9)
    if (
        name == "poisson"
    ):  # the prior she has is the one the people came from: standardised errors have variance 1
        z = (true - solved.mean)[-leaves:] / solved.sd[-leaves:]
        assert np.mean(z**2) == pytest.approx(1.0, abs=0.06)
    benchmark.pedantic(lambda: solve_tree(parent, noisy, sigma2, prior), rounds=2)
    benchmark.extra_info[f"tree of {leaves:,} blocks, {name} prior on each block"] = (
        f"{min(times):.2f} s, {1e6 * min(times) / leaves:.0f} us a block"
    )
    assert min(times) < 1.0
