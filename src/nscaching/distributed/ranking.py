"""Filtered ranks over strata: each process counts in its own, and counts are added up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.distributed.shards import Shards, fetched_query
from nscaching.evaluation.ranking import Asked, Counts, count_scores
from nscaching.models import EmbeddingModel, Side


class StrataRanking:
    """Counts the entities of all strata that score above the true one."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._places = torch.from_numpy(shards.strata.places).to(shards.device)

    @torch.no_grad()
    def __call__(
        self,
        model: EmbeddingModel,
        side: Side,
        asked: Asked,
        question: npt.NDArray[np.int64],
        entity: npt.NDArray[np.int64],
    ) -> Counts:
        """Count for each triple, without the entities that are listed with their question."""
        shards, exchange = self._shards, self._shards.exchange
        anchors, relations, row, targets = asked.on(model.device)
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
        known = self._shards.strata.places[entity]
        counts = np.zeros((2, len(targets)), dtype=np.int64)
        for each, number in self._pairs(scores):
            rows = known - number * shards.strata.stride
            here = (rows >= 0) & (rows < shards.strata.stride)
            counts += count_scores(each, row, true, question[here], rows[here])
        summed = exchange.gather(torch.from_numpy(counts).unsqueeze(0).to(model.device)).sum(0)
        better, equal = summed.cpu().numpy()
        return Counts.of(better, equal, true, loop)

    def _pairs(self, scores: list[Tensor]) -> zip[tuple[Tensor, int]]:
        return zip(scores, self._shards.own, strict=True)


def _at(scores: Tensor, row: Tensor, places: Tensor) -> Tensor:
    """Return the score at places, 0 where they are negative. (u, n), (b,), (2, b) -> (2, b)."""
    return scores[row, places.clamp_min(0)].masked_fill(places < 0, 0.0)
