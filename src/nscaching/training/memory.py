"""How much memory a run will take, known before it starts.

The sums follow the allocations one by one, so that what ``--dry-run`` prints is what a run takes;
``benchmarks/growth.py`` measures the difference.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from nscaching.errors import UserError
from nscaching.evaluation.ranking import LIVE_TABLES, chunk_rows
from nscaching.graph import KnowledgeGraph
from nscaching.kernels.registry import CPU, PLAIN, compiled_for
from nscaching.losses import LOGIT_BYTES
from nscaching.models import ScoringFunction
from nscaching.models.match import NO_VIEW
from nscaching.models.matches import Dot
from nscaching.sampling import SAMPLERS
from nscaching.training.config import TrainConfig
from nscaching.training.devices import free_bytes, pick_device
from nscaching.training.tracing.repeats import followed_triples

#: Bytes of a short Python string in a list, and of its place in the dictionary of names.
_NAME_BYTES = 70 + 8 + 100
#: The interpreter, torch, Numba and Arrow, with nothing loaded yet.
_PROGRAM_BYTES = 450 << 20


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by what they are for, in the order of a run."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.parts.values())


def plan_memory(graph: KnowledgeGraph, config: TrainConfig) -> MemoryPlan:
    """Add up what a run of this configuration on this graph allocates at its peak."""
    scoring = config.build_scoring()
    triples, entities = len(graph.train), graph.num_entities
    shapes = config.table_shapes(entities, graph.num_relations)
    parameters = 4 * sum(rows * width for rows, width in shapes.values())
    on_gpu = pick_device(config.device).type == "cuda"  # where row gradients are added up
    moments = 1 if config.optimizer == "adagrad" else 2
    rows = len(graph.rows.head.anchor) + len(graph.rows.tail.anchor)
    parts = {
        "program": program_bytes(),
        "graph": _graph_bytes(graph),
        "parameters": parameters,
        "optimiser": (moments + on_gpu) * parameters + 12 * entities,
        "copy": 0,
        "best model": parameters if len(graph.valid) and config.valid_every else 0,
        "caches": 0,
        "generator": 0,
        "triples": triples * (5 * 4 + 8),
        "known positives": 2 * 8 * triples if config.known_positives == "exclude" else 0,
        "batch": _batch_bytes(graph, config, scoring.entity_width),
        "trace": _trace_bytes(graph, config) if config.is_traced() else 0,
        "evaluation": 0,
    }
    if config.uses_copy(pick_device(config.device).type, triples, entities):
        parts["copy"] = entities * (
            2 * scoring.entity_width if on_gpu else scoring.entity_width + 4
        )
    if config.sampler == "nscaching":
        followed = 3 * 4 if config.nu > 0 else 0  # count, mean and deviation of a score
        parts["caches"] = rows * min(config.cache_size, entities) * (4 + 2 + followed)
    if SAMPLERS[config.sampler].has_generator:
        parts["generator"] = _generator_bytes(graph, config)
    if len(graph.valid) or len(graph.test):
        queries = max(len(graph.valid), len(graph.test))
        live = min(chunk_rows(entities, config.eval_memory), queries)
        every = len(graph.train) + len(graph.valid) + len(graph.test)
        tables = LIVE_TABLES if on_gpu else 1  # the CPU counts in one pass
        parts["evaluation"] = tables * 4 * entities * live + (5 * 8 + 12) * every
        parts["evaluation"] += entities * _view_bytes(scoring, on_gpu)
    return MemoryPlan(parts)


def refuse_what_does_not_fit(graph: KnowledgeGraph, config: TrainConfig) -> None:
    """Raise where the caches and what a step offers them are more than the device has free."""
    if config.sampler != "nscaching":
        return
    caches = plan_memory(graph, config).parts["caches"]
    candidates = _candidate_bytes(graph, config)
    free = free_bytes(pick_device(config.device))
    if free is not None and caches + candidates > free:
        raise UserError(
            f"The caches need {caches / 1e9:,.1f} GB (N1 = cache_size "
            f"{config.cache_size:,}) and a step {candidates / 1e9:,.1f} GB (N2 = candidates "
            f"{config.candidates:,}); {free / 1e9:,.1f} GB are free. Make cache_size, candidates "
            "or batch_size smaller."
        )


def program_bytes() -> int:
    """Return what the interpreter and its libraries take now, the graph not counted."""
    return min(peak_bytes(), _PROGRAM_BYTES)


def peak_bytes() -> int:
    """Return the most memory this process has held at once, 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _graph_bytes(graph: KnowledgeGraph) -> int:
    total = sum(graph.split(split).nbytes for split in ("train", "valid", "test"))
    for side in (graph.rows.head, graph.rows.tail):
        total += side.of_triple.nbytes + side.anchor.nbytes + side.relation.nbytes
        total += side.offsets.nbytes + side.answers.nbytes
    return total + (graph.num_entities + graph.num_relations) * _NAME_BYTES


def _view_bytes(scoring: ScoringFunction, on_gpu: bool) -> int:
    """Return what ranking makes of an entity's row: views of it, and on a GPU one turned over."""
    match = scoring.match
    if isinstance(match, Dot):
        return 0
    if match.relational_view:  # that of the relation before, and three on the way to the next
        return 4 * 4 * scoring.dim
    if match.view_kind != NO_VIEW:
        return 4 * (1 + on_gpu) * scoring.dim
    return 4 * on_gpu * scoring.entity_width


def _generator_bytes(graph: KnowledgeGraph, config: TrainConfig) -> int:
    if config.sampler == "igan":
        return config.generator_memory * 2**20
    rows = graph.num_entities + graph.num_relations
    form = compiled_for(pick_device(config.device))
    copies = 5 if form == CPU else 8  # with Adam's, and the gradient being made
    candidates = config.batch(len(graph.train)) * config.cache_size
    gathered = (3 if form == PLAIN else 2) * 4 * config.generator_dim
    return copies * 4 * rows * config.generator_dim + candidates * (8 + 1 + 4 * 4 + gathered)


def _trace_bytes(graph: KnowledgeGraph, config: TrainConfig) -> int:
    negatives = config.negatives or SAMPLERS[config.sampler].usual_negatives
    followed = followed_triples(len(graph.train), negatives, config.trace_window)
    window = 8 * len(graph.train) + followed * (4 * negatives * (config.trace_window + 1) + 8)
    facts = 2 * sum(len(graph.split(split)) for split in ("train", "valid", "test"))
    return window + facts * (8 + 1 + 4 + 16)


def _batch_bytes(graph: KnowledgeGraph, config: TrainConfig, width: int) -> int:
    batch, entities = config.batch(len(graph.train)), graph.num_entities
    questions = 2 * batch if config.asks_both_sides() else batch
    queries = 10 * batch * width * 4  # rows, queries of both sides, and their gradients
    if config.sampler == "all":
        logits = min(LOGIT_BYTES, 4 * questions * entities)
        return queries + 3 * logits + 2 * 4 * entities * width
    if config.asks_both_sides() and config.sampler == "nscaching":
        negatives = config.cache_size + config.candidates
    else:
        negatives = config.negatives or SAMPLERS[config.sampler].usual_negatives
    gradients = questions * (2 + min(negatives, entities)) * width * 4 * 2
    return _candidate_bytes(graph, config) + gradients + queries


def _candidate_bytes(graph: KnowledgeGraph, config: TrainConfig) -> int:
    row = sum(min(size, graph.num_entities) for size in (config.cache_size, config.candidates))
    return 2 * config.batch(len(graph.train)) * (row * (8 + 8 + 4) + 8 * config.pool)
