"""The exact posterior of a block against every block tried in turn; calibration with power; named ends."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from adversary.privacy.discrete_gaussian import sample
from adversary.reconstruction.constraints import UNBOUNDED
from adversary.reconstruction.households import OVER_LIMIT, SUBSIDISED
from adversary.reconstruction.noise import NoisyRows
from adversary.reconstruction.posterior import household_posterior

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
