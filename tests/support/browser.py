"""A headless Chromium, driven through its debugging pipe: nothing but the standard library is needed.

with Browser() as browser:
    browser.open(path, width=360, dark=True)
    browser.value("document.title")
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable")
HERE = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
"""Chromium reads commands from its third and writes answers to its fourth file."""


def chromium() -> str | None:
    """The program, if this machine has one: on the path, or as Playwright keeps it."""
    kept = Path.home() / ".cache" / "ms-playwright"
    found = [*kept.glob("chromium*/chrome-linux*/chrome"), *kept.glob("chromium*/chrome-linux*/headless_shell")]
    return next(filter(None, map(shutil.which, NAMES)), None) or next(map(str, sorted(found)), None)


class Browser:
    """One page. `requests` are the addresses that it asked for, `errors` what its console complained about."""

    def __init__(self, patience: float = 60.0) -> None:
        self.patience, self.number, self.buffer = patience, 0, b""
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.events: list[str] = []

    def __enter__(self) -> Browser:
        self.folder = tempfile.TemporaryDirectory(prefix="highway-rl-browser-", ignore_cleanup_errors=True)
        program = chromium()
        assert program is not None, "no Chromium on this machine"
        their_end, self.to = os.pipe()
        self.back, other_end = os.pipe()
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        words += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        words += ["--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", HERE, str(their_end), str(other_end), program, *words],
            pass_fds=(their_end, other_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_end)
        os.close(other_end)
        self.session = None
        pages = [t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.to)  # the end of its commands is the end of the browser
        os.close(self.back)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def ask(self, method: str, **params: Any) -> Any:
        """The answer to a command; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.patience
        while True:
            answer = self._next(until)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.back], [], [], max(until - time.monotonic(), 0))
            more = os.read(self.back, 1 << 20) if ready else b""
            assert more, "the browser is silent"
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._keep(message.get("method", ""), message.get("params", {}))
        return message

    def _keep(self, event: str, params: dict[str, Any]) -> None:
        self.events.append(event)
        if event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))

    def open(self, path: Path, *, width: int, height: int = 800, dark: bool = False) -> None:
        """Loads a file as a screen of that size shows it, and waits until all of it is there."""
        phone = width < 500
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events, self.requests, self.errors = [], [], []
        self.ask("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + self.patience
        while "Page.loadEventFired" not in self.events:
            self._next(until)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        """What is seen, or the whole page, as a PNG."""
        data = self.ask(
            "Page.captureScreenshot", captureBeyondViewport=whole, **({"clip": self._all()} if whole else {})
        )
        path.write_bytes(base64.b64decode(data["data"]))
        return path

    def _all(self) -> dict[str, float]:
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
