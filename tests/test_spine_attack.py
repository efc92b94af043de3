"""Targets on a spine: the whole tree, the contracted path, enumeration and least squares say the same."""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from adversary.errors import BudgetError, ModelError, ReleaseError, SamplingError, UnsupportedModelError
from adversary.geography.spine import Spine
from adversary.privacy.budget import Allocation
from adversary.release.estimate import two_pass
from adversary.release.queries import PL94_PERSONS, Strategy
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.tilt import tilt_tree
from adversary.samplers.tree import solve_tree
from adversary.spine_attack import SpineCounts, attack_block, attack_blocks, measurements_of, simulate_counts

REFERENCE = json.loads((Path(__file__).parent / "reference" / "spines.json").read_text())
FLAT, POISSON, GEOMETRIC = LeafPrior.flat(), LeafPrior.poisson(1.5), LeafPrior.geometric(0.4)
TABLE = LeafPrior.tabulated([0.1, 0.2, 0.5, 0.2])
SMALL = {"state": list("1111"), "tract": ["11", "11", "12", "12"], "block": ["111", "112", "121", "122"]}


def enumerated(counts, unit, known, priors, reach=11):
    """Log odds of known + 1 against known persons in one leaf, all other leaves' counts summed by hand."""
    spine = counts.spine
    leaves = spine.leaves.tolist()
    by_count = {known: [], known + 1: []}
    ranges = [list(by_count) if leaf == unit else range(reach + 1) for leaf in leaves]
    for combination in itertools.product(*ranges):
        x = np.zeros(len(spine), int)
        x[leaves] = combination
        for u in range(len(spine) - 1, -1, -1):
            if spine.parents[u] >= 0:
                x[spine.parents[u]] += x[u]
        log_w = 0.0
        for leaf, prior in zip(leaves, priors, strict=True):
            if leaf != unit:
                log_w += float(prior.log_weight(np.array(x[leaf])))
        for u in range(len(spine)):
            s2 = counts.noise[u]
            if s2 == 0:
                log_w += 0.0 if x[u] == counts.counts[u] else -math.inf
            elif math.isfinite(s2):
                log_w -= (counts.counts[u] - x[u]) ** 2 / (2 * s2)
        if log_w > -math.inf:
            by_count[int(x[unit])].append(log_w)
    return np.logaddexp.reduce(by_count[known + 1]) - np.logaddexp.reduce(by_count[known])


CASES = {
    "all measured": ([4, 2, 1, 1, 2, 0, 1], [0.4] * 7, [FLAT] * 4),
    "some not measured": (
        [4, 2, 0, 1, 0, 0, 1],
        [0.4, 0.5, math.inf, 0.5, math.inf, 0.4, 0.3],
        [FLAT, POISSON, GEOMETRIC, FLAT],
    ),
    "exact state": (
        [5, 2, 0, 1, 2, 0, 1],
        [0.0, 0.5, math.inf, 0.9, 0.5, 0.5, 0.5],
        [FLAT, TABLE, FLAT, FLAT],
    ),
    "exact tract": (
        [0, 3, 1, 1, 2, 0, 1],
        [math.inf, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5],
        [POISSON, FLAT, TABLE, GEOMETRIC],
    ),
    "negative counts": ([-2, -3, 1, -4, -1, 0, -2], [0.6] * 7, [FLAT] * 4),
}


@pytest.mark.parametrize("name", CASES)
def test_every_target_by_tree_by_path_and_by_enumeration(name):
    noisy, sigma2, priors = CASES[name]
    counts = SpineCounts(Spine.from_blocks(SMALL), noisy, sigma2)
    options = {"leaf_prior": priors, "prior_of": range(4), "prior": 0.3}
    known = [0, 1, 0, 2]
    answers = attack_blocks(counts, known=known, **options)
    for i, unit in enumerate(counts.spine.leaves.tolist()):
        wanted = enumerated(counts, unit, known[i], priors) + math.log(0.3 / 0.7)
        assert answers.log_odds[i] == pytest.approx(wanted, abs=1e-9)
        one = attack_block(counts, unit, known=known[i], **options)
        assert one.road == "path"
        assert one.log_odds == pytest.approx(answers.log_odds[i], abs=1e-11)
        assert one.count_mean == pytest.approx(answers.count_mean[i], abs=1e-11)
        assert one.count_sd == pytest.approx(answers.count_sd[i], abs=1e-9)
        assert one.risk == pytest.approx(answers.risk[i], rel=1e-11)
        assert one.posterior == pytest.approx(one.risk * 0.3, rel=1e-12)


