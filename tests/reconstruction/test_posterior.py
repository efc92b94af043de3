"""The exact posterior of a block against every block tried in turn; calibration with power; named ends."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from adversary import Prior, Release, load, run
from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy.discrete_gaussian import sample
from adversary.reconstruction.constraints import UNBOUNDED, Constraints
from adversary.reconstruction.households import (
    OVER_LIMIT,
    SUBSIDISED,
    Attribute,
    Configurations,
    from_xarray,
)
from adversary.reconstruction.noise import NoisyRows
from adversary.reconstruction.posterior import Effort, HouseholdPrior, household_posterior
from adversary.reconstruction.synthetic import StateShape, synthetic_state
from adversary.reconstruction.tables import census_queries
from adversary.results import AttackResult

from .small_blocks import compositions, small_block

LIKELIHOODS = ("exchangeable", "ordered")
SEEDS = range(20)


def log_prior(blocks, p, likelihood):
    """Log-probability of blocks of one size, given their number of households, written down anew."""
    n = int(blocks[0].sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.where(blocks > 0, blocks * np.log(p), 0.0).sum(axis=1)
    if likelihood == "ordered":
        everything = compositions(n, len(p))
        with np.errstate(divide="ignore", invalid="ignore"):
            every = np.where(everything > 0, everything * np.log(p), 0.0).sum(axis=1)
        return log_p - math.log(math.fsum(np.exp(every)))
    return log_p + math.lgamma(n + 1) - np.array([sum(math.lgamma(v + 1) for v in x) for x in blocks])


def noise(values, answers, sigma2):
    """Log of the discrete Gaussian, its constant summed out here."""
    far = np.arange(-400, 401)
    constants = np.array([math.log(math.fsum(np.exp(-(far**2) / (2 * s)))) for s in sigma2])
    return (-((values - answers) ** 2) / (2 * np.asarray(sigma2)) - constants).sum(axis=1)


def enumerated(rows, p, numbers, noisy=None, likelihood="exchangeable"):
    """Every block that meets the rows, its probability, and the log-evidence."""
    blocks, logs = [], []
    for n, chance in numbers.items():
        tried = compositions(n, len(p))
        answers = tried @ rows.matrix.T
        met = ((answers >= rows.low) & (answers <= rows.high)).all(axis=1) & (tried[:, p == 0] == 0).all(
            axis=1
        )
        if not met.any():
            continue
        blocks.append(tried[met])
        log = log_prior(tried[met], p, likelihood) + math.log(chance)
        if noisy is not None:
            log += noise(noisy.values, tried[met] @ noisy.matrix.T, noisy.sigma2)
        logs.append(log)
    blocks, log = np.vstack(blocks), np.concatenate(logs)
    top = log.max()
    evidence = top + math.log(math.fsum(np.exp(log - top)))
    return blocks, np.exp(log - evidence), evidence


def spoiled(rows, truth, seed):
    """Some rows widened to intervals, some with noise; at least one stays."""
    rng = np.random.default_rng(seed)
    kind = np.where(np.array(rows.table) == "H3", 0, rng.integers(0, 3, len(rows)))
    low = np.where(kind == 1, np.maximum(rows.low - rng.integers(0, 2, len(rows)), 0), rows.low)
    high = np.where((kind == 1) & (rows.high < UNBOUNDED), rows.high + 1, rows.high)
    soft = np.flatnonzero(kind == 2)
    sigma2 = rng.uniform(0.3, 6.0, soft.size)
    answers = rows.matrix[soft] @ truth
    names = tuple(rows.table[i] for i in soft), tuple(rows.cell[i] for i in soft)
    drawn = sample(sigma2, None, rng) if soft.size else np.zeros(0, np.int64)
    noisy = NoisyRows(rows.configurations, rows.matrix[soft], answers + drawn, sigma2, *names)
    return replace(rows, low=low, high=high).take(kind < 2), noisy


@cache
def case(seed, likelihood, spoil):
    rows, truth, shares = small_block(seed, n=3 + seed % 3, size=8)
    noisy = None
    if spoil:
        rows, noisy = spoiled(rows, truth, seed)
    if seed % 4 == 3:
        shares = np.where(np.arange(len(shares)) == int(np.flatnonzero(truth == 0)[0]), 0.0, shares)
    n = int(truth.sum())
    blocks, weight, evidence = enumerated(rows, shares / shares.sum(), {n: 1.0}, noisy, likelihood)
    found = household_posterior(rows, shares, noisy=noisy, likelihood=likelihood, draws=1500, seed=seed)
    return rows, blocks, weight, evidence, found


@pytest.mark.parametrize("spoil", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("seed", SEEDS)
def test_evidence_marginals_and_harm_are_those_of_every_block_tried_in_turn(seed, likelihood, spoil):
    rows, blocks, weight, evidence, found = case(seed, likelihood, spoil)
    assert found.method == "exact"
    assert found.sound
    assert found.log_evidence == pytest.approx(evidence, abs=1e-10)
    assert found.solutions == len(blocks)
    np.testing.assert_allclose(found.present, weight @ (blocks > 0), atol=1e-12)
    np.testing.assert_allclose(found.expected, weight @ blocks, atol=1e-12)
    for harm in (OVER_LIMIT, SUBSIDISED, {"size": "2"}, {"race": "hispanic", "children": ["0", "1"]}, None):
        number = blocks[:, rows.configurations.mask(harm)].sum(axis=1)
        law = np.bincount(number, weight)
        pmf = found.pmf(harm)
        np.testing.assert_allclose(pmf[: len(law)], law, atol=1e-12)
        assert abs(pmf[len(law) :]).sum() < 1e-12
        assert found.probability(harm) == pytest.approx(law[1:].sum(), abs=1e-12)
        assert found.expected_number(harm) == pytest.approx(weight @ number, abs=1e-12)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("seed", range(6))
def test_draws_are_independent_draws_of_the_posterior(seed, likelihood):
    rows, blocks, weight, _, found = case(seed, likelihood, True)
    drawn = found.draws[0]
    assert all(rows.satisfied_by(x) for x in drawn)
    hit = (drawn[:, None] == blocks).all(axis=2)
    assert hit.any(axis=1).all()
    times = hit.sum(axis=0)
    # blocks rare in expectation together, the others one by one
    rare = weight * len(drawn) < 5
    seen = np.append(times[~rare], times[rare].sum())
    wanted = np.append(weight[~rare], weight[rare].sum()) * len(drawn)
    kept = wanted > 0.5
    if kept.sum() > 1:
        assert stats.chisquare(seen[kept], wanted[kept] * seen[kept].sum() / wanted[kept].sum()).pvalue > 1e-4
        spun = np.roll(wanted[kept], 1)  # power: the right numbers in the wrong places are noticed
        if abs(spun - wanted[kept]).max() > 0.1 * len(drawn):
            assert stats.chisquare(seen[kept], spun * seen[kept].sum() / spun.sum()).pvalue < 1e-4


def test_the_cases_have_one_solution_and_many_and_the_two_likelihoods_differ():
    solutions = [case(seed, "exchangeable", spoil)[4].solutions for seed in SEEDS for spoil in (False, True)]
    assert min(solutions) == 1
    assert max(solutions) > 50
    change = [
        np.abs(case(seed, "exchangeable", True)[4].expected - case(seed, "ordered", True)[4].expected).max()
        for seed in SEEDS
    ]
    assert max(change) > 0.1


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_number_of_households_that_is_not_fixed_is_summed_over_its_prior(likelihood):
    rows, truth, shares = small_block(5, n=4, size=6)
    rows, noisy = spoiled(rows, truth, 5)
    numbers = {3: 0.2, 4: 0.5, 5: 0.3}
    loose = rows.without(["H3"])
    blocks, weight, evidence = enumerated(loose, shares / shares.sum(), numbers, noisy, likelihood)
    found = household_posterior(loose, shares, noisy=noisy, likelihood=likelihood, households=numbers)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-10)
    np.testing.assert_allclose(found.present, weight @ (blocks > 0), atol=1e-12)
    law = np.bincount(blocks.sum(axis=1), weight, minlength=6)
    np.testing.assert_allclose(found.pmf(None), law, atol=1e-12)
    assert (law[3:] > 0).sum() >= 2


def test_numbers_of_households_without_probability_are_not_blocks():
    """Between 1 and 3 households there are 2, which the prior rules out: they count for nothing."""
    cells = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
    row = np.array([[0, 0, 1, 1]])
    one_of_two = Constraints(cells, row, np.array([1]), np.array([1]), ("H13",), ("2",))
    found = household_posterior(one_of_two, [0.4, 0.1, 0.25, 0.25], households={1: 0.5, 3: 0.5})
    blocks = [b for n in (1, 3) for b in compositions(n, 4) if b[2] + b[3] == 1]
    assert found.solutions == len(blocks) == 2 + 6
    only_two = Constraints(cells, np.ones((1, 4), np.int64), np.array([2]), np.array([2]), ("H3",), ("all",))
    with pytest.raises(ModelError, match="no block of households"):  # was answered by nan
        household_posterior(only_two, [0.4, 0.1, 0.25, 0.25], households={1: 0.5, 3: 0.5})


def test_a_noisy_number_of_households_is_weighed_too():
    table = Configurations.product(Attribute("size", ("1", "2")))
    everything = np.ones((1, 2), dtype=np.int64)
    noisy = NoisyRows(table, everything, np.array([2]), np.array([1.5]), ("H3",), ("households",))
    none = Constraints(table, everything[:0], *(np.zeros(0, np.int64),) * 2, (), ())
    found = household_posterior(none, [0.3, 0.7], noisy=noisy, households=range(6))
    wanted = np.exp(-((np.arange(6) - 2) ** 2) / 3.0)
    np.testing.assert_allclose(found.pmf(None), wanted / wanted.sum(), atol=1e-12)
    np.testing.assert_allclose(found.expected, np.array([0.3, 0.7]) * (wanted @ np.arange(6) / wanted.sum()))


def test_configurations_that_no_row_tells_apart_share_what_their_class_holds_by_their_shares():
    table = Configurations.product(Attribute("size", ("1", "2")), Attribute("bedrooms", ("0-1", "2", "3+")))
    size = (table.labels("size") == "2").astype(np.int64)
    rows = Constraints(
        table, np.array([np.ones(6, np.int64), size]), *(np.array([5, 2]),) * 2, ("H3", "H13"), ("a", "2")
    )
    shares = np.array([0.2, 0.3, 0.1, 0.1, 0.1, 0.2])
    for likelihood in LIKELIHOODS:
        blocks, weight, evidence = enumerated(rows, shares, {5: 1.0}, None, likelihood)
        found = household_posterior(rows, shares, likelihood=likelihood, draws=20_000, seed=3)
        assert found.log_evidence == pytest.approx(evidence, abs=1e-10)
        assert found.solutions == len(blocks) == math.comb(5, 2) * math.comb(4, 2)
        np.testing.assert_allclose(found.expected, weight @ blocks, atol=1e-12)
        harmed = table.mask({"size": "2", "bedrooms": ["0-1", "2"]})
        law = np.bincount(blocks[:, harmed].sum(axis=1), weight)
        np.testing.assert_allclose(found.pmf(harmed), law, atol=1e-12)
        frequency = (found.draws[0][:, None] == blocks).all(axis=2).mean(axis=0)
        off = np.abs(frequency - weight).sum() / 2
        assert off < 2 * np.sqrt(weight * (1 - weight) / 20_000).sum() / 2
    ordered = household_posterior(rows, shares, likelihood="ordered").expected
    assert abs(ordered - household_posterior(rows, shares).expected).max() > 0.01


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_prior_is_what_is_left_when_only_the_number_is_published(likelihood):
    rows, _, shares = small_block(2, n=4, size=7)
    p = shares / shares.sum()
    prior = HouseholdPrior(rows.configurations, p, likelihood, {3: 0.25, 4: 0.75})
    none = rows.take(np.zeros(len(rows), dtype=bool))
    blocks, weight, evidence = enumerated(none, p, {3: 0.25, 4: 0.75}, None, likelihood)
    assert evidence == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(prior.present, weight @ (blocks > 0), atol=1e-12)
    np.testing.assert_allclose(prior.expected, weight @ blocks, atol=1e-12)
    for harm in (OVER_LIMIT, SUBSIDISED):
        law = np.bincount(blocks[:, rows.configurations.mask(harm)].sum(axis=1), weight, minlength=5)
        np.testing.assert_allclose(prior.pmf(harm), law, atol=1e-12)
    found = household_posterior(none, shares, likelihood=likelihood, households={3: 0.25, 4: 0.75})
    assert found.log_evidence == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(found.present, prior.present, atol=1e-12)
    assert found.risk(OVER_LIMIT) == pytest.approx(1.0)


def test_cells_are_the_marginals_of_a_coarser_table():
    rows, blocks, weight, _, found = case(1, "exchangeable", True)
    cells = found.cells(["size", "race"], within=SUBSIDISED)
    cell, table = rows.configurations.cells(["size", "race"])
    its = rows.configurations.mask(SUBSIDISED)
    assert len(cells.cells) == len(table)
    for g in range(len(table)):
        number = blocks[:, its & (cell == g)].sum(axis=1)
        assert cells.present[g] == pytest.approx(weight @ (number > 0), abs=1e-12)
        assert cells.expected[g] == pytest.approx(weight @ number, abs=1e-12)
    occupied = cells.prior_present > 0
    np.testing.assert_allclose(cells.risk[occupied], cells.present[occupied] / cells.prior_present[occupied])


def test_a_rare_harm_keeps_its_digits():
    table = Configurations.product(Attribute("size", ("1", "2", "3")))
    rows = Constraints(table, np.ones((1, 3), np.int64), *(np.array([30]),) * 2, ("H3",), ("households",))
    found = household_posterior(rows, [0.5, 0.5, 1e-18])
    assert found.probability({"size": "3"}) == pytest.approx(30e-18, rel=1e-9)
    assert found.pmf({"size": "3"})[2] == pytest.approx(math.comb(30, 2) * 1e-36, rel=1e-9)


def test_blocks_of_almost_impossible_households_do_not_underflow():
    table = Configurations.product(Attribute("size", tuple(str(z) for z in range(40))))
    rows = Constraints(
        table, np.eye(40, dtype=np.int64), *(np.full(40, 2),) * 2, ("H13",) * 40, table.labels("size")
    )
    p = np.full(40, 1e-9)
    p[0] = 1 - p[1:].sum()
    found = household_posterior(rows, p)
    wanted = math.lgamma(81) - 40 * math.log(2) + 2 * np.log(p).sum()
    assert wanted < -1300
    assert found.log_evidence == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(found.expected, 2.0)


def test_no_households_and_one_solution_are_answers():
    rows, truth, shares = small_block(4)
    queries = census_queries(rows.configurations)
    empty = household_posterior(queries.constraints(queries.answers(truth * 0)), shares)
    assert empty.present.tolist() == [0.0] * len(shares)
    assert (empty.solutions, empty.probability(None), empty.log_evidence) == (1.0, 0.0, 0.0)
    assert empty.draws.shape == (1, 1000, len(shares))
    assert empty.draws.sum() == 0
    assert empty.prior.probability(None) == 0.0
    fixed = Constraints(
        rows.configurations,
        np.eye(len(truth), dtype=np.int64),
        truth,
        truth,
        ("H",) * len(truth),
        ("c",) * len(truth),
    )
    only = household_posterior(fixed, shares)
    assert only.solutions == 1.0
    assert (only.draws[0] == truth).all()


def test_rows_that_clash_are_named():
    pytest.importorskip("highspy")
    table = Configurations.product(Attribute("size", ("1", "2", "3"), (1, 2, 3)))
    matrix = np.array([[1, 1, 1], [1, 2, 3], [1, 0, 0]])
    rows = Constraints(
        table, matrix, *(np.array([4, 11, 2]),) * 2, ("H3", "P16", "H13"), ("all", "people", "1 person")
    )
    with pytest.raises(ModelError, match=r"no block of households .* P16 people") as caught:
        household_posterior(rows, [0.3, 0.4, 0.3])
    assert set(caught.value.value.tables) == {"H3", "P16", "H13"}
    assert caught.value.value.irreducible
    fine = replace(rows, low=np.array([4, 8, 2]), high=np.array([4, 8, 2]))
    household_posterior(fine, [0.3, 0.4, 0.3])
    with pytest.raises(ModelError, match="shares above 0"):
        household_posterior(replace(rows, low=np.array([4, 6, 2]), high=np.array([4, 6, 2])), [0.3, 0.0, 0.7])


def test_what_cannot_be_asked_is_refused_with_a_way_out():
    rows, _, shares = small_block(3)
    loose = rows.without(["H3"]).without([t for t in rows.tables if t in ("H13", "H7")])
    with pytest.raises(ModelError, match="give households="):
        household_posterior(loose, shares)
    for wrong in (shares[1:], shares * 0, -shares, shares * np.nan):
        with pytest.raises(ModelError, match="shares of shape"):
            household_posterior(rows, wrong)
    for wrong in ({2: 0.5}, range(0), -1, 3.5, {2: 1.5, 3: -0.5}, 10**6):
        with pytest.raises(ModelError, match="household"):
            household_posterior(rows, shares, households=wrong)
    for options in ({"method": "guess"}, {"likelihood": "flat"}):
        with pytest.raises(ModelError, match="choose of"):
            household_posterior(rows, shares, **options)
    with pytest.raises(ModelError, match="cannot be"):
        Effort(states=0)


def test_the_limit_of_states_and_of_memory_is_kept_and_said():
    state = synthetic_state(StateShape(blocks=20, smallest=8, largest=10, violating=0.1), seed=4)
    table, counts = state.configurations(1), state.counts(1)
    queries = census_queries(table)
    rows = queries.constraints(queries.answers(counts))
    shares = state.shares(table)
    full = household_posterior(rows, shares, method="exact", draws=10)
    states = full._graph.states
    assert states > 50
    assert household_posterior(rows, shares, method="exact", draws=10, effort=Effort(states=states)).sound
    for effort in (Effort(states=states - 1), Effort(megabytes=1e-3)):
        with pytest.raises(UnsupportedModelError, match="tempering"):
            household_posterior(rows, shares, method="exact", effort=effort)


def test_the_same_seed_gives_the_same_draws():
    rows, _, shares = small_block(1)
    first, again, other = (household_posterior(rows, shares, draws=50, seed=s).draws for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    streams = [np.random.default_rng(3), np.random.SeedSequence(3)]
    assert [household_posterior(rows, shares, draws=5, seed=s).draws.shape for s in streams] == [
        (1, 5, 9)
    ] * 2


def test_the_tree_is_one_that_every_attack_has(tmp_path):
    seed = next(i for i in SEEDS if 0.1 < case(i, "exchangeable", True)[4].probability(OVER_LIMIT) < 0.9)
    rows, blocks, weight, _, found = case(seed, "exchangeable", True)
    result = AttackResult(found.to_tree(OVER_LIMIT))
    harmed = blocks[:, rows.configurations.mask(OVER_LIMIT)].sum(axis=1)
    assert result.is_event
    assert result.posterior == pytest.approx(weight @ (harmed > 0), abs=1e-12)
    assert result.prior == pytest.approx(found.prior.probability(OVER_LIMIT), abs=1e-12)
    assert float(result.risk) == pytest.approx(found.risk(OVER_LIMIT))
    assert result.log_odds == pytest.approx(math.log(result.posterior / (1 - result.posterior)), abs=1e-9)
    assert result.sampler == "exact"
    assert all(check.passed is not False for check in result.checks)
    assert len(result.release) == int((rows.low == rows.high).sum()) + len(found.noisy)
    table, drawn = from_xarray(result.tree["posterior"]["households"])
    assert table.names == rows.configurations.names
    assert (drawn == found.draws).all()
    assert (result.values("exact", "harmed") == found.pmf(OVER_LIMIT)).all()
    assert "present: " in result.summary()["target"]
    loaded = AttackResult.load(result.save(tmp_path / "block.nc"))
    assert loaded.posterior == result.posterior
    assert loaded.summary() == result.summary()


def places(rule, harms, simulations, factor, seed):
    """Randomised places of true counts in their posteriors; the data's noise is ``factor`` times what is assumed."""
    rng = np.random.default_rng(seed)
    table, p, n, exact, soft, sigma2 = rule
    out = np.empty((simulations, len(harms)))
    names = [("R",) * len(a) for a in (exact, soft)]
    for i in range(simulations):
        truth = rng.multinomial(n, p)
        values = soft @ truth + sample(sigma2 * factor, None, rng)
        rows = Constraints(table, exact, exact @ truth, exact @ truth, names[0], names[0])
        noisy = NoisyRows(table, soft, values, sigma2, names[1], names[1])
        found = household_posterior(rows, p, noisy=noisy, draws=1)
        for j, harm in enumerate(harms):
            law, at = found.pmf(harm), int(truth[harm].sum())
            out[i, j] = law[:at].sum() + rng.random() * law[at]
    return out


