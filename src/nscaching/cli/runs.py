"""Thin commands on a run or on this machine: check, explore, export, report, update, benchmark."""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from nscaching.artefacts import MARKER
from nscaching.artefacts.outputs import check_embeddings, check_page
from nscaching.cli.command import (
    Device,
    ExportFile,
    Format,
    Output,
    Overwrite,
    Part,
    Quiet,
    RunPath,
    argument,
    command,
    flag,
    table,
)
from nscaching.errors import plural, shown
from nscaching.extras import EXTRAS
from nscaching.runs.api import load_run, make_config
from nscaching.runs.checks import SEVERAL, Found, check_folder, examine
from nscaching.training import Progress, TrainConfig
from nscaching.training.benchmarking import describe_machine, time_run
from nscaching.training.devices import pick_device
from nscaching.training.opening import open_graph, verified

#: New names that an update lists.
_NEW_NAMES = 10


@command()
def check_command(
    folder: Path = argument(..., "Folder of a run, search or embedding."),
) -> Output:
    """Read every file of a folder and say what is whole; exit code 1 where something is not."""
    found = check_folder(folder)
    title = f"{folder}: {found.kind}"
    spoiled = any(part.name == MARKER and part.state == "damaged" for part in found.parts)
    if found.kind != SEVERAL and not spoiled:  # anybody may have made that; the marker says who
        title += f", written by nscaching {shown(found.version or '0.1.0')}"
    rows = [(part.name, part.state, part.remark) for part in found.parts]
    ending = "Everything is whole." if found.whole else "Something is damaged."
    listed = table(title, ("", "", ""), rows, texts=(0, 2))
    return Output(found.as_dict(), [listed, ending], code=0 if found.whole else 1)


@command()
def explore_command(
    run: RunPath,
    port: int | None = flag(
        None, "Port on 127.0.0.1.", shown="8417, or a free one", min=0, max=65535
    ),
    out: Path | None = flag(None, "Write the explorer as one HTML file instead of serving it."),
    browser: bool = flag(True, "Open the page in the browser.", "--browser/--no-browser"),
    device: Device = "auto",
) -> Output:
    """Explore a run in the browser: find entities, ask, see a map, review new facts."""
    if out is not None:
        from nscaching.report.explorer import write_explorer

        check_page(out)
        started = time.monotonic()
        path = write_explorer(load_run(run, device), out, progress=Progress("auto"))
        size, seconds = path.stat().st_size, time.monotonic() - started
        value = {"path": str(path), "bytes": size, "seconds": seconds}
        return Output(value, [f"Explorer: {path} ({size / 1e6:.1f} MB)"])
    from nscaching.report.server import PORT, bound_socket, serve

    loaded = load_run(run, device)
    listening = bound_socket(port)
    used = listening.getsockname()[1]
    address = f"http://127.0.0.1:{used}/"
    said = [f"Explore the run at {address} (Ctrl+C stops it)."]
    if port is None and used != PORT:
        said.append(
            f"Port {PORT} is taken. A browser keeps answers of a review per port: give --port to "
            "come back to them."
        )

    def open_and_serve() -> None:
        if browser:
            webbrowser.open(address)
        serve(loaded, listening)

    return Output({"address": address}, said, then=open_and_serve)


@command()
def export_command(
    run: RunPath,
    to: ExportFile,
    what: str = flag("entity", "entity or relation."),
    format: Format = "auto",
) -> Output:
    """Write the embeddings of a run with their names."""
    check_embeddings(to, format)
    files = [str(path) for path in load_run(run, "cpu").export(to, what, format)]
    return Output({"files": files}, [f"Wrote {' and '.join(files)}"])


