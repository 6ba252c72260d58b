import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nscaching.kernels.registry import CPU as CPU_FORM
from nscaching.kernels.registry import GPU, PLAIN, forced
from nscaching.sampling import cache as cache_module
from nscaching.sampling.cache import PADDING, Cache, repeats
from nscaching.sampling.known import KnownPositives
from tests.conftest import HAVE_GPU_FORMS, assert_follows, on_both_paths, random_graph, seeded
from tests.sampling.helpers import (
    CPU,
    masked_sigma,
    offer,
    offer_and_keep,
    present,
    sequential_pairs,
    table_score,
)

INF = float("inf")


def new_cache(rows, size, entities, rescaling="quantile"):
    return Cache(rows, size, entities, rescaling, CPU)


def cache_of(ids, scores, entities, rescaling="quantile"):
    """Make a cache that holds these rows."""
    cache = new_cache(len(ids), len(ids[0]), entities, rescaling)
    cache.ids[:] = torch.tensor(ids)
    cache.scores[:] = torch.tensor(scores)
    return cache


def forbidden_by(table):
    """Make the ``forbidden`` callback of a table of booleans (rows, entities)."""
    table = torch.as_tensor(table)
    return lambda rows, ids: table[rows.unsqueeze(1), ids]


def first_forbidden(counts, entities):
    """Forbid in row i the first counts[i] entities, as they stand in a random order."""
    rng = np.random.default_rng(0)
    table = np.zeros((len(counts), entities), dtype=bool)
    for row, count in enumerate(counts):
        table[row, rng.permutation(entities)[:count]] = True
    return table


def assert_rows_are_full_sets(cache, table):
    """Rows hold distinct allowed entities, as many as fit or as there are, padded at the end."""
    for ids, banned in zip(cache.ids.tolist(), table, strict=True):
        entities = present(ids)
        assert len(set(entities)) == len(entities)
        assert not banned[entities].any()
        assert len(entities) == min(cache.size, int((~banned).sum()))


# Filling


