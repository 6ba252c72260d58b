"""The command ``nscaching``; the module of a command is loaded when the command is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from nscaching._version import __version__

#: Set by ``--debug``: errors show where they come from.
DEBUG_VARIABLE = "NSCACHING_DEBUG"

#: Every command with its line in the list of commands, which loads nothing. The module of a command
#: has it as ``NAME_command``, or as ``app`` where it has commands of its own.
COMMANDS = {
    "train": "Train embeddings of a knowledge graph and keep the best model.",
    "compare": "Train several samplers with the same options and budget, side by side.",
    "evaluate": "Rank the held-out facts of a run: filtered link prediction.",
    "classify": "Classify triples as true or false, by a threshold per relation.",
    "predict": "Ask a run for heads, tails, scores or neighbours.",
    "discover": "List the most probable facts that a graph lacks.",
    "update": "Learn from new facts, and from facts accepted and rejected.",
    "report": "Write an HTML page about a run.",
    "explore": "Explore a run in the browser: entities, questions, a map, review.",
    "trace": "Show what a run did with its negatives, epoch by epoch.",
    "export": "Write the embeddings of a run for other programs.",
    "tune": "Search hyperparameters for the best validation MRR.",
    "reproduce": "Reproduce a table or figure of the paper.",
    "benchmark": "Time training and evaluation on this machine.",
    "check": "Say which files of a run are whole and belong together.",
    "doctor": "Say what this machine has and what would make it faster.",
    "ingest": "Turn files of any size into a graph on disk, in bounded memory.",
    "datasets": "List, describe and fetch the named data sets.",
    "nodes": "Embed the nodes of a graph without relations.",
}
#: Which module has which commands.
_MODULES = {
    "train": ("train", "trace"),
    "experiments": ("compare", "tune", "reproduce"),
    "ask": ("evaluate", "predict", "discover"),
    "classify": ("classify",),
    "runs": ("benchmark", "check", "doctor", "explore", "export", "report", "update"),
    "data": ("datasets", "ingest"),
    "nodes": ("nodes",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
#: Addresses in MB below which torch does not load, and with kernels compiled; crashes were seen.
_TO_LOAD, _TO_TRAIN = 1024, 3072
_TRAINING = ("train", "trace", "compare", "tune", "reproduce", "benchmark", "update", "nodes")
_STYLE: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": "rich"}


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and loads the module of the one that is called."""

    _listing = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; while commands are listed, its name and its sentence."""
        if self._listing or cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        _refuse_limit(_TO_TRAIN if cmd_name in _TRAINING else _TO_LOAD)
        module = _loaded(f"nscaching.cli.{_MODULE_OF[cmd_name]}")
        if (function := getattr(module, f"{cmd_name}_command", None)) is not None:
            group = typer.Typer(add_completion=False, **_STYLE)
            group.command(cmd_name)(function)
        else:
            group = module.app
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the list of commands."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the name of a command."""
        self._listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._listing = False


def _loaded(name: str) -> Any:
    """Import a module; what keeps it from loading is said in a sentence."""
    try:
        return importlib.import_module(name)
    except (ImportError, MemoryError, OSError, RuntimeError, SystemError) as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        print(cannot_load(error), file=sys.stderr)
        raise typer.Exit(1) from error


def _refuse_limit(needed: int) -> None:
    """Refuse a limit on memory, in MB, under which a library would crash or hang halfway."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit >> 20 < needed:
        print(
            f"A process may have {limit >> 20:,} MB of memory here (ulimit -v), and this command "
            f"needs at least {needed:,} MB to start. Raise the limit: ulimit -v unlimited",
            file=sys.stderr,
        )
        raise typer.Exit(1)


def cannot_load(error: BaseException) -> str:
    """Say what to do about a package that cannot be loaded."""
    unsaid = not str(error) or isinstance(error, SystemError)  # a failed allocation, too
    what = "there is not enough memory" if unsaid else str(error).splitlines()[0]
    return (
        f"A package that nscaching needs cannot be loaded: {what.rstrip('.')}. Free some memory "
        "(ulimit -v shows a limit), or install again: pip install nscaching. --debug shows where."
    )


app = typer.Typer(
    name="nscaching",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Knowledge graph embedding with cached hard negatives.\n\n"
    "Try first:  nscaching train world --epochs 20",
    **_STYLE,
)


#: What a person who types the bare name sees: three commands, and where to read on.
WELCOME = """\
nscaching {version}: knowledge graph embedding with cached hard negatives.

Try it on the bundled graph of places, then ask it something:
  nscaching train world --epochs 20 --out runs/world
  nscaching predict runs/world --head Uruguay --relation "neighbour of" --known

Your own graph is a file of head, relation and tail, tabs between them:
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
    try:
        app()
    except SystemExit as end:
        if isinstance(end.code, int) and end.code and "TORCHELASTIC_RUN_ID" in os.environ:
            from nscaching.processes import end_worker

            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end_worker(end.code))  # its peers may be gone: waiting for them would hang
        if isinstance(end.code, int) and end.code > 128 and not os.environ.get(DEBUG_VARIABLE):
            # Stopped by a signal, everything is written. Threads of libraries may still be at work,
            # and what the interpreter does to them at its end can abort the process.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise
    except OSError as error:  # help and the like; commands speak for themselves
        if os.environ.get(DEBUG_VARIABLE):
            raise
        os.write(2, f"The output cannot be written: {error.strerror}.\n".encode())
        os._exit(1)
