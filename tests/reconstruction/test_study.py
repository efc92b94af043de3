"""The study on a state of a few small blocks: every figure by a second road, and the same bytes however it is run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary.errors import ModelError, SamplingError
from adversary.reconstruction.beliefs import attacker_shares, bedrooms_given_size
from adversary.reconstruction.evaluation import KNOWLEDGE, RANKINGS, Evaluation, Setting, evaluate
from adversary.reconstruction.households import OVER_LIMIT
from adversary.reconstruction.mechanisms import MECHANISMS, Mechanism, publish
from adversary.reconstruction.posterior import household_posterior
from adversary.reconstruction.solve import Limits, Reconstruction
from adversary.reconstruction.study import (
    VALIDATION,
    StudyOptions,
    StudyResult,
    assumed_shares,
    reconstruct_state,
    state_hash,
)
from adversary.reconstruction.swapping import SwapDesign, swap_state
from adversary.reconstruction.synthetic import BEDROOMS_TO_NEED, StateShape, SyntheticState, synthetic_state
from adversary.reconstruction.tables import census_queries

OPTIONS = StudyOptions(top=6)
SEED = 5


@cache
def state() -> SyntheticState:
    """Six blocks of up to 15 households, half of them with one over the limit, one with two properties."""
    shape = StateShape(
        blocks=6,
        smallest=9,
        largest=15,
        subsidised=0.8,
        whole=0.6,
        violating=0.12,
        violating_blocks=0.5,
        properties=(0.9, 0.1),
    )
    return synthetic_state(shape, seed=11)


@cache
def result() -> StudyResult:
    """Return the answers on all blocks under all mechanisms, kept in memory."""
    return reconstruct_state(state(), seed=SEED, options=OPTIONS)


@cache
def evaluation() -> Evaluation:
    """Return the figures."""
    return evaluate(state(), result(), seed=1)


def harmed() -> np.ndarray:
    """Which blocks have a household over the limit."""
    s = state()
    return np.array([bool(s.counts(b) @ s.configurations(b).mask(OVER_LIMIT)) for b in range(len(s))])


def tabulated(block: int, mechanism: Mechanism) -> np.ndarray:
    """Census records that are tabulated in a block, as counts."""
    s = state()
    records = s.records[:, 2:]
    if mechanism.swap_rate:
        seed = np.random.SeedSequence(SEED, spawn_key=(1,))
        records = swap_state(s, SwapDesign(mechanism.swap_rate), seed=seed)[1]
    return s.census.histogram(records[s.block == block])


def limits(block: int) -> Limits:
    """Limits of a block, with the solver's seed of its own."""
    return Limits(seed=int(np.random.SeedSequence(SEED, spawn_key=(2, block)).generate_state(1)[0]) % 2**31)


def published(block: int, name: str) -> Any:
    """Publish one block as the study does."""
    s, m = state(), MECHANISMS[name]
    seed = np.random.SeedSequence(SEED, spawn_key=(2, block))
    table, truth = s.configurations(block), s.counts(block)
    return publish(table, truth, s.census, tabulated(block, m), m, seed=seed, limits=limits(block))


def test_every_block_is_counted_under_every_mechanism() -> None:
    told = result().statuses()
    assert tuple(told) == tuple(MECHANISMS)
    verdicts = ("flagged", "not flagged", "undecided", "inconsistent", "error")
    assert all(sum(its[v] for v in verdicts) == len(state()) for its in told.values())
    data = result().dataset
    assert dict(data.sizes) == {"mechanism": 5, "block": 6, "phase": 5}
    assert data.attrs["note"] == VALIDATION
    assert told["none"]["rows contradicted"] == 0
    assert told["2020 budget"]["rows contradicted"] > 0
    assert (data["publish_status"].sel(mechanism="2020 budget") == "optimal").all()
    assert (data["publish_status"].sel(mechanism="none") == "").all()
    mended = data["printed"] == "inconsistent"
    assert (data["mend_status"].values[mended] == "optimal").all()
    assert (data["missed"].values[mended] >= 1).all()
    assert (data["missed"].values[~mended] == 0).all()
    short = data["listed"] < OPTIONS.top  # fewer blocks exist than were asked for
    assert (data["list_status"] == "optimal").all()
    assert (data["listed"] >= 1).all()
    assert not (short & data["cut"]).any()


