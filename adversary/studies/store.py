"""The folder of a study: chunks written whole or not at all, a manifest, a lock.

A study that is killed leaves whole chunks and at most one temporary file, which the next run removes; run again, it
computes the chunks that are missing and ends with the same bytes as a run that was never killed. What it is not: a
database; a folder holds one study, and another study is refused.

Held to account by ``tests/test_studies.py``.
"""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import LOCK, write_whole, writing
from adversary.errors import FileFormatError, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Store"]

MANIFEST = "manifest.json"
PART = ".part"


class Store:
    """One study's folder, held by one process at a time.

    Parameters
    ----------
    folder
        Made where it does not exist.
    manifest
        What the study is: plain JSON values, with a ``"hash"`` that decides whether a folder belongs to it.

    Raises
    ------
    ScenarioError
        Where the folder belongs to another study, holds files but no study, or is being written by another process.
    """

    def __init__(self, folder: str | Path, manifest: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.manifest = dict(manifest)

    @contextlib.contextmanager
    def open(self) -> Iterator[Store]:
        """Hold the folder's lock for as long as the block runs.

        Yields
        ------
        Store
            This one, with the folder made and its manifest checked.
        """
        if self.folder.exists() and not self.folder.is_dir():
            msg = f"{self.folder} is a file: give a folder for the study"
            raise ScenarioError(msg, self.folder)
        self._refuse_other_files()
        with writing(self.folder):
            self._check_manifest()
            for left_over in self.folder.glob(f".*{PART}"):
                left_over.unlink()
            yield self

    def _refuse_other_files(self) -> None:
        if self.folder.is_dir() and not (self.folder / MANIFEST).exists():
            others = [p.name for p in self.folder.iterdir() if p.name != LOCK and not p.name.endswith(PART)]
            if others:
                msg = f"{self.folder} holds {sorted(others)[0]!r} and no study: give an empty folder, or a new one"
                raise ScenarioError(msg, self.folder)

    def _check_manifest(self) -> None:
        path = self.folder / MANIFEST
        if not path.exists():
            write_whole(path, (json.dumps(self.manifest, indent=1, sort_keys=True) + "\n").encode())
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            msg = f"{path}: not a manifest of a study ({error}): give another folder"
            raise FileFormatError(msg, path) from error
        if not isinstance(found, dict):
            msg = f"{path}: not a manifest of a study (it is a {type(found).__name__}): give another folder"
            raise FileFormatError(msg, path)
        if found.get("hash") != self.manifest["hash"]:
            differs = [k for k in self.manifest if k != "hash" and found.get(k) != self.manifest[k]]
            what = ", ".join(differs) or "the assumptions"
            msg = f"{self.folder} holds another study ({what} differ): give a new folder, or take the old one away"
            raise ScenarioError(msg, self.folder)

    def path(self, chunk: int) -> Path:
        """Return the file of one chunk."""
        return self.folder / f"chunk_{chunk:06d}.npz"

    def read(self, chunk: int) -> dict[str, np.ndarray] | None:
        """Return a finished chunk, or None."""
        path = self.path(chunk)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as data:
                return {k: data[k] for k in data.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            msg = f"{path}: not a chunk of a study ({error}): remove it, and run the study again"
            raise FileFormatError(msg, path) from error

    def write(self, chunk: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write one chunk; NumPy's archives carry no time of day, so equal arrays give equal bytes."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_whole(self.path(chunk), buffer.getvalue())
