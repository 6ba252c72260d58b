"""``nscaching train``: its options are those of :class:`TrainConfig`, made from its fields."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from nscaching.cli.datasets import file_bars
from nscaching.cli.evaluate import metrics_table
from nscaching.cli.option_flags import with_option_flags
from nscaching.cli.output import ConfigFlag, JsonFlag, QuietFlag, print_json, stdout, table
from nscaching.errors import TrainingInterrupted, UserError
from nscaching.graph import reading_progress
from nscaching.report.page import try_to_write
from nscaching.runs.api import cooked, make_config, merged_options, train
from nscaching.runs.run import Run
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.devices import free_bytes, pick_device
from nscaching.training.folder import default_out
from nscaching.training.idle_options import idle_options
from nscaching.training.interrupt import terminate_as_interrupt
from nscaching.training.memory import plan_memory
from nscaching.training.opening import open_graph
from nscaching.training.progress import duration
from nscaching.training.recipes import is_open


def train_command(
    data: Annotated[
        Optional[str],  # noqa: UP045 (typer reads this at run time on Python 3.10)
        typer.Argument(
            help="A named data set (nscaching datasets list), a folder with train/valid/test, or "
            "a file of triples."
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Run folder to write.", show_default="runs/DATA-SCORING-SAMPLER"),
    ] = None,
    config: ConfigFlag = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in --out where it stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in --out.")
    ] = False,
    track: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="Log to a tracker: tensorboard:DIR, mlflow:DIR, wandb:DIR or csv:FILE. "
            "May be given several times.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write report.html into the run folder.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show sizes and memory of the run, without training.")
    ] = False,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
    **options: Any,
) -> None:
    """Train embeddings of a graph, keep the best, and look at the test split once."""
    given = {name: value for name, value in options.items() if value is not None}
    source = data or given.pop("data", None)
    if dry_run:
        _show_plan(source, merged_options(config, given), as_json)
        return
    if resume and (out, source, config) == (None, None, None):
        raise UserError("Name the run to resume with --out.")
    if out is None:
        named = {"data": source} if source else {}
        asked = {**merged_options(config, given), **named}
        out = default_out(make_config(None, asked), by_method=not is_open(asked))
    progress = Progress("none" if quiet else "auto")
    if not resume:
        for remark in idle_options(make_config(source, merged_options(config, given)), given):
            progress.say(remark)
    with file_bars() as show, reading_progress(None if quiet else show), resumable(out):
        run = train(
            source,
            out=out,
            config=config,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            track=track or (),
            **given,
        )
        write = partial(run.report, progress=progress)
        page = try_to_write(write, progress.say) if report else None
    run.summary["report"] = None if page is None else str(page)
    if as_json:
        print_json(run.summary)
    else:
        _show(run)


@contextlib.contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Say how to resume after a stop outside the epochs, which look after themselves."""
    try:
        with terminate_as_interrupt():
            yield
    except TrainingInterrupted:
        raise
    except KeyboardInterrupt as error:
        if not RunFolder(out).is_run():
            raise TrainingInterrupted("Stopped before the run began; nothing was kept.") from error
        raise TrainingInterrupted(
            "Stopped; what the last checkpoint holds is kept. Resume with:\n"
            f"  nscaching train --resume --out {out}"
        ) from error


def _show_plan(source: str | None, given: dict[str, Any], as_json: bool) -> None:
    graph = open_graph(make_config(source, given))
    config = cooked(given, source, graph, Progress("none"))
    plan = plan_memory(graph, config)
    free = free_bytes(pick_device(config.device))
    sizes = {
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "train": len(graph.train),
        "head_rows": len(graph.rows.head.anchor),
        "tail_rows": len(graph.rows.tail.anchor),
    }
    if as_json:
        print_json({**sizes, "bytes": plan.parts, "total_bytes": plan.total, "free_bytes": free})
        return
    console = stdout()
    made = table(f"{graph.name}: sizes", "", "count")
    for name, count in sizes.items():
        made.add_row(name.replace("_", " "), f"{count:,}")
    console.print(made)
    made = table("\nMemory of a run", "", "MB")
    for name, size in plan.parts.items():
        made.add_row(name, f"{size / 1e6:,.0f}")
    made.add_row("in all", f"{plan.total / 1e6:,.0f}", style="bold")
    if free is not None:
        made.add_row("free now", f"{free / 1e6:,.0f}")
    console.print(made)


def _show(run: Run) -> None:
    summary = run.summary
    console = stdout()
    console.print(
        f"Trained {run.config.scoring} with {run.config.sampler} on {run.graph.name}: "
        f"{summary['epochs']} epochs in {duration(summary['seconds'])} on {summary['device']} "
        f"({summary['seconds_per_epoch']:.2f} s per epoch), best at {summary['best_epoch']}.",
        highlight=False,
        soft_wrap=True,
    )
    rows = {split: summary[split] for split in ("valid", "test") if summary[split]}
    if rows:
        console.print(metrics_table("Filtered link prediction", rows))
    else:
        console.print("Nothing was held out, so there is no evaluation; see --split.")
    if summary["valid"] and summary["best_epoch"] == run.config.epochs:
        console.print("Still improving when it stopped; try a larger --epochs.")
    console.print(
        f"Run folder: {summary['run']}  (nscaching predict {summary['run']} --help)",
        highlight=False,
        soft_wrap=True,
    )
    if summary["report"] is not None:
        console.print(f"Report: {summary['report']}", highlight=False, soft_wrap=True)


command = with_option_flags(train_command, TrainConfig, leave_out=("data",))
