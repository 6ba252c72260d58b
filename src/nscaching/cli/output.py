"""How the commands speak: results on stdout, everything else on stderr."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from nscaching.cli.main import DEBUG_VARIABLE
from nscaching.errors import NSCachingError, TrainingInterrupted, UserError

P = ParamSpec("P")
R = TypeVar("R")

_NO_MEMORY = "There is not enough memory for this; try a smaller dim or --eval-memory."

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
QuietFlag = Annotated[
    bool,
    typer.Option(
        "--quiet", help="Show no progress and no remarks on the data or the options; only errors."
    ),
]
ConfigFlag = Annotated[
    Optional[Path],  # noqa: UP045 (typer reads this at run time on Python 3.10)
    typer.Option(help="YAML file of options, such as the config.yaml of a run; flags win."),
]


def friendly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors into one or two sentences on stderr: exit code 2 for a user's mistake, else 1."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (NSCachingError, MemoryError, OSError, KeyboardInterrupt) as error:
            if os.environ.get(DEBUG_VARIABLE):
                raise
            code, message = _explained(error)
        except typer.Exit:
            raise
        except Exception as error:
            if os.environ.get(DEBUG_VARIABLE):
                raise
            code, message = _unexpected(error)
        print(printable(message), file=sys.stderr)
        raise typer.Exit(code)

    wrapped.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
    return wrapped


def _explained(error: BaseException) -> tuple[int, str]:
    if isinstance(error, UserError):
        return 2, str(error)
    if isinstance(error, TrainingInterrupted):
        return 130, str(error)
    if isinstance(error, KeyboardInterrupt):
        return 130, "Stopped."
    if isinstance(error, MemoryError):
        return 1, _NO_MEMORY
    if isinstance(error, BrokenPipeError):
        return 1, "The output was closed before everything was written."
    return 1, str(error)


def _unexpected(error: Exception) -> tuple[int, str]:
    if isinstance(error, RuntimeError) and re.search("can't allocate|out of memory", str(error)):
        return 1, _NO_MEMORY  # torch has errors of its own for that
    what = f"{type(error).__name__}: {error}"
    return 1, f"Something went wrong that should not have: {what}. Add --debug to see where."


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; an output that is not Unicode gets its escapes."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    print(json.dumps(value, ensure_ascii=not unicode, allow_nan=False))


#: Characters that make a terminal do something: control characters but the end of a line, what ends
#: a line elsewhere, and what turns the direction of writing.
_CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return a text for the terminal: a name that holds control characters shows their escapes."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class PlainConsole(Console):
    """Prints names as they are, without markup, and control characters in them as escapes."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts and tables."""
        super().print(
            *(printable(each) if isinstance(each, str) else each for each in objects), **options
        )


class PlainTable(Table):
    """A table whose cells hold no control characters."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of texts."""
        super().add_row(
            *(printable(cell) if isinstance(cell, str) else cell for cell in cells), **options
        )


def stdout() -> Console:
    """Return the console for results; wide enough for a table when it is not a terminal."""
    width = None if sys.stdout.isatty() else 100
    return PlainConsole(width=width, markup=False, emoji=False)


def table(title: str, *columns: str) -> Table:
    """Return an empty table; the first column is text, the others are numbers."""
    title = printable(title)
    made = PlainTable(
        title=title,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
        min_width=len(title),
    )
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return made


def whole_numbers(text: str, option: str = "seeds") -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"{option}: '{text}' is not a list of whole numbers; write --{option} 0,1,2."
        ) from None
