"""The kernels of the samplers in all their forms, against the plain one, by the dispatcher."""

import math

import pytest
import torch

from nscaching.kernels.hashing import hashed_entities
from nscaching.kernels.registry import CPU, GPU, PLAIN, forced
from nscaching.models import Side
from nscaching.sampling.cache import (
    HARDEST,
    PADDING,
    QUANTILE,
    RAW,
    UNIFORM,
    Cache,
    first_places,
    keep,
    offer,
)
from nscaching.sampling.known import KnownPositives, draw_uniform
from nscaching.sampling.nscaching import sample_rows

from ..conftest import assert_follows, device_of, graph_of, kernel_forms, random_graph, seeded

ENTITIES = 12
HOST = torch.device("cpu")
COMPILED = [form for form in kernel_forms() if form != PLAIN]
#: Temperature, rescaling, and what the kernels call it.
WEIGHTINGS = {
    "uniform": (0.0, "quantile", UNIFORM),
    "raw": (1.5, "none", RAW),
    "quantile": (3.0, "quantile", QUANTILE),
    "hardest": (math.inf, "quantile", HARDEST),
}
by_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS)
by_form = pytest.mark.parametrize("form", COMPILED)
#: Of both signs, as large as they come.
SEEDS = torch.tensor([-(1 << 62) - 12345, 7, (1 << 63) - 5, -1]).split(1)


def crowded_graph():
    """Make a graph whose pairs have many answers: one has all entities, one all but three."""
    crowded = [(0, 0, t) for t in range(ENTITIES)] + [(1, 0, t) for t in range(ENTITIES - 3)]
    others = random_graph(ENTITIES, relations=2, train=70, held_out=0).train.tolist()
    return graph_of(crowded + [triple for triple in others if triple[:2] not in ([0, 0], [1, 0])])


GRAPH = crowded_graph()


def known_of(form, side=Side.TAIL):
    pairs = GRAPH.rows.head if side is Side.HEAD else GRAPH.rows.tail
    return KnownPositives(pairs, ENTITIES, torch.device(device_of(form)))


# Updating rows -----------------------------------------------------------------------------------


class Rows:
    """Rows of a cache that one form updates, with scores by row and entity.

    The scores of padding are not numbers: nothing may come of them.
    """

    def __init__(self, form, count, size, entities, weighting, with_known=False):
        self.alpha, rescaling, self.weighting = WEIGHTINGS[weighting]
        self.form, self.device = form, torch.device(device_of(form))
        self.table = torch.randn(count, entities, generator=seeded(5))
        self.known = known_of(form) if with_known else None
        with forced(form):
            self.cache = Cache(count, size, entities, rescaling, self.device)
        filled = Cache(count, size, entities, rescaling, HOST)
        filled.fill(known_of(PLAIN).contains if with_known else None, seeded(6))
        self.cache.ids.copy_(filled.ids)
        assert self.cache.weighting(self.alpha)[1] == self.weighting
        self.offered = None

    def score(self, rows):
        def of(ids):
            self.offered = ids.cpu()
            scores = self.table[rows].gather(1, self.offered.clamp_min(0))
            return scores.masked_fill(self.offered == PADDING, torch.nan).to(self.device)

        return of

    def update(self, rows, count, seed):
        with forced(self.form):
            given = rows.to(self.device), count, self.known
            self.cache.update(*given, self.score(rows), self.alpha, seed.to(self.device))

    def found(self):
        return self.cache.ids.cpu(), self.cache.scores.cpu()


def assert_updates_agree(form, batches, count, *shape, levels=0, **options):
    """Update batches of rows by a form and by the plain one, and compare after each."""
    ours, plain = (Rows(kind, *shape, **options) for kind in (form, PLAIN))
    if levels:
        plain.table = (plain.table.sigmoid() ** 4 * levels).floor()
        ours.table = plain.table
    for batch, seed in zip(batches, SEEDS, strict=False):
        before = ours.found()[0].clone()
        distinct = torch.unique(batch)
        given = batch if form == GPU else distinct  # others are given a row once
        ours.update(given, count, seed)
        plain.update(distinct, count, seed)
        for mine, theirs in zip(ours.found(), plain.found(), strict=True):
            assert torch.equal(mine, theirs)
        idle = torch.ones(len(before), dtype=torch.bool)
        idle[batch] = False
        assert torch.equal(ours.found()[0][idle], before[idle])
    return ours


