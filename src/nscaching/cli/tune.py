"""``nscaching tune`` and ``nodes tune``: search hyperparameters; options are flags."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

from nscaching.cli import flags
from nscaching.cli.flags import flag, with_option_flags
from nscaching.cli.output import print_json, say, table
from nscaching.experiments.tune import SearchResult, tune
from nscaching.experiments.tune.result import Gain, Importance
from nscaching.experiments.tune.space import NodeSearchOptions, SearchOptions
from nscaching.nodes import NodeConfig
from nscaching.training import Progress, TrainConfig
from nscaching.training.progress import duration


def _tune(
    data: flags.Data = None,
    out: Annotated[Path | None, flag("Folder of the search.", default="runs/DATA-tune")] = None,
    base: Annotated[
        Path | None,
        flag(
            "Run folder or YAML file with the options that are not searched; flags win.",
            default="the defaults",
        ),
    ] = None,
    labels: Annotated[
        Path | None, flag("For node embedding: file with one node and its class per line.")
    ] = None,
    resume: flags.Resume = False,
    overwrite: flags.Overwrite = False,
    workers: Annotated[int, flag("Trials trained at once on this machine.")] = 1,
    workers_as: Annotated[
        str, flag("auto, processes or threads; auto is threads on a GPU, else processes.")
    ] = "auto",
    dask: Annotated[
        str | None,
        flag(
            "Train on the workers of this Dask scheduler: its address or scheduler file.",
            default=False,
        ),
    ] = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
    **options: Any,
) -> None:
    """Search hyperparameters of the recipe, or of the cache, for the best validation metric.

    The first trial is what train would make of the same flags, without any the recipe that fits the
    graph. A training option given as a flag is used in every trial and not searched. OUT/best.yaml
    is the best so far, from the first trial on: nscaching train --config OUT/best.yaml
    """
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
        **options,
    )
    print_json(result.as_dict()) if as_json else _show(result)


def _tune_nodes(*, resume: bool, **options: Any) -> None:
    """Search hyperparameters of the cache for embeddings of nodes.

    Trials are compared by micro-F1 on validation nodes, or by the AUC of held-out edges where nodes
    have no classes. An option given as a flag is used in every trial and not searched.
    OUT/best.yaml is the best so far: nscaching nodes train --config OUT/best.yaml
    """
    if not resume:
        options.setdefault("space", NodeSearchOptions.space)
    _tune(resume=resume, **options)


def _show(result: SearchResult) -> None:
    best, metric = result.best, f"valid {result.metric.name}"
    rows = []
    for trial in result.trials:
        score = "failed" if trial.score is None else f"{trial.score:.4f}"
        cells = [_cell(trial.config.get(name, "–")) for name in result.searched]
        mark = f"{trial.number} *" if trial is best else str(trial.number)
        rows.append((mark, score, str(trial.epochs), *cells))
    title = f"{result.method}, {result.space}: trials"
    say(table(title, ("", metric, "epochs", *result.searched), rows))
    if result.importance is not None:
        say(_importance_table(result.importance))
    else:
        say(f"\n{result.importance_note}")
    settings = ", ".join(f"{name} {_cell(value)}" for name, value in best.config.items())
    say(
        f"\nBest: trial {best.number}, {metric} {best.score:.4f} with {settings}.",
        f"{len(result.trials)} trials, {result.epochs} epochs, {duration(result.seconds)}. "
        f"Train it: {result.objective.train_command} --config {result.folder.best}",
    )
    if result.gain is not None:
        say(_gain(result.gain, best.number))
    if result.pictures:
        say(f"Pictures: {', '.join(result.pictures)}")
    if result.report is not None:
        say(f"Report: {result.report}")


def _importance_table(importance: Importance) -> Any:
    title = (
        f"\nWhat mattered (surrogate of {importance.trials} trials, cross-validated R² "
        f"{importance.fit:.2f})"
    )
    rows = ((each.name, f"{each.alone:.2f}", f"{each.total:.2f}") for each in importance.effects)
    return table(title, ("", "alone", "total"), rows)


def _gain(gain: Gain, best: int) -> str:
    low, high = gain.interval
    said = f"95 % interval of the best over valid facts: {low:.4f} to {high:.4f}"
    if best == 1:
        return f"{said}; the first trial, the default, is the best."
    noise = ", within noise" if gain.within_noise else ""
    return f"{said}; {gain.over_first:+.4f} over the first trial, the default{noise}."


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_tune_nodes.__signature__ = inspect.signature(_tune, eval_str=True)  # type: ignore[attr-defined]
tune_command = with_option_flags(SearchOptions, TrainConfig, leave_out=("data",))(_tune)
tune_nodes_command = with_option_flags(NodeSearchOptions, NodeConfig, leave_out=("data",))(
    _tune_nodes
)
