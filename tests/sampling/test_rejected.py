"""Rejected facts: which questions have them as candidates, and what comes of it."""

import numpy as np
import torch

import nscaching as ns
from nscaching import KnowledgeGraph
from nscaching.sampling import Batch, triple_columns
from nscaching.sampling.rejected import RejectedFacts

from ..conftest import random_graph

CPU = torch.device("cpu")


def with_rejected(graph, rejected):
    rows = np.hstack([rejected, np.full((len(rejected), 1), -1)])
    return KnowledgeGraph(
        graph.entities,
        graph.relations,
        graph.train,
        labelled={"rejected": rows},
    )


def test_every_question_of_a_batch_has_its_rejected_answers_and_no_others():
    plain = random_graph()
    random = np.random.default_rng(0)
    # Most answer a question of training; the last two answer none on one side or on both.
    some = plain.train[random.integers(len(plain.train), size=40)].copy()
    some[:20, 2], some[20:, 0] = random.integers(25, size=20), random.integers(25, size=20)
    facts = {tuple(row) for row in plain.train.tolist()}
    rejected = np.unique([row for row in some.tolist() if tuple(row) not in facts], axis=0)
    graph = with_rejected(plain, rejected)
    held = RejectedFacts.of(graph, CPU)
    batch = Batch.of(triple_columns(graph, CPU), torch.arange(len(graph.train)))
    count = len(batch)
    both = torch.tensor([True] * count + [False] * count)
    found = held.of_questions(batch, both)
    one_side = torch.arange(count) % 2 == 0
    assert torch.equal(
        held.of_questions(batch, one_side),
        torch.where(one_side.unsqueeze(1), found[:count], found[count:]),
    )
    for place, (h, r, t) in enumerate(graph.train.tolist()):
        heads = {a for a, b, c in rejected.tolist() if (b, c) == (r, t)}
        tails = {c for a, b, c in rejected.tolist() if (a, b) == (h, r)}
        assert set(found[place].tolist()) - {-1} == heads
        assert set(found[count + place].tolist()) - {-1} == tails
        assert (found[place] >= 0).sum() == len(heads)
    assert RejectedFacts.of(plain, CPU) is None


def test_a_rejected_fact_scores_lower_with_every_sampler_and_loss():
    plain = random_graph()
    plain = KnowledgeGraph(plain.entities, plain.relations, plain.train)
    h, r, _ = plain.train[0].tolist()
    for options in (
        {"sampler": "bernoulli"},
        {"sampler": "nscaching", "cache_size": 4, "candidates": 4},
        {"sampler": "nscaching", "cache_size": 4, "candidates": 4, "loss": "softmax"},
        {"sampler": "all", "loss": "softmax"},
        {"sampler": "bernoulli", "scoring": "transe"},
    ):
        given = {"scoring": "complex", "dim": 8, "epochs": 60, "lr": 0.02, "split": 0, **options}
        given["recipe"] = "paper"
        before = ns.train(plain, progress="none", **given)
        wrong = before.predict_tails(h, r, k=1, by="score")[0]
        graph = with_rejected(plain, np.array([[h, r, plain.entity_id(wrong.tail)]]))
        after = ns.train(graph, progress="none", **given)
        ranked = [answer.tail for answer in after.predict_tails(h, r, k=25, by="score")]
        assert wrong.tail not in ranked, options
        assert after.score([(h, r, wrong.tail)])[0] < wrong.score - 1, options
