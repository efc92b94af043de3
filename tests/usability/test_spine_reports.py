"""What users reported elsewhere about geography (P14, P15, P18, P19), on spines from files."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from adversary.cli import main
from adversary.errors import AdversaryError, BudgetError, FileFormatError
from adversary.geography.blocks import BlockTable, zero_filled
from adversary.geography.das import conventional_spine
from adversary.geography.spine import Spine
from adversary.release.estimate import two_pass
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.tree import solve_tree
from adversary.spine_risk import UniquePerson, spine_risk, write_map

BLOCKS = {"county": ["1", "1", "1"], "tract": ["11", "11", "12"], "block": ["111", "112", "121"]}


def cli(*arguments):
    return CliRunner().invoke(main, ["spine", *map(str, arguments)])


def test_p14_a_spines_budget_is_named_and_its_table_shows_level_share_and_noise(tmp_path):
    with pytest.raises(BudgetError, match=r"must name their levels.*by position they may run the wrong way"):
        Spine.from_blocks(BLOCKS, ["3/5", "3/10", "1/10"])
    named = Spine.from_blocks(BLOCKS, {"block": "3/5", "tract": "3/10", "county": "1/10"})
    swapped = named.with_shares({"block": "1/10", "tract": "3/10", "county": "3/5"})
    noise = {s: {r["level"]: r["sigma2"] for r in s.table(rho=1)}["block"] for s in (named, swapped)}
    assert noise[swapped] == 6 * noise[named]
    (tmp_path / "b.csv").write_text("county,tract,block\n1,11,111\n1,11,112\n1,12,121\n")
    build = ("build", tmp_path / "b.csv", "--out", tmp_path / "s.csv", "--kind", "levels", "--rho", "1")
    by_position = cli(*build, "--share", "0.6,0.3,0.1")
    assert by_position.exit_code == 2
    assert "--share takes LEVEL=SHARE" in by_position.stderr
    shown = cli(*build, "--share", "block=3/5,tract=3/10,county=1/10")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["block", "3", "3", "3", "1.6667", "3/5"] in lines


def test_p15_a_code_that_lost_its_zero_never_becomes_no_measurements_for_alabama(tmp_path):
    mixed = np.array([10010201001000, 440070001011000])  # what a CSV reader makes of 010010201001000
    for wrong in (mixed, mixed.astype(str)):
        with pytest.raises(FileFormatError, match="leading zero"):
            BlockTable(wrong)
        with pytest.raises(FileFormatError, match="leading zero"):
            Spine.from_blocks({"block": wrong})
    with pytest.warns(UserWarning, match="1 of 2 block codes were filled with leading zeros to 15 digits"):
        mended = zero_filled(mixed, 15)
    spine = conventional_spine(BlockTable(mended))
    spine.save(tmp_path / "s.csv")
    back = Spine.load(tmp_path / "s.csv")
    assert back.codes(back.units("State")) == ["01", "44"]
    with pytest.raises(AdversaryError, match="were leading zeros lost"):
        back.index("10010201001000")
    # a spreadsheet that opened and saved the file again is found out
    text = (tmp_path / "s.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace("State,01,", "State,1,"))
    with pytest.raises(FileFormatError, match="zeros were lost, perhaps in a spreadsheet"):
        Spine.load(tmp_path / "t.csv")


def test_p15_a_maps_file_has_geoids_as_text(tmp_path):
    shares = dict.fromkeys(("State", "County", "Tract", "Block_Group", "Block"), "1/5")
    spine = conventional_spine(BlockTable(["010010201001000", "010010201001001"]), shares)
    risk = spine_risk(spine, {k: {"total": 1} for k in shares}, 1, UniquePerson("total"), "mine")
    write_map(tmp_path / "map.csv", [risk])
    with (tmp_path / "map.csv").open(newline="") as file:
        assert [r["GEOID20"] for r in csv.DictReader(file)] == ["010010201001000", "010010201001001"]


def test_p18_a_parent_and_children_that_disagree_because_of_noise_are_no_error():
    noisy, sigma2 = [12, -3, 4, 2], [10.09, 10.09, 10.09, 10.09]
    estimate = two_pass([-1, 0, 0, 0], noisy, sigma2)
    assert estimate.estimate[0] == pytest.approx(estimate.estimate[1:].sum())
    solved = solve_tree([-1, 0, 0, 0], noisy, sigma2, LeafPrior.poisson(3.0))
    assert np.all(solved.mean[1:] > 0)
    assert solved.mean[0] == pytest.approx(solved.mean[1:].sum())
    one = solve_tree([-1, 0], [-3, -3], [np.inf, 10.09], LeafPrior.tabulated([1 / 6] * 6))
    count, p = one.pmf(1)
    expected = [0.380937, 0.269281, 0.172392, 0.099951, 0.052482, 0.024957]
    assert count.tolist() == list(range(6))
    assert p == pytest.approx(expected, abs=1e-6)
    assert count @ p == pytest.approx(1.248631, abs=1e-6)


def test_p19_a_missing_level_two_parents_a_cycle_an_orphan_a_double():
    ragged = Spine.from_parents(
        ["A", "AA", "AB", "B", "BA", "BB", "AA1", "BB1"], ["", "A", "A", "", "B", "B", "AA", "BB"]
    )
    assert ragged.leaves.size == 4
    cases = {
        "unit 'b' has two parents, 'G1' and 'G2'": (["G1", "G2", "b", "b"], ["", "", "G1", "G2"]),
        "form a cycle": (["R", "R1", "X", "Y"], ["", "R", "Y", "X"]),
        "names the parent 'Q', which is not listed": (["R", "X"], ["", "Q"]),
        "unit 'X' is listed 2 times": (["R", "X", "X"], ["", "R", "R"]),
    }
    for words, (units, parents) in cases.items():
        with pytest.raises(FileFormatError, match=words):
            Spine.from_parents(units, parents)
    with pytest.raises(FileFormatError, match=r"hierarchies that cross are no spine.*off-spine entity"):
        Spine.from_blocks({"tract": ["1", "2"], "town": ["T", "T"], "block": ["11", "21"]})


def test_p19_from_the_command_line_every_defect_is_one_sentence_without_a_traceback(tmp_path):
    for rows in ("b,G1\nb,G2\nG1,\nG2,\n", "X,Y\nY,X\nR,\n", "X,Q\n", "R,\nX,R\nX,R\n"):
        (tmp_path / "p.csv").write_text("unit,parent\n" + rows)
        found = cli("build", tmp_path / "p.csv", "--out", tmp_path / "s.csv", "--kind", "pairs")
        assert found.exit_code == 2
        assert found.stderr.startswith("adversary: unit")
        assert "Traceback" not in found.output
    (tmp_path / "p.csv").write_text("unit,parent\nA,\nB,\nAA,A\nAB,A\nAA1,AA\n")
    found = cli("build", tmp_path / "p.csv", "--out", tmp_path / "s.csv", "--kind", "pairs", "--json")
    assert json.loads(found.stdout)["leaves"] == 3
