"""Pieces of an attack on noisy measurement files: which targets, their counts read from the files, their answers. Internal.

A piece is one state part and a few cells. Trees of different cells have nothing in common but the spine, so a piece depends on
its own cells' counts alone, and its part has the same bytes whatever else is done, by however many processes.

Held to account by ``tests/batches/test_nmf_folder.py``.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import whole
from adversary.batches.sources import file_digest
from adversary.errors import FileFormatError, ReleaseError
from adversary.readers._nmf_columns import words_in
from adversary.readers._nmf_layout import CONSTRAINT, state_parts
from adversary.readers.nmf import NoisyMeasurements, geoid_of
from adversary.samplers.leaf_prior import LeafPrior
from adversary.spine_attack import SpineCounts, attack_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = [
    "FAR",
    "Ask",
    "Piece",
    "Region",
    "Target",
    "constraint_names",
    "filled",
    "first_cell",
    "input_digest",
    "parse_leaf_prior",
    "pieces_of",
    "read_counts",
    "read_targets",
    "regions",
    "split_targets",
    "wanted_parts",
]


FAR = 6.0
"""Sigma between a block's own count and what she is said to know of it, beyond which there is no answer but a mark."""

_READ = 1 << 24  # numbers of a query kept at a time while the files are read: 128 MB


def parse_leaf_prior(text: str | LeafPrior) -> LeafPrior:
    """Read ``flat``, ``poisson:2.5`` or ``geometric:0.3``.

    Raises
    ------
    ReleaseError
        For anything else.

    Examples
    --------
    >>> parse_leaf_prior("poisson:2.5").parameter
    2.5
    """
    if isinstance(text, LeafPrior):
        return text
    name, _, value = text.partition(":")
    try:
        if name == "flat" and not value:
            return LeafPrior.flat()
        if name == "poisson":
            return LeafPrior.poisson(float(value))
        if name == "geometric":
            return LeafPrior.geometric(float(value))
    except ValueError as error:
        if getattr(error, "value", None) is not None:
            raise
    msg = f"{text!r} is no prior of a block's count: write flat, poisson:MEAN or geometric:RATIO, as in geometric:0.3"
    raise ReleaseError(msg, text)


@dataclass(frozen=True)
class Region:
    """One state part (or all there is), its tree, and the places of its units.

    Attributes
    ----------
    states
        What the reader takes: a tuple of one state part, or None.
    spine
        Its units.
    zero
        For every leaf and institution type (first axis of the histogram): whether the Bureau published that there is none.
    """

    name: str
    states: tuple[str, ...] | None
    spine: Spine
    zero: NDArray[np.bool_] | None


@dataclass(frozen=True)
class Target:
    """A row of a table of targets."""

    code: str
    cell: int
    known: int
    prior: float


@dataclass(frozen=True, eq=False)
class Piece:
    """What one part answers.

    Attributes
    ----------
    region
        State part.
    cells
        Places of the cells in the query's answer.
    rows
        For each cell: targets' units, known others, priors; None: every block, with the same for all.
    noisy, sigma2
        Counts and noise, shape (cells, units), (units,); empty until read.
    """

    region: Region
    cells: tuple[int, ...]
    rows: tuple[tuple[Ints, Ints, Floats], ...] | None
    noisy: Ints
    sigma2: Floats

    @property
    def targets(self) -> int:
        """How many."""
        if self.rows is None:
            return len(self.cells) * int(self.region.spine.leaves.size)
        return sum(int(r[0].size) for r in self.rows)


