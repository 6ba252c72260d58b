"""``nscaching predict``: questions to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.errors import UserError
from nscaching.runs.api import load_run
from nscaching.runs.predictions import Prediction, Predictions
from nscaching.runs.run import Run

_MARKS = {None: "new", "train": "fact, seen", "valid": "fact, held out", "test": "fact, held out"}


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    head: Annotated[Optional[str], typer.Option(help="Head entity.")] = None,  # noqa: UP045
    relation: Annotated[Optional[str], typer.Option(help="Relation.")] = None,  # noqa: UP045
    tail: Annotated[Optional[str], typer.Option(help="Tail entity.")] = None,  # noqa: UP045
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Instead: a file of questions, head, relation and tail with ? for one."),
    ] = None,
    neighbours: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Instead: the entities whose embeddings are most like this one's."),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--count", help="Answers per question.", min=1)] = 10,
    known: Annotated[
        bool, typer.Option("--known", help="Show facts of the graph among the answers, marked.")
    ] = False,
    contradictions: Annotated[
        bool,
        typer.Option(
            "--contradictions", help="Show second answers where the relation has one, marked."
        ),
    ] = False,
    by: Annotated[
        str, typer.Option(help="What answers are ordered by: probability or score.")
    ] = "probability",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what speaks for each answer and against it.")
    ] = False,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the answers to a .csv, .tsv, .parquet or .json file."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Answer (head, relation, ?) or (?, relation, tail), judge a triple, or list neighbours."""
    asked = (head, relation, tail) != (None, None, None)
    if [neighbours is not None, file is not None, asked].count(True) > 1:
        raise UserError(
            "Give --neighbours, or --file, or a question with --head, --relation and --tail."
        )
    loaded = load_run(run, device)
    if neighbours is not None:
        _neighbours(loaded, neighbours, k, as_json)
        return
    if file is not None:
        options = {"known": known, "contradictions": contradictions}
        title, answers = str(file), loaded.ask(file, k, by=by, **options)
    else:
        title = f"{head or '?'} · {relation} · {tail or '?'}"
        answers = _answers(loaded, (head, relation, tail), k, (known, contradictions), by)
    if out is not None:
        answers.write(out)
    reasons = [loaded.explain(*answer.triple) for answer in answers] if explain else []
    if as_json:
        listed = answers.as_dicts()
        for row, reason in zip(listed, reasons, strict=False):
            row["explanation"] = {
                key: value for key, value in reason.as_dict().items() if key != "prediction"
            }
        print_json({"predictions": listed})
        return
    whole = file is not None or (head is not None and tail is not None)
    if reasons:
        for answer, reason in zip(answers, reasons, strict=True):
            stdout().print(_line(answer, _MARKS[answer.split]))
            for sentence in reason.sentences():
                stdout().print(f"  {sentence}")
        return
    show_predictions(answers, title, None if whole else "tail" if tail is None else "head")


def _answers(
    run: Run,
    question: tuple[str | None, str | None, str | None],
    k: int,
    kept: tuple[bool, bool],
    by: str,
) -> Predictions:
    head, relation, tail = question
    if relation is None or (head is None and tail is None):
        raise UserError(
            "Ask with --head and --relation, or --relation and --tail, or all three, or --file, or "
            "--neighbours."
        )
    if head is not None and tail is not None:
        return Predictions([run.judge(head, relation, tail)])
    known, contradictions = kept
    options = {"known": known, "contradictions": contradictions}
    if head is not None:
        return run.predict_tails(head, relation, k, by=by, **options)
    assert tail is not None
    return run.predict_heads(relation, tail, k, by=by, **options)


def show_predictions(answers: Predictions, title: str, side: str | None) -> None:
    """Print predictions as a table: only the answers of one side, or whole triples."""
    with_chance = any(answer.probability is not None for answer in answers)
    columns = [*(["probability"] if with_chance else []), "score", ""]
    made = table(title, "", *columns)
    made.columns[-1].justify = "left"
    made.columns[-1].no_wrap = False
    for answer in answers:
        chance = "" if answer.probability is None else f"{answer.probability:.1%}"
        name = " · ".join(answer.triple) if side is None else getattr(answer, side)
        notes = "; ".join([_MARKS[answer.split], *answer.flags])
        made.add_row(name, *([chance] if with_chance else []), f"{answer.score:.3f}", notes)
    stdout().print(made)
    if side is not None and all(answer.known for answer in answers):
        stdout().print(
            "No new answer that does not contradict the graph; --contradictions shows others."
        )


def _line(answer: Prediction, mark: str) -> str:
    chance = "" if answer.probability is None else f"{answer.probability:.1%}, "
    return f"{' · '.join(answer.triple)} ({chance}score {answer.score:.3f}, {mark})"


def _neighbours(run: Run, entity: str, k: int, as_json: bool) -> None:
    found = run.neighbours(entity, k)
    if as_json:
        print_json({"neighbours": [neighbour.as_dict() for neighbour in found]})
        return
    made = table(f"Most like {entity}", "", "cosine")
    for neighbour in found:
        made.add_row(neighbour.entity, f"{neighbour.similarity:.3f}")
    stdout().print(made)
