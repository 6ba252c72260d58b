"""The two ways to compare a query with an entity: a dot product, or a negative distance."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from nscaching.scoring.base import ScoringFunction


class DotProduct(ScoringFunction):
    """Semantic matching: the score is linear in the entity (paper, Section 2.1)."""

    usual_loss = "logistic"

    def match(self, query: Tensor, view: Tensor) -> Tensor:
        """Row-wise dot product."""
        return (query * view).sum(-1)

    def match_each(self, query: Tensor, views: Tensor) -> Tensor:
        """One small matrix-vector product a query."""
        return torch.bmm(views, query.unsqueeze(2)).squeeze(2)

    def match_all(self, query: Tensor, views: Tensor) -> Tensor:
        """One matrix product."""
        return query @ views.T


class Translational(ScoringFunction):
    """Translational distance ``-||view(h) + translation - view(t)||_p``, entities normalised.

    A subclass says what the translation is and, where it differs, how a relation sees an entity.
    """

    usual_loss = "margin"

    @property
    def entity_width(self) -> int:
        """One vector an entity."""
        return self.dim

    @property
    def relation_width(self) -> int:
        """One vector a relation."""
        return self.dim

    def translation(self, r: Tensor) -> Tensor:
        """Return the part of the relation's row that moves a head to its tail."""
        return r[..., : self.dim]

    def view(self, entity: Tensor, r: Tensor | None) -> Tensor:
        """Return the entity's vector, L2-normalised."""
        return normalize(entity[..., : self.dim], dim=-1)

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``view(h) + translation``."""
        return self.view(h, r) + self.translation(r)

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``view(t) - translation``."""
        return self.view(t, r) - self.translation(r)

    def match(self, query: Tensor, view: Tensor) -> Tensor:
        """Negative p-norm of the row-wise difference."""
        distance: Tensor = torch.linalg.vector_norm(query - view, ord=self.norm, dim=-1)
        return -distance

    def match_each(self, query: Tensor, views: Tensor) -> Tensor:
        """Negative p-norm of each query's differences."""
        return self.match(query.unsqueeze(1), views)

    def match_all(self, query: Tensor, views: Tensor) -> Tensor:
        """Negative p-distances without materialising the differences."""
        return -torch.cdist(query, views, p=self.norm, compute_mode="donot_use_mm_for_euclid_dist")


def complex_product(a: Tensor, b: Tensor, conjugate_b: bool = False) -> Tensor:
    """Multiply rows laid out as [re, im] element by element. Shapes: (..., 2d) -> (..., 2d)."""
    a_re, a_im = a.chunk(2, dim=-1)
    b_re, b_im = b.chunk(2, dim=-1)
    if conjugate_b:
        b_im = -b_im
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
