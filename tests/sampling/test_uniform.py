"""Uniform negatives on the CPU: the compiled loop and plain torch."""

import pytest
import torch

from nscaching.sampling import base
from tests.conftest import assert_follows, graph_of, seeded, with_one_thread_and_with_all
from tests.sampling.helpers import batch_of, sampler_of

#: (0, r, ?) has 7 of the 10 entities as answers, (?, r, 9) one.
CROWDED = graph_of([(0, 0, t) for t in range(1, 7)] + [(0, 0, 9)], entities=10)


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(base, "HAVE_NUMBA", False)


def drawn(swap, copies=3000, **options):
    sampler, batch = sampler_of(CROWDED, "uniform", **options), batch_of(CROWDED, [6] * copies)
    sides = torch.full((copies, 2), swap)
    return sampler.uniform_negatives(batch, sides, seeded(1))


def test_they_are_even_over_what_is_no_known_answer(path):
    for swap, answers in ((False, {1, 2, 3, 4, 5, 6, 9}), (True, {0})):
        entities, proper = drawn(swap)
        # 17 draws are not enough in one of 430 cases, where 7 of 10 entities are answers.
        assert proper.float().mean() > 0.99
        assert_follows(entities[proper], [float(e not in answers) for e in range(10)])


def test_known_answers_may_be_allowed(path):
    entities, proper = drawn(False, known_positives="allow")
    assert proper.all()
    assert_follows(entities, [1.0] * 10)


def test_a_pair_that_all_entities_answer_has_none(path):
    full = graph_of([(0, 0, t) for t in range(5)], entities=5)
    sampler, batch = sampler_of(full, "uniform"), batch_of(full)
    _, proper = sampler.uniform_negatives(batch, torch.full((5, 3), False), seeded(0))
    assert not proper.any()


def test_threads_change_nothing():
    one, other = with_one_thread_and_with_all(lambda: drawn(False))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
