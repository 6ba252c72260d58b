"""Questions that stand for all of a graph: which ones a fit of probabilities looks at."""

from __future__ import annotations

import numpy as np

from nscaching.evaluation.evidence import Evidence
from nscaching.evaluation.positions import Positions, is_among
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Floats, Integers, Longs
from nscaching.graph.pairs import sorted_distinct
from nscaching.models import Side

#: Facts of valid that a fit looks at, at most and at least; fewer where entities are many.
_MOST_FACTS, _FEWEST_FACTS, _SCORES = 4000, 200, 4e8
#: Plausible questions that a fit looks at, at most and at least; other ones, for each fact. Of few
#: questions it does not see the best wrong answers, which are those that ``discover`` finds.
_MOST_QUESTIONS, _FEWEST_QUESTIONS, _ODD_QUESTIONS = 9600, 120, 0.075
#: Entities times relations up to which the questions of all relations are looked at.
_MOST_PLACES = 1e8
#: Entities up to which all are looked at as anchors of a relation; how many of more.
_MOST_ANCHORS, _DRAWN_ANCHORS = 1 << 20, 1 << 18


def sample_size(graph: KnowledgeGraph) -> int:
    """Return how many facts are looked at, so that scores are some hundred million at most."""
    return _affordable(graph, _FEWEST_FACTS, _MOST_FACTS)


def most_questions(graph: KnowledgeGraph) -> int:
    """Return how many questions are looked at for each side, at most."""
    plausible = _affordable(graph, _FEWEST_QUESTIONS, _MOST_QUESTIONS)
    wanted = plausible + round(_ODD_QUESTIONS * sample_size(graph))
    return min(wanted, graph.num_entities * graph.num_relations)


def _affordable(graph: KnowledgeGraph, least: int, most: int) -> int:
    return int(np.clip(_SCORES / max(1, graph.num_entities), least, most))


def question_sample(
    evidence: Evidence, side: Side, random: np.random.Generator
) -> tuple[Integers, Integers, Floats]:
    """Return anchors, relations and weights of questions: plausible ones, and some others.

    Half of the plausible ones are drawn evenly and half as often as the anchor has answers: most
    facts are of the few entities with many, and discovery finds its facts there.
    """
    graph, positions = evidence.graph, evidence.positions
    anchor_side = side.other
    asked, share = _some_relations(graph, random)
    looked_at = None
    if graph.num_entities > _MOST_ANCHORS:
        drawn = random.integers(graph.num_entities, size=_DRAWN_ANCHORS)
        looked_at = sorted_distinct(drawn)
    found = [_plausible(positions, anchor_side, r, looked_at) for r in asked.tolist()]
    sizes = np.array([len(part[0]) for part in found])
    plausible, counts, each = (np.concatenate(part) for part in zip(*found, strict=True))
    stands_for = each * np.repeat(1 / share, sizes)  #: a question, for those not looked at
    total, wanted = len(plausible), _affordable(graph, _FEWEST_QUESTIONS, _MOST_QUESTIONS)
    if total <= wanted:
        drawn, weights = np.arange(total), stands_for
    else:
        chance = 0.5 * each / each.sum() + 0.5 * counts / counts.sum()
        drawn = np.sort(random.choice(total, size=wanted, p=chance))
        weights = stands_for[drawn] / (wanted * chance[drawn])
    relations = np.repeat(asked, sizes)[drawn]
    anchors = plausible[drawn]
    wanted = round(_ODD_QUESTIONS * sample_size(graph))
    odd_anchors = random.integers(graph.num_entities, size=wanted)
    place = random.integers(len(asked), size=wanted)
    odd = np.zeros(wanted, dtype=bool)
    for number in np.unique(place).tolist():
        mine = place == number
        rows = positions.rows(anchor_side, int(asked[number]), odd_anchors[mine])
        odd[mine] = ~rows.plausible
    others = max(0.0, graph.num_entities * graph.num_relations - float(stands_for.sum()))
    return (
        np.concatenate([anchors, odd_anchors[odd]]),
        np.concatenate([relations, asked[place[odd]]]),
        np.concatenate([weights, np.full(int(odd.sum()), others / max(1, int(odd.sum())))]),
    )


def _plausible(
    positions: Positions, side: Side, relation: int, looked_at: Longs | None
) -> tuple[Longs, Floats, Floats]:
    """Return the plausible entities of a position, their facts there, and how many each stands for.

    Of entities that were never seen there only those ``looked_at``, where they are given.
    """
    if looked_at is None:
        column = positions.column(side, relation)
        here = np.flatnonzero(column.plausible)
        return here, column.counts[here].astype(np.float64), np.ones(len(here))
    seen = positions.entities_at(side, relation).astype(np.int64)
    unseen = looked_at[~is_among(looked_at, seen)]
    rows = positions.rows(side, relation, np.concatenate([seen, unseen]))
    each = np.ones(len(rows.counts))
    each[len(seen) :] = (positions.num_entities - len(seen)) / max(1, len(unseen))
    kept = rows.plausible
    entities = np.concatenate([seen, unseen])[kept]
    return entities, rows.counts[kept].astype(np.float64), each[kept]


def _some_relations(graph: KnowledgeGraph, random: np.random.Generator) -> tuple[Longs, Floats]:
    """Return relations whose questions are looked at, and the probability of each to be among them.

    All, unless entities and relations are many: then as likely as they have facts.
    """
    facts = np.bincount(graph.train[:, 1], minlength=graph.num_relations) + 1.0
    affordable = max(10.0, _MOST_PLACES / max(1, graph.num_entities))
    share = np.minimum(1.0, affordable * facts / facts.sum())
    if graph.num_relations <= affordable:
        share[:] = 1.0
    kept = np.flatnonzero(random.random(graph.num_relations) < share)
    return (kept, share[kept]) if len(kept) else (np.array([facts.argmax()]), np.ones(1))
