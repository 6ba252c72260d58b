"""``nscaching benchmark``: how fast this machine trains and evaluates."""

from __future__ import annotations

from typing import Annotated

import typer

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.runs.api import make_config
from nscaching.training import TrainConfig
from nscaching.training.benchmarking import describe_machine, time_run
from nscaching.training.devices import pick_device
from nscaching.training.opening import open_graph


@friendly
def command(
    data: Annotated[str, typer.Argument(help="A named data set, a folder or a file.")] = "world",
    scoring: Annotated[str, typer.Option(help="Scoring function.")] = "simple",
    sampler: Annotated[str, typer.Option(help="Negative sampler.")] = "nscaching",
    dim: Annotated[int, typer.Option(help="Dimension.")] = 100,
    margin: Annotated[
        float, typer.Option(help="Margin of the loss, where it has one.")
    ] = TrainConfig.margin,
    batch_size: Annotated[int, typer.Option(help="Positive triples per step.")] = 1024,
    cache_size: Annotated[int, typer.Option(help="N1.")] = 50,
    candidates: Annotated[int, typer.Option(help="N2.")] = 50,
    epochs: Annotated[int, typer.Option(help="Epochs to time.", min=1)] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Time a warm training step, an epoch and the evaluation of the test split."""
    options = {
        "scoring": scoring,
        "sampler": sampler,
        "dim": dim,
        "margin": margin,
        "batch_size": batch_size,
        "cache_size": cache_size,
        "candidates": candidates,
        "device": device,
    }
    config = make_config(data, options)
    timing = time_run(open_graph(config), config, epochs=epochs)
    machine = describe_machine(str(pick_device(device)))
    if as_json:
        print_json({"machine": machine, "options": config.as_dict(), **timing.as_dict()})
        return
    made = table(f"{data}, {scoring}, {sampler}, d {dim}, batch {batch_size}", "", "")
    made.add_row("per step", f"{1e3 * timing.step_seconds:.3f} ms")
    made.add_row("per epoch", f"{timing.epoch_seconds:.3f} s")
    made.add_row("evaluation of test", f"{timing.evaluation_seconds:.3f} s")
    made.add_row("start and compilation", f"{timing.compile_seconds:.1f} s")
    stdout().print(made)
    processor = machine["gpu"] or f"{machine['processor']}, {machine['threads']} threads"
    stdout().print(f"on {processor}", highlight=False)
