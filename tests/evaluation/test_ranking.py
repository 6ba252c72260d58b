from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nscaching.errors import UserError
from nscaching.evaluation import rank_triples, ranking
from nscaching.evaluation.ranking import TIES, Prepared, chunk_rows, known_positives
from nscaching.graph.names import SPLITS
from nscaching.graph.pairs import TrainingRows, pair_rows
from nscaching.kernels.registry import PLAIN, forced
from nscaching.models import SCORING, EmbeddingModel, Side
from tests.conftest import graph_of, on_both_paths, random_graph, random_model
from tests.evaluation.helpers import slow_ranks, tied_model
from tests.models.twins import TWINS

pytestmark = on_both_paths
GRAPH = random_graph(entities=18, relations=3, train=150, held_out=25)
SIZES = {"entities": 18, "relations": 3}


class GivenScores:
    """A model that scores the entities of a query as it is told."""

    device = torch.device("cpu")

    def __init__(self, scores):
        self.scores = torch.tensor(scores)

    def score_all(self, side, anchor, relation):
        return self.scores.expand(len(anchor), -1).clone()


def assert_ranks(model, graph, triples, ties="mean", **options):
    ranks = rank_triples(model, graph, np.asarray(triples), ties=ties, **options)
    for side in Side:
        rank, among = slow_ranks(model, graph, triples, side, ties)
        assert ranks[side].rank.tolist() == rank
        assert ranks[side].among.tolist() == among
        loop_free = slow_ranks(model, graph, triples, side, ties, loops=False)[0]
        assert ranks[side].without_loops.tolist() == loop_free


@pytest.mark.parametrize("name", sorted(set(TWINS) & set(SCORING)))
@pytest.mark.parametrize("split", ["valid", "test"])
def test_ranks_are_filtered_ranks_of_the_score(name, split):
    assert_ranks(random_model(name, **SIZES), GRAPH, GRAPH.split(split))


@pytest.mark.parametrize("name", ["transe", "transh", "transd"])
def test_ranks_with_the_euclidean_distance(name):
    assert_ranks(random_model(name, norm=2, **SIZES), GRAPH, GRAPH.test)


@pytest.mark.parametrize("side", Side)
def test_the_filter_knows_all_answers_where_a_key_would_not_fit_64_bits(side):
    largest = np.array([2**31 - 2, 2**20 - 1, 2**31 - 2])
    splits = {name: (largest - GRAPH.split(name)).astype(np.int32) for name in SPLITS}
    sizes = 2**31 - 1, 2**20
    rows = TrainingRows(*(pair_rows(splits["train"], side, *sizes) for side in ("head", "tail")))
    huge = SimpleNamespace(**splits, num_entities=sizes[0], num_relations=sizes[1], rows=rows)
    anchor = 2 if side is Side.HEAD else 0

    def answers_of(graph, triples):
        return known_positives(graph, triples.copy())[side].of(triples[:, anchor], triples[:, 1])

    position, answers = answers_of(huge, splits["test"])
    expected = answers_of(GRAPH, GRAPH.test)
    found = {(int(p), int(largest[0] - a)) for p, a in zip(position, answers, strict=True)}
    assert found == {(int(p), int(a)) for p, a in zip(*expected, strict=True)}


@pytest.mark.parametrize("kept", [0, 2000, 1 << 20])
def test_what_is_prepared_serves_one_model_after_another(kept, monkeypatch):
    monkeypatch.setattr(ranking, "chunk_rows", lambda *_: 4)
    prepared = Prepared(GRAPH, GRAPH.test, kept_bytes=kept)
    for name in ("simple", "transd", "distmult"):
        assert_ranks(random_model(name, **SIZES), GRAPH, GRAPH.test, prepared=prepared)
        assert sum(part.nbytes for part in prepared._kept.values()) <= kept
        assert (len(prepared._kept) > 0) == (kept > 0)


def test_known_positives_are_looked_up_once(monkeypatch):
    prepared = Prepared(GRAPH, GRAPH.test)
    rank_triples(random_model("simple", **SIZES), GRAPH, GRAPH.test, prepared=prepared)
    monkeypatch.setattr(ranking.KnownAnswers, "of", pytest.fail)
    monkeypatch.setattr(ranking.KnownAnswers, "__init__", pytest.fail)
    assert_ranks(random_model("complex", **SIZES), GRAPH, GRAPH.test, prepared=prepared)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("seed", range(3))
def test_ties_are_counted_as_asked(ties, seed):
    model = tied_model(18, 3, seed=seed)
    assert_ranks(model, GRAPH, GRAPH.test, ties)


def test_the_tied_model_has_many_ties():
    one, other = (
        rank_triples(tied_model(18, 3), GRAPH, GRAPH.test, ties=ties)[Side.TAIL].rank
        for ties in ("optimistic", "pessimistic")
    )
    assert (one < other).mean() > 0.8


