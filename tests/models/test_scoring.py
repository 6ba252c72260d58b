import numpy as np
import pytest
import torch
from nscaching.models.families import Translational

from nscaching.models import SCORING, EmbeddingModel, Side
from nscaching.models import model as model_module
from nscaching.models import rotate as rotate_module
from tests.conftest import on_both_paths, random_model
from tests.models.twins import TWINS, TwinModel

pytestmark = on_both_paths
ENTITIES, RELATIONS = 25, 4
NORMS = [(name, 1) for name in SCORING] + [
    (name, 2) for name, function in SCORING.items() if issubclass(function, Translational)
]
WITH_TWIN = [case for case in NORMS if case[0] in TWINS]
each_function = pytest.mark.parametrize(("name", "norm"), NORMS)
each_twin = pytest.mark.parametrize(("name", "norm"), WITH_TWIN)
each_side = pytest.mark.parametrize("side", list(Side))


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
    return TwinModel(model).scores(h, relation, t)


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours.numpy(), np.asarray(theirs), rtol=1e-5, atol=1e-5)


def everyone(count):
    return torch.arange(ENTITIES).expand(count, -1)


# Against the table of the method


@each_twin
def test_triples_are_scored_as_the_table_says(name, norm):
    model = random_model(name, norm=norm)
    h, r, t = random_ids(40)
    scores = model.scoring.score(model.entity[h], model.relation[r], model.entity[t])
    assert_close(scores, TwinModel(model).scores(h.numpy(), r.numpy(), t.numpy()))


@each_twin
def test_either_query_matched_with_the_missing_entity_gives_the_score(name, norm):
    model = random_model(name, norm=norm)
    f = model.scoring
    h, r, t = random_ids(40)
    head, relation, tail = model.entity[h], model.relation[r], model.entity[t]
    expected = TwinModel(model).scores(h.numpy(), r.numpy(), t.numpy())
    assert_close(f.match(f.tail_query(head, relation), f.view(tail, relation)), expected)
    assert_close(f.match(f.head_query(relation, tail), f.view(head, relation)), expected)


@each_twin
@each_side
def test_own_candidates_are_scored_as_the_table_says(name, norm, side):
    model = random_model(name, norm=norm)
    h, r, t = random_ids(12)
    anchor = t if side is Side.HEAD else h
    candidates = random_candidates(12, 7)
    query, relation = model.query(side, anchor, r)
    scores = model.scoring.score_each(query, relation, model.entity[candidates])
    assert_close(scores, twin_candidates(model, side, anchor, r, candidates))


@each_twin
@each_side
def test_all_entities_are_scored_as_the_table_says_with_mixed_relations(name, norm, side):
    model = random_model(name, norm=norm)
    h, r, t = random_ids(11)
    anchor = t if side is Side.HEAD else h
    query, relation = model.query(side, anchor, r)
    scores = model.scoring.score_all(query, relation, model.entity)
    assert_close(scores, twin_candidates(model, side, anchor, r, everyone(11)))


# A model, addressed by ids


@each_twin
def test_model_scores_triples_of_any_shape(name, norm):
    model = random_model(name, norm=norm)
    h, r, t = (ids.view(3, 4) for ids in random_ids(12))
    assert_close(model.score(h, r, t), TwinModel(model).scores(h.numpy(), r.numpy(), t.numpy()))


@each_twin
@each_side
@pytest.mark.parametrize("block_floats", [1, 150, 1 << 19])
def test_model_scores_candidates_in_blocks_of_any_size(monkeypatch, name, norm, side, block_floats):
    monkeypatch.setitem(model_module._BLOCK_FLOATS, "cpu", block_floats)
    model = random_model(name, norm=norm)
    for count, k in ((9, 3), (4, 6), (1, 1), (13, 5)):  # the kept buffer shrinks and grows
        h, r, t = random_ids(count)
        anchor = t if side is Side.HEAD else h
        candidates = random_candidates(count, k)
        scores = model.score_candidates(side, anchor, r, candidates)
        assert_close(scores, twin_candidates(model, side, anchor, r, candidates))