def test_ragged_trees_chains_and_forests_are_trees_too():
    spine = Spine.from_parents(
        ["A", "B", "AA", "AB", "BA", "AA1", "AA2", "BA1"], ["", "", "A", "A", "B", "AA", "AA", "BA"]
    )
    order = spine.codes(range(len(spine)))
    noisy = dict(
        zip(["A", "B", "AA", "AB", "BA", "AA1", "AA2", "BA1"], [3, 1, 2, 1, 2, 0, 2, 1], strict=True)
    )
    counts = SpineCounts(spine, [noisy[c] for c in order], 0.5)
    answers = attack_blocks(counts)
    priors = [FLAT] * 4
    for unit, log_odds in zip(answers.unit.tolist(), answers.log_odds, strict=True):
        assert log_odds == pytest.approx(enumerated(counts, unit, 0, priors, reach=13), abs=1e-9)
        assert attack_block(counts, unit).log_odds == pytest.approx(log_odds, abs=1e-11)
    # nothing of another tree bears on her
    moved = SpineCounts(spine, [noisy[c] + 40 * c.startswith("B") for c in order], 0.5)
    assert attack_block(moved, "AA1").log_odds == attack_block(counts, "AA1").log_odds


@pytest.mark.parametrize("case", range(len(REFERENCE["exact_posterior"])))
def test_the_reference_posteriors_of_blocks_are_met(case):
    data = REFERENCE["exact_posterior"][case]
    table = {"root": ["r"] * 3, "group": ["A", "A", "B"], "block": ["a1", "a2", "b1"]}
    spine = Spine.from_blocks(table)
    names = ["root" if c == "r" else c for c in spine.codes(range(len(spine)))]
    noisy = [data["exact"].get(n, data["z"][n] or 0) for n in names]
    sigma2 = [
        0.0 if n in data["exact"] else math.inf if data["z"][n] is None else data["sigma2"][n] for n in names
    ]
    priors = [LeafPrior.tabulated(data["prior"][n]) for n in ("a1", "a2", "b1")]
    counts = SpineCounts(spine, noisy, sigma2)
    if data["target"] in ("root", "A", "B"):
        with pytest.raises(ModelError, match="a target lives in a block"):
            attack_blocks(counts, [names.index(data["target"])])
        return
    # the posterior of every count from the odds of one more person, walked upwards
    wanted = np.array(data["posterior"])
    leaf = ("a1", "a2", "b1").index(data["target"])
    ks = np.arange(wanted.size - 1)
    ks = ks[(wanted[ks] > 0) & (wanted[ks + 1] > 0)]
    answers = attack_blocks(
        counts, [data["target"]] * ks.size, known=ks, leaf_prior=priors, prior_of=range(3)
    )
    own = priors[leaf].log_weight(ks + 1) - priors[leaf].log_weight(ks)
    np.testing.assert_allclose(answers.log_odds + own, np.log(wanted[ks + 1] / wanted[ks]), atol=1e-9)


def test_tables_that_disagree_because_of_noise_are_answered():
    """User report P18: a parent of 12 with children -3, 4 and 2, and a block of -3 by itself."""
    spine = Spine.from_blocks({"tract": ["1"] * 3, "block": ["11", "12", "13"]})
    counts = SpineCounts(spine, [12, -3, 4, 2], 10.09)
    answers = attack_blocks(counts)
    for i, unit in enumerate(spine.leaves.tolist()):
        assert answers.log_odds[i] == pytest.approx(
            enumerated(counts, unit, 0, [FLAT] * 3, reach=60), abs=1e-9
        )
    alone = SpineCounts(Spine.from_blocks({"block": ["11"]}), [-3], 10.09)
    one = attack_blocks(alone, leaf_prior=LeafPrior.tabulated(np.ones(6)))
    wanted = np.array([0.380937, 0.269281, 0.172392, 0.099951, 0.052482, 0.024957])
    assert one.count_mean[0] == pytest.approx(1.248631, abs=5e-7)
    p = np.ones(6)
    for k in range(5):
        odds = math.exp(attack_blocks(alone, known=k, leaf_prior=LeafPrior.tabulated(np.ones(6))).log_odds[0])
        p[k + 1] = p[k] * odds
    np.testing.assert_allclose(p / p.sum(), wanted, atol=6e-7)


