"""Flags made from options: a command gets one for each field of an option dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, Optional, get_args, get_origin, get_type_hints

import typer

from nscaching.cli.output import friendly
from nscaching.options import Options


def with_option_flags(
    function: Callable[..., None], *options: type[Options], leave_out: Collection[str] = ()
) -> Any:
    """Return a command with the function's own parameters and a flag for each option.

    The function takes the options as keywords; one that was not given is None. Of two options with
    one name the first counts.
    """
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    by_name: dict[str, inspect.Parameter] = {}
    for flag in (flag for kind in options for flag in _flags(kind, leave_out)):
        by_name.setdefault(flag.name, flag)
    flags = list(by_name.values())
    command = friendly(function)
    command.__signature__ = inspect.Signature(own + flags)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in own + flags}
    return command


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
        flag = typer.Option(
            f"--{name}/--no-{name}" if kinds[0] is bool else f"--{name}",
            help=field.metadata["help"] + listed,
            show_default=False if field.default in (None, ()) else str(field.default),
            autocompletion=_completion(choices) if choices else None,
            rich_help_panel=field.metadata["group"],
        )
        flags.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[Optional[kind], flag],  # noqa: UP045
            )
        )
    return flags


def _completion(choices: Collection[str]) -> Callable[[str], list[str]]:
    """Return what a shell is told when it completes the value of an option."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete
