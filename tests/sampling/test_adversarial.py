"""KBGAN and IGAN: the distribution of what is picked, and that the generator learns."""

import math

import numpy as np
import pytest
import torch

from nscaching.errors import UserError
from nscaching.kernels.registry import PLAIN, forced
from nscaching.sampling import generators
from nscaching.sampling.generators import FullGenerator, Pairs, TransEGenerator
from nscaching.sampling.softmax import draw_softmax
from tests.conftest import (
    assert_follows,
    device_of,
    graph_of,
    kernel_forms,
    quick_forms,
    random_graph,
    random_model,
    seeded,
)
from tests.sampling.helpers import CPU, TableScorer, batch_of, learn, sampler_of

NAMES = ("kbgan", "igan")


def prepared(graph, name, **options):
    sampler = sampler_of(graph, name, **{"generator_dim": 8, **options})
    generator = seeded(3)
    sampler.prepare(TableScorer(graph.num_entities), generator)
    return sampler, generator


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_reward_rises_while_the_model_stands_still(name):
    graph = random_graph()
    sampler, generator = prepared(graph, name, cache_size=8, generator_lr=0.02)
    scorer, batch = TableScorer(25), batch_of(graph)
    rewards = []
    for _ in range(400):
        drawn = sampler.sample(batch, generator)
        reward = learn(sampler, batch, drawn, scorer)[:, 1:]
        rewards.append(reward[drawn.negatives >= 0].mean().item())
    before, after = np.mean(rewards[:50]), np.mean(rewards[-50:])
    assert after > before + 0.1  # over seeds KBGAN's rise is 0.185, with a deviation of 0.026


@pytest.mark.parametrize("name", NAMES)
def test_known_positives_are_not_negatives(name):
    graph = random_graph()
    sampler, generator = prepared(graph, name)
    batch = batch_of(graph)
    known = {tuple(triple) for triple in graph.train.tolist()}
    for _ in range(20):
        drawn = sampler.sample(batch, generator)
        for i, (entity, swaps, weight) in enumerate(
            zip(drawn.negatives[:, 0], drawn.replaces_head, drawn.weights[:, 0], strict=True)
        ):
            h, r, t = graph.train[i].tolist()
            triple = (entity.item(), r, t) if swaps else (h, r, entity.item())
            assert weight == 0 or triple not in known


def test_kbgan_picks_by_a_softmax_of_the_generators_scores():
    copies = 4000
    graph = graph_of([(0, r, 1) for r in range(copies)], entities=6)
    sampler, generator = prepared(graph, "kbgan", cache_size=3)
    entity = sampler.generator.tables["entity"]
    entity.copy_(torch.randn(entity.shape, generator=seeded(5)))
    sampler.generator.tables["relation"].zero_()
    batch = batch_of(graph)
    drawn = sampler.sample(batch, generator)
    pairs, candidates, logits, picked = sampler._drawn
    assert torch.equal(
        logits[logits > -math.inf], sampler.generator.logits(pairs, candidates)[logits > -math.inf]
    )
    chances = logits.softmax(1)
    # The place that is picked, by rank of its chance: each row has chances of its own.
    order = chances.argsort(1)
    rank = (order == picked).float().argmax(1)
    assert_follows(rank, chances.gather(1, order).double().mean(0).numpy())
    assert torch.equal(drawn.negatives, candidates.gather(1, picked))


def pairs_of(count, relations=3, seed=0):
    rng = seeded(seed)
    return Pairs(
        torch.randint(7, (count,), generator=rng),
        torch.randint(relations, (count,), generator=rng),
        torch.rand(count, generator=rng) < 0.5,
    )


def full_generator(chunk, entities=7):
    made = FullGenerator((entities, 3), 4, 0.01, chunk, CPU)
    made.initialise(seeded(1))
    for table in made.tables.values():
        table.mul_(3)
    return made


def slow_logits(made, pairs):
    rows = []
    for anchor, relation, swaps in zip(*(part.tolist() for part in pairs), strict=True):
        sign = -1 if swaps else 1
        e, r = made.tables["entity"][anchor, :4], made.tables["relation"][relation]
        rows.append((torch.tanh(e + sign * r[:4]) + sign * r[4:]) @ made.tables["entity"][:, 4:].T)
    return torch.stack(rows)


def test_igan_draws_from_its_whole_distribution():
    made = full_generator(chunk=100)
    pairs = Pairs(torch.tensor([2]), torch.tensor([1]), torch.tensor([True]))
    uniform = torch.rand(1, 20000, generator=seeded(0))
    chances = slow_logits(made, pairs)[0].softmax(0)
    assert_follows(made.draw(pairs, uniform), chances.double().numpy())


