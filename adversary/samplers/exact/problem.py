"""One question put to a structure: which factors count, which parts are independent, in what order to sum.

What it is: the static selection for the posterior (all terms) or the prior of the target (the priors of the unknowns it
is made of), split into independent components with their elimination plans, and the evaluation of their tables.

Held to account by ``tests/samplers/exact``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import UnsupportedModelError
from adversary.samplers.exact.convolve import MAX_CELLS
from adversary.samplers.exact.plan import Constraint, Domain, Step, plan

if TYPE_CHECKING:
    from adversary.samplers.exact.factors import Base, FactorTables
    from adversary.samplers.exact.structure import Factor, Structure

__all__ = ["Component", "Problem"]

Array = Any
_NOMINAL = {"scalar": 40.0, "form": 120.0, "indicator": 2.0, "value": 4.0, "zero": 1.0}


@dataclass
class Component:
    """Nodes that hang together, with what is needed to sum them out."""

    nodes: list[int]
    scopes: list[tuple[int, ...]]
    constraints: list[Constraint]
    keep: tuple[int, ...]
    steps: list[Step]
    tree: bool


class Problem:
    """Select the factors of ``terms`` and everything they and ``target`` need.

    Parameters
    ----------
    structure, tables
        The analysed model and its compiled functions.
    terms
        Numbers of the terms that count.
    """

    def __init__(self, structure: Structure, tables: FactorTables, terms: set[int], target: int) -> None:
        self.structure, self.tables, self.target = structure, tables, target
        factors = [f for f in structure.factors if structure.groups[f.group].term in terms]
        self.value_factors = [
            f for f in factors if structure.terms[structure.groups[f.group].term].kind == "value"
        ]
        factors = [f for f in factors if f not in self.value_factors]
        folded = {
            f.scope[0]
            for f in factors
            if len(f.scope) == 1
            and structure.nodes[f.scope[0]].kind == "indicator"
            and f.scope[0] not in structure.links
        }
        self.unary = [f for f in factors if len(f.scope) == 1 and f.scope[0] not in folded]
        self.folds = [f for f in factors if len(f.scope) == 1 and f.scope[0] in folded]
        self.multi = [f for f in factors if len(f.scope) > 1]
        self._collect()
        self._group()
        self.components = self._split()

    # -------------------------------------------------------------- selection
    def _collect(self) -> None:
        """Close the set of nodes under sums and indicators."""
        structure = self.structure
        parent = {n: node.parent for n, node in enumerate(structure.nodes) if node.parent is not None}
        by_total = {c.total: c for c in structure.constraints}
        todo = [n for f in self.unary + self.multi + self.value_factors for n in f.scope] + [self.target]
        todo += [parent[f.scope[0]] for f in self.folds]
        used: dict[int, None] = {}
        self.constraints: list[Constraint] = []
        self.links: list[tuple[int, int]] = []
        while todo:
            node = todo.pop()
            if node in used:
                continue
            used[node] = None
            if node in by_total:
                c = by_total[node]
                self.constraints.append((c.total, c.left, c.coefficient, c.right))
                todo += [c.left, c.right]
            if node in parent:
                self.links.append((parent[node], node))
                todo.append(parent[node])
        self.nodes = sorted(used)
        self.constraints.sort()
        self.scalar_bounds = {
            self.structure.node_of[((i, 1),)]: pair
            for i, pair in enumerate(structure.bounds)
            if self.structure.node_of[((i, 1),)] in used
        }

    def _group(self) -> None:
        """Sort factors by the group that evaluates them."""
        self.unary_groups: dict[int, list[Factor]] = {}
        for f in self.unary:
            self.unary_groups.setdefault(f.group, []).append(f)
        self.multi_groups: dict[int, list[Factor]] = {}
        for f in self.multi + self.value_factors:
            self.multi_groups.setdefault(f.group, []).append(f)
        nodes = self.structure.nodes
        self.fold_groups: dict[int, tuple[Array, Array, Array]] = {}
        for g in dict.fromkeys(f.group for f in self.folds):
            mine = [f for f in self.folds if f.group == g]
            self.fold_groups[g] = (
                np.array([f.position for f in mine]),
                np.array([nodes[f.scope[0]].form[0][0] for f in mine]),
                np.array([nodes[f.scope[0]].parent for f in mine]),
            )
        self.curved = {f.scope[0] for f in self.unary} | {
            int(p) for _, _, ps in self.fold_groups.values() for p in ps
        }

    def _split(self) -> list[Component]:
        root = {n: n for n in self.nodes}

        def find(n: int) -> int:
            while root[n] != n:
                root[n] = root[root[n]]
                n = root[n]
            return n

        scopes = [f.scope for f in self.multi] + self.links
        scopes += [(*f.scope, self.target) for f in self.value_factors]
        for together in [*scopes, *[(c[0], c[1], c[3]) for c in self.constraints]]:
            for n in together[1:]:
                root[find(n)] = find(together[0])
        members: dict[int, list[int]] = {}
        for n in self.nodes:
            members.setdefault(find(n), []).append(n)
        sizes = {n: _NOMINAL[self.structure.nodes[n].kind] for n in self.nodes}
        for node, pair in self.scalar_bounds.items():
            if pair[0] is not None and pair[1] is not None and pair[1].linear is None:
                sizes[node] = 8.0
        components = []
        for r, nodes in members.items():
            mine = [s for s in scopes if find(s[0]) == r]
            constraints = [c for c in self.constraints if find(c[0]) == r]
            keep = (self.target,) if self.target in nodes else ()
            steps = plan(nodes, mine, constraints, keep, sizes)
            tree = (
                not mine
                and all(s.kind != "fixed" for s in steps)
                and all(abs(c[2]) == 1 for c in constraints)
            )
            components.append(Component(nodes, mine, constraints, keep, steps, tree))
        components.sort(key=lambda c: (not c.keep, c.nodes[0]))
        return components

    # -------------------------------------------------------------- evaluation
    def evaluate_unary(self, base: Base, points: dict[int, Array]) -> dict[int, Array]:
        """Return each node's own log weight (all unary factors added up) at its points."""
        out = {n: np.zeros(len(p)) for n, p in points.items() if n in self.curved}
        requests, wanted = [], []
        for g, factors in self.unary_groups.items():
            live = [f for f in factors if f.scope[0] in out]
            if live:
                requests.append((g, self._columns(g, points)))
                wanted.append(live)
        blocks = self.tables.evaluate(base, requests) if requests else []
        for block, factors in zip(blocks, wanted, strict=True):
            for f in factors:
                n = f.scope[0]
                out[n] = out[n] + _clean(block[: len(points[n]), f.position])
        self._fold(base, points, out)
        return out

    def _columns(self, g: int, points: dict[int, Array]) -> Array:
        nodes = self.structure.groups[g].column_node
        rows = max(len(points[n]) for n in nodes if n in points)
        columns = np.zeros((rows, len(nodes)), dtype=np.int64)
        for j, n in enumerate(nodes):
            if n in points:
                p = points[n]
                columns[: len(p), j] = p
                columns[len(p) :, j] = p[-1]
        return columns

    def _fold(self, base: Base, points: dict[int, Array], out: dict[int, Array]) -> None:
        """Add the factors of lone indicators to their parents: one value off, another where it is on."""
        if not self.fold_groups:
            return
        requests = []
        for g in self.fold_groups:
            count = len(self.structure.groups[g].column_node)
            requests.append((g, np.repeat(np.array([[0], [1]], dtype=np.int64), count, axis=1)))
        blocks = self.tables.evaluate(base, requests)
        for (positions, ids, parents), block in zip(self.fold_groups.values(), blocks, strict=True):
            off, on = _clean(block[0, positions]), _clean(block[1, positions])
            for parent in np.unique(parents):
                if int(parent) in out:
                    mine = parents == parent
                    place = base.switch[ids[mine]]
                    out[int(parent)] += _switched(points[int(parent)], place, off[mine], on[mine])

    def evaluate_multi(
        self, base: Base, domains: dict[int, Domain], live: set[int]
    ) -> list[tuple[Factor, Array]]:
        """Return the raw tables of factors of several nodes (and of the target's value), over full domains."""
        requests, wanted = [], []
        for g, factors in self.multi_groups.items():
            mine = [f for f in factors if f.scope[0] in live]
            if mine:
                requests.append((g, self._product(g, mine, domains)))
                wanted.append(mine)
        blocks = self.tables.evaluate(base, requests) if requests else []
        out = []
        for block, factors in zip(blocks, wanted, strict=True):
            for f in factors:
                shape = tuple(domains[n].size for n in f.scope)
                out.append((f, block[: int(np.prod(shape)), f.position].reshape(shape)))
        return out

    def _product(self, g: int, factors: list[Factor], domains: dict[int, Domain]) -> Array:
        group = self.structure.groups[g]
        largest = max((tuple(domains[n].size for n in f.scope) for f in factors), key=math.prod)
        rows = math.prod(largest)
        if rows > MAX_CELLS:
            msg = (
                f"the exact engine would need a table of {' x '.join(map(str, largest))} cells: "
                'give narrower priors, or use sampler="mcmc"'
            )
            raise UnsupportedModelError(msg, largest)
        columns = np.zeros((rows, len(group.column_node)), dtype=np.int64)
        for f in factors:
            shape = [domains[n].size for n in f.scope]
            grids = np.unravel_index(np.minimum(np.arange(rows), int(np.prod(shape)) - 1), shape)
            for column, n, grid in zip(group.entry_columns[f.position], f.scope, grids, strict=True):
                columns[:, column] = domains[n].low + grid
        return columns

    def link_tables(self, base: Base, domains: dict[int, Domain]) -> list[tuple[tuple[int, int], Array]]:
        """Tie each indicator node to its parent."""
        out = []
        for parent, node in self.links:
            if parent in domains and node in domains:
                number = self.structure.nodes[node].form[0][0]
                d, z = domains[parent], domains[node]
                on = np.arange(d.low, d.low + d.size) == base.switch[number]
                values = np.arange(z.low, z.low + z.size)
                out.append(((parent, node), np.where(on[:, None] == (values == 1)[None, :], 0.0, -np.inf)))
        return out


def _clean(values: Array) -> Array:
    values = np.asarray(values, dtype=np.float64)
    return np.where(np.isnan(values), -np.inf, values)


def _switched(points: Array, place: Array, off: Array, on: Array) -> Array:
    """Sum over indicators of ``on`` where a point equals the indicator's place and ``off`` elsewhere."""
    finite = np.isfinite(off)
    total, dead = float(off[finite].sum()), int((~finite).sum())
    order = np.argsort(place, kind="stable")
    places, first = np.unique(place[order], return_index=True)
    gain = np.add.reduceat(on[order] - np.where(finite, off, 0.0)[order], first)
    freed = np.add.reduceat((~finite)[order].astype(int), first)
    at = np.searchsorted(places, points).clip(max=len(places) - 1)
    hit = places[at] == points
    value = total + np.where(hit, gain[at], 0.0)
    return np.where(dead - np.where(hit, freed[at], 0) > 0, -np.inf, value)
