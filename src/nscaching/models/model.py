"""The trainable tables of a model, and the queries of a batch made from them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import torch
from torch import Tensor

from nscaching.graph.pairs import SideName
from nscaching.models.base import ScoringFunction
from nscaching.models.int8 import HalfTable, Int8Table
from nscaching.models.match import (
    Match,
    Query,
    block_floats,
    exact_products,
    fast_products,
    rows_of,
    with_room,
)
from nscaching.models.matches import Dot
from nscaching.models.queries import BatchQueries, make_queries


class Side(IntEnum):
    """Which entity of a triple is asked for or replaced; the other one is the anchor."""

    HEAD = 0
    TAIL = 1

    @property
    def other(self) -> Side:
        """The side of the anchor."""
        return Side(1 - self)

    @property
    def column(self) -> int:
        """Where its entities stand in triples."""
        return 2 * self

    @property
    def word(self) -> SideName:
        """Its name in words."""
        return "head" if self is Side.HEAD else "tail"


class EmbeddingModel:
    """Entity and relation tables with the scoring function that reads them.

    With ``reciprocal`` relations the relation table has a second half: the question for the head of
    (h, r, t) is the question for the tail of (t, r'), with a row r' of its own.
    """

    def __init__(
        self,
        scoring: ScoringFunction,
        entity: Tensor,
        relation: Tensor,
        *,
        reciprocal: bool = False,
    ) -> None:
        self.scoring = scoring
        self.entity = entity
        self.relation = relation
        self.reciprocal = reciprocal
        #: Copies for scoring candidates, kept fresh by the optimiser: on a CPU, on a GPU.
        self.int8: Int8Table | None = None
        self.half: HalfTable | None = None

    @classmethod
    def initialised(
        cls,
        scoring: ScoringFunction,
        num_entities: int,
        num_relations: int,
        generator: torch.Generator,
        *,
        reciprocal: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> EmbeddingModel:
        """Return freshly initialised tables on the generator's device; entities in a dtype."""
        device = generator.device
        rows = num_relations * (2 if reciprocal else 1)
        entity = torch.empty(num_entities, scoring.entity_width, device=device, dtype=dtype)
        relation = torch.empty(rows, scoring.relation_width, device=device)
        scoring.init_(entity, relation, generator)
        return cls(scoring, entity, relation, reciprocal=reciprocal)

    @property
    def match(self) -> Match:
        """How queries are compared with entities."""
        return self.scoring.match

    @property
    def num_entities(self) -> int:
        """Number of rows of the entity table."""
        return self.entity.shape[0]

    @property
    def num_relations(self) -> int:
        """Number of relations of the graph."""
        return self.relation.shape[0] // (2 if self.reciprocal else 1)

    @property
    def device(self) -> torch.device:
        """Where the tables live."""
        return self.entity.device

    def to(self, device: torch.device) -> EmbeddingModel:
        """Return the model on another device."""
        apart = device.type == "cuda" and self.device != device
        entity = with_room(self.entity, device) if apart else self.entity.to(device)
        return self.with_tables({"entity": entity, "relation": self.relation.to(device)})

    def refresh_copies(self) -> None:
        """Write the copies of the entity table anew."""
        for copy in (self.int8, self.half):
            if copy is not None:
                copy.refresh(self.entity)

    def with_tables(self, tables: dict[str, Tensor]) -> EmbeddingModel:
        """Return a model of the same kind over other tables."""
        parts = tables["entity"], tables["relation"]
        return EmbeddingModel(self.scoring, *parts, reciprocal=self.reciprocal)

    def at(self, rows: slice) -> EmbeddingModel:
        """Return a model of some entities, which changes with this one."""
        part = self.with_tables({"entity": self.entity[rows], "relation": self.relation})
        part.int8 = None if self.int8 is None else self.int8.at(rows)
        part.half = None if self.half is None else self.half.at(rows)
        return part

    def parameters(self) -> list[Tensor]:
        """Return the trainable tables."""
        return [self.entity, self.relation]

    def state(self) -> dict[str, Tensor]:
        """Return the tables under the names they have in ``model.safetensors``."""
        return {"entity": self.entity, "relation": self.relation}

    def blocks(self, size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Return ids and rows of all entities, at most ``size`` at a time, shard by shard."""
        for ids, rows in self.shards():
            most = size or max(1, len(ids))
            for start in range(0, len(ids), most):
                part = slice(start, start + most)
                yield ids[part].to(self.device), rows[part].detach().to(self.device).float()

    def shards(self) -> list[tuple[Tensor, Tensor]]:
        """Return ids and rows of each part of the entity table, wherever it is."""
        return [(torch.arange(self.num_entities), self.entity)]

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows of entities as they are computed with. Shapes: (...) -> (..., width)."""
        return rows_of(self.entity, ids)

    # Queries and scores ------------------------------------------------------------------------

    def relation_rows(self, side: Side, relations: Tensor) -> Tensor:
        """Return which rows of the relation table a question for ``side`` reads."""
        reads_second_half = self.reciprocal and side is Side.HEAD
        return relations + self.num_relations if reads_second_half else relations

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Query:
        """Return the queries of some questions. Shapes: (b,), (b,) -> (b, q)."""
        e, r = self.rows(anchor), self.relation[self.relation_rows(side, relation)]
        return self.scoring.query(e, r, tail=side is Side.TAIL or self.reciprocal)

    def queries(self, heads: Tensor, relations: Tensor, tails: Tensor) -> BatchQueries:
        """Return the queries of both sides of a batch, with autograd. Shapes: (b,) each."""
        return make_queries(self, heads, relations, tails)

    @torch.no_grad()
    def score(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        """Score triples of ids; reciprocal models take both questions' mean. Shapes: (...)."""
        h, t = self.rows(heads), self.rows(tails)
        scores = self.scoring.score(h, self.relation[relations], t)
        if not self.reciprocal:
            return scores
        inverse = self.relation[self.relation_rows(Side.HEAD, relations)]
        return (scores + self.scoring.score(t, inverse, h)) / 2

    @torch.no_grad()
    def score_ids(self, query: Query, ids: Tensor) -> Tensor:
        """Score k candidates per query, from a copy where there is one. Shape: (b, k)."""
        if self.int8 is not None and isinstance(self.match, Dot):
            return self.int8.dot(query.vectors, ids)
        table = self.entity if self.half is None else self.half.values
        return self.match.forward(query, table, ids)

    @torch.no_grad()
    def score_candidates(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        """Score k candidates per question. Shapes: (b,), (b,), (b, k) -> (b, k)."""
        return self.score_ids(self.query(side, anchor, relation), candidates)

    @torch.no_grad()
    def score_pool(self, query: Query, pool: Tensor) -> Tensor:
        """Score the same p entities for each query. Shapes: (b, q), (p,) -> (b, p)."""
        with fast_products(self.device):
            return self.match.forward_pool(query, self.rows(pool))

    @torch.no_grad()
    def score_all(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Score all entities for each question. Shapes: (b,), (b,) -> (b, n)."""
        query = self.query(side, anchor, relation)
        with exact_products(self.device):
            if self.entity.dtype != torch.bfloat16:
                return self.match.forward_all(query, self.entity)
            scores = query.vectors.new_empty(len(anchor), self.num_entities)
            size = max(1, block_floats(self.device.type) // self.entity.shape[1])
            for start in range(0, self.num_entities, size):  # in float32, some at a time
                rows = self.entity[start : start + size].float()
                scores[:, start : start + size] = self.match.forward_all(query, rows)
        return scores
