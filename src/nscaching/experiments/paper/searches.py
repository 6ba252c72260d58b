"""The picture of searches: SMAC and random on the same axes, NSCaching without a search beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.rows import Row
from nscaching.experiments.tune.curves import CurvePoint
from nscaching.experiments.tune.pictures import curves_picture


def draw_searches(
    panels: Mapping[str, Sequence[tuple[Cell, Row]]], stem: str, out: Path
) -> list[Path]:
    """Draw one picture a data set, over trials."""
    pictures = []
    for pairs in panels.values():
        curves = {
            cell.mode: [CurvePoint(**point) for point in row["search"]["curve"]]
            for cell, row in pairs
            if "search" in row
        }
        plain = [row for cell, row in pairs if cell.kind == "train"]
        reference = ("NSCaching as set", plain[0]["valid"]["mrr"]) if plain else None
        if curves:
            file = out / f"{stem}-{pairs[0][0].dataset}.png"
            pictures.append(curves_picture(curves, file, reference=reference))
    return pictures
