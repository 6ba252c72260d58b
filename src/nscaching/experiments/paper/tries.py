"""Equal care: every cell gets the same tries of one grid, then some seeds on test.

The same for every sampler. The tries of a sampler are drawn from ``grid.yaml`` and trained from
scratch for few epochs; those that are best on valid, by the measure that the table reports, are
trained again for longer; the best of these is trained with every seed until it gains no more, and
each of those runs ranks the test split once. As in the paper, cells with pretraining have the
settings that were chosen from scratch: a sampler's tries are for all of its modes. Every try is a
line of ``tries.jsonl``; none of them looks at test.
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
    LONGER,
    TRIES,
    TRY,
    TUNED,
    Cell,
    Definition,
    chosen,
    packaged,
    settings_of,
)
from nscaching.experiments.paper.results import Row
from nscaching.experiments.tune.objective import validation_score
from nscaching.graph import KnowledgeGraph
from nscaching.models import SCORING
from nscaching.nodes import NodeGraph, embed_nodes
from nscaching.nodes.api import METHODS
from nscaching.runs.api import make_trainer
from nscaching.training import Progress, RunFolder

#: Tries of a cell that are trained again for longer.
KEPT = 2
#: Tries that are drawn together: within a block every value of a hyperparameter comes about as
#: often as the others. More tries add blocks and keep those there are.
BLOCK = 8
#: The measure on valid that a table's tries are compared by, where it is not MRR.
_SELECT = {"classification-table": "accuracy", "node-table": "micro_f1"}


def expanded(definition: Definition, cells: Sequence[Cell], tries: int) -> Iterator[Cell]:
    """Return the tries of every sampler and, after them, its cells with each of their seeds.

    What is compared with each other, the samplers of a data set and scoring function, is together.
    """
    select = _SELECT.get(definition.draw, "mrr")
    alike: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault(from_scratch(replace(cell, seed=0)).identity, []).append(cell)
    for seeds in alike.values():
        if seeds[0].kind not in ("train", "nodes"):
            raise UserError(f"{definition.name} is not made of cells that --tries could tune.")
        own = {} if select == "mrr" else {"select": select}
        changed = {**seeds[0].options, **own}
        longer = 0 if seeds[0].scoring is None else min(KEPT, tries)
        for kind, count in ((TRY, tries), (LONGER, longer)):
            for number in range(count):
                first = from_scratch(seeds[0])
                yield replace(first, kind=kind, options=changed, seed=number)
        for cell in seeds:
            yield replace(cell, kind=TUNED, options=changed)


def from_scratch(cell: Cell) -> Cell:
    """Return the cell whose tries a cell is chosen from: the same one, without pretraining."""
    return replace(cell, mode=Cell.mode)


def try_settings(cell: Cell) -> dict[str, Any]:
    """Return the training options of a try."""
    grid, loss = packaged("grid.yaml"), loss_of(cell)
    axes = {**grid["models"][loss], **grid.get(_select(cell), {}).get(loss, {})}
    found = drawn(f"{cell.dataset}/{cell.scoring}", axes, cell.seed)
    own = {k: v for k, v in grid["samplers"].get(cell.sampler, {}).items() if k not in cell.options}
    if loss != "softmax":
        found |= drawn(f"{cell.dataset}/{cell.scoring}/{cell.sampler}", own, cell.seed)
    if cell.scoring is None:
        return found | {"seed": cell.seed}
    return settings_of(cell, {**found, **lengths(cell, TRY)})


def lengths(cell: Cell, kind: str) -> dict[str, Any]:
    """Return epochs, validations and patience of the runs of a kind, the same for all samplers."""
    if cell.scoring is None:
        return {}
    every = packaged("grid.yaml")["lengths"]
    long = every["softmax" if loss_of(cell) == "softmax" else "usual"]
    if loss_of(cell) != "softmax":
        long = every.get(cell.dataset, long)
    found = {"epochs": long[kind], "valid_every": long["valid_every"]}
    found["patience"] = long["patience"] if kind == TUNED else 0
    if cell.mode == "pretrain":
        found["epochs"] += chosen(cell.dataset, cell.scoring)["pretrain_epochs"]
    elif cell.mode == "pretrained":
        found |= {"epochs": chosen(cell.dataset, cell.scoring)["pretrain_epochs"], "patience": 0}
    return found


def loss_of(cell: Cell) -> str:
    """Return the loss of a cell: what its settings are drawn for."""
    if cell.scoring is None:
        return "nodes"
    return "softmax" if "recipe" in cell.options else SCORING[cell.scoring].usual_loss


def drawn(name: str, axes: Mapping[str, Sequence[Any]], number: int) -> dict[str, Any]:
    """Return one draw, always the same for a name and a number."""
    block, row = divmod(number, BLOCK)
    found = {}
    for axis, values in axes.items():
        rng = np.random.default_rng([zlib.crc32(f"{name}/{axis}".encode()), block])
        order = rng.permutation(len(values))  # which values come once more in a block
        found[axis] = values[order[rng.permutation(BLOCK)[row] % len(values)]]
    return found


def known_by(cell: Cell, tries: int) -> dict[str, Any]:
    """Return what a row that is chosen from tries is known by: those tries, and its length."""
    like = from_scratch(cell)
    every = [try_settings(replace(like, kind=TRY, seed=n)) for n in range(tries)]
    own = lengths(cell, cell.kind)
    steps = [lengths(like, kind) for kind in TRIES] if own else []
    name = settings_name({"tries": every, "lengths": steps})
    return {"tries": tries, "drawn": name, **(own or {"epochs": max(x["epochs"] for x in every)})}


def ranked_tries(cell: Cell, tries: Sequence[Row]) -> list[Row]:
    """Return the tries that a row is chosen from, the best on valid first; the first of equals."""
    for kind in TRIES:
        every = [row for row in tries if row["kind"] == kind]
        failed = [row for row in every if row["error"]]
        if failed:  # fewer tries than others have would not be equal care
            raise UserError(
                f"{len(failed)} of its {len(every)} tries failed ({failed[0]['error']}); run the "
                "command again."
            )
    last = [row for row in tries if row["kind"] == LONGER] if cell.kind == TUNED else []
    learnt = [row for row in last or tries if row.get("valid")]
    if not learnt:
        raise UserError("None of its tries could be trained.")
    return sorted(learnt, key=lambda row: (-row["valid"][_select(cell)], row["seed"]))


def _select(cell: Cell) -> str:
    return str(cell.options.get("select", "mrr"))


def chosen_settings(cell: Cell, tries: Sequence[Row]) -> dict[str, Any]:
    """Return the training options of a row that is chosen from tries, with a length of its own."""
    ranked = ranked_tries(cell, tries)
    row = ranked[min(cell.seed, len(ranked) - 1)] if cell.kind == LONGER else ranked[0]
    found = dict(row.get("chosen") or row["settings"])
    if cell.kind == TUNED and cell.mode != Cell.mode:
        found = settings_of(cell, found)
    found |= lengths(cell, cell.kind)
    return found if cell.kind == LONGER else {**found, "seed": cell.seed}


def tried(cell: Cell, tries: Sequence[Row]) -> Row:
    """Return what a tuned row says of its tries."""
    best = ranked_tries(cell, tries)[0]
    return {
        "count": sum(row["kind"] == TRY for row in tries),
        "longer": sum(row["kind"] == LONGER for row in tries),
        "diverged": sum(row["diverged"] is not None for row in tries),
        "select": _select(cell),
        "best": (best.get("chosen") or best["settings"])["seed"],
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
    started = time.monotonic()
    embedding = embed_nodes(graph, progress="none", **{**METHODS[cell.sampler], **settings})
    found: Row = {"valid": {"micro_f1": validation_score(embedding, cell.seed)}, "diverged": None}
    return found | {"epochs": settings["epochs"], "seconds": time.monotonic() - started}
