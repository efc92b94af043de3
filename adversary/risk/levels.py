"""Expected disclosure risk over several levels: uniqueness at l levels (S1.3) and a path of ancestors.

Uniqueness: the log-odds are a sum of independent lattice variables. Its mean posterior is averaged level by
level with a proven interpolation error; the chance of a decision is a look-up of one half of the levels in
the other.

Path: a release has 2h - 1 counts, of which the block's own sums to one look-up. Up to h = 3 the rest is
summed exactly where it is small enough; beyond that the caller may ask for draws, and then gets their
standard errors. Nothing is drawn unasked.

Held to account by tests/risk/test_levels.py and the ids ``f7_ chain_ rho_eff`` of the reference.

Sources: Kazan & Reiter (arXiv 2204.04253), section 4.2 and S1.3; the path by our own derivation (spec 1.4).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import (
    ExpectedRisk,
    Ties,
    Truth,
    checked_choice,
    checked_prior,
    noise_window,
    summarise,
)
from adversary.risk.law import LogOddsLaw, average_in_turn, conditional_risk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "PathDesign",
    "averaged_logistic_normal",
    "effective_information",
    "expected_path",
    "expected_uniqueness",
]

_MOST_ATOMS = 4_000_000
_MOST_MESSAGES = 400_000


def effective_information(sigma2: Sequence[float], rest_sigma2: Sequence[float]) -> float:
    """Information about the target's count along a path, off the constraint that rests are not negative.

    ``J_h = 1/(2 sigma2_h)`` and ``J_i = 1/(2 sigma2_i) + 1/(1/J_{i+1} + 2 rest_sigma2_i)``; the paper's
    rho_eff = J_1.

    Parameters
    ----------
    sigma2
        Noise parameters of the h counts on the path, block first.
    rest_sigma2
        Noise parameters of the h - 1 *sums* over siblings.

    Returns
    -------
    float
        J_1, in units of rho with ``sigma2 = 1/(2 rho)``.

    Examples
    --------
    >>> rho1, rho2 = 0.09922635422547502, 0.24648450960703558
    >>> round(effective_information([1 / (2 * rho1), 1 / (2 * rho2)], [27 / (2 * rho1)]), 12)
    0.102847414866
    """
    if len(rest_sigma2) != len(sigma2) - 1:
        msg = f"{len(sigma2)} levels have {len(sigma2) - 1} rests between them, got {len(rest_sigma2)}"
        raise ModelError(msg, rest_sigma2)
    information = 1.0 / (2.0 * sigma2[-1])
    for own, rest in zip(reversed(sigma2[:-1]), reversed(rest_sigma2), strict=True):
        information = 1.0 / (2.0 * own) + 1.0 / (1.0 / information + 2.0 * rest)
    return information


def averaged_logistic_normal(
    information: float, *, p: float | None = None, log_odds: float | None = None, truth: Truth = "present"
) -> float:
    """Approximate mean posterior ``E[expit(N(logit p + S, 2 S))]``, the limit of fine noise.

    An approximation, for speed and for intuition only: with ``rho`` the largest single information its error
    is of the order ``exp(-3 pi^2 / (4 rho))``, below 1e-6 for rho <= 1/2 and of order one at rho = 5.
    :func:`expected_uniqueness` is exact.

    Parameters
    ----------
    information
        S, the sum of ``1/(2 sigma2)`` over the levels.
    p, log_odds
        Prior, given once.
    truth
        ``"present"``, ``"absent"`` or ``"average"`` (which is p).

    Returns
    -------
    float
        Approximate mean posterior probability that the target is present.

    Examples
    --------
    >>> round(averaged_logistic_normal(0.34571086383251, p=0.5), 9)
    0.574547183
    """
    prior = checked_prior(p, log_odds)
    checked_choice(truth, ("present", "absent", "average"), "truth")
    if truth == "average":
        return math.exp(-float(np.logaddexp(0.0, -prior)))
    sign = 1.0 if truth == "present" else -1.0
    grid = np.arange(-640, 641) / 16.0  # the trapezoid is exact to rounding for an analytic integrand
    level = prior + sign * information + math.sqrt(2.0 * information) * grid
    weight = np.exp(-0.5 * grid**2) / (16.0 * math.sqrt(2.0 * math.pi))
    return float(weight @ np.exp(-np.logaddexp(0.0, -level)))


def _level_steps(
    sigma2: float, here: int, left_out: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    half = noise_window(sigma2, left_out)
    n = np.arange(-half, half + 1)
    return (2.0 * (n + here).astype(np.float64) - 1.0) / (2.0 * sigma2), np.asarray(
        np.exp(dg.log_pmf(n, sigma2))
    )


def _convolved(
    parts: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], ...]:
    """All sums of independent parts with their probabilities, sorted."""
    value, weight = np.zeros(1), np.ones(1)
    for step, mass in parts:
        if value.size * step.size > _MOST_ATOMS:
            msg = (
                f"{len(parts)} levels have more than {_MOST_ATOMS} sums: "
                "ask for fewer levels or a larger tolerance"
            )
            raise UnsupportedModelError(msg, len(parts))
        value = (value[:, None] + step).ravel()
        weight = (weight[:, None] * mass).ravel()
    order = np.argsort(value, kind="stable")
    return value[order], weight[order]


def expected_uniqueness(
    sigma2: Sequence[float],
    *,
    p: float | None = None,
    log_odds: float | None = None,
    truth: Truth = "present",
    ties: Ties = "strict",
    tolerance: float = 1e-12,
) -> ExpectedRisk:
    """Disclosure risk for a record that would be alone in its cell at several levels (S1.3, Figure 7).

    Parameters
    ----------
    sigma2
        Noise parameters, one a level.
    p, log_odds
        Prior that the record exists, given once.
    truth, ties
        As in :func:`adversary.risk.expected.expected_one_level`.
    tolerance
        Bound on what is left out of ``right`` and of the law; ``posterior`` and ``risk`` are summed to 1e-60.

    Returns
    -------
    ExpectedRisk
        With up to about six levels of noise parameter 10 the law of R' is complete; more are refused.

    Examples
    --------
    >>> rho = [0.09922635422547502, 0.24648450960703558]
    >>> round(expected_uniqueness([1 / (2 * r) for r in rho], p=0.5).posterior, 12)
    0.574547182625
    """
    prior = checked_prior(p, log_odds)
    checked_choice(truth, ("present", "absent", "average"), "truth")
    levels = [float(s) for s in sigma2]
    if not levels or not all(s > 0 and math.isfinite(s) for s in levels):
        msg = f"sigma2 must list positive finite noise parameters, got {levels}: leave unmeasured levels out"
        raise ModelError(msg, sigma2)
    left_out = tolerance / len(levels)
    half = len(levels) // 2
    laws: list[LogOddsLaw | None] = []
    means = []
    for name, here in (("present", 1), ("absent", 0)):
        if truth not in (name, "average"):
            laws.append(None)
            means.append(0.0)
            continue
        parts = [_level_steps(s, here, left_out) for s in levels]
        base, base_weight = _convolved(parts[:half])
        step, step_weight = _convolved(parts[half:])
        laws.append(LogOddsLaw(base + prior, base_weight, step, step_weight, tolerance))
        means.append(average_in_turn(prior, [_level_steps(s, here, 1e-60) for s in levels]))
    answer = summarise(
        laws[0], laws[1], prior, truth, ties, method=f"sum over {len(levels)} lattices", with_risk=False
    )
    share = {"present": 1.0, "absent": 0.0, "average": answer.prior}[truth]
    risk = share * means[0] + (1.0 - share) * means[1]
    return dataclasses.replace(answer, risk=risk, posterior=risk * answer.prior)


@dataclass(frozen=True, kw_only=True)
class PathDesign:
    """What is published along a path of h levels.

    Parameters
    ----------
    sigma2
        Noise parameters of the h counts on the path, block first.
    others
        Numbers of siblings of the path's node at each of the lower h - 1 levels; each at least 1.
    rest_sigma2
        Noise parameters of *one* sibling's count at those levels; the path's own by default.
    noise
        Noise of the sums over siblings: ``"approximate"`` (equation (3.7)) or ``"exact"``, as drawn and as
        read.

    Examples
    --------
    >>> PathDesign(sigma2=(5.0, 2.0, 10.0), others=(27, 3)).summed_sigma2
    (135.0, 6.0)
    """

    sigma2: tuple[float, ...]
    others: tuple[int, ...]
    rest_sigma2: tuple[float, ...] | None = None
    noise: str = "approximate"

    def __post_init__(self) -> None:
        checked_choice(self.noise, ("approximate", "exact"), "noise")
        if len(self.sigma2) < 2 or len(self.others) != len(self.sigma2) - 1:
            msg = (
                "h levels need h - 1 numbers of siblings and h of at least 2, "
                f"got {self.sigma2} and {self.others}"
            )
            raise ModelError(msg, self)
        values = (*self.sigma2, *(self.rest_sigma2 or ()))
        if not all(s > 0 and math.isfinite(s) for s in values) or not all(d >= 1 for d in self.others):
            msg = f"noise parameters must be positive and finite, numbers of siblings at least 1, got {self}"
            raise ModelError(msg, self)

    @property
    def summed_sigma2(self) -> tuple[float, ...]:
        """Noise parameters of the sums over siblings."""
        single = self.rest_sigma2 or self.sigma2[:-1]
        return tuple(d * s for d, s in zip(self.others, single, strict=True))

    def rest_log_pmf(self, level: int, n: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log pmf at ``n`` of the noise of the sum at ``level`` (0 = the block's siblings)."""
        if self.noise == "exact":
            single = (self.rest_sigma2 or self.sigma2[:-1])[level]
            return np.asarray(dg.sum_log_pmf(n, single, self.others[level]))
        return np.asarray(dg.log_pmf(n, self.summed_sigma2[level]))


