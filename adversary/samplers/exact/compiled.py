"""Compile a declared model once, answer it on any data: the exact engine's front door.

What it is: :func:`compile_exact` analyses the model's own log-probability graph and compiles its factor tables;
:meth:`ExactModel.solve` reads the current values of the model's shared variables (data, noise, parameters of priors),
chooses windows, sums out, and returns an :class:`~adversary.samplers.exact.answer.ExactAnswer`. No MCMC, no joint grid.
What it is not: a general integrator. Unknowns must be integers; what it cannot do it refuses, naming the variable and the
way out.

A solution is a pure function of the shared values: nothing is carried over from earlier solutions, so that a study that
is interrupted and continued gives the same bytes.

Held to account by ``tests/samplers/exact``. Sources: spec/engines.md part II; Kazan & Reiter sec. 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.vartypes import discrete_types
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from adversary.errors import ModelError
from adversary.samplers.exact.answer import ExactAnswer, Pmf, normalised
from adversary.samplers.exact.factors import FactorTables
from adversary.samplers.exact.forms import primitive
from adversary.samplers.exact.linear import python_mode
from adversary.samplers.exact.problem import Problem
from adversary.samplers.exact.reading import read_model
from adversary.samplers.exact.solution import Part, Solver
from adversary.samplers.exact.windows import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adversary.samplers.exact.factors import Base
    from adversary.samplers.exact.mixed import MixedModel

__all__ = ["ExactModel", "compile_exact"]


def compile_exact(model: Any, target: str, inputs: Sequence[Any] = ()) -> ExactModel | MixedModel:
    """Analyse and compile a PyMC model for exact answers about ``target``.

    Parameters
    ----------
    model : pymc.Model
        Its free variables must be discrete. Potentials and observed variables of any kind are welcome.
    target
        A free scalar or a Deterministic with one integer value.
    inputs
        The shared variables that the caller means to change; checked to be part of the model's graph.

    Returns
    -------
    A compiled model; call :meth:`ExactModel.solve`.

    Raises
    ------
    UnsupportedModelError
        Where the engine cannot answer; the message names the variable and the way out.
    ModelError
        Where the question has no meaning.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> with pm.Model() as model:
    ...     present = pm.Bernoulli("present", p=np.float64(0.5))
    ...     _ = pm.Potential("seen", -((2 - present) ** 2) / (2 * np.float64(5.0)))
    >>> answer = compile_exact(model, "present").solve()
    >>> round(answer.log_odds, 12)
    0.3
    """
    if any(model.rvs_to_values[rv].dtype not in discrete_types for rv in model.free_RVs):
        from adversary.samplers.exact.mixed import MixedModel

        return MixedModel(model, target, tuple(inputs))
    return ExactModel(model, target, tuple(inputs))


class ExactModel:
    """A model analysed and compiled; see :func:`compile_exact`."""

    def __init__(
        self, model: Any, target: str, inputs: tuple[Any, ...] = (), held: dict[Any, Any] | None = None
    ) -> None:
        self.model, self.target, self.inputs, self.held = model, target, inputs, held or {}
        for shared in inputs:
            if not isinstance(shared, SharedVariable):
                msg = f"{shared!r} is not a shared variable: wrap what is to change in pytensor.shared(...)"
                raise ModelError(msg, shared)
        self._analyse()

    def _analyse(self) -> None:
        self.structure = read_model(self.model, self.target, self.held)
        self.tables = FactorTables(self.structure)
        structure = self.structure
        everything = set(range(len(structure.terms)))
        self._posterior = Problem(structure, self.tables, everything, structure.target)
        names = self._ancestors()
        self._prior: Problem | None = None
        if not names & set(structure.improper):
            wanted = {k for k, t in enumerate(structure.terms) if t.owner in names or t.kind == "value"}
            self._prior = Problem(structure, self.tables, wanted, structure.target)
        self._deterministics = _Deterministics(self.model, set(structure.deterministic), self.held)

    def _ancestors(self) -> set[str]:
        """Unknowns that the target is made of, and those that their priors mention."""
        structure = self.structure
        todo = self._target_unknowns()
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo |= structure.parents.get(name, set())
        return seen

    def _target_unknowns(self) -> set[str]:
        structure = self.structure
        todo = [structure.target]
        for f in structure.factors:
            if structure.terms[structure.groups[f.group].term].kind == "value":
                todo += f.scope
        ids: set[int] = set()
        while todo:
            node = structure.nodes[todo.pop()]
            if node.parent is not None:
                todo.append(node.parent)
            for i, _ in node.form:
                if i < len(structure.scalars):
                    ids.add(i)
                elif ((i, 1),) in structure.node_of and structure.nodes[
                    structure.node_of[((i, 1),)]
                ] is not node:
                    todo.append(structure.node_of[((i, 1),)])
        return {structure.scalars[i][0] for i in ids}

    def solve(
        self, *, tolerance: float = 1e-12, first_drop: float | None = None, with_prior: bool = True
    ) -> ExactAnswer:
        """Answer on the current values of the shared variables; nothing is compiled.

        Parameters
        ----------
        tolerance
            Largest admissible bound on what the windows cut off, between 1e-250 and 0.1.
        first_drop
            Log weight below its maximum at which a first window ends; it is widened until ``tolerance`` holds.
            For tests.
        with_prior
            Whether to answer the prior too.

        Returns
        -------
        The posterior, prior, odds, evidence and bound.

        Raises
        ------
        ModelError
            Where the facts contradict each other, or the posterior cannot be normalised.
        UnsupportedModelError
            Where an unknown has to be followed too far.
        """
        if not 1e-250 <= tolerance <= 0.1:
            msg = f"tolerance must lie between 1e-250 and 0.1, got {tolerance!r}: 1e-12 is the default"
            raise ModelError(msg, tolerance)
        try:
            base = self.tables.base()
        except KeyError:  # coefficients or shapes are data and have changed: analyse anew
            self._analyse()
            base = self.tables.base()
        solver = Solver(self._posterior, base, tolerance, first_drop)
        parts, dropped = solver.solve()
        posterior, log_odds = self._pmf(parts[0], base, solver)
        prior, prior_log_odds, bound, proven = None, None, parts[0].bound, parts[0].proven
        if with_prior and self._prior is not None:
            solver = Solver(self._prior, base, tolerance, first_drop)
            prior_parts, _ = solver.solve()
            prior, prior_log_odds = self._pmf(prior_parts[0], base, solver)
            bound, proven = max(bound, prior_parts[0].bound), proven and prior_parts[0].proven
        constant = self.tables.constant(base)
        if constant == -np.inf or np.isnan(constant):
            msg = "an observed value that depends on no unknown is impossible under the model: correct it"
            raise ModelError(msg, self.target)
        log_weight = sum(p.log_weight for p in parts) + constant
        return ExactAnswer(
            target=self.target,
            posterior=posterior,
            prior=prior,
            log_odds=log_odds,
            prior_log_odds=prior_log_odds,
            log_evidence=None if self.structure.improper else log_weight,
            log_weight=log_weight,
            cut_off_bound=bound,
            bound_proven=proven,
            dropped=tuple(dropped),
            _structure=self.structure,
            _parts=tuple(parts),
            _base=base,
            _evaluate=self._deterministics.snapshot(),
        )

    @property
    def has_prior(self) -> bool:
        """Whether the target has a proper prior."""
        return self._prior is not None

    def prior_at(self, tolerance: float) -> tuple[float, tuple[Pmf, Part]]:
        """Return the log density of the continuous unknowns at their current values, and the target's prior there."""
        base = self.tables.base()
        solver = Solver(cast("Problem", self._prior), base, tolerance)
        parts, _ = solver.solve()
        return self.tables.constant(base, "hyper"), (self._pmf(parts[0], base, solver)[0], parts[0])

    def _pmf(self, part: Part, base: Base, solver: Solver) -> tuple[Pmf, float | None]:
        """Return the target's pmf, and its log-odds where it is 0/1."""
        structure = self.structure
        table, domain = part.elimination.table, part.elimination.domains[structure.target]
        low = domain.low
        scale, offset = 1, 0
        if structure.target_linear is not None:
            scale = int(primitive(structure.target_linear)[1])
            offset = base.constant(structure.target_output, structure.target_linear)
        first, last = solver.low[structure.target], solver.high[structure.target]
        if last - first < SMALL:
            table, low = _embed(table, low, int(first), int(last))
        pmf = normalised(low, table, scale, offset)
        binary = pmf.support.tolist() == [0, 1]
        if not binary:
            return pmf, None
        # from the unnormalised logs: nothing cancels, and 1 - p is never formed
        ordered = table if scale > 0 else table[::-1]
        with np.errstate(invalid="ignore"):
            return pmf, float(ordered[1] - ordered[0])


