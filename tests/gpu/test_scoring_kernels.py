"""Scores, queries and gradients of the Triton kernels against the CPU's and the plain path."""

import pytest
import torch

from nscaching.losses import Loss
from nscaching.sampling import Batch, Negatives
from nscaching.scoring import SCORING, EmbeddingModel, Side, families, rotate
from nscaching.training.step import GradientStep
from tests.conftest import random_model, seeded

ROOM = "scoring"
BILINEAR = ("distmult", "complex", "simple")
#: The norm means something to these only.
NORMED = [(name, norm) for name in ("transe", "transh", "transd") for norm in (1, 2)]
FUNCTIONS = [*NORMED, *((name, 1) for name in SCORING if (name, 1) not in NORMED)]
ENTITIES, RELATIONS = 25, 4


def in_double(model):
    """Return the model in double precision, which has no kernels."""
    return EmbeddingModel(model.scoring, model.entity.double(), model.relation.double())


def assert_close(found, expected):
    torch.testing.assert_close(found.double(), expected.double(), rtol=2e-5, atol=5e-5)


@pytest.fixture
def on_gpu(kernels, monkeypatch):
    """Return a switch: from then on scoring functions call the Triton kernels."""

    def run(name, inputs, shape, *rest):
        scores = getattr(kernels, name)(*(tensor.contiguous() for tensor in inputs), *rest)
        assert scores.shape == shape
        return scores

    def switch():
        for module in (families, rotate):
            monkeypatch.setattr(module, "run_kernel", run)

    return switch


def queries(count, seed=1):
    """Return random anchors and relations. Shapes: (count,)."""
    rng = seeded(seed)
    return [torch.randint(size, (count,), generator=rng) for size in (ENTITIES, RELATIONS)]


# Scores


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(("dim", "candidates"), [(1, 1), (12, 8), (21, 19), (300, 3)])
@pytest.mark.parametrize(("name", "norm"), FUNCTIONS)
def test_scores_equal_those_of_the_other_paths(name, norm, dim, candidates, side, on_gpu):
    model = random_model(name, ENTITIES, RELATIONS, dim, norm)
    anchor, relation = queries(3)
    ids = torch.randint(ENTITIES, (3, candidates), generator=seeded(2))
    plain = in_double(model).score_candidates(side, anchor, relation, ids)
    numba = model.score_candidates(side, anchor, relation, ids)
    on_gpu()
    found = model.score_candidates(side, anchor, relation, ids)
    assert_close(found, plain)
    assert_close(found, numba)


@pytest.mark.parametrize("name", SCORING)
def test_padding_among_the_candidates_changes_no_other_score(name, on_gpu):
    model = random_model(name, ENTITIES, RELATIONS, 6)
    anchor, relation = queries(4)
    ids = torch.randint(ENTITIES, (4, 21), generator=seeded(2))
    padded = ids.clone()
    padded[0, ::3] = -1
    padded[1, :16] = -1  # two whole blocks
    padded[2] = -1
    expected = model.score_candidates(Side.TAIL, anchor, relation, ids)
    on_gpu()
    found = model.score_candidates(Side.TAIL, anchor, relation, padded)
    real = padded >= 0
    assert_close(found[real], expected[real])


@pytest.mark.parametrize("name", ["transe", "transh", "transd"])
def test_an_entity_of_zeros_is_scored_like_on_the_plain_path(name, on_gpu):
    model = random_model(name, ENTITIES, RELATIONS, 6)
    model.entity[3] = 0
    anchor, relation = queries(2)
    ids = torch.tensor([[3, 1], [2, 3]])
    expected = in_double(model).score_candidates(Side.HEAD, anchor, relation, ids)
    on_gpu()
    assert_close(model.score_candidates(Side.HEAD, anchor, relation, ids), expected)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_no_queries_or_no_candidates_give_no_scores(shape, on_gpu):
    model = random_model("distmult", ENTITIES, RELATIONS)
    on_gpu()
    nothing = torch.zeros(shape, dtype=torch.int64)
    assert model.score_candidates(Side.TAIL, *queries(shape[0]), nothing).shape == shape


