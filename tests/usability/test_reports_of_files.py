"""The public reports about files, trees and solvers (P9, P15 to P20); the others are in test_reports.py."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from adversary import Prior, Release, load, study
from adversary.cli import main
from adversary.errors import AdversaryError, FileFormatError
from adversary.geography.blocks import zero_filled
from adversary.geography.spine import Spine
from adversary.readers.pl94 import demo_folder, read_pl94

HERE = Path(__file__).parent


def test_every_report_has_its_test():
    text = "".join(p.read_text(encoding="utf-8") for p in HERE.glob("test_reports*.py"))
    there = {int(n) for n in re.findall(r"^def test_p(\d+)_", text, re.MULTILINE)}
    assert there == set(range(1, 21))


def test_p9_a_run_into_a_file_has_lines_and_no_bar_in_its_answer(tmp_path):
    """Fifty targets, output redirected: the answer stands alone on standard output; one bar at most on standard error."""
    (tmp_path / "release.json").write_text('{"measurements": {"block": {"value": 2, "sigma2": 5}}}')
    over = "present.p=0.01:0.99:50"
    found = CliRunner().invoke(
        main, ["study", "single_level", str(tmp_path / "release.json"), "--over", over]
    )
    assert found.exit_code == 0
    assert found.stderr == ""
    assert found.stdout.startswith("single_level: 50 points, exact")


def test_p9_one_bar_for_the_whole_run(capfd):
    grid = load("single_level").over(present=[Prior("Bernoulli", p=p) for p in np.linspace(0.1, 0.9, 50)])
    study(grid, Release.from_counts({"block": 2}, sigma2=5.0), progressbar=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert {
        line.partition(":")[0].strip() for line in re.split(r"[\r\n]+", captured.err) if line.strip()
    } == {"study"}
    assert "50/50" in captured.err


def test_p15_a_geocode_that_lost_its_zero_is_never_a_silent_non_match():
    codes = [10010201001000, 440070001011000]
    with pytest.raises(FileFormatError, match=r"10010201001000.*leading zeros.*as text"):
        Spine.from_geocodes(codes, {"state": 2, "block": 15})
    with pytest.raises(FileFormatError, match=r"'10010201001000' \(row 0\) has 14 characters, not 15"):
        Spine.from_geocodes([str(c) for c in codes], {"state": 2, "block": 15})
    with pytest.warns(UserWarning, match="1 of 2 block codes were filled with leading zeros"):
        mended = zero_filled(codes, 15)
    assert Spine.from_geocodes(mended, {"state": 2, "block": 15}).codes(
        Spine.from_geocodes(mended, {"state": 2, "block": 15}).leaves
    ) == [
        "010010201001000",
        "440070001011000",
    ]


@pytest.fixture
def files():
    """The writer of small noisy measurement files of the reader's own tests."""
    pytest.importorskip("pyarrow")
    spec = importlib.util.spec_from_file_location("test_nmf", HERE.parent / "readers" / "test_nmf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_p16_state_001_is_never_the_number_1(files, tmp_path):
    nmf = files.NoisyMeasurements.open(files.release(tmp_path))
    assert nmf.states == ("001", "044", "101")
    found = nmf.query("Block", "total", states="01")  # both parts of Alabama, on request
    assert found.values.dtype == np.int64
    assert sorted({c[:3] for c in found.geocode.tolist()}) == ["001", "101"]
    assert nmf.query("Block", "total", states="001").geocode.size == 3
    with pytest.raises(FileFormatError, match="a state is text"):
        nmf.query("Block", "total", states=[1])


@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_p17_nullable_integers_of_parquet_are_integers_and_a_fraction_is_refused(kind, files, tmp_path):
    import pyarrow as pa

    codes = [files.B44[:-1] + k for k in "012"]
    values = [[3], [None], [-2]] if kind == "int64" else [[3.0], [None], [-2.0]]
    noise = (4.0, np.inf, 4.0)
    rows = [(c, "total", v, s) for c, v, s in zip(codes, values, noise, strict=True)]
    product = files.release(tmp_path)
    files.put(product / "Block.parquet/Constraint/State=044/part-0.parquet", files.constraint(codes))
    arrow = pa.list_(getattr(pa, kind)())
    found = files.one_block(product, rows, value_type=arrow).query("Block", "total", "44")
    assert (found.values.tolist(), found.values.dtype, found.dropped.tolist()) == (
        [[3], [-2]],
        np.int64,
        [codes[1]],
    )
    spoilt = files.one_block(product, [(codes[0], "total", [2.5], 4.0)], value_type=pa.list_(pa.float64()))
    with pytest.raises(FileFormatError, match=r"State=044/part-0.parquet row 0: value 2.5"):
        spoilt.query("Block", "total", "44")


def test_p18_published_tables_are_said_to_carry_noise_already(tmp_path):
    found = CliRunner().invoke(main, ["assess", "pl94", str(demo_folder()), "--rho", "0.05", "--seed", "1"])
    assert "published tables carry the Bureau's own protection" in found.output


@pytest.mark.parametrize(
    ("units", "parents", "words"),
    [
        (["A", "B", "b", "b"], ["", "", "A", "B"], "unit 'b' has two parents, 'A' and 'B'"),
        (["R", "S", "X", "Y"], ["", "R", "Y", "X"], r"'X'.*'Y'.* form a cycle|cycle"),
        (["R", "X"], ["", "Q"], "unit 'X' names the parent 'Q', which is not listed"),
        (["R", "X", "X"], ["", "R", "R"], "unit 'X' is listed 2 times"),
    ],
    ids=["two parents", "a cycle beside a good tree", "no such parent", "the same code twice"],
)
def test_p19_what_is_no_tree_is_refused_with_the_ids(units, parents, words):
    with pytest.raises(AdversaryError, match=words):
        Spine.from_parents(units, parents)


def test_p19_a_ragged_tree_is_one():
    spine = Spine.from_parents(
        ["A", "AA", "AB", "B", "BA", "BB", "AA1", "BB1"], ["", "A", "A", "", "B", "B", "AA", "BB"]
    )
    assert (len(spine), spine.uniform, sorted(spine.codes(spine.leaves))) == (
        8,
        False,
        ["AA1", "AB", "BA", "BB1"],
    )
    with pytest.raises(FileFormatError, match="off-spine entity"):
        Spine.from_blocks({"tract": ["1", "2"], "town": ["T", "T"], "block": ["11", "21"]})


def test_p20_no_time_left_is_a_status_with_what_is_known_and_the_next_block_goes_on():
    pytest.importorskip("highspy")
    from adversary.reconstruction.blocks import Pl94Question, reconstruct_pl94
    from adversary.reconstruction.solve import Limits

    table = read_pl94(demo_folder())
    row, empty = int(np.argmax(table.total)), int(np.argmin(table.total))
    names = [str(table.geoid[row]), str(table.geoid[empty])]
    large, following = reconstruct_pl94(table, Pl94Question(("P1", "P3"), limits=Limits(0.0)), names).blocks
    assert (large.status, large.value, large.determined) == ("time limit", None, None)
    assert (large.low <= large.high).all()
    assert following.status == "optimal"


def test_p20_tables_that_clash_are_infeasible_and_named():
    pytest.importorskip("highspy")
    from adversary.reconstruction.blocks import Pl94Question, reconstruct_pl94

    table = read_pl94(demo_folder())
    row = int(np.flatnonzero(table.total >= 5)[0])
    quarters = np.zeros_like(table.p5)
    quarters[row, 4] = 2
    code, people = str(table.geoid[row]), int(table.total[row])
    question = Pl94Question(quarters=True, household_population={code: people - 1})
    bad = reconstruct_pl94(replace(table, p5=quarters), question, [code])[code]
    assert (bad.status, bad.value) == ("infeasible", None)
    assert {"P5", "households"} <= set(bad.clash_tables)
