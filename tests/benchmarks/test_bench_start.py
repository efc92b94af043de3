"""Cold start of the commands that need no PyMC, against the interpreter with NumPy.

Not in the default run: ``make bench``. Whole processes, wall time, interleaved.
"""

import subprocess
import sys
import time

import numpy as np

COMMANDS = {
    "python -c 'import numpy'": ["-c", "import numpy"],
    "adversary --version": ["-c", "from adversary.cli import main; main(['--version'])"],
    "adversary account": [
        "-c",
        "from adversary.cli import main; main(['account', '--rho', '2.56', '--delta', '1e-10'])",
    ],
    "adversary expect": ["-c", "from adversary.cli import main; main(['expect', '--rho', '0.0992264'])"],
    "adversary approximation": [
        "-c",
        "from adversary.cli import main; main(['approximation', '--rho', '1', '--d', '27'])",
    ],
}
SAID = {
    "adversary --version": "adversary",
    "adversary account": "17.9",
    "adversary expect": "R = 1.04733",
    "adversary approximation": "exact convolution",
}


def test_cold_start(benchmark):
    times = {k: [] for k in COMMANDS}
    for _ in range(5):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            found = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
            times[name].append(time.perf_counter() - start)
            assert SAID.get(name, "") in found.stdout
    floor = float(np.median(times["python -c 'import numpy'"]))
    benchmark.pedantic(
        lambda: subprocess.run(
            [sys.executable, *COMMANDS["adversary expect"]], capture_output=True, check=True
        ),
        rounds=1,
    )
    for name, taken in times.items():
        benchmark.extra_info[f"cold start: {name}"] = (
            f"{np.median(taken):.2f} s, {np.median(taken) / floor:.1f} x NumPy alone"
        )
    assert all(np.median(t) < 1.0 + floor for t in times.values())
