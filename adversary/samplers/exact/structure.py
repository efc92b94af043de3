"""The static part of the engine: which unknowns, which integer forms, which factors, and what depends on what.

What it is: everything about a declared model that does not change with the data: the scalars, the integer forms
("nodes") that factors depend on, the factors grouped so that one call evaluates many entries, and the sum constraints
``t = u + c v`` that tie forms to scalars (nested forms share partial sums). What it is not: it holds no probability and
no window; those belong to one solution.

Held to account by ``tests/samplers/exact``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy as np
    from numpy.typing import NDArray

    from adversary.samplers.exact.forms import Form, Linear
    from adversary.samplers.exact.linear import GraphReader

__all__ = ["Bound", "Factor", "Group", "Node", "Structure", "SumConstraint", "Term"]


@dataclass(frozen=True)
class Term:
    """One log-probability tensor of the model: a prior, an observed variable, a potential, or the target's value.

    ``one_peak`` says that its distribution is of a family known to be log-concave (some only for some parameters, which
    the tables then show); a Potential or a CustomDist may have a second peak where nobody looks.
    """

    name: str
    kind: str
    var: Any
    shape: tuple[int, ...]
    cuts: tuple[int, ...]
    owner: str | None = None
    constant: tuple[int, ...] = ()
    one_peak: bool = False


@dataclass(frozen=True)
class Node:
    """An integer unknown of the factor graph: a scalar, a form of scalars, an indicator, or the target's value."""

    kind: str
    form: Form
    label: str
    parent: int | None = None


@dataclass(frozen=True)
class SumConstraint:
    """``total = left + coefficient * right``."""

    total: int
    left: int
    coefficient: int
    right: int


@dataclass
class Group:
    """Entries of one term that one block of rows evaluates together.

    ``columns`` are the free integers (one node each); ``derived`` columns are sums of those, or count how many indicators
    such a sum switches on; ``fills`` say which entry of which cut takes which column with which scale.
    """

    term: int
    entries: list[int] = field(default_factory=list)
    scopes: list[tuple[int, ...]] = field(default_factory=list)
    column_node: list[int] = field(default_factory=list)
    entry_columns: list[tuple[int, ...]] = field(default_factory=list)
    derived: list[tuple[tuple[tuple[int, Fraction], ...], Form | None]] = field(default_factory=list)
    fills: list[tuple[int, int, int, float]] = field(default_factory=list)
    used: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Factor:
    """Where the table of one scope comes from: entry ``position`` of group ``group``."""

    scope: tuple[int, ...]
    group: int
    position: int


@dataclass(frozen=True)
class Bound:
    """A scalar's structural bound: a number in the base outputs, or a linear form of other scalars plus that number."""

    output: int
    index: int
    linear: Linear | None


@dataclass
class Structure:
    """See the module."""

    reader: GraphReader
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    scalars: list[tuple[str, int]]
    terms: list[Term]
    nodes: list[Node]
    groups: list[Group]
    factors: list[Factor]
    constraints: list[SumConstraint]
    links: list[int]
    target: int
    target_linear: Linear | None
    target_output: int
    bounds: list[tuple[Bound | None, Bound | None]]
    base_outputs: list[Any]
    improper: dict[str, str]
    deterministic: dict[str, tuple[NDArray[np.object_], int]]
    parents: dict[str, set[str]]
    node_of: dict[Form, int]
    observed: dict[str, Any]