def test_without_protection_a_flag_is_never_wrong_and_is_the_least_count() -> None:
    s, answers = state(), result().answers["none"]
    flagged = np.array([a.status == "flagged" for a in answers])
    assert flagged.any()
    assert not flagged.all()
    assert harmed()[flagged].all()
    for block, answer in enumerate(answers):
        rows = published(block, "none").rows
        assert rows.satisfied_by(s.counts(block))
        bounds = Reconstruction(rows, s.shares(s.configurations(block))).bounds(OVER_LIMIT)
        assert (answer.status == "flagged") == bounds.certain
        if answer.status == "flagged":
            assert answer.confirmed


@pytest.mark.parametrize("name", ["none", "swapping 10 %", "2020 budget, HUD noised"])
def test_an_answer_is_that_of_the_questions_asked_one_by_one(name: str) -> None:
    s = state()
    for block in (1, 4):
        its = published(block, name)
        table = s.configurations(block)
        first = Reconstruction(its.rows, s.shares(table), limits=limits(block))
        answer = result().answers[name][block]
        assert answer.printed == first.flag(OVER_LIMIT).verdict
        rows = first.constraints
        if answer.printed == "inconsistent":
            sigma = np.append(its.sigma, np.ones(len(rows) - len(its.sigma)))
            mend = first.closest(sigma=sigma)
            assert mend.missed == answer.missed
            assert mend.relaxed is not None
            rows = mend.relaxed
        rebuilt = Reconstruction(rows, s.shares(table), limits=limits(block))
        assert answer.status == rebuilt.flag(OVER_LIMIT).verdict
        top = rebuilt.top(OPTIONS.top)
        harm = top.counts * table.mask(OVER_LIMIT)
        assert answer.mean_harm("list", len(table)).tolist() == pytest.approx(harm.mean(axis=0).tolist())
        assert answer.list_harm == (harm.sum(axis=1) > 0).mean()
        assert (answer.cut, answer.tied_share) == (top.cut, top.tied_share)


def test_what_each_mechanism_publishes() -> None:
    s = state()
    for block in range(len(s)):
        truth, plain = s.counts(block), published(block, "none")
        assert plain.noisy is None
        assert plain.firm.satisfied_by(truth)
        assert (plain.sigma == 1).all()
        for name in ("2020 budget", "uniform budget"):
            its = published(block, name)
            assert its.firm.satisfied_by(truth)  # exact rows: households, and HUD's lines
            assert its.firm.tables[0] == "H3"
            assert set(its.firm.tables) == {"H3", *(t for t in plain.rows.tables if t.startswith("HUD"))}
            assert len(its.noisy) == 19
            assert len(its.sigma) == len(its.rows)
            at = its.rows.table.index("H3")
            assert its.rows.low[at] == its.rows.high[at] == truth.sum()
        noised = published(block, "2020 budget, HUD noised")
        assert noised.firm.tables == ("H3",)
        assert len(noised.noisy) == 19 + 11 * int(s.homes[block])
        same = published(block, "2020 budget").noisy
        assert np.array_equal(noised.noisy.values[:19], same.values)  # the census's noise is the same
    assert MECHANISMS["2020 budget, HUD noised"].hud_sigma2(11) == pytest.approx(1 / 0.0015)


def test_printed_noisy_tables_agree_with_each_other() -> None:
    s = state()
    queries = census_queries(s.census)
    for block in range(len(s)):
        rows = published(block, "2020 budget").rows
        census = rows.take(np.array([i for i, t in enumerate(rows.table) if not t.startswith("HUD")]))
        assert Reconstruction(census).feasible().found
        assert len(census) == len(queries)


def test_swapping_changes_the_census_and_not_hud() -> None:
    one, other = (
        [published(b, name).rows for b in range(len(state()))] for name in ("none", "swapping 10 %")
    )
    changed = 0
    for plain, its in zip(one, other, strict=True):
        hud = np.array([t.startswith("HUD") for t in plain.table])
        assert np.array_equal(plain.low[hud], its.low[hud])
        assert np.array_equal(plain.high[hud], its.high[hud])
        sizes = np.array([t in {"H3", "H13", "P16"} for t in plain.table])
        assert np.array_equal(plain.low[sizes], its.low[sizes])  # persons and adults are the swap key
        changed += not np.array_equal(plain.low, its.low)
    assert 0 < changed <= len(one)


