"""Two-pass estimates of whole histograms against dense generalised least squares."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.errors import ModelError, ReleaseError
from adversary.release.cells import two_pass_cells
from adversary.release.estimate import two_pass
from adversary.release.queries import Histogram

SMALL = Histogram(
    {"hhgq": 4, "votingage": 2, "hispanic": 2, "cenrace": 3}, {"hhinstlevels": ("hhgq", (0, 1, 1, 2))}
)
NAMES = (
    "total",
    "cenrace",
    "hispanic",
    "votingage",
    "hhinstlevels",
    "hhgq",
    "hispanic * cenrace",
    "detailed",
)
PARENTS = np.array([-1, 0, 0, 1, 1, 2, 3, 3, 4, 5, 5, 5])  # unit 2 > 5 and 4 > 8 are chains


def incidence(parents: np.ndarray) -> np.ndarray:
    leaves = np.setdiff1d(np.arange(parents.size), parents)
    out = np.zeros((parents.size, leaves.size))
    for i, leaf in enumerate(leaves):
        unit = leaf
        while unit >= 0:
            out[unit, i] = 1
            unit = parents[unit]
    return out


def problem(rng: np.random.Generator, active: np.ndarray | None = None) -> tuple:
    """Groups, answers, noise, truth and dense information of a random release of a small tree."""
    b = incidence(PARENTS)
    cells = rng.poisson(4, (b.shape[1], SMALL.cells)).astype(float)
    if active is not None:
        leaves = np.setdiff1d(np.arange(PARENTS.size), PARENTS)
        cells *= np.repeat(active[leaves], SMALL.cells // active.shape[1], axis=1)
    truth = b @ cells
    groups = [SMALL.group(n) for n in NAMES]
    sigma2 = rng.uniform(1, 60, (PARENTS.size, len(groups)))
    sigma2[8] = np.inf  # a bypassed block: its parent 4 has the budget
    sigma2[0, 0] = np.inf
    answers = [
        g.answer(truth)
        + rng.normal(size=(PARENTS.size, g.size)) * np.sqrt(np.where(np.isinf(s), 1, s))[:, None]
        for g, s in zip(groups, sigma2.T, strict=True)
    ]
    answers[1][8] = np.nan
    return groups, answers, sigma2, truth, b


def dense(
    groups: list, answers: list, sigma2: np.ndarray, b: np.ndarray, keep: np.ndarray, totals: dict
) -> tuple:
    """Estimates (units, cells) and covariance of leaves' cells under zeros and exact totals."""
    n, k = b.shape
    p = SMALL.cells
    h, r = np.zeros((k * p, k * p)), np.zeros(k * p)
    for i, g in enumerate(groups):
        q = g.matrix()
        for u in range(n):
            if np.isfinite(sigma2[u, i]):
                h += np.kron(np.outer(b[u], b[u]), q.T @ q / sigma2[u, i])
                r += np.kron(b[u], q.T @ answers[i][u] / sigma2[u, i])
    rows = [np.eye(k * p)[~keep]]
    rhs = [np.zeros((~keep).sum())]
    for unit, total in totals.items():
        rows.append(np.kron(b[unit], np.ones(p))[None])
        rhs.append(np.array([total]))
    c, d = np.concatenate(rows), np.concatenate(rhs)
    free = np.linalg.inv(h)
    x = free @ r
    if c.size:
        middle = np.linalg.pinv(c @ free @ c.T, rcond=1e-11, hermitian=True)
        gain = free @ c.T @ middle
        x = x + gain @ (d - c @ x)
        free = free - gain @ c @ free
    return b @ x.reshape(k, p), free


