import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from adversary.errors import ModelError, SamplingError, UnsupportedModelError
from adversary.samplers import tree as tree_module
from adversary.samplers._messages import _differences, _sums
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.path import UpperMessage, path_log_odds
from adversary.samplers.tree import solve_tree

SPINES = json.loads((Path(__file__).parents[1] / "reference" / "spines.json").read_text())
PARENT = [-1, 0, 0, 1, 1, 2, 0]  # a root with two families and a leaf of its own


def _enumerate(parent, noisy, sigma2, priors, reach):
    """All leaf counts up to ``reach``: posterior pmf of every node."""
    parent = np.asarray(parent)
    leaves = [v for v in range(parent.size) if v not in parent]
    joint, counts = [], []
    for combination in itertools.product(range(reach + 1), repeat=len(leaves)):
        x = np.zeros(parent.size, dtype=int)
        x[leaves] = combination
        for v in range(parent.size - 1, 0, -1):
            x[parent[v]] += x[v]
        log_weight = sum(float(p.log_weight(np.array(x[v]))) for p, v in zip(priors, leaves, strict=True))
        for v in range(parent.size):
            if sigma2[v] == 0:
                log_weight += 0.0 if x[v] == noisy[v] else -math.inf
            elif math.isfinite(sigma2[v]):
                log_weight -= (noisy[v] - x[v]) ** 2 / (2 * sigma2[v])
        if log_weight > -math.inf:
            joint.append(log_weight)
            counts.append(x)
    weight = np.exp(np.array(joint) - max(joint))
    weight /= weight.sum()
    counts = np.array(counts)
    return [np.bincount(counts[:, v], weights=weight) for v in range(parent.size)]


FLAT, POISSON, GEOMETRIC = LeafPrior.flat(), LeafPrior.poisson(1.5), LeafPrior.geometric(0.4)
TABLE = LeafPrior.tabulated([0.1, 0.0, 0.5, 0.4])


@pytest.mark.parametrize(
    ("sigma2", "priors"),
    [
        ([0.4, 0.4, 0.4, 0.3, 0.3, 0.4, 0.3], [FLAT] * 4),
        ([0.4, math.inf, 0.4, 0.3, math.inf, 0.4, 0.3], [FLAT, POISSON, GEOMETRIC, FLAT]),
        ([0.0, 0.5, math.inf, 0.5, 0.5, 0.5, math.inf], [FLAT, TABLE, FLAT, FLAT]),
        ([math.inf, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5], [POISSON, FLAT, TABLE, GEOMETRIC]),
        ([0.4, 0.4, 0.4, 0.0, 0.3, 0.4, 0.3], [FLAT] * 4),
    ],
    ids=["all measured", "some not measured", "exact root", "exact family", "exact leaf"],
)
def test_every_posterior_of_a_small_tree_equals_enumeration(sigma2, priors):
    noisy = [4, 2, 1, 1, 2, 0, 1]
    solved = solve_tree(PARENT, noisy, sigma2, priors, prior_of=[0, 1, 2, 3], known=0)
    brute = _enumerate(PARENT, noisy, sigma2, priors, 9)
    for node, wanted in enumerate(brute):
        support, p = solved.pmf(node)
        full = np.zeros(max(wanted.size, support[-1] + 1))
        full[support] = p
        np.testing.assert_allclose(full[: wanted.size], wanted, atol=1e-12)
        grid = np.arange(wanted.size)
        assert solved.mean[node] == pytest.approx(wanted @ grid, abs=1e-10)
        assert solved.sd[node] == pytest.approx(math.sqrt(wanted @ (grid - wanted @ grid) ** 2), abs=1e-9)
    for k, leaf in enumerate(solved.leaf):
        if brute[leaf].size > 1 and brute[leaf][0] > 0 and brute[leaf][1] > 0:
            assert solved.log_ratio[k] == pytest.approx(math.log(brute[leaf][1] / brute[leaf][0]), abs=1e-10)
    assert solved.left_out_bound < 1e-12
    assert solved.bound_proven is (TABLE not in priors)


