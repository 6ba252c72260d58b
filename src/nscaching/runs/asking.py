"""Questions to a model: scores, probabilities, and what the graph says of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nscaching.evaluation.calibration import Calibration, answer_logits, claim_logits
from nscaching.evaluation.evidence import ENTITY_FEATURES, SCORE_FEATURES, Evidence, Questions
from nscaching.evaluation.positions import ONE_ANSWER, Positions
from nscaching.evaluation.ranking import known_positives
from nscaching.evaluation.regression import expit
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import SPLITS, Bools, Floats, Integers, Longs
from nscaching.graph.pairs import contained, pair_rows
from nscaching.models import EmbeddingModel, Side
from nscaching.runs.predictions import Named, Prediction

#: What the curve must give an answer that was never seen on its side of the relation: 1 %, which is
#: the odds. Below it not one of a thousand such answers is a fact of valid (docs/discovering.md).
LEAST_LOGIT = np.log(0.01)
#: Bytes of what is kept of relations that have been asked.
_KEPT_BYTES = 1 << 27
#: Added to bounds of log-odds, which single precision rounds.
_ROUNDING = 0.01


@dataclass(frozen=True)
class Ranked:
    """Answers to questions, question by question, the best first, and their numbers."""

    triples: Longs  #: (n, 3)
    score: Floats  #: (n,)
    #: (n,) what the curve gives, of which :func:`answer_logits` makes log-odds; without a
    #: calibration the log-softmax
    logit: Floats


class Asker:
    """Asks a model; kept by a run, so that look-ups are made once."""

    def __init__(
        self,
        model: EmbeddingModel,
        graph: KnowledgeGraph,
        calibration: Calibration | None,
        rejected: Integers,
        memory_mb: int,
    ) -> None:
        self.graph, self.calibration, self.rejected = graph, calibration, rejected
        temperature = calibration.temperature if calibration is not None else None
        self.evidence = Evidence(model, graph, temperature, memory_mb)
        self.known = known_positives(graph, graph.test)
        sizes = graph.num_entities, graph.num_relations
        self._refused = {side: pair_rows(rejected, side.word, *sizes) for side in Side}
        self._kept_terms: dict[tuple[Side, int], tuple[Tensor, Tensor]] = {}

    @cached_property
    def whole(self) -> Positions:
        """What all known facts say of entities: new facts are judged by it, known by training."""
        return Positions.of(self.graph, whole=True)

    @torch.no_grad()
    def ask(
        self,
        side: Side,
        relation: int,
        anchors: Integers,
        k: int,
        *,
        known: bool = False,
        by_score: bool = False,
        contradictions: bool = True,
        unlikely: bool = True,
        among: Tensor | None = None,
        least: float = -np.inf,
    ) -> Ranked:
        """Return the k best answers of each question for one side of a relation; anchors: (b,).

        Rejected facts are left out, known ones unless ``known`` is set, and so is the anchor
        itself, unless the relation holds between something and itself somewhere. Without
        ``contradictions`` so are second answers where the relation has one, and without
        ``unlikely`` answers that were never seen there and have hardly a chance. ``among`` marks
        the entities that may answer; shape: (entities,). Answers below ``least`` are left out, in
        log-odds, or in scores with ``by_score``.
        """
        relations = np.full(len(anchors), relation)
        worth = None
        if least > -np.inf and self.calibration is not None and not (by_score or known):

            def worth(highest: Tensor) -> Tensor:
                return self.highest(side, relation, anchors, highest) >= least

        questions = self.evidence.ask(side, anchors, relations, worth)
        anchors = np.asarray(anchors)[questions.rows.cpu().numpy()]
        relations = relations[: len(anchors)]
        scores, device = questions.scores, questions.scores.device
        facts = tuple(
            torch.from_numpy(part).to(device) for part in self.known[side].of(anchors, relations)
        )
        logits = self._all_logits(questions, side, relation, anchors, facts if known else None)
        out = [self._refused[side].completions(anchors, relations)]
        if relation not in self.graph.relations_with_loops:
            out.append((np.arange(len(anchors)), np.asarray(anchors, dtype=np.int64)))
        row, entity = (
            torch.from_numpy(np.concatenate(part)).to(device) for part in zip(*out, strict=True)
        )
        ranked = scores if by_score else logits
        kept = ranked[facts]
        if not contradictions:
            self._leave_out_contradictions(ranked, side, relation, facts)
        if not unlikely and self.calibration is not None:
            unseen = torch.ones(scores.shape[1], dtype=torch.bool, device=device)
            there = torch.from_numpy(self.evidence.positions.entities_at(side, relation))
            unseen[there.long().to(device)] = False
            ranked[(logits < LEAST_LOGIT) & unseen] = -torch.inf
        ranked[facts] = kept
        ranked[row, entity] = -torch.inf
        if not known:
            ranked[facts] = -torch.inf
        if among is not None:
            ranked[:, ~among] = -torch.inf
        # Most questions of a whole graph have no answer that is good enough: they are not sorted.
        least = max(least, torch.finfo(ranked.dtype).min)  # what is left out is -inf
        good = torch.nonzero(ranked.amax(dim=1) >= least)[:, 0]
        best = ranked[good].topk(min(k, ranked.shape[1]), dim=1)
        place, rank = torch.nonzero(best.values >= least, as_tuple=True)
        place, entities = good[place], best.indices[place, rank]
        return Ranked(
            _answers(side, relation, anchors[place.cpu().numpy()], entities),
            scores[place, entities].double().cpu().numpy(),
            logits[place, entities].double().cpu().numpy(),
        )

    def _leave_out_contradictions(
        self, ranked: Tensor, side: Side, relation: int, facts: tuple[Tensor, ...]
    ) -> None:
        """Set to -inf what cannot hold beside the facts of the graph; ranked: (b, entities)."""
        if self.evidence.positions.has_one_answer(side, relation):
            ranked[torch.bincount(facts[0], minlength=len(ranked)) > 0] = -torch.inf
        if self.evidence.positions.has_one_answer(side.other, relation):
            taken = torch.from_numpy(self.whole.entities_at(side, relation))
            ranked[:, taken.long().to(ranked.device)] = -torch.inf

    def _all_logits(
        self,
        questions: Questions,
        side: Side,
        relation: int,
        anchors: Integers,
        facts: tuple[Tensor, ...] | None,
    ) -> Tensor:
        """Return the log-odds of all entities, those of known facts by training; (b, entities)."""
        scores, temperature = questions.scores, self.evidence.temperature
        if self.calibration is None:
            plain: Tensor = temperature * scores - questions.normaliser[:, None]
            return plain
        curve = self.calibration.answers[side]
        weights = curve.of_relation(relation)
        slope = (temperature * weights[0] + weights[1] / questions.spread).float()
        base = -weights[0] * questions.normaliser - weights[1] * questions.mean / questions.spread
        base = (base + curve.intercepts[relation]).float()
        answer, asked = self._terms(side, relation)
        rows = torch.from_numpy(np.asarray(anchors, dtype=np.int64)).to(scores.device)
        anchor = asked[rows] + base
        logits: Tensor = scores * slope[:, None]
        logits += anchor[:, None]
        logits += answer
        if facts is not None:
            row, entity = facts
            speaks = self._terms_of_facts(side, relation, anchors[row.cpu().numpy()], entity)
            logits[row, entity] = scores[row, entity] * slope[row] + base[row] + speaks
        return logits

    def _weights(self, side: Side, relation: int) -> list[Floats]:
        """Return the weights of an answer's features, and of those of what is asked about."""
        assert self.calibration is not None
        weights = self.calibration.answers[side].of_relation(relation)
        return np.split(weights, np.cumsum([len(SCORE_FEATURES), len(ENTITY_FEATURES)]))[1:]

    def _terms_of_facts(
        self, side: Side, relation: int, anchors: Integers, entities: Tensor
    ) -> Tensor:
        """Return what the other training facts add to the log-odds of known ones; (n,)."""
        triples = _answers(side, relation, anchors, entities)
        own = self._in_training(triples)
        of_answer, of_anchor = self._weights(side, relation)
        speaks = self.evidence.entity_features(triples, side, None, own) @ of_answer
        speaks += self.evidence.entity_features(triples, side.other, None, own, True) @ of_anchor
        return torch.from_numpy(np.asarray(speaks)).float().to(entities.device)

    def _in_training(self, triples: Integers) -> Bools:
        """Tell which triples are training facts; (n, 3) -> (n,)."""
        heads, relations, tails = triples.T
        return self.graph.rows.tail.contains(heads, relations, tails)

    def _terms(self, side: Side, relation: int) -> tuple[Tensor, Tensor]:
        """Return what the graph adds to the log-odds of all entities; two of (entities,).

        As answers to the question for a side of a relation, and as what is asked about.
        """
        if (side, relation) in self._kept_terms:
            return self._kept_terms[side, relation]
        of_answer, of_anchor = self._weights(side, relation)
        table, device = self.evidence.entity_table, self.evidence.model.device
        terms = table(side, relation, self.whole) @ of_answer
        answer = torch.from_numpy(terms).float().to(device)
        terms = table(side.other, relation, self.whole, asked=True) @ of_anchor
        asked = torch.from_numpy(terms).float().to(device)
        if 8 * (len(self._kept_terms) + 1) * len(answer) > _KEPT_BYTES:
            self._kept_terms.clear()
        self._kept_terms[side, relation] = answer, asked
        return answer, asked

    def highest(
        self, side: Side, relation: int, anchors: Integers, deviations: Tensor | None = None
    ) -> Tensor:
        """Return log-odds that no new answer of a question can exceed; anchors: (b,) -> (b,).

        The log-softmax of an answer is at most 0. ``deviations``, (b,), are the highest of each
        question; without them a bound is taken that needs no scores, or infinity.
        """
        assert self.calibration is not None
        curve = self.calibration.answers[side]
        slope = float(curve.of_relation(relation)[1])
        answer, asked = self._terms(side, relation)
        if deviations is not None:
            best = answer.max() + slope * deviations
        elif self.evidence.highest_deviations is not None:
            best = (answer + slope * self.evidence.highest_deviations).max()
        else:
            best = answer.new_tensor(torch.inf)
        rows = torch.from_numpy(np.asarray(anchors, dtype=np.int64)).to(answer.device)
        return asked[rows] + best + (float(curve.intercepts[relation]) + _ROUNDING)

    def logits(self, triples: Integers, side: Side = Side.TAIL) -> Floats:
        """Return the log-odds of triples as answers to the question for a side; (n, 3) -> (n,)."""
        assert self.calibration is not None
        found = np.empty(len(triples))
        for mine, positions, own in self._sorts(triples):
            features = self.evidence.of_answers(triples[mine], (side,), positions, own)
            found[mine] = self.calibration.answers[side].logits(features, triples[mine, 1])
        return answer_logits(found)

    def claims(self, triples: Integers) -> Floats:
        """Return the log-odds of claims of which one in two is true; (n, 3) -> (n,).

        A new one that contradicts a fact of the graph has at most those of an answer: among claims
        a high score could outweigh the contradiction.
        """
        assert self.calibration is not None
        found = np.empty(len(triples))
        for mine, positions, own in self._sorts(triples):
            given = (self.evidence, self.calibration, triples[mine], positions, own)
            found[mine] = claim_logits(*given)
        said = zip(self.splits(triples), self.contradicted(triples), strict=True)
        against = [n for n, (split, fact) in enumerate(said) if fact is not None and split is None]
        if against:
            found[against] = np.minimum(found[against], self.logits(triples[against]))
        return found

    def _sorts(self, triples: Integers) -> list[tuple[Bools, Positions | None, Bools | None]]:
        """Return which triples are known, to be judged by the rest of training, and which are new.

        With the positions that judge them, and which of them are in training.
        """
        known = np.array([split is not None for split in self.splits(triples)], dtype=bool)
        own = self._in_training(triples[known])
        sorts = ((known, None, own), (~known, self.whole, None))
        return [sort for sort in sorts if sort[0].any()]

    def predictions(
        self, triples: Integers, scores: Iterable[float], logits: Floats | None, side: Side
    ) -> list[Prediction]:
        """Return triples of ids with names, probability and flags; ``side`` is what was asked.

        ``logits`` are log-odds; of ranked answers :func:`answer_logits` makes them.
        """
        seen = np.ones(len(triples), dtype=bool)
        for relation in np.unique(triples[:, 1]).tolist():
            mine = triples[:, 1] == relation
            seen[mine] = self.evidence.positions.seen(side, relation, triples[mine, side.column])
        recurs = self.evidence.positions.single[side.other, triples[:, 1]] < ONE_ANSWER
        chances: Sequence[float | None] = [None] * len(triples)
        if self.calibration is not None and logits is not None:
            chances = expit(logits).tolist()
        against = self.contradicted(triples)
        splits = self.splits(triples)
        sizes = self.graph.num_entities, self.graph.num_relations
        rejected = contained(triples, self.rejected, *sizes).tolist()
        return [
            Prediction(*self.graph.named(triple), *said)
            for triple, *said in zip(
                triples.tolist(),
                scores,
                splits,
                chances,
                seen.tolist(),
                against,
                recurs.tolist(),
                rejected,
                strict=True,
            )
        ]

    def splits(self, triples: Integers) -> list[str | None]:
        """Return the split that holds each triple, train before valid before test; else None."""
        sizes = self.graph.num_entities, self.graph.num_relations
        found = np.full(len(triples), None, dtype=object)
        for split in SPLITS[:0:-1]:
            found[contained(triples, self.graph.split(split), *sizes)] = split
        found[self._in_training(triples)] = "train"
        listed: list[str | None] = found.tolist()
        return listed

    def contradicted(self, triples: Integers) -> list[Named | None]:
        """Return for each triple a fact of a relation with one answer that it contradicts."""
        found: list[Named | None] = [None] * len(triples)
        single = self.evidence.positions.single >= ONE_ANSWER
        for side in Side:
            asked = np.flatnonzero(single[side, triples[:, 1]])
            row, entity = self.known[side].of(triples[asked, side.other.column], triples[asked, 1])
            other = entity != triples[asked[row], side.column]
            places, first = np.unique(asked[row[other]], return_index=True)
            for place, entity_id in zip(
                places.tolist(), entity[other][first].tolist(), strict=True
            ):
                fact = triples[place].tolist()
                fact[side.column] = entity_id
                found[place] = self.graph.named(fact)
        return found


def _answers(side: Side, relation: int, anchors: Integers, entities: Tensor) -> Longs:
    """Return the triples of entities that answer questions for a side; (n,), (n,) -> (n, 3)."""
    triples = np.full((len(anchors), 3), relation, dtype=np.int64)
    triples[:, side.other.column], triples[:, side.column] = anchors, entities.cpu().numpy()
    return triples
