"""Uniform negatives on the CPU: the compiled loop and plain torch."""

import torch

from nscaching.kernels.registry import forced
from tests.conftest import (
    assert_follows,
    device_of,
    graph_of,
    kernel_forms,
    on_both_paths,
    seeded,
    with_one_thread_and_with_all,
)
from tests.sampling.helpers import batch_of, sampler_of

#: (0, r, ?) has 7 of the 10 entities as answers, (?, r, 9) one.
CROWDED = graph_of([(0, 0, t) for t in range(1, 7)] + [(0, 0, 9)], entities=10)


def drawn(replaces_head, copies=3000, graph=CROWDED, triple=6, **options):
    """Draw two candidates for each of many copies of one question."""
    sampler, batch = sampler_of(graph, "uniform", **options), batch_of(graph, [triple] * copies)
    sides = torch.full((copies,), replaces_head)
    rows = batch.head_rows if replaces_head else batch.tail_rows
    return sampler.uniform_candidates(sides, rows, 2, seeded(1))


@on_both_paths
def test_they_are_even_over_what_is_no_known_answer():
    for swap, answers in ((False, {1, 2, 3, 4, 5, 6, 9}), (True, {0})):
        entities = drawn(swap)
        proper = entities >= 0
        # 17 draws are not enough in one of 430 cases, where 7 of 10 entities are answers.
        assert proper.float().mean() > 0.99
        assert_follows(entities[proper], [float(e not in answers) for e in range(10)])


@on_both_paths
def test_known_answers_may_be_allowed():
    entities = drawn(False, known_positives="allow")
    assert_follows(entities, [1.0] * 10)


@on_both_paths
def test_a_pair_that_all_entities_answer_has_none():
    full = graph_of([(0, 0, t) for t in range(5)], entities=5)
    assert (drawn(False, copies=5, graph=full, triple=0) == -1).all()
    assert (drawn(True, copies=5, graph=full, triple=0) > 0).all()


def test_both_paths_draw_the_same():
    found = []
    for kind in kernel_forms():
        if device_of(kind) != "cpu":
            continue  # a generator of a GPU draws another seed
        with forced(kind):
            found.append([drawn(swap, copies=40) for swap in (False, True)])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_threads_change_nothing():
    one, other = with_one_thread_and_with_all(lambda: drawn(False))
    assert torch.equal(one, other)
