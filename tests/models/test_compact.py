"""The copy with a byte a number: close to its table, kept fresh, and good enough to rank by."""

import pytest
import torch

import nscaching as ns
from nscaching.models import CompactTable, Side
from nscaching.optim import DenseAdam
from tests.conftest import on_both_paths, random_graph, random_model, seeded


@on_both_paths
def test_numbers_are_within_half_a_step(generator):
    table = torch.randn(300, 21, generator=generator) * torch.logspace(-8, 8, 300).unsqueeze(1)
    table[7] = 0
    copy = CompactTable(table)
    step = table.abs().amax(1, keepdim=True) / 127
    assert ((copy.rows(torch.arange(300)) - table).abs() <= 0.5001 * step + 1e-30).all()


@on_both_paths
@pytest.mark.parametrize("lazy", [False, True])
def test_adam_keeps_the_copy_as_fresh_as_a_new_one(lazy, generator):
    table = torch.randn(203, 9, generator=generator)  # rows are not whole blocks of the kernel
    copy = CompactTable(table)
    adam = DenseAdam({"x": table}, 0.05, 0.1, lazy=lazy, copies={"x": copy})
    for _ in range(4):
        ids = torch.randint(203, (30,), generator=generator)
        adam.step({"x": (ids, torch.randn(30, 9, generator=generator))})
    anew = CompactTable(table)
    assert copy.values.equal(anew.values)
    assert copy.scale.equal(anew.scale)


@on_both_paths
@pytest.mark.parametrize("name", ["distmult", "complex", "simple"])
@pytest.mark.parametrize("candidates", [1, 3, 4, 30])
def test_candidate_scores_are_close_to_the_exact_ones(name, candidates):
    model = random_model(name, dim=64)
    rng = seeded(1)
    anchor, relation = (torch.randint(n, (12,), generator=rng) for n in (25, 4))
    ids = torch.randint(25, (12, candidates), generator=rng)
    exact = model.score_candidates(Side.TAIL, anchor, relation, ids)
    everything = model.score_all(Side.TAIL, anchor, relation)
    model.compact = CompactTable(model.entity)
    close = model.score_candidates(Side.TAIL, anchor, relation, ids)
    assert (close - exact).abs().max() < 0.05 * everything.std()


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, True),
        ({"compact": False}, False),
        ({"scoring": "transe"}, False),
        ({"sampler": "bernoulli"}, False),
    ],
)
def test_only_candidates_of_dot_products_on_a_cpu_come_from_the_copy(options, used):
    config = ns.TrainConfig(**options)
    assert config.uses_compact_table("cpu") is used
    assert not config.uses_compact_table("cuda")


def test_the_model_that_is_kept_is_exact():
    graph = random_graph()
    run = ns.train(graph, epochs=2, dim=8, device="cpu", progress="none", valid_every=0)
    assert run.model.compact is None
