"""Run a compiled PyTensor graph with as little Python around the NumPy calls as possible.

What it is: an interpreter for graphs compiled in Python mode. Elementwise nodes, nearly all of a log-probability, are called
as the NumPy functions they are; every other node runs its own ``perform``. For a model of a dozen scalars this halves the
time of a solution, which is otherwise spent in PyTensor's checks and not in arithmetic. What it is not: another compiler; it
runs the very graph that ``pytensor.function`` has built, and shared variables do not occur in it.

Held to account by ``tests/samplers/exact/test_parts.py``, which compares it with the function it came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Runner"]


class Runner:
    """The graph of a compiled function without shared variables, as a flat list of NumPy calls.

    Parameters
    ----------
    function
        From ``pytensor.function`` in Python mode. Inputs are trusted: arrays of the declared dtype.
    """

    def __init__(self, function: Any) -> None:
        graph = function.maker.fgraph
        place: dict[Any, int] = {}
        self._start: list[Any] = []

        def slot(var: Any) -> int:
            if var not in place:
                place[var] = len(self._start)
                self._start.append(var.data if isinstance(var, Constant) else None)
            return place[var]

        self._inputs = [slot(v) for v in graph.inputs]
        self._steps: list[tuple[Callable[..., Any], list[int], list[int], Any]] = []
        for node in graph.toposort():
            node.op.prepare_node(node, None, None, "py")
            call, dtype = _call(node)
            self._steps.append((call, [slot(i) for i in node.inputs], [slot(o) for o in node.outputs], dtype))
        self._outputs = [slot(o) for o in graph.outputs]

    def __call__(self, *inputs: Any) -> list[Any]:
        """Evaluate; returns the outputs in order."""
        held = list(self._start)
        for k, value in zip(self._inputs, inputs, strict=True):
            held[k] = value
        with np.errstate(all="ignore"):
            for call, arguments, results, dtype in self._steps:
                out = call(*[held[k] for k in arguments])
                if dtype is None:
                    for k, value in zip(results, out, strict=True):
                        held[k] = value
                else:
                    held[results[0]] = np.asarray(out, dtype=dtype)
        return [held[k] for k in self._outputs]


def _call(node: Any) -> tuple[Callable[..., Any], Any]:
    """Return a callable for a node, and its result's dtype where it is a single NumPy call."""
    op = node.op
    if isinstance(op, Elemwise) and len(node.outputs) == 1:
        if isinstance(op.scalar_op, Cast):
            return np.asarray, node.outputs[0].type.dtype
        if op.nfunc is not None and op.nfunc_spec and len(node.inputs) == op.nfunc_spec[1]:
            signature = getattr(node.tag, "sig", None)
            if signature is None:
                return op.nfunc, node.outputs[0].type.dtype
            return _signed(op.nfunc, signature), node.outputs[0].type.dtype
        ufunc = op.ufunc or getattr(node.tag, "ufunc", None)
        if ufunc is not None:
            return ufunc, node.outputs[0].type.dtype

    def perform(*arguments: Any) -> list[Any]:
        storage: list[list[Any]] = [[None] for _ in node.outputs]
        op.perform(node, list(arguments), storage)
        return [cell[0] for cell in storage]

    return perform, None


def _signed(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return function(*arguments, sig=signature)

    return call