def expected_path(
    design: PathDesign,
    totals: Sequence[int],
    *,
    p: float | None = None,
    truth: Truth = "present",
    tolerance: float = 1e-9,
    draws: int | None = None,
    seed: int | np.random.SeedSequence | np.random.Generator | None = None,
) -> ExpectedRisk:
    """Disclosure risk from the counts of a block, its ancestors, and the rests between them.

    Parameters
    ----------
    design
        What is published.
    totals
        True counts of the ancestors (levels 2..h) less the known persons of the block, not decreasing.
    p
        Prior that the target is present.
    truth
        ``"present"``, ``"absent"`` or ``"average"``; the totals are the same in both.
    tolerance
        Bound on the probability left out of the sum; relative weight cut inside the messages is 1e-3 of it.
    draws, seed
        Where the sum is too large: number of releases to draw, and from where. Both or neither.

    Returns
    -------
    ExpectedRisk
        With ``standard_error`` and ``right_standard_error`` above zero if it was drawn.

    Raises
    ------
    UnsupportedModelError
        If the sum is too large and no draws were asked for; names how many terms there are.

    Examples
    --------
    >>> design = PathDesign(sigma2=(0.5, 0.5, 0.5), others=(2, 2))
    >>> answer = expected_path(design, (2, 3), p=0.5)
    >>> answer.standard_error, answer.left_out_bound <= 1e-9
    (0.0, True)
    """
    prior = checked_prior(p, None)
    checked_choice(truth, ("present", "absent", "average"), "truth")
    if len(totals) != len(design.others):
        msg = f"totals must name levels 2 to h, {len(design.others)} in all, got {list(totals)}"
        raise ModelError(msg, totals)
    least = 0 if truth == "absent" else 1
    if totals[0] < least or np.any(np.diff(totals) < 0):
        msg = (
            f"totals must not decrease and begin with at least {least}, got {list(totals)}: "
            "the rests would be negative"
        )
        raise ModelError(msg, totals)
    if (draws is None) != (seed is None):
        msg = f"draws and seed go together, got draws={draws} and seed={seed}"
        raise ModelError(msg, (draws, seed))
    laws: list[LogOddsLaw | None] = []
    for name, here in (("present", 1), ("absent", 0)):
        wanted = truth in (name, "average")
        laws.append(_path_law(design, totals, prior, here, tolerance, draws, seed) if wanted else None)
    how = (
        "sum over a lattice of releases"
        if draws is None
        else f"{draws} releases drawn, the block's own noise summed"
    )
    answer = summarise(laws[0], laws[1], prior, truth, "strict", method=how)
    return answer if draws is None else _with_standard_errors(answer, draws)


