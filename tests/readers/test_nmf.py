"""Noisy measurement files, written here column by column: what is read, and everything that is refused."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from adversary.errors import BudgetError, FileFormatError
from adversary.privacy import discrete_gaussian as dg
from adversary.privacy.budget import Allocation
from adversary.readers._nmf_noise import gamma_candidates, published_variance, sigma2_of, snapped
from adversary.readers.nmf import Answers, NoisyMeasurements, geocode16_of, geoid_of

if TYPE_CHECKING:
    from pathlib import Path

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

# two states, the first with a part inside AIAN areas; widths 0, 3, 5 and 23, and a block ends in its 16 characters
BLOCKS = {
    "001": ["00110" + "01" + g for g in ("0100102010011000", "0100102010011001", "0100102020022000")],
    "101": ["10110" + "01" + "0100102010011002"],
    "044": ["04414" + "01" + "4400103010011000"],
}
SIZES = {"total": (1, 1, 1, 1), "hispanic": (1, 1, 2, 1), "hhinstlevels": (3, 1, 1, 1)}


def put(path: Path, columns: dict[str, Any]) -> Path:
    """Write one Parquet file, folders and all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def rows(
    entries: list[tuple[str, str, list[Any] | None, float | None]],
    value_type: Any = None,
    variance_type: Any = None,
    **replaced: Any,
) -> dict[str, Any]:
    """Columns of a DPQuery file from (geocode, query, values, variance)."""
    names = [q for _, q, _, _ in entries]
    columns = {
        "geocode": pa.array([g for g, _, _, _ in entries], pa.string()),
        "query_name": pa.array([f"{q}_dpq" for q in names]),
        **{axis: pa.array(["*"] * len(entries)) for axis in ("hhgq", "votingage", "hispanic", "cenrace")},
        "query_shape": pa.array([list(SIZES[q]) for q in names], pa.list_(pa.int32())),
        "value": pa.array([v for _, _, v, _ in entries], value_type or pa.list_(pa.int64())),
        "variance": pa.array([v for _, _, _, v in entries], variance_type or pa.float32()),
    }
    return {k: v for k, v in {**columns, **replaced}.items() if v is not None}


def constraint(codes: list[str], name: str = "hhgq_total_lb_con", sign: str | None = ">=") -> dict[str, Any]:
    """Columns of a Constraint file: eight zeros a unit."""
    columns: dict[str, Any] = {
        "geocode": pa.array(codes, pa.string()),
        "query_name": pa.array([name] * len(codes)),
        **{axis: pa.array(["*"] * len(codes)) for axis in ("hhgq", "votingage", "hispanic", "cenrace")},
        "query_shape": pa.array([[8, 1, 1, 1]] * len(codes), pa.list_(pa.int32())),
        "value": pa.array([[0] * 8] * len(codes), pa.list_(pa.int32())),
    }
    return columns if sign is None else {**columns, "sign": pa.array([sign] * len(codes))}


def release(folder: Path, *, root: bool = True) -> Path:
    """Write a small release: US, State, County (two characters more), Block; every total is 10, noise 4."""
    product = folder / "US_Person_PL_PROD"
    if root:
        put(
            product / "US.parquet/DPQuery/part-0.parquet",
            rows([("", "hispanic", [30, 20], 4.0), ("", "hhinstlevels", [40, 6, 4], 9.0)]),
        )
        put(product / "US.parquet/Constraint/part-0.parquet", constraint([""]))
    for state, blocks in BLOCKS.items():
        for level, width in (("State", 3), ("County", 5), ("Block", 23)):
            codes = sorted({b[:width] for b in blocks})
            here = {c: [10 * sum(b.startswith(c) for b in blocks)] for c in codes}
            made = [(c, "total", v, 4.0) for c, v in here.items()]
            made += [(c, "hispanic", [v[0] - 3, 3], 0.21501268) for c, v in here.items()]
            kind = pa.list_(pa.int32() if state == "001" else pa.int64())
            put(product / f"{level}.parquet/DPQuery/State={state}/part-0.parquet", rows(made, kind))
            put(product / f"{level}.parquet/Constraint/State={state}/part-0.parquet", constraint(codes))
    return product


def block_file(product: Path, state: str = "044") -> Path:
    return product / f"Block.parquet/DPQuery/State={state}/part-0.parquet"


def one_block(product: Path, entries: list[Any], **kw: Any) -> NoisyMeasurements:
    """Put the rows of the file of state 044 at Block in the place of what is there."""
    put(block_file(product), rows(entries, **kw))
    return NoisyMeasurements.open(product)


