"""Two-pass estimates of counts against dense generalised least squares."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.errors import ModelError, ReleaseError
from adversary.release.estimate import two_pass


def random_tree(rng: np.random.Generator, depth: int = 4, most: int = 4) -> np.ndarray:
    """Parents of a random tree with chains and leaves at several depths."""
    parents, layer = [-1], [0]
    for d in range(depth):
        below = []
        for unit in layer:
            if d > 0 and rng.random() < 0.15:
                continue
            for _ in range(int(rng.integers(1, most))):
                parents.append(unit)
                below.append(len(parents) - 1)
        layer = below
    return np.array(parents)


def incidence(parents: np.ndarray) -> np.ndarray:
    """Units by leaves."""
    leaves = np.setdiff1d(np.arange(parents.size), parents)
    out = np.zeros((parents.size, leaves.size))
    for i, leaf in enumerate(leaves):
        unit = leaf
        while unit >= 0:
            out[unit, i] = 1
            unit = parents[unit]
    return out


def dense(parents: np.ndarray, z: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and covariance of all units, exact counts as linear constraints."""
    b = incidence(parents)
    exact, seen = v == 0, np.isfinite(v) & (v > 0)
    c = b[exact]
    x0 = np.linalg.lstsq(c, z[exact], rcond=None)[0] if exact.any() else np.zeros(b.shape[1])
    _, s, vt = np.linalg.svd(c) if exact.any() else (None, np.zeros(0), np.eye(b.shape[1]))
    null = vt[int((s > 1e-9).sum()) :].T
    bn = b @ null
    h = bn[seen].T @ (bn[seen] / v[seen, None])
    cov = np.linalg.inv(h)
    x = x0 + null @ (cov @ (bn[seen].T @ ((z - b @ x0)[seen] / v[seen])))
    return b @ x, bn @ cov @ bn.T


