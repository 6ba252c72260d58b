import numpy as np
import pytest
import torch

from nscaching.models import Side
from nscaching.sampling import SAMPLERS
from nscaching.sampling.base import even_weights
from tests.conftest import assert_follows, graph_of, random_graph, seeded
from tests.sampling.helpers import TableScorer, batch_of, known_answers, sampler_of

#: Relation 0 has 4 tails a head; relation 1 has 3 heads a tail; relation 2 is one to one.
SKEWED = graph_of(
    [(0, 0, t) for t in (1, 2, 3, 4)] + [(h, 1, 5) for h in (1, 2, 3)] + [(6, 2, 7)], entities=8
)
HEAD_CHANCE = {0: 4 / 5, 1: 1 / 4, 2: 1 / 2}
ALL_SAMPLERS = ["uniform", "bernoulli", "nscaching"]


def many_of(graph, triple, copies):
    return batch_of(graph, [triple] * copies)


def sample(graph, name, batch, seed=0, **options):
    sampler = sampler_of(graph, name, **options)
    generator = seeded(seed)
    sampler.prepare(TableScorer(graph.num_entities), generator)
    return sampler.sample(batch, generator)


@pytest.mark.parametrize("name", ["bernoulli", "nscaching"])
@pytest.mark.parametrize(("triple", "relation"), [(0, 0), (4, 1), (7, 2)])
def test_head_is_replaced_with_the_share_of_tails_per_head(name, triple, relation):
    drawn = sample(SKEWED, name, many_of(SKEWED, triple, 4000))
    chance = HEAD_CHANCE[relation]
    assert_follows(drawn.replaces_head.long(), [1 - chance, chance])


@pytest.mark.parametrize("triple", [0, 4, 7])
def test_uniform_replaces_both_sides_equally_often(triple):
    drawn = sample(SKEWED, "uniform", many_of(SKEWED, triple, 4000))
    assert_follows(drawn.replaces_head.long(), [0.5, 0.5])


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "all"])
def test_one_side_is_drawn_per_triple_and_its_true_entity_stands_first(name):
    graph = random_graph()
    batch = batch_of(graph)
    drawn = sample(graph, name, batch, negatives=3, cache_size=5)
    assert drawn.replaces_head.shape == (len(batch),)
    assert torch.equal(drawn.targets, torch.where(drawn.replaces_head, batch.heads, batch.tails))


@pytest.mark.parametrize("name", ["uniform", "bernoulli"])
@pytest.mark.parametrize("known_positives", ["exclude", "allow"])
@pytest.mark.parametrize("triple", [0, 4])
def test_negatives_are_uniform_over_the_allowed_entities(name, known_positives, triple):
    drawn = sample(
        SKEWED, name, many_of(SKEWED, triple, 3000), negatives=4, known_positives=known_positives
    )
    h, r, t = SKEWED.train[triple]
    for side, anchor, replaced in ((Side.HEAD, t, True), (Side.TAIL, h, False)):
        known = known_answers(SKEWED, side, anchor, r)
        chances = np.ones(8)
        if known_positives == "exclude":
            chances[list(known)] = 0
        chosen = (drawn.replaces_head == replaced).unsqueeze(1) & (drawn.weights > 0)
        assert_follows(drawn.negatives[chosen], chances)


@pytest.mark.parametrize("name", ALL_SAMPLERS)
@pytest.mark.parametrize("negatives", [1, 3])
def test_shapes_types_and_weights(name, negatives):
    graph = random_graph()
    drawn = sample(graph, name, batch_of(graph), negatives=negatives, cache_size=5)
    shape = (len(graph.train), negatives)
    assert drawn.negatives.shape == drawn.weights.shape == shape
    assert drawn.ids.shape == (len(graph.train), 1 + negatives)
    assert drawn.importance is None
    assert not drawn.all_entities
    assert drawn.negatives.dtype == torch.int64
    assert drawn.replaces_head.dtype == torch.bool
    torch.testing.assert_close(drawn.weights.sum(1), torch.ones(shape[0]))
    assert drawn.negatives.min() >= 0
    assert drawn.negatives.max() < graph.num_entities


@pytest.mark.parametrize("name", ALL_SAMPLERS)
def test_no_negative_with_a_weight_is_a_training_triple(name):
    graph = random_graph(entities=8, relations=2, train=90, held_out=0)
    triples = {tuple(triple) for triple in graph.train.tolist()}
    drawn = sample(graph, name, batch_of(graph), negatives=20, cache_size=3)
    for i, (h, r, t) in enumerate(graph.train.tolist()):
        for entity, weight in zip(
            drawn.negatives[i].tolist(), drawn.weights[i].tolist(), strict=True
        ):
            corrupted = (entity, r, t) if drawn.replaces_head[i] else (h, r, entity)
            assert (entity == -1) == (weight == 0)
            assert weight == 0 or corrupted not in triples


