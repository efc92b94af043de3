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
from adversary.reconstruction.mechanisms import MECHANISMS, Mechanism, Published, publish
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

__all__ = [
    "StateView",
    "ask_pl94",
    "ask_state",
    "pl94_rows",
    "published_block",
    "state_blocks",
    "table_shares",
    "tabulated",
]

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

    def __post_init__(self) -> None:
        if self.tables not in {"base", "rich"}:
            msg = f"no set of tables {self.tables!r}: choose base or rich"
            raise ModelError(msg, self.tables)

    def identity(self, state: SyntheticState) -> dict[str, Any]:
        """Return what answers on a ``state`` depend on, as JSON; the time limit is not among it."""
        m = self.mechanism
        return {
            "state": state_hash(state),
            "mechanism": m.name,
            "parameters": [m.swap_rate, m.census_rho, m.hud_rho],
            "tables": self.tables,
            "seed": self.seed,
            "mend": self.mend,
            "backend": self.backend,
        }


def state_blocks(state: SyntheticState, blocks: Sequence[int] | None) -> list[str]:
    """Return the names of a state's blocks, ``block-000000`` and so on; None for all."""
    which = range(len(state)) if blocks is None else [int(b) for b in blocks]
    wrong = [b for b in which if not 0 <= b < len(state)]
    if wrong:
        msg = f"no block {wrong[0]}: the state has blocks 0 to {len(state) - 1}"
        raise ModelError(msg, wrong)
    return [f"block-{b:06d}" for b in which]


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
    names = state_blocks(state, blocks)
    question.check(state.configurations())
    return answer_each(
        _StateJob(state, tabulated(state, view), view, question),
        names,
        {"what": "blocks of a synthetic state", **view.identity(state), **question.identity()},
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
    names = pl94_rows(table, seen, blocks)
    question.check(seen.configurations)
    shares = table_shares(table, seen) if question.what in {"most-likely", "top"} else None
    return answer_each(
        _Pl94Job(table, seen, question, shares),
        names,
        {**seen.identity(table), **question.identity()},
        out,
        seconds=seen.limits.seconds,
        processes=processes,
        progressbar=progressbar,
    )


def pl94_rows(table: Pl94Table, seen: Pl94Question, blocks: Sequence[str] | None) -> list[str]:
    """Return the codes of ``blocks`` of a ``table`` (None: all), once sure that they and the tables ``seen`` are there."""
    codes = {str(code) for code in table.geoid}
    names = [str(code) for code in (table.geoid if blocks is None else blocks)]
    unknown = [name for name in (*names, *seen.household_population) if name not in codes]
    if unknown:
        msg = f"no geounit {unknown[0]!r} at level {table.level}: codes are text with all leading zeros"
        raise ModelError(msg, unknown)
    if len(table):
        seen.rows(table, str(table.geoid[0]))  # refuses what it must
    return names


def tabulated(state: SyntheticState, view: StateView) -> NDArray[np.int64]:
    """Return the records of a ``state`` as tabulated under a ``view``: as they are, or after swapping."""
    table = state.configurations()
    if view.mechanism.swap_rate > 0:
        seed = np.random.SeedSequence(view.seed, spawn_key=(_SWAP,))
        return swap_state(state, SwapDesign(view.mechanism.swap_rate), seed=seed)[1]
    return state.records[:, [table.column(name) for name in CENSUS_ATTRIBUTES]]


def published_block(
    state: SyntheticState, census: NDArray[np.int64], view: StateView, block: int
) -> tuple[Published, Limits]:
    """Return what is published of one block, and the limits with the block's seed.

    Parameters
    ----------
    state, view, block
        See there.
    census
        What `tabulated` returned.
    """
    first, last = np.searchsorted(state.block, [block, block + 1])
    seed = np.random.SeedSequence(view.seed, spawn_key=(_BLOCK, block))
    limits = replace(view.limits, seed=int(seed.generate_state(1)[0]) % 2**31)  # as in the study
    published = publish(
        state.configurations(block),
        state.counts(block),
        state.census,
        state.census.histogram(census[first:last]),
        view.mechanism,
        tables=view.tables,
        seed=seed,
        limits=limits,
    )
    return published, limits


@dataclass(frozen=True)
class _StateJob:
    """Publishes one block of a state and asks; a class of the module, so that it can be sent to processes."""

    state: SyntheticState
    tabulated: NDArray[np.int64]
    view: StateView
    question: Question

    def __call__(self, name: str) -> dict[str, Any]:
        block, view = int(name.removeprefix("block-")), self.view
        published, limits = published_block(self.state, self.tabulated, view, block)
        shares = self.state.shares(published.rows.configurations)
        rebuilt = Reconstruction(published.rows, shares, view.backend, limits)
        sigma = np.append(published.sigma, np.ones(len(rebuilt.constraints) - len(published.sigma)))
        missed = 0
        if view.mend and self.question.what != "closest":
            first_look = rebuilt.feasible(explain=False)
            if first_look.status is Status.INFEASIBLE:
                mend = rebuilt.closest(sigma=sigma)
                if mend.relaxed is not None:
                    rebuilt, missed = replace(rebuilt, constraints=mend.relaxed), mend.missed
        answer = ask(rebuilt, self.question, sigma)
        return {**answer, "households": int((self.state.block == block).sum()), "rows_widened": missed}


@dataclass(frozen=True)
class _Pl94Job:
    table: Pl94Table
    seen: Pl94Question
    question: Question
    shares: NDArray[np.float64] | None

    def __call__(self, name: str) -> dict[str, Any]:
        rows = self.seen.rows(self.table, name)
        block = Reconstruction(rows, self.shares, backend=self.seen.backend, limits=self.seen.limits)
        return {**ask(block, self.question), "people": int(self.table.total[self.table.geoid == name][0])}


def table_shares(table: Pl94Table, seen: Pl94Question) -> NDArray[np.float64] | None:
    """Return the share of every cell ``seen`` in the whole table; None if nobody lives in it."""
    counts = table.histogram().sum(axis=0).ravel().astype(np.float64)
    if not counts.sum():
        return None
    if not seen.quarters:
        return np.asarray(counts / counts.sum())
    homes = np.append(counts.sum() - table.p5.sum(), table.p5.sum(axis=0))
    # where a person lives is taken to be independent of the cell: nothing published says more
    return np.asarray(np.outer(homes / homes.sum(), counts / counts.sum()).ravel())