@pytest.mark.parametrize("seed", range(8))
def test_two_passes_equal_dense_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = random_tree(rng)
    z, v = rng.normal(0, 30, parents.size), rng.uniform(0.3, 300, parents.size)
    got = two_pass(parents, z, v)
    estimate, cov = dense(parents, z, v)
    np.testing.assert_allclose(got.estimate, estimate, rtol=0, atol=1e-10 * 300)
    np.testing.assert_allclose(got.variance, np.diag(cov), rtol=1e-10)
    for _ in range(3):
        a, b = rng.normal(size=(2, parents.size)) * (rng.random((2, parents.size)) < 0.5)
        assert got.covariance(a, b) == pytest.approx(a @ cov @ b, rel=1e-9, abs=1e-9)
    assert got.combine(a) == pytest.approx(a @ estimate, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_counts_that_were_not_measured_and_exact_ones_are_handled(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    parents = random_tree(rng)
    while np.unique(parents).size < 6:
        parents = random_tree(rng)
    b = incidence(parents)
    truth = b @ rng.integers(0, 40, b.shape[1])
    v = rng.uniform(0.3, 50, parents.size)
    leaves = np.setdiff1d(np.arange(parents.size), parents)
    alone = [u for u in leaves if (parents == parents[u]).sum() == 1]  # a bypassed block
    first = [int(leaves[parents[leaves] == p][0]) for p in np.unique(parents[leaves])]
    v[alone] = np.inf
    v[rng.choice(first, size=max(1, len(first) // 2), replace=False)] = np.inf
    inner = np.unique(parents[parents >= 0])
    v[rng.choice(inner, size=2, replace=False)] = [0.0, np.inf]
    v[0] = 0.0
    z = np.where(v == 0, truth, truth + rng.normal(0, 5, truth.size))
    z[np.isinf(v)] = np.nan
    got = two_pass(parents, z, v)
    hidden = np.where(np.isinf(v), 0.0, z)
    b_seen = b[np.isfinite(v)]
    if np.linalg.matrix_rank(b_seen) < b.shape[1]:
        assert np.isinf(got.variance).any()
        known = np.isfinite(got.variance)
        basis = np.linalg.pinv(b_seen) @ b_seen
        np.testing.assert_array_equal(known, np.abs(b @ basis - b).max(axis=1) < 1e-9)
        return
    estimate, cov = dense(parents, hidden, v)
    np.testing.assert_allclose(got.estimate, estimate, atol=1e-8)
    np.testing.assert_allclose(got.variance, np.diag(cov), rtol=1e-8, atol=1e-9)
    a = rng.normal(size=parents.size)
    assert got.variance_of(a) == pytest.approx(a @ cov @ a, rel=1e-8)


def test_estimates_of_children_add_up_to_their_parent() -> None:
    rng = np.random.default_rng(5)
    parents = random_tree(rng)
    got = two_pass(parents, rng.normal(0, 9, parents.size), rng.uniform(1, 9, parents.size))
    total = np.bincount(parents[1:], got.estimate[1:], parents.size)
    inner = np.unique(parents[1:])
    np.testing.assert_allclose(total[inner], got.estimate[inner], atol=1e-11)


def test_two_unmeasured_blocks_have_a_known_sum_but_no_estimates() -> None:
    got = two_pass([-1, 0, 0, 0], [10.0, 4.0, np.nan, np.nan], [2.0, 3.0, np.inf, np.inf])
    assert np.isinf(got.variance[2:]).all()
    assert np.isnan(got.estimate[2:]).all()
    assert got.variance_of([0, 0, 1, 1]) == pytest.approx(5.0)  # root less the measured block
    assert got.variance_of([0, 0, 1, 0]) == np.inf


def test_a_forest_is_estimated_tree_by_tree() -> None:
    both = two_pass([-1, -1, 0, 0, 1, 1], [9.0, 1, 3, 4, 5, 6], [1.0, 2, 3, 4, 5, 6])
    one = two_pass([-1, 0, 0], [9.0, 3, 4], [1.0, 3, 4])
    np.testing.assert_allclose(both.estimate[[0, 2, 3]], one.estimate)
    assert both.covariance([1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]) == 0


def test_invariants_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ModelError, match="unit 0 is exactly 10 but its exact children sum to 9"):
        two_pass([-1, 0, 0], [10.0, 4, 5], [0.0, 0, 0])
    assert two_pass([-1, 0, 0], [9.0, 4, 5], [0.0, 0, 0]).variance.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("parents", "z", "v", "text"),
    [
        ([0, -1], [1, 2], [1, 1], "unit 0 has parent 0"),
        ([-1, 2, 1], [1, 2, 3], [1, 1, 1], "unit 1 has parent 2"),
        ([-1, 0], [1, 2], [1, -1], "unit 1: value 2.0, variance -1.0"),
        ([-1, 0], [1, np.nan], [1, 1], "unit 1: value nan"),
        ([-1, 0], [1, 2, 3], [1, 1], "2 units, 3 values"),
    ],
)
def test_what_is_no_tree_or_no_noise_is_refused(parents: list, z: list, v: list, text: str) -> None:
    with pytest.raises(ReleaseError, match=text):
        two_pass(parents, z, v)


def test_estimates_have_the_variance_they_claim() -> None:
    """20,000 releases of one tree: standardised errors have variance 1; noise 10 % larger is noticed."""
    rng = np.random.default_rng(7)
    parents = np.array([-1, 0, 0, 1, 1, 2, 2, 2])
    v = np.array([1.0, 4, 9, 2, 3, 5, 1, 8])
    got = two_pass(parents, np.zeros(8), v)
    b = incidence(parents)
    leaf = 5
    weights = np.linalg.inv(b.T @ (b / v[:, None])) @ (b.T / v)
    errors = (rng.normal(size=(20_000, 8)) * np.sqrt(v)) @ (b @ weights)[leaf]
    sd = np.sqrt(2 / 20_000)
    assert abs(errors.var() / got.variance[leaf] - 1) < 4 * sd
    assert abs(1.1 * errors.var() / got.variance[leaf] - 1) > 4 * sd
