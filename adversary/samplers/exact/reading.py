"""From a declared PyMC model to the static structure of the engine.

What it is: the one place that asks PyMC for log-probabilities, supports and names. What it is not: it evaluates nothing that
depends on data, except coefficients and shapes (noted, and read anew when they change).

Held to account by ``tests/samplers/exact``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from pymc.vartypes import discrete_types
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast

from adversary.errors import ModelError, UnsupportedModelError
from adversary.samplers.exact._supports import is_known_family, support_bounds
from adversary.samplers.exact.forms import Form, Linear, Opaque, independent, primitive
from adversary.samplers.exact.linear import GraphReader
from adversary.samplers.exact.structure import Bound, Factor, Group, Node, Structure, SumConstraint, Term

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["read_model"]


def read_model(model: Any, target: str, held: dict[Any, Any] | None = None) -> Structure:
    """Analyse a PyMC model for the target ``target``; pays for the graph walk once.

    Parameters
    ----------
    model : pymc.Model
        Anything :func:`~adversary.samplers.exact.compile_exact` takes.
    target
        What is asked.
    held
        Value variables of continuous unknowns -> shared variables that stand for them: they count as data.
    """
    return _Builder(model, target, held or {}).build()


class _Builder:
    def __init__(self, model: Any, target: str, held: dict[Any, Any]) -> None:
        self.model, self.target_name, self.held = model, target, held
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self.scalars: list[tuple[str, int]] = []
        self.nodes: list[Node] = []
        self.node_of: dict[Form, int] = {}
        self.groups: list[Group] = []
        self.factors: list[Factor] = []
        self.constraints: list[SumConstraint] = []
        self.links: list[int] = []
        self.base_outputs: list[Any] = []
        self.open_groups: dict[int, list[int]] = {}

    # ------------------------------------------------------------------ assembling
    def build(self) -> Structure:
        leaves = self._leaves()
        self.reader = GraphReader(leaves, len(self.scalars))
        self._check_target()
        terms, arrays = self._terms()
        target_expr = self._target_expression()
        [(target_var, target_entries)] = self.reader.read([target_expr])
        self.terms = terms
        for number, entries in enumerate(arrays):
            self._factorise(number, entries)
        target, linear = self._target_node(target_var, target_entries)
        self._build_sums()
        bounds = self._bounds()
        target_output = self._output(target_var)
        return Structure(
            reader=self.reader,
            shapes=self.shapes,
            dtypes=self.dtypes,
            scalars=self.scalars,
            terms=self.terms,
            nodes=self.nodes,
            groups=self.groups,
            factors=self.factors,
            constraints=self.constraints,
            links=self.links,
            target=target,
            target_linear=linear,
            target_output=target_output,
            bounds=bounds,
            base_outputs=self.base_outputs,
            improper=self._improper(),
            deterministic=self._deterministics(),
            parents=self._parents(arrays),
            node_of=self.node_of,
            observed={rv.name: self.model.rvs_to_values[rv] for rv in self.model.observed_RVs},
        )

    def _output(self, var: Any) -> int:
        self.base_outputs.append(var)
        return len(self.base_outputs) - 1

    def _leaves(self) -> dict[Any, NDArray[np.object_]]:
        leaves = {}
        shapes = self.model.eval_rv_shapes()
        for rv in self.model.free_RVs:
            value = self.model.rvs_to_values[rv]
            if value in self.held:
                continue
            if value.dtype not in discrete_types:
                msg = (
                    f"{rv.name} is continuous and the exact engine sums over integers: "
                    'fix it, or use sampler="mcmc"'
                )
                raise UnsupportedModelError(msg, rv.name)
            shape = tuple(int(d) for d in shapes[rv.name])
            self.shapes[rv.name], self.dtypes[rv.name] = shape, value.dtype
            entries = np.empty(int(np.prod(shape, dtype=int)), dtype=object)
            for flat in range(entries.size):
                number = len(self.scalars)
                self.scalars.append((rv.name, flat))
                label = (
                    rv.name
                    if not shape
                    else f"{rv.name}[{','.join(map(str, np.unravel_index(flat, shape)))}]"
                )
                form = ((number, 1),)
                self.node_of[form] = len(self.nodes)
                self.nodes.append(Node("scalar", form, label))
                entries[flat] = Linear(((number, Fraction(1)),))
            leaves[value] = entries.reshape(shape)
        return leaves

    def _check_target(self) -> None:
        if self.target_name not in self.model.named_vars:
            have = ", ".join(sorted(v.name for v in [*self.model.free_RVs, *self.model.deterministics]))
            msg = f"the model has no {self.target_name!r} to ask about: name one of {have}"
            raise ModelError(msg, self.target_name)

    def _terms(self) -> tuple[list[Term], list[NDArray[np.object_]]]:
        model = self.model
        declared = [("prior", rv) for rv in model.free_RVs] + [("observed", rv) for rv in model.observed_RVs]
        declared = [("hyper" if model.rvs_to_values[rv] in self.held else kind, rv) for kind, rv in declared]
        graphs = model.logp(vars=[rv for _, rv in declared], sum=False) if declared else []
        if model.potentials:
            graphs = [*graphs, *model.logp(vars=model.potentials, sum=False)]
            declared = declared + [("potential", p) for p in model.potentials]
        graphs = self._hold(_without_narrowing(model, graphs))
        read = self.reader.read(graphs)
        terms, arrays = [], []
        for (kind, rv), (var, entries) in zip(declared, read, strict=True):
            opaque = self.reader.refs(var, entries)
            cuts = sorted({c for e in opaque.ravel() if isinstance(e, Opaque) for c, _ in e.refs})
            constant = tuple(i for i, e in enumerate(opaque.ravel()) if not isinstance(e, Opaque))
            owner = rv.name if kind == "prior" else None
            known = kind in {"prior", "observed"} and is_known_family(rv) and self._is_affine(rv)
            terms.append(Term(rv.name, kind, var, entries.shape, tuple(cuts), owner, constant, known))
            arrays.append(opaque)
        return terms, arrays

    def _is_affine(self, rv: Any) -> bool:
        """Whether every parameter of a distribution is a linear form of the unknowns: else one peak may become several."""
        op = rv.owner.op
        if not hasattr(op, "ndims_params") or type(op).__name__ == "TruncatedRV":
            return False
        for parameter in op.dist_params(rv.owner):
            reader = GraphReader(self.reader.leaves, self.reader.next_id)
            [(_, entries)] = reader.read([self._by_values(parameter)])
            if not all(e is None or isinstance(e, Linear) for e in entries.ravel()):
                return False
        return True

    def _target_expression(self) -> Any:
        var = self.model.named_vars[self.target_name]
        if var in self.model.rvs_to_values and var in self.model.free_RVs:
            return self.model.rvs_to_values[var]
        return self._by_values(var)

    def _by_values(self, graph: Any) -> Any:
        return self._hold(self.model.replace_rvs_by_values([graph]))[0]

    def _hold(self, graphs: Any) -> Any:
        return clone_replace(list(graphs), self.held) if self.held else graphs

    # ------------------------------------------------------------------ factors
    def _node(self, form: Form) -> int:
        if form not in self.node_of:
            self.node_of[form] = len(self.nodes)
            indicator = self.reader.indicators.get(form[0][0]) if len(form) == 1 and form[0][1] == 1 else None
            if indicator is not None:
                parent = self._node(primitive(indicator.parent)[0])
                self.node_of[form] = len(self.nodes)
                self.nodes.append(Node("indicator", form, f"1[{self.nodes[parent].label} = .]", parent))
            else:
                self.nodes.append(Node("form", form, self._label(form)))
                for i, _ in form:
                    self._node(((i, 1),))
        return self.node_of[form]

    def _label(self, form: Form) -> str:
        parts = []
        for i, c in form:
            name = self.nodes[i].label if i < len(self.scalars) else f"z{i}"
            parts.append(("+ " if c > 0 else "- ") + (f"{abs(c)}*" if abs(c) != 1 else "") + name)
        return " ".join(parts).removeprefix("+ ")

    def _parent_of(self, form: Form) -> Form | None:
        """Return the one form whose indicators make up ``form``, None if it has anything else in it."""
        parents = set()
        for i, _ in form:
            if i not in self.reader.indicators:
                return None
            parents.add(primitive(self.reader.indicators[i].parent)[0])
        return parents.pop() if len(parents) == 1 else None

    def _resolve(self, refs: frozenset[tuple[int, int]]) -> dict[tuple[int, int], tuple[Form, Form, float]]:
        """For every cut entry: (form that gets a column, the entry's own form, scale)."""
        own: dict[tuple[int, int], tuple[Form, Fraction]] = {}
        for cut, index in sorted(refs):
            linear = self.reader.cuts[cut].entries[index]
            if linear is not None:
                own[cut, index] = primitive(linear)
        forms = {f for f, _ in own.values()}
        grouped: dict[Form, set[Form]] = {}
        for f in forms:
            parent = self._parent_of(f)
            if parent is not None:
                grouped.setdefault(parent, set()).add(f)
        column = {f: f for f in forms}
        for parent, members in grouped.items():
            if parent in forms or len(members) > 1 or any(len(m) > 1 for m in members):
                column.update(dict.fromkeys(members, parent))
        return {ref: (column[f], f, float(g)) for ref, (f, g) in own.items()}

    def _factorise(self, number: int, entries: NDArray[np.object_]) -> None:
        for position, entry in enumerate(entries.ravel()):
            if not isinstance(entry, Opaque):
                continue
            resolved = self._resolve(entry.refs)
            if not resolved:
                continue
            needed = sorted({c for c, _, _ in resolved.values()}, key=lambda f: (len(f), f))
            forms, sums = independent(needed)
            if len(forms) > 4:
                names = ", ".join(self._label(f) for f in forms[:5])
                msg = (
                    f"{self.terms[number].name} ties {len(forms)} unknowns together that do not enter as a sum ({names}): "
                    'rewrite it as a function of sums, or use sampler="mcmc"'
                )
                raise UnsupportedModelError(msg, self.terms[number].name)
            scope = tuple(self._node(f) for f in forms)
            self._place(number, position, scope, dict(zip(forms, scope, strict=True)), sums, resolved)

    def _place(
        self,
        number: int,
        position: int,
        scope: tuple[int, ...],
        forms: dict[Form, int],
        sums: dict[Form, dict[Form, Fraction]],
        resolved: dict[tuple[int, int], tuple[Form, Form, float]],
    ) -> None:
        """Put the entry into the first group of its term whose cut entries it does not set differently."""
        for g in self.open_groups.setdefault(number, []):
            group = self.groups[g]
            if not any(r in group.used for r in resolved) and len(scope) == len(group.scopes[0]):
                break
        else:
            g = len(self.groups)
            self.groups.append(Group(number))
            self.open_groups[number].append(g)
            group = self.groups[g]
        columns = {}
        for form, node in forms.items():
            columns[form] = len(group.column_node)
            group.column_node.append(node)
        for ref, (column_form, own, scale) in resolved.items():
            group.used[ref] = position
            if own == column_form and column_form in columns:
                column = columns[column_form]
            else:
                made_of = sums.get(column_form, {column_form: Fraction(1)})
                parts = tuple((columns[f], c) for f, c in made_of.items())
                group.derived.append((parts, None if own == column_form else own))
                column = -len(group.derived)
            group.fills.append((*ref, column, scale))
        self.factors.append(Factor(scope, g, len(group.entries)))
        group.entries.append(position)
        group.scopes.append(scope)
        group.entry_columns.append(tuple(columns.values()))

    def _target_node(self, var: Any, entries: NDArray[np.object_]) -> tuple[int, Linear | None]:
        if entries.size != 1:
            msg = (
                f"the target {self.target_name!r} has shape {entries.shape}, not one value: "
                "declare the entry you ask about as a pm.Deterministic of its own"
            )
            raise UnsupportedModelError(msg, self.target_name)
        entry = entries.ravel()[0]
        if entry is None:
            msg = f"the target {self.target_name!r} does not depend on any unknown: give one of its arguments a prior"
            raise ModelError(msg, self.target_name)
        if isinstance(entry, Linear):
            return self._node(primitive(entry)[0]), entry
        opaque = self.reader.refs(var, entries)
        cuts = sorted({c for e in opaque.ravel() if isinstance(e, Opaque) for c, _ in e.refs})
        self.terms.append(Term(self.target_name, "value", var, entries.shape, tuple(cuts)))
        form = ((self.reader.next_id, 1),)
        self.reader.next_id += 1
        self.node_of[form] = node = len(self.nodes)
        self.nodes.append(Node("value", form, self.target_name))
        self._factorise(len(self.terms) - 1, opaque)
        return node, None

    # ------------------------------------------------------------------ sums
    def _build_sums(self) -> None:
        """Write every form of several unknowns as a chain of ``t = u + c v`` that shares partial sums."""
        built: dict[Form, None] = {}
        wanted = sorted((n.form for n in self.nodes if len(n.form) > 1), key=lambda f: (len(f), f))
        for form in wanted:
            self._build_sum(form, built)
        used = {i for f in [n.form for n in self.nodes] for i, _ in f if i in self.reader.indicators}
        used_nodes = {self._node(((i, 1),)) for i in used}
        linked = {n for f in self.factors if len(f.scope) > 1 for n in f.scope} | {
            n for c in self.constraints for n in (c.total, c.left, c.right)
        }
        self.links = sorted(n for n in used_nodes if n in linked)

    def _build_sum(self, form: Form, built: dict[Form, None]) -> None:
        if form in built or (len(form) == 1 and form[0][1] == 1):
            return
        built[form] = None
        if len(form) == 1:  # c v alone: 0 + c v
            zero = len(self.nodes)  # one for each use, so that it ties no independent parts together
            self.nodes.append(Node("zero", (), "0"))
            self.constraints.append(
                SumConstraint(self.node_of[form], zero, form[0][1], self._node(((form[0][0], 1),)))
            )
            return
        coefs = dict(form)
        parts = [f for f in built if f != form and all(coefs.get(i) == c for i, c in f)]
        left = max(parts, key=len) if parts else None
        if left is None:
            left = _split(form)
        rest = tuple((i, c) for i, c in form if i not in dict(left))
        coefficient = 1
        if len(rest) == 1:
            coefficient, rest = rest[0][1], ((rest[0][0], 1),)
        elif rest[0][1] < 0:
            coefficient, rest = -1, tuple((i, -c) for i, c in rest)
        for part in (left, rest):
            self._node(part)
            self._build_sum(part, built)
        self.constraints.append(
            SumConstraint(self.node_of[form], self.node_of[left], coefficient, self.node_of[rest])
        )

    # ------------------------------------------------------------------ supports, priors, deterministics
    def _bounds(self) -> list[tuple[Bound | None, Bound | None]]:
        bounds: list[tuple[Bound | None, Bound | None]] = [(None, None)] * len(self.scalars)
        start = {name: i for i, (name, flat) in reversed(list(enumerate(self.scalars))) if flat == 0}
        for rv in self.model.free_RVs:
            if rv.name not in self.shapes:
                continue
            shape = self.shapes[rv.name]
            size = int(np.prod(shape, dtype=int))
            lower, upper = [
                [None] * size if g is None else self._bound(g, shape, size) for g in support_bounds(rv)
            ]
            bounds[start[rv.name] : start[rv.name] + size] = zip(lower, upper, strict=True)
        return bounds

    def _bound(self, graph: Any, shape: tuple[int, ...], size: int) -> Sequence[Bound | None]:
        graph = self._by_values(graph)
        [(var, entries)] = self.reader.read([graph])
        if any(isinstance(e, Opaque) for e in entries.ravel()):
            return [None] * size
        output = self._output(var)
        spread = np.broadcast_to(entries, shape).ravel()
        index = np.broadcast_to(np.arange(entries.size).reshape(entries.shape), shape).ravel()
        return [Bound(output, int(i), e) for i, e in zip(index, spread, strict=True)]

    def _improper(self) -> dict[str, str]:
        names = {"flat_count"}
        return {
            rv.name: rv.owner.op.name
            for rv in self.model.free_RVs
            if getattr(rv.owner.op, "name", "") in names
        }

    def _deterministics(self) -> dict[str, tuple[NDArray[np.object_], int]]:
        """Read the linear Deterministics, for marginals, joint tables and draws; the others are evaluated on draws."""
        found = {}
        known = set(self.reader.indicators)
        for var in self.model.deterministics:
            graph = self._by_values(var)
            reader = GraphReader(self.reader.leaves, self.reader.next_id)
            [(_, entries)] = reader.read([graph])
            integers = var.type.dtype.startswith(("int", "uint"))
            plain = all(
                e is None or (isinstance(e, Linear) and not known & {i for i, _ in e.coefs})
                for e in entries.ravel()
            )
            plain = plain and all(
                i < len(self.scalars) for e in entries.ravel() if e is not None for i, _ in e.coefs
            )
            if plain and integers:
                found[var.name] = (entries, self._output(graph))
        return found

    def _parents(self, arrays: list[NDArray[np.object_]]) -> dict[str, set[str]]:
        """Which unknowns the prior of each unknown mentions, itself included."""
        parents: dict[str, set[str]] = {}
        for term, entries in zip(self.terms, arrays, strict=False):
            if term.kind == "prior":
                ids: set[int] = set()
                for e in entries.ravel():
                    if isinstance(e, Opaque):
                        for cut, index in e.refs:
                            linear = self.reader.cuts[cut].entries[index]
                            ids |= self.unknowns(linear) if linear else set()
                parents[term.name] = {self.scalars[i][0] for i in ids}
        return parents

    def unknowns(self, linear: Linear) -> set[int]:
        """Return the scalars a form is made of, looking through indicators."""
        ids: set[int] = set()
        for i, _ in linear.coefs:
            ids |= {i} if i < len(self.scalars) else self.unknowns(self.reader.indicators[i].parent)
        return ids


def _without_narrowing(model: Any, graphs: list[Any]) -> list[Any]:
    """Undo the cast to int32 that PyMC puts on observed shared integers: counts beyond 2^31 would wrap silently."""
    wide = {}
    for rv in model.observed_RVs:
        for var in ancestors([model.rvs_to_values[rv]]):
            scalar = getattr(getattr(var.owner, "op", None), "scalar_op", None)
            if isinstance(scalar, Cast) and var.type.dtype in {"int8", "int16", "int32"}:
                wide[var] = var.owner.inputs[0]
    return list(clone_replace(graphs, wide, rebuild_strict=False)) if wide else graphs


def _split(form: Form) -> Form:
    """Halve a long form (so that partial sums stay narrow), keeping a unit coefficient in front of a short one."""
    if len(form) > 3:
        half = len(form) // 2
        head = form[:half]
        if head[0][1] > 0:
            return head
    if len(form) == 2:
        units = [pair for pair in form if pair[1] == 1]
        return (units[0],) if units else (form[0],)
    return form[:-1]