# ------------------------------------------------------------------------------------------ tilted trees
def a_town(rng, blocks=160, groups=10, mean=0.3, sigma2=4.0):
    group = np.sort(np.r_[np.arange(groups), rng.integers(0, groups, blocks - groups)])
    table = {
        "county": ["1"] * blocks,
        "group": [f"1{g:03d}" for g in group],
        "block": [f"1{g:03d}{b:04d}" for b, g in enumerate(group)],
    }
    spine = Spine.from_blocks(table)
    truth = rng.poisson(mean, blocks)
    return (
        spine,
        truth,
        simulate_counts(spine, truth, np.full(len(spine), sigma2), seed=int(rng.integers(1 << 30))),
    )


@pytest.mark.parametrize("prior", [FLAT, POISSON, GEOMETRIC, TABLE], ids=lambda p: p.name)
def test_a_tilted_tree_has_the_posterior_of_the_tree(prior):
    spine, _, counts = a_town(np.random.default_rng(5), blocks=40, groups=4)
    parent, leaves = spine.parents, spine.leaves.size
    given = solve_tree(parent, counts.counts, counts.noise, prior, known=0)
    tilted = tilt_tree(parent, counts.counts, counts.noise, [prior], np.zeros(leaves, int), conflict=0.0)
    assert np.any(tilted.theta != 0)
    again = solve_tree(parent, tilted.noisy, counts.noise, tilted.priors, prior_of=tilted.prior_of, known=0)
    np.testing.assert_allclose(again.mean, given.mean, rtol=1e-11)
    np.testing.assert_allclose(again.sd, given.sd, rtol=1e-9)
    np.testing.assert_allclose(again.log_ratio, given.log_ratio, atol=1e-10)
    np.testing.assert_allclose(
        again.log_likelihood_ratio - tilted.theta, given.log_likelihood_ratio, atol=1e-10
    )
    assert not np.allclose(again.log_likelihood_ratio, given.log_likelihood_ratio, atol=1e-3)


def test_many_flat_blocks_below_a_sharp_total_are_answered_though_their_prior_expects_more():
    """Conditional on an exact total, a flat prior is a geometric one of any ratio: a second road to the same numbers."""
    rng = np.random.default_rng(6)
    spine, truth, noisy = a_town(rng, blocks=900, groups=20, mean=0.1, sigma2=10.0)
    values, sigma2 = noisy.counts.copy(), noisy.noise.copy()
    values[0], sigma2[0] = truth.sum(), 0.0
    counts = SpineCounts(spine, values, sigma2)
    flat = attack_blocks(counts)
    geometric = attack_blocks(counts, leaf_prior=LeafPrior.geometric(0.1))
    # her own leaf's prior is hers in either case: the others' differ by the factor 0.1 a person
    np.testing.assert_allclose(flat.log_odds, geometric.log_odds + math.log(0.1), atol=1e-8)
    np.testing.assert_allclose(flat.count_mean, geometric.count_mean, rtol=1e-9)
    with pytest.raises(SamplingError):
        solve_tree(spine.parents, values, np.where(sigma2 == 0, 1e-3, sigma2), FLAT)
    one = attack_block(counts, int(spine.leaves[17]))
    assert one.log_odds == pytest.approx(flat.log_odds[17], abs=1e-9)


def test_an_unmeasured_or_exact_unit_needs_no_shift():
    spine, truth, noisy = a_town(np.random.default_rng(8), blocks=400, groups=8, mean=0.2)
    for unit, s2 in ((0, math.inf), (1, 0.0)):
        values, sigma2 = noisy.counts.copy(), noisy.noise.copy()
        values[unit], sigma2[unit] = truth[: int(spine.n_children[1])].sum(), s2
        tilted = tilt_tree(spine.parents, values, sigma2, [FLAT], np.zeros(400, int))
        assert tilted.noisy[unit] == values[unit]
        assert np.all(np.isfinite(attack_blocks(SpineCounts(spine, values, sigma2)).log_odds))


