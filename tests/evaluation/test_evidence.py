"""Positions of entities: seen, counted, fitting, single answers."""

import numpy as np
import pytest

from nscaching import KnowledgeGraph
from nscaching.evaluation.positions import Positions
from nscaching.models import Side

from ..conftest import random_graph


def places(graph, splits=("train",)):
    """Return the positions of each entity, and how often it stands in each, with loops and sets."""
    found = {}
    for split in splits:
        for h, r, t in graph.split(split).tolist():
            for entity, side in ((h, Side.HEAD), (t, Side.TAIL)):
                mine = found.setdefault(entity, {})
                mine[side, r] = mine.get((side, r), 0) + 1
    return found


@pytest.mark.parametrize("whole", [False, True])
def test_columns_are_what_loops_and_sets_find(whole):
    graph = random_graph()
    splits = ("train", "valid", "test") if whole else ("train",)
    found = places(graph, splits)
    positions = Positions(graph, whole=whole)
    for side in Side:
        for relation in range(graph.num_relations):
            column = positions.column(side, relation)
            here = {e for e, mine in found.items() if (side, relation) in mine}
            for entity in range(graph.num_entities):
                mine = found.get(entity, {})
                assert column.counts[entity] == mine.get((side, relation), 0)
                assert column.seen[entity] == (entity in here)
                others = [place for place in mine if place != (side, relation)]
                if others:
                    shares = []
                    for place in others:
                        there = {e for e, m in found.items() if place in m}
                        shares.append(len(there & here) / len(there))
                    expected = np.mean(np.log(np.array(shares) + 1e-3))
                else:
                    expected = np.log(len(here) / graph.num_entities + 1e-3)
                assert column.fit[entity] == pytest.approx(expected, abs=1e-5)
            assert positions.entities_at(side, relation).tolist() == sorted(here)
            some = np.array([3, 0, 3, graph.num_entities - 1])
            rows = Positions(graph, whole=whole).rows(side, relation, some)
            for other in (rows, positions.rows(side, relation, some)):
                assert np.array_equal(other.counts, column.counts[some])
                assert np.allclose(other.fit, column.fit[some], atol=1e-6)


def test_a_relation_has_one_answer_where_nearly_every_question_has():
    names = [f"e{i}" for i in range(60)]
    one = [(i, 0, 40 + i % 5) for i in range(40)]
    many = [(i, 1, 40 + (i + j) % 5) for i in range(40) for j in range(2)]
    few = [(0, 2, 1), (1, 2, 2)]
    positions = Positions(KnowledgeGraph(names, ["one", "many", "few"], [*one, *many, *few]))
    assert positions.has_one_answer(Side.TAIL, 0)
    assert not positions.has_one_answer(Side.HEAD, 0)
    assert not positions.has_one_answer(Side.TAIL, 1)
    assert not positions.has_one_answer(Side.TAIL, 2)  # two questions prove nothing


def test_an_entity_of_the_right_type_is_plausible_before_it_is_seen():
    names = [f"e{i}" for i in range(30)]
    facts = [(i, 0, 20) for i in range(10)] + [(i, 1, 21) for i in range(9)] + [(25, 2, 26)]
    column = Positions(KnowledgeGraph(names, ["a", "b", "c"], facts)).column(Side.HEAD, 1)
    assert column.plausible[9]  # it stands where all heads of b stand
    assert not column.seen[9]
    assert not column.plausible[25]
