"""Adam, dense and lazy, on the kernel and on plain torch."""

import pytest
import torch

from nscaching.optimisation import DenseAdam

from ..conftest import on_both_paths, seeded


def steps_of(count, generator):
    for _ in range(count):
        ids = torch.randint(20, (12,), generator=generator)
        yield ids, torch.randn(12, 5, generator=generator)


@on_both_paths
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_dense_adam_is_torchs(decay):
    table = torch.randn(20, 5, generator=seeded(0))
    parameter = torch.nn.Parameter(table.clone())
    theirs = torch.optim.Adam([parameter], lr=0.01, weight_decay=decay)
    ours = DenseAdam({"x": table}, 0.01, decay)
    for ids, rows in steps_of(6, seeded(1)):
        parameter.grad = torch.zeros(20, 5).index_add_(0, ids, rows)
        theirs.step()
        ours.step({"x": (ids, rows.clone())})
        torch.testing.assert_close(table, parameter.data, atol=1e-5, rtol=1e-4)


@on_both_paths
def test_lazy_adam_moves_only_rows_with_a_gradient():
    table = torch.randn(20, 5, generator=seeded(0))
    ours = DenseAdam({"x": table}, 0.01, 0.1, lazy=True)
    for ids, rows in steps_of(6, seeded(1)):
        before = table.clone()
        ours.step({"x": (ids, rows.clone())})
        moved = (table != before).any(1)
        assert moved[ids].all()
        assert moved.sum() == len(ids.unique())


@on_both_paths
def test_lazy_adam_where_every_row_has_a_gradient_is_dense_adam():
    tables = [torch.randn(20, 5, generator=seeded(0)) for _ in range(2)]
    dense, lazy = (DenseAdam({"x": t}, 0.01, 0.1, lazy=i == 1) for i, t in enumerate(tables))
    for seed in range(5):
        rows = torch.randn(20, 5, generator=seeded(seed))
        for adam in (dense, lazy):
            adam.step({"x": (torch.arange(20), rows.clone())})
        torch.testing.assert_close(*tables, atol=1e-6, rtol=1e-5)


@on_both_paths
def test_the_state_goes_on_where_it_was():
    first, second = (torch.randn(20, 5, generator=seeded(0)) for _ in range(2))
    one, two = DenseAdam({"x": first}, 0.01, 0.1), DenseAdam({"x": second}, 0.01, 0.1)
    steps = list(steps_of(4, seeded(1)))
    for ids, rows in steps[:2]:
        one.step({"x": (ids, rows.clone())})
    second.copy_(first)
    two.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    for adam in (one, two):
        for ids, rows in steps[2:]:
            adam.step({"x": (ids, rows.clone())})
    assert torch.equal(first, second)
