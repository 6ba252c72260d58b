"""Losses against their formulas, their gradients against autograd, in double precision."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, softplus

from nscaching import losses
from nscaching.losses import (
    LOSSES,
    Logistic,
    LossOptions,
    MarginRanking,
    SoftmaxCrossEntropy,
)
from nscaching.models.match import (
    HYPERPLANE,
    PROJECTION,
    Query,
    aligned,
    plain_forward,
    with_room,
)
from nscaching.models.matches import Distance, Dot, Modulus

from .conftest import seeded

EVERY = {
    "margin": MarginRanking(1.3),
    "logistic": Logistic(),
    "logistic with an offset": Logistic(0.7),
    "softmax": SoftmaxCrossEntropy(),
    "smoothed softmax": SoftmaxCrossEntropy(0.2),
}
each_loss = pytest.mark.parametrize("loss", EVERY.values(), ids=EVERY)


@pytest.fixture(params=[1, 3])
def scores(request):
    """Scores of six positives and of their negatives, and the weights of those."""
    found = torch.randn(6, 1 + request.param, generator=seeded(0), dtype=torch.float64)
    weights = torch.rand(6, request.param, generator=seeded(1), dtype=torch.float64)
    return found, weights / weights.sum(1, keepdim=True)


def defined(loss, scores, weights):
    """Return the loss as its formula says, by operations that autograd knows."""
    positive, negative = scores[:, :1], scores[:, 1:]
    if isinstance(loss, MarginRanking):
        return (weights * (loss.margin - positive + negative).relu()).sum()
    if isinstance(loss, Logistic):
        of_negatives = weights * softplus(negative + loss.offset)
        return softplus(-positive - loss.offset).sum() + of_negatives.sum()
    counts = torch.cat([torch.ones_like(positive), weights], dim=1)
    logits = (scores + counts.log()).log_softmax(1) - counts.log()  # of each entity
    spread = counts / counts.sum(1, keepdim=True)
    target = loss.smoothing * spread
    target[:, 0] += 1 - loss.smoothing
    return -(target * logits).sum()


@each_loss
def test_losses_and_gradients_are_those_of_the_formula(loss, scores):
    found, weights = scores
    leaf = found.clone().requires_grad_()
    expected = defined(loss, leaf, weights)
    (gradient,) = torch.autograd.grad(expected, leaf)
    value, d_scores = loss(found.clone(), weights)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(d_scores, gradient)


@each_loss
def test_scores_are_not_changed(loss, scores):
    found, weights = (part.clone() for part in scores)
    loss(found, weights)
    assert torch.equal(found, scores[0])
    assert torch.equal(weights, scores[1])


@each_loss
@pytest.mark.parametrize("weight", [0.0, 1.0], ids=["no weight", "weight"])
def test_padding_adds_nothing(loss, weight, scores):
    found, weights = scores
    padded = torch.cat([found, torch.full((6, 2), -math.inf, dtype=torch.float64)], dim=1)
    value, d_scores = loss(
        padded, torch.cat([weights, torch.full((6, 2), weight, dtype=torch.float64)], dim=1)
    )
    expected, gradient = loss(found, weights)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(d_scores[:, :-2], gradient)
    assert not d_scores[:, -2:].any()


@each_loss
def test_a_negative_without_weight_adds_nothing(loss, scores):
    found, weights = scores
    more = torch.cat([found, torch.randn(6, 1, generator=seeded(2), dtype=torch.float64)], dim=1)
    value, d_scores = loss(more, torch.cat([weights, torch.zeros_like(weights[:, :1])], dim=1))
    expected, gradient = loss(found, weights)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(d_scores[:, :-1], gradient)
    assert not d_scores[:, -1].any()


@each_loss
def test_a_positive_whose_negatives_are_all_padding_has_a_finite_loss(loss):
    scores = torch.tensor([[0.4, -math.inf, -math.inf]])
    for weights in (torch.zeros(1, 2), torch.full((1, 2), 0.5)):
        value, d_scores = loss(scores.clone(), weights)
        assert value.isfinite()
        assert d_scores.isfinite().all()
        assert not d_scores[:, 1:].any()


@each_loss
def test_large_scores_stay_finite(loss):
    value, d_scores = loss(torch.tensor([[-1e4, 1e4], [1e4, -1e4]]), torch.ones(2, 1))
    assert 1e4 - 10 < float(value) < 3e4
    assert d_scores.isfinite().all()


def test_margin_is_zero_when_every_negative_is_beaten_by_the_margin():
    value, d_scores = MarginRanking(4.0)(torch.tensor([[5.0, 1.0]]), torch.ones(1, 1))
    assert value == 0
    assert not d_scores.any()


def test_logistic_counts_a_positive_once_whatever_the_number_of_negatives():
    one, _ = Logistic()(torch.tensor([[0.7, -0.2]]), torch.ones(1, 1))
    many, _ = Logistic()(torch.tensor([[0.7, -0.2, -0.2, -0.2, -0.2]]), torch.full((1, 4), 0.25))
    torch.testing.assert_close(one, many)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_candidate_that_stands_for_three_entities_counts_three_times(smoothing):
    loss = SoftmaxCrossEntropy(smoothing)
    value, d_scores = loss(torch.tensor([[0.3, 0.9]]), torch.tensor([[3.0]]))
    expected, gradient = loss(torch.tensor([[0.3, 0.9, 0.9, 0.9]]), torch.ones(1, 3))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(d_scores[:, 1], gradient[:, 1:].sum(1))


# All entities ------------------------------------------------------------------------------------


ENTITIES = 11
MATCHES = {
    "dot": Dot(),
    "distance": Distance(1),
    "hyperplane": Distance(2, HYPERPLANE),
    "projection": Distance(1, PROJECTION),
    "modulus": Modulus(),
}


def questions(match, count=6, width=4):
    random = seeded(3)
    rows = 2 * width if match.view_kind == PROJECTION else width
    table = torch.randn(ENTITIES, rows, generator=random, dtype=torch.float64)
    vectors, context = torch.randn(2, count, width, generator=random, dtype=torch.float64)
    context[1] = context[0]
    targets = torch.randint(ENTITIES, (count,), generator=random)
    return Query(vectors, context if match.relational_view else None), table, targets


@pytest.mark.parametrize("entities_of_a_block", [1, 4, 5, ENTITIES, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", MATCHES)
def test_over_all_is_the_dense_softmax(name, smoothing, entities_of_a_block, monkeypatch):
    match = MATCHES[name]
    query, table, targets = questions(match)
    monkeypatch.setattr(losses, "LOGIT_BYTES", 4 * len(targets) * entities_of_a_block)

    leaves = [part.clone().requires_grad_() for part in (*query, table) if part is not None]
    leaf_query = Query(leaves[0], leaves[1] if match.relational_view else None)
    everyone = torch.arange(ENTITIES).expand(len(targets), -1)
    logits = plain_forward(match, leaf_query, leaves[-1], everyone)
    expected = cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    gradients = torch.autograd.grad(expected, leaves)

    loss, positive, found = SoftmaxCrossEntropy(smoothing).over_all(match, query, table, targets)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(positive, logits.detach().gather(1, targets.unsqueeze(1)))
    ours = [part for part in found if part is not None]
    for mine, theirs in zip(ours, gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("room", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rows_that_fast_products_add_do_not_count(smoothing, room, monkeypatch):
    """As on a GPU, whatever stands behind the table in its memory."""
    query, table, targets = questions(Dot())
    loss = SoftmaxCrossEntropy(smoothing)
    expected = loss.over_all(Dot(), query, table, targets)
    assert len(table) % 8
    if room:
        table = with_room(table, table.device)
        behind = aligned(table)
        assert behind.data_ptr() == table.data_ptr()
        behind[len(table) :] = 7.0
    assert len(aligned(table)) % 8 == 0
    monkeypatch.setattr(losses, "_aligned", lambda match, rows: aligned(rows))
    found = loss.over_all(Dot(), query, table, targets)
    for mine, theirs in zip((*found[:2], *found[2]), (*expected[:2], *expected[2]), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sampled_softmax_with_every_entity_is_that_over_all(smoothing):
    """Each other entity once, with a weight of one."""
    match = Dot()
    query, table, targets = questions(match)
    others = [[e for e in range(ENTITIES) if e != int(target)] for target in targets]
    ids = torch.cat([targets.unsqueeze(1), torch.tensor(others)], dim=1)
    scores = match.forward(query, table, ids)
    loss = SoftmaxCrossEntropy(smoothing)
    value, d_scores = loss(scores, torch.ones_like(scores[:, 1:]))
    found = match.backward(query, table, ids, d_scores)
    expected, _, gradients = loss.over_all(match, query, table, targets)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(found.query, gradients.query)
    d_table = torch.zeros_like(table).index_add_(0, ids.flatten(), found.rows)
    torch.testing.assert_close(d_table, gradients.rows)


# Options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["auto", *LOSSES])
@pytest.mark.parametrize("usual", ["margin", "logistic"])
def test_auto_takes_the_usual_loss_and_a_name_overrides_it(asked, usual):
    options = LossOptions(loss=asked, margin=2.5, offset=0.5, label_smoothing=0.1)
    expected = {
        "margin": MarginRanking(2.5),
        "logistic": Logistic(0.5),
        "softmax": SoftmaxCrossEntropy(0.1),
    }
    assert options.build_loss(usual) == expected[usual if asked == "auto" else asked]


@pytest.mark.parametrize(
    ("options", "penalty"),
    [
        ({}, 0.1),
        ({"loss": "logistic"}, 0.1),
        ({"loss": "margin"}, 0.0),
        ({"loss": "softmax"}, 0.0),
        ({"loss": "softmax", "l2": 0.3}, 0.3),
        ({"l2": 0.0}, 0.0),
    ],
)
def test_the_usual_penalty_goes_with_the_logistic_loss(options, penalty):
    assert LossOptions(**options).penalty(0.1, "logistic") == penalty


def test_weights_that_all_questions_share_may_be_given_once():
    scores = torch.randn(4, 6, generator=seeded(0))
    shared = torch.tensor([[1.0, 3.0, 0.0, 2.0, 5.0]])
    loss = SoftmaxCrossEntropy()
    for found, expected in zip(
        loss(scores, shared), loss(scores, shared.repeat(4, 1)), strict=True
    ):
        assert found.equal(expected)