@pytest.mark.parametrize("name", ALL_SAMPLERS)
def test_known_positives_come_up_when_they_are_allowed(name):
    graph = random_graph(entities=8, relations=2, train=90, held_out=0)
    drawn = sample(graph, name, batch_of(graph), negatives=20, known_positives="allow")
    corrupted = {
        (h, r, e)
        for i, (h, r, _) in enumerate(graph.train.tolist())
        for e in drawn.negatives[i].tolist()
        if not drawn.replaces_head[i]
    }
    assert corrupted & {tuple(triple) for triple in graph.train.tolist()}
    assert (drawn.weights > 0).all()


@pytest.mark.parametrize("name", ALL_SAMPLERS)
def test_pair_that_every_entity_completes_gives_weight_zero_on_that_side_only(name):
    graph = graph_of([(h, 0, 0) for h in range(5)], entities=5)
    batch = batch_of(graph, [0, 1, 2, 3, 4] * 10)
    drawn = sample(graph, name, batch, negatives=20, cache_size=3)
    head = drawn.replaces_head
    assert 0 < head.sum() < len(batch)
    assert (drawn.weights[head] == 0).all()
    assert (drawn.negatives[head] == -1).all()
    assert (drawn.weights[~head] > 0).all()
    torch.testing.assert_close(drawn.weights[~head].sum(1), torch.ones(int((~head).sum())))


@pytest.mark.parametrize("name", ["uniform", "bernoulli"])
def test_an_epoch_is_a_shuffle_of_the_training_triples(name, generator):
    graph = random_graph()
    sampler = sampler_of(graph, name)
    first, second = (sampler.begin_epoch(epoch, generator) for epoch in (0, 1))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(len(graph.train)))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("name", ALL_SAMPLERS)
def test_the_seed_decides_the_negatives(name):
    graph = random_graph()
    one, again, other = (sample(graph, name, batch_of(graph), seed=s) for s in (1, 1, 2))
    assert torch.equal(one.ids, again.ids)
    assert torch.equal(one.replaces_head, again.replaces_head)
    assert not torch.equal(one.ids, other.ids)


def test_even_weights_share_one_among_the_valid():
    valid = torch.tensor([[True, True, False, True], [False] * 4, [False, True, False, False]])
    expected = [[1 / 3, 1 / 3, 0, 1 / 3], [0, 0, 0, 0], [0, 1, 0, 0]]
    torch.testing.assert_close(even_weights(valid), torch.tensor(expected))


# Both sides, for the softmax loss


def test_all_asks_both_questions_of_every_triple_and_has_no_negatives():
    graph = random_graph()
    batch = batch_of(graph)
    drawn = sampler_of(graph, "all", both_sides=True).sample(batch, seeded(0))
    b = len(batch)
    assert drawn.all_entities
    assert drawn.ids.shape == (2 * b, 1)
    assert drawn.negatives.shape == drawn.weights.shape == (2 * b, 0)
    assert drawn.replaces_head.tolist() == [True] * b + [False] * b
    assert torch.equal(drawn.targets, torch.cat([batch.heads, batch.tails]))


@pytest.mark.parametrize("name", ["uniform", "bernoulli"])
@pytest.mark.parametrize("known_positives", ["exclude", "allow"])
def test_uniform_candidates_of_both_sides_stand_for_their_share_of_all(name, known_positives):
    graph = random_graph(entities=8, relations=2, train=60, held_out=0)
    batch = batch_of(graph)
    sampler = sampler_of(
        graph, name, both_sides=True, negatives=20, known_positives=known_positives
    )
    drawn = sampler.sample(batch, seeded(0))
    b = len(batch)
    assert drawn.ids.shape == (2 * b, 21)
    assert drawn.replaces_head.tolist() == [True] * b + [False] * b
    assert torch.equal(drawn.targets, torch.cat([batch.heads, batch.tails]))
    exists = drawn.negatives >= 0
    assert torch.equal(drawn.weights, exists * (8 / 20))
    assert not (drawn.negatives == drawn.ids[:, :1]).any()  # the true entity is there once
    known_came_up = False  # whatever the option says: they are among all entities
    for row, candidates in enumerate(drawn.negatives.tolist()):
        side = Side.HEAD if row < b else Side.TAIL
        anchor, relation = batch.anchor(side)[row % b].item(), batch.relations[row % b].item()
        known_came_up |= bool(set(candidates) & known_answers(graph, side, anchor, relation))
    assert known_came_up


def test_uniform_candidates_of_both_sides_are_even_over_all_but_the_true_one():
    sampler = sampler_of(SKEWED, "uniform", both_sides=True, negatives=5)
    drawn = sampler.sample(many_of(SKEWED, 0, 1000), seeded(2))
    for part in (slice(0, 1000), slice(1000, 2000)):
        true = drawn.ids[part, 0].unique().item()
        found = drawn.negatives[part]
        assert_follows(found[found >= 0], [float(entity != true) for entity in range(8)])
