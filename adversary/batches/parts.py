"""Parts in a folder: a manifest that says which part answers what, and a loop that writes them. Internal to batches.

What it is: what every run out of core has in common, whatever its pieces are: finished parts are not done again, another
question is refused, a part is there whole or not at all. What it is not: a source of pieces, or what answers them.

Held to account by ``tests/test_batches.py`` and ``tests/batches/test_nmf_folder.py``.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from adversary._files import end_with_parent, write_whole
from adversary.batches.sources import file_digest
from adversary.errors import FileFormatError, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["MANIFEST", "Manifest", "run_parts"]

MANIFEST = "manifest.json"


class Manifest:
    """``manifest.json``: the question, and each part with the hash of its input and of its bytes.

    Parameters
    ----------
    folder
        Where the parts are. Where it has a manifest of another question, it is refused; parts that are missing or damaged
        are forgotten, and so done again.
    head
        The question: whatever must be equal for two runs to give the same parts.
    needed
        What a part's record must have, beside its file and targets.
    """

    def __init__(
        self, folder: Path, head: Mapping[str, Any], needed: Sequence[str] = ("engine", "input", "sha256")
    ) -> None:
        self.folder, self.head = folder, dict(head)
        self.parts: dict[int, dict[str, Any]] = {}
        self.seen = 0
        path = folder / MANIFEST
        if not path.is_file():
            return
        old = _read_manifest(path)
        wrong = [k for k, v in self.head.items() if old.get(k) != v]
        if wrong:
            msg = (
                f"{folder} holds the answer to another question ({wrong[0]} was {old.get(wrong[0])!r} and is "
                f"{self.head[wrong[0]]!r}): give another folder, or delete this one"
            )
            raise ScenarioError(msg, wrong)
        for record in old["parts"]:
            if not _is_record(record, needed):
                continue
            file = folder / record["file"]
            if file.exists() and file_digest(file) == record["sha256"]:
                self.parts[int(file.stem[5:])] = record

    def add(self, number: int, record: dict[str, Any]) -> None:
        """Remember a part; the file is replaced in one step.

        Parameters
        ----------
        number
            Number of the part.
        record
            Its file, hash and number of targets.
        """
        self.parts[number] = record
        self._write(complete=False)

    def finish(self) -> None:
        """Say that nothing is missing; parts of a longer, earlier iterator are taken away."""
        for number in [k for k in self.parts if k >= self.seen]:
            stale = self.folder / self.parts.pop(number)["file"]
            if stale.is_dir():
                shutil.rmtree(stale)
            else:
                stale.unlink(missing_ok=True)
        self._write(complete=True)

    def _write(self, *, complete: bool) -> None:
        parts = [self.parts[k] for k in sorted(self.parts)]
        text = json.dumps({**self.head, "complete": complete, "parts": parts}, indent=1, ensure_ascii=False)
        write_whole(self.folder / MANIFEST, text + "\n")


def _read_manifest(path: Path) -> dict[str, Any]:
    """Read what a folder holds, or refuse: a folder that cannot be understood is not written over."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("parts"), list):
            return found
        why = "no parts are listed"
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    msg = f"{path}: not the manifest of a batch ({why}): give another folder, or delete this one"
    raise FileFormatError(msg, path)


def _is_record(record: Any, needed: Sequence[str]) -> bool:
    """Whether an entry of a manifest names a part of this folder; any other part is computed again."""
    return (
        isinstance(record, dict)
        and re.fullmatch(r"part-\d{6,}\.\w+", str(record.get("file"))) is not None
        and isinstance(record.get("targets"), int)
        and set(needed) <= set(record)
    )


def run_parts(
    write: Callable[[Any, Path, int], dict[str, Any]],
    todo: Iterator[tuple[int, Any]],
    folder: Path,
    workers: int,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Write parts here or in several processes, in order, and yield each with its record.

    Parameters
    ----------
    write
        Takes a piece, the folder and the part's number; writes the file whole or not at all; returns the record. Pickled where
        there are several workers.
    todo
        Numbers and pieces.
    folder
        Drafts that a killed run left there are taken away first.
    workers
        Processes; at most two pieces a worker are under way.

    Yields
    ------
    tuple of int and dict
        A part's number and its record, once the file is in its place.
    """
    for draft in (
        *folder.glob(".part-*"),
        *folder.glob(f".{MANIFEST}.*"),
    ):  # left behind by a run that was killed
        with contextlib.suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
    if workers == 1:
        for number, piece in todo:
            yield number, write(piece, folder, number)
        return
    waiting: deque[tuple[int, Future[dict[str, Any]]]] = deque()
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=end_with_parent) as pool:
        for number, piece in todo:
            waiting.append((number, pool.submit(write, piece, folder, number)))
            if len(waiting) >= 2 * workers:  # memory is bounded by the pieces under way
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
