"""What commands share: flags from option dataclasses, results for people or as JSON, errors."""

import inspect
from dataclasses import dataclass

import pytest
import typer

from nscaching.cli.command import Output, command, printable, table
from nscaching.options import OptionGroup, Options

from ..training.helpers import train
from .helpers import invoke

#: A title for the window, a colour, a C1 control, and a change of direction.
EVIL = "e\x1b]0;owned\x07\x1b[31m\x9b2J\u202eve"


@dataclass(kw_only=True)
class Search(Options):
    """Options of a search."""

    trials: int = OptionGroup("Search")(3, "Trials.")
    select: str = OptionGroup("Search")("mrr", "Metric of the search.", choices=("mrr", "mr"))


@dataclass(kw_only=True)
class Train(Options):
    """Options of a training."""

    select: str = OptionGroup("Training")("mrr", "Metric of the training.")
    data: str = OptionGroup("Data")("", "Data.")


def test_every_option_is_one_flag_and_the_first_of_a_name_counts():
    def work(out: str = "", **options):
        """Do it."""

    flags = inspect.signature(command(Search, Train, leave_out=("data",))(work))
    assert list(flags.parameters) == ["out", "as_json", "trials", "select"]
    told = flags.parameters["select"].annotation.__metadata__[0]
    assert told.help.startswith("Metric of the search.")
    assert "One of: mrr, mr." in told.help


def test_a_command_gets_only_the_options_that_were_given():
    def work(out: str = "", **options):
        """Do it."""
        seen.append((out, options))

    seen = []
    command(Search)(work)(out="there", trials=5, select=None)
    assert seen == [("there", {"trials": 5})]


def test_an_output_is_one_object_or_what_a_person_reads(capsys):
    @command()
    def work():
        """Do it."""
        return Output({"a": 1}, ["one", "two"], code=3)

    for as_json, printed in ((True, '{"a": 1}\n'), (False, "one\ntwo\n")):
        with pytest.raises(typer.Exit) as end:
            work(as_json=as_json)
        assert end.value.exit_code == 3
        assert capsys.readouterr().out == printed


def test_a_table_of_many_numbers_loses_none_and_narrows_texts_instead(capsys):
    names = [f"a_rather_long_option_{i}" for i in range(9)]
    numbers = [f"0.{i}12345678" for i in range(9)]

    @command()
    def work():
        """Do it."""
        rows = [("word " * 40, *numbers)]
        return Output(
            {}, [table("Many", ("", *names), rows), table("Few", ("", "n"), [("a", "1")])]
        )

    work()
    printed = capsys.readouterr().out.splitlines()
    assert set(names + numbers) <= set(" ".join(printed).split())
    assert max(map(len, printed)) == 20 + sum(2 + len(name) for name in names)
    assert printed[-1] == "a  1"


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
    for words in (
        ["predict", run, "--head", "b", *asked],
        ["predict", run, "--head", EVIL, *asked],
        ["predict", run, "--head", f"{EVIL}x", *asked],
        ["predict", run, "--neighbours", "b"],
        ["evaluate", run, "--split", "train"],
        ["datasets", "info", run / EVIL],
        ["check", run],
    ):
        outcome = invoke(*words)
        said = outcome.stdout + outcome.stderr
        assert said
        assert not set(said) & set("\x1b\x9b\x07\r\u202e"), (words, said)