def compare(seed: int, active: np.ndarray | None, totals_of: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    groups, answers, sigma2, truth, b = problem(rng, active)
    totals = {u: float(truth[u].sum()) for u in totals_of}
    whole = () if active is None else ("votingage",)
    got = two_pass_cells(PARENTS, groups, answers, sigma2, active=active, totals=totals, whole=whole)
    leaves = np.setdiff1d(np.arange(PARENTS.size), PARENTS)
    keep = np.ones(leaves.size * SMALL.cells, bool)
    if active is not None:
        keep = np.repeat(active[leaves], SMALL.cells // active.shape[1], axis=1).ravel()
    estimate, cov = dense(groups, [np.nan_to_num(a) for a in answers], sigma2, b, keep, totals)
    np.testing.assert_allclose(got.cells(np.arange(PARENTS.size)), estimate, rtol=0, atol=1e-9)
    for name in ("total", "hhgq * cenrace", "hhinstlevels", "detailed"):
        q = SMALL.group(name).matrix()
        for unit in (0, 1, 4, 5, 6, 8, 11):
            m = np.kron(b[unit], q)
            np.testing.assert_allclose(
                got.variance(SMALL.group(name), unit)[0], np.diag(m @ cov @ m.T), rtol=1e-8, atol=1e-9
            )


@pytest.mark.parametrize("seed", [0, 1])
def test_two_passes_on_cells_equal_dense_least_squares(seed: int) -> None:
    compare(seed, None, ())


def structural_zeros() -> np.ndarray:
    rng = np.random.default_rng(9)
    active = np.zeros((PARENTS.size, 4, 2), bool)
    active[:, 0] = True
    active[:, 1:] = rng.random((PARENTS.size, 3, 2)) < 0.4
    active[:, 2, 0] = False  # no minors in the third kind
    return active.reshape(PARENTS.size, 8)


@pytest.mark.parametrize("seed", [2, 3])
def test_structural_zeros_are_conditioned_on_exactly(seed: int) -> None:
    active = structural_zeros()
    compare(seed, active, ())


@pytest.mark.parametrize("totals", [(0,), (0, 3), (3, 4), (1, 3, 4), (8,)])
def test_exact_totals_are_conditioned_on_exactly(totals: tuple[int, ...]) -> None:
    compare(4, None, totals)
    compare(5, structural_zeros(), totals)


def test_one_cell_is_the_scalar_estimate() -> None:
    rng = np.random.default_rng(6)
    h = Histogram({"all": 1})
    z, v = rng.normal(0, 9, PARENTS.size), rng.uniform(1, 9, PARENTS.size)
    got = two_pass_cells(PARENTS, [h.group("total")], [z[:, None]], v[:, None])
    scalar = two_pass(PARENTS, z, v)
    np.testing.assert_allclose(got.cells(np.arange(PARENTS.size))[:, 0], scalar.estimate, atol=1e-11)
    np.testing.assert_allclose(got.variance(h.group("total"), np.arange(PARENTS.size))[:, 0], scalar.variance)


def test_a_leaf_that_no_query_determines_is_named() -> None:
    g = [SMALL.group("hhgq")]
    with pytest.raises(ReleaseError, match="unit 6: its measurements do not determine"):
        two_pass_cells(PARENTS, g, [np.zeros((12, 4))], np.ones((12, 1)))


def test_totals_that_contradict_each_other_are_refused() -> None:
    groups, answers, sigma2, _, _ = problem(np.random.default_rng(7))
    with pytest.raises(ModelError, match=r"unit 1 is exactly 5, but what lies below it is exactly 6"):
        two_pass_cells(PARENTS, groups, answers, sigma2, totals={1: 5.0, 3: 2.0, 4: 4.0})
    with pytest.raises(ModelError, match="same blocks"):
        two_pass_cells(PARENTS, groups, answers, sigma2, totals={4: 5.0, 8: 4.0})


def test_an_answer_that_is_not_finite_is_named() -> None:
    groups, answers, sigma2, _, _ = problem(np.random.default_rng(8))
    answers[2][3, 0] = np.nan
    with pytest.raises(ReleaseError, match="unit 3: an answer to 'hispanic'"):
        two_pass_cells(PARENTS, groups, answers, sigma2)


def test_a_structural_zero_needs_its_axis_to_be_whole() -> None:
    groups, answers, sigma2, _, _ = problem(np.random.default_rng(8))
    with pytest.raises(ReleaseError, match="whole axes"):
        two_pass_cells(PARENTS, groups, answers, sigma2, active=np.ones((12, 8), bool))