# ------------------------------------------------------------------------------------------ what is asked
def test_a_block_may_be_named_twice_and_by_any_of_its_codes():
    codes = ["440010301001001", "440010301001002"]
    sixteen = [c[:11] + c[11] + c[11:] for c in codes]
    spine = Spine.from_blocks(
        {"tract": [c[:11] for c in codes], "block": [c[:11] + s for c, s in zip(codes, sixteen, strict=True)]}
    )
    counts = SpineCounts(spine, [3, 1, 2], 2.0)
    answers = attack_blocks(counts, [codes[0], sixteen[0], codes[1], 1], known=[0, 2, 1, 0])
    assert answers.unit.tolist() == [1, 1, 2, 1]
    assert answers.log_odds[0] == answers.log_odds[3] != answers.log_odds[1]
    alone = [attack_blocks(counts, [u], known=k).log_odds[0] for u, k in ((1, 0), (1, 2), (2, 1), (1, 0))]
    np.testing.assert_allclose(answers.log_odds, alone, atol=1e-12)


def test_a_structural_zero_and_an_exact_block_leave_no_doubt():
    spine = Spine.from_blocks(SMALL)
    zero = SpineCounts(spine, [4, 2, 1, 0, 2, 0, 1], [0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5])
    answers = attack_blocks(zero, ["111", "112"])
    assert answers.posterior[0] == 0
    assert answers.risk[0] == 0
    assert 0 < answers.posterior[1] < 1
    assert attack_block(zero, "111").posterior == 0
    one = SpineCounts(spine, [4, 2, 1, 1, 2, 0, 1], [0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5])
    assert attack_blocks(one, ["111"]).posterior[0] == 1
    with pytest.raises(ModelError, match="cannot hold the 3 persons"):
        attack_blocks(one, ["111"], known=3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda c: attack_blocks(c, ["11"]),
            ModelError,
            "a target lives in a block",
        ),
        (lambda c: attack_blocks(c, known=-1), ModelError, "known must be whole"),
        (lambda c: attack_blocks(c, known=0.5), ModelError, "whole numbers, not negative, one for all"),
        (lambda c: attack_blocks(c, prior=1.0), ModelError, "strictly between 0 and 1"),
        (lambda c: attack_blocks(c, prior_of=[1, 0, 0, 0]), ModelError, "must name one of 1 priors"),
        (lambda c: attack_blocks(c).interval(1.0), ModelError, "mass of an interval"),
        (lambda c: SpineCounts(c.spine, [1, 2], 1.0), ReleaseError, "one a unit"),
        (lambda c: SpineCounts(c.spine, [0.5] * 7, 1.0), ReleaseError, "not a whole number"),
        (lambda c: SpineCounts(c.spine, [1] * 7, -1.0), ReleaseError, "write 0 for an exact count"),
        (lambda c: simulate_counts(c.spine, [-1, 0, 0, 0], 1.0, seed=1), ReleaseError, "not negative"),
        (lambda c: simulate_counts(c.spine, [1, 0], 1.0, seed=1), ReleaseError, "one for each of 4 leaves"),
    ],
)
def test_what_cannot_be_is_refused(call, error, words):
    counts = SpineCounts(Spine.from_blocks(SMALL), [4, 2, 1, 1, 2, 0, 1], 0.5)
    with pytest.raises(error, match=words):
        call(counts)


