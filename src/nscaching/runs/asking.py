"""Questions to a model: scores, probabilities, and what the graph says of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.evaluation.calibration import Calibration, claim_probabilities
from nscaching.evaluation.evidence import (
    ENTITY_FEATURES,
    SCORE_FEATURES,
    Evidence,
    Positions,
    Questions,
)
from nscaching.evaluation.ranking import AnswersBySide
from nscaching.evaluation.regression import expit
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import SPLITS
from nscaching.graph.pairs import triple_keys
from nscaching.models import EmbeddingModel, Side
from nscaching.runs.predictions import Named, Prediction

Ids = npt.NDArray[np.integer]
#: Log-odds that an answer must have which was never seen on its side of the relation: 1 %. Below it
#: not one of a thousand such answers is a fact of valid (docs/discovering.md).
LEAST_LOGIT = float(np.log(0.01 / 0.99))
#: Bytes of what is kept of relations that have been asked.
_KEPT_BYTES = 1 << 27


@dataclass(frozen=True)
class Ranked:
    """Candidates of questions, the best first: rows of questions, entities, and their numbers."""

    row: Ids  #: (n,) position of the question
    entity: Ids  #: (n,)
    score: npt.NDArray[np.float64]  #: (n,)
    logit: npt.NDArray[np.float64]  #: (n,) log-odds, or the log-softmax without a calibration


class Asker:
    """Asks a model; kept by a run, so that look-ups are made once."""

    def __init__(
        self,
        model: EmbeddingModel,
        graph: KnowledgeGraph,
        calibration: Calibration | None,
        rejected: Ids,
        memory_mb: int,
    ) -> None:
        self.graph, self.calibration, self.rejected = graph, calibration, rejected
        temperature = calibration.temperature if calibration is not None else None
        self.evidence = Evidence(model, graph, temperature, memory_mb)
        self.facts = np.concatenate([graph.split(split) for split in SPLITS])
        self.known = AnswersBySide(self.facts, graph.num_relations)
        #: What all known facts say of entities: new facts are judged by it, known ones by training.
        self.whole = Positions.of(graph, whole=True)
        self._refused = AnswersBySide(rejected, graph.num_relations)
        self._terms: dict[tuple[Side, int], tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def ask(
        self,
        side: Side,
        relation: int,
        anchors: Ids,
        k: int,
        *,
        known: bool = False,
        by_score: bool = False,
        contradictions: bool = True,
        unlikely: bool = True,
        among: Tensor | None = None,
        above: float = -np.inf,
    ) -> Ranked:
        """Return the k best answers of each question for one side of a relation; anchors: (b,).

        Rejected facts are left out, known ones unless ``known`` is set, and so is the anchor
        itself, unless the relation holds between something and itself somewhere. Without
        ``contradictions`` so are second answers where the relation has one, and without
        ``unlikely`` answers that were never seen there and have hardly a chance. ``among`` marks
        the entities that may answer; shape: (entities,). Answers whose rank is decided by a number
        that is not ``above`` another one are left out.
        """
        relations = np.full(len(anchors), relation)
        questions = self.evidence.ask(side, anchors, relations)
        scores, device = questions.scores, questions.scores.device
        facts = tuple(
            torch.from_numpy(part).to(device) for part in self.known[side].of(anchors, relations)
        )
        logits = self._all_logits(questions, side, relation, anchors, facts if known else None)
        out = [self._refused[side].of(anchors, relations)]
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
            unseen = torch.from_numpy(~self.evidence.positions.column(side, relation).seen)
            ranked[(logits < LEAST_LOGIT) & unseen.to(device)] = -torch.inf
        ranked[facts] = kept
        ranked[row, entity] = -torch.inf
        if not known:
            ranked[facts] = -torch.inf
        if among is not None:
            ranked[:, ~among] = -torch.inf
        # Most questions of a whole graph have no answer that is good enough: they are not sorted.
        worth = torch.nonzero(ranked.amax(dim=1) > above)[:, 0]
        best = ranked[worth].topk(min(k, ranked.shape[1]), dim=1)
        place, rank = torch.nonzero(best.values > above, as_tuple=True)
        place, entities = worth[place], best.indices[place, rank]
        return Ranked(
            place.cpu().numpy(),
            entities.cpu().numpy(),
            scores[place, entities].double().cpu().numpy(),
            logits[place, entities].double().cpu().numpy(),
        )

    def _leave_out_contradictions(
        self, ranked: Tensor, side: Side, relation: int, facts: tuple[Tensor, ...]
    ) -> None:
        """Set to -inf what cannot hold beside the facts of the graph; ranked: (b, entities)."""
        other = Side.HEAD if side is Side.TAIL else Side.TAIL
        if self.evidence.positions.has_one_answer(side, relation):
            ranked[torch.bincount(facts[0], minlength=len(ranked)) > 0] = -torch.inf
        if self.evidence.positions.has_one_answer(other, relation):
            taken = torch.from_numpy(self.whole.column(side, relation).seen)
            ranked[:, taken.to(ranked.device)] = -torch.inf

    def _all_logits(
        self,
        questions: Questions,
        side: Side,
        relation: int,
        anchors: Ids,
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
        _, of_answer, of_anchor = np.split(
            weights, np.cumsum([len(SCORE_FEATURES), len(ENTITY_FEATURES)])
        )
        other = Side.HEAD if side is Side.TAIL else Side.TAIL

        def terms(positions: Positions | None) -> tuple[Tensor, Tensor]:
            answers = self.evidence.entity_table(side, relation, positions) @ of_answer
            asked = self.evidence.entity_table(other, relation, positions) @ of_anchor
            device = scores.device
            return (
                torch.from_numpy(answers).float().to(device),
                torch.from_numpy(asked).float().to(device),
            )

        if (side, relation) not in self._terms:
            if 8 * (len(self._terms) + 1) * scores.shape[1] > _KEPT_BYTES:
                self._terms.clear()
            self._terms[side, relation] = terms(self.whole)
        answer, asked = self._terms[side, relation]
        rows = torch.from_numpy(np.asarray(anchors, dtype=np.int64)).to(scores.device)
        anchor = asked[rows] + base
        logits: Tensor = scores * slope[:, None]
        logits += anchor[:, None]
        logits += answer
        if facts is not None:
            row, entity = facts
            answer, asked = terms(None)
            anchor = asked[rows] + base
            logits[row, entity] = scores[row, entity] * slope[row] + anchor[row] + answer[entity]
        return logits

    def logits(self, triples: Ids, side: Side = Side.TAIL) -> npt.NDArray[np.float64]:
        """Return the log-odds of triples as answers to the question for a side; (n, 3) -> (n,)."""
        assert self.calibration is not None
        found = np.empty(len(triples))
        for mine, positions in self._sorts(triples):
            features = self.evidence.of_answers(triples[mine], side, positions)
            found[mine] = self.calibration.answers[side].logits(features, triples[mine, 1])
        return found

    def claims(self, triples: Ids, prior: float) -> npt.NDArray[np.float64]:
        """Return the probability of claims. Shape: (n, 3) -> (n,)."""
        assert self.calibration is not None
        found = np.empty(len(triples))
        for mine, positions in self._sorts(triples):
            given = (self.evidence, self.calibration, triples[mine], prior, positions)
            found[mine] = claim_probabilities(*given)
        return found

    def _sorts(self, triples: Ids) -> list[tuple[npt.NDArray[np.bool_], Positions | None]]:
        """Return which triples are known, to be judged by training, and which are new."""
        known = np.array([split is not None for split in self.splits(triples)], dtype=bool)
        return [(part, of) for part, of in ((known, None), (~known, self.whole)) if part.any()]

    def predictions(
        self,
        triples: Ids,
        scores: Iterable[float],
        logits: npt.NDArray[np.float64] | None,
        side: Side,
    ) -> list[Prediction]:
        """Return triples of ids with names, probability and flags; ``side`` is what was asked."""
        column = 0 if side is Side.HEAD else 2
        seen = np.ones(len(triples), dtype=bool)
        for relation in np.unique(triples[:, 1]).tolist():
            mine = triples[:, 1] == relation
            there = self.evidence.positions.column(side, relation).seen
            seen[mine] = there[triples[mine, column]]
        chances: Sequence[float | None] = [None] * len(triples)
        if self.calibration is not None and logits is not None:
            chances = expit(logits).tolist()
        against = self.contradicted(triples)
        splits = self.splits(triples)
        return [
            Prediction(*self.named(triple), score, split, chance, saw, fact)
            for triple, score, split, chance, saw, fact in zip(
                triples.tolist(), scores, splits, chances, seen.tolist(), against, strict=True
            )
        ]

    def named(self, triple: Sequence[int]) -> Named:
        """Return the names of a triple of ids."""
        head, relation, tail = triple
        return self.graph.entities[head], self.graph.relations[relation], self.graph.entities[tail]

    def splits(self, triples: Ids) -> list[str | None]:
        """Return the split that holds each triple, train before valid before test; else None."""
        sizes = self.graph.num_entities, self.graph.num_relations
        keys = triple_keys(np.concatenate([self.facts, triples]), *sizes)
        facts, asked = keys[: len(self.facts)], keys[len(self.facts) :]
        wanted = np.flatnonzero(np.isin(facts, asked))
        held = np.repeat(SPLITS, [len(self.graph.split(split)) for split in SPLITS])
        found: dict[int, str] = {}
        for place in wanted[::-1].tolist():
            found[int(facts[place])] = str(held[place])
        return [found.get(key) for key in asked.tolist()]

    def contradicted(self, triples: Ids) -> list[Named | None]:
        """Return for each triple a fact of a relation with one answer that it contradicts."""
        found: list[Named | None] = [None] * len(triples)
        single = self.evidence.positions.has_one_answer
        relations = np.unique(triples[:, 1]).tolist()
        for side, anchor, answer in ((Side.TAIL, 0, 2), (Side.HEAD, 2, 0)):
            if not any(single(side, relation) for relation in relations):
                continue
            row, entity = self.known[side].of(triples[:, anchor], triples[:, 1])
            facts = triples[row].copy()
            facts[:, answer] = entity
            for place, fact in zip(row.tolist(), facts.tolist(), strict=True):
                if found[place] is not None or fact[answer] == int(triples[place, answer]):
                    continue
                if single(side, fact[1]):
                    found[place] = self.named(fact)
        return found
