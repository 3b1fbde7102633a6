"""A headless Chromium that a test drives: its pages run their scripts, and are clicked, typed at and read.

It is spoken to over two pipes, in the messages of its DevTools protocol: each is JSON, and ends in a zero byte.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PATIENCE = 60  # seconds for an answer
# In CI, where .ci/run installs one, a browser that is not there is an error.
needs_a_browser = pytest.mark.skipif(PROGRAM is None and "CI" not in os.environ, reason="no Chromium on the PATH")

OPTIONS = (
    *("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Enter": 13, " ": 32}


class Refused(AssertionError):
    """The browser does not do what it was asked to."""


class Browser:
    """One, with a profile of its own that nothing is left of."""

    def __init__(self) -> None:
        assert PROGRAM is not None, "no Chromium on the PATH"
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]

        def hand_over() -> None:
            for number, end in zip((3, 4), ends, strict=True):
                os.dup2(end, number)

        command = [PROGRAM, *OPTIONS, f"--user-data-dir={self._profile.name}"]
        command += ["--no-sandbox"] * (os.getuid() == 0)
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=(3, 4), preexec_fn=hand_over
        )
        for end in (theirs_in, theirs_out, *ends):
            os.close(end)
        self._number, self._rest, self._told = 0, b"", dict[str, Callable[[str, dict[str, Any]], None]]()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._to)  # which ends it
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._profile.cleanup()

    def page(self, url: str, width: int = 1280, height: int = 900) -> Page:
        """A page that has loaded `url`."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        made = Page(self, target, session)
        self._told[session] = made.tell
        made.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        for domain in ("Page", "Runtime", "Network", "Log"):
            made.call(f"{domain}.enable")
        made.go(url)
        return made

    def call(self, method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        """What the browser answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.hear()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Refused(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def hear(self) -> dict[str, Any]:
        """The next message. What tells of a page goes there, too."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE)
            assert ready, "the browser says nothing"
            read = os.read(self._from, 1 << 20)
            assert read, "the browser is gone"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message and message.get("sessionId") in self._told:
            self._told[message["sessionId"]](message["method"], message["params"])
        return message

    def forget(self, session: str) -> None:
        """A page that is closed."""
        del self._told[session]


class Page:
    """What is wrong with it, in `errors`, and what it asked for, in `asked`: addresses."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session
        self.errors, self.asked, self._loaded = list[str](), list[str](), False

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Something has happened in it."""
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Network.loadingFailed" and not params.get("canceled"):
            self.errors.append(f"not loaded: {params['errorText']}")
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """What the browser answers about this page."""
        return self._browser.call(method, self._session, **params)

    def go(self, url: str) -> None:
        """Loads another address, and is done when all of it is there."""
        self._loaded = False
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        while not self._loaded:
            self._browser.hear()

    def ask(self, script: str) -> Any:
        """What an expression is."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The first thing that the expression is that counts as true.

        A page that goes elsewhere takes a question with it that is being answered: it is asked again.
        """
        end, refused = time.monotonic() + PATIENCE, ""
        while time.monotonic() < end:
            try:
                if found := self.ask(f"new Promise((go) => setTimeout(() => go({script}), 20))"):
                    return found
            except Refused as error:  # noqa: PERF203
                refused = f" ({error})"
        raise AssertionError(f"never true: {script}{refused}")

    def click(self, selector: str) -> None:
        """The mouse goes to the middle of what CSS calls so, and is pressed there."""
        where = "const {{x, y, width, height}} = document.querySelector({}).getBoundingClientRect();"
        script = f"(() => {{ {where.format(json.dumps(selector))} return [x + width / 2, y + height / 2]; }})()"
        x, y = self.ask(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """A key, where the keyboard is."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def write(self, text: str) -> None:
        """Letters, one by one."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def close(self) -> None:
        """For ever."""
        self._browser.call("Target.closeTarget", targetId=self._target)
        self._browser.forget(self._session)
