"""What mkdocs cannot do by itself: tables of options from their declarations, and tidy docstrings.

A comment ``<!-- options: nscaching.TrainConfig -->`` in a page becomes one table a group, so that
the site never says another default than the code has.
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
_ROLE = re.compile(r":(?:class|func|meth|mod|attr):(<code>)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put a table of options in place of each comment that asks for one."""
    return _OPTIONS.sub(lambda asked: options_tables(asked[1], asked[2]), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Take the roles of reStructuredText off the names in docstrings."""
    return _ROLE.sub(r"\1", html)


def options_tables(module: str, name: str) -> str:
    """Return the options of a dataclass as Markdown, a heading and a table a group."""
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
