"""The posterior of synthetic blocks: exact where dynamic programming reaches, sampled with a verdict beyond.

Synthetic households only. Not in the default run: ``make bench``.
"""

import time

import numpy as np
import pytest

from adversary.errors import UnsupportedModelError
from adversary.reconstruction._diagnostics import ess
from adversary.reconstruction.beliefs import attacker_shares, bedrooms_given_size
from adversary.reconstruction.constraints import combine
from adversary.reconstruction.households import OVER_LIMIT
from adversary.reconstruction.posterior import Effort, household_posterior
from adversary.reconstruction.synthetic import BEDROOMS_TO_NEED, StateShape, synthetic_state
from adversary.reconstruction.tables import census_queries, hud_constraints, publish_hud


def blocks(smallest, largest, number):
    """Rows of census tables and HUD's file, what she believes, and the block."""
    shape = StateShape(blocks=60, smallest=smallest, largest=largest, violating=0.12)
    state = synthetic_state(shape, seed=4)
    for b in range(number):
        table, counts = state.configurations(b), state.counts(b)
        queries = census_queries(table)
        homes = [str(j) for j in range(1, int(state.homes[b]) + 1)]
        parts = [hud_constraints(table, publish_hud(table, counts, home), home) for home in homes]
        rows = combine(queries.constraints(queries.answers(counts)), *parts)
        beliefs = bedrooms_given_size(BEDROOMS_TO_NEED, 0.1)
        yield rows, attacker_shares(table, state.shares(table), bedrooms=beliefs), counts


def test_small_blocks_exactly(benchmark):
    times, states, solutions, refused = [], [], [], 0
    cases = list(blocks(8, 12, 16))
    for rows, shares, counts in cases:
        start = time.process_time()
        try:
            found = household_posterior(rows, shares, method="exact", draws=1000, seed=1)
        except UnsupportedModelError:
            refused += 1
            continue
        times.append(time.process_time() - start)
        states.append(found._graph.states)
        solutions.append(found.solutions)
        n = int(counts.sum())
        assert found.expected.sum() == pytest.approx(n, rel=1e-9)
        p = found.present
        off = (found.draws[0] > 0).mean(axis=0) - p
        z = off[p > 0.02] / np.sqrt(np.maximum(p * (1 - p), 1e-9) / 1000)[p > 0.02]
        assert np.abs(z).max() < 6
    benchmark.pedantic(lambda: household_posterior(*cases[0][:2], draws=100), rounds=3)
    middle, high = np.quantile(times, [0.5, 0.9])
    benchmark.extra_info[
        "posterior of a block of 8-12 households, exact (median, 90 %; 16 synthetic blocks)"
    ] = (
        f"{middle:.2f} s, {high:.1f} s; {np.median(states):,.0f} states, {np.median(solutions):.1e} blocks meet the"
        f" rows; {refused} of {len(cases)} need more than {Effort().states:,} states"
    )
    assert len(times) > len(cases) / 2


@pytest.mark.parametrize("households", [20, 40])
def test_larger_blocks_sampled(benchmark, households):
    rows, shares, counts = next(blocks(households, households + 1, 1))
    effort = Effort(doublings=0)
    household_posterior(rows, shares, method="tempering", effort=Effort(sweeps=300))  # compiles
    start = time.process_time()
    found = household_posterior(rows, shares, method="tempering", seed=2, effort=effort)
    seconds = time.process_time() - start
    assert rows.satisfied_by(found.draws[0, -1])
    there = (found.draws > 0).astype(float)
    share = there.mean(axis=(0, 1))
    size = [ess(there[..., k]) for k in np.flatnonzero((share > 0.05) & (share < 0.95))]
    benchmark.pedantic(lambda: found.pmf(OVER_LIMIT), rounds=3)
    benchmark.extra_info[f"posterior of a synthetic block of {int(counts.sum())} households, sampled"] = (
        f"{seconds:.0f} s, ess {np.median(size):,.0f} of {there.shape[0] * there.shape[1]:,} draws (median over"
        f" configurations; least {min(size):,.0f}); {'; '.join(c.text for c in found.checks[:2])}"
    )
