"""Where a process of ours starts, before anything large is loaded.

Loading torch and compiled kernels takes a second or two in which there is nothing to save: a signal
then ends the process with one sentence, and no traceback out of somebody's import.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from types import FrameType
from typing import Any

_USUAL: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
if hasattr(signal, "SIGHUP"):  # Windows has none
    _USUAL[signal.SIGHUP] = signal.SIG_DFL


def main() -> None:
    """Run the command line."""
    for number in _USUAL:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    _open_closed_outputs()
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:  # torch would end the process without a word of ours
        os.write(2, b"The working folder is not there any more; change to another one.\n")
        raise SystemExit(2) from None
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):  # not on a closed output
            output.reconfigure(errors="backslashreplace")  # an ASCII terminal is no error
    from nscaching.cli.main import main as run

    run()


def _open_closed_outputs() -> None:
    """Send an output that is closed to nowhere: the next file opened would take its number."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def loaded() -> None:
    """Give signals their usual meaning again: the command is loaded and looks after itself."""
    for number, handler in _USUAL.items():
        if signal.getsignal(number) is _end:
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, b"Stopped before anything was done.\n")
    os._exit(128 + number)
