"""Sampling from and renewing cache rows by the Triton kernels against the plain path."""

import pytest
import torch
from nscaching.sampling.hashing import new_seed

from nscaching.models import Side
from nscaching.sampling import cache as cache_module
from nscaching.sampling import uniform_cpu
from nscaching.sampling.cache import HARDEST, PADDING, QUANTILE, RAW, UNIFORM, Cache
from nscaching.sampling.known import KnownAnswers
from tests.conftest import assert_follows, graph_of, random_graph, seeded
from tests.sampling.helpers import CPU, batch_of, sampler_of

ROOM = "sampling"
INF = float("inf")
#: Every weighting: temperature, rescaling, and what the kernels call it.
WEIGHTINGS = {
    "uniform": (0.0, "quantile", UNIFORM),
    "raw": (1.5, "none", RAW),
    "quantile": (3.0, "quantile", QUANTILE),
    "hardest": (INF, "quantile", HARDEST),
}
by_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS)
ENTITIES = 12


def crowded_graph():
    """Make a graph whose pairs have many answers: one has all entities, one all but three."""
    crowded = [(0, 0, t) for t in range(ENTITIES)] + [(1, 0, t) for t in range(ENTITIES - 3)]
    others = random_graph(ENTITIES, relations=2, train=70, held_out=0).train.tolist()
    return graph_of(crowded + [triple for triple in others if triple[:2] not in ([0, 0], [1, 0])])


def known_tails(graph):
    return KnownAnswers(graph.rows.tail, graph.num_entities, CPU)


class Rows:
    """Scores by row and entity, and a cache that the plain path renews beside one of the kernels'.

    The scores of padding are not numbers: nothing may come of them.
    """

    def __init__(self, count, size, entities, weighting, known=None):
        self.alpha, rescaling, self.weighting = WEIGHTINGS[weighting]
        self.known, self.entities = known, entities
        self.table = torch.randn(count, entities, generator=seeded(5))
        self.kernel = Cache(count, size, entities, rescaling, CPU)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cache_module, "HAVE_NUMBA", False)
            self.plain = Cache(count, size, entities, rescaling, CPU)
        self.plain.fill(known.contains if known else None, seeded(6))
        self.kernel.ids.copy_(self.plain.ids)
        self.owner = torch.zeros(count, dtype=torch.int32)

    def score(self, rows):
        def of(ids):
            scores = self.table[rows].gather(1, ids.clamp_min(0))
            return scores.masked_fill(ids == PADDING, torch.nan)

        return of

    def renew_plainly(self, rows, count, seed):
        """Renew each row of the batch once on the plain path."""
        rows = torch.unique(rows)
        score = self.score(rows)
        self.plain.renew(rows, count, self.known, score, self.alpha, seed)

    def renew_by(self, kernels, rows, count, seed, claim=None):
        """Renew them by the kernels, as ``Cache.renew`` does; return what was offered."""
        cache = self.kernel
        (claim or kernels.claim)(self.owner, rows)
        offered = kernels.offer(cache.ids, self.owner, rows, count, self.entities, seed, self.known)
        scores = self.score(rows)(offered)
        alpha, weighting = cache.weighting(self.alpha)
        assert weighting == self.weighting
        parts = cache.ids, cache.scores, self.owner, rows, offered, scores
        kernels.renew(*parts, alpha, weighting, seed)
        return offered

    def assert_same(self):
        assert torch.equal(self.kernel.ids, self.plain.ids)
        assert torch.equal(self.kernel.scores, self.plain.scores)


def seeds():
    """Return seeds of both signs, as large as they come."""
    return torch.tensor([-(1 << 62) - 12345, 7, (1 << 63) - 5, -1]).split(1)


def renew_both(kernels, rows, batches, count):
    """Renew batches of rows on both paths, each with its own seed, and compare after each."""
    for batch, seed in zip(batches, seeds(), strict=False):
        before = rows.kernel.ids.clone()
        rows.renew_by(kernels, batch, count, seed)
        rows.renew_plainly(batch, count, seed)
        rows.assert_same()
        idle = torch.ones(len(before), dtype=torch.bool)
        idle[batch] = False
        assert torch.equal(rows.kernel.ids[idle], before[idle])


# Sampling


@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("size", [1, 5, 8])
def test_sample_equals_the_plain_path_for_the_same_numbers(size, negatives, monkeypatch):
    graph = crowded_graph()
    sampler = sampler_of(graph, cache_size=size, negatives=negatives)
    sampler.prepare(None, seeded(0))
    batch = batch_of(graph, range(40))
    uniform = torch.rand(40, 2 * negatives, generator=seeded(1))
    uniform[::5, negatives:] = 1 - 2.0**-24  # the largest that is drawn
    uniform[::7, negatives:] = 0
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: uniform)
    expected = sampler.sample(batch, None, None)
    found = sampler._sample_on_gpu(batch, uniform)
    assert expected.replaces_head.any()
    assert not expected.replaces_head.all()
    assert (expected.weight == 0).any()  # the pair that all entities answer
    assert torch.equal(found.replaces_head, expected.replaces_head)
    assert torch.equal(found.entities, expected.entities)
    assert torch.equal(found.weight, expected.weight)


