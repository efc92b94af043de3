"""Real redistricting tables, block by block: which are determined, bounds of every cell, solution variability.

What it is: for every block of a PL 94-171 folder, the rows of the tables an attacker sees
(:mod:`adversary.reconstruction.pl94`), whether any block meets them, the least and greatest count of every
cell of race by Hispanic origin by voting age, and how far two solutions can be apart. Every block ends with a
status; rows that cannot hold together are named.

What it is not: a finding about persons. Tables P1 to P4 *are* the histogram of 252 cells, so that with all of
them every block is determined by arithmetic; what is rebuilt is the published, protected file. Leave tables
out, or ask who lives in group quarters, and blocks open up.

Held to account by tests/reconstruction/test_blocks.py (every small block against a full enumeration, all
blocks against closed forms, one solver against the other). Source: arXiv 2407.04776, eq. 1 and 3, put to
tables P1 to P5 of the 2020 Census Redistricting Data (Public Law 94-171) Summary File.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import DisagreementError, ModelError
from adversary.reconstruction.pl94 import PL94_TABLES, pl94_configurations, pl94_constraints
from adversary.reconstruction.runs import answer_each
from adversary.reconstruction.solve import Limits, Reconstruction, Status
from adversary.reconstruction.variability import solution_variability

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from adversary.readers.pl94 import Pl94Table
    from adversary.reconstruction.answers import CellBounds, Solution
    from adversary.reconstruction.constraints import Constraints
    from adversary.reconstruction.households import Configurations
    from adversary.reconstruction.variability import Variability

__all__ = ["PERSONS", "Pl94Answer", "Pl94Answers", "Pl94Question", "reconstruct_pl94"]

PERSONS: tuple[str, ...] = ("votingage", "hispanic", "cenrace")
"""Attributes of a person in tables P1 to P4."""
_ORDER = (Status.OPTIMAL, Status.FEASIBLE, Status.TIME_LIMIT, Status.INFEASIBLE)


@dataclass(frozen=True)
class Pl94Question:
    """What the attacker sees of a block, and what is asked.

    Attributes
    ----------
    tables
        Which of P1 to P5 she sees.
    quarters
        Tell apart who lives in which kind of group quarters (2,016 cells of persons instead of 252).
    attributes
        Attributes that make the table whose cells are bounded and whose variability is asked.
    household_population
        Persons in households by code of the block, from another source (needs ``quarters``); empty for none.
    backend
        ``"highs"`` or ``"cpsat"``; the other one confirms what is grave (infeasible, determined).
    limits
        For each of the three questions put to a block (is there one, bounds, variability).
    """

    tables: tuple[str, ...] = PL94_TABLES
    quarters: bool = False
    attributes: tuple[str, ...] = PERSONS
    household_population: Mapping[str, int] = field(default_factory=dict)
    backend: str = "highs"
    limits: Limits = field(default_factory=Limits)

    @cached_property
    def configurations(self) -> Configurations:
        """The cells of persons."""
        return pl94_configurations(self.quarters)

    @cached_property
    def cells(self) -> Configurations:
        """The cells that are bounded."""
        return self.configurations.cells(self.attributes)[1]

    def rows(self, table: Pl94Table, block: str) -> Constraints:
        """Return the rows of one block of a ``table``."""
        if self.household_population and not self.quarters:
            msg = "persons in households cannot be placed without group quarters: set quarters=True"
            raise ModelError(msg, dict(self.household_population))
        return pl94_constraints(
            table,
            block,
            self.tables,
            quarters=self.quarters,
            household_population=self.household_population.get(block),
            configurations=self.configurations,
        )

    def identity(self, table: Pl94Table) -> dict[str, Any]:
        """Return what answers on a ``table`` depend on, as JSON; the time limit is not among it."""
        digest = hashlib.sha256()
        for part in (table.geoid, table.p1, table.p2, table.p3, table.p4, table.p5):
            digest.update(np.ascontiguousarray(part).tobytes())
        kept = asdict(self)
        kept["limits"] = {"megabytes": self.limits.megabytes, "seed": self.limits.seed}
        return {"what": "PL 94-171 blocks", "input": digest.hexdigest(), "level": table.level, **kept}


@dataclass(frozen=True, eq=False)
class Pl94Answer:
    """What the tables say about one block.

    Attributes
    ----------
    block
        Its code.
    people
        Total of P1, as published.
    status
        The worst of those of the three questions: optimal, feasible with gap, infeasible, time limit; or
        ``"error"``.
    determined
        Whether all solutions agree in every cell; None if a limit left that open, or there is no solution.
    cell, low, high
        Cells that may hold anybody (places in `Pl94Question.cells`) and their proved bounds, int64, shape
        (c,).
    value, bound
        Solution variability: the greatest L1 distance that was found from one solution, and what it cannot
        exceed; None without a solution.
    clash
        For infeasible: the rows that cannot hold together, in words.
    clash_tables
        Their tables.
    error
        What went wrong, for ``"error"``.
    seconds
        Wall time.
    """

    block: str
    people: int
    status: str
    determined: bool | None = None
    cell: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    low: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    high: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    value: int | None = None
    bound: int | None = None
    clash: str | None = None
    clash_tables: tuple[str, ...] = ()
    error: str | None = None
    seconds: float = 0.0

    @property
    def share(self) -> float | None:
        """Greatest share of persons that one solution can have wrong, 0 to 1 (an upper bound); None if open."""
        if self.bound is None:
            return None
        return self.bound / (2 * self.people) if self.people else 0.0

    @property
    def open_cells(self) -> int:
        """Number of cells whose bounds differ."""
        return int((self.low != self.high).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("cell", "low", "high")}
        return {**{k: v for k, v in vars(self).items() if k != "block"}, **arrays, "share": self.share}

    @classmethod
    def from_dict(cls, block: str, kept: Mapping[str, Any]) -> Pl94Answer:
        """Read an answer on a ``block`` back from what was ``kept``."""
        names = {k: v for k, v in kept.items() if k in cls.__dataclass_fields__}
        for name in ("cell", "low", "high"):
            names[name] = np.array(kept.get(name, []), dtype=np.int64)
        names["clash_tables"] = tuple(kept.get("clash_tables", ()))
        return cls(block=block, **{"people": -1, **names})


@dataclass(frozen=True, eq=False)
class Pl94Answers:
    """The answers for many blocks.

    Attributes
    ----------
    question
        What was asked.
    blocks
        One answer a block.
    """

    question: Pl94Question
    blocks: tuple[Pl94Answer, ...]

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, block: str) -> Pl94Answer:
        for answer in self.blocks:
            if answer.block == block:
                return answer
        msg = f"no answer for block {block!r}: codes are text with all leading zeros"
        raise ModelError(msg, block)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Variability of every block as a share of its persons, shape (n,); NaN where it is open."""
        return np.array([np.nan if b.share is None else b.share for b in self.blocks], dtype=np.float64)

    def summary(self) -> dict[str, Any]:
        """Return the figures that describe the blocks, as JSON."""
        people = np.array([b.people for b in self.blocks], dtype=np.int64)
        fixed = np.array([b.determined is True for b in self.blocks], dtype=bool)
        opened = np.array([b.determined is False for b in self.blocks], dtype=bool)
        statuses = [b.status for b in self.blocks]
        lived = people > 0
        shares = self.shares[lived & ~np.isnan(self.shares)]
        levels = (0.1, 0.25, 0.5, 0.75, 0.9)
        return {
            "tables": list(self.question.tables),
            "quarters": self.question.quarters,
            "attributes": list(self.question.attributes),
            "blocks": len(self),
            "empty": int((people == 0).sum()),
            "one_person": int((people == 1).sum()),
            "people": int(people[lived].sum()),
            "statuses": {s: statuses.count(s) for s in dict.fromkeys(statuses)},
            "determined": int(fixed.sum()),
            "determined_with_people": int((fixed & lived).sum()),
            "people_in_determined": int(people[fixed].sum()),
            "not_determined": int(opened.sum()),
            "left_open": len(self) - int(fixed.sum()) - int(opened.sum()),
            "share_quantiles": {
                f"{q:g}": float(np.quantile(shares, q)) if shares.size else None for q in levels
            },
            "seconds": float(sum(b.seconds for b in self.blocks)),
        }

    def lines(self) -> list[str]:
        """Return the figures as sentences."""
        s = self.summary()
        lived = s["blocks"] - s["empty"]
        out = [
            f"{s['blocks']:,} blocks, {s['empty']:,} of them empty, {s['people']:,} persons;"
            f" seen: {', '.join(s['tables'])}",
            f"determined: {s['determined_with_people']:,} of {lived:,} blocks with people"
            f" ({s['people_in_determined']:,} persons), and the empty ones are trivial",
            f"not determined: {s['not_determined']:,}; left open by a limit or without a solution:"
            f" {s['left_open']:,}",
            "status: " + ", ".join(f"{name} {n:,}" for name, n in s["statuses"].items()),
        ]
        if any(v is not None for v in s["share_quantiles"].values()):
            quantiles = ", ".join(f"{float(q):.0%}: {v:.3f}" for q, v in s["share_quantiles"].items())
            out.append(f"solution variability as a share of persons, quantiles over blocks: {quantiles}")
        out += [f"{b.block}: infeasible, {b.clash}" for b in self.blocks if b.status == Status.INFEASIBLE][:5]
        out += [f"{b.block}: {b.error}" for b in self.blocks if b.error][:5]
        return out


