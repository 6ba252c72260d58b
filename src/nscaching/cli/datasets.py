"""``nscaching datasets``: the data sets known by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

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

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.errors import shown
from nscaching.graph import (
    DatasetInfo,
    dataset_info,
    fetch_dataset,
    find_dataset,
    list_datasets,
    load_graph,
    reading_progress,
)

app = typer.Typer(no_args_is_help=True, help="List, describe and fetch the named data sets.")


@app.command("list")
@friendly
def list_command(as_json: JsonFlag = False) -> None:
    """List the named data sets, and whether each is on this machine."""
    infos = list_datasets()
    if as_json:
        print_json({"datasets": [_described(info) for info in infos]})
        return
    made = table("Named data sets", "", "entities", "relations", "train", "valid", "test", "here")
    for info in infos:
        counts = (info.entities, info.relations, info.train, info.valid, info.test)
        made.add_row(info.name, *(f"{count:,}" for count in counts), "yes" if _here(info) else "no")
    stdout().print(made)


@app.command("info")
@friendly
def info_command(
    data: Annotated[str, typer.Argument(help="A named data set, a folder or a file.")],
    as_json: JsonFlag = False,
) -> None:
    """Describe a graph: its counts, remarks on the data, and each relation."""
    with file_bars() as show, reading_progress(show):
        graph = load_graph(data)
    counts = {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    statistics = graph.statistics
    sizes = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    relations = [
        {
            "relation": name,
            "train": int(sizes[index]),
            "tails_per_head": float(statistics.tails_per_head[index]),
            "heads_per_tail": float(statistics.heads_per_tail[index]),
            "cardinality": statistics.cardinality[index],
        }
        for index, name in enumerate(graph.relations)
    ]
    if as_json:
        print_json(
            {
                "name": graph.name,
                "entities": graph.num_entities,
                "relations": graph.num_relations,
                **counts,
                "duplicates": sum(graph.duplicates.values()),
                "per_relation": relations,
            }
        )
        return
    console = stdout()
    console.print(repr(graph), highlight=False, soft_wrap=True)
    for note in graph.notes:
        console.print(note, highlight=False, soft_wrap=True)
    made = table("\nRelations", "", "train", "tails per head", "heads per tail", "class")
    for row in sorted(relations, key=lambda row: -int(str(row["train"])))[:40]:
        made.add_row(
            shown(row["relation"]),
            f"{row['train']:,}",
            f"{row['tails_per_head']:.2f}",
            f"{row['heads_per_tail']:.2f}",
            str(row["cardinality"]),
        )
    console.print(made)
    if len(relations) > 40:
        console.print(f"... and {len(relations) - 40} more; --json lists all.")


@app.command("fetch")
@friendly
def fetch_command(
    name: Annotated[str, typer.Argument(help="A named data set.")],
    force: Annotated[
        bool, typer.Option("--force", help="Download it again even if it is here.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Download a data set into the user's cache folder, checked by its SHA-256 sums."""
    info = dataset_info(name)
    if info.bundled:
        path = "bundled"
    else:
        with file_bars() as show:
            path = str(fetch_dataset(info.name, force=force, progress=show))
    if as_json:
        print_json({"name": info.name, "path": path})
    else:
        where = "comes with the package" if info.bundled else f"is in {path}"
        print(f"{info.name} {where}.")


def _described(info: DatasetInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "entities": info.entities,
        "relations": info.relations,
        "train": info.train,
        "valid": info.valid,
        "test": info.test,
        "here": _here(info),
    }


def _here(info: DatasetInfo) -> bool:
    return info.bundled or find_dataset(info.name) is not None


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
