"""What a traced step writes down on a GPU, against the plain path."""

import pytest
import torch

from nscaching.training.tracing.gradients import BatchNorms
from tests.conftest import seeded
from tests.models.pairs import ENTITIES, pairs

ROOM = "training.tracing"
WIDTH = 5


def gradient_of(count, k):
    """Return gradient rows of negatives, some of them zero. Shape: (count * k, WIDTH)."""
    rows = torch.randn(count * k, WIDTH, generator=seeded(1))
    rows[::3] = 0
    return rows


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("by_score", [True, False])
def test_codes_say_what_was_drawn(k, by_score, kernels):
    count, first = 40, 7
    _, negatives = pairs(count, k)
    scores, rows = torch.randn(count, k, generator=seeded(2)), gradient_of(count, k)
    at, codes = torch.tensor(first), torch.zeros(100, k, dtype=torch.int64)
    least = -0.2 if by_score else None
    finished = torch.zeros((), dtype=torch.int32)
    kernels.write_codes(negatives, scores, rows, least, ENTITIES, at, finished, codes)
    teaches = scores > -0.2 if by_score else (rows != 0).any(1).view(count, k)
    exists = negatives.weight > 0
    bits = negatives.replaces_head + 2 * (teaches & exists) + 4 * exists
    assert torch.equal(codes[first : first + count], negatives.entities + bits * ENTITIES)
    assert not codes[:first].any()
    assert not codes[first + count :].any()
    assert int(at) == first + count
    assert int(finished) == 0


def test_the_norm_is_that_of_rows_added_up(kernels):
    sizes = {"entity": 9, "relation": 2}
    plain, parts = BatchNorms(sizes, torch.device("cpu")), []
    sums, square = torch.zeros(2), torch.zeros(1)
    gradients, rng = {}, seeded(3)
    for name, size in sizes.items():
        ids, rows = torch.randint(size, (40,), generator=rng), torch.randn(40, 5, generator=rng)
        gradients[name] = ids, rows
        parts.append((ids, rows, torch.zeros(size, 5).index_add_(0, ids, rows)))
    for _ in range(2):
        kernels.add_norm(parts, square, sums)
        plain.add(gradients)
    assert float(square) == 0
    torch.testing.assert_close(sums, plain.sums)
