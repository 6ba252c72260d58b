"""How a query is compared with entities: dot product, L1 or L2 distance, complex modulus.

A match has a ``forward`` (queries, table, ids -> scores) and a ``backward`` (gradient of the scores
-> gradients of the queries and rows for the table), each in the form for candidates of their own
and for all rows of a table. An id of -1 is padding: its score is -inf and its gradient nothing.

Shapes: ``b`` queries of width ``q``, ``k`` candidates per query, a table of ``n`` rows of width
``w``. A *view* is how an entity looks before it is compared; some depend on the relation, through
the ``context`` of the query (b, q).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from nscaching.kernels.registry import register

#: Views: the row itself; normalised; normalised, then projected onto the hyperplane with the
#: context as its normal (TransH); normalised, then moved along the context by the product with the
#: second half of the row (TransD).
NO_VIEW, UNIT, HYPERPLANE, PROJECTION = 0, 1, 2, 3
#: Floats that a plain comparison with all entities may hold at once.
_BLOCK_FLOATS = {"cpu": 1 << 20}
_BLOCK_FLOATS_DEVICE = 1 << 27


class Query(NamedTuple):
    """What a fitting entity must look like."""

    vectors: Tensor  #: (b, q)
    context: Tensor | None = None  #: (b, q), for a view that depends on the relation

    def detach(self) -> Query:
        """Return the query without its gradient."""
        return Query(*(None if part is None else part.detach() for part in self))  # type: ignore[arg-type]

    def at(self, index: Tensor | slice) -> Query:
        """Return some of the queries."""
        if isinstance(index, Tensor):  # twice as fast as indexing on a CPU
            parts = (None if part is None else part.index_select(0, index) for part in self)
        else:
            parts = (None if part is None else part[index] for part in self)
        return Query(*parts)  # type: ignore[arg-type]


class MatchGradients(NamedTuple):
    """The gradients of scores."""

    query: Tensor  #: (b, q)
    context: Tensor | None  #: (b, q)
    rows: Tensor  #: (b * k, w), one row per candidate; (n, w) for all entities


class Match(ABC):
    """A comparison, written once in plain torch; compiled kernels compute the same."""

    name: ClassVar[str]

    def __init__(self, view: int = NO_VIEW) -> None:
        self.view_kind = view

    @property
    def relational_view(self) -> bool:
        """Whether an entity looks different through each relation."""
        return self.view_kind in (HYPERPLANE, PROJECTION)

    @abstractmethod
    def compare(self, query: Tensor, view: Tensor) -> Tensor:
        """Compare row by row. Shapes: (..., q), (..., q) -> (...)."""

    def view(self, rows: Tensor, context: Tensor | None) -> Tensor:
        """Return entities as they are compared. Shapes: (..., w), (..., q) -> (..., q)."""
        if self.view_kind == NO_VIEW:
            return rows
        width = rows.shape[-1] // 2 if self.view_kind == PROJECTION else rows.shape[-1]
        unit = normalize(rows[..., :width], dim=-1)
        if self.view_kind == HYPERPLANE:
            assert context is not None
            return unit - (context * unit).sum(-1, keepdim=True) * context
        if self.view_kind == PROJECTION:
            assert context is not None
            return unit + (rows[..., width:] * unit).sum(-1, keepdim=True) * context
        return unit

    # Candidates of their own -------------------------------------------------------------------

    def forward(self, query: Query, table: Tensor, ids: Tensor) -> Tensor:
        """Score each query with its candidates. Shapes: (b, q), (n, w), (b, k) -> (b, k)."""
        return plain_forward(self, query, table, ids)

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Return the gradients of ``(d_scores * forward(...)).sum()``. Shape: (b, k)."""
        return plain_backward(self, query, table, ids, d_scores)

    def backward_summed(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
    ) -> tuple[MatchGradients, Tensor | None] | None:
        """Do what :meth:`backward` does for many candidates, their rows added up by entity.

        Returns the gradients with the ids of their rows, which differ; or, with ``into``, adds the
        rows to that table and has no ids. None where a match has no kernel for it.
        """
        return None

    # All rows of a table -----------------------------------------------------------------------

    def forward_all(self, query: Query, table: Tensor) -> Tensor:
        """Score each query with all rows of a table. Shapes: (b, q), (n, w) -> (b, n)."""
        if not self.relational_view:
            return self.compare_all(query.vectors, self.view(table, None))
        assert query.context is not None
        scores = query.vectors.new_empty(len(query.vectors), len(table))
        for rows in _same_context(query.context):  # those share the views of all entities
            views = self.view(table, query.context[rows[0]])
            scores[rows] = self.compare_all(query.vectors[rows], views)
        return scores

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """Return the gradients of ``(d_scores * forward_all(...)).sum()``. Shape: (b, n)."""
        ids = torch.arange(len(table), device=table.device)
        gradients = []
        d_table = torch.zeros_like(table)
        block = max(1, _block_floats(table) // max(1, table.numel()))
        for start in range(0, len(query.vectors), block):
            part = slice(start, start + block)
            some = query.at(part)
            own = ids.expand(len(some.vectors), -1)
            found = plain_backward(self, some, table, own, d_scores[part])
            d_table += found.rows.view(-1, *table.shape).sum(0)
            gradients.append(found)
        return MatchGradients(
            torch.cat([found.query for found in gradients]),
            None
            if query.context is None
            else torch.cat([found.context for found in gradients if found.context is not None]),
            d_table,
        )

    def compare_all(self, query: Tensor, views: Tensor) -> Tensor:
        """Compare all pairs, a block of entities at a time. Shapes: (b, q), (n, q) -> (b, n)."""
        scores = query.new_empty(len(query), len(views))
        block = max(1, _block_floats(query) // max(1, query.numel()))
        for start in range(0, len(views), block):
            part = views[start : start + block]
            scores[:, start : start + block] = self.compare(query.unsqueeze(1), part)
        return scores


class Dot(Match):
    """Semantic matching: the dot product (paper, Section 2.1)."""

    name = "dot"

    def compare(self, query: Tensor, view: Tensor) -> Tensor:
        """Row-wise dot product."""
        return (query * view).sum(-1)

    def forward(self, query: Query, table: Tensor, ids: Tensor) -> Tensor:
        """Gather and multiply in one kernel."""
        scores: Tensor = _dot_forward(query.vectors, table, ids)
        return scores

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Two weighted sums."""
        d_query, rows = _dot_backward(query.vectors, table, ids, d_scores)
        return MatchGradients(d_query, None, rows)

    def backward_summed(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
    ) -> tuple[MatchGradients, Tensor | None] | None:
        """Two weighted sums, one of them over the queries of each entity."""
        d_query, touched, rows = _dot_backward_summed(query.vectors, table, ids, d_scores, into)
        return MatchGradients(d_query, None, rows), touched

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """Two matrix products."""
        return MatchGradients(d_scores @ table, None, d_scores.T @ query.vectors)

    def compare_all(self, query: Tensor, views: Tensor) -> Tensor:
        """One matrix product."""
        return query @ views.T


class Distance(Match):
    """Translational distance: the negative p-norm of the difference, p = 1 or 2."""

    name = "distance"

    def __init__(self, norm: int = 1, view: int = UNIT) -> None:
        super().__init__(view)
        self.norm = norm

    def compare(self, query: Tensor, view: Tensor) -> Tensor:
        """Negative p-norm of the row-wise difference."""
        distance: Tensor = torch.linalg.vector_norm(query - view, ord=self.norm, dim=-1)
        return -distance

    def forward(self, query: Query, table: Tensor, ids: Tensor) -> Tensor:
        """Gather, view and compare in one kernel."""
        context = query.vectors if query.context is None else query.context
        settings = (self.norm, self.view_kind)
        scores: Tensor = _distance_forward(query.vectors, context, table, ids, *settings)
        return scores

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Signs or directions, taken through the view."""
        context = query.vectors if query.context is None else query.context
        settings = (self.norm, self.view_kind)
        found = _distance_backward(query.vectors, context, table, ids, d_scores, *settings)
        d_query, d_context, rows = found
        return MatchGradients(d_query, None if query.context is None else d_context, rows)

    def compare_all(self, query: Tensor, views: Tensor) -> Tensor:
        """All pairs without their differences in memory."""
        scores: Tensor = _all_distances(query, views, self.norm)
        return scores

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """All pairs without their differences in memory, then through the view."""
        if self.relational_view:
            return super().backward_all(query, table, d_scores)
        with torch.enable_grad():
            rows = table.detach().requires_grad_()
            views = self.view(rows, None)
        seen = views.detach()
        if self.norm == 1:
            d_query = _sign_sums(query.vectors, seen, d_scores)
            d_views = _sign_sums(seen, query.vectors, d_scores.T)
        else:  # the gradient is a difference of weighted sums: two matrix products
            distances = -self.compare_all(query.vectors, seen)
            slopes = torch.where(distances > 0, d_scores / distances, 0.0)
            d_query = slopes @ seen - slopes.sum(1, keepdim=True) * query.vectors
            d_views = slopes.T @ query.vectors - slopes.sum(0).unsqueeze(1) * seen
        if self.view_kind != NO_VIEW:
            (d_views,) = torch.autograd.grad(views, rows, d_views)
        return MatchGradients(d_query, None, d_views)


class Modulus(Match):
    """RotatE's distance: the negative sum of the moduli of complex differences, rows [re, im]."""

    name = "modulus"

    def compare(self, query: Tensor, view: Tensor) -> Tensor:
        """Negative sum of the moduli."""
        re, im = (query - view).chunk(2, dim=-1)
        moduli: Tensor = torch.linalg.vector_norm(torch.stack([re, im], dim=-1), dim=-1)
        return -moduli.sum(-1)

    def forward(self, query: Query, table: Tensor, ids: Tensor) -> Tensor:
        """Gather and compare in one kernel."""
        scores: Tensor = _modulus_forward(query.vectors, table, ids)
        return scores

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Directions of the differences."""
        d_query, rows = _modulus_backward(query.vectors, table, ids, d_scores)
        return MatchGradients(d_query, None, rows)

    def compare_all(self, query: Tensor, views: Tensor) -> Tensor:
        """All pairs without their differences in memory."""
        scores: Tensor = _all_moduli(query, views)
        return scores

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """All pairs without their differences in memory."""
        d_query = _direction_sums(query.vectors, table, d_scores)
        return MatchGradients(d_query, None, _direction_sums(table, query.vectors, d_scores.T))


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let matrix products of a GPU round their inputs to TF32; they add up in float32."""
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


# The plain forms ---------------------------------------------------------------------------------


def plain_forward(match: Match, query: Query, table: Tensor, ids: Tensor) -> Tensor:
    """Gather rows, view them, compare; the definition that every kernel is held equal to."""
    context = None if query.context is None else query.context.unsqueeze(1)
    views = match.view(table[ids.clamp_min(0)], context)
    scores = match.compare(query.vectors.unsqueeze(1), views)
    return scores.masked_fill(ids < 0, -math.inf)


def plain_backward(
    match: Match, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
) -> MatchGradients:
    """Differentiate :func:`plain_forward` by autograd, on the gathered rows."""
    with torch.enable_grad():
        rows = table[ids.clamp_min(0)].detach().requires_grad_()
        vectors = query.vectors.detach().requires_grad_()
        context = None if query.context is None else query.context.detach().requires_grad_()
        views = match.view(rows, None if context is None else context.unsqueeze(1))
        scores = match.compare(vectors.unsqueeze(1), views)
    leaves = [vectors, rows] if context is None else [vectors, rows, context]
    found = torch.autograd.grad(scores, leaves, d_scores.masked_fill(ids < 0, 0))
    d_context = found[2] if context is not None else None
    return MatchGradients(found[0], d_context, found[1].flatten(0, 1))


def _plain_dot_backward(
    query: Tensor, table: Tensor, ids: Tensor, d_scores: Tensor
) -> tuple[Tensor, Tensor]:
    d_scores = d_scores.masked_fill(ids < 0, 0)
    d_query = torch.bmm(d_scores.unsqueeze(1), table[ids.clamp_min(0)]).squeeze(1)
    return d_query, (d_scores.unsqueeze(2) * query.unsqueeze(1)).flatten(0, 1)


def _plain_dot_backward_summed(
    query: Tensor, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradient of queries, the distinct ids, and the gradients of their rows."""
    d_query, rows = _plain_dot_backward(query, table, ids, d_scores)
    flat = ids.reshape(-1)
    if into is not None:
        into.index_add_(0, flat.clamp_min(0), rows)
        return d_query, None, into
    touched, place = torch.unique(flat[flat >= 0], return_inverse=True)
    summed = rows.new_zeros(len(touched), rows.shape[1]).index_add_(0, place, rows[flat >= 0])
    return d_query, touched, summed


def _plain_distance_forward(
    query: Tensor, context: Tensor, table: Tensor, ids: Tensor, norm: int, view: int
) -> Tensor:
    return plain_forward(Distance(norm, view), Query(query, context), table, ids)


def _plain_distance_backward(
    query: Tensor,
    context: Tensor,
    table: Tensor,
    ids: Tensor,
    d_scores: Tensor,
    norm: int,
    view: int,
) -> tuple[Tensor, Tensor, Tensor]:
    match = Distance(norm, view)
    given = Query(query, context if match.relational_view else None)
    found = plain_backward(match, given, table, ids, d_scores)
    d_context = torch.zeros_like(context) if found.context is None else found.context
    return found.query, d_context, found.rows


def _plain_all_distances(query: Tensor, views: Tensor, norm: int) -> Tensor:
    return -torch.cdist(query, views, p=norm, compute_mode="donot_use_mm_for_euclid_dist")


def _plain_modulus_backward(
    query: Tensor, table: Tensor, ids: Tensor, d_scores: Tensor
) -> tuple[Tensor, Tensor]:
    found = plain_backward(Modulus(), Query(query), table, ids, d_scores)
    return found.query, found.rows


def _plain_sign_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from L1 distances to all views. Shapes: (b, q), (n, q)."""
    return _summed(query, views, d_scores, torch.sign)


def _plain_direction_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from complex moduli to all views. Shapes: (b, q), (n, q)."""

    def direction(gap: Tensor) -> Tensor:
        re, im = gap.chunk(2, dim=-1)
        modulus = torch.linalg.vector_norm(torch.stack([re, im]), dim=0)
        modulus = torch.where(modulus > 0, modulus, 1.0)
        return torch.cat([re / modulus, im / modulus], dim=-1)

    return _summed(query, views, d_scores, direction)


def _summed(
    query: Tensor, views: Tensor, d_scores: Tensor, direction: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return minus the sum of ``d_scores * direction(query - view)``, a block at a time."""
    total = torch.zeros_like(query)
    block = max(1, _block_floats(query) // max(1, query.numel()))
    for start in range(0, len(views), block):
        part = slice(start, start + block)
        total -= torch.einsum(
            "bk,bkq->bq", d_scores[:, part], direction(query.unsqueeze(1) - views[part])
        )
    return total


def _same_context(context: Tensor) -> list[Tensor]:
    """Group queries by their context. Shape: (b, q) -> places of each group."""
    order = context[:, 0].argsort(stable=True)
    ordered = context[order]
    begins = (ordered[1:] != ordered[:-1]).any(1).nonzero().squeeze(1) + 1
    return [rows for rows in torch.tensor_split(order, begins.cpu()) if len(rows)]


def _block_floats(tensor: Tensor) -> int:
    return _BLOCK_FLOATS.get(tensor.device.type, _BLOCK_FLOATS_DEVICE)


_dot_forward = register(
    "dot_forward",
    lambda query, table, ids: plain_forward(Dot(), Query(query), table, ids),
    cpu="match_cpu:dot_forward",
    gpu="match_gpu:dot_forward",
)
_dot_backward = register(
    "dot_backward",
    _plain_dot_backward,
    cpu="match_cpu:dot_backward",
    gpu="match_gpu:dot_backward",
)
_dot_backward_summed = register(
    "dot_backward_summed",
    _plain_dot_backward_summed,
    cpu="match_cpu:dot_backward_summed",
    gpu="match_gpu:dot_backward_summed",
)
_distance_forward = register(
    "distance_forward",
    _plain_distance_forward,
    cpu="match_cpu:distance_forward",
    gpu="match_gpu:distance_forward",
)
_distance_backward = register(
    "distance_backward",
    _plain_distance_backward,
    cpu="match_cpu:distance_backward",
    gpu="match_gpu:distance_backward",
)
_modulus_forward = register(
    "modulus_forward",
    lambda query, table, ids: plain_forward(Modulus(), Query(query), table, ids),
    cpu="match_cpu:modulus_forward",
    gpu="match_gpu:modulus_forward",
)
_modulus_backward = register(
    "modulus_backward",
    _plain_modulus_backward,
    cpu="match_cpu:modulus_backward",
    gpu="match_gpu:modulus_backward",
)
_sign_sums = register(
    "sign_sums", _plain_sign_sums, cpu="all_pairs_cpu:sign_sums", gpu="all_pairs_gpu:sign_sums"
)
_direction_sums = register(
    "direction_sums",
    _plain_direction_sums,
    cpu="all_pairs_cpu:direction_sums",
    gpu="all_pairs_gpu:direction_sums",
)
_all_distances = register(
    "all_distances",
    _plain_all_distances,
    cpu="all_pairs_cpu:all_distances",
    gpu="all_pairs_gpu:all_distances",
)
_all_moduli = register(
    "all_moduli",
    lambda query, views: Match.compare_all(Modulus(), query, views),
    cpu="all_pairs_cpu:all_moduli",
    gpu="all_pairs_gpu:all_moduli",
)
