"""``nscaching datasets``: the data sets known by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.graph import (
    DatasetInfo,
    dataset_info,
    fetch_dataset,
    find_dataset,
    list_datasets,
    load_graph,
)

app = typer.Typer(no_args_is_help=True, help="List, describe and fetch the named data sets.")


@app.command("list")
@friendly
def list_command(as_json: JsonFlag = False) -> None:
    """List the named data sets and whether they are on this machine."""
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
    """Describe a data set: its counts and, where it is here, each relation."""
    graph = load_graph(data)
    counts = {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    statistics = graph.statistics
    relations = [
        {
            "relation": name,
            "train": int((graph.train[:, 1] == index).sum()),
            "tails_per_head": float(statistics.tails_per_head[index]),
            "heads_per_tail": float(statistics.heads_per_tail[index]),
            "cardinality": statistics.cardinality[index],
        }
        for index, name in enumerate(graph.relations)
    ]
    if as_json:
        sizes = {"entities": graph.num_entities, "relations": graph.num_relations, **counts}
        duplicates = sum(graph.duplicates.values())
        print_json(
            {"name": graph.name, **sizes, "duplicates": duplicates, "per_relation": relations}
        )
        return
    console = stdout()
    console.print(repr(graph), highlight=False, soft_wrap=True)
    for note in graph.notes:
        console.print(note, highlight=False, soft_wrap=True)
    made = table("\nRelations", "", "train", "tails a head", "heads a tail", "class")
    for row in sorted(relations, key=lambda row: -int(str(row["train"])))[:40]:
        made.add_row(
            str(row["relation"]),
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
    force: Annotated[bool, typer.Option("--force", help="Download it again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Download a data set into the user's cache folder, checked by its SHA-256 sums."""
    info = dataset_info(name)
    if info.bundled:
        path = "bundled"
    else:
        with RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=_stderr(),
        ) as bars:
            path = str(fetch_dataset(info.name, force=force, progress=_shown_on(bars)))
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


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _shown_on(bars: RichProgress) -> Any:
    tasks: dict[str, Any] = {}

    def show(done: int, total: int | None, label: str) -> None:
        if label not in tasks:
            tasks[label] = bars.add_task(label, total=total)
        bars.update(tasks[label], completed=done, total=total)

    return show
