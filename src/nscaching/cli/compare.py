"""``nscaching compare``: all samplers under one budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.table import Table

from nscaching.cli.option_flags import with_option_flags
from nscaching.cli.output import (
    ConfigFlag,
    JsonFlag,
    QuietFlag,
    print_json,
    stdout,
    table,
    whole_numbers,
)
from nscaching.experiments.compare import Comparison, compare
from nscaching.training import Progress, TrainConfig
from nscaching.training.interrupt import terminate_as_interrupt


def compare_command(
    data: Annotated[
        Optional[str],  # noqa: UP045 (typer reads this at run time on Python 3.10)
        typer.Argument(help="A named data set, a folder with train/valid/test, or a file."),
    ] = None,
    samplers: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="Samplers with commas between them; options of one after colons, as in "
            "nscaching:alpha3=5:lazy=1. May be given several times.",
            show_default="all that go with the loss",
        ),
    ] = None,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Seeds with commas between them; several give mean and spread.",
            show_default="0; 0,1,2 for a graph of fewer than 20,000 training triples",
        ),
    ] = None,
    max_seconds: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            "--seconds",
            "--max-seconds",
            help="Budget of each run in seconds of training, to the end of an epoch; without "
            "--epochs there is no other.",
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the runs.", show_default="runs/compare-DATA-SCORING"),
    ] = None,
    config: ConfigFlag = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep what is finished in --out and do the rest.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the runs in --out.")
    ] = False,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
    **options: Any,
) -> None:
    """Train several samplers with the same options and budget; one table, one picture, one page."""
    given = {name: value for name, value in options.items() if value is not None}
    if max_seconds is not None:
        given["max_seconds"] = max_seconds
    with terminate_as_interrupt():
        comparison = compare(
            data,
            samplers,
            seeds=None if seeds is None else whole_numbers(seeds),
            out=out,
            config=config,
            resume=resume,
            overwrite=overwrite,
            progress=Progress("none" if quiet else "auto"),
            **given,
        )
    if as_json:
        print_json(comparison.as_dict())
    else:
        _show(comparison)
    if all(result.error is not None for result in comparison.runs):
        raise typer.Exit(1)


def _show(comparison: Comparison) -> None:
    console = stdout()
    title = f"{comparison.data or 'graph'}, {comparison.scoring}: test, best model on valid"
    made = table(title, "sampler", "MRR", "Hits@10", "accuracy", "s/epoch", "extra", "best")
    made.columns[0].overflow = "fold"
    for row in comparison.rows:
        if not row["runs"]:
            made.add_row(row["sampler"], "failed", *["–"] * 5)
            continue
        made.add_row(
            row["sampler"],
            _mean(row, "mrr", "{:.4f}"),
            _mean(row, "hits@10", "{:.4f}"),
            _mean(row, "accuracy", "{:.1%}"),
            "–" if row["seconds_per_epoch"] is None else f"{row['seconds_per_epoch']:.3f}",
            f"{row['extra_parameters']:,}",
            ", ".join(map(str, row["best_epoch"])),
        )
    console.print(made)
    if any(row["mrr_interval"] for row in comparison.rows):
        console.print(_intervals_table(comparison.rows))
    for row in comparison.rows:
        for error in row["errors"]:
            console.print(f"{row['sampler']} failed, {error}", highlight=False, soft_wrap=True)
    console.print("extra: parameters trained besides the model; best: epoch of the best model.")
    if len(comparison.seeds) > 1:
        seeds = ", ".join(map(str, comparison.seeds))
        console.print(f"Mean ± standard deviation over seeds {seeds}.", highlight=False)
    for remark in comparison.remarks:
        console.print(remark, highlight=False, soft_wrap=True)
    names = ("compare.json", comparison.picture, comparison.report)
    files = [comparison.out / name for name in names if name]
    console.print(f"Written: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)


def _intervals_table(rows: list[dict[str, Any]]) -> Table:
    made = table("\nMRR: 95 % intervals over test facts", "sampler", "interval", "to the best")
    made.columns[0].overflow = "fold"
    for row in (row for row in rows if row["mrr_interval"]):
        low, high = row["mrr_interval"]
        difference = row["difference"]
        shown = "best"
        if difference is not None:
            shown = f"{difference['mrr']:+.4f}"
            shown += ", within noise" if difference["within_noise"] else ""
        made.add_row(row["sampler"], f"{low:.4f} to {high:.4f}", shown)
    return made


def _mean(row: dict[str, Any], name: str, form: str) -> str:
    mean, spread = row[name], row[f"{name}_spread"]
    if mean is None:
        return "–"
    shown = form.format(mean)
    return shown if spread is None else f"{shown} ± {form.format(spread)}"


command = with_option_flags(
    compare_command, TrainConfig, leave_out=("data", "sampler", "seed", "max_seconds")
)
