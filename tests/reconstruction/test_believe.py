"""The posterior block by block: every record against the posterior asked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adversary.errors import ModelError, UnsupportedModelError
from adversary.readers.pl94 import demo_folder, read_pl94
from adversary.reconstruction import believe
from adversary.reconstruction.ask import StateView, ask_state, published_block, tabulated
from adversary.reconstruction.beliefs import attacker_shares, bedrooms_given_size
from adversary.reconstruction.believe import BEDROOMS, Belief, believe_pl94, believe_state
from adversary.reconstruction.blocks import Pl94Question
from adversary.reconstruction.constraints import combine
from adversary.reconstruction.folders import parse_mechanism
from adversary.reconstruction.households import OVER_LIMIT
from adversary.reconstruction.mechanisms import MECHANISMS
from adversary.reconstruction.pl94 import pl94_configurations, pl94_constraints
from adversary.reconstruction.posterior import Effort, household_posterior
from adversary.reconstruction.questions import Question, parse_harm
from adversary.reconstruction.synthetic import StateShape, synthetic_state
from adversary.reconstruction.tables import census_queries, hud_constraints, publish_hud

pytest.importorskip("highspy")
pytest.importorskip("ortools")


@pytest.fixture(scope="module")
def state():
    return synthetic_state(StateShape(blocks=30, smallest=5, largest=18, violating=0.1), seed=1)


@pytest.fixture(scope="module")
def demo():
    return read_pl94(demo_folder())


def small(state, most=9):
    sizes = np.bincount(state.block)
    return [b for b in range(len(state)) if sizes[b] <= most]


@pytest.mark.parametrize("bedrooms", ["flat", "to-need"])
def test_a_record_is_the_posterior_of_the_printed_tables_under_the_named_belief(state, bedrooms):
    blocks = small(state)[:4]
    found = believe_state(state, StateView(), Belief(bedrooms=bedrooms, draws=20), blocks)
    for b in blocks:
        table, truth = state.configurations(b), state.counts(b)
        queries = census_queries(table)
        homes = table.attribute("property").levels[1:]
        lines = [hud_constraints(table, publish_hud(table, truth, home), home) for home in homes]
        rows = combine(queries.constraints(queries.answers(truth)), *lines)
        belief = {} if bedrooms == "flat" else {"bedrooms": bedrooms_given_size(BEDROOMS[bedrooms])}
        shares = attacker_shares(table, state.shares(table), **belief)
        its = household_posterior(rows, shares, method="exact", draws=20)
        answer = found[f"block-{b:06d}"]
        assert answer["status"] == "exact"
        assert answer["probability"] == pytest.approx(its.probability(OVER_LIMIT), rel=1e-12)
        assert answer["prior"] == pytest.approx(its.prior.probability(OVER_LIMIT), rel=1e-12)
        assert answer["risk"] == pytest.approx(its.risk(OVER_LIMIT), rel=1e-12)
        assert answer["expected"] == pytest.approx(its.expected_number(OVER_LIMIT), rel=1e-12)
        assert answer["households"] == truth.sum()
        law = np.array(answer["law"])
        assert law.sum() == pytest.approx(1, abs=1e-9)
        assert law[1:].sum() == pytest.approx(answer["probability"], abs=1e-9)
        assert answer["sound"]


def test_what_is_believed_of_bedrooms_moves_the_answer(state):
    blocks = small(state)[:4]
    flat, fitted = (
        believe_state(state, StateView(), Belief(bedrooms=b), blocks) for b in ("flat", "right-sized")
    )
    moved = [abs(flat[name]["probability"] - fitted[name]["probability"]) for name in flat]
    assert max(moved) > 0.1


def test_noisy_tables_enter_with_their_likelihood_and_not_as_printed(state, monkeypatch):
    seen = []

    def watched(rows, shares, **options):
        seen.append((rows, options["noisy"]))
        msg = "enough seen: stop here"
        raise UnsupportedModelError(msg, None)

    monkeypatch.setattr(believe, "household_posterior", watched)
    for mechanism, tables in (("2020 budget", {"H3", "HUD 1"}), ("2020 budget, HUD noised", {"H3"})):
        view = StateView(MECHANISMS[mechanism], seed=3)
        answer = believe_state(state, view, Belief(), [1])["block-000001"]
        assert (answer["status"], answer["error"]) == ("error", "enough seen: stop here")
        rows, noisy = seen[-1]
        assert tables <= set(rows.tables) <= tables | {"HUD 2", "HUD 3"}
        published, _ = published_block(state, tabulated(state, view), view, 1)
        assert (noisy.values == published.noisy.values).all()
        assert {"H13", "H7", "P16", "P19", "P25"} <= set(noisy.table)


def test_a_limit_that_does_not_suffice_is_an_error_of_the_block(state):
    belief = Belief(method="exact", effort=Effort(states=3))
    answer = believe_state(state, StateView(), belief, [1])["block-000001"]
    assert answer["status"] == "error"
    assert "probability" not in answer


def test_rows_that_contradict_each_other_are_infeasible_with_their_tables_or_mended(state):
    view = StateView(parse_mechanism("swap=0.5"), seed=2)
    asked = ask_state(state, view, Question("feasible"))
    against = [int(b.removeprefix("block-")) for b, a in asked.items() if a["status"] == "infeasible"][:2]
    assert against, "swapped tables contradict HUD's lines somewhere"
    for name, answer in believe_state(state, view, Belief(), against).items():
        assert answer["status"] == "infeasible"
        assert answer["clash_tables"] == asked[name]["clash_tables"]
    tight = Belief(method="exact", effort=Effort(states=20_000))
    for answer in believe_state(state, replace(view, mend=True), tight, against).values():
        assert answer.get("rows_widened", 1) >= 1
        assert answer["status"] in {"exact", "error"}


def test_persons_of_real_tables(demo):
    harm = parse_harm("hispanic=hispanic,votingage=under_18")
    row = int(np.argmax(demo.total))
    code = str(demo.geoid[row])
    seen = Pl94Question(("P1", "P2", "P3"))
    answer = believe_pl94(demo, seen, Belief(harm), [code])[code]
    shares = demo.histogram().sum(axis=0).ravel().astype(float)
    its = household_posterior(pl94_constraints(demo, row, seen.tables), shares, method="exact")
    assert answer["probability"] == pytest.approx(its.probability(harm), rel=1e-12)
    everything = believe_pl94(demo, Pl94Question(), Belief(harm), [code])[code]
    truth = demo.histogram()[row].ravel()[pl94_configurations().mask(harm)].sum()
    assert everything["probability"] == pytest.approx(float(truth > 0))
    assert everything["expected"] == pytest.approx(truth)


def test_answers_are_kept_and_do_not_depend_on_processes(state, tmp_path):
    blocks = small(state)[:3]
    one = believe_state(state, StateView(), Belief(draws=5), blocks, out=tmp_path / "out")
    assert believe_state(state, StateView(), Belief(draws=5), blocks, out=tmp_path / "out") == one
    two = believe_state(state, StateView(), Belief(draws=5), blocks, processes=2)
    for name, answer in one.items():
        assert {**answer, "seconds": 0} == {**two[name], "seconds": 0}
    with pytest.raises(ModelError, match="another question"):
        believe_state(state, StateView(), Belief(bedrooms="loose", draws=5), blocks, out=tmp_path / "out")


def test_what_cannot_be_believed_is_refused(state):
    with pytest.raises(ModelError, match="no belief 'tidy'"):
        Belief(bedrooms="tidy")
    with pytest.raises(ModelError, match="0 draws"):
        Belief(draws=0)
    with pytest.raises(ModelError, match="no configuration has the harm"):
        believe_state(state, StateView(), Belief(parse_harm("size=1,children=2")))
