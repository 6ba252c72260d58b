"""The parameters that a run starts from: random ones, or those of another run."""

from __future__ import annotations

import torch

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel
from nscaching.training.config import TrainConfig
from nscaching.training.folder import RunFolder


def initial_model(
    graph: KnowledgeGraph, config: TrainConfig, device: torch.device
) -> EmbeddingModel:
    """Initialise on the CPU, so that a seed means the same parameters on every device."""
    if config.init_from is not None:
        model = _parameters_of(RunFolder(config.init_from), graph, config)
    else:
        model = EmbeddingModel.initialised(
            config.build_scoring(),
            graph.num_entities,
            graph.num_relations,
            torch.Generator().manual_seed(config.seed),
            reciprocal=config.reciprocal,
        )
    return model.to(device)


def _parameters_of(folder: RunFolder, graph: KnowledgeGraph, config: TrainConfig) -> EmbeddingModel:
    """Read another run, which must be on the same entities and relations."""
    source, source_graph = folder.read_config(), folder.read_graph()
    for name in ("scoring", "dim", "reciprocal"):
        theirs, ours = getattr(source, name), getattr(config, name)
        if theirs != ours:
            raise UserError(
                f"init_from: {folder.path} was trained with {name} {theirs}, this run has {name} "
                f"{ours}; they must be the same."
            )
    same_entities = source_graph.entities == graph.entities
    if not same_entities or source_graph.relations != graph.relations:
        raise UserError(
            f"init_from: {folder.path} was trained on other entities or relations; both runs "
            "must be on the same graph."
        )
    return folder.read_model(source, source_graph)
