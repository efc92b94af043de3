"""Simulated noisy measurement files: what is read is what was written, and the noise is the noise that was meant."""

from __future__ import annotations

import json
import os
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from adversary.errors import BudgetError, FileFormatError, ReleaseError
from adversary.geography.blocks import BlockTable
from adversary.geography.das import aian_spine, conventional_spine, optimized_spine
from adversary.geography.plans import level_shares
from adversary.geography.spine import Spine
from adversary.privacy import discrete_gaussian as dg
from adversary.privacy.budget import Allocation
from adversary.readers import _nmf_rows
from adversary.readers.baf import read_baf
from adversary.readers.nmf import NoisyMeasurements
from adversary.readers.nmf_write import write_nmf
from adversary.readers.population import BlockCounts, synthetic_counts
from adversary.release.queries import PL94_PERSONS, PL94_UNITS, Histogram, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

pytest.importorskip("pyarrow")
SHARED = Path(os.environ.get("ADVERSARY_SHARED", Path(__file__).parents[3] / "shared"))
FOLDER = SHARED / "data" / "rhode-island-baf"
rhode_island = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)
LEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
SMALL = Histogram({"age": 2, "race": 5}, {"two": ("race", (0, 0, 1, 1, 1))})
MIX = {"total": "1/4", "age": "1/8", "two": "1/8", "detailed": "1/2"}


def table(states: tuple[str, ...] = ("01", "44"), tracts: int = 3, blocks: int = 6) -> BlockTable:
    """Blocks of two states, a few of them inside an AIAN area; one tract has a single block."""
    ids = [
        f"{s}{'001' if t % 3 else '003'}{t:06d}{g}00{b}"
        for s in states
        for t in range(1, tracts + 1)
        for g in (1, 2)
        for b in range(blocks)
    ]
    ids += [f"{s}0010009001000" for s in states]
    aian = ["0100" if i.endswith(("11003", "2005")) else "" for i in ids]
    return BlockTable(ids, aiannhce=aian, cousub=["11111"] * len(ids), place=["22222"] * len(ids))


def budget(mix: Mapping[str, str] = MIX, rho: str = "2") -> Allocation:
    """Equal shares of six levels, one query mix."""
    levels = ("nation", "state", "county", "tract", "block_group", "block")
    return Allocation(rho, dict.fromkeys(levels, "1/6"), dict.fromkeys(levels, mix))  # type: ignore[arg-type]


def small_release(folder: Path, **kw: Any) -> tuple[Spine, BlockCounts]:
    spine = optimized_spine(table(), level_shares(budget()))
    counts = synthetic_counts(spine, SMALL, seed=1, mean=20.0)
    write_nmf(folder, spine, counts, budget(), seed=7, **kw)
    return spine, counts


def truth_at(spine: Spine, counts: BlockCounts, unit: int) -> np.ndarray:
    """Histogram of a unit, the slow way: every leaf, walked up to the root."""
    out = np.zeros(counts.histogram.cells, np.int64)
    for leaf in spine.leaves.tolist():
        if unit in spine.path(leaf):
            out += counts.dense(str(spine.geocodes[leaf])[-16:])
    return out


# -------------------------------------------------------------------- round trips
@pytest.mark.parametrize("kind", ["conventional", "aian", "optimised"])
def test_spine_and_shares_come_back_as_they_were_written(tmp_path: Path, kind: str) -> None:
    make = {"conventional": conventional_spine, "aian": aian_spine, "optimised": optimized_spine}[kind]
    spine = make(table(), level_shares(budget()))
    write_nmf(tmp_path / "r", spine, synthetic_counts(spine, SMALL, seed=1), budget(), seed=7)
    back = NoisyMeasurements.open(tmp_path / "r", budget()).spine()
    assert back.levels == LEVELS

    def as_pairs(s: Spine) -> dict[tuple[str, str], tuple[str, Fraction]]:
        return {
            (s.level(u), str(s.geocodes[u])): (
                str(s.geocodes[s.parents[u]]) if s.parents[u] >= 0 else "none",
                s.share(u),
            )
            for u in range(len(s))
        }

    assert as_pairs(back) == as_pairs(spine)


