"""``nscaching check``, ``explore``, ``export``, ``report``, ``update``: thin commands on a run."""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from nscaching.cli import flags
from nscaching.cli.flags import argument, flag
from nscaching.cli.output import friendly, print_json, say, table
from nscaching.errors import shown
from nscaching.runs.api import load_run
from nscaching.runs.check import check_folder
from nscaching.training import Progress


@friendly
def check_command(
    folder: Annotated[Path, argument("Folder of a run, search or embedding.")],
    as_json: flags.Json = False,
) -> None:
    """Read every file of a folder and say what is whole; exit code 1 where something is not."""
    found = check_folder(folder)
    if as_json:
        print_json(found.as_dict())
    else:
        written = f"nscaching {found.version}" if found.version else "nscaching 0.1.0"
        title = f"{folder}: {found.kind}, written by {shown(written)}"
        rows = [(part.name, part.state, part.remark) for part in found.parts]
        ending = "Everything is whole." if found.whole else "Something is damaged."
        say(table(title, ("", "", ""), rows, texts=(0, 2)), ending)
    if not found.whole:
        raise typer.Exit(1)


@friendly
def explore_command(
    run: flags.Run,
    port: Annotated[
        int | None, flag("Port on 127.0.0.1.", default="8417, or a free one", min=0, max=65535)
    ] = None,
    out: Annotated[
        Path | None, flag("Write the explorer as one HTML file instead of serving it.")
    ] = None,
    browser: Annotated[
        bool, flag("Open the page in the browser.", "--browser/--no-browser")
    ] = True,
    device: flags.Device = "auto",
) -> None:
    """Explore a run in the browser: find entities, ask, see a map, review new facts."""
    if out is not None:
        from nscaching.report.explorer import write_explorer

        path = write_explorer(load_run(run, device), out, progress=Progress("auto"))
        say(f"Explorer: {path} ({path.stat().st_size / 1e6:.1f} MB)")
        return
    from nscaching.report.server import PORT, bound_socket, serve

    loaded = load_run(run, device)
    listening = bound_socket(port)
    used = listening.getsockname()[1]
    address = f"http://127.0.0.1:{used}/"
    say(f"Explore the run at {address} (Ctrl+C stops it).")
    if port is None and used != PORT:
        say(
            f"Port {PORT} is taken. A browser keeps answers of a review per port: give --port to "
            "come back to them."
        )
    if browser:
        webbrowser.open(address)
    serve(loaded, listening)


@friendly
def export_command(
    run: flags.Run,
    to: flags.ExportFile,
    what: Annotated[str, flag("entity or relation.")] = "entity",
    format: flags.Format = "auto",
    as_json: flags.Json = False,
) -> None:
    """Write the embeddings of a run with their names."""
    files = [str(path) for path in load_run(run, "cpu").export(to, what, format)]
    print_json({"files": files}) if as_json else say("Wrote " + " and ".join(files))


@friendly
def report_command(
    run: flags.Run,
    out: Annotated[Path | None, flag("File to write.", default="RUN/report.html")] = None,
    device: flags.Device = "auto",
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Write a page about a run: curves, metrics, a map, the cache, predictions."""
    started = time.monotonic()
    path = load_run(run, device).report(out, progress=Progress("none" if quiet else "auto"))
    size, seconds = path.stat().st_size, time.monotonic() - started
    if as_json:
        print_json({"path": str(path), "bytes": size, "seconds": seconds})
    else:
        say(f"Report: {path} ({size / 1e3:,.0f} kB, {seconds:.1f} s)")


@friendly
def update_command(
    run: Annotated[Path, argument("Run folder; it stays as it is.")],
    facts: Annotated[
        Path | None, flag("File of new triples; entities and relations in it may be new.")
    ] = None,
    accept: Annotated[Path | None, flag("File of discovered triples that are true.")] = None,
    reject: Annotated[
        Path | None, flag("File of discovered triples that are false: never offered again.")
    ] = None,
    out: Annotated[Path | None, flag("Folder of the new run.", default="RUN-updated")] = None,
    epochs: Annotated[
        int | None, flag("Epochs of training.", default="half of the run's", min=1)
    ] = None,
    overwrite: flags.Overwrite = False,
    device: flags.Device = "auto",
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Make a new run that has learnt new facts, accepted ones and rejected ones."""
    loaded = load_run(run, device)
    folder = out or run.resolve().with_name(f"{run.resolve().name}-updated")
    updated = loaded.update(
        facts,
        accept=accept,
        reject=reject,
        out=folder,
        epochs=epochs,
        overwrite=overwrite,
        progress=Progress("none" if quiet or as_json else "auto"),
    )
    if as_json:
        print_json({**updated.summary, "rejected": len(updated.rejected)})
        return
    triples = len(updated.graph.train) - len(loaded.graph.train)
    new = updated.graph.num_entities - loaded.graph.num_entities
    say(
        f"{folder}: {triples:+,} training triples, {new:+,} entities, "
        f"{len(updated.rejected):,} rejected facts."
    )
