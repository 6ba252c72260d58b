"""``nscaching compare``, ``tune``, ``nodes tune``, ``reproduce``: many configurations at once."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from nscaching.cli.command import (
    ConfigFile,
    Data,
    Output,
    Overwrite,
    Part,
    Quiet,
    Resume,
    argument,
    command,
    flag,
    table,
    whole_numbers,
)
from nscaching.errors import UserError, plural
from nscaching.experiments.compare import compare
from nscaching.experiments.comparison import Comparison
from nscaching.experiments.paper import Reproduction, definitions, reproduce
from nscaching.experiments.paper.plan import MISSING, Request
from nscaching.experiments.paper.results import Beside, cell_of, compared
from nscaching.experiments.runner import DONE
from nscaching.experiments.tune import SearchResult, tune
from nscaching.experiments.tune.api import Gain
from nscaching.experiments.tune.space import NodeSearchOptions, SearchOptions
from nscaching.experiments.workers import Workers
from nscaching.nodes import NodeConfig
from nscaching.training import Progress, TrainConfig
from nscaching.training.progress import duration


@command(TrainConfig, leave_out=("data", "sampler", "seed", "max_seconds"))
def compare_command(
    data: Data = None,
    samplers: list[str] | None = flag(
        None,
        "Samplers with commas between them; options of one after colons, as in "
        "nscaching:alpha3=5:lazy=1. May be given several times.",
        shown="all that go with the loss",
    ),
    seeds: str | None = flag(
        None,
        "Seeds with commas between them; several give mean and spread.",
        shown="0; 0,1,2 for a graph of fewer than 20,000 training triples",
    ),
    max_seconds: float | None = flag(
        None,
        "Seconds of training of each run, up to the end of an epoch; without --epochs they are "
        "the only limit.",
        "--seconds",
        "--max-seconds",
    ),
    out: Path | None = flag(None, "Folder of the runs.", shown="runs/compare-DATA-SCORING"),
    config: ConfigFile = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    **options: Any,
) -> Output:
    """Train several samplers with the same options and budget; one table, one picture, one page."""
    if max_seconds is not None:
        options["max_seconds"] = max_seconds
    comparison = compare(
        data,
        samplers,
        seeds=None if seeds is None else whole_numbers(seeds),
        out=out,
        config=config,
        resume=resume,
        overwrite=overwrite,
        progress="none" if quiet else "auto",
        **options,
    )
    failed = all(result.error is not None for result in comparison.runs)
    return Output(comparison.as_dict(), _compared(comparison), code=1 if failed else 0)


def _compared(comparison: Comparison) -> Iterator[Part]:
    rows = comparison.rows
    tested = [row for row in rows if row["mrr_interval"]]

    def columns(title: str, names: Sequence[str], shown: list[dict[str, Any]]) -> Table:
        texts = ((row["sampler"], comparison.texts(row)) for row in shown)
        cells = ((sampler, *(said[name] for name in names)) for sampler, said in texts)
        made = table(title, ("sampler", *names), cells)
        made.columns[0].overflow = "fold"
        return made

    title = f"{comparison.data or 'graph'}, {comparison.scoring}: test, best model on valid"
    yield columns(title, ("MRR", "Hits@10", "accuracy", "s/epoch", "extra", "best"), rows)
    if tested:
        title = "\nMRR: 95 % intervals over test facts"
        yield columns(title, ("95 % interval", "to the best"), tested)
    yield from comparison.notes
    names = ("compare.json", comparison.picture, comparison.report)
    yield f"Written: {', '.join(str(comparison.out / name) for name in names if name)}"


def _tune(
    data: Data = None,
    out: Path | None = flag(None, "Folder of the search.", shown="runs/DATA-tune"),
    base: Path | None = flag(
        None,
        "Run folder or YAML file with the options that are not searched; flags win.",
        shown="the defaults",
    ),
    labels: Path | None = flag(
        None, "For node embedding: file with one node and its class per line."
    ),
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    **options: Any,
) -> Output:
    """Search hyperparameters of the recipe, or of the cache, for the best validation metric.

    The first trial is what train would do with the same flags; without flags, the recipe that fits
    the graph. A training option given as a flag is used in every trial and not searched.
    OUT/best.yaml is the best so far: nscaching train --config OUT/best.yaml
    """
    result = tune(
        data,
        out=out,
        base=base,
        labels=labels,
        resume=resume,
        overwrite=overwrite,
        progress="none" if quiet else "auto",
        **options,
    )
    return Output(result.as_dict(), _searched(result))


def _tune_nodes(*, resume: bool, **options: Any) -> Output:
    """Search hyperparameters of the cache for embeddings of nodes.

    Trials are compared by micro-F1 on validation nodes, or by the AUC of held-out edges where nodes
    have no classes. An option given as a flag is used in every trial and not searched.
    OUT/best.yaml is the best so far: nscaching nodes train --config OUT/best.yaml
    """
    if not resume:
        options.setdefault("space", NodeSearchOptions.space)
    return _tune(resume=resume, **options)


_tune_nodes.__signature__ = inspect.signature(_tune, eval_str=True)  # type: ignore[attr-defined]
tune_command = command(SearchOptions, Workers, TrainConfig, leave_out=("data",))(_tune)
tune_nodes_command = command(
    NodeSearchOptions, Workers, NodeConfig, leave_out=("data", "processes")
)(_tune_nodes)


def _searched(result: SearchResult) -> Iterator[Part]:
    best, metric = result.best, f"valid {result.metric.name}"
    rows = []
    for trial in result.trials:
        score = "failed" if trial.score is None else f"{trial.score:.4f}"
        cells = [_cell(trial.config.get(name, "–")) for name in result.searched]
        mark = f"{trial.number} *" if trial is best else str(trial.number)
        rows.append((mark, score, str(trial.epochs), *cells))
    title = f"{result.method}, {result.space}: trials"
    names = [
        name.replace("_", "_\n") for name in (metric.replace(" ", "\n"), "epochs", *result.searched)
    ]
    yield table(title, ("", *names), rows)
    if (found := result.importance) is not None:
        effects = ((each.name, f"{each.alone:.2f}", f"{each.total:.2f}") for each in found.effects)
        fit = f"surrogate of {found.trials} trials, cross-validated R² {found.fit:.2f}"
        yield table(f"\nImportance of the hyperparameters ({fit})", ("", "alone", "total"), effects)
    else:
        yield f"\n{result.importance_note}"
    settings = ", ".join(f"{name} {_cell(value)}" for name, value in best.config.items())
    yield f"\nBest: trial {best.number}, {metric} {best.score:.4f} with {settings}."
    file = shlex.quote(str(result.folder.best))
    yield (
        f"{plural(len(result.trials), 'trial')}, {plural(result.epochs, 'epoch')}, "
        f"{duration(result.seconds)}. "
        f"Train it: {result.objective.train_command} --config {file}"
    )
    if result.gain is not None:
        yield _gain(result.gain, best.number)
    if result.pictures:
        yield f"Pictures: {', '.join(result.pictures)}"
    if result.report is not None:
        yield f"Report: {result.report}"


def _gain(gain: Gain, best: int) -> str:
    low, high = gain.interval
    said = f"95 % interval of the best over valid facts: {low:.4f} to {high:.4f}"
    if best == 1:
        return f"{said}; the first trial, the default, is the best."
    noise = ", within noise" if gain.within_noise else ""
    return f"{said}; {gain.over_first:+.4f} over the first trial, the default{noise}."


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# The paper ----------------------------------------------------------------------------------------


@command(Request, leave_out=("seeds",))
def reproduce_command(
    name: str | None = argument(None, "A table or figure, such as table-7; --list names them all."),
    show_list: bool = flag(False, "Name the tables and figures there are.", "--list"),
    seeds: str | None = flag(
        None, "Seeds with commas between them.", shown="0, and 0,1,2 with --tries"
    ),
    report: Path | None = flag(None, "Write a page from the results in this folder; run nothing."),
    dry_run: bool = flag(
        False, "Only say which cells there are and how long it takes.", "--dry-run"
    ),
    finished: bool = flag(False, "Run nothing: show and draw what is finished.", "--finished"),
    quiet: Quiet = False,
    **options: Any,
) -> Output:
    """Reproduce a table or figure of the paper: our numbers beside the paper's."""
    if show_list:
        return _listed()
    if report is not None:
        from nscaching.experiments.paper.pages import write_report

        page = write_report(report, options.get("out", Path("reproduction.md")))
        return Output({"page": str(page)}, [f"Wrote {page}"])
    if name is None:
        raise UserError("Name a table or figure, such as table-7; --list names them all.")
    usual = "0,1,2" if "tries" in options else "0"
    given = {**options, "seeds": whole_numbers(seeds or usual)}
    request = Request.from_mapping(given, "options")
    shown = Progress("none" if quiet else "auto")
    made = reproduce(name, request, dry_run=dry_run, finished=finished, progress=shown)
    failed = bool(made.rows) and all(row["error"] for row in made.rows)
    parts = _planned(made) if dry_run else _reproduced(made)
    return Output(made.as_dict(), parts, code=1 if failed else 0)


