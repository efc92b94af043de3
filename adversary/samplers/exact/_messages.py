"""What to say when the facts contradict each other: the datum, its value, the support it lies outside of.

Held to account by ``tests/samplers/exact/test_messages.py`` (report P3 of spec/user_reports.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adversary.errors import ModelError

__all__ = ["contradiction"]


def contradiction(solver: Any, nodes: list[int]) -> ModelError:
    """Build the error for nodes none of whose values has any weight."""
    problem = solver.problem
    structure = problem.structure
    for factor in problem.unary + problem.multi:
        term = structure.terms[structure.groups[factor.group].term]
        touches = set(factor.scope) & set(nodes)
        if term.kind == "observed" and touches:
            node = next(iter(touches))
            low, high = _plain(solver.low[node]), _plain(solver.high[node])
            data = _observed(problem, term.name)
            offset = _offset(solver, factor, node)
            if data is not None and offset is not None:
                low, high = _plain(solver.low[node] + offset), _plain(solver.high[node] + offset)
            fact = f"{term.name}={data}" if data is not None else term.name
            msg = (
                f"fact {fact} lies outside the prior's support {low}..{high} of {structure.nodes[node].label}"
                f"{f' + {offset:d}' if offset else ''}: correct the fact, or widen the prior"
            )
            return ModelError(msg, term.name)
    labels = ", ".join(structure.nodes[n].label for n in nodes[:4]) or "the unknowns"
    names = sorted(
        {structure.terms[structure.groups[f.group].term].name for f in problem.unary if f.scope[0] in nodes}
    )
    msg = (
        f"no value of {labels} agrees with everything the model says about it ({', '.join(names) or 'its bounds'}): "
        "correct a fact, or widen a prior"
    )
    return ModelError(msg, labels)


def _plain(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else ("inf" if value > 0 else "-inf")


def _observed(problem: Any, name: str) -> int | None:
    value = problem.tables.observed(name)
    if value is None or value.size != 1:
        return None
    return int(value.ravel()[0])


def _offset(solver: Any, factor: Any, node: int) -> int | None:
    """Constant part of what was measured: datum - zero of the factor's linear cut."""
    structure = solver.problem.structure
    group = structure.groups[factor.group]
    name = structure.terms[group.term].name
    data = _observed(solver.problem, name)
    if data is None:
        return None
    hints = solver.problem.tables.hint_of(solver.base, group.term, node)
    return data - hints if hints is not None else None
