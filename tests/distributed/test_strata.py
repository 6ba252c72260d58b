import numpy as np
import pytest

from nscaching.distributed.strata import Strata, StratumGraph
from nscaching.errors import UserError
from tests.distributed.helpers import small_graph


@pytest.mark.parametrize(("entities", "count"), [(23, 4), (1000, 8), (300, 1), (5, 5)])
def test_every_entity_has_one_place_and_strata_are_as_large_as_each_other(entities, count):
    strata = Strata(entities, count, seed=3)
    assert len(np.unique(strata.places)) == entities
    sizes = [strata.size(number) for number in range(count)]
    assert sum(sizes) == entities
    assert max(sizes) - min(sizes) <= 1
    for number in range(count):
        places = strata.places[strata.entities(number)]
        assert (places == number * strata.stride + np.arange(strata.size(number))).all()


def test_the_seed_decides_who_lives_where():
    places = [Strata(500, 4, seed).places for seed in (0, 0, 1)]
    assert (places[0] == places[1]).all()
    assert (places[0] != places[2]).mean() > 0.9


def test_blocks_of_a_batch_cover_it():
    strata = Strata(100, 8, 0)
    triples = [
        i for number in range(8) for i in range(77)[strata.block(range(number, number + 1), 77)]
    ]
    assert triples == list(range(77))
    assert strata.block(range(2, 4), 77) == slice(19, 38)


def test_more_strata_than_entities_are_refused():
    with pytest.raises(UserError, match="strata is 24, and the graph has 23 entities"):
        Strata(23, 24, 0)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_the_known_positives_of_all_strata_are_those_of_the_graph(side):
    graph = small_graph()
    strata = Strata(graph.num_entities, 4, 0)
    whole = getattr(graph.rows, side)
    found = [set() for _ in range(len(whole))]
    for number in range(4):
        part = getattr(StratumGraph.of(graph, strata, [number]).rows, side)
        for row in range(len(whole)):
            answers = part.answers[part.offsets[row] : part.offsets[row + 1]]
            assert (np.diff(answers) > 0).all()
            found[row] |= set(strata.entities(number)[answers].tolist())
    expected = [
        set(whole.answers[whole.offsets[row] : whole.offsets[row + 1]].tolist())
        for row in range(len(whole))
    ]
    assert found == expected