@each_twin
@each_side
def test_model_scores_all_entities(name, norm, side):
    model = random_model(name, norm=norm)
    h, r, t = random_ids(6)
    anchor = t if side is Side.HEAD else h
    scores = model.score_all(side, anchor, r)
    assert_close(scores, twin_candidates(model, side, anchor, r, everyone(6)))


@pytest.mark.parametrize("block_floats", [1, 7, 90])
def test_rotate_scores_all_entities_in_blocks_of_any_size(monkeypatch, block_floats):
    model = random_model("rotate")
    h, r, _ = random_ids(6)
    whole = model.score_all(Side.TAIL, h, r)
    monkeypatch.setattr(rotate_module, "_BLOCK_FLOATS", block_floats)
    torch.testing.assert_close(model.score_all(Side.TAIL, h, r), whole)


@each_function
@each_side
def test_the_forms_agree(name, norm, side):
    """A function new in the registry is held to this without a twin of its own."""
    model = random_model(name, norm=norm)
    h, r, t = random_ids(10)
    anchor = t if side is Side.HEAD else h
    every = everyone(10)
    fixed, relation = anchor.unsqueeze(1).expand_as(every), r.unsqueeze(1).expand_as(every)
    triples = (every, relation, fixed) if side is Side.HEAD else (fixed, relation, every)
    one_by_one = model.score(*triples)
    torch.testing.assert_close(model.score_all(side, anchor, r), one_by_one, rtol=1e-5, atol=1e-5)
    candidates = model.score_candidates(side, anchor, r, every)
    torch.testing.assert_close(candidates, one_by_one, rtol=1e-5, atol=1e-5)


def test_no_query_gives_no_score():
    model = random_model("transh")
    none = torch.zeros(0, dtype=torch.long)
    assert model.score(none, none, none).shape == (0,)
    assert model.score_all(Side.TAIL, none, none).shape == (0, ENTITIES)
    assert model.score_candidates(Side.TAIL, none, none, none.view(0, 3)).shape == (0, 3)


def test_no_candidate_gives_no_score():
    h, r, _ = random_ids(4)
    candidates = torch.zeros(4, 0, dtype=torch.long)
    scores = random_model("transh").score_candidates(Side.TAIL, h, r, candidates)
    assert scores.shape == (4, 0)


@pytest.mark.parametrize("name", ["transe", "transh", "transd"])
def test_length_of_an_entity_vector_does_not_change_translational_scores(name):
    model = random_model(name)
    h, r, t = random_ids(20)
    before = model.score(h, r, t)
    model.entity[:, : model.scoring.dim] *= 3
    torch.testing.assert_close(model.score(h, r, t), before)


def test_length_of_the_normal_does_not_change_transh():
    model = random_model("transh")
    h, r, t = random_ids(20)
    before = model.score(h, r, t)
    model.relation[:, model.scoring.dim :] *= 3
    torch.testing.assert_close(model.score(h, r, t), before)


# Gradients


def gradients_of_trained_forms(f, h, r, t):
    """Yield the gradients of the forms that a loss is taken of, for one triple of rows."""
    forms = {
        "score": lambda h, r, t: f.score(h, r, t),
        "each tail": lambda h, r, t: f.score_each(f.tail_query(h, r), r, t.unsqueeze(1)),
        "each head": lambda h, r, t: f.score_each(f.head_query(r, t), r, h.unsqueeze(1)),
    }
    for form, score in forms.items():
        rows = [row.clone().requires_grad_() for row in (h, r, t)]
        yield form, torch.autograd.grad(score(*rows).sum(), rows, allow_unused=True)


def assert_finite(gradients):
    for form, parts in gradients:
        for part in parts:
            assert part is None or bool(part.isfinite().all()), form


