"""The moves of the ladders of :mod:`adversary.reconstruction._tempering`, compiled with numba.

What it is: inner loops only; this module is imported when the first block is sampled, since numba takes a second to
load. Compiled code is kept next to it (or in numba's own folder) where the system allows that.

Held to account by tests/reconstruction/test_tempering.py.
"""

# mypy: ignore-errors
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

import numba
import numpy as np

__all__ = ["ladder"]


def _compiled(function):
    """Compile, and keep the code on disk where there is a place to write it."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder can be written
        return numba.njit(nogil=True)(function)


@_compiled
def log_factor(m, r, v, beta, tau):
    out = 0.0
    if v < m.low[r]:
        out -= beta * (m.low[r] - v)
    elif v > m.high[r]:
        out -= beta * (v - m.high[r])
    if m.precision[r] > 0.0:
        out -= 0.5 * tau * m.precision[r] * (v - m.centre[r]) * (v - m.centre[r])
    return out


@_compiled
def change(m, count, sums, k, by):
    count[k] += by
    for q in range(m.ptr[k], m.ptr[k + 1]):
        sums[m.row[q]] += by * m.coefficient[q]


@_compiled
def pick(rng, weight, size):
    """Draw an index from logs of weights, which are overwritten."""
    best = -np.inf
    for k in range(size):
        best = max(best, weight[k])
    total = 0.0
    for k in range(size):
        w = weight[k] - best
        w = np.exp(w) if w > -45.0 else 0.0  # beyond the last digit of the sum
        total += w
        weight[k] = w
    u = rng.random() * total
    last = 0
    for k in range(size):
        if weight[k] > 0.0:
            last = k
            u -= weight[k]
            if u < 0.0:
                return k
    return last


@_compiled
def single(rng, m, span, house, count, sums, at, weight, table):
    """Give one household any class, from its conditional law on this rung."""
    beta, tau = at
    i = int(rng.random() * house.size)
    change(m, count, sums, house[i], -1)
    for r in range(sums.size):
        none = log_factor(m, r, sums[r], beta, tau)
        for v in range(span[r, 0], span[r, 1] + 1):
            table[r, v - span[r, 0]] = log_factor(m, r, sums[r] + v, beta, tau) - none
    for k in range(count.size):
        w = m.add[k, count[k]]
        for q in range(m.ptr[k], m.ptr[k + 1]):
            r = m.row[q]
            w += table[r, m.coefficient[q] - span[r, 0]]
        weight[k] = w
    k = pick(rng, weight, count.size)
    house[i] = k
    change(m, count, sums, k, 1)


@_compiled
def double(rng, m, house, count, sums, tau, weight):
    """Give two households any pair of classes with the same exact rows, from its conditional law."""
    i, j = int(rng.random() * house.size), int(rng.random() * house.size)
    if i == j:
        return
    group = m.pair[house[i], house[j]]
    if group < 0:
        return
    change(m, count, sums, house[i], -1)
    change(m, count, sums, house[j], -1)
    start = m.first[group]
    size = m.first[group + 1] - start
    for s in range(size):
        a, b = m.a[start + s], m.b[start + s]
        w = m.add[a, count[a]]
        w += m.add[b, count[b] + 1] if a == b else m.add[b, count[b]] + np.log(2.0)
        if tau > 0.0 and m.noisy:
            change(m, count, sums, a, 1)
            change(m, count, sums, b, 1)
            for r in range(sums.size):
                if m.precision[r] > 0.0:
                    w -= 0.5 * tau * m.precision[r] * (sums[r] - m.centre[r]) ** 2
            change(m, count, sums, a, -1)
            change(m, count, sums, b, -1)
        weight[s] = w
    s = pick(rng, weight, size)
    a, b = m.a[start + s], m.b[start + s]
    if rng.random() < 0.5:
        a, b = b, a
    house[i], house[j] = a, b
    change(m, count, sums, a, 1)
    change(m, count, sums, b, 1)


@_compiled
def energies(m, sums):
    slack, fit = 0.0, 0.0
    for r in range(sums.size):
        slack -= log_factor(m, r, sums[r], 1.0, 0.0)
        fit += log_factor(m, r, sums[r], 0.0, 1.0)
    return slack, fit


@_compiled
def ladder(rng, m, span, house, count, sums, betas, taus, plan, kept):
    """Sweep all rungs; return lists kept, lists looked at, trips; and how often neighbours were exchanged."""
    sweeps, thin, singles, doubles = plan
    rungs = betas.size
    slot = np.arange(rungs)  # replica on each rung
    went = np.zeros(rungs, np.int64)  # 1: has been at the bottom since it was last at the top
    slack, fit = np.zeros(rungs), np.zeros(rungs)
    accepted = np.zeros(max(rungs - 1, 1))
    longest = np.int64(1)
    for g in range(m.first.size - 1):
        longest = max(longest, m.first[g + 1] - m.first[g])
    weight = np.empty(max(longest, count.shape[1]))
    width = np.int64(1)
    for r in range(span.shape[0]):
        width = max(width, span[r, 1] - span[r, 0] + 1)
    table = np.empty((span.shape[0], width))
    found, looked, trips = 0, 0, 0
    for sweep in range(sweeps):
        for rung in range(rungs):
            s = slot[rung]
            at = (betas[rung], taus[rung])
            for _ in range(singles):
                single(rng, m, span, house[s], count[s], sums[s], at, weight, table)
            for _ in range(doubles):
                double(rng, m, house[s], count[s], sums[s], taus[rung], weight)
            slack[s], fit[s] = energies(m, sums[s])
        for rung in range(sweep % 2, rungs - 1, 2):
            s, t = slot[rung], slot[rung + 1]
            log = (betas[rung] - betas[rung + 1]) * (slack[s] - slack[t])
            log -= (taus[rung] - taus[rung + 1]) * (fit[s] - fit[t])
            chance = 1.0 if log >= 0.0 else np.exp(log)
            accepted[rung] += chance
            if rng.random() < chance:
                slot[rung], slot[rung + 1] = t, s
        went[slot[0]] = 1
        top = slot[rungs - 1]
        if went[top] == 1:
            went[top] = 0
            trips += 1
        if sweep % thin == 0 and found < kept.shape[0]:
            looked += 1
            if slack[top] == 0.0:
                for k in range(kept.shape[1]):
                    kept[found, k] = count[top, k]
                found += 1
    # lists in the order of the rungs again
    house[:] = house[slot]
    count[:] = count[slot]
    sums[:] = sums[slot]
    return found, looked, trips, accepted / max(sweeps / 2.0, 1.0)
