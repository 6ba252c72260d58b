"""Self-Adv: uniform negatives whose weights are a softmax of the model's scores."""

import pytest
import torch

from nscaching.sampling import Candidates
from tests.conftest import assert_follows, graph_of, random_graph, seeded
from tests.sampling.helpers import TableScorer, batch_of, sampler_of, scores_of


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_weights_are_a_softmax_of_temperature_times_score(temperature):
    graph = random_graph()
    sampler = sampler_of(
        graph, "self-adversarial", negatives=5, adversarial_temperature=temperature
    )
    scorer, batch = TableScorer(25), batch_of(graph)
    drawn = sampler.sample(batch, seeded(0))
    weights = sampler.weigh(drawn, scores_of(scorer, batch, drawn))
    for i, swaps in enumerate(drawn.replaces_head):
        anchor = batch.tails[i] if swaps else batch.heads[i]
        scores = scorer.table[0 if swaps else 1, anchor, drawn.negatives[i]]
        torch.testing.assert_close(weights[i], (temperature * scores).softmax(0))


def test_padding_has_no_weight_and_the_others_share_one():
    sampler = sampler_of(random_graph(), "self-adversarial", negatives=3)
    ids = torch.tensor([[0, 4, -1, 7], [2, -1, -1, -1]])
    drawn = Candidates(torch.tensor([True, False]), ids, torch.zeros(2, 3))
    scores = torch.tensor([[9.0, 1.0, 50.0, 2.0], [9.0, 1.0, 2.0, 3.0]])
    expected = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    expected[0, [0, 2]] = expected[0, [0, 2]].softmax(0)
    torch.testing.assert_close(sampler.weigh(drawn, scores), expected)


def test_sixteen_negatives_a_positive_where_none_are_asked_for():
    graph = random_graph()
    drawn = sampler_of(graph, "self-adversarial").sample(batch_of(graph), seeded(0))
    assert drawn.negatives.shape == (len(graph.train), 16)


def test_negatives_are_uniform_over_what_is_not_known():
    graph = graph_of([(0, 0, 1), (0, 0, 2)], entities=6)
    sampler = sampler_of(graph, "self-adversarial", negatives=1000)
    drawn = sampler.sample(batch_of(graph, [0] * 8), seeded(1))
    for allowed, swaps in (([0, 3, 4, 5], False), ([1, 2, 3, 4, 5], True)):
        found = drawn.negatives[drawn.replaces_head == swaps]
        chances = [float(entity in allowed) for entity in range(6)]
        assert_follows(found, chances)


def test_a_positive_without_a_possible_negative_has_no_weight():
    graph = graph_of([(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)], entities=2)
    sampler, batch = sampler_of(graph, "self-adversarial"), batch_of(graph)
    drawn = sampler.sample(batch, seeded(0))
    assert (drawn.negatives == -1).all()
    assert (sampler.weigh(drawn, scores_of(TableScorer(2), batch, drawn)) == 0).all()
