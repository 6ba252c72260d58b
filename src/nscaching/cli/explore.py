"""``nscaching explore``: the explorer of a run, served or as a file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Optional

import typer

from nscaching.cli.output import friendly, stdout
from nscaching.runs.api import load_run


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    port: Annotated[
        Optional[int],  # noqa: UP045 (typer reads this at run time on Python 3.10)
        typer.Option(
            help="Port on 127.0.0.1.", show_default="8417, or a free one", min=0, max=65535
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the explorer as one HTML file instead of serving it."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Explore a run in the browser: find entities, ask, see a map, review new facts."""
    console = stdout()
    if out is not None:
        from nscaching.report.explorer import write_explorer
        from nscaching.training import Progress

        path = write_explorer(load_run(run, device), out, progress=Progress("auto"))
        size = path.stat().st_size / 1e6
        console.print(f"Explorer: {path} ({size:.1f} MB)", highlight=False, soft_wrap=True)
        return
    from nscaching.report.server import PORT, bound_socket, serve

    loaded = load_run(run, device)
    listening = bound_socket(port)
    used = listening.getsockname()[1]
    address = f"http://127.0.0.1:{used}/"
    console.print(f"Explore the run at {address} (Ctrl+C stops it).", highlight=False)
    if port is None and used != PORT:
        console.print(
            f"Port {PORT} is taken. A browser keeps answers of a review per port: give --port to "
            "come back to them.",
            highlight=False,
        )
    if browser:
        webbrowser.open(address)
    serve(loaded, listening)
