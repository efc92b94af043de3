"""An attack on noisy measurement files in pieces: the same numbers as in memory, the same bytes however it was done."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from adversary._files import writing
from adversary.batches.nmf import assess_nmf, bytes_needed
from adversary.errors import FileFormatError, ReleaseError, ScenarioError
from adversary.geography.blocks import BlockTable
from adversary.geography.das import optimized_spine
from adversary.geography.plans import level_shares
from adversary.privacy.budget import Allocation
from adversary.readers.nmf import NoisyMeasurements
from adversary.readers.nmf_write import write_nmf
from adversary.readers.population import BlockCounts, synthetic_counts
from adversary.release.queries import PL94_PERSONS, Histogram
from adversary.samplers.leaf_prior import LeafPrior
from adversary.spine_attack import SpineCounts, attack_blocks

pq = pytest.importorskip("pyarrow.parquet")
SMALL = Histogram({"age": 2, "race": 3})
MIX = {"total": "1/4", "age": "1/4", "detailed": "1/2"}


@pytest.fixture(scope="session")
def release(tmp_path_factory):
    """Two states, a few blocks inside an AIAN area."""
    ids = [f"{s}001{t:06d}{g}00{b}" for s in ("01", "44") for t in (1, 2) for g in (1, 2) for b in range(5)]
    aian = ["0100" if i.endswith("2004") else "" for i in ids]
    table = BlockTable(ids, aiannhce=aian, cousub=["11111"] * len(ids), place=["22222"] * len(ids))
    levels = ("nation", "state", "county", "tract", "block_group", "block")
    budget = Allocation("2", dict.fromkeys(levels, "1/6"), dict.fromkeys(levels, MIX))
    spine = optimized_spine(table, level_shares(budget))
    counts = synthetic_counts(spine, SMALL, seed=1, mean=8.0)
    folder = tmp_path_factory.mktemp("nmf")
    return write_nmf(folder / "r", spine, counts, budget, seed=7).folder


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def rows(folder):
    names = sorted(p.name for p in folder.glob("part-*.parquet"))
    tables = [pq.read_table(folder / n).to_pydict() for n in names]
    return {k: [v for t in tables for v in t[k]] for k in tables[0]}


def test_the_parts_hold_what_the_tree_of_each_state_part_says_in_memory(release, tmp_path):
    done = assess_nmf(
        release, tmp_path / "a", prior=0.25, known=1, leaf_prior="geometric:0.6", targets_a_part=40
    )
    nmf = NoisyMeasurements.open(release)
    assert done.states == nmf.states
    assert "US" not in done.levels
    assert {"query 'total'", "query 'age'", "level US"} <= set(done.unused)
    found = rows(tmp_path / "a")
    at = {(g, c): i for i, (g, c) in enumerate(zip(found["geocode"], found["cell"], strict=True))}
    assert done.targets == len(at) == 40 * 6
    for part in nmf.states:
        spine = nmf.spine((part,))
        for cell in (0, 5):
            noisy, sigma2 = np.zeros(len(spine), np.int64), np.full(len(spine), math.inf)
            for level in spine.levels:
                if "detailed" not in nmf.measured(level, (part,)):
                    continue
                answers = nmf.cell(level, "detailed", cell, (part,))
                for code, value, s2 in zip(answers.geocode, answers.values, answers.sigma2, strict=True):
                    unit = spine.index(str(code), level)
                    noisy[unit], sigma2[unit] = value, s2
            counts = SpineCounts(spine, noisy, sigma2)
            wanted = attack_blocks(counts, known=1, prior=0.25, leaf_prior=LeafPrior.geometric(0.6))
            for k, code in enumerate(wanted.geocode.tolist()):
                i = at[code, cell]
                assert found["log_odds"][i] == pytest.approx(wanted.log_odds[k], abs=1e-12)
                assert found["risk"][i] == pytest.approx(wanted.risk[k], rel=1e-12)
                assert found["count_mean"][i] == pytest.approx(wanted.count_mean[k], rel=1e-12)
                assert found["geoid"][i] == code[-16:-4] + code[-3:] or len(found["geoid"][i]) == 15
                assert (found["prior"][i], found["known"][i]) == (pytest.approx(0.25), 1)
    top = max(range(len(at)), key=lambda i: found["risk"][i])
    assert done.found["largest_risk"]["geoid"] == found["geoid"][top]
    assert done.found["mean_risk"] == pytest.approx(np.mean(found["risk"]))
    assert done.found["above_threshold"] == sum(r > 1.5 for r in found["risk"])
    assert done.found["ceiling"] == pytest.approx(max(found["ceiling"]))


def test_two_workers_write_the_bytes_of_one(release, tmp_path):
    for name, workers in (("one", 1), ("two", 2)):
        assess_nmf(release, tmp_path / name, cells=[0, 3], targets_a_part=15, workers=workers)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(contents(tmp_path / "one")) > 3


SCRIPT = textwrap.dedent("""
    import sys, time
    from adversary.batches import _nmf_pieces, nmf
    plain = _nmf_pieces.Ask.answer
    def slow(self, piece, k):
        time.sleep(0.05)
        return plain(self, piece, k)
    _nmf_pieces.Ask.answer = slow
    done = nmf.assess_nmf(sys.argv[1], sys.argv[2], targets_a_part=1)
    print(done.done, done.parts)
