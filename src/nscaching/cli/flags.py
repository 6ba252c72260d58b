"""Flags: those that commands share, and those made from the fields of an option dataclass."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Optional, get_args, get_origin, get_type_hints

import typer

from nscaching.cli.output import friendly
from nscaching.errors import UserError
from nscaching.options import Options


def flag(help: str, *names: str, default: str | bool = True, **limits: Any) -> Any:
    """Declare an option of a command; ``default`` is what its help shows for it."""
    return typer.Option(*names, help=help, show_default=default, **limits)


def argument(help: str) -> Any:
    """Declare an argument of a command."""
    return typer.Argument(help=help)


Run = Annotated[Path, argument("Run folder.")]
Data = Annotated[
    str | None,
    argument(
        "A named data set (nscaching datasets list), a folder with train/valid/test, or a "
        "file of triples."
    ),
]
Device = Annotated[str, flag("auto, cpu, cuda or mps.")]
Json = Annotated[bool, flag("Print one JSON object on stdout and nothing else there.", "--json")]
Quiet = Annotated[
    bool,
    flag("Show no progress and no remarks on the data or the options; only errors.", "--quiet"),
]
Config = Annotated[
    Path | None, flag("YAML file of options, such as the config.yaml of a run; flags win.")
]
Resume = Annotated[bool, flag("Resume what is in --out where it stopped.", "--resume")]
Overwrite = Annotated[bool, flag("Replace what is in --out from before.", "--overwrite")]
Format = Annotated[str, flag("npy, word2vec or parquet; auto goes by the file's ending.")]
ExportFile = Annotated[Path, argument("File to write: .npy, .txt/.vec or .parquet.")]


def with_option_flags(
    *options: type[Options], leave_out: Collection[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """Make a function a command with its own parameters and a flag for each option.

    The function takes as keywords the options that were given. Of two options with one name the
    first counts.
    """
    flags: dict[str, inspect.Parameter] = {}
    for flag in (flag for kind in options for flag in _flags(kind, leave_out)):
        flags.setdefault(flag.name, flag)

    def decorate(function: Callable[..., None]) -> Any:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters = [*own, *flags.values()]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            function(**{k: v for k, v in values.items() if k not in flags or v is not None})

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        made = friendly(command)
        made.__annotations__ = {p.name: p.annotation for p in parameters}
        return made

    return decorate


def _flags(options: type[Options], leave_out: Collection[str]) -> list[inspect.Parameter]:
    hints = get_type_hints(options)
    flags = []
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        if field.name in leave_out:
            continue
        hint = hints[field.name]
        kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
        kind = list[kinds[0]] if get_origin(hint) is tuple else kinds[0]  # type: ignore[valid-type]
        name = field.name.replace("_", "-")
        choices = field.metadata["choices"]
        listed = f" One of: {', '.join(choices)}." if choices else ""
        made = flag(
            field.metadata["help"] + listed,
            f"--{name}/--no-{name}" if kinds[0] is bool else f"--{name}",
            default=False if field.default in (None, ()) else str(field.default),
            autocompletion=_completion(choices) if choices else None,
            rich_help_panel=field.metadata["group"],
        )
        annotation: Any = Annotated[Optional[kind], made]  # noqa: UP045
        keyword = inspect.Parameter.KEYWORD_ONLY
        flags.append(inspect.Parameter(field.name, keyword, default=None, annotation=annotation))
    return flags


def _completion(choices: Collection[str]) -> Callable[[str], list[str]]:
    """Return what a shell is told when it completes the value of an option."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def whole_numbers(text: str, option: str = "seeds") -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"{option}: '{text}' is not a list of whole numbers; write --{option} 0,1,2."
        ) from None
