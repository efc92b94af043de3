"""The problem that the reference sampler solves, and how its priors and noise are read.

What it is: :class:`PathProblem` and the plain-number form of it that :mod:`adversary.samplers.gibbs` samples.
What it is not: a model in PyMC's sense; it knows NumPy, the privacy room and the errors, and nothing else.

Held to account by ``tests/samplers/test_gibbs.py``. Sources: Kazan & Reiter, arXiv 2204.04253, sec. 3.2,
(3.7), S2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy.discrete_gaussian import sum_log_pmf, sum_variation

__all__ = ["SUM_LIMIT", "Chain", "PathProblem", "Rest", "pooled", "read_path", "rest_log_pmf"]

SUM_LIMIT = 1e-6
"""Largest total variation at which the noise of a sum is taken as one discrete Gaussian (eq. (3.7))."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
LogMass = Callable[[IntArray], FloatArray]


@dataclass(frozen=True)
class PathProblem:
    """One target in a block, and the published counts of the block and of everything above it.

    X1 is ``known`` or ``known + 1``; X_{i+1} = X_i + Y_i with Y_i >= 0 the count of everybody else below node
    i + 1.

    Parameters
    ----------
    known
        c, the count of the others in the block.
    prior_log_odds
        log P[X1 = c+1] - log P[X1 = c], as log p - log1p(-p). Finite.
    nodes
        For each level from the block up: (noisy count, its sigma2), or None where nothing was published.
        sigma2 = 0 is an exact count.
    rests
        For each step up: (noisy sum or None, sigma2 of *one* noisy count, groups added up, prior of the true
        sum). The prior may be left out (flat) and is (family, parameters): ``("flat", {})``, ``("uniform",
        {"upper": N})`` on {0..N}, ``("poisson", {"mu": m})``, ``("geometric", {"p": p})`` with mass p(1-p)^y
        on {0, 1, ...}, ``("negative_binomial", {"alpha": a, "mu": m})``, ``("point", {"value": v})``; or a
        vectorised function giving the log of a proper mass on the whole numbers from 0 up, whose support has
        no gaps.

    Raises
    ------
    ModelError
        For lengths that do not fit, counts that are not whole numbers, or noise and priors that cannot be.

    Examples
    --------
    >>> PathProblem(known=0, prior_log_odds=0.0, nodes=((2, 5.04),)).levels
    1
    """

    known: int
    prior_log_odds: float
    nodes: tuple[Any, ...]
    rests: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.prior_log_odds):
            msg = (
                f"prior_log_odds must be finite, got {self.prior_log_odds}: a certainty leaves nothing to "
                "learn"
            )
            raise ModelError(msg, self.prior_log_odds)
        if not self.nodes or len(self.rests) != len(self.nodes) - 1:
            msg = (
                f"{len(self.nodes)} nodes need {max(len(self.nodes) - 1, 0)} rests between them, got "
                f"{len(self.rests)}"
            )
            raise ModelError(msg, self.rests)
        _whole(self.known, "known")
        for node in self.nodes:
            if node is not None:
                _whole(node[0], "a noisy count")
                _noise(node[1])
        for rest in self.rests:
            _read_rest(rest)

    @property
    def levels(self) -> int:
        """Number of levels h."""
        return len(self.nodes)


class Rest(NamedTuple):
    value: int | None
    sigma2: float
    groups: int
    low: int
    high: int | None  # None: no upper end
    log_mass: LogMass
    envelope: LogMass  # log-concave, never below log_mass (up to rounding): what the tail bound is proved on
    proper: bool

    @property
    def fixed(self) -> int | None:
        if self.value is not None and self.sigma2 == 0:
            return self.value
        return self.low if self.low == self.high else None

    def log_noise(self, y: Any) -> Any:
        if self.value is None:
            return np.zeros(np.shape(y))
        return rest_log_pmf(self.value - np.asarray(y), self.sigma2, self.groups)


