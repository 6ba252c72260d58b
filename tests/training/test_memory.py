"""The plan of a run's memory against what the run allocates."""

import json
import subprocess
import sys
import tracemalloc

import pytest
import torch

from nscaching.evaluation.calibration import fit_calibration
from nscaching.models import SCORING
from nscaching.sampling import SamplerOptions
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training import Progress, TrainConfig, Trainer, memory
from nscaching.training.memory import plan_memory
from tests.conftest import random_graph

GRAPH = random_graph(entities=40)
DIM = 8


def parts_of(**options):
    return plan_memory(GRAPH, TrainConfig(device="cpu", dim=DIM, **options)).parts


@pytest.mark.parametrize("nu", [0.0, 0.5])
def test_the_caches_are_all_that_the_sampler_keeps(nu):
    options = {"cache_size": 7, "nu": nu, "alpha2": 1.0}
    sampler = NSCachingSampler(GRAPH, SamplerOptions(**options), torch.device("cpu"))
    tables = [getattr(cache, name) for cache in sampler.caches.values() for name in cache.parts]
    of_rows = sum(cache.first_places._stamps.nbytes for cache in sampler.caches.values())
    assert of_rows > 0
    assert parts_of(**options)["places of rows"] == of_rows
    assert parts_of(**options)["caches"] == sum(table.nbytes for table in tables)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("name", SCORING)
def test_ranking_is_planned_with_the_views_of_all_entities(name, on_gpu, monkeypatch):
    device = torch.device("cuda" if on_gpu else "cpu")
    monkeypatch.setattr(memory, "pick_device", lambda asked: device)
    copies = {"transe": 1 + on_gpu, "rotate": 2 * on_gpu, "transh": 4, "transd": 4}.get(name, 0)
    plain, mine = (parts_of(scoring=each)["evaluation"] for each in ("distmult", name))
    assert mine - plain == 4 * copies * DIM * GRAPH.num_entities


@pytest.mark.parametrize("few", [None, 9])
def test_questions_are_planned_as_a_validation_keeps_them(few, monkeypatch):
    config = TrainConfig(device="cpu", dim=DIM, valid_facts=few)
    trainer = Trainer(GRAPH, config, None, Progress("none"))
    trainer.validation.measure(trainer.model)
    prepared = trainer.validation._prepared
    of_facts = [*prepared.order.values(), prepared.among, prepared.left_out, prepared.true_loop]
    kept = sum(part.nbytes for part in prepared._kept.values()) + sum(x.nbytes for x in of_facts)
    planned = parts_of(valid_facts=few)["questions"]
    assert kept <= planned <= 1.5 * kept  # held-out facts count as answers to what is asked
    assert parts_of(valid_facts=few, valid_every=0)["questions"] == 0
    monkeypatch.setattr(memory, "KEPT_BYTES", 100)
    assert parts_of(valid_facts=few)["questions"] == 100 + sum(x.nbytes for x in of_facts)


def allocated(**options):
    """Return the bytes of the tables and of the optimiser's state of a run."""
    config = TrainConfig(device="cpu", dim=DIM, **options)
    trainer = Trainer(GRAPH, config, None, Progress("none"))
    tables = sum(table.nbytes for table in trainer.model.parameters())
    moments = [
        part
        for part in trainer.optimizer.state().values()
        if part.shape in {table.shape for table in trainer.model.parameters()}
    ]
    return tables, sum(part.nbytes for part in moments)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("optimizer", ["adam", "lazy-adam", "adagrad"])
def test_tables_and_moments_are_planned_as_they_are_allocated(optimizer, reciprocal):
    options = {"scoring": "complex", "optimizer": optimizer, "reciprocal": reciprocal}
    tables, moments = allocated(**options)
    parts = parts_of(**options)
    assert parts["parameters"] == tables
    counts = 0 if optimizer == "adagrad" else 12  # three counts of steps per entity
    assert parts["optimiser"] == moments + counts * GRAPH.num_entities


