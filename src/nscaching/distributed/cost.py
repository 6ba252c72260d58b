"""What a run on several processes takes: memory per process, bytes per step, expected time.

A process sends per step, on average, with P processes, V strata, a batch of b triples and q
questions (b, or 2 b with the softmax loss), rows of w and relations of w' floats, and R distinct
relations in a batch:

    rows of heads and tails, to all others             2 b / P * 4 w * (P - 1)
    gradients of them, home                            2 b / P * 4 w * (P - 1) / P
    gradients of relations, summed                     2 R * 4 w' * (P - 1) / P
    softmax: gradients of queries, to their block      q * 4 w * (P - 1) / P
             (with relational views, as of TransH and TransD, a query and its context: q * 8 dim)
    softmax: a logarithm per question and stratum      q * 4 * V / P * (P - 1)

The cache size N1 and the candidates N2 are in none of it: candidates never travel.
``benchmarks/large/namespaces.py`` compares this with the counters of a network interface, and the
expected time with what runs take at limited bandwidth.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.processes import Group, cores
from nscaching.training.config import TrainConfig
from nscaching.training.devices import free_bytes, pick_device
from nscaching.training.memory import MemoryPlan, plan_memory

#: The first version with checkpoints that are safetensors and signals that a launcher handles.
_TORCH = (2, 9)
#: Strata of a run on several processes where none are named.
USUAL_STRATA = 8
#: Bytes per second and seconds per exchange between processes of one host (gloo, loopback).
LOCAL_BANDWIDTH, LOCAL_LATENCY = 1.2e9, 1.5e-4
#: The same between hosts, where nothing is said of the network.
USUAL_GIGABITS, NETWORK_LATENCY = 25.0, 3e-4
#: Share of the work of a step that every process does: queries, their autograd, book-keeping.
REPLICATED = 0.14
#: What torch.distributed.checkpoint adds to the program, and what a group of processes adds.
_CHECKPOINT_BYTES, _GROUP_BYTES = 46 << 20, 74 << 20
#: Options that may differ between hosts; of the data the fingerprint is compared.
_OF_HOST = {"data", "device", "eval_memory"}


def strata_for(strata: int, processes: int) -> int:
    """Return the strata of a run: those asked for, or a number that many processes divide."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _TORCH and max(processes, strata) > 1:
        raise UserError(
            f"Runs with strata need torch {_TORCH[0]}.{_TORCH[1]} or newer for their checkpoints; "
            f"this is {torch.__version__}."
        )
    if processes > 1 and strata == 1:
        return USUAL_STRATA if USUAL_STRATA % processes == 0 else processes
    if strata % processes:
        raise UserError(
            f"{processes} processes cannot share {strata} strata; choose a number of processes "
            "that divides the strata, or another --strata (strata=...) for a new run."
        )
    return strata


def agree(group: Group, graph: KnowledgeGraph, config: TrainConfig, has_folder: bool) -> None:
    """Refuse processes that differ in version, data or options, or that lack memory."""
    with group.together():
        if not has_folder:
            raise UserError("A run on several processes needs a run folder (--out, out=...).")
        strata_for(config.strata, group.size)
    options = {k: str(v) for k, v in config.as_dict().items() if k not in _OF_HOST}
    group.refuse_differences({"the data": graph.fingerprint[:16], **options})
    device = pick_device(config.device)
    needed = plan_process(graph, config, group.size).total
    group.refuse_lack_of_memory(needed, free_bytes(device))


