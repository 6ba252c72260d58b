"""Attributes that entities share, and whether those with the same ones stand in a position."""

import numpy as np
import pytest

from nscaching import KnowledgeGraph
from nscaching.evaluation import attributes
from nscaching.evaluation.attributes import Attributes
from nscaching.evaluation.calibration import fit_calibration
from nscaching.evaluation.evidence import Evidence
from nscaching.evaluation.positions import Positions
from nscaching.models import Side

from ..conftest import random_graph, random_model


def slow_alike(triples, side, relation, entity):
    """Return the number with loops and sets, straight from its definition."""
    has, stands = {}, {}
    for h, r, t in set(map(tuple, triples)):
        for one, place, other in ((h, (Side.HEAD, r), t), (t, (Side.TAIL, r), h)):
            has.setdefault((place, other), set()).add(one)
            stands.setdefault(place, set()).add(one)
    here = stands.get((side, relation), set())
    logs, weights = [], [1.0]
    for (place, _), those in has.items():
        if entity not in those or place == (side, relation):
            continue
        found = len((those - {entity}) & here) + 1
        expected = (len(those) - 1) * len(stands[place] & here) / len(stands[place]) + 1
        logs.append(np.log(found / expected))
        weights.append(found * logs[-1] - found + expected)
    return np.dot(weights[1:], logs) / sum(weights)


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("whole", [False, True])
def test_the_number_is_what_loops_and_sets_find(whole, block, monkeypatch):
    monkeypatch.setattr(attributes, "_BLOCK", block)
    graph = random_graph()
    splits = ("train", "valid", "test") if whole else ("train",)
    triples = [triple for split in splits for triple in graph.split(split).tolist()]
    made, positions = Attributes(graph, whole=whole), Positions(graph, whole=whole)
    everyone = np.arange(graph.num_entities)
    for side in Side:
        for relation in range(graph.num_relations):
            found = made.alike(positions, side, relation, everyone)
            slow = [slow_alike(triples, side, relation, entity) for entity in everyone.tolist()]
            assert np.allclose(found, slow)
            some = np.array([3, 0, 3, graph.num_entities - 1])
            assert np.array_equal(made.alike(positions, side, relation, some), found[some])
            assert made.alike(positions, side, relation, some[:0]).shape == (0,)


def kinds_graph(count=240, kinds=4):
    """Districts of several kinds; those of the first kind alone have a parent."""
    facts = [(n, 0, count + n % kinds) for n in range(count)]
    facts += [(n, 1, count + kinds + n % 7) for n in range(count)]
    parents = [(n, 2, count + kinds + 7 + n % 7) for n in range(0, count, kinds)]
    names = [f"e{n}" for n in range(count + kinds + 14)]
    held_out = parents[::10]
    train = facts + [fact for fact in parents if fact not in held_out]
    return KnowledgeGraph(names, ["kind", "state", "parent"], train, held_out), held_out


def test_the_most_telling_attribute_is_that_of_the_definition():
    graph, _ = kinds_graph()
    positions, made = Positions.of(graph), Attributes.of(graph)
    facts = set(map(tuple, graph.train.tolist()))
    parents = {h for h, r, _ in facts if r == 2}
    for entity in (0, 1, 4, 7):
        found = made.telling(positions, Side.HEAD, 2, entity)
        pairs = graph.rows[found.side]
        assert found.side is Side.HEAD
        assert pairs.relation[found.row] == 0  # its kind, not its state
        kind = int(pairs.anchor[found.row])
        alike = {h for h, r, t in facts if (r, t) == (0, kind)} - {entity}
        assert (entity, 0, kind) in facts
        assert (found.others, found.standing) == (len(alike), len(alike & parents))
        assert found.expected == pytest.approx(len(alike) * len(parents) / 240)
    lonely = KnowledgeGraph([*"abc"], ["r"], [(0, 0, 1)])  # the third entity has no fact
    assert Attributes.of(lonely).telling(Positions.of(lonely), Side.HEAD, 0, 2) is None


def test_entities_whose_like_have_none_are_told_from_those_whose_fact_is_missing():
    graph, held_out = kinds_graph()
    positions = Positions.of(graph)
    found = Attributes.of(graph).alike(positions, Side.HEAD, 2, np.arange(240))
    column = positions.column(Side.HEAD, 2)
    assert np.unique(column.fit[:240]).size <= 2  # positions alone tell only who has a parent
    first = np.arange(240) % 4 == 0
    assert found[first].min() > 1
    assert found[~first].max() < -1
    missing = [head for head, _, _ in held_out]
    assert not column.seen[missing].any()


def test_a_missing_fact_is_more_probable_than_one_that_its_like_never_have():
    graph, held_out = kinds_graph()
    model = random_model("distmult", graph.num_entities, 3, dim=4)  # it knows nothing
    evidence, curve = Evidence(model, graph), fit_calibration(model, graph).answers[Side.TAIL]
    true = np.array(held_out)
    never = true + np.array([1, 0, 0])  # the next district is of another kind
    features = evidence.of_answers(np.concatenate([true, never]), (Side.TAIL,))
    features[:, :2] = features[:, :2].mean(axis=0)
    logits = curve.logits(features, np.full(2 * len(true), 2))
    assert logits[: len(true)].min() > logits[len(true) :].max() + 2


def test_only_the_entity_that_is_asked_about_has_the_number():
    graph = random_graph()
    evidence = Evidence(random_model("distmult"), graph)
    triples = graph.valid.astype(np.int64)
    one, both = (evidence.of_answers(triples, sides) for sides in ((Side.HEAD,), tuple(Side)))
    assert one.shape[1] == 11
    assert both.shape[1] == 12
    for row, (_, relation, tail) in zip(one, triples.tolist(), strict=True):
        plausible = evidence.positions.column(Side.TAIL, relation).plausible[tail]
        alike = Attributes.of(graph).alike(
            evidence.positions, Side.TAIL, relation, np.array([tail])
        )
        assert row[-1] == pytest.approx(alike[0] if plausible else 0.0)
        table = evidence.entity_table(Side.TAIL, relation, asked=True)
        assert row[-5:] == pytest.approx(table[tail])
