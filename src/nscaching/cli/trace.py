"""``nscaching trace``: what happened inside a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from nscaching.cli import flags
from nscaching.cli.flags import argument, flag, with_option_flags
from nscaching.cli.output import print_json, say, table
from nscaching.cli.train import resumable
from nscaching.errors import UserError
from nscaching.report.markup import thinned
from nscaching.runs.api import make_config, make_trainer
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.folder import default_out
from nscaching.training.tracing.snapshots import Line

#: Counters of an epoch, with the head of their column and how a number is shown.
_COLUMNS = {
    "nonzero_loss": ("with loss", "{:.1%}"),
    "repeated": ("repeated", "{:.2%}"),
    "gradient_norm": ("gradient", "{:.3g}"),
    "false_sampled": ("false, sampled", "{:.4%}"),
    "false_cached": ("false, cache", "{:.4%}"),
    "known_sampled": ("known, sampled", "{:.4%}"),
    "known_cached": ("known, cache", "{:.4%}"),
    "recall": ("recall", "{:.1%}"),
}
#: Epochs shown of a long run.
_MOST_EPOCHS = 20


@with_option_flags(TrainConfig, leave_out=("data", "trace", "trace_row", "trace_triple"))
def trace_command(
    run: Annotated[str, argument("Run folder; or data to train on first, with options of train.")],
    row: Annotated[
        list[str] | None, flag("Show this cache row: 'HEAD|RELATION|?' or '?|RELATION|TAIL'.")
    ] = None,
    triple: Annotated[
        list[str] | None, flag("Show gradient norms over all negatives of 'HEAD|RELATION|TAIL'.")
    ] = None,
    plot: Annotated[
        Path | None, flag("Draw the counters and gradient norms into this SVG file.")
    ] = None,
    out: Annotated[
        Path | None, flag("Where a run trained here goes.", default="runs/...-trace")
    ] = None,
    overwrite: flags.Overwrite = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
    **options: Any,
) -> None:
    """Show what a run did with its negatives: counters per epoch, and cache rows over the epochs.

    'nscaching trace RUN' reads a run trained with --trace; 'nscaching trace DATA' trains one.
    """
    folder = RunFolder(run)
    if folder.is_run():
        if options:
            raise UserError(
                f"{run} is a run already, so {', '.join(options)} cannot change it; name data to "
                "train on, or drop the options of training."
            )
    else:
        options |= {"trace": True, "trace_row": row or (), "trace_triple": triple or ()}
        folder = _train(run, options, out, overwrite, Progress("none" if quiet else "auto"))
    lines = _chosen(folder, row or [], triple or [])
    if plot is not None:
        from nscaching.report.pictures import draw_trace

        draw_trace(lines, plot)
    if as_json:
        print_json({"run": str(folder.path), **_by_event(lines)})
    else:
        _show(lines)


def _train(
    data: str, options: dict[str, Any], out: Path | None, overwrite: bool, progress: Progress
) -> RunFolder:
    """Train and trace; the test split is not looked at."""
    if out is None:
        plain = default_out(make_config(data, options))
        out = plain.with_name(f"{plain.name}-trace")
    with resumable(out):
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


def _by_event(lines: list[Line]) -> dict[str, list[Line]]:
    names = {"epochs": "epoch", "rows": "row", "gradients": "gradients"}
    return {
        name: [
            {key: value for key, value in line.items() if key != "event"}
            for line in lines
            if line["event"] == event
        ]
        for name, event in names.items()
    }


def _show(lines: list[Line]) -> None:
    parts = _by_event(lines)
    say(_counters_table(thinned(parts["epochs"], _MOST_EPOCHS)))
    for name in dict.fromkeys(line["row"] for line in parts["rows"]):
        say(_row_table(name, [line for line in parts["rows"] if line["row"] == name]))
    if parts["gradients"]:
        say(_norms_table(parts["gradients"]))


def _counters_table(epochs: list[Line]) -> Table:
    columns = {
        name: column
        for name, column in _COLUMNS.items()
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
