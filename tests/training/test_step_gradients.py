"""The gradients of a whole training step against autograd of the plain definition in float64."""

import pytest
import torch
from torch.nn.functional import cross_entropy, softplus

from nscaching.kernels.registry import PLAIN, forced
from nscaching.losses import Logistic, MarginRanking, SoftmaxCrossEntropy
from nscaching.models import SCORING, EmbeddingModel
from nscaching.sampling import Batch, Candidates
from nscaching.training import step as step_module
from nscaching.training.step import TrainingStep

from ..conftest import device_of, quick_forms, seeded

COUNT, ENTITIES, RELATIONS, DIM = 6, 9, 3, 5
LOSSES = {
    "margin": MarginRanking(1.5),
    "logistic": Logistic(0.4),
    "softmax": SoftmaxCrossEntropy(),
    "smoothed": SoftmaxCrossEntropy(0.1),
}
#: Which questions are asked, of how many candidates.
ONE_SIDE, BOTH_SIDES, ALL_ENTITIES = "one side", "both sides", "all entities"
POOL = "with a pool"
SHAPES = [(loss, shape) for loss in LOSSES for shape in (ONE_SIDE, BOTH_SIDES)]
SHAPES = [case for case in SHAPES if case[0] != "smoothed"]
SHAPES += [("softmax", ALL_ENTITIES), ("smoothed", ALL_ENTITIES), ("softmax", POOL)]
each_kind = pytest.mark.parametrize("reciprocal", [False, True], ids=["one row", "reciprocal"])


class GivenCandidates:
    """A sampler that returns what it was given."""

    def __init__(self, candidates):
        self.candidates = candidates
        self.heard = None

    def sample(self, batch, generator):
        return self.candidates

    def weigh(self, candidates, scores):
        return candidates.all_weights

    def update_jobs(self, batch, queries, generator):
        return []

    def learn(self, batch, candidates, scores, queries):
        self.heard = scores


class Remembering:
    """An optimiser that moves nothing and keeps the gradients as tables."""

    def __init__(self, model, products):
        self.tables = model.state()
        self.gradients = None
        self.products = products

    def is_deferred(self, name):
        return False

    def gradient_table(self, name):
        return None

    def adds_rows_up(self, name):
        return False

    def takes_products(self, name, few):
        return self.products

    def accumulate(self, gradients):
        self.gradients = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        for name, parts in gradients.items():
            for part in parts:
                part.add_to(self.gradients[name])

    def apply(self, gradients):
        pass


def model_of(name, reciprocal, norm=1):
    scoring, random = SCORING[name](DIM, norm), seeded(1)
    rows = RELATIONS * (2 if reciprocal else 1)
    entity = torch.randn(ENTITIES, scoring.entity_width, generator=random)
    relation = torch.randn(rows, scoring.relation_width, generator=random)
    return EmbeddingModel(scoring, entity, relation, reciprocal=reciprocal)


def batch_of():
    random = seeded(2)
    heads, tails = torch.randint(ENTITIES, (2, COUNT), generator=random)
    relations = torch.randint(RELATIONS, (COUNT,), generator=random)
    return Batch(torch.arange(COUNT), heads, relations, tails, heads, tails)


