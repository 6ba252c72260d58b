"""``nscaching benchmark`` and ``doctor``: what this machine has, and how fast it is."""

from __future__ import annotations

from typing import Annotated

from rich.table import Table

from nscaching.cli import flags
from nscaching.cli.flags import argument, flag
from nscaching.cli.output import friendly, print_json, say, table
from nscaching.runs.api import make_config
from nscaching.runs.doctor import Examination, examine, missing_extras
from nscaching.training import TrainConfig
from nscaching.training.benchmarking import describe_machine, time_run
from nscaching.training.devices import pick_device
from nscaching.training.opening import open_graph


@friendly
def benchmark_command(
    data: Annotated[str, argument("A named data set, a folder or a file.")] = "world",
    scoring: Annotated[str, flag("Scoring function.")] = "simple",
    sampler: Annotated[str, flag("Negative sampler.")] = "nscaching",
    dim: Annotated[int, flag("Dimension.")] = 100,
    margin: Annotated[float, flag("Margin of the loss, where it has one.")] = TrainConfig.margin,
    batch_size: Annotated[int, flag("Positive triples per step.")] = 1024,
    cache_size: Annotated[int, flag("N1.")] = 50,
    candidates: Annotated[int, flag("N2.")] = 50,
    epochs: Annotated[int, flag("Epochs to time.", min=1)] = 3,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Time a warm training step, an epoch and the evaluation of the test split."""
    model = {"scoring": scoring, "sampler": sampler, "dim": dim, "margin": margin}
    cache = {"cache_size": cache_size, "candidates": candidates}
    config = make_config(data, {**model, **cache, "batch_size": batch_size, "device": device})
    timing = time_run(open_graph(config), config, epochs=epochs)
    machine = describe_machine(str(pick_device(device)))
    if as_json:
        print_json({"machine": machine, "options": config.as_dict(), **timing.as_dict()})
        return
    rows = [
        ("per step", f"{1e3 * timing.step_seconds:.3f} ms"),
        ("per epoch", f"{timing.epoch_seconds:.3f} s"),
        ("evaluation of test", f"{timing.evaluation_seconds:.3f} s"),
        ("start and compilation", f"{timing.compile_seconds:.1f} s"),
    ]
    title = f"{data}, {scoring}, {sampler}, d {dim}, batch {batch_size}"
    processor = machine["gpu"] or f"{machine['processor']}, {machine['threads']} threads"
    say(table(title, ("", ""), rows), f"on {processor}")


@friendly
def doctor_command(as_json: flags.Json = False) -> None:
    """Say what this machine has, which extras are here, and what would make it faster."""
    found = examine()
    if as_json:
        print_json(found.as_dict())
        return
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    for line in _lines(found):
        made.add_row(*line)
    say(made)
    missing = missing_extras(found)
    if missing:
        rows = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
        for extra in missing:
            rows.add_row(f"  {extra.command}", extra.purpose)
        say("\nNot installed, and only needed for what it says:", rows)
    say("\nWhat would make it faster" if found.advice else "\nNothing to improve.")
    say(*(f"- {sentence}" for sentence in found.advice))


def _lines(found: Examination) -> list[tuple[str, str]]:
    processor, kernels, gpu = found.processor, found.kernels, found.gpu
    memory = f", {processor.memory_gb:g} GB of memory" if processor.memory_gb else ""
    load = f", load {processor.load:g}" if processor.load is not None else ""
    compiled = "compiled and kept" if kernels.compiled else "compiled in the first run"
    card = f"{gpu.name} by {gpu.usable}" if gpu.usable else "none that torch can use"
    if gpu.memory_gb:
        card += f", {gpu.memory_gb:g} GB"
    triton = "Triton" if gpu.triton else "no Triton"
    versions = found.versions
    listed = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "system")
    return [
        ("versions", listed.replace("None", "(none)")),
        ("system", versions["system"] or ""),
        ("processor", f"{processor.cores} cores, {processor.threads} threads{load}{memory}"),
        *((name, f"{value} (set by you)") for name, value in processor.variables.items()),
        ("kernels", f"Numba, {compiled}" if kernels.numba else "off: plain torch"),
        ("GPU", f"{card}; {triton}, compiler {gpu.compiler or 'none'}"),
        ("extras", ", ".join(name for name, there in found.extras.items() if there) or "none"),
        ("data sets", ", ".join(found.datasets)),
    ]
