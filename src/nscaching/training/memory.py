"""How much memory a run will take, known before it starts.

The sums follow the allocations one by one, so that what ``--dry-run`` prints is what a run takes;
``benchmarks/growth.py`` measures the difference.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch

from nscaching.errors import UserError
from nscaching.evaluation.calibration import fit_bytes
from nscaching.evaluation.ranking import COUNTED_BYTES, COUNTS, KEPT_BYTES, chunk_rows, counted_rows
from nscaching.graph import KnowledgeGraph
from nscaching.kernels.registry import CPU, PLAIN, compiled_for
from nscaching.losses import LOGIT_BYTES
from nscaching.models import ScoringFunction, Side
from nscaching.models.match import NO_VIEW, block_floats, multiplies_bfloat16
from nscaching.models.matches import Distance, Dot
from nscaching.optim.adagrad import LARGE, SORTED
from nscaching.sampling import SAMPLERS
from nscaching.sampling.shared_rows import row_bytes, row_counts
from nscaching.training.config import TrainConfig
from nscaching.training.devices import free_bytes, pick_device
from nscaching.training.step import SUMMED_FROM
from nscaching.training.tracing.counters import followed_triples
from nscaching.training.validation import drawn_facts

#: Bytes of a short Python string in a list, and of its place in the dictionary of names.
_NAME_BYTES = 70 + 8 + 100
#: The interpreter, torch, Numba and Arrow with the compiled kernels, no graph loaded yet.
_PROGRAM_BYTES = 460 << 20
#: What a torch that was built for GPUs adds to it, also where no GPU is used.
_CUDA_BUILD_BYTES = 250 << 20
#: What a GPU takes per triple besides its ids: keys and places, sorted in two buffers each, to draw
#: the order of an epoch, and the copy of the order that a CUDA graph reads.
_ORDER_BYTES = 40
#: What a cache row takes besides its entries: it tells which place of a batch updates it.
_OF_A_ROW = {"cpu": 8, "gpu": 4}
#: Tensors of the size of the scores that a softmax over candidates holds at once: scores, weights,
#: logits and their parts; those that an update of the cache adds, label smoothing, and a pool that
#: distances are taken to.
_LIVE_SCORES, _LIVE_OFFERED, _LIVE_SMOOTHED, _LIVE_DISTANCES = 5, 1, 4, 4


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by what they are for, in the order of a run."""

    parts: dict[str, int]
    on_gpu: bool = False

    @property
    def total(self) -> int:
        """The peak: all parts, but of those that come one after another the largest.

        On a GPU that is its memory too; probabilities are fitted on the host.
        """
        in_turn = ("batch", "evaluation", "probabilities")
        held = sum(size for name, size in self.parts.items() if name not in in_turn)
        here = in_turn[: 2 if self.on_gpu else 3]
        return held + max(self.parts[name] for name in here)

    @property
    def host(self) -> int:
        """What a run on a GPU takes of the host, where its state is copied to be written."""
        state = ("parameters", "optimiser", "best model", "caches")
        return sum(self.parts[name] for name in ("program", "graph", *state))


