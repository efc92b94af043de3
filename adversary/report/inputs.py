"""What a report is made of: saved answers, studies, tables of targets; read, checked, and refused where they do not fit.

What it is: the only door into the report. A result or a study must carry its seal (:mod:`adversary.sealing`); a batch folder the
hashes of its parts; a CSV or Parquet table has no seal, so its own hash is printed for whoever keeps the original (a table
of ``adversary assess`` has one in the file beside it). What it is
not: a computation.

Held to account by ``tests/test_report.py``.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import check_hdf5
from adversary.batches.sources import file_digest, needs
from adversary.errors import FileFormatError, ScenarioError
from adversary.results import AttackResult
from adversary.sealing import unsealed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from adversary.release.measurement import Release

__all__ = ["Answer", "Inputs", "Study", "Table", "read_inputs"]

_ENDINGS = (
    ".nc (a result or a study), .csv or .parquet (a table with a column risk), or a folder of adversary batch"
)
_NEEDED = {
    *(
        "scenario",
        "origin",
        "target",
        "source",
        "question",
        "text",
        "signature",
        "code",
        "assumptions",
        "sampler",
        "seed",
    ),
    *("options", "versions", "release", "release_hash", "unused_evidence", "changes", "improper"),
}
_STUDY = {"prior", "posterior", "risk", "log_odds", "cut_off_bound"}


@dataclass(frozen=True)
class Answer:
    """One saved result.

    Parameters
    ----------
    name
        Name of its file, without the way to it.
    sha256
        Hash of its content.
    result
        The answer.
    """

    name: str
    sha256: str
    result: AttackResult


@dataclass(frozen=True)
class Study:
    """One saved study.

    Parameters
    ----------
    name
        Name of its file, without the way to it.
    sha256
        Hash of its content.
    data
        As :func:`adversary.studies.study` returns it.
    """

    name: str
    sha256: str
    data: xr.Dataset


@dataclass(frozen=True)
class Table:
    """One row a target.

    Parameters
    ----------
    name
        Name of its file or folder, without the way to it.
    sha256
        Hash of the file; of a batch, of its manifest.
    columns
        Name of column -> array of texts or numbers, all of one length; ``risk`` is among them.
    about
        What the file says of itself.
    sealed
        Whether every part was checked against a manifest.
    """

    name: str
    sha256: str
    columns: Mapping[str, np.ndarray]
    about: Mapping[str, str] = field(default_factory=dict)
    sealed: bool = False

    def __len__(self) -> int:
        return len(self.columns["risk"])


@dataclass(frozen=True)
class Inputs:
    """Everything one report is about.

    Parameters
    ----------
    answers, studies, tables
        In the order in which they were given.
    """

    answers: tuple[Answer, ...] = ()
    studies: tuple[Study, ...] = ()
    tables: tuple[Table, ...] = ()


def read_inputs(paths: Sequence[str | Path], *, release: Release | None = None) -> Inputs:
    """Read the files of a report.

    Parameters
    ----------
    paths
        Results and studies (``.nc``; of a study its folder will do), tables of ``adversary assess`` (``.csv``) or Parquet, and
        folders of ``adversary batch``.
    release
        What is published now; a result of another release is stale and refused.

    Returns
    -------
    Inputs
        What was read, checked against its seals.

    Raises
    ------
    FileFormatError
        For what is none of these, was edited, or carries no seal.
    ScenarioError
        For answers to another release than the one given, and studies that belong to none of the results.
    """
    answers: list[Answer] = []
    studies: list[Study] = []
    tables: list[Table] = []
    for path in map(Path, paths):
        found = _read(path)
        own: list[Any] = (
            answers if isinstance(found, Answer) else studies if isinstance(found, Study) else tables
        )
        own.append(found)
    said = [(a.name, a.result.attrs["release_hash"]) for a in answers]
    said += [(s.name, s.data.attrs["release_hash"]) for s in studies]
    for name, release_hash in said:
        if release is not None and release_hash != release.hash:
            msg = (
                f"{name} is stale: it answers another release than the one given; run it again on the new one"
            )
            raise ScenarioError(msg, name)
    for study in studies:
        if answers and not any(_of_one_question(study, a) for a in answers):
            msg = (
                f"{study.name} belongs to none of the results: scenario, target and release must be the same; run it again, "
                "or report it alone"
            )
            raise ScenarioError(msg, study.name)
    return Inputs(tuple(answers), tuple(studies), tuple(tables))


def _of_one_question(study: Study, answer: Answer) -> bool:
    return all(study.data.attrs[k] == answer.result.attrs[k] for k in ("scenario", "target", "release_hash"))


def _read(path: Path) -> Answer | Study | Table:
    if path.is_dir():
        if (path / "result.nc").is_file():
            return _netcdf(path / "result.nc", f"{path.name}/result.nc")
        if (path / "manifest.json").is_file():
            return _batch(path)
    if not path.exists():
        msg = f"{path}: there is no such file: give {_ENDINGS}"
        raise FileFormatError(msg, path)
    ending = path.suffix.lower()
    if ending == ".nc":
        return _netcdf(path, path.name)
    if ending in (".csv", ".parquet"):
        columns, about = (_csv(path), _about(path)) if ending == ".csv" else _parquet(path)
        sealed = ending == ".csv" and bool(about)
        return Table(path.name, file_digest(path), _checked(columns, path), about, sealed=sealed)
    msg = f"{path}: a report is made of {_ENDINGS}"
    raise FileFormatError(msg, path)


def _netcdf(path: Path, name: str) -> Answer | Study:
    import xarray as xr

    from adversary.sealing import content_hash

    check_hdf5(path)
    try:
        with xr.open_dataset(path, engine="h5netcdf") as opened:
            data = opened.load()
    except (OSError, ValueError, LookupError, RuntimeError, TypeError, AttributeError) as error:
        msg = f"{path}: not a saved result or study ({error})"
        raise FileFormatError(msg, path) from error
    if not set(data.data_vars) >= _STUDY:
        result = AttackResult.load(path)
        missing = sorted(_NEEDED - set(result.attrs))
        if "not_sealed" in result.attrs or missing:
            why = (
                f"does not say its {missing[0]} (it is of another kind, or of an older version)"
                if missing
                else "carries no seal"
            )
            msg = f"{path}: this result {why}, so the page cannot vouch for it: run it again and save it"
            raise FileFormatError(msg, path)
        return Answer(name, content_hash(result.tree), result)
    if not unsealed(data, path):
        msg = f"{path}: this study carries no seal, so nothing says that it was not edited: run it again"
        raise FileFormatError(msg, path)
    return Study(name, content_hash(data), data)


def _csv(path: Path) -> dict[str, list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        msg = f"{path}: cannot be read as CSV ({error})"
        raise FileFormatError(msg, path) from error
    head = rows[0] if rows else []
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(head):
            msg = f"{path}: line {line} has {len(row)} fields and the header {len(head)}"
            raise FileFormatError(msg, line)
    if len(set(head)) != len(head):
        msg = f"{path}: a column is there twice"
        raise FileFormatError(msg, head)
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(head)}


def _about(path: Path) -> dict[str, str]:
    """Return what `adversary assess` wrote beside its table; empty if there is nothing beside it."""
    beside = path.with_name(path.name + ".about.json")
    if not beside.is_file():
        return {}
    try:
        about = json.loads(beside.read_text(encoding="utf-8"))
        sha256 = about.pop("sha256")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        msg = f"{beside}: not what adversary assess writes beside a table ({error}): run it again"
        raise FileFormatError(msg, beside) from error
    if sha256 != file_digest(path):
        msg = f"{path}: the table is not the one that was written (its SHA-256 differs): run adversary assess again"
        raise FileFormatError(msg, path)
    return {
        k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
        for k, v in about.items()
        if v is not None
    }


def _parquet(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    needs("pyarrow", "a Parquet table")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        msg = f"{path}: cannot be read as Parquet ({error})"
        raise FileFormatError(msg, path) from error
    meta = {
        k.decode(): v.decode() for k, v in (found.schema.metadata or {}).items() if not k.startswith(b"ARROW")
    }
    return {n: found.column(n).to_numpy(zero_copy_only=False) for n in found.column_names}, meta


def _checked(columns: Mapping[str, Any], path: Path) -> dict[str, np.ndarray]:
    """Turn the columns that the report counts with into numbers; texts stay as they are."""
    if "risk" not in columns:
        msg = f"{path}: a table of targets has a column risk, and this one has {', '.join(columns) or 'no columns'}"
        raise FileFormatError(msg, path)
    out: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        if name in ("risk", "prior", "posterior", "log_odds") or name.startswith("noisy_"):
            try:
                out[name] = np.asarray(
                    [v or "nan" for v in values] if isinstance(values, list) else values, dtype=float
                )
            except (TypeError, ValueError) as error:
                msg = f"{path}: column {name} must hold numbers ({error})"
                raise FileFormatError(msg, name) from error
        else:
            out[name] = np.asarray([str(v) for v in values], dtype=object)
    if (out["risk"] < 0).any():
        msg = f"{path}: column risk must hold numbers >= 0 (or nan, where what she knows contradicts the counts)"
        raise FileFormatError(msg, "risk")
    return out


def _batch(folder: Path) -> Table:
    """Read the parts of a batch, each against the hash in its manifest."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        parts = [(str(p["file"]), str(p["sha256"])) for p in manifest["parts"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{path}: not the manifest of a batch ({error})"
        raise FileFormatError(msg, path) from error
    if not manifest.get("complete"):
        msg = f"{folder}: this batch is not finished: run it to its end"
        raise FileFormatError(msg, folder)
    columns: dict[str, list[np.ndarray]] = {}
    about: dict[str, str] = {}
    for name, sha256 in parts:
        part = folder / Path(name).name
        if not part.exists() or file_digest(part) != sha256:
            msg = f"{part}: this part is missing or was changed after it was written: run the batch again, which mends it"
            raise FileFormatError(msg, part)
        found, about = _parquet(part) if part.suffix == ".parquet" else _dataset(part)
        for column, values in found.items():
            columns.setdefault(column, []).append(values)
    joined = {k: np.concatenate(v) for k, v in columns.items()}
    return Table(folder.name, file_digest(path), _checked(joined, folder), about, sealed=True)


def _dataset(part: Path) -> tuple[dict[str, Any], dict[str, str]]:
    import xarray as xr

    how: dict[str, Any] = {"engine": "h5netcdf"}
    if part.suffix == ".zarr":
        needs("zarr", "a batch in zarr")
        how = {"engine": "zarr", "consolidated": False}
    with xr.open_dataset(part, **how) as opened:
        data = opened.load()
    like = data["risk"]
    columns = {
        str(n): data[n].broadcast_like(like).transpose(*like.dims).values.ravel() for n in data.variables
    }
    return columns, {str(k): str(v) for k, v in data.attrs.items()}
