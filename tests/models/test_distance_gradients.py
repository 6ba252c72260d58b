"""Gradients of weighted TransE scores: the kernels against autograd."""

import pytest
import torch

from nscaching.models import SCORING
from nscaching.models.gradients import distances
from tests.conftest import seeded, with_one_thread_and_with_all


def drawn(dim, entities=9, count=6, k=5):
    """Return queries, a table, candidates that repeat, and weights of which some are zero."""
    rng = seeded(dim)
    weights = torch.randn(count, k, generator=rng)
    weights[0, 1] = weights[3] = 0
    return (
        torch.randn(count, dim, generator=rng),
        torch.randn(entities, dim, generator=rng),
        torch.randint(entities - 1, (count, k), generator=rng),  # the last entity never occurs
        weights,
    )


def by_autograd(query, table, ids, weights):
    query, table = query.clone().requires_grad_(), table.clone().requires_grad_()
    no_relation = torch.zeros_like(query)
    scores = SCORING["transe"](query.shape[1]).score_each(query, no_relation, table[ids])
    return torch.autograd.grad((weights * scores).sum(), [query, table])


@pytest.mark.parametrize("dim", [1, 5, 100])
@pytest.mark.parametrize("compiled", [True, False])
def test_equal_autograd(dim, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(distances, "HAVE_NUMBA", False)
    given = drawn(dim)
    for ours, expected in zip(
        distances.distance_gradients(*given), by_autograd(*given), strict=True
    ):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_an_entity_at_the_query_pulls_nothing():
    query, table = torch.tensor([[1.0, 0.0, 0.0]]), torch.eye(3)
    ids, weights = torch.tensor([[0]]), torch.tensor([[1.0]])
    for gradient in distances.distance_gradients(query, table, ids, weights):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_vector_of_zeros_gives_what_autograd_gives(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(distances, "HAVE_NUMBA", False)
    query, table, ids, weights = drawn(5)
    table[int(ids[1, 0])] = 0
    expected = by_autograd(query, table, ids, weights)
    for ours, theirs in zip(
        distances.distance_gradients(query, table, ids, weights), expected, strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_threads_change_nothing():
    given = drawn(100, entities=50, count=200, k=20)
    one, other = with_one_thread_and_with_all(lambda: distances.distance_gradients(*given))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
