"""Matrix products of bfloat16, on processors that have them."""

import pytest
import torch

from nscaching.losses import SoftmaxCrossEntropy
from nscaching.models.match import (
    Query,
    exact_products,
    fast_products,
    multiplies_bfloat16,
    rounded,
)
from nscaching.models.matches import Dot
from tests.conftest import seeded
from tests.training.helpers import SOFTMAX_STATE, bits, go_on, kept_bits, ring, train

CPU = torch.device("cpu")


def questions(count=64, entities=500, width=48):
    random = seeded(0)
    query = Query(torch.randn(count, width, generator=random))
    table = torch.randn(entities, width, generator=random) / 4
    return query, table, torch.randint(entities, (count,), generator=random)


@pytest.mark.usefixtures("bfloat16_products")
def test_the_softmax_is_that_of_float64_within_the_rounding_of_factors():
    query, table, targets = questions()
    found = SoftmaxCrossEntropy().over_all(Dot(), query, table, targets)
    twin = Query(query.vectors.double())
    expected = SoftmaxCrossEntropy().over_all(Dot(), twin, table.double(), targets)
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-3)
    for mine, theirs in ((found[2].query, expected[2].query), (found[2].rows, expected[2].rows)):
        assert mine.dtype == torch.float32
        apart = (mine.double() - theirs).norm() / theirs.norm()
        assert 1e-5 < apart < 1e-2  # rounded, and no more than that


@pytest.mark.usefixtures("bfloat16_products")
def test_only_factors_within_the_block_are_rounded():
    query, table, _ = questions()
    before = query.vectors @ table.T
    with fast_products(CPU):
        assert all(factor.dtype == torch.bfloat16 for factor in rounded(query.vectors, table))
        assert rounded(table.double())[0].dtype == torch.float64
    assert rounded(table)[0] is table
    assert torch.equal(query.vectors @ table.T, before)


@pytest.mark.usefixtures("bfloat16_products")
@pytest.mark.parametrize("sampler", ["all", "nscaching"])
def test_a_run_resumes_to_the_same_bits(tmp_path, sampler):
    options = {**SOFTMAX_STATE, "scoring": "complex", "sampler": sampler, "valid_every": 2}
    train(ring(), out=tmp_path / "R", epochs=4, **options)
    longer = go_on(tmp_path / "R", epochs=6)
    whole = train(ring(), out=tmp_path / "whole", epochs=6, **options)
    assert bits(longer) == bits(whole)
    assert kept_bits(tmp_path / "R") == kept_bits(tmp_path / "whole")


def test_a_variable_keeps_float32(monkeypatch):
    monkeypatch.setenv("NSCACHING_PRODUCTS", "float32")
    multiplies_bfloat16.cache_clear()
    query, table, _ = questions()
    before = query.vectors @ table.T
    with fast_products(CPU):
        assert torch.equal(query.vectors @ table.T, before)


def test_products_are_exact_again_when_the_last_thread_has_left(monkeypatch):
    class Setting:
        allow_tf32 = False

    monkeypatch.setattr(torch.backends.cuda, "matmul", Setting)
    cuda = torch.device("cuda")
    first, second = fast_products(cuda), fast_products(cuda)  # as two trials are interleaved
    first.__enter__()
    second.__enter__()
    with exact_products(cuda):
        assert not Setting.allow_tf32
    assert Setting.allow_tf32
    first.__exit__(None, None, None)
    assert Setting.allow_tf32
    second.__exit__(None, None, None)
    assert not Setting.allow_tf32
