"""Knowledge graph embedding with cached hard negatives.

>>> import nscaching as ns
>>> graph = ns.load_graph("world")
>>> run = ns.train(graph, epochs=1, dim=8, progress="none")
>>> len(run.predict_tails("France", "neighbour of", k=3))
3
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nscaching._version import __version__
from nscaching.errors import NSCachingError, TrainingDiverged, TrainingInterrupted, UserError
from nscaching.kernels import availability  # noqa: F401  (first: it sets up threads before torch loads)

if TYPE_CHECKING:
    from nscaching.evaluation import ClassificationReport, RankingMetrics, RankingReport
    from nscaching.evaluation.calibration import CalibrationReport
    from nscaching.experiments.compare import compare
    from nscaching.experiments.comparison import Comparison
    from nscaching.experiments.tune import SearchResult, tune
    from nscaching.graph import KnowledgeGraph, load_graph
    from nscaching.graph.ingest import ingest
    from nscaching.nodes import (
        NodeConfig,
        NodeEmbedding,
        NodeGraph,
        embed_nodes,
        load_node_graph,
        load_nodes,
    )
    from nscaching.runs.api import load_run, train
    from nscaching.runs.explain import Explanation
    from nscaching.runs.predictions import Predictions
    from nscaching.runs.run import Neighbour, Prediction, Run
    from nscaching.runs.verdicts import Verdicts
    from nscaching.training import Progress, TrainConfig

#: Where each public name is defined: it is loaded when it is first used, torch with it.
_DEFINED_IN = {
    "evaluation": ("ClassificationReport", "RankingMetrics", "RankingReport"),
    "experiments.compare": ("compare",),
    "experiments.comparison": ("Comparison",),
    "experiments.tune": ("SearchResult", "tune"),
    "graph": ("KnowledgeGraph", "load_graph"),
    "graph.ingest": ("ingest",),
    "nodes": (
        "NodeConfig",
        "NodeEmbedding",
        "NodeGraph",
        "embed_nodes",
        "load_node_graph",
        "load_nodes",
    ),
    "evaluation.calibration": ("CalibrationReport",),
    "runs.api": ("load_run", "train"),
    "runs.explain": ("Explanation",),
    "runs.predictions": ("Predictions",),
    "runs.run": ("Neighbour", "Prediction", "Run"),
    "runs.verdicts": ("Verdicts",),
    "training": ("Progress", "TrainConfig"),
}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names}

__all__ = [
    "CalibrationReport",
    "ClassificationReport",
    "Comparison",
    "Explanation",
    "KnowledgeGraph",
    "NSCachingError",
    "Neighbour",
    "NodeConfig",
    "NodeEmbedding",
    "NodeGraph",
    "Prediction",
    "Predictions",
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
    "ingest",
    "load_graph",
    "load_node_graph",
    "load_nodes",
    "load_run",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'nscaching' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"nscaching.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