@dataclass(frozen=True)
class Ask:
    """The question put to every piece; pickled once a part."""

    query: str
    shape: tuple[int, ...]
    known: int
    prior: float
    leaf_prior: LeafPrior
    tolerance: float

    def write(self, piece: Piece, folder: Path, number: int) -> dict[str, Any]:
        """Answer a piece and put the part in its place in one step."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = [self.answer(piece, k) for k in range(len(piece.cells))]
        columns = {name: np.concatenate([f[name] for f in found]) for name in found[0]}
        facts = {
            "bound": max((float(f.pop("_bound")[0]) for f in found), default=0.0),
            "ceiling": float(columns["ceiling"].max(initial=0.0)),
        }
        columns.pop("_bound")
        final = folder / f"part-{number:06d}.parquet"
        with whole(final) as draft:
            pq.write_table(pa.table(columns), draft)
        return {
            "file": final.name,
            "targets": int(columns["risk"].size),
            "region": piece.region.name,
            "cells": list(piece.cells),
            **facts,
            "sha256": file_digest(final),
        }

    def answer(self, piece: Piece, k: int) -> dict[str, Any]:
        """Return the columns of one cell of a piece."""
        spine, cell = piece.region.spine, piece.cells[k]
        noisy, sigma2 = piece.noisy[k].copy(), piece.sigma2.copy()
        zero = piece.region.zero
        if zero is not None and self.shape[0] == zero.shape[1]:
            nobody = spine.leaves[zero[:, int(np.unravel_index(cell, self.shape)[0])]]
            noisy[nobody], sigma2[nobody] = 0, 0.0
        units, known, prior = (spine.leaves, self.known, self.prior) if piece.rows is None else piece.rows[k]
        answers = attack_blocks(
            SpineCounts(spine, noisy, sigma2, self.query, cell),
            units,
            known=known,
            prior=prior,
            leaf_prior=self.leaf_prior,
            tolerance=self.tolerance,
            far=FAR,
        )
        code = answers.geocode
        return {
            "geocode": code,
            "geoid": geoids(code),
            "cell": np.full(code.size, cell, np.int32),
            "noisy": noisy[answers.unit],
            "known": answers.known,
            "prior": answers.prior,
            "posterior": answers.posterior,
            "log_odds": answers.log_odds,
            "risk": answers.risk,
            "decision": answers.decision,
            "contradicted": np.isnan(answers.log_odds),
            "count_mean": answers.count_mean,
            "count_sd": answers.count_sd,
            "ceiling": answers.ceiling,
            "_bound": np.array([answers.left_out_bound]),
        }


def geoids(codes: NDArray[np.str_]) -> NDArray[np.str_]:
    """GEOIDs of blocks, or the codes themselves where they do not end as a block's code does."""
    try:
        found: NDArray[np.str_] = geoid_of(codes)
    except FileFormatError:
        return codes
    return found


# ------------------------------------------------------------------------------------------ what there is
def regions(nmf: NoisyMeasurements, states: Any, levels: Sequence[str] | None) -> Iterator[Region]:
    """Yield the state parts in order; above them nothing is used."""
    parts = wanted_parts(nmf, states)
    for part in parts:
        spine = nmf.spine(None if part is None else (part,), levels)
        yield Region(part or "all", None if part is None else (part,), spine, _zeros(nmf, part, spine))


def wanted_parts(nmf: NoisyMeasurements, states: Any) -> tuple[str | None, ...]:
    """State parts that were asked for and are there; (None,) where the files have none."""
    wanted = state_parts(states)
    if not nmf.states:
        return (None,)
    if wanted is None:
        return nmf.states
    there = tuple(s for s in nmf.states if s in wanted)
    if not there:
        msg = f"no files of state {', '.join(wanted)} in {nmf.folder.name}: it has {', '.join(nmf.states)}"
        raise FileFormatError(msg, states)
    return there


def _zeros(nmf: NoisyMeasurements, part: str | None, spine: Spine) -> NDArray[np.bool_] | None:
    """Institution types of which a block has no facility: an upper bound of 0, published without noise."""
    leaf = spine.levels[-1]
    try:
        bound = nmf.constraints(leaf, ["hhgq_total_ub"], None if part is None else (part,))[0]
    except FileFormatError as error:
        if "has no constraint" in str(error):
            return None
        raise
    codes = spine.geocodes[spine.leaves]
    order = np.argsort(codes)
    place = np.searchsorted(codes[order], bound.geocode).clip(0, codes.size - 1)
    there = codes[order][place] == bound.geocode
    out = np.zeros((codes.size, bound.values.shape[1]), bool)
    out[order[place[there]]] = bound.values[there] == 0
    return out


