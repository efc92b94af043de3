import csv
import itertools
import json
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import h5py
import numpy as np
import pytest

from adversary import AttackResult, Prior, Release, load, run, study
from adversary.config import declared, read_config
from adversary.errors import FileFormatError, ScenarioError
from adversary.privacy.accounting import epsilon
from adversary.privacy.semantics import odds_bound
from adversary.report import read_inputs, render, write_report
from adversary.report.page import number
from adversary.report.reproduce import toml_of

RELEASE = Release.from_counts(
    {"block": 2, "block_group": 1, "rest": -1, "tract": 51, "county": 0},
    rho={"block": "0.0992264", "block_group": "0.2464845", "rest": "0.0992264", "tract": "0.1", "county": 0},
    groups={"rest": 27},
)
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Elements in order with attributes and text; insists that tags are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [e[0] for e in self.open], []))
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [e[0] for e in self.open], []))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        last, _ = self.open.pop()
        assert last == tag

    def handle_data(self, data):
        self.text.append(data)
        for _, place in self.open:
            self.elements[place][3].append(data)

    def all(self, *tags):
        return [e for e in self.elements if e[0] in tags]

    @property
    def words(self):
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    two = load("two_level")
    run(two, RELEASE, seed=1, draws=20).save(place / "result.nc")
    beliefs = [Prior("FlatCount"), Prior("Poisson", mu=5)]
    study(
        two.over(present=[Prior("Bernoulli", p=p) for p in (0.1, 0.5, 0.9)], elsewhere=beliefs),
        RELEASE,
        out=place / "study",
    )
    with (place / "risk.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["geoid", "noisy_block", "prior", "posterior", "risk", "decision"])
        for k in range(60):
            writer.writerow([f"01{k:03d}", k % 5 - 1, 0.1, 0.1 * (1 + k / 20), 1 + k / 20, "absent"])
    return place


@pytest.fixture(scope="module")
def text(folder):
    return render(read_inputs([folder / "result.nc", folder / "study", folder / "risk.csv"]), threshold=1.5)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_every_number_that_was_computed_is_on_the_page(page, folder):
    result = AttackResult.load(folder / "result.nc")
    for value in (result.prior, result.posterior, result.risk.value, result.risk_ceiling, result.divergence):
        assert number(value) in page.words
    assert number(odds_bound(result.divergence, 1e-6)) in page.words
    assert number(epsilon(result.divergence, 1e-6)) in page.words
    assert number(math.exp(result.log_odds_gain)) in page.words


def test_the_page_says_all_that_a_board_asks_for(page):
    for words in (
        "Is the target among the block's people, when the block group is published too?",
        "two_level(release, *, known=0, present=Prior('Bernoulli', p=0.5), elsewhere=Prior('FlatCount'))",
        'measured(release["block_group"], block + elsewhere)',
        "Kazan & Reiter (arXiv 2204.04253), sec. 3.2",
        "unbounded neighbours: rho protects against adding or removing one record",
        "a real one may, and learn more: tract",
        "Not measured, so without any number: county",
        "exact; cut-off bound",
        "flat without end",
        "6 sets of assumptions",
        "49 of 60 targets have R' above 1.5",
        "adversary run study.toml",
        RELEASE.hash,
    ):
        assert words in page.words, words


def test_the_noise_table_has_the_release_and_what_the_target_changes(page):
    by_name = [[" ".join(p.split()) for p in r[3] if p.strip()] for r in page.all("tr")]
    noise = {r[0]: r for r in by_name if len(r) == 9}
    assert noise["block"][1:] == ["2", "0.0992264", "unbounded", "5.03898", "1", "2.24477", "used", "1"]
    assert noise["rest"][1:] == ["-1", "0.0992264", "unbounded", "5.03898", "27", "11.6642", "used", "0"]
    assert noise["tract"][6:] == ["2.23607", "not used", "not used"]


def test_the_sensitivity_is_that_of_the_study(page, folder):
    import xarray as xr

    with xr.open_dataset(folder / "study" / "result.nc", engine="h5netcdf") as data:
        for value in (data.posterior.min(), data.posterior.max(), data.risk.max()):
            assert number(float(value)) in page.words


def test_targets_are_listed_from_the_highest_risk_down_and_codes_keep_their_zeros(page):
    first = [
        e[3][0] for e in page.all("th") if e[1].get("scope") == "row" and e[3] and e[3][0].startswith("010")
    ]
    assert first[:2] == ["01059", "01058"]
    assert len(first) == 49


def test_the_page_needs_nothing_but_itself(text, page):
    assert not page.all("script", "link", "img", "iframe", "object", "form")
    assert not re.search(r"@import|url\((?!#)", text)
    links = [v for e in page.elements for k, v in e[1].items() if k in ("href", "xlink:href", "src")]
    assert links
    assert all(v.startswith("#") for v in links)
    assert "default-src 'none'" in text
    assert not any(k.startswith("on") for e in page.elements for k in e[1])


def test_the_page_can_be_read_without_eyes(page):
    assert page.all("html")[0][1]["lang"] == "en"
    levels = [int(e[0][1]) for e in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert all(e[1].get("scope") in ("col", "row") for e in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert len(page.all("thead")) == len(page.all("table"))
    images = page.all("svg")
    assert len(images) == 4
    assert all(e[1]["role"] == "img" and len(e[1]["aria-label"]) > 20 for e in images)
    ids = [e[1]["id"] for e in page.elements if "id" in e[1]]
    assert len(ids) == len(set(ids))
    assert page.all("a")[0][1] == {"class": "skip", "href": "#content"}
    for e in page.elements:
        for key in ("href", "aria-labelledby"):
            if e[0] in ("a", "section", "use") and key in e[1]:
                assert e[1][key].removeprefix("#") in ids


def test_several_answers_are_told_apart(folder, tmp_path):
    run(load("single_level"), RELEASE, draws=0).save(tmp_path / "result.nc")
    both = [folder / "result.nc", tmp_path / "result.nc", folder / "risk.csv", folder / "risk.csv"]
    found = Page(render(read_inputs(both)))
    labels = [e[1]["aria-label"] for e in found.elements if e[1].get("role") == "region"]
    assert len(labels) == len(set(labels)) == 12
    ids = [e[1]["id"] for e in found.elements if "id" in e[1]]
    assert len(ids) == len(set(ids))


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_has_contrast_enough(text):
    style = text[text.index("<style>") : text.index("</style>")]
    inks = set(re.findall(r"--(?:ink|soft|blue): (#[0-9a-f]{6})", style))
    inks |= set(re.findall(r"\bcolor: (#[0-9a-f]{6})", style))
    assert len(inks) >= 5
    paper = _luminance("#f3f5f7")  # the darkest ground on which text stands
    for ink in inks:
        assert (paper + 0.05) / (_luminance(ink) + 0.05) >= 4.5, ink


def test_figures_are_sound_xml(text):
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)


def test_the_same_files_give_the_same_page(folder, text):
    again = render(read_inputs([folder / "result.nc", folder / "study", folder / "risk.csv"]), threshold=1.5)
    assert again == text


def test_no_path_of_the_machine_is_on_the_page(tmp_path):
    file = tmp_path / "attacks.py"
    file.write_text(
        "from adversary import Prior, measured, scenario\n"
        "@scenario(target='present', source='<script>alert(1)</script>')\n"
        "def mine(release, *, present=Prior('Bernoulli', p=0.5)):\n"
        "    'Is <script>alert(2)</script> & \"she\" <img src=x onerror=alert(3)> there?'\n"
        "    measured(release['block'], present)\n"
    )
    run(load(f"{file}::mine"), RELEASE, seed=1, draws=0).save(tmp_path / "own.nc")
    text = render(read_inputs([tmp_path / "own.nc"]), title="</title><script>alert(4)</script>")
    assert str(tmp_path) not in text
    assert "attacks.py::mine" in text
    assert "it needs the file attacks.py beside it" in text
    found = Page(text)
    assert not found.all("script", "img")
    assert 'Is <script>alert(2)</script> & "she" <img src=x onerror=alert(3)> there?' in found.words
    assert "<script>alert(4)</script>" in found.words


def test_texts_of_tables_and_file_names_are_escaped(tmp_path):
    path = tmp_path / "a<b>&.csv"
    path.write_text('geoid,"<script>x</script>",risk\n"<script>y</script>",z,9\n')
    found = Page(render(read_inputs([path])))
    assert not found.all("script")
    assert "<script>y</script>" in found.words
    assert "a<b>&.csv" in found.words


def test_an_edited_result_is_refused(folder, tmp_path):
    path = tmp_path / "edited.nc"
    path.write_bytes((folder / "result.nc").read_bytes())
    with h5py.File(path, "r+") as file:
        file.attrs["question"] = "Is all well?"
    with pytest.raises(FileFormatError, match="changed after it was saved"):
        read_inputs([path])


def test_an_edited_study_is_refused(folder, tmp_path):
    path = tmp_path / "edited.nc"
    path.write_bytes((folder / "study" / "result.nc").read_bytes())
    with h5py.File(path, "r+") as file:
        file["posterior"][0] = 0.5
    with pytest.raises(FileFormatError, match="changed after it was saved"):
        read_inputs([path])


def test_what_carries_no_seal_is_refused(folder, tmp_path):
    AttackResult.load(folder / "result.nc").tree.to_netcdf(tmp_path / "bare.nc", engine="h5netcdf")
    with pytest.raises(FileFormatError, match="carries no seal"):
        read_inputs([tmp_path / "bare.nc"])
    tree = AttackResult.load(folder / "result.nc").tree.copy()
    del tree.attrs["changes"]
    with pytest.raises(FileFormatError, match="does not say its changes"):
        read_inputs([AttackResult(tree).save(tmp_path / "less.nc")])


def test_what_belongs_to_another_release_is_stale(folder, tmp_path):
    other = Release.from_counts({"block": 3}, rho="0.1")
    with pytest.raises(ScenarioError, match=r"result\.nc is stale"):
        read_inputs([folder / "result.nc"], release=other)
    assert read_inputs([folder / "result.nc"], release=RELEASE).answers
    run(load("single_level"), RELEASE, draws=0).save(tmp_path / "single.nc")
    with pytest.raises(ScenarioError, match="belongs to none of the results"):
        read_inputs([tmp_path / "single.nc", folder / "study"])


@pytest.mark.parametrize(("form", "package"), [("parquet", "pyarrow"), ("zarr", "zarr")])
def test_batches_of_every_form_are_read(form, package, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed")
    from adversary.batches import batch_to_folder

    (tmp_path / "in.csv").write_text("block,block_sigma2\n2,5.0\n9,5.0\n")
    batch_to_folder(load("single_level"), tmp_path / "in.csv", tmp_path / "out", form=form, progressbar=False)
    found = read_inputs([tmp_path / "out"]).tables[0]
    assert found.columns["risk"].shape == (2,)
    assert found.about["scenario"] == "single_level"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"geoid,x\n1,2\n", "has a column risk"),
        ("a.csv", b"risk\nmuch\n", "must hold numbers"),
        ("a.csv", b"risk\n-1\n", "numbers >= 0"),
        ("a.csv", b"risk,a\n1\n", "line 2 has 1 fields"),
        ("a.csv", b"risk,risk\n1,2\n", "there twice"),
        ("a.csv", b"\xff\xfe", "cannot be read as CSV"),
        ("a.csv", b"", "has a column risk"),
        ("a.nc", b"no netcdf", "a.nc"),
        ("a.parquet", b"no parquet", "cannot be read as Parquet"),
        ("a.txt", b"x", "a report is made of"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_name(name, content, words, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=words) as caught:
        read_inputs([tmp_path / name])
    assert name in str(caught.value)


def test_targets_without_an_answer_and_without_limit_are_said(tmp_path):
    (tmp_path / "a.csv").write_text("geoid,noisy_block,risk\n01,2,inf\n02,3,nan\n03,1,1.25\n04,1,\n")
    words = Page(render(read_inputs([tmp_path / "a.csv"]))).words
    assert "1 of 4 targets have R' above 1.5. Mean infinite, largest infinite, 50% quantile 1.25" in words
    assert "2 have no risk" in words


def test_nothing_and_a_folder_of_nothing_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="a report is made of"):
        read_inputs([tmp_path])
    with pytest.raises(FileFormatError, match="no such file"):
        read_inputs([tmp_path / "none.nc"])
    with pytest.raises(ScenarioError, match="at least one saved result"):
        render(read_inputs([]))


def test_a_batch_is_read_against_the_hashes_of_its_parts(tmp_path):
    from adversary.batches import batch_to_folder

    data = {"block": np.array([2, 0, 9]), "block_sigma2": 5.0}
    (tmp_path / "in.csv").write_text("block,block_sigma2\n2,5.0\n0,5.0\n9,5.0\n")
    batch_to_folder(
        load("single_level"), tmp_path / "in.csv", tmp_path / "out", form="netcdf", progressbar=False
    )
    inputs = read_inputs([tmp_path / "out"])
    expected = [
        run(load("single_level"), Release.from_counts({"block": int(b)}, sigma2=5.0), draws=0).risk.value
        for b in data["block"]
    ]
    np.testing.assert_allclose(inputs.tables[0].columns["risk"], expected, rtol=1e-10)
    assert "all were checked" in Page(render(inputs)).words
    part = next((tmp_path / "out").glob("part-*"))
    part.write_bytes(part.read_bytes() + b" ")
    with pytest.raises(FileFormatError, match="missing or was changed"):
        read_inputs([tmp_path / "out"])


def test_the_file_that_the_page_prints_gives_the_same_answer_again(page, tmp_path, folder):
    (printed,) = [e for e in page.all("pre") if e[1].get("class") == "toml"]
    (tmp_path / "study.toml").write_text("".join(printed[3]))
    config = read_config(tmp_path / "study.toml")
    again = run(
        declared(config, load(config.scenario)),
        config.release,
        config.sampler,
        seed=config.seed,
        **config.options,
    )
    assert again == AttackResult.load(folder / "result.nc")


@pytest.mark.parametrize(
    "changes",
    [
        {"known": [1, 0, 2], "cell": Prior("Categorical", p=[0.5, 0.25, 0.25])},
        {"known": 1, "cell": Prior("Categorical", p=[0.1, 0.2, 0.7])},
    ],
)
def test_lists_are_written_so_that_they_are_read_back(changes, tmp_path):
    cells = Release.from_counts({"cells": [2, -1, 1]}, sigma2=1e-5 + 5)
    result = run(load("whole_record").assuming(**changes), cells, draws=0)
    text, _ = toml_of(result)
    (tmp_path / "study.toml").write_text(text)
    config = read_config(tmp_path / "study.toml")
    again = run(declared(config, load(config.scenario)), config.release, draws=0)
    np.testing.assert_array_equal(again.posterior.values, result.posterior.values)
    assert "ceiling by the privacy guarantee is not recorded" in _words(result, tmp_path)


def _words(result, folder):
    return Page(render(read_inputs([result.save(folder / "r.nc")]))).words


def test_where_it_cannot_be_got_again_the_page_says_why(tmp_path):
    cells = Release.from_counts({"cells": [2, -1, 1, 0, 0, 0, 0]}, sigma2=5.0)
    long = run(load("whole_record").assuming(cell=Prior("Categorical", p=np.full(7, 1 / 7))), cells, draws=0)
    assert "cannot be got again from this page alone: the assumption cell" in _words(long, tmp_path)
    spawned = run(load("single_level"), RELEASE, draws=0, seed=np.random.SeedSequence(1).spawn(1)[0])
    assert "the seed was one of several spawned" in _words(spawned, tmp_path)


def test_a_sampled_answer_prints_its_error_and_its_failed_checks(tmp_path):
    result = run(load("single_level"), RELEASE, "gibbs", seed=1, draws=50, chains=2)
    tree = result.tree.copy(deep=True)
    tree["answer"].attrs["r_hat"] = 1.4
    words = _words(AttackResult(tree), tmp_path)
    assert "Monte Carlo standard error" in words
    assert "1 check failed: do not rely on these numbers" in words
    assert "FAILED" in words


def test_an_answer_of_another_version_says_so(tmp_path):
    tree = run(load("single_level"), RELEASE, draws=0).tree.copy(deep=True)
    tree.attrs["versions"] = json.dumps({**json.loads(tree.attrs["versions"]), "adversary": "0.0.9"})
    assert "computed by version 0.0.9" in _words(AttackResult(tree), tmp_path)


def test_a_release_above_the_ceiling_is_explained(tmp_path):
    release = Release.from_counts({"block": 9}, rho="0.1")
    result = run(load("single_level"), release, draws=0)
    assert result.risk.value > result.risk_ceiling
    assert "This one release exceeds the ceiling" in _words(result, tmp_path)


def test_a_page_is_written_under_a_name_that_says_so(folder, tmp_path):
    inputs = read_inputs([folder / "risk.csv"])
    with pytest.raises(FileFormatError, match=r"ends in \.html"):
        write_report(inputs, tmp_path / "report.pdf")
    with pytest.raises(ScenarioError, match="threshold is a risk"):
        write_report(inputs, tmp_path / "report.html", threshold=math.nan)
    assert (
        write_report(inputs, tmp_path / "report.html")
        .read_text(encoding="utf-8")
        .startswith("<!DOCTYPE html>")
    )


def test_a_certainty_that_is_none_is_not_printed_as_one():
    assert number(1 - 1e-9) != "1"
    assert number(0.99999999) == "0.99999999"
    assert number(1.0) == "1"


def test_a_table_of_assess_says_what_it_is_of_and_is_refused_once_edited(tmp_path):
    from adversary.assess import assess_pl94
    from adversary.readers.pl94 import demo_folder

    table = assess_pl94(demo_folder(), rho="0.05", seed=1).to_csv(tmp_path / "risk.csv")
    words = Page(render(read_inputs([table]))).words
    for said in ("bounded", "1/20", "votingage * hispanic * cenrace", "seed", "all were checked"):
        assert said in words
    assert "carries no seal" not in words
    text = table.read_text()
    table.write_text(text.replace("0.5,", "0.9,", 1))
    with pytest.raises(FileFormatError, match="not the one that was written"):
        read_inputs([table])
    table.write_text(text)
    (tmp_path / "risk.csv.about.json").unlink()
    assert "carries no seal: nothing says that it was not edited" in Page(render(read_inputs([table]))).words
