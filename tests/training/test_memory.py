"""The plan of a run's memory against what the run allocates."""

import pytest
import torch

from nscaching.models import SCORING
from nscaching.sampling import SamplerOptions
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training import Progress, TrainConfig, Trainer, memory
from nscaching.training.memory import plan_memory
from tests.conftest import random_graph

GRAPH = random_graph(entities=40)
DIM = 8


def parts_of(**options):
    return plan_memory(GRAPH, TrainConfig(device="cpu", dim=DIM, **options)).parts


@pytest.mark.parametrize("nu", [0.0, 0.5])
def test_the_caches_are_all_that_the_sampler_keeps(nu):
    options = {"cache_size": 7, "nu": nu, "alpha2": 1.0}
    sampler = NSCachingSampler(GRAPH, SamplerOptions(**options), torch.device("cpu"))
    tables = [getattr(cache, name) for cache in sampler.caches.values() for name in cache.parts]
    assert parts_of(**options)["caches"] == sum(table.nbytes for table in tables)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("name", SCORING)
def test_ranking_is_planned_with_the_views_of_all_entities(name, on_gpu, monkeypatch):
    device = torch.device("cuda" if on_gpu else "cpu")
    monkeypatch.setattr(memory, "pick_device", lambda asked: device)
    copies = {"transe": 1 + on_gpu, "rotate": 2 * on_gpu, "transh": 4, "transd": 4}.get(name, 0)
    plain, mine = (parts_of(scoring=each)["evaluation"] for each in ("distmult", name))
    assert mine - plain == 4 * copies * DIM * GRAPH.num_entities


def allocated(**options):
    """Return the bytes of the tables and of the optimiser's state of a run."""
    config = TrainConfig(device="cpu", dim=DIM, **options)
    trainer = Trainer(GRAPH, config, None, Progress("none"))
    tables = sum(table.nbytes for table in trainer.model.parameters())
    moments = [
        part
        for part in trainer.optimizer.state().values()
        if part.shape in {table.shape for table in trainer.model.parameters()}
    ]
    return tables, sum(part.nbytes for part in moments)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("optimizer", ["adam", "lazy-adam", "adagrad"])
def test_tables_and_moments_are_planned_as_they_are_allocated(optimizer, reciprocal):
    options = {"scoring": "complex", "optimizer": optimizer, "reciprocal": reciprocal}
    tables, moments = allocated(**options)
    parts = parts_of(**options)
    assert parts["parameters"] == tables
    assert parts["optimiser"] == moments + 12 * GRAPH.num_entities


def test_a_batch_of_whole_rows_takes_more_than_one_of_single_negatives():
    sizes = {"cache_size": 7, "candidates": 5, "batch_size": 64}
    one, both = (parts_of(loss=loss, **sizes)["batch"] for loss in ("logistic", "softmax"))
    width = SCORING["simple"](DIM, 1).entity_width
    # Gradients of the true entity and of the 12 candidates, for both questions of each triple.
    assert both - one == 64 * 4 * 2 * width * (2 * (2 + 12) - (2 + 1))
