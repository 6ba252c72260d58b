"""``nscaching evaluate``, ``predict`` and ``discover``: questions to a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from nscaching.artefacts.outputs import check_table
from nscaching.cli.command import Device, Output, Part, Quiet, RunPath, command, flag, table
from nscaching.errors import UserError, plural
from nscaching.evaluation import find_leakage
from nscaching.evaluation.metrics import few_facts_remark
from nscaching.models import Side
from nscaching.runs.api import load_run
from nscaching.runs.predictions import Prediction, Predictions, percent
from nscaching.runs.run import Run
from nscaching.training import Progress

if TYPE_CHECKING:
    from nscaching.runs.explain import Explanation

AnswerFile = Annotated[
    Path | None, typer.Option(help="Write the answers to a .csv, .tsv, .parquet or .json file.")
]
_COLUMNS = {"mrr": "MRR", "mr": "MR", "amri": "AMRI"} | {
    f"hits@{k}": f"Hits@{k}" for k in (1, 3, 10)
}
#: Entities from which on a fit of probabilities is announced.
_MANY_ENTITIES = 100_000
#: What predict shows only when asked to, by option.
_LEFT_OUT = {
    "contradictions": "answers that contradict the graph",
    "unlikely": "answers never seen with the relation",
    "known": "the facts",
}
_MARKS = {None: "new", "train": "fact, seen", "valid": "fact, held out", "test": "fact, held out"}


# Evaluation --------------------------------------------------------------------------------------


@command()
def evaluate_command(
    run: RunPath,
    split: str = flag("test", "Split to rank: train, valid or test."),
    ties: str = flag("mean", "Rank among equal scores: mean, optimistic or pessimistic."),
    memory: int | None = flag(None, "Megabytes of scores held at once.", min=1, shown="the run's"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> Output:
    """Rank every held-out fact of a run among all entities, filtered, on both sides."""
    loaded = load_run(run, device)
    progress = Progress("none" if quiet else "auto")
    report = loaded.evaluate(split, ties=ties, memory_mb=memory, progress=progress)
    caution(loaded, progress)
    values = report.as_dict()
    leakage = find_leakage(loaded.graph, split) if split != "train" else None
    sides = {"both sides": values, "heads": values["head"], "tails": values["tail"]}
    intervals = ", ".join(
        f"{_COLUMNS[key]} {low:.4f} to {high:.4f}" for key, (low, high) in report.intervals.items()
    )
    remarks = (
        few_facts_remark(report.ranks.shape[1], split),
        report.loop_remark,
        leakage.remark if leakage is not None else None,
    )
    shown: Iterable[Part] = (
        metrics_table(f"{split} of {loaded.graph.name}, {report.seconds:.1f} s", sides),
        f"95 % intervals over facts: {intervals}.",
        *filter(None, remarks),
        metrics_table("\nBy cardinality", values["per_cardinality"]),
        metrics_table("\nBy relation", values["per_relation"]),
    )
    return Output({**values, "leakage": None if leakage is None else leakage.as_dict()}, shown)


def metrics_table(title: str, rows: dict[str, dict[str, Any]]) -> Table:
    """Return a table with a row for each named set of metrics."""

    def cell(key: str, value: float | None) -> str:
        return "-" if value is None else f"{value:,.1f}" if key == "mr" else f"{value:.4f}"

    cells = (
        (name, *(cell(key, values[key]) for key in _COLUMNS), f"{values['count']:,}")
        for name, values in rows.items()
    )
    return table(title, ("", *_COLUMNS.values(), "ranks"), cells)


def caution(run: Run, progress: Progress, probabilities: bool = False) -> None:
    """Remark on a run that is not finished, and on probabilities that rest on few facts."""
    calibration = run.calibration if probabilities else None
    for remark in (run.unfinished, calibration and calibration.remark):
        if remark:
            progress.say(remark)


# Questions ---------------------------------------------------------------------------------------


@command()
def predict_command(
    run: RunPath,
    head: str | None = flag(None, "Head entity."),
    relation: str | None = flag(None, "Relation."),
    tail: str | None = flag(None, "Tail entity."),
    file: Path | None = flag(
        None, "Instead: a file of questions, head, relation and tail with ? for one."
    ),
    neighbours: str | None = flag(
        None, "Instead: the entities whose embeddings are most like this one's."
    ),
    k: int = flag(10, "Answers per question.", "-k", "--count", min=1),
    known: bool = flag(False, "Show facts of the graph among the answers, marked.", "--known"),
    contradictions: bool = flag(
        False, "Show answers that contradict a fact of the graph, marked.", "--contradictions"
    ),
    unlikely: bool = flag(
        False, "Show answers never seen with the relation and below 1 %, marked.", "--unlikely"
    ),
    by: str = flag("probability", "What answers are ordered by: probability or score."),
    explain: bool = flag(False, "List the evidence for and against each answer.", "--explain"),
    out: AnswerFile = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> Output:
    """Answer (head, relation, ?) or (?, relation, tail), judge a triple, or list neighbours."""
    asked = (head, relation, tail) != (None, None, None)
    if [neighbours is not None, file is not None, asked].count(True) > 1:
        raise UserError(
            "Give --neighbours, or --file, or a question with --head, --relation and --tail."
        )
    options = {"contradictions": contradictions, "unlikely": unlikely, "known": known}
    progress = Progress("none" if quiet else "auto")
    if neighbours is not None:
        asked_for = {**options, "explain": explain, "out": out is not None}
        if given := [f"--{name}" for name, value in asked_for.items() if value]:
            raise UserError(f"--neighbours asks no question; drop {', '.join(given)}.")
        return _neighbours(load_run(run, device), neighbours, k, progress)
    if out is not None:
        check_table(out)
    loaded = load_run(run, device)
    _announce_fit(loaded, progress)
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
    # With the flags of the side that was asked for.
    reasons = [replace(loaded.explain(*a.triple), prediction=a) for a in answers if explain]
    if out is not None:
        answers.write(out, [reason.evidence for reason in reasons] if explain else None)
        if left := answers.unanswered:
            progress.say(f"{out.name} lacks {plural(len(left), 'question')} without an answer.")
    caution(loaded, progress, probabilities=bool(answers))
    value: dict[str, Any] = {"predictions": answers.as_dicts()}
    shown: list[Part] = []
    if reasons:
        value, shown = {"predictions": [_plain(reason) for reason in reasons]}, _explained(reasons)
    elif side is None or answers:
        title = str(file) if file is not None else f"{head or '?'} · {relation} · {tail or '?'}"
        shown = [_answers_table(answers, title, side)]
    shown += [] if quiet else _basis(loaded, answers)
    asked_by = options if by == "probability" else {"known": known}  # scores leave nothing out
    if file is not None:
        keys = ("head", "relation", "tail")
        value["unanswered"] = [dict(zip(keys, q, strict=True)) for q in answers.unanswered]
        shown += _unanswered(answers, asked_by)
    if side is not None:
        remark = loaded.remark(Side[side.upper()], head or tail or "", relation or "")
        shown += _remarks(remark, answers, k, asked_by)
    return Output(value, shown)


def _announce_fit(run: Run, progress: Progress) -> None:
    """Say why the first question to a run on a large graph takes long."""
    if run.fits_when_asked and run.graph.num_entities >= _MANY_ENTITIES:
        kept = "; they are kept in the run" if run.folder is not None else ""
        progress.say(f"Fitting probabilities on the valid facts, once{kept}.")


def _remarks(remark: str | None, answers: Predictions, k: int, asked: dict[str, bool]) -> list[str]:
    """Say why a question has no new answers, where it has none.

    ``remark`` is the run's on the question, ``asked`` says which answers were asked for too.
    """
    if any(not answer.known for answer in answers):
        return [] if remark is None else [remark]
    if len(answers) == k:
        first = "answer is a fact" if k == 1 else f"{k:,} answers are all facts"
        return [remark or f"The first {first}; a larger -k shows what follows."]
    return [remark or "No new answer is likely.", *_left_out(asked)]


def _left_out(asked: dict[str, bool]) -> list[str]:
    """Say which options show what was left out."""
    left = [f"--{name} shows {_LEFT_OUT[name]}" for name, given in asked.items() if not given]
    return [f"{', '.join(left)}."] if left else []


def _unanswered(answers: Predictions, asked: dict[str, bool]) -> list[str]:
    """Return a line for each question of a file that has no answer, and what would show some."""
    left = answers.unanswered
    lines = [" · ".join("?" if part is None else str(part) for part in each) for each in left]
    told = [f"{line}: no new answer is likely" for line in lines]
    return told + _left_out(asked) if told else []


_NO_PROBABILITIES = (
    "There are no probabilities, because no facts were held out for valid. A score orders the "
    "answers of one question; between questions it says little."
)


def _basis(run: Run, answers: Predictions) -> list[str]:
    """Say what the probabilities of answers assume, and which rest on few facts."""
    if not answers:
        return []
    if run.calibration is None:
        return [_NO_PROBABILITIES]
    few = None if run.calibration.remark else run.few_facts(each.relation for each in answers)
    return [remark for remark in (run.assumption, few) if remark is not None]


def _plain(reason: Explanation) -> dict[str, Any]:
    """Return an answer and its explanation as plain values."""
    explained = reason.as_dict()
    return {**explained.pop("prediction"), "explanation": explained}


def _explained(reasons: Iterable[Explanation]) -> list[Part]:
    """Return answers with what speaks for each and against it."""
    shown: list[Part] = []
    for reason in reasons:
        answer = reason.prediction
        chance = "" if answer.probability is None else f"{percent(answer.probability)}, "
        mark = _MARKS[answer.split]
        shown.append(f"{' · '.join(answer.triple)} ({chance}score {answer.score:.3f}, {mark})")
        shown += [f"  {sentence}" for sentence in reason.sentences()]
    return shown


def notes_on(answer: Prediction) -> str:
    """Return what a table says of a triple: whether it is new, and its flags."""
    return "; ".join([_MARKS[answer.split], *answer.flags])


def _answers_table(answers: Predictions, title: str, side: str | None = None) -> Table:
    """Return predictions as a table: only the answers of one side, or whole triples."""
    with_chance = any(answer.probability is not None for answer in answers)
    columns = ["", *(["probability"] if with_chance else []), "score", ""]
    rows = []
    for answer in answers:
        chance = "" if answer.probability is None else percent(answer.probability)
        name = " · ".join(answer.triple) if side is None else getattr(answer, side)
        rows.append(
            [name, *([chance] if with_chance else []), f"{answer.score:.3f}", notes_on(answer)]
        )
    return table(title, columns, rows, texts=(0, len(columns) - 1))


def _neighbours(run: Run, entity: str, k: int, progress: Progress) -> Output:
    found = run.neighbours(entity, k)
    caution(run, progress)
    rows = ((neighbour.entity, f"{neighbour.similarity:.3f}") for neighbour in found)
    value = {"neighbours": [neighbour.as_dict() for neighbour in found]}
    return Output(value, [table(f"Most like {entity}", ("", "cosine"), rows)])


@command()
def discover_command(
    run: RunPath,
    n: int = flag(20, "Number of facts.", "-n", "--count", min=1),
    relation: list[str] | None = flag(
        None, "Only facts of this relation; may be given several times."
    ),
    head: list[str] | None = flag(None, "Only facts with this head; may be given several times."),
    tail: list[str] | None = flag(None, "Only facts with this tail; may be given several times."),
    per_question: int = flag(3, "Most answers per question (head, relation, ?).", min=1),
    per_answer: int | None = flag(None, "Most facts with the same relation and tail.", min=1),
    per_relation: int | None = flag(None, "Most facts per relation.", min=1),
    contradictions: bool = flag(
        False, "Keep facts that contradict the graph, marked as such.", "--contradictions"
    ),
    unlikely: bool = flag(
        False, "Keep facts whose tail was never seen with the relation, below 1 %.", "--unlikely"
    ),
    out: AnswerFile = None,
    memory: int | None = flag(None, "Megabytes of scores held at once.", min=1),
    device: Device = "auto",
    quiet: Quiet = False,
) -> Output:
    """List the most probable new facts of the whole graph, or of some relations or entities."""
    if out is not None:
        check_table(out)
    loaded, progress = load_run(run, device), Progress("none" if quiet else "auto")
    _announce_fit(loaded, progress)
    found = loaded.discover(
        n,
        relations=relation or None,
        heads=head or None,
        tails=tail or None,
        per_question=per_question,
        per_answer=per_answer,
        per_relation=per_relation,
        contradictions=contradictions,
        unlikely=unlikely,
        memory_mb=memory,
        progress=progress,
    )
    if out is not None:
        found.write(out)
    caution(loaded, progress, probabilities=bool(found))
    if not found:
        asked = {"contradictions": contradictions, "unlikely": unlikely}
        return Output({"facts": []}, ["No new fact was found.", *_left_out(asked)])
    title = f"{plural(len(found), 'new fact')} of {loaded.graph.name}"
    shown: list[Part] = [_answers_table(found, title)]
    of_all = not relation and per_relation is None and loaded.graph.num_relations > 1
    if of_all and len(found) > 1 and len({fact.relation for fact in found}) == 1:
        shown.append("All are of one relation; --per-relation 3 shows the best of each.")
    shown += [] if quiet else _basis(loaded, found)
    return Output({"facts": found.as_dicts()}, shown)
