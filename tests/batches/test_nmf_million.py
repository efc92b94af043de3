"""A million targets: Rhode Island's blocks with synthetic people on them, from files, in bounded memory, killed and resumed."""

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")
SHARED = Path(os.environ.get("ADVERSARY_SHARED", Path(__file__).parents[3] / "shared"))
FOLDER = SHARED / "data" / "rhode-island-baf"

SCRIPT = textwrap.dedent("""
    import json, resource, sys
    from adversary.batches.nmf import assess_nmf
    from adversary.readers.nmf import NoisyMeasurements

    files = NoisyMeasurements.open(sys.argv[1], "2020-pl94-persons")
    done = assess_nmf(files, sys.argv[2], cells=range(200, 240))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"targets": done.targets, "done": done.done, "seconds": done.seconds, "peak": peak, **done.found}))
""")


@pytest.mark.slow
@pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)
def test_a_million_targets_from_files_killed_and_resumed_in_bounded_memory(tmp_path):
    from adversary.geography.das import optimized_spine
    from adversary.geography.plans import level_shares
    from adversary.privacy.budget import Allocation
    from adversary.readers.baf import read_baf
    from adversary.readers.nmf_write import write_nmf
    from adversary.readers.population import synthetic_counts

    allocation = Allocation.load("2020-pl94-persons")
    spine = optimized_spine(read_baf(FOLDER), level_shares(allocation))
    counts = synthetic_counts(spine, seed=1, mean=66.0)
    files = write_nmf(tmp_path / "r", spine, counts, allocation, seed=3, queries=["detailed"]).folder
    command = [sys.executable, "-c", SCRIPT, str(files), str(tmp_path / "a")]
    process = subprocess.Popen(command)
    manifest = tmp_path / "a" / "manifest.json"
    while not manifest.is_file():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(float(np.random.default_rng(1).uniform(0, 2)))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {r["file"]: r["sha256"] for r in json.loads(manifest.read_text())["parts"]}
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(finished.stdout)
    assert found["targets"] == 25_649 * 40
    assert found["done"] == len(kept) > 0
    after = {r["file"]: r["sha256"] for r in json.loads(manifest.read_text())["parts"]}
    assert kept.items() <= after.items()
    assert found["peak"] < 1.5e9  # one cell's tree of the state and its messages, however many cells
    assert found["left_out_bound"] < 1e-12
    assert 0 < found["largest_posterior"] < 1
    print(found, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
