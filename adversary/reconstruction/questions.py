"""One question put to one block, and its answer as a plain record.

What it is: the six questions of :mod:`adversary.reconstruction.solve` and solution variability under names,
with answers that can be written as JSON: each has a status, and ``finding`` where a harm is certain (or, for
a variability, where the table of the households looked at is). What it is not: a solver.

Held to account by tests/reconstruction/test_ask.py (each record against the object it is made from).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction.households import OVER_LIMIT, SUBSIDISED, Predicate
from adversary.reconstruction.solve import Status
from adversary.reconstruction.variability import simplified, solution_variability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from adversary.reconstruction.answers import Clash
    from adversary.reconstruction.households import Configurations
    from adversary.reconstruction.solve import Reconstruction

__all__ = ["HARMS", "QUESTIONS", "SIMPLIFIED", "Question", "ask", "parse_harm"]

QUESTIONS: tuple[str, ...] = (
    "feasible",
    "bounds",
    "most-likely",
    "top",
    "claims",
    "closest",
    "variability",
)
"""The six questions, and solution variability."""
HARMS: Mapping[str, Predicate] = MappingProxyType({"over-limit": OVER_LIMIT, "subsidised": SUBSIDISED})
"""Harms with a name; any other is written as levels of attributes (see `parse_harm`)."""
SIMPLIFIED = ("simplified",)
"""Stands for the paper's simplified table as attributes of a variability."""


def parse_harm(text: str) -> Predicate:
    """Read a harm: a name of `HARMS`, or levels of attributes that must all hold.

    Parameters
    ----------
    text
        As it was typed.

    Examples
    --------
    >>> parse_harm("over-limit").name
    'violates the occupancy limit'
    >>> from adversary.reconstruction.pl94 import pl94_configurations
    >>> cells = pl94_configurations()
    >>> int(cells.mask(parse_harm("votingage=under_18, cenrace=asian|nhopi")).sum())
    4
    """
    if text in HARMS:
        return HARMS[text]
    levels: dict[str, tuple[str, ...]] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value) or name in levels:
            msg = (
                f"a harm is {' or '.join(HARMS)}, or ATTRIBUTE=LEVEL|LEVEL,ATTRIBUTE=LEVEL, each attribute once;"
                f" got {text!r}"
            )
            raise ModelError(msg, text)
        levels[name] = tuple(level.strip() for level in value.split("|"))
    return Predicate(text, _Levels(tuple(levels.items())))


@dataclass(frozen=True)
class _Levels:
    """The rule of a harm that was read from text; can be sent to other processes."""

    levels: tuple[tuple[str, tuple[str, ...]], ...]

    def __call__(self, table: Configurations) -> NDArray[np.bool_]:
        return table.mask(dict(self.levels))


@dataclass(frozen=True)
class Question:
    """What is asked of every block.

    Attributes
    ----------
    what
        One of `QUESTIONS`.
    harm
        Whom ``feasible`` rules out, ``bounds`` and ``top`` count, ``claims`` and ``variability`` look at; None
        for none.
    attributes
        Attributes that make the cells of ``bounds`` (without a harm), ``claims`` and ``variability``; empty for
        all; ``("simplified",)`` for the paper's simplified table (variability only).
    top
        Length of the list of ``top``.
    """

    what: str = "feasible"
    harm: Predicate | None = None
    attributes: tuple[str, ...] = ()
    top: int = 100

    def __post_init__(self) -> None:
        if self.what not in QUESTIONS:
            msg = f"no question {self.what!r}: choose {', '.join(QUESTIONS)}"
            raise ModelError(msg, self.what)
        if self.top < 1:
            msg = f"the top {self.top} of a list is nothing: ask for 1 or more"
            raise ModelError(msg, self.top)

    def identity(self) -> dict[str, Any]:
        """Return what is asked, as JSON."""
        harm = None if self.harm is None else self.harm.name
        return {"question": self.what, "harm": harm, "attributes": list(self.attributes), "top": self.top}

    def check(self, configurations: Configurations) -> None:
        """Refuse what the table of configurations lacks, before any block is asked."""
        if self.harm is not None and not configurations.mask(self.harm).any():
            msg = f"no configuration has the harm {self.harm.name!r}: it can never be certain; mend it"
            raise ModelError(msg, self.harm.name)
        if self.attributes == SIMPLIFIED:
            simplified(configurations)
        else:
            configurations.cells(self.attributes or None)


def ask(
    block: Reconstruction, question: Question, sigma: NDArray[np.float64] | None = None
) -> dict[str, Any]:
    """Put one question to one block.

    Parameters
    ----------
    block
        The rows, with shares where ``most-likely`` or ``top`` is asked.
    question
        What is asked.
    sigma
        For ``closest``: standard deviation of each row's error; None for 1 each.

    Returns
    -------
    dict
        What can be written as JSON, with ``status``, ``seconds`` and ``finding`` (a harm that is certain).
    """
    start = time.perf_counter()
    asked = _ASKED.get(question.what)
    answer = _closest(block, sigma) if asked is None else asked(block, question)
    return {"finding": False, **answer, "seconds": round(time.perf_counter() - start, 4)}


