"""Every kernel of a match, in all its forms, through the dispatcher; the plain one in float64."""

import math

import pytest
import torch

from nscaching.kernels.registry import CPU, GPU, KERNELS, PLAIN, forced
from nscaching.losses import logsumexp
from nscaching.models.match import (
    HYPERPLANE,
    NO_VIEW,
    PROJECTION,
    UNIT,
    Query,
    plain_backward,
    plain_forward,
)
from nscaching.models.matches import Distance, Dot, Modulus

from ..conftest import device_of, kernel_forms, seeded

MATCHES = {
    "dot": lambda: Dot(),
    "modulus": lambda: Modulus(),
    **{
        f"distance-{norm}-{view}": (lambda norm=norm, view=view: Distance(norm, view))
        for norm in (1, 2)
        for view in (NO_VIEW, UNIT, HYPERPLANE, PROJECTION)
    },
}
#: queries, candidates, entities, width of a query
SHAPES = [(7, 5, 11, 6), (3, 1, 1, 10), (0, 4, 5, 6), (2, 130, 40, 34), (5, 3, 9, 300)]


def case(match, shape):
    queries, candidates, entities, width = shape
    random = seeded(sum(shape))
    table_width = 2 * width if match.view_kind == PROJECTION else width
    table = torch.randn(entities, table_width, generator=random)
    ids = torch.randint(-1, entities, (queries, candidates), generator=random)
    context = torch.randn(queries, width, generator=random)
    query = Query(
        torch.randn(queries, width, generator=random), context if match.relational_view else None
    )
    d_scores = torch.randn(queries, candidates, generator=random)
    return query, table, ids, d_scores


def on(form, query, *tensors):
    device = device_of(form)
    moved = Query(*(None if part is None else part.to(device) for part in query))
    return moved, *(tensor.to(device) for tensor in tensors)


def double(query):
    return Query(*(None if part is None else part.double() for part in query))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MATCHES)
@pytest.mark.parametrize("form", kernel_forms())
def test_forward_equals_the_definition_in_double_precision(name, shape, form):
    match = MATCHES[name]()
    query, table, ids, _ = case(match, shape)
    expected = plain_forward(match, double(query), table.double(), ids)
    with forced(form):
        found = match.forward(*on(form, query, table, ids)).cpu()
    assert torch.equal(found == -math.inf, ids < 0)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MATCHES)
@pytest.mark.parametrize("form", kernel_forms())
def test_backward_equals_autograd_in_double_precision(name, shape, form):
    match = MATCHES[name]()
    query, table, ids, d_scores = case(match, shape)
    expected = plain_backward(match, double(query), table.double(), ids, d_scores.double())
    with forced(form):
        found = match.backward(*on(form, query, table, ids, d_scores))
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None:
            assert ours is None
        else:
            torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-4, atol=1e-4)
    assert not found.rows.cpu()[(ids < 0).flatten()].any()


@pytest.mark.parametrize("name", MATCHES)
@pytest.mark.parametrize("form", kernel_forms())
def test_all_entities_are_scored_as_candidates_are(name, form):
    match = MATCHES[name]()
    query, table, _, _ = case(match, (6, 1, 90, 14))
    ids = torch.arange(len(table)).expand(6, -1)
    expected = plain_forward(match, double(query), table.double(), ids)
    with forced(form):
        found = match.forward_all(*on(form, query, table)).cpu()
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("view", [HYPERPLANE, PROJECTION])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("form", kernel_forms())
def test_views_of_all_relations_at_once_score_as_those_of_one_after_another(
    form, norm, view, monkeypatch
):
    """Equal to the bit: ranks must not change with the number of relations that are asked."""
    match = Distance(norm, view)
    query, table, _, _ = case(match, (9, 1, 90, 14))
    relations = torch.tensor([0, 0, 3, 1, 1, 1, 0, 2, 3])  # some apart
    query, table = on(form, query._replace(context=query.context[relations]), table)
    if form == GPU:  # products of two normals at a time
        module = KERNELS["all_view_distances"].form(GPU).__globals__
        monkeypatch.setitem(module, "_PRODUCTS", 2 * table.numel())
    with forced(form):
        found = match.forward_all(query, table)
        for i, (vector, context) in enumerate(zip(query.vectors, query.context, strict=True)):
            views = match.view(table, context)
            assert torch.equal(found[i], match.compare_all(vector[None], views)[0])


@pytest.mark.parametrize("name", MATCHES)
def test_gradients_over_all_entities_are_those_of_candidates(name):
    match = MATCHES[name]()
    query, table, _, _ = case(match, (6, 1, 30, 8))
    d_scores = torch.randn(6, 30, generator=seeded(1), dtype=torch.float64)
    ids = torch.arange(30).expand(6, -1)
    expected = plain_backward(match, double(query), table.double(), ids, d_scores)
    found = match.backward_all(double(query), table.double(), d_scores)
    torch.testing.assert_close(found.query, expected.query)
    torch.testing.assert_close(found.rows, expected.rows.view(6, 30, -1).sum(0))
    if found.context is not None:
        torch.testing.assert_close(found.context, expected.context)


def test_forms_are_there():
    assert {PLAIN, CPU} <= set(kernel_forms())
    assert set(kernel_forms()) <= {PLAIN, CPU, GPU}


@pytest.mark.parametrize("form", kernel_forms())
@pytest.mark.parametrize("view", [HYPERPLANE, PROJECTION])
def test_a_pool_is_seen_through_the_relation_of_each_question(view, form, monkeypatch):
    monkeypatch.setattr("nscaching.models.match._BLOCK_FLOATS", {"cpu": 600})  # several blocks
    match = Distance(1, view)
    query, pool, _, _ = case(match, (7, 1, 12, 6))
    d_scores = torch.randn(7, 12, generator=seeded(1))
    ids, close = torch.arange(12).expand(7, -1), {"rtol": 2e-5, "atol": 2e-5}
    given = double(query), pool.double(), ids
    scores, expected = (
        plain_forward(match, *given),
        plain_backward(match, *given, d_scores.double()),
    )
    with forced(form):
        query, pool, d_scores = on(form, query, pool, d_scores)
        torch.testing.assert_close(match.forward_pool(query, pool).cpu().double(), scores, **close)
        found = match.backward_all(query, pool, d_scores)
    torch.testing.assert_close(found.query.cpu().double(), expected.query, **close)
    torch.testing.assert_close(found.context.cpu().double(), expected.context, **close)
    rows = expected.rows.view(7, 12, -1).sum(0)
    torch.testing.assert_close(found.rows.cpu().double(), rows, **close)


@pytest.mark.parametrize("form", kernel_forms())
def test_the_log_of_no_sum_is_minus_infinity(form):
    logits = torch.full((2, 5), -torch.inf)
    logits[1, 3] = 2.0
    with forced(form):
        total = logsumexp(logits.to(device_of(form))).cpu()
    torch.testing.assert_close(total, torch.tensor([[-torch.inf], [2.0]]))
