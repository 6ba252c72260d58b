"""A gradient step against a slow twin: autograd on whole tables, Adam by its formulas."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from nscaching.models import SCORING
from nscaching.sampling import Batch, BernoulliSampler, Candidates
from nscaching.training import Progress, TrainConfig, Trainer
from tests.conftest import device_of, forced, quick_forms, random_graph
from tests.training.helpers import ring

BETAS, EPS = (0.9, 0.999), 1e-8
MARGIN = 1.5


class SlowAdam:
    """Dense Adam with the weight decay added to the gradient, in float64."""

    def __init__(self, lr, decay):
        self.lr, self.decay, self.time = lr, decay, 0
        self.first, self.second = {}, {}

    def step(self, tables, gradients):
        self.time += 1
        for name, table in tables.items():
            g = gradients[name] + self.decay * table
            m = BETAS[0] * self.first.get(name, 0) + (1 - BETAS[0]) * g
            v = BETAS[1] * self.second.get(name, 0) + (1 - BETAS[1]) * g * g
            self.first[name], self.second[name] = m, v
            m_hat, v_hat = m / (1 - BETAS[0] ** self.time), v / (1 - BETAS[1] ** self.time)
            tables[name] = table - self.lr * m_hat / (v_hat.sqrt() + EPS)


def slow_loss(model, tables, batch, drawn, loss):
    """Add the loss up question by question, from scores of whole triples."""
    entity, relation, b = tables["entity"], tables["relation"], len(batch)
    score, second = model.scoring.score, model.num_relations

    def f(h, r, t, replaces_head):
        if model.reciprocal and replaces_head:
            return score(entity[t], relation[r + second], entity[h])
        return score(entity[h], relation[r], entity[t])

    total = torch.zeros((), dtype=entity.dtype)
    for row, replaces_head in enumerate(drawn.replaces_head.tolist()):
        h, r, t = (int(part[row % b]) for part in (batch.heads, batch.relations, batch.tails))
        positive = f(h, r, t, replaces_head)
        ids, weights = drawn.negatives[row].tolist(), drawn.weights[row].tolist()
        if drawn.all_entities:
            ids = [e for e in range(len(entity)) if e != drawn.targets[row]]
            weights = [1.0] * len(ids)
        triples = [(e, r, t) if replaces_head else (h, r, e) for e in ids]
        pairs = [
            (f(*triple, replaces_head), weight)
            for triple, weight in zip(triples, weights, strict=True)
            if weight > 0
        ]
        if loss == "softmax":
            logits = torch.stack([positive, *(s + math.log(weight) for s, weight in pairs)])
            total = total - logits.log_softmax(0)[0]
            continue
        if loss == "logistic":
            total = total + torch.log1p(torch.exp(-positive))
        for negative, weight in pairs:
            if loss == "logistic":
                total = total + weight * torch.log1p(torch.exp(negative))
            else:
                total = total + weight * torch.clamp(MARGIN - positive + negative, min=0)
    return total


class Replay(BernoulliSampler):
    """Gives candidates that were drawn before."""

    reads_other_rows = True

    def sample(self, batch, generator):
        return self.drawn


def trainer_of(graph, **options):
    """Make a trainer whose sampler is the chosen one but whose step replays what it drew."""
    config = TrainConfig(dim=6, margin=MARGIN, batch_size=10, device="cpu", **options)
    return Trainer(graph, config, None, Progress("none"))


def replay(trainer, drawn):
    """Let the next step take these candidates, without updates and learning of the sampler."""
    replaying = Replay(trainer.graph, trainer.config, trainer.device)
    replaying.drawn = drawn
    trainer.executor.training_step.sampler = replaying
    trainer.optimizer.defer("entity", 1)


def assert_steps_equal_the_slow_twin(trainer, loss, steps=3):
    config, graph = trainer.config, trainer.graph
    step = trainer.executor.training_step
    trainer.sampler.prepare(trainer.model, trainer.generator)
    tables = {name: table.double().clone() for name, table in trainer.model.state().items()}
    adam = SlowAdam(config.lr, (config.l2 or 0) * config.batch_size / len(graph.train))
    generator = torch.Generator().manual_seed(1)
    for number in range(steps):
        index = torch.arange(10 * number, 10 * number + 10)
        batch = Batch.of(trainer.columns, index)
        drawn = trainer.sampler.sample(batch, generator)
        replay(trainer, drawn)

        leaves = {name: table.clone().requires_grad_() for name, table in tables.items()}
        expected = slow_loss(trainer.model, leaves, batch, drawn, loss)
        gradients = torch.autograd.grad(expected, list(leaves.values()))
        moved = dict(zip(leaves, gradients, strict=True))
        adam.step(tables, moved)

        found = step(batch)
        assert float(found) == pytest.approx(float(expected.detach()), rel=1e-4)
        trainer.optimizer.catch_up_all()
        for name, table in trainer.model.state().items():
            # Adam divides by the gradient's size: where that is nothing, rounding decides.
            close = np.isclose(table.numpy(), tables[name].numpy(), atol=2e-5, rtol=1e-4)
            nothing = np.abs(moved[name].numpy()) < 1e-5
            assert (close | nothing).mean() > 0.995, name
            assert nothing.mean() < 0.8, name
            tables[name] = tables[name].where(torch.from_numpy(close), table.double())


@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("loss", ["margin", "logistic"])
@pytest.mark.parametrize("scoring", SCORING)
def test_three_steps_equal_the_slow_twin(scoring, loss, negatives):
    options = {"l2": 0.5, "lr": 0.01, "negatives": negatives, "sampler": "bernoulli"}
    trainer = trainer_of(ring(), scoring=scoring, loss=loss, **options)
    assert_steps_equal_the_slow_twin(trainer, loss)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("sampler", ["all", "uniform", "nscaching"])
@pytest.mark.parametrize("scoring", SCORING)
def test_three_steps_of_the_softmax_loss_equal_the_slow_twin(scoring, sampler, reciprocal):
    options = {"negatives": 8, "cache_size": 5, "candidates": 4, "reciprocal": reciprocal}
    trainer = trainer_of(ring(), scoring=scoring, loss="softmax", sampler=sampler, **options)
    assert_steps_equal_the_slow_twin(trainer, "softmax", steps=2)


def test_a_candidate_without_weight_has_no_gradient():
    trainer = trainer_of(ring(), scoring="distmult", lr=0.1, l2=0.0, sampler="uniform")
    batch = Batch.of(trainer.columns, torch.tensor([0]))
    bystander = next(e for e in range(30) if e not in (int(batch.heads[0]), int(batch.tails[0])))
    before = trainer.model.entity[bystander].clone()
    ids = torch.tensor([[int(batch.heads[0]), bystander]])
    for weight in (0.0, 1.0):
        replay(trainer, Candidates(torch.tensor([True]), ids, torch.tensor([[weight]])))
        trainer.executor.training_step(batch)
        trainer.optimizer.catch_up_all()
        assert torch.equal(trainer.model.entity[bystander], before) == (weight == 0)


def test_padding_changes_no_bit_of_the_tables():
    """-1 among the candidates has no score, no gradient and no place in any row."""
    found = []
    for width in (2, 5):
        trainer = trainer_of(ring(), scoring="complex", lr=0.1, sampler="uniform")
        batch = Batch.of(trainer.columns, torch.arange(4))
        ids = torch.full((4, width), -1)
        ids[:, 0], ids[:, 1] = batch.tails, torch.tensor([3, 9, 9, 20])
        weights = torch.zeros(4, width - 1)
        weights[:, 0] = 1
        replay(trainer, Candidates(torch.zeros(4, dtype=torch.bool), ids, weights))
        loss = trainer.executor.training_step(batch)
        trainer.optimizer.catch_up_all()
        found.append((trainer.model.entity, trainer.model.relation, loss))
    (*tables, loss), (*others, other_loss) = found
    assert all(torch.equal(one, other) for one, other in zip(tables, others, strict=True))
    torch.testing.assert_close(loss, other_loss)  # added up in another order


@pytest.mark.parametrize("scoring", ["transe", "simple"])
def test_importance_scales_the_gradients_of_its_triple(scoring):
    factor, seen = torch.tensor([2.0, 0.5, 3.0]), []
    for importance in (None, factor):
        trainer = trainer_of(ring(), scoring=scoring, negatives=2, sampler="bernoulli")
        batch = Batch.of(trainer.columns, torch.tensor([4, 9, 11]))
        drawn = trainer.sampler.sample(batch, torch.Generator().manual_seed(2))
        replay(trainer, dataclasses.replace(drawn, importance=importance))
        accumulated = []
        trainer.optimizer.accumulate = accumulated.append
        trainer.optimizer.apply = lambda gradients: None
        trainer.executor.training_step(batch)
        seen.append(accumulated[0])
    for name, parts in seen[0].items():
        for mine, other in zip(parts, seen[1][name], strict=True):
            one, two = mine.written_out(), other.written_out()
            assert torch.equal(one.ids, two.ids)
            each = factor.repeat_interleave(len(one.rows) // 3)
            torch.testing.assert_close(two.rows, one.rows * each[:, None])


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_n3_adds_the_gradient_of_cubed_moduli(loss, reciprocal):
    """Once per question that a row is in: a triple's head, relation and tail."""
    found = []
    for n3 in (0.0, 0.3):
        trainer = trainer_of(
            ring(), scoring="complex", loss=loss, n3=n3, sampler="uniform", reciprocal=reciprocal
        )
        batch = Batch.of(trainer.columns, torch.tensor([4, 9, 11]))
        replay(trainer, trainer.sampler.sample(batch, torch.Generator().manual_seed(2)))
        accumulated = []
        trainer.optimizer.accumulate = accumulated.append
        trainer.optimizer.apply = lambda gradients: None
        trainer.executor.training_step(batch)
        dense = {}
        for name, table in trainer.model.state().items():
            dense[name] = torch.zeros_like(table)
            for part in accumulated[0][name]:
                part.add_to(dense[name])
        found.append(dense)
    tables = {name: t.clone().requires_grad_() for name, t in trainer.model.state().items()}
    times = 2 if loss == "softmax" else 1
    both = torch.cat([batch.heads, batch.tails])
    rows = batch.relations
    if reciprocal:  # the row of each question of its own; of one question, half of both
        rows, relation_times = torch.cat([rows, rows + trainer.model.num_relations]), times / 2
    else:
        relation_times = times
    penalty = 0
    for table, ids, count in (
        (tables["entity"], both, times),
        (tables["relation"], rows, relation_times),
    ):
        re, im = table[ids].chunk(2, dim=1)
        penalty = penalty + 0.3 * count * torch.hypot(re, im).pow(3).sum()
    expected = torch.autograd.grad(penalty, list(tables.values()))
    for name, wanted in zip(tables, expected, strict=True):
        torch.testing.assert_close(found[1][name] - found[0][name], wanted, atol=1e-5, rtol=1e-3)


