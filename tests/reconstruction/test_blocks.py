"""Redistricting tables block by block: enumeration, closed forms, the second solver, and hard inputs with names."""

from __future__ import annotations

import importlib.util
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.readers.pl94 import demo_folder, read_pl94
from adversary.reconstruction.blocks import PERSONS, Pl94Answer, Pl94Question, reconstruct_pl94
from adversary.reconstruction.pl94 import PL94_TABLES, QUARTERS
from adversary.reconstruction.solve import Limits

from .small_blocks import compositions

pytest.importorskip("highspy")
pytest.importorskip("ortools")
HERE = Path(__file__).resolve()
_spec = importlib.util.spec_from_file_location("make_demo_pl94", HERE.parents[1] / "make_demo_pl94.py")
writer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(writer)
SHARED = Path(os.environ.get("ADVERSARY_SHARED", HERE.parents[3] / "shared")) / "data" / "rhode-island-pl94"
rhode_island = pytest.mark.skipif(
    not SHARED.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)
NO_P4 = ("P1", "P2", "P3")


@pytest.fixture(scope="module")
def demo():
    return read_pl94(demo_folder())


@pytest.fixture(scope="module")
def real():
    return read_pl94(SHARED)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Sixty blocks of up to five persons, some of them in group quarters, through the writer and the reader."""
    rng = random.Random(7)
    weight = {"sor": 6, "white": 3, "white+sor": 1}
    blocks = {}
    for number in range(60):
        persons = number % 6
        unit = writer.add({}, [0] * 7, [persons, 0])
        for _ in range(persons):
            writer.put_person(unit, rng, weight, adult=0.5)
        if number % 3 == 0 and persons:
            unit["quarters"][int(7 * rng.random())] = 1 + int(persons * rng.random())
        blocks[f"030010001001{number:03d}"] = unit
    return read_pl94(writer.write_pl94(tmp_path_factory.mktemp("tiny") / "zz", blocks))


def frechet(table) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest number of non-Hispanic adults of each race if P4 is not seen, by hand."""
    return np.maximum(table.p2 + table.p3 - table.p1, 0), np.minimum(table.p2, table.p3)


def solutions(table, row, tables, quarters=False) -> np.ndarray:
    """Every block of the right size that the tables allow, by trying all; columns (races, 2, 2[, 8])."""
    n = int(table.p1[row].sum())
    races = np.flatnonzero(table.p1[row])
    there = [0, *(1 + np.flatnonzero(table.p5[row]))] if quarters else [0]
    shape = (len(races), 2, 2, len(there))
    tried = compositions(n, int(np.prod(shape))).reshape(-1, *shape)
    ok = np.ones(len(tried), dtype=bool)
    margins = {
        "P1": ("p1", tried.sum(axis=(2, 3, 4))),
        "P2": ("p2", tried[:, :, :, 0].sum(axis=(2, 3))),
        "P3": ("p3", tried[:, :, 1].sum(axis=(2, 3))),
        "P4": ("p4", tried[:, :, 1, 0].sum(axis=2)),
    }
    for name, (column, counts) in margins.items():
        if name in tables:
            ok &= (counts == getattr(table, column)[row][races]).all(axis=1)
    if quarters and "P5" in tables:
        for at, home in enumerate(there[1:], start=1):
            ok &= tried[..., at].sum(axis=(1, 2, 3)) == table.p5[row][home - 1]
    return tried[ok]


