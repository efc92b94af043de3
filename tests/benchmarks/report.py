"""Run the benchmarks and write BENCHMARKS.md: ``python tests/benchmarks/report.py [--from FILE.json]``.

Every figure in the table was measured in one run on one machine, with the answers checked in that run; the ratios travel,
the seconds do not.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dp-adversary", "numpy", "scipy", "pymc", "pytensor", "xarray", "dask", "opendp")


def run() -> dict:
    """Run all benchmarks that record figures and return pytest-benchmark's JSON."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            str(Path(__file__).parent),
            "--import-mode=importlib",
            "-q",
        ]
        subprocess.run([*command, f"--benchmark-json={out}", "--benchmark-quiet"], cwd=ROOT, check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def versions() -> str:
    """Return the versions of what matters, as far as it is installed."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def table(data: dict) -> str:
    """Return BENCHMARKS.md."""
    cpu = data["machine_info"].get("cpu", {})
    machine = (
        f"{cpu.get('brand_raw', platform.processor() or 'unknown processor')}, {cpu.get('count', '?')} cores"
    )
    python = data["machine_info"].get("python_version", platform.python_version())
    lines = [
        "# Benchmarks",
        "",
        "Written by `python tests/benchmarks/report.py`, which runs `make bench` and checks every answer in the same run.",
        "Seconds are of one core (CPU time; whole processes for cold starts) and belong to this machine; ratios were taken in",
        "one run, with the rounds of the two sides interleaved.",
        "",
        f"* Machine: {machine}; {platform.system()} {platform.machine()}",
        f"* Python {python}; {versions()}",
        f"* Run: {data['datetime'][:10]}",
        "",
        "| what | measured |",
        "|---|---|",
    ]
    for bench in data["benchmarks"]:
        lines += [f"| {what} | {figure} |" for what, figure in bench["extra_info"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write BENCHMARKS.md at the root of the project."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", default=None, help="JSON of a run that was made already")
    parser.add_argument("--out", default=str(ROOT / "BENCHMARKS.md"))
    given = parser.parse_args()
    data = run() if given.source is None else json.loads(Path(given.source).read_text(encoding="utf-8"))
    Path(given.out).write_text(table(data), encoding="utf-8")
    print(f"written: {given.out}")


if __name__ == "__main__":
    main()
