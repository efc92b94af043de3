"""A block's posterior reduced to what it depends on: classes of configurations that no row tells apart.

What it is: the rows, merged where they are the same, over *classes* (configurations with the same column in
every row, exact or noisy), the weight of each number of households in a class, and the conditional law of a
class's households over its members. What it is not: an algorithm on them
(:mod:`adversary.reconstruction._dynamic`, :mod:`adversary.reconstruction._tempering`).

Two likelihoods. *Exchangeable*: households are drawn one by one from the shares, so a block with counts x has
probability ``n! prod p^x / x!``. *Ordered*: ``prod p^x``, normalised over blocks of n households; this is the
score of the paper's most likely list. In both, the weight of a block factorises over classes.

Held to account by tests/reconstruction/test_posterior.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary.errors import ModelError
from adversary.privacy.discrete_gaussian import log_pmf
from adversary.reconstruction.constraints import UNBOUNDED, propagate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adversary.reconstruction.constraints import Constraints
    from adversary.reconstruction.noise import NoisyRows

__all__ = [
    "LIKELIHOODS",
    "Reduced",
    "Weights",
    "complete_homogeneous",
    "households_of_rows",
    "households_prior",
    "log_factorials",
    "reduce",
]

LIKELIHOODS = ("exchangeable", "ordered")
_MOST = 10_000  # households a block; more is refused before tables of that length are made


def log_factorials(n: int) -> NDArray[np.float64]:
    """Return log 0!, ..., log n!."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])


