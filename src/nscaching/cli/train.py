"""``nscaching train`` and ``trace``: a flag for each option of :class:`TrainConfig`."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from nscaching.cli.ask import metrics_table
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
)
from nscaching.cli.data import file_bars
from nscaching.distributed.cost import Network, expected_cost, time_step
from nscaching.errors import (
    HOLD_OUT,
    TrainingInterrupted,
    UserError,
    plural,
    resume_command,
    stop_signal,
)
from nscaching.evaluation.metrics import SELECTABLE, few_facts_remark
from nscaching.graph import reading_progress
from nscaching.processes import is_main, is_worker, launch
from nscaching.report.markup import thinned, try_to_write
from nscaching.runs.api import make_config, make_trainer, merged_options, recipe_config, train
from nscaching.runs.run import Run
from nscaching.sampling.shared_rows import row_counts
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.devices import free_bytes, pick_device
from nscaching.training.memory import plan_memory
from nscaching.training.opening import default_out, open_graph, verified
from nscaching.training.progress import duration
from nscaching.training.recipes import is_open
from nscaching.training.tracing.snapshots import Line

#: Counters of a traced epoch, with the head of their column and how a number is shown.
_COUNTERS = {
    "nonzero_loss": ("non-zero loss", "{:.1%}"),
    "repeated": ("repeated", "{:.2%}"),
    "gradient_norm": ("gradient", "{:.3g}"),
    "false_sampled": ("false, sampled", "{:.4%}"),
    "false_cached": ("false, cache", "{:.4%}"),
    "known_sampled": ("known, sampled", "{:.4%}"),
    "known_cached": ("known, cache", "{:.4%}"),
    "recall": ("recall", "{:.1%}"),
}
#: Where the help has options that few runs need.
_PROCESSES = "Several processes"
#: Traced epochs shown of a long run.
_MOST_EPOCHS = 20


@command(TrainConfig, leave_out=("data",))
def train_command(
    data: Data = None,
    out: Path | None = flag(
        None, "Run folder to write.", shown="a folder under runs/, named by the data"
    ),
    config: ConfigFile = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    track: list[str] | None = flag(
        None,
        "Log to a tracker: tensorboard:DIR, mlflow:DIR, wandb:DIR or csv:FILE. "
        "May be given several times; a resumed run keeps its own unless others or none are named.",
        shown=False,
    ),
    report: bool = flag(True, "Write report.html into the run folder.", "--report/--no-report"),
    dry_run: bool = flag(False, "Show sizes and memory of the run, without training.", "--dry-run"),
    processes: int = flag(
        1,
        "Processes on this machine that train together, with sharded tables.",
        group=_PROCESSES,
        min=1,
    ),
    max_restarts: int = flag(
        3, "How often --processes are restarted after one is lost.", group=_PROCESSES, min=0
    ),
    hosts: int = flag(
        1,
        "With --dry-run: hosts that --processes are spread over by torchrun.",
        group=_PROCESSES,
        min=1,
    ),
    bandwidth: float = flag(
        25.0, "With --dry-run: gigabits per second between hosts.", group=_PROCESSES, min=0.001
    ),
    quiet: Quiet = False,
    **options: Any,
) -> Output | None:
    """Train embeddings of a graph, keep the best model, and evaluate it once on test.

    A recipe fits the options to the graph; the defaults shown here are those of --recipe paper.
    """
    asked = merged_options(config, options)
    network = Network(hosts, bandwidth)
    if dry_run:
        return _plan(data, asked, processes, network)
    if network != Network():
        raise UserError(
            "--hosts and --bandwidth are for --dry-run; on several hosts a run is started by "
            "torchrun -m nscaching train."
        )
    if processes > 1 and not is_worker():
        raise typer.Exit(launch(sys.argv[1:], processes, max_restarts))
    if resume and (out, data, config) == (None, None, None):
        raise UserError("Name the run to resume with --out.")
    if out is None:
        out = default_out(make_config(data, asked), by_method=not is_open(asked))
    progress = Progress("none" if quiet else "auto")
    with file_bars() as show, reading_progress(None if quiet else show), _resumable(out):
        run = train(
            data,
            out=out,
            config=config,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            track=track or (),
            **options,
        )
        if not is_main():
            return None
        write = partial(run.report, progress=progress)
        page = try_to_write(write, progress.say) if report else None
    run.summary["report"] = None if page is None else str(page)
    return Output(run.summary, _trained(run))


@contextlib.contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Say how to resume after a stop outside the epochs, which look after themselves."""
    try:
        yield
    except TrainingInterrupted:
        raise
    except KeyboardInterrupt as error:
        said = "Stopped before the run began; nothing was kept."
        if RunFolder(out).is_run():
            said = (
                "Stopped; what the last checkpoint holds is kept. Resume with:\n"
                f"  {resume_command('train', out)}"
            )
        raise TrainingInterrupted(said, stop_signal(error)) from error


