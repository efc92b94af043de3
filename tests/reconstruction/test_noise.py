"""Noise on a block's tables: its law, its budgets, and what post-processing makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from adversary.errors import ModelError, ReleaseError
from adversary.privacy.budget import Allocation
from adversary.privacy.discrete_gaussian import log_pmf
from adversary.reconstruction.answers import Status
from adversary.reconstruction.constraints import Constraints, Queries
from adversary.reconstruction.households import Attribute, Configurations, household_configurations
from adversary.reconstruction.noise import (
    QUERY_OF_TABLE,
    NoisyRows,
    budget_2020,
    budget_uniform,
    measure,
    measure_hud,
    post_process,
)
from adversary.reconstruction.solve import Limits
from adversary.reconstruction.tables import (
    HUD_PERCENTS,
    census_queries,
    hud_constraints,
    hud_queries,
    printed_hud,
    publish_hud,
)
from tests.reconstruction.small_blocks import compositions

CENSUS = household_configurations(census_only=True)


def tiny() -> Queries:
    """Five queries over six configurations."""
    table = Configurations.product(
        Attribute("size", ("1", "2", "3"), (1, 2, 3)), Attribute("old", ("no", "yes"))
    )
    size, old = table.number("size"), table.labels("old") == "yes"
    rows = np.array([np.ones(6, np.int64), size == 1, size == 2, old, size], dtype=np.int64)
    names = ("H3", "H13", "H13", "P25", "P16")
    return Queries(table, rows, names, ("all", "1", "2", "yes", "persons"), ("household",) * 5)


def test_every_sigma_of_2020_is_that_of_its_production_query() -> None:
    queries = census_queries(CENSUS, "rich")
    sigma = np.sqrt(budget_2020(queries)).round(1)
    wanted = {"H3": 0.0, "H13": 25.8, "H7": 24.3, "P16": 30.2, "P19": 21.3, "P25": 25.8, "P28": 25.8}
    assert [wanted[name.split(" ")[0]] for name in queries.table] == sigma.tolist()
    # from the budgets as production prints them: sigma = rho to the power of minus a half, neighbours bounded
    for name, rho in {"H13": 0.0015, "H7": 0.0017, "P16": 0.0011, "P19": 0.0022}.items():
        allocation, query = QUERY_OF_TABLE[name]
        assert float(Allocation.load(allocation).rho("block", query)) == pytest.approx(rho)
        assert wanted[name] == round(rho**-0.5, 1)


def test_a_uniform_budget_of_a_tenth_over_twenty_rows_is_sigma_14() -> None:
    queries = census_queries(CENSUS)
    assert np.sqrt(budget_uniform(queries, "0.1", exact=())).round(2).tolist() == [14.14] * 20
    with_total = budget_uniform(queries, "0.1")
    assert with_total[0] == 0
    assert np.sqrt(with_total[1:]).round(2).tolist() == [13.78] * 19
    assert not budget_uniform(queries, "0.1", exact=set(queries.table)).any()


def test_budgets_that_cannot_be_are_refused() -> None:
    queries = census_queries(CENSUS)
    odd = Queries(CENSUS, queries.matrix[:1], ("P99",), ("all",), ("household",))
    with pytest.raises(ModelError, match="P99"):
        budget_2020(odd)
    with pytest.raises(ModelError, match="measures nothing"):
        budget_uniform(queries, 0)
    for sigma2 in (-1.0, np.nan):
        with pytest.raises(ReleaseError, match="sigma2 must be 0"):
            measure(queries, np.zeros(len(CENSUS), np.int64), sigma2, seed=1)


def draws(sigma2: float, n: int) -> np.ndarray:
    """Noise of n measurements of one count."""
    table = Configurations.product(Attribute("size", ("1",), (1,)))
    rows = np.ones((n, 1), np.int64)
    queries = Queries(table, rows, ("H13",) * n, ("1",) * n, ("household",) * n)
    _, noisy = measure(queries, [40], sigma2, seed=11)
    return np.asarray(noisy.values - 40)


def law_holds(noise: np.ndarray, sigma2: float) -> bool:
    """Chi square of the noise against a discrete Gaussian, in 40 classes of about equal probability."""
    support = np.arange(-2000, 2001)
    p = np.exp(log_pmf(support, sigma2))
    cell = np.minimum((40 * np.cumsum(p)).astype(int), 39)
    expected = np.bincount(cell, p, 40) * len(noise)
    seen = np.bincount(cell[np.clip(noise, -2000, 2000) + 2000], minlength=40)
    some = expected > 5
    statistic = ((seen - expected)[some] ** 2 / expected[some]).sum()
    return bool(statistic < chi2.ppf(0.999, some.sum() - 1))


@pytest.mark.parametrize("sigma2", [1 / 0.0015, 190.0, 4.0])
def test_the_noise_is_discrete_gaussian_and_ten_per_cent_more_would_be_seen(sigma2: float) -> None:
    noise = draws(sigma2, 20_000)
    assert law_holds(noise, sigma2)
    assert not law_holds(noise, 1.1 * sigma2)
    assert not law_holds(noise, 0.9 * sigma2)


def test_each_row_has_its_own_noise_and_exact_rows_have_none() -> None:
    queries = census_queries(CENSUS)
    block = CENSUS.histogram([[1, 1, 0, 0]] * 20 + [[3, 0, 1, 7]] * 5)
    truth, sigma2 = queries.answers(block), budget_2020(queries)
    runs = [measure(queries, block, sigma2, seed=s) for s in range(400)]
    assert all(exact.low.tolist() == exact.high.tolist() == [25] for exact, _ in runs)
    noise = np.array([noisy.values for _, noisy in runs]) - truth[1:]
    spread = noise.std(axis=0) / np.sqrt(sigma2[1:])
    assert (np.abs(spread - 1) < 4 / np.sqrt(800)).all()
    correlation = np.corrcoef(noise.T) - np.eye(19)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(400)
    again = measure(queries, block, sigma2, seed=3)[1]
    assert np.array_equal(again.values, runs[3][1].values)
    assert not np.array_equal(again.values, runs[4][1].values)


def test_what_is_not_asked_has_no_row() -> None:
    queries = tiny()
    exact, noisy = measure(queries, [1, 0, 2, 0, 0, 1], [0, 2.0, np.inf, 3.0, np.inf], seed=1)
    assert (exact.tables, noisy.table, noisy.cell) == (("H3",), ("H13", "P25"), ("1", "yes"))


def test_the_likelihood_of_noisy_rows_is_that_of_each_added_up() -> None:
    queries = tiny()
    _, noisy = measure(queries, [1, 0, 2, 0, 0, 1], [0, 2.0, 5.0, 3.0, 9.0], seed=2)
    blocks = compositions(4, 6)[:50]
    byhand = [
        sum(
            float(log_pmf(int(v - row @ x), s2))
            for v, row, s2 in zip(noisy.values, noisy.matrix, noisy.sigma2, strict=True)
        )
        for x in blocks
    ]
    np.testing.assert_allclose(noisy.log_likelihood(blocks), byhand)
    with pytest.raises(ReleaseError, match="positive and finite"):
        NoisyRows(
            noisy.configurations,
            noisy.matrix,
            noisy.values,
            np.zeros(len(noisy)),
            noisy.table,
            noisy.cell,
        )
    with pytest.raises(ModelError, match="must match"):
        NoisyRows(
            noisy.configurations,
            noisy.matrix,
            noisy.values[:2],
            noisy.sigma2,
            noisy.table,
            noisy.cell,
        )


@pytest.mark.parametrize("seed", range(12))
def test_post_processing_is_the_closest_block_of_all(seed: int) -> None:
    queries = tiny()
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    truth = rng.multinomial(n, np.full(6, 1 / 6))
    sigma2 = np.array([0.0, 4.0, 2.0, 9.0, 30.0])
    exact, noisy = measure(queries, truth, sigma2, seed=seed)
    shares = np.where(np.arange(6) == seed % 6, 0.0, 1.0) if seed % 3 == 0 else None
    found = post_process(exact, noisy, shares)
    every = compositions(n, 6)
    if shares is not None:
        every = every[(every[:, shares == 0] == 0).all(axis=1)]
    weight = np.rint(1000 / np.sqrt(noisy.sigma2))
    error = np.abs(every @ noisy.matrix.T - noisy.values) @ weight
    assert found.solution.status is Status.OPTIMAL
    assert found.solution.counts is not None
    assert found.solution.counts.sum() == n  # the invariant is exact
    assert found.solution.value == error.min()
    its = np.abs(noisy.matrix @ found.solution.counts - noisy.values) @ weight
    assert its == error.min()
    if shares is not None:
        assert found.solution.counts[shares == 0].sum() == 0


def test_without_noise_post_processing_gives_the_tables_back() -> None:
    queries = census_queries(CENSUS)
    block = CENSUS.histogram([[1, 1, 0, 0]] * 9 + [[3, 0, 1, 7]] * 2)
    exact, noisy = measure(queries, block, np.where(np.arange(20) == 0, 0.0, 1e-4), seed=1)
    found = post_process(exact, noisy)
    assert found.solution.counts is not None
    assert queries.answers(found.solution.counts).tolist() == queries.answers(block).tolist()
    assert found.missed == 0


def test_a_block_without_households_stays_one() -> None:
    queries = census_queries(CENSUS)
    empty = np.zeros(len(CENSUS), np.int64)
    exact, noisy = measure(queries, empty, budget_2020(queries), seed=5)
    assert (noisy.values < 0).any()
    found = post_process(exact, noisy)
    assert found.solution.status is Status.OPTIMAL
    assert found.solution.counts is not None
    assert found.solution.counts.sum() == 0


def test_exact_rows_that_clash_are_infeasible_not_mended() -> None:
    queries = tiny()
    sigma2 = np.array([0.0, 0.0, 2.0, 3.0, 4.0])
    exact, noisy = measure(queries, [2, 0, 1, 0, 0, 0], sigma2, seed=1)
    more_of_one = np.array([0, 5])  # five households of one person among three
    clashing = Constraints(
        exact.configurations,
        exact.matrix,
        exact.low + more_of_one,
        exact.high + more_of_one,
        exact.table,
        exact.cell,
    )
    found = post_process(clashing, noisy)
    assert found.solution.status is Status.INFEASIBLE
    assert found.solution.counts is None
    assert found.relaxed is None


def test_no_time_is_a_status() -> None:
    queries = census_queries(CENSUS)
    block = CENSUS.histogram([[1, 1, 0, 0]] * 30)
    exact, noisy = measure(queries, block, budget_2020(queries), seed=1)
    assert post_process(exact, noisy, limits=Limits(seconds=0)).solution.status is Status.TIME_LIMIT


def hud_block() -> tuple[Configurations, np.ndarray]:
    table = household_configurations()
    block = table.histogram([[1, 1, 1, 0, 0, 0]] * 25 + [[1, 2, 4, 2, 0, 7]] * 15 + [[0, 0, 2, 1, 1, 1]] * 10)
    return table, block


def test_a_noisy_hud_line_is_a_function_of_its_noisy_counts() -> None:
    table, block = hud_block()
    queries = hud_queries(table)
    lines = [measure_hud(table, block, 16.0, seed=s) for s in range(200)]
    for line, noisy in lines:
        n, people, *parts = noisy.values.tolist()
        assert line.number_reported == line.total_units == n >= 11
        assert line.people_per_unit == pytest.approx(max(people, n) / n, abs=0.05 + 1e-9)
        for name, y in zip(HUD_PERCENTS, parts, strict=True):
            assert line.percents[name] == pytest.approx(100 * min(max(y, 0), n) / n, abs=0.5 + 1e-9)
        hud_constraints(table, line)  # can be read
    noise = np.array([noisy.values for _, noisy in lines]) - queries.answers(block)
    assert (np.abs(noise.std(axis=0) / 4 - 1) < 0.2).all()
    assert (np.abs(noise.mean(axis=0)) < 4 * 4 / np.sqrt(200)).all()
    same, _ = measure_hud(table, block, 16.0, seed=7)
    assert same == lines[7][0]


def test_noise_can_suppress_a_property_and_print_no_impossible_percent() -> None:
    table, block = hud_block()
    assert publish_hud(table, block).number_reported == 40
    lines = [measure_hud(table, block, 40.0**2, seed=s)[0] for s in range(60)]
    reported = [line.number_reported for line in lines]
    assert -4 in reported
    assert max(reported) > 40
    printed = [p for line in lines for p in line.percents.values() if line.number_reported > 0]
    assert min(printed) == 0
    assert max(printed) == 100
    assert printed_hud([10, 90, *[0] * 9]).number_reported == -4
    assert printed_hud([11, 3, *[0] * 9]).people_per_unit == 1.0
