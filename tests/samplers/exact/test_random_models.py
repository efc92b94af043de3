"""Forty random models the engine has never seen, against enumeration in plain NumPy: evidence and every marginal."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from adversary.distributions import DiscreteGaussian
from adversary.samplers.exact import compile_exact


class RandomModel:
    """A random model, declared once for PyMC and once as a plain function."""

    def __init__(self, seed, hand):
        self.rng, self.hand = np.random.default_rng(seed), hand
        self.supports, self.terms, self.forms = {}, [], {}
        with pm.Model() as self.model:
            self.rvs = {}
            for k in range(int(self.rng.integers(2, 5))):
                self._unknown(f"v{k}")
            for k in range(int(self.rng.integers(1, 4))):
                self._measurement(f"m{k}")
            if self.rng.random() < 0.6:
                self._potential("pot")
            self._target()

    def log_weight(self, point):
        return sum(term(point) for term in self.terms)

    def _unknown(self, name):
        kind = self.rng.choice(["bernoulli", "categorical", "uniform", "binomial", "poisson"])
        earlier = list(self.rvs)
        parent = str(self.rng.choice(earlier)) if earlier and self.rng.random() < 0.5 else None
        getattr(self, "_" + kind)(name, parent)

    def _rate(self, parent, low, high):
        """A positive number, or one that depends on an earlier unknown; as graph and as function."""
        base, slope = float(self.rng.uniform(low, high)), float(self.rng.uniform(0.0, (high - low) / 12))
        if parent is None:
            return np.float64(base), lambda point: base
        top = max(self.supports[parent])
        scale = (high - base) / max(top, 1) * 0.9 if slope else 0.0
        return np.float64(base) + np.float64(scale) * self.rvs[
            parent
        ], lambda point: base + scale * point[parent]

    def _bernoulli(self, name, parent):
        graph, p = self._rate(parent, 0.1, 0.9)
        self.rvs[name] = pm.Bernoulli(name, p=graph)
        self.supports[name] = [0, 1]
        self.terms.append(lambda x: math.log(p(x) if x[name] else 1 - p(x)))

    def _categorical(self, name, parent):
        k = int(self.rng.integers(3, 6))
        if parent is None:
            table = self.rng.dirichlet(np.ones(k))[None]
            graph, row = pt.constant(table[0]), lambda x: 0
        else:
            table = self.rng.dirichlet(np.ones(k), size=max(self.supports[parent]) + 1)
            graph, row = pt.constant(table)[self.rvs[parent]], lambda x: x[parent]
        self.rvs[name] = pm.Categorical(name, p=graph)
        self.supports[name] = list(range(k))
        self.terms.append(lambda x: math.log(table[row(x), x[name]]))

    def _uniform(self, name, parent):
        low, high = int(self.rng.integers(0, 2)), int(self.rng.integers(4, 8))
        if parent is None or max(self.supports[parent]) > high:
            self.rvs[name] = pm.DiscreteUniform(name, lower=np.int64(low), upper=np.int64(high))
            self.terms.append(lambda x: -math.log(high - low + 1))
        else:  # X2 given X1 uniform on {X1, ..., high}
            self.rvs[name] = pm.DiscreteUniform(name, lower=self.rvs[parent], upper=np.int64(high))
            low = 0
            self.terms.append(
                lambda x: -math.log(high - x[parent] + 1) if x[name] >= x[parent] else -math.inf
            )
        self.supports[name] = list(range(low, high + 1))

    def _binomial(self, name, parent):
        graph, p = self._rate(None, 0.2, 0.8)
        if parent is None:
            n = int(self.rng.integers(2, 7))
            self.rvs[name] = pm.Binomial(name, n=np.int64(n), p=graph)
            count = lambda x: n  # noqa: E731
        else:
            n = max(self.supports[parent])
            self.rvs[name] = pm.Binomial(name, n=self.rvs[parent], p=graph)
            count = lambda x: x[parent]  # noqa: E731
        self.supports[name] = list(range(n + 1))
        self.terms.append(lambda x: self.hand.log_binomial(x[name], count(x), p(x)))

    def _poisson(self, name, parent):
        graph, mu = self._rate(parent, 0.5, 4.0)
        top = 7
        self.rvs[name] = pm.Truncated(name, pm.Poisson.dist(mu=graph), upper=top)
        self.supports[name] = list(range(top + 1))
        self.terms.append(
            lambda x: (
                self.hand.log_poisson(x[name], mu(x))
                - math.log(sum(math.exp(self.hand.log_poisson(k, mu(x))) for k in range(top + 1)))
            )
        )

    def _combination(self):
        names = [n for n in self.rvs if self.rng.random() < 0.7] or [next(iter(self.rvs))]
        signs = [int(self.rng.choice([1, 1, 1, -1])) for _ in names]
        shift = int(self.rng.integers(-3, 4))
        graph = np.int64(shift)
        for s, n in zip(signs, names, strict=True):
            graph = graph + s * self.rvs[n] if s < 0 else graph + self.rvs[n]
        return graph, lambda x: shift + sum(s * x[n] for s, n in zip(signs, names, strict=True))

    def _measurement(self, name):
        graph, value = self._combination()
        sigma2, seen = float(self.rng.uniform(0.3, 6.0)), int(self.rng.integers(-2, 9))
        DiscreteGaussian(name, graph, sigma2=np.float64(sigma2), observed=np.int64(seen))
        self.terms.append(lambda x: self.hand.log_discrete_gaussian(seen - value(x), sigma2))

    def _potential(self, name):
        a, b = self.rng.choice(list(self.rvs), 2, replace=True)
        weight, forbidden = float(self.rng.normal(0, 0.3)), int(self.rng.integers(5, 12))
        product = self.rvs[a] * self.rvs[b]
        pm.Potential(name, np.float64(weight) * product)
        graph, value = self._combination()
        pm.Potential(name + "_not", pt.switch(pt.eq(graph, forbidden), -np.inf, np.float64(0.0)))
        self.terms.append(lambda x: weight * x[a] * x[b] + (-math.inf if value(x) == forbidden else 0.0))

    def _target(self):
        kind = self.rng.choice(["unknown", "sum", "product"])
        names = list(self.rvs)
        first, last = names[0], names[-1]
        if kind == "unknown":
            self.target, self.value = last, lambda x: x[last]
        elif kind == "sum":
            graph, self.value = self._combination()
            pm.Deterministic("target", graph)
            self.target = "target"
        else:
            pm.Deterministic("target", self.rvs[first] * self.rvs[last])
            self.target, self.value = "target", lambda x: x[first] * x[last]


@pytest.mark.parametrize("seed", range(44))
def test_a_random_model_has_the_marginals_and_evidence_of_its_enumeration(seed, hand):
    random = RandomModel(seed, hand)
    oracle = hand.enumerate(random.supports, random.log_weight)
    if not np.isfinite(oracle.log_w.max()):
        pytest.fail("the generator made an impossible model: change its seeds")
    answer = compile_exact(random.model, random.target).solve()
    assert answer.log_evidence == pytest.approx(oracle.log_evidence, abs=1e-6)
    hand.agree(answer.posterior, oracle.pmf(random.value))
    for name in random.rvs:
        hand.agree(answer.marginal(name), oracle.pmf(lambda x, name=name: x[name]))
    assert answer.cut_off_bound == 0.0
    assert answer.bound_proven