def test_units_without_a_share_are_in_constraint_alone(tmp_path: Path) -> None:
    spine, _ = small_release(tmp_path / "r")
    nmf = NoisyMeasurements.open(tmp_path / "r")
    for level in LEVELS:
        units = spine.units(level)
        assert nmf.units(level).tolist() == sorted(spine.codes(units))
        measured = sorted(spine.codes(units[spine.shares[units] > 0]))
        assert (nmf.query(level, "total").geocode.tolist() if measured else []) == measured
    # a block alone in its tract has given its share away
    assert len(nmf.query("Block", "total")) < nmf.units("Block").size


def test_without_noise_to_speak_of_the_answers_are_the_true_ones(tmp_path: Path) -> None:
    spine = optimized_spine(table(), level_shares(budget()))
    counts = synthetic_counts(spine, SMALL, seed=1, mean=20.0)
    write_nmf(tmp_path / "r", spine, counts, budget(rho="1000000"), seed=7)
    nmf = NoisyMeasurements.open(tmp_path / "r")
    for level in LEVELS:
        for name in nmf.measured(level):
            found = nmf.query(level, name)
            group = SMALL.group(name)
            assert found.shape == group.shape
            for code, values in zip(found.geocode.tolist(), found.values, strict=True):
                exact = group.matrix() @ truth_at(spine, counts, spine.index(code, level))
                assert values.tolist() == exact.astype(int).tolist()


@pytest.mark.parametrize("convention", ["bounded", "unbounded"])
def test_sigma2_comes_back_exact_from_the_share_and_the_mix_of_the_units_own_level(
    tmp_path: Path, convention: str
) -> None:
    spine = optimized_spine(table(), level_shares(budget()))
    counts = synthetic_counts(spine, SMALL, seed=1)
    write_nmf(tmp_path / "r", spine, counts, budget(), seed=7, convention=convention)
    exact = NoisyMeasurements.open(tmp_path / "r", budget(), convention=convention)
    plain = NoisyMeasurements.open(tmp_path / "r")
    factor = 1 if convention == "bounded" else 2
    for level in LEVELS:
        for name, alpha in (MIX if exact.measured(level) else {}).items():
            found, printed = exact.query(level, name), plain.query(level, name)
            for code, s in zip(found.geocode.tolist(), found.sigma2.tolist(), strict=True):
                gamma = spine.share(spine.index(code, level))
                assert s == float(1 / (factor * 2 * gamma * Fraction(alpha)))
            assert np.allclose(printed.sigma2, found.sigma2, rtol=3e-7)
            assert printed.values.tolist() == found.values.tolist()


def test_a_small_noise_is_published_by_its_variance_and_read_by_its_parameter(tmp_path: Path) -> None:
    spine = optimized_spine(table(), level_shares(budget()))
    write_nmf(tmp_path / "r", spine, synthetic_counts(spine, SMALL, seed=1), budget(rho="96"), seed=7)
    nmf = NoisyMeasurements.open(tmp_path / "r")
    # 1 / (96 x 1/6 x 1/4) = 0.25, whose variance is 0.215
    assert np.isclose(nmf.query("US", "total").sigma2[0], 0.25, rtol=1e-6)


def test_units_of_housing_come_back_with_their_totals(tmp_path: Path) -> None:
    allocation = Allocation.load("2020-pl94-units")
    spine = optimized_spine(table(), level_shares(allocation))
    counts = synthetic_counts(spine, PL94_UNITS, seed=3, mean=15.0)
    done = write_nmf(tmp_path / "r", spine, counts, allocation, seed=7)
    nmf = NoisyMeasurements.open(tmp_path / "r", allocation)
    assert (nmf.product, done.folder.name, dict(done.state_totals)) == ("units", "US_Unit_PL_PROD", {})
    assert nmf.spine().path_totals() == {Fraction(1)}
    (total,) = nmf.constraints("Block")
    assert (total.name, total.sign) == ("total", "=")
    for code, value in zip(total.geocode.tolist(), total.values[:, 0].tolist(), strict=True):
        assert value == counts.dense(code[-16:]).sum()