def batch_of(**options):
    return parts_of(**{"scoring": "complex", "batch_size": 64, **options})["batch"]


def test_a_batch_of_whole_rows_takes_more_than_one_of_single_negatives():
    sizes = {"cache_size": 7, "candidates": 5}
    one, both = (batch_of(loss=loss, **sizes) for loss in ("logistic", "softmax"))
    width = SCORING["complex"](DIM, 1).entity_width
    # Gradients of the true entity and of the 12 candidates, for both questions of each triple.
    gradients = 64 * 4 * 2 * width * (2 * (2 + 12) - (2 + 1))
    assert both - one == gradients + 6 * 4 * 128 * 13, "six tables of scores besides"


def test_gradients_that_are_added_up_by_entity_take_no_more_rows_than_there_are():
    few, many = (batch_of(loss="softmax", cache_size=size, candidates=0) for size in (20, 40))
    # 128 questions: candidates (8 + 8 + 4 bytes) and six tables of scores grow, gradients do not.
    assert many - few == 20 * 128 * (8 + 8 + 4 + 6 * 4)


def test_lazy_adam_on_a_gpu_takes_a_row_per_candidate(monkeypatch):
    monkeypatch.setattr(memory, "pick_device", lambda asked: torch.device("cuda"))
    given = {"loss": "softmax", "cache_size": 20, "candidates": 0}
    dense, lazy = (batch_of(optimizer=name, **given) for name in ("adam", "lazy-adam"))
    width = 4 * SCORING["complex"](DIM, 1).entity_width
    assert lazy - dense == 2 * (128 * 21 - GRAPH.num_entities) * width


@pytest.mark.parametrize("sampler", ["uniform", "nscaching"])
def test_a_pool_is_planned_with_the_scores_of_every_question(sampler):
    options = {"loss": "softmax", "sampler": sampler, "cache_size": 7}
    small, large = (batch_of(**options, pool=size) for size in (1000, 3000))
    tables = 6 if sampler == "nscaching" else 5
    rows = 3 * 4 * SCORING["complex"](DIM, 1).entity_width
    assert large - small == 2000 * (tables * 4 * 128 + rows)
    smoothed = batch_of(**options, pool=3000, label_smoothing=0.1)
    assert smoothed > 1.5 * large


def test_distances_to_a_pool_take_four_more_tables():
    options = {"loss": "softmax", "sampler": "uniform", "scoring": "rotate"}
    small, large = (batch_of(**options, pool=size) for size in (1000, 3000))
    rows = 3 * 4 * SCORING["rotate"](DIM, 1).entity_width
    assert large - small == 2000 * (9 * 4 * 128 + rows)


def test_logits_over_all_entities_are_planned_up_to_their_bound(monkeypatch):
    monkeypatch.setattr(memory, "LOGIT_BYTES", 1 << 10)
    bounded = batch_of(loss="softmax", sampler="all")
    monkeypatch.undo()
    whole = batch_of(loss="softmax", sampler="all")
    assert whole - bounded == 2 * (4 * 128 * GRAPH.num_entities - (1 << 10))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_peak_has_one_of_what_comes_in_turn(on_gpu, monkeypatch):
    device = torch.device("cuda" if on_gpu else "cpu")
    monkeypatch.setattr(memory, "pick_device", lambda asked: device)
    plan = plan_memory(GRAPH, TrainConfig(device="cpu", dim=DIM))
    in_turn = [plan.parts[name] for name in ("batch", "evaluation", "probabilities")]
    rest = sum(plan.parts.values()) - sum(in_turn)
    assert in_turn[2] > max(in_turn[:2])
    assert plan.total == rest + max(in_turn[: 2 if on_gpu else 3])  # they are fitted on the host


def test_probabilities_are_planned_as_their_fit_takes_them():
    graph = random_graph(entities=300, train=3000, held_out=200)
    model = Trainer(graph, TrainConfig(device="cpu", dim=DIM), None, Progress("none")).model
    planned = plan_memory(graph, TrainConfig(device="cpu", dim=DIM)).parts["probabilities"]
    tracemalloc.start()
    try:
        fit_calibration(model, graph)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.3 * planned < held < 1.1 * planned