B44 = BLOCKS["044"][0]


# -------------------------------------------------------------------- folders
def test_levels_states_and_units_come_from_the_folders_as_text(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    assert nmf.levels == ("US", "State", "County", "Block")
    assert nmf.states == ("001", "044", "101")
    assert nmf.product == "persons"
    assert nmf.units("US").tolist() == [""]
    assert nmf.units("State").tolist() == ["001", "044", "101"]
    assert nmf.units("Block").tolist() == sorted(c for codes in BLOCKS.values() for c in codes)
    assert nmf.measured("Block") == ("hispanic", "total")
    assert nmf.measured("US") == ("hhinstlevels", "hispanic")
    assert "US > State > County > Block, 3 state parts" in repr(nmf)


def test_state_001_is_never_1_and_widths_of_integers_meet_in_one_column(tmp_path: Path) -> None:
    """P16: int32 lists in one partition and int64 in the other; 001 and 101 side by side."""
    nmf = NoisyMeasurements.open(release(tmp_path))
    both = nmf.query("Block", "total", states="01")
    assert both.values.dtype == np.int64
    assert [c[:3] for c in both.geocode.tolist()] == ["001", "001", "001", "101"]
    assert nmf.query("Block", "total", states="001").geocode.size == 3
    assert nmf.query("Block", "total", states="101").geocode.size == 1
    assert nmf.query("Block", "total", states=["101", "44"]).geocode.size == 2
    assert nmf.query("Block", "total").values.tolist() == [[10]] * 5


def test_a_state_given_as_a_number_is_refused(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    with pytest.raises(FileFormatError, match=r"a state is text.* got 1"):
        nmf.query("Block", "total", states=[1])  # type: ignore[list-item]
    with pytest.raises(FileFormatError, match="no files of state 002, 102"):
        nmf.units("Block", "02")


def test_a_folder_whose_state_became_a_number_is_refused(tmp_path: Path) -> None:
    product = release(tmp_path)
    (product / "Block.parquet/DPQuery/State=001").rename(product / "Block.parquet/DPQuery/State=1")
    with pytest.raises(FileFormatError, match=r"State=1.*rename the folder"):
        NoisyMeasurements.open(product)


def test_the_parent_of_one_product_will_do_and_of_two_will_not(tmp_path: Path) -> None:
    product = release(tmp_path)
    assert NoisyMeasurements.open(tmp_path).folder == product
    put(
        tmp_path / "US_Unit_PL_PROD/US.parquet/DPQuery/a.parquet",
        {"geocode": pa.array([""]), "query_name": pa.array(["detailed_dpq"]), "h1": pa.array(["detailed"])},
    )
    with pytest.raises(FileFormatError, match="2 products, US_Person_PL_PROD, US_Unit_PL_PROD"):
        NoisyMeasurements.open(tmp_path)
    assert NoisyMeasurements.open(tmp_path / "US_Unit_PL_PROD").product == "units"
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFormatError, match="holds no noisy measurement files"):
        NoisyMeasurements.open(tmp_path / "empty")


def test_a_level_that_is_one_file_is_refused(tmp_path: Path) -> None:
    product = release(tmp_path)
    put(product / "Tract.parquet", rows([("044", "total", [1], 4.0)]))
    with pytest.raises(FileFormatError, match=r"Tract\.parquet is a file, but a level is a folder"):
        NoisyMeasurements.open(product)


def test_a_codes_state_must_be_that_of_its_folder(tmp_path: Path) -> None:
    product = release(tmp_path)
    (block_file(product, "001")).replace(block_file(product, "101"))
    with pytest.raises(FileFormatError, match="lies in the folder State=101"):
        NoisyMeasurements.open(product).query("Block", "total")


# -------------------------------------------------------------------- leading zeros
def test_geocodes_that_are_numbers_are_refused_with_the_way_out(tmp_path: Path) -> None:
    """P15: 010010201001000 read as an integer."""
    product = release(tmp_path)
    numbers = pa.array([10010201001000], pa.int64())
    one = rows([(B44, "total", [1], 4.0)], geocode=numbers)
    put(block_file(product, "001"), one)
    with pytest.raises(FileFormatError, match=r"geocode is int64, not text, 10010201001000.*zeros"):
        NoisyMeasurements.open(product).query("Block", "total", "001")
    put(
        product / "Block.parquet/Constraint/State=001/part-0.parquet",
        {**constraint(["x"]), "geocode": numbers},
    )
    with pytest.raises(FileFormatError, match="geocode is int64"):
        NoisyMeasurements.open(product).units("Block")


def test_a_code_that_lost_its_zero_among_others_is_refused(tmp_path: Path) -> None:
    product = release(tmp_path)
    short = [BLOCKS["001"][0], BLOCKS["001"][1][1:], BLOCKS["001"][2]]
    put(product / "Block.parquet/Constraint/State=001/part-0.parquet", constraint(short))
    with pytest.raises(FileFormatError, match="has 22 characters where others have 23"):
        NoisyMeasurements.open(product).units("Block")


def test_geoids_drop_the_twelfth_of_the_last_sixteen_characters() -> None:
    code = "0441000110001" + "01" + "4400103010011000"
    assert geoid_of(code) == "440010301001000"
    assert geocode16_of("440010301001000") == "4400103010011000"
    many = geoid_of(np.array([code, code]))
    assert many.tolist() == ["440010301001000"] * 2
    with pytest.raises(FileFormatError, match="15-digit GEOID"):
        geocode16_of(10010201001000)
    with pytest.raises(FileFormatError, match="does not end as a block code does"):
        geoid_of("4400103010021000")


# -------------------------------------------------------------------- values
def test_a_value_without_information_is_dropped_and_reported(tmp_path: Path) -> None:
    """P5: NaN with infinite variance goes, and the others are as if it had never been there."""
    other = B44[:-1] + "9"
    product = release(tmp_path)
    put(product / "Block.parquet/Constraint/State=044/part-0.parquet", constraint([B44, other]))
    alone = one_block(product, [(B44, "total", [7], 4.0)]).query("Block", "total", "44")
    for empty in ([float("nan")], [None], None):
        kind = pa.list_(pa.float64() if empty and empty[0] is not None else pa.int64())
        nmf = one_block(product, [(other, "total", empty, np.inf), (B44, "total", [7], 4.0)], value_type=kind)
        found = nmf.query("Block", "total", "44")
        assert found.geocode.tolist() == alone.geocode.tolist()
        assert found.values.tolist() == alone.values.tolist() == [[7]]
        assert found.sigma2.tolist() == alone.sigma2.tolist() == [4.0]
        assert found.dropped.tolist() == [other]
        assert found.report.startswith("1 measurement carries no information")
        assert "1 measurement carries no information" in repr(found)
        assert nmf.table("44").splitlines()[-1].split()[-1] == "1"


@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_a_missing_value_with_a_finite_variance_is_an_error_with_file_and_row(
    tmp_path: Path, kind: str
) -> None:
    missing = None if kind == "int64" else float("nan")
    entries = [(B44, "hispanic", [1, 2], 4.0), (B44, "total", [missing], 4.0)]
    nmf = one_block(release(tmp_path), entries, value_type=pa.list_(getattr(pa, kind)()))
    with pytest.raises(FileFormatError, match=r"State=044/part-0.parquet row 1: a value is missing.*\(4\)"):
        nmf.query("Block", "total", "44")


def test_half_a_list_missing_is_an_error_too(tmp_path: Path) -> None:
    nmf = one_block(release(tmp_path), [(B44, "hispanic", [1, None], 4.0)])
    with pytest.raises(FileFormatError, match="row 0: a value is missing"):
        nmf.query("Block", "hispanic", "44")


@pytest.mark.parametrize("bad", [-1.0, None, float("nan")])
def test_a_variance_that_cannot_be_is_refused(tmp_path: Path, bad: float | None) -> None:
    nmf = one_block(release(tmp_path), [(B44, "total", [3], bad)])
    with pytest.raises(FileFormatError, match="row 0: the variance"):
        nmf.query("Block", "total", "44")


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "float32", "float64", "scalar"])
def test_whole_numbers_of_any_type_are_the_same_integers(tmp_path: Path, kind: str) -> None:
    """P17: [3, null, -2] as nullable integers, as floats; a null has no information here."""
    codes = [B44[:-1] + k for k in "012"]
    product = release(tmp_path)
    put(product / "Block.parquet/Constraint/State=044/part-0.parquet", constraint(codes))
    scalar = kind == "scalar"
    values: list[Any] = [3, None, -2] if scalar else [[3], [None], [-2]]
    if kind.startswith("float"):
        values = [[3.0], [None], [-2.0]]
    arrow = pa.float64() if scalar else pa.list_(getattr(pa, kind)())
    entries = [
        (c, "total", v, np.inf if i == 1 else 4.0) for i, (c, v) in enumerate(zip(codes, values, strict=True))
    ]
    found = one_block(product, entries, value_type=arrow).query("Block", "total", "44")
    assert found.values.tolist() == [[3], [-2]]
    assert found.values.dtype == np.int64
    assert found.dropped.tolist() == [codes[1]]


