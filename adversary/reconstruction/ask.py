"""One question put to many blocks, synthetic or real.

What it is: :mod:`adversary.reconstruction.questions` asked of the blocks of a synthetic state under a
mechanism, or of the redistricting tables of real blocks, kept in a folder. What it is not: an evaluation
(:mod:`adversary.reconstruction.evaluation`). Answers about a synthetic state are about synthetic households
only.

Held to account by tests/reconstruction/test_ask.py (one block at a time, by hand).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction.households import CENSUS_ATTRIBUTES
from adversary.reconstruction.mechanisms import MECHANISMS, Mechanism, publish
from adversary.reconstruction.pl94 import pl94_constraints
from adversary.reconstruction.questions import ask
from adversary.reconstruction.runs import answer_each
from adversary.reconstruction.solve import Limits, Reconstruction, Status
from adversary.reconstruction.study import state_hash
from adversary.reconstruction.swapping import SwapDesign, swap_state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from adversary.readers.pl94 import Pl94Table
    from adversary.reconstruction.blocks import Pl94Question
    from adversary.reconstruction.questions import Question
    from adversary.reconstruction.synthetic import SyntheticState

__all__ = ["StateView", "ask_pl94", "ask_state"]

_SWAP, _BLOCK = 1, 2  # keys of the seeds of `study`: the same seed gives the same tables


@dataclass(frozen=True)
class StateView:
    """What is published about a synthetic state, and how it is asked.

    Attributes
    ----------
    mechanism
        How the tables are protected (see `adversary.reconstruction.mechanisms.MECHANISMS`).
    tables
        ``"base"`` or ``"rich"``.
    seed
        Of swaps and noise: the tables are those of `adversary.reconstruction.study.reconstruct_state` for the
        same seed.
    mend
        Where rows contradict each other, widen them by the least error first (the normal road after
        swapping).
    backend, limits
        Of the solver, for each question; ``limits.seed`` is ignored, every block has its own.
    """

    mechanism: Mechanism = MECHANISMS["none"]
    tables: str = "base"
    seed: int = 0
    mend: bool = False
    backend: str = "highs"
    limits: Limits = field(default_factory=Limits)


def ask_state(
    state: SyntheticState,
    view: StateView,
    question: Question,
    blocks: Sequence[int] | None = None,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    progressbar: bool = False,
) -> dict[str, dict[str, Any]]:
    """Ask the published tables of a synthetic state's blocks.

    Parameters
    ----------
    state, view, question
        See there.
    blocks
        Numbers of blocks; None for all.
    out, processes, progressbar
        See `adversary.reconstruction.runs.answer_each`.

    Returns
    -------
    dict
        Answers by block, ``block-000000`` and so on; about synthetic households only.

    Examples
    --------
    >>> from adversary.reconstruction.households import OVER_LIMIT
    >>> from adversary.reconstruction.questions import Question
    >>> from adversary.reconstruction.synthetic import StateShape, synthetic_state
    >>> state = synthetic_state(StateShape(blocks=60), seed=1)
    >>> found = ask_state(state, StateView(), Question("bounds", OVER_LIMIT), [2])
    >>> sorted(found["block-000002"])[:4]
    ['certain', 'confirmed', 'determined', 'finding']
    """
    which = range(len(state)) if blocks is None else [int(b) for b in blocks]
    wrong = [b for b in which if not 0 <= b < len(state)]
    if wrong:
        msg = f"no block {wrong[0]}: the state has blocks 0 to {len(state) - 1}"
        raise ModelError(msg, wrong)
    question.check(state.configurations())
    job = _StateJob(state, _tabulated(state, view), view, question)
    seen = {
        "mechanism": view.mechanism.name,
        "parameters": [view.mechanism.swap_rate, view.mechanism.census_rho, view.mechanism.hud_rho],
        "tables": view.tables,
        "seed": view.seed,
        "mend": view.mend,
        "backend": view.backend,
    }
    asked = {"what": "blocks of a synthetic state", "state": state_hash(state), **seen, **question.identity()}
    return answer_each(
        job,
        [f"block-{b:06d}" for b in which],
        asked,
        out,
        seconds=view.limits.seconds,
        processes=processes,
        progressbar=progressbar,
    )


def ask_pl94(
    table: Pl94Table,
    seen: Pl94Question,
    question: Question,
    blocks: Sequence[str] | None = None,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    progressbar: bool = False,
) -> dict[str, dict[str, Any]]:
    """Ask the redistricting tables of real blocks.

    Parameters
    ----------
    table
        What `read_pl94` returns.
    seen
        Tables, group quarters, back end, limits; its ``attributes`` are not used.
    question
        What is asked. ``most-likely`` and ``top`` take the shares of the cells in the whole of ``table``, which
        is published too; group quarters are then taken to be independent of the cell.
    blocks
        Codes of geounits; None for all.
    out, processes, progressbar
        See `adversary.reconstruction.runs.answer_each`.

    Examples
    --------
    >>> from adversary.readers.pl94 import demo_folder, read_pl94
    >>> from adversary.reconstruction.blocks import Pl94Question
    >>> from adversary.reconstruction.questions import Question
    >>> table = read_pl94(demo_folder())
    >>> found = ask_pl94(table, Pl94Question(("P1", "P3")), Question("feasible"), [str(table.geoid[3])])
    >>> next(iter(found.values()))["status"]
    'optimal'
    """
    codes = [str(code) for code in table.geoid]
    names = codes if blocks is None else [str(code) for code in blocks]
    unknown = [name for name in (*names, *seen.household_population) if name not in set(codes)]
    if unknown:
        msg = f"no geounit {unknown[0]!r} at level {table.level}: codes are text with all leading zeros"
        raise ModelError(msg, unknown)
    question.check(seen.configurations)
    pl94_constraints(table, 0, seen.tables, configurations=seen.configurations)  # refuses what it must
    return answer_each(
        _Pl94Job(
            table, seen, question, _shares(table, seen) if question.what in {"most-likely", "top"} else None
        ),
        names,
        {**seen.identity(table), **question.identity()},
        out,
        seconds=seen.limits.seconds,
        processes=processes,
        progressbar=progressbar,
    )


def _tabulated(state: SyntheticState, view: StateView) -> NDArray[np.int64]:
    """Return the census records as tabulated: as they are, or after swapping."""
    table = state.configurations()
    if view.mechanism.swap_rate > 0:
        seed = np.random.SeedSequence(view.seed, spawn_key=(_SWAP,))
        return swap_state(state, SwapDesign(view.mechanism.swap_rate), seed=seed)[1]
    return state.records[:, [table.column(name) for name in CENSUS_ATTRIBUTES]]


@dataclass(frozen=True)
class _StateJob:
    """Publishes one block of a state and asks; a class of the module, so that it can be sent to processes."""

    state: SyntheticState
    tabulated: NDArray[np.int64]
    view: StateView
    question: Question

    def __call__(self, name: str) -> dict[str, Any]:
        block, view = int(name.removeprefix("block-")), self.view
        first, last = np.searchsorted(self.state.block, [block, block + 1])
        configurations = self.state.configurations(block)
        seed = np.random.SeedSequence(view.seed, spawn_key=(_BLOCK, block))
        limits = replace(view.limits, seed=int(seed.generate_state(1)[0]) % 2**31)  # as in the study
        published = publish(
            configurations,
            self.state.counts(block),
            self.state.census,
            self.state.census.histogram(self.tabulated[first:last]),
            view.mechanism,
            tables=view.tables,
            seed=seed,
            limits=limits,
        )
        rebuilt = Reconstruction(
            published.rows, self.state.shares(configurations), backend=view.backend, limits=limits
        )
        sigma = np.append(published.sigma, np.ones(len(rebuilt.constraints) - len(published.sigma)))
        missed = 0
        if view.mend and self.question.what != "closest":
            first_look = rebuilt.feasible(explain=False)
            if first_look.status is Status.INFEASIBLE:
                mend = rebuilt.closest(sigma=sigma)
                if mend.relaxed is not None:
                    rebuilt, missed = replace(rebuilt, constraints=mend.relaxed), mend.missed
        answer = ask(rebuilt, self.question, sigma)
        return {**answer, "households": int(last - first), "rows_widened": missed}


@dataclass(frozen=True)
class _Pl94Job:
    table: Pl94Table
    seen: Pl94Question
    question: Question
    shares: NDArray[np.float64] | None

    def __call__(self, name: str) -> dict[str, Any]:
        row = int(np.flatnonzero(self.table.geoid == name)[0])
        rows = pl94_constraints(
            self.table,
            row,
            self.seen.tables,
            quarters=self.seen.quarters,
            household_population=self.seen.household_population.get(name),
            configurations=self.seen.configurations,
        )
        block = Reconstruction(rows, self.shares, backend=self.seen.backend, limits=self.seen.limits)
        return {**ask(block, self.question), "people": int(self.table.p1[row].sum())}


def _shares(table: Pl94Table, seen: Pl94Question) -> NDArray[np.float64] | None:
    """Return the share of every cell in the whole table; None if nobody lives in it."""
    counts = table.histogram().sum(axis=0).ravel().astype(np.float64)
    if not counts.sum():
        return None
    if not seen.quarters:
        return np.asarray(counts / counts.sum())
    homes = np.append(counts.sum() - table.p5.sum(), table.p5.sum(axis=0))
    # where a person lives is taken to be independent of the cell: nothing published says more
    return np.asarray(np.outer(homes / homes.sum(), counts / counts.sum()).ravel())
