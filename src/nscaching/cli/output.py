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
        print(message, file=sys.stderr)
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
    """Print one JSON object."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def stdout() -> Console:
    """Return the console for results; wide enough for a table when it is not a terminal."""
    width = None if sys.stdout.isatty() else 100
    return Console(width=width, markup=False, emoji=False)  # names are printed as they are


def table(title: str, *columns: str) -> Table:
    """Return an empty table; the first column is text, the others are numbers."""
    made = Table(
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