class Chain(NamedTuple):
    """A problem ready for sampling: what was seen at each merged level, the rests, where each level went."""

    known: int
    prior_log_odds: float
    seen: tuple[tuple[tuple[int, float], ...], ...]
    rests: tuple[Rest, ...]
    place: tuple[tuple[int, int], ...]  # original level -> (merged level, offset)


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or abs(int(value)) >= 2**53:
        msg = f"{what} must be a whole number below 2**53, got {value!r}"
        raise ModelError(msg, value)
    return int(value)


def _noise(sigma2: Any) -> float:
    number = float(sigma2)
    if not (0 <= number < math.inf):
        msg = (
            f"sigma2 must be finite and not negative, got {sigma2!r}: give None as the count where nothing "
            "was measured"
        )
        raise ModelError(msg, sigma2)
    return number


def _read_rest(rest: Any) -> Rest:
    value, sigma2, groups, *more = rest
    low, high, log_mass, envelope, proper = _read_prior(more[0] if more else ("flat", {}))
    if groups < 1:
        msg = (
            f"a rest sums at least one noisy count, got groups={groups}: for an only child give the prior "
            f"('point', {{'value': 0}})"
        )
        raise ModelError(msg, groups)
    seen = None if value is None else _whole(value, "a noisy sum")
    return Rest(
        seen, 1.0 if seen is None else _noise(sigma2), int(groups), low, high, log_mass, envelope, proper
    )


def _read_prior(prior: Any) -> tuple[int, int | None, LogMass, LogMass, bool]:
    """Return (smallest, largest or None, log mass, log-concave envelope, whether it is proper)."""
    if callable(prior):
        return _read_function(prior)
    family, parameters = prior
    given = dict(parameters) if isinstance(parameters, Mapping) else parameters
    match family, given:
        case "flat", {**rest} if not rest:
            return 0, None, _zero, _zero, False
        case "uniform", {"upper": upper} if upper >= 0 and upper == int(upper):
            return 0, int(upper), _zero, _zero, True
        case "point", {"value": value} if value >= 0 and value == int(value):
            return int(value), int(value), _zero, _zero, True
        case "poisson", {"mu": mu} if mu > 0:
            poisson: LogMass = lambda y: np.asarray(y * math.log(mu) - _log_factorial(y))  # noqa: E731
            return 0, None, poisson, poisson, True
        case "geometric", {"p": p} if 0 < p < 1:
            geometric: LogMass = lambda y: np.asarray(y * math.log1p(-p), dtype=np.float64)  # noqa: E731
            return 0, None, geometric, geometric, True
        case "negative_binomial", {"alpha": a, "mu": mu} if a > 0 and mu > 0:
            slope = -math.log1p(a / mu)  # log of mu / (alpha + mu)
            negative: LogMass = lambda y: _log_rising(a, y) + y * slope  # noqa: E731
            # below alpha = 1 the mass is log-convex; its ratios stay under exp(slope), which bounds the tail
            tail: LogMass = negative if a >= 1 else lambda y: np.asarray(y * slope, dtype=np.float64)
            return 0, None, negative, tail, True
    msg = (
        f"the prior {prior!r} of a rest is not one of flat, uniform(upper), point(value), poisson(mu), "
        "geometric(p), negative_binomial(alpha, mu) with possible parameters: give one of them or a "
        "function of the count"
    )
    raise ModelError(msg, prior)


def _read_function(function: Callable[[IntArray], Any]) -> tuple[int, int | None, LogMass, LogMass, bool]:
    """Read a log-mass given as a function; it is <= 0, so the constant 0 is a log-concave envelope of it."""

    def log_mass(y: IntArray) -> FloatArray:
        found = np.asarray(function(y), dtype=np.float64)
        if found.shape != y.shape or np.isnan(found).any() or (found > 1e-9).any():
            msg = (
                "the prior function of a rest must give a log-probability (at most 0, not nan) for each "
                "count it is given"
            )
            raise ModelError(msg, function)
        return found

    there = np.flatnonzero(np.isfinite(log_mass(np.arange(4096, dtype=np.int64))))
    if there.size == 0 or there[-1] - there[0] + 1 != there.size:
        msg = (
            "the prior function of a rest must have a support without gaps that begins below 4096: a chain "
            "cannot jump a gap"
        )
        raise UnsupportedModelError(msg, function)
    high = None if there[-1] == 4095 else int(there[-1])
    return int(there[0]), high, log_mass, _zero, False


