"""Flags made from the fields of :class:`TrainConfig`, for every command that trains."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, Optional, get_args, get_type_hints

import typer

from nscaching.cli.output import friendly
from nscaching.training import TrainConfig


def with_config_options(
    command: Callable[..., None], leave_out: Collection[str] = ("data",)
) -> Callable[..., None]:
    """Give a command one flag for each option of :class:`TrainConfig`, but for those left out.

    The command takes them as ``**options``; a flag that is not given is None.
    """
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    hints = get_type_hints(TrainConfig)
    flags = [
        _flag(field, hints[field.name])
        for field in dataclasses.fields(TrainConfig)
        if field.name not in leave_out
    ]
    made = friendly(command)
    made.__signature__ = inspect.Signature(own + flags)  # type: ignore[attr-defined]
    made.__annotations__ = {p.name: p.annotation for p in own + flags}
    return made


def _flag(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    choices = field.metadata["choices"]
    option = typer.Option(
        f"--{field.name.replace('_', '-')}",
        help=field.metadata["help"] + (f" One of: {', '.join(choices)}." if choices else ""),
        show_default=str(field.default) if field.default is not None else False,
        rich_help_panel=field.metadata["group"],
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Optional[kinds[0]], option],  # noqa: UP045
    )
