"""The same question of many blocks: one file a block, written whole or not at all, continued where it stopped.

What it is: a loop over blocks, in this process or in several, that keeps every answer as ``<block>.json`` as
soon as it is there. A block that cannot be answered ends with a status and the next one goes on. Answers do
not depend on the number of processes. What it is not: a scheduler for several machines, or a solver; one
run holds a folder at a time.

Held to account by tests/reconstruction/test_runs.py (stopped and continued; one process against two; damaged
and foreign files).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversary._files import LOCK, end_with_parent, write_whole, writing
from adversary.errors import AdversaryError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Job = Callable[[str], dict[str, Any]]

__all__ = ["FAILED", "QUESTION", "answer_each", "fingerprint"]

QUESTION = "question.json"
"""File of a folder that says what its answers answer."""
FAILED = "error"
"""Status of a block whose question raised an error; it is asked again in the next run."""
_LIMITED = frozenset({"time limit", "feasible with gap", "undecided", FAILED})


def fingerprint(what: Mapping[str, Any]) -> str:
    """Return the SHA-256 of something that can be written as JSON, however its keys are ordered.

    Parameters
    ----------
    what
        Plain values, as JSON holds them.

    Examples
    --------
    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(what, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def answer_each(
    job: Job,
    blocks: Sequence[str],
    question: Mapping[str, Any],
    out: str | Path | None = None,
    *,
    seconds: float | None = None,
    processes: int = 1,
    progressbar: bool = False,
) -> dict[str, dict[str, Any]]:
    """Answer one question for every block.

    Parameters
    ----------
    job
        From the name of a block to its answer, which can be written as JSON and has a ``status``. With
        several processes it is pickled, so that it must be a class or a function of a module.
    blocks
        Names of the blocks, each once; letters, digits, dots, dashes.
    question
        What is asked, of which input: whatever changes an answer, as JSON. A folder holds the answers to one
        question only.
    out
        Folder of the answers; None to keep them in memory. Blocks that it has are not asked again, unless
        their file is damaged, or they ended at a limit that has been raised since.
    seconds
        Time limit of a block, to know which are worth asking again; not part of the question.
    processes
        1 or more; new processes are spawned, not forked.
    progressbar
        Show how many blocks are done.

    Returns
    -------
    dict
        The answers by block, in the order of ``blocks``.

    Raises
    ------
    ModelError
        If a block occurs twice, the folder holds the answer to another question, or a process dies.
    FileFormatError, ScenarioError
        If the folder cannot be written, or another run is writing there.

    Examples
    --------
    >>> found = answer_each(lambda block: {"status": "optimal", "n": len(block)}, ["a", "bb"], {"ask": "n"})
    >>> found["bb"]
    {'status': 'optimal', 'n': 2}
    """
    names = list(blocks)
    _check(names, processes)
    mark = fingerprint(question)
    done: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        folder = None if out is None else _open(Path(out), question, stack)
        if folder is not None:
            for name in names:
                kept = _read(folder / f"{name}.json", mark, seconds)
                if kept is not None:
                    done[name] = kept
        todo = [name for name in names if name not in done]
        for name, answer in _bar(_run(job, todo, processes), len(names), len(done), show=progressbar):
            done[name] = answer
            if folder is not None:
                record = {"question": mark, "block": name, "limit": seconds, "answer": answer}
                _write(folder / f"{name}.json", {**record, "sha256": fingerprint(record)})
    return {name: done[name] for name in names}


def _check(names: Sequence[str], processes: int) -> None:
    odd = [name for name in names if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.\-]*", name)]
    if odd or len(set(names)) != len(names):
        twice = odd or sorted(name for name in set(names) if names.count(name) > 1)
        msg = f"block {twice[0]!r} cannot be kept: names are letters, digits, dots and dashes, each once"
        raise ModelError(msg, twice)
    if processes < 1:
        msg = f"{processes} processes do nothing: give 1 or more"
        raise ModelError(msg, processes)


def _open(folder: Path, question: Mapping[str, Any], stack: contextlib.ExitStack) -> Path:
    """Make the folder, or make sure that it holds answers to this question; hold it while the run lasts."""
    path = folder / QUESTION
    strangers = folder.is_dir() and any(p.name != LOCK for p in folder.iterdir())
    if not path.is_file() and strangers:
        msg = f"{folder} is not an empty folder, and holds no {QUESTION}: give another name"
        raise ModelError(msg, str(folder))
    stack.enter_context(writing(folder))
    if not path.is_file():
        _write(path, question)
        return folder
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        old = None
    asked = json.loads(json.dumps(question))  # as JSON, since tuples come back as lists
    if old != asked:
        known = old if isinstance(old, dict) else {}
        wrong = next((k for k in {**asked, **known} if known.get(k) != asked.get(k)), QUESTION)
        msg = (
            f"{folder} holds the answers to another question ({wrong} was {known.get(wrong)!r} and is"
            f" {asked.get(wrong)!r}): give another folder, or delete this one"
        )
        raise ModelError(msg, wrong)
    for draft in folder.glob(".*.part"):  # left behind by a run that was killed
        with contextlib.suppress(OSError):
            draft.unlink()
    return folder


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _read(path: Path, mark: str, seconds: float | None) -> dict[str, Any] | None:
    """Return a kept answer; None if there is none, it is damaged, or it is worth asking again."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        answer: dict[str, Any] = record["answer"]
        sound = record.pop("sha256") == fingerprint(record) and record["question"] == mark
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not sound or f"{record['block']}.json" != path.name or answer["status"] == FAILED:
        return None
    limited = bool(_LIMITED & {v for k, v in answer.items() if k.endswith("status")})
    before = record["limit"]
    raised = before is not None and (seconds is None or seconds > before)
    return None if limited and raised else answer


def _guarded(job: Job, name: str) -> tuple[str, dict[str, Any]]:
    """Answer one block; an error raised on purpose is its answer, so that the next block goes on."""
    start = time.perf_counter()
    try:
        return name, job(name)
    except AdversaryError as error:
        seconds = time.perf_counter() - start
        return name, {"status": FAILED, "error": str(error), "seconds": round(seconds, 4)}


class _Worker:
    """Holds the job of a spawned process, so that its input is pickled once and not once a block."""

    job: Job | None = None

    @classmethod
    def take(cls, job: Job) -> None:
        end_with_parent()
        cls.job = job

    @classmethod
    def answer(cls, name: str) -> tuple[str, dict[str, Any]]:
        if cls.job is None:
            msg = f"block {name} was sent to a process without a job"
            raise ModelError(msg, name)
        return _guarded(cls.job, name)


def _run(job: Job, todo: Sequence[str], processes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    if processes == 1 or len(todo) < 2:
        for name in todo:
            yield _guarded(job, name)
        return
    workers = min(processes, len(todo))
    with ProcessPoolExecutor(workers, get_context("spawn"), _Worker.take, (job,)) as pool:
        futures = [pool.submit(_Worker.answer, name) for name in todo]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            msg = "a process died (out of memory?): what is done is kept, run again with fewer processes"
            raise ModelError(msg, processes) from None
        finally:
            for future in futures:
                future.cancel()


def _bar(
    answers: Iterator[tuple[str, dict[str, Any]]], total: int, done: int, *, show: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    if not show:
        yield from answers
        return
    from tqdm import tqdm

    yield from tqdm(answers, total=total, initial=done, unit="block")
