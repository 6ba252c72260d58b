"""Tuning embeddings of nodes: a trial is the mean of some seeds.

Where nodes have classes, trials are compared by micro-F1 on validation nodes: of the labels that
are learnt from, a fifth is set aside and asked. Where they have none, a tenth of the edges is held
out and the AUC counts. Edges that ``held_out`` keeps for the end are removed before the search.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.artefacts.files import (
    append_json_line,
    explained_writes,
    read_json_lines,
    write_json_lines,
)
from nscaching.errors import UserError
from nscaching.experiments.tune.objective import Metric, Objective
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.trials import SUCCESS, TrialResult
from nscaching.nodes import NodeConfig, NodeEmbedding, NodeGraph, embed_nodes, load_node_graph
from nscaching.nodes.api import make_node_config
from nscaching.nodes.folder import CONFIG_FILE, read_graph, write_graph
from nscaching.nodes.tasks import classification_scores, hold_out_edges

#: The share of the labels that are known, as in the middle column of the paper's table.
_LABELLED = 0.5
#: The share of the edges that trials are asked about where there are no classes.
_ASKED_EDGES = 0.1


@dataclass(frozen=True)
class NodeEmbeddings(Objective):
    """Embeddings of ``nscaching nodes train``; a trial keeps its scores, not its vectors."""

    seeds: int  #: trainings of each configuration
    train_command = "nscaching nodes train"

    def plan(self, space: str, graph: Any, base: Any, options: Mapping[str, Any]) -> NodeConfig:
        """Return base and options together, with the sampler of the space."""
        if isinstance(base, str | Path) and Path(base).is_dir():
            base = Path(base) / CONFIG_FILE
        config = make_node_config(graph, base, dict(options))
        if graph is None and not config.data:
            raise UserError("Name a graph (cora, citeseer) or an edge list to tune on.")
        built = SearchSpace.build(space, config, options)
        return make_node_config(graph, config, {"sampler": built.sampler})

    def open(self, graph: Any, config: NodeConfig, labels: str | Path | None) -> NodeGraph:
        """Return the graph without the edges that are for the end."""
        source = config.data if graph is None else graph
        loaded = load_node_graph(source, labels=labels, directed=config.directed)
        if config.held_out > 0:
            _, keep = hold_out_edges(loaded, config.held_out, config.seed)
            loaded = loaded.without_edges(keep)
        return loaded

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
        given = self.open(graph, stored.config, None)
        return given.nodes == stored.graph.nodes and np.array_equal(
            given.arcs(), stored.graph.arcs()
        )

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
        config, graph = _base(str(base))
        epochs = options["epochs"]
        log = out / "seeds.jsonl"
        with explained_writes(out):
            out.mkdir(parents=True, exist_ok=True)
        lines = read_json_lines(log)
        write_json_lines(log, lines)  # without the line that a killed process half wrote
        scores = {line["seed"]: line["score"] for line in lines if line["epochs"] == epochs}
        settings = {**options, "held_out": _ASKED_EDGES if graph.labels is None else 0.0}
        for seed in range(config.seed, config.seed + self.seeds):
            if seed in scores:
                continue
            told = {**settings, "seed": seed}
            embedding = embed_nodes(graph, config=config, progress="none", **told)
            scores[seed] = _score(embedding, seed)
            append_json_line(log, {"seed": seed, "epochs": epochs, "score": scores[seed]})
        mean = float(np.mean(list(scores.values())))
        return TrialResult(SUCCESS, score=mean, best_epoch=epochs, epochs=epochs)


def _score(embedding: NodeEmbedding, seed: int) -> float:
    labels = embedding.graph.labels
    if labels is None:
        return float(embedding.predict_links(seed=seed)["auc"])
    shares = (_LABELLED,)
    scores = classification_scores(
        embedding.vectors, labels, shares=shares, seed=seed, validate=True
    )
    return float(scores[..., 0].mean())


@functools.lru_cache(maxsize=2)
def _base(folder: str) -> tuple[NodeConfig, NodeGraph]:
    """Read the graph once in a process; all trials share it."""
    stored = read_graph(Path(folder))
    return stored.config, stored.graph