def plan_memory(graph: KnowledgeGraph, config: TrainConfig) -> MemoryPlan:
    """Add up what a run of this configuration on this graph allocates at its peak."""
    scoring = config.build_scoring()
    triples, entities = len(graph.train), graph.num_entities
    shapes = config.table_shapes(entities, graph.num_relations)
    numbers = {name: rows * width for name, (rows, width) in shapes.items()}
    entity_bytes = 2 if config.table == "bfloat16" else 4
    parameters = entity_bytes * numbers["entity"] + 4 * numbers["relation"]
    on_gpu = pick_device(config.device).type == "cuda"  # where row gradients are added up
    adagrad = config.optimizer == "adagrad"
    moments, steps = (1, 0) if adagrad else (2, 12)  # Adam counts the steps of each row
    gradients = 4 * numbers["relation"] if on_gpu else 0
    if on_gpu and not _by_rows(config, scoring, numbers["entity"]):
        gradients += 4 * numbers["entity"]
    rows = sum(row_counts(graph, config))
    weights = 4 if config.subsampling and not config.asks_both_sides() else 0
    parts = {
        "program": _program_bytes(on_gpu),
        "graph": _graph_bytes(graph),
        "parameters": parameters,
        "optimiser": moments * parameters + steps * entities,
        "gradients": gradients,
        "copy": 0,
        "best model": parameters if len(graph.valid) and config.valid_every else 0,
        "caches": 0,
        "places of rows": 0,
        "generator": 0,
        "triples": triples * (5 * 4 + 8 + (_ORDER_BYTES if on_gpu else 0) + weights),
        "known positives": 2 * 8 * triples if config.known_positives == "exclude" else 0,
        "batch": _batch_bytes(graph, config, scoring),
        "trace": _trace_bytes(graph, config) if config.is_traced() else 0,
        "questions": _question_bytes(graph, config),
        "evaluation": 0,
        "probabilities": fit_bytes(graph) if len(graph.valid) else 0,
    }
    if config.uses_copy(pick_device(config.device).type, triples, entities):
        parts["copy"] = entities * (
            2 * scoring.entity_width if on_gpu else scoring.entity_width + 4
        )
    if config.sampler == "nscaching":
        parts["caches"] = rows * row_bytes(config, entities)
        parts["places of rows"] = rows * _OF_A_ROW["gpu" if on_gpu else "cpu"]
    if SAMPLERS[config.sampler].has_generator:
        parts["generator"] = _generator_bytes(graph, config)
    if len(graph.valid) or len(graph.test):
        queries = max(len(graph.valid), len(graph.test))
        live = min(chunk_rows(entities, config.eval_memory), queries)
        held_out = len(graph.valid) + len(graph.test)
        parts["evaluation"] = 4 * entities * live + (5 * 8 + 12) * held_out
        parts["evaluation"] += (
            2 * len(Side) * COUNTS * 8 * queries
        )  # by chunk, and one after another
        if on_gpu:  # the CPU counts in one pass
            parts["evaluation"] += COUNTED_BYTES * entities * counted_rows(live, entities)
        parts["evaluation"] += entities * _view_bytes(scoring, on_gpu)
        if config.table == "bfloat16":  # a block of rows in float32, and its scores
            block = block_floats(pick_device(config.device).type)
            parts["evaluation"] += 4 * min(numbers["entity"], block)
            parts["evaluation"] += 4 * live * min(entities, block // scoring.entity_width)
    return MemoryPlan(parts, on_gpu)


def refuse_what_does_not_fit(graph: KnowledgeGraph, config: TrainConfig) -> None:
    """Raise where the caches and what a step offers them are more than the device has free."""
    if config.sampler != "nscaching":
        return
    parts = plan_memory(graph, config).parts
    caches = parts["caches"] + parts["places of rows"]
    candidates = _candidate_bytes(graph, config)
    free = free_bytes(pick_device(config.device))
    if free is not None and caches + candidates > free:
        raise UserError(
            f"The caches need {caches / 1e9:,.1f} GB (N1 = cache_size "
            f"{config.cache_size:,}) and a step {candidates / 1e9:,.1f} GB (N2 = candidates "
            f"{config.candidates:,}); {free / 1e9:,.1f} GB are free. Bound the caches by "
            "cache_memory, or make cache_size, candidates or batch_size smaller."
        )


def peak_bytes() -> int:
    """Return the most memory this process has held at once, 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _program_bytes(on_gpu: bool) -> int:
    more = torch.version.cuda is not None and not on_gpu
    return _PROGRAM_BYTES + (_CUDA_BUILD_BYTES if more else 0)


def _is_large(config: TrainConfig, numbers: int) -> bool:
    """Tell whether the optimiser adds gradients of entity rows up without a table of them."""
    on_gpu = pick_device(config.device).type == "cuda"
    large = config.table == "bfloat16" or (on_gpu and numbers >= LARGE)
    return large and config.optimizer == "adagrad"


def _by_rows(config: TrainConfig, scoring: ScoringFunction, numbers: int) -> bool:
    """Tell whether a GPU adds gradients of entity rows up without a table of them.

    Those over all entities are a table of the step; products are never written out.
    """
    if config.optimizer != "adagrad" or _is_large(config, numbers):
        return config.optimizer == "adagrad"
    return config.sampler == "all" or (numbers >= SORTED and isinstance(scoring.match, Dot))


def _graph_bytes(graph: KnowledgeGraph) -> int:
    total = sum(graph.split(split).nbytes for split in ("train", "valid", "test"))
    for side in graph.rows:
        total += side.of_triple.nbytes + side.anchor.nbytes + side.relation.nbytes
        total += side.offsets.nbytes + side.answers.nbytes
    if graph.on_disk:  # names are read when they are asked for; arrays are mapped, and may stay
        return total
    return total + (graph.num_entities + graph.num_relations) * _NAME_BYTES


def _question_bytes(graph: KnowledgeGraph, config: TrainConfig) -> int:
    """Return what a validation keeps for the next: its questions, and what is known to answer them.

    Also where the facts stand in their order, and what is left after filtering.
    """
    if not (len(graph.valid) and config.valid_every):
        return 0
    facts = drawn_facts(graph.valid, config.valid_facts)
    kept, held_out = 0, len(graph.valid) + len(graph.test)
    for side, pairs in zip(Side, graph.rows, strict=True):
        asked = pairs.find(facts[:, side.other.column], facts[:, 1])
        rows = np.unique(asked[asked >= 0])
        answers = int((pairs.offsets[rows + 1] - pairs.offsets[rows]).sum()) + held_out
        questions = len(rows) + int((asked < 0).sum())  # those that training does not ask, too
        kept += (2 * 8) * len(facts) + (2 * 8) * questions + (2 * 4) * answers
    return min(kept, KEPT_BYTES) + len(Side) * (2 * 8 + 2) * len(facts)


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


def _batch_bytes(graph: KnowledgeGraph, config: TrainConfig, scoring: ScoringFunction) -> int:
    batch, entities = config.batch(len(graph.train)), graph.num_entities
    width = 4 * scoring.entity_width
    on_gpu = pick_device(config.device).type == "cuda"
    both_sides = config.asks_both_sides()
    questions = 2 * batch if both_sides else batch
    queries = 10 * batch * width  # rows, queries of both sides, and their gradients
    if config.relation_prediction:  # logits of two blocks; the gradient of all relations, in halves
        relations = 4 * graph.num_relations * scoring.relation_width
        queries += 2 * min(LOGIT_BYTES, 4 * batch * graph.num_relations) + 6 * batch * width
        queries += (4 if config.reciprocal else 1) * relations
    if config.sampler == "all":
        logits = min(LOGIT_BYTES, 4 * questions * entities)
        squared = isinstance(scoring.match, Distance) and scoring.norm == 2
        live = 4 if squared else 3 if on_gpu else 2  # those of two blocks, or of one and its slopes
        if not on_gpu and multiplies_bfloat16():  # slopes, rows and gradients of 16 bits
            return queries + live * logits + logits // 2 + 3 * entities * width
        return queries + live * logits + 2 * entities * width
    negatives = config.negatives or SAMPLERS[config.sampler].usual_negatives
    if both_sides and config.sampler == "nscaching":
        negatives = config.cache_size + (0 if config.pool else config.candidates)
    elif config.pool and config.sampler != "nscaching":
        negatives = 0
    own = 1 + min(negatives, entities)
    rows = questions * own
    one_by_one = _is_large(config, entities * scoring.entity_width) or (
        on_gpu and config.optimizer == "lazy-adam"
    )
    numbers = entities * scoring.entity_width
    if on_gpu and isinstance(scoring.match, Dot) and _by_rows(config, scoring, numbers):
        rows = 0  # they stay products
    elif isinstance(scoring.match, Dot) and own > SUMMED_FROM and not one_by_one:
        rows = min(rows, entities)  # they are added up by entity
    gradients = 2 * (rows + questions) * width
    shared = config.pool if own == 1 or both_sides else 0
    scores = 0
    if both_sides or shared:
        live = _LIVE_SCORES + _LIVE_OFFERED * (config.sampler == "nscaching")
        live += _LIVE_SMOOTHED * (config.label_smoothing > 0)
        live += _LIVE_DISTANCES * (shared > 0 and not isinstance(scoring.match, Dot))
        scores = live * 4 * questions * (own + shared) + 3 * shared * width
        if scoring.match.relational_view:  # rows of the pool as each question sees them
            seen = 4 * block_floats(pick_device(config.device).type)
            scores += 2 * min(max(seen, shared * width), questions * shared * width)
    return _candidate_bytes(graph, config) + gradients + queries + scores


def _candidate_bytes(graph: KnowledgeGraph, config: TrainConfig) -> int:
    """Return ids and scores of what rows of the cache are offered, those of both sides."""
    if config.sampler != "nscaching":
        return 0
    offered = config.pool or config.candidates
    if config.pool and config.asks_both_sides():
        offered = config.cache_size  # the hardest of the pool
    row = sum(min(size, graph.num_entities) for size in (config.cache_size, offered))
    return 2 * config.batch(len(graph.train)) * row * (8 + 8 + 4)