@pytest.mark.parametrize(("loss", "weights"), [("logistic", 4), ("softmax", 0)])
def test_the_weights_of_facts_are_planned_where_they_are_made(loss, weights):
    options = {"device": "cpu", "dim": DIM, "scoring": "complex", "loss": loss}
    plain, weighted = (
        plan_memory(GRAPH, TrainConfig(**options, subsampling=given)).parts["triples"]
        for given in (False, True)
    )
    assert weighted - plain == weights * len(GRAPH.train)


def test_the_host_of_a_gpu_holds_the_state_of_a_run_while_it_is_written():
    plan = plan_memory(GRAPH, TrainConfig(device="cpu", dim=DIM, sampler="nscaching"))
    written = sum(plan.parts[name] for name in ("parameters", "optimiser", "best model", "caches"))
    assert plan.host == plan.parts["program"] + plan.parts["graph"] + written


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_the_host_of_a_gpu_holds_no_gradients(optimizer, monkeypatch):
    config = TrainConfig(device="cpu", dim=DIM, optimizer=optimizer)
    monkeypatch.setattr(memory, "_program_bytes", lambda on_gpu: 0)
    there = plan_memory(GRAPH, config)
    monkeypatch.setattr(memory, "pick_device", lambda asked: torch.device("cuda"))
    on_gpu = plan_memory(GRAPH, config)
    assert on_gpu.parts["gradients"] == there.parts["parameters"]
    assert on_gpu.host == there.host


@pytest.mark.parametrize(
    ("scoring", "sampler", "table"),
    [("complex", "uniform", 0), ("transe", "uniform", 1), ("complex", "all", 0)],
)
def test_a_gpu_keeps_no_table_of_gradients_that_are_products(scoring, sampler, table, monkeypatch):
    options = {"scoring": scoring, "sampler": sampler, "loss": "softmax", "optimizer": "adagrad"}
    config = TrainConfig(device="cpu", dim=DIM, **options)
    monkeypatch.setattr(memory, "pick_device", lambda asked: torch.device("cuda"))
    monkeypatch.setattr(memory, "SORTED", 1)
    (entities, width), (relations, own) = config.table_shapes(
        GRAPH.num_entities, GRAPH.num_relations
    ).values()
    gradients = plan_memory(GRAPH, config).parts["gradients"]
    assert gradients == 4 * (table * entities * width + relations * own)


#: Trains in a process of its own and prints what was planned and what was taken, in bytes.
_MEASURE = """
import json, sys
import nscaching as ns
import numpy as np
from nscaching.training import Progress, TrainConfig, Trainer
from nscaching.training.memory import plan_memory
ends = (300_000 * np.random.default_rng(0).random((1400, 3))).astype(np.int32) // [1, 300_000, 1]
names = [f"e{number}" for number in range(300_000)]
graph = ns.KnowledgeGraph(names, ["r"], ends[400:], ends[:200], ends[200:400])
config = TrainConfig(device="cpu", dim=8, epochs=2, valid_every=1, **json.loads(sys.argv[1]))
planned = plan_memory(graph, config).total
Trainer(graph, config, None, Progress("none")).run(resume=False)
status = open("/proc/self/status").read()  # ru_maxrss has the size of the parent at the fork
print(planned, 1024 * int(status.split("VmHWM:")[1].split()[0]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is counted differently")
@pytest.mark.parametrize("sampler", ["all", "uniform", "nscaching"])
def test_a_run_takes_what_was_planned_within_a_sixth(sampler):
    options = {"scoring": "complex", "loss": "softmax", "optimizer": "adagrad", "batch_size": 500}
    options |= {"sampler": sampler, "pool": 0 if sampler == "all" else 8000}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, json.dumps(options)],
        check=True,
        capture_output=True,
        text=True,
    )
    planned, peak = map(int, done.stdout.split())
    assert planned == pytest.approx(peak, rel=1 / 6)
