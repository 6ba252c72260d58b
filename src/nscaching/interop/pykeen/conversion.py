"""Graphs as PyKEEN's data sets and back, a run as a PyKEEN model, and such a model as a scorer.

Ids stay as they are. What our scoring functions apply on use (entities of length one, unit normals)
is written into the tables of the model. PyKEEN 1.11 has no equal of two of ours: its RotatE takes
the Euclidean norm of the whole vector where the paper sums the moduli, and its TransD cuts
projected entities to length one.

Our samplers ask a PyKEEN model for scores. PyKEEN gathers every candidate's row and then adds or
multiplies whole blocks. For the interactions of ``_QUERIES`` the fixed pair becomes a query once,
and a kernel compares it with rows where they lie. The scores are those of ``score_h`` and
``score_t``; where anything differs from the plain case, there is no query, and PyKEEN scores by
itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from pykeen.datasets import EagerDataset
from pykeen.models import CP, ComplEx, DistMult, ERModel, TransE
from pykeen.nn import Embedding
from pykeen.nn.modules import (
    ComplExInteraction,
    DistMultInteraction,
    RotatEInteraction,
    TransEInteraction,
    TransHInteraction,
)
from pykeen.triples import CoreTriplesFactory, TriplesFactory
from pykeen.utils import NoRandomSeedNecessary
from torch import Tensor
from torch.nn.functional import normalize

from nscaching.errors import UserError
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.names import SPLITS
from nscaching.graph.splitting import with_remarks
from nscaching.models import Side
from nscaching.models.match import NO_VIEW
from nscaching.models.match import Query as MatchQuery
from nscaching.models.matches import Distance, Dot
from nscaching.sampling import Batch

if TYPE_CHECKING:
    from nscaching.runs.run import Run

#: What a converter returns: the model, then its tables for entities and for relations.
Converted = tuple[Any, list[Tensor], list[Tensor]]


def to_pykeen(graph: KnowledgeGraph) -> Any:
    """Return a PyKEEN data set with training, validation and testing triples."""
    training, validation, testing = (triples_factory(graph, split) for split in SPLITS)
    metadata = {"name": graph.name}
    return EagerDataset(
        training, testing, validation if len(graph.valid) else None, metadata=metadata
    )


def triples_factory(graph: KnowledgeGraph, split: str = "train") -> Any:
    """Return the triples of one split as a PyKEEN factory."""
    return TriplesFactory(
        mapped_triples=torch.from_numpy(graph.split(split)).long(),
        entity_to_id={name: place for place, name in enumerate(graph.entities)},
        relation_to_id={name: place for place, name in enumerate(graph.relations)},
        num_entities=graph.num_entities,
        num_relations=graph.num_relations,
    )


def from_pykeen(source: Any, name: str | None = None) -> KnowledgeGraph:
    """Make a graph of a PyKEEN data set, or of one triples factory, which becomes train."""
    if isinstance(source, CoreTriplesFactory):
        factories = (source, None, None)
        called = "graph"
    elif hasattr(source, "training") and hasattr(source, "testing"):
        factories = (source.training, source.validation, source.testing)
        called = (getattr(source, "metadata", None) or {}).get("name") or type(source).__name__
    else:
        raise UserError(
            f"from_pykeen takes a data set or a triples factory of PyKEEN, not a "
            f"{type(source).__name__}."
        )
    training = factories[0]
    arrays: list[Any] = [
        None if part is None else part.mapped_triples.cpu().numpy() for part in factories
    ]
    graph = KnowledgeGraph(
        _names(training, "entity", training.num_entities),
        _names(training, "relation", training.real_num_relations),
        *arrays,
        name=name or str(called),
    )
    return with_remarks(graph)


def _names(factory: Any, kind: str, count: int) -> list[str]:
    """Return names in the order of their ids; a factory without names has its ids."""
    if not isinstance(factory, TriplesFactory):
        return [str(place) for place in range(count)]
    ids = factory.entity_to_id if kind == "entity" else factory.relation_to_id
    return [str(name) for name, _ in sorted(ids.items(), key=lambda item: item[1])]


def to_pykeen_model(run: Run) -> Any:
    """Return the model of a run as a PyKEEN model; scores are equal up to rounding.

    Args:
        run: A run whose scoring function PyKEEN has, without reciprocal relations.

    Returns:
        A PyKEEN model on the CPU.

    Examples:
        >>> from nscaching.interop.pykeen import to_pykeen_model
        >>> plain = ns.train("world", scoring="distmult", epochs=1, dim=4, progress="none")
        >>> model = to_pykeen_model(plain)

    """
    scoring = run.config.scoring
    if scoring not in _CONVERTERS:
        raise UserError(
            f"PyKEEN has no model that scores as our {scoring} does; those that can be converted "
            f"are {', '.join(_CONVERTERS)}."
        )
    if run.model.reciprocal:
        raise UserError(
            "PyKEEN's models have one row per relation, and a run with reciprocal relations has "
            "two; train without reciprocal to convert it."
        )
    entity, relation = run.model.entity.detach().cpu(), run.model.relation.detach().cpu()
    common = {
        "triples_factory": triples_factory(run.graph),
        "random_seed": NoRandomSeedNecessary,  # every parameter is set below
    }
    model, entity_tables, relation_tables = _CONVERTERS[scoring](run, common, entity, relation)
    representations = (*model.entity_representations, *model.relation_representations)
    tables = (*entity_tables, *relation_tables)
    with torch.no_grad():
        for representation, table in zip(representations, tables, strict=True):
            weight = representation._embeddings.weight
            weight.copy_(table.reshape(weight.shape))
    model.eval()
    return model


def _transe(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    dim, norm = run.config.dim, run.model.scoring.norm
    unit = run.model.scoring.normalize
    free: dict[str, Any] = {} if unit else {"entity_constrainer": None}
    model = TransE(**common, embedding_dim=dim, scoring_fct_norm=norm, **free)
    return model, [normalize(entity, dim=1) if unit else entity], [relation]


def _transh(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    # Not the class TransH: its first table of relations holds what the interaction takes as normal.
    dim, norm = run.config.dim, run.model.scoring.norm
    model = ERModel(
        **common,
        interaction=TransHInteraction,
        interaction_kwargs={"p": norm, "power_norm": False},
        entity_representations_kwargs={"shape": dim, "constrainer": normalize},
        relation_representations_kwargs=[{"shape": dim, "constrainer": normalize}, {"shape": dim}],
    )
    translation, normal = relation.chunk(2, dim=1)
    return model, [normalize(entity, dim=1)], [normalize(normal, dim=1), translation]


def _distmult(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    model = DistMult(
        **common, embedding_dim=run.config.dim, entity_constrainer=None, regularizer=None
    )
    return model, [entity], [relation]


def _complex(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    model = ComplEx(**common, embedding_dim=run.config.dim, regularizer=None)
    return model, [_interleaved(entity)], [_interleaved(relation)]


def _simple(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    # PyKEEN's SimplE pairs h1 with t1. Its CP has a table for heads and one for tails: the tails
    # are our rows with their halves exchanged, so that h1 meets t2 and h2 meets t1.
    model = CP(**common, embedding_dim=run.config.dim, rank=2)
    exchanged = entity.roll(run.config.dim, dims=1)
    return model, [entity, exchanged], [relation]


def _interleaved(table: Tensor) -> Tensor:
    """Turn rows [re, im] into complex numbers, as pairs of floats. Shapes: (n, 2d) -> (n, d, 2)."""
    return torch.stack(table.chunk(2, dim=1), dim=-1)


_CONVERTERS: dict[str, Callable[[Run, dict[str, Any], Tensor, Tensor], Converted]] = {
    "transe": _transe,
    "transh": _transh,
    "distmult": _distmult,
    "complex": _complex,
    "simple": _simple,
}


# A PyKEEN model as the scorer that our samplers ask -----------------------------------------------

#: (side, rows of the anchors, rows of the relations) -> rows that the answers are compared with
Query = Callable[[Side, Tensor, Tensor], Tensor]
#: Floats gathered at once, as in :mod:`nscaching.models.model`: on a CPU a block stays in cache.
_BLOCK_FLOATS = {"cpu": 1 << 19}
_BLOCK_FLOATS_DEVICE = 1 << 27


class PyKEENScorer:
    """Scores candidates with ``score_h`` and ``score_t``, without gradient and without dropout."""

    def __init__(self, model: Any, mode: str | None = None) -> None:
        self.model = model
        self.mode = mode
        tables = getattr(model, "entity_representations", ())
        self._width: int = max(1, sum(int(math.prod(table.shape)) for table in tables))

    def score_candidates(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        """Score k candidates per question, -1 as -inf. Shapes: (b,), (b,), (b, k) -> (b, k)."""
        with self._asking():
            ready = score_by_kernel(self.model, side, anchor, relation, candidates)
            if ready is not None:
                return ready
            pairs = _pairs(side, anchor, relation)
            rows = self._block_rows(candidates.shape[1])
            known = candidates.clamp_min(0)
            blocks = zip(torch.split(pairs, rows), torch.split(known, rows), strict=True)
            scores = torch.cat([self._score(side, *block) for block in blocks])
            return scores.masked_fill(candidates < 0, -torch.inf)

    def score_pool(self, side: Side, anchor: Tensor, relation: Tensor, pool: Tensor) -> Tensor:
        """Score the same entities for each question. Shapes: (b,), (b,), (p,) -> (b, p)."""
        with self._asking():
            pairs = _pairs(side, anchor, relation)
            blocks = torch.split(pairs, self._block_rows(len(pool)))
            return torch.cat([self._score(side, block, pool) for block in blocks])

    def _score(self, side: Side, pairs: Tensor, candidates: Tensor) -> Tensor:
        if side is Side.TAIL:
            scores = self.model.score_t(pairs, tails=candidates, mode=self.mode)
        else:
            scores = self.model.score_h(pairs, heads=candidates, mode=self.mode)
        kept: Tensor = scores.detach().float()
        return kept

    def _block_rows(self, candidates: int) -> int:
        limit = _BLOCK_FLOATS.get(str(self.model.device.type), _BLOCK_FLOATS_DEVICE)
        return max(1, limit // max(1, candidates * self._width))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Take the model out of training: no dropout, no batch statistics, no regularisation."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train(training)


class BatchQuestions:
    """The questions of a batch, scored by a PyKEEN model, as our samplers ask them."""

    def __init__(self, scorer: PyKEENScorer, batch: Batch) -> None:
        self.scorer, self.batch = scorer, batch

    def score(self, side: Side, ids: Tensor, places: Tensor | None = None) -> Tensor:
        """Score candidates of the questions for one side, -1 as -inf. Shapes: (b, k) -> (b, k)."""
        return self.scorer.score_candidates(side, *self._asked(side, places), ids)

    def score_pool(self, side: Side, pool: Tensor, places: Tensor | None = None) -> Tensor:
        """Score one pool for the questions for one side. Shapes: (p,) -> (b, p)."""
        return self.scorer.score_pool(side, *self._asked(side, places), pool)

    def _asked(self, side: Side, places: Tensor | None) -> tuple[Tensor, Tensor]:
        anchor, relation = self.batch.anchor(side), self.batch.relations
        return (anchor, relation) if places is None else (anchor[places], relation[places])


def _pairs(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    """Return (h, r) or (r, t) pairs. Shapes: (b,), (b,) -> (b, 2)."""
    return torch.stack([anchor, relation] if side is Side.TAIL else [relation, anchor], dim=1)


# Our kernels --------------------------------------------------------------------------------------


def score_by_kernel(
    model: Any, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
) -> Tensor | None:
    """Score candidates by a kernel, or return None. Shapes: (b,), (b,), (b, k) -> (b, k)."""
    if not isinstance(model, ERModel) or type(model.interaction) not in _QUERIES:
        return None
    tables = [*model.entity_representations, *model.relation_representations]
    if len(tables) != 2 or not all(_is_plain(table) for table in tables):
        return None
    query_of = _QUERIES[type(model.interaction)]
    entities, relations = tables
    query = query_of(side, entities(anchor), relations(relation))
    if query.is_complex():
        query = torch.view_as_real(query).flatten(1)
    weight = entities._embeddings.weight
    inputs = (MatchQuery(query), weight.detach(), candidates)
    if isinstance(model.interaction, DistMultInteraction | ComplExInteraction):
        return Dot().forward(*inputs)
    norm = 2 if isinstance(model.interaction, RotatEInteraction) else model.interaction.p
    if norm not in (1, 2) or getattr(model.interaction, "power_norm", False):
        return None
    return Distance(int(norm), NO_VIEW).forward(*inputs)


def _is_plain(table: Any) -> bool:
    """Tell whether a representation is its stored vectors and nothing else."""
    return type(table) is Embedding and table.normalizer is None and len(table.shape) == 1


def _translated(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    return anchor + relation if side is Side.TAIL else anchor - relation


def _multiplied(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    return anchor * relation


def _turned(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    return anchor * (relation if side is Side.TAIL else relation.conj())


_QUERIES: dict[type, Query] = {
    TransEInteraction: _translated,
    DistMultInteraction: _multiplied,
    ComplExInteraction: _turned,
    RotatEInteraction: _turned,
}
