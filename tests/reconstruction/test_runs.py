"""Answers of many blocks: kept whole, continued, the same for any number of processes, damage and strangers seen."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from adversary.errors import AdversaryError, ModelError
from adversary.reconstruction.runs import FAILED, QUESTION, answer_each, fingerprint

BLOCKS = [f"b{i}" for i in range(7)]
ASKED = {"what": "length", "tables": ("P1", "P2")}


@pytest.fixture
def length(monkeypatch):
    """The job, from a path that spawned processes are told."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("counting_job").Length


def asked(log) -> list[str]:
    found = log.read_text(encoding="utf-8").split() if log.exists() else []
    log.unlink(missing_ok=True)
    return sorted(found)


def test_a_run_that_was_stopped_goes_on_and_asks_nothing_twice(length, tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    job = length(str(log))
    first = answer_each(job, BLOCKS[:4], ASKED, out)
    assert asked(log) == BLOCKS[:4]
    (out / ".b9.json.77.part").write_text("half of", encoding="utf-8")  # a draft of a run that was killed
    everything = answer_each(job, BLOCKS, ASKED, out)
    assert asked(log) == BLOCKS[4:]
    assert list(everything) == BLOCKS
    assert {b: everything[b] for b in BLOCKS[:4]} == first
    assert sorted(p.name for p in out.iterdir()) == sorted([*(f"{b}.json" for b in BLOCKS), QUESTION])


def test_an_interrupted_loop_has_kept_what_was_done(tmp_path):
    class Stop(Exception):
        pass

    def job(block: str) -> dict[str, Any]:
        if block == "b3":
            raise Stop
        return {"status": "optimal"}

    with pytest.raises(Stop):
        answer_each(job, BLOCKS, ASKED, tmp_path / "out")
    assert sorted(p.stem for p in (tmp_path / "out").glob("b*.json")) == ["b0", "b1", "b2"]


def test_two_processes_give_the_answers_of_one(length, tmp_path):
    log = tmp_path / "log"
    one = answer_each(length(str(log)), BLOCKS, ASKED, tmp_path / "one")
    two = answer_each(length(str(log)), BLOCKS, ASKED, tmp_path / "two", processes=2)
    assert one == two
    for name in (*(f"{b}.json" for b in BLOCKS), QUESTION):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_process_that_dies_is_told_and_what_is_done_stays(length, tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    with pytest.raises(ModelError, match="a process died"):
        answer_each(length(str(log), "b6", fatal=True), BLOCKS, ASKED, out, processes=2)
    kept = {p.stem for p in out.glob("b*.json")}
    assert "b6" not in kept
    asked(log)
    answer_each(length(str(log)), BLOCKS, ASKED, out)
    assert set(asked(log)) == set(BLOCKS) - kept


@pytest.mark.parametrize("spoil", ["cut", "changed", "renamed", "empty", "list"])
def test_a_damaged_file_is_asked_again(length, tmp_path, spoil):
    log, out = tmp_path / "log", tmp_path / "out"
    answer_each(length(str(log)), BLOCKS, ASKED, out)
    asked(log)
    path = out / "b2.json"
    text = path.read_text(encoding="utf-8")
    spoilt = {
        "cut": text[: len(text) // 2],
        "changed": text.replace('"n": 2', '"n": 3'),
        "renamed": (out / "b5.json").read_text(encoding="utf-8"),
        "empty": "",
        "list": "[1]",
    }[spoil]
    assert spoilt != text
    path.write_text(spoilt, encoding="utf-8")
    found = answer_each(length(str(log)), BLOCKS, ASKED, out)
    assert asked(log) == ["b2"]
    assert found["b2"]["n"] == 2
    assert path.read_text(encoding="utf-8") == text


def test_a_folder_of_another_question_is_refused(length, tmp_path):
    job, out = length(str(tmp_path / "log")), tmp_path / "out"
    answer_each(job, BLOCKS, ASKED, out)
    with pytest.raises(ModelError, match=r"another question \(tables was \['P1', 'P2'\] and is \['P1'\]\)"):
        answer_each(job, BLOCKS, {**ASKED, "tables": ("P1",)}, out)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ModelError, match="not an empty folder"):
        answer_each(job, BLOCKS, ASKED, strange)
    (out / QUESTION).write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="another question"):
        answer_each(job, BLOCKS, ASKED, out)


def test_one_bad_block_is_named_and_asked_again_and_the_others_go_on(length, tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    found = answer_each(length(str(log), bad="b1"), BLOCKS, ASKED, out)
    assert found["b1"]["status"] == FAILED
    assert found["b1"]["error"] == "block b1 is bad: mend it"
    assert all(found[b]["status"] == "optimal" for b in BLOCKS if b != "b1")
    asked(log)
    assert answer_each(length(str(log)), BLOCKS, ASKED, out)["b1"]["status"] == "optimal"
    assert asked(log) == ["b1"]


def test_blocks_that_ended_at_a_limit_are_asked_again_only_when_it_is_raised(length, tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    answer_each(length(str(log), status="time limit"), BLOCKS, ASKED, out, seconds=1.0)
    asked(log)
    answer_each(length(str(log)), BLOCKS, ASKED, out, seconds=0.5)
    assert asked(log) == []
    answer_each(length(str(log)), BLOCKS, ASKED, out, seconds=2.0)
    assert asked(log) == BLOCKS
    answer_each(length(str(log)), BLOCKS, ASKED, out, seconds=9.0)
    assert asked(log) == []


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    out = tmp_path / "out"

    def job(block: str) -> dict[str, Any]:
        with pytest.raises(AdversaryError, match="another process is writing"):
            answer_each(lambda _: {"status": "optimal"}, BLOCKS, ASKED, out)
        return {"status": "optimal"}

    assert len(answer_each(job, BLOCKS[:1], ASKED, out)) == 1


def test_names_that_cannot_be_files_and_no_processes_are_refused(length, tmp_path):
    job = length(str(tmp_path / "log"))
    for names in (["../up"], ["a", "a"], [""], [".hidden"]):
        with pytest.raises(AdversaryError, match="cannot be kept"):
            answer_each(job, names, ASKED)
    with pytest.raises(AdversaryError, match="0 processes"):
        answer_each(job, BLOCKS, ASKED, processes=0)


def test_a_fingerprint_sees_every_change():
    base = {"a": [1, 2], "b": {"c": "x"}}
    assert fingerprint(base) == fingerprint(json.loads(json.dumps(base)))
    assert len({fingerprint(x) for x in (base, {"a": [2, 1], "b": {"c": "x"}}, {"a": [1, 2]})}) == 3


def test_the_bar_counts_what_was_there(length, tmp_path, capsys):
    job, out = length(str(tmp_path / "log")), tmp_path / "out"
    answer_each(job, BLOCKS[:5], ASKED, out)
    answer_each(job, BLOCKS, ASKED, out, progressbar=True)
    assert "7/7" in capsys.readouterr().err
