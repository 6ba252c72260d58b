"""What repeats a run: its command, and the versions of what it ran on."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from nscaching.doctor import versions
from nscaching.options import Options
from nscaching.report.markup import Html, command, paragraph


def command_line(
    verb: str,
    given: Mapping[str, Any],
    options: type[Options],
    own: Mapping[str, str] | None = None,
) -> str:
    """Return a command with a flag for each option that differs from its default.

    ``own`` are flags of the command itself.
    """
    words = ["nscaching", verb, *([str(given["data"])] if given.get("data") else [])]
    for name, value in (own or {}).items():
        words += [f"--{name}", value]
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        value = given.get(field.name, field.default)
        same = value == field.default or (field.default == () and not value)
        if field.name == "data" or value is None or same:
            continue
        flag = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [f"--{flag}", str(each)]
    return shlex.join(words)


def repeating(*lines: str) -> list[Html]:
    """Return the section about it: commands that do the same, and what they were run with."""
    return [*map(command, lines), versions_line()]


def versions_line() -> Html:
    """Return what is installed, in a sentence."""
    there = {name: version for name, version in versions().items() if version is not None}
    system = there.pop("system")
    listed = ", ".join(f"{name} {version}" for name, version in there.items())
    return paragraph(f"Versions when this page was written: {listed}; {system}.", class_="quiet")
