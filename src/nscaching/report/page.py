"""The shell of every page: one file that needs no network, with its style and script inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from string import Template

from nscaching._version import __version__
from nscaching.files import write_text
from nscaching.report.markup import Html, tag, text

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
    return Template(_asset("page.html")).substitute(
        title=text(title),
        lead=text(lead),
        style=_asset("style.css"),
        script=_asset("script.js"),
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


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
