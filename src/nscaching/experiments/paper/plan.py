"""What a reproduction will do, said in advance: which cells, what is done, how long it takes.

Expected times come from a rough model, corrected by what was timed on this machine already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.errors import UserError
from nscaching.experiments.paper.costs import (
    Sizes,
    costs_of,
    epochs_share,
    expected_seconds,
    slowness,
    timed_now,
    waiting,
)
from nscaching.experiments.paper.definitions import Cell, settings_of
from nscaching.experiments.paper.results import Results, Row
from nscaching.experiments.paper.tries import TRIES, TRY, known_by, lengths, try_settings
from nscaching.experiments.runner import DONE, state_of
from nscaching.graph import KnowledgeGraph, load_graph
from nscaching.graph.datasets import find_dataset, known_dataset
from nscaching.models import SCORING
from nscaching.nodes import NodeGraph, load_node_graph
from nscaching.nodes.graph import Labels, graph_of_edges
from nscaching.training.benchmarking import describe_machine
from nscaching.training.devices import pick_device

#: ``--on shape`` is a random graph with the sizes of the data set, ``shape/100`` a hundredth.
SHAPE = "shape"
#: Nodes, edges and classes of the graphs without relations.
_NODE_SHAPES: Mapping[str, tuple[int, int, int]] = {
    "cora": (2708, 5278, 7),
    "citeseer": (3264, 4536, 6),
}
#: A stand-in for a graph without relations is so much smaller where nothing else is said.
_NODE_SCALE = 20
#: Trials of a search, as in the paper.
USUAL_TRIALS = 50
#: The state of a cell whose data set is not on this machine.
MISSING = "no data"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for, besides the name of the table or figure."""

    out: Path
    datasets: Sequence[str] = ()
    scoring: Sequence[str] = ()
    samplers: Sequence[str] = ()
    modes: Sequence[str] = ()
    seeds: Sequence[int] = (0,)
    budget: int | None = None  #: epochs at most, for a smoke run
    trials: int | None = None  #: of a search
    tries: int | None = None  #: equal care: settings that every cell tries before its seeds
    workers: int = 1  #: processes that train cells, each one at a time
    seconds: float | None = None  #: nothing starts that is expected to end later
    device: str = "auto"
    on: str | None = None  #: a graph that stands in for the data sets

    @property
    def filters(self) -> dict[str, Sequence[str]]:
        """Which cells are asked for, by what they differ in; an empty list is all of them."""
        names = ("datasets", "scoring", "samplers", "modes")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Planned:
    """A cell, where it stands, and the seconds it is expected to take."""

    cell: Cell
    settings: dict[str, Any]
    state: str
    model_seconds: float  #: by the stored costs
    seconds: float  #: corrected by what was timed on this machine; 0 for what is done
    at_most: float = 0.0  #: the same without early stopping
    tries: tuple[Row, ...] = ()  #: what a tuned cell is chosen from, when it starts

    @property
    def identity(self) -> str:
        """What its row is known by within a reproduction."""
        return "/".join(self.cell.identity)

    @property
    def title(self) -> str:
        """How it is called on the screen."""
        place = f"{self.cell.dataset} {self.cell.scoring or ''}".strip()
        if self.cell.kind in TRIES:
            return f"{place}: {self.cell.label}, {self.cell.kind} {self.cell.seed + 1}"
        return f"{place}: {self.cell.label}, seed {self.cell.seed}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "dataset": self.cell.dataset,
            "scoring": self.cell.scoring,
            "row": self.cell.label,
            "kind": self.cell.kind,
            "seed": self.cell.seed,
            "state": self.state,
            "seconds": round(self.seconds, 1),
            "at_most_seconds": round(self.at_most, 1),
        }


def plan(
    cells: Sequence[Cell],
    request: Request,
    results: Results,
    sources: Sources,
    say: Callable[[str], None] | None = None,
) -> list[Planned]:
    """Return the cells once each, with their settings, state and expected time.

    With ``say``, which is told about it, steps of every model and sampler that tries are asked for
    are timed now, unless cells were timed on this machine or it is the one of the stored costs.
    """
    device = pick_device(request.device).type
    hardware = describe_machine(device)
    planned: dict[tuple[str, ...], Planned] = {}
    timed: dict[tuple[Any, ...], float] = {}
    for cell in cells:
        settings = cell_settings(cell, request)
        known = _trained_like(cell, settings, request)
        sizes = Sizes.of("world" if request.on == "world" else cell.dataset, sources.scale or 1)
        seconds = expected_seconds(cell, known, sizes, device)
        row = results.find(cell, settings, request.on)
        state = state_of(row, run_folder(request, cell).exists())
        if state != DONE and not sources.has_data(cell.dataset):
            state = MISSING
        at_most = share = 0.0
        if state not in (DONE, MISSING):
            like = cell.dataset, cell.scoring, cell.sampler
            if like not in timed:
                here = results.rows, hardware, request.on, request.workers
                factor = slowness(*here, like) or slowness(*here)
                if factor is None:
                    factor = waiting(request.workers, device)
                    if say and request.tries and cell.scoring and not costs_of(hardware):
                        name = SCORING[cell.scoring].__name__
                        say(f"Timing {name}, {cell.sampler}, {cell.dataset}")
                        factor *= timed_now(cell, known, sizes, sources.graph(cell.dataset), device)
                timed[like] = factor
            at_most = seconds * timed[like]
            share = epochs_share(results.rows, cell, known)
        made = Planned(cell, settings, state, seconds, at_most * share, at_most)
        planned.setdefault(cell.identity, made)
    return list(planned.values())


