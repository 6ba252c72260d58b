"""A cell that is one training: its numbers, and the series that figures are drawn from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.experiments.compare.curves import read_curve
from nscaching.experiments.compare.results import RunResult
from nscaching.experiments.compare.single import make_run
from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.rows import Row
from nscaching.graph import KnowledgeGraph
from nscaching.report.numbers import thinned
from nscaching.runs.api import make_config
from nscaching.training import Progress, RunFolder

#: Points of a series that are kept in a row.
POINTS = 100
_COUNTERS = ("epoch", "nonzero_loss", "repeated", "gradient_norm", "false_sampled", "false_cached")
_MEASURED = ("test", "valid", "accuracy", "seconds_per_epoch", "seconds", "epochs", "best_epoch",
             "extra_parameters", "device", "error")  # fmt: skip


def train_row(
    cell: Cell,
    settings: dict[str, Any],
    graph: KnowledgeGraph,
    folder: Path,
    progress: Progress,
    *,
    standing_in: bool = False,
) -> Row:
    """Train a cell, or go on with it, and return what its row gets."""
    options = named_traces(settings, graph, standing_in)
    config = make_config(graph, options)
    run = RunFolder(folder)
    blank = RunResult(cell.label, cell.seed, cell.folder, "")
    result = make_run(
        graph,
        run,
        config,
        options,
        blank=blank,
        resume=True,
        overwrite=False,
        progress=progress,
    )
    row = {name: value for name, value in asdict(result).items() if name in _MEASURED}
    return row if result.error else {**row, **series(run)}


def series(run: RunFolder) -> Row:
    """Return validations, losses and what a trace saw, each thinned to what a picture shows."""
    lines = run.read_metrics()
    curve = read_curve(lines)
    losses = thinned([[x["epoch"], x["loss"]] for x in lines if x.get("event") == "epoch"], POINTS)
    found: Row = {
        "curve": {name: getattr(curve, name).tolist() for name in vars(curve)},
        "losses": losses,
    }
    trace = run.read_trace()
    counted = [line for line in trace if line["event"] == "epoch"]
    if counted:
        found["trace"] = thinned(
            [{name: each[name] for name in _COUNTERS} for each in counted], POINTS
        )
    rows = run.read_config().trace_row  # a definition shows the rows it names, no others
    looks = [line for line in trace if line["event"] == "gradients" or line.get("row") in rows]
    if looks:
        found["looks"] = looks
    return found


def named_traces(
    settings: dict[str, Any], graph: KnowledgeGraph, standing_in: bool
) -> dict[str, Any]:
    """Return options with traced triples by name; a stand-in has none of the paper's names."""
    options = dict(settings)
    count = options.pop("trace_triples", 0)
    if count:
        chosen = np.random.default_rng(0).choice(len(graph.train), count, replace=False)
        options["trace_triple"] = [_named(graph, place) for place in chosen]
        options.setdefault("trace_every", max(1, options["epochs"] // 5))
    if standing_in and "trace_row" in options:
        options["trace_row"] = [_named(graph, 0).rsplit("\t", 1)[0] + "\t?"]
    return options


def _named(graph: KnowledgeGraph, place: int) -> str:
    head, relation, tail = graph.train[place].tolist()
    return "\t".join([graph.entities[head], graph.relations[relation], graph.entities[tail]])
