"""The plan of a run's memory against what the run allocates."""

import pytest
import torch

from nscaching.models import SCORING
from nscaching.sampling import SamplerOptions
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training import TrainConfig, memory
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
