"""adversary spine: build, show, osed, privacy, compare, from files to sentences and JSON."""

import csv
import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from adversary.cli import main
from adversary.geography.accuracy import area_codes, rows_of_leaves
from adversary.geography.das import conventional_spine, optimized_spine
from adversary.geography.off_spine import entity_distances
from adversary.geography.plans import level_shares
from adversary.geography.spine import Spine
from adversary.privacy.budget import Allocation
from adversary.readers.block_csv import read_blocks

SHARED = Path(os.environ.get("ADVERSARY_SHARED", Path(__file__).parents[2] / "shared"))
FOLDER = SHARED / "data" / "rhode-island-baf"
PERSONS = Allocation.load("2020-pl94-persons")


def call(*arguments, code=0):
    found = CliRunner().invoke(main, ["spine", *map(str, arguments)])
    assert found.exit_code == code, (found.output, found.exception)
    return found


def js(*arguments):
    return json.loads(call(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """130 blocks of Alabama in 2 counties, 3 places that cross block groups, one AIAN area; made up."""
    path = tmp_path_factory.mktemp("blocks") / "blocks.csv"
    rows = ["GEOID20,AIANNHCE,COUSUBFP,PLACEFP"]
    i = 0
    for county in (1, 3):
        for tract in (100, 200, 300):
            for group in (1, 2):
                for block in range(10):
                    place = ("00124", "07000", "", "35896")[(i // 7) % 4]
                    aian = "0010" if 40 <= i < 46 else ""
                    rows.append(
                        f"01{county:03d}{tract:06d}{group}{block:03d},{aian},{90000 + i // 30:05d},{place}"
                    )
                    i += 1
    rows += [f"010030004001{block:03d},,99999," for block in range(10)]  # a tract with one block group
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def built(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spines")
    for kind in ("conventional", "aian", "optimized"):
        call("build", table, "--out", folder / f"{kind}.csv", "--kind", kind)
    return folder


def test_build_writes_the_spine_that_the_library_builds(table, built):
    blocks = read_blocks(table)
    for kind, build in (("conventional", conventional_spine), ("optimized", optimized_spine)):
        spine, wanted = Spine.load(built / f"{kind}.csv"), build(blocks, level_shares(PERSONS))
        assert spine.geocodes.tolist() == wanted.geocodes.tolist()
        assert [spine.share(u) for u in range(len(spine))] == [wanted.share(u) for u in range(len(wanted))]
    data = js("build", table, "--out", built / "again.csv.gz")
    assert (data["leaves"], data["blocks_in_aian_areas"], data["path_totals"]) == (130, 6, ["1"])
    assert data["guarantee"] == str(PERSONS.total)
    assert data["levels"][-1]["level"] == "Block"
    assert Spine.load(built / "again.csv.gz").path_totals() == {Fraction(1)}


def test_show_lists_levels_and_the_path_of_a_geoid(built):
    levels = js("show", built / "conventional.csv")["levels"]
    assert [r["units"] for r in levels] == [1, 1, 2, 7, 13, 130]
    noise = float(1 / (PERSONS.total.fraction * PERSONS.level["block"]))
    assert levels[-1]["sigma2"] == pytest.approx(noise)
    text = call("show", built / "conventional.csv").stdout
    assert "165/4099" in text
    assert f"{noise:.4f}" in text
    shown = js("show", built / "optimized.csv", "010010001001000", "--query", "detailed")
    assert shown["path_total"] == "1"
    assert [r["level"] for r in shown["path"]] == ["US", "State", "County", "Tract", "Block_Group", "Block"]
    leaf = shown["path"][-1]
    assert leaf["geocode"].endswith("0100100010011000")
    assert leaf["query_sigma2"] == pytest.approx(PERSONS.sigma2("block", "detailed", "bounded"))
    assert "the path spends 1 of rho" in call("show", built / "optimized.csv", "010010001001000").stdout
    assert "were leading zeros lost" in call("show", built / "optimized.csv", "10010001001000", code=2).stderr


def test_osed_says_before_and_after_as_the_library_counts(table, built, tmp_path):
    files = [built / "conventional.csv", built / "optimized.csv"]
    data = js("osed", *files, "--source", table, "--out", tmp_path / "d.csv")
    blocks = read_blocks(table)
    for file in files:
        spine = Spine.load(file)
        wanted = entity_distances(spine, area_codes(blocks, "place")[rows_of_leaves(spine, blocks)])
        assert data["distances"][file.stem] == wanted
        assert data["summary"][file.stem]["mean"] == pytest.approx(sum(wanted.values()) / len(wanted))
    assert sorted(data["distances"]["optimized"]) == ["0100124", "0107000", "0135896"]
    with (tmp_path / "d.csv").open(newline="") as file:
        assert [r["code"] for r in csv.DictReader(file)] == ["0100124", "0107000", "0135896"]
    text = call("osed", *files, "--source", table).stdout
    assert "from conventional to optimized:" in text
    county = js("osed", files[1], "--source", table, "--entities", "aian", "--top", "County")
    assert list(county["distances"]["optimized"]) == ["0010"]
    assert "choose from US" in call("osed", files[1], "--source", table, "--top", "Parish", code=2).stderr


def test_osed_of_a_list_of_blocks_names_the_units(built, tmp_path):
    one = [f"010010001001{b:03d}" for b in range(9)]
    (tmp_path / "set.txt").write_text("\n".join(one) + "\n")
    data = js("osed", built / "conventional.csv", "--blocks", tmp_path / "set.txt")["conventional"]
    assert data["distance"] == 2
    assert sorted((u["level"], u["sign"]) for u in data["units"]) == [("Block", -1), ("Block_Group", 1)]
    assert "- Block " in call("osed", built / "conventional.csv", "--blocks", tmp_path / "set.txt").stdout
    within = js("osed", built / "conventional.csv", "--blocks", tmp_path / "set.txt", "--top", "Block")
    assert within["conventional"]["distance"] == 9
    (tmp_path / "set.txt").write_text("10010001001000\n")
    assert (
        "were leading zeros lost"
        in call("osed", built / "conventional.csv", "--blocks", tmp_path / "set.txt", code=2).stderr
    )
    assert call("osed", built / "conventional.csv", code=2).stderr


def test_privacy_says_what_the_certificates_say_and_where_this_spine_says_more(built):
    plain = {p["what"]: p for p in js("privacy", built / "conventional.csv")["promises"]}
    certified = {
        "anything": 17.14,
        "value of hhgq": 7.24,
        "value of votingage": 7.57,
        "value of hispanic": 10.04,
        "value of cenrace": 10.08,
        "her block within a block group": 2.93,
        "her block within a tract": 9.38,
        "her block within a county": 11.70,
        "her block within a state": 13.05,
    }
    for what, epsilon in certified.items():
        assert round(plain[what]["epsilon"], 2) == epsilon
        assert round(plain[what]["certificate_epsilon"], 2) == epsilon
    split = {p["what"]: p for p in js("privacy", built / "optimized.csv")["promises"]}
    assert round(split["her block within a whole state"]["epsilon"], 2) == 16.89
    assert round(split["her block within a state, in or out of AIAN areas"]["epsilon"], 2) == 13.05
    text = call("privacy", built / "optimized.csv").stdout
    assert "value of cenrace: this spine promises less than the table of levels says" in text
    assert "promises less" not in call("privacy", built / "conventional.csv").stdout


def test_compare_writes_tables_figures_and_says_what_was_assumed(table, tmp_path):
    data = js("compare", table, "--prior", "1/10", "--out", tmp_path / "out")
    assert [r["spine"] for r in data["risk"]] == ["conventional", "AIAN", "optimised"]
    names = {Path(f).name for f in data["files"]}
    assert names == {
        "accuracy.csv",
        "accuracy.png",
        "distances.csv",
        "distances.png",
        "risk.png",
        "risk_by_block.csv",
        "risk_map.csv",
    }
    with (tmp_path / "out" / "risk_map.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 130
    assert rows[0]["GEOID20"] == "010010001001000"
    places = {r["spine"]: r["mean"] for r in data["accuracy"] if r["kind"] == "place"}
    assert places["optimised"] < places["conventional"]
    assert all(r["mean"] == pytest.approx(0, abs=1e-6) for r in data["accuracy"] if r["kind"] == "state")
    text = call("compare", table).stdout
    assert "nothing believed of other blocks" in text
    assert "query 'detailed', prior 0.1" in text
    drawn = js("compare", table, "--others", "poisson:0.2", "--draws", 3, "--seed", 4)
    assert drawn["seed"] == 4
    assert drawn["risk"][0]["posterior_mcse"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--share", "3/5,3/10,1/10", "--rho", "1"], "--share takes LEVEL=SHARE, got '3/5'"),  # P14
        (["--share", "Block=1", "--share", "Block=1", "--rho", "1"], "names level 'Block' twice"),
        (["--share", "Block=1", "--rho", "1"], "no entry for level 'State'"),
        (["--share", "Block=1"], "--share and --rho go together"),
        (["--allocation", "2020-pl94-persons", "--rho", "1"], "has shares and a budget of its own"),
        (["--allocation", "2020-pl49-persons"], "did you mean 2020-pl94-persons"),
        (["--aian-areas", "mars"], "'mars' is no kind of AIAN area"),
        (["--state", "44"], "no block of state '44': there are 01"),
        (["--allocation", "2020-dhc-persons"], "needs COUSUBFS and PLACEFS"),
    ],
)
def test_budgets_and_settings_that_cannot_be_are_one_sentence(table, tmp_path, arguments, words):
    found = call("build", table, "--out", tmp_path / "s.csv", *arguments, code=2)
    assert words in found.stderr
    assert not (tmp_path / "s.csv").exists()


def test_named_shares_are_written_and_shown_in_the_order_of_the_levels(tmp_path):
    rows = tmp_path / "b.csv"
    rows.write_text("block,tract\n011,01\n012,01\n021,02\n")
    common = ("--kind", "levels", "--levels", "tract,block", "--rho", "2")
    data = js("build", rows, "--out", tmp_path / "s.csv", *common, "--share", "block=1/7,tract=6/7")
    assert [(r["level"], r["greatest_share"], r["sigma2"]) for r in data["levels"]] == [
        ("tract", "6/7", pytest.approx(7 / 12)),
        ("block", "1/7", pytest.approx(7 / 2)),
    ]
    other = js(
        "build", rows, "--out", tmp_path / "s.csv", *common, "--share", "tract=1/7", "--share", "block=6/7"
    )
    assert other["levels"][1]["sigma2"] * 6 == pytest.approx(data["levels"][1]["sigma2"])
    privacy = js("privacy", tmp_path / "s.csv")
    assert [p["what"] for p in privacy["promises"]] == ["anything", "her block within a tract"]
    assert (
        "unknown: give --allocation"
        in call("show", tmp_path / "s.csv", "011", "--query", "sex", code=2).stderr
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("A,\nAA,A\nAA1,AA\nB,\nBA,B\n", None),  # (a) ragged
        ("A,\nG1,A\nG2,A\nb,G1\nb,G2\n", "unit 'b' has two parents, 'G1' and 'G2'"),  # (b)
        ("R,\nX,Y\nY,X\n", "form a cycle"),  # (c), though the root is fine
        ("R,\nX,Q\n", "unit 'X' names the parent 'Q', which is not listed"),  # (d)
        ("R,\nX,R\nX,R\n", "unit 'X' is listed 2 times"),  # (e)
    ],
)
def test_p19_trees_that_are_none_are_refused_with_the_ids(tmp_path, rows, words):
    path = tmp_path / "pairs.csv"
    path.write_text("unit,parent\n" + rows)
    if words is None:
        assert js("build", path, "--out", tmp_path / "s.csv", "--kind", "pairs")["leaves"] == 2
        return
    assert words in call("build", path, "--out", tmp_path / "s.csv", "--kind", "pairs", code=2).stderr


def test_p19_crossing_hierarchies_are_refused_with_advice(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("tract,town,block\n1,T,11\n2,T,21\n")
    found = call("build", path, "--out", tmp_path / "s.csv", "--kind", "levels", code=2)
    assert "'T' lies under both '1' and '2'" in found.stderr
    assert "off-spine entity" in found.stderr


def test_p15_codes_that_lost_their_zeros_are_refused_or_filled_aloud(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("geocode\n10010201001000\n440070001011000\n")
    assert "leading zero" in call("build", path, "--out", tmp_path / "s.csv", code=2).stderr
    with pytest.warns(UserWarning, match="1 of 2 block codes were filled"):
        call("build", path, "--out", tmp_path / "s.csv", "--fill-zeros")
    assert Spine.load(tmp_path / "s.csv").index("010010201001000") > 0


def test_a_spine_without_a_budget_is_shown_and_promises_nothing(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("unit,parent\nA,\nAA,A\n")
    call("build", path, "--out", tmp_path / "s.csv", "--kind", "pairs")
    assert "sigma2" not in call("show", tmp_path / "s.csv").stdout
    assert "names no budget" in call("privacy", tmp_path / "s.csv", code=2).stderr


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("GEOID20\n", [], "without blocks has no spine"),
        ("GEOID20\n", ["--kind", "conventional"], "has no blocks"),
        ("unit,parent\n", ["--kind", "pairs"], "has no blocks"),
        ("GEOID20\n\u066010010201001000\n", [], "a character that is no digit"),
        ("GEOID20\nabcdefghijklmno\n", [], "a character that is no digit"),
        (
            "block\n1\n",
            ["--kind", "levels", "--rho", "inf", "--share", "block=1"],
            "--rho must be positive and finite",
        ),
        (
            "block\n1\n",
            ["--kind", "levels", "--rho", "0", "--share", "block=1"],
            "--rho must be positive and finite",
        ),
    ],
)
def test_sources_and_budgets_of_nothing_are_one_sentence_and_no_file(tmp_path, text, arguments, words):
    path = tmp_path / "b.csv"
    path.write_text(text, encoding="utf-8")
    assert words in call("build", path, "--out", tmp_path / "s.csv", *arguments, code=2).stderr
    assert not (tmp_path / "s.csv").exists()


def test_promises_are_of_the_spines_own_budget(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("Tract,Block\n1,11\n1,12\n")
    common = ("--kind", "levels", "--share", "Tract=1/2,Block=1/2")
    for rho in ("1", "2"):
        call("build", path, "--out", tmp_path / f"{rho}.csv", *common, "--rho", rho)
    one, two = (
        js("privacy", tmp_path / f"{r}.csv", "--allocation", "2020-pl94-persons")["promises"] for r in "12"
    )
    for a, b in zip(one, two, strict=True):
        assert Fraction(b["rho"]) == 2 * Fraction(a["rho"])
        assert Fraction(b["certificate_rho"]) == 2 * Fraction(a["certificate_rho"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--others", "flat"], "--others is any, poisson:MEAN or geometric:RATIO"),
        (["--seed", "3"], "--seed belongs to --others"),
        (["--prior", "half"], "--prior must be a number"),
        (["--query", "income"], "no measured level asks the query 'income'"),
        (["--allocation", "2020-dhc-persons"], "primitive geography"),
        (["--allocation", "2020-pl94-units"], "housing units, whose number is published as it is"),
    ],
)
def test_comparisons_that_cannot_be_are_one_sentence(table, arguments, words):
    assert words in call("compare", table, *arguments, code=2).stderr


def test_help_and_building_import_nothing_heavy(table, tmp_path):
    heavy = ("pymc", "pytensor", "arviz", "matplotlib", "pandas", "xarray", "scipy", "numba", "pyarrow")
    for arguments in (["spine", "--help"], ["spine", "build", str(table), "--out", str(tmp_path / "s.csv")]):
        script = (
            f"import sys\nfrom adversary.cli import main\ntry:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
            f"print('loaded:', ' '.join(m for m in {heavy!r} if m in sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1].strip() == "loaded:"


@pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="the Rhode Island files are not shipped; set ADVERSARY_SHARED to the shared folder",
)
def test_rhode_island_from_its_block_assignment_files(tmp_path):
    data = js("build", FOLDER, "--out", tmp_path / "ri.csv", "--kind", "conventional")
    assert [r["units"] for r in data["levels"]] == [1, 1, 5, 250, 792, 25_649]
    assert data["blocks_in_aian_areas"] == 25
    call("build", FOLDER, "--out", tmp_path / "opt.csv")
    found = js("osed", tmp_path / "ri.csv", tmp_path / "opt.csv", "--source", FOLDER, "--entities", "cousub")
    summary = found["summary"]
    assert [summary[k]["entities"] for k in ("ri", "opt")] == [40, 40]
    assert [round(summary[k]["mean"], 2) for k in ("ri", "opt")] == [8.55, 6.7]
    place = js("osed", tmp_path / "ri.csv", tmp_path / "opt.csv", "--source", FOLDER)["summary"]
    assert [(place[k]["entities"], round(place[k]["mean"], 2)) for k in ("ri", "opt")] == [
        (36, 25.89),
        (36, 22.92),
    ]


# ------------------------------------------------------------ simulate


def test_simulate_writes_measurement_files_that_read_back_with_the_spine_and_its_noise(built, tmp_path):
    from adversary.readers.nmf import NoisyMeasurements
    from adversary.readers.population import synthetic_counts

    asked = ("--seed", 3, "--mean", 20, "--query", "total", "--query", "hispanic * cenrace")
    data = js("simulate", built / "optimized.csv", "--out", tmp_path / "nmf", *asked)
    spine = Spine.load(built / "optimized.csv")
    truth = synthetic_counts(spine, seed=3, mean=20)
    assert (data["truth"], data["people"]) == ("synthetic", int(truth.count.sum()))
    files = NoisyMeasurements.open(tmp_path / "nmf", "2020-pl94-persons")
    assert files.measured("Block") == ("total", "hispanic * cenrace")
    again = files.spine()
    assert sorted(again.geocodes[again.leaves]) == sorted(spine.geocodes[spine.leaves])
    (root,) = files.query("US", "hispanic * cenrace").values.sum(axis=1)
    sigma = math.sqrt(126 * files.query("US", "hispanic * cenrace").sigma2[0])
    assert abs(root - truth.count.sum()) < 6 * sigma
    found = call("simulate", built / "optimized.csv", "--out", tmp_path / "nmf", "--seed", 3, code=2)
    assert "nothing is ever written over" in found.stderr
    assert "pseudo-random" in call("simulate", built / "aian.csv", "--out", tmp_path / "b", *asked).stdout


def test_simulate_takes_microdata_as_the_truth(built, tmp_path):
    from adversary.readers.population import synthetic_counts
    from adversary.readers.ppmf import write_ppmf_persons

    truth = synthetic_counts(Spine.load(built / "optimized.csv"), seed=8, mean=5)
    file = write_ppmf_persons(tmp_path / "people.csv", truth)
    asked = ("--ppmf", file, "--seed", 1, "--query", "total")
    data = js("simulate", built / "optimized.csv", "--out", tmp_path / "nmf", *asked)
    assert (data["people"], data["truth"]) == (int(truth.count.sum()), str(file))
