"""Pretraining: Bernoulli first, then the chosen sampler from those parameters."""

import pytest
import torch

import nscaching as ns
from nscaching.sampling import Batch, triple_columns
from nscaching.training import Progress, TrainConfig, Trainer
from tests.conftest import random_graph

SMALL = {"dim": 8, "batch_size": 32, "device": "cpu", "valid_every": 0}


def trainer_of(graph, **options):
    return Trainer(graph, TrainConfig(data="test", **SMALL, **options), None, Progress("none"))


def test_pretraining_epochs_are_those_of_bernoulli():
    graph = random_graph()
    pretrained = trainer_of(graph, epochs=3, pretrain_epochs=3, sampler="nscaching")
    bernoulli = trainer_of(graph, epochs=3, sampler="bernoulli")
    for trainer in (pretrained, bernoulli):
        trainer.run(resume=False)
    assert torch.equal(pretrained.model.entity, bernoulli.model.entity)
    assert pretrained.sampler.name == "bernoulli"


@pytest.mark.parametrize("sampler", ["nscaching", "kbgan", "igan", "self-adversarial"])
def test_the_chosen_sampler_takes_over(sampler):
    graph = random_graph()
    options = {"sampler": sampler, "cache_size": 5, "generator_dim": 4, "alpha1": 1.0}
    trainer = trainer_of(graph, epochs=4, pretrain_epochs=2, **options)
    assert trainer.sampler.name == "bernoulli"
    trainer.run(resume=False)
    assert trainer.sampler.name == sampler
    assert int(trainer.optimizer.count) == 2 * -(-len(graph.train) // 32), "Adam starts afresh"
    if trainer.sampler.has_generator:
        assert int(trainer.sampler.generator.adam.count) == int(trainer.optimizer.count)


@pytest.mark.parametrize("sampler", ["nscaching", "kbgan"])
@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_run_stopped_before_or_after_the_switch_goes_on_the_same_way(
    sampler, stop_after, tmp_path
):
    graph = random_graph()
    options = {**SMALL, "sampler": sampler, "cache_size": 5, "pretrain_epochs": 2,
               "generator_dim": 4, "checkpoint_seconds": 0.0, "progress": "none"}  # fmt: skip
    whole = ns.train(graph, epochs=4, **options)
    ns.train(graph, epochs=stop_after, out=tmp_path / "run", **options)
    resumed = ns.train(graph, epochs=4, out=tmp_path / "run", resume=True, **options)
    assert torch.equal(whole.model.entity, resumed.model.entity)


def test_the_bar_of_a_warm_start_stands_under_that_of_its_run_while_it_lasts():
    progress = Progress("bar")
    with progress.training(4) as outer:
        with progress.training(9) as inner:
            assert outer._rich is inner._rich
            assert [task.total for task in outer._rich.tasks] == [4, 9]
        assert [task.total for task in outer._rich.tasks] == [4]
    with progress.training(5) as later:
        assert later._rich is not outer._rich


def test_a_generator_without_a_warm_start_has_no_pretraining():
    assert not trainer_of(random_graph(), epochs=1, sampler="kbgan").counters.pretraining
    given = {"generator_epochs": 0, "pretrain_epochs": 1}
    trainer = trainer_of(random_graph(), epochs=2, sampler="kbgan", generator_dim=4, **given)
    trainer.run(resume=False)
    assert not trainer.sampler._warm


def test_importance_weights_are_one_over_n_p():
    graph = random_graph()
    trainer = trainer_of(graph, epochs=1, alpha1=2.0, alpha2=1.0, importance=True, cache_size=5)
    trainer.sampler.prepare(trainer.model, trainer.generator)
    trainer.sampler.begin_epoch(0, trainer.generator)
    columns = triple_columns(graph, trainer.device)
    batch = Batch.of(columns, torch.arange(len(graph.train)))
    drawn = trainer.sampler.sample(batch, trainer.generator)
    assert (drawn.importance == 1).all(), "the first epoch is a shuffle"
    trainer.sampler.begin_epoch(1, trainer.generator)
    drawn = trainer.sampler.sample(batch, trainer.generator)
    shares = 1 / (len(graph.train) * drawn.importance.double())
    assert shares.sum().item() == pytest.approx(1)
    assert shares.max() / shares.min() == pytest.approx(torch.e**2, rel=1e-3)
