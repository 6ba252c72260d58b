"""One training step, on one screen.

Sample candidates, make the queries of the batch, score them with the match, take the loss and the
gradient of the scores, go back through the match and the queries, move the tables, and update what
the sampler keeps. The match and the optimiser are kernels; everything between is plain torch on b
rows, so that no gradient has the size of a table unless every entity is a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nscaching.losses import Loss, SoftmaxCrossEntropy
from nscaching.models import BatchQueries, EmbeddingModel
from nscaching.models.match import MatchGradients, Query, fast_products
from nscaching.optim import Gradients, Optimizer, RowGradients
from nscaching.sampling import Batch, Candidates, Sampler
from nscaching.sampling.rejected import RejectedFacts
from nscaching.training.penalties import N3
from nscaching.training.relation_prediction import RelationPrediction

if TYPE_CHECKING:
    from nscaching.training.tracing import Tracer

#: With more candidates than this their gradients are added up by entity, not kept one by one.
SUMMED_FROM = 16


@contextmanager
def at_once(jobs: list[Callable[[], None]]) -> Iterator[None]:
    """Do jobs before what follows; on a GPU they run beside it instead."""
    for job in jobs:
        job()
    yield


class TrainingStep:
    """Everything that a step works with."""

    def __init__(
        self,
        model: EmbeddingModel,
        sampler: Sampler,
        loss: Loss,
        optimizer: Optimizer,
        generator: torch.Generator,
        *,
        n3: float = 0.0,
        relation_prediction: float = 0.0,
        dropout: float = 0.0,
        rejected: RejectedFacts | None = None,
        fact_weights: Tensor | None = None,
    ) -> None:
        self.model, self.sampler, self.loss, self.optimizer = model, sampler, loss, optimizer
        self.generator = generator
        self.n3 = N3(n3, model.scoring) if n3 > 0 else None
        self.relation_prediction: RelationPrediction | None = None
        if relation_prediction > 0:
            self.relation_prediction = RelationPrediction(relation_prediction, model.scoring)
        self.dropout = dropout
        self.rejected = rejected
        self.fact_weights = fact_weights  #: (n,), of subsampling; None weights all facts alike
        self.observer: Tracer | None = None  #: sees every step, changes none
        self.summed_from = SUMMED_FROM

    def __call__(
        self,
        batch: Batch,
        beside: Callable[[list[Callable[[], None]]], AbstractContextManager[None]] = at_once,
    ) -> Tensor:
        """Take a step; return the loss, summed over the batch."""
        candidates = self._weighted(batch, self.sampler.sample(batch, self.generator))
        refused = self._rejected_answers(batch, candidates)
        self._catch_up(batch, candidates, refused)
        queries = self._queries(batch)
        with beside(self.sampler.update_jobs(batch, queries, self.generator)):
            query, kept = self._query(queries, candidates)
            loss, scores, found, rows = self._learn(query, candidates)
            more: list[RowGradients] = []
            if refused is not None:
                found, more = self._reject(query, refused, found)
            if kept is not None:
                found = found._replace(query=found.query * kept)
            gradients = self._gradients(queries, candidates, found, [*rows, *more])
            if self.observer is not None:  # before gradients of rows are added to a whole table
                own = candidates.ids.shape[1]
                self.observer.observe(candidates, scores[:, :own], gradients)
            self.optimizer.accumulate(gradients)
        self.optimizer.apply(gradients)
        self.sampler.learn(batch, candidates, scores, queries)
        return loss

    @property
    def generators(self) -> list[torch.Generator]:
        """All that random numbers come from."""
        return [self.generator]

    @property
    def may_be_captured(self) -> bool:
        """Whether a CUDA graph may hold the step: its shapes do not depend on values."""
        return True

    def rows_read(self, batch_size: int) -> int | None:
        """Return how many entity rows a step catches up, each of which it has in its gradients.

        None where gradients are added up as a table, so that it is not known which rows have one.
        """
        sampler = self.sampler
        if sampler.both_sides or sampler.negatives > self.summed_from:
            return None
        return (2 + sampler.negatives) * batch_size + sampler.options.pool

    def _queries(self, batch: Batch) -> BatchQueries:
        """Return both questions of every triple."""
        return self.model.queries(batch.heads, batch.relations, batch.tails)

    def _weighted(self, batch: Batch, candidates: Candidates) -> Candidates:
        """Weight questions, one per triple, by how common their facts are."""
        if self.fact_weights is None:
            return candidates
        weights = self.fact_weights[batch.index]
        if candidates.importance is not None:
            weights = weights * candidates.importance
        return replace(candidates, importance=weights)

    def _catch_up(self, batch: Batch, candidates: Candidates, refused: Tensor | None) -> None:
        """Bring the entity rows that the step reads to the present step."""
        if self.optimizer.is_deferred("entity"):
            ids = [batch.heads, batch.tails, candidates.negatives.reshape(-1)]
            if refused is not None:
                ids.append(refused.reshape(-1))
            if candidates.pool is not None:
                ids.append(candidates.pool)
            self.optimizer.catch_up("entity", torch.cat(ids))

    def _rejected_answers(self, batch: Batch, candidates: Candidates) -> Tensor | None:
        """Return the true entity of each question and what was rejected; (q, 1 + m), or None."""
        if self.rejected is None:
            return None
        refused = self.rejected.of_questions(batch, candidates.replaces_head)
        return torch.cat([candidates.targets.unsqueeze(1), refused], dim=1)

    def _reject(
        self, query: Query, ids: Tensor, found: MatchGradients
    ) -> tuple[MatchGradients, list[RowGradients]]:
        """Add the gradients of the loss of true entities against rejected ones; (q, 1 + m).

        The loss that the step returns is that of its own candidates. In a softmax a rejected one
        counts as often as all entities together: to be below the true one is not enough.
        """
        match, table = self.model.match, self.model.entity
        there = ids[:, 1:] >= 0
        weight = len(table) if isinstance(self.loss, SoftmaxCrossEntropy) else 1
        scores = match.forward(query, table, ids)
        _, d_scores = self.loss(scores, weight * there.to(scores.dtype))
        # Of a question without rejected answers the true entity must not learn twice.
        more = match.backward(query, table, ids, d_scores * there.any(1, keepdim=True))
        rows = torch.where(ids < 0, ids[:, :1], ids).reshape(-1)
        return found.plus(more), [RowGradients(rows, more.rows)]

    def _query(self, queries: BatchQueries, candidates: Candidates) -> tuple[Query, Tensor | None]:
        """Return the queries of the step's questions, and what dropout multiplied them with."""
        query = queries.ask(candidates.replaces_head)
        if self.dropout or candidates.pool is not None:
            query = query.gathered()
        if self.dropout == 0:
            return query, None
        shape, device = query.vectors.shape, query.vectors.device
        kept = torch.rand(shape, generator=self.generator, device=device) >= self.dropout
        scaled = kept / (1 - self.dropout)
        return Query(query.vectors * scaled, query.context), scaled

    def _learn(
        self, query: Query, candidates: Candidates
    ) -> tuple[Tensor, Tensor, MatchGradients, list[RowGradients]]:
        """Return the loss, the scores (q, 1 + k + p), and the gradients that leave the match."""
        if candidates.all_entities:
            assert isinstance(self.loss, SoftmaxCrossEntropy)
            table, targets = self.model.entity, candidates.targets
            loss, scores, found = self.loss.over_all(self.model.match, query, table, targets)
            return loss, scores, found, [RowGradients(None, found.rows)]
        scores, shared = self._scores(query, candidates)
        loss, d_scores = self.loss(scores, self.sampler.weigh(candidates, scores))
        if candidates.importance is not None:
            d_scores = d_scores * candidates.importance.unsqueeze(1)
        return loss, scores, *self._descend(query, candidates, shared, d_scores)

    def _scores(self, query: Query, candidates: Candidates) -> tuple[Tensor, Tensor | None]:
        """Return the scores (q, 1 + k + p), and the rows of the pool (p, width)."""
        scores = self._forward(query, candidates.ids)
        if candidates.pool is None:
            return scores, None
        shared = self.model.rows(candidates.pool)
        with fast_products(shared.device):
            return torch.cat([scores, self.model.match.forward_pool(query, shared)], dim=1), shared

    def _descend(
        self, query: Query, candidates: Candidates, shared: Tensor | None, d_scores: Tensor
    ) -> tuple[MatchGradients, list[RowGradients]]:
        """Return the gradients of queries, and of the rows of all candidates."""
        own = candidates.ids.shape[1]
        found, rows = self._backward(query, candidates.ids, d_scores[:, :own])
        if shared is not None:
            with fast_products(shared.device):
                of_pool = self.model.match.backward_all(query, shared, d_scores[:, own:])
            found = found.plus(of_pool)
            rows.append(RowGradients(candidates.pool, of_pool.rows))
        return found, rows

    def _forward(self, query: Query, ids: Tensor) -> Tensor:
        """Return the scores of the true entities and of the candidates of each question."""
        return self.model.match.forward(query, self.model.entity, ids)

    def _backward(
        self, query: Query, ids: Tensor, d_scores: Tensor
    ) -> tuple[MatchGradients, list[RowGradients]]:
        """Return the gradients of queries, and of the rows of those entities."""
        match, table = self.model.match, self.model.entity
        few = ids.shape[1] <= self.summed_from
        if self.optimizer.takes_products("entity", few):
            d_query = match.backward_products(query, table, ids, d_scores)
            if d_query is not None:
                products = RowGradients(ids.reshape(-1), query.vectors, d_scores, query.places)
                return MatchGradients(d_query, None, table[:0]), [products]
        if not few and not self.optimizer.adds_rows_up("entity"):
            into = self._gradient_table()
            summed = match.backward_summed(query, table, ids, d_scores, into)
            if summed is not None:
                found, distinct = summed
                return found, [RowGradients(distinct, found.rows)]
        found = match.backward(query, table, ids, d_scores)
        # A padded place has a row of zeros, for any entity.
        ids = torch.where(ids < 0, ids[:, :1], ids)
        return found, [RowGradients(ids.reshape(-1), found.rows)]

    def _gradient_table(self) -> Tensor | None:
        """Return where gradients of entity rows may be added up, if there is such a table."""
        return self.optimizer.gradient_table("entity")

    def _gradients(
        self,
        queries: BatchQueries,
        candidates: Candidates,
        found: MatchGradients,
        rows: list[RowGradients],
    ) -> Gradients:
        """Return the gradients of both tables."""
        entity, relation = ([RowGradients(*part)] for part in queries.backward(found))
        if self.n3 is not None:
            both_sides = len(candidates.ids) != len(queries.heads)
            of_entities, of_relations = self.n3.gradients(queries, both_sides)
            entity.append(RowGradients(*of_entities))
            if of_relations is not None:
                relation.append(RowGradients(*of_relations))
        if self.relation_prediction is not None:
            of_pairs, of_all_relations = self.relation_prediction.gradients(queries)
            entity.append(RowGradients(*of_pairs))
            relation.append(RowGradients(None, of_all_relations))
        return {"entity": [*entity, *rows], "relation": relation}