# Queries


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("dim", [1, 8, 13, 300])
@pytest.mark.parametrize("name", BILINEAR)
def test_queries_equal_those_of_the_scoring_function(name, dim, side, kernels):
    model = random_model(name, ENTITIES, RELATIONS, dim)
    anchor, relation = queries(5)
    kind = model.scoring.kernel_kind
    tables = model.entity, model.relation
    found = kernels.bilinear_query(*tables, anchor, relation, kind, int(side is Side.TAIL))
    assert_close(found, model.query(side, anchor, relation)[0])


# Gradients


def pairs(count, negatives, seed=3):
    """Return a batch and its negatives: both sides, some entities repeated, some weights zero."""
    rng = seeded(seed)
    ids = [torch.randint(n, (count,), generator=rng) for n in (ENTITIES, RELATIONS, ENTITIES)]
    batch = Batch(torch.arange(count), *ids, torch.zeros(count), torch.zeros(count))
    shape = (count, negatives)
    weight = torch.rand(shape, generator=rng)
    weight[torch.rand(shape, generator=rng) < 0.3] = 0
    weight[0] = 0
    entities = torch.randint(ENTITIES, shape, generator=rng)
    return batch, Negatives(entities, torch.rand(shape, generator=rng) < 0.5, weight)


def gradients_of_the_kernel(kernels, model, batch, negatives, margin):
    """Return loss, scores, and gradient rows of entities and relations."""
    count, k = negatives.entities.shape
    width = model.entity.shape[1]
    out = [torch.full(shape, torch.nan) for shape in (((2 + k) * count, width), (count, width))]
    scores, losses = torch.full((count, k), torch.nan), torch.full((count,), torch.nan)
    kernels.bilinear_gradients(
        model.entity,
        model.relation,
        batch.heads,
        batch.relations,
        batch.tails,
        negatives.entities,
        negatives.replaces_head,
        negatives.weight,
        *out,
        scores,
        losses,
        model.scoring.kernel_kind,
        margin or 0.0,
    )
    return losses.sum(), scores, *out


def gradients_of_a_step(model, batch, negatives, margin):
    """Return the same from the training step: the CPU's kernel, or autograd."""
    step = GradientStep(model, Loss(margin), 0.1, 0.0)
    loss, scores, gradients = step.gradients(batch, negatives)
    return loss, scores, gradients["entity"][1], gradients["relation"][1]


@pytest.mark.parametrize("negatives", [1, 4])
@pytest.mark.parametrize("margin", [None, 2.0])
@pytest.mark.parametrize("dim", [7, 16])
@pytest.mark.parametrize("name", BILINEAR)
def test_gradients_equal_those_of_the_other_paths(
    name, dim, margin, negatives, kernels, monkeypatch
):
    model = random_model(name, ENTITIES, RELATIONS, dim)
    drawn = pairs(9, negatives)
    found = gradients_of_the_kernel(kernels, model, *drawn, margin)
    numba = gradients_of_a_step(model, *drawn, margin)
    monkeypatch.setattr(families, "HAVE_NUMBA", False)
    autograd = gradients_of_a_step(in_double(model), *drawn, margin)
    for mine, fused, plain in zip(found, numba, autograd, strict=True):
        assert_close(mine, fused)
        assert_close(mine, plain)


@pytest.mark.parametrize("name", BILINEAR)
def test_negatives_without_weight_pull_nothing(name, kernels):
    model = random_model(name, ENTITIES, RELATIONS, 5)
    batch, negatives = pairs(4, 3)
    negatives.weight.zero_()
    loss, _, entity_rows, relation_rows = gradients_of_the_kernel(
        kernels, model, batch, negatives, margin=1.0
    )
    assert loss == 0
    assert not entity_rows.any()
    assert not relation_rows.any()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("margin", [None, 1.0])
def test_gradients_of_large_scores_are_finite(margin, kernels):
    model = random_model("distmult", ENTITIES, RELATIONS, 6)
    model.entity *= 20
    drawn = pairs(9, 2)
    found = gradients_of_the_kernel(kernels, model, *drawn, margin)
    numba = gradients_of_a_step(model, *drawn, margin)
    assert numba[1].abs().max() > 100  # exp overflows in float32
    for mine, fused in zip(found, numba, strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, fused, rtol=1e-4, atol=1e-3)
