"""Predictions that the graph does not contain: the best answers to its most frequent questions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from nscaching.evaluation.ranking import Filter
from nscaching.graph import KnowledgeGraph
from nscaching.graph.pairs import PairRows
from nscaching.graph.statistics import MANY
from nscaching.models import Side
from nscaching.runs.run import Prediction, Run

#: Predictions shown, and of one relation at most so many while there are others.
SHOWN, _OF_A_RELATION = 10, 2
#: Questions asked on each side, and scores held at once.
QUESTIONS, _SCORES_AT_ONCE = 256, 1 << 24


@dataclass(frozen=True)
class Guess:
    """A triple that is not in the graph, and the question it answers."""

    prediction: Prediction
    side: Side  #: what was asked for
    answers: int  #: that the graph gives to the same question


def unknown_triples(run: Run, shown: int = SHOWN, questions: int = QUESTIONS) -> list[Guess]:
    """Return the best answer that the graph lacks to each of some questions, the best of those.

    Asked are the pairs with the most answers, of each relation about equally many, and only where a
    question usually has several answers: where one is the rule, the graph has it already. A triple
    of an entity with itself is left out, and so is the mirror image of one that is shown.
    """
    found = [guess for side in Side for guess in _best_of_side(run, side, questions)]
    found.sort(key=lambda guess: -guess.prediction.score)
    distinct: dict[tuple[str, frozenset[str]], Guess] = {}
    for guess in found:
        triple = guess.prediction
        distinct.setdefault((triple.relation, frozenset((triple.head, triple.tail))), guess)
    chosen: list[Guess] = []
    spare: list[Guess] = []
    for guess in distinct.values():
        same = sum(other.prediction.relation == guess.prediction.relation for other in chosen)
        (chosen if same < _OF_A_RELATION else spare).append(guess)
    best = [*chosen, *spare][:shown]
    return sorted(best, key=lambda guess: -guess.prediction.score)


def _best_of_side(run: Run, side: Side, questions: int) -> list[Guess]:
    graph, model = run.graph, run.model
    rows = graph.rows.head if side is Side.HEAD else graph.rows.tail
    asked = _frequent(graph, rows, side, questions)
    anchor, relation = rows.anchor[asked], rows.relation[asked]
    # A question as a triple of its anchor with itself: so that one counts as known.
    triples = np.column_stack([anchor, relation, anchor])
    known = Filter(graph, side, triples)
    size = max(1, _SCORES_AT_ONCE // graph.num_entities)
    guesses = []
    for start in range(0, len(triples), size):
        part = triples[start : start + size]
        ids = torch.from_numpy(part.T.astype(np.int64)).to(model.device)
        with torch.no_grad():
            scores = model.score_all(side, ids[0], ids[1])
        position, entity = known.answers_of(part, side)
        facts = [torch.from_numpy(each).to(model.device).long() for each in (position, entity)]
        scores[facts[0], facts[1]] = -torch.inf
        best, answer = (each.cpu().numpy() for each in scores.max(1))
        answers = np.diff(rows.offsets)[asked[start : start + size]]
        for place in np.flatnonzero(np.isfinite(best)):
            ends = part[place, 0], answer[place]
            head, tail = ends[::-1] if side is Side.HEAD else ends
            names = graph.entities
            triple = Prediction(
                names[head], graph.relations[part[place, 1]], names[tail], float(best[place])
            )
            guesses.append(Guess(triple, side, int(answers[place])))
    return guesses


def _frequent(graph: KnowledgeGraph, rows: PairRows, side: Side, questions: int) -> np.ndarray:
    """Return the rows with the most answers, of each relation about equally many."""
    statistics = graph.statistics
    usual = statistics.heads_per_tail if side is Side.HEAD else statistics.tails_per_head
    many = usual[rows.relation] >= MANY
    candidates = np.flatnonzero(many)
    if len(candidates) == 0:
        return candidates
    answers = np.diff(rows.offsets)[candidates]
    order = candidates[np.lexsort((candidates, -answers, rows.relation[candidates]))]
    relation = rows.relation[order]
    _, first, sizes = np.unique(relation, return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(first, sizes)  # within its relation
    return order[np.lexsort((-np.diff(rows.offsets)[order], place))][:questions]