def reconstruct_pl94(
    table: Pl94Table,
    question: Pl94Question | None = None,
    blocks: Sequence[str] | None = None,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    progressbar: bool = False,
) -> Pl94Answers:
    """Ask of every block what its tables leave open.

    Parameters
    ----------
    table
        What `read_pl94` returns.
    question
        What the attacker sees; None for P1 to P5, race by Hispanic origin by voting age.
    blocks
        Codes of the geounits; None for all.
    out
        Folder that keeps one file a block; run again to go on where it stopped. None to keep nothing.
    processes, progressbar
        See `adversary.reconstruction.runs.answer_each`.

    Returns
    -------
    Pl94Answers
        In the order of ``blocks``. The variability of a block is measured from the first solution found, and
        from another one it is at most twice as much.

    Raises
    ------
    ModelError
        For unknown tables, attributes or blocks.

    Examples
    --------
    >>> from adversary.readers.pl94 import demo_folder, read_pl94
    >>> blocks = read_pl94(demo_folder())
    >>> reconstruct_pl94(blocks).summary()["determined"], len(blocks)
    (40, 40)
    >>> some = reconstruct_pl94(blocks, Pl94Question(("P1", "P3"), attributes=("votingage", "cenrace")))
    >>> some.summary()["determined"]
    40
    """
    asked = Pl94Question() if question is None else question
    names = [str(code) for code in table.geoid] if blocks is None else [str(code) for code in blocks]
    places = {str(code): row for row, code in enumerate(table.geoid)}
    unknown = [name for name in (*names, *asked.household_population) if name not in places]
    if unknown:
        msg = f"no geounit {unknown[0]!r} at level {table.level}: codes are text with all leading zeros"
        raise ModelError(msg, unknown)
    if len(table):
        asked.rows(table, str(table.geoid[0]))  # refuses what it must
    _ = asked.cells
    job = _Job(table, asked, places)
    found = answer_each(
        job,
        names,
        asked.identity(table),
        out,
        seconds=asked.limits.seconds,
        processes=processes,
        progressbar=progressbar,
    )
    answers = []
    for name, kept in found.items():
        people = int(table.p1[places[name]].sum())
        answers.append(Pl94Answer.from_dict(name, {"people": people, **kept}))
    return Pl94Answers(asked, tuple(answers))