def test_sample_of_empty_rows_says_that_there_is_nothing():
    graph = random_graph()
    sampler = sampler_of(graph, cache_size=4, negatives=2)
    sampler.prepare(None, seeded(0))
    sampler.caches[Side.HEAD].ids.fill_(PADDING)
    batch = batch_of(graph)
    found = sampler._sample_on_gpu(batch, torch.rand(len(graph.train), 4, generator=seeded(1)))
    assert not found.entities[found.replaces_head].any()
    assert not found.weight[found.replaces_head].any()
    rows = batch.tail_rows.unsqueeze(1).expand_as(found.entities)[~found.replaces_head]
    held = sampler.caches[Side.TAIL].ids[rows]
    assert (held == found.entities[~found.replaces_head].unsqueeze(1)).any(1).all()
    assert torch.allclose(found.weight.sum(1), (~found.replaces_head).any(1).float())


# Renewing


@by_weighting
@pytest.mark.parametrize("with_known", [True, False], ids=["known", "free"])
@pytest.mark.parametrize("count", [6, 0, ENTITIES, 50], ids=["some", "none", "all", "more"])
def test_renewed_rows_equal_the_plain_path(weighting, with_known, count, kernels):
    graph = crowded_graph()
    known = known_tails(graph) if with_known else None
    rows = Rows(len(graph.rows.tail), 5, ENTITIES, weighting, known)
    if with_known:  # all kinds of rows: full, padded, empty
        held = (rows.plain.ids != PADDING).sum(1)
        assert {0, 3, 5} <= set(held.tolist())
    order = torch.randperm(len(rows.plain), generator=seeded(1))
    renew_both(kernels, rows, [order[:12], order[4:]], count)


@by_weighting
@pytest.mark.parametrize(("size", "count"), [(1, 1), (7, 9), (64, 64), (70, 80), (100, 156)])
def test_rows_of_any_width_equal_the_plain_path(weighting, size, count, kernels):
    rows = Rows(6, size, 400, weighting)
    batches = [torch.tensor([4, 1]), torch.tensor([2, 1])]
    renew_both(kernels, rows, batches, count)


@by_weighting
def test_a_row_that_stands_twice_is_renewed_once(weighting, kernels):
    graph = crowded_graph()
    rows = Rows(len(graph.rows.tail), 4, ENTITIES, weighting, known_tails(graph))
    renew_both(kernels, rows, [torch.tensor([3, 0, 7, 3, 3, 9, 0]), torch.tensor([9, 9, 9])], 5)


@by_weighting
def test_whichever_place_owns_a_row_renews_it(weighting, kernels):
    """A GPU lets any place win; the interpreter, which runs them in order, always the last."""

    def claim_first(owner, batch):
        for place in reversed(range(len(batch))):
            owner[batch[place]] = place

    rows = Rows(9, 4, 20, weighting)
    batch, seed = torch.tensor([3, 0, 7, 3, 3, 8, 0]), seeds()[0]
    rows.renew_by(kernels, batch, 6, seed, claim_first)
    rows.renew_plainly(batch, 6, seed)
    rows.assert_same()


def test_rows_of_a_long_batch_are_renewed_once(kernels):
    """Claims are laid 256 at a time."""
    rows = Rows(9, 4, 20, "quantile")
    renew_both(kernels, rows, [torch.randint(9, (280,), generator=seeded(2))], 5)
    owned = rows.owner.long()
    assert owned.max() >= 256


def test_one_place_owns_each_row_and_the_others_are_offered_nothing(kernels):
    rows = Rows(9, 4, 20, "uniform")
    batch = torch.tensor([3, 0, 7, 3, 3, 8, 0])
    offered = rows.renew_by(kernels, batch, 6, seeds()[0])
    owner = rows.owner[batch]
    assert torch.equal(batch[owner], batch)
    mine = owner == torch.arange(len(batch))
    assert mine.sum() == len(torch.unique(batch))
    assert (offered[~mine] == PADDING).all()
    assert (offered[mine] != PADDING).all()


@pytest.mark.parametrize("count", [7, ENTITIES])
def test_offer_is_the_row_and_the_fresh_entities_without_known_answers(count, kernels):
    graph = crowded_graph()
    known = known_tails(graph)
    rows = Rows(len(graph.rows.tail), 5, ENTITIES, "uniform", known)
    batch, seed = torch.arange(len(rows.plain)), seeds()[1]
    held, fresh = rows.plain.ids.long(), rows.plain.fresh(batch, count, seed)
    answers = known.contains(batch, fresh)
    assert answers.any()
    assert not answers.all()
    expected = torch.cat([held, fresh.masked_fill(answers, PADDING)], dim=1)
    assert torch.equal(rows.renew_by(kernels, batch, count, seed), expected)