def spread(places):
    """Two-sided p-value of the sum of squared normal scores: the spread of places against a uniform one."""
    scores = float((stats.norm.ppf(np.clip(places, 1e-12, 1 - 1e-12)) ** 2).sum())
    return 2 * min(stats.chi2.sf(scores, len(places)), stats.chi2.cdf(scores, len(places)))


def test_true_counts_fall_anywhere_in_their_posterior():
    home = Attribute("home", ("own", "rent"))
    table = Configurations.product(Attribute("size", ("1", "2", "3"), (1, 2, 3)), home)
    p, size = np.array([0.2, 0.1, 0.2, 0.15, 0.2, 0.15]), table.number("size")
    rents = (table.labels("home") == "rent").astype(np.int64)
    exact = np.array([np.ones(6, np.int64), size])
    soft = np.array([rents, (size == 3) * rents, (size == 2).astype(np.int64)])
    rule = (table, p, 12, exact, soft, np.array([2.0, 3.0, 1.5]))
    for column in places(rule, (rents == 1, (size == 3) & (rents == 1)), 300, 1.0, 1).T:
        assert stats.kstest(column, "uniform").pvalue > 0.005
        assert spread(column) > 0.005


def test_noise_wrong_by_a_fifth_is_found_by_calibration():
    """Four streets of forty households, a noisy count in each: the noise, not the prior, makes the width."""
    street, home = Attribute("street", ("a", "b", "c", "d")), Attribute("home", ("own", "rent"))
    table = Configurations.product(street, home)
    rents = table.labels("home") == "rent"
    of = table.codes[:, 0] == np.arange(4)[:, None]
    rule = (
        table,
        np.full(8, 1 / 8),
        160,
        of.astype(np.int64),
        (of & rents).astype(np.int64),
        np.full(4, 1.5),
    )
    harms = tuple(of & rents)
    right, wrong = (places(rule, harms, 400, factor, 2).ravel() for factor in (1.0, 1.2))
    assert spread(right) > 0.005
    assert stats.kstest(right, "uniform").pvalue > 0.005
    assert spread(wrong) < 1e-4


