"""Many targets out of core: parts in a folder, written whole or not at all, continued where they stopped.

What it is: a loop over pieces of a source, in this process or in several, and a manifest that says which part answers which
piece of which input. The bytes are the same for any number of workers: a part depends on its piece alone. What it is not: a
scheduler for several machines (use dask through :func:`adversary.batch`; the parts' names leave room for it).

Held to account by ``tests/test_batches.py`` (killed and resumed; one worker against two; a changed input).
"""

from __future__ import annotations

import hashlib
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import whole, write_netcdf, writing
from adversary._version import __version__
from adversary.batches.many import batch
from adversary.batches.parts import Manifest, run_parts
from adversary.batches.sources import digest_of, file_digest, needs, open_source
from adversary.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import xarray as xr

    from adversary.language import Scenario

__all__ = ["BatchPlan", "batch_to_folder"]

_SUFFIX = {"netcdf": ".nc", "parquet": ".parquet", "zarr": ".zarr"}


@dataclass(frozen=True)
class BatchPlan:
    """What a run would do, or did.

    Parameters
    ----------
    folder
        Where the parts are.
    targets, parts
        How many; None where the source is an iterator that was not run through.
    done
        Parts that were there already.
    engine
        What answers the first targets.
    bytes_per_worker, seconds
        Peak memory of one worker and time on all workers, scaled up from a measured sample (dry run), or the seconds it took.
    """

    folder: Path
    targets: int | None
    parts: int | None
    done: int
    engine: str
    bytes_per_worker: int | None
    seconds: float

    def lines(self) -> list[str]:
        """Return sentences."""
        count = "an unknown number of" if self.targets is None else f"{self.targets:,}"
        parts = "" if self.parts is None else f" in {self.parts} parts, {self.done} of them there already"
        out = [f"{count} targets{parts}, in {self.folder}", f"answered by: {self.engine}"]
        if self.bytes_per_worker is not None:
            out.append(
                f"about {self.bytes_per_worker / 1e6:,.0f} MB a worker, {self.seconds:,.1f} s (scaled up from a sample)"
            )
        else:
            out.append(f"{self.seconds:,.1f} s")
        return out


