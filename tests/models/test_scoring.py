"""Scoring functions against slow twins, in every form and with every kind of kernel."""

import numpy as np
import pytest
import torch

from nscaching.kernels.registry import forced
from nscaching.models import SCORING, EmbeddingModel, Side, match
from nscaching.models.matches import Distance

from ..conftest import device_of, kernel_forms, random_model
from .twins import TWINS, TwinModel

ENTITIES, RELATIONS = 25, 4
NORMS = [(name, 1) for name in SCORING] + [
    (name, 2) for name, function in SCORING.items() if isinstance(function(1).match, Distance)
]
each_function = pytest.mark.parametrize(("name", "norm"), NORMS)
each_name = pytest.mark.parametrize("name", list(SCORING))
each_side = pytest.mark.parametrize("side", list(Side))
each_kind = pytest.mark.parametrize("reciprocal", [False, True], ids=["one row", "reciprocal"])


@pytest.fixture(params=kernel_forms())
def form(request):
    """Run a test with the kernels of each form."""
    with forced(request.param):
        yield request.param


def model_of(name, norm=1, reciprocal=False, dim=5):
    model = random_model(name, ENTITIES, RELATIONS * (1 + reciprocal), dim, norm)
    return EmbeddingModel(model.scoring, *model.parameters(), reciprocal=reciprocal)


def random_ids(count, seed=1):
    """Draw heads, relations and tails; the relations are mixed within the batch."""
    rng = np.random.default_rng(seed)
    h, t = rng.integers(ENTITIES, size=(2, count))
    r = rng.permutation(np.arange(count) % RELATIONS)
    return tuple(torch.from_numpy(ids) for ids in (h, r, t))


def random_candidates(count, k, seed=2):
    return torch.from_numpy(np.random.default_rng(seed).integers(ENTITIES, size=(count, k)))


def twin_candidates(model, side, anchor, relation, candidates):
    anchor, relation = anchor.unsqueeze(1).numpy(), relation.unsqueeze(1).numpy()
    candidates = candidates.numpy()
    h, t = (candidates, anchor) if side is Side.HEAD else (anchor, candidates)
    return TwinModel(model).scores(h, relation, t, side)


def assert_close(ours, theirs, tolerance=1e-5):
    given = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(ours.cpu().numpy(), np.asarray(theirs), **given)


def everyone(count):
    return torch.arange(ENTITIES).expand(count, -1)


# Against the table of the method -----------------------------------------------------------------


@each_kind
@each_function
def test_triples_of_any_shape_are_scored_as_the_table_says(name, norm, reciprocal):
    model = model_of(name, norm, reciprocal)
    h, r, t = (ids.view(3, 8) for ids in random_ids(24))
    assert_close(model.score(h, r, t), TwinModel(model).scores(h.numpy(), r.numpy(), t.numpy()))


@each_kind
@each_side
@each_function
def test_candidates_all_entities_and_pools_are_scored_as_the_table_says(
    name, norm, side, reciprocal, form
):
    model = model_of(name, norm, reciprocal)
    h, r, t = random_ids(6)
    anchor = t if side is Side.HEAD else h
    expected = twin_candidates(model, side, anchor, r, everyone(6))
    own, pool = random_candidates(6, 5), torch.tensor([3, 20, 4])
    device = torch.device(device_of(form))
    model = model.to(device)
    anchor, r = anchor.to(device), r.to(device)
    assert_close(model.score_all(side, anchor, r), expected)
    found = model.score_candidates(side, anchor, r, own.to(device))
    assert_close(found, np.take_along_axis(expected, own.numpy(), axis=1))
    pooled = model.score_pool(model.query(side, anchor, r), pool.to(device))
    rounded = 2e-2 if pooled.is_cuda else 1e-5  # TF32: factors of three digits
    assert_close(pooled, expected[:, pool.numpy()], rounded)


@each_function
def test_either_query_compared_with_the_missing_entity_gives_the_score(name, norm):
    model = model_of(name, norm)
    f = model.scoring
    h, r, t = random_ids(40)
    head, relation, tail = model.entity[h], model.relation[r], model.entity[t]
    expected = TwinModel(model).scores(h.numpy(), r.numpy(), t.numpy())
    for query, entity in (
        (f.query(head, relation, tail=True), tail),
        (f.query(tail, relation, tail=False), head),
    ):
        assert_close(f.match.compare(query.vectors, f.match.view(entity, query.context)), expected)


@each_side
@each_name
@pytest.mark.parametrize("block_floats", [1, 150])
def test_all_entities_are_scored_in_blocks_of_any_size(monkeypatch, name, side, block_floats):
    model = model_of(name)
    h, r, _ = random_ids(6)
    with forced("plain"):
        whole = model.score_all(side, h, r)
        monkeypatch.setitem(match._BLOCK_FLOATS, "cpu", block_floats)
        torch.testing.assert_close(model.score_all(side, h, r), whole)


# Edges -------------------------------------------------------------------------------------------


@each_name
def test_no_query_and_no_candidate_give_no_score(name, form):
    device = torch.device(device_of(form))
    model = model_of(name).to(device)
    none = torch.zeros(0, dtype=torch.long, device=device)
    assert model.score(none, none, none).shape == (0,)
    assert model.score_all(Side.TAIL, none, none).shape == (0, ENTITIES)
    assert model.score_candidates(Side.TAIL, none, none, none.view(0, 3)).shape == (0, 3)
    h, r, _ = (ids.to(device) for ids in random_ids(4))
    assert model.score_candidates(Side.TAIL, h, r, none.view(4, 0)).shape == (4, 0)


