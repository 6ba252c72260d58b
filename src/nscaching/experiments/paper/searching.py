"""A cell that is a search: its curve, its best settings, and SimplE trained with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.rows import Row
from nscaching.experiments.paper.training import train_row
from nscaching.experiments.tune import tune
from nscaching.experiments.tune.folder import SearchFolder
from nscaching.graph import KnowledgeGraph
from nscaching.runs.api import decided, make_config
from nscaching.training import Progress, RunFolder, TrainConfig


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
    each = make_config(graph, {**base, **trial})
    if begun:
        _refuse_another(place, space, cell.mode, decided(each, graph))
        found = tune(resume=True, **common)
    else:
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


def _refuse_another(place: SearchFolder, space: str, method: str, each: TrainConfig) -> None:
    """Refuse to go on with a search whose settings are not those that are asked for now."""
    options, _, _ = place.read()
    base = RunFolder(place.base).read_config()
    as_now = replace(base, device=each.device, data=each.data)
    if (options.space, options.method, as_now) != (space, method, each):
        raise UserError(
            f"{place.path} holds a search that was begun with other settings. Remove that folder, "
            "or choose another --out."
        )