# -------------------------------------------------------------------- noise
def noise_of(folder: Path, rho: str, seed: int = 11) -> dict[tuple[str, str], tuple[np.ndarray, float]]:
    """(level, query) -> noise drawn, and the sigma2 that rho = 2 asks for."""
    spine = conventional_spine(table(tracts=12, blocks=8), level_shares(budget()))
    counts = BlockCounts.of(spine.codes(spine.leaves)[:1], [0], [1], SMALL)
    write_nmf(folder, spine, counts, budget(rho=rho), seed=seed)
    nmf = NoisyMeasurements.open(folder)
    out = {}
    for level in ("Tract", "Block_Group", "Block"):
        for name, alpha in MIX.items():
            found = nmf.query(level, name)
            truth = np.zeros(found.values.shape)
            truth[0, 0] = 1  # the first unit of every level holds the one person, in the first cell
            out[level, name] = ((found.values - truth).ravel(), float(12 / (2 * Fraction(alpha)) / 2))
    return out


def test_the_noise_of_every_level_and_query_has_its_variance_and_a_wrong_one_would_show(
    tmp_path: Path,
) -> None:
    right = noise_of(tmp_path / "right", "2")
    z = []
    for noise, sigma2 in right.values():
        z.append((noise @ noise / noise.size / float(dg.variance(sigma2)) - 1) * np.sqrt(noise.size / 2))
    assert max(np.abs(z)) < 4.0, z
    assert abs(sum(z)) / np.sqrt(len(z)) < 3.5
    # power: sigma 10 % too large (rho / 1.21) or too small is found on the largest query of blocks alone
    for name, rho in (("wide", "200/121"), ("narrow", "200/81")):
        noise, sigma2 = noise_of(tmp_path / name, rho)["Block", "detailed"]
        off = (noise @ noise / noise.size / float(dg.variance(sigma2)) - 1) * np.sqrt(noise.size / 2)
        assert abs(off) > 6.0, (name, off)


def test_noise_of_different_units_levels_and_queries_is_independent(tmp_path: Path) -> None:
    noise = noise_of(tmp_path / "r", "2")
    pairs = [(("Block", "total"), ("Block", "detailed")), (("Block", "age"), ("Block", "two"))]
    for one, other in pairs:
        a, b = noise[one][0], noise[other][0]
        n = min(a.size, b.size)
        r = np.corrcoef(a[:n], b[:n])[0, 1] * np.sqrt(n)
        assert abs(r) < 4.0
    blocks = noise["Block", "detailed"][0].reshape(-1, 10)
    assert abs(np.corrcoef(blocks[:-1, 0], blocks[1:, 0])[0, 1]) * np.sqrt(len(blocks)) < 4.0


# -------------------------------------------------------------------- seeds
def values_of(folder: Path) -> dict[tuple[str, str], dict[str, list[int]]]:
    nmf = NoisyMeasurements.open(folder)
    out = {}
    for level in nmf.levels:
        for name in nmf.measured(level):
            found = nmf.query(level, name)
            out[level, name] = dict(zip(found.geocode.tolist(), found.values.tolist(), strict=True))
    return out


def test_one_seed_gives_one_release_in_any_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spine = conventional_spine(table(tracts=30, blocks=9), level_shares(budget()))
    counts = synthetic_counts(spine, SMALL, seed=1)
    write_nmf(tmp_path / "a", spine, counts, budget(), seed=7)
    monkeypatch.setattr(_nmf_rows, "_NUMBERS_AT_ONCE", 1)
    write_nmf(tmp_path / "b", spine, counts, budget(), seed=np.random.SeedSequence(7))
    assert spine.units("Block").size > 2 * _nmf_rows.UNITS_A_STREAM
    assert values_of(tmp_path / "a") == values_of(tmp_path / "b")
    write_nmf(tmp_path / "c", spine, counts, budget(), seed=8)
    assert values_of(tmp_path / "a") != values_of(tmp_path / "c")


