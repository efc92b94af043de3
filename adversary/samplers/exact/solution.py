"""Solving one problem on the current data: windows, tables, elimination, and the judgement whether windows were enough.

What it is: the loop that makes a wrong first window harmless. Windows hold every integer whose own curve is within
``drop`` of its maximum. After the elimination two things are required, else ``drop`` grows and the loop repeats:

1. *The factors' disagreement is covered.* With C = (sum of the factors' maxima) - log Z, every point left out weighs at
   most exp(C - drop) relative to Z. C is what measurements that contradict each other cost; for a 0/1 target it is
   taken for each of its two values, so that log-odds of 1e-300 have as many digits as those of 1/2.
2. *The edges carry nothing.* At every end of a window that is not the end of a support the marginal belief w(edge) with
   ratio r = w(edge)/w(next to it) bounds what lies beyond by w(edge) r / (1 - r), as all marginals are log-concave when
   all factors are (spec/kazan_reiter.md 1.3: products and convolutions of log-concave sequences are log-concave). The
   bounds are added up over all ends; for a 0/1 target they hold for each of its values.

Log-concavity is established for components that are trees of sums with factors of one node each, where the factors
are of known families and the tables and the points climbed over show it (second differences). Elsewhere the windows
are doubled and the two answers compared, and ``proven`` is False.

What it is not: rigorous to the second order. Each end's bound supposes the other windows held; the terms left out are
products of two such bounds.

Held to account by ``tests/samplers/exact/test_windows.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, UnsupportedModelError
from adversary.samplers.exact._messages import contradiction
from adversary.samplers.exact.eliminate import Elimination
from adversary.samplers.exact.judge import distance, is_log_concave, tail
from adversary.samplers.exact.plan import Domain
from adversary.samplers.exact.windows import (
    SMALL,
    Curve,
    climb,
    propagate,
    structural_supports,
    union_of_windows,
)

if TYPE_CHECKING:
    from adversary.samplers.exact.factors import Base
    from adversary.samplers.exact.problem import Component, Problem

__all__ = ["Part", "Solver"]

Array = Any
_HUGE = 4_000_000  # a single node's table never has more cells
_SCAN = 200_000  # integers looked at on each side of the best place where several peaks are possible
_EXTRA = 12.0  # log of what many ends and their widths add to one end's weight


@dataclass
class Part:
    """A solved component: its elimination, the log of its total weight, the bound on what was cut off."""

    component: Component
    elimination: Elimination
    log_weight: float
    bound: float
    proven: bool
    windowed: bool
    drop: float
    tables: list[tuple[tuple[int, ...], Array]] = field(default_factory=list)
    unary: dict[int, Array] = field(default_factory=dict)
    domains: dict[int, Domain] = field(default_factory=dict)


@dataclass
class Ready:
    """Tables of windows, as evaluated: unary ones with one more entry at each cut end."""

    domains: dict[int, Domain]
    unary: dict[int, Array]
    multi: list[tuple[Any, Array]]


class Solver:
    """Solve the components of a problem for the data in ``base``."""

    def __init__(
        self, problem: Problem, base: Base, tolerance: float, first_drop: float | None = None
    ) -> None:
        self.problem, self.base, self.tolerance = problem, base, tolerance
        self.need = -float(np.log(tolerance)) + _EXTRA
        self.first_drop = self.need + 8.0 if first_drop is None else first_drop
        self.nodes = problem.structure.nodes
        self.low, self.high, empty = structural_supports(problem, base)
        if empty:
            raise contradiction(self, empty)
        self._curves()

    # -------------------------------------------------------------- supports and curves
    def _curves(self) -> None:
        problem = self.problem
        wide = [n for n in problem.curved if not self._is_small(n)]
        hints = problem.tables.hints(self.base) if wide else {}
        self.curves: dict[int, Curve] = {}
        if wide:
            supports = {n: (self.low[n], self.high[n]) for n in wide}
            self.curves = climb(self._evaluate_unary, supports, hints)
        doubtful = self._doubtful()
        for node, curve in list(self.curves.items()):
            if node in doubtful:
                self.curves[node] = self._scan(node, curve)
            if not np.isfinite(self.curves[node].top):
                self.curves[node] = self._search(node)

    def _doubtful(self) -> set[int]:
        """Windowed nodes with a factor that may have several peaks: an unknown family, or a known one of no linear form."""
        structure = self.problem.structure
        found = set()
        for f in self.problem.unary + self.problem.folds:
            node = f.scope[0] if f.scope[0] in self.curves else self.nodes[f.scope[0]].parent
            if node in self.curves and not structure.terms[structure.groups[f.group].term].one_peak:
                found.add(node)
        return found

    def _scan(self, node: int, seen: Curve) -> Curve:
        """Look at every integer within ``_SCAN`` of the best place seen (and of zero), so that no peak there is missed."""
        best = float(seen.points[seen.values.argmax()]) if np.isfinite(seen.top) else 0.0
        low = max(self.low[node], min(best, 0.0) - _SCAN)
        high = min(self.high[node], max(best, 0.0) + _SCAN)
        if not 0 <= high - low < _HUGE:
            return seen
        points = np.arange(low, high + 1)
        values = self._evaluate_unary({node: points})[node]
        return Curve(points, values, self.low[node], self.high[node]) if np.isfinite(values.max()) else seen

    def _evaluate_unary(self, points: dict[int, Array]) -> dict[int, Array]:
        return self.problem.evaluate_unary(self.base, points)

    def _is_small(self, node: int) -> bool:
        return self.high[node] - self.low[node] < SMALL

    def _search(self, node: int) -> Curve:
        """Look at every integer of a support when no likely place had any weight."""
        low, high = self.low[node], self.high[node]
        if not high - low < _HUGE:
            raise contradiction(self, [node])
        points = np.arange(low, high + 1)
        curve = Curve(points, self._evaluate_unary({node: points})[node], low, high)
        if not np.isfinite(curve.top):
            raise contradiction(self, [node])
        return curve

    # -------------------------------------------------------------- the loop
    def solve(self) -> tuple[list[Part], list[str]]:
        """Return the solved parts (the target's first) and the labels of improper parts that were dropped."""
        parts, dropped = [], []
        first = self._first_tables() if len(self.problem.components) > 1 else {}
        for k, component in enumerate(self.problem.components):
            part = self._solve(component, first.get(k))
            if part is None:
                dropped += [self.nodes[n].label for n in component.nodes]
            else:
                parts.append(part)
        return parts, dropped

    def _first_tables(self) -> dict[int, Ready]:
        """Evaluate the first windows of all parts in one call: many small parts then cost little more than one."""
        found = {k: self._windows(c, self.first_drop) for k, c in enumerate(self.problem.components)}
        sound = {k: f for k, f in found.items() if isinstance(f, dict)}
        domains = {n: d for f in sound.values() for n, d in f.items()}
        raw = self._raw_tables(domains, set(domains))
        owner = {n: k for k, f in sound.items() for n in f}
        ready = {k: Ready(f, {}, []) for k, f in sound.items()}
        for n, values in raw.unary.items():
            ready[owner[n]].unary[n] = values
        for factor, table in raw.multi:
            ready[owner[factor.scope[0]]].multi.append((factor, table))
        return ready

    def _raw_tables(self, domains: dict[int, Domain], live: set[int]) -> Ready:
        points = {}
        for n, d in domains.items():
            if n in self.problem.curved:  # one more at each cut end, to see whether it is the support's end
                points[n] = np.arange(d.low - d.cut[0], d.low + d.size + d.cut[1])
        unary = self._evaluate_unary(points) if points else {}
        return Ready(domains, unary, self.problem.evaluate_multi(self.base, domains, live))

    def _solve(self, component: Component, ready: Ready | None = None) -> Part | None:
        drop = self.first_drop
        for _ in range(80):
            found = ready.domains if ready is not None else self._windows(component, drop)
            if found is None:
                drop *= 2.0
                continue
            if isinstance(found, list):
                self._refuse_improper(component, found)
                return None
            part, ready = self._eliminate(component, found, drop, ready), None
            if part is None:
                drop *= 4.0
                continue
            if not part.windowed:
                return part
            need = self._needed(part)
            if need > drop:
                drop = need + 1.0
                continue
            part.bound = self._edge_bound(part)
            if part.bound > self.tolerance:
                drop = 1.5 * drop + 8.0
                continue
            return part if part.proven else self._compare(part, drop)
        label = self.nodes[component.nodes[0]].label
        msg = (
            f"the windows around {label} and its neighbours do not settle: truncate the priors with pm.Truncated, "
            'or use sampler="mcmc"'
        )
        raise UnsupportedModelError(msg, label)

    def _windows(self, component: Component, drop: float) -> dict[int, Domain] | list[int] | None:
        """Domains at this drop; None where they exclude each other, a list of nodes where some stay infinite."""
        low = {n: self.low[n] for n in component.nodes}
        high = {n: self.high[n] for n in component.nodes}
        for n in component.nodes:
            if n in self.curves:
                a, b = self.curves[n].window(drop)
                low[n], high[n] = max(low[n], a), min(high[n], b)
        if not propagate(low, high, component.constraints):
            return None
        endless = [n for n in component.nodes if not np.isfinite(high[n] - low[n])]
        endless = [n for n in endless if self.nodes[n].kind != "value"]
        if endless:
            endless = self._conditional_windows(component, endless, low, high, drop)
        if endless:
            return endless
        for n in component.nodes:
            if high[n] - low[n] >= _HUGE and self.nodes[n].kind != "value":
                msg = (
                    f"{self.nodes[n].label} would have to be followed over {high[n] - low[n] + 1:.3g} values: "
                    'give it a narrower prior, or use sampler="mcmc"'
                )
                raise UnsupportedModelError(msg, self.nodes[n].label)
        return {
            n: Domain(
                int(low[n]),
                int(high[n] - low[n]) + 1,
                (bool(low[n] > self.low[n]), bool(high[n] < self.high[n])),
            )
            for n in component.nodes
            if self.nodes[n].kind != "value"
        }

    def _conditional_windows(
        self,
        component: Component,
        endless: list[int],
        low: dict[int, float],
        high: dict[int, float],
        drop: float,
    ) -> list[int]:
        """Window nodes whose only factors tie them to other nodes: for every value of those, then all of them."""
        problem = self.problem
        for _ in range(len(endless) + 1):
            progress = False
            for f in problem.multi:
                open_nodes = [n for n in f.scope if n in endless]
                if len(open_nodes) != 1 or f.scope[0] not in low:
                    continue
                [node] = open_nodes
                found = self._profile(f, node, low, high, drop)
                if found is not None:
                    low[node], high[node] = max(low[node], found[0]), min(high[node], found[1])
                    progress = True
            if not propagate(low, high, component.constraints):
                return []
            endless = [n for n in endless if not np.isfinite(high[n] - low[n])]
            if not endless or not progress:
                break
        return endless

    def _profile(
        self, factor: Any, node: int, low: dict[int, float], high: dict[int, float], drop: float
    ) -> tuple[float, float] | None:
        """Union over the other nodes' values of the windows of ``factor`` as a function of ``node``."""
        others = [n for n in factor.scope if n != node]
        grids = np.meshgrid(*[np.arange(low[n], high[n] + 1) for n in others], indexing="ij")
        combos = np.stack([g.ravel() for g in grids], axis=1)
        if len(combos) > 20_000:
            return None
        group = self.problem.structure.groups[factor.group]
        columns = group.entry_columns[factor.position]

        def evaluate(points: Array) -> Array:
            rows = np.zeros((points.size, len(group.column_node)), dtype=np.int64)
            for column, n in zip(columns, factor.scope, strict=True):
                rows[:, column] = (
                    points.ravel() if n == node else np.repeat(combos[:, others.index(n)], points.shape[1])
                )
            [block] = self.problem.tables.evaluate(self.base, [(factor.group, rows)])
            values = np.asarray(block[:, factor.position], dtype=float).reshape(points.shape)
            return np.where(np.isnan(values), -np.inf, values)

        found = union_of_windows(evaluate, len(combos), self.low[node], self.high[node], drop)
        if found is None:
            return None
        beyond = evaluate(np.array([[found[0] - 1, found[1] + 1]] * len(combos)))
        if not np.isfinite(beyond[:, 0]).any():  # a support's end, whatever the other nodes are
            self.low[node] = max(self.low[node], found[0])
        if not np.isfinite(beyond[:, 1]).any():
            self.high[node] = min(self.high[node], found[1])
        return found

    def _refuse_improper(self, component: Component, endless: list[int]) -> None:
        """Refuse an endless node, unless in a part of the model that the target does not hang on."""
        improper = self.problem.structure.improper
        names = [self.nodes[n].label for n in endless if self.nodes[n].kind == "scalar"]
        flat = [n for n in names if n.split("[")[0] in improper]
        if flat and component.keep:
            msg = (
                f"{flat[0]} has an improper prior and no measurement, so the posterior cannot be normalised: "
                "measure it or give it a proper prior"
            )
            raise ModelError(msg, flat[0])
        if not flat:
            msg = (
                f"{(names or [self.nodes[endless[0]].label])[0]} has no bounds that the exact engine can find: "
                'truncate it with pm.Truncated, or use sampler="mcmc"'
            )
            raise UnsupportedModelError(msg, names)

    # -------------------------------------------------------------- tables
    def _eliminate(
        self, component: Component, domains: dict[int, Domain], drop: float, ready: Ready | None = None
    ) -> Part | None:
        """Fill the tables and sum out; None where nothing has any weight inside these windows."""
        problem = self.problem
        windowed = any(any(d.cut) for d in domains.values())
        raw = ready or self._raw_tables(domains, set(component.nodes))
        unary = self._settle(domains, raw.unary)
        whole = all(is_log_concave(t) for t in unary.values())
        tables: list[tuple[tuple[int, ...], Array]] = []
        for factor, table in raw.multi:
            if factor in problem.value_factors:
                tables.append(self._value_table(factor, table, domains))
            else:
                tables.append((factor.scope, np.where(np.isnan(table), -np.inf, table).astype(np.float64)))
        tables += problem.link_tables(self.base, domains)
        self._trim(unary, domains, tables)
        elimination = Elimination(
            component.steps, domains, unary, tables, component.keep, component.constraints, drop + 30.0
        )
        top = elimination.table.max() if elimination.table.size else -np.inf
        if not np.isfinite(top):
            if not windowed:
                raise contradiction(self, [n for n in component.nodes if n in problem.curved])
            return None
        weight = float(np.log(np.exp(elimination.table - top).sum()) + top)
        proven = not windowed or (component.tree and whole and self._one_peak(component))
        return Part(component, elimination, weight, 0.0, proven, windowed, drop, tables, unary, domains)

    def _one_peak(self, component: Component) -> bool:
        """Whether no windowed node can have weight out of sight: known families, log-concave wherever looked at."""
        wide = {n for n in component.nodes if n in self.curves}
        structure = self.problem.structure
        for f in self.problem.unary + self.problem.folds:
            node = f.scope[0] if f.scope[0] in wide else self.nodes[f.scope[0]].parent
            if node in wide and not structure.terms[structure.groups[f.group].term].one_peak:
                return False
        return all(self.curves[n].is_concave() for n in wide)

    def _settle(self, domains: dict[int, Domain], raw: dict[int, Array]) -> dict[int, Array]:
        """Strip the extra ends; an end beyond which the weight is zero is the support's, not a cut."""
        unary: dict[int, Array] = {}
        hard = False
        for n, values in raw.items():
            d = domains[n]
            cut = (d.cut[0] and bool(np.isfinite(values[0])), d.cut[1] and bool(np.isfinite(values[-1])))
            unary[n] = values[int(d.cut[0]) : len(values) - int(d.cut[1])]
            domains[n] = Domain(d.low, d.size, cut)
            if cut != d.cut and is_log_concave(unary[n]):
                self.low[n] = max(self.low[n], float(d.low)) if cut[0] != d.cut[0] else self.low[n]
                self.high[n] = min(self.high[n], float(d.high)) if cut[1] != d.cut[1] else self.high[n]
                hard = True
        if hard:  # what a hard end implies for other nodes is no cut either
            propagate(self.low, self.high, self.problem.constraints)
            for n, d in domains.items():
                cut = (d.cut[0] and d.low > self.low[n], d.cut[1] and d.high < self.high[n])
                domains[n] = Domain(d.low, d.size, (bool(cut[0]), bool(cut[1])))
        return unary

    def _trim(
        self, unary: dict[int, Array], domains: dict[int, Domain], tables: list[tuple[tuple[int, ...], Array]]
    ) -> None:
        """Drop the impossible ends of windows of nodes that have only a curve of their own."""
        tied = {n for scope, _ in tables for n in scope}
        for n, values in list(unary.items()):
            alive = np.flatnonzero(np.isfinite(values))
            if n in tied or not alive.size or alive.size == len(values):
                continue
            first, last = int(alive[0]), int(alive[-1])
            d = domains[n]
            cut = (d.cut[0] and first == 0, d.cut[1] and last == len(values) - 1)
            domains[n] = Domain(d.low + first, last - first + 1, cut)
            unary[n] = values[first : last + 1]

    def _value_table(
        self, factor: Any, raw: Array, domains: dict[int, Domain]
    ) -> tuple[tuple[int, ...], Array]:
        values = np.rint(np.asarray(raw, dtype=float))
        if not np.array_equal(values, raw):
            bad = float(np.asarray(raw, dtype=float)[values != raw].ravel()[0])
            msg = f"the target takes the value {bad}: the exact engine answers about integers, declare an integer target"
            raise UnsupportedModelError(msg, bad)
        low, high = int(values.min()), int(values.max())
        if (high - low + 1) * values.size > 3e7:
            msg = f"the target takes values from {low} to {high}: too many for the exact engine, ask about a simpler one"
            raise UnsupportedModelError(msg, (low, high))
        target = self.problem.target
        domains[target] = Domain(low, high - low + 1)
        table = np.where(values[..., None] == np.arange(low, high + 1), 0.0, -np.inf)
        return (*factor.scope, target), table

    # -------------------------------------------------------------- judgement
    def _needed(self, part: Part) -> float:
        """Return the drop that makes up for the factors' disagreement (point 1 of the module)."""
        best = sum(self._top(n, t) for n, t in part.unary.items()) + sum(
            float(t.max()) for _, t in part.tables
        )
        weights = part.elimination.table
        if part.component.keep and weights.size <= 2:
            target = part.component.keep[0]
            own = part.unary.get(target)
            if own is not None and target not in self.curves and len(own) == weights.size:
                best -= float(own.max())
                weights = weights - own
            alive = weights[np.isfinite(weights)]
            return float(best - alive.min()) + self.need
        return best - part.log_weight + self.need

    def _top(self, node: int, table: Array) -> float:
        return max(self.curves[node].top, float(table.max())) if node in self.curves else float(table.max())

    def _edge_bound(self, part: Part) -> float:
        """Add up what may lie beyond the ends of the windows (point 2 of the module)."""
        table = part.elimination.table
        weights = np.exp(table - table.max())
        weights = weights / weights.sum()
        roots = [weights]
        if part.component.keep and table.size <= 2:
            roots = [np.eye(table.size)[k] for k in range(table.size) if np.isfinite(table[k])]
        return max(self._beyond(part, root) for root in roots)

    def _beyond(self, part: Part, root: Array) -> float:
        beliefs = part.elimination.beliefs(root)
        total = 0.0
        for node, domain in part.elimination.domains.items():
            belief = beliefs.get(node)
            if belief is None:
                continue
            for side, edge in ((0, belief[: min(2, len(belief))]), (1, belief[::-1][:2])):
                if domain.cut[side]:
                    total += tail(edge)
        return total

    def _compare(self, part: Part, drop: float) -> Part:
        """Double the windows where log-concavity is not known until the answer stands, and report its last move."""
        for _ in range(12):
            drop *= 2.0
            wide = self._windows(part.component, drop)
            second = (
                self._eliminate(part.component, self._doubled(part, wide), drop)
                if isinstance(wide, dict)
                else None
            )
            if second is None:
                break
            moved = abs(float(np.expm1(second.log_weight - part.log_weight)))
            if part.component.keep:
                moved = max(moved, distance(part, second))
            second.bound, second.proven = max(moved, self._edge_bound(second)), not second.windowed
            part = second
            if part.bound <= max(self.tolerance, 1e-13) or not part.windowed:
                return part
        msg = (
            f"the answer still moves by {part.bound:.1g} when the windows of {self.nodes[part.component.nodes[0]].label} "
            'and its neighbours are doubled: truncate the priors with pm.Truncated, or use sampler="mcmc"'
        )
        raise UnsupportedModelError(msg, part.bound)

    def _doubled(self, part: Part, wide: dict[int, Domain]) -> dict[int, Domain]:
        """Hull of the wider windows and of the old ones at twice their width."""
        out = {}
        for n, d in wide.items():
            old = part.domains[n]
            low = max(min(d.low, old.low - old.size // 2 - 1), self.low[n])
            high = min(max(d.high, old.high + old.size // 2 + 1), self.high[n])
            out[n] = Domain(
                int(low), int(high - low) + 1, (bool(low > self.low[n]), bool(high < self.high[n]))
            )
        return out