def candidates_of(batch, shape, importance=False):
    """Return four candidates per question, some of them padding, or all entities."""
    random = seeded(3)
    replaces_head = torch.rand(COUNT, generator=random) < 0.5
    if shape != ONE_SIDE:
        replaces_head = torch.tensor([True] * COUNT + [False] * COUNT)
    count = len(replaces_head)
    heads, tails = (ids.repeat(count // COUNT) for ids in (batch.heads, batch.tails))
    targets = torch.where(replaces_head, heads, tails).unsqueeze(1)
    if shape == ALL_ENTITIES:
        weights = torch.empty(count, 0)
        return Candidates(replaces_head, targets, weights, all_entities=True)
    drawn = torch.randint(-1, ENTITIES, (count, 4), generator=random)
    weights = torch.rand(count, 4, generator=random) * (drawn >= 0)
    factor = torch.rand(count, generator=random) if importance else None
    ids = torch.cat([targets, drawn], dim=1)
    if shape == POOL:
        shared = torch.rand(count, 3, generator=random) * (torch.arange(3) < 2)
        pool = torch.tensor([1, 4, 7])
        return Candidates(replaces_head, ids, weights, factor, pool, shared)
    return Candidates(replaces_head, ids, weights, factor)


def each_its_own(candidates):
    """Return the same candidates without a pool that questions share."""
    if candidates.pool is None:
        return candidates
    pool = candidates.pool.expand(len(candidates.ids), -1)
    ids = torch.cat([candidates.ids, pool], dim=1)
    weights = torch.cat([candidates.weights, candidates.pool_weights], dim=1)
    return Candidates(candidates.replaces_head, ids, weights, candidates.importance)


def moved(part, device, dtype):
    """Return a batch or candidates elsewhere, its floats in a precision."""
    parts = {
        name: value.to(device, dtype if value.is_floating_point() else None)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in vars(part).items()
    }
    return type(part)(**parts)


def step_of(model, batch, candidates, loss, device="cpu", products=False, **options):
    """Take a step; return the loss, the scores that the sampler hears, and the gradients."""
    dtype = model.entity.dtype
    model = model.to(torch.device(device))
    sampler = GivenCandidates(moved(candidates, device, dtype))
    optimizer = Remembering(model, products)
    step = TrainingStep(model, sampler, loss, optimizer, seeded(0), **options)
    value = step(moved(batch, device, dtype))
    return value, sampler.heard, optimizer.gradients


def defined_scores(model, entity, relation, batch, candidates):
    """Score every candidate as the triple that it makes, by the scoring function itself."""
    times, scoring = len(candidates.ids) // COUNT, model.scoring
    heads, relations, tails = (
        ids.repeat(times).unsqueeze(1) for ids in (batch.heads, batch.relations, batch.tails)
    )
    ids = candidates.ids.clamp_min(0)
    if candidates.all_entities:
        ids = torch.arange(ENTITIES).expand(len(ids), -1)
    of_tail = scoring.score(entity[heads], relation[relations], entity[ids])
    if model.reciprocal:
        of_head = scoring.score(entity[tails], relation[relations + RELATIONS], entity[ids])
    else:
        of_head = scoring.score(entity[ids], relation[relations], entity[tails])
    scores = torch.where(candidates.replaces_head.unsqueeze(1), of_head, of_tail)
    if candidates.all_entities:
        return scores
    return scores.masked_fill(candidates.ids < 0, -torch.inf)


def defined_losses(loss, scores, candidates):
    """Return the loss of each question. Shape: (q,)."""
    if isinstance(loss, SoftmaxCrossEntropy) and candidates.all_entities:
        options = {"reduction": "none", "label_smoothing": loss.smoothing}
        return cross_entropy(scores, candidates.targets, **options)
    positive, negative, weights = scores[:, :1], scores[:, 1:], candidates.weights.double()
    if isinstance(loss, MarginRanking):
        return (weights * (loss.margin - positive + negative).relu()).sum(1)
    if isinstance(loss, Logistic):
        of_negatives = weights * softplus(negative + loss.offset)
        return softplus(-positive - loss.offset).squeeze(1) + of_negatives.sum(1)
    logits = torch.cat([positive, negative + weights.log()], dim=1)
    return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64), reduction="none")


def by_definition(model, batch, candidates, loss):
    candidates = each_its_own(candidates)
    entity, relation = (table.double().requires_grad_() for table in model.parameters())
    scores = defined_scores(model, entity, relation, batch, candidates)
    losses = defined_losses(loss, scores, candidates)
    factor = 1 if candidates.importance is None else candidates.importance.double()
    gradients = torch.autograd.grad((factor * losses).sum(), [entity, relation])
    if candidates.all_entities:
        scores = scores.gather(1, candidates.targets.unsqueeze(1))
    return losses.sum().detach(), scores.detach(), gradients


def assert_same(found, expected, tolerance):
    value, scores, gradients = found
    for ours, theirs in zip(
        (value, scores, gradients["entity"], gradients["relation"]),
        (*expected[:2], *expected[2]),
        strict=True,
    ):
        torch.testing.assert_close(ours.cpu().double(), theirs, atol=tolerance, rtol=tolerance)


def tolerance_of(form, shape):
    """Return how far a form may be off: matrix products of a GPU round to TF32."""
    rounded = device_of(form) != "cpu" and shape in (ALL_ENTITIES, POOL)
    return 2e-2 if rounded else 2e-4


@each_kind
@pytest.mark.parametrize(("loss", "shape"), SHAPES)
@pytest.mark.parametrize("name", SCORING)
@pytest.mark.parametrize("form", quick_forms())
def test_gradients_of_a_step_are_those_of_the_definition(name, loss, shape, reciprocal, form):
    model, batch = model_of(name, reciprocal), batch_of()
    candidates = candidates_of(batch, shape)
    expected = by_definition(model, batch, candidates, LOSSES[loss])
    with forced(form):
        found = step_of(model, batch, candidates, LOSSES[loss], device_of(form))
    assert_same(found, expected, tolerance_of(form, shape))
    if form == PLAIN:  # once
        double = model.with_tables({name: table.double() for name, table in model.state().items()})
        assert_same(step_of(double, batch, candidates, LOSSES[loss]), expected, 1e-7)


