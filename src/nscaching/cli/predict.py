"""``nscaching predict`` and ``discover``: questions to a run, and facts that its graph lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from nscaching.cli import flags
from nscaching.cli.flags import flag
from nscaching.cli.output import friendly, print_json, say, table
from nscaching.errors import UserError
from nscaching.models import Side
from nscaching.runs.api import load_run
from nscaching.runs.predictions import Predictions
from nscaching.runs.run import Run
from nscaching.training import Progress

AnswerFile = Annotated[Path | None, flag("Write them to a .csv, .tsv, .parquet or .json file.")]
_MARKS = {None: "new", "train": "fact, seen", "valid": "fact, held out", "test": "fact, held out"}


@friendly
def predict_command(
    run: flags.Run,
    head: Annotated[str | None, flag("Head entity.")] = None,
    relation: Annotated[str | None, flag("Relation.")] = None,
    tail: Annotated[str | None, flag("Tail entity.")] = None,
    file: Annotated[
        Path | None, flag("Instead: a file of questions, head, relation and tail with ? for one.")
    ] = None,
    neighbours: Annotated[
        str | None, flag("Instead: the entities whose embeddings are most like this one's.")
    ] = None,
    k: Annotated[int, flag("Answers per question.", "-k", "--count", min=1)] = 10,
    known: Annotated[
        bool, flag("Show facts of the graph among the answers, marked.", "--known")
    ] = False,
    contradictions: Annotated[
        bool, flag("Show second answers where the relation has one, marked.", "--contradictions")
    ] = False,
    unlikely: Annotated[
        bool, flag("Show answers never seen with the relation and below 1 %, marked.", "--unlikely")
    ] = False,
    by: Annotated[str, flag("What answers are ordered by: probability or score.")] = "probability",
    explain: Annotated[
        bool, flag("Say what speaks for each answer and against it.", "--explain")
    ] = False,
    out: AnswerFile = None,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
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
    options = {"known": known, "contradictions": contradictions, "unlikely": unlikely}
    side = None
    if file is not None:
        answers = loaded.ask(file, k, by=by, **options)
    elif head is not None and relation is not None and tail is not None:
        answers = Predictions([loaded.judge(head, relation, tail)])
    elif head is not None and relation is not None:
        side, answers = "tail", loaded.predict_tails(head, relation, k, by=by, **options)
    elif relation is not None and tail is not None:
        side, answers = "head", loaded.predict_heads(relation, tail, k, by=by, **options)
    else:
        raise UserError(
            "Ask with --head and --relation, or --relation and --tail, or all three, or --file, or "
            "--neighbours."
        )
    if out is not None:
        answers.write(out)
    if explain:
        _explain(loaded, answers, as_json)
    elif as_json:
        print_json({"predictions": answers.as_dicts()})
    else:
        title = str(file) if file is not None else f"{head or '?'} · {relation} · {tail or '?'}"
        if side is None or answers:
            _show(answers, title, side)
        if side is not None:
            _remark(loaded, side, head or tail or "", relation or "", answers)


def _remark(run: Run, side: str, anchor: str, relation: str, answers: Predictions) -> None:
    """Say why a question has no good answers, where it has none."""
    remark = run.remark(Side.TAIL if side == "tail" else Side.HEAD, anchor, relation)
    if all(answer.known for answer in answers):
        say(
            remark or "No new answer is likely.",
            "--contradictions shows answers that contradict the graph, --unlikely those that were "
            "never seen with the relation, --known the facts.",
        )
    elif remark is not None:
        say(remark)


def _explain(run: Run, answers: Predictions, as_json: bool) -> None:
    """Print answers with what speaks for each and against it."""
    reasons = [run.explain(*answer.triple) for answer in answers]
    if as_json:
        listed = answers.as_dicts()
        for row, reason in zip(listed, reasons, strict=True):
            row["explanation"] = reason.as_dict()
            del row["explanation"]["prediction"]
        print_json({"predictions": listed})
        return
    for answer, reason in zip(answers, reasons, strict=True):
        chance = "" if answer.probability is None else f"{answer.probability:.1%}, "
        mark = _MARKS[answer.split]
        say(f"{' · '.join(answer.triple)} ({chance}score {answer.score:.3f}, {mark})")
        say(*(f"  {sentence}" for sentence in reason.sentences()))


def _show(answers: Predictions, title: str, side: str | None = None) -> None:
    """Print predictions as a table: only the answers of one side, or whole triples."""
    with_chance = any(answer.probability is not None for answer in answers)
    columns = ["", *(["probability"] if with_chance else []), "score", ""]
    rows = []
    for answer in answers:
        chance = "" if answer.probability is None else f"{answer.probability:.1%}"
        name = " · ".join(answer.triple) if side is None else getattr(answer, side)
        notes = "; ".join([_MARKS[answer.split], *answer.flags])
        rows.append([name, *([chance] if with_chance else []), f"{answer.score:.3f}", notes])
    say(table(title, columns, rows, texts=(0, len(columns) - 1)))


def _neighbours(run: Run, entity: str, k: int, as_json: bool) -> None:
    found = run.neighbours(entity, k)
    if as_json:
        print_json({"neighbours": [neighbour.as_dict() for neighbour in found]})
    else:
        rows = ((neighbour.entity, f"{neighbour.similarity:.3f}") for neighbour in found)
        say(table(f"Most like {entity}", ("", "cosine"), rows))


@friendly
def discover_command(
    run: flags.Run,
    n: Annotated[int, flag("Facts wanted.", "-n", "--count", min=1)] = 20,
    relation: Annotated[
        list[str] | None, flag("Only facts of this relation; may be given several times.")
    ] = None,
    head: Annotated[
        list[str] | None, flag("Only facts with this head; may be given several times.")
    ] = None,
    tail: Annotated[
        list[str] | None, flag("Only facts with this tail; may be given several times.")
    ] = None,
    per_question: Annotated[
        int, flag("Answers to one question (head, relation, ?) at most.", min=1)
    ] = 3,
    per_answer: Annotated[
        int | None, flag("Facts with the same relation and tail at most.", min=1)
    ] = None,
    per_relation: Annotated[int | None, flag("Facts of one relation at most.", min=1)] = None,
    contradictions: Annotated[
        bool, flag("Keep facts that contradict the graph, marked as such.", "--contradictions")
    ] = False,
    out: AnswerFile = None,
    memory: Annotated[int | None, flag("Megabytes of scores held at once.", min=1)] = None,
    device: flags.Device = "auto",
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
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
        per_relation=per_relation,
        contradictions=contradictions,
        memory_mb=memory,
        progress=Progress("none" if quiet or as_json else "auto"),
    )
    if out is not None:
        found.write(out)
    if as_json:
        print_json({"facts": found.as_dicts()})
    else:
        _show(found, f"{len(found):,} new facts of {loaded.graph.name}")
        if len(found) > 1 and not relation and len({fact.relation for fact in found}) == 1:
            say("All are of one relation; --per-relation 3 shows the best of each.")