def _feasible(block: Reconstruction, question: Question) -> dict[str, Any]:
    found = block.feasible()
    answer = {
        "status": str(found.status),
        "block": _written(block.configurations, found.counts),
        "limit": found.limit,
        "confirmed": found.confirmed,
        **_clash(found.clash),
    }
    if question.harm is not None and found.status is not Status.INFEASIBLE:
        flag = block.flag(question.harm)
        without = _written(block.configurations, flag.witness)
        answer |= {"verdict": flag.verdict, "confirmed": flag.confirmed, "without_harm": without}
        answer["finding"] = flag.verdict == "flagged"
    return answer


def _bounds(block: Reconstruction, question: Question) -> dict[str, Any]:
    if question.harm is None:
        cells = block.cell_bounds(question.attributes or None)
        held = np.flatnonzero(cells.high > 0)
        if cells.status is Status.INFEASIBLE:
            return {"status": str(cells.status), **_clash(block.clash())}
        rows = [
            {"cell": cells.cells.label(k), "low": int(cells.low[k]), "high": int(cells.high[k])}
            for k in held.tolist()
        ]
        return {"status": str(cells.status), "determined": cells.determined, "cells": rows}
    its = block.bounds(question.harm)
    if its.status is Status.INFEASIBLE:
        return {"status": str(its.status), **_clash(block.clash())}
    return {
        "status": str(its.status),
        "low": its.low,
        "high": its.high,
        "certain": its.certain,
        "determined": its.determined,
        "confirmed": its.confirmed,
        "finding": its.certain,
    }


def _most_likely(block: Reconstruction, question: Question) -> dict[str, Any]:
    found = block.most_likely()
    harmed = None
    if question.harm is not None and found.counts is not None:
        harmed = int(found.counts[block.configurations.mask(question.harm)].sum())
    return {
        "status": str(found.status),
        "block": _written(block.configurations, found.counts),
        "cost": found.value,
        "bound": found.bound,
        "log_likelihood": found.log_likelihood,
        "harmed": harmed,
    }


def _top(block: Reconstruction, question: Question) -> dict[str, Any]:
    found = block.top(question.top)
    answer: dict[str, Any] = {
        "status": str(found.status),
        "listed": len(found),
        "exhausted": found.exhausted,
        "arbitrary": found.arbitrary,
        "cut": found.cut,
        "tied_share": found.tied_share,
        "levels": [level._asdict() for level in found.levels],
    }
    if question.harm is not None and len(found):
        harmed = found.counts[:, block.configurations.mask(question.harm)].sum(axis=1)
        answer |= {"with_harm": float((harmed > 0).mean()), "mean_harmed": float(harmed.mean())}
    blocks = zip(found.costs.tolist(), found.counts, strict=True)
    answer["blocks"] = [{"cost": c, "block": _written(block.configurations, x)} for c, x in blocks]
    return answer


def _claims(block: Reconstruction, question: Question) -> dict[str, Any]:
    names = question.attributes or block.configurations.names
    bounds = block.cell_bounds(names, question.harm)
    claims = block.certain_claims(names, question.harm, bounds)
    return {
        "status": str(bounds.status),
        "claims": [{"what": claim.what, "count": claim.count} for claim in claims],
        "finding": question.harm is not None and bool(claims),
    }


def _variability(block: Reconstruction, question: Question) -> dict[str, Any]:
    cells = question.attributes or None
    of = simplified(block.configurations) if cells == SIMPLIFIED else cells
    found = solution_variability(block, of, question.harm)
    known = found.reference is not None
    return {
        "status": str(found.status),
        "value": found.value if known else None,
        "bound": found.bound if known else None,
        "counted": found.households if known else None,
        "share": found.share,
        "unique": found.unique,
        "finding": found.unique and found.households > 0,
    }


def _closest(block: Reconstruction, sigma: NDArray[np.float64] | None) -> dict[str, Any]:
    found = block.closest(sigma=sigma)
    counts, rows = found.solution.counts, block.constraints
    missed: list[dict[str, Any]] = []
    if counts is not None and found.errors is not None:
        missed = [
            {**rows.row(i)._asdict(), "answer": int(rows.matrix[i] @ counts)}
            for i in np.flatnonzero(found.errors).tolist()
        ]
    return {
        "status": str(found.solution.status),
        "block": _written(block.configurations, counts),
        "error": found.solution.value,
        "missed": missed,
    }


_ASKED = {
    "feasible": _feasible,
    "bounds": _bounds,
    "most-likely": _most_likely,
    "top": _top,
    "claims": _claims,
    "variability": _variability,
}


def _written(configurations: Configurations, counts: NDArray[np.int64] | None) -> dict[str, int] | None:
    """Write a block out: how often each configuration occurs."""
    if counts is None:
        return None
    return {configurations.label(k): int(counts[k]) for k in np.flatnonzero(counts).tolist()}


def _clash(clash: Clash | None) -> dict[str, Any]:
    if clash is None:
        return {}
    return {"clash": str(clash), "clash_tables": list(clash.tables), "irreducible": clash.irreducible}
