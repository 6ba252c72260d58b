"""What a search tunes: how trials are trained and measured. The search itself knows no model.

There are two objectives with the same methods: runs on a knowledge graph, and embeddings of nodes.
They travel to the workers, so they are small. ``base`` is always the folder of the graph and of the
options that all trials begin with.

A trial of node embeddings is the mean of some seeds. Where nodes have classes, trials are compared
by micro-F1 on validation nodes: of the labels that are learnt from, a fifth is set aside and asked.
Where they have none, a tenth of the edges is held out and the AUC counts. Edges that ``held_out``
keeps for the end are removed before the search.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nscaching.artefacts.files import explained_writes
from nscaching.errors import UserError
from nscaching.evaluation.metrics import SELECTABLE
from nscaching.experiments.runner import TrialLog
from nscaching.experiments.tune.space import AUTO, SPACES, AnyOptions, NodeSearchOptions
from nscaching.experiments.tune.trials import CUT, SUCCESS, TrialResult
from nscaching.graph import KnowledgeGraph, as_graph
from nscaching.nodes import NodeConfig, NodeEmbedding, NodeGraph, embed_nodes, load_node_graph
from nscaching.nodes.api import make_node_config
from nscaching.nodes.embedding import CONFIG_FILE, read_graph, write_graph
from nscaching.nodes.loading import NAMED as NAMED_NODE_GRAPHS
from nscaching.nodes.tasks import classification_scores, hold_out_edges
from nscaching.processes import joined
from nscaching.runs.api import make_config, make_trainer, merged_options, recipe_config
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.opening import graph_of_run, named_or_graph, open_graph
from nscaching.training.recipes import PAPER

Config = TrainConfig | NodeConfig
#: The share of the labels that are known, as in the middle column of the paper's table.
_LABELLED = 0.5
#: The share of the edges that trials are asked about where there are no classes.
_ASKED_EDGES = 0.1


class Metric(NamedTuple):
    """What trials are compared by; more is better, and 1 is the most."""

    key: str  #: in JSON and in ``trials.csv``
    name: str  #: for people


@dataclass(frozen=True)
class GraphRuns:
    """Runs of ``nscaching train``; a trial is an ordinary run folder."""

    train_command = "nscaching train"  #: takes ``best.yaml``

    def plan(self, graph: Any, base: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return base and options together, checked; the data is named."""
        if isinstance(base, str | Path) and Path(base).is_dir():
            base = RunFolder(base).read_config()
        given = merged_options(base, options)
        return {**given, "data": make_config(named_or_graph(graph), given).data}

    def open(
        self, graph: Any, given: Mapping[str, Any], labels: Any, space: str, progress: Progress
    ) -> tuple[KnowledgeGraph, str, TrainConfig]:
        """Return the graph, the space, and the configuration that all trials begin with.

        Where neither options nor space say otherwise that is the recipe of the graph; the paper's
        spaces go with the paper's recipe, unless another one is named.
        """
        config = make_config(None, dict(given))
        if labels is not None:
            raise UserError("Labels are classes of nodes; they go with --space nodes.")
        if config.data in NAMED_NODE_GRAPHS and not Path(config.data).exists():
            raise UserError(
                f"{config.data} is a graph without relations; tune embeddings of its nodes with "
                f"'nscaching nodes tune {config.data}'."
            )
        loaded = open_graph(config, named_or_graph(graph))
        if len(loaded.valid) == 0 or config.valid_every == 0:
            raise UserError(
                "A search compares trials by a validation metric: it needs valid triples (a split "
                "above 0 for a single file) and a valid_every above 0."
            )
        for note in loaded.notes:
            progress.say(note)
        if space in (AUTO, "recipe"):
            config = recipe_config(dict(given), None, loaded, progress)
            if space == "recipe" or config.recipe != PAPER:
                return loaded, "recipe", config
            space = "sampler"
        given = {**given, "sampler": SPACES[space].sampler}
        return loaded, space, recipe_config(given, None, loaded, progress)

    def write_base(self, base: Path, config: TrainConfig, graph: KnowledgeGraph) -> None:
        """Write what the workers read: a run folder without a model."""
        RunFolder(base).create(config, graph)

    def read_config(self, base: Path) -> TrainConfig:
        """Return the configuration that all trials begin with."""
        return RunFolder(base).read_config()

    def is_of(self, base: Path, graph: Any) -> bool:
        """Tell whether a search was begun on this graph, which is in memory."""
        folder = RunFolder(base)
        return graph_of_run(as_graph(graph), folder.read_graph(), folder.read_config()) is not None

    def metric(self, base: Path) -> Metric:
        """Return what trials are compared by."""
        select = self.read_config(base).select
        return Metric(select, SELECTABLE[select])

    def train(
        self, base: Path, out: Path, options: Mapping[str, Any], seconds: float | None
    ) -> TrialResult:
        """Train a trial in its folder, or resume it; the test split stays unseen.

        ``seconds`` are what is left of the search. Where they end a trial that could have trained
        longer, it is cut, and can be resumed.
        """
        config, folder = self.read_config(base), RunFolder(out)
        spent: float | None = None  # seconds of training in earlier sessions
        with joined(config.device) as group, contextlib.ExitStack() as held:
            with group.together():
                if group.rank == 0:
                    held.enter_context(folder.writing())
                    if folder.has_checkpoint():
                        spent = folder.read_counters().epoch_seconds
            spent = group.broadcast(spent)
            anew = spent is None
            limit = config.max_seconds
            if seconds is not None:
                limit = min((spent or 0.0) + seconds, math.inf if limit is None else limit)
            how: dict[str, Any] = {"resume": not anew, "overwrite": anew, "max_seconds": limit}
            how |= options
            trainer = make_trainer(
                _graph(str(base)), out=out, config=config, progress=Progress("none"), **how
            )
            trainer.run(resume=not anew)
        counters = trainer.counters
        if counters.best_valid is None:
            raise UserError("Nothing was validated; a search needs valid triples, --valid-every.")
        score = counters.best_valid[trainer.config.select]
        asked = trainer.config.epochs
        over = not counters.within_budget(asked, limit)
        cut = over and counters.within_budget(asked, config.max_seconds)
        best, epochs, status = counters.best_epoch, counters.epoch, CUT if cut else SUCCESS
        return TrialResult(status, float(score), best_epoch=best, epochs=epochs, anew=anew)


