"""Kill a long run at random moments, let it go on, and compare its bytes with a run that was never killed.

    python tests/robustness/killing.py batch 20 1000000
    python tests/robustness/killing.py study 20

``tests/robustness/test_killed.py`` runs a small version of both.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray as xr

ADVERSARY = [sys.executable, "-c", "from adversary.cli import main; main()"]


def digests(folder):
    """SHA-256 of every file under a final name."""
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(Path(folder).iterdir())
        if not p.name.startswith(".")
    }


def parts(folder):
    return len([*Path(folder).glob("part-*"), *Path(folder).glob("chunk_*")])


def run_and_kill(command, folder, kills, rng, longest=0.3):
    """Start the command, kill it (with all its processes) soon after it made a part, ``kills`` times; then let it end.

    Returns the number of parts that were there at each kill.
    """
    seen = []
    while len(seen) < kills:
        before = parts(folder)
        worker = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while parts(folder) <= before and worker.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, longest))
        if worker.poll() is not None:
            raise AssertionError(
                f"it ended before it was killed, after {len(seen)} kills: {worker.stderr.read()!r}"
            )
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        worker.stderr.close()
        seen.append(parts(folder))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return seen


def batch_job(folder, targets, chunk):
    """A table of targets and the command that answers it."""
    rng = np.random.default_rng(1)
    xr.Dataset(
        {
            "block": ("target", rng.integers(-5, 12, targets)),
            "block_group": ("target", rng.integers(-5, 30, targets)),
            "rest": ("target", rng.integers(-20, 40, targets)),
            "block_sigma2": 5.04,
            "block_group_sigma2": 2.03,
            "rest_sigma2": 5.04,
            "rest_groups": 27,
        }
    ).to_netcdf(folder / "targets.nc", engine="h5netcdf")
    return [*ADVERSARY, "batch", "two_level", str(folder / "targets.nc"), "--chunk", str(chunk), "--out"]


def study_job(folder, points):
    """A grid of assumptions and the command that answers it; every point is an exact solution of its own."""
    (folder / "release.json").write_text(
        json.dumps(
            {
                "measurements": {
                    "block": {"value": 2, "sigma2": 5.04},
                    "block_group": {"value": 1, "sigma2": 2.03},
                    "rest": {"value": -1, "sigma2": 5.04, "groups": 27},
                }
            }
        )
    )
    over = ["--over", f"elsewhere={','.join(f'Poisson(mu={0.1 + 0.1 * k:.1f})' for k in range(points // 4))}"]
    return [
        *ADVERSARY,
        "study",
        "two_level",
        str(folder / "release.json"),
        *over,
        "--over",
        "known=0,1,2,3",
        "--out",
    ]


def campaign(command, folder, kills, seed=None, longest=0.3):
    """Kill and compare; returns a sentence with the figures, raises where a byte differs."""
    rng = np.random.default_rng(seed)
    start = time.perf_counter()
    subprocess.run([*command, str(folder / "whole")], check=True, stdout=subprocess.DEVNULL)
    alone = time.perf_counter() - start
    seen = run_and_kill([*command, str(folder / "killed")], folder / "killed", kills, rng, longest)
    whole, killed = digests(folder / "whole"), digests(folder / "killed")
    assert whole == killed, sorted(set(whole.items()) ^ set(killed.items()))
    return (
        f"{kills} kills at {seen} of {parts(folder / 'whole')} parts, then the same bytes in {len(whole)} files "
        f"({alone:.1f} s for a run without kills)"
    )


def main(what, kills, size=0):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if what == "batch":
            command = batch_job(folder, size or 1_000_000, chunk=max((size or 1_000_000) // (10 * kills), 1))
        else:
            command = study_job(folder, size or 160 * kills)
        print(campaign(command, folder, kills))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:]))