@pytest.mark.parametrize("entities", [8, 16, 27, 40])
def test_igan_draws_a_block_of_entities_and_then_one_of_them(entities, monkeypatch):
    monkeypatch.setattr(generators, "_BLOCK", 16)
    made = full_generator(100, entities)
    pairs = Pairs(torch.tensor([2, 5]), torch.tensor([1, 0]), torch.tensor([True, False]))
    uniform = torch.rand(2, 20000, generator=seeded(0))
    uniform[:, :2] = torch.tensor([0.0, 1 - 2**-24])  # the ends of what may be drawn
    chances = slow_logits(made, pairs).softmax(1).double().numpy()
    for drawn, wanted in zip(made.draw(pairs, uniform), chances, strict=True):
        assert_follows(drawn, wanted)


def test_igan_draws_nothing_whose_chance_is_zero(monkeypatch):
    monkeypatch.setattr(generators, "_BLOCK", 8)
    made = full_generator(100, 24)
    made.tables["entity"][:, 4:] = 0
    made.tables["entity"][10, 4:] = 1e4  # one entity has all of it, or none
    hidden = made._hidden(pairs_of(50), *made._rows(pairs_of(50))).sum(1)
    drawn = made.draw(pairs_of(50), torch.rand(50, 6, generator=seeded(0)))
    assert ((drawn == 10).all(1) == (hidden > 0)).all()
    assert ((drawn == 10).any(1) == (hidden > 0)).all()


@pytest.mark.parametrize("chunk", [2, 50])
def test_igan_learns_the_same_from_what_it_drew_from_as_from_anew(chunk):
    seen = []
    for draws in (False, True):
        made, pairs = full_generator(chunk, 20), pairs_of(11)
        if draws:
            made.draw(pairs_of(11, seed=1), torch.rand(11, 2, generator=seeded(1)))
            made.draw(pairs, torch.rand(11, 2, generator=seeded(1)))
        picked = torch.randint(20, (11, 2), generator=seeded(4))
        made.reinforce(pairs, picked, torch.randn(11, 2, generator=seeded(5)))
        seen.append(made.state())
    for name, tensor in seen[0].items():
        torch.testing.assert_close(tensor, seen[1][name])