def batch_to_folder(  # noqa: PLR0913 - options of one call, all with defaults
    scenario: Scenario,
    source: Any,
    out: str | Path,
    *,
    chunk: int = 100_000,
    workers: int = 1,
    form: str | None = None,
    carry: Sequence[str] = (),
    tolerance: float = 1e-12,
    dry_run: bool = False,
    progressbar: bool = False,
) -> BatchPlan:
    """Answer one attack on more targets than memory holds.

    Parameters
    ----------
    scenario, tolerance
        As for :func:`adversary.batch`.
    source
        Path (``.parquet``, ``.nc``, ``.zarr``, ``.csv``), dataset, mapping of arrays, or iterator of datasets, with the variables
        of :func:`adversary.batch`.
    out
        Folder of ``part-000000.nc`` and so on, and of ``manifest.json``. Where it has a manifest of the same question, only
        missing or damaged parts are computed.
    chunk
        Targets a part. Below 1e5 the cost of a part shows.
    workers
        Processes. The bytes do not depend on it.
    form
        ``"netcdf"``, ``"parquet"`` or ``"zarr"``; that of the source by default.
    carry
        Columns that are copied to the answer and are neither published nor assumed, such as an identifier.
    dry_run
        Measure a sample, write nothing.
    progressbar
        Show the parts.

    Returns
    -------
    BatchPlan
        What was done, with the number of targets and parts.

    Raises
    ------
    ScenarioError
        Where the folder holds the answer to another question, or a package is missing.

    Examples
    --------
    >>> import tempfile
    >>> from adversary import load
    >>> data = {"block": [2, 0, 7], "block_sigma2": [5.0, 5.0, 5.0]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plan = batch_to_folder(load("single_level"), data, folder, chunk=2)
    >>> plan.targets, plan.parts, plan.engine
    (3, 2, 'closed form, one level')
    """
    if chunk < 1 or workers < 1:
        msg = f"chunk and workers must be at least 1, got {chunk} and {workers}"
        raise ScenarioError(msg, (chunk, workers))
    form = form or _SUFFIX_FORM.get(Path(source).suffix if isinstance(source, str | Path) else "", "netcdf")
    if form not in _SUFFIX:
        msg = f"form must be one of {', '.join(_SUFFIX)}, got {form!r}"
        raise ScenarioError(msg, form)
    if form != "netcdf":
        needs({"parquet": "pyarrow", "zarr": "zarr"}[form], f"writing {form}")
    data = open_source(source, chunk)
    folder = Path(out)
    job = _Job(scenario, tuple(carry), tolerance, form)
    parts = None if data.targets is None else -(-data.targets // chunk)
    head = {
        "adversary": __version__,
        "scenario": scenario.name,
        "assumptions": {k: repr(v) for k, v in scenario.assumptions.items()},
        "declaration": _declaration(scenario),
        "input": data.identity,
        "chunk": chunk,
        "form": form,
        "tolerance": tolerance,
        "carry": list(carry),
    }
    if dry_run:
        there = len(Manifest(folder, head).parts)
        return _measure(job, data.pieces(), folder, data.targets, parts, there, chunk, workers)
    start = time.perf_counter()
    engines: dict[str, None] = {}
    with writing(folder):
        manifest = Manifest(folder, head)
        done = len(manifest.parts)
        todo = _todo(data.pieces(), manifest, job, parts if progressbar else -1)
        for number, record in run_parts(job.write, todo, folder, workers):
            manifest.add(number, record)
        for record in manifest.parts.values():
            engines.update(dict.fromkeys([record["engine"]]))
        manifest.finish()
    found = sum(r["targets"] for r in manifest.parts.values())
    seconds = time.perf_counter() - start
    return BatchPlan(folder, found, len(manifest.parts), done, ", ".join(engines), None, seconds)


def _declaration(scenario: Scenario) -> str:
    """SHA-256 of the scenario's code and of its assumptions to the last digit: what ``repr`` shortens is in it."""
    import cloudpickle

    code = scenario.function.__code__
    parts = [code.co_code, repr((code.co_names, code.co_varnames, _constants(code))).encode()]
    for name, value in sorted(scenario.assumptions.items()):
        parts.append(name.encode())
        identity = getattr(value, "_identity", None)
        plain = isinstance(value, np.ndarray | list)
        parts.append(
            repr(identity).encode()
            if identity is not None
            else np.asarray(value).tobytes()
            if plain
            else cloudpickle.dumps(value)
        )
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()


def _constants(code: Any) -> list[Any]:
    """Constants of a function, those of the functions inside it too; code objects have addresses in their repr."""
    return [(c.co_code.hex(), _constants(c)) if hasattr(c, "co_code") else c for c in code.co_consts]


_SUFFIX_FORM = {".parquet": "parquet", ".zarr": "zarr"}


@dataclass(frozen=True)
class _Job:
    """What a worker needs; pickled once a part."""

    scenario: Scenario
    carry: tuple[str, ...]
    tolerance: float
    form: str

    def file(self, number: int) -> str:
        return f"part-{number:06d}{_SUFFIX[self.form]}"

    def answer(self, piece: xr.Dataset) -> xr.Dataset:
        found = batch(self.scenario, piece.drop_vars(list(self.carry)), tolerance=self.tolerance)
        return found.assign({name: piece[name] for name in self.carry})

    def write(self, piece: xr.Dataset, folder: Path, number: int) -> dict[str, Any]:
        """Answer a piece and put the part in its place in one step."""
        answer = self.answer(piece)
        final = folder / self.file(number)
        if self.form == "netcdf":
            write_netcdf(final, answer)
        else:
            with whole(final) as draft:
                if self.form == "parquet":
                    _to_parquet(answer, draft)
                else:
                    answer.to_zarr(draft, mode="w", consolidated=False)
        return {
            "file": final.name,
            "targets": int(answer["risk"].size),
            "engine": answer.attrs["engine"],
            "input": digest_of(piece),
            "sha256": file_digest(final),
        }


def _to_parquet(answer: xr.Dataset, draft: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    like = answer["risk"]
    columns = {
        str(n): answer[n].broadcast_like(like).transpose(*like.dims).values.ravel() for n in answer.variables
    }
    table = pa.table(columns).replace_schema_metadata({k: str(v) for k, v in answer.attrs.items()})
    pq.write_table(table, draft)


def _todo(
    pieces: Iterator[xr.Dataset], manifest: Manifest, job: _Job, total: int | None
) -> Iterator[tuple[int, xr.Dataset]]:
    """Yield the pieces that no sound part answers yet."""
    if total != -1:
        from tqdm import tqdm

        pieces = iter(tqdm(pieces, total=total, unit="part"))
    for number, piece in enumerate(pieces):
        manifest.seen = number + 1
        record = manifest.parts.get(number)
        # the whole input has one hash where it is a file; pieces of an iterator are compared one by one
        if record is not None and (manifest.head["input"] is not None or record["input"] == digest_of(piece)):
            continue
        missing = [c for c in job.carry if c not in piece]
        if missing:
            msg = f"the targets have no column {missing[0]!r} to carry: they have {', '.join(map(str, piece.variables))}"
            raise ScenarioError(msg, missing)
        yield number, piece


def _measure(  # noqa: PLR0913, PLR0917 - all that the plan repeats
    job: _Job,
    pieces: Iterator[xr.Dataset],
    folder: Path,
    targets: int | None,
    parts: int | None,
    done: int,
    chunk: int,
    workers: int,
) -> BatchPlan:
    """Time a sample of the first piece: few targets where the exact engine answers, many where a closed form does."""
    piece = next(pieces, None)
    if piece is None:
        return BatchPlan(folder, 0, 0, done, "nothing", 0, 0.0)
    dim = max(piece.sizes, key=lambda d: piece.sizes[d]) if piece.sizes else None

    def first(n: int) -> xr.Dataset:
        return piece if dim is None else piece.isel({dim: slice(0, n)})

    engine = job.answer(first(2)).attrs["engine"]
    sample = first(8 if "exact" in engine else 20_000)
    job.answer(sample)  # reads the models of this sample's known numbers, so that the clock does not
    start = time.perf_counter()
    answer = job.answer(sample)
    seconds = time.perf_counter() - start
    tracemalloc.start()
    job.answer(sample)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    n = max(int(answer["risk"].size), 1)
    left = (targets or 0) * (1 - done / parts if parts else 1)
    size = int(piece.nbytes + peak / n * min(chunk, targets or chunk))
    return BatchPlan(folder, targets, parts, done, engine, size, seconds / n * left / workers)