def cell_settings(cell: Cell, request: Request) -> dict[str, Any]:
    """Return the options that a row is known by."""
    if cell.kind == TRY:
        return try_settings(cell, request.budget)
    if request.tries is not None:
        return known_by(cell, request.tries, request.budget)
    if cell.kind == "nodes":
        return {} if request.budget is None else {"epochs": request.budget}
    settings = settings_of(cell, request.budget)
    if cell.kind == "search":
        settings["trials"] = request.trials or settings.get("trials", USUAL_TRIALS)
    return settings


def _trained_like(cell: Cell, settings: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return options that stand for those of a cell in its expected time: a try for the tuned."""
    if request.tries is None or cell.kind == TRY:
        return settings
    like = replace(cell, kind=TRY, seed=cell.seed % request.tries)
    return try_settings(like, request.budget) | lengths(cell, cell.kind, request.budget)


def run_folder(request: Request, cell: Cell) -> Path:
    """Return where a cell is trained; version control leaves folders called runs alone.

    Smoke runs have a place of their own: a whole run could not resume one.
    """
    smoke = [] if request.on is None else [f"on-{request.on.replace('/', '-').strip('-.')}"]
    smoke += [] if request.budget is None else [f"budget-{request.budget}"]
    return request.out / "runs" / "-".join(smoke) / cell.folder


# The graphs ---------------------------------------------------------------------------------------


class Sources:
    """Loads every graph once, and remembers which are missing."""

    def __init__(self, stand_in: str | None = None) -> None:
        self.stand_in = stand_in
        self.scale = _scale(stand_in)
        self._graphs: dict[str, KnowledgeGraph] = {}
        self._missing: dict[str, str] = {}

    def has_data(self, dataset: str) -> bool:
        """Tell whether the data is on this machine; nothing is downloaded."""
        if self.stand_in is not None:
            return True
        if dataset not in _NODE_SHAPES:
            return find_dataset(dataset) is not None
        try:
            load_node_graph(dataset)
        except UserError:
            return False
        return True

    def graph(self, dataset: str) -> KnowledgeGraph:
        """Return the graph; :class:`UserError` says why it cannot be had, each time the same."""
        if dataset in self._missing:
            raise UserError(self._missing[dataset])
        if dataset not in self._graphs:
            try:
                if self.scale is None:
                    self._graphs[dataset] = load_graph(self.stand_in or dataset)
                else:
                    self._graphs[dataset] = shape_of(dataset, self.scale)
            except UserError as error:
                self._missing[dataset] = str(error)
                raise
        return self._graphs[dataset]

    def nodes(self, dataset: str) -> NodeGraph:
        """Return a graph without relations."""
        if self.stand_in is None:
            return load_node_graph(dataset)
        return node_shape(dataset, self.scale or _NODE_SCALE)


def shape_of(dataset: str, scale: int = 1) -> KnowledgeGraph:
    """Return a random graph with the sizes of a named data set, divided by ``scale``."""
    info = known_dataset(dataset)
    if info is None:
        raise UserError(f"The shape of '{dataset}' is not known; name a data set of the paper.")
    rng = np.random.default_rng(0)
    entities = max(10, info.entities // scale)
    splits = []
    for size in (info.train, info.valid, info.test):
        columns = (entities, info.relations, entities)
        rows = max(10, size // scale)
        splits.append(np.stack([rng.integers(0, high, rows) for high in columns], axis=1))
    names = [[f"{kind}{i}" for i in range(n)] for kind, n in zip("er", columns[:2], strict=True)]
    return KnowledgeGraph(*names, *splits, name=f"{dataset}-shape")


def node_shape(dataset: str, scale: int) -> NodeGraph:
    """Return a random graph of the size of Cora or Citeseer; most edges stay within a class."""
    nodes, edges, classes = _NODE_SHAPES[dataset]
    nodes, edges = max(40, nodes // scale), max(80, edges // scale)
    rng = np.random.default_rng(0)
    of_node = np.arange(nodes) % classes
    heads = rng.integers(0, nodes, edges)
    near = (heads + classes * rng.integers(1, 4, edges)) % nodes
    tails = np.where(rng.random(edges) < 0.9, near, rng.integers(0, nodes, edges))
    made = graph_of_edges([str(i) for i in range(nodes)], np.stack([heads, tails], axis=1))
    labels = Labels([str(i) for i in range(classes)], of_node.astype(np.int32))
    return replace(made, labels=labels, name=dataset)


def _scale(stand_in: str | None) -> int | None:
    shape, slash, divisor = (stand_in or "").partition("/")
    if shape != SHAPE:
        return None
    if not slash:
        return 1
    if not divisor.isdigit() or int(divisor) < 1:
        raise UserError(f"--on {stand_in} is not a shape; write --on shape or --on shape/100.")
    return int(divisor)
