"""``nscaching evaluate`` and ``classify``: how good a run is, and which triples are true."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from nscaching.cli import flags
from nscaching.cli.flags import flag
from nscaching.cli.output import friendly, print_json, say, table
from nscaching.errors import UserError
from nscaching.evaluation import ClassificationReport, find_leakage
from nscaching.graph import read_triples
from nscaching.runs.api import load_run
from nscaching.runs.run import Run
from nscaching.training import Progress

_COLUMNS = {"mrr": "MRR", "mr": "MR", "amri": "AMRI"} | {
    f"hits@{k}": f"Hits@{k}" for k in (1, 3, 10)
}


@friendly
def evaluate_command(
    run: flags.Run,
    split: Annotated[str, flag("Split to rank: train, valid or test.")] = "test",
    ties: Annotated[
        str, flag("Rank among equal scores: mean, optimistic or pessimistic.")
    ] = "mean",
    memory: Annotated[
        int | None, flag("Megabytes of scores held at once.", min=1, default="the run's")
    ] = None,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Rank every held-out fact of a run among all entities, filtered, on both sides."""
    loaded = load_run(run, device)
    report = loaded.evaluate(split, ties=ties, memory_mb=memory, progress=Progress("auto"))
    values = report.as_dict()
    leakage = find_leakage(loaded.graph, split) if split != "train" else None
    if as_json:
        print_json({**values, "leakage": None if leakage is None else leakage.as_dict()})
        return
    sides = {"both sides": values, "heads": values["head"], "tails": values["tail"]}
    intervals = ", ".join(
        f"{_COLUMNS[key]} {low:.4f} to {high:.4f}" for key, (low, high) in report.intervals.items()
    )
    say(
        metrics_table(f"{split} of {loaded.graph.name}, {report.seconds:.1f} s", sides),
        f"95 % intervals over facts: {intervals}.",
        *([leakage.remark] if leakage is not None and leakage.remark else []),
        metrics_table("\nBy cardinality", values["per_cardinality"]),
        metrics_table("\nBy relation", values["per_relation"]),
    )


def metrics_table(title: str, rows: dict[str, dict[str, Any]]) -> Table:
    """Return a table with a row for each named set of metrics."""

    def cell(key: str, value: float | None) -> str:
        return "-" if value is None else f"{value:,.1f}" if key == "mr" else f"{value:.4f}"

    cells = (
        (name, *(cell(key, values[key]) for key in _COLUMNS), f"{values['count']:,}")
        for name, values in rows.items()
    )
    return table(title, ("", *_COLUMNS.values(), "ranks"), cells)


@friendly
def classify_command(
    run: flags.Run,
    split: Annotated[
        str | None, flag("Split to classify: test, valid or train.", default="test")
    ] = None,
    file: Annotated[
        Path | None, flag("Instead: a file of triples to label, of any kind that train reads.")
    ] = None,
    seed: Annotated[int, flag("Which negatives are drawn, where the data has none.", min=0)] = 0,
    replaced: Annotated[
        str, flag("Side that drawn negatives replace: tail, head or either.")
    ] = "tail",
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Tell true triples from false ones, by a threshold for each relation learnt on valid."""
    if file is not None and split is not None:
        raise UserError("Give --split or --file, not both.")
    loaded = load_run(run, device)
    if file is not None:
        _label(loaded, file, seed, replaced, as_json)
        return
    report = loaded.classification(split or "test", seed=seed, replaced=replaced)
    print_json(report.as_dict()) if as_json else _show(loaded, report)


def _show(run: Run, report: ClassificationReport) -> None:
    title = f"{report.split} of {run.graph.name}, {report.seconds:.1f} s"
    overall = ("all relations", f"{report.accuracy:.2%}", f"{report.count:,}")
    rows = (
        (
            name,
            f"{part.accuracy:.2%}",
            f"{part.count:,}",
            f"{part.threshold:.3f}{'' if part.own_threshold else '*'}",
        )
        for name, part in report.per_relation.items()
    )
    drawn = f"drawn with seed {report.seed}, {report.replaced} replaced"
    source = drawn if report.negatives == "seeded" else "those of the data set"
    say(
        table(title, ("", "accuracy", "triples"), [overall]),
        table("\nBy relation", ("", "accuracy", "triples", "threshold"), rows),
        f"\n{report.facts:,} facts; the negatives are {source}.",
        *report.notes,
    )


def _label(run: Run, file: Path, seed: int, replaced: str, as_json: bool) -> None:
    """Say of each triple of a file whether it is true."""
    triples = read_triples(file)
    for place, (head, relation, tail) in enumerate(triples, 1):
        try:
            run.graph.entity_id(head), run.graph.relation_id(relation), run.graph.entity_id(tail)
        except UserError as error:
            raise UserError(
                f"Triple {place} of {file} ({head}, {relation}, {tail}): {error}"
            ) from error
    labels, margins = run.classify(triples, seed=seed, replaced=replaced)
    chances = run.probabilities(triples).tolist()
    rows = list(zip(triples, labels.tolist(), margins.tolist(), chances, strict=True))
    if as_json:
        keys = ("head", "relation", "tail", "label", "margin", "probability")
        listed = [dict(zip(keys, (*triple, *rest), strict=True)) for triple, *rest in rows]
        print_json({"triples": listed})
        return
    cells = (
        (" · ".join(triple), "true" if label else "false", f"{margin:+.3f}", f"{chance:.1%}")
        for triple, label, margin, chance in rows
    )
    title = f"{file.name}, {labels.sum():,} of {len(rows):,} true"
    say(table(title, ("", "", "margin", "probability"), cells))
