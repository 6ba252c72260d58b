"""``nscaching reproduce``: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nscaching.cli import flags
from nscaching.cli.flags import argument, flag, whole_numbers
from nscaching.cli.output import friendly, print_json, say, table
from nscaching.errors import UserError
from nscaching.experiments.paper import Reproduction, definitions, reproduce
from nscaching.experiments.paper.plan import MISSING, Request
from nscaching.experiments.paper.results import Beside, beside, cell_of, same_cell
from nscaching.experiments.runner import DONE
from nscaching.training import Progress
from nscaching.training.progress import duration

_Names = list[str] | None


@friendly
def reproduce_command(
    name: Annotated[
        str | None, argument("A table or figure, such as table-7; --list names them all.")
    ] = None,
    show_list: Annotated[bool, flag("Name the tables and figures there are.", "--list")] = False,
    dataset: Annotated[_Names, flag("Only this data set; repeatable.")] = None,
    scoring: Annotated[_Names, flag("Only this scoring function; repeatable.")] = None,
    sampler: Annotated[_Names, flag("Only this sampler; repeatable.")] = None,
    mode: Annotated[_Names, flag("Only scratch, pretrain, pretrained or auto; repeatable.")] = None,
    seeds: Annotated[
        str | None,
        flag("Seeds with commas between them.", default="0, and 0,1,2 with --tries"),
    ] = None,
    tries: Annotated[
        int | None,
        flag(
            "Equal care: every cell tries so many settings of the paper's grid, whatever its "
            "sampler, compared on valid by the measure of the table; the best is run with every "
            "seed. By default cells have the settings of the package.",
            min=1,
        ),
    ] = None,
    workers: Annotated[int, flag("Cells that are trained at once.", min=1)] = 1,
    out: Annotated[
        Path | None,
        flag(
            "Folder of the results, the runs go to runs/ in it; with --report the page.",
            default="runs/paper",
        ),
    ] = None,
    report: Annotated[
        Path | None, flag("Write a page from the results in this folder; run nothing.")
    ] = None,
    budget: Annotated[int | None, flag("Epochs of a run at most, for a smoke run.", min=1)] = None,
    trials: Annotated[int | None, flag("Trials of a search.", min=1, default="50")] = None,
    on: Annotated[
        str | None,
        flag(
            "Use this graph in place of the data sets: world, a folder, or shape/100 for a "
            "random graph of a hundredth of their size."
        ),
    ] = None,
    device: Annotated[str, flag("Where to train: auto, cpu, cuda or mps.")] = "auto",
    dry_run: Annotated[
        bool, flag("Only say which cells there are and how long it takes.", "--dry-run")
    ] = False,
    finished: Annotated[
        bool, flag("Run nothing: show and draw what is finished.", "--finished")
    ] = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Reproduce a table or figure of the paper: our numbers beside the paper's."""
    if show_list:
        _show_list(as_json)
        return
    if report is not None:
        from nscaching.experiments.paper.pages import write_report

        page = write_report(report, out or Path("reproduction.md"))
        print_json({"page": str(page)}) if as_json else say(f"Wrote {page}")
        return
    if name is None:
        raise UserError("Name a table or figure, such as table-7; --list names them all.")
    request = Request(
        out=out or Path("runs/paper"),
        datasets=dataset or (),
        scoring=scoring or (),
        samplers=sampler or (),
        modes=mode or (),
        seeds=whole_numbers(seeds or ("0" if tries is None else "0,1,2")),
        budget=budget,
        trials=trials,
        tries=tries,
        workers=workers,
        device=device,
        on=on,
    )
    shown = Progress("none" if quiet else "auto")
    made = reproduce(name, request, dry_run=dry_run, finished=finished, progress=shown)
    _end(made, as_json, dry_run)


def _end(made: Reproduction, as_json: bool, dry_run: bool) -> None:
    """Show what was found; the code is 1 where nothing was."""
    if as_json:
        print_json(made.as_dict())
    elif dry_run:
        _show_plan(made)
    else:
        _show(made)
    if made.rows and all(row["error"] for row in made.rows):
        raise typer.Exit(1)


def _show_list(as_json: bool) -> None:
    items = [each.as_dict() for each in definitions().values()]
    if as_json:
        print_json({"items": items})
        return
    rows = (
        (f"{item['name']}: {item['title']}", item["label"], str(item["cells"])) for item in items
    )
    columns = ("name", "in the paper", "cells")
    say(table("The paper's tables and figures", columns, rows, texts=(0, 1)))


def _show_plan(made: Reproduction) -> None:
    rows = []
    for planned in made.plan:
        time = duration(planned.seconds) if planned.seconds else "–"
        rows.append((planned.title, planned.state, time))
    states = {planned.state for planned in made.plan}
    if states == {MISSING}:
        said = "Nothing can be run without the data; see 'nscaching datasets list'."
    elif states <= {DONE, MISSING}:
        said = "Nothing is left to run."
    else:
        said = f"About {duration(made.expected_seconds)} in all{made.caveat}."
    title = f"{made.definition.name}: {made.definition.title}"
    say(table(title, ("cell", "state", "time"), rows), said)


def _show(made: Reproduction) -> None:
    draw = made.definition.draw
    compared = [(group[0], beside(draw, group)) for group in same_cell(made.rows)]
    names = list(dict.fromkeys(each.measure for _, found in compared for each in found))
    rows = []
    for row, found in compared:
        by_name = {each.measure: each for each in found}
        where = " ".join(filter(None, (row["dataset"], row["scoring"], cell_of(row).label)))
        if row["error"] and not found:
            where += ": no data" if row["missing"] else ": failed"
        rows.append((where, *(_cell(by_name.get(name)) for name in names)))
    title = f"{made.definition.name}: {made.definition.title} (the paper's in brackets)"
    listed = table(title, ("cell", *names), rows)
    for column in listed.columns[1:]:  # many metrics: rather two lines per number than no name
        column.no_wrap = False
    listed.columns[0].min_width = 20
    say(listed)
    say(*dict.fromkeys(f"{row['dataset']}: {row['error']}" for row in made.rows if row["error"]))
    if made.file is not None:
        say(f"Written: {', '.join(map(str, (made.file, *made.pictures)))}")


def _cell(each: Beside | None) -> str:
    if each is None:
        return "–"
    return f"{each.ours:.4f}" + ("" if each.paper is None else f" ({each.paper:.4f})")
