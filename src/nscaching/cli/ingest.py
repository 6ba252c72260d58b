"""``nscaching ingest``: files of any size into a graph on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from nscaching.cli import flags
from nscaching.cli.datasets import file_bars
from nscaching.cli.flags import argument, flag
from nscaching.cli.output import friendly, print_json, say
from nscaching.graph.ingest import ingest


@friendly
def ingest_command(
    source: Annotated[
        list[Path],
        argument(
            "Files of triples (.tsv, .csv, .txt, .nt, each also .gz, .bz2 or .xz, or .parquet), or "
            "folders of them."
        ),
    ],
    out: Annotated[Path, flag("Folder to write; train, evaluate and predict read it.")],
    valid: Annotated[
        list[Path] | None, flag("File of validation triples; may be given several times.")
    ] = None,
    test: Annotated[
        list[Path] | None, flag("File of test triples; may be given several times.")
    ] = None,
    split: Annotated[
        float, flag("Share of the triples held out for valid, and the same again for test.")
    ] = 0.0,
    seed: Annotated[int, flag("Decides which triples are held out.")] = 0,
    memory: Annotated[
        str, flag("Bound on the memory it takes; what does not fit goes to disk beside --out.")
    ] = "4GB",
    threads: Annotated[
        int | None, flag("Threads of DuckDB.", default="one per processor", min=1)
    ] = None,
    name: Annotated[
        str | None, flag("Name of the graph in reports.", default="that of the first source")
    ] = None,
    overwrite: flags.Overwrite = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Turn files of any size into a graph on disk, which opens at once and need not fit in memory.

    Needs DuckDB: pip install 'nscaching[large]'.
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
    counts = {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    if as_json:
        sizes = {"entities": graph.num_entities, "relations": graph.num_relations, **counts}
        print_json({"graph": str(out), **sizes, "duplicates": sum(graph.duplicates.values())})
        return
    say(repr(graph), *([] if quiet else graph.notes))
    say(f"Graph: {out}  (nscaching train {out} --help)")