def constraint_names(nmf: NoisyMeasurements, levels: Sequence[str], states: Any) -> list[str]:
    """Names of the invariants and bounds in the files of the first state part."""
    first = wanted_parts(nmf, states)[0]
    files = [p for level in levels for p in nmf.parts[level][CONSTRAINT] if p.state in (None, first)]
    return sorted({w.removesuffix("_con") for p in files for w in words_in(p)})


def input_digest(nmf: NoisyMeasurements, states: Any, levels: Sequence[str] | None) -> str:
    """SHA-256 of the files that are read, with their names."""
    wanted, total = wanted_parts(nmf, states), hashlib.sha256()
    for level in nmf.levels if levels is None else levels:
        for kind in sorted(nmf.parts[level]):
            for part in nmf.parts[level][kind]:
                if part.state is None or part.state in wanted:
                    total.update(part.path.relative_to(nmf.folder).as_posix().encode())
                    total.update(file_digest(part.path).encode())
    return total.hexdigest()


def read_counts(
    nmf: NoisyMeasurements, region: Region, query: str, cells: Sequence[int]
) -> tuple[Ints, Floats]:
    """Return the counts of some cells at all units, shape (cells, units), and the noise of every unit; not measured: inf."""
    spine, wanted = region.spine, np.asarray(cells, np.int64)
    noisy, sigma2 = np.zeros((wanted.size, len(spine)), np.int64), np.full(len(spine), np.inf)
    anywhere = False
    for level in spine.levels:
        if query not in nmf.measured(level, region.states):
            continue
        anywhere = True
        units = spine.units(level)
        order = np.argsort(spine.geocodes[units])
        codes = spine.geocodes[units][order]
        for batch in nmf.batches(level, query, region.states):
            if not len(batch):
                continue
            place = np.searchsorted(codes, batch.geocode).clip(0, codes.size - 1)
            strange = np.flatnonzero(codes[place] != batch.geocode)
            if strange.size:
                odd = str(batch.geocode[strange[0]])
                msg = f"{level} {odd!r} was measured but is not in the spine of {region.name}: the files are of two releases"
                raise FileFormatError(msg, odd)
            here = units[order[place]]
            noisy[:, here] = batch.values[:, wanted].T
            sigma2[here] = batch.sigma2
    if not anywhere:
        there = ", ".join(nmf.measured(spine.levels[-1], region.states))
        msg = f"query {query!r} was measured at no level of {region.name}: at {spine.levels[-1]} there are {there}"
        raise FileFormatError(msg, query)
    return noisy, sigma2


def filled(
    nmf: NoisyMeasurements, query: str, todo: Iterator[tuple[int, Piece]]
) -> Iterator[tuple[int, Piece]]:
    """Read the counts of pieces, several at a time where they are of one region, in bounded memory."""
    waiting: list[tuple[int, Piece]] = []
    for number, piece in todo:
        size = sum(len(p.cells) for _, p in waiting) + len(piece.cells)
        if waiting and (waiting[0][1].region is not piece.region or size * len(piece.region.spine) > _READ):
            yield from _read(nmf, query, waiting)
            waiting = []
        waiting.append((number, piece))
    if waiting:
        yield from _read(nmf, query, waiting)


def first_cell(piece: Piece) -> Piece:
    """Return a piece of the first cell alone."""
    return replace(piece, cells=piece.cells[:1], rows=None if piece.rows is None else piece.rows[:1])


def _read(nmf: NoisyMeasurements, query: str, pieces: list[tuple[int, Piece]]) -> Iterator[tuple[int, Piece]]:
    cells = [c for _, p in pieces for c in p.cells]
    noisy, sigma2 = read_counts(nmf, pieces[0][1].region, query, cells)
    start = 0
    for number, piece in pieces:
        yield number, replace(piece, noisy=noisy[start : start + len(piece.cells)], sigma2=sigma2)
        start += len(piece.cells)


