"""The rows of the strata that this process owns, and their way to other processes and back.

Every process knows every batch, since the order of an epoch is seeded; so each knows which rows the
others lack and how many will come, and nobody asks. Entities are called by their *place* here
(:class:`~nscaching.distributed.strata.Strata`). Of the 2b *slots* of a batch, slot 2i is the head
and slot 2i + 1 the tail of triple i.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from nscaching.distributed.exchange import Exchange, current_exchange, pairwise_sum
from nscaching.distributed.strata import Strata
from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel, ScoringFunction
from nscaching.models.match import Query
from nscaching.models.model import Side
from nscaching.optim import RowGradients


class Shards:
    """Which strata this process owns, and what it does for the others."""

    def __init__(
        self, strata: Strata, device: torch.device, exchange: Exchange | None = None
    ) -> None:
        self.strata, self.device = strata, device
        self.exchange = current_exchange() if exchange is None else exchange
        processes = self.exchange.world_size
        if strata.count % processes:
            raise UserError(
                f"{processes} processes cannot share {strata.count} strata evenly; set strata to a "
                f"multiple of {processes}."
            )
        share = strata.count // processes
        self.own = range(self.exchange.rank * share, (self.exchange.rank + 1) * share)
        #: Places of one process, and the first of this one.
        self._span = share * strata.stride
        self.first = self.own.start * strata.stride

    def rows(self, number: int) -> slice:
        """Return where the table of this process holds a stratum of its own."""
        start = number * self.strata.stride - self.first
        return slice(start, start + self.strata.size(number))

    def block(self, batch: int) -> slice:
        """Return the triples of a batch whose questions this process answers, or adds up."""
        return self.strata.block(self.own, batch)

    def ends(self, batch: int) -> Tensor:
        """Return where the blocks of the own strata end in a batch. Shape: (strata,)."""
        ends = [self.strata.block(self.own[: i + 1], batch).stop for i in range(len(self.own))]
        return torch.tensor(ends)

    # Tables --------------------------------------------------------------------------------------

    def initial_model(
        self, scoring: ScoringFunction, graph: KnowledgeGraph, reciprocal: bool
    ) -> EmbeddingModel:
        """Return the rows of the own strata and all relations, at random as a whole table is."""
        entities = graph.num_entities
        nothing = torch.empty(0, scoring.entity_width), torch.empty(0, scoring.relation_width)
        table = torch.zeros(self._span, scoring.entity_width)
        for number in self.own:
            part = table[self.rows(number)]
            generator = self.strata.generator(number, torch.device("cpu"))
            scoring.init_(part, nothing[1], generator)
            # Bounds of Xavier's values follow from the rows of a table.
            part.mul_(((len(part) + scoring.dim) / (entities + scoring.dim)) ** 0.5)
        relation = torch.empty(
            graph.num_relations * (2 if reciprocal else 1), scoring.relation_width
        )
        generator = torch.Generator().manual_seed(self.strata.seed)
        scoring.init_(nothing[0], relation, generator)
        model = EmbeddingModel(scoring, table, relation, reciprocal=reciprocal)
        return model.to(self.device)

    def sharded(self, model: EmbeddingModel) -> EmbeddingModel:
        """Return the own strata of a whole model, whose rows are in the order of the graph."""
        table = model.entity.new_zeros(self._span, model.entity.shape[1])
        for number in self.own:
            table[self.rows(number)] = model.entity[torch.from_numpy(self.strata.entities(number))]
        parts = {"entity": table, "relation": model.relation}
        return model.with_tables(parts).to(self.device)

    def whole(self, model: EmbeddingModel) -> EmbeddingModel:
        """Return the model of one process with the rows in the order of the graph."""
        places = torch.from_numpy(self.strata.places).to(model.device)
        return model.with_tables({"entity": model.entity[places], "relation": model.relation})

    def columns(self, columns: Tensor) -> Tensor:
        """Return the columns of triples (5, n) with places instead of entities."""
        places = torch.from_numpy(self.strata.places.astype(np.int32)).to(columns.device)
        columns[0], columns[2] = places[columns[0].long()], places[columns[2].long()]
        return columns

    def local(self, places: Tensor, number: int) -> Tensor:
        """Return the rows of places in a stratum, -2 for those elsewhere."""
        found = places - number * self.strata.stride
        return found.masked_fill((found < 0) | (found >= self.strata.stride), -2)

    # Rows on their way ---------------------------------------------------------------------------

    def fetch(self, table: Tensor, places: Tensor) -> Tensor:
        """Return the rows of places, wherever they are. Shapes: (n, w), (m,) -> (m, w)."""
        if self.exchange.world_size == 1:
            return self.exchange.swap(table[places], [len(places)], [len(places)])
        rank, home = self.exchange.rank, places // self._span
        counts = torch.bincount(home, minlength=self.exchange.world_size).tolist()
        mine = table[places[home == rank] - self.first]
        sent = [0 if other == rank else len(mine) for other in range(len(counts))]
        received = [0 if other == rank else count for other, count in enumerate(counts)]
        came = self.exchange.swap(mine.repeat(len(counts) - 1, 1), sent, received)
        before = sum(received[:rank])
        rows = torch.empty(len(places), table.shape[1], device=table.device)
        rows[home.argsort(stable=True)] = torch.cat([came[:before], mine, came[before:]])
        return rows

    def send_home(self, places: Tensor, rows: Tensor) -> RowGradients:
        """Send the gradients of the slots of this block home; return those that came, by slot.

        Shapes: (2b,), those of the block (2m, w).
        """
        if self.exchange.world_size == 1:
            return RowGradients(places, self.exchange.swap(rows, [len(rows)], [len(rows)]))
        processes, batch = self.exchange.world_size, len(places) // 2
        home = places // self._span
        here = home == self.exchange.rank
        cuts = [2 * (batch * part // processes) for part in range(processes + 1)]
        received = [int(here[start:stop].sum()) for start, stop in pairwise(cuts)]
        block = self.block(batch)
        of_block = home[2 * block.start : 2 * block.stop]
        sent = torch.bincount(of_block, minlength=processes).tolist()
        came = self.exchange.swap(rows[of_block.argsort(stable=True)], sent, received)
        return RowGradients(places[here] - self.first, came)

    def sum_blocks(self, parts: list[Tensor], batch: int) -> Tensor:
        """Add up what the strata found for both questions of every triple: those of this block.

        Shapes: (2b, w) each, questions for heads first -> (2m, w), likewise.
        """
        total = pairwise_sum(parts)
        processes = self.exchange.world_size
        if processes == 1:
            return self.exchange.swap(total, [len(total)], [len(total)])
        cuts = [batch * part // processes for part in range(processes + 1)]
        sizes = [2 * (stop - start) for start, stop in pairwise(cuts)]
        both = total.view(2, batch, total.shape[1])
        given = [both[:, start:stop].flatten(0, 1) for start, stop in pairwise(cuts)]
        mine = sizes[self.exchange.rank]
        came = self.exchange.swap(torch.cat(given), sizes, [mine] * processes)
        return pairwise_sum(came.view(processes, mine, total.shape[1]).unbind(0))

    def sum_rows(
        self, distinct: Tensor, gradients: RowGradients, triples: Tensor, batch: int
    ) -> RowGradients:
        """Add up gradients of a table that every process has, one per question of this block.

        ``distinct`` are the rows that the batch may touch, ascending; ``triples`` (m,) says which
        triple of the batch a gradient comes from: those of a stratum are added up first.
        """
        assert gradients.ids is not None
        width, share = gradients.rows.shape[1], len(self.own)
        group = torch.searchsorted(self.ends(batch).to(triples.device), triples, right=True)
        place = group * len(distinct) + torch.searchsorted(distinct, gradients.ids)
        parts = gradients.rows.new_zeros(share * len(distinct), width)
        parts.index_add_(0, place, gradients.rows)
        summed = pairwise_sum(parts.view(share, len(distinct), width).unbind(0))
        total = self.exchange.sum(summed)
        touched = (total != 0).any(1)  # other processes do not say which rows they asked with
        return RowGradients(distinct[touched], total[touched])


class FetchingScorer:
    """Scores candidates of one stratum where the anchor may live in another process."""

    def __init__(self, shards: Shards, model: EmbeddingModel, number: int) -> None:
        self._shards, self._model = shards, model
        self._stratum = model.at(shards.rows(number))
        self._places = torch.from_numpy(shards.strata.places).to(model.device)

    def score_candidates(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        """Score k candidates per question. Shapes: (b,), (b,), (b, k) -> (b, k)."""
        query = fetched_query(self._shards, self._model, side, self._places[anchor], relation)
        return self._stratum.score_ids(query, candidates)


def fetched_query(
    shards: Shards, model: EmbeddingModel, side: Side, places: Tensor, relation: Tensor
) -> Query:
    """Return the queries of some questions, from anchors by their place. Shapes: (b,), (b,)."""
    anchors = shards.fetch(model.entity, places)
    rows = model.relation[model.relation_rows(side, relation)]
    return model.scoring.query(anchors, rows, tail=side is Side.TAIL or model.reciprocal)
