"""A knowledge graph in memory, the readers that fill it, and the named data sets."""

from nscaching.graph.datasets import (
    DatasetInfo,
    dataset_info,
    fetch_dataset,
    find_dataset,
    list_datasets,
    verify_dataset,
)
from nscaching.graph.files import reading_progress
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.loading import GraphSource, as_graph, load_graph, read_triples
from nscaching.graph.pairs import PairRows, RelationStatistics, TrainingRows, pair_rows
from nscaching.graph.splitting import split_triples

__all__ = [
    "DatasetInfo",
    "GraphSource",
    "KnowledgeGraph",
    "PairRows",
    "RelationStatistics",
    "TrainingRows",
    "as_graph",
    "dataset_info",
    "fetch_dataset",
    "find_dataset",
    "list_datasets",
    "load_graph",
    "pair_rows",
    "read_triples",
    "reading_progress",
    "split_triples",
    "verify_dataset",
]
