"""Subsampling: the weights of facts, and that each multiplies the gradients of its fact."""

import numpy as np
import pytest
import torch

from nscaching.errors import UserError
from nscaching.sampling import Batch
from nscaching.training import Progress, TrainConfig, Trainer
from nscaching.training.subsampling import fact_weights

from ..conftest import graph_of, random_graph

TRAIN = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 0, 2), (2, 1, 3)]


def test_a_fact_weighs_less_where_its_pairs_have_many():
    found = fact_weights(graph_of(TRAIN))
    expected = []
    for head, relation, tail in TRAIN:
        tails = sum(h == head and r == relation for h, r, _ in TRAIN)
        heads = sum(t == tail and r == relation for _, r, t in TRAIN)
        expected.append(1 / np.sqrt(tails + 3 + heads + 3))
    assert found.numpy() == pytest.approx(np.array(expected) / np.mean(expected))
    assert float(found.mean()) == pytest.approx(1)


def gradients_of_a_step(weights, **options):
    """Return the gradients of both tables."""
    graph = random_graph()
    config = TrainConfig(dim=6, batch_size=20, device="cpu", sampler="bernoulli", **options)
    trainer = Trainer(graph, config, None, Progress("none"))
    step = trainer.executor.training_step
    step.fact_weights = weights
    seen = {}
    step.optimizer.accumulate = lambda gradients: seen.update(gradients)
    step.optimizer.apply = lambda gradients: None
    step(Batch.of(trainer.columns, torch.arange(20)))
    dense = {name: torch.zeros_like(table) for name, table in trainer.model.state().items()}
    for name, parts in seen.items():
        for part in parts:
            part.add_to(dense[name])
    return dense


@pytest.mark.parametrize("scoring", ["distmult", "transe"])
def test_gradients_of_a_fact_are_multiplied_by_its_weight(scoring):
    ones, weights = torch.ones(120), torch.rand(120, generator=torch.Generator().manual_seed(1))
    alone = []
    for fact in range(20):
        only = torch.zeros(120)
        only[fact] = float(weights[fact])
        alone.append(gradients_of_a_step(only, scoring=scoring))
    together = gradients_of_a_step(weights, scoring=scoring)
    unweighted = gradients_of_a_step(None, scoring=scoring)
    for name, table in together.items():
        torch.testing.assert_close(table, sum(each[name] for each in alone), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(
            unweighted[name], gradients_of_a_step(ones, scoring=scoring)[name]
        )
        assert not torch.allclose(table, unweighted[name])


def test_an_option_turns_it_on_where_one_side_is_asked():
    graph = random_graph()
    for loss, on in (("logistic", True), ("softmax", False)):
        config = TrainConfig(
            dim=4, device="cpu", scoring="distmult", sampler="uniform", loss=loss, subsampling=True
        )
        trainer = Trainer(graph, config, None, Progress("none"))
        assert (trainer.executor.training_step.fact_weights is not None) is on


def test_strata_do_not_go_with_it():
    with pytest.raises(UserError, match="subsampling"):
        TrainConfig(strata=2, subsampling=True).check_strata()