@pytest.mark.parametrize(("size", "entities"), [(6, 40), (1, 20), (20, 20), (50, 20), (3, 16)])
def test_fill_makes_full_sets_of_allowed_entities(size, entities, generator):
    counts = [0, 1, entities // 2, entities - size, entities - 2, entities - 1, entities]
    table = first_forbidden([max(0, count) for count in counts] * 5, entities)
    cache = new_cache(len(table), size, entities)
    cache.fill(forbidden_by(table), generator)
    assert_rows_are_full_sets(cache, table)
    assert (cache.scores == 0).all()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_fill_finds_the_few_allowed_entities_of_a_crowded_pair(size, generator):
    table = first_forbidden([192, 180, 150, 195, 200] * 4, 200)
    cache = new_cache(len(table), size, 200)
    cache.fill(forbidden_by(table), generator)
    assert_rows_are_full_sets(cache, table)


def test_fill_without_a_ban_gives_distinct_entities(generator):
    cache = new_cache(60, 8, 30)
    cache.fill(None, generator)
    assert_rows_are_full_sets(cache, np.zeros((60, 30), dtype=bool))


def test_fill_in_blocks_leaves_no_row_out(monkeypatch, generator):
    monkeypatch.setattr(cache_module, "_FILL_BLOCK", 70)
    table = first_forbidden(np.arange(45) % 31, 30)
    cache = new_cache(45, 4, 30)
    cache.fill(forbidden_by(table), generator)
    assert_rows_are_full_sets(cache, table)


@pytest.mark.parametrize("entities", [6, 40])
def test_filled_entities_are_uniform_over_the_allowed(entities, generator):
    banned = np.zeros(entities, dtype=bool)
    banned[[0, 3]] = True
    cache = new_cache(6000, 2, entities)
    cache.fill(forbidden_by(np.tile(banned, (6000, 1))), generator)
    assert_follows(cache.ids, ~banned)


def test_filled_sets_are_uniform_over_all_sets(generator):
    cache = new_cache(5000, 2, 5)
    cache.fill(None, generator)
    sets = [frozenset(pair) for pair in itertools.combinations(range(5), 2)]
    assert_follows([sets.index(frozenset(ids)) for ids in cache.ids.tolist()], np.ones(10))


# Fresh entities


@pytest.mark.parametrize("count", [7, 8, 100])
def test_fresh_offers_every_entity_once_where_the_count_covers_all(count, generator):
    offered = offer(new_cache(9, 2, 7), 3, count, generator)
    assert [sorted(row) for row in offered.tolist()] == [list(range(7))] * 3


def test_fresh_is_uniform_below_that(generator):
    assert_follows(offer(new_cache(1000, 2, 7), 1000, 6, generator), np.ones(7))


def test_no_fresh_entity_may_be_asked_for(generator):
    assert offer(new_cache(9, 2, 7), 4, 0, generator).shape == (4, 0)


# Keeping, on a GPU


class Caught(Exception):
    """Ends an update where rows would be written."""


@pytest.mark.skipif(not HAVE_GPU_FORMS, reason="triton is not installed")
@pytest.mark.parametrize("width", [4, 300])
def test_of_a_row_that_stands_twice_one_place_is_written(width, monkeypatch, generator):
    """Its places have other candidates; a GPU would write a mixture of them."""
    rows = torch.tensor([2, 4, 2, 2])
    candidates = torch.arange(4 * width).view(4, width)
    with forced(GPU):
        cache = new_cache(5, 3, 4 * width)

        def fused(rows, cache, *rest):
            places = [place for place, row in enumerate(rows.tolist()) if cache.owner[row] == place]
            assert rows[places].sort().values.tolist() == [2, 4]
            raise Caught

        def plain(rows, cache, candidates, *rest):
            first, _, *others = candidates
            assert all(torch.equal(first, each) for each in others)
            raise Caught

        fused.plain = plain
        monkeypatch.setattr(cache_module, "keep", fused)
        with pytest.raises(Caught):
            cache.keep(rows, candidates, torch.rand(4, width), 1.0, torch.tensor([3]))


# Sampling


@pytest.mark.parametrize("rescaling", ["quantile", "none"])
@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_sample_follows_sigma_over_the_stored_scores_of_its_row(alpha, rescaling, generator):
    ids = [[4, 1, 6, 2, 7], [3, 0, 5, PADDING, PADDING]]
    scores = [[0.5, -1.0, 0.9, 0.2, -0.3], [1.0, 2.0, 0.4, 9.0, 9.0]]
    cache = cache_of(ids, scores, 8, rescaling)
    rows = torch.tensor([0, 1]).repeat(3000)
    drawn = cache.sample_at(torch.rand(len(rows), 2, generator=generator), rows, alpha)
    for row in (0, 1):
        valid = np.array(ids[row]) != PADDING
        chances = np.zeros(8)
        chances[np.array(ids[row])[valid]] = masked_sigma(scores[row], valid, alpha, rescaling)[
            valid
        ]
        assert_follows(drawn[row::2], chances)


def test_sample_at_infinite_temperature_takes_the_hardest(generator):
    cache = cache_of([[4, 1, 6], [3, 0, PADDING]], [[0.5, -1.0, 0.9], [1.0, 2.0, 9.0]], 8)
    uniform = torch.rand(3, 2, generator=generator)
    drawn = cache.sample_at(uniform, torch.tensor([0, 1, 0]), INF)
    assert drawn.tolist() == [[6, 6], [0, 0], [6, 6]]


@pytest.mark.parametrize("alpha", [0.0, 1.0, INF])
def test_sample_of_an_empty_row_says_that_there_is_nothing(alpha, generator):
    cache = cache_of([[PADDING, PADDING], [2, PADDING]], [[0.0, 0.0], [1.0, 0.0]], 5)
    drawn = cache.sample_at(torch.rand(2, 3, generator=generator), torch.tensor([0, 1]), alpha)
    assert drawn.tolist() == [[PADDING] * 3, [2] * 3]


def test_sample_changes_nothing(generator):
    cache = cache_of([[4, 1, 6]], [[0.5, -1.0, 0.9]], 8)
    before = cache.ids.clone(), cache.scores.clone()
    cache.sample_at(torch.rand(1, 5, generator=generator), torch.tensor([0]), 1.0)
    assert torch.equal(cache.ids, before[0])
    assert torch.equal(cache.scores, before[1])


# Updating


def random_update(alpha, rescaling, seed=0, fresh_count=9):
    """Update some rows of a random cache once; return it, what it was, and what was offered."""
    rng = np.random.default_rng(seed)
    cache = new_cache(30, 6, 20, rescaling)
    banned = torch.from_numpy(first_forbidden(rng.integers(0, 21, size=30), 20))
    cache.fill(forbidden_by(banned), seeded(seed))
    cache.scores[:] = 100.0
    cache.scores[cache.ids == PADDING] = 0
    before = cache.ids.clone(), cache.scores.clone()
    rows = torch.from_numpy(rng.permutation(30)[:18])
    fresh = torch.from_numpy(rng.integers(20, size=(18, fresh_count)))
    fresh_valid = ~banned[rows.unsqueeze(1), fresh]
    table = torch.from_numpy(rng.normal(size=(18, 20))).float()
    offer_and_keep(cache, rows, fresh, fresh_valid, table_score(table), alpha, seeded(seed))
    return cache, before, rows, fresh, fresh_valid, table


@on_both_paths
@pytest.mark.parametrize("rescaling", ["quantile", "none"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, INF])
def test_update_keeps_distinct_entities_of_the_row_and_the_proper_fresh_ones(alpha, rescaling):
    cache, (old, _), rows, fresh, fresh_valid, _ = random_update(alpha, rescaling)
    for i, row in enumerate(rows.tolist()):
        offered = set(present(old[row].tolist())) | set(fresh[i][fresh_valid[i]].tolist())
        kept = present(cache.ids[row].tolist())
        assert len(set(kept)) == len(kept) == min(cache.size, len(offered))
        assert set(kept) <= offered


@on_both_paths
@pytest.mark.parametrize("alpha", [0.0, 1.0, INF])
def test_update_stores_the_score_each_entity_has_now(alpha):
    cache, _, rows, _, _, table = random_update(alpha, "quantile")
    for i, row in enumerate(rows.tolist()):
        for entity, score in zip(cache.ids[row].tolist(), cache.scores[row].tolist(), strict=True):
            assert score == (0 if entity == PADDING else table[i, entity].half().item())


@on_both_paths
def test_scores_beyond_half_precision_are_stored_as_its_largest():
    cache = cache_of([[0, 1, 2]], [[0.0] * 3], 3)
    scores = torch.tensor([1e9, -1e9, 0.5])
    nothing = torch.empty(1, 0, dtype=torch.int64)
    offer_and_keep(cache, torch.tensor([0]), nothing, None, lambda ids: scores[ids], 0.0, seeded(0))
    assert cache.scores.tolist() == [[65504.0, -65504.0, 0.5]]


@on_both_paths
def test_update_leaves_other_rows_alone():
    cache, (old_ids, old_scores), rows, *_ = random_update(1.0, "quantile")
    others = torch.ones(len(cache), dtype=torch.bool)
    others[rows] = False
    assert others.any()
    assert torch.equal(cache.ids[others], old_ids[others])
    assert torch.equal(cache.scores[others], old_scores[others])


@on_both_paths
def test_a_row_that_stands_twice_is_renewed_as_if_it_stood_once():
    scores = torch.tensor([0.3, -1.0, 1.1, 0.4, 0.9, 0.0])
    once, twice = (cache_of([[3, 0, 2]] * 40, [[0.0] * 3] * 40, 6) for _ in range(2))
    rows, again = torch.arange(40), torch.cat([torch.arange(40), torch.arange(40)])
    fresh = torch.tensor([[1, 4, 5]])
    offer_and_keep(once, rows, fresh.expand(40, -1), None, lambda ids: scores[ids], 1.0, seeded(0))
    offer_and_keep(
        twice, again, fresh.expand(80, -1), None, lambda ids: scores[ids], 1.0, seeded(0)
    )
    assert torch.equal(once.ids, twice.ids)
    assert torch.equal(once.scores, twice.scores)


@on_both_paths
def test_update_at_infinite_temperature_keeps_the_hardest():
    cache, (old, _), rows, fresh, fresh_valid, table = random_update(INF, "quantile")
    for i, row in enumerate(rows.tolist()):
        offered = set(present(old[row].tolist())) | set(fresh[i][fresh_valid[i]].tolist())
        hardest = sorted(offered, key=lambda entity, i=i: -table[i, entity].item())[: cache.size]
        assert set(present(cache.ids[row].tolist())) == set(hardest)


@on_both_paths
def test_update_without_fresh_entities_keeps_the_sets_and_renews_the_scores():
    cache, (old, _), rows, *_, table = random_update(1.0, "quantile", fresh_count=0)
    for i, row in enumerate(rows.tolist()):
        kept = present(cache.ids[row].tolist())
        assert set(kept) == set(present(old[row].tolist()))
        assert cache.scores[row, : len(kept)].tolist() == table[i, kept].half().tolist()


@on_both_paths
def test_fresh_entity_that_is_in_the_row_already_counts_once(generator):
    """Were it counted twice, it would be kept with a higher chance than the others."""
    rows = 8000
    cache = cache_of([[0, 1]] * rows, [[0.0, 0.0]] * rows, 5)
    fresh = torch.tensor([[0, 0, 2, 2, 2]]).expand(rows, -1)
    offer_and_keep(cache, torch.arange(rows), fresh, None, lambda ids: ids.float(), 0.0, generator)
    kept = [sum(row) for row in cache.ids.tolist()]  # 0 and 1, 0 and 2, or 1 and 2
    assert_follows(kept, [0, 1, 1, 1])


@on_both_paths
@pytest.mark.parametrize("rescaling", ["quantile", "none"])
@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_updated_rows_follow_sigma_without_replacement_over_row_and_fresh(
    alpha, rescaling, generator
):
    rows, scores = 10_000, torch.tensor([0.3, -1.0, 1.1, 0.4, 0.9])
    cache = cache_of([[3, 0]] * rows, [[0.0, 0.0]] * rows, 5, rescaling)
    fresh = torch.tensor([[1, 4]]).expand(rows, -1)
    offer_and_keep(
        cache, torch.arange(rows), fresh, None, lambda ids: scores[ids], alpha, generator
    )
    offered = np.array([True, True, False, True, True])
    chances = sequential_pairs(masked_sigma(scores.numpy(), offered, alpha, rescaling))
    cells = np.zeros(25)
    for (i, j), chance in chances.items():
        cells[5 * min(i, j) + max(i, j)] += chance
    kept = cache.ids.sort(dim=1).values
    assert_follows(5 * kept[:, 0] + kept[:, 1], cells)


@pytest.mark.parametrize("rescaling", ["quantile", "none"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 20.0, INF])
def test_both_paths_keep_the_same_entities(alpha, rescaling):
    results = []
    for kind in (CPU_FORM, PLAIN):
        with forced(kind):
            results.append([random_update(alpha, rescaling, seed)[0] for seed in range(8)])
    for kernel, plain in zip(*results, strict=True):
        assert torch.equal(kernel.ids, plain.ids)
        assert torch.equal(kernel.scores, plain.scores)


# Update with fresh entities of its own, and the places of rows


def updated_with_known(kind, alpha=1.0, seed=3):
    """Update rows, one of them twice, of a cache whose first rows have known positives."""
    graph = random_graph(entities=20, relations=2, train=90)
    with forced(kind):
        cache = new_cache(len(graph.rows.tail.anchor), 6, 20)
        known = KnownPositives(graph.rows.tail, 20, CPU)
        cache.fill(known.contains, seeded(0))
        rows = torch.tensor([3, 0, 7, 3, 5])
        asked = []

        def score(ids):
            asked.append(ids)
            scores = (ids * 7 % 11).float() / 3
            return scores.masked_fill(ids < 0, -torch.inf)

        cache.update(rows, 9, known, score, alpha, torch.tensor([seed]))
    return cache, rows, asked, known


@on_both_paths
@pytest.mark.parametrize("alpha", [0.0, 1.0, INF])
def test_update_offers_what_a_row_holds_and_fresh_entities_without_known_positives(alpha, path):
    cache, rows, (offered,), known = updated_with_known(
        CPU_FORM if path == "kernel" else PLAIN, alpha
    )
    assert offered.shape == (5, 15)
    fresh = offered[:, 6:]
    assert not known.contains(rows, fresh)[fresh >= 0].any()
    assert ((fresh >= -1) & (fresh < 20)).all()
    for row, ids in zip(rows.tolist(), offered.tolist(), strict=True):
        kept = present(cache.ids[row].tolist())
        assert len(set(kept)) == len(kept) == 6
        assert set(kept) <= set(ids)


def test_update_is_the_same_on_both_paths():
    one, two = (updated_with_known(kind)[0] for kind in (CPU_FORM, PLAIN))
    assert torch.equal(one.ids, two.ids)
    assert torch.equal(one.scores, two.scores)


@on_both_paths
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([4, 2, 4, 4, 0, 2, 9], [0, 1, 4, 6]),
        ([1, 1, 1], [0]),
        ([5], [0]),
        ([], []),
        ([0, 1, 2], [0, 1, 2]),
    ],
)
def test_first_places_are_those_where_a_row_stands_for_the_first_time(rows, expected):
    cache = new_cache(10, 2, 5)
    given = torch.tensor(rows, dtype=torch.int64)
    for _ in range(2):  # what an earlier batch held does not matter
        assert cache.first_places(given).tolist() == expected


