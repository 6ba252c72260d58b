"""What is looked at now and then: the content of cache rows, gradient norms over all negatives."""

from __future__ import annotations

from typing import Any

import torch

from nscaching.graph import KnowledgeGraph
from nscaching.losses import Loss
from nscaching.models import EmbeddingModel, Side
from nscaching.sampling.cache import PADDING
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training.tracing.gradients import GradientNorms, gradient_norms
from nscaching.training.tracing.names import RowName

#: Entities of a row that are written down: the hardest, and some at random.
HARDEST, AT_RANDOM = 10, 5

Line = dict[str, Any]


def look_at_row(
    graph: KnowledgeGraph,
    model: EmbeddingModel,
    sampler: NSCachingSampler,
    name: RowName,
    epoch: int,
    seed: int,
) -> Line:
    """Return the hardest entities of a row by their score now, and a few of all at random.

    What is random depends on the seed and the epoch only, not on the training's generator.
    """
    ids = sampler.caches[name.side].ids[name.row].long()
    ids = ids[ids != PADDING]
    anchor, relation = (ids.new_tensor([each]) for each in (name.anchor, name.relation))
    ids = ids.cpu()
    scores = model.score_all(name.side, anchor, relation)[0].cpu()[ids]
    facts = _answers(graph, name.side, name.anchor, name.relation)
    hardest = scores.argsort(descending=True, stable=True)[:HARDEST]
    chance = torch.Generator().manual_seed((seed << 20) + epoch)
    some = torch.randperm(len(ids), generator=chance)[:AT_RANDOM]
    return {
        "event": "row",
        "epoch": epoch,
        "row": name.text,
        "held": len(ids),
        "hardest": [
            {
                "entity": graph.entities[entity],
                "score": round(score, 4),
                "split": facts.get(entity),
            }
            for entity, score in zip(ids[hardest].tolist(), scores[hardest].tolist(), strict=True)
        ],
        "random": [graph.entities[entity] for entity in ids[some].tolist()],
    }


def look_at_triple(
    graph: KnowledgeGraph,
    model: EmbeddingModel,
    loss: Loss,
    text: str,
    triple: tuple[int, int, int],
    epoch: int,
) -> list[Line]:
    """Return, for each side, the CCDF of the gradient norms over all negatives of a triple."""
    lines: list[Line] = []
    for side in Side:
        norms = norms_of_negatives(graph, model, loss, triple, side)
        lines.append(
            {
                "event": "gradients",
                "epoch": epoch,
                "triple": text,
                "side": side.name.lower(),
                "negatives": len(norms.norms),
                "ccdf": norms.as_points(),
            }
        )
    return lines


def norms_of_negatives(
    graph: KnowledgeGraph,
    model: EmbeddingModel,
    loss: Loss,
    triple: tuple[int, int, int],
    side: Side,
) -> GradientNorms:
    """Return the norms over all negatives of a triple: training answers are none."""
    head, relation, tail = triple
    anchor, positive = (tail, head) if side is Side.HEAD else (head, tail)
    answers = _answers(graph, side, anchor, relation)
    known = [entity for entity, split in answers.items() if split == "train"]
    leave_out = torch.tensor([*known, positive], device=model.device)
    return gradient_norms(model, loss, triple, side, leave_out)


def _answers(graph: KnowledgeGraph, side: Side, anchor: int, relation: int) -> dict[int, str]:
    return graph.answers("head" if side is Side.HEAD else "tail", anchor, relation)