@functools.lru_cache(maxsize=2)
def _graph(base: str) -> KnowledgeGraph:
    """Read the graph once in a process; all trials share it."""
    return RunFolder(base).read_graph()


@dataclass(frozen=True)
class NodeEmbeddings:
    """Embeddings of ``nscaching nodes train``; a trial keeps its scores, not its vectors."""

    seeds: int  #: trainings of each configuration
    train_command = "nscaching nodes train"

    def plan(self, graph: Any, base: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return base and options together, checked."""
        if isinstance(base, str | Path) and Path(base).is_dir():
            base = Path(base) / CONFIG_FILE
        config = make_node_config(graph, base, dict(options))
        if graph is None and not config.data:
            raise UserError("Name a graph (cora, citeseer) or an edge list to tune on.")
        return config.as_dict()

    def open(
        self, graph: Any, given: Mapping[str, Any], labels: Any, space: str, progress: Progress
    ) -> tuple[NodeGraph, str, NodeConfig]:
        """Return the graph, the space, and the configuration that all trials begin with.

        The graph is without the edges that are for the end.
        """
        config = NodeConfig(**{**given, "sampler": "nscaching"})
        source = config.data if graph is None else graph
        loaded = load_node_graph(source, labels=labels, directed=config.directed)
        if config.held_out > 0:
            _, keep = hold_out_edges(loaded, config.held_out, config.seed)
            loaded = loaded.without_edges(keep)
        for note in loaded.notes:
            progress.say(note)
        return loaded, space, config

    def write_base(self, base: Path, config: NodeConfig, graph: NodeGraph) -> None:
        """Write the folder of an embedding without the embedding."""
        with explained_writes(base):
            base.mkdir(parents=True, exist_ok=True)
        write_graph(base, config, graph)

    def read_config(self, base: Path) -> NodeConfig:
        """Return the configuration of the folder."""
        return read_graph(base).config

    def is_of(self, base: Path, graph: Any) -> bool:
        """Compare names and edges."""
        stored = read_graph(base)
        given, *_ = self.open(graph, stored.config.as_dict(), None, "", Progress("none"))
        arcs = given.arcs(), stored.graph.arcs()
        return given.nodes == stored.graph.nodes and np.array_equal(*arcs)

    def metric(self, base: Path) -> Metric:
        """Return micro-F1, or AUC for a graph without classes."""
        labelled = read_graph(base).graph.labels is not None
        return Metric("micro_f1", "micro-F1") if labelled else Metric("auc", "AUC")

    def train(
        self, base: Path, out: Path, options: Mapping[str, Any], seconds: float | None
    ) -> TrialResult:
        """Train with one seed after the other; those a stopped trial has finished are kept.

        A trial is always finished: the mean of fewer seeds could not be compared with others.
        """
        config, graph = _node_base(str(base))
        epochs = options["epochs"]
        log = TrialLog(out / "seeds.jsonl")
        with explained_writes(out):
            out.mkdir(parents=True, exist_ok=True)
        log.repair()
        done = [line for line in log.read() if line.get("epochs") == epochs]
        scores = {line["seed"]: line["score"] for line in done if {"seed", "score"} <= line.keys()}
        settings = {**options, "held_out": _ASKED_EDGES if graph.labels is None else 0.0}
        for seed in range(config.seed, config.seed + self.seeds):
            if seed in scores:
                continue
            told = {**settings, "seed": seed}
            embedding = embed_nodes(graph, config=config, progress="none", **told)
            scores[seed] = validation_score(embedding, seed)
            log.append({"seed": seed, "epochs": epochs, "score": scores[seed]})
        mean = float(np.mean(list(scores.values())))
        return TrialResult(SUCCESS, score=mean, best_epoch=epochs, epochs=epochs)


def validation_score(embedding: NodeEmbedding, seed: int) -> float:
    """Return micro-F1 on validation nodes, or the AUC of held-out edges without classes."""
    labels = embedding.graph.labels
    if labels is None:
        return float(embedding.predict_links(seed=seed)["auc"])
    asked: dict[str, Any] = {"shares": (_LABELLED,), "seed": seed, "validate": True}
    return float(classification_scores(embedding.vectors, labels, **asked)[..., 0].mean())


@functools.lru_cache(maxsize=2)
def _node_base(folder: str) -> tuple[NodeConfig, NodeGraph]:
    """Read the graph once in a process; all trials share it."""
    stored = read_graph(Path(folder))
    return stored.config, stored.graph


Objective = GraphRuns | NodeEmbeddings


def objective_of(options: AnyOptions) -> Objective:
    """Return what a search with these options tunes."""
    if isinstance(options, NodeSearchOptions):
        return NodeEmbeddings(options.seeds)
    return GraphRuns()
