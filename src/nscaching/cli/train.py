"""``nscaching train``: its options are those of :class:`TrainConfig`, made from its fields."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from nscaching.cli import flags
from nscaching.cli.datasets import file_bars
from nscaching.cli.evaluate import metrics_table
from nscaching.cli.flags import flag, with_option_flags
from nscaching.cli.output import print_json, say, table
from nscaching.distributed.cost import Network, expected_cost, time_step
from nscaching.distributed.launch import is_main, is_worker, launch
from nscaching.errors import TrainingInterrupted, UserError, stop_signal
from nscaching.evaluation.metrics import SELECTABLE
from nscaching.graph import reading_progress
from nscaching.report.page import try_to_write
from nscaching.runs.api import make_config, merged_options, recipe_config, train
from nscaching.runs.run import Run
from nscaching.sampling.shared_rows import row_counts
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.devices import free_bytes, pick_device
from nscaching.training.folder import default_out
from nscaching.training.memory import plan_memory
from nscaching.training.opening import open_graph
from nscaching.training.progress import duration
from nscaching.training.recipes import is_open


@with_option_flags(TrainConfig, leave_out=("data",))
def train_command(
    data: flags.Data = None,
    out: Annotated[
        Path | None,
        flag("Run folder to write.", default="a new folder under runs/, named by the data"),
    ] = None,
    config: flags.Config = None,
    resume: flags.Resume = False,
    overwrite: flags.Overwrite = False,
    track: Annotated[
        list[str] | None,
        flag(
            "Log to a tracker: tensorboard:DIR, mlflow:DIR, wandb:DIR or csv:FILE. "
            "May be given several times.",
            default=False,
        ),
    ] = None,
    report: Annotated[
        bool, flag("Write report.html into the run folder.", "--report/--no-report")
    ] = True,
    dry_run: Annotated[
        bool, flag("Show sizes and memory of the run, without training.", "--dry-run")
    ] = False,
    processes: Annotated[
        int, flag("Train on so many processes of this machine, with sharded tables.", min=1)
    ] = 1,
    max_restarts: Annotated[
        int, flag("How often --processes starts again after a process is lost.", min=0)
    ] = 3,
    hosts: Annotated[
        int, flag("With --dry-run: hosts that --processes are spread over by torchrun.", min=1)
    ] = 1,
    bandwidth: Annotated[
        float, flag("With --dry-run: gigabits per second between hosts.", min=0.001)
    ] = 25.0,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
    **options: Any,
) -> None:
    """Train embeddings of a graph, keep the best, and look at the test split once."""
    asked = merged_options(config, options)
    if dry_run:
        _show_plan(data, asked, as_json, processes, Network(hosts, bandwidth))
        return
    if processes > 1 and not is_worker():
        raise typer.Exit(launch(sys.argv[1:], processes, max_restarts))
    if resume and (out, data, config) == (None, None, None):
        raise UserError("Name the run to resume with --out.")
    if out is None:
        out = default_out(make_config(data, asked), by_method=not is_open(asked))
    progress = Progress("none" if quiet else "auto")
    with file_bars() as show, reading_progress(None if quiet else show), resumable(out):
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
            return
        write = partial(run.report, progress=progress)
        page = try_to_write(write, progress.say) if report else None
    run.summary["report"] = None if page is None else str(page)
    print_json(run.summary) if as_json else _show(run)


@contextlib.contextmanager
def resumable(out: Path) -> Iterator[None]:
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
                f"  nscaching train --resume --out {out}"
            )
        raise TrainingInterrupted(said, stop_signal(error)) from error


def _show_plan(
    data: str | None, options: dict[str, Any], as_json: bool, processes: int, network: Network
) -> None:
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
    cost = None
    if processes > 1:
        fits = free is None or plan.total < free  # a step is timed on the whole graph
        timed = time_step(graph, config, processes // network.hosts) if fits else None
        cost = expected_cost(graph, config, processes, network, timed)
    if as_json:
        told = {"bytes": plan.parts, "total_bytes": plan.total, "free_bytes": free}
        print_json({**sizes, **told, **({} if cost is None else {"processes": cost.as_dict()})})
        return
    counts = ((name.replace("_", " "), f"{count:,}") for name, count in sizes.items())
    parts = {
        **plan.parts,
        "at its peak": plan.total,
        **({} if free is None else {"free now": free}),
    }
    memory = ((name, f"{size / 1e6:,.0f}") for name, size in parts.items())
    say(table(f"{graph.name}: sizes", ("", "count"), counts))
    say(table("\nMemory of a run on one process", ("", "MB"), memory))
    if cost is not None:
        say(table(f"\n{processes} processes on {network.hosts} hosts", ("", ""), cost.lines()))


def _show(run: Run) -> None:
    summary = run.summary
    by = f" by {SELECTABLE[summary['select']]} on valid" if summary["valid"] else ""
    say(
        f"Trained {run.config.scoring} with {run.config.sampler} on {run.graph.name}: "
        f"{summary['epochs']} epochs in {duration(summary['seconds'])} on {summary['device']} "
        f"({summary['seconds_per_epoch']:.2f} s per epoch), best at {summary['best_epoch']}{by}."
    )
    rows = {split: summary[split] for split in ("valid", "test") if summary[split]}
    if rows:
        say(metrics_table("Filtered link prediction", rows))
    else:
        say("Nothing was held out, so there is no evaluation; see --split.")
    if summary["valid"] and summary["best_epoch"] == run.config.epochs:
        say("Still improving when it stopped; try a larger --epochs.")
    say(f"Run folder: {summary['run']}  (nscaching predict {summary['run']} --help)")
    if summary["report"] is not None:
        say(f"Report: {summary['report']}")