@pytest.mark.parametrize("weighting", ["raw", "quantile"])
@pytest.mark.parametrize("levels", [1, 2, 4])
def test_scores_with_few_values_are_weighted_like_on_the_plain_path(weighting, levels, kernels):
    """Percentiles may coincide: what is above them is 1, the rest 0."""
    rows = Rows(8, 5, 30, weighting)
    rows.table = (rows.table.sigmoid() ** 4 * levels).floor()
    renew_both(kernels, rows, [torch.arange(8)] * 2, 7)


@by_weighting
def test_kept_entities_equal_those_of_the_kernel_of_the_cpu(weighting, kernels):
    """The hardest may tie: both keep the one that stood first, where torch keeps any."""
    rows = Rows(8, 5, 30, weighting)
    rows.table = (2 * rows.table).round()
    cpu = Cache(8, 5, 30, rows.plain.rescaling, CPU)
    cpu.ids.copy_(rows.kernel.ids)
    batch = torch.arange(8)
    for seed in seeds()[:2]:
        rows.renew_by(kernels, batch, 7, seed)
        cpu.renew(batch, 7, None, rows.score(batch), rows.alpha, seed)
        assert torch.equal(rows.kernel.ids, cpu.ids)
        assert torch.equal(rows.kernel.scores, cpu.scores)


# Uniform negatives


@pytest.fixture
def uniform_kernel():
    """Return the function that draws uniform negatives; it is imported for the interpreter."""
    from nscaching.sampling.uniform_gpu import draw_uniform

    return draw_uniform


def drawn_for(draw_uniform, batch, known, swap, k=400, tries=17):
    shape = (len(batch.heads), k)
    sides = torch.full(shape, swap)
    rows = (batch.head_rows, batch.tail_rows)
    return draw_uniform(new_seed(seeded(4)), sides, rows, known, ENTITIES, tries)


@pytest.mark.parametrize("side", list(Side))
def test_uniform_negatives_follow_their_distribution(side, uniform_kernel):
    graph = crowded_graph()
    sampler = sampler_of(graph, "bernoulli")
    batch = batch_of(graph, range(ENTITIES, ENTITIES + 8))  # not the pair that all entities answer
    known = (sampler.known[Side.HEAD], sampler.known[Side.TAIL])
    entities, proper = drawn_for(uniform_kernel, batch, known, side is Side.HEAD)
    answers = sampler.known[side].contains(batch.rows(side), torch.arange(ENTITIES).expand(8, -1))
    for place in range(8):
        if not answers[place].all():
            allowed = entities[place][proper[place]]
            assert_follows(allowed, (~answers[place]).double().tolist())


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("swap", [True, False])
def test_uniform_negatives_are_those_of_the_cpu(knows, swap, uniform_kernel):
    graph = crowded_graph()
    sampler = sampler_of(graph, "bernoulli")
    batch = batch_of(graph, range(ENTITIES + 8))
    known = (sampler.known[Side.HEAD], sampler.known[Side.TAIL]) if knows else None
    on_gpu = drawn_for(uniform_kernel, batch, known, swap, k=5)
    on_cpu = drawn_for(uniform_cpu.draw_uniform, batch, known, swap, k=5)
    for one, other in zip(on_gpu, on_cpu, strict=True):
        assert torch.equal(one, other)


def test_a_pair_that_all_entities_answer_has_no_proper_negative(uniform_kernel):
    graph = crowded_graph()
    sampler = sampler_of(graph, "bernoulli")
    batch = batch_of(graph, [0, 1])
    known = (sampler.known[Side.HEAD], sampler.known[Side.TAIL])
    assert not drawn_for(uniform_kernel, batch, known, False)[1].any()


def test_without_known_answers_every_entity_is_a_negative(uniform_kernel):
    batch = batch_of(crowded_graph(), [0, 1])
    entities, proper = drawn_for(uniform_kernel, batch, None, True, tries=1)
    assert proper.all()
    assert_follows(entities, [1.0] * ENTITIES)


@by_weighting
def test_scores_that_are_no_numbers_leave_other_rows_alone(weighting, kernels):
    rows = Rows(6, 5, 40, weighting)
    rows.table[3] = torch.nan
    before = rows.kernel.ids.clone()
    rows.renew_by(kernels, torch.tensor([3]), 20, seeds()[0])
    others = torch.arange(6) != 3
    assert torch.equal(rows.kernel.ids[others], before[others])
    if weighting in ("raw", "hardest"):
        assert (rows.kernel.ids[3] == PADDING).all()
