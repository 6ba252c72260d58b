"""The queries of both sides of a batch, made once: gradients and cache updates share them.

A scoring function is plain torch, and autograd differentiates its queries on b rows. Two structures
are common enough for kernels that compute the same in one pass each way. A *bilinear* query is
found by probing the torch code with unit vectors, so that DistMult, ComplEx, SimplE and any
function like them are fast without a line of their own; a *translation* moves the view of the
anchor. Without them a step takes 1.3 (SimplE) to 1.8 times (ComplEx, TransD) as long on an H200.
"""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nscaching.kernels.registry import PLAIN, form_for
from nscaching.models.match import MatchGradients, Query
from nscaching.models.matches import Dot
from nscaching.models.query_kernels import (
    Questions,
    bilinear_backward,
    bilinear_forward,
    product,
    translation_backward,
    translation_forward,
)

if TYPE_CHECKING:
    from nscaching.models.base import ScoringFunction
    from nscaching.models.model import EmbeddingModel, Side

#: ids (m,) and the gradients of their rows (m, width)
IdsAndRows = tuple[Tensor, Tensor]


class BatchQueries:
    """The questions (?, r, t), then the questions (h, r, ?), of b triples: 2b queries.

    Here autograd differentiates them.
    """

    def __init__(
        self, model: EmbeddingModel, heads: Tensor, relations: Tensor, tails: Tensor
    ) -> None:
        self.model, self.scoring = model, model.scoring
        self.heads, self.relations, self.tails = heads, relations, tails
        self.count, self.match = len(heads), model.match
        #: Places of the questions that are asked in this step; all of them unless some are chosen.
        self.asked: Tensor | None = None
        self.queries = self._make()

    def _make(self) -> Query:
        """Return all queries. Shape: (2b, q)."""
        self.anchors, self.relation_rows, _ = self._questions().parts()
        self._e = self.model.rows(self.anchors).requires_grad_()
        self._r = self.model.relation[self.relation_rows].requires_grad_()
        b, scoring = self.count, self.scoring
        with torch.enable_grad():
            head = scoring.query(self._e[:b], self._r[:b], tail=self.model.reciprocal)
            tail = scoring.query(self._e[b:], self._r[b:], tail=True)
            context = None
            if head.context is not None and tail.context is not None:
                context = torch.cat([head.context, tail.context])
            return Query(torch.cat([head.vectors, tail.vectors]), context)

    def _questions(self) -> Questions:
        """Return the questions that are asked in this step, as the kernels take them."""
        second_half = self.model.num_relations if self.model.reciprocal else 0
        return Questions(self.heads, self.relations, self.tails, second_half, self.asked)

    # Without gradient: what samplers ask ---------------------------------------------------------

    def query(self, side: Side, places: Tensor | None = None) -> Query:
        """Return the queries for one side, or some of them, without gradient. Shape: (b, q)."""
        start = side * self.count
        query = self.queries.detach().at(slice(start, start + self.count))
        return query if places is None else query.at(places)

    def vectors(self) -> tuple[Tensor, Tensor]:
        """Return the queries for heads and those for tails, without gradient. Shape: (b, q)."""
        head, tail = self.queries.vectors.detach().chunk(2)
        return head, tail

    def score(self, side: Side, ids: Tensor, places: Tensor | None = None) -> Tensor:
        """Score candidates of the questions for one side, without gradient. Shape: (b, k)."""
        return self.model.score_ids(self.query(side, places), ids)

    def score_pool(self, side: Side, pool: Tensor, places: Tensor | None = None) -> Tensor:
        """Score one pool for the questions for one side. Shapes: (p,) -> (b, p)."""
        return self.model.score_pool(self.query(side, places), pool)

    def block(self, triples: slice) -> BatchQueries:
        """Return the questions of some triples: who they are about, without their queries."""
        some = copy(self)
        parts = (part[triples] for part in (self.heads, self.relations, self.tails))
        some.heads, some.relations, some.tails = parts
        return some

    def over(self, model: EmbeddingModel) -> BatchQueries:
        """Return the same questions to be answered by the entities of another model."""
        other = copy(self)
        other.model = model
        return other

    # The questions of the step -------------------------------------------------------------------

    def choose(self, places: Tensor) -> None:
        """Take back the gradients of these of the 2b queries."""
        self.asked = places

    def ask_at(self, places: Tensor) -> Query:
        """Return these of the 2b queries, and take back their gradients. Shape: (q, w)."""
        self.choose(places)
        return self.queries.detach().at(places)

    def ask(self, replaces_head: Tensor) -> Query:
        """Return the queries of a step: one per triple, or, given 2b sides, both. Shape: (q, w)."""
        if len(replaces_head) != self.count:
            self.asked = None
            return self.queries.detach()
        self.asked = self._chosen(replaces_head)
        return self.queries.detach().at(self.asked)

    def _chosen(self, replaces_head: Tensor) -> Tensor:
        """Return the places of the queries of one side per triple. Shape: (b,)."""
        places = _places(2 * self.count, replaces_head.device)
        return torch.where(replaces_head, places[: self.count], places[self.count :])

    def backward(self, found: MatchGradients) -> tuple[IdsAndRows, IdsAndRows]:
        """Take the gradients of the asked queries back to rows of entities and of relations."""
        outputs, gradients = [self.queries.vectors], [self._of_all(found.query)]
        if self.queries.context is not None:
            assert found.context is not None
            outputs.append(self.queries.context)
            gradients.append(self._of_all(found.context))
        d_entity, d_relation = torch.autograd.grad(outputs, [self._e, self._r], gradients)
        if self.asked is None:
            return (self.anchors, d_entity), (self.relation_rows, d_relation)
        parts = (self.anchors, d_entity, self.relation_rows, d_relation)
        anchors, d_entity, rows, d_relation = (part[self.asked] for part in parts)
        return (anchors, d_entity), (rows, d_relation)

    def _of_all(self, gradient: Tensor) -> Tensor:
        """Return a gradient for all queries: zero for those that were not asked."""
        if self.asked is None:
            return gradient
        whole = gradient.new_zeros(2 * self.count, gradient.shape[1])
        return whole.index_copy_(0, self.asked, gradient)


