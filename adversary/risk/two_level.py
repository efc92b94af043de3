"""Expected disclosure risk with two levels: block, block group, and the sum of the block's siblings.

The block's own noise enters the log-odds linearly, so it sums to one look-up; what is left is a sum over the
pairs (noisy group count, noisy rest). For all pairs at once the weight of the rest's true count is a matrix
product of positive terms: no logarithm is taken inside, no digit is lost, and nothing underflows inside the
windows (every entry is at least the term of the truth). The windows' bound on what is left out is carried
through.

Modes: ``exact`` (the rest is not negative, the stated model), ``integer`` (the rest may be any integer),
``literal`` (the stationary law of the paper's two-block sampler whose X1 step ignores X1 <= X2: it belongs to
no joint distribution and exists to reproduce printed numbers). Noise of the rest: ``approximate`` (one
discrete Gaussian of parameter ``others * sigma2``, equation (3.7)), ``exact`` (the convolution), ``mixed``
(drawn exactly, read approximately).

Held to account by tests/risk/test_two_level.py and the ids ``f4_ f5_ f5t0_ f6_ mc_ hier_ noise_ s4_ t8_`` of
the reference.

Sources: Kazan & Reiter (arXiv 2204.04253), section 3.2; expected values by our own derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
from adversary.risk.law import LogOddsLaw

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["TwoLevelDesign", "expected_two_level", "two_level_log_odds"]

_CUT = 1e-24  # relative weight of the rest's true counts that are not summed
_LARGEST = 60_000_000  # entries of a matrix: half a gigabyte


@dataclass(frozen=True, kw_only=True)
class TwoLevelDesign:
    """What is published, and how the adversary reads it.

    Parameters
    ----------
    sigma2
        Noise parameter of the block's count.
    group_sigma2
        Noise parameter of the block group's count.
    others
        Number of *other* blocks in the group, whose noisy counts are summed; at least 1.
    rest_sigma2
        Noise parameter of one of those counts; as the block's by default.
    mode
        ``"exact"``, ``"integer"`` or ``"literal"``.
    noise
        ``"approximate"``, ``"exact"`` or ``"mixed"``: the noise of the sum.
    log_rest_prior
        Log prior of the rest's true count, a function of an int array (log-concave; ``-inf`` allowed); flat
        by default.

    Raises
    ------
    ModelError
        If a value cannot be.

    Examples
    --------
    >>> TwoLevelDesign(sigma2=5.0, group_sigma2=2.0, others=27).summed_sigma2
    135.0
    """

    sigma2: float
    group_sigma2: float
    others: int
    rest_sigma2: float | None = None
    mode: Literal["exact", "integer", "literal"] = "exact"
    noise: Literal["approximate", "exact", "mixed"] = "approximate"
    log_rest_prior: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None = None

    def __post_init__(self) -> None:
        for name in ("sigma2", "group_sigma2", "one_rest_sigma2"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                msg = (
                    f"{name} must be positive and finite, got {value}: "
                    "use expected_one_level without a second level"
                )
                raise ModelError(msg, value)
        if int(self.others) != self.others or self.others < 1:
            msg = (
                f"others must be a whole number of at least 1, got {self.others}: "
                "an only child is expected_uniqueness"
            )
            raise ModelError(msg, self.others)
        checked_choice(self.mode, ("exact", "integer", "literal"), "mode")
        checked_choice(self.noise, ("approximate", "exact", "mixed"), "noise")
        if self.mode == "literal" and (self.noise == "exact" or self.log_rest_prior is not None):
            msg = (
                "the literal mode replicates the paper: "
                "approximate noise and a flat rest only, use mode='exact'"
            )
            raise UnsupportedModelError(msg, self)

    @property
    def one_rest_sigma2(self) -> float:
        """Noise parameter of one sibling's count."""
        return self.sigma2 if self.rest_sigma2 is None else self.rest_sigma2

    @property
    def summed_sigma2(self) -> float:
        """Noise parameter of the siblings' sum under the approximation."""
        return self.others * self.one_rest_sigma2

    @property
    def has_closed_mode(self) -> bool:
        """Whether the rest's weight is a Gaussian cut at zero: its window is then known in advance."""
        return self.noise != "exact" and self.log_rest_prior is None

    def log_rest_noise(self, size: int, *, read: bool) -> NDArray[np.float64]:
        """Log probability of the summed noise at ``-size..size``, as drawn, or as the adversary reads it (``read``)."""
        n = np.arange(-size, size + 1)
        if self.noise == "exact" or (self.noise == "mixed" and not read):
            return np.asarray(dg.sum_log_pmf(n, self.one_rest_sigma2, self.others))
        return np.asarray(dg.log_pmf(n, self.summed_sigma2))