@pytest.mark.parametrize("bad", [2.5, 2.0**53, float("inf")])
def test_a_fraction_is_refused_with_file_row_and_value(tmp_path: Path, bad: float) -> None:
    entries = [(B44, "hispanic", [3.0, -2.0], 4.0), (B44, "total", [bad], 4.0)]
    nmf = one_block(release(tmp_path), entries, value_type=pa.list_(pa.float64()))
    with pytest.raises(FileFormatError, match=rf"State=044/part-0.parquet row 1: value {bad!r}") as caught:
        nmf.query("Block", "total", "44")
    assert caught.value.value == bad
    assert nmf.query("Block", "hispanic", "44").values.tolist() == [[3, -2]]


def test_large_counts_keep_every_digit(tmp_path: Path) -> None:
    big = 2**40 + 1
    assert one_block(release(tmp_path), [(B44, "total", [big], 1.21)]).query(
        "Block", "total", "44"
    ).values.tolist() == [[big]]


def test_the_shape_must_fit_the_values(tmp_path: Path) -> None:
    nmf = one_block(release(tmp_path), [(B44, "hispanic", [1, 2, 3], 4.0)])
    with pytest.raises(FileFormatError, match=r"query_shape \[1, 1, 2, 1\] asks for 2 values, there are 3"):
        nmf.query("Block", "hispanic", "44")