@each_kind
@pytest.mark.parametrize("shape", [ONE_SIDE, BOTH_SIDES])
@pytest.mark.parametrize("name", SCORING)
@pytest.mark.parametrize("form", quick_forms())
def test_gradients_summed_by_entity_are_those_of_the_definition(
    name, shape, reciprocal, form, monkeypatch
):
    """As where a question has many candidates."""
    monkeypatch.setattr(step_module, "SUMMED_FROM", 0)
    model, batch = model_of(name, reciprocal), batch_of()
    candidates, loss = candidates_of(batch, shape), LOSSES["softmax"]
    expected = by_definition(model, batch, candidates, loss)
    with forced(form):
        found = step_of(model, batch, candidates, loss, device_of(form))
    assert_same(found, expected, 2e-4)


@each_kind
@pytest.mark.parametrize("shape", [ONE_SIDE, BOTH_SIDES, POOL])
@pytest.mark.parametrize("name", SCORING)
@pytest.mark.parametrize("form", quick_forms())
def test_gradients_that_stay_products_are_those_of_the_definition(name, shape, reciprocal, form):
    """For an optimiser that adds slopes times queries up by itself."""
    model, batch = model_of(name, reciprocal), batch_of()
    candidates, loss = candidates_of(batch, shape, importance=True), LOSSES["softmax"]
    expected = by_definition(model, batch, candidates, loss)
    with forced(form):
        found = step_of(model, batch, candidates, loss, device_of(form), products=True)
    assert_same(found, expected, 2e-4)
    if form == PLAIN:  # once
        double = model.with_tables({name: table.double() for name, table in model.state().items()})
        assert_same(step_of(double, batch, candidates, loss, products=True), expected, 1e-7)


@pytest.mark.parametrize("shape", [ONE_SIDE, BOTH_SIDES, ALL_ENTITIES, POOL])
@pytest.mark.parametrize("name", ["transe", "transh", "transd"])
@pytest.mark.parametrize("form", quick_forms())
def test_gradients_of_the_second_norm(name, shape, form):
    model, batch = model_of(name, False, norm=2), batch_of()
    candidates = candidates_of(batch, shape)
    loss = SoftmaxCrossEntropy()
    expected = by_definition(model, batch, candidates, loss)
    with forced(form):
        found = step_of(model, batch, candidates, loss, device_of(form))
    assert_same(found, expected, tolerance_of(form, shape))


@pytest.mark.parametrize("loss", ["margin", "logistic", "softmax"])
@pytest.mark.parametrize("shape", [ONE_SIDE, BOTH_SIDES])
def test_importance_is_a_factor_of_the_gradients_of_a_question(shape, loss):
    model, batch = model_of("simple", False), batch_of()
    candidates = candidates_of(batch, shape, importance=True)
    expected = by_definition(model, batch, candidates, LOSSES[loss])
    assert_same(step_of(model, batch, candidates, LOSSES[loss]), expected, 2e-4)


@each_kind
@pytest.mark.parametrize("name", ["complex", "distmult", "quate", "rotate"])
def test_n3_adds_the_gradient_of_the_cubed_norms(name, reciprocal):
    model, batch = model_of(name, reciprocal), batch_of()
    candidates, weight = candidates_of(batch, BOTH_SIDES), 0.3
    _, _, without = step_of(model, batch, candidates, LOSSES["softmax"])
    _, _, found = step_of(model, batch, candidates, LOSSES["softmax"], n3=weight)

    def cubed(rows):
        parts = {"complex": 2, "quate": 4, "rotate": 2}.get(name, 1)
        return (torch.stack(rows.chunk(parts, dim=-1)).square().sum(0) ** 1.5).sum()

    entity, relation = (table.double().requires_grad_() for table in model.parameters())
    second = relation[batch.relations + (RELATIONS if reciprocal else 0)]
    of_entities = 2 * (cubed(entity[batch.heads]) + cubed(entity[batch.tails]))
    of_relations = 0 * relation.sum()
    if name not in ("quate", "rotate"):  # whose relations have unit length
        of_relations = cubed(relation[batch.relations]) + cubed(second)
    expected = torch.autograd.grad(weight * (of_entities + of_relations), [entity, relation])
    for table, gradient in zip(("entity", "relation"), expected, strict=True):
        added = (found[table] - without[table]).double()
        torch.testing.assert_close(added, gradient, atol=1e-4, rtol=1e-4)


