"""``nscaching update``: a run that learns from new facts and from decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from nscaching.cli.output import JsonFlag, QuietFlag, friendly, print_json, stdout
from nscaching.runs.api import load_run
from nscaching.training import Progress


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder; it stays as it is.")],
    facts: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File of new triples; entities and relations in it may be new."),
    ] = None,
    accept: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File of discovered triples that are true."),
    ] = None,
    reject: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File of discovered triples that are false: never offered again."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the new run.", show_default="RUN-updated"),
    ] = None,
    epochs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Epochs of training.", show_default="a fifth of the run's", min=1),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run that is in the folder.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a new run that has learnt new facts, accepted ones and rejected ones."""
    loaded = load_run(run, device)
    folder = out or run.resolve().with_name(f"{run.resolve().name}-updated")
    updated = loaded.update(
        facts,
        accept=accept,
        reject=reject,
        out=folder,
        epochs=epochs,
        overwrite=overwrite,
        progress=Progress("none" if quiet or as_json else "auto"),
    )
    if as_json:
        print_json({**updated.summary, "rejected": len(updated.rejected)})
        return
    new = updated.graph.num_entities - loaded.graph.num_entities
    stdout().print(
        f"{folder}: {len(updated.graph.train) - len(loaded.graph.train):+,} training triples, "
        f"{new:+,} entities, {len(updated.rejected):,} rejected facts."
    )
