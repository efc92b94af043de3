"""Where the unknowns of the usual distributions can lie, read from the declared variable.

What it is: a table from PyMC's discrete distributions to the graphs of their smallest and largest value. What it is
not: needed for correctness. A distribution not listed here gets its support from its log-probability.

Held to account by ``tests/samplers/exact/test_engine.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_known_family", "support_bounds"]

Bounds = tuple[Any, Any]


def _number(x: int) -> Any:
    return pt.constant(x, dtype="int64")


_RULES: dict[str, Callable[[Any], Bounds]] = {
    "bernoulli": lambda _: (_number(0), _number(1)),
    "categorical": lambda p: (_number(0), p[0].shape[-1] - 1),
    "discrete_uniform": lambda p: (p[0], p[1]),
    "binomial": lambda p: (_number(0), p[0]),
    "beta_binomial": lambda p: (_number(0), p[0]),
    "hypergeometric": lambda p: (_number(0), p[2]),
    "poisson": lambda _: (_number(0), None),
    "nbinom": lambda _: (_number(0), None),
    "negative_binomial": lambda _: (_number(0), None),
    "geometric": lambda _: (_number(1), None),
    "discrete_weibull": lambda _: (_number(0), None),
    "flat_count": lambda p: (p[0], None),
}


_ONE_PEAK = {
    "bernoulli",
    "binomial",
    "discrete_gaussian",
    "discrete_gaussian_sum",
    "discrete_uniform",
    "flat_count",
    "geometric",
    "hypergeometric",
    "nbinom",
    "negative_binomial",
    "poisson",
}


def is_known_family(rv: Any) -> bool:
    """Whether ``rv`` is of a family whose log-concavity the tables can show: no second peak out of sight."""
    op = rv.owner.op
    name = getattr(getattr(op, "base_rv_op", op), "name", "")
    return str(name).lower() in _ONE_PEAK


def support_bounds(rv: Any) -> Bounds:
    """Return the graphs (lower, upper) of the support of ``rv``; None where there is no bound or no rule."""
    node = rv.owner
    op = node.op
    if type(op).__name__ == "TruncatedRV":
        return _truncated(node)
    rule = _RULES.get(str(getattr(op, "name", "")).lower())
    if rule is None or not hasattr(op, "ndims_params"):
        return None, None
    return rule(op.dist_params(node))


def _truncated(node: Any) -> Bounds:
    """Intersect the truncation with the support of what was truncated; its inputs are (rng, size, *params, low, high)."""
    inner = node.op.base_rv_op
    own: Bounds = (None, None)
    if not hasattr(inner, "ndims_params"):
        return own
    first = 2 + len(inner.ndims_params)
    rule = _RULES.get(str(inner.name).lower())
    if rule is not None:
        own = rule(node.inputs[2:first])
    low, high = node.inputs[first : first + 2]
    return _larger(own[0], low), _smaller(own[1], high)


def _larger(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else pt.maximum(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else pt.minimum(a, b)