@pytest.mark.parametrize(
    ("parent", "noisy", "sigma2", "priors"),
    [
        ([-1, 0, 0], [7, 6, 2], [2.0, 0.05, 0.5], [POISSON, GEOMETRIC]),
        ([-1, 0, 0, 0], [2, 3, 4, 6], [0.5, 1.0, 0.3, 0.05], [POISSON, FLAT, GEOMETRIC]),
        ([-1, 0, 0], [3, 7, -3], [math.inf, 0.05, 2.0], [FLAT, FLAT]),
    ],
)
def test_a_count_that_all_but_excludes_the_known_persons_still_gives_their_ratio(
    parent, noisy, sigma2, priors
):
    """Log ratios of 100 and more: the windows cut by the leaf's own sharp count must not cut them."""
    solved = solve_tree(parent, noisy, sigma2, priors, prior_of=range(len(priors)), known=0)
    reach = 40
    leaves = len(priors)
    first = len(parent) - leaves
    grid = np.meshgrid(*[np.arange(reach + 1)] * leaves, indexing="ij")
    log_weight = sum(p.log_weight(g) for p, g in zip(priors, grid, strict=True))
    for node, count in [(0, sum(grid)), *((first + k, g) for k, g in enumerate(grid))]:
        if math.isfinite(sigma2[node]):
            log_weight = log_weight - (noisy[node] - count) ** 2 / (2 * sigma2[node])
    for k in range(leaves):
        rows = np.logaddexp.reduce(np.moveaxis(log_weight, k, 0).reshape(reach + 1, -1), axis=1)
        assert solved.log_ratio[k] == pytest.approx(rows[1] - rows[0], rel=1e-11, abs=1e-11)


def test_the_likelihood_ratio_leaves_the_targets_own_prior_aside():
    noisy, sigma2 = [4, 2, 1, 1, 2, 0, 1], [0.5] * 7
    ratios = [
        solve_tree(PARENT, noisy, sigma2, [p, FLAT], prior_of=[0, 1, 1, 1], known=0).log_likelihood_ratio[0]
        for p in (FLAT, POISSON, LeafPrior.tabulated([0.5, 0.5]))
    ]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-12)


@pytest.mark.parametrize("case", range(len(SPINES["exact_posterior"])))
def test_the_vectors_of_the_spine_reference_are_met(case):
    data = SPINES["exact_posterior"][case]
    order = ["root", "A", "B", "a1", "a2", "b1"]
    above = {child: parent for parent, children in data["kids"].items() for child in children}
    parent = [-1, *(order.index(above[name]) for name in order[1:])]
    noisy = [data["exact"].get(n, 0 if data["z"][n] is None else data["z"][n]) for n in order]
    sigma2 = [
        0.0 if n in data["exact"] else math.inf if data["z"][n] is None else data["sigma2"][n] for n in order
    ]
    priors = [LeafPrior.tabulated(data["prior"][n]) for n in ("a1", "a2", "b1")]
    solved = solve_tree(parent, noisy, sigma2, priors, prior_of=[0, 1, 2])
    support, p = solved.pmf(order.index(data["target"]))
    full = np.zeros(len(data["posterior"]))
    full[support] = p
    np.testing.assert_allclose(full, data["posterior"], atol=1e-12)


def _national(rng, branch, rho):
    parents, level, count = [np.array([-1])], np.array([0]), 1
    for children in branch:
        each = np.repeat(level, rng.integers(max(1, children - 2), children + 3, level.size))
        parents.append(each)
        level = count + np.arange(each.size)
        count += each.size
    parent = np.concatenate(parents)
    truth = np.zeros(count, dtype=np.int64)
    truth[level] = rng.poisson(3, level.size) * (rng.random(level.size) < 0.6)
    for node in range(count - 1, 0, -1):
        truth[parent[node]] += truth[node]
    sigma2 = np.full(count, 1 / (2 * rho))
    noisy = truth + np.rint(rng.normal(size=count) * np.sqrt(sigma2)).astype(np.int64)
    return parent, truth, noisy, sigma2, level


