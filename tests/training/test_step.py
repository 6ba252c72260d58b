"""A gradient step against a slow twin: autograd on whole tables, Adam by its formulas."""

import numpy as np
import pytest
import torch

from nscaching.models import SCORING
from nscaching.sampling import Batch, Negatives
from nscaching.training import Progress, TrainConfig, Trainer

from .helpers import ring

BETAS, EPS = (0.9, 0.999), 1e-8


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


def slow_loss(scoring, tables, batch, negatives, kind, margin):
    """Add the loss up triple by triple."""
    entity, relation = tables["entity"], tables["relation"]

    def f(h, r, t):
        return scoring.score(entity[h], relation[r], entity[t])

    total = torch.zeros((), dtype=entity.dtype)
    for row, (h, r, t) in enumerate(zip(batch.heads, batch.relations, batch.tails, strict=True)):
        positive = f(h, r, t)
        if kind == "logistic":
            total = total + torch.log1p(torch.exp(-positive))
        for column, e in enumerate(negatives.entities[row]):
            replaced = (e, r, t) if negatives.replaces_head[row, column] else (h, r, e)
            negative, weight = f(*replaced), negatives.weight[row, column]
            if kind == "logistic":
                total = total + weight * torch.log1p(torch.exp(negative))
            else:
                total = total + weight * torch.clamp(margin - positive + negative, min=0)
    return total


@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("loss", ["margin", "logistic"])
@pytest.mark.parametrize("scoring", SCORING)
def test_three_steps_equal_the_slow_twin(scoring, loss, negatives):
    graph = ring()
    config = TrainConfig(
        scoring=scoring,
        loss=loss,
        margin=1.5,
        dim=6,
        l2=0.5,
        lr=0.01,
        batch_size=10,
        negatives=negatives,
        device="cpu",
        sampler="bernoulli",
    )
    trainer = Trainer(graph, config, None, Progress("none"))
    tables = {name: table.double().clone() for name, table in trainer.model.state().items()}
    adam = SlowAdam(config.lr, config.l2 * config.batch_size / len(graph.train))
    generator = torch.Generator().manual_seed(1)
    for step in range(3):
        index = torch.arange(10 * step, 10 * step + 10)
        batch = Batch.of(trainer.executor.columns, index)
        drawn = trainer.sampler.sample(batch, trainer.model, generator)

        leaves = {name: table.clone().requires_grad_() for name, table in tables.items()}
        expected = slow_loss(trainer.model.scoring, leaves, batch, drawn, loss, config.margin)
        gradients = torch.autograd.grad(expected, list(leaves.values()))
        adam.step(tables, dict(zip(leaves, gradients, strict=True)))

        trainer.step.settle(batch, drawn)
        found, _ = trainer.step(batch, drawn)
        assert float(found) == pytest.approx(float(expected.detach()), rel=1e-4)
        trainer.step.adam.settle_all()
        for name, table in trainer.model.state().items():
            # Adam divides by the gradient's size: where that is nothing, rounding decides.
            close = np.isclose(table.numpy(), tables[name].numpy(), atol=2e-5, rtol=1e-4)
            assert close.mean() > 0.995, name
            tables[name] = tables[name].where(torch.from_numpy(close), table.double())


def test_a_masked_negative_has_no_pull():
    trainer = Trainer(
        ring(),
        TrainConfig(scoring="distmult", dim=4, lr=0.1, l2=0.0, device="cpu", sampler="uniform"),
        None,
        Progress("none"),
    )
    index = torch.tensor([0])
    batch = Batch.of(trainer.executor.columns, index)
    bystander = next(e for e in range(30) if e not in (int(batch.heads[0]), int(batch.tails[0])))
    before = trainer.model.entity[bystander].clone()
    nothing = Negatives(torch.tensor([[bystander]]), torch.tensor([[True]]), torch.tensor([[0.0]]))
    trainer.step(batch, nothing)
    assert torch.equal(trainer.model.entity[bystander], before)
    trainer.step(batch, Negatives(nothing.entities, nothing.replaces_head, torch.ones(1, 1)))
    assert not torch.equal(trainer.model.entity[bystander], before)
