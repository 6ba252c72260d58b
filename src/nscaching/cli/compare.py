"""``nscaching compare``: all samplers under one budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nscaching.cli import flags
from nscaching.cli.flags import flag, whole_numbers, with_option_flags
from nscaching.cli.output import print_json, say, table
from nscaching.experiments.compare import Comparison, compare
from nscaching.training import Progress, TrainConfig


@with_option_flags(TrainConfig, leave_out=("data", "sampler", "seed", "max_seconds"))
def compare_command(
    data: flags.Data = None,
    samplers: Annotated[
        list[str] | None,
        flag(
            "Samplers with commas between them; options of one after colons, as in "
            "nscaching:alpha3=5:lazy=1. May be given several times.",
            default="all that go with the loss",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        flag(
            "Seeds with commas between them; several give mean and spread.",
            default="0; 0,1,2 for a graph of fewer than 20,000 training triples",
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        flag(
            "Budget of each run in seconds of training, to the end of an epoch; without "
            "--epochs there is no other.",
            "--seconds",
            "--max-seconds",
        ),
    ] = None,
    out: Annotated[
        Path | None, flag("Folder of the runs.", default="runs/compare-DATA-SCORING")
    ] = None,
    config: flags.Config = None,
    resume: flags.Resume = False,
    overwrite: flags.Overwrite = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
    **options: Any,
) -> None:
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
        progress=Progress("none" if quiet else "auto"),
        **options,
    )
    print_json(comparison.as_dict()) if as_json else _show(comparison)
    if all(result.error is not None for result in comparison.runs):
        raise typer.Exit(1)


def _show(comparison: Comparison) -> None:
    rows = comparison.rows
    title = f"{comparison.data or 'graph'}, {comparison.scoring}: test, best model on valid"
    columns = ("sampler", "MRR", "Hits@10", "accuracy", "s/epoch", "extra", "best")
    made = [table(title, columns, map(_cells, rows))]
    with_interval = [_interval(row) for row in rows if row["mrr_interval"]]
    if with_interval:
        title = "\nMRR: 95 % intervals over test facts"
        made.append(table(title, ("sampler", "interval", "to the best"), with_interval))
    for each in made:
        each.columns[0].overflow = "fold"
    say(*made)
    say(*(f"{row['sampler']} failed, {error}" for row in rows for error in row["errors"]))
    say("extra: parameters trained besides the model; best: epoch of the best model.")
    if len(comparison.seeds) > 1:
        seeds = ", ".join(map(str, comparison.seeds))
        say(f"Mean ± standard deviation over seeds {seeds}.")
    names = ("compare.json", comparison.picture, comparison.report)
    files = ", ".join(str(comparison.out / name) for name in names if name)
    say(*comparison.remarks, f"Written: {files}")


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["runs"]:
        return [row["sampler"], "failed", *["–"] * 5]
    return [
        row["sampler"],
        _mean(row, "mrr", "{:.4f}"),
        _mean(row, "hits@10", "{:.4f}"),
        _mean(row, "accuracy", "{:.1%}"),
        "–" if row["seconds_per_epoch"] is None else f"{row['seconds_per_epoch']:.3f}",
        f"{row['extra_parameters']:,}",
        ", ".join(map(str, row["best_epoch"])),
    ]


def _interval(row: dict[str, Any]) -> list[str]:
    (low, high), difference = row["mrr_interval"], row["difference"]
    shown = "best"
    if difference is not None:
        noise = ", within noise" if difference["within_noise"] else ""
        shown = f"{difference['mrr']:+.4f}{noise}"
    return [row["sampler"], f"{low:.4f} to {high:.4f}", shown]


def _mean(row: dict[str, Any], name: str, form: str) -> str:
    mean, spread = row[name], row[f"{name}_spread"]
    if mean is None:
        return "–"
    return form.format(mean) + ("" if spread is None else f" ± {form.format(spread)}")
