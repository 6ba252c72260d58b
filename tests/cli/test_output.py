"""What reaches a terminal: names with control characters are shown, and do nothing."""

import pytest

from nscaching.cli.output import printable

from ..training.helpers import train
from .helpers import invoke

#: A title for the window, a colour, a C1 control, and a change of direction.
EVIL = "e\x1b]0;owned\x07\x1b[31m\x9b2J\u202eve"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich 🏔 東京", "Zürich 🏔 東京"),
        ("two\nlines", "two\nlines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J\r\x08\x00", "\\x9b2J\\r\\x08\\x00"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("non\xa0breaking and zero\u200dwidth", "non\xa0breaking and zero\u200dwidth"),
    ],
)
def test_controls_are_shown_escaped(text, shown):
    assert printable(text) == shown


def test_no_command_prints_controls_of_a_name(tmp_path):
    triples = [(EVIL, f"r{EVIL}", "b"), ("b", f"r{EVIL}", "c"), ("c", f"r{EVIL}", EVIL)]
    train(triples, out=tmp_path / "R", epochs=1, dim=2, split=0)
    asked = ["--relation", f"r{EVIL}", "--known"]
    run = tmp_path / "R"
    for command in (
        ["predict", run, "--head", "b", *asked],
        ["predict", run, "--head", EVIL, *asked],
        ["predict", run, "--head", f"{EVIL}x", *asked],
        ["predict", run, "--neighbours", "b"],
        ["evaluate", run, "--split", "train"],
        ["datasets", "info", run / EVIL],
        ["check", run],
    ):
        outcome = invoke(*command)
        said = outcome.stdout + outcome.stderr
        assert said
        assert not set(said) & set("\x1b\x9b\x07\r\u202e"), (command, said)