@by_form
@by_weighting
@pytest.mark.parametrize("with_known", [True, False], ids=["known", "free"])
@pytest.mark.parametrize("count", [6, 0, ENTITIES, 50], ids=["some", "none", "all", "more"])
def test_updated_rows_are_those_of_the_plain_form(form, weighting, with_known, count):
    rows = len(GRAPH.rows.tail.anchor)
    batch = torch.tensor([0, 1, 5, 3])  # the rows that all entities, and all but three, answer
    shape = (rows, 5, ENTITIES, weighting)
    ours = assert_updates_agree(form, [batch, batch[:2]], count, *shape, with_known=with_known)
    if with_known and count:
        held = (ours.found()[0] != PADDING).sum(1)
        assert {0, 3, 5} <= set(held.tolist())  # all kinds of rows: empty, padded, full


@by_form
@by_weighting
@pytest.mark.parametrize(("size", "count"), [(1, 1), (7, 9), (70, 80), (100, 156)])
def test_rows_of_any_width_are_those_of_the_plain_form(form, weighting, size, count):
    batches = [torch.tensor([2, 1]), torch.tensor([1])]
    assert_updates_agree(form, batches, count, 4, size, 400, weighting)


@by_form
@by_weighting
def test_a_row_that_stands_twice_is_updated_once(form, weighting):
    batches = [torch.tensor([3, 0, 7, 3, 3, 8, 0]), torch.tensor([8, 8, 8])]
    assert_updates_agree(form, batches, 6, 9, 4, 20, weighting)


@by_form
@by_weighting
def test_an_empty_batch_changes_nothing(form, weighting):
    none = torch.empty(0, dtype=torch.int64)
    assert_updates_agree(form, [none], 6, 3, 4, 20, weighting)


@by_form
def test_a_single_entity_is_kept(form):
    ours = assert_updates_agree(form, [torch.arange(3)], 4, 3, 4, 1, "quantile")
    assert torch.equal(ours.found()[0], torch.zeros(3, 1, dtype=torch.int32))


@by_form
@pytest.mark.parametrize("weighting", ["raw", "quantile"])
@pytest.mark.parametrize("levels", [1, 2, 4])
def test_scores_with_few_values_are_weighted_as_by_the_plain_form(form, weighting, levels):
    """Percentiles may coincide: what is above them is 1, the rest 0."""
    assert_updates_agree(form, [torch.arange(4)] * 2, 7, 4, 5, 30, weighting, levels=levels)


@by_weighting
def test_ties_are_kept_as_they_stood_by_all_kernels(weighting):
    """The hardest may tie: kernels keep the one that stood first, where torch keeps any."""
    results = []
    for form in COMPILED:
        rows = Rows(form, 4, 5, 30, weighting)
        rows.table = (2 * rows.table).round()
        for seed in SEEDS[:2]:
            rows.update(torch.arange(4), 7, seed)
        results.append(rows.found())
    for found in results:
        assert all(map(torch.equal, found, results[0]))


@by_weighting
@pytest.mark.parametrize("form", kernel_forms())
def test_scores_that_are_not_numbers_stay_within_their_row(form, weighting):
    rows = Rows(form, 6, 5, 40, weighting)
    rows.table[3] = torch.nan
    before = rows.found()[0].clone()
    rows.update(torch.tensor([3]), 20, SEEDS[0])
    found, scores = rows.found()
    others = torch.arange(6) != 3
    assert torch.equal(found[others], before[others])
    assert scores.isfinite().all()
    assert (found[3] == PADDING).all()


@by_form
@by_weighting
def test_some_scores_that_are_not_numbers_change_no_other(form, weighting):
    ours, plain = (Rows(kind, 4, 5, 40, weighting) for kind in (form, PLAIN))
    for rows in (ours, plain):
        rows.table[torch.rand(4, 40, generator=seeded(9)) < 0.4] = torch.nan
        rows.update(torch.arange(4), 20, SEEDS[0])
    assert all(map(torch.equal, ours.found(), plain.found()))
    assert (ours.found()[0] != PADDING).all()


@by_form
def test_scores_beyond_half_precision_are_stored_as_the_largest(form):
    rows = Rows(form, 2, 3, 8, "hardest")
    rows.table *= 1e6
    rows.update(torch.arange(2), 8, SEEDS[1])
    assert rows.found()[1].isfinite().all()
    assert rows.found()[1].abs().max() > 60000