def _listed() -> Output:
    items = [each.as_dict() for each in definitions().values()]
    rows = (
        (f"{item['name']}: {item['title']}", item["label"], str(item["cells"])) for item in items
    )
    columns = ("name", "in the paper", "cells")
    listed = table("The paper's tables and figures", columns, rows, texts=(0, 1))
    return Output({"items": items}, [listed])


def _planned(made: Reproduction) -> Iterator[Part]:
    rows = (
        (each.title, each.state, duration(each.seconds) if each.seconds else "–")
        for each in made.plan
    )
    yield table(f"{made.definition.name}: {made.definition.title}", ("cell", "state", "time"), rows)
    states = {planned.state for planned in made.plan}
    if states == {MISSING}:
        yield "Nothing can be run without the data; see 'nscaching datasets list'."
    elif states <= {DONE, MISSING}:
        yield "Nothing is left to run."
    else:
        yield f"About {duration(made.expected_seconds)} in all{made.caveat}."


def _reproduced(made: Reproduction) -> Iterator[Part]:
    names, groups = compared(made.definition.draw, made.rows)
    rows = []
    for (row, *_), found in groups:
        where = " ".join(filter(None, (row["dataset"], row["scoring"], cell_of(row).label)))
        if row["error"] and not found:
            where += ": no data" if row["missing"] else ": failed"
        rows.append((where, *(_beside(found.get(name)) for name in names)))
    title = f"{made.definition.name}: {made.definition.title} (the paper's in brackets)"
    listed = table(title, ("cell", *names), rows)
    for column in listed.columns[1:]:  # many metrics: rather two lines per number than no name
        column.no_wrap = False
    listed.columns[0].min_width = 20
    yield listed
    yield from dict.fromkeys(f"{x['dataset']}: {x['error']}" for x in made.rows if x["error"])
    if made.file is not None:
        yield f"Written: {', '.join(map(str, (made.file, *made.pictures)))}"


def _beside(each: Beside | None) -> str:
    if each is None:
        return "–"
    return f"{each.ours:.4f}" + ("" if each.paper is None else f" ({each.paper:.4f})")
