"""What speaks for a triple, as numbers that compare across questions.

Raw scores do not: a question (h, r, ?) may give all of its candidates high scores and another none.
So a score is taken relative to its question, in two ways that suit logits and distances alike: the
log-softmax over all entities, at the temperature that makes valid most likely, and the distance
from the mean in standard deviations. Beside it stands what the training triples say of the two
entities: were they seen in their positions, how often, do they fit there, and does a relation with
one answer have it already. Of what is asked about there is one more: whether entities with the same
attributes have the relation at all, for where they have none, no fact is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nscaching.evaluation.attributes import Attributes
from nscaching.evaluation.positions import Positions
from nscaching.evaluation.ranking import DEFAULT_MEMORY_MB, chunk_rows
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Bools, Floats, Integers
from nscaching.models import EmbeddingModel, Side

#: The numbers for one question and a candidate: two of the score, four of each entity, and one
#: more of the entity that is asked about.
SCORE_FEATURES = ("log softmax", "deviations")
ENTITY_FEATURES = ("seen", "facts", "fit", "taken")
ANCHOR_FEATURES = (*ENTITY_FEATURES, "alike")
#: Valid questions that decide the temperature, at most and at least; fewer where entities are many.
_TEMPERATURE_QUESTIONS, _FEWEST_QUESTIONS, _SCORES = 256, 32, 3e7
#: A relation's share of single answers is raised to this power before it speaks against a second.
_SHARPNESS = 8
#: Bytes of the scores that a CPU works on at once, and the fewest questions: each block reads the
#: whole entity table.
_CACHE_BYTES, _FEWEST_ROWS = 1 << 23, 24

Features = Floats


@dataclass(frozen=True)
class Questions:
    """Scores of all entities for questions of one side and one relation, and what they are worth.

    ``log softmax = temperature * scores - normaliser``,
    ``deviations = (scores - mean) / spread``.
    """

    scores: Tensor  #: (b, entities)
    normaliser: Tensor  #: (b,)
    mean: Tensor  #: (b,)
    spread: Tensor  #: (b,)
    rows: Tensor  #: (b,) which of the questions that were asked these are

    def of_scores(self, temperature: float, rows: Tensor, scores: Tensor) -> Tensor:
        """Return the two features of scores to the questions ``rows``; (n,), (n,) -> (n, 2)."""
        softmax = temperature * scores - self.normaliser[rows]
        deviations = (scores - self.mean[rows]) / self.spread[rows]
        return torch.stack([softmax, deviations], dim=1)


class Evidence:
    """Features of triples under a model; the graph's training triples are taken as known."""

    def __init__(
        self,
        model: EmbeddingModel,
        graph: KnowledgeGraph,
        temperature: float | None = None,
        memory_mb: int = DEFAULT_MEMORY_MB,
    ) -> None:
        self.model, self.graph, self.memory_mb = model, graph, memory_mb
        self.positions = Positions.of(graph)
        #: What scores are multiplied with before the softmax.
        self.temperature = 1.0 if temperature is None else temperature
        if temperature is None:
            self.temperature = self._best_temperature()

    def chunk(self) -> int:
        """Return how many questions are scored at once; on a CPU no more than its caches hold."""
        rows = chunk_rows(self.graph.num_entities, self.memory_mb)
        if self.model.device.type != "cpu":
            return rows
        return min(rows, max(_FEWEST_ROWS, _CACHE_BYTES // (4 * max(1, self.graph.num_entities))))

    @torch.no_grad()
    def ask(
        self,
        side: Side,
        anchors: Integers,
        relations: Integers,
        worth: Callable[[Tensor], Tensor] | None = None,
    ) -> Questions:
        """Score all entities for each question; training answers do not count. (b,), (b,).

        ``worth`` gets the highest deviation of each question, (b,), and tells which questions are
        to be kept, as bools; most of the work is spared for the others.
        """
        device = self.model.device
        scores = self.model.score_all(
            side,
            torch.as_tensor(anchors, device=device).long(),
            torch.as_tensor(relations, device=device).long(),
        ).float()
        mean = scores.mean(dim=1)
        if not bool(mean.isfinite().all()):  # a score that is no number is the worst
            scores = torch.nan_to_num(scores, nan=-1e30, posinf=1e30, neginf=-1e30)
            mean = scores.mean(dim=1)
        spread = torch.linalg.vector_norm(scores - mean[:, None], dim=1)
        spread /= max(1, scores.shape[1] - 1) ** 0.5
        spread.clamp_(min=1e-6)
        row, known = self.known_answers(side, anchors, relations)
        kept = scores[row, known]
        scores[row, known] = -torch.inf
        rows = torch.arange(len(scores), device=device)
        if worth is not None:
            rows = torch.nonzero(worth((scores.amax(dim=1) - mean) / spread))[:, 0]
            if len(rows) < len(scores):
                place = torch.full_like(mean, -1, dtype=torch.int64)
                place[rows] = torch.arange(len(rows), device=device)
                still = place[row] >= 0
                row, known, kept = place[row[still]], known[still], kept[still]
                scores, mean, spread = scores[rows], mean[rows], spread[rows]
        normaliser = torch.logsumexp(self.temperature * scores, dim=1)
        scores[row, known] = kept
        return Questions(scores, normaliser, mean, spread, rows)

    @cached_property
    @torch.no_grad()
    def highest_deviations(self) -> Tensor | None:
        """A bound on how far above the mean of a question each entity can score; (entities,).

        In standard deviations of that question. Where scores are dot products it is the Mahalanobis
        norm of the entity's vector, by the inequality of Cauchy and Schwarz; else None.
        """
        model, (count, width) = self.model, self.model.entity.shape
        size = max(1, (1 << 24) // width)
        sums = [rows.double().sum(dim=0) for _, rows in model.blocks(size)]
        centre = torch.stack(sums).sum(0) / count
        if model.match.name != "dot" or not bool(centre.isfinite().all()):
            return None
        spread = centre.new_zeros(width, width)
        for _, rows in model.blocks(size):
            spread += (rows - centre).T @ (rows - centre) / max(1, count - 1)
        ridge = (1e-9 * spread.diagonal().mean() + 1e-30) * torch.eye(width).to(spread)
        inverse = torch.linalg.inv(torch.linalg.cholesky(spread + ridge))
        norms = centre.new_empty(count, dtype=torch.float32)
        for ids, rows in model.blocks(size):
            norms[ids] = torch.linalg.vector_norm((rows - centre) @ inverse.T, dim=1).float()
        return norms

    def known_answers(
        self, side: Side, anchors: Integers, relations: Integers
    ) -> tuple[Tensor, Tensor]:
        """Return the training answers of questions as (row, entity) lists."""
        asked = np.asarray(anchors), np.asarray(relations)
        row, entity = map(torch.from_numpy, self.graph.rows[side].completions(*asked))
        return row.to(self.model.device), entity.to(self.model.device).long()

    def score_features(self, triples: Integers, side: Side) -> Features:
        """Return the features of the score within the question that asks for one side; (n, 2)."""
        found = np.empty((len(triples), len(SCORE_FEATURES)))
        asked = triples[:, [1, side.other.column]]
        pairs, of_triple = np.unique(asked, axis=0, return_inverse=True)
        of_triple = of_triple.reshape(-1)
        order = np.argsort(of_triple, kind="stable")
        chunk = self.chunk()
        for start in range(0, len(pairs), chunk):
            block = pairs[start : start + chunk]
            first, last = np.searchsorted(of_triple[order], [start, start + len(block)])
            mine = order[first:last]
            questions = self.ask(side, block[:, 1], block[:, 0])
            rows = torch.from_numpy(of_triple[mine] - start).to(self.model.device)
            targets = triples[mine, side.column].astype(np.int64)
            scores = questions.scores[rows, torch.from_numpy(targets).to(rows.device)]
            features = questions.of_scores(self.temperature, rows, scores)
            found[mine] = features.cpu().numpy()
        return found

    def entity_features(
        self,
        triples: Integers,
        side: Side,
        positions: Positions | None = None,
        own: Bools | None = None,
        asked: bool = False,
    ) -> Features:
        """Return the features of the entity on one side of each triple; (n, 4).

        ``asked`` tells that it is what the question is about, which has one more; (n, 5). ``own``
        says which are training triples, (n,): one that is known is no reason for itself, so it is
        judged by the others, as facts of valid are.
        """
        found = np.empty((len(triples), len(ANCHOR_FEATURES if asked else ENTITY_FEATURES)))
        order = np.argsort(triples[:, 1], kind="stable")
        relations, first = np.unique(triples[order, 1], return_index=True)
        for relation, mine in zip(relations.tolist(), np.split(order, first)[1:], strict=True):
            ids = triples[mine, side.column]
            itself = None if own is None else own[mine]
            found[mine] = self.entity_table(side, relation, positions, ids, itself, asked)
        return found

    def entity_table(
        self,
        side: Side,
        relation: int,
        positions: Positions | None = None,
        entities: Integers | None = None,
        own: Bools | None = None,
        asked: bool = False,
    ) -> Features:
        """Return the features of all entities on one side of a relation, or of some; (n, 4).

        Those of entities that are ``asked`` about are one more; (n, 5). ``positions`` are those of
        the training triples, unless others are given. Of entities with ``own`` one fact is not
        counted.
        """
        positions = positions or self.positions
        if entities is None:
            position = positions.column(side, relation)
        else:
            position = positions.rows(side, relation, entities)
        if own is not None:
            position = replace(position, counts=position.counts - own)
        # An entity that stands on this side asks the other side's question: it has answers already.
        taken = position.seen * positions.single[side.other, relation] ** _SHARPNESS
        columns = [position.seen, np.log1p(position.counts), position.fit, taken]
        if asked:
            # Nobody asks about the others, or their fit speaks against them.
            likely = np.flatnonzero(position.plausible)
            some = likely if entities is None else np.asarray(entities, dtype=np.int64)[likely]
            attributes = Attributes.of(self.graph, whole=positions.whole)
            columns.append(np.zeros(len(position.counts)))
            columns[-1][likely] = attributes.alike(positions, side, relation, some)
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    def of_answers(
        self,
        triples: Integers,
        sides: tuple[Side, ...],
        positions: Positions | None = None,
        own: Bools | None = None,
    ) -> Features:
        """Return the features of triples as answers to the questions for some sides.

        First those of the score for each question, then those of the first side's entity and of
        the other one, which is asked about where there is one side; (n, 11), or (n, 12) for both.
        """
        scores = [self.score_features(triples, side) for side in sides]
        answer = self.entity_features(triples, sides[0], positions, own)
        other = self.entity_features(triples, sides[0].other, positions, own, len(sides) == 1)
        return np.concatenate([*scores, answer, other], axis=1)

    def _best_temperature(self) -> float:
        """Return the temperature at which the softmax makes the valid triples most likely."""
        valid = self.graph.valid
        if len(valid) == 0:
            return 1.0
        affordable = _SCORES / max(1, self.graph.num_entities)
        most = int(np.clip(affordable, _FEWEST_QUESTIONS, _TEMPERATURE_QUESTIONS))
        some = valid[:: max(1, len(valid) // most)][:most]
        tried = np.logspace(-1.5, 1.5, 25)
        # The likelihood is concave: every fourth first, then those around the best.
        unit, coarse = self._likelihoods(some, tried[::4])
        best = 4 * int(coarse.argmax())
        around = tried[max(0, best - 3) : best + 4]
        _, fine = self._likelihoods(some, around)
        return float(unit * around[int(fine.argmax())])

    def _likelihoods(self, some: Integers, tried: Floats) -> tuple[float, Floats]:
        """Return the log-likelihoods of triples at some temperatures, and the unit of those."""
        likelihood = np.zeros(len(tried))
        unit = 0.0
        for start in range(0, len(some), self.chunk()):
            block = some[start : start + self.chunk()]
            questions = self.ask(Side.TAIL, block[:, 0], block[:, 1])
            target = torch.from_numpy(block[:, 2].astype(np.int64)).to(self.model.device)
            own = questions.scores.gather(1, target.unsqueeze(1))[:, 0]
            unit = unit or 1 / max(float(questions.spread.mean()), 1e-6)
            row, known = self.known_answers(Side.TAIL, block[:, 0], block[:, 1])
            questions.scores[row, known] = -torch.inf
            for number, factor in enumerate(tried):
                scale = unit * factor
                normaliser = torch.logsumexp(scale * questions.scores, dim=1)
                likelihood[number] += float((scale * own - normaliser).sum())
        return unit, likelihood