@pytest.mark.skipif(GPU not in COMPILED, reason="no GPU kernels here")
def test_one_place_owns_each_row_and_the_others_are_offered_nothing():
    rows = Rows(GPU, 300, 4, 20, "uniform")
    batch = torch.tensor([3, 0, 7, 3, 3, 8, 0])
    rows.update(batch, 6, SEEDS[0])
    owner = rows.cache.owner.cpu().long()[batch]
    assert torch.equal(batch[owner], batch)
    mine = owner == torch.arange(len(batch))
    assert mine.sum() == len(torch.unique(batch))
    assert (rows.offered[~mine] == PADDING).all()
    assert (rows.offered[mine] != PADDING).all()


@pytest.mark.skipif(GPU not in COMPILED, reason="no GPU kernels here")
@by_weighting
def test_whichever_place_owns_a_row_updates_it(weighting):
    """A GPU lets any place win; the interpreter, which runs them in order, always the last."""
    batch = torch.tensor([3, 0, 7, 3, 3, 8, 0])
    expected = Rows(PLAIN, 9, 4, 20, weighting)
    expected.update(torch.unique(batch), 6, SEEDS[0])
    ours = Rows(GPU, 9, 4, 20, weighting)
    cache, device = ours.cache, ours.device
    offered = torch.cat([cache.ids.cpu()[batch].long(), hashed_entities(SEEDS[0], batch, 6, 20)], 1)
    for place in reversed(range(len(batch))):  # the first place of a row wins
        cache.owner[batch[place]] = place
    scores = ours.score(batch)(offered)
    given = batch.to(device), cache, offered.to(device), scores
    with forced(GPU):
        keep(*given, ours.alpha, SEEDS[0].to(device))
    assert all(map(torch.equal, ours.found(), expected.found()))


@pytest.mark.parametrize("form", kernel_forms())
@pytest.mark.parametrize("count", [7, ENTITIES])
def test_an_offer_is_the_row_and_fresh_entities_without_known_positives(form, count):
    rows = Rows(form, len(GRAPH.rows.tail.anchor), 5, ENTITIES, "uniform", with_known=True)
    batch, seed = torch.arange(len(rows.cache)), SEEDS[1]
    held, fresh = rows.cache.ids.cpu().long(), rows.cache.fresh(batch, count, seed)
    positives = known_of(PLAIN).contains(batch, fresh)
    assert positives.any()
    assert not positives.all()
    expected = torch.cat([held, fresh.masked_fill(positives, PADDING)], dim=1)
    given = batch.to(rows.device), rows.cache, count, seed.to(rows.device), rows.known
    with forced(form):
        assert torch.equal(offer(*given).cpu(), expected)