# Totals and repeats


def test_totals_are_the_sums_of_the_stored_scores():
    cache = cache_of([[1, 2], [3, PADDING]], [[0.5, 2.0], [4.0, 0.0]], 5)
    assert cache.totals().tolist() == [2.5, 4.0]


def test_rescore_stores_the_score_of_each_entity():
    cache = cache_of([[1, 2], [3, 0], [4, 2]], [[9.0, 9.0]] * 3, 5)
    cache.rescore(lambda rows, ids: 10 * rows.unsqueeze(1) + ids.float(), block_rows=2)
    assert cache.scores.tolist() == [[1.0, 2.0], [13.0, 10.0], [24.0, 22.0]]


def test_padding_adds_nothing_to_the_total_of_a_rescored_row():
    cache = cache_of([[1, 2], [3, PADDING], [PADDING, PADDING]], [[0.0, 0.0]] * 3, 5)
    cache.rescore(lambda rows, ids: ids.float() + 7)
    assert cache.totals().tolist() == [17.0, 10.0, 0.0]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.integers(-1, 5), min_size=6, max_size=6), min_size=1, max_size=4))
def test_repeats_marks_all_but_the_first(rows):
    expected = [[entity in row[:i] for i, entity in enumerate(row)] for row in rows]
    assert repeats(torch.tensor(rows)).tolist() == expected


def test_size_is_bounded_by_the_number_of_entities():
    assert new_cache(2, 50, 7).ids.shape == (2, 7)
