"""A real Chromium without a window, driven over its own protocol by a pair of pipes: no driver, no package.

https://chromedevtools.github.io/devtools-protocol/: messages are JSON, each ended by a NUL byte; Chromium reads
them from file descriptor 3 and answers on 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_HIGH = 30  # descriptors from here on are free of the two that Chromium wants


class Browser:
    """One page of a Chromium. `events` are what it said unasked: console entries, requests, exceptions."""

    def __init__(self, profile: Path) -> None:
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        theirs = [fcntl.fcntl(each, fcntl.F_DUPFD, _HIGH) for each in (to_read, from_write)]

        def put_in_place() -> None:
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self._process = subprocess.Popen(
            [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", "--no-first-run", "--hide-scrollbars", "about:blank"],
            pass_fds=(3, 4), preexec_fn=put_in_place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for each in (*theirs, to_read, from_write):
            os.close(each)
        self._to, self._from = to_write, from_read
        self._buffer, self._asked, self.events = b"", 0, list[dict[str, Any]]()
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result of one command of the protocol; `RuntimeError` with what went wrong."""
        self._asked += 1
        message: dict[str, Any] = {"id": self._asked, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._send(message)
        while True:
            said = self._next()
            if said.get("id") == self._asked:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return dict(said["result"])
            self.events.append(said)

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data[:65536]) :]

    def _next(self, limit_s: float = 120.0) -> dict[str, Any]:
        end = time.monotonic() + limit_s
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended")
            self._buffer += part
        first, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(first))

    def open(self, page: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Open a file as a device of that width does."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 500)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=page.as_uri())
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self._next())
        self.events = [each for each in self.events if each.get("method") != "Page.loadEventFired"]

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page, awaited; the page's own policy does not bind it."""
        done = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"]))
        return done["result"].get("value")

    def press(self, key: str) -> None:
        """A key, down and up, as a person's."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def picture(self, *, whole: bool = False) -> bytes:
        """The page as a PNG: what is on the screen, or all of it."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def paper(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def said(self, *methods: str) -> list[dict[str, Any]]:
        """The events of these kinds."""
        return [each["params"] for each in self.events if each.get("method") in methods]

    def close(self) -> None:
        """End it."""
        self._session = None
        try:
            self.ask("Browser.close")
            self._process.wait(20)
        except (RuntimeError, OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
