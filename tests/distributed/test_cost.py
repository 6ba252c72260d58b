"""The cost model: bytes against what an exchange counts, memory that shrinks, strata that fit."""

from dataclasses import replace

import pytest
import torch

from nscaching.distributed.cost import (
    LOCAL_BANDWIDTH,
    Network,
    bytes_per_step,
    expected_cost,
    plan_process,
    strata_for,
)
from nscaching.errors import UserError
from nscaching.graph import load_graph
from nscaching.training import memory

from .helpers import config, in_processes, take_steps


@pytest.fixture(scope="module")
def graph():
    return load_graph("world")


@pytest.mark.parametrize(
    ("strata", "processes", "expected"), [(1, 1, 1), (1, 4, 8), (1, 3, 3), (6, 3, 6), (4, 4, 4)]
)
def test_strata_are_chosen_so_that_processes_divide_them(strata, processes, expected):
    assert strata_for(strata, processes) == expected


def test_processes_that_cannot_share_the_strata_are_refused():
    with pytest.raises(UserError, match="3 processes cannot share 4 strata"):
        strata_for(4, 3)


def sent_per_step(kinds, steps=20):
    """Return the bytes that this process sends in a step of each kind."""
    found = {}
    for kind in kinds:
        trainer = take_steps(load_graph("world"), kind, steps=1)
        exchange = trainer.placement.shards.exchange
        before = exchange.bytes_sent
        for _ in range(steps):
            trainer.executor.step()
        found[kind] = (exchange.bytes_sent - before) / steps
    return found


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_the_formula_gives_the_bytes_that_are_sent(graph, processes):
    kinds = ["transe", "complex", "cached", "context", "uniform", "all"]
    sent = in_processes(processes, sent_per_step, kinds)[processes]
    for kind in kinds:
        counted = sum(found[kind] for found in sent) / processes
        formula, _ = bytes_per_step(graph, config(kind), processes)
        assert counted == pytest.approx(formula, rel=0.02), kind


def test_candidates_do_not_travel(graph):
    few = config("transe", cache_size=2, candidates=2)
    many = config("transe", cache_size=900, candidates=900)
    assert bytes_per_step(graph, few, 4) == bytes_per_step(graph, many, 4)


def test_a_process_holds_its_part(graph):
    settings = config("transe", strata=8, dim=256)
    one, four = (plan_process(graph, settings, n).parts for n in (1, 4))
    for name in ("copy", "caches"):
        assert four[name] == pytest.approx(one[name] / 4, abs=1)
    assert four["parameters"] < one["parameters"] / 3  # relations are in each
    assert four["triples"] == one["triples"]
    kept = sum(four[name] for name in ("parameters", "optimiser", "best model", "caches"))
    assert four["checkpoint"] == kept + 2 * kept * 4 // 8  # a copy, and a stratum's file twice


def test_a_checkpoint_has_no_gradients(graph, monkeypatch):
    settings = config("transe", strata=8)
    there = plan_process(graph, settings, 2).parts["checkpoint"]
    monkeypatch.setattr(memory, "pick_device", lambda asked: torch.device("cuda"))
    on_gpu = plan_process(graph, settings, 2).parts
    assert on_gpu["gradients"] > 0
    assert on_gpu["checkpoint"] == there


def test_expected_time_is_that_of_the_slower_network(graph):
    settings = replace(config("complex", strata=8), batch_size=1024)
    slow, fast = (
        expected_cost(graph, settings, 4, Network(2, g), step_seconds=0.1) for g in (0.1, 10)
    )
    assert slow.sent_bytes == fast.sent_bytes
    assert slow.communication_seconds > fast.communication_seconds
    through = 2 * slow.sent_bytes * 2 / 3 / (0.1e9 / 8)  # two processes share the interface
    assert slow.communication_seconds == pytest.approx(through, rel=0.1)
    alone = expected_cost(graph, settings, 1, Network(), step_seconds=0.1)
    assert (alone.communication_seconds, alone.compute_seconds) == (0.0, 0.1)
    here = expected_cost(graph, settings, 4, Network(), step_seconds=0.1)
    assert here.communication_seconds > 4 * here.sent_bytes / LOCAL_BANDWIDTH