def test_a_larger_tree_keeps_its_identities():
    """Means add up from children to parents, variances of a parent are never above the sum's own noise."""
    parent, truth, noisy, sigma2, leaf = _national(np.random.default_rng(3), (4, 3, 12), 0.1)
    solved = solve_tree(parent, noisy, sigma2, known=np.maximum(truth[leaf] - 1, 0))
    sums = np.bincount(parent[1:], weights=solved.mean[1:], minlength=parent.size)
    inner = np.setdiff1d(np.arange(parent.size), leaf)
    np.testing.assert_allclose(sums[inner], solved.mean[inner], rtol=1e-12)
    assert np.all(solved.sd <= np.sqrt(sigma2) * 1.05)
    error = (solved.mean - truth)[leaf]
    assert np.sqrt(np.mean(error**2)) < 0.8 * math.sqrt(sigma2[0])
    assert np.all(np.isfinite(solved.log_likelihood_ratio))
    assert solved.bound_proven
    assert solved.left_out_bound <= 1e-12


def test_deeper_cuts_change_nothing():
    parent, _, noisy, sigma2, _ = _national(np.random.default_rng(4), (3, 3, 8), 0.05)
    one = solve_tree(parent, noisy, sigma2, known=0)
    two = solve_tree(parent, noisy, sigma2, known=0, tolerance=1e-60)
    assert two.left_out_bound < 1e-60
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-13)
    np.testing.assert_allclose(one.log_ratio, two.log_ratio, atol=1e-11)


def test_a_release_that_contradicts_itself_is_widened_until_the_bound_holds():
    """Children say 0 and 0, the parent says 30: 17 standard deviations, equal to a direct sum."""
    solved = solve_tree([-1, 0, 0], [30, 0, 0], [1.0, 1.0, 1.0], known=0)
    x = np.arange(0, 120)
    a, b = np.meshgrid(x, x, indexing="ij")
    log_w = -((30 - a - b) ** 2) / 2.0 - a**2 / 2.0 - b**2 / 2.0
    rows = np.logaddexp.reduce(log_w, axis=1)
    assert solved.cut < 1e-24
    assert solved.mean[1] == pytest.approx(x @ np.exp(rows - np.logaddexp.reduce(rows)), rel=1e-12)
    assert solved.log_ratio[0] == pytest.approx(rows[1] - rows[0], rel=1e-10)


def _path_brute(noisy, sigma2, rest, rest_sigma2, known, size=160):
    x = np.arange(size)
    message = -((noisy[-1] - x) ** 2) / (2 * sigma2[-1])
    for level in range(len(noisy) - 2, -1, -1):
        gap = x[None, :] - x[:, None]
        kernel = np.where(gap >= 0, -((rest[level] - gap) ** 2) / (2 * rest_sigma2[level]), -np.inf)
        message = np.logaddexp.reduce(kernel + message, axis=1) - (noisy[level] - x) ** 2 / (
            2 * sigma2[level]
        )
    return message[known + 1] - message[known]


