"""``nscaching report``: the page of a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Optional

import typer

from nscaching.cli.output import JsonFlag, QuietFlag, friendly, print_json, stdout
from nscaching.runs.api import load_run
from nscaching.training import Progress


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[
        Optional[Path],  # noqa: UP045 (typer reads this at run time on Python 3.10)
        typer.Option(help="File to write.", show_default="RUN/report.html"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a page about a run: curves, metrics, a map, the cache, predictions."""
    started = time.monotonic()
    path = load_run(run, device).report(out, progress=Progress("none" if quiet else "auto"))
    size, seconds = path.stat().st_size, time.monotonic() - started
    if as_json:
        print_json({"path": str(path), "bytes": size, "seconds": seconds})
    else:
        said = f"Report: {path} ({size / 1e3:,.0f} kB, {seconds:.1f} s)"
        stdout().print(said, highlight=False, soft_wrap=True)