@pytest.mark.parametrize(
    ("tables", "quarters"),
    [
        (PL94_TABLES, False),
        (NO_P4, False),
        (("P1", "P3"), False),
        (("P1", "P2", "P4"), False),
        (PL94_TABLES, True),
    ],
)
def test_every_small_block_equals_its_full_enumeration(tiny, tables, quarters):
    names = ("quarters", *PERSONS) if quarters else PERSONS
    question = Pl94Question(tables, quarters, names)
    answers = reconstruct_pl94(tiny, question)
    seen = {True: 0, False: 0}
    for row, answer in enumerate(answers.blocks):
        n = int(tiny.p1[row].sum())
        if quarters and n >= 4 and (tiny.p5[row] > 0).any():
            continue  # too many to try
        if n == 0:
            assert (answer.determined, answer.value, answer.share, answer.cell.size) == (True, 0, 0.0, 0)
            continue
        all_ = solutions(tiny, row, tables, quarters)
        flat = all_.reshape(len(all_), -1)
        assert len(flat) >= 1
        assert answer.status == "optimal"
        assert answer.determined == (len(flat) == 1)
        seen[answer.determined] += 1
        low, high = np.zeros(len(question.cells), np.int64), np.zeros(len(question.cells), np.int64)
        low[answer.cell], high[answer.cell] = answer.low, answer.high
        size = (8 if quarters else 1, 2, 2, 63)
        races = np.flatnonzero(tiny.p1[row])
        there = [0, *(1 + np.flatnonzero(tiny.p5[row]))] if quarters else [0]
        for bound, wanted in ((low, all_.min(axis=0)), (high, all_.max(axis=0))):
            full = np.zeros(size, np.int64)
            full[np.ix_(there, [0, 1], [0, 1], races)] = wanted.transpose(3, 1, 2, 0)
            assert (bound.reshape(size) == full).all()
        apart = np.abs(flat[:, None] - flat[None]).sum(axis=2)
        assert answer.value == answer.bound
        assert answer.value in set(apart.max(axis=1).tolist()), "the greatest distance from some solution"
    assert seen[True] > 4 or tables == ("P1", "P3"), "Hispanic origin is never settled by P1 and P3"
    assert seen[False] > 3 or (tables == PL94_TABLES and not quarters), "the five tables settle every block"


def test_without_p4_every_block_of_the_demo_meets_frechet_s_bounds(demo):
    question = Pl94Question(NO_P4)
    answers = reconstruct_pl94(demo, question)
    low, high = frechet(demo)
    for row, answer in enumerate(answers.blocks):
        ends = np.zeros((2, len(question.cells)), np.int64)
        ends[0, answer.cell], ends[1, answer.cell] = answer.low, answer.high
        assert (ends.reshape(2, 2, 2, 63)[:, 1, 0] == np.stack([low[row], high[row]])).all()
        slack = int((high - low)[row].sum())
        assert answer.determined == (slack == 0)
        # from any solution the farthest one moves each race by half to all of its slack, four cells a step
        assert 2 * slack <= answer.value <= 4 * slack
    summary = answers.summary()
    assert 0 < summary["determined_with_people"] < summary["blocks"] - summary["empty"]


def test_both_solvers_give_the_same_bounds_and_verdicts(demo):
    largest = [str(code) for code in demo.geoid[np.argsort(-demo.total)[:6]]]
    one, other = (
        reconstruct_pl94(demo, Pl94Question(NO_P4, backend=name), largest) for name in ("highs", "cpsat")
    )
    for a, b in zip(one.blocks, other.blocks, strict=True):
        assert (a.status, a.determined) == (b.status, b.determined) == ("optimal", a.determined)
        for name in ("cell", "low", "high"):
            assert (getattr(a, name) == getattr(b, name)).all()
        assert a.value <= 2 * b.value
        assert b.value <= 2 * a.value
    assert {a.determined for a in one.blocks} == {False, True}


def test_all_five_tables_are_the_histogram_and_say_so(demo):
    answers = reconstruct_pl94(demo)
    for answer, truth in zip(answers.blocks, demo.histogram().reshape(len(demo), -1), strict=True):
        assert answer.determined
        assert (answer.low == truth[answer.cell]).all()
        assert truth.sum() == answer.low.sum() == answer.people
    summary = answers.summary()
    assert (summary["blocks"], summary["determined"], summary["left_open"]) == (40, 40, 0)
    assert summary["people"] == summary["people_in_determined"] == int(demo.total.sum())
    assert "determined: " in "\n".join(answers.lines())


