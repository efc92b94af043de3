"""The parts by themselves: forms, the graph reader, convolution, elimination, the runner."""

import itertools
from fractions import Fraction

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from adversary.errors import UnsupportedModelError
from adversary.samplers.exact.convolve import log_convolve
from adversary.samplers.exact.eliminate import Elimination
from adversary.samplers.exact.forms import Linear, Opaque, independent, primitive
from adversary.samplers.exact.linear import GraphReader, python_mode
from adversary.samplers.exact.plan import Domain, plan
from adversary.samplers.exact.runner import Runner


def unit(i):
    return Linear(((i, Fraction(1)),))


@pytest.fixture
def reader():
    """Unknowns: scalar x = 0, vector y = 1, 2, 3."""
    x, y = pt.lscalar("x"), pt.lvector("y")
    y = pt.tensor("y", dtype="int64", shape=(3,))
    entries = np.empty(3, dtype=object)
    entries[:] = [unit(i) for i in (1, 2, 3)]
    single = np.empty((), dtype=object)
    single[()] = unit(0)
    return GraphReader({x: single, y: entries}, 4), x, y


def coefficients(entry):
    return {i: float(c) for i, c in entry.coefs}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x, y: x + y.sum() + 5, [{0: 1, 1: 1, 2: 1, 3: 1}]),
        (lambda x, y: 2 * y - x, [{0: -1, 1: 2}, {0: -1, 2: 2}, {0: -1, 3: 2}]),
        (lambda x, y: (x + y)[1], [{0: 1, 2: 1}]),
        (lambda x, y: pt.constant(np.array([[1, 0, -1], [0, 2, 0]])) @ y, [{1: 1, 3: -1}, {2: 2}]),
        (lambda x, y: pt.stack([x, y[0]]).astype("float64") / 4, [{0: 0.25}, {1: 0.25}]),
        (lambda x, y: pt.concatenate([y[1:], y[:1]]), [{2: 1}, {3: 1}, {1: 1}]),
        (lambda x, y: pt.set_subtensor(y[0], x), [{0: 1}, {2: 1}, {3: 1}]),
        (lambda x, y: y.reshape((3, 1)).T.sum(axis=0)[::-1], [{3: 1}, {2: 1}, {1: 1}]),
        (lambda x, y: pt.cumsum(y) + x, [{0: 1, 1: 1}, {0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1, 3: 1}]),
        (lambda x, y: pt.floor(x.astype("float64")) - x, [None]),
    ],
    ids=["sum", "broadcast", "index", "matrix", "stack", "join", "set", "reshape", "running sum", "cancel"],
)
def test_linear_forms_survive(reader, build, expected):
    graph, x, y = reader
    [(_, entries)] = graph.read([build(x, y)])
    got = [None if e is None else coefficients(e) for e in entries.ravel()]
    assert got == expected


def test_what_is_not_linear_depends_on_the_forms_that_enter_it(reader):
    graph, x, y = reader
    [(_, entries)] = graph.read([pt.sqr(x + y) * pt.exp(y[0])])
    assert all(isinstance(e, Opaque) for e in entries)
    forms = [{primitive(graph.cuts[c].entries[i])[0] for c, i in e.refs} for e in entries]
    assert forms[2] == {((0, 1), (3, 1)), ((1, 1),)}


def test_a_comparison_depends_on_one_difference_and_an_equality_is_an_indicator(reader):
    graph, x, y = reader
    [(_, less), (_, equal)] = graph.read([pt.lt(x, y[0]), pt.eq(y, 2) + 7])
    [(cut, index)] = less.item().refs
    assert primitive(graph.cuts[cut].entries[index])[0] == ((0, 1), (1, -1))
    assert [coefficients(e) for e in equal] == [{4: 1}, {5: 1}, {6: 1}]
    assert graph.indicators[5].parent == unit(2)


def test_a_coefficient_that_is_a_changing_float_is_not_taken_for_a_number(reader):
    graph, x, _ = reader
    rate, count = pytensor.shared(np.float64(2.0)), pytensor.shared(np.int64(3))
    [(_, floating), (_, whole)] = graph.read([x * rate, x * count])
    assert isinstance(floating.item(), Opaque)
    assert coefficients(whole.item()) == {0: 3.0}
    assert [v is count for v, _ in graph.assumed] == [True]


def test_redundant_forms_are_sums_of_a_basis():
    a, b, c = ((0, 1),), ((1, 1),), ((0, 2), (1, -3))
    basis, sums = independent([a, b, c])
    assert basis == [a, b]
    assert sums == {c: {a: 2, b: -3}}