def declared():
    """The scenario's kinds of households as configurations, its release as rows."""
    shares = np.array([0.3, 0.2, 0.3, 0.1, 0.1])
    table = Configurations.product(Attribute("kind", tuple("01234")))
    matrix = np.array([[1, 1, 1, 1, 1], [1, 1, 3, 3, 3], [0, 1, 0, 1, 1], [0, 1, 0, 3, 3], [0, 1, 0, 0, 1]])
    names = ("households", "people", "subsidised", "people_subsidised", "one_bedroom")
    return table, shares, matrix, names


@pytest.mark.parametrize("exact", [0, 1, 2])
def test_a_block_declared_in_pymc_has_the_same_posterior(exact):
    """The declared scenario, summed out by the exact engine, with none, one and two of its tables exact."""
    table, shares, matrix, names = declared()
    values, sigma2 = np.array([4, 8, 2, 5, 1]), np.array([0.0, 3.0, 1.0, 2.0, 1.5])
    sigma2[1 : 1 + exact] = 0.0
    counts = {name: int(v) for name, v in zip(names[1:], values[1:], strict=True)}
    release = Release.from_counts(counts, sigma2=dict(zip(names[1:], sigma2[1:].tolist(), strict=True)))
    scenario = load("reconstruction").assuming(kind=Prior("Categorical", p=shares, dims="household"))
    answer = run(scenario, release, draws=0)
    firm = sigma2 == 0
    some = [tuple(np.array(names)[which]) for which in (firm, ~firm)]
    rows = Constraints(table, matrix[firm], values[firm], values[firm], some[0], some[0])
    noisy = NoisyRows(table, matrix[~firm], values[~firm], sigma2[~firm], some[1], some[1])
    found = household_posterior(rows, shares, noisy=noisy)
    blocks, weight, _ = enumerated(rows, shares, {4: 1.0}, noisy)
    assert found.probability({"kind": "4"}) == pytest.approx(weight @ (blocks[:, 4] > 0), abs=1e-12)
    assert answer.posterior == pytest.approx(found.probability({"kind": "4"}), abs=1e-10)
    assert answer.prior == pytest.approx(found.prior.probability({"kind": "4"}), abs=1e-10)
    assert 0.05 < answer.posterior < 0.95
