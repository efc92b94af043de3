"""PyMC against the exact answer for every shipped scenario: slow, because each model is compiled."""

import pytest

from adversary import Release, load, run
from adversary.discover import list_scenarios

COUNTS = {
    "couple": {"block": 2},
    "fill_out_total": {"block": 2, "total": 1},
    "lying_cells": {"block": 2, "other": 1},
    "moved": {"here": 1, "there": 2},
    "on_spine": {
        "block": 2,
        "siblings": [1, 0],
        "cousins": [0, 3],
        "block_group": 4,
        "other_groups": 2,
        "tract": 6,
    },
    "path": {"block": 2, "block_group": 1, "rest_of_block_group": -1, "tract": 5, "rest_of_tract": 3},
    "siblings": {"block": 2, "block_group": 9, "siblings": [1, 0, 3, -2]},
    "two_level": {"block": 2, "block_group": 1, "rest": -1},
    "unique_at": {"block": 2, "block_group": 1, "tract": 3},
    "uniqueness": {"block": 2, "block_group": 1, "tract": 3},
    "unknown_attribute": {"cells": [2, -1]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in list_scenarios() if n not in ("whole_record", "reconstruction")])
def test_mcmc_agrees_with_exact_within_four_standard_errors(name):
    counts = COUNTS.get(name, {"block": 2})
    groups = {n: 5 for n in counts if n.startswith("rest")}
    release = Release.from_counts(counts, rho="0.1", groups=groups)
    exact, sampled = (run(load(name), release, sampler, seed=1, draws=2000) for sampler in ("exact", "mcmc"))
    assert abs(sampled.posterior - exact.posterior) < 4 * sampled.mcse
