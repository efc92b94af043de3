import json
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from adversary import AttackResult, Release, load, run
from adversary.cli import main
from adversary.report.page import number

RELEASE = Release.from_counts({"block": 2, "tract": 7}, rho={"block": "0.0992264", "tract": "0.1"})
BROWSER = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)


def call(*arguments, code=0):
    found = CliRunner().invoke(main, list(map(str, arguments)))
    assert found.exit_code == code, (found.output, found.exception)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cli_report")
    run(load("single_level"), RELEASE, seed=1, draws=10).save(place / "result.nc")
    (place / "risk.csv").write_text(
        "geoid,noisy_block,prior,posterior,risk\n0100,3,0.1,0.4,4\n0101,1,0.1,0.05,0.5\n"
    )
    return place


def test_report_writes_one_page_and_says_what_is_in_it(folder, tmp_path):
    page = tmp_path / "report.html"
    found = json.loads(
        call(
            "report", folder / "result.nc", folder / "risk.csv", "--out", page, "--threshold", "2", "--json"
        ).stdout
    )
    assert (found["results"], found["tables"]) == (["result.nc"], ["risk.csv"])
    text = page.read_text(encoding="utf-8")
    assert "risk above 2;" in text
    assert number(AttackResult.load(folder / "result.nc").posterior) in text
    assert call("report", folder / "result.nc", "--out", page).stdout == f"{page}: 1 result\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("result.nc", "--out", "report.pdf"), "a report is written as .html or .htm"),
        (("none.nc", "--out", "report.html"), "there is no such file"),
        (("result.nc", "--out", "none/report.html"), "does not exist"),
        (("result.nc", "--out", "report.html", "--threshold", "0"), "the threshold is a risk"),
        (("result.nc", "--out", "report.html", "--release", "other.json"), "result.nc is stale"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_code_two(arguments, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "other.json").write_text(Release.from_counts({"block": 3}, rho="0.1").to_json())
    found = call("report", *arguments, code=2)
    assert words in found.stderr
    assert "Traceback" not in found.stderr
    assert not (folder / "report.html").exists()


def test_a_report_imports_no_pymc(folder, tmp_path):
    code = (
        "import sys\nfrom adversary.cli import main\n"
        f"try:\n    main(['report', {str(folder / 'result.nc')!r}, '--out', {str(tmp_path / 'r.html')!r}])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'pymc', 'pytensor', 'arviz'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").is_file()


@pytest.fixture(scope="module")
def page(folder):
    call("report", folder / "result.nc", folder / "risk.csv", "--out", folder / "browser.html")
    return folder / "browser.html"


def browse(page, *options):
    """Run a headless browser on a page; skip where it does not start (a sandbox, no memory)."""
    if BROWSER is None:
        pytest.skip("no Chromium on PATH: the page is not opened in a browser")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={page.parent / 'profile'}",
    ]
    try:
        done = subprocess.run(
            [*command, *options, page.as_uri()], capture_output=True, text=True, check=False, timeout=90
        )
    except subprocess.TimeoutExpired:
        pytest.skip("Chromium did not answer within 90 s on this machine")
    if done.returncode:
        pytest.skip(f"Chromium does not run here: {done.stderr[-200:]}")
    return done


def test_a_real_browser_reads_the_page_as_it_was_written(page, folder):
    dom = browse(page, "--dump-dom").stdout
    assert dom.count("<svg") == page.read_text(encoding="utf-8").count("<svg") == 2
    assert re.search(r"<h1>Disclosure risk: single_level</h1>", dom)
    assert number(AttackResult.load(folder / "result.nc").risk.value) in dom
    assert "parsererror" not in dom


def test_a_real_browser_prints_the_page(page):
    printed = page.with_suffix(".pdf")
    browse(page, f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    content = printed.read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 8