def test_neither_the_order_of_states_nor_the_other_queries_change_a_value(tmp_path: Path) -> None:
    rows = table()
    turned = rows.take(np.arange(len(rows))[::-1])
    one = conventional_spine(rows, level_shares(budget()))
    # the same units listed in another order
    n = len(one)
    place = np.lexsort((-np.arange(n), one.level_of))
    rank = np.argsort(place)
    other = Spine.from_arrays(
        one.levels,
        one.geocodes[place],
        np.where(one.parents[place] < 0, -1, rank[one.parents[place]]),
        one.level_of[place],
    ).with_shares(level_shares(budget()))
    counts = synthetic_counts(turned.block, SMALL, seed=1)
    write_nmf(tmp_path / "a", one, counts, budget(), seed=7)
    write_nmf(tmp_path / "b", other, counts, budget(), seed=7)
    first = values_of(tmp_path / "a")
    assert first == values_of(tmp_path / "b")
    write_nmf(tmp_path / "c", one, counts, budget(), seed=7, queries=["detailed", "total"])
    fewer = values_of(tmp_path / "c")
    assert {name for _, name in fewer} == {"detailed", "total"}
    assert all(first[key] == fewer[key] for key in fewer)


def test_a_state_alone_has_the_noise_it_has_among_others(tmp_path: Path) -> None:
    shares = {k: v for k, v in level_shares(budget()).items() if k != "US"} | {"State": "1/3"}
    both, alone = (conventional_spine(table(s), shares) for s in (("01", "44"), ("44",)))
    counts = synthetic_counts(alone, SMALL, seed=1)
    write_nmf(tmp_path / "a", both, counts, budget(), seed=7)
    write_nmf(tmp_path / "b", alone, counts, budget(), seed=7)
    with_others, by_itself = values_of(tmp_path / "a"), values_of(tmp_path / "b")
    for key, mine in by_itself.items():
        assert {c: with_others[key][c] for c in mine} == mine


# -------------------------------------------------------------------- constraints and totals
def person_release(folder: Path, **kw: Any) -> tuple[Spine, BlockCounts, Any]:
    allocation = Allocation.load("2020-pl94-persons")
    spine = optimized_spine(table(), level_shares(allocation))
    codes = [c[-16:] for c in spine.codes(spine.leaves)]
    cells = [np.ravel_multi_index((kind, 1, 0, k), PL94_PERSONS.sizes) for k, kind in enumerate((0, 3, 5))]
    counts = BlockCounts.of([codes[0], codes[0], codes[1]], cells, [30, 12, 4], PL94_PERSONS)
    done = write_nmf(folder, spine, counts, allocation, seed=7, queries=["total", "hhgq"], **kw)
    return spine, counts, done


def test_state_totals_stand_beside_the_files_and_are_read_back(tmp_path: Path) -> None:
    _, _, done = person_release(tmp_path / "r")
    assert done.folder.name == "US_Person_PL_PROD"
    assert dict(done.state_totals) == {"01": 46, "44": 0}
    nmf = NoisyMeasurements.open(tmp_path / "r", state_totals=tmp_path / "r" / "state_totals.csv")
    assert nmf.state_totals == done.state_totals
    nation = {c.name: (c.sign, c.values.ravel().tolist()) for c in nmf.constraints("US")}
    assert nation["total"] == ("=", [46])
    assert nation["nurse_nva_0"] == ("=", [0])
    assert nation["hhgq_total_lb"] == (">=", [0] * 8)
    assert {c.name for c in nmf.constraints("Block")} == {"hhgq_total_lb", "nurse_nva_0"}