def test_text_in_the_place_of_numbers_is_refused(tmp_path: Path) -> None:
    nmf = one_block(release(tmp_path), [(B44, "total", ["3"], 4.0)], value_type=pa.list_(pa.string()))
    with pytest.raises(FileFormatError, match="value is list"):
        nmf.query("Block", "total", "44")


# -------------------------------------------------------------------- rows
def test_a_unit_measured_twice_is_refused(tmp_path: Path) -> None:
    nmf = one_block(release(tmp_path), [(B44, "total", [1], 4.0), (B44, "total", [2], 4.0)])
    with pytest.raises(FileFormatError, match="2 rows of the query 'total'"):
        nmf.query("Block", "total", "44")
    product = release(tmp_path / "other")
    table = pq.read_table(block_file(product))
    pq.write_table(table, block_file(product).with_name("part-1.parquet"))
    with pytest.raises(FileFormatError, match="is in two files"):
        NoisyMeasurements.open(product).query("Block", "total", "44")


def test_a_unit_that_constraint_does_not_list_is_refused(tmp_path: Path) -> None:
    nmf = one_block(release(tmp_path), [(B44[:-1] + "7", "total", [1], 4.0)])
    with pytest.raises(FileFormatError, match="was measured but Constraint does not list it"):
        nmf.query("Block", "total", "44")


def test_units_without_budget_are_units_all_the_same(tmp_path: Path) -> None:
    product = release(tmp_path)
    bypassed = B44[:-1] + "5"
    put(product / "Block.parquet/Constraint/State=044/part-0.parquet", constraint([B44, bypassed]))
    nmf = NoisyMeasurements.open(product)
    assert nmf.units("Block", "44").tolist() == [B44, bypassed]
    total = nmf.query("Block", "total", "44")
    assert total.geocode.tolist() == [B44]
    aligned = total.aligned(nmf.units("Block", "44"))
    assert aligned.values.tolist() == [[10], [0]]
    assert aligned.sigma2.tolist() == [4.0, np.inf]
    with pytest.raises(FileFormatError, match="was measured but is not among the 1 units"):
        total.aligned(np.array([bypassed]))


def test_without_constraint_files_a_warning_says_what_may_be_missing(tmp_path: Path) -> None:
    product = release(tmp_path)
    for file in (product / "Block.parquet/Constraint").rglob("*.parquet"):
        file.unlink()
    with pytest.warns(UserWarning, match="level Block has no Constraint files"):
        assert NoisyMeasurements.open(product).units("Block", "44").tolist() == [B44]


