"""What the commands share: flags, tables, results on stdout, errors on stderr."""

from __future__ import annotations

import dataclasses
import errno
import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Optional, get_args, get_origin, get_type_hints

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from nscaching.cli import start
from nscaching.cli.main import DEBUG_VARIABLE, cannot_load
from nscaching.errors import LostPeers, NSCachingError, TrainingDiverged, UserError, stop_signal
from nscaching.interrupt import terminate_as_interrupt
from nscaching.options import Options

_NO_MEMORY = (
    "There is not enough memory for this; try a smaller dim, or less memory for scores "
    "(--eval-memory of train, --memory of evaluate and discover)."
)
#: What a full disk, or a device that is gone, answers where results are printed.
_OUTPUT = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EFBIG)
#: Characters that make a terminal do something: control characters but the end of a line, what ends
#: a line elsewhere, and what turns the direction of writing.
_CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


# Flags -------------------------------------------------------------------------------------------


#: Groups of options that people look for first; the help of a command has the others after them.
_FIRST_GROUPS = ("Data", "Training", "Model", "Sampler", "NSCaching")


def flag(
    default: Any,
    help: str,
    *names: str,
    shown: str | bool = True,
    group: str | None = None,
    **limits: Any,
) -> Any:
    """Declare an option of a command; ``shown`` is what its help says of the default.

    Options with a ``group`` stand together at the end of the help.
    """
    how = {"show_default": shown, "rich_help_panel": group, **limits}
    return typer.Option(default, *names, help=help, **how)


def argument(default: Any, help: str) -> Any:
    """Declare an argument of a command; a default of ``...`` makes it required."""
    return typer.Argument(default, help=help)


RunPath = Annotated[Path, typer.Argument(help="Run folder.")]
Data = Annotated[
    str | None,
    typer.Argument(
        help="A named data set (nscaching datasets list), a folder with train/valid/test, or a "
        "file of triples."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
_JSON = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", help="Show no progress and no remarks on the data or the options; only errors."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(help="YAML file of options, such as the config.yaml of a run; flags win."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume what is in --out where it stopped.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what is in --out from before.")
]
Format = Annotated[
    str, typer.Option(help="npy, word2vec or parquet; auto goes by the file's ending.")
]
ExportFile = Annotated[Path, typer.Argument(help="File to write: .npy, .txt/.vec or .parquet.")]


def _option_flags(options: type[Options], leave_out: Collection[str]) -> list[inspect.Parameter]:
    """Return a flag for each option, without a value unless it is given."""
    hints = get_type_hints(options)
    flags = []
    for field in sorted(dataclasses.fields(options), key=_place):  # type: ignore[arg-type]
        if field.name in leave_out:
            continue
        hint = hints[field.name]
        kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
        kind = list[kinds[0]] if get_origin(hint) is tuple else kinds[0]  # type: ignore[valid-type]
        name = field.name.replace("_", "-")
        choices = field.metadata["choices"]
        listed = f" One of: {', '.join(choices)}." if choices else ""
        made = typer.Option(
            f"--{name}/--no-{name}" if kinds[0] is bool else f"--{name}",
            help=field.metadata["help"] + listed,
            show_default=False if field.default in (None, ()) else str(field.default),
            autocompletion=_completion(choices) if choices else None,
            rich_help_panel=field.metadata["group"],
        )
        flags.append(_keyword(field.name, None, Annotated[Optional[kind], made]))  # noqa: UP045
    return flags


def _place(field: dataclasses.Field[Any]) -> int:
    """Return where the group of an option stands in the help."""
    group, first = field.metadata["group"], _FIRST_GROUPS
    return first.index(group) if group in first else len(first)


def _is_grouped(parameter: inspect.Parameter) -> bool:
    return getattr(parameter.default, "rich_help_panel", None) is not None


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def _completion(choices: Collection[str]) -> Callable[[str], list[str]]:
    """Return what a shell is told when it completes the value of an option."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def whole_numbers(text: str) -> list[int]:
    """Read the whole numbers of ``--seeds``, with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"seeds: '{text}' is not a list of whole numbers; write --seeds 0,1,2."
        ) from None


# Commands ----------------------------------------------------------------------------------------


Part = str | Table


class Output(NamedTuple):
    """What a command prints: ``value`` with ``--json``, else ``shown``; and its exit code."""

    value: Mapping[str, Any]
    shown: Iterable[Part]
    code: int = 0
    then: Callable[[], object] | None = None  #: what is done once that is printed, such as serving


def command(
    *options: type[Options], leave_out: Collection[str] = ()
) -> Callable[[Callable[..., Output | None]], Callable[..., None]]:
    """Make a function a command: its own flags, those of options, ``--json``; errors as sentences.

    The function takes as keywords the options that were given. Of two options with one name the
    first counts. Errors are one or two sentences on stderr: exit code 2 for a user's mistake, else
    1. A signal that stops a command gives 128 and its number: 130 for Ctrl-C, 143 for SIGTERM, 129
    for SIGHUP.
    """
    flags: dict[str, inspect.Parameter] = {}
    for each in (each for kind in options for each in _option_flags(kind, leave_out)):
        flags.setdefault(each.name, each)

    def decorate(function: Callable[..., Output | None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters = [
            *(each for each in own if not _is_grouped(each)),
            _keyword("as_json", False, _JSON),
            *flags.values(),
            *(each for each in own if _is_grouped(each)),
        ]

        @functools.wraps(function)
        def run(as_json: bool = False, **values: Any) -> None:
            given = {k: v for k, v in values.items() if k not in flags or v is not None}
            try:
                start.loaded()
                with terminate_as_interrupt():
                    output = function(**given)
                    if output is not None:
                        print_json(output.value) if as_json else say(*output.shown)
                    sys.stdout.flush()  # here, where an output that is full is explained
                    if output is not None and output.then is not None:
                        output.then()
                code = 0 if output is None else output.code
            except typer.Exit:
                raise
            except (Exception, KeyboardInterrupt) as error:
                if os.environ.get(DEBUG_VARIABLE):
                    raise
                code, message = _explained(error)
                if not _said_by_another_rank(error):
                    print(printable(message), file=sys.stderr)
            if code:
                raise typer.Exit(code)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


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


# Output ------------------------------------------------------------------------------------------


_TEXT = 20  #: to how many characters a column of texts is narrowed at most


def printable(text: str) -> str:
    """Return a text for the terminal: a name that holds control characters shows their escapes."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object; an output that is not Unicode gets its escapes."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    print(json.dumps(value, ensure_ascii=not unicode, allow_nan=False))


def say(*parts: Part) -> None:
    """Print texts and tables; tables are wide where the output is not a terminal.

    A table is as wide as its numbers need: a line that wraps is better than a number that is cut.
    """
    width = None if sys.stdout.isatty() else 100
    console = Console(width=width, markup=False, emoji=False)
    width = console.width
    for part in parts:
        if isinstance(part, str):
            console.print(printable(part), highlight=False, soft_wrap=True)
        else:
            gaps = 2 * (len(part.columns) - 1)
            console.width = max(width, gaps + sum(each.min_width or 0 for each in part.columns))
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
    cells = [[printable(cell) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        text = index in texts
        lines = [line for row in (columns, *cells) for line in row[index].split("\n")]
        widest = max(map(cell_len, lines))
        made.add_column(
            column,
            justify="left" if text else "right",
            no_wrap=not text,
            min_width=min(widest, _TEXT) if text else widest,
        )
    for row in cells:
        made.add_row(*row)
    return made