def _rest_support(
    design: TwoLevelDesign, group: NDArray[np.int64], rest: NDArray[np.int64], widened: int = 1
) -> NDArray[np.int64]:
    """Find the true counts of the rest that carry all but ``_CUT`` of every entry's weight.

    Off an entry's mode m the weight falls at least as ``exp(-tau (j - m)^2 / 2)`` where noise and prior have
    a closed mode. Otherwise the window is a first guess that :func:`_edges_are_light` accepts or has widened.
    """
    s2, s3 = design.group_sigma2, design.summed_sigma2
    reach = math.sqrt(-2.0 * math.log(_CUT) * s2 * s3 / (s2 + s3)) + 2.0
    corners = [
        (s3 * b + s2 * y) / (s2 + s3)
        for b in (int(group[0]), int(group[-1]))
        for y in (int(rest[0]), int(rest[-1]))
    ]
    if not design.has_closed_mode:
        reach = widened * (math.sqrt(2.0 * (70.0 - math.log(_CUT)) * s2) + 2.0)
        corners = [float(group[0]), float(group[-1])]
    low = math.floor(min(corners) - reach)
    high = math.ceil(max(*corners, 0.0) + reach)
    if design.mode != "integer":
        low = max(low, 0)
    return np.arange(low, max(high, low + 1) + 1)


