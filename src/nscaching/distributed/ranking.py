"""Filtered ranks over strata: each process counts in its own, and counts are added up."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.distributed.shards import Shards, fetched_query
from nscaching.evaluation.ranking import Questions, count_above, counts_of
from nscaching.models import EmbeddingModel, Side


class StrataRanking:
    """Counts the entities of all strata that score above the true one."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._places = torch.from_numpy(shards.strata.places).to(shards.device)

    @torch.no_grad()
    def __call__(self, model: EmbeddingModel, side: Side, questions: Questions) -> Tensor:
        """Count for each triple, without the entities that are known to answer. Shape: (5, b)."""
        shards, exchange = self._shards, self._shards.exchange
        anchors, relations, row, targets, question, entity = questions
        query = fetched_query(shards, model, side, self._places[anchors], relations)
        scores = [
            model.match.forward_all(query, model.entity[shards.rows(number)])
            for number in shards.own
        ]
        places = self._places[torch.stack([targets, anchors[row]])]
        local = (
            _at(each, row, shards.local(places, number)) for each, number in self._pairs(scores)
        )
        nothing = torch.zeros(places.shape, device=model.device)
        true, loop = exchange.gather(sum(local, nothing).unsqueeze(0)).sum(0)
        question, known = question.long(), self._places[entity.long()]
        counts = torch.zeros(2, len(targets), dtype=torch.int64, device=model.device)
        for each, number in self._pairs(scores):
            rows = known - number * shards.strata.stride
            here = (rows >= 0) & (rows < shards.strata.stride)
            counts += torch.stack(count_above(each, row, true, question[here], rows[here].long()))
        better, equal = exchange.gather(counts.unsqueeze(0)).sum(0)
        return counts_of(better, equal, true, loop)

    def _pairs(self, scores: list[Tensor]) -> zip[tuple[Tensor, int]]:
        return zip(scores, self._shards.own, strict=True)


def _at(scores: Tensor, row: Tensor, places: Tensor) -> Tensor:
    """Return the score at places, 0 where they are negative. (u, n), (b,), (2, b) -> (2, b)."""
    return scores[row, places.clamp_min(0)].masked_fill(places < 0, 0.0)
