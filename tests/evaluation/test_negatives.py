"""Negatives that are drawn: what each one must be, and what happens where none can be so."""

import numpy as np
import pytest

from nscaching.errors import UserError
from nscaching.evaluation import Drawing, seeded_negatives
from tests.conftest import assert_follows, graph_of, random_graph

SPLITS = ("train", "valid", "test")
GRAPHS = [
    random_graph(),
    random_graph(entities=9, relations=6, train=60, held_out=25, seed=1),
    random_graph(entities=5, relations=3, train=30, held_out=10, seed=2),
]


def facts_of(graph):
    return {tuple(fact) for split in SPLITS for fact in graph.split(split).tolist()}


def allowed(graph, fact, column, anywhere=False):
    """Return all negatives of a fact with one column replaced, straight from the definition."""
    known = facts_of(graph)
    seen = {other[column] for other in known if other[1] == fact[1]}
    entities = range(graph.num_entities) if anywhere else sorted(seen)
    made = [(*fact[:column], entity, *fact[column + 1 :]) for entity in entities]
    return [negative for negative in made if negative not in known]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("replaced", ["tail", "head", "either"])
def test_every_negative_follows_the_rule(graph, split, replaced):
    drawn = seeded_negatives(graph, split, Drawing(3, replaced))
    columns = {"tail": (2, 0), "head": (0, 2)}
    out_of_place = missing = at = 0
    for fact in map(tuple, graph.split(split).tolist()):
        places = {
            side: [x for c in order for x in [allowed(graph, fact, c)] if x][:1]
            for side, order in columns.items()
        }
        sides = columns if replaced == "either" else [replaced]
        good = {negative for side in sides for choice in places[side] for negative in choice}
        if not good:
            good = {x for c in (0, 2) for x in allowed(graph, fact, c, anywhere=True)}
            out_of_place += bool(good)
        if not good:
            missing += 1
            continue
        assert tuple(drawn.triples[at].tolist()) in good
        at += 1
    assert (at, out_of_place, missing) == (len(drawn.triples), drawn.out_of_place, drawn.missing)


def test_the_entity_is_uniform_among_those_allowed():
    train = [(h, 0, t) for h, t in ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6))]
    train += [(0, 0, 3), (0, 0, 6), (1, 1, 7)]
    graph = graph_of(train, test=[(0, 0, 4)], entities=9)
    choices = allowed(graph, (0, 0, 4), 2)
    assert [t for _, _, t in choices] == [2, 5]
    drawn = [seeded_negatives(graph, "test", Drawing(seed)).triples[0] for seed in range(400)]
    assert_follows([choices.index(tuple(x.tolist())) for x in drawn], [0.5, 0.5])


def test_either_side_is_replaced_equally_often():
    graph = random_graph(entities=60, relations=1, train=200, held_out=800)
    drawn = seeded_negatives(graph, "test", Drawing(0, "either"))
    assert_follows((drawn.triples[:, 0] == graph.test[:, 0]).astype(int), [0.5, 0.5])


def test_the_same_seed_gives_the_same_negatives_and_another_seed_others():
    graph = GRAPHS[0]
    first, again, other = (
        seeded_negatives(graph, "test", Drawing(seed)).triples for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_other_side_helps_where_one_has_no_entity():
    # The only tail of the relation is 9: another one is never seen, but a head is.
    graph = graph_of([(0, 0, 9), (1, 0, 9), (2, 1, 3)], test=[(2, 0, 9)], entities=10)
    drawn = seeded_negatives(graph, "test", Drawing(0, "tail"))
    assert (drawn.out_of_place, drawn.missing) == (1, 0)  # all three heads seen are known
    graph = graph_of([(0, 0, 9), (1, 0, 8), (0, 0, 8)], test=[(2, 0, 9)], entities=10)
    drawn = seeded_negatives(graph, "test", Drawing(0, "head"))
    assert drawn.triples.tolist() == [[1, 0, 9]]
    full = [(0, 0, 8), (0, 0, 9), (1, 0, 8)]
    drawn = seeded_negatives(graph_of(full, valid=[(0, 0, 7)], entities=10), "valid", Drawing())
    assert drawn.triples.tolist() == [[1, 0, 7]]
    assert drawn.out_of_place == 0


def test_a_fact_gets_no_negative_where_everything_is_true():
    everything = [(h, 0, t) for h in range(3) for t in range(3)]
    graph = graph_of(everything[:-1], test=everything[-1:], entities=3)
    drawn = seeded_negatives(graph, "test")
    assert drawn.triples.shape == (0, 3)
    assert (drawn.out_of_place, drawn.missing) == (0, 1)


def test_an_empty_split_has_no_negatives():
    drawn = seeded_negatives(graph_of([(0, 0, 1)], entities=3), "test")
    assert drawn.triples.shape == (0, 3)


@pytest.mark.parametrize(
    ("given", "word"), [((-1, "tail"), "at least 0"), ((0, "relation"), "tail, head, either")]
)
def test_a_drawing_that_cannot_be(given, word):
    with pytest.raises(UserError, match=word):
        Drawing(*given)