def test_a_query_that_was_not_measured_is_named_with_those_that_were(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    with pytest.raises(FileFormatError, match="'total' was not measured at level US: hhinstlevels, hispanic"):
        nmf.query("US", "total")
    with pytest.raises(FileFormatError, match="'Tract' is no level"):
        nmf.query("Tract", "total")


def test_one_cell_is_a_column_of_the_query(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    whole = nmf.query("Block", "hispanic")
    for cell in (0, 1, (0, 0, 1, 0)):
        k = cell if isinstance(cell, int) else 1
        assert nmf.cell("Block", "hispanic", cell).values.tolist() == whole.values[:, k].tolist()
    with pytest.raises(FileFormatError, match=r"cell 2 of 'hispanic' is not in 0\.\.1"):
        nmf.cell("Block", "hispanic", 2)
    with pytest.raises(FileFormatError, match="not within the query's shape"):
        nmf.cell("Block", "hispanic", (0, 0, 2, 0))


def test_constraints_have_their_sign_or_one_that_the_name_tells(tmp_path: Path) -> None:
    product = release(tmp_path)
    nmf = NoisyMeasurements.open(product)
    (bound,) = nmf.constraints("Block")
    assert (bound.name, bound.sign, bound.values.shape) == ("hhgq_total_lb", ">=", (5, 8))
    file = product / "Block.parquet/Constraint/State=044/part-0.parquet"
    put(file, constraint([B44], "hhgq_total_ub_con", None))
    assert nmf.constraints("Block", ["hhgq_total_ub"], "44")[0].sign == "<="
    put(file, constraint([B44], "secret_con", None))
    with pytest.raises(FileFormatError, match="does not tell it"):
        nmf.constraints("Block", states="44")
    put(file, constraint([B44], "total_con", "~"))
    with pytest.raises(FileFormatError, match="has the sign '~'"):
        nmf.constraints("Block", states="44")
    put(file, constraint([B44], "total_con", "le"))
    assert nmf.constraints("Block", states="44")[0].sign == "<="


# -------------------------------------------------------------------- noise
def test_variance_becomes_sigma2_by_the_law_of_the_noise(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    assert nmf.query("Block", "total").sigma2.tolist() == [4.0] * 5
    # a published variance of 0.215013 is a sigma2 of 0.25, not of 0.215
    assert np.allclose(nmf.query("Block", "hispanic").sigma2, 0.25, rtol=1e-6)


@pytest.mark.parametrize("sigma2", [0.03, 0.1, 0.5, 1.0, 1.21, 2.9, 3.1, 10.09, 99.0, 101.0, 7963.0])
def test_turning_the_variance_back_finds_sigma2(sigma2: float) -> None:
    n = np.arange(-400, 401)
    p = np.exp(-0.5 * n**2 / sigma2)
    exact = float((p * n**2).sum() / p.sum()) if sigma2 <= 100 else sigma2
    assert np.isclose(float(published_variance(sigma2)), exact, rtol=1e-12)
    assert np.isclose(float(sigma2_of(np.array([exact]))[0]), sigma2, rtol=1e-10)
    single = np.array([np.float32(exact)], float)
    assert np.isclose(float(sigma2_of(single)[0]), sigma2, rtol=2e-7)


def test_with_a_budget_sigma2_is_exact_and_says_which_share_it_was() -> None:
    allocation = Allocation.load("2020-pl94-persons")
    levels = ("US", "State", "County", "Tract", "Block_Group", "Block")
    shares = gamma_candidates(allocation, "Tract", levels)
    assert shares == (Fraction(687, 4099), Fraction(1943, 4099), Fraction(2108, 4099))
    rho, alpha = Fraction(293764, 114921), Fraction(1567, 4102)
    exact = [float(1 / (rho * g * alpha)) for g in shares]
    printed = published_variance(exact).astype(np.float32).astype(float)
    sigma2, index = snapped(printed, list(zip(shares, exact, strict=True)), "Tract total")
    assert sigma2.tolist() == exact
    assert index.tolist() == [0, 1, 2]
    assert not np.array_equal(sigma2_of(printed), exact)
    with pytest.raises(FileFormatError, match="is none that the allocation gives"):
        snapped(printed * 1.000001, list(zip(shares, exact, strict=True)), "Tract total")


def test_an_allocation_of_another_run_is_refused(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path), "2020-pl94-persons")
    with pytest.raises(FileFormatError, match="Block total: a variance of 4 is none"):
        nmf.query("Block", "total")


def test_shares_come_from_the_noise_and_every_path_spends_the_whole(tmp_path: Path) -> None:
    allocation = Allocation.from_rho(
        {"state": {"total": "1/10"}, "county": {"total": "1/20"}, "block": {"total": "1/20"}}
    )
    product = tmp_path / "P"
    codes = {
        "State": ["044"],
        "County": ["04401", "04402"],
        "Block": ["04401" + "7" * 18, "04402" + "7" * 18],
    }
    noise = {"State": [10.0], "County": [10.0, 10.0], "Block": [None, None]}  # only children give theirs up
    for level, mine in codes.items():
        made = [(c, "total", [5], v) for c, v in zip(mine, noise[level], strict=True) if v is not None]
        if made:
            put(product / f"{level}.parquet/DPQuery/State=044/a.parquet", rows(made))
        put(product / f"{level}.parquet/Constraint/State=044/a.parquet", constraint(mine))
    spine = NoisyMeasurements.open(product, allocation).spine()
    assert [str(spine.share(u)) for u in spine.path("04401" + "7" * 18)] == ["1/2", "1/2", "0"]
    assert spine.path_totals() == {Fraction(1)}
    put(product / "County.parquet/DPQuery/State=044/a.parquet", rows([("04401", "total", [5], 20.0)]))
    with pytest.warns(UserWarning, match="spend only 0.5 of the budget"):
        NoisyMeasurements.open(product, allocation).spine()
    put(
        product / "Block.parquet/DPQuery/State=044/a.parquet",
        rows([("04401" + "7" * 18, "total", [5], 20.0)]),
    )
    put(product / "County.parquet/DPQuery/State=044/a.parquet", rows([("04401", "total", [5], 10.0)]))
    with pytest.raises(BudgetError, match="spends 5/4 of the budget"):
        NoisyMeasurements.open(product, allocation).spine()


# -------------------------------------------------------------------- spine
def test_the_spine_nests_codes_of_whatever_widths_the_levels_have(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    spine = nmf.spine()
    assert spine.levels == ("US", "State", "County", "Block")
    assert len(spine) == 1 + 3 + 3 + 5
    for level in spine.levels:
        assert spine.geocodes[spine.units(level)].tolist() == nmf.units(level).tolist()
    assert spine.codes(spine.path(B44)) == ["", "044", "04414", B44]


def test_one_state_leaves_the_nation_out(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    spine = nmf.spine("01")
    assert spine.levels == ("State", "County", "Block")
    assert spine.geocodes[spine.parents < 0].tolist() == ["001", "101"]
    assert nmf.spine(levels=["State", "Block"]).levels == ("State", "Block")


def test_a_nation_that_counts_more_than_the_states_at_hand_is_refused(tmp_path: Path) -> None:
    product = release(tmp_path)
    nation = product / "US.parquet/DPQuery/part-0.parquet"
    put(nation, rows([("", "hispanic", [60, 20], 4.0)]))  # a gap of 30, which is 7.5 standard deviations
    NoisyMeasurements.open(product).spine()
    put(nation, rows([("", "hispanic", [70, 20], 4.0)]))
    with pytest.raises(FileFormatError, match=r"US counts 90 but the state parts at hand together 50"):
        NoisyMeasurements.open(product).spine()
    assert NoisyMeasurements.open(product).spine(["01", "44"]).levels == ("State", "County", "Block")


def test_a_level_that_lacks_a_unit_is_named(tmp_path: Path) -> None:
    product = release(tmp_path)
    put(product / "County.parquet/Constraint/State=044/part-0.parquet", constraint(["04499"]))
    with pytest.raises(FileFormatError, match="County '04499' is in the files of County but has no unit"):
        NoisyMeasurements.open(product).spine()


def test_tables_that_disagree_because_of_noise_are_no_error(tmp_path: Path) -> None:
    """P18: a parent of 12 over children of -3, 4, 2."""
    product = tmp_path / "P"
    codes = [B44[:-1] + k for k in "012"]
    put(product / "State.parquet/DPQuery/State=044/a.parquet", rows([("044", "total", [12], 10.09)]))
    put(product / "State.parquet/Constraint/State=044/a.parquet", constraint(["044"]))
    made = [(c, "total", [v], 10.09) for c, v in zip(codes, (-3, 4, 2), strict=True)]
    put(product / "Block.parquet/DPQuery/State=044/a.parquet", rows(made))
    put(product / "Block.parquet/Constraint/State=044/a.parquet", constraint(codes))
    nmf = NoisyMeasurements.open(product)
    assert len(nmf.spine()) == 4
    block = nmf.query("Block", "total")
    assert block.values.ravel().tolist() == [-3, 4, 2]
    weight = np.exp(dg.log_pmf(block.values[0, 0] - np.arange(6), float(block.sigma2[0])))
    expected = [0.380937, 0.269281, 0.172392, 0.099951, 0.052482, 0.024957]
    assert np.allclose(weight / weight.sum(), expected, atol=1e-5)


# -------------------------------------------------------------------- totals and overview
def test_state_totals_come_from_outside_as_text(tmp_path: Path) -> None:
    product = release(tmp_path)
    file = tmp_path / "totals.csv"
    file.write_text("geocode,name,value\n01,Alabama,40\n44,Rhode Island,10\n")
    assert NoisyMeasurements.open(product, state_totals=file).state_totals == {"01": 40, "44": 10}
    with pytest.raises(FileFormatError, match="two digits of FIPS as text"):
        NoisyMeasurements.open(product, state_totals={"1": 40})
    file.write_text("geocode,name,value\n01,Alabama,40\n01,Alabama,40\n")
    with pytest.raises(FileFormatError, match="line 3: state '01' twice"):
        NoisyMeasurements.open(product, state_totals=file)
    file.write_text("state,value\n01,40\n")
    with pytest.raises(FileFormatError, match="no column 'geocode'"):
        NoisyMeasurements.open(product, state_totals=file)


def test_totals_that_the_noisy_counts_contradict_are_refused(tmp_path: Path) -> None:
    product = release(tmp_path)  # state 01: 30 + 10 in two parts, each with noise of variance 4
    NoisyMeasurements.open(product, state_totals={"01": 45, "44": 10}).spine()
    wrong = NoisyMeasurements.open(product, state_totals={"01": 80, "44": 10})
    with pytest.raises(
        FileFormatError, match="total of state 01 is given as 80, but its noisy counts sum to 40"
    ):
        wrong.spine()
    wrong.spine("44")
    wrong.spine("001")  # half a state has no total to compare with


def test_the_table_names_levels_queries_noise_and_what_was_dropped(tmp_path: Path) -> None:
    text = NoisyMeasurements.open(release(tmp_path)).table()
    assert "turned back from the published variance" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["Block", "5", "total", "5", "1", "4", "0"] in lines
    assert ["State", "3", "total", "3", "1", "4", "0"] in lines
    assert "hhinstlevels" in text


def test_reading_one_level_does_not_touch_the_others(tmp_path: Path) -> None:
    product = release(tmp_path)
    for file in product.rglob("*.parquet"):
        if file.is_file() and "County" in str(file):
            file.write_bytes(b"not parquet at all")
        if file.is_file() and "State=101" in str(file):
            file.write_bytes(b"nor this")
    nmf = NoisyMeasurements.open(product)
    assert len(nmf.query("Block", "total", ["001", "44"])) == 4
    assert nmf.units("US").size == 1
    with pytest.raises(FileFormatError, match="is no Parquet file, or was cut short"):
        nmf.units("County")


def test_batches_hold_few_rows_and_together_are_the_query(tmp_path: Path) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    parts = list(nmf.batches("Block", "total", rows=1))
    assert max(len(p) for p in parts) == 1
    together = np.sort(np.concatenate([p.geocode for p in parts]))
    assert together.tolist() == nmf.query("Block", "total").geocode.tolist()


def test_answers_that_do_not_fit_into_memory_are_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nmf = NoisyMeasurements.open(release(tmp_path))
    monkeypatch.setattr("adversary.readers._nmf_answers.free_memory", lambda: 500)
    with pytest.raises(FileFormatError, match=r"need more than the 0\.0 GB that are free: name some states"):
        nmf.query("Block", "total")
    assert len(nmf.query("Block", "total", "101")) == 1
    monkeypatch.setattr("adversary.readers._nmf_answers.free_memory", lambda: None)
    assert len(nmf.query("Block", "total")) == 5


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product = release(tmp_path)
    monkeypatch.setattr("adversary.readers._nmf_columns.find_spec", lambda name: None)
    with pytest.raises(FileFormatError, match=r"pip install 'dp-adversary\[readers\]'"):
        NoisyMeasurements.open(product)


def test_importing_the_reader_loads_no_pyarrow() -> None:
    code = (
        "import sys, adversary.readers.nmf; print('pyarrow' in sys.modules, 'scipy.special' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_answers_are_a_plain_record() -> None:
    empty = Answers("Block", "total", np.zeros(0, np.str_), np.zeros((0, 1), np.int64), np.zeros(0))
    assert len(empty) == 0
    assert empty.report == "every measurement carries information"


# -------------------------------------------------------------------- other ways to write the same
@pytest.mark.parametrize("kind", ["dictionary", "large", "fixed", "no shape", "double", "counties", "litter"])
def test_other_arrow_types_and_folders_hold_the_same_numbers(tmp_path: Path, kind: str) -> None:
    codes = [B44[:-1] + k for k in "0123"]
    product = release(tmp_path)
    put(product / "Block.parquet/Constraint/State=044/part-0.parquet", constraint(codes))
    entries = [(c, "hispanic", [i, -i], 4.0) for i, c in enumerate(codes)]
    entries.insert(2, (codes[0], "total", [7], 9.0))
    columns = rows(entries)
    if kind == "dictionary":
        columns |= {k: columns[k].dictionary_encode() for k in ("geocode", "query_name")}
    if kind == "large":
        columns["geocode"] = columns["geocode"].cast(pa.large_string())
        columns["value"] = columns["value"].cast(pa.large_list(pa.int16()))
    if kind == "fixed":
        columns = rows([e for e in entries if e[1] == "hispanic"])
        columns["value"] = columns["value"].cast(pa.list_(pa.int64(), 2))
    if kind == "no shape":
        del columns["query_shape"]
    if kind == "double":
        columns["variance"] = columns["variance"].cast(pa.float64())
    file = put(block_file(product), columns)
    if kind == "counties":
        inside = file.parent / "County=04414"
        inside.mkdir()
        file.replace(inside / file.name)
    if kind == "litter":
        (file.parent / "_SUCCESS").write_bytes(b"")
        (file.parent / "._part.parquet").write_bytes(b"no parquet")
        (product / "notes.txt").write_text("mine")
    found = NoisyMeasurements.open(product).query("Block", "hispanic", "44")
    assert found.geocode.tolist() == codes
    assert found.values.tolist() == [[0, 0], [1, -1], [2, -2], [3, -3]]
    assert found.shape == (1, 1, 2, 1)
    assert found.sigma2.tolist() == [4.0] * 4


def test_rows_of_several_row_groups_keep_their_numbers_in_messages(tmp_path: Path) -> None:
    product = release(tmp_path)
    codes = [f"{B44[:-2]}{k:02d}" for k in range(40)]
    put(product / "Block.parquet/Constraint/State=044/part-0.parquet", constraint(codes))
    entries = [(c, "total", [1.0 if k != 33 else 1.5], 4.0) for k, c in enumerate(codes)]
    table = pa.table(rows(entries, value_type=pa.list_(pa.float64())))
    pq.write_table(table, block_file(product), row_group_size=7)
    with pytest.raises(FileFormatError, match=r"row 33: value 1\.5"):
        NoisyMeasurements.open(product).query("Block", "total", "44")


def test_a_product_of_unknown_axes_takes_its_histogram_from_the_detailed_query(tmp_path: Path) -> None:
    entries = {"geocode": ["1", "1"], "query_name": ["detailed_dpq", "age_dpq"], "age": ["detailed"] * 2}
    columns = {k: pa.array(v) for k, v in (entries | {"race": ["detailed", "*"]}).items()}
    columns["query_shape"] = pa.array([[2, 3], [2, 1]])
    columns["value"] = pa.array([[1, 2, 3, 4, 5, 6], [6, 15]])
    columns["variance"] = pa.array([4.0, 4.0])
    put(tmp_path / "Mine/tract.parquet/DPQuery/a.parquet", columns)
    nmf = NoisyMeasurements.open(tmp_path)
    assert nmf.product == "age x race"
    assert nmf.histogram is not None
    assert dict(nmf.histogram.axes) == {"age": 2, "race": 3}
    assert nmf.cell("tract", "detailed", (1, 2)).values.tolist() == [6]


def test_a_damaged_file_is_said_to_be_one(tmp_path: Path) -> None:
    """Bytes cut away: one sentence. (A few files with bytes *changed* bring Arrow itself down; nothing here can help.)"""
    product = release(tmp_path)
    good = block_file(product).read_bytes()
    for keep in (1, 4, 11, 100, len(good) // 2, len(good) - 1):
        block_file(product).write_bytes(good[:keep])
        with pytest.raises(
            FileFormatError, match=r"State=044/part-0.parquet is no Parquet file, or was cut short"
        ):
            NoisyMeasurements.open(product).query("Block", "total", "44")


def test_a_file_without_a_needed_column_is_refused(tmp_path: Path) -> None:
    product = release(tmp_path)
    for name in ("geocode", "query_name", "value", "variance"):
        columns = rows([(B44, "total", [1], 4.0)])
        del columns[name]
        put(block_file(product), columns)
        with pytest.raises(FileFormatError, match=f"no column '{name}'"):
            NoisyMeasurements.open(product).query("Block", "total", "44")
    empty = rows([(B44, "total", [1], 4.0)], query_shape=pa.array([[]], pa.list_(pa.int32())))
    put(block_file(product), empty)
    with pytest.raises(FileFormatError, match="query_shape is empty"):
        NoisyMeasurements.open(product).query("Block", "total", "44")
