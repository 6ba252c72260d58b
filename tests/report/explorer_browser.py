"""The explorer driven as a person drives it: keys, clicks, downloads."""

import time

from .chromium import Chromium

_NAMED_KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37}


class ExplorerBrowser(Chromium):
    """A Chromium that types, waits for what it types, and keeps downloads in a folder."""

    def visit(self, page, width=1280, dark=False):
        """Open a file, or an address as text, and wait until the view stands."""
        self.open(_Address(page) if isinstance(page, str) else page, width, dark=dark)
        self.wait("document.querySelector('main h1') !== null")

    def go(self, place):
        """Change what stands after the # and wait for the view."""
        self.run(f"document.querySelector('main').replaceChildren(); location.hash = '{place}'")
        self.wait("document.querySelector('main h1') !== null")

    def wait(self, condition, patience=20.0):
        """Wait until an expression is true."""
        deadline = time.monotonic() + patience
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.02)

    def promised(self, script):
        """Return the value of an expression that may be a promise."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key):
        """Press one key: a sign, or a key by its name."""
        named = {"code": key, "windowsVirtualKeyCode": _NAMED_KEYS[key]} if len(key) > 1 else {}
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **named, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, **named)

    def type(self, text):
        """Press a key per sign."""
        for sign in text:
            self.press(sign)

    def click(self, selector):
        """Click in the middle of an element with the mouse."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({selector!r});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def downloads_to(self, folder):
        """Let downloads go to a folder."""
        session, self._session = self._session, None
        self.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        self._session = session

    def text(self, selector):
        """Return the text of an element."""
        return self.run(f"document.querySelector({selector!r}).textContent")

    def focused(self):
        """Return the element that has the focus: its tag, and its id or text."""
        return self.run(
            "(e => `${e.tagName}#${e.id} ${e.textContent.slice(0, 60)}`)(document.activeElement)"
        )


class _Address(str):
    """An address where :meth:`Chromium.open` expects a path."""

    def resolve(self):
        return self

    def as_uri(self):
        return str(self)