# ------------------------------------------------------------------------------------------ the noise
def test_the_noise_follows_the_units_share_and_its_levels_mix_not_a_table_of_levels():
    spine = Spine.from_parents(["A", "AA", "AB", "AA1", "AA2", "AB1"], ["", "A", "A", "AA", "AA", "AB"])
    # a bypassed block: AB took over its only block's share, which is spent with AB's mix
    shares = {"A": 2, "AA": 3, "AB": 5, "AA1": 2, "AA2": 2, "AB1": 0}
    order = spine.codes(range(len(spine)))
    spine = spine.with_numerators(np.array([shares[c] for c in order]), 7)
    mix = {
        "level 0": "1/2",
        "level 1": {"detailed": "1/3", "total": "2/3"},
        "level 2": Strategy(PL94_PERSONS, {"detailed": 1}),
    }
    found = dict(zip(order, measurements_of(spine, mix, rho=7).tolist(), strict=True))
    wanted = {
        "A": 1.0,
        "AA": 1.0,
        "AB": float(1 / (Fraction(5) / 3)),
        "AA1": 0.5,
        "AA2": 0.5,
        "AB1": math.inf,
    }
    assert found == pytest.approx(wanted)
    half = measurements_of(spine, mix, rho=7, convention="unbounded")
    np.testing.assert_allclose(half, [found[c] / 2 for c in order])
    assert np.isinf(measurements_of(spine, {**mix, "level 2": {"total": 1}}, rho=7)[spine.index("AA1")])
    with pytest.raises(BudgetError, match="no query mix for level 'level 2'"):
        measurements_of(spine, {"level 0": 1, "level 1": 1}, rho=7)
    with pytest.raises(BudgetError, match="at most 1"):
        measurements_of(spine, {**mix, "level 0": 2}, rho=7)
    with pytest.raises(BudgetError):
        measurements_of(spine, mix, rho=7, convention="other")


def test_an_unbypassed_spine_has_the_allocations_noise():
    allocation = Allocation.load("2020-pl94-persons")
    names = list(allocation.levels)
    table = {name: ["1" * (i + 1)] for i, name in enumerate(reversed(names))}
    shares = {name: allocation.level[name] / sum(allocation.level.values()) for name in table}
    spine = Spine.from_blocks(table, shares)
    sigma2 = measurements_of(spine, allocation, allocation.total, query="detailed")
    for unit, name in enumerate(spine.levels):
        assert sigma2[unit] == pytest.approx(allocation.sigma2(name, "detailed", "bounded"), rel=1e-12)


def test_what_a_person_changes_is_the_sum_over_her_path_as_the_spine_says():
    spine = Spine.from_blocks(SMALL, {"state": "1/5", "tract": "2/5", "block": "2/5"})
    counts = SpineCounts(spine, [0] * 7, measurements_of(spine, dict.fromkeys(spine.levels, 1), rho=3))
    answer = attack_block(counts, "121", rho=3)
    assert answer.rho == pytest.approx(float(spine.rho_between("121", None, 3)))
    assert answer.rho_of_all == spine.rho_between("121", None, 3)
    assert answer.ceiling == pytest.approx(answer.ceiling_of_all)
    assert answer.ceiling == pytest.approx(math.exp(3) / (0.5 + 0.5 * math.exp(3)))
    exact = attack_block(SpineCounts(spine, [5] + [1] * 6, [0.0] + [1.0] * 6), "121", prior=0.25)
    assert exact.ceiling == pytest.approx(4.0)


# ------------------------------------------------------------------------------------------ where it comes from
def test_the_steps_precisions_add_up_to_least_squares_and_each_is_what_one_more_step_gives():
    rng = np.random.default_rng(2)
    spine, _, counts = a_town(rng, blocks=30, groups=4)
    sigma2 = rng.uniform(0.5, 9.0, len(spine))
    sigma2[2] = math.inf
    counts = SpineCounts(spine, counts.counts, sigma2)
    target = int(spine.leaves[11])
    steps = attack_block(counts, target).steps
    assert [s.level for s in steps] == ["block", "group", "county"]
    variance = two_pass(spine.parents, counts.counts, sigma2).variance[target]
    assert sum(s.precision for s in steps) == pytest.approx(1 / variance, rel=1e-12)
    # without the county's count and everything outside her group
    group = spine.parents[target]
    inside = np.r_[group, spine.children(group)]
    cut = two_pass(np.r_[-1, np.zeros(inside.size - 1, int)], counts.counts[inside], sigma2[inside])
    assert steps[0].precision + steps[1].precision == pytest.approx(
        1 / cut.variance[np.flatnonzero(inside == target)[0]], rel=1e-12
    )
    assert steps[0].precision == pytest.approx(1 / sigma2[target])
    assert steps[1].siblings_variance == pytest.approx(
        two_pass(spine.parents, counts.counts, sigma2).up_variance[spine.siblings(group)].sum()
    )
    assert steps[0].siblings == spine.siblings(target).size