@pytest.mark.parametrize("seed", range(6))
def test_paths_equal_a_dense_recursion_alone_and_with_shared_messages(seed):
    rng = np.random.default_rng(seed)
    levels = 4
    sigma2 = rng.choice([0.5, 1.0, 5.0, 10.0], levels)
    rest_sigma2 = sigma2[:-1] * rng.choice([2, 5], levels - 1)
    counts = np.cumsum(np.concatenate([[rng.integers(0, 4)], rng.choice([0, 1, 4, 20], levels - 1)]))
    noisy = counts + np.rint(rng.normal(size=levels) * np.sqrt(sigma2)).astype(int)
    rest = np.diff(counts) + np.rint(rng.normal(size=levels - 1) * np.sqrt(rest_sigma2)).astype(int)
    known = int(counts[0])
    wanted = _path_brute(noisy, sigma2, rest, rest_sigma2, known)
    alone = path_log_odds(list(noisy), list(sigma2), list(rest), list(rest_sigma2), known=known)
    assert alone == pytest.approx(wanted, abs=1e-10)
    message = UpperMessage(list(noisy[1:]), list(sigma2[1:]), list(rest[1:]), list(rest_sigma2[1:]))
    blocks = message.block_log_odds(
        [noisy[0], noisy[0] + 1], rest[0], float(sigma2[0]), float(rest_sigma2[0]), known=known, log_odds=0.5
    )
    assert blocks[0] == pytest.approx(wanted + 0.5, abs=1e-10)
    assert blocks[1] - blocks[0] == pytest.approx(1 / sigma2[0])


def test_blocks_at_every_distance_from_the_shared_message_equal_a_dense_recursion():
    noisy, sigma2, rest, rest_sigma2 = [4, 9], [1.0, 2.0], [5], [6.0]
    message = UpperMessage(noisy, sigma2, rest, rest_sigma2)
    others = np.arange(-12, 40, 3)
    got = message.block_log_odds(1, others, 2.0, 4.0)
    wanted = [
        _path_brute([1, *noisy], [2.0, *sigma2], [int(y), *rest], [4.0, *rest_sigma2], 0) for y in others
    ]
    np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)


def test_a_large_number_of_known_persons_costs_nothing():
    known = 10**9
    near = path_log_odds([2, 1], [5.0, 2.0], [-1], [135.0])
    far = path_log_odds([known + 2, known + 1], [5.0, 2.0], [-1], [135.0], known=known)
    assert far == pytest.approx(near, abs=1e-12)


def test_a_block_that_contradicts_the_shared_message_is_solved_alone():
    message = UpperMessage([3], [1.0], [], [])
    odd = message.block_log_odds([1, 1], [2, 60], 2.0, 4.0)
    assert odd[1] == pytest.approx(_path_brute([1, 3], [2.0, 1.0], [60], [4.0], 0), abs=1e-9)
    # beyond 35 standard deviations of one count it says so instead of answering from a cut window
    with pytest.raises(SamplingError, match="contradicts itself"):
        message.block_log_odds([1], [90], 2.0, 4.0)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([0, 0], [1, 1], 1.0), ModelError, "node 0 be the root"),
        (([-1, 1], [1, 1], 1.0), ModelError, "must precede"),
        (([-1, 0], [1, 1], [1.0, -1.0]), ModelError, "negative or NaN"),
        (([-1, 0], [1.5, 1], 1.0), ModelError, "whole numbers"),
        (([-1, 0], [-1, 1], [0.0, 1.0]), ModelError, "must not be negative"),
        (([-1, 0, 0], [1, 1, 1], [math.inf, math.inf, 1.0]), ModelError, "nothing bounds"),
        (([-1, 0], [1, 1], [1.0, 1e12]), UnsupportedModelError, "window holds"),
        (([-1, 0], [10**6, 1], [1.0, 1.0]), SamplingError, "contradicts itself"),
    ],
)
def test_impossible_trees_are_refused_with_the_way_out(arguments, kind, message):
    with pytest.raises(kind, match=message):
        solve_tree(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LeafPrior.poisson(0.0), "must be positive"),
        (lambda: LeafPrior.geometric(1.0), "between 0 and 1"),
        (lambda: LeafPrior.tabulated([0.5, -0.5]), "list of weights"),
        (lambda: solve_tree([-1, 0], [1, 1], 1.0, [FLAT], prior_of=[1]), "must name one of 1 priors"),
        (lambda: solve_tree([-1, 0], [1, 7], [1.0, 0.0], TABLE), "outside its prior"),
        (lambda: path_log_odds([1, 2], [1.0, 1.0], [], []), "rests"),
    ],
)
def test_impossible_priors_are_refused(call, message):
    with pytest.raises(ModelError, match=message):
        call()