@lru_cache(maxsize=8)
def _places(count: int, device: torch.device) -> Tensor:
    """Return 0, 1, ...: kept, since making it anew in every step takes a kernel on a GPU."""
    return torch.arange(count, device=device)


class BilinearQueries(BatchQueries):
    """Queries that are bilinear in anchor and relation, part by part."""

    def _make(self) -> Query:
        terms = self.scoring.terms
        assert terms is not None
        self._terms = torch.stack([terms[1], terms[1]]) if self.model.reciprocal else terms
        tables = self.model.entity, self.model.relation
        return Query(bilinear_forward(*tables, self._questions(), self._terms))

    def ask(self, replaces_head: Tensor) -> Query:
        """Return the queries of a step; a dot reads those of one side where they are."""
        if len(replaces_head) != self.count or not isinstance(self.match, Dot):
            return super().ask(replaces_head)
        self.asked = self._chosen(replaces_head)
        return self.queries._replace(places=self.asked)

    def backward(self, found: MatchGradients) -> tuple[IdsAndRows, IdsAndRows]:
        """Take the gradients of the asked queries back to rows of entities and of relations."""
        tables, questions = (self.model.entity, self.model.relation), self._questions()
        backward = bilinear_backward(*tables, questions, self._terms, found.query)
        anchors, d_entity, rows, d_relation = backward
        return (anchors, d_entity), (rows, d_relation)


