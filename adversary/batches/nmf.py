"""``assess_nmf``: every block and cell of noisy measurement files attacked exactly, out of core.

What it is: for each chosen cell of one query, the exact posterior of each target on the tree of its state part, from every noisy
count of that cell at every level there; in pieces, written as Parquet parts into a folder, continued where it stopped.

What it is not: an attack with several queries at once. The other queries of the release, the levels above the states and bounds
other than "no facility of this type" also bear on a target; they are named in ``unused`` and not used. Nor is it what the
Bureau would find: the files carry noise, and so does the answer. On drawn (synthetic) releases the numbers say what such a
release would tell, nothing about a person.

Held to account by ``tests/batches/test_nmf_folder.py`` (killed and resumed, one process against two, a table of targets against
all, enumeration). Sources: Cumings-Menon et al., arXiv 2203.16654; Kazan & Reiter (arXiv 2204.04253), sec. 3.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import writing
from adversary._version import __version__
from adversary.batches import _nmf_pieces as _pieces
from adversary.batches.parts import Manifest, run_parts
from adversary.batches.sources import file_digest, needs
from adversary.errors import ReleaseError, ScenarioError
from adversary.readers.nmf import NoisyMeasurements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adversary.samplers.leaf_prior import LeafPrior

__all__ = ["NmfAssessment", "assess_nmf", "bytes_needed"]

_NEEDED = ("region", "cells", "bound", "ceiling", "sha256")
_AT_MOST = 250_000
_MEBI = 1 << 20
_BASE = 224 * _MEBI  # the program, and reading a file
_ROW = 600  # bytes of a target's row while a part is put together, text most of it


@dataclass(frozen=True)
class NmfAssessment:
    """What a run would do, or did.

    Attributes
    ----------
    folder
        Where the parts are; None for a plan without one.
    source
        The product's folder name.
    query, cells, states, levels
        What was attacked: the query, how many of its cells, state parts, levels used.
    targets, parts, done
        How many targets and parts, and parts that were there already.
    prior, known, leaf_prior
        What the adversary believes; of a table of targets, what holds where the table says nothing.
    unused
        What was published and not used.
    bytes_per_worker
        Peak memory of one worker, estimated.
    seconds
        Time it took, or (dry run) will take, scaled up from one cell.
    threshold
        R' above which a target is counted.
    found
        None for a dry run; else largest_posterior, largest_risk (value, geoid, cell), above_threshold, contradicted, mean_risk,
        ceiling, left_out_bound.
    """

    folder: Path | None
    source: str
    query: str
    cells: int
    states: tuple[str, ...]
    levels: tuple[str, ...]
    targets: int
    parts: int
    done: int
    prior: float
    known: int
    leaf_prior: str
    unused: tuple[str, ...]
    bytes_per_worker: int
    seconds: float
    threshold: float
    found: Mapping[str, Any] | None = None

    def summary(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        out = {k: getattr(self, k) for k in self.__dataclass_fields__}
        out |= {"folder": None if self.folder is None else str(self.folder), "unused": list(self.unused)}
        return out | {"states": list(self.states), "levels": list(self.levels), "dry_run": self.found is None}

    def lines(self) -> list[str]:
        """Return sentences."""
        there = f", {self.done} of them there already" if self.done else ""
        out = [
            f"{self.source}: {self.targets:,} targets (blocks of {', '.join(self.states)}; {self.cells:,} cells of "
            f"{self.query!r}) in {self.parts} parts{there}",
            f"assumed: prior {self.prior:g}, {self.known} others known, every other block ~ {self.leaf_prior}; used: this cell's "
            f"counts at {', '.join(self.levels)}",
            f"published and not used: {', '.join(self.unused) or 'nothing'}",
        ]
        if self.found is None:
            size = f"{self.bytes_per_worker / _MEBI:,.0f} MB a worker"
            return [*out, f"would take about {self.seconds:,.0f} s and {size} (scaled up from one cell)"]
        f = self.found
        top = f["largest_risk"]
        if f["contradicted"]:
            out.append(
                f"not answered: {f['contradicted']:,} targets whose block's own count is more than {_pieces.FAR:g} sigma from "
                "the persons known to be in it (known is wrong there)"
            )
        if top is None:
            return [*out, "there is no target with an answer: nothing to assess"]
        return [
            *out,
            f"largest posterior {f['largest_posterior']:.6f}; largest R' {top['risk']:.6f} in block {top['geoid']}, cell "
            f"{top['cell']}; mean R' {f['mean_risk']:.6f}; {f['above_threshold']:,} above {self.threshold:g}",
            f"guarantee: these counts keep the expected R' of every target below {f['ceiling']:.6f}, "
            "averaged over what she believes of other blocks; one release can exceed it",
            "targets are all blocks and cells asked for, whether anybody is there or not",
            f"left out of the sums: at most {f['left_out_bound']:.1e}; {self.seconds:,.1f} s; parts in {self.folder}",
        ]


def bytes_needed(units: int, cells: int, sigma2: float) -> int:
    """Estimate the peak memory of one worker, from above.

    Parameters
    ----------
    units
        Geounits of one tree.
    cells
        Cells whose counts are kept at a time.
    sigma2
        Noise of most leaves.

    Returns
    -------
    int
        Bytes. The messages of the tree (windows of about 2 sqrt(110 sigma2) counts) and the rows of a part are most of it.

    Examples
    --------
    >>> bytes_needed(26_700, 10, 10.09) // 2**20
    467
    """
    width = 2.0 * math.sqrt(110.0 * sigma2) + 8.0 if math.isfinite(sigma2) else 500.0
    return int(units * (48.0 * width + _ROW * cells)) + _BASE


def assess_nmf(  # noqa: PLR0913 - options of one call, all with defaults
    source: str | Path | NoisyMeasurements,
    out: str | Path | None = None,
    *,
    query: str = "detailed",
    cells: str | Sequence[int] = "all",
    targets: str | Path | None = None,
    known: int = 0,
    prior: float = 0.5,
    leaf_prior: str | LeafPrior = "flat",
    states: str | Sequence[str] | None = None,
    levels: Sequence[str] | None = None,
    threshold: float = 1.5,
    workers: int = 1,
    targets_a_part: int = _AT_MOST,
    tolerance: float = 1e-12,
    memory: int | None = None,
    dry_run: bool = False,
    progressbar: bool = False,
) -> NmfAssessment:
    """Attack every block in every chosen cell of noisy measurement files.

    Parameters
    ----------
    source
        Folder of a product, or the files opened.
    out
        Folder of ``part-000000.parquet`` and so on, and of ``manifest.json``. Where it has a manifest of the same question, only
        missing or damaged parts are done; of another question, it is refused. One process at a time may write there.
    query
        Which query's cells; the counts of other queries are not used.
    cells
        Places in the query's answer (C order), or ``"all"``.
    targets
        CSV of targets instead: geocode (or geoid) and cell, and known or prior where they differ.
    known, prior
        Others known to be in each target's block and cell, and the probability that she is there.
    leaf_prior
        Her prior on every other block's count: ``"flat"``, ``"poisson:MEAN"``, ``"geometric:RATIO"``, or a LeafPrior.
    states
        State parts: ``"44"`` for both, ``"044"`` for one, a list, or None for all. Each is a tree of its own.
    levels
        Levels to use, with the block level; fewer from the top need less memory (a county is then a tree of its own).
    threshold
        R' above which a target is counted.
    workers
        Processes. The bytes do not depend on it.
    targets_a_part
        About how many targets a part has; at least one cell of one state part.
    tolerance
        Bound asked of what the windows leave out.
    memory
        Bytes that may be used; default: what the system says is free.
    dry_run
        Measure one cell, write nothing.
    progressbar
        Show the parts.

    Returns
    -------
    NmfAssessment
        What was found, or what a dry run would do.

    Raises
    ------
    ScenarioError
        Where the folder holds the answer to another question or another process writes there, or a package is missing.
    ReleaseError
        For a query without such cells, an impossible prior, or more memory than there is.
    FileFormatError
        For files that cannot be read.

    Notes
    -----
    Whoever is published to be impossible (a block without a facility of the cell's institution type) has probability 0.
    Columns of a part: geocode, geoid, cell, noisy (the block's count, 0 where not measured), known, prior, posterior, log_odds,
    risk, decision, contradicted, count_mean, count_sd (of the block's count for one who knows nobody in it), ceiling. A target
    is ``contradicted``, and its answer NaN, where the block's own count is more than 6 sigma from what she is said to know.
    """
    needs("pyarrow", "reading and writing noisy measurement files")
    if workers < 1 or targets_a_part < 1:
        msg = f"workers and targets_a_part must be at least 1, got {workers} and {targets_a_part}"
        raise ScenarioError(msg, (workers, targets_a_part))
    if out is None and not dry_run:
        msg = "out is missing: name the folder of the parts, or ask for dry_run=True"
        raise ScenarioError(msg, out)
    run = _Run.of(
        source, query, cells, targets, states, levels, (known, prior, leaf_prior, tolerance), targets_a_part
    )
    if dry_run:
        return run.plan(None if out is None else Path(out), threshold, workers)
    return run.done(Path(out), threshold, workers, memory, progressbar)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Run:
    """The question, checked, with its files."""

    nmf: NoisyMeasurements
    ask: _pieces.Ask
    cells: tuple[int, ...]
    table: tuple[_pieces.Target, ...] | None
    states: Any
    levels: Sequence[str] | None
    at_most: int
    file: Path | None

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - all that assess_nmf was given
        cls,
        source: Any,
        query: str,
        cells: Any,
        targets: Any,
        states: Any,
        levels: Sequence[str] | None,
        believed: tuple[int, float, Any, float],
        at_most: int,
    ) -> _Run:
        nmf = source if isinstance(source, NoisyMeasurements) else NoisyMeasurements.open(source)
        known, prior, leaf_prior, tolerance = believed
        if nmf.histogram is None:
            msg = f"{nmf.folder.name} is of an unknown product: open it with histogram=, which says what its queries ask"
            raise ReleaseError(msg, nmf.product)
        if not 0 < prior < 1:
            msg = f"the prior probability must lie strictly between 0 and 1, got {prior}"
            raise ReleaseError(msg, prior)
        if isinstance(known, bool) or int(known) != known or known < 0:
            msg = f"known must be a whole number, not negative, got {known!r}"
            raise ReleaseError(msg, known)
        group = nmf.histogram.group(query)
        ask = _pieces.Ask(
            group.name, group.shape, int(known), float(prior), _pieces.parse_leaf_prior(leaf_prior), tolerance
        )
        table = None
        if targets is not None:
            table = tuple(_pieces.read_targets(targets, group.size, int(known), float(prior)))
            wanted = sorted({t.cell for t in table})
        else:
            wanted = _cells(cells, group.size, query)
        file = None if targets is None else Path(targets)
        return cls(nmf, ask, tuple(wanted), table, states, levels, at_most, file)

    # -------------------------------------------------------------------------------- the pieces
    def pieces(self) -> Iterator[_pieces.Piece]:
        """Every piece in order, counts not read yet."""
        found: Any = _pieces.regions(self.nmf, self.states, self.levels)
        mine = None
        if self.table is not None:
            found = list(found)
            mine = _pieces.split_targets(self.table, found)
        for region in found:
            yield from _pieces.pieces_of(
                region, self.cells, None if mine is None else mine[region.name], self.at_most
            )

    def head(self) -> dict[str, Any]:
        """Return what must be equal for two runs to give the same parts."""
        prior = self.ask.leaf_prior
        return {
            "adversary": __version__,
            "attack": "one cell of one query on the tree of a state part",
            "source": self.nmf.folder.name,
            "query": self.ask.query,
            "cells": list(self.cells),
            "targets": None if self.file is None else file_digest(self.file),
            "known": self.ask.known,
            "prior": self.ask.prior,
            "leaf_prior": [
                prior.name,
                None if math.isnan(prior.parameter) else prior.parameter,
                None if prior.table is None else prior.table.tolist(),
            ],
            "states": list(_names(_pieces.wanted_parts(self.nmf, self.states))),
            "levels": None if self.levels is None else list(self.levels),
            "allocation": None if self.nmf.allocation is None else str(self.nmf.allocation.total),
            "tolerance": self.ask.tolerance,
            "targets_a_part": self.at_most,
            "input": _pieces.input_digest(self.nmf, self.states, self.levels),
        }

    def _frame(self, threshold: float, found: Any, **more: Any) -> NmfAssessment:
        prior = self.ask.leaf_prior
        said = prior.name if math.isnan(prior.parameter) else f"{prior.name}({prior.parameter:g})"
        states = _pieces.wanted_parts(self.nmf, self.states)
        part = None if states[0] is None else (states[0],)
        spine_levels = (
            self.nmf.spine(part, self.levels).levels if "levels" not in more else more.pop("levels")
        )
        return NmfAssessment(
            source=self.nmf.folder.name,
            query=self.ask.query,
            cells=len(self.cells),
            states=_names(states),
            levels=tuple(spine_levels),
            prior=self.ask.prior,
            known=self.ask.known,
            leaf_prior=said,
            unused=self.unused(part, spine_levels),
            threshold=threshold,
            found=found,
            **more,
        )

    def unused(self, part: Any, levels: Sequence[str]) -> tuple[str, ...]:
        """Name queries, levels and bounds that were published and are not used."""
        queries = dict.fromkeys(
            q for level in levels for q in self.nmf.measured(level, part) if q != self.ask.query
        )
        out = [f"query {q!r}" for q in queries]
        out += [f"level {level}" for level in self.nmf.levels if level not in levels]
        zeros = " (but for bounds of 0)"
        names = _pieces.constraint_names(self.nmf, levels, self.states)
        out += [f"constraint {n!r}{zeros if n == 'hhgq_total_ub' else ''}" for n in names]
        return tuple(out)

    # -------------------------------------------------------------------------------- doing it
    def plan(self, folder: Path | None, threshold: float, workers: int) -> NmfAssessment:
        """Solve one cell of the largest piece's region; write nothing."""
        every = list(self.pieces())
        there = 0 if folder is None else len(Manifest(folder, self.head(), _NEEDED).parts)
        size, seconds = 0, 0.0
        if every:
            piece = max(every, key=lambda p: len(p.region.spine))
            one = _pieces.first_cell(piece)
            ((_, read),) = _pieces.filled(self.nmf, self.ask.query, iter([(0, one)]))
            start = time.perf_counter()
            self.ask.answer(read, 0)
            seconds = time.perf_counter() - start
            tracemalloc.start()
            self.ask.answer(read, 0)
            size = (
                tracemalloc.get_traced_memory()[1]
                + 80 * _MEBI
                + 16 * len(piece.cells) * len(piece.region.spine)
            )
            tracemalloc.stop()
            units = sum(len(p.region.spine) * len(p.cells) for p in every) / len(piece.region.spine)
            seconds *= units * (1 - there / len(every)) / workers
        return self._frame(
            threshold,
            None,
            folder=folder,
            targets=sum(p.targets for p in every),
            parts=len(every),
            done=there,
            bytes_per_worker=size,
            seconds=seconds,
        )

    def done(
        self, folder: Path, threshold: float, workers: int, memory: int | None, progressbar: bool
    ) -> NmfAssessment:
        """Do what is missing."""
        start = time.perf_counter()
        largest = 0
        with writing(folder):
            manifest = Manifest(folder, self.head(), _NEEDED)
            there = len(manifest.parts)
            todo = _pieces.filled(self.nmf, self.ask.query, self._missing(manifest, progressbar))
            sized = _Sized(todo, memory, workers)
            for number, record in run_parts(self.ask.write, sized.pieces(), folder, workers):
                manifest.add(number, record)
            largest = sized.largest
            manifest.finish()
        records = [manifest.parts[k] for k in sorted(manifest.parts)]
        return self._frame(
            threshold,
            _found(folder, records, threshold),
            folder=folder,
            targets=sum(r["targets"] for r in records),
            parts=len(records),
            done=there,
            bytes_per_worker=largest,
            seconds=time.perf_counter() - start,
        )

    def _missing(self, manifest: Manifest, progressbar: bool) -> Iterator[tuple[int, _pieces.Piece]]:
        pieces: Any = self.pieces()
        if progressbar:
            from tqdm import tqdm

            every = list(pieces)
            pieces = tqdm(every, unit="part")
        for number, piece in enumerate(pieces):
            manifest.seen = number + 1
            if number not in manifest.parts:
                yield number, piece


class _Sized:
    """Lets pieces through that memory holds, and remembers the largest."""

    def __init__(self, todo: Iterator[tuple[int, _pieces.Piece]], memory: int | None, workers: int) -> None:
        self.todo, self.memory, self.workers, self.largest = todo, memory, workers, 0

    def pieces(self) -> Iterator[tuple[int, _pieces.Piece]]:
        for number, piece in self.todo:
            spine = piece.region.spine
            noise = piece.sigma2[spine.leaves]
            noise = noise[np.isfinite(noise)]
            need = bytes_needed(
                len(spine), len(piece.cells), float(np.median(noise)) if noise.size else math.inf
            )
            free = _free() if self.memory is None else self.memory
            if free is not None and need * self.workers > free:
                msg = (
                    f"{piece.region.name} needs about {need / _MEBI:,.0f} MB for each of {self.workers} workers, and there are "
                    f"{free / _MEBI:,.0f} MB: use fewer workers, smaller parts, or fewer levels from the top (levels=)"
                )
                raise ReleaseError(msg, need)
            self.largest = max(self.largest, need)
            yield number, piece


def _cells(cells: Any, size: int, query: str) -> list[int]:
    if isinstance(cells, str):
        if cells != "all":
            msg = f"cells must be 'all' or whole numbers, got {cells!r}: for example [0, 1, 5]"
            raise ReleaseError(msg, cells)
        return list(range(size))
    wanted = sorted({int(c) for c in cells})
    if not wanted or wanted[0] < 0 or wanted[-1] >= size:
        bad = next((c for c in wanted if not 0 <= c < size), None)
        msg = (
            f"cell {bad} of {query!r} is not in 0..{size - 1}"
            if wanted
            else "no cell was named: name some, or 'all'"
        )
        raise ReleaseError(msg, bad)
    return wanted


def _names(parts: Sequence[str | None]) -> tuple[str, ...]:
    return tuple("all" if p is None else p for p in parts)


def _free() -> int | None:
    """Memory that the system says is available; None where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _found(folder: Path, records: Sequence[Mapping[str, Any]], threshold: float) -> dict[str, Any]:
    """Go through the parts once more, a part at a time."""
    import pyarrow.parquet as pq

    top, total, n, above, posterior, contradicted = None, [], 0, 0, 0.0, 0
    for record in records:
        table = pq.read_table(folder / record["file"], columns=["geoid", "cell", "risk", "posterior"])
        risk = table.column("risk").to_numpy()
        if not risk.size:
            continue
        contradicted += int(np.isnan(risk).sum())
        if np.isnan(risk).all():
            continue
        at = int(np.nanargmax(risk))
        if top is None or risk[at] > top["risk"]:
            top = {
                "risk": float(risk[at]),
                "geoid": table.column("geoid")[at].as_py(),
                "cell": int(table.column("cell")[at].as_py()),
            }
        sound = risk[~np.isnan(risk)]
        total.append(math.fsum(sound.tolist()))
        n, above = n + sound.size, above + int((sound > threshold).sum())
        posterior = max(posterior, float(np.nanmax(table.column("posterior").to_numpy())))
    return {
        "largest_posterior": posterior,
        "largest_risk": top,
        "above_threshold": above,
        "contradicted": contradicted,
        "mean_risk": math.fsum(total) / n if n else None,
        "ceiling": max((r["ceiling"] for r in records), default=0.0),
        "left_out_bound": max((r["bound"] for r in records), default=0.0),
    }
