"""Start commands from a process that has all packages loaded: a fork in place of two seconds.

The campaigns start thousands of processes, and most of their time went into imports. The process
of this script imports what the commands need, trains nothing, and forks once per command that it
is asked for; the child is the command ``nscaching`` from its first line on, in a session of its own
with an environment and files of its own. Kills during imports need a process that imports:
:class:`Attempt` of ``kills.py`` starts every sixth one anew.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from types import FrameType
from typing import IO, Any

#: What the long commands import on their way; those that are not installed are left out.
LOADED = ("nscaching", "nscaching.runs", "nscaching.nodes", "nscaching.cli.main")
LOADED += tuple(f"nscaching.cli.{name}" for name in ("ask", "data", "experiments", "nodes"))
LOADED += ("nscaching.cli.runs", "nscaching.cli.train")
LOADED += ("nscaching.report.run_page", "nscaching.report.entity_map", "nscaching.cli.start")
LOADED += ("sklearn.manifold", "scipy.stats", "scipy.sparse.csgraph", "smac", "duckdb", "umap")


class Child:
    """A command that was forked: what :class:`subprocess.Popen` has of it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode, self._ended = pid, 0, threading.Event()

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self.returncode if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when it has ended."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a forked command", timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, code: int) -> None:
        """Note that it has ended."""
        self.returncode = code
        self._ended.set()


class Starter:
    """The process that forks, seen from the campaign; threads may share it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._asking, self._answered = threading.Lock(), threading.Event()
        self._children: dict[int, Child] = {}
        self._last: Child | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, words: list[str], stderr: str, environment: dict[str, str]) -> Child:
        """Fork, and run ``nscaching WORDS`` with a file for stderr and more environment."""
        assert self._server.stdin is not None
        with self._asking:
            self._answered.clear()
            request = {"words": words, "stderr": stderr, "environment": environment}
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            if not self._answered.wait(120.0) or self._last is None:
                raise RuntimeError("The process that forks does not answer.")
            return self._last

    def close(self) -> None:
        """End the process that forks."""
        if self._server.stdin is not None:
            self._server.stdin.close()
        self._server.wait()

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            told = json.loads(line)
            if "started" in told:
                child = self._last = Child(told["started"])
                self._children[child.pid] = child
                self._answered.set()
            else:
                self._children.pop(told["ended"]).end(told["code"])


# The process that forks ---------------------------------------------------------------------------


def _tell(told: dict[str, int]) -> None:
    os.write(1, (json.dumps(told) + "\n").encode())


def _reap(number: int = 0, frame: FrameType | None = None) -> None:
    """Tell of every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            _tell({"ended": found[0], "code": os.waitstatus_to_exitcode(found[1])})


def _become(request: dict[str, Any]) -> None:
    """Turn this process into the command that was asked for."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGINT):  # as a program that has just been started
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    nowhere = os.open(os.devnull, os.O_RDWR)
    errors = os.open(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for new, number in ((nowhere, 0), (nowhere, 1), (errors, 2)):
        os.dup2(new, number)
    os.close(nowhere)
    os.close(errors)
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # found anew
    sys.argv = ["nscaching", *request["words"]]


def serve(requests: IO[str]) -> bool:
    """Fork once per line; return True in a child that has become a command."""
    signal.signal(signal.SIGCHLD, _reap)
    while line := requests.readline():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
            return True
        _tell({"started": pid})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    return False


def main() -> None:
    """Load the packages, then fork."""
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if serve(sys.stdin):
        from nscaching.cli.start import main as run

        run()


if __name__ == "__main__":
    main()
