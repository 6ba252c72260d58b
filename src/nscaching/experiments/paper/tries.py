"""Equal care: every cell gets the same number of tries from one grid, then some seeds on test.

The tries of a cell are drawn from ``grid.yaml``, each trained as long as the paper trains at most,
with early stopping, and compared on valid by the measure that the table reports. Every try is a
line of ``tries.jsonl``; none of them looks at the test split. The best one is then trained with
every seed, and each of those runs ranks the test split once.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.errors import TrainingDiverged, UserError
from nscaching.experiments.paper.definitions import (
    Cell,
    Definition,
    packaged,
    settings_of,
    shortened,
)
from nscaching.experiments.paper.results import Row
from nscaching.graph import KnowledgeGraph
from nscaching.models import SCORING
from nscaching.nodes import NodeGraph, embed_nodes
from nscaching.nodes.api import METHODS
from nscaching.nodes.tasks import classification_scores
from nscaching.runs.api import make_trainer
from nscaching.training import Progress, RunFolder

TRY, TUNED = "try", "tuned"
#: Tries that are drawn together: within a block every value of a hyperparameter comes about as
#: often as the others. More tries add blocks and keep those there are.
BLOCK = 8
#: The measure on valid that a table's tries are compared by, where it is not MRR.
_SELECT = {"classification-table": "accuracy", "node-table": "micro_f1"}


def expanded(definition: Definition, cells: Sequence[Cell], tries: int) -> Iterator[Cell]:
    """Return the tries of every cell and, after them, the cell itself with each of its seeds."""
    select = _SELECT.get(definition.draw, "mrr")
    alike: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault(replace(cell, seed=0).identity, []).append(cell)
    for seeds in alike.values():
        if seeds[0].kind not in ("train", "nodes"):
            raise UserError(f"{definition.name} is not made of cells that --tries could tune.")
        own = {} if select == "mrr" else {"select": select}
        changed = {**seeds[0].options, **own}
        for number in range(tries):
            yield replace(seeds[0], kind=TRY, options=changed, seed=number)
        for cell in seeds:
            yield replace(cell, kind=TUNED, options=changed)


def try_settings(cell: Cell, budget: int | None) -> dict[str, Any]:
    """Return the training options of a try."""
    grid = packaged("grid.yaml")
    loss = "nodes" if cell.scoring is None else SCORING[cell.scoring].usual_loss
    if "recipe" in cell.options:
        loss = "softmax"
    axes = {**grid["models"][loss], **grid.get(_select(cell), {}).get(loss, {})}
    found = drawn(f"{cell.dataset}/{cell.scoring}", axes, cell.seed)
    own = {k: v for k, v in grid["samplers"].get(cell.sampler, {}).items() if k not in cell.options}
    if loss != "softmax":
        found |= drawn(f"{cell.dataset}/{cell.scoring}/{cell.sampler}", own, cell.seed)
    if cell.scoring is None:
        found |= {"seed": cell.seed}
        return found if budget is None else shortened(found, budget)
    lengths = grid["lengths"]
    long = lengths["softmax"] if loss == "softmax" else lengths.get(cell.sampler, lengths["usual"])
    return settings_of(cell, budget, {**found, **long})


def drawn(name: str, axes: Mapping[str, Sequence[Any]], number: int) -> dict[str, Any]:
    """Return one draw, always the same for a name and a number."""
    block, row = divmod(number, BLOCK)
    found = {}
    for axis, values in axes.items():
        rng = np.random.default_rng([zlib.crc32(f"{name}/{axis}".encode()), block])
        order = rng.permutation(len(values))  # which values come once more in a block
        found[axis] = values[order[rng.permutation(BLOCK)[row] % len(values)]]
    return found


def tuned_settings(cell: Cell, tries: int, budget: int | None) -> dict[str, Any]:
    """Return what a tuned row is known by: its tries."""
    every = [try_settings(replace(cell, kind=TRY, seed=n), budget) for n in range(tries)]
    name = settings_name({"tries": every})
    return {"tries": tries, "drawn": name, "epochs": max(each["epochs"] for each in every)}


def best_try(cell: Cell, tries: Sequence[Row]) -> Row:
    """Return the best of the tries of a cell on valid, the first of equals."""
    failed = [row for row in tries if row["error"]]
    if failed:  # fewer tries than others have would not be equal care
        raise UserError(
            f"{len(failed)} of its {len(tries)} tries failed ({failed[0]['error']}); run the "
            "command again."
        )
    learnt = [row for row in tries if row.get("valid")]
    if not learnt:
        raise UserError("None of its tries could be trained.")
    return max(learnt, key=lambda row: (row["valid"][_select(cell)], -row["seed"]))


def _select(cell: Cell) -> str:
    return str(cell.options.get("select", "mrr"))


def chosen_settings(cell: Cell, tries: Sequence[Row]) -> dict[str, Any]:
    """Return the training options of a tuned cell: those of its best try, with its own seed."""
    return {**best_try(cell, tries)["settings"], "seed": cell.seed}


def tried(cell: Cell, tries: Sequence[Row]) -> Row:
    """Return what a tuned row says of its tries."""
    best = best_try(cell, tries)
    return {
        "count": len(tries),
        "diverged": sum(row["diverged"] is not None for row in tries),
        "select": _select(cell),
        "best": best["seed"],
        "valid": best["valid"][_select(cell)],
        "seconds": sum(row["seconds"] for row in tries),
    }


def settings_name(settings: Mapping[str, Any]) -> str:
    """Return a short name of settings."""
    return f"{zlib.crc32(json.dumps(settings, sort_keys=True).encode()):08x}"


def try_row(
    settings: dict[str, Any], graph: KnowledgeGraph, out: Path | None, progress: Progress
) -> Row:
    """Train a try and return how it did on valid; with a folder it can be resumed until then."""
    started = time.monotonic()
    folder = None if out is None else RunFolder(out)
    resume = folder is not None and folder.is_run() and folder.checkpoint.exists()
    overwrite = folder is not None and not resume
    with contextlib.nullcontext() if folder is None else folder.writing():
        trainer = make_trainer(
            graph, out=out, resume=resume, overwrite=overwrite, progress=progress, **settings
        )
        waited = time.monotonic() - started
        diverged = None
        try:
            trainer.run(resume=resume)
        except TrainingDiverged as error:
            diverged = str(error)
        if folder is not None:
            folder.remove_own()
    counters = trainer.counters
    return {
        "valid": None if diverged else counters.best_valid,
        "diverged": diverged,
        "epochs": counters.epoch,
        "best_epoch": counters.best_epoch,
        "seconds": waited + counters.seconds,
        "device": str(trainer.device),
    }


def node_try_row(cell: Cell, settings: Mapping[str, Any], graph: NodeGraph) -> Row:
    """Embed nodes and classify validation nodes: a fifth of the labels that are learnt from."""
    assert graph.labels is not None
    started = time.monotonic()
    embedding = embed_nodes(graph, progress="none", **{**METHODS[cell.sampler], **settings})
    asked: dict[str, Any] = {"shares": (0.5,), "seed": cell.seed, "validate": True}
    scores = classification_scores(embedding.vectors, graph.labels, **asked)
    found: Row = {"valid": {"micro_f1": float(scores[..., 0].mean())}, "diverged": None}
    return found | {"epochs": settings["epochs"], "seconds": time.monotonic() - started}
