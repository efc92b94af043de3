"""How entries move through the operations that only rearrange them: reshape, index, join, allocate.

What it is: the part of :mod:`adversary.samplers.exact.linear` that moves entries and never changes them. Each handler
takes the reader and a node and returns the object array of the node's output, or None where it has to give up.

Held to account by ``tests/samplers/exact/test_linear.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.samplers.exact.forms import Opaque, add_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HANDLERS", "dimshuffle"]


def dimshuffle(op: Any, entries: NDArray[np.object_]) -> NDArray[np.object_]:
    """Transpose, drop and insert axes of length one."""
    kept = [a for a in op.new_order if a != "x"]
    dropped = tuple(a for a in range(entries.ndim) if a not in kept)
    out = entries.transpose(kept + list(dropped))
    out = out.reshape(out.shape[: len(kept)])
    for position, axis in enumerate(op.new_order):
        if axis == "x":
            out = np.expand_dims(out, position)
    return out


def _first(reader: Any, node: Any) -> NDArray[np.object_]:
    return reader._entries(node.inputs[0])  # type: ignore[no-any-return]


def _alloc(reader: Any, node: Any) -> Any:
    if any(i in reader._value for i in node.inputs[1:]):
        return None
    shape = tuple(int(reader.number(i)) for i in node.inputs[1:])
    return np.broadcast_to(_first(reader, node), shape)


def _reshape(reader: Any, node: Any) -> Any:
    if node.inputs[1] in reader._value:
        return None
    return _first(reader, node).reshape([int(d) for d in np.atleast_1d(reader.number(node.inputs[1]))])


def _make_vector(reader: Any, node: Any) -> Any:
    out = np.empty(len(node.inputs), dtype=object)
    out[:] = [reader._entries(i).item() for i in node.inputs]
    return out


def _join(reader: Any, node: Any) -> Any:
    if hasattr(node.op, "axis") and isinstance(node.op.axis, int):
        axis, parts = node.op.axis, node.inputs
    else:
        axis, parts = int(reader.number(node.inputs[0])), node.inputs[1:]
    return np.concatenate([reader._entries(p) for p in parts], axis=axis)


def _index(reader: Any, node: Any, skip: int) -> tuple[Any, ...] | None:
    """Return the NumPy index of a (set-)subtensor node, None where it depends on an unknown."""
    rest = list(node.inputs[skip:])
    if any(i in reader._value for i in rest):
        return None

    def value(item: Any) -> Any:
        if isinstance(item, slice):
            return slice(
                *(
                    None if s is None else int(np.asarray(value(s)))
                    for s in (item.start, item.stop, item.step)
                )
            )
        if item is None or isinstance(item, (int, np.integer)):
            return item
        if hasattr(item, "data") and item.data is None:
            return None
        if hasattr(item, "data") and isinstance(item.data, slice):
            return item.data
        return reader.number(item) if item in reader._number else np.asarray(item.data)

    if not hasattr(node.op, "idx_list"):
        return tuple(value(i) for i in rest)

    from pytensor.tensor.subtensor import indices_from_subtensor

    items = indices_from_subtensor(rest, node.op.idx_list)
    return tuple(value(i) for i in items)


def _subtensor(reader: Any, node: Any) -> Any:
    index = _index(reader, node, 1)
    if index is None:
        return None
    out = _first(reader, node)[
        tuple(int(i) if isinstance(i, np.ndarray) and i.ndim == 0 else i for i in index)
    ]
    if isinstance(out, np.ndarray):
        return out
    single = np.empty((), dtype=object)
    single[()] = out
    return single


def _set_subtensor(reader: Any, node: Any) -> Any:
    index = _index(reader, node, 2)
    if index is None or not getattr(node.op, "set_instead_of_inc", False):
        return None
    out = np.array(_first(reader, node), dtype=object, copy=True)
    where = tuple(int(i) if isinstance(i, np.ndarray) and i.ndim == 0 else i for i in index)
    value = reader._entries(node.inputs[1])
    out[where] = value.item() if value.ndim == 0 else value
    return out


def _shape(_reader: Any, node: Any) -> Any:
    """Shapes depend on no unknown."""
    return np.full(node.outputs[0].type.shape, None, dtype=object)


def _cumulate(reader: Any, node: Any) -> Any:
    """Interpret a running sum along one axis."""
    entries = _first(reader, node)
    if node.op.mode != "add" or any(isinstance(e, Opaque) for e in entries.ravel()):
        return None
    flat = entries.reshape(-1) if node.op.axis is None else np.moveaxis(entries, node.op.axis, -1)
    out = np.empty(flat.shape, dtype=object)
    for where in np.ndindex(flat.shape):
        out[where] = add_up(tuple(flat[where[:-1]][: where[-1] + 1]))
    return out if node.op.axis is None else np.moveaxis(out, -1, node.op.axis)


HANDLERS: dict[str, Any] = {
    "Shape": _shape,
    "Shape_i": _shape,
    "SpecifyShape": _first,
    "ViewOp": _first,
    "DeepCopyOp": _first,
    "TensorFromScalar": _first,
    "ScalarFromTensor": _first,
    "Alloc": _alloc,
    "Reshape": _reshape,
    "MakeVector": _make_vector,
    "Join": _join,
    "CumOp": _cumulate,
    "Subtensor": _subtensor,
    "AdvancedSubtensor": _subtensor,
    "AdvancedSubtensor1": _subtensor,
    "IncSubtensor": _set_subtensor,
    "AdvancedIncSubtensor": _set_subtensor,
    "AdvancedIncSubtensor1": _set_subtensor,
}