def _zero(y: IntArray) -> FloatArray:
    return np.zeros(np.shape(y))


def _log_factorial(y: IntArray) -> FloatArray:
    return np.array([math.lgamma(k + 1.0) for k in np.ravel(y).tolist()]).reshape(np.shape(y))


def _log_rising(a: float, y: IntArray) -> FloatArray:
    """Log of binomial(y + a - 1, y)."""
    flat = np.ravel(y).tolist()
    return np.array([math.lgamma(k + a) - math.lgamma(k + 1.0) - math.lgamma(a) for k in flat]).reshape(
        np.shape(y)
    )


def rest_log_pmf(s: Any, sigma2: float, groups: int) -> Any:
    """Log-probability of the noise of a published sum, up to a constant.

    Parameters
    ----------
    s : array_like of int
        Noise: published sum minus true sum.
    sigma2 : float
        Noise parameter of one noisy count.
    groups : int
        d, how many noisy counts were added up.

    Returns
    -------
    ndarray of float
        The exact law of the sum where eq. (3.7) would be off by more than :data:`SUM_LIMIT` in total
        variation; else the kernel -s^2/(2 d sigma2) of one discrete Gaussian, eq. (3.7).

    Examples
    --------
    >>> float(rest_log_pmf(3, 5.0, 9))
    -0.1
    """
    if sigma2 == 0:
        return np.where(np.asarray(s) == 0, 0.0, -np.inf)
    if pooled(float(sigma2), int(groups)):
        return -np.square(np.asarray(s, dtype=np.float64)) / (2 * sigma2 * groups)
    return np.asarray(sum_log_pmf(np.asarray(s, dtype=np.int64), sigma2, groups), dtype=np.float64)


@lru_cache(maxsize=256)
def pooled(sigma2: float, groups: int) -> bool:
    return groups == 1 or float(sum_variation(sigma2, groups)) <= SUM_LIMIT


def read_path(problem: PathProblem, *, merge: bool) -> Chain:
    """Read a problem; ``merge`` folds each level at a known distance from the one below into that one."""
    seen: list[list[tuple[int, float]]] = []
    rests: list[Rest] = []
    place: list[tuple[int, int]] = []
    offset = 0
    for i, node in enumerate(problem.nodes):
        rest = _read_rest(problem.rests[i - 1]) if i else None
        fixed = rest.fixed if rest is not None and merge else None
        if rest is not None and fixed is not None:
            if (
                fixed < rest.low
                or (rest.high is not None and fixed > rest.high)
                or not np.isfinite(rest.log_mass(_one(fixed)))[0]
            ):
                msg = f"the rest below level {i + 1} is exactly {fixed}, which its prior excludes"
                raise ModelError(msg, fixed)
            offset += fixed
        else:
            seen.append([])
            offset = 0
            if rest is not None:
                rests.append(rest)
        place.append((len(seen) - 1, offset))
        if node is not None:
            seen[-1].append((int(node[0]) - offset, float(node[1])))
    chain = Chain(problem.known, problem.prior_log_odds, tuple(map(tuple, seen)), tuple(rests), tuple(place))
    _check_proper(chain)
    return chain


def _one(y: int) -> IntArray:
    return np.array([y], dtype=np.int64)


def _check_proper(chain: Chain) -> None:
    for i, rest in enumerate(chain.rests):
        if not rest.proper and rest.high is None and rest.value is None and not any(chain.seen[i + 1 :]):
            msg = (
                f"nothing bounds the count between levels {i + 1} and {i + 2}: its prior is flat and no "
                "count above was published, so give it a proper prior"
            )
            raise ModelError(msg, i)