def _rest_weights(
    design: TwoLevelDesign, support: NDArray[np.int64], rest: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Weight of a true rest (columns) given its noisy value (rows)."""
    first, last = int(rest[0] - support[-1]), int(rest[-1] - support[0])
    size = max(abs(first), abs(last))
    table = design.log_rest_noise(size, read=True)
    log_weight = table[rest[:, None] - support[None, :] + size]
    if design.log_rest_prior is not None:
        log_weight = log_weight + np.asarray(design.log_rest_prior(support), dtype=np.float64)
    top = log_weight.max(axis=1, keepdims=True)
    if not np.all(np.isfinite(top)):
        msg = f"log_rest_prior allows no count of the rest between {support[0]} and {support[-1]}: widen it"
        raise ModelError(msg, design)
    return np.asarray(np.exp(log_weight - top))


def _group_weights(
    sigma2: float, group: NDArray[np.int64], support: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Likelihood of a noisy group count (rows) for each of ``support`` (columns), and the log scales."""
    exponent = (group[:, None] - support[None, :]).astype(np.float64) ** 2 / (-2.0 * sigma2)
    top = exponent.max(axis=1)
    return np.exp(exponent - top[:, None]), top


def _edges_are_light(
    likelihood: NDArray[np.float64],
    weight: NDArray[np.float64],
    mass: NDArray[np.float64],
    *,
    open_below: bool,
) -> bool:
    """Whether the weight beyond both ends is below 1e-18 of every entry (ratio bound)."""
    for last, before, wanted in ((-1, -2, True), (0, 1, open_below)):
        if not wanted:
            continue
        edge = likelihood[:, last, None] * weight[None, :, last]
        inner = likelihood[:, before, None] * weight[None, :, before]
        # beyond the edge lies at most edge * r / (1 - r) with r = edge / inner
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(edge > 0, edge / inner, 0.0)
            if np.any((ratio >= 1.0) | (edge / mass * ratio > 1e-18 * (1.0 - ratio))):
                return False
    return True


def _gain_table(
    design: TwoLevelDesign, group: NDArray[np.int64], rest: NDArray[np.int64], widened: int = 1
) -> NDArray[np.float64]:
    """Gain in log-odds from group and rest (modes exact and integer), shape (group.size, rest.size)."""
    wide = np.concatenate([[group[0] - 1], group])
    support = _rest_support(design, wide, rest, widened)
    if support.size * max(wide.size, rest.size) > _LARGEST or wide.size * rest.size > _LARGEST:
        msg = (
            f"{wide.size} x {rest.size} x {support.size} terms are too many: "
            "narrow the windows (tolerance) or use less noise"
        )
        raise UnsupportedModelError(msg, design)
    likelihood, scale = _group_weights(design.group_sigma2, wide, support)
    weight = _rest_weights(design, support, rest)
    mass = likelihood @ weight.T
    if design.has_closed_mode:
        pass
    elif not _edges_are_light(likelihood, weight, mass, open_below=design.mode == "integer"):
        return _gain_table(design, group, rest, 2 * widened)
    if not mass.min() > 1e-290:
        return _gain_by_logs(design, wide, support, rest)
    log_mass = np.log(mass) + scale[:, None]
    return np.asarray(log_mass[:-1] - log_mass[1:])


def _gain_by_logs(
    design: TwoLevelDesign, wide: NDArray[np.int64], support: NDArray[np.int64], rest: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Do the same by log-sum-exp, for releases so far from every truth that the products underflow."""
    size = int(max(abs(rest[0] - support[-1]), abs(rest[-1] - support[0])))
    table = design.log_rest_noise(size, read=True)
    prior = 0.0 if design.log_rest_prior is None else design.log_rest_prior(support)
    out = np.empty((wide.size, rest.size))
    for column, y in enumerate(rest):
        terms = (
            table[y - support + size] + prior - (wide[:, None] - support) ** 2 / (2.0 * design.group_sigma2)
        )
        top = terms.max(axis=1, keepdims=True)
        out[:, column] = (top + np.log(np.exp(terms - top).sum(axis=1, keepdims=True)))[:, 0]
    return np.asarray(out[:-1] - out[1:])


def two_level_log_odds(
    design: TwoLevelDesign,
    block: NDArray[np.int64],
    group: NDArray[np.int64],
    rest: NDArray[np.int64],
    *,
    p: float | None = None,
    log_odds: float | None = None,
) -> NDArray[np.float64]:
    """Posterior log-odds on a box of releases.

    Parameters
    ----------
    design
        What is published and how it is read.
    block, group, rest
        Noisy counts, each an increasing run of consecutive integers. ``block`` and ``group`` less the known
        persons of the block, ``rest`` as it is (supplement S1.1).
    p, log_odds
        Prior, given once.

    Returns
    -------
    ndarray
        Shape (block.size, group.size, rest.size). In literal mode: of the sampler's stationary probability.

    Examples
    --------
    >>> rho1, rho2 = 0.09922635422547502, 0.24648450960703558
    >>> design = TwoLevelDesign(sigma2=1 / (2 * rho1), group_sigma2=1 / (2 * rho2), others=27)
    >>> release = [np.array([n]) for n in (2, 1, -1)]
    >>> round(float(two_level_log_odds(design, *release, p=0.5)[0, 0, 0]), 9)
    0.013151495
    """
    prior = checked_prior(p, log_odds)
    block, group, rest = (np.asarray(v, dtype=np.int64) for v in (block, group, rest))
    for name, run in (("block", block), ("group", group), ("rest", rest)):
        if run.ndim != 1 or run.size == 0 or np.any(np.diff(run) != 1):
            msg = (
                f"{name} must be a run of consecutive integers, got {run}: ask for single releases one by one"
            )
            raise ModelError(msg, run)
    own = (2.0 * block.astype(np.float64) - 1.0) / (2.0 * design.sigma2)
    if design.mode == "literal":
        return _literal_log_odds(design, own + prior, group, rest)
    return np.asarray(own[:, None, None] + (prior + _gain_table(design, group, rest)))


def _literal_log_odds(
    design: TwoLevelDesign, own: NDArray[np.float64], group: NDArray[np.int64], rest: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Log-odds of the stationary law pi = P01 / (1 - P11 + P01) of the two-block sampler (spec 1.7)."""
    wide = np.concatenate([[group[0] - 1], group])
    support = _rest_support(design, wide, rest)
    likelihood, _ = _group_weights(design.group_sigma2, wide, support)
    weight = _rest_weights(design, support, rest)
    slope = 1.0 / (2.0 * design.summed_sigma2)
    if_absent = (2.0 * (support[None, :] - rest[:, None]) - 1.0) * slope  # X2 = known + j
    if_present = (2.0 * (support[None, :] + 1 - rest[:, None]) - 1.0) * slope  # X2 = known + 1 + j
    mass = likelihood @ weight.T
    out = np.empty((own.size, group.size, rest.size))
    for k, value in enumerate(own):
        up = likelihood[1:] @ (weight * np.exp(-np.logaddexp(0.0, -(value + if_absent)))).T
        down = likelihood[:-1] @ (weight * np.exp(-np.logaddexp(0.0, value + if_present))).T
        out[k] = np.log(up / mass[1:]) - np.log(down / mass[:-1])
    return out


def _laws(
    design: TwoLevelDesign, total: int, prior: float, left_out: float, truth: Truth
) -> tuple[LogOddsLaw | None, LogOddsLaw | None]:
    """Laws of the log-odds if the group truly holds ``total``, given present and absent, as far as asked for."""
    half1, half2 = noise_window(design.sigma2, left_out), noise_window(design.group_sigma2, left_out)
    half3 = noise_window(design.summed_sigma2, left_out)
    n1, n2, n3 = (np.arange(-h, h + 1) for h in (half1, half2, half3))
    w1 = np.exp(dg.log_pmf(n1, design.sigma2))
    above = np.outer(
        np.exp(dg.log_pmf(n2, design.group_sigma2)), np.exp(design.log_rest_noise(half3, read=False))
    )
    wanted = [here for here, name in ((1, "present"), (0, "absent")) if truth in (name, "average")]
    # one table serves both truths: their windows of the rest are shifted by one
    rest = np.arange(total - max(wanted) - half3, total - min(wanted) + half3 + 1)
    table = None if design.mode == "literal" else prior + _gain_table(design, total + n2, rest)
    laws: dict[int, LogOddsLaw] = {}
    for here in wanted:
        own = (2.0 * (n1 + here).astype(np.float64) - 1.0) / (2.0 * design.sigma2)
        if table is None:
            values = _literal_log_odds(design, own + prior, total + n2, total - here + n3)
            weight = (w1[:, None, None] * above).ravel()
            laws[here] = LogOddsLaw(values.ravel(), weight, np.zeros(1), np.ones(1), 3.0 * left_out)
        else:
            first = total - here - half3 - int(rest[0])
            base = table[:, first : first + n3.size].ravel()
            laws[here] = LogOddsLaw(base, above.ravel(), own, w1, 3.0 * left_out)
    return laws.get(1), laws.get(0)


def expected_two_level(
    design: TwoLevelDesign,
    total: int,
    *,
    p: float | None = None,
    log_odds: float | None = None,
    truth: Truth = "present",
    ties: Ties = "strict",
    tolerance: float = 1e-12,
) -> ExpectedRisk:
    """Disclosure risk from block, block group and rest, averaged over their noise.

    Parameters
    ----------
    design
        What is published, and how the adversary reads it.
    total
        True count of the block group less the known persons of the block, so ``total - 1`` persons are
        elsewhere if the target is present and ``total`` if not (the paper's x2 with nobody known).
    p, log_odds
        Prior, given once.
    truth
        ``"present"``, ``"absent"``, or ``"average"``; the total is the same in both.
    ties
        ``"strict"`` or ``"half"``.
    tolerance
        Bound on what is left out, as a share of the prior's smaller side; in (1e-60, 0.1).

    Returns
    -------
    ExpectedRisk
        ``left_out_bound`` is at most ``tolerance``; ``risk`` is wrong by no more than it either.

    Raises
    ------
    ModelError
        If the truth is impossible (a present target in an empty group) or an argument cannot be.
    UnsupportedModelError
        If the windows are too wide to sum (noise parameters beyond about 1e5).

    Examples
    --------
    >>> rho1, rho2 = 0.09922635422547502, 0.24648450960703558
    >>> design = TwoLevelDesign(sigma2=1 / (2 * rho1), group_sigma2=1 / (2 * rho2), others=27)
    >>> round(expected_two_level(design, 1, p=0.5).right, 6)
    0.318191
    """
    prior = checked_prior(p, log_odds)
    checked_choice(truth, ("present", "absent", "average"), "truth")
    checked_choice(ties, ("strict", "half"), "ties")
    if not 1e-60 < tolerance < 0.1:
        msg = f"tolerance must lie between 1e-60 and 0.1, got {tolerance}: 1e-12 is the default"
        raise ModelError(msg, tolerance)
    least = 0 if truth == "absent" else 1
    if design.mode != "integer" and total < least:
        msg = (
            f"a group with total {total} cannot be with truth {truth!r}: "
            f"the rest would be negative, give at least {least}"
        )
        raise ModelError(msg, total)
    smaller = math.exp(-float(np.logaddexp(0.0, abs(prior))))
    left_out = max(tolerance * max(smaller, 1e-12) / 3.0, 1e-75)
    present, absent = _laws(design, total, prior, left_out, truth)
    return summarise(
        present, absent, prior, truth, ties, method=f"sum over a lattice of releases, mode {design.mode}"
    )
