"""The batch of a step as the GPU gathers it, against plain indexing."""

import pytest
import torch

from nscaching.kernels.registry import GPU

from ..conftest import HAVE_GPU_FORMS, device_of, seeded

pytestmark = pytest.mark.skipif(not HAVE_GPU_FORMS, reason="no GPU kernels here")


@pytest.mark.parametrize(("start", "size"), [(0, 5), (7, 128), (40, 150), (199, 1)])
def test_a_batch_is_a_part_of_the_order_and_the_columns_there(start, size):
    from nscaching.kernels.batch_gpu import gather_batch

    columns = torch.randint(1000, (5, 200), generator=seeded(0), dtype=torch.int32)
    order = torch.randperm(200, generator=seeded(1))
    device = device_of(GPU)
    found = gather_batch(
        order.to(device), torch.tensor([start], device=device), columns.to(device), size
    )
    index = order[start : start + size]
    assert torch.equal(found.cpu(), torch.cat([index.unsqueeze(0), columns[:, index].long()]))
