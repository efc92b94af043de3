"""Show the explorer on this machine: marimo serves the page, on the loopback address only.

Held to account by ``tests/explore/test_serve.py`` (a real browser moves a slider).
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

from adversary.errors import AdversaryError

__all__ = ["LOOPBACK", "command", "serve"]

LOOPBACK = "127.0.0.1"


def command(port: int) -> list[str]:
    """Return the command that serves the page, without a browser.

    Parameters
    ----------
    port
        1 to 65535, or 0 for one that is free.

    Raises
    ------
    AdversaryError
        If marimo is not installed, or the port is taken.
    """
    if importlib.util.find_spec("marimo") is None:
        msg = "the explorer needs marimo, which is not installed: pip install 'dp-adversary[explore]'"
        raise AdversaryError(msg, "marimo")
    page = Path(__file__).with_name("app.py")
    number = str(_free(port))
    served = ["--host", LOOPBACK, "--port", number, "--headless", "--no-sandbox", "--no-token"]
    return [sys.executable, "-m", "marimo", "--quiet", "run", str(page), *served]


def _free(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            msg = f"port {port} of {LOOPBACK} cannot be used ({error.strerror}): give another --port, or 0 for a free one"
            raise AdversaryError(msg, port) from error
        return int(probe.getsockname()[1])


def serve(port: int = 0, *, browser: bool = True) -> int:
    """Serve the explorer until it is interrupted.

    Parameters
    ----------
    port
        0 for one that is free.
    browser
        Open the page in the user's browser.

    Returns
    -------
    int
        Exit status of the server; 0 where the user stopped it.

    Raises
    ------
    AdversaryError
        If marimo is not installed, or the port is taken.
    """
    import webbrowser

    line = command(port)
    address = f"http://{LOOPBACK}:{line[line.index('--port') + 1]}"
    sys.stdout.write(f"the explorer is at {address} (this machine only); Ctrl-C ends it\n")
    sys.stdout.flush()
    with subprocess.Popen(line) as server:
        if browser and _answers(address):
            webbrowser.open(address)
        try:
            return server.wait()
        except KeyboardInterrupt:
            server.terminate()
            return 0


def _answers(address: str, tries: int = 60) -> bool:
    """Wait until the page is there, half a minute at most."""
    import time
    from urllib.error import URLError
    from urllib.request import urlopen

    for _ in range(tries):
        try:
            with urlopen(address, timeout=2):  # loopback, built by us
                return True
        except (URLError, OSError):
            time.sleep(0.5)
    return False
