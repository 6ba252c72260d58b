import math

import pytest
import torch

from nscaching.losses import LossOptions, logistic, margin_ranking
from tests.conftest import seeded


@pytest.fixture(params=[1, 3])
def scores(request):
    rng = seeded(0)
    positive = torch.randn(6, generator=rng)
    negative = torch.randn(6, request.param, generator=rng)
    weight = torch.rand(6, request.param, generator=rng)
    return positive, negative, weight / weight.sum(1, keepdim=True)


def entries(positive, negative, weight):
    for i, row in enumerate(negative.tolist()):
        for j, score in enumerate(row):
            yield positive[i].item(), score, weight[i, j].item()


@pytest.mark.parametrize("margin", [0.3, 1.0, 4.0])
def test_margin_ranking_sums_the_hinge(scores, margin):
    expected = sum(w * max(0.0, margin - pos + neg) for pos, neg, w in entries(*scores))
    assert margin_ranking(*scores, margin).item() == pytest.approx(expected, rel=1e-5)


def test_margin_ranking_is_zero_when_every_negative_is_beaten_by_the_margin():
    loss = margin_ranking(torch.tensor([5.0]), torch.tensor([[1.0]]), torch.ones(1, 1), 4.0)
    assert loss.item() == 0


def test_logistic_sums_both_terms(scores):
    positive, negative, weight = scores
    expected = sum(math.log1p(math.exp(-pos)) for pos in positive.tolist())
    expected += sum(w * math.log1p(math.exp(neg)) for _, neg, w in entries(*scores))
    assert logistic(positive, negative, weight).item() == pytest.approx(expected, rel=1e-5)


def test_logistic_counts_a_positive_once_whatever_the_number_of_negatives():
    positive, negative = torch.tensor([0.7]), torch.tensor([[-0.2]])
    one = logistic(positive, negative, torch.ones(1, 1))
    many = logistic(positive, negative.expand(1, 4), torch.full((1, 4), 0.25))
    torch.testing.assert_close(one, many)


def test_logistic_stays_finite_for_large_scores():
    loss = logistic(torch.tensor([-1e4]), torch.tensor([[1e4]]), torch.ones(1, 1))
    assert loss.item() == pytest.approx(2e4)


@pytest.mark.parametrize("kind", ["margin", "logistic"])
def test_weight_zero_masks_a_negative_and_its_gradient(kind):
    loss = LossOptions(loss=kind).build_loss("margin")
    positive = torch.tensor([0.3, -0.1])
    negative = torch.tensor([[0.5, 9.0], [0.2, -7.0]], requires_grad=True)
    weight = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    value = loss(positive, negative, weight)
    torch.testing.assert_close(value, loss(positive, negative[:, :1], weight[:, :1]))
    (gradient,) = torch.autograd.grad(value, [negative])
    assert (gradient[:, 1] == 0).all()
    assert (gradient[:, 0] != 0).all()


@pytest.mark.parametrize("asked", ["auto", "margin", "logistic"])
@pytest.mark.parametrize("usual", ["margin", "logistic"])
def test_auto_takes_the_usual_loss_and_a_name_overrides_it(scores, asked, usual):
    loss = LossOptions(loss=asked, margin=2.5).build_loss(usual)
    kind = usual if asked == "auto" else asked
    expected = logistic(*scores) if kind == "logistic" else margin_ranking(*scores, 2.5)
    assert torch.equal(loss(*scores), expected)