def _with_standard_errors(answer: ExpectedRisk, draws: int) -> ExpectedRisk:
    variance = right_variance = 0.0
    for share, law in answer.laws:
        risk = conditional_risk(law, answer.prior_log_odds) * answer.prior
        cut = np.searchsorted(law.step, 1e-9 - law.base, side="right")
        tail = np.concatenate([np.cumsum(law.step_weight[::-1])[::-1], [0.0]])[cut]
        variance += share**2 * float(risk.var()) / draws
        right_variance += share**2 * float(tail.var()) / draws
    return dataclasses.replace(
        answer, standard_error=math.sqrt(variance), right_standard_error=math.sqrt(right_variance)
    )


def _path_law(
    design: PathDesign,
    totals: Sequence[int],
    prior: float,
    here: int,
    tolerance: float,
    draws: int | None,
    seed: int | np.random.SeedSequence | np.random.Generator | None,
) -> LogOddsLaw:
    count = 2 * len(design.sigma2) - 1
    left_out = tolerance / count
    path = [here, *(int(t) for t in totals)]
    rests = [b - a for a, b in pairwise(path)]
    step, step_weight = _level_steps(design.sigma2[0], here, left_out)
    messages = _Messages(design, path, left_out)
    if draws is not None:
        rng = np.random.default_rng(seed)
        base = messages.drawn(rests, draws, rng)
        return LogOddsLaw(prior + base, np.full(draws, 1.0 / draws), step, step_weight, tolerance)
    if messages.size > _MOST_MESSAGES:
        msg = (
            f"a path of {len(path)} levels has {messages.size} messages to sum: "
            "give draws= and seed=, or more tolerance"
        )
        raise UnsupportedModelError(msg, messages.size)
    base, weight = messages.summed(rests)
    return LogOddsLaw(prior + base, weight, step, step_weight, tolerance)


