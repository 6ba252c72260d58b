"""How the commands speak: results on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from nscaching.cli import start
from nscaching.cli.main import DEBUG_VARIABLE, cannot_load
from nscaching.errors import LostPeers, NSCachingError, TrainingDiverged, UserError, stop_signal
from nscaching.interrupt import terminate_as_interrupt

P = ParamSpec("P")
R = TypeVar("R")

_NO_MEMORY = "There is not enough memory for this; try a smaller dim or --eval-memory."
#: What a full disk, or a device that is gone, answers where results are printed.
_OUTPUT = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EFBIG)
#: Characters that make a terminal do something: control characters but the end of a line, what ends
#: a line elsewhere, and what turns the direction of writing.
_CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def friendly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors into one or two sentences on stderr: exit code 2 for a user's mistake, else 1.

    A signal that stops a command gives 128 and its number: 130 for Ctrl-C, 143 for SIGTERM, 129 for
    SIGHUP.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            start.loaded()
            with terminate_as_interrupt():
                made = command(*args, **kwargs)
                sys.stdout.flush()  # here, where an output that is full is explained
                return made
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if os.environ.get(DEBUG_VARIABLE):
                raise
            code, message = _explained(error)
            quiet = _said_by_another_rank(error)
        if not quiet:
            print(printable(message), file=sys.stderr)
        raise typer.Exit(code)

    wrapped.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
    return wrapped


def _said_by_another_rank(error: BaseException) -> bool:
    """Tell whether rank 0 of a group of processes says the same."""
    of_all = isinstance(error, KeyboardInterrupt | TrainingDiverged)
    return (of_all and os.environ.get("RANK", "0") != "0") or getattr(error, "quiet", False)


def _explained(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the sentence of an error."""
    if isinstance(error, UserError):
        return 2, str(error)
    if isinstance(error, LostPeers):
        return error.exit_code, str(error)
    if isinstance(error, KeyboardInterrupt):
        return 128 + stop_signal(error), str(error) or "Stopped."
    no_memory = isinstance(error, RuntimeError) and re.search(
        "can't allocate|out of memory", str(error)
    )  # torch has errors of its own for that
    if no_memory or isinstance(error, MemoryError):
        return 1, _NO_MEMORY
    if isinstance(error, BrokenPipeError):
        return 1, "The output was closed before everything was written."
    library = isinstance(error, OSError) and re.search("shared object|failed to map", str(error))
    if library or isinstance(error, ImportError):
        return 1, cannot_load(error)  # it is loaded when it is needed
    if isinstance(error, OSError) and error.errno in _OUTPUT and error.filename is None:
        return 1, f"The output cannot be written: {error.strerror}."
    if isinstance(error, NSCachingError | OSError):
        return 1, str(error)
    what = f"{type(error).__name__}: {error}"
    return 1, f"Something went wrong that should not have: {what}. Add --debug to see where."


def printable(text: str) -> str:
    """Return a text for the terminal: a name that holds control characters shows their escapes."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; an output that is not Unicode gets its escapes."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    print(json.dumps(value, ensure_ascii=not unicode, allow_nan=False))


def say(*parts: str | Table) -> None:
    """Print texts and tables; tables are wide where the output is not a terminal."""
    width = None if sys.stdout.isatty() else 100
    console = Console(width=width, markup=False, emoji=False)
    for part in parts:
        if isinstance(part, str):
            console.print(printable(part), highlight=False, soft_wrap=True)
        else:
            console.print(part)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: Collection[int] = (0,),
) -> Table:
    """Return a table; the columns ``texts`` are text that may wrap, the others are numbers."""
    title = printable(title)
    made = Table(
        title=title,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
        min_width=len(title),
    )
    for index, column in enumerate(columns):
        text = index in texts
        made.add_column(column, justify="left" if text else "right", no_wrap=not text)
    for row in rows:
        made.add_row(*map(printable, row))
    return made
