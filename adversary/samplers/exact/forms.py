"""Linear forms of unknown integers, and the arithmetic of tensors whose entries are such forms.

What it is: the values that :mod:`adversary.samplers.exact.linear` computes with: an entry is *constant* (None),
:class:`Linear`, or :class:`Opaque`. Coefficients are exact fractions. What it is not: it knows no graph.

Held to account by ``tests/samplers/exact/test_parts.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Entry",
    "Form",
    "Linear",
    "Opaque",
    "add_up",
    "combine",
    "filled",
    "independent",
    "inner",
    "join",
    "primitive",
    "rows",
]

Form = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """An entry equal to ``sum(coefficient * unknown)`` plus a constant that the graph itself knows."""

    coefs: tuple[tuple[int, Fraction], ...]

    @staticmethod
    def of(coefs: dict[int, Fraction]) -> Linear | None:
        """Drop zero coefficients; nothing left means a constant entry (None)."""
        kept = tuple(sorted((i, c) for i, c in coefs.items() if c != 0))
        return Linear(kept) if kept else None

    def scaled(self, factor: Fraction) -> Linear | None:
        """Multiply by a number."""
        return Linear(tuple((i, c * factor) for i, c in self.coefs)) if factor else None


@dataclass(frozen=True, slots=True)
class Opaque:
    """An entry that depends in any way on the entries ``refs`` = {(number of the cut, flat index)}."""

    refs: frozenset[tuple[int, int]]


Entry = Linear | Opaque | None


def primitive(linear: Linear) -> tuple[Form, Fraction]:
    """Split a linear form into a primitive integer form (first coefficient positive, gcd 1) and its scale.

    Examples
    --------
    >>> primitive(Linear(((0, Fraction(-2)), (3, Fraction(4)))))
    (((0, 1), (3, -2)), Fraction(-2, 1))
    """
    common = lcm(*(c.denominator for _, c in linear.coefs))
    whole = [int(c * common) for _, c in linear.coefs]
    unit = gcd(*whole) * (1 if whole[0] > 0 else -1)
    return tuple((i, w // unit) for (i, _), w in zip(linear.coefs, whole, strict=True)), Fraction(
        unit, common
    )


def independent(forms: Sequence[Form]) -> tuple[list[Form], dict[Form, dict[Form, Fraction]]]:
    """Split forms into a basis (the first ones) and the others as sums over it.

    Examples
    --------
    >>> basis, sums = independent([((0, 1),), ((1, 1),), ((0, 1), (1, -1))])
    >>> len(basis), sums[((0, 1), (1, -1))]
    (2, {((0, 1),): Fraction(1, 1), ((1, 1),): Fraction(-1, 1)})
    """
    basis: list[Form] = []
    sums: dict[Form, dict[Form, Fraction]] = {}
    reduced: list[tuple[int, dict[int, Fraction], dict[Form, Fraction]]] = []
    for form in forms:
        rest = {i: Fraction(c) for i, c in form}
        made: dict[Form, Fraction] = {}
        for pivot, row, recipe in reduced:
            factor = rest.get(pivot, Fraction(0))
            if factor:
                for i, c in row.items():
                    rest[i] = rest.get(i, Fraction(0)) - factor * c
                for f, c in recipe.items():
                    made[f] = made.get(f, Fraction(0)) + factor * c
        rest = {i: c for i, c in rest.items() if c}
        if not rest:
            sums[form] = {f: c for f, c in made.items() if c}
            continue
        basis.append(form)
        pivot, lead = next(iter(rest.items()))
        recipe = {f: -c / lead for f, c in made.items() if c}
        recipe[form] = 1 / lead
        reduced.append((pivot, {i: c / lead for i, c in rest.items()}, recipe))
    return basis, sums


def filled(values: list[Any], shape: tuple[int, ...]) -> NDArray[np.object_]:
    """Object array of the given shape (NumPy would look into the entries)."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out.reshape(shape)


def join(items: Sequence[Entry]) -> Opaque | None:
    """Union of what opaque entries depend on."""
    refs: frozenset[tuple[int, int]] = frozenset()
    for item in items:
        if isinstance(item, Opaque):
            refs |= item.refs
    return Opaque(refs) if refs else None


def add_up(items: Sequence[Entry]) -> Linear | None:
    """Sum of linear and constant entries."""
    total: dict[int, Fraction] = {}
    for item in items:
        if isinstance(item, Linear):
            for i, c in item.coefs:
                total[i] = total.get(i, Fraction(0)) + c
    return Linear.of(total)


def inner(left: Sequence[Any], right: Sequence[Any]) -> Linear | None:
    """Inner product of linear entries with exact numbers."""
    total: dict[int, Fraction] = {}
    for p, q in zip(left, right, strict=True):
        form, number = (p, q) if isinstance(p, Linear) else (q, p)
        if isinstance(form, Linear) and isinstance(number, Fraction) and number:
            for i, c in form.coefs:
                total[i] = total.get(i, Fraction(0)) + c * number
    return Linear.of(total)


def combine(parts: list[tuple[NDArray[np.object_], int]]) -> NDArray[np.object_]:
    """Sum of object arrays with signs, entry by entry; a single live part is passed through."""
    shape = np.broadcast_shapes(*(a.shape for a, _ in parts))
    live = [(a, s) for a, s in parts if any(e is not None for e in a.ravel())]
    if not live:
        return np.full(shape, None, dtype=object)
    if len(live) == 1 and live[0][1] == 1:
        return np.broadcast_to(live[0][0], shape)
    views = [(np.broadcast_to(a, shape).ravel(), Fraction(s)) for a, s in live]
    columns = [[None if e is None else e.scaled(s) for e in a] if s != 1 else list(a) for a, s in views]
    return filled([add_up(items) for items in zip(*columns, strict=True)], shape)


def rows(
    entries: NDArray[np.object_], axes: tuple[int, ...], join: Callable[..., Entry]
) -> NDArray[np.object_]:
    """Join the entries along some axes."""
    keep = [a for a in range(entries.ndim) if a not in axes]
    shape = tuple(entries.shape[a] for a in keep)
    rows = entries.transpose(keep + list(axes)).reshape(int(np.prod(shape, dtype=int)), -1)
    return filled([join(tuple(row)) for row in rows], shape)
