"""``nscaching reproduce``: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nscaching.cli.command import (
    Output,
    Part,
    Quiet,
    argument,
    command,
    flag,
    table,
    whole_numbers,
)
from nscaching.errors import UserError
from nscaching.experiments.paper import Reproduction, definitions, reproduce
from nscaching.experiments.paper.plan import MISSING, Request
from nscaching.experiments.paper.results import Beside, cell_of, compared
from nscaching.experiments.runner import DONE
from nscaching.training import Progress
from nscaching.training.progress import duration


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
        return _list()
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


def _list() -> Output:
    items = [each.as_dict() for each in definitions().values()]
    rows = (
        (f"{item['name']}: {item['title']}", item["label"], str(item["cells"])) for item in items
    )
    columns = ("name", "in the paper", "cells")
    listed = table("The paper's tables and figures", columns, rows, texts=(0, 1))
    return Output({"items": items}, [listed])


def _planned(made: Reproduction) -> list[Part]:
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
    return [table(title, ("cell", "state", "time"), rows), said]


def _reproduced(made: Reproduction) -> list[Part]:
    names, groups = compared(made.definition.draw, made.rows)
    rows = []
    for (row, *_), found in groups:
        where = " ".join(filter(None, (row["dataset"], row["scoring"], cell_of(row).label)))
        if row["error"] and not found:
            where += ": no data" if row["missing"] else ": failed"
        rows.append((where, *(_cell(found.get(name)) for name in names)))
    title = f"{made.definition.name}: {made.definition.title} (the paper's in brackets)"
    listed = table(title, ("cell", *names), rows)
    for column in listed.columns[1:]:  # many metrics: rather two lines per number than no name
        column.no_wrap = False
    listed.columns[0].min_width = 20
    errors = dict.fromkeys(f"{row['dataset']}: {row['error']}" for row in made.rows if row["error"])
    parts: list[Part] = [listed, *errors]
    if made.file is not None:
        parts.append(f"Written: {', '.join(map(str, (made.file, *made.pictures)))}")
    return parts


def _cell(each: Beside | None) -> str:
    if each is None:
        return "–"
    return f"{each.ours:.4f}" + ("" if each.paper is None else f" ({each.paper:.4f})")