def test_with_large_counts_and_flat_priors_the_exact_answer_is_least_squares():
    """Far from zero nothing is truncated, so the posterior of every block is that of generalised least squares."""
    rng = np.random.default_rng(3)
    spine, _, _ = a_town(rng, blocks=40, groups=5)
    truth = rng.integers(200, 400, 40)
    counts = simulate_counts(spine, truth, np.full(len(spine), 9.0), seed=4)
    answers, estimate = (
        attack_blocks(counts, known=truth),
        two_pass(spine.parents, counts.counts, counts.noise),
    )
    leaves = spine.leaves
    np.testing.assert_allclose(answers.count_mean, estimate.estimate[leaves], rtol=1e-9)
    np.testing.assert_allclose(answers.count_sd, np.sqrt(estimate.variance[leaves]), rtol=1e-6)
    gain = (estimate.estimate[leaves] - truth - 0.5) / estimate.variance[leaves]
    np.testing.assert_allclose(answers.log_odds, gain, atol=1e-8)


def test_the_explanation_names_path_siblings_and_what_was_not_used():
    spine = Spine.from_blocks(SMALL, {"state": "1/5", "tract": "2/5", "block": "2/5"})
    counts = SpineCounts(
        spine, [4, 2, 1, 1, 2, 0, 1], [0.0, 1, math.inf, 1, 1, 1, 1], unused=("total", "hispanic")
    )
    text = "\n".join(attack_block(counts, "121", rho=3).lines())
    for words in (
        "exactly 4",
        "not measured",
        "1 siblings by their messages",
        "total, hispanic",
        "guarantee",
    ):
        assert words in text


# ------------------------------------------------------------------------------------------ files
def test_a_result_survives_netcdf_and_zarr_with_its_zeros_in_front(tmp_path):
    """User report P11: plain coordinates, text as text."""
    table = {"state": ["044"] * 3, "tract": ["04401"] * 3, "block": ["0440100", "0440101", "0440102"]}
    counts = SpineCounts(
        Spine.from_blocks(table), [5, 4, 1, 2, 0], 2.0, query="detailed", cell=3, unused=("total",)
    )
    data = attack_blocks(counts).to_dataset()
    assert not [name for name, index in data.indexes.items() if index.nlevels > 1]
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as back:
        xr.testing.assert_identical(back.load(), data)
        for name in data.variables:
            assert back[name].dtype == data[name].dtype
        assert back["state"].values.tolist() == ["044"] * 3
        assert back["geocode"].values[0] == "0440100"
    pytest.importorskip("zarr")
    data.to_zarr(tmp_path / "a.zarr", consolidated=False)
    with xr.open_zarr(tmp_path / "a.zarr", consolidated=False) as back:
        for name in data.variables:
            assert back[name].values.tolist() == data[name].values.tolist()
        assert back["tract"].values.tolist() == ["04401"] * 3


def test_levels_that_a_path_lacks_are_empty():
    spine = Spine.from_parents(["A", "AA", "B", "AA1"], ["", "A", "", "AA"])
    answers = attack_blocks(SpineCounts(spine, [1] * 4, 1.0))
    assert answers.levels()["level 2"].tolist() == ["", "AA1"]


# ------------------------------------------------------------------------------------------ coverage
def covered(sigma2_of_release, factor, seed):
    rng = np.random.default_rng(seed)
    spine, _, _ = a_town(rng, blocks=700, groups=25)
    truth = rng.poisson(rng.gamma(1.0, 4.0, 700))
    counts = simulate_counts(spine, truth, np.full(len(spine), sigma2_of_release), seed=seed)
    believed = SpineCounts(spine, counts.counts, counts.noise * factor)
    low, high = attack_blocks(believed, leaf_prior=LeafPrior.geometric(0.8)).interval(0.9)
    return float(np.mean((low <= truth) & (truth <= high)))


def test_ninety_percent_intervals_of_block_counts_cover_and_with_half_the_sigma_do_not():
    assert 0.86 <= covered(10.09, 1.0, 1) <= 0.98
    assert covered(10.09, 0.25, 1) < 0.80


