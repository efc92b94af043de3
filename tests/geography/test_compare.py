"""Accuracy of a spine against dense least squares and the production run's known variances."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from adversary.errors import BudgetError
from adversary.geography.bypass import bypass_only_children
from adversary.geography.compare import entity_deviations, total_estimate, total_noise
from adversary.geography.spine import Spine
from adversary.release.queries import PL94_PERSONS, Histogram, Strategy

FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = json.loads((FOLDER / "spines.json").read_text())


@pytest.mark.skipif("privacy" not in REFERENCE, reason="the reference file has no section on privacy")
def test_the_production_run_measures_totals_as_well_as_is_known() -> None:
    persons = REFERENCE["privacy"]["persons"]
    levels = list(persons["US"]["geolevel"])
    spine = Spine.from_blocks(
        {k: ["1", "1" if k != "Block" else "2"] for k in levels}, persons["US"]["geolevel"]
    )
    plans = {k: Strategy(PL94_PERSONS, mix) for k, mix in persons["US"]["query"].items()}
    got = total_noise(spine, plans, Fraction(persons["rho"]))
    # effective variances as checked in the specification, to the digits that it gives
    for value, known in zip(got[:6], (1224, 1.21, 4.67, 6.01, 3.04, 2410), strict=True):
        assert value == pytest.approx(known, rel=5e-3)


H = Histogram({"sex": 2, "race": 3})
PLANS = {
    "county": Strategy(H, {"total": "1/2", "detailed": "1/2"}),
    "tract": Strategy(H, {"sex": "1/5", "race": "4/5"}),  # leaves cells open, but not the total
    "block": Strategy(H, {"sex": "1/7", "detailed": "6/7"}),
}
TABLE = {
    "county": ["c"] * 6,
    "tract": ["t1", "t1", "t1", "t2", "t3", "t3"],
    "block": ["b1", "b2", "b3", "b4", "b5", "b6"],
}


def test_entities_have_the_deviation_of_dense_least_squares() -> None:
    plain = Spine.from_blocks(TABLE, {"county": "1/6", "tract": "1/2", "block": "1/3"})
    for spine in (plain, bypass_only_children(plain)):
        rho = Fraction(3, 2)
        estimate = total_estimate(spine, PLANS, rho)
        codes = ["A", "B", "A", "A", "", "B"]
        got = entity_deviations(spine, estimate, codes)
        a = np.zeros((len(spine), 6))
        for i, leaf in enumerate(spine.leaves):
            a[spine.path(int(leaf)), i] = 1
        information = np.zeros((6 * H.cells, 6 * H.cells))
        for u in range(len(spine)):
            if spine.share(u):
                for name, noise in PLANS[spine.level(u)].sigma2(rho, spine.share(u)).items():
                    q = np.kron(a[u], H.group(name).matrix())
                    information += q.T @ q / float(noise)
        cov = np.linalg.inv(information)
        for code in ("A", "B"):
            w = np.kron([float(c == code) for c in codes], np.ones(H.cells))
            dense = float(np.sqrt(w @ cov @ w))
            assert dense <= got[code] * (1 + 1e-9)  # totals alone use no more than all cells do
            assert got[code] == pytest.approx(dense, rel=0.15)


def test_one_query_a_level_is_exact_dense_least_squares() -> None:
    spine = Spine.from_blocks(TABLE, {"county": "1/6", "tract": "1/2", "block": "1/3"})
    plans = dict.fromkeys(TABLE, Strategy(Histogram({"all": 1}), {"total": 1}))
    estimate = total_estimate(spine, plans, 2, exact=["c"])
    a = np.zeros((len(spine), 6))
    for i, leaf in enumerate(spine.leaves):
        a[spine.path(int(leaf)), i] = 1
    cov = np.linalg.inv(a[1:].T @ (a[1:] * 2 * spine.shares[1:, None]))
    one = np.ones(6)
    cov -= np.outer(cov @ one, cov @ one) / (one @ cov @ one)
    got = entity_deviations(spine, estimate, ["A", "B", "A", "A", "", "B"])
    for code, w in (("A", [1, 0, 1, 1, 0, 0]), ("B", [0, 1, 0, 0, 0, 1])):
        assert got[code] == pytest.approx(np.sqrt(np.array(w) @ cov @ w), rel=1e-10)


def test_a_measured_level_without_queries_is_named() -> None:
    spine = Spine.from_blocks(TABLE, {"county": 0, "tract": "1/2", "block": "1/2"})
    with pytest.raises(BudgetError, match="level block has budget but no strategy"):
        total_noise(spine, {"tract": PLANS["tract"]}, 1)