@dataclass(frozen=True)
class _Job:
    """Answers one block; a class of the module, so that it can be sent to another process."""

    table: Pl94Table
    question: Pl94Question
    places: Mapping[str, int]

    def __call__(self, name: str) -> dict[str, Any]:
        start = time.perf_counter()
        q, row = self.question, self.places[name]
        rows = q.rows(self.table, name)
        block = Reconstruction(rows, backend=q.backend, limits=q.limits)
        people = int(self.table.p1[row].sum())
        first = block.feasible()
        if first.status is Status.INFEASIBLE:
            return _impossible(name, people, first, time.perf_counter() - start).to_dict()
        bounds = block.cell_bounds(q.attributes)
        apart = solution_variability(block, q.attributes)
        return _answer(name, people, bounds, apart, time.perf_counter() - start).to_dict()


def _impossible(name: str, people: int, first: Solution, seconds: float) -> Pl94Answer:
    clash = first.clash
    words = None if clash is None else str(clash)
    if clash is not None and not clash.irreducible:
        words = f"{words} (a limit stopped the search for fewer rows)"
    tables = () if clash is None else clash.tables
    return Pl94Answer(name, people, first.status, clash=words, clash_tables=tables, seconds=seconds)


def _answer(name: str, people: int, bounds: CellBounds, apart: Variability, seconds: float) -> Pl94Answer:
    """Join the two questions, which must agree on whether the block is determined."""
    differing = bounds.attained & (bounds.low != bounds.high)
    if (bounds.determined and apart.value > 0) or (apart.unique and differing.any()):
        msg = (
            f"block {name}: bounds and variability disagree on whether it is determined: ask the other solver"
        )
        raise DisagreementError(msg, name)
    determined: bool | None = None
    if apart.unique and bounds.determined:
        determined = True
    elif apart.value > 0 or differing.any():
        determined = False
    held = np.flatnonzero(bounds.high > 0)
    known = apart.reference is not None
    return Pl94Answer(
        name,
        people,
        max(bounds.status, apart.status, key=_ORDER.index),
        determined,
        held,
        bounds.low[held],
        bounds.high[held],
        apart.value if known else None,
        apart.bound if known else None,
        seconds=round(seconds, 4),
    )