def test_facilities_give_the_bounds_of_2020_at_every_level(tmp_path: Path) -> None:
    spine = optimized_spine(table(), level_shares(Allocation.load("2020-pl94-persons")))
    codes = [c[-16:] for c in spine.codes(spine.leaves)]
    kinds = Histogram({"hhgq": 8})
    gates = BlockCounts.of([codes[0], codes[0], codes[1], codes[2]], [0, 3, 5, 0], [20, 2, 1, 7], kinds)
    person_release(tmp_path / "r", facilities=gates)
    nmf = NoisyMeasurements.open(tmp_path / "r")
    for level in LEVELS:
        bound = {c.name: c for c in nmf.constraints(level)}
        low, high = bound["hhgq_total_lb"], bound["hhgq_total_ub"]
        assert (low.sign, high.sign) == (">=", "<=")
        assert low.values.sum(axis=0).tolist() == [0, 0, 0, 2, 0, 1, 0, 0]
        assert high.values.sum(axis=0).tolist() == [99_999 * k for k in (27, 0, 0, 2, 0, 1, 0, 0)]
    none = BlockCounts.of([codes[0], codes[1]], [0, 5], [20, 1], kinds)
    with pytest.raises(ReleaseError, match="has 12 people in 0 facilities of type 3"):
        person_release(tmp_path / "s", facilities=none)
    empty = BlockCounts.of([codes[0]] * 2 + codes[1:3], [0, 3, 5, 3], [20, 2, 1, 1], kinds)
    with pytest.raises(ReleaseError, match="has 0 people in 1 facilities of type 3"):
        person_release(tmp_path / "t", facilities=empty)
    assert not (tmp_path / "s").exists()


def test_minors_in_nursing_homes_take_the_constraint_away_and_are_said(tmp_path: Path) -> None:
    allocation = Allocation.load("2020-pl94-persons")
    spine = optimized_spine(table(), level_shares(allocation))
    cell = np.ravel_multi_index((3, 0, 0, 0), PL94_PERSONS.sizes)
    counts = BlockCounts.of([spine.codes(spine.leaves)[0][-16:]], [cell], [2], PL94_PERSONS)
    done = write_nmf(tmp_path / "r", spine, counts, allocation, seed=7, queries=["total"])
    assert any("2 people under 18 are in nursing" in note for note in done.notes)
    assert "nurse_nva_0" not in {c.name for c in NoisyMeasurements.open(tmp_path / "r").constraints("Block")}


# -------------------------------------------------------------------- refusals
def test_nothing_is_written_over_and_a_failure_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "r"
    place.mkdir()
    small_release(place)  # an empty folder will do
    with pytest.raises(FileFormatError, match="is not an empty folder"):
        small_release(place)
    spine = conventional_spine(table(("44",)), level_shares(budget()))
    counts = synthetic_counts(table().block, SMALL, seed=1)
    with pytest.raises(ReleaseError, match="is not in the spine"):
        write_nmf(tmp_path / "s", spine, counts, budget(), seed=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r"]


def test_a_write_that_breaks_off_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("power cut")

    monkeypatch.setattr(_nmf_rows, "query_table", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        small_release(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_the_seed_is_written_nowhere(tmp_path: Path) -> None:
    spine = optimized_spine(table(), level_shares(budget()))
    seed = 918273645
    write_nmf(tmp_path / "r", spine, synthetic_counts(spine, SMALL, seed=1), budget(), seed=seed)
    for file in (p for p in tmp_path.rglob("*") if p.is_file()):
        assert str(seed).encode() not in file.read_bytes()
    about = json.loads((tmp_path / "r" / "simulated.json").read_text())
    assert about["rho"] == "2"
    assert about["queries"]["Block"]["detailed"] == "1/2"


def test_budgets_and_spines_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    spine = conventional_spine(table(), level_shares(budget()))
    counts = synthetic_counts(spine, SMALL, seed=1)
    strategies = {k: Strategy(SMALL, MIX) for k in LEVELS[:-1]}
    with pytest.raises(BudgetError, match="level Block has shares but no queries"):
        write_nmf(tmp_path / "r", spine, counts, strategies, 2, seed=1)
    full = {k: Strategy(SMALL, MIX) for k in LEVELS}
    for rho in (None, 0, "inf"):
        with pytest.raises(BudgetError, match="rho must be positive"):
            write_nmf(tmp_path / "r", spine, counts, full, rho, seed=1)
    with pytest.raises(BudgetError, match="neighbours must be"):
        write_nmf(tmp_path / "r", spine, counts, full, 2, seed=1, convention="both")
    with pytest.raises(BudgetError, match="query 'race' is in no level's mix"):
        write_nmf(tmp_path / "r", spine, counts, full, 2, seed=1, queries=["race"])
    with pytest.raises(ReleaseError, match="another histogram"):
        write_nmf(
            tmp_path / "r", spine, counts, {k: Strategy(PL94_UNITS, {"total": 1}) for k in LEVELS}, 2, seed=1
        )
    loose = Spine.from_blocks({"tract": ["1", "1"], "block": ["21", "22"]}, {"tract": "1/2", "block": "1/2"})
    own = {k: Strategy(SMALL, MIX) for k in ("tract", "block")}
    with pytest.raises(FileFormatError, match="does not begin with its parent's"):
        write_nmf(tmp_path / "r", loose, BlockCounts.of(["21"], [0], [1], SMALL), own, 2, seed=1)


def test_a_users_own_spine_and_levels_will_do(tmp_path: Path) -> None:
    spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]}, {"tract": "1/2", "block": "1/2"})
    own = {k: Strategy(SMALL, {"total": 1}) for k in ("tract", "block")}
    write_nmf(tmp_path / "r", spine, BlockCounts.of(["12"], [0], [5], SMALL), own, 200, seed=1)
    nmf = NoisyMeasurements.open(tmp_path / "r")
    assert nmf.levels == ("tract", "block")
    assert nmf.states == ()
    assert nmf.spine().codes([0, 1, 2]) == ["1", "11", "12"]
    assert nmf.query("block", "total").values.tolist() == [[0], [5]]