class TranslationQueries(BatchQueries):
    """Queries that are the view of the anchor plus, or for heads minus, the relation's vector."""

    #: Of which triples the asked questions are, where they were chosen by their places.
    _triples: Tensor | None = None

    def _make(self) -> Query:
        self._r = self.model.relation[self.relations]
        with torch.enable_grad():
            self._context = self.scoring.context(self._r.requires_grad_())
        return Query(translation_forward(*self._inputs(), self._r.detach()))

    def _inputs(self) -> tuple[Tensor, Questions, Tensor, int]:
        given = (self._r if self._context is None else self._context).detach()
        return self.model.entity, self._questions(), given, self.match.view_kind

    def query(self, side: Side, places: Tensor | None = None) -> Query:
        """Return the queries for one side, or some of them, without gradient. Shape: (b, q)."""
        vectors = super().query(side, places).vectors
        if self._context is None:
            return Query(vectors)
        context = self._context.detach()
        return Query(vectors, context if places is None else context[places])

    def ask(self, replaces_head: Tensor) -> Query:
        """Return the queries of a step: one per triple, or, given 2b sides, both. Shape: (q, w)."""
        vectors = super().ask(replaces_head).vectors
        if self._context is None:
            return Query(vectors)
        context = self._context.detach()
        return Query(vectors, context.repeat(2, 1) if self.asked is None else context)

    def choose(self, places: Tensor) -> None:
        """Take back the gradients of these of the 2b queries."""
        self.asked, self._triples = places, places % self.count

    def ask_at(self, places: Tensor) -> Query:
        """Return these of the 2b queries, and take back their gradients. Shape: (q, w)."""
        vectors = super().ask_at(places).vectors
        if self._context is None:
            return Query(vectors)
        return Query(vectors, self._context.detach()[self._triples])

    def backward(self, found: MatchGradients) -> tuple[IdsAndRows, IdsAndRows]:
        """Take the gradients of the asked queries back to rows of entities and of relations."""
        backward = translation_backward(*self._inputs(), found.query)
        anchors, d_entity, d_context, d_translation = backward
        relations, r, context = self.relations, self._r, self._context
        if self.asked is None:
            d_translation = _folded(d_translation)
        elif self._triples is not None:
            relations = relations[self._triples]
        if context is None:
            return (anchors, d_entity), (relations, d_translation)
        assert found.context is not None
        d_context = d_context + found.context
        if self.asked is None:
            d_context = _folded(d_context)
        elif self._triples is not None:
            with torch.enable_grad():
                r = self.model.relation[relations].requires_grad_()
                context = self.scoring.context(r)
        assert context is not None
        (d_relation,) = torch.autograd.grad(context, r, d_context)
        d_relation[:, : self.scoring.dim] += d_translation
        return (anchors, d_entity), (relations, d_relation)


def _folded(gradient: Tensor) -> Tensor:
    """Add up the gradients of both questions of each triple. Shape: (2b, q) -> (b, q)."""
    head, tail = gradient.chunk(2)
    return head + tail


def make_queries(
    model: EmbeddingModel, heads: Tensor, relations: Tensor, tails: Tensor
) -> BatchQueries:
    """Return the queries of a batch, by kernels where the scoring function has the structure."""
    kind: type[BatchQueries] = BatchQueries
    if form_for((model.entity,)) != PLAIN:
        if model.scoring.terms is not None:
            kind = BilinearQueries
        elif model.scoring.is_translation and not model.reciprocal:
            kind = TranslationQueries
    return kind(model, heads, relations, tails)


def bilinear_terms(scoring: ScoringFunction) -> Tensor | None:
    """Return which products of parts a query is the sum of, or None where it is no such sum.

    ``terms[side, o, p, q]`` is the factor of (part p of the anchor) x (part q of the relation) in
    part o of the query; side 0 is that for heads. Found by asking the scoring function with unit
    vectors, and checked with random ones.
    """
    small = type(scoring)(1, scoring.norm, scoring.normalize)
    parts, relation_parts = scoring.entity_parts, scoring.relation_parts
    anchor = torch.eye(parts, dtype=torch.float64).repeat_interleave(relation_parts, dim=0)
    relation = torch.eye(relation_parts, dtype=torch.float64).repeat(parts, 1)
    random = torch.Generator().manual_seed(0)
    many = torch.randn(5, scoring.entity_width, generator=random, dtype=torch.float64)
    others = torch.randn(5, scoring.relation_width, generator=random, dtype=torch.float64)
    found = []
    for tail in (False, True):
        products = small.query(anchor, relation, tail=tail).vectors
        if products.shape[1] != parts:
            return None
        terms = products.T.reshape(parts, parts, relation_parts)
        if not bool(((terms == 0) | (terms.abs() == 1)).all()):
            return None
        expected = scoring.query(many, others, tail=tail).vectors
        if not torch.allclose(product(many, others, terms), expected):
            return None
        found.append(terms)
    return torch.stack(found).to(torch.int8)