@pytest.mark.parametrize(("ties", "rank"), [("mean", 3.5), ("optimistic", 1), ("pessimistic", 6)])
def test_a_model_that_scores_everything_alike(ties, rank):
    graph = graph_of([(0, 0, 1)], test=[(2, 0, 3)], entities=6)
    ranks = rank_triples(GivenScores([7.0] * 6), graph, graph.test, ties=ties)
    assert [ranks[side].rank.tolist() for side in Side] == [[rank], [rank]]


@pytest.mark.parametrize("name", ["simple", "transh", "rotate"])
def test_chunks_of_one_row_and_of_many_give_equal_ranks(name, monkeypatch):
    model = random_model(name, **SIZES)
    whole = rank_triples(model, GRAPH, GRAPH.test)
    for rows in (1, 2, 7):
        monkeypatch.setattr(ranking, "chunk_rows", lambda *_, rows=rows: rows)
        parts = rank_triples(model, GRAPH, GRAPH.test)
        for side in Side:
            assert parts[side].rank.tolist() == whole[side].rank.tolist()
            assert parts[side].among.tolist() == whole[side].among.tolist()


@pytest.mark.parametrize("name", ["transd", "distmult"])
def test_no_memory_at_all_still_ranks_one_row_at_a_time(name):
    assert_ranks(random_model(name, **SIZES), GRAPH, GRAPH.test, memory_mb=0)


@pytest.mark.parametrize("entities", [10, 14_541, 123_143])
@pytest.mark.parametrize("memory_mb", [1, 64, 512])
def test_tables_of_a_chunk_stay_within_the_memory_given(entities, memory_mb):
    rows = chunk_rows(entities, memory_mb)
    assert rows == 1 or 4 * 3 * rows * entities <= memory_mb * 2**20
    assert 4 * 3 * (rows + 1) * entities > memory_mb * 2**20


def test_scores_that_are_compared_in_parts_give_equal_ranks(monkeypatch):
    graph, model = random_graph(), random_model("complex")
    with forced(PLAIN):
        whole = rank_triples(model, graph, graph.test)
        monkeypatch.setattr(ranking, "COUNTED", 60)  # two rows
        for side, ranks in rank_triples(model, graph, graph.test).items():
            assert np.array_equal(ranks.rank, whole[side].rank)


@pytest.mark.parametrize("entities", [100, 15_000, 1_000_000])
@pytest.mark.parametrize("memory_mb", [64, 128, 512, 4096])
def test_scores_and_what_is_compared_at_once_stay_within_the_memory_given(entities, memory_mb):
    rows = chunk_rows(entities, memory_mb)
    compared = ranking.counted_rows(rows, entities)
    taken = entities * (4 * rows + ranking.COUNTED_BYTES * compared)
    assert compared == 1 or taken <= memory_mb * 2**20


def test_a_chunk_has_at_least_one_row():
    assert chunk_rows(10**9, 1) == 1


def test_progress_adds_up_to_all_queries(monkeypatch):
    monkeypatch.setattr(ranking, "chunk_rows", lambda *_: 4)
    done = []
    rank_triples(random_model("transe", **SIZES), GRAPH, GRAPH.test, progress=done.append)
    assert sum(done) == 2 * len(GRAPH.test)
    assert max(done) <= 4


def test_known_triples_of_every_split_are_left_out():
    graph = graph_of([(0, 0, 1)], valid=[(0, 0, 2)], test=[(0, 0, 3), (0, 0, 4)], entities=6)
    scores = [0.0, 9.0, 8.0, 1.0, 7.0, 2.0]
    ranks = rank_triples(GivenScores(scores), graph, graph.test[:1])[Side.TAIL]
    assert ranks.rank.tolist() == [2.0]  # entity 5 alone is better
    assert ranks.among.tolist() == [3]


def test_an_entity_that_training_does_not_have_is_ranked():
    graph = graph_of([(0, 0, 1), (1, 0, 2)], test=[(5, 0, 1), (0, 0, 6)], entities=8)
    assert_ranks(random_model("complex", entities=8, relations=1), graph, graph.test)


def test_a_relation_that_training_does_not_have_is_ranked():
    graph = graph_of([(0, 0, 1), (1, 0, 2)], test=[(2, 1, 1)], entities=8, relations=2)
    assert_ranks(random_model("transd", entities=8, relations=2), graph, graph.test)


@pytest.mark.parametrize("ties", TIES)
def test_a_triple_that_no_split_holds_is_ranked_without_a_tie_with_itself(ties):
    graph = graph_of([(0, 0, 1), (1, 0, 2)], entities=8)
    assert_ranks(random_model("simple", entities=8, relations=1), graph, [(3, 0, 4)], ties)


def test_training_triples_can_be_ranked_too():
    assert_ranks(random_model("transe", **SIZES), GRAPH, GRAPH.train[:20])


@pytest.mark.parametrize("ties", TIES)
def test_a_split_without_triples_gives_no_ranks(ties):
    graph = graph_of([(0, 0, 1)], entities=4)
    ranks = rank_triples(random_model("transe", 4, 1), graph, graph.test, ties=ties)
    assert all(len(ranks[side].rank) == len(ranks[side].among) == 0 for side in Side)


