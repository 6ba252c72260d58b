"""Pictures of a trace: its counters over epochs, and the CCDF of gradient norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nscaching.report.drawing import figure, line_look, save
from nscaching.training.tracing.gradients import GradientNorms
from nscaching.training.tracing.looks import Line

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
    with figure(9.6, 3.2 * rows) as drawn:
        panels = iter(drawn.subplots(rows, 2, squeeze=False).flat)
        for title, counters in _PANELS.items():
            panel = next(panels)
            for place, (name, label) in enumerate(counters.items()):
                if all(line[name] is not None for line in epochs):
                    x, y = ([line[key] for line in epochs] for key in ("epoch", name))
                    panel.plot(x, y, label=label, **line_look(place))
            panel.set(title=title, xlabel="epoch", ylim=(0, None))
            if len(counters) > 1:
                panel.legend()
        for title, curves in norms.items():
            _draw_ccdf(next(panels), title, curves)
        for panel in panels:
            panel.set_axis_off()
        save(drawn, path)


def draw_ccdf(norms: Mapping[str, GradientNorms], path: str | Path) -> None:
    """Draw P(norm >= x) of some triples, or of one at several epochs, by label."""
    with figure(4.8, 3.2) as drawn:
        _draw_ccdf(drawn.subplots(), "", {label: each.ccdf() for label, each in norms.items()})
        save(drawn, Path(path))


def _draw_ccdf(panel: Any, title: str, curves: Mapping[str, Any]) -> None:
    for place, (label, (x, share)) in enumerate(curves.items()):
        look = {**line_look(place), "marker": None}
        panel.step(x, share, where="pre", label=label, **look)
    panel.set(title=title, xlabel="gradient norm x", ylabel="share with norm ≥ x", yscale="log")
    panel.legend(fontsize="small")
