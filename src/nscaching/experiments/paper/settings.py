"""Which options a cell is trained with: the settings of its data set, its mode, its own."""

from __future__ import annotations

from typing import Any

from nscaching.errors import UserError
from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.numbers import searched
from nscaching.experiments.paper.packaged import packaged

#: Options that count epochs; a budget shortens them.
LENGTHS = ("epochs", "valid_every", "trace_every", "pretrain_epochs", "generator_epochs")

#: What a search decides, by its space; the settings of its cell must not fix it.
SEARCHED = ("alpha1", "alpha2", "alpha3", "cache_size", "candidates")
SEARCHED_TOO: dict[str, tuple[str, ...]] = {
    "sampler": (),
    "sampler+": ("rescale", "known_positives"),
}


def chosen(dataset: str, scoring: str) -> dict[str, Any]:
    """Return the entry of a data set and scoring function: options, and how they were chosen."""
    entry = (packaged(f"settings/{dataset}.yaml") or {}).get(scoring)
    if entry is None:
        raise UserError(f"There are no settings for {scoring} on {dataset} in the package.")
    found: dict[str, Any] = entry
    return found


def settings_of(cell: Cell, budget: int | None = None) -> dict[str, Any]:
    """Return the training options of a cell; a budget shortens everything that counts epochs."""
    assert cell.scoring is not None
    entry = chosen(cell.dataset, cell.scoring)
    options = {**entry["options"], **entry.get("samplers", {}).get(cell.sampler, {})}
    if cell.mode == "pretrain":
        options["pretrain_epochs"] = entry["pretrain_epochs"]
    elif cell.mode == "pretrained":
        options["epochs"] = entry["pretrain_epochs"]
    elif cell.mode == "auto":
        # The paper's temperatures are those of rescaled scores.
        options |= {**searched(cell.dataset), "rescale": "quantile"}
    if cell.kind == "search":
        # "space" is the space to search, "trial" has options of the trials alone.
        options |= entry.get("search", {})
        found = (*SEARCHED, *SEARCHED_TOO[options.get("space", "sampler")])
        options = {name: value for name, value in options.items() if name not in found}
    options |= cell.options
    options |= {"scoring": cell.scoring, "sampler": cell.sampler, "seed": cell.seed}
    if cell.sampler == "igan" and "pretrain_epochs" not in options:
        options["generator_epochs"] = entry["pretrain_epochs"]
    return options if budget is None else _shortened(options, budget)


def _shortened(options: dict[str, Any], budget: int) -> dict[str, Any]:
    parts = {"pretrain_epochs": budget // 2, "generator_epochs": max(1, budget // 2)}
    shorter = {
        name: min(value, parts.get(name, budget)) if name in LENGTHS else value
        for name, value in options.items()
    }
    trial = options.get("trial")
    return shorter if trial is None else {**shorter, "trial": _shortened(trial, budget)}
