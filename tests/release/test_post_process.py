"""Top-down counts: nearest, whole, not negative, consistent, and biased in the way that is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from adversary.errors import ModelError, ReleaseError
from adversary.release.estimate import two_pass
from adversary.release.post_process import nearest_with_sum, round_with_sum, top_down


@pytest.mark.parametrize("seed", range(15))
def test_the_nearest_numbers_solve_the_quadratic_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    e, v, total = rng.normal(1, 4, n), rng.uniform(0.2, 5, n), float(rng.integers(0, 9))
    got = nearest_with_sum(e, v, np.zeros(n, int), [total])
    assert got.sum() == pytest.approx(total, abs=1e-9)
    assert (got >= 0).all()
    answer = minimize(
        lambda x: ((x - e) ** 2 / v).sum(),
        np.full(n, total / n),
        jac=lambda x: 2 * (x - e) / v,
        bounds=[(0, None)] * n,
        constraints={"type": "eq", "fun": lambda x: x.sum() - total, "jac": lambda x: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert ((got - e) ** 2 / v).sum() <= answer.fun + 1e-7
    np.testing.assert_allclose(got, answer.x, atol=1e-4)


def test_groups_are_solved_alone() -> None:
    rng = np.random.default_rng(50)
    group = np.sort(rng.integers(0, 20, 100))
    e, v, total = rng.normal(1, 5, 100), rng.uniform(0.1, 9, 100), rng.integers(0, 30, 20)
    total[np.bincount(group, minlength=20) == 0] = 0
    got = nearest_with_sum(e, v, group, total)
    for g in range(20):
        mine = group == g
        np.testing.assert_allclose(
            got[mine], nearest_with_sum(e[mine], v[mine], np.zeros(mine.sum(), int), total[[g]]), atol=1e-12
        )


@pytest.mark.parametrize("seed", range(15))
def test_rounding_is_the_nearest_among_all_floors_and_ceilings(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    x = rng.uniform(0, 4, 6)
    x[-1] += np.ceil(x.sum()) - x.sum()
    got = round_with_sum(x, np.zeros(6, int))
    assert got.sum() == round(x.sum())
    choices = (np.floor(x) + np.array(c) for c in product((0, 1), repeat=6))
    best = min(((c - x) ** 2).sum() for c in choices if c.sum() == round(x.sum()))
    assert ((got - x) ** 2).sum() == pytest.approx(best)


def tree(rng: np.random.Generator) -> np.ndarray:
    return np.array(
        [-1, 0, 0, *np.sort(rng.integers(1, 3, 6)), *rng.permutation(np.repeat(np.arange(3, 9), 4))]
    )


@pytest.mark.parametrize("cells", [None, 3])
def test_published_counts_are_whole_add_up_and_are_not_negative(cells: int | None) -> None:
    rng = np.random.default_rng(300)
    parents = tree(rng)
    shape = (parents.size,) if cells is None else (parents.size, cells)
    e, v = rng.normal(2, 6, shape), rng.uniform(0.5, 5, shape)
    e[0] = 60
    got = top_down(parents, e, v)
    assert got.dtype == np.int64
    assert (got >= 0).all()
    sums = np.zeros_like(got)
    np.add.at(sums, parents[1:], got[1:])
    inner = np.unique(parents[1:])
    np.testing.assert_array_equal(sums[inner], got[inner])


def test_exact_estimates_are_published_as_they_are() -> None:
    rng = np.random.default_rng(301)
    parents = tree(rng)
    truth = np.zeros(parents.size, int)
    truth[9:] = rng.integers(0, 7, parents.size - 9)
    for unit in range(parents.size - 1, 0, -1):
        truth[parents[unit]] += truth[unit]
    np.testing.assert_array_equal(top_down(parents, truth, np.zeros(truth.size)), truth)
    np.testing.assert_array_equal(top_down(parents, truth, np.ones(truth.size)), truth)


def test_structural_zeros_stay_zero() -> None:
    got = top_down([-1, 0, 0, 0], [7.0, 0.0, 1.4, 2.2], [0.0, 0.0, 3.0, 3.0])
    assert got.tolist() == [7, 0, 3, 4]


def test_empty_blocks_are_pushed_up_and_full_ones_down() -> None:
    """The bias of non-negativity: 2,000 releases of one block group with 9 empty blocks and one of 30."""
    rng = np.random.default_rng(302)
    truth = np.array([30.0, *([0.0] * 9), 30.0])
    parents = [-1] + [0] * 10
    v = np.array([1.0] + [9.0] * 10)
    total = np.zeros(11)
    for _ in range(2000):
        answer = two_pass(parents, truth + rng.normal(size=11) * np.sqrt(v), v)
        total += top_down(parents, answer.estimate, answer.variance)
    mean = total / 2000
    assert 0.3 < mean[1:10].mean() < 1.5
    assert mean[10] < 30 - 9 * 0.3 + 0.3
    assert mean[0] == pytest.approx(30, abs=0.1)


def test_what_contradicts_or_is_not_finite_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"children of unit 0: group 0 must sum to 5, but its known entries leave -2"
    ):
        top_down([-1, 0, 0], [5.0, 7.0, 1.0], [0.0, 0.0, 1.0])
    with pytest.raises(ModelError, match="leave 5"):
        top_down([-1, 0, 0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    with pytest.raises(ReleaseError, match="unit 1 has no finite estimate"):
        top_down([-1, 0], [5.0, np.nan], [1.0, 1.0])
    with pytest.raises(ReleaseError, match="no whole number"):
        round_with_sum([0.5, 0.2], [0, 0])
    with pytest.raises(ReleaseError, match="2 units, estimates"):
        top_down([-1, 0], [5.0], [1.0])
    with pytest.raises(ReleaseError, match="one a group"):
        nearest_with_sum([1.0], [1.0], [1], [1.0])
