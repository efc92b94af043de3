"""In what order to sum out: convolutions first, then the smallest bucket.

What it is: :func:`plan`, run once for a structure. Three kinds of step. *pair*: two nodes that occur only in one constraint
``t = u + c v`` go together, by a convolution. *fixed*: a node that a constraint determines is substituted. *sum*: an
ordinary bucket. What it is not: it knows sizes only nominally, so that the order (and with it every rounding) does not
depend on the data.

Held to account by ``tests/samplers/exact/test_parts.py``. Source: Dechter, Bucket elimination (1999).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Constraint", "Domain", "Step", "plan"]

Constraint = tuple[int, int, int, int]  # total, left, coefficient, right  # total, left, coefficient, right


@dataclass(frozen=True)
class Domain:
    """The integers low .. low + size - 1; ``cut`` says whether an end is a window's edge and not a support's."""

    low: int
    size: int
    cut: tuple[bool, bool] = (False, False)

    @property
    def high(self) -> int:
        """Largest integer."""
        return self.low + self.size - 1


@dataclass(frozen=True)
class Step:
    """One elimination step; see the module for the kinds."""

    kind: str
    nodes: tuple[int, ...]
    others: tuple[int, ...]
    constraints: tuple[Constraint, ...] = ()


def plan(
    nodes: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    constraints: Sequence[Constraint],
    keep: Sequence[int],
    sizes: dict[int, float],
) -> list[Step]:
    """Order the elimination of ``nodes`` except ``keep``: convolutions first, then the smallest bucket."""
    alive = dict.fromkeys(nodes)
    multi: dict[int, tuple[int, ...]] = {n: s for n, s in enumerate(scopes) if len(s) > 1}
    number = len(scopes)
    open_constraints = dict.fromkeys(constraints)
    kept = set(keep)
    steps: list[Step] = []
    while any(n not in kept for n in alive):
        pair = _find_pair(open_constraints, multi, kept)
        if pair is not None:
            constraint, p, q, r = pair
            steps.append(Step("pair", (p, q), (r,), (constraint,)))
            del open_constraints[constraint], alive[p], alive[q]
            continue
        x = min(
            (n for n in alive if n not in kept), key=lambda n: (_cost(n, multi, open_constraints, sizes), n)
        )
        mine = tuple(c for c in open_constraints if x in (c[0], c[1], c[3]))
        around = [s for s in multi.values() if x in s] + [(c[0], c[1], c[3]) for c in mine]
        others = tuple(sorted({n for s in around for n in s} - {x}))
        steps.append(Step("fixed" if mine else "sum", (x,), others, mine))
        for c in mine:
            del open_constraints[c]
        multi = {n: s for n, s in multi.items() if x not in s}
        if len(others) > 1:
            multi[number] = others
            number += 1
        del alive[x]
    return steps


def _find_pair(
    constraints: dict[Constraint, None], multi: dict[int, tuple[int, ...]], keep: set[int]
) -> tuple[Constraint, int, int, int] | None:
    busy = {n for s in multi.values() for n in s}
    count: dict[int, int] = {}
    for c in constraints:
        for n in (c[0], c[1], c[3]):
            count[n] = count.get(n, 0) + 1
    for c in constraints:
        ends = (c[0], c[1], c[3])
        if abs(c[2]) != 1 or len(set(ends)) < 3:
            continue
        free = [n for n in ends if n not in busy and n not in keep and count[n] == 1]
        if len(free) == 3:
            free = [n for n in free if n != c[0]]
        if len(free) == 2:
            [rest] = [n for n in ends if n not in free]
            return c, free[0], free[1], rest
    return None


def _cost(
    x: int, multi: dict[int, tuple[int, ...]], constraints: dict[Constraint, None], sizes: dict[int, float]
) -> float:
    others: set[int] = set()
    fixed = 0
    for s in multi.values():
        if x in s:
            others.update(s)
    for c in constraints:
        if x in (c[0], c[1], c[3]):
            fixed += 1
            others.update((c[0], c[1], c[3]))
            if c[3] == x and abs(c[2]) != 1:
                fixed += 1  # division: prefer another node
    others.discard(x)
    cells = float(np.prod([sizes[n] for n in others] or [1.0]))
    return cells * (sizes[x] if not fixed else 1.0) * (1e6 if fixed > 1 else 1.0)
