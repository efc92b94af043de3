"""The second road: joint enumeration in plain NumPy, and log-pmfs written out by hand."""

import itertools
import math

import numpy as np
import pytest


class Enumeration:
    """All points of a small joint with their log weights; knows nothing of PyMC."""

    def __init__(self, supports, log_weight):
        self.names = list(supports)
        self.points = np.array(list(itertools.product(*supports.values())), dtype=np.int64)
        columns = dict(zip(self.names, self.points.T, strict=True))
        self.columns = columns
        self.log_w = np.array(
            [log_weight({k: int(v[i]) for k, v in columns.items()}) for i in range(len(self.points))]
        )

    @property
    def log_evidence(self):
        top = self.log_w.max()
        return float(np.log(np.exp(self.log_w - top).sum()) + top)

    def pmf(self, function):
        values = np.array(
            [function({k: int(v[i]) for k, v in self.columns.items()}) for i in range(len(self.points))]
        )
        p = np.exp(self.log_w - self.log_evidence)
        return {int(v): float(p[values == v].sum()) for v in np.unique(values)}


def log_discrete_gaussian(gap, sigma2):
    reach = int(12 * math.sqrt(sigma2)) + 12
    return -(gap**2) / (2 * sigma2) - math.log(
        sum(math.exp(-(n**2) / (2 * sigma2)) for n in range(-reach, reach + 1))
    )


def log_poisson(n, mu):
    return n * math.log(mu) - mu - math.lgamma(n + 1) if n >= 0 else -math.inf


def log_binomial(k, n, p):
    if not 0 <= k <= n:
        return -math.inf
    return math.log(math.comb(n, k)) + k * math.log(p) + (n - k) * math.log1p(-p)


class Hand:
    enumerate = Enumeration
    log_discrete_gaussian = staticmethod(log_discrete_gaussian)
    log_poisson = staticmethod(log_poisson)
    log_binomial = staticmethod(log_binomial)

    @staticmethod
    def agree(pmf, expected, tolerance=1e-10):
        got = dict(zip(pmf.support.tolist(), pmf.p.tolist(), strict=True))
        for value in set(got) | set(expected):
            assert abs(got.get(value, 0.0) - expected.get(value, 0.0)) <= tolerance, (value, got, expected)


@pytest.fixture
def hand():
    return Hand
