"""Self-Adv: uniform negatives whose weights are a softmax of the model's scores."""

import pytest
import torch

from tests.conftest import assert_follows, graph_of, random_graph, seeded
from tests.sampling.helpers import SIDES, TableScorer, batch_of, sampler_of


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_weights_are_a_softmax_of_temperature_times_score(temperature):
    graph = random_graph()
    sampler = sampler_of(
        graph, "self-adversarial", negatives=5, adversarial_temperature=temperature
    )
    scorer, batch = TableScorer(25), batch_of(graph)
    drawn = sampler.sample(batch, scorer, seeded(0))
    for i in range(len(batch.index)):
        scores = []
        for entity, swaps in zip(drawn.entities[i], drawn.replaces_head[i], strict=True):
            anchor = batch.tails[i] if swaps else batch.heads[i]
            scores.append(scorer.table[0 if swaps else 1, anchor, entity])
        expected = (temperature * torch.stack(scores)).softmax(0)
        torch.testing.assert_close(drawn.weight[i], expected)


def test_sixteen_negatives_a_positive_where_none_are_asked_for():
    graph = random_graph()
    drawn = sampler_of(graph, "self-adversarial").sample(
        batch_of(graph), TableScorer(25), seeded(0)
    )
    assert drawn.entities.shape == (len(graph.train), 16)


def test_negatives_are_uniform_over_what_is_not_known():
    graph = graph_of([(0, 0, 1), (0, 0, 2)], entities=6)
    sampler = sampler_of(graph, "self-adversarial", negatives=4000)
    drawn = sampler.sample(batch_of(graph), TableScorer(6), seeded(1))
    for allowed, swaps in (([0, 3, 4, 5], False), ([1, 2, 3, 4, 5], True)):
        found = drawn.entities[0][drawn.replaces_head[0] == swaps]
        chances = [float(entity in allowed) for entity in range(6)]
        assert_follows(found, chances)


def test_a_positive_without_a_possible_negative_has_no_weight():
    graph = graph_of([(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)], entities=2)
    drawn = sampler_of(graph, "self-adversarial").sample(batch_of(graph), TableScorer(2), seeded(0))
    assert (drawn.weight == 0).all()
    assert len(SIDES) == 2
