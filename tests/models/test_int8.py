"""Copies with fewer bits: close to their table, kept fresh, and good enough to rank by."""

import pytest
import torch

import nscaching as ns
from nscaching.kernels.registry import CPU, forced
from nscaching.models import HalfTable, Int8Table, Side

from ..conftest import device_of, kernel_forms, on_both_paths, random_graph, random_model, seeded


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


@pytest.mark.parametrize("form", [form for form in kernel_forms() if form != CPU])
@pytest.mark.parametrize("name", ["distmult", "quate"])
def test_scores_of_a_bfloat16_copy_are_close_to_the_exact_ones(name, form):
    device = torch.device(device_of(form))
    model = random_model(name, dim=13).to(device)
    rng = seeded(1)
    anchor, relation = (torch.randint(n, (6,), generator=rng).to(device) for n in (25, 4))
    ids = torch.randint(-1, 25, (6, 9), generator=rng).to(device)
    with forced(form):
        exact = model.score_candidates(Side.TAIL, anchor, relation, ids)
        everything = model.score_all(Side.TAIL, anchor, relation)
        model.half = HalfTable(model.entity)
        close = model.score_candidates(Side.TAIL, anchor, relation, ids)
    assert close.dtype == torch.float32
    assert torch.equal(close == -torch.inf, ids < 0)
    assert (close - exact)[ids >= 0].abs().max() < 0.05 * everything.std()
    assert not torch.equal(close, exact)


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, True),
        ({"int8": False}, False),
        ({"scoring": "transe"}, False),
        ({"sampler": "bernoulli"}, False),
        ({"loss": "softmax"}, False),
    ],
)
def test_only_candidates_of_dot_products_come_from_a_copy(options, used):
    config = ns.TrainConfig(**options)
    assert config.uses_copy("cpu", 1000, 100) is used
    assert config.uses_copy("cpu", 1000, 1_000_000) is used
    # On a GPU the copy is written in every step: rows must be read many times for it.
    assert config.uses_copy("cuda", 1000, 100) is used
    assert not config.uses_copy("cuda", 1000, 1_000_000)
    assert not config.uses_copy("mps", 1000, 100)


def test_the_model_that_is_kept_is_exact():
    graph = random_graph()
    run = ns.train(graph, epochs=2, dim=8, device="cpu", progress="none", valid_every=0)
    assert run.model.int8 is None
    assert run.model.half is None