""")


def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(release, tmp_path):
    whole = assess_nmf(release, tmp_path / "whole", targets_a_part=1)
    rng, before = np.random.default_rng(3), 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(release), str(tmp_path / "a")])
        manifest = tmp_path / "a" / "manifest.json"
        while not (manifest.is_file() and len(json.loads(manifest.read_text())["parts"]) > before):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0, 0.1)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        now = json.loads(manifest.read_text())
        assert now["complete"] is False
        assert before < len(now["parts"]) < whole.parts
        before = len(now["parts"])
    times = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "a").glob("part-*.parquet")}
    finished = [r["file"] for r in json.loads(manifest.read_text())["parts"]]
    again = assess_nmf(release, tmp_path / "a", targets_a_part=1)
    assert again.done == before
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")
    assert all((tmp_path / "a" / f).stat().st_mtime_ns == times[f] for f in finished)


def test_a_second_writer_is_refused_and_a_dead_one_is_not_in_the_way(release, tmp_path):
    with writing(tmp_path / "a"), pytest.raises(ScenarioError, match="another process is writing"):
        assess_nmf(release, tmp_path / "a", cells=[0])
    assert assess_nmf(release, tmp_path / "a", cells=[0]).targets == 40


@pytest.mark.parametrize(
    "change",
    [
        {"cells": [1]},
        {"known": 1},
        {"prior": 0.1},
        {"leaf_prior": "poisson:3"},
        {"states": "44"},
        {"query": "age"},
    ],
    ids=lambda c: next(iter(c)),
)
def test_another_question_is_not_mixed_into_a_folder(release, tmp_path, change):
    assess_nmf(release, tmp_path / "a", cells=[0])
    with pytest.raises(ScenarioError, match="give another folder"):
        assess_nmf(release, tmp_path / "a", **{"cells": [0], **change})


def test_changed_files_are_refused_and_a_damaged_part_is_made_again(release, tmp_path):
    import shutil

    copy = tmp_path / "files" / release.name
    shutil.copytree(release, copy)
    assess_nmf(copy, tmp_path / "a", cells=[0])
    before = contents(tmp_path / "a")
    (tmp_path / "a" / "part-000000.parquet").write_bytes(b"not a part")
    assert assess_nmf(copy, tmp_path / "a", cells=[0]).done == len(before) - 2
    assert contents(tmp_path / "a") == before
    file = next(copy.glob("Block.parquet/DPQuery/State=044/*.parquet"))
    table = pq.read_table(file)
    pq.write_table(table.slice(0, table.num_rows - 1), file)
    with pytest.raises(ScenarioError, match="input was"):
        assess_nmf(copy, tmp_path / "a", cells=[0])


def test_a_table_of_targets_gives_the_rows_of_the_whole(release, tmp_path):
    assess_nmf(release, tmp_path / "all", cells=[1, 4])
    every = rows(tmp_path / "all")
    chosen = [3, 17, 60]
    with (tmp_path / "t.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geoid", "cell", "known"])
        for i in chosen:
            writer.writerow([every["geoid"][i], every["cell"][i], ""])
        writer.writerow([every["geoid"][3], every["cell"][3], 2])
    done = assess_nmf(release, tmp_path / "some", targets=tmp_path / "t.csv")
    some = rows(tmp_path / "some")
    assert done.targets == 4
    for k, (geoid, cell, known) in enumerate(zip(some["geoid"], some["cell"], some["known"], strict=True)):
        if known == 0:
            i = next(i for i in chosen if (every["geoid"][i], every["cell"][i]) == (geoid, cell))
            assert some["log_odds"][k] == pytest.approx(every["log_odds"][i], abs=1e-12)
        else:
            assert some["log_odds"][k] != pytest.approx(every["log_odds"][3], abs=1e-3)


def test_a_block_that_is_published_to_have_no_such_facility_holds_nobody(tmp_path):
    ids = [f"44001000001{1}00{b}" for b in range(4)]
    table = BlockTable(ids, aiannhce=[""] * 4, cousub=["11111"] * 4, place=["22222"] * 4)
    levels = ("nation", "state", "county", "tract", "block_group", "block")
    budget = Allocation("2", dict.fromkeys(levels, "1/6"), {level: {"detailed": "1"} for level in levels})
    spine = optimized_spine(table, level_shares(budget))
    counts = synthetic_counts(spine, PL94_PERSONS, seed=1, mean=8.0)
    codes = [c[-16:] for c in spine.codes(spine.leaves)]
    people = {c: counts.dense(c).reshape(8, -1).sum(axis=1) for c in codes}
    there = [(c, k) for c in codes for k in range(8) if people[c][k] or k == 0]
    facilities = BlockCounts.of(
        np.array([c for c, _ in there]), [k for _, k in there], [1] * len(there), Histogram({"hhgq": 8})
    )
    release = write_nmf(tmp_path / "r", spine, counts, budget, seed=7, facilities=facilities).folder
    bound = NoisyMeasurements.open(release).constraints("Block", ["hhgq_total_ub"])[0]
    closed_types = np.flatnonzero((bound.values == 0).all(axis=0))
    assert closed_types.size
    jail, home = int(closed_types[0]) * 252, 0
    assess_nmf(release, tmp_path / "a", cells=[home, jail])
    found = rows(tmp_path / "a")
    by_cell = {
        c: [p for p, k in zip(found["posterior"], found["cell"], strict=True) if k == c] for c in (home, jail)
    }
    assert by_cell[jail] == [0.0] * 4
    assert min(by_cell[home]) > 0


def test_a_plan_writes_nothing_and_says_how_much(release, tmp_path):
    plan = assess_nmf(release, tmp_path / "a", targets_a_part=40, dry_run=True)
    assert not (tmp_path / "a").exists()
    assert plan.targets == 240
    assert plan.found is None
    assert "would take" in plan.lines()[-1]
    assert json.loads(json.dumps(plan.summary()))["dry_run"] is True
    assert plan.bytes_per_worker < bytes_needed(26_700, 10, 10.0)


def test_too_little_memory_is_refused_with_advice_before_anything_is_solved(release, tmp_path):
    with pytest.raises(ReleaseError, match="use fewer workers, smaller parts, or fewer levels"):
        assess_nmf(release, tmp_path / "a", memory=1 << 20)
    assert not list((tmp_path / "a").glob("part-*"))


def test_fewer_levels_make_smaller_trees(release, tmp_path):
    done = assess_nmf(release, tmp_path / "a", cells=[0], levels=["Tract", "Block_Group", "Block"])
    assert done.levels == ("Tract", "Block_Group", "Block")
    assert {"level State", "level County"} <= set(done.unused)
    assert done.targets == 40


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cells": [6]}, ReleaseError, "cell 6 of 'detailed' is not in 0..5"),
        ({"cells": "some"}, ReleaseError, "'all' or whole numbers"),
        ({"cells": []}, ReleaseError, "no cell was named"),
        ({"prior": 0}, ReleaseError, "strictly between 0 and 1"),
        ({"known": -1}, ReleaseError, "not negative"),
        ({"leaf_prior": "normal:1"}, ReleaseError, "flat, poisson:MEAN or geometric:RATIO"),
        ({"leaf_prior": "geometric:x"}, ReleaseError, "is no prior"),
        ({"states": "02"}, FileFormatError, "no files of state"),
        ({"query": "race"}, FileFormatError, "measured at no level"),
        ({"workers": 0}, ScenarioError, "at least 1"),
        ({"targets": "none.csv"}, FileFormatError, "there is no 'none.csv'"),
    ],
    ids=lambda v: next(iter(v.items())).__repr__() if isinstance(v, dict) else None,
)
def test_what_cannot_be_is_refused(release, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        assess_nmf(release, tmp_path / "a", **options)
    with pytest.raises(ScenarioError, match="out is missing"):
        assess_nmf(release)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("geocode,cell\n999999999999999,1\n", "is no block of"),
        ("geocode,cell\n010010000011000,x\n", "line 2, column 'cell'"),
        ("geocode,cell\n010010000011000,6\n", "must be 0..5"),
        ("geocode,cell,prior\n010010000011000,1,2\n", "must be in"),
        ("block,cell\n1,1\n", "are read"),
        ("geocode,cell\n", "has no targets"),
    ],
)
def test_a_bad_table_of_targets_is_refused_with_its_line(release, tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        assess_nmf(release, tmp_path / "a", targets=tmp_path / "t.csv")