def test_dropout_scales_what_it_keeps_and_drops_its_share():
    trainer = trainer_of(ring(), scoring="complex", sampler="uniform", dropout=0.25)
    batch = Batch.of(trainer.columns, torch.arange(70))
    drawn = trainer.sampler.sample(batch, trainer.generator)
    queries = trainer.model.queries(batch.heads, batch.relations, batch.tails)
    query, kept = trainer.executor.training_step._query(queries, drawn)
    whole = queries.ask(drawn.replaces_head).gathered().vectors
    assert torch.equal(query.vectors, whole * kept)
    assert kept.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert (kept == 0).float().mean().item() == pytest.approx(0.25, abs=0.06)


@pytest.mark.parametrize("form", quick_forms())
def test_lazy_adam_leaves_rows_without_a_gradient_with_many_candidates(form):
    options = {"scoring": "distmult", "sampler": "bernoulli", "negatives": 20, "lr": 0.1}
    sizes = {"dim": 4, "batch_size": 4, "device": device_of(form)}
    config = TrainConfig(optimizer="lazy-adam", **sizes, **options)
    with forced(form):
        trainer = Trainer(random_graph(entities=400), config, None, Progress("none"))
        step, drawn = trainer.executor.training_step, []
        sample = trainer.sampler.sample
        trainer.sampler.sample = lambda *given: drawn.append(sample(*given)) or drawn[-1]
        for number in range(2):
            before = trainer.model.entity.clone()
            batch = Batch.of(trainer.columns, torch.arange(4, device=config.device) + 4 * number)
            step(batch)
    moved = (trainer.model.entity != before).any(1).nonzero().squeeze(1)
    read = torch.cat([drawn[1].ids.reshape(-1), batch.heads, batch.tails])
    assert set(moved.tolist()) <= set(read.tolist())
