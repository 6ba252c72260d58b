"""Flags made from the fields of an options dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Optional, get_args, get_type_hints

import typer

from nscaching.cli.output import friendly
from nscaching.options import Options


def with_options(command: Callable[..., None], options: type[Options]) -> Callable[..., None]:
    """Give a command that takes ``**options`` one flag for each; ``data`` is its argument."""
    hints = get_type_hints(options)
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    flags = []
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        if field.name == "data":
            continue
        kinds = [
            k for k in (get_args(hints[field.name]) or (hints[field.name],)) if k is not type(None)
        ]
        choices = (
            f" One of: {', '.join(field.metadata['choices'])}." if field.metadata["choices"] else ""
        )
        option = typer.Option(
            f"--{field.name.replace('_', '-')}",
            help=field.metadata["help"] + choices,
            show_default=str(field.default) if field.default is not None else False,
            rich_help_panel=field.metadata["group"],
        )
        flags.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[Optional[kinds[0]], option],  # noqa: UP045
            )
        )
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    flagged = friendly(command)
    flagged.__signature__ = inspect.Signature(keyword_only + flags)  # type: ignore[attr-defined]
    flagged.__annotations__ = {p.name: p.annotation for p in keyword_only + flags}
    return flagged
