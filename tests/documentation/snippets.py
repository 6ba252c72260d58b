"""The snippets of the documentation: found in Markdown, and run as a reader would run them.

Blocks fenced as ``bash`` or ``python`` are run, in the order of the page and in one folder. A
comment right before a block says, for everyone to see, when it is not run as it stands::

    <!-- snippet: run with
    WN18RR => my-graph.tsv
    --epochs 100 => --epochs 1
    -->
    <!-- snippet: skip because it needs a GPU -->

Each left side must occur in its block, so a comment that no longer fits is an error. A line
``<!-- snippets need: runs/mine -->`` anywhere in a page names files that are there beforehand.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..cli.helpers import invoke

ROOT = Path(__file__).resolve().parents[2]
RUN = ("bash", "python")
#: Languages of blocks that show something and are not run.
SHOWN = ("text", "yaml", "json", "tsv")

_BLOCK = re.compile(
    r"(?P<comment><!-- snippet: (?P<order>(?:(?!-->).)*?)-->\s*)?"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)
_NEEDS = re.compile(r"<!-- snippets need: (.*?) -->")


@dataclass(frozen=True)
class Snippet:
    """One fenced block of a page."""

    place: str  #: page and line
    language: str
    code: str  #: with the replacements that its comment asks for
    skipped: str | None = None  #: why it is not run


class BadSnippet(Exception):
    """A comment or a command that we cannot follow."""


def pages() -> list[Path]:
    """Return every page that may hold snippets."""
    beside = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")]
    return [*beside, *sorted((ROOT / "docs").rglob("*.md"))]


def needs(text: str) -> list[str]:
    """Return the files that a page asks for."""
    return [name for found in _NEEDS.findall(text) for name in found.split()]


def snippets(text: str, page: str) -> Iterator[Snippet]:
    """Find the fenced blocks of a page."""
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        place, order = f"{page}:{line}", (found["order"] or "").strip()
        code = textwrap.dedent(found["code"])
        if order.startswith("skip because "):
            yield Snippet(place, found["language"], code, order.removeprefix("skip because "))
        elif not order:
            yield Snippet(place, found["language"], code)
        else:
            yield Snippet(place, found["language"], _replaced(code, order, place))


def _replaced(code: str, order: str, place: str) -> str:
    first, *lines = order.splitlines()
    if first.strip() != "run with" or not lines:
        raise BadSnippet(f"{place}: '{first}' is neither 'run with' nor 'skip because REASON'.")
    for line in lines:
        old, arrow, new = line.partition(" => ")
        if not arrow or old.strip() not in code:
            raise BadSnippet(f"{place}: '{line}' does not fit its block; write 'OLD => NEW'.")
        code = code.replace(old.strip(), new.strip())
    return code


class Reader:
    """Someone who types what a page says, in the current folder, block after block."""

    def __init__(self) -> None:
        self.names = {"__name__": "__main__"}  # what Python blocks of a page share

    def follow(self, snippet: Snippet) -> None:
        """Run one block; whatever fails there fails here."""
        if snippet.language == "python":
            code = compile(snippet.code, snippet.place, "exec", dont_inherit=True)
            with contextlib.redirect_stdout(sys.stderr):
                exec(code, self.names)
        else:
            for command in commands(snippet.code):
                type_command(command, snippet.place)


def commands(code: str) -> list[str]:
    """Return the commands of a bash block, without continued lines, prompts and comments."""
    joined = re.sub(r"\\\n\s*", " ", code)
    lines = (line.strip().removeprefix("$ ") for line in joined.splitlines())
    return [line for line in lines if shlex.split(line, comments=True)]


def type_command(command: str, place: str) -> None:
    """Run one command; ours in this process, which saves its start."""
    words = shlex.split(command, comments=True)
    run = _PROGRAMS.get(words[0])
    if run is None:
        raise BadSnippet(f"{place}: nobody knows how to run '{words[0]}'; see tests/documentation.")
    run(words, f"{place}: {command}")


def _ours(words: list[str], what: str) -> None:
    outcome = invoke(*words[1:])
    print(outcome.stdout)
    assert outcome.code == 0, f"{what}\n{outcome.stdout}\n{outcome.stderr}"


def _for_real(words: list[str], what: str) -> None:
    program = sys.executable if words[0] == "python" else words[0]
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{what}\n{done.stdout}\n{done.stderr}"


def _make(words: list[str], what: str) -> None:
    """Ask make what it would do: setting up an environment is what CI does before it tests."""
    done = subprocess.run(
        ["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, f"{what}\n{done.stderr}"


def _pip(words: list[str], what: str) -> None:
    """Check that the extras exist; nothing is installed."""
    project = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
    known = re.findall(r"^(\w+) = \[", project.split("[project.scripts]")[0], re.MULTILINE)
    for extras in re.findall(r"\[(.*?)\]", " ".join(words)):
        unknown = set(extras.split(",")) - set(known)
        assert not unknown, f"{what}: pyproject.toml has no extra {unknown}"


def _activate(words: list[str], what: str) -> None:
    """The tests run in an environment of their own; that `make setup` makes .venv is its affair."""
    assert words == ["source", ".venv/bin/activate"], what


_PROGRAMS: dict[str, Callable[[list[str], str], None]] = {
    "nscaching": _ours,
    "python": _for_real,
    "cp": _for_real,
    "head": _for_real,
    "make": _make,
    "pip": _pip,
    "source": _activate,
}