# ------------------------------------------------------------------------------------------ which targets
def read_targets(path: str | Path, size: int, known: int, prior: float) -> list[Target]:
    """Read a CSV table of targets: geocode or geoid, cell, and where they differ known and prior.

    Raises
    ------
    FileFormatError
        Names the line and the column.
    """
    file = Path(path)
    if not file.is_file():
        msg = f"there is no {str(path)!r}: give a .csv with columns geocode or geoid, cell, and known or prior if wanted"
        raise FileFormatError(msg, path)
    out = []
    with file.open(newline="", encoding="utf-8-sig") as handle:
        reader = csv.DictReader(handle)
        names = reader.fieldnames or []
        code = next((n for n in ("geocode", "geoid") if n in names), None)
        unknown = [n for n in names if n not in ("geocode", "geoid", "cell", "known", "prior")]
        if code is None or "cell" not in names or unknown:
            msg = f"{file.name}: columns {', '.join(map(str, names))}: geocode or geoid, cell, known and prior are read"
            raise FileFormatError(msg, names)
        for line, row in enumerate(reader, start=2):
            out.append(_target(row, code, file.name, line, (size, known, prior)))
    if not out:
        msg = f"{file.name} has no targets: one a row"
        raise FileFormatError(msg, path)
    return out


def _target(row: Mapping[str, Any], code: str, file: str, line: int, rest: tuple[int, int, float]) -> Target:
    size, known, prior = rest
    column = "cell"
    try:
        cell = int(row["cell"])
        column = "known"
        others = int(row["known"]) if row.get("known") else known
        column = "prior"
        p = float(row["prior"]) if row.get("prior") else prior
    except (TypeError, ValueError):
        msg = f"{file}, line {line}, column {column!r}: {row[column]!r} is no number: correct it"
        raise FileFormatError(msg, row[column]) from None
    wrong = [
        ("cell", cell, f"0..{size - 1}", 0 <= cell < size),
        ("known", others, "0 or more", others >= 0),
        ("prior", p, "in (0, 1)", 0 < p < 1),
    ]
    for name, value, rule, fine in wrong:
        if not fine:
            msg = f"{file}, line {line}, column {name!r}: {value} must be {rule}"
            raise FileFormatError(msg, value)
    return Target(str(row[code]), cell, others, p)


def pieces_of(
    region: Region, cells: Sequence[int], targets: Sequence[Target] | None, at_most: int
) -> Iterator[Piece]:
    """Cut a region's targets into pieces of about ``at_most``, whole cells each."""
    none, nothing = np.zeros((0, 0), np.int64), np.zeros(0)
    if targets is None:
        step = max(1, at_most // max(int(region.spine.leaves.size), 1))
        for start in range(0, len(cells), step):
            yield Piece(region, tuple(cells[start : start + step]), None, none, nothing)
        return
    by_cell: dict[int, list[tuple[int, Target]]] = {}
    for target in targets:
        by_cell.setdefault(target.cell, []).append((region.spine.index(target.code), target))
    chosen: list[int] = []
    rows: list[tuple[Ints, Ints, Floats]] = []
    for cell in sorted(by_cell):
        found = by_cell[cell]
        if chosen and sum(r[0].size for r in rows) + len(found) > at_most:
            yield Piece(region, tuple(chosen), tuple(rows), none, nothing)
            chosen, rows = [], []
        chosen.append(cell)
        rows.append(
            (
                np.array([u for u, _ in found], np.int64),
                np.array([t.known for _, t in found], np.int64),
                np.array([t.prior for _, t in found]),
            )
        )
    if chosen:
        yield Piece(region, tuple(chosen), tuple(rows), none, nothing)


def split_targets(targets: Sequence[Target], found: Sequence[Region]) -> dict[str, list[Target]]:
    """Targets of each region; a code that is in none, or in several, is refused."""
    out: dict[str, list[Target]] = {r.name: [] for r in found}
    known = [(r.name, {*r.spine.geocodes[r.spine.leaves].tolist()}) for r in found]
    long = {c[-16:]: (name, c) for name, codes in known for c in codes if len(c) > 16}
    for target in targets:
        code = target.code
        if len(code) == 15:
            code = code[:12] + code[11:]
        hit = [(name, code) for name, codes in known if code in codes] or [
            long[c] for c in (code,) if c in long
        ]
        if not hit:
            where = ", ".join(r.name for r in found)
            msg = f"{target.code!r} is no block of {where}: give its geocode or GEOID as text, zeros in front included"
            raise FileFormatError(msg, target.code)
        out[hit[0][0]].append(replace(target, code=hit[0][1]))
    return out
