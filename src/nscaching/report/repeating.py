"""What repeats a run: its command, and the versions of what it ran on."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from nscaching.options import Options
from nscaching.report.markup import Html, command, paragraph
from nscaching.runs.doctor import versions


def command_line(
    verb: str,
    given: Mapping[str, Any],
    options: Sequence[type[Options]],
    own: Mapping[str, str] | None = None,
) -> str:
    """Return a command with a flag for each of the options that differs from its default.

    ``own`` are flags of the command itself.
    """
    words = ["nscaching", *verb.split(), *([str(given["data"])] if given.get("data") else [])]
    for name, value in (own or {}).items():
        words += [f"--{name}", value]
    for kind in options:
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            if field.name != "data":
                words += _flag(field.name, given.get(field.name, field.default), field.default)
    return shlex.join(words)


def _flag(name: str, value: Any, default: Any) -> list[str]:
    several = isinstance(value, list | tuple)
    if value is None or (list(value) == list(default or ()) if several else value == default):
        return []
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [word for each in (value if several else [value]) for word in (f"--{flag}", str(each))]


def repeating(*lines: str) -> list[Html]:
    """Return the section about it: commands that do the same, and what they were run with."""
    return [*map(command, lines), versions_line()]


def versions_line() -> Html:
    """Return what is installed, in a sentence."""
    there = {name: version for name, version in versions().items() if version is not None}
    system = there.pop("system")
    listed = ", ".join(f"{name} {version}" for name, version in there.items())
    return paragraph(f"Versions when this page was written: {listed}; {system}.", class_="quiet")