# ---------------------------------------------------------------------- convolution and elimination
@pytest.mark.parametrize("scale", [1.0, 300.0, 1e5])
def test_convolution_keeps_relative_accuracy_far_in_the_tail(scale):
    rng = np.random.default_rng(1)
    a, b = scale * rng.normal(size=9), scale * rng.normal(size=13)
    b[3] = -np.inf
    full = np.array(
        [np.logaddexp.reduce([a[i] + b[k - i] for i in range(9) if 0 <= k - i < 13]) for k in range(21)]
    )
    assert np.allclose(log_convolve(a, b, 0, 21), full, rtol=1e-13, atol=1e-12)
    assert np.allclose(log_convolve(b, a, 5, 4), full[5:9], rtol=1e-13, atol=1e-12)


def test_a_convolution_beyond_reach_is_refused():
    with pytest.raises(UnsupportedModelError, match="too large for the exact engine"):
        log_convolve(np.zeros(10**5), np.zeros(10**5), 0, 10**5)


def random_graph(seed):
    """Random tables on five nodes, two sums, and a loop now and then."""
    rng = np.random.default_rng(seed)
    domains = {n: Domain(int(rng.integers(-2, 3)), int(rng.integers(2, 5))) for n in range(5)}
    constraints = [(5, 0, 1, 1), (6, 5, int(rng.choice([1, -1, 2])), 2)]
    for total, left, c, right in constraints:
        ends = sorted((c * domains[right].low, c * domains[right].high))
        low, high = domains[left].low + ends[0], domains[left].high + ends[1]
        domains[total] = Domain(low, high - low + 1)
    unary = {n: rng.normal(size=domains[n].size) for n in (0, 1, 2, 4, 6) if rng.random() < 0.8}
    scopes = [s for s in [(3, 4), (2, 3), (0, 3), (5, 4)] if rng.random() < 0.7]
    tables = [(s, rng.normal(size=[domains[n].size for n in s])) for s in scopes]
    return domains, constraints, unary, tables


def joint_by_hand(domains, constraints, unary, tables):
    free = [0, 1, 2, 3, 4]
    points, logs = [], []
    for values in itertools.product(*[range(domains[n].low, domains[n].high + 1) for n in free]):
        x = dict(zip(free, values, strict=True))
        for total, left, c, right in constraints:
            x[total] = x[left] + c * x[right]
        log_w = sum(t[x[n] - domains[n].low] for n, t in unary.items())
        log_w += sum(t[tuple(x[n] - domains[n].low for n in s)] for s, t in tables)
        points.append(x)
        logs.append(log_w)
    p = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    return points, p, float(np.logaddexp.reduce(logs))


@pytest.mark.parametrize("seed", range(25))
def test_elimination_beliefs_and_draws_equal_enumeration_on_a_random_graph(seed):
    domains, constraints, unary, tables = random_graph(seed)
    points, p, log_z = joint_by_hand(domains, constraints, unary, tables)
    keep = (int(np.random.default_rng(seed).choice([0, 2, 3, 6])),)
    sizes = {n: float(d.size) for n, d in domains.items()}
    steps = plan(list(domains), [s for s, _ in tables], constraints, keep, sizes)
    elimination = Elimination(steps, domains, unary, tables, keep, constraints, 1e9)
    assert np.logaddexp.reduce(elimination.table) == pytest.approx(log_z, abs=1e-11)
    weights = np.exp(elimination.table - log_z)
    beliefs = elimination.beliefs(weights)
    draws = elimination.draw(4000, np.random.default_rng(seed))
    assert set(beliefs) == set(domains)
    for node, domain in elimination.domains.items():
        expected = np.zeros(domain.size)
        for x, w in zip(points, p, strict=True):
            expected[x[node] - domain.low] += w
        assert beliefs[node] == pytest.approx(expected, abs=1e-11)
        counts = np.bincount(draws[node] - domain.low, minlength=domain.size)
        assert np.abs(counts / 4000 - expected).max() < 5 * np.sqrt(0.25 / 4000)
    for total, left, c, right in constraints:
        assert np.array_equal(draws[total], draws[left] + c * draws[right])


def test_the_runner_gives_what_the_function_gives():
    x, y = pt.dmatrix("x"), pt.lvector("y")
    outputs = [
        pt.switch(pt.gt(x, 0), pt.log1p(x), -np.inf) - y,
        pt.gammaln(x + 1).sum(axis=0) / y,
        pt.eq(y, 2).astype("int8") + y * y + 3,
        x[:, ::-1].T @ x,
        pt.concatenate([y, y]).astype("float64"),
    ]
    function = pytensor.function([x, y], outputs, mode=python_mode())
    data = [np.random.default_rng(0).normal(size=(4, 3)), np.array([1, 2, 3])]
    for a, b in zip(function(*data), Runner(function)(*data), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b, equal_nan=True)
