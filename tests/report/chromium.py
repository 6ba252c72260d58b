"""A headless Chromium that opens one page: no driver, only its DevTools over two pipes."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

EXECUTABLE = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--force-device-scale-factor=1",
)


class Chromium:
    """Use it in a ``with`` block; everything that the page says is kept in ``events``."""

    def __init__(self, profile, patience=60.0):
        self.events, self._number, self._rest, self._patience = [], 0, b"", patience
        self._session = None
        (read_there, self._write), (self._read, write_there) = os.pipe(), os.pipe()
        # It reads commands from its file 3 and writes answers to its file 4.
        into = f'exec "$0" "$@" 3<&{read_there} 4>&{write_there}'
        self._process = subprocess.Popen(
            ["bash", "-c", into, EXECUTABLE, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)

    def __enter__(self):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._session = None
        try:
            self.ask("Browser.close")
        finally:
            self._process.wait(self._patience)
            os.close(self._write)
            os.close(self._read)

    def open(self, path, width, height=900, dark=False):
        """Open a file at a width, in light or dark."""
        self.events.clear()
        phone = width < 640
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=path.resolve().as_uri())
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def run(self, script):
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move_to(self, x, y):
        """Put the mouse there."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path, whole=True):
        """Write what is seen, or the whole page, as PNG."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def requests(self):
        """Return the addresses that the page asked for, its own file aside."""
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent if each.get("type") != "Document"]

    def complaints(self):
        """Return what the console holds: errors, warnings, exceptions, messages."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event["params"] for event in self.events if event.get("method") in kinds]

    def ask(self, method, **params):
        """Send a command and return its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda found: found.get("id") == message["id"])
        assert "error" not in answer, answer
        return answer["result"]

    def _until(self, wanted):
        deadline = time.monotonic() + self._patience
        while True:
            for found in self._messages(deadline):
                self.events.append(found)
                if wanted(found):
                    return found

    def _messages(self, deadline):
        """Return the next messages; what follows the last zero is kept."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            self._rest += os.read(self._read, 1 << 20)
        message, _, self._rest = self._rest.partition(b"\0")
        return [json.loads(message)]
