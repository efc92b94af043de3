"""Every reference number that concerns the risk modules, to its stated tolerance."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

_spec = importlib.util.spec_from_file_location("risk_reference", Path(__file__).with_name("reference.py"))
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def _close(got, entry):
    wanted, tolerance = entry["exact_value"], entry["tolerance"]
    if wanted is None or got is None:
        return got is wanted
    scale = abs(wanted) if entry["tolerance_kind"] == "rel" and wanted != 0 else 1.0
    return abs(got - wanted) <= tolerance * scale


@pytest.mark.parametrize("name", reference.ours())
def test_reference_number_is_met(name):
    entry = reference.ENTRIES[name]
    got = reference.answer(name)
    assert _close(got, entry), (got, entry["exact_value"], entry["tolerance"])


def test_the_comparison_can_fail():
    entry = reference.ENTRIES["t5_R_p1/2"]
    assert _close(entry["exact_value"], entry)
    assert not _close(entry["exact_value"] * (1 + 2e-11), entry)
    assert not _close(None, entry)


def test_the_risk_modules_answer_for_most_of_the_reference():
    assert len(reference.ours()) > 430
    assert np.isfinite(reference.answer("f5_exact_x2_1"))
