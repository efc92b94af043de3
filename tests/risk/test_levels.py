import itertools
import math

import numpy as np
import pytest

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import expected_one_level
from adversary.risk.levels import (
    PathDesign,
    averaged_logistic_normal,
    effective_information,
    expected_path,
    expected_uniqueness,
)
from adversary.risk.two_level import TwoLevelDesign, expected_two_level


def _brute_uniqueness(sigma2, p, here):
    grids = [np.arange(-math.ceil(9 * math.sqrt(s)), math.ceil(9 * math.sqrt(s)) + 1) for s in sigma2]
    odds, weight = math.log(p / (1 - p)), 1.0
    for axis, (n, s) in enumerate(zip(grids, sigma2, strict=True)):
        shape = [-1 if k == axis else 1 for k in range(len(sigma2))]
        odds = odds + ((2 * (n + here) - 1) / (2 * s)).reshape(shape)
        weight = weight * np.exp(dg.log_pmf(n, s)).reshape(shape)
    return (weight / (1 + np.exp(-odds))).sum(), (weight * ((odds > 1e-9) == here)).sum()


@pytest.mark.parametrize("sigma2", [[0.25, 1 / 6], [2.0, 0.7, 1.3], [0.05, 4.0, 0.5]])
@pytest.mark.parametrize("truth", ["present", "absent"])
def test_uniqueness_equals_the_full_lattice_sum(sigma2, truth):
    mean, right = _brute_uniqueness(sigma2, 0.1, int(truth == "present"))
    found = expected_uniqueness(sigma2, p=0.1, truth=truth)
    assert found.posterior == pytest.approx(mean, rel=1e-12)
    assert found.right == pytest.approx(right, abs=1e-11)


def test_uniqueness_at_one_level_is_one_level():
    one, other = expected_uniqueness([5.0], p=0.2), expected_one_level(5.0, p=0.2)
    assert one.posterior == pytest.approx(other.posterior, rel=1e-13)
    assert one.right == pytest.approx(other.right, abs=1e-12)
    assert one.exceedance(1.3) == pytest.approx(other.exceedance(1.3), abs=1e-12)


def test_the_gaussian_limit_is_close_for_fine_noise_and_wrong_for_narrow():
    assert averaged_logistic_normal(0.3, p=0.1) == pytest.approx(
        expected_uniqueness([5.0, 2.5], p=0.1).posterior, rel=1e-9
    )
    exact = expected_uniqueness([0.25, 1 / 6], p=0.1).posterior
    assert exact == pytest.approx(0.84381, abs=5e-6)
    assert abs(averaged_logistic_normal(5.0, p=0.1) - exact) > 1e-4
    assert averaged_logistic_normal(1.0, p=0.1, truth="average") == pytest.approx(0.1)


@pytest.mark.parametrize("truth", ["present", "absent", "average"])
def test_a_path_of_two_levels_is_two_levels(truth):
    path = PathDesign(sigma2=(1.0, 2.0), others=(3,))
    other = TwoLevelDesign(sigma2=1.0, group_sigma2=2.0, others=3)
    found = expected_path(path, (2,), p=0.3, truth=truth)
    wanted = expected_two_level(other, 2, p=0.3, truth=truth)
    assert found.posterior == pytest.approx(wanted.posterior, abs=1e-9)
    assert found.right == pytest.approx(wanted.right, abs=1e-9)


