"""``nscaching evaluate``: filtered link prediction of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.table import Table

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.evaluation import find_leakage
from nscaching.runs.api import load_run
from nscaching.training import Progress

_COLUMNS = {"mrr": "MRR", "mr": "MR", "amri": "AMRI"} | {
    f"hits@{k}": f"Hits@{k}" for k in (1, 3, 10)
}


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    split: Annotated[str, typer.Option(help="Split to rank: train, valid or test.")] = "test",
    ties: Annotated[
        str, typer.Option(help="Rank among equal scores: mean, optimistic or pessimistic.")
    ] = "mean",
    memory: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Megabytes of scores held at once.", min=1, show_default="the run's"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Rank every held-out fact of a run among all entities, filtered, on both sides."""
    loaded = load_run(run, device)
    report = loaded.evaluate(split, ties=ties, memory_mb=memory, progress=Progress("auto"))
    values = report.as_dict()
    leakage = find_leakage(loaded.graph, split) if split != "train" else None
    if as_json:
        print_json({**values, "leakage": None if leakage is None else leakage.as_dict()})
        return
    console = stdout()
    sides = {"both sides": values, "heads": values["head"], "tails": values["tail"]}
    console.print(metrics_table(f"{split} of {loaded.graph.name}, {report.seconds:.1f} s", sides))
    console.print(_intervals(report.intervals), highlight=False, soft_wrap=True)
    if leakage is not None and leakage.remark:
        console.print(leakage.remark, highlight=False, soft_wrap=True)
    console.print(metrics_table("\nBy cardinality", values["per_cardinality"]))
    console.print(metrics_table("\nBy relation", values["per_relation"]))


def metrics_table(title: str, rows: dict[str, dict[str, Any]]) -> Table:
    """Return a table with a row for each named set of metrics."""
    made = table(title, "", *_COLUMNS.values(), "ranks")
    for name, values in rows.items():
        cells = ["-" if values[key] is None else _cell(key, values[key]) for key in _COLUMNS]
        made.add_row(name, *cells, f"{values['count']:,}")
    return made


def _intervals(intervals: dict[str, tuple[float, float]]) -> str:
    shown = (f"{_COLUMNS[key]} {low:.4f} to {high:.4f}" for key, (low, high) in intervals.items())
    return f"95 % intervals over facts: {', '.join(shown)}."


def _cell(key: str, value: float) -> str:
    return f"{value:,.1f}" if key == "mr" else f"{value:.4f}"