@command()
def report_command(
    run: RunPath,
    out: Path | None = flag(None, "File to write.", shown="RUN/report.html"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> Output:
    """Write a page about a run: curves, metrics, a map, the cache, predictions."""
    if out is not None:
        from nscaching.report.run_page import explorer_beside

        check_page(out)
        check_page(explorer_beside(out))
    started = time.monotonic()
    path = load_run(run, device).report(out, progress=Progress("none" if quiet else "auto"))
    size, seconds = path.stat().st_size, time.monotonic() - started
    said = f"Report: {path} ({size / 1e3:,.0f} kB, {seconds:.1f} s)"
    return Output({"path": str(path), "bytes": size, "seconds": seconds}, [said])


@command()
def update_command(
    run: Path = argument(..., "Run folder; it stays as it is."),
    facts: Path | None = flag(
        None, "File of new triples; entities and relations in it may be new."
    ),
    accept: Path | None = flag(None, "File of discovered triples that are true."),
    reject: Path | None = flag(
        None, "File of discovered triples that are false: never offered again."
    ),
    out: Path | None = flag(None, "Folder of the new run.", shown="RUN-updated"),
    epochs: int | None = flag(None, "Epochs of training.", shown="half of the run's", min=1),
    overwrite: Overwrite = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> Output:
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
        progress=Progress("none" if quiet else "auto"),
    )
    triples = len(updated.graph.train) - len(loaded.graph.train)
    new = updated.graph.num_entities - loaded.graph.num_entities
    rejected = len(updated.rejected)
    said = (
        plural(triples, "training triple", form="+,"),
        plural(new, "entity", "entities", form="+,"),
        plural(rejected, "rejected fact"),
    )
    names = {
        "entities": updated.graph.entities[loaded.graph.num_entities :],
        "relations": updated.graph.relations[loaded.graph.num_relations :],
    }
    remarks = [_new_names(kind, listed) for kind, listed in names.items() if listed]
    return Output(
        {**updated.summary, "rejected": rejected}, [f"{folder}: {', '.join(said)}.", *remarks]
    )


def _new_names(kind: str, names: Sequence[str]) -> str:
    """List names that an update brought: a misspelt one is new too."""
    more = f" and {len(names) - _NEW_NAMES:,} more" if len(names) > _NEW_NAMES else ""
    return f"New {kind}: {', '.join(map(shown, names[:_NEW_NAMES]))}{more}."


# This machine ------------------------------------------------------------------------------------


@command()
def benchmark_command(
    data: str = argument("world", "A named data set, a folder or a file."),
    scoring: str = flag("simple", "Scoring function."),
    sampler: str = flag("nscaching", "Negative sampler."),
    dim: int = flag(100, "Dimension."),
    margin: float = flag(TrainConfig.margin, "Margin of the loss, where it has one."),
    batch_size: int = flag(1024, "Positive triples per step."),
    cache_size: int = flag(50, "N1."),
    candidates: int = flag(50, "N2."),
    epochs: int = flag(3, "Epochs to time.", min=1),
    device: Device = "auto",
) -> Output:
    """Time a warm training step, an epoch and the evaluation of the test split."""
    model = {"scoring": scoring, "sampler": sampler, "dim": dim, "margin": margin}
    cache = {"cache_size": cache_size, "candidates": candidates}
    config = make_config(data, {**model, **cache, "batch_size": batch_size, "device": device})
    timing = time_run(verified(open_graph(config)), config, epochs=epochs)
    machine = describe_machine(str(pick_device(device)))
    rows = [
        ("per step", f"{1e3 * timing.step_seconds:.3f} ms"),
        ("per epoch", f"{timing.epoch_seconds:.3f} s"),
        ("evaluation of test", f"{timing.evaluation_seconds:.3f} s"),
        ("start and compilation", f"{timing.compile_seconds:.1f} s"),
    ]
    title = f"{data}, {scoring}, {sampler}, d {dim}, batch {batch_size}"
    processor = machine["gpu"] or f"{machine['processor']}, {machine['threads']} threads"
    value = {"machine": machine, "options": config.as_dict(), **timing.as_dict()}
    return Output(value, [table(title, ("", ""), rows), f"on {processor}"])


@command()
def doctor_command() -> Output:
    """Say what this machine has, which extras are here, and what would make it faster."""
    found = examine()
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    for line in _lines(found):
        made.add_row(*line)
    parts: list[Part] = [made]
    if missing := [EXTRAS[name] for name, there in found["extras"].items() if not there]:
        rows = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
        for extra in missing:
            rows.add_row(f"  {extra.command}", extra.purpose)
        parts += ["\nNot installed, with what each is for:", rows]
    parts.append("\nWhat would make it faster" if found["advice"] else "\nNothing to improve.")
    return Output(found, [*parts, *(f"- {sentence}" for sentence in found["advice"])])


def _lines(found: Found) -> list[tuple[str, str]]:
    processor, kernels, gpu = found["processor"], found["kernels"], found["gpu"]
    memory = f", {processor['memory_gb']:g} GB of memory" if processor["memory_gb"] else ""
    load = f", load {processor['load']:g}" if processor["load"] is not None else ""
    compiled = "compiled and kept" if kernels["compiled"] else "compiled in the first run"
    card = f"{gpu['name']} by {gpu['usable']}" if gpu["usable"] else "none that torch can use"
    if gpu["memory_gb"]:
        card += f", {gpu['memory_gb']:g} GB"
    triton = "Triton" if gpu["triton"] else "no Triton"
    versions = found["versions"]
    listed = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "system")
    return [
        ("versions", listed.replace("None", "(none)")),
        ("system", versions["system"] or ""),
        ("processor", f"{processor['cores']} cores, {processor['threads']} threads{load}{memory}"),
        *((name, f"{value} (set by you)") for name, value in processor["variables"].items()),
        ("kernels", f"Numba, {compiled}" if kernels["numba"] else "off: plain torch"),
        ("GPU", f"{card}; {triton}, compiler {gpu['compiler'] or 'none'}"),
        ("extras", ", ".join(name for name, there in found["extras"].items() if there) or "none"),
        ("data sets", ", ".join(found["datasets"])),
    ]
