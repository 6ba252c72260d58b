"""What is written down now and then: cache rows by name, gradient norms, recall of the hardest.

Rows and triples are named as ``HEAD|RELATION|?``, ``?|RELATION|TAIL`` and ``HEAD|RELATION|TAIL``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel, Side
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training.tracing.gradients import GradientNorms, gradient_norms

#: Entities of a row that are written down: the hardest, and some at random.
HARDEST, AT_RANDOM = 10, 5
#: Rows shown where none is named.
EXAMPLES = 3
#: Rows whose recall is taken: at most so many, and fewer where the graph has many entities.
RECALL_ROWS, _RECALL_SCORES, _FEWEST_ROWS = 256, 1 << 20, 32
#: Stands where a row has its negatives.
OPEN = "?"

Line = dict[str, Any]


@dataclass(frozen=True)
class RowName:
    """A cache row by name, with what it is in the graph."""

    text: str
    side: Side  #: of the entities that it holds
    anchor: int
    relation: int
    row: int


def find_row(graph: KnowledgeGraph, text: str) -> RowName:
    """Return the cache row of a name."""
    head, relation, tail = _parts(text, "trace_row", "HEAD|RELATION|? or ?|RELATION|TAIL")
    if (head == OPEN) == (tail == OPEN):
        raise UserError(
            f"trace_row '{text}' must have a ? in place of its head or its tail, as in "
            "'HEAD|RELATION|?'."
        )
    side, name = (Side.HEAD, tail) if head == OPEN else (Side.TAIL, head)
    anchor, relation_id = graph.entity_id(name), graph.relation_id(relation)
    row = int(graph.rows[side].find(np.array([anchor]), np.array([relation_id]))[0])
    if row < 0:
        raise UserError(
            f"trace_row '{text}': no training triple of '{graph.name}' fits it, so the cache has "
            "no such row; name a pair that occurs in training."
        )
    return RowName(text, side, anchor, relation_id, row)


def find_triple(graph: KnowledgeGraph, text: str) -> tuple[int, int, int]:
    """Return the ids of a triple by name."""
    head, relation, tail = _parts(text, "trace_triple", "HEAD|RELATION|TAIL")
    return graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail)


def _parts(text: str, option: str, form: str) -> tuple[str, str, str]:
    """Split a name at its bars, or at its tabs where it has some: names may contain bars."""
    parts = text.split("\t" if "\t" in text else "|")
    if len(parts) != 3:
        raise UserError(
            f"{option} must be {form}, not '{text}'; where a name contains a |, separate them by "
            "tabs."
        )
    head, relation, tail = (part.strip() for part in parts)
    return head, relation, tail


def example_rows(graph: KnowledgeGraph, count: int = EXAMPLES) -> list[RowName]:
    """Return a row for each of the most frequent relations.

    Of a relation it is the row with the most answers in valid and test, where false negatives can
    be seen, and of those with equally many the one with the most training answers.
    """
    frequency = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    frequent = np.argsort(-frequency, kind="stable")[:count]
    return [_example(graph, int(relation)) for relation in frequent if frequency[relation] > 0]


def _example(graph: KnowledgeGraph, relation: int) -> RowName:
    held_out = np.concatenate([graph.valid, graph.test])
    held_out = held_out[held_out[:, 1] == relation]
    found: list[tuple[int, int, Side, int]] = []
    for side in Side:
        pairs = graph.rows[side]
        rows = np.flatnonzero(pairs.relation == relation)
        anchors = held_out[:, side.other.column]
        hidden = np.bincount(anchors, minlength=graph.num_entities)[pairs.anchor[rows]]
        answers = np.diff(pairs.offsets)[rows]
        best = int(np.lexsort((rows, -answers, -hidden))[0])
        found.append((int(hidden[best]), int(answers[best]), side, int(rows[best])))
    _, _, side, row = max(found, key=lambda each: each[:2])
    anchor = int(graph.rows[side].anchor[row])
    ends = (OPEN, graph.entities[anchor]) if side is Side.HEAD else (graph.entities[anchor], OPEN)
    text = f"{ends[0]}|{graph.relations[relation]}|{ends[1]}"
    return RowName(text, side, anchor, relation, row)


def row_snapshot(
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
    ids = ids[ids >= 0]
    anchor, relation = (ids.new_tensor([each]) for each in (name.anchor, name.relation))
    ids = ids.cpu()
    scores = model.score_all(name.side, anchor, relation)[0].cpu()[ids]
    facts = graph.answers(name.side.word, name.anchor, name.relation)
    hardest = scores.argsort(descending=True, stable=True)[:HARDEST]
    chance = torch.Generator().manual_seed((seed << 20) + epoch)
    some = torch.randperm(len(ids), generator=chance)[:AT_RANDOM]
    pairs = zip(ids[hardest].tolist(), scores[hardest].tolist(), strict=True)
    return {
        "event": "row",
        "epoch": epoch,
        "row": name.text,
        "held": len(ids),
        "hardest": [
            {"entity": graph.entities[id], "score": round(score, 4), "split": facts.get(id)}
            for id, score in pairs
        ],
        "random": [graph.entities[entity] for entity in ids[some].tolist()],
    }


def triple_snapshot(
    graph: KnowledgeGraph,
    model: EmbeddingModel,
    loss: Any,
    text: str,
    triple: tuple[int, int, int],
    epoch: int,
) -> list[Line]:
    """Return, for each side, the CCDF of the gradient norms over all negatives of a triple."""
    of_side = {side: norms_of_negatives(graph, model, loss, triple, side) for side in Side}
    return [
        {
            "event": "gradients",
            "epoch": epoch,
            "triple": text,
            "side": side.word,
            "negatives": len(norms.norms),
            "ccdf": norms.as_points(),
        }
        for side, norms in of_side.items()
    ]


def norms_of_negatives(
    graph: KnowledgeGraph,
    model: EmbeddingModel,
    loss: Any,
    triple: tuple[int, int, int],
    side: Side,
) -> GradientNorms:
    """Return the norms over all negatives of a triple, known positives excluded."""
    head, relation, tail = triple
    anchor, positive = (tail, head) if side is Side.HEAD else (head, tail)
    answers = graph.answers(side.word, anchor, relation)
    known = [entity for entity, split in answers.items() if split == "train"]
    excluded = torch.tensor([*known, positive], device=model.device)
    return gradient_norms(model, loss, triple, side, excluded)


def recall_of_the_hardest(model: EmbeddingModel, sampler: NSCachingSampler, seed: int) -> float:
    """Return which share of a row's entities are among the hardest there are, over some rows.

    A row with n entities is compared with the n entities that score highest now, known positives
    excluded where the cache excludes them. The rows are the same whenever the seed is; half of
    them hold heads, half tails.
    """
    most = min(RECALL_ROWS, max(_FEWEST_ROWS, _RECALL_SCORES // model.num_entities))
    shares = []
    for side, cache in sampler.caches.items():
        chance = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(cache.ids), generator=chance)[: -(-most // 2)]
        block = max(1, (1 << 24) // model.num_entities)
        for part in torch.split(rows.to(model.device), block):
            shares.append(_recall(model, sampler, side, part))
    found = torch.cat(shares)
    found = found[~found.isnan()]  # a row may be empty
    return float(found.mean()) if len(found) else 0.0


def _recall(model: EmbeddingModel, sampler: NSCachingSampler, side: Side, rows: Tensor) -> Tensor:
    """Return the share of each row; the true N1 hardest are found exactly. Shape: (b,)."""
    ids = sampler.caches[side].ids[rows].long()
    anchor, relation = (each[side][rows].long() for each in (sampler.anchor, sampler.relation))
    scores = model.score_all(side, anchor, relation)
    if sampler.known is not None:
        known = sampler.known[side]
        first, stop = known.offsets[rows], known.offsets[rows + 1]
        owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), stop - first)
        within = torch.arange(len(owner), device=rows.device)
        within -= (torch.cumsum(stop - first, 0) - (stop - first))[owner]
        scores[owner, known.answers[first[owner] + within].long()] = -torch.inf
    held = (ids >= 0).sum(1)
    hardest = scores.topk(min(ids.shape[1], scores.shape[1]), dim=1).values
    least = hardest.gather(1, (held - 1).clamp_min(0).unsqueeze(1))
    among = (scores.gather(1, ids.clamp_min(0)) >= least) & (ids >= 0)
    return among.sum(1) / held