def test_coarser_attributes_merge_cells_and_can_be_determined_where_finer_are_not(demo):
    seen = ("P1", "P3")
    fine = reconstruct_pl94(demo, Pl94Question(seen))
    coarse = reconstruct_pl94(demo, Pl94Question(seen, attributes=("votingage", "cenrace")))
    assert coarse.summary()["determined"] == 40
    assert fine.summary()["determined_with_people"] == 0, "Hispanic origin is in P2 and P4 only"
    assert np.nanmax(fine.shares) == 1.0


def test_answers_survive_a_folder_and_two_processes(demo, tmp_path):
    question = Pl94Question(NO_P4)
    names = [str(code) for code in demo.geoid]
    reconstruct_pl94(demo, question, names[:15], out=tmp_path / "out")
    kept = reconstruct_pl94(demo, question, out=tmp_path / "out", processes=2)
    fresh = reconstruct_pl94(demo, question)
    again = reconstruct_pl94(demo, question, out=tmp_path / "out")

    def plain(answer):
        return {k: v for k, v in answer.to_dict().items() if k != "seconds"}

    assert [plain(a) for a in kept.blocks] == [plain(a) for a in fresh.blocks]
    assert [a.to_dict() for a in again.blocks] == [a.to_dict() for a in kept.blocks], (
        "times too: none was asked"
    )
    assert [a.block for a in kept.blocks] == names
    with pytest.raises(ModelError, match="another question"):
        reconstruct_pl94(demo, Pl94Question(("P1",)), out=tmp_path / "out")
    other = replace(demo, p5=demo.p5 + 1)
    with pytest.raises(ModelError, match="another question"):
        reconstruct_pl94(other, question, out=tmp_path / "out")


def test_an_answer_is_read_back_as_it_was_written(demo):
    answer = reconstruct_pl94(
        demo, Pl94Question(NO_P4), [str(demo.geoid[int(np.argmax(demo.total))])]
    ).blocks[0]
    back = Pl94Answer.from_dict(answer.block, answer.to_dict())
    assert back.to_dict() == answer.to_dict()
    assert back.open_cells == answer.open_cells > 0
    assert 0 < answer.share <= 1


def test_no_time_is_said_with_what_is_known_and_the_next_block_goes_on(demo):
    """Report P20, first half, on any machine: a limit of no time at all."""
    row = int(np.argmax(demo.total))
    names = [str(demo.geoid[row]), str(demo.geoid[int(np.argmin(demo.total))])]
    answers = reconstruct_pl94(demo, Pl94Question(("P1", "P3"), limits=Limits(0.0)), names)
    large, empty = answers.blocks
    assert (large.status, large.determined, large.value, large.bound) == ("time limit", None, None, None)
    truth = demo.histogram()[row].ravel()
    assert (large.low <= truth[large.cell]).all()
    assert (truth[large.cell] <= large.high).all()
    assert truth[large.cell].sum() == large.people, "no cell that holds somebody is missing"
    assert (empty.status, empty.determined) == ("optimal", True)
    assert answers.summary()["left_open"] == 1


def test_five_people_but_six_in_households_and_quarters_is_infeasible_and_the_next_block_goes_on(demo):
    """Report P20, second half."""
    row = int(np.flatnonzero(demo.total >= 5)[0])
    code, following = str(demo.geoid[row]), str(demo.geoid[row + 1])
    p5 = np.zeros_like(demo.p5)
    p5[row, 4] = 2
    table, people = replace(demo, p5=p5), int(demo.total[row])
    wrong = Pl94Question(quarters=True, household_population={code: people - 1})
    answers = reconstruct_pl94(table, wrong, [code, following])
    bad = answers[code]
    assert (bad.status, bad.determined, bad.value) == ("infeasible", None, None)
    assert {"P5", "households"} <= set(bad.clash_tables)
    assert set(bad.clash_tables) & {"P1", "P2", "P3", "P4"}
    assert f"({people - 1})" in bad.clash
    assert f"{code}: infeasible, {bad.clash}" in answers.lines()
    assert answers[following].status == "optimal"
    right = replace(wrong, household_population={code: people - 2})
    assert reconstruct_pl94(table, right, [code]).blocks[0].status == "optimal"


