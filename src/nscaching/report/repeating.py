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
    verb: str, given: Mapping[str, Any], options: type[Options], leave_out: tuple[str, ...] = ()
) -> str:
    """Return a command with a flag for each option that differs from its default."""
    words = ["nscaching", *verb.split()]
    if given.get("data"):
        words.append(str(given["data"]))
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        value = given.get(field.name, field.default)
        same = value == field.default or (field.default == () and not value)
        if field.name in ("data", *leave_out) or value is None or same:
            continue
        flag = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [f"--{flag}", str(each)]
    return shlex.join(words)


def repeating(line: str, note: object) -> list[Html]:
    """Return the section about it."""
    there = {name: version for name, version in versions().items() if version is not None}
    system = there.pop("system")
    listed = ", ".join(f"{name} {version}" for name, version in there.items())
    return [
        command(line),
        paragraph(note),
        paragraph(f"Versions when this page was written: {listed}; {system}.", class_="quiet"),
    ]
