"""Knowledge graph embedding with cached hard negatives.

>>> import nscaching as ns
>>> graph = ns.load_graph("world")
>>> run = ns.train(graph, epochs=1, dim=8, progress="none")
>>> len(run.predict_tails("France", "neighbour of", k=3))
3
"""

from __future__ import annotations

from nscaching._version import __version__
from nscaching.errors import NSCachingError, TrainingDiverged, TrainingInterrupted, UserError
from nscaching.evaluation import ClassificationReport, RankingMetrics, RankingReport, Verdicts
from nscaching.experiments.compare import Comparison, compare
from nscaching.experiments.tune import SearchResult, tune
from nscaching.graph import KnowledgeGraph, load_graph
from nscaching.kernels import availability  # noqa: F401  (first: it sets up threads before torch loads)
from nscaching.nodes import (
    NodeConfig,
    NodeEmbedding,
    NodeGraph,
    embed_nodes,
    load_node_graph,
    load_nodes,
)
from nscaching.runs.api import load_run, train
from nscaching.runs.run import Neighbour, Prediction, Run
from nscaching.training import Progress, TrainConfig

__all__ = [
    "ClassificationReport",
    "Comparison",
    "KnowledgeGraph",
    "NSCachingError",
    "Neighbour",
    "NodeConfig",
    "NodeEmbedding",
    "NodeGraph",
    "Prediction",
    "Progress",
    "RankingMetrics",
    "RankingReport",
    "Run",
    "SearchResult",
    "TrainConfig",
    "TrainingDiverged",
    "TrainingInterrupted",
    "UserError",
    "Verdicts",
    "__version__",
    "compare",
    "embed_nodes",
    "load_graph",
    "load_node_graph",
    "load_nodes",
    "load_run",
    "train",
    "tune",
]
