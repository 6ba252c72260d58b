"""``nscaching export``: embeddings for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nscaching.cli.output import JsonFlag, friendly, print_json
from nscaching.runs.api import load_run


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[Path, typer.Argument(help="File to write: .npy, .txt/.vec or .parquet.")],
    what: Annotated[str, typer.Option(help="entity or relation.")] = "entity",
    format: Annotated[
        str, typer.Option(help="npy, word2vec or parquet; auto goes by the file's ending.")
    ] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Write the embeddings of a run with their names."""
    files = [str(path) for path in load_run(run, "cpu").export(to, what, format)]
    if as_json:
        print_json({"files": files})
    else:
        print("Wrote " + " and ".join(files))