def assert_gradients(made, seen, expected):
    for (name, parts), wanted in zip(seen.items(), expected, strict=True):
        dense = torch.zeros_like(made.tables[name])
        for part in parts:
            part.add_to(dense)
        torch.testing.assert_close(dense, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_igan_learns_by_the_gradient_of_the_expected_advantage(chunk):
    made, pairs = full_generator(chunk), pairs_of(11)
    picked = torch.randint(7, (11, 2), generator=seeded(4))
    advantage = torch.randn(11, 2, generator=seeded(5))
    tables = {name: table.clone().requires_grad_() for name, table in made.tables.items()}
    twin = full_generator(chunk)
    twin.tables = tables
    objective = (advantage * slow_logits(twin, pairs).log_softmax(1).gather(1, picked)).sum()
    expected = torch.autograd.grad(-objective, list(tables.values()))
    seen = {}
    made.adam.step = lambda gradients: seen.update(gradients)
    made.reinforce(pairs, picked, advantage)
    assert_gradients(made, seen, expected)


def test_kbgan_learns_by_the_gradient_of_the_expected_advantage():
    made = TransEGenerator((7, 3), 4, 0.01, CPU)
    made.initialise(seeded(1))
    pairs = pairs_of(6)
    candidates = torch.randint(7, (6, 3), generator=seeded(2))
    picked = torch.randint(3, (6, 2), generator=seeded(3))
    advantage = torch.randn(6, 2, generator=seeded(4))
    chances = made.logits(pairs, candidates).softmax(1)
    tables = {name: table.clone().requires_grad_() for name, table in made.tables.items()}
    scores = []
    for row, (anchor, relation, swaps) in enumerate(zip(*pairs, strict=True)):
        fixed = tables["entity"][anchor].expand(3, -1)
        found, r = tables["entity"][candidates[row]], tables["relation"][relation].expand(3, -1)
        triple = (found, r, fixed) if swaps else (fixed, r, found)
        scores.append(made.scoring.score(*triple))
    log_chances = torch.stack(scores).log_softmax(1)
    torch.testing.assert_close(log_chances.detach().exp(), chances)
    objective = (advantage * log_chances.gather(1, picked)).sum()
    expected = torch.autograd.grad(-objective, list(tables.values()))
    seen = {}
    made.adam.step = lambda gradients: seen.update(gradients)
    made.reinforce(pairs, candidates, chances, picked, advantage)
    assert_gradients(made, seen, expected)


def gradients_of_kbgan(form):
    """Return the means of Adam and the baseline after KBGAN has learned once."""
    with forced(form):
        device = torch.device(device_of(form))
        made = TransEGenerator((7, 3), 5, 0.01, device)
        made.initialise(seeded(1))
        pairs = Pairs(*(part.to(device) for part in pairs_of(11)))
        candidates = torch.randint(-1, 7, (11, 6), generator=seeded(2))
        candidates[3] = -1
        uniform = torch.rand(11, 2, generator=seeded(3))
        scores = torch.randn(11, 3, generator=seeded(4))
        candidates, uniform, scores = (x.to(device) for x in (candidates, uniform, scores))
        picked, chances = draw_softmax(made.logits(pairs, candidates), uniform)
        weights = (candidates.gather(1, picked) >= 0) / 2
        advantage = made.advantage(scores[:, 1:], weights)
        made.reinforce(pairs, candidates, chances, picked, advantage)
        state = made.state()
    return {name: state[name].cpu() for name in state if "mean" in name or name == "baseline"}


@pytest.mark.parametrize("form", quick_forms())
def test_kbgan_learns_the_same_by_every_form_of_its_kernels(form):
    expected, found = gradients_of_kbgan(PLAIN), gradients_of_kbgan(form)
    assert len(found) == 3
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", kernel_forms())
def test_picks_follow_the_softmax_of_their_row(form):
    logits = torch.tensor([[-torch.inf, 0.3, -2.0, -torch.inf, 1.0, 0.0], [-torch.inf] * 6])
    uniform = torch.rand(2, 2000, generator=seeded(0))
    uniform[:, :2] = torch.tensor([0.0, 1 - 2**-24])  # the ends of what may be drawn
    with forced(form):
        given = (x.to(device_of(form)) for x in (logits, uniform))
        picked, chances = (found.cpu() for found in draw_softmax(*given))
    assert_follows(picked[0], logits[0].softmax(0).double().numpy())
    assert not picked[1].any()
    assert not chances[1].any()


@pytest.mark.parametrize("form", quick_forms())
def test_the_baseline_is_a_moving_average_of_the_rewards_that_count(form):
    device = torch.device(device_of(form))
    with forced(form):
        made = TransEGenerator((7, 3), 4, 0.01, device)
        scores = torch.tensor([[9.0, 1.0, 3.0], [9.0, -torch.inf, 5.0]], device=device)
        weights = torch.tensor([[0.5, 0.5], [0.0, 1.0]], device=device)
        first = made.advantage(scores[:, 1:], weights).cpu()
        torch.testing.assert_close(first, torch.tensor([[-2.0, 0.0], [0.0, 2.0]]))
        second = made.advantage(scores[:, 1:] + 1, weights).cpu()
        torch.testing.assert_close(second, torch.tensor([[-1.0, 1.0], [0.0, 3.0]]))
    torch.testing.assert_close(made.baseline.cpu(), torch.tensor(3 + (1 - 0.95)))


def test_kbgan_rows_without_a_proper_candidate_teach_nothing():
    graph = graph_of([(h, 0, t) for h in range(3) for t in range(3)], entities=3)
    sampler, generator = prepared(graph, "kbgan", cache_size=2)
    batch = batch_of(graph)
    drawn = sampler.sample(batch, generator)
    assert not drawn.weights.any()
    before = {name: table.clone() for name, table in sampler.generator.tables.items()}
    learn(sampler, batch, drawn, TableScorer(3))
    for name, table in sampler.generator.tables.items():
        assert torch.equal(table, before[name])


@pytest.mark.parametrize("name", NAMES)
def test_state_taken_over_goes_on_the_same_way(name):
    graph = random_graph()
    one, generator = prepared(graph, name)
    scorer, batch = TableScorer(25), batch_of(graph)

    def step(sampler, rng):
        drawn = sampler.sample(batch, rng)
        learn(sampler, batch, drawn, scorer)
        return drawn.ids

    step(one, generator)
    two, _ = prepared(graph, name)
    two.load_state({key: tensor.clone() for key, tensor in one.state().items()})
    for _ in range(3):
        state = generator.get_state()
        other = torch.Generator()
        other.set_state(state)
        assert torch.equal(step(one, generator), step(two, other))
    for key, tensor in one.state().items():
        assert torch.equal(tensor, two.state()[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_a_warm_start_ranks_as_the_transe_did(name):
    graph = random_graph()
    transe = random_model("transe", dim=8, norm=2)
    sampler = sampler_of(graph, name, generator_dim=8)
    sampler.warm_start(transe)
    sampler.prepare(TableScorer(25), seeded(0))
    assert sampler.generator.tables["entity"].abs().sum() > 0
    if name == "kbgan":
        assert torch.equal(sampler.generator.tables["entity"], transe.entity)


def test_extra_parameters_are_counted_as_in_the_papers_table():
    graph = random_graph(entities=25, relations=4)
    assert sampler_of(graph, "bernoulli").extra_parameters == 0
    assert sampler_of(graph, "nscaching").extra_parameters == 0
    assert sampler_of(graph, "kbgan", generator_dim=10).extra_parameters == 29 * 10
    assert sampler_of(graph, "igan", generator_dim=10).extra_parameters == 2 * 29 * 10


def test_igan_refuses_what_does_not_fit():
    graph = graph_of([(0, 0, 1)], entities=20_000)
    with pytest.raises(UserError, match=r"20,000 entities needs .* MB; generator_memory allows 3"):
        sampler_of(graph, "igan", generator_memory=3)
