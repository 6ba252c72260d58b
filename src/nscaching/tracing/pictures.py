"""Pictures of a trace: its counters over epochs, and the CCDF of gradient norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.files import write_atomically
from nscaching.tracing.gradients import GradientNorms
from nscaching.tracing.looks import Line

#: Title of a panel, and the counters in it with their labels.
_PANELS: dict[str, dict[str, str]] = {
    "negatives with a loss": {"nonzero_loss": "share"},
    "repeated negatives": {"repeated": "share"},
    "norm of the batch gradient": {"gradient_norm": "l2"},
    "false negatives (valid and test)": {
        "false_cached": "in the cache",
        "false_sampled": "sampled",
    },
}


def draw_trace(lines: Sequence[Line], path: Path) -> None:
    """Draw the counters over epochs, and a panel for each side of each traced triple."""
    epochs = [line for line in lines if line["event"] == "epoch"]
    norms: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["event"] == "gradients":
            title = f"{line['triple']}, {line['side']} replaced"
            norms.setdefault(title, {})[f"epoch {line['epoch']}"] = zip(*line["ccdf"], strict=True)
    rows = 2 + (len(norms) + 1) // 2
    figure, axes = _figure(rows, 2)
    panels = iter(axes.flat)
    for title, counters in _PANELS.items():
        panel = next(panels)
        for name, label in counters.items():
            if all(line[name] is not None for line in epochs):
                panel.plot([e["epoch"] for e in epochs], [e[name] for e in epochs], label=label)
        panel.set(title=title, xlabel="epoch", ylim=(0, None))
        if len(counters) > 1:
            panel.legend(frameon=False)
    for title, curves in norms.items():
        _draw_ccdf(next(panels), title, curves)
    for panel in panels:
        panel.set_axis_off()
    _save(figure, path)


def draw_ccdf(norms: Mapping[str, GradientNorms], path: str | Path) -> None:
    """Draw P(norm >= x) of some triples, or of one at several epochs, by label."""
    figure, axes = _figure(1, 1)
    _draw_ccdf(axes.flat[0], "", {label: each.ccdf() for label, each in norms.items()})
    _save(figure, Path(path))


def _draw_ccdf(panel: Any, title: str, curves: Mapping[str, Any]) -> None:
    for label, (x, share) in curves.items():
        panel.step(x, share, where="pre", label=label)
    panel.set(title=title, xlabel="gradient norm x", ylabel="share with norm ≥ x", yscale="log")
    panel.legend(frameon=False, fontsize="small")


def _figure(rows: int, columns: int) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure  # no window, whatever the machine has
    except ImportError as error:
        raise UserError(
            "A picture needs matplotlib, which is not installed; "
            "get it with: pip install 'nscaching[plot]'."
        ) from error
    figure = Figure(figsize=(4.8 * columns, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=150, format="png"))
