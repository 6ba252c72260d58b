"""The int8 copy: close to its table, kept fresh, and good enough to rank by."""

import pytest
import torch

import nscaching as ns
from nscaching.models import Int8Table, Side

from ..conftest import on_both_paths, random_graph, random_model, seeded


@on_both_paths
def test_numbers_are_within_half_a_step(generator):
    table = torch.randn(300, 21, generator=generator) * torch.logspace(-8, 8, 300).unsqueeze(1)
    table[7] = 0
    copy = Int8Table(table)
    step = table.abs().amax(1, keepdim=True) / 127
    numbers = copy.values * copy.scale.unsqueeze(1)
    assert ((numbers - table).abs() <= 0.5001 * step + 1e-30).all()


@on_both_paths
@pytest.mark.parametrize("name", ["distmult", "complex", "simple", "quate"])
@pytest.mark.parametrize("candidates", [1, 3, 4, 30])
def test_candidate_scores_are_close_to_the_exact_ones(name, candidates):
    model = random_model(name, dim=64)
    rng = seeded(1)
    anchor, relation = (torch.randint(n, (12,), generator=rng) for n in (25, 4))
    ids = torch.randint(25, (12, candidates), generator=rng)
    ids[3] = -1
    exact = model.score_candidates(Side.TAIL, anchor, relation, ids)
    everything = model.score_all(Side.TAIL, anchor, relation)
    model.int8 = Int8Table(model.entity)
    close = model.score_candidates(Side.TAIL, anchor, relation, ids)
    assert torch.equal(close == -torch.inf, ids < 0)
    there = ids >= 0
    assert (close - exact)[there].abs().max() < 0.05 * everything.std()
    assert torch.equal(model.score_all(Side.TAIL, anchor, relation), everything)


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, True),
        ({"int8": False}, False),
        ({"scoring": "transe"}, False),
        ({"sampler": "bernoulli"}, False),
    ],
)
def test_only_candidates_of_dot_products_on_a_cpu_come_from_the_copy(options, used):
    config = ns.TrainConfig(**options)
    assert config.uses_int8_table("cpu") is used
    assert not config.uses_int8_table("cuda")


def test_the_model_that_is_kept_is_exact():
    graph = random_graph()
    run = ns.train(graph, epochs=2, dim=8, device="cpu", progress="none", valid_every=0)
    assert run.model.int8 is None
