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
    """Initialise on the CPU, so that a seed means the same parameters on every device.

    Tables of bfloat16 are made where they stay.
    """
    if config.init_from is not None:
        model = _parameters_of(RunFolder(config.init_from), graph, config)
    else:
        compact = config.table == "bfloat16"  # too large, perhaps, to be made on the CPU
        generator = torch.Generator(device if compact else "cpu")
        model = EmbeddingModel.initialised(
            config.build_scoring(),
            graph.num_entities,
            graph.num_relations,
            generator.manual_seed(config.seed),
            reciprocal=config.reciprocal,
            dtype=getattr(torch, config.table),
        )
    model.entity = model.entity.to(getattr(torch, config.table))
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
