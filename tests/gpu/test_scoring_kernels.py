"""Scores and queries of the Triton kernels against the CPU's and the plain path."""

import pytest
import torch

from nscaching.models import SCORING, Side, families, rotate
from tests.conftest import random_model, seeded
from tests.models.pairs import ENTITIES, FUNCTIONS, RELATIONS, in_double

ROOM = "models"
BILINEAR = ("distmult", "complex", "simple")


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


# All pairs


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(("name", "norm"), FUNCTIONS)
def test_scores_of_all_entities_equal_those_of_the_plain_path(name, norm, side, on_gpu):
    model = random_model(name, 130, RELATIONS, 7, norm)  # two whole tiles and a part
    rng = seeded(1)
    anchor, relation = (torch.randint(size, (70,), generator=rng) for size in (130, RELATIONS))
    plain = in_double(model).score_all(side, anchor, relation)
    on_gpu()
    assert_close(model.score_all(side, anchor, relation), plain)


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
