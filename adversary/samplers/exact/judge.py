"""How much may lie beyond a window, and whether that is proven: small pure functions on tables.

Held to account by ``tests/samplers/exact/test_windows.py``. Source: spec/kazan_reiter.md 1.3 (proven truncation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from adversary.samplers.exact.solution import Part

__all__ = ["distance", "is_log_concave", "tail"]

Array = Any


def tail(edge: Array) -> float:
    """Bound of a log-concave tail beyond ``edge[0]``, whose inner neighbour is ``edge[1]``."""
    last = float(edge[0])
    if last == 0.0:
        return 0.0
    if len(edge) < 2 or edge[1] <= last:
        return np.inf
    ratio = last / float(edge[1])
    return last * ratio / (1.0 - ratio)


def is_log_concave(table: Array) -> bool:
    """Whether the finite part is one run with second differences <= 0, up to rounding."""
    alive = np.flatnonzero(np.isfinite(table))
    if not alive.size or alive[-1] - alive[0] + 1 != alive.size:
        return False
    run = table[alive[0] : alive[-1] + 1]
    slack = 1e-13 * (1.0 + np.abs(run).max()) * 8
    return bool(len(run) < 3 or np.all(np.diff(run, 2) <= slack))


def distance(first: Part, second: Part) -> float:
    """Largest difference of a probability of the target between two solutions."""
    [node] = first.component.keep
    pmfs = []
    for part in (first, second):
        table, low = part.elimination.table, part.elimination.domains[node].low
        p = np.exp(table - table.max())
        pmfs.append(dict(zip(range(low, low + len(p)), p / p.sum(), strict=True)))
    return float(max(abs(pmfs[0].get(k, 0.0) - pmfs[1].get(k, 0.0)) for k in pmfs[1]))