def _plan(data: str | None, options: dict[str, Any], processes: int, network: Network) -> Output:
    """Return sizes, memory and, for several processes, the expected cost of a run."""
    if processes % network.hosts:
        raise UserError(
            f"--processes counts those of all hosts, and {processes} cannot be spread evenly over "
            f"{network.hosts}; give a multiple of --hosts."
        )
    graph = open_graph(make_config(data, options))
    config = recipe_config(options, data, graph, Progress("none"))
    plan = plan_memory(graph, config)
    free = free_bytes(pick_device(config.device))
    head_rows, tail_rows = row_counts(graph, config)
    sizes = {
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "train": len(graph.train),
        "head_rows": head_rows,
        "tail_rows": tail_rows,
    }
    value = {**sizes, "bytes": plan.parts, "total_bytes": plan.total, "free_bytes": free}
    counts = ((name.replace("_", " "), f"{count:,}") for name, count in sizes.items())
    parts = {**plan.parts, "at its peak": plan.total}
    parts |= {} if free is None else {"free now": free}
    if pick_device(config.device).type == "cuda":
        value["host_bytes"] = parts["on the host, while a checkpoint is written"] = plan.host
    memory = ((name, f"{size / 1e6:,.0f}") for name, size in parts.items())
    shown = [
        table(f"{graph.name}: sizes", ("", "count"), counts),
        table("\nMemory of a run on one process", ("", "MB"), memory),
    ]
    if processes > 1:
        fits = free is None or plan.total < free  # a step is timed on the whole graph
        share = processes // network.hosts
        timed = time_step(verified(graph), config, share) if fits else None
        cost = expected_cost(graph, config, processes, network, timed)
        value["processes"] = cost.as_dict()
        title = f"\n{processes} processes on {network.hosts} hosts"
        shown.append(table(title, ("", ""), cost.lines()))
    return Output(value, shown)


