"""Gradients of some rows, and torch's optimisers fed with them as dense tables."""

import torch

from nscaching.optim import RowGradients

from ..conftest import seeded

ROWS, WIDTH = 20, 5


def table_of(rows=ROWS, width=WIDTH):
    return torch.randn(rows, width, generator=seeded(0))


def steps_of(count, seed=1, rows=ROWS, width=WIDTH, size=12):
    """Yield ids, which repeat and leave rows out, and their gradients."""
    generator = seeded(seed)
    for _ in range(count):
        ids = torch.randint(rows - 1, (size,), generator=generator)  # the last row never has one
        yield ids, torch.randn(size, width, generator=generator)


def step(optimizer, ids, rows, name="x"):
    """Take a step; the optimiser may write into the rows."""
    device = optimizer.device
    optimizer.step({name: [RowGradients(ids.to(device), rows.clone().to(device))]})


class TorchTwin:
    """An optimiser of torch's in double precision, fed with dense gradients."""

    def __init__(self, kind, table, **options):
        self.table = table.detach().cpu().double().requires_grad_()
        self.optimizer = kind([self.table], **options)

    def step(self, ids, rows):
        dense = torch.zeros_like(self.table)
        self.table.grad = dense.index_add_(0, ids, rows.double())
        self.optimizer.step()

    def assert_same(self, table, tolerance=1e-5):
        expected = self.table.detach()
        torch.testing.assert_close(table.cpu().double(), expected, atol=tolerance, rtol=1e-4)
