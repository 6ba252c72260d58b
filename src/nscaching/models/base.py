"""The contract of a scoring function: a *query* and the name of a *match*.

``tail_query(h, r)`` and ``head_query(r, t)`` turn the known part of a triple into a vector, in
plain differentiable torch; the match compares it with entities. The forms that users and samplers
need (score a triple, candidates, all entities) come from those two pieces, so a scoring function
is written once and cannot disagree with itself. It has no kernel of its own.

The rows given are the raw parameters, ``entity_width`` or ``relation_width`` wide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from nscaching.models.match import Match, Query
from nscaching.models.matches import Dot
from nscaching.models.queries import bilinear_terms


class ScoringFunction(ABC):
    """A score ``f(h, r, t)``, higher for more plausible triples."""

    name: ClassVar[str]
    #: The loss the paper trains it with: "margin" or "logistic".
    usual_loss: ClassVar[str]
    #: The L2 penalty it is trained with where none is asked for.
    usual_l2: ClassVar[float] = 0.0
    #: Vectors of ``dim`` numbers, side by side, in the row of an entity and of a relation.
    entity_parts: ClassVar[int] = 1
    relation_parts: ClassVar[int] = 1
    #: Parts of a row that make up one number, of whose modulus penalties are: 2 for complex
    #: numbers, 4 for quaternions.
    number_parts: ClassVar[int] = 1
    #: Whether a query is the view of the anchor plus the first ``dim`` numbers of the relation's
    #: row, minus them for heads: kernels then make it.
    is_translation: ClassVar[bool] = False

    def __init__(self, dim: int, norm: int = 1, normalize: bool = True) -> None:
        self.dim = dim
        self.norm = norm
        self.normalize = normalize
        self.match = self.build_match()

    @abstractmethod
    def build_match(self) -> Match:
        """Return how queries are compared with entities."""

    @abstractmethod
    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return what a fitting tail must look like. Shapes: (..., entity), (..., relation)."""

    @abstractmethod
    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return what a fitting head must look like. Shapes: (..., relation), (..., entity)."""

    def context(self, r: Tensor) -> Tensor | None:
        """Return what the view of an entity takes from the relation. Shape: (..., relation)."""
        return None

    @property
    def unit_relations(self) -> bool:
        """Whether the length of a relation's numbers has no effect: penalties leave them out."""
        return False

    @property
    def entity_width(self) -> int:
        """Floats stored per entity."""
        return self.entity_parts * self.dim

    @property
    def relation_width(self) -> int:
        """Floats stored per relation."""
        return self.relation_parts * self.dim

    @cached_property
    def terms(self) -> Tensor | None:
        """Which products of parts a query is the sum of; None where it is no such sum."""
        return None

    def init_(self, entity: Tensor, relation: Tensor, generator: torch.Generator) -> None:
        """Fill both tables: Xavier uniform on each part of a row (paper, Section 5.3)."""
        for table in (entity, relation):
            for part in torch.split(table, self.dim, dim=1):
                bound = (6.0 / (part.shape[0] + part.shape[1])) ** 0.5
                part.uniform_(-bound, bound, generator=generator)

    # Forms of the score ------------------------------------------------------------------------

    def query(self, anchor: Tensor, r: Tensor, *, tail: bool) -> Query:
        """Return the query for a tail or a head. Shapes: (b, entity), (b, relation)."""
        vectors = self.tail_query(anchor, r) if tail else self.head_query(r, anchor)
        return Query(vectors, self.context(r))

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Score triples. Shapes: (..., entity), (..., relation), (..., entity) -> (...)."""
        view = self.match.view(t, self.context(r))
        return self.match.compare(self.tail_query(h, r), view)


class Semantic(ScoringFunction):
    """Semantic matching: a dot product of the query with the entity's row."""

    usual_loss = "logistic"
    usual_l2 = 0.1  # of the paper's grid the best on every graph we tried but FB15K

    def build_match(self) -> Match:
        """Return the dot product."""
        return Dot()

    @cached_property
    def terms(self) -> Tensor | None:
        """Which products of parts a query is the sum of: found by probing the query."""
        return bilinear_terms(self)


def complex_product(a: Tensor, b: Tensor, conjugate_b: bool = False) -> Tensor:
    """Multiply rows laid out as [re, im] element by element. Shapes: (..., 2d) -> (..., 2d)."""
    a_re, a_im = a.chunk(2, dim=-1)
    b_re, b_im = b.chunk(2, dim=-1)
    if conjugate_b:
        b_im = -b_im
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
