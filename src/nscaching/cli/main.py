"""The command ``nscaching``: one file a command, no logic of its own here."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from nscaching._version import __version__
from nscaching.cli import (
    benchmark,
    classify,
    compare,
    datasets,
    doctor,
    evaluate,
    export,
    nodes,
    predict,
    report,
    reproduce,
    trace,
    train,
    tune,
)
from nscaching.cli.output import DEBUG_VARIABLE

app = typer.Typer(
    name="nscaching",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Knowledge graph embedding with cached hard negatives.\n\n"
    "Try first:  nscaching train world --epochs 20",
)
app.command("train")(train.command)
app.command("compare")(compare.command)
app.command("evaluate")(evaluate.command)
app.command("classify")(classify.command)
app.command("predict")(predict.command)
app.command("report")(report.command)
app.command("trace")(trace.command)
app.command("export")(export.command)
app.command("tune")(tune.command)
app.command("reproduce")(reproduce.command)
app.command("benchmark")(benchmark.command)
app.command("doctor")(doctor.command)
app.add_typer(datasets.app, name="datasets")
app.add_typer(nodes.app, name="nodes")


#: What a person who types the bare name sees: three commands, and where to go on.
WELCOME = """\
nscaching {version}: knowledge graph embedding with cached hard negatives.

Try it on the bundled graph of places, then ask it something:
  nscaching train world --epochs 20 --out runs/world
  nscaching predict runs/world --head Uruguay --relation "neighbour of" --known

Your own graph is a file with head, relation and tail a line, tabs between them:
  nscaching train my-graph.tsv --out runs/mine

nscaching --help lists all commands, nscaching doctor looks at your machine, and
nscaching --install-completion teaches your shell to complete them."""


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(f"nscaching {__version__}" if version else WELCOME.format(version=__version__))


def main() -> None:
    """Run the command line; ``--debug`` and ``--version`` may stand anywhere."""
    if "--debug" in sys.argv:
        sys.argv.remove("--debug")
        os.environ[DEBUG_VARIABLE] = "1"
    if sys.argv[1:2] == ["--version"]:
        print(f"nscaching {__version__}")
        return
    app()