def _trained(run: Run) -> Iterator[Part]:
    summary = run.summary
    best = ""
    if summary["valid"]:
        best = f", best at {summary['best_epoch']} by {SELECTABLE[summary['select']]} on valid"
    yield (
        f"Trained {run.title}: {plural(summary['epochs'], 'epoch')} in "
        f"{duration(summary['seconds'])} on {summary['device']} "
        f"({summary['seconds_per_epoch']:.2f} s per epoch){best}."
    )
    if rows := {split: summary[split] for split in ("valid", "test") if summary[split]}:
        yield metrics_table("Filtered link prediction", rows)
        split, last = list(rows.items())[-1]
        if (remark := few_facts_remark(last["count"] // 2, split)) is not None:
            yield remark
    else:
        yield f"Nothing was held out, so there is no evaluation. {HOLD_OUT}"
    drawn, whole = run.config.valid_facts, len(run.graph.valid)
    if summary["valid"] and drawn is not None and drawn < whole:
        yield f"valid: {drawn:,} of its {whole:,} facts; 'evaluate --split valid' ranks all."
    if summary["valid"] and summary["best_epoch"] == run.config.epochs:
        yield "Still improving when it stopped; try a larger --epochs."
    folder = shlex.quote(summary["run"])
    yield f"Run folder: {summary['run']}  (nscaching predict {folder} --help)"
    if summary["report"] is not None:
        yield f"Report: {summary['report']}"


# Tracing -----------------------------------------------------------------------------------------


@command(TrainConfig, leave_out=("data", "trace", "trace_row", "trace_triple"))
def trace_command(
    run: str = argument(..., "Run folder; or data to train on first, with options of train."),
    row: list[str] | None = flag(
        None, "Show this cache row: 'HEAD|RELATION|?' or '?|RELATION|TAIL'."
    ),
    triple: list[str] | None = flag(
        None, "Show gradient norms over all negatives of 'HEAD|RELATION|TAIL'."
    ),
    plot: Path | None = flag(None, "Draw the counters and gradient norms into this SVG file."),
    out: Path | None = flag(
        None, "Folder of the run that is trained first.", shown="runs/...-trace"
    ),
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    **options: Any,
) -> Output:
    """Show what a run did with its negatives: counters per epoch, and cache rows over the epochs.

    'nscaching trace RUN' reads a run trained with --trace; 'nscaching trace DATA' trains one.
    """
    folder = RunFolder(run)
    if folder.is_run():
        given = [*options, *(["out"] if out else []), *(["overwrite"] if overwrite else [])]
        if given:
            raise UserError(
                f"{run} is a run already, so {', '.join(given)} cannot change it; name data to "
                "train on, or drop the options of training."
            )
    else:
        options |= {"trace": True, "trace_row": row or (), "trace_triple": triple or ()}
        folder = _traced(run, options, out, overwrite, Progress("none" if quiet else "auto"))
    lines = _chosen(folder, row or [], triple or [])
    if plot is not None:
        from nscaching.report.pictures import draw_trace

        draw_trace(lines, plot)
    events = {"epochs": "epoch", "rows": "row", "gradients": "gradients"}
    parts = {
        name: [
            {key: value for key, value in line.items() if key != "event"}
            for line in lines
            if line["event"] == event
        ]
        for name, event in events.items()
    }
    shown = [_counters_table(thinned(parts["epochs"], _MOST_EPOCHS))]
    for name in dict.fromkeys(line["row"] for line in parts["rows"]):
        shown.append(_row_table(name, [line for line in parts["rows"] if line["row"] == name]))
    if parts["gradients"]:
        shown.append(_norms_table(parts["gradients"]))
    return Output({"run": str(folder.path), **parts}, shown)


def _traced(
    data: str, options: dict[str, Any], out: Path | None, overwrite: bool, progress: Progress
) -> RunFolder:
    """Train and trace; the test split is not looked at."""
    if out is None:
        plain = default_out(make_config(data, options))
        out = plain.with_name(f"{plain.name}-trace")
    with _resumable(out), RunFolder(out).writing():
        trainer = make_trainer(data, out=out, overwrite=overwrite, progress=progress, **options)
        trainer.run(resume=False)
    return RunFolder(out)


def _chosen(folder: RunFolder, rows: list[str], triples: list[str]) -> list[Line]:
    """Return the lines of a trace; of rows and triples those that are asked for, or all."""
    lines = folder.read_trace()
    if not lines:
        raise UserError(
            f"{folder.path} was trained without a trace; train it again with --trace, and "
            "--trace-row for the cache rows you want to see."
        )
    kept = [line for line in lines if line["event"] == "epoch"]
    for event, key, asked in (("row", "row", rows), ("gradients", "triple", triples)):
        there = list(dict.fromkeys(line[key] for line in lines if line["event"] == event))
        for name in asked:
            if name not in there:
                traced = f"it has {', '.join(there)}" if there else "it has none"
                raise UserError(
                    f"The trace of {folder.path} has no {key} '{name}', {traced}; rows and triples "
                    "are chosen when a run is trained, with --trace-row and --trace-triple."
                )
        wanted = asked or there
        kept += [line for line in lines if line["event"] == event and line[key] in wanted]
    return kept


def _counters_table(epochs: list[Line]) -> Table:
    columns = {
        name: column
        for name, column in _COUNTERS.items()
        if any(line.get(name) is not None for line in epochs)
    }
    rows = []
    for line in epochs:
        cells = [
            "-" if line.get(name) is None else form.format(line[name])
            for name, (_, form) in columns.items()
        ]
        rows.append((str(line["epoch"]), *cells))
    return table("Negatives", ("epoch", *(head for head, _ in columns.values())), rows)


def _row_table(name: str, snapshots: list[Line]) -> Table:
    rows = []
    for line in snapshots:
        hardest = [
            each["entity"] + ("*" if each["split"] in ("valid", "test") else "")
            for each in line["hardest"][:5]
        ]
        rows.append((str(line["epoch"]), ", ".join(line["random"]), ", ".join(hardest)))
    columns = ("epoch", "five at random", "the hardest five (* is a fact of valid or test)")
    made = table(f"\nCache row {name}", columns, rows, texts=(1, 2))
    for column in made.columns[1:]:
        column.ratio = 1
    return made


def _norms_table(snapshots: list[Line]) -> Table:
    rows = []
    for line in snapshots:
        points = line["ccdf"]
        above = [
            max((x for x, share in points if share >= part), default=0) for part in (0.01, 0.5)
        ]
        numbers = (f"{x:.3g}" for x in (points[-1][0], *above))
        rows.append((f"{line['triple']}, {line['side']}", str(line["epoch"]), *numbers))
    columns = ("", "epoch", "largest", "1 % from", "half")
    return table("\nGradient norms over all negatives", columns, rows)