@each_kind
@pytest.mark.parametrize("form", quick_forms())
@pytest.mark.parametrize("name", ["complex", "distmult", "simple"])
def test_relation_prediction_adds_the_gradient_of_its_cross_entropy(name, form, reciprocal):
    model, batch = model_of(name, reciprocal), batch_of()
    candidates, weight, loss = candidates_of(batch, BOTH_SIDES), 0.3, LOSSES["softmax"]
    with forced(form):
        given = model, batch, candidates, loss, device_of(form)
        (_, _, without), (_, _, found) = (
            step_of(*given, relation_prediction=each) for each in (0.0, weight)
        )

    entity, relation = (table.double().requires_grad_() for table in model.parameters())
    heads, tails = entity[batch.heads], entity[batch.tails]

    def predicted(anchors, targets, rows):
        scores = [model.scoring.score(anchors, row.expand(COUNT, -1), targets) for row in rows]
        return cross_entropy(torch.stack(scores, dim=1), batch.relations, reduction="sum")

    total = predicted(heads, tails, relation[:RELATIONS])
    if reciprocal:
        total = total + predicted(tails, heads, relation[RELATIONS:])
    expected = torch.autograd.grad(weight * total, [entity, relation])
    for table, gradient in zip(("entity", "relation"), expected, strict=True):
        added, close = (found[table] - without[table]).double().cpu(), tolerance_of(form, POOL)
        torch.testing.assert_close(added, gradient, atol=close, rtol=close)


@pytest.mark.parametrize("name", SCORING)
def test_dropout_of_the_queries_reaches_the_gradients(name):
    """The same mask in both: the gradient of the masked definition."""
    model, batch = model_of(name, False), batch_of()
    tables = {name: table.double() for name, table in model.state().items()}
    candidates, loss, share = candidates_of(batch, BOTH_SIDES), LOSSES["softmax"], 0.4
    double = model.with_tables(tables)
    value, _, gradients = step_of(double, batch, candidates, loss, dropout=share)

    queries = double.queries(batch.heads, batch.relations, batch.tails)
    shape = queries.queries.vectors.shape
    mask = (torch.rand(shape, generator=seeded(0)) >= share) / (1 - share)
    entity, relation = (table.requires_grad_() for table in tables.values())
    anchors, rows = entity[queries.anchors], relation[queries.relation_rows]
    scoring = model.scoring
    heads, tails = (
        scoring.query(anchors[part], rows[part], tail=tail)
        for tail, part in ((False, slice(COUNT)), (True, slice(COUNT, None)))
    )
    vectors = torch.cat([heads.vectors, tails.vectors]) * mask
    context = scoring.context(rows)
    ids = candidates.ids.clamp_min(0)
    views = scoring.match.view(entity[ids], None if context is None else context.unsqueeze(1))
    scores = scoring.match.compare(vectors.unsqueeze(1), views)
    scores = scores.masked_fill(candidates.ids < 0, -torch.inf)
    expected = defined_losses(loss, scores, candidates).sum()
    found = torch.autograd.grad(expected, [entity, relation])
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradients["entity"], found[0])
    torch.testing.assert_close(gradients["relation"], found[1])


@pytest.mark.parametrize("name", ["transe", "transd", "complex"])
@pytest.mark.parametrize(("loss", "shape"), SHAPES)
def test_rejected_facts_add_a_loss_of_their_own(name, loss, shape):
    """The true entity against the rejected ones; questions without any add nothing."""
    model, batch = model_of(name, False), batch_of()
    candidates = candidates_of(batch, shape)
    count = len(candidates.ids)
    refused = torch.full((count, 2), -1)
    refused[::3, 0], refused[3::3, 1] = 4, 7

    class Rejected:
        def of_questions(self, batch, replaces_head):
            return refused

    asked = (refused >= 0).any(1).float()
    ids = torch.cat([candidates.targets.unsqueeze(1), refused], dim=1)
    weights = (refused >= 0).float() * (1 if loss in ("margin", "logistic") else ENTITIES)
    alone = Candidates(candidates.replaces_head, ids, weights, asked)
    plain = by_definition(model, batch, candidates, LOSSES[loss])
    added = step_of(model, batch, alone, LOSSES[loss])[2].values()
    gradients = [one + other for one, other in zip(plain[2], added, strict=True)]
    found = step_of(model, batch, candidates, LOSSES[loss], rejected=Rejected())
    assert_same(found, (*plain[:2], gradients), 2e-4)
