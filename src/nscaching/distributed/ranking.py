"""Filtered ranks over strata: each process counts in its own, and counts are added up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.distributed.shards import Shards, fetched_query
from nscaching.evaluation.ranking import Counts, count_scores
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
        triples: npt.NDArray[np.int32],
        question: npt.NDArray[np.int64],
        entity: npt.NDArray[np.int64],
    ) -> Counts:
        """Count for triples (b, 3), without the entities that are listed with their question."""
        shards, exchange = self._shards, self._shards.exchange
        columns = torch.from_numpy(np.ascontiguousarray(triples.T)).to(model.device).long()
        heads, relations, tails = columns
        anchor, target = (tails, heads) if side is Side.HEAD else (heads, tails)
        query = fetched_query(shards, model, side, self._places[anchor], relations)
        scores = [
            model.match.forward_all(query, model.entity[shards.rows(number)])
            for number in shards.own
        ]
        places = self._places[target]
        true = exchange.gather(
            sum(
                (_at(each, shards.local(places, number)) for each, number in self._pairs(scores)),
                torch.zeros(len(target), device=model.device),
            ).unsqueeze(0)
        ).sum(0)
        known = self._shards.strata.places[entity]
        counts = np.zeros((2, len(triples)), dtype=np.int64)
        for each, number in self._pairs(scores):
            rows = known - number * shards.strata.stride
            here = (rows >= 0) & (rows < shards.strata.stride)
            counts += count_scores(each, true, question[here], rows[here])
        summed = exchange.gather(torch.from_numpy(counts).unsqueeze(0).to(model.device)).sum(0)
        better, equal = summed.cpu().numpy()
        return better, equal, true.isnan().cpu().numpy()

    def _pairs(self, scores: list[Tensor]) -> zip[tuple[Tensor, int]]:
        return zip(scores, self._shards.own, strict=True)


def _at(scores: Tensor, rows: Tensor) -> Tensor:
    """Return the score of each question's row, 0 where that row is negative. (b, n), (b,)."""
    found = scores.gather(1, rows.clamp_min(0).unsqueeze(1)).squeeze(1)
    return found.masked_fill(rows < 0, 0.0)
