"""The trainable tables of a scoring function, addressed by entity and relation ids."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from nscaching.models.base import ScoringFunction
from nscaching.models.compact import CompactTable
from nscaching.models.families import Bilinear

#: Floats gathered at once when candidates are scored: on a CPU the block stays in cache.
_BLOCK_FLOATS = {"cpu": 1 << 19}
_BLOCK_FLOATS_DEVICE = 1 << 28


class Side(IntEnum):
    """Which entity of a triple is asked for or replaced; the other one is the anchor."""

    HEAD = 0
    TAIL = 1


class ByteTables(NamedTuple):
    """The tables of a bilinear scoring function with the bytes of its entities."""

    tensors: tuple[Tensor, Tensor, Tensor, Tensor]  #: entity, relation, bytes, their scale
    kind: int  #: of the scoring function, as the kernels count them


class EmbeddingModel:
    """Entity and relation tables with the scoring function that reads them."""

    def __init__(self, scoring: ScoringFunction, entity: Tensor, relation: Tensor) -> None:
        self.scoring = scoring
        self.entity = entity
        self.relation = relation
        #: A copy for candidate scoring, kept fresh by who moves the parameters; else None.
        self.compact: CompactTable | None = None
        self._buffer: Tensor | None = None

    @classmethod
    def initialised(
        cls,
        scoring: ScoringFunction,
        num_entities: int,
        num_relations: int,
        generator: torch.Generator,
    ) -> EmbeddingModel:
        """Return freshly initialised tables on the generator's device."""
        device = generator.device
        entity = torch.empty(num_entities, scoring.entity_width, device=device)
        relation = torch.empty(num_relations, scoring.relation_width, device=device)
        scoring.init_(entity, relation, generator)
        return cls(scoring, entity, relation)

    @property
    def num_entities(self) -> int:
        """Number of rows of the entity table."""
        return self.entity.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the tables live."""
        return self.entity.device

    def parameters(self) -> list[Tensor]:
        """Return the trainable tables."""
        return [self.entity, self.relation]

    def state(self) -> dict[str, Tensor]:
        """Return the tables under the names they have in ``model.safetensors``."""
        return {"entity": self.entity, "relation": self.relation}

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return query vectors and relation rows. Shapes: (b,), (b,) -> (b, q), (b, width)."""
        e, r = self.entity[anchor], self.relation[relation]
        query = (
            self.scoring.tail_query(e, r) if side is Side.TAIL else self.scoring.head_query(r, e)
        )
        return query, r

    def score(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        """Score triples of ids. Shapes: (...) three times -> (...)."""
        return self.scoring.score(self.entity[heads], self.relation[relations], self.entity[tails])

    def byte_tables(self) -> ByteTables | None:
        """Return what a kernel of the CPU scores candidates from by itself, where there is one."""
        if self.compact is None or not isinstance(self.scoring, Bilinear):
            return None
        tensors = (self.entity, self.relation, self.compact.values, self.compact.scale)
        return ByteTables(tensors, self.scoring.kernel_kind)

    @torch.no_grad()
    def score_candidates(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        """Score k candidates a query, without gradient. Shapes: (b,), (b,), (b, k) -> (b, k).

        A kernel does it where there is one for the device. Else rows are gathered into a buffer
        that is kept: fresh memory for every batch costs several times the arithmetic.
        """
        ready = self.scoring.query_ids(
            self.entity, self.relation, anchor, relation, side is Side.TAIL
        )
        if ready is not None:
            query, r = ready, ready  # such a scoring function needs no more of the relation
        else:
            query, r = self.query(side, anchor, relation)
        if self.compact is None:
            fused = self.scoring.score_ids(query, r, self.entity, candidates)
        else:
            fused = self.scoring.score_compact(query, self.compact, candidates)
        return self._score_gathered(query, r, candidates) if fused is None else fused

    def _score_gathered(self, query: Tensor, r: Tensor, candidates: Tensor) -> Tensor:
        count, k = candidates.shape
        width = self.entity.shape[1]
        limit = _BLOCK_FLOATS.get(self.device.type, _BLOCK_FLOATS_DEVICE)
        block = max(1, min(count, limit // max(1, k * width)))
        if self._buffer is None or self._buffer.numel() < block * k * width:
            self._buffer = self.entity.new_empty(block * k * width)
        scores = self.entity.new_empty(count, k)
        for start in range(0, count, block):
            ids = candidates[start : start + block]
            rows = self._buffer[: ids.numel() * width].view(ids.numel(), width)
            if self.compact is None:
                torch.index_select(self.entity, 0, ids.reshape(-1), out=rows)
            else:
                rows.copy_(self.compact.rows(ids.reshape(-1)))
            part = slice(start, start + block)
            scores[part] = self.scoring.score_each(
                query[part], r[part], rows.view(*ids.shape, width)
            )
        return scores

    @torch.no_grad()
    def score_pool(self, side: Side, anchor: Tensor, relation: Tensor, pool: Tensor) -> Tensor:
        """Score the same p entities for each query. Shapes: (b,), (b,), (p,) -> (b, p)."""
        if self.scoring.relational_view:
            return self.score_candidates(side, anchor, relation, pool.expand(len(anchor), -1))
        query, r = self.query(side, anchor, relation)
        return self.scoring.score_all(query, r, self.entity[pool])

    @torch.no_grad()
    def score_all(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Score all entities for each query, without gradient. Shapes: (b,), (b,) -> (b, n)."""
        query, r = self.query(side, anchor, relation)
        return self.scoring.score_all(query, r, self.entity)
