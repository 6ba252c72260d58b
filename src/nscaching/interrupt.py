"""Stopping politely: the first SIGINT, SIGTERM or SIGHUP is a request, the second one insists."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

#: A terminal that closes sends SIGHUP; ``nohup`` asks to ignore it, and so we do. Windows has none.
_HANGUP: int | None = getattr(signal, "SIGHUP", None)
_TERMINATIONS = tuple(n for n in (signal.SIGTERM, _HANGUP) if n is not None)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised where Ctrl-C would raise a KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Stopped by {signal.Signals(number).name}.")
        self.number = number


class StopRequest:
    """While entered, remembers the first stop signal in ``signal`` instead of dying of it."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if _asked_of_worker:
            self.signal = _asked_of_worker[0]
        if _in_main_thread():
            for number in (signal.SIGINT, *_TERMINATIONS):
                if not _is_ignored_hangup(number):
                    self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        if self._previous.get(signal.SIGTERM) is _keep_for_worker:
            _keep_for_worker(number, frame)
        if "TORCHELASTIC_RUN_ID" not in os.environ:  # an agent of processes passes signals on twice
            self._restore()
        if number == _HANGUP:
            _leave_the_terminal()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()


#: The stop signals that this process was sent, where it is a worker.
_asked_of_worker: list[int] = []


def become_worker() -> None:
    """Let the process that gave the work decide: Ctrl-C is for that one, and its SIGTERM is kept.

    A training ends after its step, whether the signal came during it or before, and no other one
    begins: see :func:`worker_is_stopped`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _keep_for_worker)


def worker_is_stopped() -> bool:
    """Tell whether this process is a worker that was asked to stop."""
    return bool(_asked_of_worker)


def _keep_for_worker(number: int, frame: FrameType | None) -> None:
    _asked_of_worker.append(number)


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """While entered, SIGTERM and SIGHUP raise :class:`Terminated` as Ctrl-C does its like."""
    if not _in_main_thread():
        yield
        return
    previous = {
        number: signal.signal(number, _interrupt)
        for number in _TERMINATIONS
        if not _is_ignored_hangup(number)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """While entered, Ctrl-C does nothing here, nor ever in the processes that are started."""
    if not _in_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_ignored_hangup(number: int) -> bool:
    return number == _HANGUP and signal.getsignal(number) is signal.SIG_IGN


#: The signals that raised :class:`Terminated`; libraries may turn that into an error of their own.
_raised: list[int] = []


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == _HANGUP:
        _leave_the_terminal()
    _raised.append(number)
    raise Terminated(number)


def interruption() -> KeyboardInterrupt:
    """Return the request to stop that a library has swallowed."""
    return Terminated(_raised.pop()) if _raised else KeyboardInterrupt()


def _leave_the_terminal() -> None:
    """Send what would go to a terminal that is gone to nowhere: writing there is an error."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for output in (1, 2):
            if stat.S_ISCHR(os.fstat(output).st_mode):  # isatty says no once it is gone
                os.dup2(nowhere, output)
        os.close(nowhere)