@each_name
def test_dimension_one_works(name):
    model = model_of(name, dim=1)
    h, r, t = random_ids(5)
    assert model.score(h, r, t).isfinite().all()
    assert model.score_all(Side.HEAD, t, r).shape == (5, ENTITIES)


@each_side
@each_name
def test_scores_have_no_gradient(name, side):
    model = model_of(name)
    model.entity.requires_grad_()
    h, r, _ = random_ids(3)
    assert not model.score_candidates(side, h, r, random_candidates(3, 2)).requires_grad
    assert not model.score_all(side, h, r).requires_grad
    assert not model.score(h, r, h).requires_grad


@pytest.mark.parametrize("name", ["transe", "transh", "transd"])
def test_length_of_an_entity_vector_does_not_change_translational_scores(name):
    model = model_of(name)
    h, r, t = random_ids(20)
    before = model.score(h, r, t)
    model.entity[:, : model.scoring.dim] *= 3
    torch.testing.assert_close(model.score(h, r, t), before)


def test_length_of_the_normal_does_not_change_transh():
    model = model_of("transh")
    h, r, t = random_ids(20)
    before = model.score(h, r, t)
    model.relation[:, model.scoring.dim :] *= 3
    torch.testing.assert_close(model.score(h, r, t), before)


def test_length_of_a_relation_does_not_change_quate():
    model = model_of("quate")
    h, r, t = random_ids(20)
    before = model.score(h, r, t)
    model.relation *= 3
    torch.testing.assert_close(model.score(h, r, t), before)


@pytest.mark.parametrize(("name", "table"), [("transe", "entity"), ("quate", "relation")])
def test_without_normalising_the_length_counts(name, table):
    model = model_of(name)
    model.scoring = type(model.scoring)(model.scoring.dim, normalize=False)
    h, r, t = random_ids(20)
    before = model.score(h, r, t)
    getattr(model, table).mul_(3)
    assert not torch.allclose(model.score(h, r, t), before)
    if name == "quate":  # bilinear: three times the relation is three times the score
        torch.testing.assert_close(model.score(h, r, t), 3 * before)


# Gradients of the queries ------------------------------------------------------------------------


def gradients_of_forms(f, h, r, t):
    """Yield the gradients of a triple's score, and as the answer to either question."""
    forms = {
        "score": lambda h, r, t: f.score(h, r, t),
        "tail": lambda h, r, t: f.match.compare(f.tail_query(h, r), f.match.view(t, f.context(r))),
        "head": lambda h, r, t: f.match.compare(f.head_query(r, t), f.match.view(h, f.context(r))),
    }
    for form, score in forms.items():
        rows = [row.clone().requires_grad_() for row in (h, r, t)]
        yield form, torch.autograd.grad(score(*rows).sum(), rows)


def assert_finite(gradients):
    for form, parts in gradients:
        assert all(bool(part.isfinite().all()) for part in parts), form


@each_function
def test_gradients_are_finite_where_the_query_meets_the_entity(name, norm):
    f = SCORING[name](4, norm)
    h = torch.randn(1, f.entity_width, generator=torch.Generator().manual_seed(3))
    r = torch.randn(1, f.relation_width, generator=torch.Generator().manual_seed(4))
    r[:, : f.dim] = 0  # no translation, no rotation
    if f.usual_loss == "margin":
        assert f.score(h, r, h).item() == 0
    assert_finite(gradients_of_forms(f, h, r, h))


@each_function
def test_gradients_are_finite_for_rows_of_zeros(name, norm):
    f = SCORING[name](4, norm)
    h, r = torch.zeros(1, f.entity_width), torch.zeros(1, f.relation_width)
    assert_finite(gradients_of_forms(f, h, r, h))


@each_function
def test_gradients_of_the_forms_agree(name, norm):
    f = SCORING[name](4, norm)
    rng = torch.Generator().manual_seed(5)
    h, t = torch.randn(2, 1, f.entity_width, generator=rng, dtype=torch.float64)
    r = torch.randn(1, f.relation_width, generator=rng, dtype=torch.float64)
    (_, first), *others = gradients_of_forms(f, h, r, t)
    for _, gradients in others:
        torch.testing.assert_close(gradients, first)


# Registry, widths --------------------------------------------------------------------------------


def test_every_function_has_a_twin_and_its_own_name():
    assert set(TWINS) == set(SCORING)
    assert all(name == function.name for name, function in SCORING.items())


@pytest.mark.parametrize(
    ("name", "entity_parts", "relation_parts", "loss"),
    [
        ("transe", 1, 1, "margin"),
        ("transh", 1, 2, "margin"),
        ("transd", 2, 2, "margin"),
        ("rotate", 2, 1, "margin"),
        ("distmult", 1, 1, "logistic"),
        ("complex", 2, 2, "logistic"),
        ("simple", 2, 2, "logistic"),
        ("quate", 4, 4, "logistic"),
    ],
)
def test_widths_and_usual_losses_are_those_of_the_table(name, entity_parts, relation_parts, loss):
    f = SCORING[name](7)
    assert (f.entity_width, f.relation_width) == (7 * entity_parts, 7 * relation_parts)
    assert f.usual_loss == loss


@each_kind
def test_state_holds_the_live_tables(reciprocal):
    model = model_of("simple", reciprocal=reciprocal)
    assert model.state()["entity"] is model.entity
    assert model.state()["relation"] is model.relation
    assert (model.num_entities, model.num_relations) == (ENTITIES, RELATIONS)
    rebuilt = model.with_tables(model.state())
    h, r, t = random_ids(5)
    assert torch.equal(rebuilt.score(h, r, t), model.score(h, r, t))
