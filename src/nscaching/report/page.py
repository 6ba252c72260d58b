"""The shell of every page: one file that needs no network, with its style and script inside.

And what stands on every page: the commands that repeat what it shows, and the versions it ran on.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

from nscaching._version import __version__
from nscaching.artefacts.files import write_text
from nscaching.options import Options
from nscaching.report.markup import Html, asset, command, note, tag, text
from nscaching.runs.doctor import versions

#: Name of the page in the folder of a run, a comparison or a search.
FILE_NAME = "report.html"


@dataclass(frozen=True)
class Section:
    """A part of a page that the list of contents leads to."""

    name: str
    title: str
    content: Sequence[Html]


def render(title: str, lead: str, head: Html, sections: Sequence[Section]) -> str:
    """Return the whole page: ``lead`` is the sentence below the title, ``head`` follows it."""
    now = datetime.now()
    contents = [tag("a", part.title, href=f"#{part.name}") for part in sections]
    body = [tag("section", tag("h2", part.title), *part.content, id=part.name) for part in sections]
    return Template(asset("page.html")).substitute(
        title=text(title),
        lead=text(lead),
        style=asset("style.css"),
        script=asset("script.js"),
        head=head,
        contents="".join(contents),
        body="\n".join(body),
        version=text(__version__),
        written=f"{now.day} {now:%B %Y, %H:%M}",
    )


def write(path: Path, page: str) -> Path:
    """Write a page so that it is whole."""
    write_text(path, page)
    return path


def try_to_write(make: Callable[[], Path], say: Callable[[str], object]) -> Path | None:
    """Write a page, or say why not: what was computed is not lost because its page is."""
    try:
        return make()
    except Exception as error:
        say(f"No report: {error or type(error).__name__}")
        return None


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
    there = {name: version for name, version in versions().items() if version is not None}
    system = there.pop("system")
    listed = ", ".join(f"{name} {version}" for name, version in there.items())
    said = f"Versions when this page was written: {listed}; {system}."
    return [*map(command, lines), note(said)]