def test_log_concavity_of_a_table_is_recognised():
    assert LeafPrior.tabulated([0.2, 0.4, 0.3, 0.1]).log_concave
    assert not LeafPrior.tabulated([0.4, 0.1, 0.5]).log_concave
    assert POISSON.log_concave


@pytest.mark.parametrize("widths", [(3, 90), (39, 39), (40, 41), (70, 45)])
def test_wide_and_narrow_messages_are_multiplied_to_the_same_digits(widths):
    rng = np.random.default_rng(sum(widths))
    a, b = (np.exp(-60 * rng.random((5, w))) for w in widths)
    above = np.exp(-60 * rng.random((5, sum(widths) - 1)))
    whole, part = np.zeros_like(above), np.zeros_like(a)
    for i, j in itertools.product(range(widths[0]), range(widths[1])):
        whole[:, i + j] += a[:, i] * b[:, j]
        part[:, i] += above[:, i + j] * b[:, j]
    np.testing.assert_allclose(_sums(a, b), whole, rtol=1e-13)
    np.testing.assert_allclose(_sums(b, a), whole, rtol=1e-13)
    np.testing.assert_allclose(_differences(above, b), part, rtol=1e-13)


def test_a_leaf_far_from_its_known_persons_is_solved_from_the_messages_beside_its_path(monkeypatch):
    """A sweep of the whole tree for each such leaf made the attack of a state last minutes."""
    parent, sigma2 = [-1, 0, 0, 1, 1, 1, 2, 2, 2], [4.0, 30.0, 1.0, 40.0, 4.0, 30.0, 1.0, 30.0, 300.0]
    noisy, known = [123, 104, 36, 71, 10, 12, 14, 9, 20], [0, -1, -1, -1, -1, -1]
    wanted = solve_tree(parent, noisy, sigma2, known=known).log_likelihood_ratio[0]
    monkeypatch.setattr(tree_module, "_solved_alone", lambda *_: pytest.fail("swept the whole tree"))
    found = solve_tree(parent, noisy, sigma2, known=known).log_likelihood_ratio[0]
    monkeypatch.undo()
    monkeypatch.setattr(tree_module, "_solved_along_its_path", lambda *_: None)
    swept = solve_tree(parent, noisy, sigma2, known=known).log_likelihood_ratio[0]
    assert wanted == found == pytest.approx(swept, rel=1e-12)
    # another road: every count up to 120 of the other leaves, convolved in logarithms
    others = {v: -((noisy[v] - np.arange(121)) ** 2) / (2 * sigma2[v]) for v in range(4, 9)}

    def weight(target):
        def convolved(one, two):
            out = np.full(one.size + two.size - 1, -np.inf)
            for i, x in enumerate(one):
                out[i : i + two.size] = np.logaddexp(out[i : i + two.size], x + two)
            return out

        mine = np.full(target + 1, -np.inf)
        mine[target] = -((noisy[3] - target) ** 2) / (2 * sigma2[3])
        left = convolved(convolved(mine, others[4]), others[5])
        left = left - (noisy[1] - np.arange(left.size)) ** 2 / (2 * sigma2[1])
        right = convolved(convolved(others[6], others[7]), others[8])
        right = right - (noisy[2] - np.arange(right.size)) ** 2 / (2 * sigma2[2])
        top = convolved(left, right)
        return np.logaddexp.reduce(top - (noisy[0] - np.arange(top.size)) ** 2 / (2 * sigma2[0]))

    assert found == pytest.approx(weight(1) - weight(0), rel=1e-10)
