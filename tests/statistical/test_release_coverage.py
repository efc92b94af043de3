"""Intervals from a release in the Bureau's files, read back: least squares on the spine covers what it says."""

import os
from pathlib import Path

import numpy as np
import pytest

from adversary.demo import demo_blocks
from adversary.geography.das import optimized_spine
from adversary.geography.plans import level_shares
from adversary.privacy.budget import Allocation
from adversary.readers.block_csv import read_blocks
from adversary.readers.nmf import NoisyMeasurements
from adversary.readers.nmf_write import write_nmf
from adversary.readers.population import synthetic_counts
from adversary.release.estimate import two_pass

BUDGET = Allocation.load("2020-pl94-persons")
SHARED = os.environ.get("ADVERSARY_SHARED")


@pytest.fixture(
    params=[
        "made up",
        pytest.param(
            "Rhode Island",
            marks=pytest.mark.skipif(not SHARED, reason="ADVERSARY_SHARED is not set: no real block files"),
        ),
    ]
)
def release(request, tmp_path):
    source = tmp_path / "blocks.csv"
    source.write_text("\n".join(demo_blocks()) + "\n")
    if request.param != "made up":
        source = Path(SHARED) / "data" / "rhode-island-baf"
    spine = optimized_spine(read_blocks(source), level_shares(BUDGET))
    people = synthetic_counts(spine, seed=1)
    write_nmf(tmp_path / "nmf", spine, people, BUDGET, seed=5, queries=["total"])
    return NoisyMeasurements.open(tmp_path / "nmf", "2020-pl94-persons"), people


@pytest.mark.filterwarnings("ignore:some paths of the spine spend only")  # one query of eleven was written
def test_nine_in_ten_intervals_of_totals_cover_and_half_as_wide_ones_do_not(release):
    files, people = release
    spine = files.spine()
    noisy, sigma2 = np.zeros(len(spine)), np.full(len(spine), np.inf)
    for level in spine.levels:
        if "total" in files.measured(level):
            units = spine.units(level)
            found = files.query(level, "total").aligned(spine.geocodes[units])
            noisy[units], sigma2[units] = found.values[:, 0], found.sigma2
    found = two_pass(spine.parents, noisy, sigma2)
    truth = np.zeros(len(spine))
    truth[people.leaves_of(spine)] = np.bincount(people.block, people.count, len(people.blocks))
    for unit in range(len(spine) - 1, 0, -1):
        truth[spine.parents[unit]] += truth[unit]
    away = np.abs(found.estimate - truth) / found.sd
    for level in ("Tract", "Block_Group", "Block"):
        at = spine.units(level)
        error = np.sqrt(0.09 / at.size)  # of the share covered, were the units independent
        covered = (away[at] <= 1.6449).mean()
        assert covered >= 0.86 - 2 * error if at.size < 300 else covered >= 0.86
        if at.size > 200:
            assert (away[at] <= 1.6449 / 2).mean() < 0.75  # intervals from half the noise would be found out
