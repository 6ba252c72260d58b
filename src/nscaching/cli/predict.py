"""``nscaching predict``: questions to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.errors import UserError
from nscaching.runs.api import load_run
from nscaching.runs.run import Prediction, Run

_MARKS = {None: "new", "train": "fact, seen", "valid": "fact, held out", "test": "fact, held out"}


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    head: Annotated[Optional[str], typer.Option(help="Head entity.")] = None,  # noqa: UP045
    relation: Annotated[Optional[str], typer.Option(help="Relation.")] = None,  # noqa: UP045
    tail: Annotated[Optional[str], typer.Option(help="Tail entity.")] = None,  # noqa: UP045
    neighbours: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Instead: the entities whose embeddings are most like this one's."),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--count", help="Answers to show.", min=1)] = 10,
    known: Annotated[
        bool, typer.Option("--known", help="Show facts of the graph among the answers, marked.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Answer (head, relation, ?) or (?, relation, tail), score a triple, or list neighbours."""
    asked = (head, relation, tail) != (None, None, None)
    if neighbours is not None and asked:
        raise UserError("Give --neighbours, or a question with --head, --relation and --tail.")
    loaded = load_run(run, device)
    if neighbours is not None:
        _neighbours(loaded, neighbours, k, as_json)
        return
    if relation is None or (head is None and tail is None):
        raise UserError(
            "Ask with --head and --relation, or --relation and --tail, or all three, or "
            "--neighbours."
        )
    if head is not None and tail is not None:
        score = float(loaded.score([(head, relation, tail)])[0])
        answers = [Prediction(head, relation, tail, score, loaded.split_of(head, relation, tail))]
    elif head is not None:
        answers = loaded.predict_tails(head, relation, k, known=known)
    else:
        assert tail is not None
        answers = loaded.predict_heads(relation, tail, k, known=known)
    if as_json:
        print_json({"predictions": [answer.as_dict() for answer in answers]})
        return
    made = table(f"{head or '?'} · {relation} · {tail or '?'}", "", "score", "")
    for answer in answers:
        shown = answer.tail if tail is None else answer.head
        made.add_row(shown, f"{answer.score:.3f}", _MARKS[answer.split])
    stdout().print(made)


def _neighbours(run: Run, entity: str, k: int, as_json: bool) -> None:
    found = run.neighbours(entity, k)
    if as_json:
        print_json({"neighbours": [neighbour.as_dict() for neighbour in found]})
        return
    made = table(f"Most like {entity}", "", "cosine")
    for neighbour in found:
        made.add_row(neighbour.entity, f"{neighbour.similarity:.3f}")
    stdout().print(made)
