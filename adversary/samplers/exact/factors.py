"""Factor tables: the model's own log-probability, evaluated on grids of the integers it depends on.

What it is: two compiled functions per model. ``base`` evaluates, at all unknowns zero, every tensor at which the graphs
were cut: it gives the constant part of each linear form from the current data. ``tables`` evaluates every term with its
cuts replaced by free inputs with a leading row dimension, so that one call fills the tables of all factors. What it is
not: it chooses no grid (see :mod:`adversary.samplers.exact.windows`).

Integer differences such as ``value - (known + x)`` are formed in int64 inside the base function, before any float.

Held to account by ``tests/samplers/exact/test_engine.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, io_toposort

from adversary.samplers.exact.forms import primitive
from adversary.samplers.exact.linear import python_mode
from adversary.samplers.exact.runner import Runner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adversary.samplers.exact.forms import Linear
    from adversary.samplers.exact.structure import Group, Structure

__all__ = ["Base", "FactorTables"]

Array = Any
Fill = tuple[Array, Array, Array, Any]
NOWHERE = np.iinfo(np.int64).min  # an indicator that no integer switches on


@dataclass(frozen=True)
class Base:
    """What the current data say at all unknowns zero: cut values, indicator positions, other outputs, constant terms."""

    cuts: list[Array]
    switch: NDArray[np.int64]
    outputs: list[Array]
    fixed: list[Array]
    on: Any = None

    def constant(self, output: int, linear: Linear, index: tuple[int, ...] = ()) -> int:
        """Return the constant term of a linear form: its value at all unknowns zero less the indicators that are on there."""
        value = self.outputs[output][index] if index else self.outputs[output].ravel()[0]
        return int(value) - int(sum(c for i, c in linear.coefs if self.on[i]))


class FactorTables:
    """The compiled functions of one :class:`~adversary.samplers.exact.structure.Structure`."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        reader = structure.reader
        zeros = {v: pt.constant(np.zeros(e.shape, dtype=v.type.dtype)) for v, e in reader.leaves.items()}
        mode = python_mode()
        inputs, outputs = self._batched(zeros)
        fixed, outputs = _hoist(inputs, outputs)
        self._n_fixed = len(fixed)
        wanted = [c.var for c in reader.cuts] + reader.differences + structure.base_outputs
        wanted += [v for v, _ in reader.assumed]
        graphs = clone_replace(wanted, zeros) + fixed
        self._shared = [a for a in ancestors(graphs) if isinstance(a, SharedVariable)]
        data = [v.type() for v in self._shared]
        graphs = clone_replace(graphs, dict(zip(self._shared, data, strict=True)))
        self._base = Runner(pytensor.function(data, graphs, mode=mode, on_unused_input="ignore"))
        own = [f.type() for f in fixed]
        outputs = clone_replace(outputs, dict(zip(fixed, own, strict=True)))
        compiled = pytensor.function([*inputs, *own], outputs, mode=mode, on_unused_input="ignore")
        self._tables = Runner(compiled)
        self._prepare()

    def _batched(self, zeros: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
        """Give every term its own row-wise copies of its cuts."""
        inputs: list[Any] = []
        outputs: list[Any] = []
        self._slots: list[list[int]] = []
        for term in self.structure.terms:
            replace = {}
            slots = []
            for number in term.cuts:
                cut = self.structure.reader.cuts[number]
                batch = pt.tensor(dtype=cut.var.type.dtype, shape=(None, *cut.shape))
                replace[cut.var] = batch
                slots.append(len(inputs))
                inputs.append(batch)
            self._slots.append(slots)
            # leaves that are left over give shapes only (zeros_like(y)), so zeros serve
            graph = vectorize_graph(term.var, replace) if replace else term.var
            outputs.append(clone_replace([graph], zeros)[0])
        return inputs, outputs

    def _prepare(self) -> None:
        """Sort fills, indicators and zeros into index arrays, so that a solution assigns whole blocks."""
        structure, reader = self.structure, self.structure.reader
        self._n_ids = reader.next_id
        self._fill = [_fills(group, structure) for group in structure.groups]
        by_difference: dict[int, list[tuple[int, int, float]]] = {}
        self._switch_parents = []
        for number, indicator in reader.indicators.items():
            form, scale = primitive(indicator.parent)
            by_difference.setdefault(indicator.difference, []).append((number, indicator.index, float(scale)))
            node = structure.node_of.get(form)
            if node is not None and not (len(form) == 1 and form[0][0] in reader.indicators):
                self._switch_parents.append((node, number))
        self._indicators = {d: _columns(items) for d, items in by_difference.items()}
        self._zeros = []
        for number, cut in enumerate(reader.cuts):
            for index, linear in enumerate(cut.entries):
                if linear is not None and not any(i in reader.indicators for i, _ in linear.coefs):
                    form, scale = primitive(linear)
                    if form in structure.node_of:
                        self._zeros.append((number, index, structure.node_of[form], float(scale)))

    def base(self) -> Base:
        """Evaluate everything that depends on the data only; raises ``KeyError`` where the analysis is outdated."""
        reader = self.structure.reader
        values = self._base(*[np.asarray(v.get_value(borrow=True)) for v in self._shared])
        n_cuts, n_diff = len(reader.cuts), len(reader.differences)
        cuts, rest = values[:n_cuts], values[n_cuts:]
        differences, rest = rest[:n_diff], rest[n_diff:]
        outputs = rest[: len(self.structure.base_outputs)]
        rest = rest[len(self.structure.base_outputs) :]
        assumed, fixed = rest[: len(reader.assumed)], rest[len(reader.assumed) :]
        fresh = all(np.shape(v) == c.shape for v, c in zip(cuts, reader.cuts, strict=True))
        fresh = fresh and all(np.array_equal(v, a) for v, (_, a) in zip(assumed, reader.assumed, strict=True))
        if not fresh:
            msg = "coefficients or shapes have changed"
            raise KeyError(msg)
        switch = np.full(self._n_ids, NOWHERE, dtype=np.int64)
        for number, (ids, index, scale) in self._indicators.items():
            at = -np.ravel(differences[number])[index].astype(np.float64) / scale
            whole = np.isfinite(at) & (at == np.rint(at)) & (np.abs(at) < 2.0**60)
            switch[ids] = np.where(whole, at, NOWHERE).astype(np.int64)
        on = np.zeros(self._n_ids, dtype=bool)
        for number in sorted(reader.indicators):
            ind = reader.indicators[number]
            form, scale = primitive(ind.parent)
            zero = float(np.ravel(differences[ind.difference])[ind.index]) - float(
                sum(c for i, c in ind.parent.coefs if on[i])
            )
            a = -zero / float(scale)
            switch[number] = int(a) if a == round(a) else NOWHERE
            on[number] = sum(c for i, c in form if on[i]) == switch[number]
        return Base([np.asarray(c) for c in cuts], switch, [np.asarray(o) for o in outputs], list(fixed), on)

    def hints(self, base: Base) -> dict[int, list[int]]:
        """Return where the linear cuts of each node vanish: for a measurement, the value that fits it best."""
        found: dict[int, set[int]] = {}
        for cut, index, node, scale in self._zeros:
            at = -float(base.cuts[cut].ravel()[index]) / scale
            if np.isfinite(at) and abs(at) < 2**60:
                found.setdefault(node, set()).add(round(at))
        for node, number in self._switch_parents:
            if base.switch[number] != NOWHERE:
                found.setdefault(node, set()).add(int(base.switch[number]))
        return {n: sorted(s) for n, s in found.items()}

    def hint_of(self, base: Base, term: int, node: int) -> int | None:
        """Return where the linear cuts of one term vanish as a function of ``node``."""
        for cut, index, owner, scale in self._zeros:
            if cut in self.structure.terms[term].cuts and owner == node:
                at = -float(base.cuts[cut].ravel()[index]) / scale
                if np.isfinite(at) and at == np.rint(at):
                    return round(at)
        return None

    def observed(self, name: str) -> Array | None:
        """Return the current data of an observed variable, None where there is none of that name."""
        var = self.structure.observed.get(name)
        if var is None:
            return None
        return np.asarray(pytensor.function([], var, mode=python_mode())())

    def constant(self, base: Base, kind: str | None = None) -> float:
        """Sum of all log-probabilities that depend on no unknown (of one kind of term, if given)."""
        structure = self.structure
        if not any(t.constant or not t.cuts for t in structure.terms):
            return 0.0
        buffers = [base.cuts[c][None].copy() for t in structure.terms for c in t.cuts]
        total = 0.0
        for term, value in zip(structure.terms, self._tables(*buffers, *base.fixed), strict=True):
            if term.kind != "value" and kind in {None, term.kind}:
                flat = np.ravel(value)
                total += float(flat[list(term.constant)].sum() if term.cuts else flat.sum())
        return total

    def evaluate(self, base: Base, requests: list[tuple[int, NDArray[np.int64]]]) -> list[Array]:
        """Evaluate groups on rows of column values in a single call.

        Parameters
        ----------
        base
            From :meth:`base`.
        requests
            Pairs (group number, integer array of shape (rows, columns of the group)).

        Returns
        -------
        Arrays of shape (rows, entries of the group), one a request.
        """
        structure = self.structure
        rows = [0] * len(structure.terms)
        start = []
        for g, columns in requests:
            owner = structure.groups[g].term
            start.append(rows[owner])
            rows[owner] += len(columns)
        buffers: list[Array] = []
        for number, term in enumerate(structure.terms):
            for cut in term.cuts:
                value = base.cuts[cut]
                buffers.append(np.broadcast_to(value, (max(rows[number], 1), *value.shape)).copy())
        for (g, columns), first in zip(requests, start, strict=True):
            group = structure.groups[g]
            self._write(group, self._fill[g], columns, buffers, base, first)
        values = self._tables(*buffers, *base.fixed)
        out = []
        for (g, columns), first in zip(requests, start, strict=True):
            group = structure.groups[g]
            block = np.asarray(values[group.term])[first : first + len(columns)]
            out.append(block.reshape(len(columns), -1)[:, group.entries])
        return out

    def _write(
        self,
        group: Group,
        fill: dict[int, Fill],
        columns: NDArray[np.int64],
        buffers: list[Array],
        base: Base,
        first: int,
    ) -> None:
        if group.derived:
            extra = [_derive(columns, parts, form, base) for parts, form in group.derived]
            # negative column numbers count from the end, hence the reversal
            columns = np.concatenate([columns, np.stack(extra[::-1], axis=1)], axis=1)
        slots = dict(zip(self.structure.terms[group.term].cuts, self._slots[group.term], strict=True))
        for cut, (index, column, scale, forms) in fill.items():
            value = base.cuts[cut].ravel()[index]
            grid = columns[:, column]
            if forms is not None:  # an indicator may be on where all unknowns are zero
                grid = (
                    grid - base.on[forms[0]].astype(int)
                    if len(forms) == 1
                    else grid - _at_zero(forms[1], base)
                )
            filled = value + scale * grid
            buffer = buffers[slots[cut]]
            flat = buffer.reshape(len(buffer), -1)
            flat[first : first + len(columns), index] = filled.astype(buffer.dtype)


def _derive(columns: Array, parts: Any, form: Any, base: Base) -> Array:
    """Value of a sum of columns, or of a form of indicators with that sum as parent."""
    parent = np.zeros(len(columns))
    for column, coefficient in parts:
        parent = parent + float(coefficient) * columns[:, column]
    whole = np.rint(parent)
    if form is None:
        return whole.astype(np.int64)
    total = np.zeros(len(columns), dtype=np.int64)
    for i, c in form:
        if base.switch[i] != NOWHERE:
            total += c * ((whole == base.switch[i]) & (whole == parent))
    return total


def _hoist(inputs: list[Any], outputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Find what no row changes (normalisers, parameters): evaluated once a solution, by the base function."""
    moving = set(inputs)
    fixed: dict[Any, None] = {}
    for node in io_toposort([], outputs):
        if any(i in moving for i in node.inputs):
            moving.update(node.outputs)
            for i in node.inputs:
                if i not in moving and not isinstance(i, Constant) and isinstance(i.type, pt.TensorType):
                    fixed[i] = None
    for out in outputs:
        if out not in moving and not isinstance(out, Constant):
            fixed[out] = None
    return list(fixed), outputs


def _columns(items: list[tuple[int, int, float]]) -> tuple[Array, Array, Array]:
    first, second, third = zip(*items, strict=True)
    return np.array(first), np.array(second), np.array(third)


def _fills(group: Group, structure: Structure) -> dict[int, Fill]:
    """For each cut: flat indices, columns, scales, and which indicators each entry counts (None, ids, or forms)."""
    by_cut: dict[int, list[tuple[int, int, float]]] = {}
    for cut, index, column, scale in group.fills:
        by_cut.setdefault(cut, []).append((index, column, scale))
    indicators = structure.reader.indicators
    out: dict[int, Fill] = {}
    for cut, items in by_cut.items():
        index, column, scale = _columns(items)
        forms = [primitive(structure.reader.cuts[cut].entries[i])[0] for i in index]
        counted: Any = None
        if any(i in indicators for f in forms for i, _ in f):
            single = all(len(f) == 1 and f[0][0] in indicators for f in forms)
            counted = (np.array([f[0][0] for f in forms]),) if single else (None, forms)
        out[cut] = (index, column, scale, counted)
    return out


def _at_zero(forms: list[tuple[tuple[int, int], ...]], base: Base) -> Array:
    """Value of each form at all unknowns zero: only indicators can be on there."""
    return np.array([sum(c for i, c in f if base.on[i]) for f in forms])