def plan_process(graph: KnowledgeGraph, config: TrainConfig, processes: int) -> MemoryPlan:
    """Return the memory of one of so many processes: its strata, and what each of them holds."""
    whole_run = plan_memory(graph, config)
    parts = dict(whole_run.parts)
    shapes = config.table_shapes(graph.num_entities, graph.num_relations)
    entity, relation = (4 * rows * width for rows, width in shapes.values())
    width, batch = shapes["entity"][1], config.batch(len(graph.train))
    for name in ("parameters", "optimiser", "gradients", "best model"):
        whole = parts[name]
        of_relations = whole * relation // (entity + relation)
        parts[name] = of_relations + math.ceil((whole - of_relations) / processes)
    for name in ("copy", "caches", "known positives", "evaluation"):
        parts[name] = math.ceil(parts[name] / processes)
    if processes > 1:
        parts["program"] += _GROUP_BYTES
    if config.strata > 1:
        parts["program"] += _CHECKPOINT_BYTES
        slots = 2 * batch * 4 * width
        parts["batch"] = math.ceil((parts["batch"] + _own_rows(config) * slots) / processes)
        parts["batch"] += 5 * slots
        pairs = len(graph.rows.head.anchor) + len(graph.rows.tail.anchor)
        parts["known positives"] += 8 * pairs * (config.strata // processes)  # offsets by stratum
        parts["places"] = 16 * graph.num_entities
        kept = sum(parts[name] for name in ("parameters", "optimiser", "best model", "caches"))
        # A copy, and the file of one stratum, which is in memory twice while it is put together.
        parts["checkpoint"] = kept + 2 * kept * processes // config.strata
    return MemoryPlan(parts, whole_run.on_gpu)


def _own_rows(config: TrainConfig) -> int:
    """Return how many rows a softmax holds per question: few candidates of a stratum each."""
    if not config.asks_both_sides() or config.sampler == "all":
        return 0
    cached = config.cache_size + (0 if config.pool else config.candidates)
    drawn = cached if config.sampler == "nscaching" else config.negatives or 0
    return 4 * drawn  # gathered, and three times on the way to the gradients


@dataclass(frozen=True)
class Network:
    """How fast processes reach each other."""

    hosts: int = 1
    gigabits: float = USUAL_GIGABITS  #: per second between two hosts

    def seconds(self, sent: float, exchanges: int, processes: int) -> float:
        """Return what a step waits for, if each process sends so many bytes in some exchanges."""
        if processes == 1:
            return 0.0
        here = processes // self.hosts  # processes of one host share its interface
        seconds = sent * here / LOCAL_BANDWIDTH + exchanges * LOCAL_LATENCY * (processes - 1)
        if self.hosts > 1:
            outside = sent * here * (processes - here) / (processes - 1)
            seconds = outside / (self.gigabits / 8 * 1e9) + exchanges * NETWORK_LATENCY
        return seconds


@dataclass(frozen=True)
class Cost:
    """A run on several processes: per process and step unless it says otherwise."""

    processes: int
    hosts: int
    strata: int
    process_bytes: int  #: memory
    host_bytes: int  #: memory of all processes of a host
    sent_bytes: int
    exchanges: int
    communication_seconds: float
    compute_seconds: float | None  #: None where a step was not timed
    epoch_seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Return what a table shows."""
        seconds = [
            ("seconds per step, computing", self.compute_seconds),
            ("seconds per step, communicating", self.communication_seconds),
            ("seconds per epoch", self.epoch_seconds),
        ]
        return [
            ("strata", f"{self.strata}"),
            ("MB per process", f"{self.process_bytes / 1e6:,.0f}"),
            ("MB per host", f"{self.host_bytes / 1e6:,.0f}"),
            ("KB sent per process and step", f"{self.sent_bytes / 1e3:,.0f}"),
            *((name, f"{value:.3g}") for name, value in seconds if value is not None),
        ]


def expected_cost(
    graph: KnowledgeGraph,
    config: TrainConfig,
    processes: int,
    network: Network,
    step_seconds: float | None = None,
) -> Cost:
    """Return what a run takes; ``step_seconds`` is a step of one process, as one of them has it."""
    config = replace(config, strata=strata_for(config.strata, processes))
    memory = plan_process(graph, config, processes).total
    sent, exchanges = bytes_per_step(graph, config, processes)
    waits = network.seconds(sent, exchanges, processes)
    compute = epoch = None
    if step_seconds is not None:
        crowd = 1.0 if config.device == "cuda" else max(1.0, processes / network.hosts / cores())
        compute = step_seconds * (REPLICATED + (1 - REPLICATED) / processes) * crowd
        steps = math.ceil(len(graph.train) / config.batch(len(graph.train)))
        epoch = steps * (compute + waits)
    per_host = math.ceil(processes / network.hosts) * memory
    given = (processes, network.hosts, config.strata, memory, per_host, round(sent), exchanges)
    return Cost(*given, waits, compute, epoch)


def bytes_per_step(graph: KnowledgeGraph, config: TrainConfig, processes: int) -> tuple[float, int]:
    """Return the bytes that a process sends to others in a step, and in how many exchanges."""
    scoring, batch = config.build_scoring(), config.batch(len(graph.train))
    count, others = min(batch, len(graph.train)), processes - 1
    row = 4 * scoring.entity_width
    sent = 2 * count / processes * row * (others + others / processes)
    share = np.bincount(graph.train[:, 1], minlength=graph.num_relations) / len(graph.train)
    distinct = float(np.sum(1 - (1 - share) ** count)) * (2 if config.reciprocal else 1)
    sent += 2 * distinct * 4 * scoring.relation_width * others / processes
    if not config.asks_both_sides():
        return sent, 4
    questions = 2 * count
    of_all, smoothed = config.sampler == "all", config.label_smoothing > 0
    numbers = 1 + smoothed * (1 if of_all else 2)
    relational = scoring.match.relational_view  # queries have contexts, an exchange of their own
    sent += questions * (8 * scoring.dim if relational else row) * others / processes
    sent += numbers * questions * 4 * config.strata / processes * others
    return sent, 6 + (smoothed and of_all) + relational


def time_step(graph: KnowledgeGraph, config: TrainConfig, processes: int, steps: int = 12) -> float:
    """Time a step of one process with the threads that one of so many has; tables are made."""
    from nscaching.training import Progress, Trainer

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // processes))
    try:
        config = replace(config, pretrain_epochs=0, generator_epochs=0, init_from=None)
        trainer = Trainer(graph, config, None, Progress("none"))
        trainer.sampler.prepare(trainer.model, trainer.generator)
        trainer.executor.begin_epoch(trainer.sampler.begin_epoch(0, trainer.generator), 0)
        taken = []
        for _ in range(min(steps, math.ceil(len(graph.train) / trainer.batch_size))):
            started = time.perf_counter()
            trainer.executor.step()
            trainer.executor.loss()  # waits for the device
            taken.append(time.perf_counter() - started)
        return float(np.median(taken[len(taken) // 2 :]))
    finally:
        torch.set_num_threads(before)