def test_an_interval_holds_its_mass_and_no_less_than_it_must():
    counts = SpineCounts(Spine.from_blocks({"block": ["11"]}), [3], 4.0)
    answers = attack_blocks(counts, leaf_prior=LeafPrior.tabulated(np.ones(12)))
    p = np.exp(-((3 - np.arange(12)) ** 2) / 8.0)
    p /= p.sum()
    low, high = (int(v[0]) for v in answers.interval(0.8))
    assert p[:low].sum() <= 0.1 < p[: low + 1].sum()
    assert p[high + 1 :].sum() <= 0.1 < p[high:].sum()


def test_a_target_whose_known_persons_the_count_denies_is_marked_where_asked():
    counts = SpineCounts(Spine.from_blocks(SMALL), [40, 38, 1, 37, 1, 0, 1], 1.0)
    marked, answered = attack_blocks(counts, far=6.0), attack_blocks(counts)
    assert np.isnan(marked.log_odds).tolist() == [True, False, False, False]
    assert not marked.decision[0]
    np.testing.assert_allclose(marked.log_odds[1:], answered.log_odds[1:], atol=1e-11)
    assert answered.log_odds[0] > 30
    assert not np.isnan(attack_blocks(counts, ["111"], known=36, far=6.0).log_odds[0])


def test_a_prior_that_hardly_falls_costs_no_wide_windows():
    """A tilt near zero makes a geometric prior of ratio near one, whose own reach is tens of thousands of counts."""
    noisy, sigma2 = [9, 2, 7], [2.0, 1.0, 1.0]
    slow = solve_tree([-1, 0, 0], noisy, sigma2, LeafPrior.geometric(0.9999), known=0)
    x = np.arange(80)
    a, b = np.meshgrid(x, x, indexing="ij")
    log_w = (a + b) * math.log(0.9999) - (9 - a - b) ** 2 / 4 - (2 - a) ** 2 / 2 - (7 - b) ** 2 / 2
    rows = np.logaddexp.reduce(log_w, axis=1)
    assert slow.log_ratio[0] == pytest.approx(rows[1] - rows[0], abs=1e-11)
    assert slow.pmf(1)[0].size < 40


@pytest.mark.parametrize(
    ("noisy", "sigma2", "prior"),
    [
        ([3, 2, 184, -5, -4, 4, 4], [0.0, 0.05, 1e6, 4.0, 4.0, 4.0, 4.0], TABLE),
        ([12, 0, 4, 56, 15, -25, -6], [0.0, np.inf, 20.0, 100.0, 20.0, 50.0, 50.0], LeafPrior.poisson(0.05)),
        ([9, 2, 4, 0, 1, 0, 0], [0.0, 1e300, 1e-3, 1e-9, 1e9, 4.0, 4.0], TABLE),
    ],
)
def test_counts_that_priors_all_but_exclude_are_answered_or_refused_never_a_traceback(noisy, sigma2, prior):
    """Newton's steps of the tilt grew until whole numbers overflowed."""
    counts = SpineCounts(Spine.from_blocks(SMALL), noisy, sigma2)
    units = counts.spine.leaves.tolist()
    try:
        found = attack_blocks(counts, units, leaf_prior=prior)
    except (ModelError, SamplingError, UnsupportedModelError):
        return
    wanted = [attack_block(counts, u, leaf_prior=prior).log_odds for u in units]
    np.testing.assert_allclose(found.log_odds, wanted, rtol=1e-8)


def test_a_lone_block_is_contradicted_by_the_count_of_the_unit_that_holds_no_other():
    """Bypassed: its own count is not there, and its unit's said 300 of a block of which nobody was known."""
    counts = SpineCounts(
        Spine.from_blocks({"tract": ["1", "2"], "block": ["11", "21"]}),
        [300, 1, 0, 0],
        [5.0, 5.0, np.inf, np.inf],
    )
    assert counts.spine.geocodes.tolist() == ["1", "2", "11", "21"]
    assert np.isnan(attack_blocks(counts, far=6.0).log_odds).tolist() == [True, False]
    assert np.isnan(attack_blocks(counts, known=[299, 30], far=6.0).log_odds).tolist() == [False, True]
    assert attack_blocks(counts).log_odds[0] == pytest.approx(599 / 10)
