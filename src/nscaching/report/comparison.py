"""The picture of a comparison: MRR and Hits@10 on valid, against seconds and against epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nscaching.report.drawing import figure, line_look, save

METRICS = {"mrr": "MRR on valid", "hits@10": "Hits@10 on valid"}
AXES = {"seconds": "seconds of training", "epochs": "epochs"}


@dataclass(frozen=True)
class Band:
    """Several runs as one line: the mean, and the lowest and highest. Shapes: (n,)."""

    label: str
    epochs: np.ndarray
    seconds: np.ndarray
    mean: dict[str, np.ndarray]  #: by metric, ``mrr`` and ``hits@10``
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


def draw_comparison(path: Path, title: str, lines: Sequence[Band]) -> None:
    """Draw the four panels into a file."""
    with figure(9.0, 6.5) as drawn:
        panels = drawn.subplots(len(METRICS), len(AXES), sharex="col", sharey="row")
        for row, (metric, metric_name) in enumerate(METRICS.items()):
            for column, (axis, axis_name) in enumerate(AXES.items()):
                panel = panels[row, column]
                for index, line in enumerate(lines):
                    x, look = getattr(line, axis), line_look(index)
                    every = max(1, len(x) // 8)
                    label = line.label if row == column == 0 else None
                    panel.plot(x, line.mean[metric], label=label, markevery=every, **look)
                    edges = line.low[metric], line.high[metric]
                    panel.fill_between(x, *edges, color=look["color"], alpha=0.12, lw=0)
                if column == 0:
                    panel.set_ylabel(metric_name)
                if row == len(METRICS) - 1:
                    panel.set_xlabel(axis_name)
                panel.set_xlim(left=0)
                if axis == "epochs":
                    panel.xaxis.get_major_locator().set_params(integer=True)
        drawn.suptitle(title, x=0.01, ha="left")
        drawn.legend(loc="outside lower center", ncols=min(4, len(lines)), handlelength=4)
        save(drawn, path)