def test_what_cannot_be_asked_is_refused_before_any_block_is(demo, tmp_path):
    for question, words in (
        (Pl94Question(("P1", "P9")), "no table 'P9'"),
        (Pl94Question(attributes=("size",)), "no attribute 'size'"),
        (Pl94Question(household_population={str(demo.geoid[0]): 3}), "set quarters=True"),
        (Pl94Question(quarters=True, household_population={"44": 3}), "no geounit '44'"),
    ):
        with pytest.raises(ModelError, match=words):
            reconstruct_pl94(demo, question, out=tmp_path / "out")
    with pytest.raises(ModelError, match="no geounit 'x'"):
        reconstruct_pl94(demo, blocks=["x"])
    with pytest.raises(ModelError, match="no answer for block 'x'"):
        reconstruct_pl94(demo, blocks=[])["x"]
    assert not (tmp_path / "out").exists()


def test_rows_that_do_not_bound_a_cell_are_an_error_of_the_block_not_of_the_run(demo):
    answers = reconstruct_pl94(demo, Pl94Question(("P2",)), [str(demo.geoid[0])])
    assert answers.blocks[0].status == "error"
    assert "no row bounds" in answers.blocks[0].error
    assert answers.blocks[0].people == demo.total[0]


@rhode_island
def test_the_hard_blocks_of_rhode_island(real):
    """Empty, alone, and the largest: 513 persons, answered within its limit or honestly limited (report P20)."""
    total = real.total
    empty, alone = np.flatnonzero(total == 0), np.flatnonzero(total == 1)
    assert (len(real), len(empty), int(total.max())) == (569, 215, 513)
    largest = int(np.argmax(total))
    names = [str(real.geoid[i]) for i in (*empty[:3], *alone, largest, largest + 1)]
    for tables in (PL94_TABLES, NO_P4):
        for answer in reconstruct_pl94(real, Pl94Question(tables), names).blocks:
            if answer.people <= 1:
                assert (answer.status, answer.determined, answer.value) == ("optimal", True, 0)
    limited = reconstruct_pl94(real, Pl94Question(("P1", "P3"), limits=Limits(0.05)), names)
    big, following = limited.blocks[-2], limited.blocks[-1]
    assert big.status in {"optimal", "feasible with gap", "time limit"}
    assert big.bound is None or big.value <= big.bound <= 2 * 513
    assert following.status in {"optimal", "feasible with gap", "time limit"}
    truth = real.histogram()[largest].ravel()
    assert (big.low <= truth[big.cell]).all()
    assert (truth[big.cell] <= big.high).all()


@rhode_island
@pytest.mark.slow
def test_the_whole_of_rhode_island_equals_its_closed_forms(real, tmp_path):
    everything = reconstruct_pl94(real, processes=2, out=tmp_path / "all")
    assert everything.summary()["determined"] == 569
    low, high = frechet(real)
    slack = (high - low).sum(axis=1)
    some = reconstruct_pl94(real, Pl94Question(NO_P4), processes=2, out=tmp_path / "some")
    assert [a.determined for a in some.blocks] == (slack == 0).tolist()
    assert some.summary()["not_determined"] == 32
    for answer, step in zip(some.blocks, slack.tolist(), strict=True):
        assert answer.status == "optimal"
        assert 2 * step <= answer.value <= 4 * step
    homes = reconstruct_pl94(
        real,
        Pl94Question(quarters=True, attributes=("quarters", *PERSONS)),
        processes=2,
        out=tmp_path / "homes",
    )
    assert {a.status for a in homes.blocks} == {"optimal"}
    mixed = [0 < q < n for q, n in zip(real.p5.sum(axis=1).tolist(), real.total.tolist(), strict=True)]
    for answer, both in zip(homes.blocks, mixed, strict=True):
        assert answer.determined or both, "only where some live in quarters and others not is anything open"
    assert len(QUARTERS) == 8
