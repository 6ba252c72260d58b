"""Loss and gradients in one pass, against autograd in double precision."""

from dataclasses import replace

import pytest
import torch

from nscaching.models import SCORING, families
from nscaching.sampling import Negatives
from tests.conftest import random_model
from tests.models.pairs import ENTITIES, FUNCTIONS, NORMED, RELATIONS, in_double, pairs
from tests.models.pairs import gradients_of_a_step as gradients

each_function = pytest.mark.parametrize(("name", "norm"), FUNCTIONS)
each_loss = pytest.mark.parametrize("margin", [None, 2.0])


def assert_equals_autograd(model, drawn, margin):
    found, expected = gradients(model, *drawn, margin), gradients(in_double(model), *drawn, margin)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-4, atol=2e-5)
    return found


@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("dim", [1, 5, 100])
@each_loss
@each_function
def test_gradients_equal_autograd(name, norm, margin, dim, negatives):
    model = random_model(name, ENTITIES, RELATIONS, dim, norm)
    assert_equals_autograd(model, pairs(40, negatives), margin)


@each_loss
@each_function
def test_more_relations_than_triples(name, norm, margin):
    model = random_model(name, ENTITIES, 50, 6, norm)
    batch, negatives = pairs(7, 2)
    batch = replace(batch, relations=torch.arange(43, 50))
    assert_equals_autograd(model, (batch, negatives), margin)


@pytest.mark.parametrize("name", SCORING)
def test_every_function_has_a_kernel_where_the_precision_is_single(name, monkeypatch):
    monkeypatch.setattr(families, "HAVE_NUMBA", True)
    model = random_model(name, ENTITIES, RELATIONS)
    batch, negatives = pairs(4, 2)
    ids = (batch.heads, batch.relations, batch.tails)
    arguments = (ids, (negatives.entities, negatives.replaces_head, negatives.weight), None)
    assert model.scoring.pair_gradients(model.entity, model.relation, *arguments) is not None
    twin = in_double(model)
    assert twin.scoring.pair_gradients(twin.entity, twin.relation, *arguments) is None


def test_without_numba_autograd_gives_the_gradients(monkeypatch):
    model, drawn = random_model("transh", ENTITIES, RELATIONS), pairs(4, 2)
    monkeypatch.setattr(families, "HAVE_NUMBA", False)
    assert_equals_autograd(model, drawn, 1.0)


@each_loss
@each_function
def test_vectors_of_zeros(name, norm, margin):
    """What is normalised by dividing by 1e-12 has a gradient, and a rounding error, as large."""
    model = random_model(name, ENTITIES, RELATIONS, 6, norm)
    size = {"entity": torch.ones_like(model.entity), "relation": torch.ones_like(model.relation)}
    model.entity[::3] = 0
    model.relation[1:3, 6:] = 0
    model.relation[2] = 0
    if (name, norm) in NORMED:
        size["entity"][::3] = 1e12
    if name == "transh":
        size["relation"][1:3, 6:] = 1e12
    batch, negatives = pairs(40, 2)
    found = gradients(model, batch, negatives, margin)
    expected = gradients(in_double(model), batch, negatives, margin)
    ids = torch.cat([batch.heads, batch.tails, negatives.entities.flatten()])
    sizes = (1, 1, size["entity"][ids], size["relation"][batch.relations])
    for mine, theirs, unit in zip(found, expected, sizes, strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine / unit, (theirs / unit).float(), rtol=1e-4, atol=5e-5)


@each_loss
@pytest.mark.parametrize(("name", "norm"), [*NORMED, ("rotate", 1)])
def test_no_distance_has_no_gradient(name, norm, margin):
    """The head is where the tail is, and the relation moves nothing."""
    dim = 37
    model = random_model(name, ENTITIES, RELATIONS, dim, norm)
    model.relation[:, :dim] = 0
    batch, _ = pairs(ENTITIES, 1)
    everyone = torch.arange(ENTITIES)
    batch = replace(batch, heads=everyone, tails=everyone)
    negatives = Negatives(
        everyone.unsqueeze(1), (everyone % 2 == 0).unsqueeze(1), torch.ones(ENTITIES, 1)
    )
    _, scores, entity_rows, relation_rows = gradients(model, batch, negatives, margin)
    assert not scores.any()
    assert not entity_rows.any()
    assert not relation_rows.any()


@pytest.mark.parametrize("name", SCORING)
def test_negatives_without_weight_pull_nothing(name):
    model = random_model(name, ENTITIES, RELATIONS)
    batch, negatives = pairs(6, 3)
    negatives.weight.zero_()
    loss, scores, *rows = gradients(model, batch, negatives, 1.0)
    assert loss == 0
    assert scores.any()
    assert not any(part.any() for part in rows)
    *_, entity_rows, _ = gradients(model, batch, negatives, None)
    assert entity_rows[:12].any()
    assert not entity_rows[12:].any()