# -------------------------------------------------------------------- a whole state
@pytest.fixture(scope="module")
def state() -> Spine:
    return optimized_spine(read_baf(FOLDER), level_shares(Allocation.load("2020-pl94-persons")))


@rhode_island
def test_rhode_island_synthetic_people_go_out_and_come_back(state: Spine, tmp_path: Path) -> None:
    """The blocks are Rhode Island's; the people on them are synthetic."""
    allocation = Allocation.load("2020-pl94-persons")
    counts = synthetic_counts(state, seed=1, mean=66.0)
    done = write_nmf(
        tmp_path / "r", state, counts, allocation, seed=3, queries=["total", "hispanic * cenrace"]
    )
    nmf = NoisyMeasurements.open(tmp_path / "r", allocation)
    assert nmf.states == ("044", "144")
    assert nmf.units("Block", "144").size == 25
    assert nmf.units("Block").size == 25_649
    back = nmf.spine()
    assert back.path_totals() == {Fraction(1)}
    assert [row["measured"] for row in back.table()] == [row["measured"] for row in state.table()]
    assert dict(done.state_totals) == {"44": counts.total}
    # block totals: noise of sd 89 about the truth, to four standard errors of its variance
    total = nmf.query("Block", "total")
    truth = np.array([counts.dense(c[-16:]).sum() for c in total.geocode[:3000].tolist()])
    noise = total.values[:3000, 0] - truth
    assert abs(noise @ noise / 3000 / total.sigma2[0] - 1) < 4 * np.sqrt(2 / 3000)
    assert round(float(total.sigma2[0]), 2) == 7963.26
    assert total.values.dtype == np.int64


@rhode_island
@pytest.mark.slow
def test_all_queries_of_rhode_island_in_bounded_memory(state: Spine, tmp_path: Path) -> None:
    allocation = Allocation.load("2020-pl94-persons")
    counts = synthetic_counts(state, seed=1, mean=66.0)
    tracemalloc.start()
    done = write_nmf(tmp_path / "r", state, counts, allocation, seed=3)
    wrote = tracemalloc.get_traced_memory()[1]
    assert done.numbers == 70_616_786
    nmf = NoisyMeasurements.open(tmp_path / "r", allocation)
    tracemalloc.reset_peak()
    seen = sum(b.values.size for b in nmf.batches("Block", "detailed"))
    read = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 25_634 * 2016
    whole = 8 * seen  # 413 MB as one array
    assert wrote < whole / 3, wrote
    assert read < whole / 3, read
