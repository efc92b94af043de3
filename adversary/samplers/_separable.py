"""Read log-probability graphs: prove that entries of a vector never meet, and soften failed parameter checks.

What it is: a conservative proof ("yes" is proved, "no" may only mean "not seen"). What it is not: an
optimiser. With a "yes", all entries of a vector of unknowns may be moved in one call, because entry i of
every term depends on entry i of the vector and on no other.

Held to account by ``tests/samplers/test_grid_gibbs.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.traversal import apply_ancestors, graph_inputs, io_toposort
from pytensor.tensor.basic import Alloc, ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, get_constant_idx

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["checks_to_minus_infinity", "entries_never_meet", "reads_one_entry"]

Axes = tuple[int, ...]


def entries_never_meet(value: Any, terms: Sequence[Any]) -> bool:
    """Return whether entry i of each term depends on entry i of ``value`` alone.

    Parameters
    ----------
    value
        A value variable with at least one dimension.
    terms
        Elementwise log-probability terms that depend on it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> v = pt.lvector("v")
    >>> entries_never_meet(v, [-(v - 3) ** 2]), entries_never_meet(v, [-(v.sum() - v) ** 2])
    (True, False)
    """
    axes: dict[Any, Axes] = {
        value: tuple(range(value.ndim))
    }  # where each axis of value lies in what depends on it
    inputs = [value, *(i for i in graph_inputs(list(terms)) if i is not value)]
    for node in io_toposort(inputs, list(terms)):
        found = [(i, axes[i]) for i in node.inputs if i in axes]
        if not found or isinstance(node.op, Shape | Shape_i):  # a shape knows no entry
            continue
        after = _through(node, found, axes)
        if after is None or len(node.outputs) != 1:
            return False
        if not _same_lengths(value, node.outputs[0], after):
            return False
        axes[node.outputs[0]] = after
    return all(axes.get(t) == tuple(range(t.ndim)) and t.ndim == value.ndim for t in terms)


def _through(node: Any, found: list[tuple[Any, Axes]], axes: dict[Any, Axes]) -> Axes | None:
    """Return where value's axes lie after this node, None where entries may meet."""
    op, kind = node.op, type(node.op).__name__
    if isinstance(op, Elemwise):
        places = {place for _, place in found}
        return places.pop() if len(places) == 1 else None
    if isinstance(op, DimShuffle):
        place = found[0][1]
        if any(a not in op.new_order for a in place):
            return None
        after = tuple(op.new_order.index(a) for a in place)
        return after if list(after) == sorted(after) else None
    if kind in ("CheckParameterValue", "CheckAndRaise", "SpecifyShape"):
        # a condition is one truth value for all entries: it may not depend on any of them
        if node.inputs[0] not in axes or any(i in axes for i in node.inputs[1:]):
            return None
        return axes[node.inputs[0]]
    if isinstance(op, Alloc) and node.inputs[0] in axes and not any(i in axes for i in node.inputs[1:]):
        new = node.outputs[0].type.ndim - node.inputs[0].type.ndim  # dimensions are added in front
        return tuple(a + new for a in axes[node.inputs[0]])
    return None


def _same_lengths(value: Any, output: Any, after: Axes) -> bool:
    """Refuse a length-one axis stretched over many entries: one unknown would face several terms."""
    return all(
        not value.type.broadcastable[a] or output.type.broadcastable[place] for a, place in enumerate(after)
    )


def reads_one_entry(value: Any, term: Any) -> bool:
    """Return whether a term reads one entry of ``value``, always the same, and nothing else of it.

    Parameters
    ----------
    value
        A value variable with at least one dimension.
    term
        A log-probability term.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> v = pt.lvector("v")
    >>> reads_one_entry(v, -(v[0] ** 2)), reads_one_entry(v, v[0] + v[1]), reads_one_entry(v, v.sum())
    (True, False, False)
    """
    places = set()
    for node in apply_ancestors([term]):
        if value not in node.inputs:
            continue
        if not isinstance(node.op, Subtensor) or node.inputs.count(value) != 1:
            return False
        index = get_constant_idx(node.op.idx_list, node.inputs, allow_partial=True)
        if len(index) != value.ndim or not all(isinstance(i, int | np.integer) for i in index):
            return False
        places.add(tuple(int(i) for i in index))
    return len(places) == 1


def checks_to_minus_infinity(terms: Sequence[Any]) -> list[Any]:
    """Return the terms with every check of a parameter turned into -inf where it fails.

    A check is one truth value. Evaluated on a batch of candidates as it stands, it fails for all of them as
    soon as one is out of range (a Binomial with n = -1 at the window's edge), and the whole window would seem
    impossible.

    Parameters
    ----------
    terms
        Log-probability terms of a model.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc.distributions.dist_math import check_parameters
    >>> n = pt.lscalar("n")
    >>> [term] = checks_to_minus_infinity([check_parameters(n * 1.0, n >= 0)])
    >>> float(term.eval({n: -1}))
    -inf
    """
    now: dict[Any, Any] = {}
    ends = list(terms)
    for node in io_toposort(list(graph_inputs(ends)), ends):
        inputs = [now.get(i, i) for i in node.inputs]
        if isinstance(node.op, CheckParameterValue) and node.op.can_be_replaced_by_ninf:
            holds = [_as_tensor(c) for c in inputs[1:]]
            first = holds[0] if len(holds) == 1 else pt.all(pt.stack(holds))
            now[node.outputs[0]] = pt.switch(first, inputs[0], -np.inf)
        elif any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            now.update(zip(node.outputs, node.clone_with_new_inputs(inputs).outputs, strict=True))
    return [now.get(t, t) for t in ends]


def _as_tensor(condition: Any) -> Any:
    inner = condition.owner
    return (
        inner.inputs[0]
        if inner is not None and isinstance(inner.op, ScalarFromTensor)
        else pt.as_tensor(condition)
    )
