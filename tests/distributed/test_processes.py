"""One, two and four processes end with the same bits."""

import signal

import numpy as np
import pytest
import torch

from nscaching.errors import TrainingInterrupted, UserError
from nscaching.graph import load_graph
from nscaching.interrupt import StopRequest
from nscaching.training import Progress, TrainConfig, Trainer
from tests.conftest import graph_of
from tests.distributed.helpers import (
    STEPS,
    all_kinds,
    config,
    ended,
    in_processes,
    small_graph,
    take_steps,
)

#: The issue's three, and one where every entity is a candidate.
COMPARED = ("transe", "complex", "cached", "all")


@pytest.mark.slow
def test_the_number_of_processes_changes_no_bit():
    assert_number_changes_nothing()


@pytest.mark.slow
@pytest.mark.usefixtures("bfloat16_products")
def test_the_number_of_processes_changes_no_bit_with_products_of_bfloat16():
    assert_number_changes_nothing()


def assert_number_changes_nothing():
    alone = all_kinds(COMPARED)
    for count, found in in_processes(4, all_kinds, COMPARED, groups=(4, 2)).items():
        for kind in COMPARED:
            expected, _ = alone[kind]
            together = {}
            for of_process, _ in (each[kind] for each in found):
                together |= of_process
            assert together.keys() == expected.keys()
            for name, tensor in expected.items():
                if name.endswith("loss"):  # the only sum that is taken by process first
                    torch.testing.assert_close(together[name], tensor)
                else:
                    assert torch.equal(together[name], tensor), (count, kind, name)
        sent = sum(bytes_sent for _, bytes_sent in (each["transe"] for each in found)) / count
        assert sent == pytest.approx(expected_bytes(count), rel=0.02)


def with_empty_rows():
    """Return what runs end with on a graph where every entity is a tail of some (h, r)."""
    facts = [(h, 0, t) for h in range(3) for t in range(200)]
    more = np.random.default_rng(0).integers((0, 1, 0), (200, 2, 200), size=(300, 3))
    graph, found = graph_of([*facts, *more[20:]], more[:20], entities=200), {}
    for optimizer in ("adam", "lazy-adam"):
        options = {"optimizer": optimizer, "batch_size": 4, "lr": 0.05}
        trainer = take_steps(graph, "complex", steps=100, **options)
        found |= {f"{optimizer}/{name}": each for name, each in ended(trainer).items()}
    return found


@pytest.mark.slow
def test_the_number_of_processes_changes_no_bit_where_cache_rows_are_empty():
    alone, together = with_empty_rows(), {}
    for found in in_processes(2, with_empty_rows)[2]:
        together |= found
    assert together.keys() == alone.keys()
    for name, tensor in alone.items():
        assert name.endswith("loss") or torch.equal(together[name], tensor), name


def expected_bytes(processes):
    """Return what a process sends in some steps of the margin loss; no size of a cache is in it."""
    trainer = take_steps(load_graph("world"), "transe", steps=0)
    batches = trainer.columns[1][trainer.order].split(trainer.batch_size)
    relations = sum(len(batch.unique()) for batch in batches[:STEPS])
    triples, width, others = STEPS * trainer.batch_size / processes, 8, processes - 1
    rows = 2 * triples * width * 4 * others
    gradients = (8 * triples * width + 8 * relations * width) * others / processes
    return rows + gradients


def stopped():
    """Train until a signal that only the last process gets; return where each stopped."""
    rank, options = torch.distributed.get_rank(), {"epochs": 50, "valid_every": 0}
    trainer = Trainer(small_graph(300), config("transe", **options), None, Progress("none"))
    stop = StopRequest()
    if rank == torch.distributed.get_world_size() - 1:
        trainer.after_epoch = lambda epoch: setattr(stop, "signal", signal.SIGTERM)
    with pytest.raises(TrainingInterrupted, match=r"Stopped by SIGTERM after epoch 1 of 50"):
        trainer.run(resume=False, stop=stop)
    return trainer.counters.epoch


@pytest.mark.slow
def test_all_processes_stop_where_one_is_asked_to():
    assert in_processes(2, stopped) == {2: [1, 1]}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"sampler": "kbgan"}, "the sampler kbgan"),
        ({"trace": True}, "tracing"),
        ({"alpha1": 0.5}, "alpha1"),
        ({"select": "accuracy"}, "select accuracy"),
        ({"subsampling": True}, "subsampling"),
    ],
)
def test_what_strata_cannot_do_is_refused(options, what):
    given = TrainConfig(strata=2, **options)
    with pytest.raises(UserError, match=f"do not go with {what}; train in one process, with str"):
        given.check_strata()
    TrainConfig(strata=1, **options).check_strata()
