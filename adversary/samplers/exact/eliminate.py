"""Summing out: bucket elimination in log space over integer nodes, with sums of two nodes done as convolutions.

What it is: :class:`Elimination` carries a plan out on tables and keeps what the backward pass
(:meth:`Elimination.beliefs`) and the backward sampling (:meth:`Elimination.draw`) need. What it is not: it
does not know PyMC, and it chooses no windows, but it narrows nodes that carry no factor of their own (partial
sums) to where their message is within ``crop`` of its maximum, and reports every such edge.

Held to account by ``tests/samplers/exact/test_parts.py`` and all brute-force tests.
Sources: Dechter, Bucket elimination (1999); spec/engines.md part II.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import UnsupportedModelError
from adversary.samplers.exact.convolve import MAX_CELLS, log_convolve, log_convolve_padded, log_sum
from adversary.samplers.exact.plan import Constraint, Domain, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Elimination"]

Array = Any
_NARROWABLE = 48  # shorter messages are not worth narrowing


class Elimination:
    """Carry out a plan on tables.

    Parameters
    ----------
    steps
        From :func:`plan`.
    domains
        Node -> :class:`Domain`; updated in place where a partial sum is narrowed.
    unary
        Node -> log table over its domain (absent: no factor of its own).
    tables
        (nodes, log table) pairs with two nodes or more.
    keep, constraints
        The nodes left over and all constraints (those among kept nodes only are applied at the end).
    crop
        Narrow a partial sum to where its message is above maximum - crop.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        domains: dict[int, Domain],
        unary: dict[int, Array],
        tables: Sequence[tuple[tuple[int, ...], Array]],
        keep: Sequence[int],
        constraints: Sequence[Constraint],
        crop: float,
    ) -> None:
        self.domains = dict(domains)
        self._unary = dict(unary)
        self._multi = list(tables)
        self._own = set(unary) | {n for s, _ in tables for n in s}
        self._crop = crop
        self.keep = tuple(keep)
        self.scale = 0.0
        self._recorded: set[int] = set()  # nodes whose size a recorded table relies on
        self.record: list[dict[str, Any]] = []
        for step in steps:
            {"pair": self._pair, "fixed": self._fixed, "sum": self._sum}[step.kind](step)
        used = {c for s in steps for c in s.constraints}
        self.table = self._collect(self.keep, [c for c in constraints if c not in used])

    # -------------------------------------------------------------- helpers
    def _message(self, node: int) -> Array:
        value = self._unary.pop(node, None)
        return np.zeros(self.domains[node].size) if value is None else value

    def _add(self, node: int, message: Array) -> None:
        self._unary[node] = self._unary[node] + message if node in self._unary else message

    def _narrow(self, node: int, low: int, size: int, cut: tuple[bool, bool]) -> None:
        old = self.domains[node]
        if (low, size) == (old.low, old.size):
            self.domains[node] = Domain(low, size, cut)
            return
        first = low - old.low
        if node in self._unary:
            self._unary[node] = self._unary[node][first : first + size]
        for k, (scope, table) in enumerate(self._multi):
            if node in scope:
                self._multi[k] = (scope, np.take(table, range(first, first + size), axis=scope.index(node)))
        self.domains[node] = Domain(low, size, cut)

    def _signs(self, constraint: Constraint, rest: int) -> dict[int, int]:
        """Write ``rest = sum of sign * node`` over the other two nodes of the constraint."""
        total, left, c, right = constraint
        if rest == total:
            return {left: 1, right: c}
        if rest == left:
            return {total: 1, right: -c}
        return {total: c, left: -c}

    def _oriented(self, node: int, sign: int) -> tuple[Array, int]:
        table, domain = self._message(node), self.domains[node]
        return (table, domain.low) if sign > 0 else (table[::-1], -domain.high)

    # -------------------------------------------------------------- steps
    def _pair(self, step: Step) -> None:
        [r] = step.others
        signs = self._signs(step.constraints[0], r)
        p, q = step.nodes
        a, low_a = self._oriented(p, signs[p])
        b, low_b = self._oriented(q, signs[q])
        old = self.domains[r]
        low = max(old.low, low_a + low_b)
        high = min(old.high, low_a + low_b + len(a) + len(b) - 2)
        if high < low or r in self._recorded:
            low, high = old.low, old.high
        # the edge of a sum is a window's edge only where the sum itself was cut; p's and q's edges are watched apart
        cut = (old.cut[0] and low == old.low, old.cut[1] and high == old.high)
        message = log_convolve(a, b, low - low_a - low_b, high - low + 1)
        if r not in self._own | self._recorded and r not in self.keep and len(message) > _NARROWABLE:
            inside = np.flatnonzero(message > message.max() - self._crop)
            if inside.size:
                first, last = int(inside[0]), int(inside[-1])
                cut = (cut[0] or first > 0, cut[1] or last < len(message) - 1)
                low, message = low + first, message[first : last + 1]
        self._narrow(r, low, len(message), cut)
        self._add(r, message)
        self.record.append(
            {"kind": "pair", "nodes": (p, q), "rest": r, "signs": signs, "a": a, "b": b, "low": (low_a, low_b),
             "message": message, "low_message": low}
        )  # fmt: skip

    def _grid(self, node: int, others: tuple[int, ...]) -> Array:
        domain = self.domains[node]
        shape = [-1 if n == node else 1 for n in others]
        return np.arange(domain.low, domain.low + domain.size, dtype=np.int64).reshape(shape)

    def _take(self, x: int) -> list[tuple[tuple[int, ...], Array]]:
        mine = [(s, t) for s, t in self._multi if x in s]
        self._multi = [(s, t) for s, t in self._multi if x not in s]
        if x in self._unary:
            mine.append(((x,), self._unary.pop(x)))
        return mine

    def _cells(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        shape = tuple(self.domains[n].size for n in nodes)
        if float(np.prod([float(s) for s in shape])) > MAX_CELLS:
            msg = (
                f"the exact engine would need a table of {' x '.join(map(str, shape))} cells: "
                'give narrower priors, or use sampler="mcmc"'
            )
            raise UnsupportedModelError(msg, shape)
        return shape

    def _fixed(self, step: Step) -> None:
        """Substitute the value that the constraints force on x."""
        [x], others = step.nodes, step.others
        shape = self._cells(others)
        domain = self.domains[x]
        grids = {n: self._grid(n, others) for n in others}
        value, ok = _solve(step.constraints[0], x, grids)
        for constraint in step.constraints[1:]:
            total, left, c, right = constraint
            at = {**grids, x: value}
            ok = ok & (at[total] == at[left] + c * at[right])
        index = value - domain.low
        ok = ok & (index >= 0) & (index < domain.size)
        index = np.where(ok, index, 0)
        table = np.broadcast_to(np.where(ok, 0.0, -np.inf), shape).copy()
        for scope, factor in self._take(x):
            where = tuple(index if n == x else grids[n] - self.domains[n].low for n in scope)
            table += factor[where]
        self.record.append(
            {"kind": "fixed", "node": x, "others": others, "index": np.broadcast_to(index, shape)}
        )
        self._emit(others, table)

    def _sum(self, step: Step) -> None:
        [x], others = step.nodes, step.others
        full = (x, *others)
        table = np.zeros(self._cells(full))
        for scope, factor in self._take(x):
            table = table + _aligned(scope, factor, full)
        message = log_sum(table, axis=0)
        self.record.append({"kind": "sum", "node": x, "others": others, "table": table, "message": message})
        self._emit(others, message)

    def _emit(self, others: tuple[int, ...], message: Array) -> None:
        self._recorded.update(others)
        if len(others) == 1:
            self._add(others[0], message)
        elif others:
            self._multi.append((others, message))
        else:
            self.scale = self.scale + float(message)

    def _collect(self, keep: tuple[int, ...], constraints: Sequence[Constraint]) -> Array:
        table = np.full(self._cells(keep), self.scale)
        for node in keep:
            if node in self._unary:
                table = table + _aligned((node,), self._unary[node], keep)
        for scope, factor in self._multi:
            table = table + _aligned(scope, factor, keep)
        for total, left, c, right in constraints:
            if {total, left, right} <= set(keep):
                grid = {n: self._grid(n, keep) for n in keep}
                table = np.where(grid[total] == grid[left] + c * grid[right], table, -np.inf)
        return table

    # -------------------------------------------------------------- going back
    def beliefs(self, weights: Array) -> dict[int, Array]:
        """Return every node's marginal (linear) when the kept nodes have joint probabilities ``weights``."""
        marginal: dict[int, Array] = {}
        clusters: list[tuple[tuple[int, ...], Array]] = [(self.keep, weights)]
        for axis, node in enumerate(self.keep):
            marginal[node] = weights.sum(axis=tuple(a for a in range(weights.ndim) if a != axis))
        for entry in reversed(self.record):
            if entry["kind"] == "pair":
                self._believe_pair(entry, marginal)
                clusters.extend(((n,), marginal[n]) for n in entry["nodes"])
                continue
            x, others = entry["node"], entry["others"]
            outer = self._outer(others, clusters)
            if entry["kind"] == "sum":
                message = np.where(np.isfinite(entry["message"]), entry["message"], 0.0)
                joint = np.exp(entry["table"] - message) * outer
                nodes = (x, *others)
                marginal[x] = joint.reshape(joint.shape[0], -1).sum(axis=1)
            else:
                joint, nodes = outer, others
                marginal[x] = np.bincount(
                    entry["index"].ravel(), weights=joint.ravel(), minlength=self.domains[x].size
                )
            clusters.append((nodes, joint))
            clusters.append(((x,), marginal[x]))
        return marginal

    def _outer(self, others: tuple[int, ...], clusters: list[tuple[tuple[int, ...], Array]]) -> Array:
        if not others:
            return np.array(1.0)
        for nodes, table in reversed(clusters):
            if set(others) <= set(nodes):
                axes = tuple(a for a, n in enumerate(nodes) if n not in others)
                kept = [n for n in nodes if n in others]
                return table.sum(axis=axes).transpose([kept.index(n) for n in others])
        return self._outer_through_fixed(others, clusters)

    def _outer_through_fixed(
        self, others: tuple[int, ...], clusters: list[tuple[tuple[int, ...], Array]]
    ) -> Array:
        """Joint of ``others`` where one of them was substituted: push the cluster's mass through the substitution."""
        for entry in self.record:
            if entry["kind"] != "fixed" or entry["node"] not in others:
                continue
            x, rest = entry["node"], entry["others"]
            if set(others) - {x} <= set(rest):
                [outer] = [t for n, t in clusters if n == rest][-1:]
                shape = tuple(self.domains[n].size for n in others)
                grids = {n: self._grid(n, rest) - self.domains[n].low for n in rest}
                index = [
                    np.broadcast_to(entry["index"] if n == x else grids[n], outer.shape).ravel()
                    for n in others
                ]
                flat = np.ravel_multi_index(index, shape)
                return np.bincount(flat, weights=outer.ravel(), minlength=int(np.prod(shape))).reshape(shape)
        msg = f"no cluster holds the nodes {others}"
        raise AssertionError(msg)

    def _believe_pair(self, entry: dict[str, Any], marginal: dict[int, Array]) -> None:
        r = entry["rest"]
        a, b, (low_a, low_b) = entry["a"], entry["b"], entry["low"]
        domain = self.domains[r]
        first = domain.low - entry["low_message"]  # later steps may have narrowed r further
        message = entry["message"][first : first + domain.size]
        with np.errstate(divide="ignore", invalid="ignore"):
            outside = np.where(np.isfinite(message), np.log(marginal[r]) - message, -np.inf)
        low_r = domain.low
        for node, mine, other, low_mine, low_other in (
            (entry["nodes"][0], a, b, low_a, low_b),
            (entry["nodes"][1], b, a, low_b, low_a),
        ):
            # sum over r of outside(r) other(r - mine): a convolution with the other reversed
            start = low_mine - (low_r - (low_other + len(other) - 1))
            incoming = log_convolve_padded(outside, other[::-1], start, len(mine))
            belief = np.exp(mine + incoming)
            marginal[node] = belief if entry["signs"][node] > 0 else belief[::-1]

    # -------------------------------------------------------------- sampling
    def draw(self, n: int, rng: np.random.Generator) -> dict[int, NDArray[np.int64]]:
        """Draw n times from the exact joint; returns node -> integer values."""
        state: dict[int, Array] = {}
        if self.keep:
            weights = np.exp(self.table - self.table.max()).ravel()
            flat = _choose(np.cumsum(weights), rng.random(n))
            for node, chosen in zip(self.keep, np.unravel_index(flat, self.table.shape), strict=True):
                state[node] = self.domains[node].low + chosen.astype(np.int64)
        for entry in reversed(self.record):
            if entry["kind"] == "pair":
                self._draw_pair(entry, state, rng.random(n))
                continue
            x, others = entry["node"], entry["others"]
            index = tuple(state[m] - self.domains[m].low for m in others)
            if entry["kind"] == "fixed":
                state[x] = self.domains[x].low + entry["index"][index].astype(np.int64)
            else:
                state[x] = self.domains[x].low + _draw_columns(entry["table"], index, rng.random(n))
        return state

    def _draw_pair(self, entry: dict[str, Any], state: dict[int, Array], u: Array) -> None:
        a, b, (low_a, low_b) = entry["a"], entry["b"], entry["low"]
        p, q = entry["nodes"]
        values, inverse = np.unique(state[entry["rest"]], return_inverse=True)
        chosen = np.empty(len(u), dtype=np.int64)
        i = np.arange(len(a))
        order = np.argsort(inverse, kind="stable")
        edges = np.searchsorted(inverse[order], np.arange(len(values) + 1))
        for k, r in enumerate(values):
            other = r - low_a - low_b - i
            ok = (other >= 0) & (other < len(b))
            log_w = np.where(ok, a + b[np.where(ok, other, 0)], -np.inf)
            mine = order[edges[k] : edges[k + 1]]
            chosen[mine] = _choose(np.cumsum(np.exp(log_w - log_w.max())), u[mine])
        first = low_a + chosen
        second = state[entry["rest"]] - first
        state[p] = first * entry["signs"][p]
        state[q] = second * entry["signs"][q]


def _choose(cumulative: Array, u: Array) -> Array:
    """Inverse of a cumulative table; never lands on a cell of no weight."""
    return np.searchsorted(cumulative, u * cumulative[-1], side="right").clip(max=_last(cumulative))


def _last(cumulative: Array) -> int:
    return int(np.searchsorted(cumulative, cumulative[-1], side="left"))


def _draw_columns(table: Array, index: tuple[Array, ...], u: Array) -> Array:
    """Draw the first axis of a log table given indices on the others, one column a distinct index."""
    if not index:
        return _choose(np.cumsum(np.exp(table - table.max())), u)
    flat = np.ravel_multi_index(index, table.shape[1:])
    columns = table.reshape(table.shape[0], -1)
    distinct, inverse = np.unique(flat, return_inverse=True)
    out = np.empty(len(u), dtype=np.int64)
    order = np.argsort(inverse, kind="stable")
    edges = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    for k, column in enumerate(distinct):
        log_w = columns[:, column]
        mine = order[edges[k] : edges[k + 1]]
        out[mine] = _choose(np.cumsum(np.exp(log_w - log_w.max())), u[mine])
    return out


def _solve(constraint: Constraint, x: int, grids: dict[int, Array]) -> tuple[Array, Array]:
    total, left, c, right = constraint
    if x == total:
        value = grids[left] + c * grids[right]
        return value, np.ones(value.shape, dtype=bool)
    if x == left:
        value = grids[total] - c * grids[right]
        return value, np.ones(value.shape, dtype=bool)
    gap = grids[total] - grids[left]
    value = gap // c
    return value, value * c == gap


def _aligned(scope: tuple[int, ...], table: Array, full: tuple[int, ...]) -> Array:
    order = sorted(range(len(scope)), key=lambda k: full.index(scope[k]))
    have = [scope[k] for k in order]
    moved = table.transpose(order)
    sizes = dict(zip(have, moved.shape, strict=True))
    return moved.reshape([sizes.get(n, 1) for n in full])
