"""The step over strata: the step of one process, with rows that come and go.

Heads and tails of the batch are fetched; each stratum scores its own candidates; what belongs to a
head or a tail goes home, and gradients of relations are added up over all processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from nscaching.distributed.sampler import StrataCandidates, StrataSampler, Stratum
from nscaching.distributed.shards import Shards
from nscaching.losses import OverAll, SoftmaxCrossEntropy
from nscaching.models import BatchQueries
from nscaching.models.match import MatchGradients, Query
from nscaching.optim import Gradients, RowGradients
from nscaching.sampling import Batch, Candidates
from nscaching.training.step import SUMMED_FROM, TrainingStep

_Learnt = tuple[Tensor, Tensor, MatchGradients, list[RowGradients]]


class StratumStep(TrainingStep):
    """The part of a step that is done where a stratum lives: candidates are rows of the stratum.

    The scores of the true entities, which are slots of the batch, are given.
    """

    def __init__(self, step: ShardedStep, part: Stratum, first_row: int) -> None:
        generator = part.generator or step.generator
        super().__init__(part.model, part.sampler, step.loss, step.optimizer, generator)
        self.numbers, self.first_row = part.numbers, first_row
        if step.sampler.both_sides:  # a question has candidates in every stratum
            self.summed_from = SUMMED_FROM // step.shards.strata.count
        self.positive = part.model.entity[:0, :1]  #: scores of the true entities, (q, 1)
        self.d_positive = self.positive  #: and their gradient

    def _forward(self, query: Query, ids: Tensor) -> Tensor:
        if ids.shape[1] == 1:
            return self.positive
        return torch.cat([self.positive, super()._forward(query, ids[:, 1:])], dim=1)

    def _backward(
        self, query: Query, ids: Tensor, d_scores: Tensor
    ) -> tuple[MatchGradients, list[RowGradients]]:
        self.d_positive = d_scores[:, :1]
        if ids.shape[1] == 1:
            nothing = torch.zeros_like(query.vectors)
            context = None if query.context is None else torch.zeros_like(query.context)
            return MatchGradients(nothing, context, nothing[:0]), []
        ids, d_scores = ids[:, 1:], d_scores[:, 1:].contiguous()
        if self.model.device.type == "cpu":
            found, rows = super()._backward(query, ids, d_scores)
            return found, [_without_padding(each) for each in rows]
        # Shapes must not depend on values in a CUDA graph. A padded place has no slope: it may
        # stand for any candidate of its question.
        ids = torch.where(ids < 0, ids.amax(1, keepdim=True).clamp_min_(0), ids)
        return super()._backward(query, ids, d_scores)

    def _gradient_table(self) -> Tensor | None:
        table = super()._gradient_table()
        return None if table is None else table[self.first_row :][: len(self.model.entity)]

    def shifted(self, rows: list[RowGradients]) -> list[RowGradients]:
        """Return gradients of rows of the stratum as those of the table of this process."""
        found = []
        for each in rows:
            if each.ids is not None:
                found.append(each._replace(ids=_moved(each.ids, self.first_row)))
                continue
            whole = self.optimizer.gradient_table("entity")
            assert whole is not None  # it holds them already
            found.append(RowGradients(None, whole))
        return found


class ShardedStep(TrainingStep):
    """A step of which every process does the part of its strata."""

    sampler: StrataSampler

    def __init__(self, shards: Shards, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shards = shards
        self.parts = [
            StratumStep(self, part, shards.rows(part.numbers[0]).start)
            for part in self.sampler.parts
        ]
        # Of the step at hand: places of heads and tails, their relations, their rows as they came,
        # and the gradients of those that are the true entities of questions.
        self._places = self._relations = torch.empty(0, dtype=torch.int64)
        self._slots = self.model.entity[:0]
        self._of_targets = RowGradients(self._places, self._slots)

    @property
    def generators(self) -> list[torch.Generator]:
        """All that random numbers come from."""
        own = [part.generator for part in self.sampler.parts if part.generator is not None]
        return [self.generator, *own]

    @property
    def may_be_captured(self) -> bool:
        """Whether a CUDA graph may hold the step: its shapes do not depend on values."""
        return self.shards.exchange.world_size == 1

    def rows_read(self, batch_size: int) -> None:
        """Return None: which rows of a batch are in a stratum depends on values."""

    def _catch_up(self, batch: Batch, candidates: Candidates, refused: Tensor | None) -> None:
        """Bring the own rows that some process reads to the present step."""
        assert isinstance(candidates, StrataCandidates)
        self._places = torch.stack([batch.heads, batch.tails], dim=1).view(-1)
        self._relations = batch.relations
        if self.optimizer.is_deferred("entity"):
            places = self._places - self.shards.first
            ids = [places[(places >= 0) & (places < len(self.model.entity))]]
            for part, drawn in zip(self.parts, candidates.parts, strict=True):
                ids.append(_moved(drawn.negatives.reshape(-1), part.first_row))
                if drawn.pool is not None:
                    ids.append(drawn.pool + part.first_row)
            self.optimizer.catch_up("entity", torch.cat(ids))

    def _queries(self, batch: Batch) -> BatchQueries:
        """Fetch the heads and tails of the batch."""
        slots = self.shards.fetch(self.model.entity, self._places)
        self._slots = slots
        fetched = self.model.with_tables({"entity": slots, "relation": self.model.relation})
        places = torch.arange(2 * len(batch), device=slots.device).view(-1, 2)
        heads, tails = (column.contiguous() for column in places.unbind(1))
        return fetched.queries(heads, batch.relations, tails)

    def _asked(self, batch: int, replaces_head: Tensor | None) -> Tensor:
        """Return which of the 2b questions this process asks, or takes the gradients of."""
        block = self.shards.block(batch)
        triples = torch.arange(block.start, block.stop, device=self.model.device)
        if replaces_head is None:
            return torch.cat([triples, triples + batch])
        return torch.where(replaces_head, triples, triples + batch)

    def _query(self, queries: BatchQueries, candidates: Candidates) -> tuple[Query, Tensor | None]:
        """Return the queries of the questions, and what dropout multiplied those of this block by.

        All processes draw the same dropout.
        """
        both = self.sampler.both_sides
        asked = self._asked(queries.count, None if both else candidates.replaces_head)
        if both:
            query = queries.ask(candidates.replaces_head)
            queries.choose(asked)
        else:
            query = queries.ask_at(asked)
        if self.dropout == 0:
            return query, None
        shape = (2 * queries.count, query.vectors.shape[1])
        kept = torch.rand(shape, generator=self.generator, device=query.vectors.device)
        scaled = (kept >= self.dropout) / (1 - self.dropout)
        of_block = scaled[asked]
        used = scaled if both else of_block
        return Query(query.vectors * used, query.context), of_block

    def _learn(self, query: Query, candidates: Candidates) -> _Learnt:
        """Return the loss of this block, and the gradients that leave the match."""
        assert isinstance(candidates, StrataCandidates)
        match = self.model.match
        positive = match.forward(query, self._slots, candidates.ids)
        if isinstance(self.loss, SoftmaxCrossEntropy):
            return self._softmax(query, positive, candidates, self.loss)
        batch = len(self._relations)
        start, learnt = self.shards.block(batch).start, []
        for part, drawn in zip(self.parts, candidates.parts, strict=True):
            block = self.shards.strata.block(part.numbers, batch)
            inside = slice(block.start - start, block.stop - start)
            part.positive = positive[inside]
            learnt.append(part._learn(query.at(inside), drawn))
        d_positive = torch.cat([part.d_positive for part in self.parts])
        of_targets = match.backward(query, self._slots, candidates.ids, d_positive)
        self._of_targets = RowGradients(candidates.ids[:, 0], of_targets.rows)
        losses, scores, found, rows = zip(*learnt, strict=True)
        contexts = [each.context for each in found if each.context is not None]
        joined = MatchGradients(
            torch.cat([each.query for each in found]),
            torch.cat(contexts) if contexts else None,
            of_targets.rows,
        )
        return torch.stack(losses).sum(), scores[0], joined.plus(of_targets), self._joined(rows)

    def _softmax(
        self,
        query: Query,
        positive: Tensor,
        candidates: StrataCandidates,
        loss: SoftmaxCrossEntropy,
    ) -> _Learnt:
        """Do what the loss does, with a normaliser over the candidates of all strata."""
        if candidates.all_entities:
            return self._softmax_over_all(query, positive, loss)
        for part in self.parts:
            part.positive = positive
        given = list(zip(self.parts, candidates.parts, strict=True))
        forward = [part._scores(query, drawn) for part, drawn in given]
        candidates.scores.extend(scores for scores, _ in forward)
        summaries = [
            loss.summary(scores, drawn.all_weights)
            for (scores, _), (_, drawn) in zip(forward, given, strict=True)
        ]
        every = self.shards.exchange.gather(torch.stack(summaries))
        found, rows, losses = [], [], positive
        for (part, drawn), (scores, shared) in zip(given, forward, strict=True):
            losses, d_scores = loss.from_summaries(scores, drawn.all_weights, every)
            if drawn.importance is not None:
                d_scores = d_scores * drawn.importance.unsqueeze(1)
            of_queries, of_rows = part._descend(query, drawn, shared, d_scores)
            found.append(of_queries)
            rows.append(of_rows)
        asked = self._asked(len(self._relations), None)
        ids, d_positive = candidates.ids[asked], self.parts[0].d_positive[asked]
        of_targets = self.model.match.backward(query.at(asked), self._slots, ids, d_positive)
        self._of_targets = RowGradients(ids[:, 0], of_targets.rows)
        summed = self._summed(found).plus(of_targets)
        return losses[asked].sum(), candidates.scores[0], summed, self._joined(rows)

    def _softmax_over_all(
        self, query: Query, positive: Tensor, loss: SoftmaxCrossEntropy
    ) -> _Learnt:
        """Take every entity of every stratum as a candidate."""
        strata, exchange = self.shards.strata, self.shards.exchange
        sizes = strata.count, strata.num_entities
        over = [
            OverAll(loss, self.model.match, query, part.model.entity, *sizes) for part in self.parts
        ]
        totals = torch.stack([each.total().squeeze(1) for each in over])
        total = exchange.gather(totals).logsumexp(0).unsqueeze(1)
        places = self._places.view(-1, 2).T.reshape(-1)
        rows = torch.zeros_like(self.model.entity)
        found = []
        for part, each in zip(self.parts, over, strict=True):
            found.append(each.gradients(total, self.shards.local(places, part.numbers[0])))
            rows[part.first_row :][: len(found[-1].rows)] = found[-1].rows
        smoothed = torch.stack([each.smoothed.squeeze(1) for each in over])
        if loss.smoothing:
            smoothed = exchange.gather(smoothed)
        losses = over[0].loss(total, positive, smoothed.sum(0).unsqueeze(1))
        asked = self._asked(len(self._relations), None)
        self._of_targets = RowGradients(places[:0], rows[:0])
        return losses[asked].sum(), positive, self._summed(found), [RowGradients(None, rows)]

    def _summed(self, found: list[MatchGradients]) -> MatchGradients:
        """Add up the gradients of queries over all strata; this block's are returned."""
        batch = len(found[0].query) // 2
        query = self.shards.sum_blocks([each.query for each in found], batch)
        contexts = [each.context for each in found if each.context is not None]
        context = self.shards.sum_blocks(contexts, batch) if contexts else None
        return MatchGradients(query, context, query[:0])

    def _joined(self, rows: Iterable[list[RowGradients]]) -> list[RowGradients]:
        """Return gradients of rows of the own strata as those of the table of this process."""
        pairs = zip(self.parts, rows, strict=True)
        return [each for part, of_part in pairs for each in part.shifted(of_part)]

    def _gradients(
        self,
        queries: BatchQueries,
        candidates: Candidates,
        found: MatchGradients,
        rows: list[RowGradients],
    ) -> Gradients:
        """Return the gradients of the own rows, and of the relations over all processes."""
        assert queries.asked is not None
        (slots, d_slots), relation = queries.backward(found)
        batch = queries.count
        block = self.shards.block(batch)
        first = 2 * block.start
        of_slots = d_slots.new_zeros(2 * (block.stop - block.start), d_slots.shape[1])
        of_slots[slots - first] = d_slots
        assert self._of_targets.ids is not None
        of_slots[self._of_targets.ids - first] += self._of_targets.rows
        relations, triples = [RowGradients(*relation)], [queries.asked % batch]
        if self.n3 is not None:
            some = queries.block(block)
            (ids, penalty), of_relations = self.n3.gradients(some, self.sampler.both_sides)
            of_slots[ids - first] += penalty
            if of_relations is not None:
                relations.append(RowGradients(*of_relations))
                inside = torch.arange(block.start, block.stop, device=ids.device)
                triples.append(inside.repeat(2) if self.model.reciprocal else inside)
        summed = self._of_relations(relations, triples)
        if self.relation_prediction is not None:  # every process has all slots: nothing is sent
            (ids, of_pairs), of_all_relations = self.relation_prediction.gradients(queries)
            of_all_slots = torch.empty_like(of_pairs).index_copy_(0, ids, of_pairs)
            of_slots += of_all_slots[first : first + len(of_slots)]
            summed.append(RowGradients(None, of_all_relations))
        entity = [self.shards.send_home(self._places, of_slots), *rows]
        return {"entity": entity, "relation": summed}

    def _of_relations(self, parts: list[RowGradients], triples: list[Tensor]) -> list[RowGradients]:
        """Add up the gradients of relations over all processes."""
        alone = self.shards.exchange.world_size == 1
        if alone and self.model.device.type != "cpu":  # where sums have no fixed order anyway
            return parts
        rows = torch.unique(self._relations)
        if self.model.reciprocal:
            rows = torch.cat([rows, rows + self.model.num_relations])
        ids = torch.cat([part.ids for part in parts if part.ids is not None])
        joined = RowGradients(ids, torch.cat([part.rows for part in parts]))
        batch = len(self._relations)
        return [self.shards.sum_rows(rows, joined, torch.cat(triples), batch)]


def _moved(ids: Tensor, first_row: int) -> Tensor:
    """Return rows of a stratum as those of the table of this process; -1 stays."""
    return torch.where(ids < 0, ids, ids + first_row)


def _without_padding(part: RowGradients) -> RowGradients:
    """Leave out the rows of padded places; products may have them."""
    if part.ids is None or part.slopes is not None:
        return part
    there = part.ids >= 0
    return RowGradients(part.ids[there], part.rows[there])
