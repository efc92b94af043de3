"""Parallel tempering over slack against dynamic programming; where local moves fail; verdicts that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.errors import ModelError, SamplingError, UnsupportedModelError
from adversary.reconstruction import _sampled
from adversary.reconstruction._diagnostics import ess, split_r_hat
from adversary.reconstruction._reduced import Weights, households_prior, reduce
from adversary.reconstruction._tempering import Chain, Moves, Plan, respaced, run_chain
from adversary.reconstruction.constraints import Constraints
from adversary.reconstruction.households import OVER_LIMIT, Attribute, Configurations
from adversary.reconstruction.noise import NoisyRows
from adversary.reconstruction.posterior import Effort, household_posterior
from adversary.results import AttackResult

from .small_blocks import small_block
from .test_posterior import enumerated, spoiled


def reduced(rows, shares, numbers, noisy=None, *, ordered=False):
    p = np.asarray(shares) / np.sum(shares)
    return reduce(rows, noisy, Weights(ordered, p), households_prior(numbers))


def islands(copies=1):
    """Rows whose two kinds of blocks differ in four households at once, so that exchanges of three do not connect them.

    Three yes-or-no attributes; every margin of pairs of attributes is published, as in a 2 x 2 x 2 table with
    all two-way margins: the four even corners or the four odd ones.
    """
    table = Configurations.product(*(Attribute(name, ("0", "1")) for name in "abc"))
    pairs = [(0, 1), (0, 2), (1, 2)]
    matrix = np.array(
        [
            (table.codes[:, i] == u) & (table.codes[:, j] == v)
            for i, j in pairs
            for u in (0, 1)
            for v in (0, 1)
        ]
    ).astype(np.int64)
    truth = (table.codes.sum(axis=1) % 2 == 0).astype(np.int64) * copies
    ends = matrix @ truth
    names = tuple(f"{'abc'[i]}{'abc'[j]}" for i, j in pairs for _ in range(4))
    rows = Constraints(table, matrix, ends, ends, names, tuple(str(i % 4) for i in range(12)))
    return rows, truth, np.array([0.30, 0.06, 0.10, 0.12, 0.08, 0.12, 0.12, 0.10])


def pieces(blocks, exchanged):
    """Number of sets of blocks that exchanges of so many households do not connect."""
    near = np.abs(blocks[:, None] - blocks[None]).sum(axis=2) <= 2 * exchanged
    label = np.arange(len(blocks))
    for _ in range(len(blocks)):
        label = np.where(near, label, len(blocks)).min(axis=1)
    return len(set(label.tolist()))


def agrees(found, exact, limit=4.5):
    """Largest difference of presence in Monte Carlo standard errors, of configurations that may or may not be there."""
    there = (found.draws > 0).astype(float)
    p = exact.present
    z = [
        abs(there[..., k].mean() - p[k]) / np.sqrt(p[k] * (1 - p[k]) / ess(there[..., k]))
        for k in np.flatnonzero((p > 0.03) & (p < 0.97))
    ]
    rare = np.flatnonzero((p <= 0.03) | (p >= 0.97))
    assert np.abs(there[..., rare].mean(axis=(0, 1)) - p[rare]).max(initial=0) < 0.03
    return max(z, default=0.0) < limit


def distance(first, second):
    """Total variation between two laws on 0, 1, 2, ..."""
    law = np.zeros((2, max(len(first), len(second))))
    law[0, : len(first)], law[1, : len(second)] = first, second
    return np.abs(law[0] - law[1]).sum() / 2


def random_case(seed):
    """Exact, interval and noisy rows, both likelihoods, fixed and open numbers of households, in turn."""
    rows, truth, shares = small_block(seed, n=3 + seed % 4, size=8)
    noisy = None
    if seed % 3:
        rows, noisy = spoiled(rows, truth, seed)
    options = {"noisy": noisy, "likelihood": ("exchangeable", "ordered")[seed % 2]}
    if seed % 4 == 1:
        rows, n = rows.without(["H3"]), int(truth.sum())
        options["households"] = range(n - 1, n + 2)
    return rows, shares, options


def islands_case(seed):
    rows, _, shares = islands(1 + seed % 3)
    return rows, np.roll(shares, seed), {"likelihood": ("exchangeable", "ordered")[seed % 2]}


def check(case, seed):
    rows, shares, options = case
    exact = household_posterior(rows, shares, method="exact", **options)
    found = household_posterior(
        rows, shares, method="tempering", seed=seed, effort=Effort(sweeps=600), **options
    )
    assert found.method == "tempering"
    assert found.sound
    for x in found.draws.reshape(-1, len(shares))[::50]:
        assert rows.satisfied_by(x)
    assert agrees(found, exact)
    for harm in (OVER_LIMIT, None) if "property" in rows.configurations.names else (None,):
        assert distance(found.pmf(harm), exact.pmf(harm)) < 0.08
    return np.abs(found.expected - exact.expected).sum() / max(exact.expected.sum(), 1)


@pytest.mark.parametrize("seed", range(4))
def test_tempering_is_dynamic_programming_within_its_own_error(seed):
    check(random_case(seed), seed)


THIRTY = [random_case(seed) for seed in range(4, 25)] + [islands_case(seed) for seed in range(9)]


@pytest.mark.slow
@pytest.mark.parametrize("third", range(3))
def test_on_thirty_blocks_tempering_is_dynamic_programming_within_its_own_error(third):
    """Twenty-one random blocks and nine that local moves leave in pieces, ten a time."""
    off = [check(case, seed) for seed, case in list(enumerate(THIRTY))[third::3]]
    assert len(THIRTY) == 30
    assert np.mean(off) < 0.04


def test_local_moves_leave_the_feasible_blocks_in_pieces_and_tempering_does_not():
    rows, truth, shares = islands()
    blocks, weight, _ = enumerated(rows, shares, {4: 1.0})
    assert len(blocks) == 2
    assert [pieces(blocks, k) for k in (1, 2, 3, 4)] == [2, 2, 2, 1]
    # a chain that never leaves the rows: the top rung alone, so steep that nothing infeasible survives
    moves = Moves.of(reduced(rows, shares, 4))
    start = np.repeat(
        [int(np.flatnonzero([k in m for m in reduced(rows, shares, 4).members])[0]) for k in range(8)], truth
    )
    local = run_chain(moves, Plan(500, 500, rungs=1, steepest=500.0), np.random.default_rng(1), start=start)
    assert local.feasible == 1.0
    assert (local.counts == local.counts[0]).all()  # it stays where it began
    found = household_posterior(rows, shares, method="tempering", seed=2, effort=Effort(sweeps=600))
    assert found.sound
    share = (found.draws == blocks[0]).all(axis=-1).mean()
    assert 0.05 < weight[0] < 0.95
    assert share == pytest.approx(weight[0], abs=0.06)


def test_more_copies_make_more_islands_and_tempering_visits_all():
    rows, _, shares = islands(3)
    blocks, weight, _ = enumerated(rows, shares, {12: 1.0})
    assert pieces(blocks, 3) == len(blocks) == 4
    found = household_posterior(rows, shares, method="tempering", seed=3, effort=Effort(sweeps=800))
    frequency = (found.draws[..., None, :] == blocks).all(axis=-1).mean(axis=(0, 1))
    assert found.sound
    assert np.abs(frequency - weight).sum() / 2 < 0.08
    assert weight.max() < 0.9


def test_the_same_seed_gives_the_same_blocks_and_another_gives_others():
    rows, _, shares = islands()
    effort = Effort(sweeps=200, chains=2, doublings=0)
    first, again, other = (
        household_posterior(rows, shares, method="tempering", seed=s, effort=effort).draws for s in (4, 4, 5)
    )
    assert (first == again).all()
    assert first.shape != other.shape or (first != other).any()


def test_the_tree_of_a_sampled_posterior_has_its_error():
    rows, shares, options = random_case(2)
    found = household_posterior(
        rows, shares, method="tempering", seed=1, effort=Effort(sweeps=600), **options
    )
    exact = household_posterior(rows, shares, **options)
    k = int(np.argmin(np.abs(exact.present - 0.5)))
    harm = np.arange(len(shares)) == k
    assert 0.1 < exact.present[k] < 0.9
    result = AttackResult(found.to_tree(harm))
    assert result.sampler == "tempering"
    assert 0 < result.mcse == pytest.approx(found.mcse(harm), rel=1e-9)
    assert abs(result.posterior - exact.probability(harm)) < 4.5 * found.mcse(harm)
    assert np.isnan(found.solutions)
    assert {check.name: check.passed for check in found.checks} == {
        "error": True,
        "rungs": True,
        "validation": None,
    }
    assert exact.mcse(harm) == 0.0


def test_chains_that_did_not_meet_get_no_verdict_or_a_bad_one():
    counts = np.zeros((4, 200, 3), np.int16)
    counts[:2, :, 0] = 1  # two chains say always, two say never
    counts[..., 1] = np.random.default_rng(0).integers(0, 2, (4, 200))
    chains = [Chain(counts[i], 0.8, np.full(9, 0.5), 40) for i in range(4)]
    error, rungs = _sampled._verdict(counts, chains)
    assert error.passed is False
    assert rungs.passed is True
    fine = _sampled._verdict(counts[..., 1:], chains)
    assert all(check.passed for check in fine)
    stuck = [chain._replace(swaps=np.full(9, 0.01)) for chain in chains]
    assert _sampled._verdict(counts[..., 1:], stuck)[1].passed is False
    plan = Plan(200, 200)
    assert _sampled._refusal(chains, plan) is None
    assert "climbed" in _sampled._refusal([chains[0]._replace(trips=0), *chains[1:]], plan)
    assert "lists only" in _sampled._refusal([chains[0]._replace(counts=counts[0, :9]), *chains[1:]], plan)


def test_a_number_that_is_stuck_where_the_class_is_always_there_is_seen():
    """Two chains say three households, two say nine: all say that somebody is there."""
    rng = np.random.default_rng(0)
    counts = (3 + 6 * (np.arange(4) > 1)[:, None, None] + rng.integers(0, 2, (4, 200, 1))).astype(np.int16)
    chains = [Chain(one, 0.8, np.full(9, 0.5), 40) for one in counts]
    assert _sampled._verdict(counts, chains)[0].passed is False
    assert _sampled._verdict(counts[:2], chains)[0].passed is True


def test_rows_that_no_block_meets_give_no_numbers_but_their_names(monkeypatch):
    """Three pairs with one household each: half a household of each kind, which single rows do not see."""
    table = Configurations.product(Attribute("street", ("a", "b", "c", "d")))
    matrix = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
    rows = Constraints(table, matrix, *(np.array([2, 1, 1, 1]),) * 2, ("H3", "x", "y", "z"), ("all",) * 4)
    options = {"method": "tempering", "effort": Effort(sweeps=100, chains=2, doublings=0)}
    assert reduced(rows, np.ones(4), 2).impossible is None
    pytest.importorskip("highspy")
    with pytest.raises(ModelError, match="against") as caught:
        household_posterior(rows, [0.2, 0.3, 0.3, 0.2], **options)
    assert set(caught.value.value.tables) == {"x", "y", "z"}
    monkeypatch.setattr("adversary.reconstruction.posterior.installed", lambda _: False)
    with pytest.raises(SamplingError, match="feasible"):
        household_posterior(rows, [0.2, 0.3, 0.3, 0.2], **options)


def test_a_number_of_households_with_a_gap_is_refused():
    table = Configurations.product(Attribute("size", ("1", "2")))
    none = Constraints(table, np.zeros((0, 2), np.int64), *(np.zeros(0, np.int64),) * 2, (), ())
    with pytest.raises(UnsupportedModelError, match="gap"):
        household_posterior(none, [0.5, 0.5], households={2: 0.5, 4: 0.5}, method="tempering")


def test_auto_is_exact_where_it_can_be_and_sampled_where_not():
    rows, _, shares = islands(2)
    assert household_posterior(rows, shares).method == "exact"
    found = household_posterior(rows, shares, effort=Effort(states=1, sweeps=400))
    assert found.method == "tempering"
    assert "tempering" in repr(found)


def test_nobody_and_a_noisy_number_of_households_can_be_sampled():
    table = Configurations.product(Attribute("size", ("1", "2")))
    everything = np.ones((1, 2), dtype=np.int64)
    rows = Constraints(table, everything, *(np.array([0]),) * 2, ("H3",), ("households",))
    empty = household_posterior(rows, [0.5, 0.5], method="tempering")
    assert empty.draws.sum() == 0
    noisy = NoisyRows(table, everything, np.array([2]), np.array([1.5]), ("H3",), ("households",))
    none = rows.take(np.zeros(1, dtype=bool))
    options = {"noisy": noisy, "households": range(6)}
    exact = household_posterior(none, [0.3, 0.7], **options)
    found = household_posterior(none, [0.3, 0.7], method="tempering", effort=Effort(sweeps=600), **options)
    assert distance(found.pmf(None), exact.pmf(None)) < 0.05


def test_rungs_are_moved_to_where_exchanges_fail():
    at = np.linspace(0, 1, 5)
    same = respaced(at, np.full(4, 0.4))
    np.testing.assert_allclose(same, at)
    moved = respaced(at, np.array([0.9, 0.1, 0.1, 0.1]))
    assert moved[2] < 0.25
    assert (np.diff(moved) > 0).all()
    assert moved[[0, -1]].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_effective_size_and_r_hat_are_those_of_known_chains(phi):
    """Autoregressive chains have an effective size of n (1 - phi) / (1 + phi)."""
    az = pytest.importorskip("arviz")
    rng = np.random.default_rng(1)
    chains = np.zeros((4, 5000))
    for t in range(1, 5000):
        chains[:, t] = phi * chains[:, t - 1] + rng.normal(size=4)
    wanted = chains.size * (1 - phi) / (1 + phi)
    assert ess(chains) == pytest.approx(wanted, rel=0.12)
    assert ess(chains) == pytest.approx(float(az.ess(chains, method="mean")), rel=0.02)
    assert split_r_hat(chains) == pytest.approx(float(az.rhat(chains, method="split")), abs=1e-3)
    apart = chains + np.arange(4)[:, None] * chains.std()
    assert split_r_hat(apart) > 1.2


def test_chains_that_never_move_have_neither():
    still = np.ones((4, 100))
    assert np.isnan(ess(still))
    assert np.isnan(split_r_hat(still))
    assert split_r_hat(still * np.arange(4)[:, None]) == np.inf
