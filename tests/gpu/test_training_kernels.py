"""Batches and Adam of the Triton kernels against plain indexing and torch's own Adam."""

import pytest
import torch

from nscaching.optim import DenseAdam
from nscaching.optim import adam as adam_module
from tests.conftest import seeded

ROOM = "training"
STEPS = 6


@pytest.fixture
def gpu_adam(monkeypatch):
    """Return a maker of Adams that call the Triton kernels on the tensors of the CPU."""
    monkeypatch.setattr(adam_module, "HAVE_NUMBA", False)

    def make(tables, **options):
        adam = DenseAdam(tables, **options)
        adam._on_gpu, adam._torch = True, None
        return adam

    return make


@pytest.mark.parametrize(("start", "size"), [(0, 5), (7, 128), (40, 150), (199, 1)])
def test_a_batch_is_a_part_of_the_order_and_the_columns_there(start, size, kernels):
    columns = torch.randint(1000, (5, 200), generator=seeded(0))
    order = torch.randperm(200, generator=seeded(1))
    found = kernels.gather_batch(order, torch.tensor([start]), columns, size)
    index = order[start : start + size]
    assert torch.equal(found, torch.cat([index.unsqueeze(0), columns[:, index]]))


def tables_of(width, seed=0):
    rng = seeded(seed)
    sizes = {"entity": 23, "relation": 3}
    return {name: torch.randn(n, width, generator=rng) for name, n in sizes.items()}


def gradients_of(tables, step):
    """Return row gradients whose ids repeat and leave rows out; relation 2 never has one."""
    rng = seeded(100 + step)
    return {
        name: (
            torch.randint(min(len(table) - 1, 9), (14,), generator=rng),
            torch.randn(14, table.shape[1], generator=rng),
        )
        for name, table in tables.items()
    }


class TorchAdam:
    """Torch's Adam in double precision, fed with dense gradients."""

    def __init__(self, tables, lr, weight_decay):
        self.tables = {name: table.double().requires_grad_() for name, table in tables.items()}
        self.adam = torch.optim.Adam(self.tables.values(), lr=lr, weight_decay=weight_decay)

    def step(self, gradients):
        for name, (ids, rows) in gradients.items():
            table = self.tables[name]
            table.grad = torch.zeros_like(table).index_add_(0, ids, rows.double())
        self.adam.step()


def assert_same(tables, twin):
    for name, table in tables.items():
        expected = twin.tables[name].detach()
        torch.testing.assert_close(table.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("width", [1, 12, 300])
def test_steps_equal_those_of_torch(width, weight_decay, gpu_adam):
    tables = tables_of(width)
    options = {"lr": 0.02, "weight_decay": weight_decay}
    twin = TorchAdam(tables, **options)
    adam = gpu_adam(tables, **options)
    for step in range(STEPS):
        gradients = gradients_of(tables, step)
        adam.step(gradients)
        twin.step(gradients)
        assert_same(tables, twin)
        assert int(adam.count) == step + 1
        for gradient in adam._gradient.values():
            assert not gradient.any()  # what a step leaves behind must not reach the next


def test_rows_without_a_gradient_keep_still_until_they_had_one(gpu_adam):
    tables = tables_of(5)
    before = tables["entity"].clone()
    gpu_adam(tables, lr=0.1, weight_decay=0.0).step(gradients_of(tables, 0))
    touched = torch.zeros(len(before), dtype=torch.bool)
    touched[gradients_of(tables, 0)["entity"][0]] = True
    assert torch.equal(tables["entity"][~touched], before[~touched])
    assert (tables["entity"][touched] != before[touched]).all()


@pytest.mark.parametrize("again", ["forget", "load_state"])
def test_a_row_does_not_move_for_a_step_of_before(again, gpu_adam):
    tables = tables_of(5)
    adam = gpu_adam(tables, lr=0.1, weight_decay=0.1, lazy=True)
    fresh = {name: part.clone() for name, part in adam.state().items()}
    adam.step(gradients_of(tables, 0))
    adam.forget() if again == "forget" else adam.load_state(fresh)
    before = tables["entity"].clone()
    adam.step({"entity": (torch.tensor([20]), torch.ones(1, 5))})
    moved = (tables["entity"] != before).any(1).nonzero().flatten()
    assert moved.tolist() == [20]


def test_state_taken_over_goes_on_the_same_way(gpu_adam):
    options = {"lr": 0.02, "weight_decay": 0.01}
    tables = tables_of(7)
    twin = TorchAdam(tables, **options)
    adam = gpu_adam(tables, **options)
    for step in range(STEPS):
        if step == 3:
            fresh = gpu_adam(tables, **options)
            fresh.load_state(adam.state())
            adam = fresh
        gradients = gradients_of(tables, step)
        adam.step(gradients)
        twin.step(gradients)
    assert_same(tables, twin)
