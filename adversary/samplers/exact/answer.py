"""The answer of the exact engine: probabilities, odds, the bound on what was cut off, joint tables, i.i.d. draws.

What it is: frozen results and, computed on demand from the tables kept, marginals of other unknowns, joint tables and
draws. Everything refers to the data at the time of the solution. What it is not: it never evaluates the model again,
except for Deterministics that are not integer sums, and those with the data of that time.

Held to account by ``tests/samplers/exact``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, UnsupportedModelError
from adversary.samplers.exact.eliminate import Elimination
from adversary.samplers.exact.forms import Linear, primitive
from adversary.samplers.exact.plan import Domain, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from adversary.samplers.exact.factors import Base
    from adversary.samplers.exact.solution import Part
    from adversary.samplers.exact.structure import Structure

__all__ = ["ExactAnswer", "Pmf"]


@dataclass(frozen=True)
class Pmf:
    """A probability mass function on integers.

    Parameters
    ----------
    support
        Increasing integers, shape (k,).
    log_p
        Log-probabilities, shape (k,); they sum to one. -inf where a value is impossible.

    Examples
    --------
    >>> pmf = Pmf(np.array([0, 1]), np.log([0.25, 0.75]))
    >>> round(pmf.mean(), 12), pmf.mode()
    (0.75, 1)
    """

    support: NDArray[np.int64]
    log_p: NDArray[np.float64]

    @property
    def p(self) -> NDArray[np.float64]:
        """Probabilities, shape (k,)."""
        return np.exp(self.log_p)

    def mean(self) -> float:
        """Mean; differences from the mode are averaged, so that counts of 1e15 keep their fraction."""
        centre = self.mode()
        return float(centre + ((self.support - centre) * self.p).sum())

    def mode(self) -> int:
        """Most probable value; the smallest of several."""
        return int(self.support[self.log_p.argmax()])

    def __eq__(self, other: object) -> bool:
        """Equal where supports and log-probabilities are."""
        if not isinstance(other, Pmf):
            return NotImplemented
        return np.array_equal(self.support, other.support) and np.array_equal(self.log_p, other.log_p)

    __hash__ = None  # type: ignore[assignment]  # holds arrays


def normalised(low: int, table: NDArray[np.float64], scale: int, offset: int) -> Pmf:
    """Turn log weights of a node into the pmf of ``offset + scale * node``."""
    top = table.max()
    log_p = table - (np.log(np.exp(table - top).sum()) + top)
    support = offset + scale * (low + np.arange(len(table), dtype=np.int64))
    if scale < 0:
        support, log_p = support[::-1], log_p[::-1]
    return Pmf(support, log_p)


@dataclass(frozen=True)
class ExactAnswer:
    """Exact posterior of one model on the data it held when solved.

    Attributes
    ----------
    target
        Name of the question.
    posterior
        :class:`Pmf` of the target given everything observed.
    prior
        Its :class:`Pmf` before, from the unknowns' own distributions (Potentials and observations left out); None where
        an unknown that it depends on has an improper prior.
    log_odds, prior_log_odds
        For a 0/1 target: log P(1) - log P(0), from logs throughout, so that odds of 1e-300 keep their digits; None for
        other targets.
    log_evidence
        Log probability of the observed data and Potentials; None where an improper prior makes it a mere density ratio.
    log_weight
        The log of the total weight in every case: with improper priors only differences between data sets mean anything.
    cut_off_bound
        Bound on the error of each posterior probability from following unbounded unknowns over windows only.
    bound_proven
        True where all factors are log-concave and meet in a tree of sums, so that the bound follows from the ratio at each
        window's end (or where nothing was cut off); False where windows were doubled instead and the bound is the change seen.
    """

    target: str
    posterior: Pmf
    prior: Pmf | None
    log_odds: float | None
    prior_log_odds: float | None
    log_evidence: float | None
    log_weight: float
    cut_off_bound: float
    bound_proven: bool
    dropped: tuple[str, ...]
    _structure: Structure = field(repr=False)
    _parts: tuple[Part, ...] = field(repr=False)
    _base: Base = field(repr=False)
    _evaluate: Callable[[dict[str, Any]], dict[str, Any]] = field(repr=False)

    # ------------------------------------------------------------------ tables on demand
    def marginal(self, name: str, index: tuple[int, ...] | int = ()) -> Pmf:
        """Return the posterior of one entry of an unknown, or of an integer sum declared as a Deterministic.

        Parameters
        ----------
        name
            Name in the model.
        index
            Which entry of a vector or array.
        """
        if name == self.target:
            return self.posterior
        supports, table = self.joint([(name, index)])
        return Pmf(supports[0], table)

    def joint(
        self, names: Sequence[str | tuple[str, tuple[int, ...] | int]]
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
        """Return the supports and the log table of the joint posterior of one to three entries.

        Parameters
        ----------
        names
            Names of scalars, or (name, index) pairs.

        Returns
        -------
        One increasing support per name, and log-probabilities of shape (k1, k2, ...).
        """
        if not 1 <= len(names) <= 3:
            msg = f"joint takes one to three names, got {len(names)}: ask about fewer at a time"
            raise ModelError(msg, list(names))
        wanted = [self._entry(*(n if isinstance(n, tuple) else (n, ()))) for n in names]
        snapshot = _Snapshot(self._structure, self._parts)
        nodes = [snapshot.node(linear) for linear, _ in wanted]
        elimination = snapshot.eliminate(nodes)
        keep = elimination.keep
        table = elimination.table - elimination.table.max()
        table = table - np.log(np.exp(table).sum())
        supports = []
        if len(set(nodes)) < len(nodes):
            msg = f"{names} name the same unknown twice: ask about each once"
            raise ModelError(msg, list(names))
        table = table.transpose([keep.index(n) for n in nodes])
        for axis, ((linear, offset), node) in enumerate(zip(wanted, nodes, strict=True)):
            scale = int(primitive(linear)[1])
            domain = elimination.domains[node]
            support = offset + scale * np.arange(domain.low, domain.low + domain.size, dtype=np.int64)
            if scale < 0:
                support, table = support[::-1], np.flip(table, axis)
            supports.append(support)
        return supports, table

    def _entry(self, name: str, index: tuple[int, ...] | int) -> tuple[Linear, int]:
        """Return the linear form and the constant of one named entry."""
        where = index if isinstance(index, tuple) else (index,)
        structure = self._structure
        if name == self.target:
            if structure.target_linear is not None:
                return structure.target_linear, self._base.constant(
                    structure.target_output, structure.target_linear
                )
            return Linear(((structure.nodes[structure.target].form[0][0], Fraction(1)),)), 0
        if name in structure.shapes:
            entries = np.array(
                [i for i, (owner, _) in enumerate(structure.scalars) if owner == name], dtype=object
            ).reshape(structure.shapes[name])
            value = entries[where]
            if isinstance(value, np.ndarray):
                raise self._needs_index(name, entries.shape)
            return Linear(((int(value), Fraction(1)),)), 0
        if name in structure.deterministic:
            entries, output = structure.deterministic[name]
            entry = entries[where]
            if isinstance(entry, np.ndarray):
                raise self._needs_index(name, entries.shape)
            if isinstance(entry, Linear) and primitive(entry)[1].denominator == 1:
                return entry, int(self._base.outputs[output][where])
        have = ", ".join(sorted({*structure.shapes, *structure.deterministic}))
        msg = f"the exact engine has no table for {name!r}: name one of {have}, make it the target, or use draws"
        raise ModelError(msg, name)

    @staticmethod
    def _needs_index(name: str, shape: tuple[int, ...]) -> ModelError:
        msg = f"{name} has shape {shape}: give the index of one entry, for example ({name!r}, {(0,) * len(shape)})"
        return ModelError(msg, name)

    # ------------------------------------------------------------------ draws
    def draw(
        self, n: int, seed: int | np.random.SeedSequence | np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        """Draw n times independently from the exact joint posterior.

        Parameters
        ----------
        n
            How many draws.
        seed
            int, SeedSequence or Generator.

        Returns
        -------
        Name -> array of shape (n, *shape of the variable), for all unknowns and Deterministics (but not for unknowns that
        were dropped because nothing measures them and their prior is improper).
        """
        rng = np.random.default_rng(seed)
        state: dict[int, NDArray[np.int64]] = {}
        for part in self._parts:
            state.update(part.elimination.draw(n, rng))
        structure = self._structure
        out: dict[str, NDArray[Any]] = {}
        for name, shape in structure.shapes.items():
            columns = [i for i, (owner, _) in enumerate(structure.scalars) if owner == name]
            nodes = [structure.node_of[((i, 1),)] for i in columns]
            if all(k in state for k in nodes):
                stacked = np.stack([state[k] for k in nodes], axis=1) if nodes else np.empty((n, 0))
                out[name] = stacked.reshape(n, *shape).astype(structure.dtypes[name])
        scalars = {i: state.get(structure.node_of[((i, 1),)]) for i in range(len(structure.scalars))}
        for name, (entries, output) in structure.deterministic.items():
            value = _sum_draws(entries, self._base.outputs[output], scalars, n)
            if value is not None:
                out[name] = value
        out.update(self._evaluate(out))
        return out


def _sum_draws(entries: Any, constant: Any, scalars: dict[int, Any], n: int) -> NDArray[np.int64] | None:
    """Evaluate linear Deterministics on draws, in exact integers."""
    columns = []
    for entry, offset in zip(entries.ravel(), np.broadcast_to(constant, entries.shape).ravel(), strict=True):
        column = np.full(n, int(offset), dtype=np.int64)
        for i, c in entry.coefs if entry is not None else ():
            if scalars[i] is None or c.denominator != 1:
                return None
            column = column + int(c) * scalars[i]
        columns.append(column)
    return (
        np.stack(columns, axis=1).reshape(n, *entries.shape)
        if columns
        else np.empty((n, *entries.shape), dtype=np.int64)
    )


class _Snapshot:
    """All solved parts as one factor graph, to which further sums can be added."""

    def __init__(self, structure: Structure, parts: Sequence[Part]) -> None:
        self.structure = structure
        self.parts = parts
        self.part_of = {n: k for k, p in enumerate(parts) for n in p.component.nodes}
        self.domains: dict[int, Domain] = {}
        self.extra: list[tuple[int, int, int, int]] = []
        self.next = len(structure.nodes)

    def node(self, linear: Linear) -> int:
        """Return the node of a form, adding a chain of partial sums where there is none."""
        form, _ = primitive(linear)
        known = self.structure.node_of.get(form)
        if known is not None and known in self.part_of:
            return known
        total = self._new(Domain(0, 1))
        for i, c in form:
            scalar = self.structure.node_of[((i, 1),)]
            if scalar not in self.part_of:
                label = self.structure.nodes[scalar].label
                msg = f"{label} has an improper prior and no measurement, so it has no posterior: give it a proper prior"
                raise ModelError(msg, label)
            low, high = self._range(scalar)
            before = self.domains[total]
            ends = sorted((c * low, c * high))
            fresh = self._new(Domain(before.low + ends[0], before.size + ends[1] - ends[0]))
            self.extra.append((fresh, total, c, scalar))
            total = fresh
        return total

    def _new(self, domain: Domain) -> int:
        self.domains[self.next] = domain
        self.next += 1
        return self.next - 1

    def _range(self, node: int) -> tuple[int, int]:
        domain = self.parts[self.part_of[node]].domains[node]
        return domain.low, domain.high

    def eliminate(self, keep: Sequence[int]) -> Elimination:
        """Sum out everything but ``keep`` in the parts that matter."""
        touched = {self.part_of[n] for n in keep if n in self.part_of}
        touched |= {self.part_of[c[3]] for c in self.extra}
        parts = [self.parts[k] for k in sorted(touched)]
        domains = dict(self.domains)
        unary: dict[int, Any] = {}
        tables: list[Any] = []
        constraints: list[Any] = list(self.extra)
        nodes: list[int] = list(self.domains)
        drop = 0.0
        for part in parts:
            domains.update(part.domains)
            unary.update(part.unary)
            tables += part.tables
            constraints += part.component.constraints
            nodes += part.component.nodes
            drop = max(drop, part.drop)
        scopes = [s for s, _ in tables]
        sizes = {n: float(domains[n].size) for n in nodes}
        steps = plan(nodes, scopes, constraints, tuple(keep), sizes)
        elimination = Elimination(steps, domains, unary, tables, tuple(keep), constraints, drop + 30.0)
        if not np.isfinite(elimination.table.max()):
            msg = "the joint table asked for is empty: report this with the model"
            raise UnsupportedModelError(msg, list(keep))
        return elimination