def _embed(table: Any, low: int, first: int, last: int) -> tuple[Any, int]:
    out = np.full(last - first + 1, -np.inf)
    out[low - first : low - first + len(table)] = table
    return out, first


class _Deterministics:
    """Deterministics that are not integer sums: compiled when first drawn, evaluated with the data of the solution."""

    def __init__(self, model: Any, linear: set[str], held: dict[Any, Any]) -> None:
        self.names = [v.name for v in model.deterministics if v.name not in linear]
        graphs = model.replace_rvs_by_values([model[n] for n in self.names]) if self.names else []
        self._graphs = clone_replace(graphs, held) if held and graphs else graphs
        self._shared = [a for a in ancestors(self._graphs) if isinstance(a, SharedVariable)]
        self._values = [v for v in model.value_vars if v not in held]
        self._needs = [{v.name for v in ancestors([g]) if v in set(self._values)} for g in self._graphs]
        self._function: Any = None

    def snapshot(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Remember today's data; the returned function maps draws to the Deterministics' values."""
        held = [s.get_value(borrow=False) for s in self._shared]

        def evaluate(draws: dict[str, Any]) -> dict[str, Any]:
            if not self.names or not draws:
                return {}
            if self._function is None:
                self._compile()
            n = len(next(iter(draws.values())))
            values = [draws.get(v.name, np.zeros((n, *_shape(v)), dtype=v.type.dtype)) for v in self._values]
            results = self._function(*values, *held)
            found = zip(self.names, self._needs, results, strict=True)
            return {name: value for name, needs, value in found if needs <= set(draws)}

        return evaluate

    def _compile(self) -> None:
        batches = [pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape)) for v in self._values]
        data = [s.type() for s in self._shared]
        count = batches[0].shape[0]
        graphs = vectorize_graph(self._graphs, dict(zip(self._values, batches, strict=True)))
        # a Deterministic without unknowns gets its draws' axis here
        graphs = [
            g if g.type.ndim > o.type.ndim else pt.alloc(g, count, *g.shape)
            for g, o in zip(graphs, self._graphs, strict=True)
        ]
        graphs = clone_replace(graphs, dict(zip(self._shared, data, strict=True)))
        self._function = pytensor.function(
            [*batches, *data], graphs, mode=python_mode(), on_unused_input="ignore"
        )


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(d if d is not None else 1 for d in var.type.shape)
