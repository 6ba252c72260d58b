"""``nscaching discover``: the most probable facts that a graph lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from nscaching.cli.output import JsonFlag, QuietFlag, friendly, print_json
from nscaching.cli.predict import show_predictions
from nscaching.runs.api import load_run
from nscaching.training import Progress


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    n: Annotated[int, typer.Option("-n", "--count", help="Facts wanted.", min=1)] = 20,
    relation: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only facts of this relation; may be given several times."),
    ] = None,
    head: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only facts with this head; may be given several times."),
    ] = None,
    tail: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only facts with this tail; may be given several times."),
    ] = None,
    per_question: Annotated[
        int, typer.Option(help="Answers to one question (head, relation, ?) at most.", min=1)
    ] = 3,
    per_answer: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Facts with the same relation and tail at most.", min=1),
    ] = None,
    contradictions: Annotated[
        bool,
        typer.Option(
            "--contradictions", help="Keep facts that contradict the graph, marked as such."
        ),
    ] = False,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the facts to a .csv, .tsv, .parquet or .json file."),
    ] = None,
    memory: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Megabytes of scores held at once.", min=1),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List the most probable new facts of the whole graph, or of some relations or entities."""
    loaded = load_run(run, device)
    found = loaded.discover(
        n,
        relations=relation or None,
        heads=head or None,
        tails=tail or None,
        per_question=per_question,
        per_answer=per_answer,
        contradictions=contradictions,
        memory_mb=memory,
        progress=Progress("none" if quiet or as_json else "auto"),
    )
    if out is not None:
        found.write(out)
    if as_json:
        print_json({"facts": found.as_dicts()})
        return
    show_predictions(found, f"{len(found):,} new facts of {loaded.graph.name}", None)
