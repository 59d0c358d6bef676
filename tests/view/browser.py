"""Drives a headless Chromium over a pipe: opens a page and says what happened."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# Debian's and Ubuntu's name, and others'.
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60


def find():
    """The browser's path."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise SystemExit("there is no chromium: scripts/setup test installs it")


class Browser:
    """One browser with one page at a time. A context manager: it ends the browser."""

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="whywait-view-")
        to_read, self.to = os.pipe()
        self.of, from_write = os.pipe()

        def descriptors():
            # Chromium reads commands from 3 and writes to 4. First out of the way, as either may be
            # among them.
            read, write = os.dup(to_read), os.dup(from_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [
                find(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--hide-scrollbars",
                f"--user-data-dir={self.profile}",
                "--remote-debugging-pipe",
                "about:blank",
            ],
            preexec_fn=descriptors,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.buffer = b""
        self.number = 0
        self.events = []
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.of)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self):
        while b"\0" not in self.buffer:
            if not (more := os.read(self.of, 1 << 20)):
                raise RuntimeError("the browser has ended")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            answer = self._message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)
        raise RuntimeError(f"{method}: no answer")

    def wait(self, method):
        """Waits for an event."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for event in self.events:
                if event.get("method") == method:
                    return event
            self.events.append(self._message())
        raise RuntimeError(f"{method} did not come")

    def open(self, url, *, scripts=True, dark=False, width=1200, height=900):
        """Opens a page of its own."""
        return Page(self, url, scripts, dark, width, height)


class Page:
    def __init__(self, browser, url, scripts, dark, width, height):
        self.browser = browser
        browser.events.clear()
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        if not scripts:
            self.call("Emulation.setScriptExecutionDisabled", value=True)
        # The page's own work: a loaded machine makes no page slow.
        self.call("Performance.enable", timeDomain="threadTicks")
        browser.events.clear()
        self.call("Page.navigate", url=url)
        browser.wait("Page.loadEventFired")
        # Drawn, too: a picture of its corner needs all of it laid out.
        self.picture(clip=(0, 0, 50, 50))
        metrics = self.call("Performance.getMetrics")["metrics"]
        (self.seconds,) = (m["value"] for m in metrics if m["name"] == "TaskDuration")
        self.events = list(browser.events)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def complaints(self):
        """What the console has to complain of."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(params["exceptionDetails"].get("text", "an exception"))
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                    found.append(str(params["args"]))
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(params["entry"]["text"])
        return found

    def requests(self):
        """What was asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def value(self, expression):
        """What an expression is, in the page. It is asked by the debugger: the page's policy and
        whether its scripts may run do not matter."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def height(self):
        return self.call("Page.getLayoutMetrics")["cssContentSize"]["height"]

    def picture(self, path=None, clip=None):
        """A picture of all of the page, or of a part of it: x, y, width, height. Its bytes."""
        if clip is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, size["width"], size["height"])
        x, y, width, height = clip
        data = self.call(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={"x": x, "y": y, "width": width, "height": height, "scale": 1},
        )["data"]
        data = base64.b64decode(data)
        if path:
            Path(path).write_bytes(data)
        return data

    def shrunk(self, path, clip, scale):
        """Writes a small picture of a part of the page: for people."""
        x, y, width, height = clip
        data = self.call(
            "Page.captureScreenshot",
            format="webp",
            quality=70,
            captureBeyondViewport=True,
            clip={"x": x, "y": y, "width": width, "height": height, "scale": scale},
        )["data"]
        Path(path).write_bytes(base64.b64decode(data))
