"""Loss and gradients of the Triton kernels against the CPU's and autograd."""

from importlib import import_module

import pytest
import torch

from nscaching.models import SCORING, families, rotate
from tests.conftest import random_model
from tests.models import test_distance_gradients as distances
from tests.models.pairs import ENTITIES, FUNCTIONS, NORMED, RELATIONS, in_double, pairs
from tests.models.pairs import gradients_of_a_step as gradients

ROOM = "models"
each_loss = pytest.mark.parametrize("margin", [None, 2.0])


def assert_close(found, expected):
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=5e-5)


def on_gpu(model, batch, negatives, margin):
    """Return what a step returns, from the Triton kernels."""

    def run(family, tables, ids, drawn, margin, *settings):
        count, k = drawn[0].shape
        shapes = (
            ((2 + k) * count, tables[0].shape[1]),
            tables[1][ids[1]].shape,
            (count, k),
            (count,),
        )
        out = [torch.full(shape, torch.nan) for shape in shapes]
        kernels = import_module(f"nscaching.models.gradients.{family}_gpu")
        kernels.gradients(*tables, *ids, *drawn, *out, *settings, margin or 0.0)
        entity_rows, relation_rows, scores, losses = out
        return families.PairGradients(losses.sum(), scores, entity_rows, relation_rows)

    with pytest.MonkeyPatch.context() as patch:
        for module in (families, rotate):
            patch.setattr(module, "run_gradients", run)
        return gradients(model, batch, negatives, margin)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("dim", "negatives"), [(1, 3), (7, 1), (100, 3)])
@each_loss
@pytest.mark.parametrize(("name", "norm"), FUNCTIONS)
def test_gradients_equal_those_of_the_other_paths(name, norm, margin, dim, negatives):
    model = random_model(name, ENTITIES, RELATIONS, dim, norm)
    drawn = pairs(6, negatives)
    paths = on_gpu(model, *drawn, margin), gradients(model, *drawn, margin)
    autograd = gradients(in_double(model), *drawn, margin)
    for mine, numba, plain in zip(*paths, autograd, strict=True):
        assert_close(mine, numba)
        assert_close(mine, plain)


@pytest.mark.parametrize("name", SCORING)
def test_negatives_without_weight_pull_nothing(name):
    model = random_model(name, ENTITIES, RELATIONS, 5)
    batch, negatives = pairs(4, 3)
    negatives.weight.zero_()
    loss, _, entity_rows, relation_rows = on_gpu(model, batch, negatives, margin=1.0)
    assert loss == 0
    assert not entity_rows.any()
    assert not relation_rows.any()


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", SCORING)
def test_vectors_of_zeros_give_what_the_cpu_gives(name, norm):
    model = random_model(name, ENTITIES, RELATIONS, 6, norm)
    model.entity[::3] = 0
    model.relation[1, 6:] = 0
    model.relation[2] = 0
    drawn = pairs(12, 2)
    for mine, numba in zip(
        on_gpu(model, *drawn, None), gradients(model, *drawn, None), strict=True
    ):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, numba, rtol=1e-3, atol=5e-5)


@each_loss
@pytest.mark.parametrize(("name", "norm"), [*NORMED, ("rotate", 1)])
def test_no_distance_has_no_gradient(name, norm, margin):
    model = random_model(name, ENTITIES, RELATIONS, 7, norm)
    model.relation[:, :7] = 0
    batch, negatives = pairs(9, 1)
    batch.tails.copy_(batch.heads)
    negatives.entities.copy_(batch.heads.unsqueeze(1))
    _, scores, entity_rows, relation_rows = on_gpu(model, batch, negatives, margin)
    assert not scores.any()
    assert not entity_rows.any()
    assert not relation_rows.any()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("margin", [None, 1.0])
def test_gradients_of_large_scores_are_finite(margin):
    model = random_model("distmult", ENTITIES, RELATIONS, 6)
    model.entity *= 20
    drawn = pairs(9, 2)
    found, numba = on_gpu(model, *drawn, margin), gradients(model, *drawn, margin)
    assert numba[1].abs().max() > 100  # exp overflows in float32
    for mine, fused in zip(found, numba, strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, fused, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dim", [1, 5, 100])
def test_gradients_of_weighted_distances_equal_autograd(dim):
    kernels = import_module("nscaching.models.gradients.distances_gpu")
    query, table, ids, weights = distances.drawn(dim, k=11)
    found = torch.full_like(query, torch.nan), torch.full_like(table, torch.nan)
    kernels.gradients(query, table, ids, weights, *found)
    expected = distances.by_autograd(query, table, ids, weights)
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs)