@pytest.mark.parametrize("ties", TIES)
def test_a_score_that_is_not_a_number_ranks_last(ties):
    nan = float("nan")
    graph = graph_of([(0, 0, 1)], test=[(2, 0, 3)], entities=6)
    ranks = rank_triples(GivenScores([1.0, 5.0, nan, nan, nan, 2.0]), graph, graph.test, ties=ties)
    assert ranks[Side.TAIL].rank.tolist() == [6.0]
    assert ranks[Side.HEAD].rank.tolist() == [6.0]


@pytest.mark.parametrize("ties", TIES)
def test_others_that_are_not_a_number_are_below_the_true_one(ties):
    nan = float("nan")
    graph = graph_of([(0, 0, 1)], test=[(2, 0, 3)], entities=6)
    scores = [nan, 5.0, nan, 1.0, nan, 0.0]
    ranks = rank_triples(GivenScores(scores), graph, graph.test, ties=ties)[Side.TAIL]
    assert ranks.rank.tolist() == [2.0]


@pytest.mark.parametrize(("ties", "rank"), [("optimistic", 2), ("mean", 2.5), ("pessimistic", 3)])
def test_a_score_of_minus_infinity_is_not_tied_with_what_is_filtered(ties, rank):
    low = -float("inf")
    graph = graph_of([(2, 0, 0), (2, 0, 1)], test=[(2, 0, 3)], entities=5)
    scores = [9.0, 9.0, low, low, 1.0]  # 0 and 1 are filtered, 2 is tied, 4 is better
    ranks = rank_triples(GivenScores(scores), graph, graph.test, ties=ties)[Side.TAIL]
    assert ranks.rank.tolist() == [rank]


@pytest.mark.parametrize("name", list(SCORING))
def test_a_model_that_diverged_does_not_look_good(name):
    model = random_model(name, **SIZES)
    broken = EmbeddingModel(model.scoring, model.entity * float("nan"), model.relation)
    ranks = rank_triples(broken, GRAPH, GRAPH.test, ties="optimistic")
    for side in Side:
        assert ranks[side].rank.tolist() == ranks[side].among.tolist()


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", ["distmult", "transe", "tied"])
def test_ranks_without_loops_where_training_has_none(name, ties):
    loops = GRAPH.train[:, 0] == GRAPH.train[:, 2]
    train = GRAPH.train[~loops | (GRAPH.train[:, 1] == 1)]
    held_out = {
        split: GRAPH.split(split)[GRAPH.split(split)[:, 0] != GRAPH.split(split)[:, 2]]
        for split in ("valid", "test")
    }
    graph = graph_of(train, **held_out, **SIZES)
    assert graph.irreflexive.tolist() == [True, False, True]
    model = tied_model(18, 3) if name == "tied" else random_model(name, **SIZES)
    assert_ranks(model, graph, graph.test, ties)
    ranks = rank_triples(model, graph, graph.test, ties=ties)
    assert any((ranks[side].without_loops < ranks[side].rank).any() for side in Side)


def test_a_loop_that_is_known_or_true_is_not_taken_out_twice():
    graph = graph_of([(0, 0, 1)], valid=[(2, 0, 2)], test=[(2, 0, 3), (4, 0, 4)], entities=6)
    scores = [0.0, 1.0, 9.0, 5.0, 8.0, 6.0]
    ranks = rank_triples(GivenScores(scores), graph, graph.test)[Side.TAIL]
    assert ranks.rank.tolist() == [3, 2]
    assert ranks.without_loops.tolist() == [3, 6]  # a true loop ranks last


def test_unknown_ties_are_refused():
    with pytest.raises(UserError, match="mean, optimistic, pessimistic, not 'random'"):
        rank_triples(random_model("transe", **SIZES), GRAPH, GRAPH.test, ties="random")


def test_ranking_leaves_the_model_as_it_was():
    model = random_model("transh", **SIZES)
    before = [table.clone() for table in model.parameters()]
    rank_triples(model, GRAPH, GRAPH.test)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_question_that_several_triples_ask_is_scored_once():
    graph = graph_of([(0, 0, 1), (2, 1, 3)], entities=6)
    model, asked = GivenScores([0.1, 0.5, 0.2, 0.4, 0.3, 0.6]), []
    score_all = model.score_all
    model.score_all = lambda side, anchors, relations: (
        asked.append((side, anchors.tolist(), relations.tolist()))
        or score_all(side, anchors, relations)
    )
    triples = np.array([(1, 1, 4), (0, 0, 2), (3, 1, 4), (5, 0, 2), (1, 1, 5)])
    ranks = rank_triples(model, graph, triples)
    assert asked == [(Side.HEAD, [2, 4, 5], [0, 1, 1]), (Side.TAIL, [0, 5, 1, 3], [0, 0, 1, 1])]
    assert ranks[Side.HEAD].rank.tolist() == [2, 5, 2, 1, 2]
    assert ranks[Side.HEAD].among.tolist() == [5, 5, 5, 5, 6]
