"""What a log-probability graph depends on: abstract interpretation of PyTensor graphs, entry by entry.

What it is: a reader that walks a graph once and gives every tensor entry one of three values: *constant*,
:class:`Linear` (an integer-linear form of unknown scalars plus a constant), or :class:`Opaque` (anything else, with
the set of cuts it depends on). Linear forms survive addition, subtraction, multiplication by constants, sums, casts,
reshapes, indexing and ``A @ x``; so ``DiscreteGaussian(x1 + y.sum())`` is seen to depend on *one* integer, not on
eleven unknowns. Where a linear tensor enters a non-linear operation the graph is *cut*: the cut tensor becomes an
input of the compiled factor tables, and each of its entries is set freely and independently.

What it is not: it computes no number but the coefficients, and it does not know about probabilities.

Three rewritings are made on the way, none of which changes the sum of the log-probabilities: a comparison ``a < b`` is
read as ``a - b < 0`` (one form instead of two); an equality becomes an *indicator*, a 0/1 unknown of its own, so that
``known + eq(cell, k)`` stays linear; and PyMC's parameter checks, which join a whole vector, become elementwise.

Held to account by ``tests/samplers/exact/test_linear.py`` and by all brute-force tests of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from adversary.errors import UnsupportedModelError
from adversary.samplers.exact import _shapes
from adversary.samplers.exact.forms import Entry, Linear, Opaque, add_up, combine, filled, inner, join, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Cut", "GraphReader", "Indicator", "python_mode"]


_COMPARE = (ps.LT, ps.LE, ps.GT, ps.GE)
_EQUAL = (ps.EQ, ps.NEQ)
_ROUND = (ps.Floor, ps.Ceil, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.Trunc)


@dataclass
class Cut:
    """A tensor at which the graph is cut; ``entries[i]`` is the linear form of flat entry i, None for a constant."""

    var: Variable
    entries: list[Linear | None]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Indicator:
    """A 0/1 unknown: 1 where entry ``index`` of the tensor ``difference`` (a linear form) is zero."""

    difference: int
    index: int
    parent: Linear


def python_mode() -> Any:
    """Return PyTensor's mode without C or numba: one vectorised NumPy call a node, compiled in a fraction of a second."""
    return pytensor.compile.mode.Mode(linker="py", optimizer="fast_compile")


def _is_discrete(var: Any) -> bool:
    return bool(var.type.dtype.startswith(("int", "uint", "bool")))


_KEEPS_WHOLE = (ps.Add, ps.Sub, ps.Mul, ps.Neg, ps.Identity, ps.Cast, ps.Second)
_MOVES = {"DimShuffle", "SpecifyShape", "Alloc", "Reshape", "Subtensor", "TensorFromScalar"}


def _is_whole(var: Any, depth: int = 12) -> bool:
    """Whether a tensor holds whole numbers, whatever its dtype, as far as its graph shows."""
    if _is_discrete(var):
        return True
    node = var.owner
    if node is None or depth == 0:
        return isinstance(var, Constant) and bool(np.all(np.rint(var.data) == var.data))
    scalar = getattr(node.op, "scalar_op", None)
    if isinstance(scalar, _ROUND):
        return True
    if isinstance(scalar, ps.Second):
        return _is_whole(node.inputs[1], depth - 1)
    if isinstance(scalar, _KEEPS_WHOLE):
        return all(_is_whole(i, depth - 1) for i in node.inputs)
    return type(node.op).__name__ in _MOVES and _is_whole(node.inputs[0], depth - 1)