def test_bedrooms_fitted_to_need_change_what_is_likely_and_not_what_is_certain() -> None:
    s = state()
    options = StudyOptions(top=6, bedrooms="to need")
    found = reconstruct_state(s, "none", seed=SEED, options=options, blocks=[0, 1])
    plain = result().answers["none"][:2]
    assert [a.status for a in found.answers["none"]] == [a.status for a in plain]
    assert [a.list_total for a in found.answers["none"]] != [a.list_total for a in plain]
    table = s.configurations(0)
    given, flat = assumed_shares(s, table, "to need"), assumed_shares(s, table, "unknown")
    its = table.mask({"property": "1"})
    of_census = table.cells(["size", "children", "elderly", "race"])[0]
    # over the bedrooms of a subsidised household, the assumption is a distribution
    total, once = (np.bincount(of_census[its], w[its]) for w in (given, flat / 3))
    np.testing.assert_allclose(total, once)
    crowded = table.mask(OVER_LIMIT) & (flat > 0)
    assert (given[crowded] < 0.05 * flat[crowded]).all()
    assert np.array_equal(given[~its], flat[~its])


def files(folder: Path) -> dict[str, bytes]:
    """Everything that a study keeps, but the times."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.parent.name != "seconds"
    }


_RUN = """
import sys
from tests.reconstruction.test_study import OPTIONS, SEED, state
from adversary.reconstruction.study import reconstruct_state
reconstruct_state(state(), ["2020 budget", "none"], sys.argv[1], blocks=[0, 1, 2, 3], seed=SEED, options=OPTIONS)
"""


def test_a_run_that_is_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole, killed, two = tmp_path / "whole", tmp_path / "killed", tmp_path / "two"
    names, blocks = ["2020 budget", "none"], [0, 1, 2, 3]
    reconstruct_state(state(), names, whole, seed=SEED, options=OPTIONS, blocks=blocks)
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen([sys.executable, "-c", _RUN, str(killed)], env=env, cwd=root)
    for _ in range(600):
        if len(list(killed.glob("2020-budget/block-*.json"))) >= 2:
            break
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    done = {p: p.stat().st_mtime_ns for p in killed.rglob("block-*.json") if p.parent.name != "seconds"}
    assert 2 <= len(done) < 8
    again = reconstruct_state(state(), names, killed, seed=SEED, options=OPTIONS, blocks=blocks)
    assert files(killed) == files(whole)
    assert len(files(whole)) == 2 * (4 + 1)
    assert all(p.stat().st_mtime_ns == before for p, before in done.items())  # finished blocks are not redone
    for name in names:
        assert again.answers[name] == result().answers[name][:4]  # and in memory it is the same
        assert not np.isnan(again.seconds[name][:, 0]).any()
    order = [3, 0, 1]
    reconstruct_state(state(), names[:1], two, seed=SEED, options=OPTIONS, processes=2, blocks=order)
    assert all(files(whole)[path] == content for path, content in files(two).items())
    assert len(files(two)) == 4


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    small = StudyOptions(top=2)
    reconstruct_state(state(), "none", tmp_path, seed=1, options=small, blocks=[0])
    for seed, options in ((2, small), (1, StudyOptions(top=3)), (1, StudyOptions(top=2, tables="rich"))):
        with pytest.raises(ModelError, match="another question"):
            reconstruct_state(state(), "none", tmp_path, seed=seed, options=options, blocks=[0])
    other = synthetic_state(state().shape, seed=4)
    assert state_hash(other) != state_hash(state())
    with pytest.raises(ModelError, match="another question"):
        reconstruct_state(other, "none", tmp_path, seed=1, options=small, blocks=[0])


def test_no_time_leaves_blocks_undecided_and_counted() -> None:
    options = StudyOptions(top=3, limits=Limits(seconds=0))
    found = reconstruct_state(state(), ["none", "2020 budget"], seed=1, options=options)
    assert found.statuses()["none"]["undecided"] + found.statuses()["none"]["flagged"] == 6
    told = evaluate(state(), found)
    assert all(np.isnan(f.precision) or f.precision == 1 for f in told.flags.values())
    assert told.flags["none"].flagged == found.statuses()["none"]["flagged"]
    assert found.statuses()["none"]["list cut by a limit"] > 0


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ModelError, match="no mechanism 'noise'"):
        reconstruct_state(state(), "noise", seed=1)
    with pytest.raises(ModelError, match="different names"):
        reconstruct_state(state(), ["none", "none"], seed=1)
    with pytest.raises(ModelError, match="different numbers from 0 to 5"):
        reconstruct_state(state(), "none", seed=1, blocks=[0, 6])
    for wrong in (
        lambda: StudyOptions(top=-1),
        lambda: StudyOptions(bedrooms="guessed"),
        lambda: Mechanism("much", swap_rate=1.5),
        lambda: Mechanism("endless", census_rho="inf"),
        lambda: Mechanism("%"),
    ):
        with pytest.raises(ModelError):
            wrong()
    with pytest.raises(ModelError, match="6 blocks for a state of 60"):
        evaluate(synthetic_state(StateShape(blocks=60), seed=1), result())


def test_flags_and_areas_are_counted_by_hand() -> None:
    truth = harmed()
    for name in MECHANISMS:
        answers = result().answers[name]
        said = [b for b, a in enumerate(answers) if a.status == "flagged"]
        f = evaluation().flags[name]
        assert (f.flagged, f.right, f.harmed, f.blocks) == (len(said), sum(truth[said]), truth.sum(), 6)
        as_printed = [b for b, a in enumerate(answers) if a.printed == "flagged"]
        assert evaluation().printed[name].flagged == len(as_printed)
        shares = np.array([a.list_harm for a in answers])
        pairs = [(x > y) + (x == y) / 2 for x in shares[truth] for y in shares[~truth]]
        assert evaluation().areas[name][0] == pytest.approx(np.mean(pairs))
    data = evaluation().blocks
    assert data["precision"].sel(mechanism="none") == 1
    assert (data["base_rate"] == truth.mean()).all()


def by_hand(name: str, key: tuple[str, ...], *, subsidised: bool, each: bool) -> tuple[np.ndarray, ...]:
    """Score, harm, uniqueness and block of every household, one by one."""
    s = state()
    rows = []
    for block in range(len(s)):
        table, answer = s.configurations(block), result().answers[name][block]
        records = [tuple(r) for r in s.block_records(block).tolist() if r[0] > 0 or not subsidised]
        columns = [table.column("children" if k == "child" else k) for k in key]

        def value(record: tuple[int, ...], columns: list[int] = columns) -> tuple[int, ...]:
            return tuple(int(record[c] > 0) if c == 3 else record[c] for c in columns)  # 3: children

        total: dict[tuple[int, ...], float] = {}
        for k, times in answer.list_total.items():
            its = value(tuple(table.codes[k].tolist()))
            total[its] = total.get(its, 0) + times / answer.listed
        mask = table.mask(OVER_LIMIT)
        for record in records:
            alike = sum(value(r) == value(record) for r in records)
            score = total.get(value(record), 0.0) / (alike if each else 1)
            rows.append((score, bool(mask[table.find([record])[0]]), alike == 1, block))
    score, harm, unique, block = zip(*rows, strict=True)
    return np.array(score), np.array(harm), np.array(unique), np.array(block)


@pytest.mark.parametrize("name", ["none", "swapping 10 %", "2020 budget"])
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_ranked_households_are_counted_by_hand(name: str, knowledge: Any) -> None:
    flagged = {b for b, a in enumerate(result().answers[name]) if a.status == "flagged"}
    for ranking, each in (("list", False), ("list a household", True)):
        score, harm, unique, block = by_hand(name, knowledge.key, subsidised=knowledge.subsidised, each=each)
        assert evaluation().households[knowledge.name] == len(score)
        for search in ("all blocks", "flagged blocks"):
            for who in ("all households", "population uniques"):
                counted = unique if who == "population uniques" else np.ones(len(score), bool)
                looked = counted & (np.isin(block, list(flagged)) if search == "flagged blocks" else True)
                its = evaluation().curve(Setting(name, knowledge.name, ranking, search, who))
                assert (len(its), its.total) == (looked.sum(), harm[counted].sum())
                for k in range(1, len(its) + 1):
                    order = np.sort(score[looked])[::-1]
                    edge = order[k - 1]
                    above = score[looked] > edge + 1e-12
                    tied = np.abs(score[looked] - edge) <= 1e-12
                    sure, in_tie = harm[looked][above].sum(), harm[looked][tied].sum()
                    room = k - above.sum()
                    assert its.hits[k - 1] == pytest.approx(sure + room * in_tie / tied.sum())
                    assert its.most[k - 1] == sure + min(room, in_tie)
                    assert its.fewest[k - 1] == sure + max(0, room - (tied.sum() - in_tie))


def test_guessing_has_the_base_rate_and_labels_fit_their_curves() -> None:
    data = evaluation().linkage
    assert data.attrs["note"] == VALIDATION
    for setting, its in evaluation().curves.items():
        at = data.sel(**setting._asdict())
        k = data["k"].values[data["k"].values <= len(its)]
        np.testing.assert_allclose(at["precision"].sel(k=k), its.precision[k - 1])
        np.testing.assert_allclose(at["recall_high"].sel(k=k), its.recall_range[1][k - 1])
        assert np.isnan(at["precision"].sel(k=data["k"].values[data["k"].values > len(its)])).all()
        if setting.ranking == "random guess" and len(its):
            np.testing.assert_allclose(its.precision, float(at["base_rate"]))
    rankings = data["ranking"].values.tolist()
    assert rankings == [r for r in RANKINGS if r != "posterior"]
    with pytest.raises(ModelError, match="no curve"):
        evaluation().curve(Setting("none", "nothing", "list"))


def test_the_sampling_attack_sees_a_fifth_of_the_households_and_no_table() -> None:
    name = KNOWLEDGE[0].name
    curves = [evaluation().curve(Setting(m, name, "sampling")) for m in MECHANISMS]
    assert all(np.array_equal(c.hits, curves[0].hits) for c in curves)
    everything = evaluate(state(), result(), seed=1, sample=1.0)
    s, table = state(), state().configurations()
    records = s.records[s.records[:, 0] > 0]
    harm = table.mask(OVER_LIMIT)[table.find(records)]
    value = np.column_stack([records[:, 1], records[:, 5], records[:, 3] > 0])  # bedrooms, race, child
    rate = np.array([harm[(value == v).all(axis=1)].mean() for v in value])
    its = everything.curve(Setting("none", name, "sampling"))
    best = rate == rate.max()
    assert its.hits[best.sum() - 1] == harm[best].sum()


def test_text_says_what_it_is_of_and_projects_the_time() -> None:
    told = result().table()
    assert told.count(VALIDATION) == 2
    each = sum(result().seconds_a_block().values())
    assert each == pytest.approx(sum(np.nansum(v) for v in result().seconds.values()) / 6)
    minutes = each * 1000 / 2 / 60
    assert f"1,000 blocks like these, 5 mechanisms, 2 processes: {minutes:,.0f} min" in told
    assert "10,224 blocks" in told
    assert "256 cores" in told
    figures = evaluation().table()
    assert figures.count(VALIDATION) == 4
    line = next(li for li in figures.splitlines() if li.startswith("none"))
    f = evaluation().flags["none"]
    assert line.split()[1:5] == [str(f.flagged), str(f.right), str(f.harmed), "6"]


def test_the_posterior_of_the_study_is_the_one_asked_by_hand_and_ranks_blocks_and_households() -> None:
    small = synthetic_state(StateShape(blocks=30, smallest=5, largest=18, violating=0.1), seed=1)
    asked = StudyOptions(top=0, posterior=True, bedrooms="to need")
    found = reconstruct_state(small, "none", seed=SEED, options=asked, blocks=[2])
    (answer,) = found.answers["none"]
    assert answer.posterior_status == "exact"
    table, truth = small.configurations(2), small.counts(2)
    census = small.census.histogram(small.records[small.block == 2][:, 2:])
    rows = publish(table, truth, small.census, census, MECHANISMS["none"], seed=1).rows
    believed = bedrooms_given_size(BEDROOMS_TO_NEED)
    shares = attacker_shares(table, small.shares(table), bedrooms=believed)
    by_hand = household_posterior(rows, shares, draws=10, seed=1)
    assert answer.posterior_harm == pytest.approx(by_hand.probability(OVER_LIMIT), rel=1e-10)
    assert sum(answer.posterior_mean.values()) == pytest.approx(by_hand.expected_number(OVER_LIMIT))
    assert "posterior" in evaluate(small, found, seed=1).linkage["ranking"].values


def test_under_noise_the_posterior_is_given_the_noisy_answers_not_the_printed_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for, keys = [], []

    def record(rows: Any, shares: Any, *, noisy: Any, seed: Any) -> Any:
        asked_for.append((rows, noisy))
        keys.append(seed.spawn_key)
        raise SamplingError("seen", 0)

    monkeypatch.setattr("adversary.reconstruction.study.household_posterior", record)
    reconstruct_state(
        state(), "2020 budget", seed=SEED, options=StudyOptions(top=0, posterior=True), blocks=[1]
    )
    ((rows, noisy),) = asked_for
    seen = published(1, "2020 budget")
    np.testing.assert_array_equal(rows.low, seen.firm.low)
    np.testing.assert_array_equal(noisy.values, seen.noisy.values)
    assert keys[0][-1] > 100, "not a stream that the noise was drawn from: its keys are 0, 1, 2, ..."


def test_a_block_whose_posterior_cannot_be_had_is_counted_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        msg = "too few lists"
        raise SamplingError(msg, 0)

    monkeypatch.setattr("adversary.reconstruction.study.household_posterior", refuse)
    asked = StudyOptions(top=0, posterior=True)
    found = reconstruct_state(state(), "none", seed=SEED, options=asked, blocks=[0])
    (answer,) = found.answers["none"]
    assert answer.posterior_status == "none: too few lists"
    assert answer.posterior_harm is None
    assert answer.status in {"flagged", "not flagged"}
