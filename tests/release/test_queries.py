"""Query groups, strategies and the matrix mechanism against dense matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from adversary.errors import BudgetError, ReleaseError
from adversary.release.queries import PL94_PERSONS, Histogram, Reduction, Strategy, wls, wls_variance

SMALL = Histogram(
    {"hhgq": 4, "votingage": 2, "hispanic": 2, "cenrace": 5}, {"hhinstlevels": ("hhgq", (0, 1, 1, 2))}
)
NAMES = (
    "total",
    "cenrace",
    "hispanic",
    "votingage",
    "hhinstlevels",
    "hhgq",
    "hispanic * cenrace",
    "votingage * cenrace",
    "votingage * hispanic",
    "votingage * hispanic * cenrace",
    "detailed",
)


@pytest.mark.parametrize("name", NAMES)
def test_answers_and_their_transpose_are_those_of_the_matrix(name: str) -> None:
    rng = np.random.default_rng(1)
    group = SMALL.group(name)
    q = group.matrix()
    assert q.shape == (group.size, SMALL.cells)
    assert (q.sum(axis=0) == 1).all()  # every person counts once: sensitivity 1
    x = rng.integers(0, 9, (3, SMALL.cells))
    np.testing.assert_array_equal(group.answer(x), x @ q.T.astype(int))
    assert group.answer(x).dtype.kind == "i"
    z = rng.normal(size=(3, group.size))
    np.testing.assert_allclose(group.transpose(z), z @ q)


def test_the_eleven_queries_of_the_redistricting_data_measure_2603_numbers() -> None:
    assert sum(PL94_PERSONS.group(f"{name}_dpq").size for name in NAMES) == 2603


def test_rotated_information_is_the_dense_information() -> None:
    rng = np.random.default_rng(2)
    groups = [SMALL.group(n) for n in NAMES]
    for whole in ((), ("votingage",), ("cenrace", "hispanic")):
        reduction = Reduction(groups, whole)
        sigma2 = rng.uniform(1, 60, len(groups))
        x = rng.normal(size=(2, SMALL.cells))
        parts = reduction.split(x)
        np.testing.assert_allclose(reduction.join(parts), x, atol=1e-13)
        product = reduction.join({q: reduction.blocks(1 / sigma2, q) @ part for q, part in parts.items()})
        wanted = sum(x @ g.matrix().T @ g.matrix() / s for g, s in zip(groups, sigma2, strict=True))
        np.testing.assert_allclose(product, wanted, atol=1e-11)


def test_wls_and_its_variance_are_those_of_dense_algebra() -> None:
    rng = np.random.default_rng(3)
    groups = [SMALL.group(n) for n in NAMES]
    sigma2 = rng.uniform(1, 60, len(groups))
    w = [g.matrix() for g in groups]
    information = sum(m.T @ m / s for m, s in zip(w, sigma2, strict=True))
    answers = [rng.normal(0, 9, g.size) for g in groups]
    cov = np.linalg.inv(information)
    wanted = cov @ sum(m.T @ z / s for m, z, s in zip(w, answers, sigma2, strict=True))
    np.testing.assert_allclose(wls(groups, answers, sigma2), wanted, atol=1e-10)
    workload = [
        SMALL.group(n)
        for n in ("total", "hhinstlevels", "hhgq * cenrace", "hhinstlevels * hispanic", "detailed")
    ]
    for group, got in zip(workload, wls_variance(workload, groups, sigma2), strict=True):
        m = group.matrix()
        np.testing.assert_allclose(got, np.diag(m @ cov @ m.T), rtol=1e-10)


def test_a_workload_may_recode_what_the_strategy_asks_whole() -> None:
    detailed = SMALL.group("detailed")
    (got,) = wls_variance([SMALL.group("hhinstlevels")], [detailed], [2.0])
    np.testing.assert_allclose(got, [2 * 20, 2 * 40, 2 * 20])


def test_queries_that_leave_cells_open_are_refused() -> None:
    with pytest.raises(ReleaseError, match="undetermined"):
        wls([SMALL.group("hhgq")], [[1, 2, 3, 4]], [1.0])


def test_a_strategy_is_exact_and_its_noise_is_one_over_rho_share_alpha() -> None:
    strategy = Strategy(SMALL, {"total": "1/3", "detailed": "2/3"})
    assert strategy.sigma2(Fraction(5, 2), "1/7") == {"total": Fraction(42, 5), "detailed": Fraction(21, 5)}
    assert strategy.sigma2(1, 1, "unbounded")["total"] == Fraction(3, 2)
    assert strategy.separating(0, 1) == Fraction(2, 3)
    assert strategy.separating(0, 0) == 0
    s = strategy.matrix(2)
    assert np.square(s).sum(axis=0) == pytest.approx(np.full(SMALL.cells, 2.0))  # rho per person's cell


def test_two_cells_are_separated_by_the_queries_whose_answers_differ() -> None:
    strategy = Strategy(SMALL, {n: Fraction(1, len(NAMES)) for n in NAMES})
    rng = np.random.default_rng(4)
    for cell, other in rng.integers(0, SMALL.cells, (40, 2)):
        differ = sum((m[:, cell] != m[:, other]).any() for m in (g.matrix() for g in strategy.groups))
        assert strategy.separating(int(cell), int(other)) == Fraction(int(differ), len(NAMES))


@pytest.mark.parametrize(
    ("alphas", "text"), [({"total": "1/2"}, "sum to 1, got 1/2"), ({"total": 2, "hhgq": -1}, ">= 0")]
)
def test_fractions_that_are_no_strategy_are_refused(alphas: dict, text: str) -> None:
    with pytest.raises(BudgetError, match=text):
        Strategy(SMALL, alphas)


def test_an_unmeasured_unit_has_no_noise_to_speak_of() -> None:
    with pytest.raises(BudgetError, match="was not measured"):
        Strategy(SMALL, {"total": 1}).sigma2(1, 0)


def test_an_unknown_query_names_what_there_is() -> None:
    with pytest.raises(ReleaseError, match=r"'race' is unknown .* hhinstlevels, total, detailed"):
        SMALL.group("race")
    with pytest.raises(ReleaseError, match="twice"):
        SMALL.group("hhgq * hhinstlevels")
