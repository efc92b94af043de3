"""A headless Chromium driven over its DevTools protocol: enough to open a page, press keys and read it."""

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import time
from urllib.request import urlopen

BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)


class Page:
    def __init__(self, socket):
        self.socket, self.number = socket, itertools.count(1)

    def call(self, method, **parameters):
        n = next(self.number)
        self.socket.send(json.dumps({"id": n, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv(timeout=60))
            if answer.get("id") == n:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, script):
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self):
        return self.value("document.body ? document.body.innerText : ''")

    def wait_for(self, words, seconds=90):
        end = time.monotonic() + seconds
        while words not in self.text():
            assert time.monotonic() < end, f"{words!r} did not appear in:\n{self.text()}"
            time.sleep(0.2)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def open_page(address, folder):
    from websockets.sync.client import connect

    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1100"]
    home = folder / "browser"
    line = [BROWSER, *flags, f"--user-data-dir={home}", "--remote-debugging-port=0", "about:blank"]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            note, end = home / "DevToolsActivePort", time.monotonic() + 60
            while not (note.exists() and "\n" in note.read_text()):
                assert process.poll() is None, "the browser ended"
                assert time.monotonic() < end, "the browser did not start"
                time.sleep(0.1)
            port = note.read_text().split("\n")[0]
            with urlopen(f"http://127.0.0.1:{port}/json/list") as listed:
                target = next(t for t in json.load(listed) if t["type"] == "page")
            with connect(target["webSocketDebuggerUrl"], max_size=None, proxy=None) as socket:
                page = Page(socket)
                page.call("Page.enable")
                page.call("Page.navigate", url=address)
                yield page
        finally:
            process.terminate()
