"""The numbers that the paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nscaching.experiments.paper.packaged import packaged
from nscaching.nodes.compare import PAPER as NODES
from nscaching.nodes.tasks import SHARES


def row_name(sampler: str, mode: str) -> str:
    """Return how the paper's tables call a sampler in a mode."""
    if sampler == "bernoulli":
        return "pretrained" if mode == "pretrained" else "bernoulli"
    return f"{sampler}-{mode}"


def printed(table: str, row: Mapping[str, Any]) -> dict[str, float]:
    """Return what the paper prints for a result, by measure; nothing where it prints nothing."""
    sampler, mode, dataset = row["sampler"], row["mode"], row["dataset"]
    if table == "nodes":
        of_method = NODES.get(dataset, {}).get(sampler, ())
        return {
            f"{share:.0%} {name}": value
            for share, pair in zip(SHARES, of_method, strict=False)
            for name, value in zip(("micro_f1", "macro_f1"), pair, strict=True)
        }
    if table == "link_prediction" and mode == "smac":  # our own search stands beside the paper's
        mode = "auto"
    found = packaged("numbers.json")[table].get(row["scoring"], {})
    found = found.get(row_name(sampler, mode), {}).get(dataset)
    if isinstance(found, float):
        return {"accuracy": found}
    return {name: value for name, value in (found or {}).items() if value is not None}


def searched(dataset: str) -> dict[str, Any]:
    """Return the values of the cache that the paper's search found for a data set."""
    found: dict[str, Any] = packaged("numbers.json")["searched"].get(dataset, {})
    return dict(found)
