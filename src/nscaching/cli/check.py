"""``nscaching check``: what of a folder is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.errors import shown
from nscaching.runs.check import check_folder


@friendly
def command(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, search or embedding.")],
    as_json: JsonFlag = False,
) -> None:
    """Read every file of a folder and say what is whole; exit code 1 where something is not."""
    found = check_folder(folder)
    if as_json:
        print_json(found.as_dict())
    else:
        console = stdout()
        written = f"nscaching {found.version}" if found.version else "nscaching 0.1.0"
        made = table(f"{folder}: {found.kind}, written by {shown(written)}", "", "", "")
        made.columns[2].justify, made.columns[2].no_wrap = "left", False
        for part in found.parts:
            made.add_row(part.name, part.state, part.remark)
        console.print(made)
        console.print("Everything is whole." if found.whole else "Something is damaged.")
    if not found.whole:
        raise typer.Exit(1)
