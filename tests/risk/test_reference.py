"""Every reference number that concerns the risk modules, to its stated tolerance."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from adversary.risk.two_level import TwoLevelDesign, expected_two_level

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
    with pytest.raises(KeyError):
        reference.answer("eps_bs_2.56")


FIGURE_5 = {
    "literal": [0.594586, 0.592356, 0.590866, 0.590092, 0.589807],
    "exact": [0.318191, 0.434925, 0.516999, 0.561862, 0.581131],
}


@pytest.mark.parametrize("mode", FIGURE_5)
def test_figure_five_is_met_to_the_digits_that_are_printed(mode):
    design = TwoLevelDesign(sigma2=reference.BLOCK, group_sigma2=reference.GROUP, others=27, mode=mode)
    got = [expected_two_level(design, total, p=0.5).right for total in range(1, 6)]
    np.testing.assert_allclose(got, FIGURE_5[mode], atol=6e-7)
    assert expected_two_level(design, 10, p=0.5).right == pytest.approx(0.589726, abs=6e-7)


def test_every_figure_of_the_paper_holds_its_bound_at_all_its_points():
    """Figure 6 with its two ends: the noise of the group from none to all."""
    for rho2 in (0.001, 0.2465, 100.0):
        design = TwoLevelDesign(sigma2=reference.BLOCK, group_sigma2=0.5 / rho2, others=27)
        for total in (1, 10, 100):
            found = expected_two_level(design, total, p=0.5)
            assert found.left_out_bound <= 1e-12
            assert 0 < found.right < 1
    assert found.near_tie_mass == pytest.approx(0.0059, abs=1e-4)  # at rho2 = 100 float64 sees exact ties
