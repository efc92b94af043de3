"""A bounded slice of the coverage-guided fuzzing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("coverage_guided.py")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("reader", ["release-json", "release-csv", "result", "toml"])
def test_no_bytes_bring_a_traceback(reader, tmp_path):
    line = [sys.executable, str(SCRIPT), reader, "-runs=3000", "-seed=1", "-max_len=4096"]
    found = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    assert "Done 3000 runs" in found.stderr
