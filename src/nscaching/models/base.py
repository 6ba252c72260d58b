"""The contract of a scoring function: a *query* and a *match*.

``tail_query(h, r)`` and ``head_query(r, t)`` turn the known part of a triple into a vector, and
``match(query, entity)`` compares it with an entity as the relation sees it (``view``). The three
forms that users and samplers need (score a triple, score k candidates, score all entities) are
built here from those pieces, so a scoring function is written once and cannot disagree with itself.

Shapes: ``b`` queries, ``k`` candidates, ``n`` entities, ``q`` the width of a query; the rows given
are the raw parameters, ``entity_width`` or ``relation_width`` wide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from nscaching.models.compact import CompactTable


class PairGradients(NamedTuple):
    """What one pass over positives and their negatives gives."""

    loss: Tensor  #: summed over the batch, ()
    scores: Tensor  #: of the negatives, (b, k)
    entity_rows: Tensor  #: gradients of heads, tails, then negatives, ((2 + k) b, entity)
    relation_rows: Tensor  #: (b, relation)


class ScoringFunction(ABC):
    """A score ``f(h, r, t)``, higher for more plausible triples."""

    name: ClassVar[str]
    #: The loss the paper trains it with: "margin" or "logistic".
    usual_loss: ClassVar[str]
    #: The L2 penalty it is trained with where none is asked for.
    usual_l2: ClassVar[float] = 0.0
    #: Whether an entity looks different through each relation (TransH, TransD).
    relational_view: ClassVar[bool] = False
    #: Whether :meth:`score_compact` has a kernel: candidates are then scored from bytes on a CPU.
    compactable: ClassVar[bool] = False

    def __init__(self, dim: int, norm: int = 1) -> None:
        self.dim = dim
        self.norm = norm

    @property
    @abstractmethod
    def entity_width(self) -> int:
        """Floats stored for an entity."""

    @property
    @abstractmethod
    def relation_width(self) -> int:
        """Floats stored for a relation."""

    @abstractmethod
    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return what a fitting tail must look like. Shapes: (..., entity), (..., relation)."""

    @abstractmethod
    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return what a fitting head must look like. Shapes: (..., relation), (..., entity)."""

    def view(self, entity: Tensor, r: Tensor | None) -> Tensor:
        """Return the entity as the relation sees it. Shapes: (..., entity), (..., relation).

        ``r`` is used, and may not be None, only where ``relational_view`` is set.
        """
        return entity

    @abstractmethod
    def match(self, query: Tensor, view: Tensor) -> Tensor:
        """Compare row by row. Shapes: (..., q), (..., q) -> (...)."""

    @abstractmethod
    def match_each(self, query: Tensor, views: Tensor) -> Tensor:
        """Compare each query with its own k views. Shapes: (b, q), (b, k, q) -> (b, k)."""

    @abstractmethod
    def match_all(self, query: Tensor, views: Tensor) -> Tensor:
        """Compare each query with the same n views. Shapes: (b, q), (n, q) -> (b, n)."""

    def init_(self, entity: Tensor, relation: Tensor, generator: torch.Generator) -> None:
        """Fill both tables: Xavier uniform on each part of a row (paper, Section 5.3)."""
        for table in (entity, relation):
            for part in torch.split(table, self.dim, dim=1):
                bound = (6.0 / (part.shape[0] + part.shape[1])) ** 0.5
                part.uniform_(-bound, bound, generator=generator)

    def score_ids(self, query: Tensor, r: Tensor, table: Tensor, ids: Tensor) -> Tensor | None:
        """Score candidates straight from the table by a kernel, where there is one.

        Shapes: (b, q), (b, relation), (n, entity), (b, k) -> (b, k); None: use :meth:`score_each`.
        """
        return None

    def score_compact(self, query: Tensor, table: CompactTable, ids: Tensor) -> Tensor | None:
        """Do what :meth:`score_ids` does from a copy with a byte a number."""
        return None

    def query_ids(
        self, entity: Tensor, relation: Tensor, anchors: Tensor, relations: Tensor, tail: bool
    ) -> Tensor | None:
        """Return queries straight from the tables by a kernel, where there is one.

        Shapes: (n, entity), (m, relation), (b,), (b,) -> (b, q).
        """
        return None

    def pair_gradients(
        self,
        entity: Tensor,
        relation: Tensor,
        ids: tuple[Tensor, Tensor, Tensor],
        negatives: tuple[Tensor, Tensor, Tensor],
        margin: float | None,
    ) -> PairGradients | None:
        """Return loss and gradients of a batch by a kernel, where there is one.

        ``ids`` are heads, relations, tails (b,); ``negatives`` are entities, whether they replace
        the head, and weights (b, k); ``margin`` is None for the logistic loss.
        """
        return None

    # The three forms ---------------------------------------------------------------------------

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Score triples. Shapes: (b, entity), (b, relation), (b, entity) -> (b,)."""
        return self.match(self.tail_query(h, r), self.view(t, r))

    def score_each(self, query: Tensor, r: Tensor, candidates: Tensor) -> Tensor:
        """Score each query with its own k candidates.

        Shapes: (b, q), (b, relation), (b, k, entity) -> (b, k).
        """
        return self.match_each(query, self.view(candidates, r.unsqueeze(1)))

    def score_all(self, query: Tensor, r: Tensor, entities: Tensor) -> Tensor:
        """Score each query against all entities.

        Shapes: (b, q), (b, relation), (n, entity) -> (b, n). Where the view depends on the
        relation, the queries of one relation share the entities as that relation sees them.
        """
        if not self.relational_view:
            return self.match_all(query, self.view(entities, None))
        scores = query.new_empty(query.shape[0], entities.shape[0])
        order = r[:, 0].argsort(stable=True)  # brings the queries of one relation together
        ordered = r[order]
        begins = (ordered[1:] != ordered[:-1]).any(1).nonzero().squeeze(1) + 1
        for rows in torch.tensor_split(order, begins.cpu()):
            if len(rows):
                views = self.view(entities, r[rows[0]])
                scores[rows] = self.match_all(query[rows], views)
        return scores
