import math

import numpy as np
import pytest

from adversary.errors import SamplingError, UnsupportedModelError
from adversary.samplers.closed import two_level_log_odds
from adversary.samplers.table import TwoLevelTable, _tabulate

GROUPS = [(0.0992264, 0.2464845, 27), (0.05, 0.05, 10), (0.01, 0.01, 39), (1e-4, 1e-4, 10), (1e-6, 1e-6, 10)]


def targets(sigma2, n=4000, seed=1):
    rng = np.random.default_rng(seed)
    s1, s2, s3 = (math.sqrt(s) for s in sigma2)
    known = rng.integers(0, 5, n)
    rest = (rng.random(n) * np.where(rng.random(n) < 0.5, 3, 80) * s3 * rng.choice([0, 1, -1], n)).astype(
        np.int64
    )
    x1 = known + np.rint(rng.normal(0, s1, n)).astype(np.int64)
    x2 = known + rest + np.rint(3 * rng.normal(0, s2, n)).astype(np.int64)
    y1 = rest + np.rint(3 * rng.normal(0, s3, n)).astype(np.int64)
    return x1, x2, y1, known


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_the_table_gives_the_closed_form_to_1e_12_in_every_region(group):
    rho1, rho2, d = group
    sigma2 = (0.5 / rho1, 0.5 / rho2, d * 0.5 / rho1)
    table = TwoLevelTable(*sigma2, prior_log_odds=-2.0)
    counts = targets(sigma2)
    wanted = two_level_log_odds(*counts, *sigma2, -2.0)
    np.testing.assert_allclose(table.log_odds(*counts), wanted, rtol=2e-14, atol=3e-13)
    np.testing.assert_allclose(table.posterior(*counts), 1 / (1 + np.exp(-wanted)), rtol=0, atol=1e-12)


def test_the_paper_s_example_and_counts_of_a_nation():
    s1, s2 = 0.5 / 0.09922635422547502, 0.5 / 0.24648450960703558
    table = TwoLevelTable(s1, s2, 27 * s1)
    assert float(table.log_odds(2, 1, -1, 0)) == pytest.approx(0.013151494790365925, abs=1e-12)
    big = 10**9
    assert float(table.log_odds(big + 2, big + 1, -1, big)) == float(table.log_odds(2, 1, -1, 0))


def test_it_broadcasts_and_writes_where_asked():
    table = TwoLevelTable(10.0, 10.0, 100.0)
    out = np.empty((2, 3))
    got = table.posterior(np.array([[1], [2]]), np.array([0, 1, 2]), 0, 0, out)
    assert got is out
    assert got[1, 2] == pytest.approx(float(table.posterior(2, 2, 0, 0)), rel=1e-15)


def test_little_noise_and_counts_that_are_no_integers_are_refused_with_the_way_out():
    with pytest.raises(UnsupportedModelError, match="two_level_log_odds"):
        TwoLevelTable(1.0, 1.0, 4.0)
    with pytest.raises(UnsupportedModelError, match="whole numbers"):
        TwoLevelTable(10.0, 10.0, 100.0).posterior(1.5, 1, 1, 0)


def test_a_function_that_ten_coefficients_cannot_follow_is_refused():
    with pytest.raises(SamplingError, match="misses the closed form"):
        _tabulate(lambda z: np.sin(200 * z), 8.0)
