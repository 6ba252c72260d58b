"""Queries of a batch and their gradients: kernels and autograd, in all their forms."""

import pytest
import torch

from nscaching.kernels.registry import PLAIN, forced
from nscaching.models import SCORING, EmbeddingModel, Side
from nscaching.models.match import MatchGradients
from nscaching.models.queries import BatchQueries, make_queries

from ..conftest import device_of, kernel_forms, seeded

COUNT, ENTITIES, RELATIONS = 7, 9, 3


#: Every scoring function, and those that differ where nothing is normalised: (name, normalize).
FUNCTIONS = [*((name, True) for name in SCORING), ("transe", False), ("quate", False)]


def model_of(name, dim, reciprocal, normalize=True):
    scoring = SCORING[name](dim, normalize=normalize)
    random = seeded(dim)
    entity = torch.randn(ENTITIES, scoring.entity_width, generator=random)
    rows = RELATIONS * (2 if reciprocal else 1)
    relation = torch.randn(rows, scoring.relation_width, generator=random)
    return EmbeddingModel(scoring, entity, relation, reciprocal=reciprocal)


def batch():
    random = seeded(3)
    heads, tails = torch.randint(ENTITIES, (2, COUNT), generator=random)
    return heads, torch.randint(RELATIONS, (COUNT,), generator=random), tails


def in_double(model):
    tables = {name: table.double() for name, table in model.state().items()}
    return model.with_tables(tables)


def results(model, replaces_head, device="cpu"):
    """Return the queries, and the gradients of both tables for given gradients of the queries."""
    model = model.to(torch.device(device))
    ids = [each.to(device) for each in batch()]
    queries = make_queries(model, *ids)
    asked = queries.ask(replaces_head.to(device)).gathered()
    random = seeded(5)
    d_query = torch.randn(asked.vectors.shape, generator=random)
    d_context = torch.randn(asked.vectors.shape, generator=random)
    found = MatchGradients(
        d_query.to(asked.vectors),
        None if asked.context is None else d_context.to(asked.vectors),
        None,
    )
    tables = [torch.zeros_like(table) for table in model.parameters()]
    for table, (rows, gradients) in zip(tables, queries.backward(found), strict=True):
        table.index_add_(0, rows, gradients)
    both = [queries.query(side).vectors for side in Side]
    return [each.cpu().double() for each in (*both, asked.vectors, *tables)]


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("dim", [1, 5, 130])
@pytest.mark.parametrize(("name", "normalize"), FUNCTIONS)
@pytest.mark.parametrize("form", kernel_forms())
def test_queries_and_gradients_are_those_of_autograd_in_double(
    name, normalize, dim, reciprocal, both_sides, form
):
    model = model_of(name, dim, reciprocal, normalize)
    replaces_head = torch.tensor([True] * COUNT + [False] * COUNT)
    if not both_sides:
        replaces_head = torch.rand(COUNT, generator=seeded(1)) < 0.5
    expected = results(in_double(model), replaces_head)
    with forced(form):
        found = results(model, replaces_head, device_of(form))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4)


def test_queries_answer_as_the_scoring_function_says():
    for name, normalize in FUNCTIONS:
        model = in_double(model_of(name, 4, False, normalize))
        heads, relations, tails = batch()
        queries = make_queries(model, heads, relations, tails)
        expected = model.score(heads, relations, tails)
        for side, target in ((Side.HEAD, heads), (Side.TAIL, tails)):
            found = queries.score(side, target.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(found, expected)


def test_which_scoring_functions_have_kernels_for_their_queries():
    with forced("cpu"):
        made = {
            (name, normalize): type(make_queries(model_of(name, 4, False, normalize), *batch()))
            for name, normalize in FUNCTIONS
        }
    slow = {function for function, kind in made.items() if kind is BatchQueries}
    assert slow == {("rotate", True), ("quate", True)}
    with forced(PLAIN):
        for name in SCORING:
            assert type(make_queries(model_of(name, 4, False), *batch())) is BatchQueries