@dataclass
class GraphReader:
    """Reads graphs whose leaves are the unknowns and collects cuts, indicators and the coefficients relied upon.

    Parameters
    ----------
    leaves
        Value variable -> object array of its entries' :class:`Linear`.
    next_id
        First free number for indicators (the scalars have 0 .. next_id - 1).
    """

    leaves: dict[Variable, NDArray[np.object_]]
    next_id: int
    cuts: list[Cut] = field(default_factory=list)
    differences: list[Variable] = field(default_factory=list)
    indicators: dict[int, Indicator] = field(default_factory=dict)
    assumed: list[tuple[Variable, NDArray[Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._value: dict[Variable, NDArray[np.object_]] = dict(self.leaves)
        self._new: dict[Variable, Variable] = {v: v for v in self.leaves}
        self._number: dict[Variable, NDArray[Any]] = {}
        self._cut_of: dict[Variable, int] = {}

    # ------------------------------------------------------------------ the walk
    def read(self, roots: Sequence[Variable]) -> list[tuple[Variable, NDArray[np.object_]]]:
        """Return for every root the rewritten graph and the object array of its entries."""
        nodes = io_toposort([], list(roots))
        dependent: set[Variable] = set(self._value)
        walk = []
        for node in nodes:
            if any(i in dependent for i in node.inputs):
                dependent.update(node.outputs)
                walk.append(node)
        self._evaluate_constants(walk, dependent)
        for node in walk:
            if node.outputs[0] not in self._value:
                self._visit(node)
        return [
            (self._new.get(r, r), self._value[r]) if r in dependent else (r, self._constant_entries(r))
            for r in roots
        ]

    def refs(self, var: Variable, entries: NDArray[np.object_]) -> NDArray[np.object_]:
        """Return the entries as :class:`Opaque` or None, cutting the graph at ``var`` where they are linear."""
        if not any(isinstance(e, Linear) for e in entries.ravel()):
            return entries
        if var not in self._cut_of:
            self._cut_of[var] = len(self.cuts)
            flat = [e if isinstance(e, Linear) else None for e in entries.ravel()]
            self.cuts.append(Cut(var, flat, entries.shape))
        number = self._cut_of[var]
        return filled(
            [
                Opaque(frozenset({(number, i)})) if isinstance(e, Linear) else e
                for i, e in enumerate(entries.ravel())
            ],
            entries.shape,
        )

    def _constant_entries(self, root: Variable) -> NDArray[np.object_]:
        if all(d is not None for d in root.type.shape):
            return np.full(root.type.shape, None, dtype=object)
        value = pytensor.function([], root, mode=python_mode())()
        return np.full(np.shape(value), None, dtype=object)

    def _evaluate_constants(self, walk: list[Any], dependent: set[Variable]) -> None:
        wanted = [
            i
            for n in walk
            for i in n.inputs
            if i not in dependent and i not in self._number and hasattr(i.type, "ndim")
        ]
        for var in wanted:
            if isinstance(var, Constant):
                self._number[var] = np.asarray(var.data)
        missing = list(dict.fromkeys(v for v in wanted if v not in self._number))
        if missing:
            values = pytensor.function([], missing, mode=python_mode(), on_unused_input="ignore")()
            self._number.update(zip(missing, map(np.asarray, values), strict=True))

    def number(self, var: Variable) -> NDArray[Any]:
        """Return a constant's value *as a coefficient or index*: the analysis relies on it from now on."""
        value = self._number[var]
        shared = any(not isinstance(a, Constant) and a.owner is None for a in ancestors([var]))
        if shared and not any(v is var for v, _ in self.assumed):
            self.assumed.append((var, value.copy()))
        return value

    def coefficient(self, var: Variable) -> NDArray[np.object_] | None:
        """Return a constant as exact fractions; None where it is no simple number or a float that may change.

        ``y * log(mu)`` with ``mu`` in a shared variable is no linear form for our purposes: its coefficient is data.
        """
        value = self._number[var]
        if not _is_discrete(var) and any(
            not isinstance(a, Constant) and a.owner is None for a in ancestors([var])
        ):
            return None
        fractions = []
        for x in np.ravel(value).astype(float):
            simple = Fraction(x).limit_denominator(1000) if np.isfinite(x) and abs(x) < 2**53 else None
            if simple is None or abs(float(simple) - x) > 4e-16 * abs(x):
                return None
            fractions.append(simple)
        self.number(var)
        return filled(fractions, np.shape(value))

    def _entries(self, var: Variable) -> NDArray[np.object_]:
        if var in self._value:
            return self._value[var]
        if var in self._number:
            return np.full(self._number[var].shape, None, dtype=object)
        return np.full((), None, dtype=object)

    def _visit(self, node: Any) -> None:
        op = node.op
        new_inputs = [self._new.get(i, i) for i in node.inputs]
        if type(op).__name__ in {"CheckParameterValue", "CheckAndRaise", "Assert"}:
            self._check(node)
            return
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, (*_COMPARE, *_EQUAL)):
            self._compare(node, new_inputs)
            return
        if any(a is not b for a, b in zip(new_inputs, node.inputs, strict=True)):
            outputs = op.make_node(*new_inputs).outputs
        else:
            outputs = node.outputs
        self._new.update(zip(node.outputs, outputs, strict=True))
        values = self._interpret(node)
        mixed = any({type(e) for e in v.ravel()} >= {Linear, Opaque} for v in values)
        if mixed:
            values = self._everything(node)
        for out, value in zip(node.outputs, values, strict=True):
            self._value[out] = value

    def _interpret(self, node: Any) -> list[NDArray[np.object_]]:
        op = node.op
        if isinstance(op, Elemwise):
            return [self._elemwise(node)]
        if isinstance(op, DimShuffle):
            return [_shapes.dimshuffle(op, self._entries(node.inputs[0]))]
        if isinstance(op, CAReduce):
            return [self._reduce(node)]
        handler: Callable[..., Any] | None = _shapes.HANDLERS.get(type(op).__name__)
        if handler is not None:
            value = handler(self, node)
            if value is not None:
                return [np.asarray(value, dtype=object)]
        if "Dot" in {type(op).__name__, type(getattr(op, "core_op", None)).__name__} or str(op) in {
            "matmul",
            "matvec",
        }:
            value = self._dot(*node.inputs)
            if value is not None:
                return [value]
        return self._everything(node)

    # ------------------------------------------------------------------ operations
    def _opaque_inputs(self, inputs: Sequence[Variable]) -> list[NDArray[np.object_]]:
        return [self.refs(self._new.get(i, i), self._entries(i)) for i in inputs]

    def _union(self, inputs: Sequence[Variable]) -> NDArray[np.object_]:
        arrays = self._opaque_inputs(inputs)
        live = [a for a in arrays if any(e is not None for e in a.ravel())]
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        if not live:
            return np.full(shape, None, dtype=object)
        if len(live) == 1:
            return np.broadcast_to(live[0], shape)
        views = [np.broadcast_to(a, shape).ravel() for a in live]
        return filled([join(items) for items in zip(*views, strict=True)], shape)

    def _elemwise(self, node: Any) -> NDArray[np.object_]:
        scalar, inputs = node.op.scalar_op, node.inputs
        dependent = [i for i in inputs if i in self._value]
        linear = all(not isinstance(e, Opaque) for i in dependent for e in self._value[i].ravel())
        if linear:
            value = self._linear_elemwise(node, scalar, inputs)
            if value is not None:
                return value
        if isinstance(scalar, ps.Second):
            shape = np.broadcast_shapes(*(self._entries(i).shape for i in inputs))
            return np.broadcast_to(self._entries(inputs[1]), shape)
        return self._union(inputs)

    def _linear_elemwise(
        self, node: Any, scalar: Any, inputs: Sequence[Variable]
    ) -> NDArray[np.object_] | None:
        if node.outputs[0].type.dtype == "bool" and isinstance(scalar, (ps.Add, ps.Sub, ps.Mul)):
            return None
        if isinstance(scalar, ps.Add):
            return combine([(self._entries(i), 1) for i in inputs])
        if isinstance(scalar, ps.Sub):
            return combine([(self._entries(inputs[0]), 1), (self._entries(inputs[1]), -1)])
        if isinstance(scalar, ps.Neg):
            return combine([(self._entries(inputs[0]), -1)])
        if isinstance(scalar, (ps.Mul, ps.TrueDiv)):
            return self._scale(scalar, inputs)
        if isinstance(scalar, ps.Second):
            shape = np.broadcast_shapes(*(self._entries(i).shape for i in inputs))
            return np.broadcast_to(self._entries(inputs[1]), shape)
        target = node.outputs[0].type.dtype
        whole = _is_whole(inputs[0])
        if isinstance(scalar, ps.Identity) or (isinstance(scalar, _ROUND) and whole):
            return self._entries(inputs[0])
        if isinstance(scalar, ps.Cast) and target != "bool" and (whole or target.startswith("float")):
            return self._entries(inputs[0])
        return None

    def _scale(self, scalar: Any, inputs: Sequence[Variable]) -> NDArray[np.object_] | None:
        unknown = [
            i for i in inputs if i in self._value and any(e is not None for e in self._value[i].ravel())
        ]
        if len(unknown) != 1 or (isinstance(scalar, ps.TrueDiv) and unknown[0] is not inputs[0]):
            return None
        factor: Any = np.array(Fraction(1), dtype=object)
        for i in inputs:
            if i is not unknown[0]:
                number = self.coefficient(i) if i in self._number else None
                if number is None or (isinstance(scalar, ps.TrueDiv) and not np.all(number != 0)):
                    return None
                factor = factor / number if isinstance(scalar, ps.TrueDiv) else factor * number
        entries, factor = np.broadcast_arrays(self._entries(unknown[0]), np.asarray(factor, dtype=object))
        return filled(
            [
                None if e is None else e.scaled(f)
                for e, f in zip(entries.ravel(), factor.ravel(), strict=True)
            ],
            entries.shape,
        )

    def _compare(self, node: Any, new_inputs: list[Variable]) -> None:
        """Read ``a op b`` as ``a - b op 0``; an equality becomes an indicator."""
        out = node.outputs[0]
        entries = [self._entries(i) for i in node.inputs]
        if any(isinstance(e, Opaque) for a in entries for e in a.ravel()):
            self._new[out] = node.op.make_node(*new_inputs).outputs[0]
            self._value[out] = self._union(node.inputs)
            return
        discrete = all(_is_discrete(i) for i in new_inputs)
        left, right = [pt.cast(i, "int64" if discrete else "float64") for i in new_inputs]
        gap = left - right
        zero = pt.constant(np.zeros((1,) * gap.type.ndim, dtype=gap.type.dtype))
        new = node.op(gap, zero)
        self._new[out] = new
        forms = combine([(entries[0], 1), (entries[1], -1)])
        if isinstance(node.op.scalar_op, _EQUAL):
            self._value[out] = self._indicate(gap, forms, 1 if isinstance(node.op.scalar_op, ps.EQ) else -1)
        else:
            self._value[out] = self.refs(gap, forms)

    def _indicate(self, gap: Variable, forms: NDArray[np.object_], sign: int) -> NDArray[np.object_]:
        self.differences.append(gap)
        values: list[Entry] = []
        for index, form in enumerate(forms.ravel()):
            if form is None:
                values.append(None)
                continue
            self.indicators[self.next_id] = Indicator(len(self.differences) - 1, index, form)
            values.append(Linear(((self.next_id, Fraction(sign)),)))
            self.next_id += 1
        return filled(values, forms.shape)

    def _check(self, node: Any) -> None:
        """Replace a parameter check by an elementwise switch to -inf: the sum over entries is -inf either way."""
        value = node.inputs[0]
        out = node.outputs[0]
        expr = self._new.get(value, value)
        entries = self._entries(value)
        for condition in node.inputs[1:]:
            for piece in _pieces(condition):
                cond = self._new.get(piece, piece)
                fits = piece.type.ndim <= expr.type.ndim
                if piece not in self._value or not fits:
                    self._number.setdefault(piece, np.zeros((), dtype=bool))
                    cond = cond if piece.type.ndim == 0 else cond.all()
                expr = pt.switch(cond, expr, -np.inf)
                if piece in self._value:
                    refs = self.refs(self._new.get(piece, piece), self._value[piece])
                    parts = refs if fits else filled([join(tuple(refs.ravel()))], ())
                    base = self.refs(self._new.get(value, value), entries)
                    shape = np.broadcast_shapes(base.shape, parts.shape)
                    pairs = zip(
                        np.broadcast_to(base, shape).ravel(),
                        np.broadcast_to(parts, shape).ravel(),
                        strict=True,
                    )
                    entries = filled([join(p) for p in pairs], shape)
        if expr.type.dtype != out.type.dtype:
            expr = pt.cast(expr, out.type.dtype)
        self._new[out] = expr
        self._value[out] = entries

    def _reduce(self, node: Any) -> NDArray[np.object_]:
        entries = self._entries(node.inputs[0])
        axes = tuple(range(entries.ndim)) if node.op.axis is None else tuple(node.op.axis)
        if not isinstance(node.op.scalar_op, ps.Add) or any(isinstance(e, Opaque) for e in entries.ravel()):
            [entries] = self._opaque_inputs(node.inputs)
            return rows(entries, axes, join)
        return rows(entries, axes, add_up)

    def _dot(self, a: Variable, b: Variable) -> NDArray[np.object_] | None:
        """Interpret ``A @ x`` with one side constant; anything else is opaque."""
        if (a in self._value) == (b in self._value):
            return None
        unknown, known = (a, b) if a in self._value else (b, a)
        entries = self._entries(unknown)
        if entries.ndim > 2 or known.type.ndim > 2 or any(isinstance(e, Opaque) for e in entries.ravel()):
            return None
        matrix = self.coefficient(known)
        if matrix is None:
            return None
        left, right = (entries, matrix) if unknown is a else (matrix, entries)
        rows = left[None, :] if left.ndim == 1 else left
        columns = right[:, None] if right.ndim == 1 else right
        result = [inner(row, column) for row in rows for column in columns.T]
        shape = left.shape[:-1] + (right.shape[1:] if right.ndim > 1 else ())
        return filled(result, shape)

    def _everything(self, node: Any) -> list[NDArray[np.object_]]:
        """Let every entry of every output depend on every entry of every input."""
        arrays = self._opaque_inputs([i for i in node.inputs if i in self._value])
        joined = join(tuple(e for a in arrays for e in a.ravel()))
        values = []
        for out in node.outputs:
            known = all(d is not None for d in out.type.shape)
            shape = tuple(out.type.shape) if known else self._shape_at_zero(out)
            values.append(filled([joined] * int(np.prod(shape, dtype=int)), shape))
        return values

    def _shape_at_zero(self, out: Variable) -> tuple[int, ...]:
        zeros = {v: np.zeros(e.shape, dtype=v.type.dtype) for v, e in self.leaves.items()}
        try:
            function = pytensor.function(list(zeros), out.shape, mode=python_mode(), on_unused_input="ignore")
            return tuple(int(d) for d in function(*zeros.values()))
        except Exception as error:
            msg = f'the exact engine cannot see through {out.owner.op}: rewrite that step, or use sampler="mcmc"'
            raise UnsupportedModelError(msg, out) from error


def _pieces(condition: Variable) -> list[Variable]:
    """Undo ``all([all(c1), all(c2), ...])`` of PyMC's check_parameters."""
    node = condition.owner
    if node is None:
        return [condition]
    name = type(node.op).__name__
    if name in {"ScalarFromTensor", "TensorFromScalar"}:
        return _pieces(node.inputs[0])
    if name == "MakeVector":
        return [p for i in node.inputs for p in _pieces(i)]
    if name == "All" and (node.op.axis is None or len(node.op.axis) == node.inputs[0].type.ndim):
        return _pieces(node.inputs[0])
    return [condition]