def complete_homogeneous(p: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return log h_0, ..., log h_n: the sums of ``prod p^x`` over all x with x_1 + x_2 + ... = t.

    By Newton's identity ``t h_t = sum_i P_i h_(t-i)`` with power sums P_i: only positive terms.

    Examples
    --------
    >>> np.exp(complete_homogeneous(np.array([0.5, 0.25]), 2)).tolist()  # 1, 3/4, 1/4 + 1/8 + 1/16
    [1.0, 0.75, 0.4375]
    """
    out = np.full(n + 1, -np.inf)
    out[0] = 0.0
    log_p = np.log(p[p > 0])
    if log_p.size == 0:
        return out
    if log_p.size == 1:
        return np.asarray(np.arange(n + 1) * log_p[0])
    power = np.array([np.logaddexp.reduce(i * log_p) for i in range(1, n + 1)])
    for t in range(1, n + 1):
        out[t] = np.logaddexp.reduce(power[:t] + out[t - 1 :: -1]) - math.log(t)
    return out


def households_prior(households: Any) -> dict[int, float]:
    """Read a number of households, a range, or probabilities by number; return log-probabilities."""
    if isinstance(households, bool):
        households = None
    if isinstance(households, int | np.integer):
        given = {int(households): 1.0}
    elif isinstance(households, range):
        given = dict.fromkeys(households, 1.0 / max(len(households), 1))
    elif isinstance(households, Mapping):
        given = {int(n): float(p) for n, p in households.items()}
    else:
        msg = f"households={households!r}: give a whole number, a range (equally likely), or {{number: probability}}"
        raise ModelError(msg, households)
    numbers = np.array(list(given.values()))
    if not given or min(given) < 0 or not (numbers >= 0).all() or abs(numbers.sum() - 1) > 1e-9:
        msg = f"households={households!r}: numbers of 0 or more, with probabilities that add up to 1"
        raise ModelError(msg, households)
    if max(given) > _MOST:
        msg = f"{max(given)} households in a block: the posterior is made for blocks of at most {_MOST}"
        raise ModelError(msg, max(given))
    return {n: math.log(p) for n, p in sorted(given.items()) if p > 0}


def households_of_rows(rows: Constraints, possible: NDArray[np.bool_]) -> int | None:
    """Return the number of households that one exact row, or the exact rows of one table, fix; None if none."""
    matrix, exact = rows.matrix[:, possible], rows.low == rows.high
    for i in np.flatnonzero(exact & (matrix == 1).all(axis=1)):
        return int(rows.low[i])
    for name in rows.tables:
        its = np.array([table == name for table in rows.table], dtype=bool)
        if exact[its].all() and (matrix[its].sum(axis=0) == 1).all():
            return int(rows.low[its].sum())
    return None


class Weights(NamedTuple):
    """The law of households within classes under one of the two likelihoods.

    Attributes
    ----------
    ordered
        Whether the likelihood is that of an ordered list.
    shares
        Probability of every configuration, shape (K,), adding up to 1.
    """

    ordered: bool
    shares: NDArray[np.float64]

    def log_weight(self, members: NDArray[np.intp], most: int) -> NDArray[np.float64]:
        """Return the log-weight of 0, ..., most households among some configurations."""
        p = self.shares[members]
        if self.ordered:
            return complete_homogeneous(p, most)
        total = float(p.sum())
        steps = np.arange(most + 1)
        if total == 0:
            return np.where(steps == 0, 0.0, -np.inf)
        return np.asarray(steps * math.log(total) - log_factorials(most))

    def log_top(self, most: int) -> NDArray[np.float64]:
        """Return what a block of 0, ..., most households is multiplied by, so that blocks of n add up to 1."""
        if self.ordered:
            return -complete_homogeneous(self.shares, most)
        return log_factorials(most)

    def split(self, picked: NDArray[np.intp], others: NDArray[np.intp], most: int) -> NDArray[np.float64]:
        """Return P(j of t households are among the picked, not the others), shape (most + 1, most + 1): [t, j]."""
        a, b = self.log_weight(picked, most), self.log_weight(others, most)
        out = np.zeros((most + 1, most + 1))
        for t in range(most + 1):
            log = a[: t + 1] + b[t::-1]
            out[t, : t + 1] = np.exp(log - np.logaddexp.reduce(log))
        return out

    def member_table(
        self, members: NDArray[np.intp], most: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return P(member present | t households) and E[its count | t], each of shape (most + 1, members)."""
        p = self.shares[members]
        steps = np.arange(most + 1)[:, None]
        if not self.ordered:
            share = p / p.sum()
            with np.errstate(divide="ignore"):
                present = -np.expm1(np.maximum(steps, 1) * np.log1p(-share))
            return np.where(steps == 0, 0.0, present), steps * share
        log_h = complete_homogeneous(p, most)
        present, expected = np.zeros((most + 1, p.size)), np.zeros((most + 1, p.size))
        for t in range(1, most + 1):
            # P(count >= j) = p^j h_(t-j) / h_t
            j = np.arange(1, t + 1)[:, None]
            at_least = np.exp(j * np.log(p) + log_h[t - j] - log_h[t])
            present[t], expected[t] = at_least[0], at_least.sum(axis=0)
        return present, expected

    def spread(
        self, members: NDArray[np.intp], totals: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw how households of a class spread over its members, shape (len(totals), members)."""
        p = self.shares[members]
        if p.size == 1:
            return totals[:, None].astype(np.int64)
        if not self.ordered:
            return rng.multinomial(totals, p / p.sum()).astype(np.int64)
        most = int(totals.max(initial=0))
        tail = np.array([complete_homogeneous(p[i:], most) for i in range(p.size)])
        out, left = np.zeros((len(totals), p.size), dtype=np.int64), totals.astype(np.int64).copy()
        for i in range(p.size - 1):
            going = left > 0
            while going.any():  # one more of this member, as long as the coin says so
                t = left[going]
                again = rng.random(t.size) < np.exp(np.log(p[i]) + tail[i, t - 1] - tail[i, t])
                at = np.flatnonzero(going)
                out[at[again], i] += 1
                left[at[again]] -= 1
                going[at[~again]] = False
                going &= left > 0
        out[:, -1] = left
        return out


@dataclass(frozen=True, eq=False)
class Reduced:
    """What the posterior of a block depends on.

    Attributes
    ----------
    matrix
        Distinct rows over classes, int64, shape (m, C); row 0 counts households.
    low, high
        Ends of the rows, int64, shape (m,).
    potentials
        By row, the log-factor of its values 0, 1, ... (the noise of its measurements; for row 0 the prior).
    least, greatest
        Bounds of the number of households in each class, int64, shape (C,).
    members
        Configurations of each class.
    weights
        Law of the households.
    log_n
        Log-probability of each possible number of households.
    impossible
        None; or the published row that single rows show no block to meet.
    constant
        Log-factor that no block changes.
    """

    matrix: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    potentials: Mapping[int, _Potential]
    least: NDArray[np.int64]
    greatest: NDArray[np.int64]
    members: tuple[NDArray[np.intp], ...]
    weights: Weights
    log_n: Mapping[int, float]
    impossible: int | None

    @cached_property
    def log_weight(self) -> tuple[NDArray[np.float64], ...]:
        """Log-weight of 0, ..., greatest households in each class."""
        pairs = zip(self.members, self.greatest.tolist(), strict=True)
        return tuple(self.weights.log_weight(members, most) for members, most in pairs)


class _Potential(NamedTuple):
    """Log-factor of a row's value: noisy measurements of it, and a table (of numbers of households)."""

    values: NDArray[np.int64]
    sigma2: NDArray[np.float64]
    table: NDArray[np.float64] | None

    def at(self, y: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-factor at whole numbers."""
        distinct, inverse = np.unique(y, return_inverse=True)
        out = np.zeros(distinct.size)
        if self.values.size:
            out += log_pmf(self.values[:, None] - distinct, self.sigma2[:, None]).sum(axis=0)
        if self.table is not None:
            out += self.table[distinct]
        return np.asarray(out[inverse.ravel()])


def reduce(
    rows: Constraints, noisy: NoisyRows | None, weights: Weights, log_n: Mapping[int, float]
) -> Reduced:
    """Merge equal rows and configurations that no row tells apart, and rule out what single rows rule out."""
    most, fewest = max(log_n), min(log_n)
    size = len(rows.configurations)
    ones = np.ones((1, size), dtype=np.int64)
    matrix = np.concatenate([ones, rows.matrix])
    low, high = np.append(fewest, rows.low), np.append(most, rows.high)
    ceiling = np.where(weights.shares > 0, most, 0)
    bounds = propagate(matrix, low, high, ceiling)
    soft = np.zeros((0, size), dtype=np.int64) if noisy is None else noisy.matrix
    live = np.flatnonzero(bounds.greatest > 0)
    whole = np.concatenate([matrix, soft])[:, live]
    low = np.concatenate([low, np.full(len(soft), -UNBOUNDED)])
    high = np.concatenate([high, np.full(len(soft), UNBOUNDED)])
    columns, of = np.unique(whole, axis=1, return_inverse=True)
    of = of.ravel()
    members = tuple(live[of == c] for c in range(columns.shape[1]))
    distinct, kind = np.unique(columns, axis=0, return_inverse=True)
    kind = kind.ravel()
    order = np.argsort(np.arange(len(distinct)) != kind[0], kind="stable")  # households first
    place = np.empty(len(distinct), dtype=np.int64)
    place[order] = np.arange(len(distinct))
    kind, distinct = place[kind], distinct[order]
    lows, highs = np.full(len(distinct), -UNBOUNDED), np.full(len(distinct), UNBOUNDED)
    np.maximum.at(lows, kind, low)
    np.minimum.at(highs, kind, high)
    impossible = bounds.row
    if impossible is None:
        tight = propagate(distinct, lows, highs, np.full(columns.shape[1], most))
        if tight.row is not None:
            impossible = int(np.flatnonzero(kind == tight.row)[0])
        bounds = tight
    table = np.full(most + 1, -np.inf)
    for n, log_p in log_n.items():
        table[n] = log_p
    table[np.isfinite(table)] += weights.log_top(most)[np.isfinite(table)]
    potentials = {0: _Potential(np.zeros(0, np.int64), np.zeros(0), table)}
    if noisy is not None:
        for row in np.unique(kind[len(matrix) :]).tolist():
            its = kind[len(matrix) :] == row
            potentials[row] = _Potential(noisy.values[its], noisy.sigma2[its], table if row == 0 else None)
    least, greatest = bounds.least[: columns.shape[1]], np.minimum(bounds.greatest, most)[: columns.shape[1]]
    return Reduced(distinct, lows, highs, potentials, least, greatest, members, weights, log_n, impossible)
