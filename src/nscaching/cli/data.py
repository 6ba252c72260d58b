"""``nscaching datasets`` and ``ingest``: the data sets known by name, and graphs on disk."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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

from nscaching.cli.command import Output, Overwrite, Part, Quiet, argument, command, flag, table
from nscaching.errors import shown
from nscaching.graph import (
    KnowledgeGraph,
    dataset_info,
    fetch_dataset,
    find_dataset,
    list_datasets,
    load_graph,
    reading_progress,
)
from nscaching.graph.ingest import ingest

app = typer.Typer(no_args_is_help=True, help="List, describe and fetch the named data sets.")
_COUNTS = ("entities", "relations", "train", "valid", "test")
#: Relations shown by ``info``.
_MOST_RELATIONS = 40


@app.command("list")
@command()
def list_command() -> Output:
    """List the named data sets, and whether each is on this machine."""
    infos = [
        {name: getattr(info, name) for name in ("name", "title", *_COUNTS)}
        | {"here": info.bundled or find_dataset(info.name) is not None}
        for info in list_datasets()
    ]
    rows = (
        (info["name"], *(f"{info[name]:,}" for name in _COUNTS), "yes" if info["here"] else "no")
        for info in infos
    )
    return Output({"datasets": infos}, [table("Named data sets", ("", *_COUNTS, "here"), rows)])


@app.command("info")
@command()
def info_command(data: str = argument(..., "A named data set, a folder or a file.")) -> Output:
    """Describe a graph: its counts, remarks on the data, and each relation."""
    with file_bars() as show, reading_progress(show):
        graph = load_graph(data)
    statistics = graph.statistics
    sizes = np.bincount(graph.train[:, 1], minlength=graph.num_relations).tolist()
    numbers = (sizes, statistics.tails_per_head.tolist(), statistics.heads_per_tail.tolist())
    relations = list(zip(graph.relations, *numbers, statistics.cardinality, strict=True))
    keys = ("relation", "train", "tails_per_head", "heads_per_tail", "cardinality")
    value = {
        "name": graph.name,
        **_sizes(graph),
        "per_relation": [dict(zip(keys, row, strict=True)) for row in relations],
    }
    most = sorted(relations, key=lambda row: -row[1])[:_MOST_RELATIONS]
    rows = (
        (shown(name), f"{train:,}", f"{tails:.2f}", f"{heads:.2f}", kind)
        for name, train, tails, heads, kind in most
    )
    columns = ("", "train", "tails per head", "heads per tail", "class")
    parts: list[Part] = [repr(graph), *graph.notes, table("\nRelations", columns, rows)]
    if len(relations) > _MOST_RELATIONS:
        parts.append(f"... and {len(relations) - _MOST_RELATIONS} more; --json lists all.")
    return Output(value, parts)


@app.command("fetch")
@command()
def fetch_command(
    name: str = argument(..., "A named data set."),
    force: bool = flag(False, "Download it again even if it is here.", "--force"),
) -> Output:
    """Download a data set into the user's cache folder, checked by its SHA-256 sums."""
    info = dataset_info(name)
    path = "bundled"
    if not info.bundled:
        with file_bars() as show:
            path = str(fetch_dataset(info.name, force=force, progress=show))
    where = "comes with the package" if info.bundled else f"is in {path}"
    return Output({"name": info.name, "path": path}, [f"{info.name} {where}."])


@command()
def ingest_command(
    source: list[Path] = argument(
        ...,
        "Files of triples (.tsv, .csv, .txt, .nt, each also .gz, .bz2 or .xz, or .parquet), or "
        "folders of them.",
    ),
    out: Path = flag(..., "Folder to write; train, evaluate and predict read it."),
    valid: list[Path] | None = flag(
        None, "File of validation triples; may be given several times."
    ),
    test: list[Path] | None = flag(None, "File of test triples; may be given several times."),
    split: float = flag(0.0, "Share of the triples held out for valid, and the same for test."),
    seed: int = flag(0, "Decides which triples are held out."),
    memory: str = flag("4GB", "Bound on memory; what does not fit goes to disk beside --out."),
    threads: int | None = flag(None, "Threads of DuckDB.", shown="one per processor", min=1),
    name: str | None = flag(
        None, "Name of the graph in reports.", shown="that of the first source"
    ),
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> Output:
    r"""Turn files of any size into a graph on disk, which opens at once and need not fit memory.

    Needs DuckDB: pip install 'nscaching\[large]'.
    """
    with file_bars() as show:
        graph = ingest(
            source,
            out,
            valid=valid or (),
            test=test or (),
            split=split,
            seed=seed,
            memory=memory,
            threads=threads,
            name=name,
            overwrite=overwrite,
            progress=None if quiet else show,
        )
    notes = [] if quiet else graph.notes
    said = f"Graph: {out}  (nscaching train {shlex.quote(str(out))} --help)"
    return Output({"graph": str(out), **_sizes(graph)}, [repr(graph), *notes, said])


def _sizes(graph: KnowledgeGraph) -> dict[str, int]:
    splits = {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    return {
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        **splits,
        "duplicates": sum(graph.duplicates.values()),
    }


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
