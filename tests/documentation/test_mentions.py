"""What pages mention in passing exists too: commands with their flags, and files."""

import re
import shlex

import pytest
import typer

from nscaching.cli.main import app

from .snippets import ROOT, pages

_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FILE = re.compile(r"(?:benchmarks|docs|examples|scripts|src|tests)/[\w./-]*[\w/]")
_PLACEHOLDER = re.compile(r"\b(?:NAME|DATASET|NNN)\b")
#: Written by commands that pages describe, not part of the project.
_WRITTEN = {"docs/reproduction.md"}


def mentioned(page):
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return _CODE.findall(text)


def shown(page):
    return str(page.relative_to(ROOT))


def unknown_flags(words):
    """Return the flags of a command line that its command does not have."""
    command = typer.main.get_command(app)
    while hasattr(command, "get_command"):
        if not words or words[0].startswith("-"):
            break
        found = command.get_command(None, words[0])
        assert found is not None, f"no command {words[0]}"
        command, words = found, words[1:]
    known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    flags = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return flags - known - {"--help", "-h", "--install-completion", "--debug"}


@pytest.mark.parametrize("page", pages(), ids=shown)
def test_commands_in_the_text_exist(page):
    for code in mentioned(page):
        if code.startswith("nscaching "):
            words = [word for word in shlex.split(code)[1:] if word != "..."]
            assert not unknown_flags(words), f"{shown(page)}: {code}"


@pytest.mark.parametrize("page", pages(), ids=shown)
def test_files_in_the_text_exist(page):
    for code in mentioned(page):
        for name in _FILE.findall(code):
            whole = re.search(rf"(?:^|\s){re.escape(name)}", code)
            if whole and name not in _WRITTEN and not _PLACEHOLDER.search(name):
                assert (ROOT / name).exists() or "*" in code, f"{shown(page)}: {code}"


def test_a_flag_that_is_not_there_is_found():
    assert unknown_flags(["train", "world", "--epochs", "3", "--no-such"]) == {"--no-such"}
    with pytest.raises(AssertionError, match="no command trian"):
        unknown_flags(["trian", "world"])