@each_function
def test_gradients_are_finite_where_the_query_meets_the_entity(name, norm):
    f = SCORING[name](4, norm)
    h = torch.randn(1, f.entity_width, generator=torch.Generator().manual_seed(3))
    r = torch.randn(1, f.relation_width, generator=torch.Generator().manual_seed(4))
    r[:, : f.dim] = 0  # no translation, no rotation
    if f.usual_loss == "margin":
        assert f.score(h, r, h).item() == 0
    assert_finite(gradients_of_trained_forms(f, h, r, h))


@each_function
def test_gradients_are_finite_for_rows_of_zeros(name, norm):
    f = SCORING[name](4, norm)
    h, r = torch.zeros(1, f.entity_width), torch.zeros(1, f.relation_width)
    assert_finite(gradients_of_trained_forms(f, h, r, h))


@each_function
def test_gradients_of_the_forms_agree(name, norm):
    f = SCORING[name](4, norm)
    rng = torch.Generator().manual_seed(5)
    h, t = torch.randn(2, 1, f.entity_width, generator=rng)
    r = torch.randn(1, f.relation_width, generator=rng)
    (_, first), *others = gradients_of_trained_forms(f, h, r, t)
    for _, gradients in others:
        torch.testing.assert_close(gradients, first, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(SCORING))
def test_gradients_reach_the_entities_that_all_queries_are_matched_with(name):
    model = random_model(name)
    h, r, _ = random_ids(4)
    query, relation = model.query(Side.TAIL, h, r)
    views = model.scoring.view(model.entity, relation[0]).detach().requires_grad_()
    scores = model.scoring.match_all(query, views)
    (gradient,) = torch.autograd.grad(scores.sum(), [views])
    assert gradient.isfinite().all()


@each_side
def test_model_scores_candidates_and_all_without_gradient(side):
    model = random_model("distmult")
    model.entity.requires_grad_()
    h, r, _ = random_ids(3)
    assert not model.score_candidates(side, h, r, random_candidates(3, 2)).requires_grad
    assert not model.score_all(side, h, r).requires_grad
    assert model.score(h, r, h).requires_grad


# Registry, widths


def test_the_seven_functions_are_registered_under_their_names():
    assert set(TWINS) <= set(SCORING)
    assert all(name == function.name for name, function in SCORING.items())


@pytest.mark.parametrize(
    ("name", "entity_parts", "relation_parts"),
    [
        ("transe", 1, 1),
        ("transh", 1, 2),
        ("transd", 2, 2),
        ("distmult", 1, 1),
        ("complex", 2, 2),
        ("simple", 2, 2),
        ("rotate", 2, 1),
    ],
)
def test_widths_are_those_of_the_table(name, entity_parts, relation_parts):
    f = SCORING[name](7)
    assert (f.entity_width, f.relation_width) == (7 * entity_parts, 7 * relation_parts)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("transe", "margin"),
        ("transh", "margin"),
        ("transd", "margin"),
        ("rotate", "margin"),
        ("distmult", "logistic"),
        ("complex", "logistic"),
        ("simple", "logistic"),
    ],
)
def test_usual_loss_is_that_of_the_family(name, loss):
    assert SCORING[name].usual_loss == loss


@pytest.mark.parametrize("name", list(SCORING))
def test_dimension_one_works(name):
    model = random_model(name, dim=1)
    h, r, t = random_ids(5)
    assert model.score(h, r, t).isfinite().all()
    assert model.score_all(Side.HEAD, t, r).shape == (5, ENTITIES)


def test_state_holds_the_live_tables():
    model = random_model("simple")
    assert model.state()["entity"] is model.entity
    assert model.state()["relation"] is model.relation
    rebuilt = EmbeddingModel(model.scoring, **model.state())
    h, r, t = random_ids(5)
    assert torch.equal(rebuilt.score(h, r, t), model.score(h, r, t))
