"""The page in a real browser: what it shows are the numbers, and it is there for this machine alone."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from adversary.errors import AdversaryError
from adversary.explore import explored
from adversary.explore import serve as serving
from adversary.explore.serve import command

_spec = importlib.util.spec_from_file_location("browser", Path(__file__).with_name("browser.py"))
browser = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(browser)

pytest.importorskip("marimo", reason="the extra [explore] is not installed")


def test_the_page_is_bound_to_the_loopback_address_and_nothing_is_fetched_to_run_it():
    line = command(0)
    assert line[line.index("--host") + 1] == "127.0.0.1"
    assert 0 < int(line[line.index("--port") + 1]) < 65536
    assert "--no-sandbox" in line


def test_a_taken_port_is_refused_with_the_way_out():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(AdversaryError, match="0 for a free one"):
            command(other.getsockname()[1])


def test_without_marimo_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(AdversaryError, match=r"dp-adversary\[explore\]"):
        command(0)


def test_the_command_hands_over_its_options(monkeypatch):
    from adversary.cli_explore import explore

    asked = []
    monkeypatch.setattr(
        "adversary.explore.serve", lambda port, *, browser: asked.append((port, browser)) or 0
    )
    assert CliRunner().invoke(explore, ["--port", "0", "--no-browser"]).exit_code == 0
    assert asked == [(0, False)]
    assert callable(serving)


@pytest.mark.slow
@pytest.mark.skipif(browser.BROWSER is None, reason="no Chromium on PATH")
def test_a_slider_moves_the_posterior_in_a_real_browser(tmp_path):
    line = [sys.executable, "-c", "from adversary.cli import main; main()", "explore", "--no-browser"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as server:
        try:
            address = next(
                word for word in server.stdout.readline().split() if word.startswith("http://127.0.0.1:")
            )
            assert serving.__module__ == "adversary.explore.serve"
            from adversary.explore.serve import _answers

            assert _answers(address)
            with browser.open_page(address, tmp_path) as page:
                before = explored(rho=0.1, prior=0.5, block=2)
                page.wait_for(f"{before.posterior:.6g}")
                page.value(_FOCUS.replace("LABEL", "noisy count of the block"))
                page.press("ArrowRight", 39)
                after = explored(rho=0.1, prior=0.5, block=3)
                page.wait_for(f"{after.posterior:.6g}", seconds=30)
                assert f"{after.risk:.6g}" in page.text()
                assert f"{after.ceiling:.6g}" in page.text()
                page.screenshot(tmp_path / "explorer.png")
                assert (tmp_path / "explorer.png").stat().st_size > 20_000  # not an empty page
        finally:
            os.killpg(server.pid, signal.SIGTERM)


_FOCUS = """
[...document.querySelectorAll('marimo-slider')].find(s => (s.shadowRoot.textContent || '').includes('LABEL'))
  .shadowRoot.querySelector('[role=slider]').focus()
"""