@pytest.mark.parametrize("form", kernel_forms())
@pytest.mark.parametrize("count", [3, 6, 7, 9])
def test_parts_of_the_rows_are_offered_entities_of_their_own_number(form, count):
    rows = Rows(form, 9, 2, 7, "uniform")
    batch, device, sizes = torch.tensor([0, 2, 3, 5, 6, 8]), rows.device, torch.tensor([7, 6, 5])
    rows.cache.sizes = sizes.to(device)
    with forced(form):
        given = batch.to(device), rows.cache, count, SEEDS[1].to(device), None
        offered = offer(*given).cpu()[:, 2:]
    assert offered.shape[1] == min(count, 7)
    for row, fresh in zip(batch, offered, strict=True):
        size, width = int(sizes[row // 3]), min(count, 7)
        every = [entity if entity < size else PADDING for entity in range(width)]
        drawn = hashed_entities(SEEDS[1], row.view(1), width, size)[0].tolist()
        assert fresh.tolist() == (every if width >= size else drawn)


@pytest.mark.parametrize("form", kernel_forms())
@pytest.mark.parametrize("length", [0, 1, 40])
def test_first_places_are_where_a_row_stands_first(form, length):
    stamps = torch.zeros(9, dtype=torch.int64)
    for number in (1, 2):
        rows = torch.randint(9, (length,), generator=seeded(number))
        listed = rows.tolist()
        expected = [place for place, row in enumerate(listed) if row not in listed[:place]]
        with forced(form):
            assert first_places(rows, stamps, number).tolist() == expected


# Drawing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("size", [1, 5, 8])
@pytest.mark.parametrize("form", kernel_forms())
def test_drawn_entities_are_those_of_the_row_that_the_numbers_say(form, size, negatives):
    random, count, rows = seeded(1), 40, 11
    caches = []
    for _ in Side:
        held = torch.randint(size + 1, (rows, 1), generator=random)
        ids = torch.randint(ENTITIES, (rows, size), generator=random, dtype=torch.int32)
        caches.append(torch.where(torch.arange(size) < held, ids, -1).int())
        caches[-1][0] = PADDING
    places, targets = torch.randint(rows, (2, 2, count), generator=random)
    relations = torch.randint(2, (count,), generator=random)
    chances = torch.tensor([0.3, 0.8])
    uniform = torch.rand(count, 1 + negatives, generator=random)
    uniform[::5, 1:] = 1 - 2.0**-24  # the largest that is drawn
    uniform[::7, 1:] = 0
    device = device_of(form)
    pairs = [caches, places.unbind(), targets.unbind(), (relations, chances)]
    given = [tuple(part.contiguous().to(device) for part in pair) for pair in pairs]
    with forced(form):
        found = sample_rows(*given, uniform.to(device))
    replaces_head, ids, exists = (part.cpu() for part in found)
    assert replaces_head.any()
    assert not replaces_head.all()
    for i in range(count):
        swap = bool(uniform[i, 0] < chances[relations[i]])
        assert bool(replaces_head[i]) is swap
        side = 0 if swap else 1
        row = [e for e in caches[side][places[side][i]].tolist() if e != PADDING]
        drawn = [
            row[min(int(u * len(row)), len(row) - 1)] if row else PADDING
            for u in uniform[i, 1:].numpy()
        ]
        assert ids[i].tolist() == [int(targets[side][i]), *drawn]
        assert exists[i].tolist() == [float(e != PADDING) for e in drawn]
    assert (exists == 0).any()


@pytest.mark.parametrize("form", kernel_forms())
def test_no_question_draws_nothing(form):
    none = torch.empty(0, dtype=torch.int64)
    cache = torch.zeros(3, 4, dtype=torch.int32)
    given = ((cache, cache), (none, none), (none, none), (none, torch.ones(1)))
    with forced(form):
        parts = sample_rows(*given, torch.empty(0, 3))
        assert [part.shape for part in parts] == [(0,), (0, 3), (0, 2)]
        drawn = draw_uniform(SEEDS[0], none.bool(), none, None, 5, 4)
    assert drawn.shape == (0, 4)


def uniform_by(form, sides, rows, knows, count, entities=ENTITIES):
    device = device_of(form)
    known = tuple(known_of(form, side) for side in Side) if knows else None
    given = (SEEDS[0].to(device), sides.to(device), rows.to(device), known, entities, count)
    with forced(form):
        return draw_uniform(*given).cpu()


@by_form
@pytest.mark.parametrize("knows", [True, False])
def test_uniform_candidates_are_those_of_the_plain_form(form, knows):
    sides = torch.arange(30) % 3 == 0
    rows = torch.where(sides, torch.arange(30) % 5, torch.arange(30) % 7)
    expected = uniform_by(PLAIN, sides, rows, knows, 5)
    assert torch.equal(uniform_by(form, sides, rows, knows, 5), expected)
    assert bool((expected == PADDING).any()) is knows  # a pair that all entities answer
    one = uniform_by(form, sides, rows, False, 5, entities=1)
    assert not one.any()


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("form", kernel_forms())
def test_uniform_candidates_follow_their_distribution(form, side):
    pairs = GRAPH.rows.head if side is Side.HEAD else GRAPH.rows.tail
    rows = torch.arange(min(6, len(pairs.anchor)))
    known = known_of(PLAIN, side).contains(rows, torch.arange(ENTITIES).expand(len(rows), -1))
    drawn = uniform_by(form, torch.full((len(rows),), side is Side.HEAD), rows, True, 400)
    for row, positives in enumerate(known):
        if positives.all():
            assert (drawn[row] == PADDING).all()
        else:
            assert_follows(drawn[row][drawn[row] != PADDING], (~positives).double().tolist())


def test_compiled_forms_are_tried():
    assert CPU in COMPILED