class _Messages:
    """Messages down a path for many releases at once, on one window of counts per level around the truth."""

    def __init__(self, design: PathDesign, path: list[int], left_out: float) -> None:
        self.design, self.path = design, path
        # inside the windows every release has weight >= left_out^(2h-1) at the truth; cut 1e-12 below that
        depth = -math.log(left_out) * (2 * len(path) - 1) + 28.0
        self.grids = [np.array([0, 1])]
        for level in range(1, len(path)):
            reach = (
                math.sqrt(2.0 * design.sigma2[level])
                * (math.sqrt(-math.log(left_out / 2)) + math.sqrt(depth))
                + 2
            )
            low = max(0, math.floor(path[level] - reach))
            self.grids.append(np.arange(low, math.ceil(path[level] + reach) + 1))
        self.noise = [noise_window(s, left_out) for s in design.sigma2]
        self.rest_noise = [noise_window(s, left_out) for s in design.summed_sigma2]
        self.size = math.prod(2 * n + 1 for n in self.noise[1:]) * math.prod(
            2 * n + 1 for n in self.rest_noise[1:]
        )

    def _kernel(self, level: int, rest: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weights f(y* - (upper - lower)), shape (rest, lower, upper); zero where upper < lower."""
        gap = self.grids[level + 1][None, :] - self.grids[level][:, None]
        offset = rest[:, None, None] - gap
        size = int(np.abs(offset).max())
        table = np.exp(self.design.rest_log_pmf(level, np.arange(-size, size + 1)))
        return np.asarray(np.where(gap >= 0, table[offset + size], 0.0))

    def _likelihood(self, level: int, noisy: NDArray[np.int64]) -> NDArray[np.float64]:
        gap = noisy[:, None] - self.grids[level][None, :]
        return np.asarray(np.exp(gap.astype(np.float64) ** 2 / (-2.0 * self.design.sigma2[level])))

    def summed(self, rests: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gain in log-odds and probability for every release on the lattice, the block's own count aside."""
        top = len(self.path) - 1
        n = np.arange(-self.noise[top], self.noise[top] + 1)
        message = self._likelihood(top, self.path[top] + n)
        weight = np.exp(dg.log_pmf(n, self.design.sigma2[top]))
        for level in range(top - 1, -1, -1):
            m = np.arange(-self.rest_noise[level], self.rest_noise[level] + 1)
            kernel = self._kernel(level, rests[level] + m)
            message = np.einsum("nu,rlu->nrl", message, kernel, optimize=True)
            weight = (weight[:, None] * np.exp(self.design.rest_log_pmf(level, m))).ravel()
            if level == 0:
                break
            n = np.arange(-self.noise[level], self.noise[level] + 1)
            own = self._likelihood(level, self.path[level] + n)
            message = (message.reshape(-1, 1, own.shape[1]) * own).reshape(-1, own.shape[1])
            weight = (weight[:, None] * np.exp(dg.log_pmf(n, self.design.sigma2[level]))).ravel()
            message /= message.max(axis=1, keepdims=True)
        return np.log(message[..., 1] / message[..., 0]).ravel(), weight

    def drawn(self, rests: list[int], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Gain in log-odds for drawn releases, the block's own count aside."""
        out = np.empty(draws)
        for start in range(0, draws, 2_000):
            size = min(2_000, draws - start)
            out[start : start + size] = self._drawn(rests, size, rng)
        return out

    def _drawn(self, rests: list[int], size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        top = len(self.path) - 1
        message = self._likelihood(top, self.path[top] + self._noise(self.design.sigma2[top], size, rng))
        for level in range(top - 1, -1, -1):
            noise = self._rest_noise(level, size, rng)
            values, which = np.unique(noise, return_inverse=True)
            kernel = self._kernel(level, rests[level] + values)
            lowered = np.empty((size, self.grids[level].size))
            for k in range(values.size):
                lowered[which == k] = message[which == k] @ kernel[k].T
            message = lowered
            if level:
                message *= self._likelihood(
                    level, self.path[level] + self._noise(self.design.sigma2[level], size, rng)
                )
            message /= message.max(axis=1, keepdims=True)
        return np.asarray(np.log(message[:, 1] / message[:, 0]))

    @staticmethod
    def _noise(sigma2: float, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.asarray(dg.sample(sigma2, size, rng), dtype=np.int64)

    def _rest_noise(self, level: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        if self.design.noise == "approximate":
            return self._noise(self.design.summed_sigma2[level], size, rng)
        single = (self.design.rest_sigma2 or self.design.sigma2[:-1])[level]
        return self._noise(single, (self.design.others[level], size), rng).sum(axis=0)  # type: ignore[arg-type]
