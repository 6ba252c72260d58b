"""``nscaching datasets``: the data sets known by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from nscaching.cli import flags
from nscaching.cli.flags import argument, flag
from nscaching.cli.output import friendly, print_json, say, table
from nscaching.errors import shown
from nscaching.graph import (
    dataset_info,
    fetch_dataset,
    find_dataset,
    list_datasets,
    load_graph,
    reading_progress,
)

app = typer.Typer(no_args_is_help=True, help="List, describe and fetch the named data sets.")
_COUNTS = ("entities", "relations", "train", "valid", "test")
#: Relations shown by ``info``.
_MOST_RELATIONS = 40


@app.command("list")
@friendly
def list_command(as_json: flags.Json = False) -> None:
    """List the named data sets, and whether each is on this machine."""
    infos = [
        {name: getattr(info, name) for name in ("name", "title", *_COUNTS)}
        | {"here": info.bundled or find_dataset(info.name) is not None}
        for info in list_datasets()
    ]
    if as_json:
        print_json({"datasets": infos})
        return
    rows = (
        (info["name"], *(f"{info[name]:,}" for name in _COUNTS), "yes" if info["here"] else "no")
        for info in infos
    )
    say(table("Named data sets", ("", *_COUNTS, "here"), rows))


@app.command("info")
@friendly
def info_command(
    data: Annotated[str, argument("A named data set, a folder or a file.")],
    as_json: flags.Json = False,
) -> None:
    """Describe a graph: its counts, remarks on the data, and each relation."""
    with file_bars() as show, reading_progress(show):
        graph = load_graph(data)
    statistics = graph.statistics
    sizes = np.bincount(graph.train[:, 1], minlength=graph.num_relations).tolist()
    numbers = (sizes, statistics.tails_per_head.tolist(), statistics.heads_per_tail.tolist())
    relations = list(zip(graph.relations, *numbers, statistics.cardinality, strict=True))
    if as_json:
        keys = ("relation", "train", "tails_per_head", "heads_per_tail", "cardinality")
        print_json(
            {
                "name": graph.name,
                "entities": graph.num_entities,
                "relations": graph.num_relations,
                **{split: len(graph.split(split)) for split in ("train", "valid", "test")},
                "duplicates": sum(graph.duplicates.values()),
                "per_relation": [dict(zip(keys, row, strict=True)) for row in relations],
            }
        )
        return
    most = sorted(relations, key=lambda row: -row[1])[:_MOST_RELATIONS]
    rows = (
        (shown(name), f"{train:,}", f"{tails:.2f}", f"{heads:.2f}", kind)
        for name, train, tails, heads, kind in most
    )
    columns = ("", "train", "tails per head", "heads per tail", "class")
    say(repr(graph), *graph.notes, table("\nRelations", columns, rows))
    if len(relations) > _MOST_RELATIONS:
        say(f"... and {len(relations) - _MOST_RELATIONS} more; --json lists all.")


@app.command("fetch")
@friendly
def fetch_command(
    name: Annotated[str, argument("A named data set.")],
    force: Annotated[bool, flag("Download it again even if it is here.", "--force")] = False,
    as_json: flags.Json = False,
) -> None:
    """Download a data set into the user's cache folder, checked by its SHA-256 sums."""
    info = dataset_info(name)
    path = "bundled"
    if not info.bundled:
        with file_bars() as show:
            path = str(fetch_dataset(info.name, force=force, progress=show))
    where = "comes with the package" if info.bundled else f"is in {path}"
    print_json({"name": info.name, "path": path}) if as_json else say(f"{info.name} {where}.")


@contextmanager
def file_bars() -> Iterator[Callable[[int, int | None, str], None]]:
    """Yield a callback that shows one bar per file on stderr while it is read or downloaded."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bars = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    tasks: dict[str, TaskID] = {}

    def show(done: int, total: int | None, name: str) -> None:
        if not console.is_terminal:
            return
        if name not in tasks:
            bars.start()
            tasks[name] = bars.add_task(name, total=total)
        bars.update(tasks[name], completed=done, total=total)
        if done == total:
            bars.remove_task(tasks.pop(name))
            bars.stop()

    try:
        yield show
    finally:
        if tasks:
            bars.stop()
