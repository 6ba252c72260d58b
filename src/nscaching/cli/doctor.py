"""``nscaching doctor``: what the machine has, and what would make it faster."""

from __future__ import annotations

from rich.table import Table

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout
from nscaching.runs.doctor import Examination, examine, missing_extras


@friendly
def command(as_json: JsonFlag = False) -> None:
    """Say what this machine has, which extras are here, and what would make it faster."""
    found = examine()
    if as_json:
        print_json(found.as_dict())
        return
    console = stdout()
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    for name, text in _lines(found):
        made.add_row(name, text)
    console.print(made)
    missing = missing_extras(found)
    if missing:
        console.print("\nNot installed, and only needed for what it says:", highlight=False)
        rows = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
        for extra in missing:
            rows.add_row(f"  {extra.command}", extra.purpose)
        console.print(rows)
    console.print("\nWhat would make it faster" if found.advice else "\nNothing to improve.")
    for sentence in found.advice:
        console.print(f"- {sentence}", highlight=False)


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
