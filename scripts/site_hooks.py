"""What mkdocs cannot do by itself: options and commands from the code, and tidy docstrings.

A comment ``<!-- options: nscaching.TrainConfig -->`` in a page becomes one table per group, and
``<!-- commands -->`` one section per command, so that the site never says anything else than the
code.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from itertools import groupby
from typing import Any

#: Groups that a reader looks for first; the others follow.
_ORDER = ("Data", "Model", "Sampler", "NSCaching", "Training")

_OPTIONS = re.compile(r"<!-- options: ([\w.]+)\.(\w+) -->")
_COMMANDS = "<!-- commands -->"
_ROLE = re.compile(r":(?:class|func|meth|mod|attr):(<code>)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put options and commands in place of the comments that ask for them."""
    if _COMMANDS in markdown:
        markdown = markdown.replace(_COMMANDS, command_reference())
    return _OPTIONS.sub(lambda asked: options_tables(asked[1], asked[2]), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Take the roles of reStructuredText off the names in docstrings."""
    return _ROLE.sub(r"\1", html)


def options_tables(module: str, name: str) -> str:
    """Return the options of a dataclass as Markdown, a heading and a table per group."""
    fields = dataclasses.fields(getattr(importlib.import_module(module), name))
    by_group = sorted(fields, key=_place)
    parts = []
    for group, members in groupby(by_group, key=lambda field: field.metadata["group"]):
        rows = [_row(field) for field in members]
        parts.append(
            "\n".join([f"### {group}", "", "| option | default | |", "| --- | --- | --- |", *rows])
        )
    return "\n\n".join(parts)


def _place(field: dataclasses.Field[Any]) -> tuple[int, str]:
    group = field.metadata["group"]
    return (_ORDER.index(group) if group in _ORDER else len(_ORDER), group)


def _row(field: dataclasses.Field[Any]) -> str:
    default = "" if field.default in (None, "", ()) else f"`{field.default}`"
    choices = ", ".join(f"`{choice}`" for choice in field.metadata["choices"])
    help = field.metadata["help"].replace("|", "\\|")
    return f"| `{field.name}` | {default} | {help}{f' One of {choices}.' if choices else ''} |"


def command_reference() -> str:
    """Return every command as Markdown: its sentence, its usage, a table of its options."""
    from typer.main import get_command

    from nscaching.cli.main import COMMANDS, app

    root = get_command(app)
    context = root.make_context("nscaching", [], resilient_parsing=True)
    parts = []
    for name, line in COMMANDS.items():
        command = root.get_command(context, name)
        nested = getattr(command, "commands", None)
        if not nested:
            parts.append(_command(f"nscaching {name}", command, context, 2))
            continue
        parts.append(f"## nscaching {name}\n\n{line}")
        parts += [
            _command(f"nscaching {name} {key}", each, context, 3) for key, each in nested.items()
        ]
    return "\n\n".join(parts)


def _command(path: str, command: Any, context: Any, level: int) -> str:
    """Return a heading, what the command does, how it is called, and a row per parameter."""
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    words = [
        each.name.upper() if each.required else f"[{each.name.upper()}]"
        for each in shown
        if each.param_type_name == "argument"
    ]
    rows = [each.get_help_record(context) or (each.name, each.help) for each in shown]
    return "\n".join(
        [
            f"{'#' * level} {path}",
            "",
            _plain(command.help),
            "",
            "```text",
            " ".join([path, *words, "[OPTIONS]"]),
            "```",
            "",
            "| | |",
            "| --- | --- |",
            *(f"| `{_plain(flags)}` | {_plain(help)} |" for flags, help in rows),
        ]
    )


def _plain(text: str | None) -> str:
    """Return one line without the markup of the terminal, safe in a cell of a table."""
    plain = re.sub(r"\[/?(?:bold|dim|italic|cyan)\]", "", text or "")
    return " ".join(plain.split()).replace("|", "\\|")
