import math

import pytest
import torch
from scipy.stats import kstest

from nscaching.models import SCORING, EmbeddingModel
from tests.conftest import UNLIKELY, seeded

ENTITIES, RELATIONS, DIM = 300, 40, 16


def initialised(name, seed=0):
    return EmbeddingModel.initialised(SCORING[name](DIM), ENTITIES, RELATIONS, seeded(seed))


def assert_uniform(part, bound):
    assert part.abs().max() <= bound
    scaled = (part.flatten() / bound + 1) / 2
    assert kstest(scaled.numpy(), "uniform").pvalue > UNLIKELY


@pytest.mark.parametrize("name", list(SCORING))
def test_each_part_of_an_entity_row_is_xavier_uniform(name):
    for part in torch.split(initialised(name).entity, DIM, dim=1):
        assert_uniform(part, math.sqrt(6 / (ENTITIES + DIM)))


@pytest.mark.parametrize("name", sorted(set(SCORING) - {"rotate"}))
def test_each_part_of_a_relation_row_is_xavier_uniform(name):
    for part in torch.split(initialised(name).relation, DIM, dim=1):
        assert_uniform(part, math.sqrt(6 / (RELATIONS + DIM)))


def test_phases_of_rotate_are_uniform_on_the_circle():
    assert_uniform(initialised("rotate").relation, math.pi)


@pytest.mark.parametrize("name", list(SCORING))
def test_the_seed_decides_the_initial_values(name):
    one, again, other = initialised(name), initialised(name), initialised(name, seed=1)
    for table in ("entity", "relation"):
        assert torch.equal(one.state()[table], again.state()[table])
        assert not torch.equal(one.state()[table], other.state()[table])
