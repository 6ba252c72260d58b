"""A cell that is a search: its curve, its best settings, and SimplE trained with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nscaching.api import make_config
from nscaching.graph import KnowledgeGraph
from nscaching.paper.cells import Cell
from nscaching.paper.rows import Row
from nscaching.paper.training import train_row
from nscaching.training import Progress
from nscaching.tuning import tune
from nscaching.tuning.folder import SearchFolder


def search_row(
    cell: Cell, settings: dict[str, Any], graph: KnowledgeGraph, folder: Path, progress: Progress
) -> Row:
    """Search, or go on with a search; train the best of SMAC, whose test split is ranked once."""
    base = dict(settings)
    trials, space, trial = base.pop("trials"), base.pop("space", "sampler"), base.pop("trial", {})
    if space == "sampler":
        base["rescale"] = "quantile"  # the ranges of its temperatures are those of rescaled scores
    place = SearchFolder(folder / "search")
    begun = place.is_search() and place.journal.path.exists()
    common: dict[str, Any] = {"out": place.path, "trials": trials, "progress": progress}
    if begun:
        found = tune(resume=True, **common)
    else:
        each = make_config(graph, {**base, **trial})
        found = tune(graph, method=cell.mode, space=space, base=each, **common)
    search = {
        "method": found.method,
        "space": space,
        "trials": len(found.trials),
        "best": found.best.config,
        "valid_mrr": found.best.mrr,
        "curve": [point.as_dict() for point in found.curve],
    }
    if cell.mode != "smac":  # only its curve is asked for
        return {"search": search, "seconds": found.curve[-1].seconds}
    row = train_row(cell, {**base, **found.best.config}, graph, folder / "best", progress)
    return {**row, "search": search, "seconds": found.curve[-1].seconds + row["seconds"]}
