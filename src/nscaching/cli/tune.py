"""``nscaching tune`` and ``nodes tune``: search hyperparameters; options are flags."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from nscaching.cli.option_flags import with_option_flags
from nscaching.cli.output import JsonFlag, QuietFlag, print_json, stdout, table
from nscaching.experiments.tune import SearchResult, tune
from nscaching.experiments.tune.importance import Importance
from nscaching.experiments.tune.result import Gain
from nscaching.experiments.tune.settings import NodeSearchOptions, SearchOptions
from nscaching.nodes import NodeConfig
from nscaching.training import Progress, TrainConfig
from nscaching.training.interrupt import terminate_as_interrupt
from nscaching.training.progress import duration


def tune_command(
    data: Annotated[
        Optional[str],  # noqa: UP045 (typer reads this at run time on Python 3.10)
        typer.Argument(
            help="A named data set or graph, a folder with train/valid/test, or a file."
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the search.", show_default="runs/DATA-tune"),
    ] = None,
    base: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Run folder or YAML file with the options that are not searched; flags win.",
            show_default="the defaults",
        ),
    ] = None,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="For node embedding: file with one node and its class per line."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the search in --out where it stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the search in --out.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Trials trained at once on this machine.")] = 1,
    workers_as: Annotated[
        str,
        typer.Option(
            help="auto, processes or threads; auto is threads on a GPU, else processes.",
        ),
    ] = "auto",
    dask: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Train on the workers of this Dask scheduler: its address or scheduler file.",
            show_default=False,
        ),
    ] = None,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
    **options: Any,
) -> None:
    """Search hyperparameters of the cache, or of the model, for the best validation metric.

    The first trial is the configuration as it is. A training option given as a flag is used in
    every trial and not searched. OUT/best.yaml is the best so far, from the first trial on:
    nscaching train --config OUT/best.yaml
    """
    given = {name: value for name, value in options.items() if value is not None}
    with terminate_as_interrupt():
        result = tune(
            data,
            out=out,
            base=base,
            labels=labels,
            resume=resume,
            overwrite=overwrite,
            workers=workers,
            workers_as=workers_as,
            dask=dask,
            progress=Progress("none" if quiet else "auto"),
            **given,
        )
    if as_json:
        print_json(result.as_dict())
    else:
        _show(result)


@functools.wraps(tune_command, assigned=())
def tune_nodes_command(*, resume: bool, **options: Any) -> None:
    """Search hyperparameters of the cache for embeddings of nodes.

    Trials are compared by micro-F1 on validation nodes, or by the AUC of held-out edges where nodes
    have no classes. An option given as a flag is used in every trial and not searched.
    OUT/best.yaml is the best so far: nscaching nodes train --config OUT/best.yaml
    """
    if not resume and options["space"] is None:
        options["space"] = NodeSearchOptions.space
    tune_command(resume=resume, **options)


def _show(result: SearchResult) -> None:
    console = stdout()
    names = result.searched
    metric = f"valid {result.metric.name}"
    made = table(f"{result.method}, {result.space}: trials", "", metric, "epochs", *names)
    for trial in result.trials:
        score = "failed" if trial.score is None else f"{trial.score:.4f}"
        cells = [_cell(trial.config.get(name, "–")) for name in names]
        mark = f"{trial.number} *" if trial is result.best else str(trial.number)
        made.add_row(mark, score, str(trial.epochs), *cells)
    console.print(made)
    if result.importance is not None:
        _show_importance(result.importance)
    else:
        console.print(f"\n{result.importance_note}", highlight=False, soft_wrap=True)
    settings = ", ".join(f"{name} {_cell(value)}" for name, value in result.best.config.items())
    for line in (
        f"\nBest: trial {result.best.number}, {metric} {result.best.score:.4f} with {settings}.",
        f"{len(result.trials)} trials, {result.epochs} epochs, {duration(result.seconds)}. "
        f"Train it: {result.objective.train_command} --config {result.folder.best}",
    ):
        console.print(line, highlight=False, soft_wrap=True)
    if result.gain is not None:
        console.print(_gain(result.gain, result.best.number), highlight=False, soft_wrap=True)
    if result.pictures:
        console.print(f"Pictures: {', '.join(result.pictures)}", highlight=False, soft_wrap=True)
    if result.report is not None:
        console.print(f"Report: {result.report}", highlight=False, soft_wrap=True)


def _show_importance(importance: Importance) -> None:
    title = (
        f"\nWhat mattered (surrogate of {importance.trials} trials, cross-validated R² "
        f"{importance.fit:.2f})"
    )
    made = table(title, "", "alone", "total")
    for effect in importance.effects:
        made.add_row(effect.name, f"{effect.alone:.2f}", f"{effect.total:.2f}")
    stdout().print(made)


def _gain(gain: Gain, best: int) -> str:
    low, high = gain.interval
    said = f"95 % interval of the best over valid facts: {low:.4f} to {high:.4f}"
    if best == 1:
        return f"{said}; the first trial, the default, is the best."
    noise = ", within noise" if gain.within_noise else ""
    return f"{said}; {gain.over_first:+.4f} over the first trial, the default{noise}."


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


command = with_option_flags(tune_command, SearchOptions, TrainConfig, leave_out=("data",))
nodes_command = with_option_flags(
    tune_nodes_command, NodeSearchOptions, NodeConfig, leave_out=("data",)
)
