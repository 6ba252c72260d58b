"""Gradient norms of batches and of all training pairs, against autograd on whole tables."""

import numpy as np
import pytest
import torch

import nscaching as ns
from nscaching import UserError
from nscaching.losses import Logistic, MarginRanking
from nscaching.models import Side
from nscaching.optim import RowGradients
from nscaching.training.tracing.gradients import BatchNorms, GradientNorms, gradient_norms

from ...conftest import random_model
from ...training.helpers import ring, train


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "whole table"])
def test_rows_of_one_id_are_added_up_before_the_norm(generator, whole):
    norms = BatchNorms({"entity": 9, "relation": 2}, torch.device("cpu"))
    expected = []
    for _ in range(3):
        gradients, dense = {}, {}
        for name, size in (("entity", 9), ("relation", 2)):
            ids = torch.randint(size, (20,), generator=generator)
            rows = torch.randn(20, 5, generator=generator)
            dense[name] = torch.zeros(size, 5).index_add_(0, ids, rows)
            parts = [RowGradients(ids[:8], rows[:8]), RowGradients(ids[8:], rows[8:])]
            gradients[name] = [RowGradients(None, dense[name])] if whole else parts
        norms.add(gradients)
        expected.append(float(sum(table.square().sum() for table in dense.values())) ** 0.5)
    total, count = norms.sums.tolist()
    assert count == len(expected)
    assert total == pytest.approx(np.sum(expected), rel=1e-5)


@pytest.mark.parametrize("scoring", ["transd", "complex", "rotate"])
@pytest.mark.parametrize("margin", [None, 1.0])
@pytest.mark.parametrize("triple", [(1, 2, 3), (4, 0, 4)])
def test_the_norm_of_a_pair_is_that_of_its_loss_by_the_whole_tables(scoring, margin, triple):
    model = random_model(scoring)
    loss = Logistic() if margin is None else MarginRanking(margin)
    for side in Side:
        left_out = torch.tensor([triple[2], 7])
        found = gradient_norms(model, loss, triple, side, left_out).norms
        expected = []
        for entity in range(model.num_entities):
            if entity in left_out.tolist():
                continue
            tables = [table.clone().requires_grad_() for table in model.parameters()]
            h, r, t = triple
            corrupted = (entity, r, t) if side is Side.HEAD else (h, r, entity)
            positive, negative = (
                model.scoring.score(tables[0][[a]], tables[1][[b]], tables[0][[c]])
                for a, b, c in (triple, corrupted)
            )
            scores = torch.stack([positive, negative], dim=1)
            slopes = loss(scores.detach(), torch.ones(1, 1))[1]
            gradients = torch.autograd.grad(scores, tables, slopes, materialize_grads=True)
            expected.append(sum(float(g.square().sum()) for g in gradients) ** 0.5)
        np.testing.assert_allclose(found, np.sort(expected), rtol=1e-4, atol=1e-5)


def test_the_ccdf_is_the_share_at_or_above():
    norms = GradientNorms(np.array([0.0, 0.0, 1.0, 2.0]))
    x, share = norms.ccdf()
    assert x.tolist() == [0, 1, 2]
    assert share.tolist() == [1, 0.5, 0.25]
    assert [norms.share_from(bound) for bound in (0, 0.5, 1, 1.5, 3)] == [1, 0.5, 0.5, 0.25, 0]


def test_a_few_points_of_the_ccdf_are_points_of_it_down_to_the_largest_norm():
    norms = GradientNorms(np.sort(np.random.default_rng(0).exponential(size=5000)))
    points = norms.as_points()
    assert len(points) <= 60
    assert all(share == pytest.approx(norms.share_from(x)) for x, share in points)
    assert points[0][1] == 1
    assert points[-1] == pytest.approx([norms.norms[-1], 1 / 5000])


@pytest.fixture(scope="module")
def run():
    return train(ring(), scoring="transe", epochs=3, sampler="bernoulli", lr=0.05)


def test_a_run_gives_the_norms_of_a_triple_by_name(run):
    (head, relation, tail) = run.graph.train[0].tolist()
    names = run.graph.entities[head], run.graph.relations[relation], run.graph.entities[tail]
    norms = run.gradient_ccdf(names, "head").norms
    assert len(norms) == 29  # all but the one that is true
    assert (np.diff(norms) >= 0).all()
    assert not np.array_equal(norms, run.gradient_ccdf((head, relation, tail), "tail").norms)
    with pytest.raises(UserError, match="head or tail"):
        run.gradient_ccdf(names, "middle")
    with pytest.raises(ns.UserError, match="no entity 'nobody'"):
        run.gradient_ccdf(("nobody", *names[1:]))
