"""Flags from option dataclasses."""

import inspect
from dataclasses import dataclass

from nscaching.cli.flags import with_option_flags
from nscaching.options import Options, option


@dataclass(kw_only=True)
class Search(Options):
    """Options of a search."""

    trials: int = option(3, "Trials.", group="Search")
    select: str = option("mrr", "Metric of the search.", group="Search", choices=("mrr", "mr"))


@dataclass(kw_only=True)
class Train(Options):
    """Options of a training."""

    select: str = option("mrr", "Metric of the training.", group="Training")
    data: str = option("", "Data.", group="Data")


def test_every_option_is_one_flag_and_the_first_of_a_name_counts():
    def command(out: str = "", **options):
        """Do it."""

    flags = inspect.signature(with_option_flags(Search, Train, leave_out=("data",))(command))
    assert list(flags.parameters) == ["out", "trials", "select"]
    told = flags.parameters["select"].annotation.__metadata__[0]
    assert told.help.startswith("Metric of the search.")
    assert "One of: mrr, mr." in told.help


def test_a_command_gets_only_the_options_that_were_given():
    def command(out: str = "", **options):
        """Do it."""
        seen.append((out, options))

    seen = []
    with_option_flags(Search)(command)(out="there", trials=5, select=None)
    assert seen == [("there", {"trials": 5})]