def test_a_path_of_three_levels_equals_enumeration():
    """Five noisy counts, all combinations, by a double sum over the rests for each."""
    sigma2, others, totals, p = (0.3, 0.25, 0.35), (1, 2), (1, 2), 0.3
    summed = (0.3, 0.5)
    truth = [1, 1, 2]
    rests = [0, 1]
    grids = [np.arange(-3, 4)] * 3
    rest_grids = [np.arange(-3, 4), np.arange(-4, 5)]
    y1, y2 = np.meshgrid(np.arange(12), np.arange(12), indexing="ij")
    mean = 0.0
    own = (2 * (grids[0] + 1) - 1) / (2 * sigma2[0])
    own_weight = np.exp(dg.log_pmf(grids[0], sigma2[0]))
    for n2, n3, m1, m2 in itertools.product(grids[1], grids[2], *rest_grids):
        weight = math.exp(
            dg.log_pmf(n2, sigma2[1])
            + dg.log_pmf(n3, sigma2[2])
            + dg.log_pmf(m1, summed[0])
            + dg.log_pmf(m2, summed[1])
        )
        if weight < 1e-8:
            continue
        by_k = []
        for k in (0, 1):
            exponent = (
                -((truth[1] + n2 - k - y1) ** 2) / (2 * sigma2[1])
                - (truth[2] + n3 - k - y1 - y2) ** 2 / (2 * sigma2[2])
                - (rests[0] + m1 - y1) ** 2 / (2 * summed[0])
                - (rests[1] + m2 - y2) ** 2 / (2 * summed[1])
            )
            by_k.append(np.logaddexp.reduce(exponent.ravel()))
        odds = math.log(p / (1 - p)) + by_k[1] - by_k[0] + own
        mean += weight * float(own_weight @ (1 / (1 + np.exp(-odds))))
    found = expected_path(PathDesign(sigma2=sigma2, others=others), totals, p=p, tolerance=1e-9)
    assert found.posterior == pytest.approx(mean, abs=2e-5)
    assert found.standard_error == 0.0


def test_a_long_path_is_refused_unless_draws_are_asked_for_and_then_states_its_error():
    design = PathDesign(sigma2=(1.0, 1.0, 1.0), others=(2, 2))
    exact = expected_path(design, (2, 3), p=0.3)
    drawn = expected_path(design, (2, 3), p=0.3, draws=4000, seed=5)
    assert 0 < drawn.standard_error < 0.01
    assert abs(drawn.posterior - exact.posterior) < 4 * drawn.standard_error
    assert abs(drawn.right - exact.right) < 4 * drawn.right_standard_error
    assert drawn.posterior == expected_path(design, (2, 3), p=0.3, draws=4000, seed=5).posterior
    longer = PathDesign(sigma2=(2.0,) * 4, others=(2, 2, 2))
    with pytest.raises(UnsupportedModelError, match="give draws= and seed="):
        expected_path(longer, (2, 3, 9), p=0.3)
    assert expected_path(longer, (2, 3, 9), p=0.3, draws=500, seed=1).standard_error > 0


def test_the_exact_noise_of_the_rests_can_be_drawn_and_read():
    design = PathDesign(sigma2=(0.4, 0.4), others=(3,), noise="exact")
    other = TwoLevelDesign(sigma2=0.4, group_sigma2=0.4, others=3, noise="exact")
    exact = expected_path(design, (2,), p=0.3)
    assert exact.posterior == pytest.approx(expected_two_level(other, 2, p=0.3).posterior, abs=1e-9)
    drawn = expected_path(design, (2,), p=0.3, draws=4000, seed=2)
    assert abs(drawn.posterior - exact.posterior) < 4 * drawn.standard_error


def test_effective_information_of_one_level_is_its_rho():
    assert effective_information([5.0], []) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_uniqueness([], p=0.5), "positive finite"),
        (lambda: effective_information([1.0, 2.0], []), "rests between"),
        (lambda: PathDesign(sigma2=(1.0,), others=()), "at least 2"),
        (lambda: PathDesign(sigma2=(1.0, 0.0), others=(1,)), "positive and finite"),
        (
            lambda: expected_path(PathDesign(sigma2=(1.0, 1.0), others=(1,)), (0,), p=0.5),
            "begin with at least 1",
        ),
        (lambda: expected_path(PathDesign(sigma2=(1.0, 1.0), others=(1,)), (1, 2), p=0.5), "levels 2 to h"),
        (
            lambda: expected_path(PathDesign(sigma2=(1.0, 1.0), others=(1,)), (1,), p=0.5, draws=5),
            "go together",
        ),
    ],
)
def test_impossible_paths_are_refused(call, message):
    with pytest.raises(ModelError, match=message):
        call()
