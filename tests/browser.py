"""Headless Chromium over its own pipe (DevTools protocol): no driver, no package, no port.

One browser serves all pages of a process, each in a context of its own: no cookies, storage or
cache of another. Messages are JSON ended by a zero byte, in on descriptor 3, out on 4
(`--remote-debugging-pipe`).
"""

import atexit
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE_S = 600.0
_PATIENCE_TO_END_S = 30.0
# Puts the pipe where Chromium expects it; copies above 9 first, so that neither end is in the way
# of the other.
_ON_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium():
    """Path of a Chromium or Chrome; None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium here: install chromium to run browser tests"
)


class Browser:
    """A Chromium that runs until this process ends."""

    def __init__(self):
        self._next, self._buffer = 0, b""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        )
        command = (
            find_chromium(),
            *flags,
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}",
        )
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _ON_3_AND_4,
                str(their_in),
                str(their_out),
                *command,
                "about:blank",
            ],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        atexit.register(self._end)

    def _end(self):
        os.close(self._out)  # its order to end, in which it removes its files
        try:
            self._process.wait(_PATIENCE_TO_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    def send(self, method, session=None, note=lambda *_: None, **parameters):
        """Call a method of the protocol and return its result; `note` gets the session's events
        until then.
        """
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if session and answer.get("sessionId") == session:
                note(answer.get("method"), answer.get("params", {}))
            if answer.get("id") == self._next:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        raw, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(raw)


browser = cache(Browser)


class Page:
    """One page in a context of its own. Use as a context manager.

    Attributes:
        problems: what the console and the page complained of.
        requests: addresses that were asked for.
    """

    def __init__(self, path, width=1280, height=900, dark=False):
        self._path, self._size, self._dark = path, (width, height), dark
        self.problems, self.requests = [], []

    def __enter__(self):
        self._browser = browser()
        self._context = self._browser.send("Target.createBrowserContext")["browserContextId"]
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _open(self):
        target = self._browser.send(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )
        attached = self._browser.send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(*self._size)
        self.scheme("dark" if self._dark else "light")
        self.send("Page.navigate", url=f"file://{self._path}")
        self.wait_for("document.readyState === 'complete' && !!document.querySelector('section')")

    def __exit__(self, *_):
        self._browser.send("Target.disposeBrowserContext", browserContextId=self._context)

    def send(self, method, **parameters):
        """Call a method of the protocol on the page and return its result."""
        return self._browser.send(method, self._session, self._note, **parameters)

    def _note(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.problems.append(parameters)
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def evaluate(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression):
        """Ask until the expression is true."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, expression
            # The browser is real: there is no clock of ours to turn.
            self.evaluate("new Promise(resolve => setTimeout(resolve, 20))")

    def settle(self):
        """Let layout, observers and drawing come to rest."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => "
            "setTimeout(done, 30))))"
        )

    def resize(self, width, height):
        """Set the size of the window in pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def scheme(self, name):
        """Prefer light or dark."""
        self.send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
        )

    def hover(self, selector):
        """Move the pointer onto the middle of an element."""
        x, y = self.evaluate(
            "(() => { const e = "
            f"document.querySelector({json.dumps(selector)});e.scrollIntoView({{block: 'center', "
            "behavior: 'instant'}); const b = e.getBoundingClientRect();return [b.x + b.width / 2, "
            "b.y + b.height / 2]; })()"
        )
        self.settle()
        for nudge in (1, 0):
            self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + nudge, y=y)

    def press(self, key, code=None):
        """Press and release one key."""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code or key,
                text=key if len(key) == 1 else "",
            )

    def screenshot(self, path, whole=True):
        """Save a PNG of the page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        options = {"clip": clip, "captureBeyondViewport": True} if whole else {}
        path.write_bytes(
            base64.b64decode(self.send("Page.captureScreenshot", format="png", **options)["data"])
        )
