"""Questions under names, block by block: every record against the object that it is made from."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.readers.pl94 import demo_folder, read_pl94
from adversary.reconstruction.ask import StateView, ask_pl94, ask_state
from adversary.reconstruction.blocks import Pl94Question, reconstruct_pl94
from adversary.reconstruction.constraints import combine
from adversary.reconstruction.households import OVER_LIMIT, Predicate
from adversary.reconstruction.mechanisms import MECHANISMS
from adversary.reconstruction.pl94 import pl94_configurations, pl94_constraints
from adversary.reconstruction.questions import QUESTIONS, SIMPLIFIED, Question, ask, parse_harm
from adversary.reconstruction.solve import Limits, Reconstruction
from adversary.reconstruction.study import reconstruct_state
from adversary.reconstruction.synthetic import StateShape, synthetic_state
from adversary.reconstruction.tables import census_queries, hud_constraints, publish_hud
from adversary.reconstruction.variability import simplified, solution_variability

from .small_blocks import contradiction, every_block, small_block

pytest.importorskip("highspy")
pytest.importorskip("ortools")
CHILD = Predicate("has a child", lambda table: table.number("children") > 0)


@pytest.fixture(scope="module")
def state():
    return synthetic_state(StateShape(blocks=30, smallest=5, largest=18, violating=0.1), seed=1)


@pytest.fixture(scope="module")
def demo():
    return read_pl94(demo_folder())


@pytest.mark.parametrize("seed", range(6))
def test_every_record_equals_brute_force_on_small_blocks(seed):
    rows, truth, shares = small_block(seed)
    block = Reconstruction(rows, shares)
    table = rows.configurations
    all_ = every_block(rows, int(truth.sum()))
    harm = table.mask(CHILD)
    harmed = all_[:, harm].sum(axis=1)
    cost = all_ @ np.rint(-1000 * np.log(shares)).astype(np.int64)
    found = {what: ask(block, Question(what, CHILD, top=len(all_) + 5)) for what in QUESTIONS}
    assert json.loads(json.dumps(found)) == found

    flagged = bool(harmed.min() >= 1)
    assert found["feasible"]["verdict"] == ("flagged" if flagged else "not flagged")
    assert found["feasible"]["finding"] == found["bounds"]["finding"] == found["bounds"]["certain"] == flagged
    if not flagged:
        assert written(table, found["feasible"]["without_harm"])[harm].sum() == 0
    assert (found["bounds"]["low"], found["bounds"]["high"]) == (harmed.min(), harmed.max())
    assert found["most-likely"]["cost"] == cost.min()
    best = written(table, found["most-likely"]["block"])
    assert found["most-likely"]["harmed"] == best[harm].sum()
    assert found["top"]["listed"] == len(all_)
    assert found["top"]["exhausted"]
    assert found["top"]["mean_harmed"] == pytest.approx(harmed.mean())
    assert found["top"]["with_harm"] == pytest.approx((harmed > 0).mean())
    assert [b["cost"] for b in found["top"]["blocks"]] == sorted(cost.tolist())
    claims = {
        table.label(k): int(all_[0, k])
        for k in np.flatnonzero(harm & (all_ == all_[0]).all(axis=0) & (all_[0] > 0))
    }
    assert {c["what"]: c["count"] for c in found["claims"]["claims"]} == claims
    assert found["claims"]["finding"] == bool(claims)
    apart = np.abs(all_[:, None, harm] - all_[None][:, :, harm]).sum(axis=2).max(axis=1)
    assert found["variability"]["value"] in set(apart.tolist())
    assert found["variability"]["unique"] == (apart.max() == 0)
    assert found["closest"]["error"] == 0
    assert found["closest"]["missed"] == []
    cells = ask(block, Question("bounds", attributes=("size",)))
    size, sizes = table.cells(["size"])
    tables = np.array([np.bincount(size, x, len(sizes)) for x in all_])
    told = {c["cell"]: (c["low"], c["high"]) for c in cells["cells"]}
    assert told == {
        sizes.label(g): (int(tables[:, g].min()), int(tables[:, g].max()))
        for g in range(len(sizes))
        if tables[:, g].max() > 0
    }


def written(table, block) -> np.ndarray:
    counts = np.zeros(len(table), np.int64)
    labels = {table.label(k): k for k in range(len(table))}
    for label, n in block.items():
        counts[labels[label]] = n
    return counts


def test_contradictory_rows_are_infeasible_with_their_tables_in_every_question():
    seen = 0
    for seed in range(12):
        rows, n = contradiction(seed)
        if len(every_block(rows, n)):
            continue
        seen += 1
        block = Reconstruction(rows, np.full(len(rows.configurations), 0.1))
        for what in QUESTIONS:
            answer = ask(block, Question(what, CHILD))
            if what == "closest":
                assert answer["status"] == "optimal"
                assert answer["error"] > 0
                told = {(r["table"], r["cell"]) for r in answer["missed"]}
                assert told <= set(zip(rows.table, rows.cell, strict=True))
                assert all(not r["low"] <= r["answer"] <= r["high"] for r in answer["missed"])
                continue
            assert answer["status"] == "infeasible"
            assert not answer["finding"]
            if what in {"feasible", "bounds"}:
                assert answer["clash_tables"]
                assert answer["irreducible"]
    assert seen >= 4


def test_no_time_is_a_status_and_never_a_finding(state):
    view = StateView(limits=Limits(0.0))
    for what in QUESTIONS:
        found = ask_state(state, view, Question(what, OVER_LIMIT, top=3), [4])["block-000004"]
        assert found["status"] in {"time limit", "feasible with gap"}, what
        assert not found["finding"]


def test_a_state_s_blocks_are_asked_on_the_tables_that_they_print(state):
    found = ask_state(state, StateView(), Question("bounds", OVER_LIMIT), range(8))
    certain = 0
    for b in range(8):
        table, truth = state.configurations(b), state.counts(b)
        queries = census_queries(table)
        lines = [
            hud_constraints(table, publish_hud(table, truth, home), home)
            for home in table.attribute("property").levels[1:]
        ]
        rows = combine(queries.constraints(queries.answers(truth)), *lines)
        its = Reconstruction(rows, state.shares(table)).bounds(OVER_LIMIT)
        answer = found[f"block-{b:06d}"]
        assert (answer["low"], answer["high"]) == (its.low, its.high)
        assert its.low <= truth[table.mask(OVER_LIMIT)].sum() <= its.high
        assert answer["households"] == truth.sum()
        certain += answer["finding"]
    assert 0 < certain < 8, "the question tells blocks apart"


@pytest.mark.parametrize("name", ["swapping 10 %", "2020 budget"])
def test_a_mechanism_prints_what_the_study_prints_for_the_same_seed(state, name):
    blocks = [0, 3, 5]
    studied = reconstruct_state(state, name, seed=11, blocks=blocks).answers[name]
    view = StateView(MECHANISMS[name], seed=11, mend=True)
    asked = ask_state(state, view, Question("feasible", OVER_LIMIT), blocks)
    for answer, told in zip(studied, asked.values(), strict=True):
        assert told["verdict"] == answer.status
        assert told["rows_widened"] == answer.missed
    plain = ask_state(state, StateView(MECHANISMS[name], seed=11), Question("feasible", OVER_LIMIT), blocks)
    for answer, told in zip(studied, plain.values(), strict=True):
        assert (told["status"] == "infeasible") == (answer.printed == "inconsistent")


def test_variability_of_the_simplified_table_and_of_a_subset(state):
    b = 2
    table = state.configurations(b)
    whole = ask_state(state, StateView(), Question("variability", attributes=SIMPLIFIED), [b])["block-000002"]
    some = ask_state(state, StateView(), Question("variability", OVER_LIMIT, SIMPLIFIED), [b])["block-000002"]
    truth = state.counts(b)
    queries = census_queries(table)
    lines = [
        hud_constraints(table, publish_hud(table, truth, home), home)
        for home in table.attribute("property").levels[1:]
    ]
    rows = combine(queries.constraints(queries.answers(truth)), *lines)
    block = Reconstruction(rows, state.shares(table))
    its = solution_variability(block, simplified(table))
    assert (whole["value"], whole["bound"], whole["share"]) == (its.value, its.bound, its.share)
    assert whole["counted"] == truth.sum()
    assert some["value"] <= whole["value"]


def test_pl94_blocks_answer_the_same_questions(demo):
    code = str(demo.geoid[int(np.argmax(demo.total))])
    seen = Pl94Question(("P1", "P2", "P3"))
    harm = parse_harm("votingage=under_18,hispanic=hispanic")
    truth = demo.histogram()[int(np.argmax(demo.total))].ravel()
    cells = pl94_configurations()
    inside = cells.mask(harm)
    found = {
        what: ask_pl94(demo, seen, Question(what, harm, top=5), [code])[code]
        for what in ("feasible", "bounds", "most-likely", "top", "closest")
    }
    rows = pl94_constraints(demo, code, seen.tables)
    its = Reconstruction(rows).bounds(harm)
    assert (found["bounds"]["low"], found["bounds"]["high"]) == (its.low, its.high)
    assert its.low <= truth[inside].sum() <= its.high
    assert {a["status"] for a in found.values()} == {"optimal"}
    assert {a["people"] for a in found.values()} == {int(truth.sum())}
    assert found["closest"]["error"] == 0
    best = found["top"]["blocks"][0]["cost"]
    assert best == found["most-likely"]["cost"]
    likely = written(cells, found["most-likely"]["block"])
    assert rows.satisfied_by(likely)
    share = demo.histogram().sum(axis=0).ravel()
    assert (share[likely > 0] > 0).all(), "nobody whom no block has"
    everything = ask_pl94(demo, Pl94Question(), Question("bounds"), [code])[code]
    assert everything["determined"]
    assert reconstruct_pl94(demo, blocks=[code]).blocks[0].determined


def test_group_quarters_and_cells_are_taken_to_be_independent_in_shares(demo):
    code = str(demo.geoid[int(np.argmax(demo.p5.sum(axis=1)))])
    found = ask_pl94(demo, Pl94Question(quarters=True), Question("most-likely"), [code])[code]
    assert found["status"] == "optimal"
    college = sum(n for label, n in found["block"].items() if "quarters=college" in label)
    assert college == demo.p5[int(np.argmax(demo.p5.sum(axis=1))), 4]


def test_answers_of_questions_are_kept_apart(state, tmp_path):
    out = tmp_path / "out"
    first = ask_state(state, StateView(), Question("feasible", OVER_LIMIT), [0, 1], out=out)
    assert ask_state(state, StateView(), Question("feasible", OVER_LIMIT), [0, 1], out=out) == first
    for view, question in (
        (StateView(), Question("feasible")),
        (StateView(), Question("bounds", OVER_LIMIT)),
        (StateView(seed=1), Question("feasible", OVER_LIMIT)),
        (StateView(tables="rich"), Question("feasible", OVER_LIMIT)),
        (StateView(MECHANISMS["2020 budget"]), Question("feasible", OVER_LIMIT)),
    ):
        with pytest.raises(ModelError, match="another question"):
            ask_state(state, view, question, [0], out=out)


def test_two_processes_answer_as_one(state):
    harm = parse_harm("size=1|2,children=0")

    def plain(found):
        return {b: {k: v for k, v in a.items() if k != "seconds"} for b, a in found.items()}

    one, two = (
        ask_state(state, StateView(), Question("bounds", harm), range(4), processes=n) for n in (1, 2)
    )
    assert plain(one) == plain(two)
    assert all(a["status"] == "optimal" for a in one.values())


def test_a_harm_reads_as_it_is_written(state):
    table = state.configurations()
    wanted = table.mask({"size": ["3", "4"], "bedrooms": "0-1"})
    assert (table.mask(parse_harm(" size = 3|4 , bedrooms=0-1 ")) == wanted).all()
    assert parse_harm("over-limit") is OVER_LIMIT
    for text in ("", "size", "size=", "=3", "size=3,size=4", "over limit"):
        with pytest.raises(ModelError, match="a harm is over-limit or subsidised, or ATTRIBUTE=LEVEL"):
            parse_harm(text)


def test_what_cannot_be_asked_is_refused_before_any_block_is(state, demo, tmp_path):
    with pytest.raises(ModelError, match="no question 'why'"):
        Question("why")
    with pytest.raises(ModelError, match="top 0"):
        Question("top", top=0)
    for question, words in (
        (Question("bounds", parse_harm("size=99")), "size has no level '99'"),
        (Question("bounds", parse_harm("colour=red")), "no attribute 'colour'"),
        (Question("bounds", parse_harm("size=1,children=3")), "it can never be certain"),
        (Question("claims", attributes=("colour",)), "no attribute 'colour'"),
    ):
        with pytest.raises(ModelError, match=words):
            ask_state(state, StateView(), question, out=tmp_path / "out")
    with pytest.raises(ModelError, match="no block 99"):
        ask_state(state, StateView(), Question(), [99])
    with pytest.raises(ModelError, match="no attribute 'size'"):
        ask_pl94(demo, Pl94Question(), Question("bounds", OVER_LIMIT))
    with pytest.raises(ModelError, match="no geounit '1'"):
        ask_pl94(demo, Pl94Question(), Question(), ["1"])
    assert not (tmp_path / "out").exists()
