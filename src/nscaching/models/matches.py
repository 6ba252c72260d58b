"""The matches: dot product, L1 or L2 distance, complex modulus, with their kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nscaching.kernels.registry import register
from nscaching.models.match import (
    NO_VIEW,
    UNIT,
    Match,
    MatchGradients,
    Query,
    block_floats,
    plain_backward,
    plain_forward,
    rounded,
    rows_of,
)


class Dot(Match):
    """Semantic matching: the dot product (paper, Section 2.1)."""

    name = "dot"

    def compare(self, query: Tensor, view: Tensor) -> Tensor:
        """Row-wise dot product."""
        return (query * view).sum(-1)

    def forward(self, query: Query, table: Tensor, ids: Tensor) -> Tensor:
        """Gather and multiply in one kernel."""
        scores: Tensor = _dot_forward(query.vectors, table, ids, query.places)
        return scores

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Two weighted sums."""
        d_query, rows = _dot_backward(query.vectors, table, ids, d_scores, query.places)
        return MatchGradients(d_query, None, rows)

    def backward_products(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> Tensor | None:
        """One weighted sum; the gradient of a row is its slope times the query."""
        d_query: Tensor = _dot_query_sums(table, ids, d_scores)
        return d_query

    def backward_summed(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
    ) -> tuple[MatchGradients, Tensor | None] | None:
        """Two weighted sums, one of them over the queries of each entity."""
        vectors = query.gathered().vectors
        d_query, touched, rows = _dot_backward_summed(vectors, table, ids, d_scores, into)
        return MatchGradients(d_query, None, rows), touched

    def forward_all(self, query: Query, table: Tensor) -> Tensor:
        """One matrix product."""
        return self.compare_all(query.gathered().vectors, table)

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """Two matrix products."""
        d_scores, rows, vectors = rounded(d_scores, table, query.gathered().vectors)
        d_query, d_rows = d_scores @ rows, d_scores.T @ vectors
        return MatchGradients(d_query.to(table.dtype), None, d_rows.to(table.dtype))

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


# The plain forms ---------------------------------------------------------------------------------


def _plain_dot_backward(
    query: Tensor, table: Tensor, ids: Tensor, d_scores: Tensor, places: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    query = query if places is None else query[places]
    d_query = _plain_dot_query_sums(table, ids, d_scores)
    d_scores = d_scores.masked_fill(ids < 0, 0)
    return d_query, (d_scores.unsqueeze(2) * query.unsqueeze(1)).flatten(0, 1)


def _plain_dot_query_sums(table: Tensor, ids: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries. Shapes: (n, q), (b, k), (b, k) -> (b, q)."""
    d_scores = d_scores.masked_fill(ids < 0, 0)
    return torch.bmm(d_scores.unsqueeze(1), rows_of(table, ids.clamp_min(0))).squeeze(1)


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
    block = max(1, block_floats(query.device.type) // max(1, query.numel()))
    for start in range(0, len(views), block):
        part = slice(start, start + block)
        total -= torch.einsum(
            "bk,bkq->bq", d_scores[:, part], direction(query.unsqueeze(1) - views[part])
        )
    return total


_dot_forward = register(
    "dot_forward",
    lambda query, table, ids, places: plain_forward(
        Dot(), Query(query, places=places).gathered(), table, ids
    ),
    cpu="dot_cpu",
    gpu="match_gpu",
)
_dot_backward = register("dot_backward", _plain_dot_backward, cpu="dot_cpu", gpu="match_gpu")
_dot_query_sums = register("dot_query_sums", _plain_dot_query_sums, cpu="dot_cpu")
_dot_backward_summed = register(
    "dot_backward_summed", _plain_dot_backward_summed, cpu="dot_cpu", gpu="match_gpu"
)
_distance_forward = register(
    "distance_forward", _plain_distance_forward, cpu="match_cpu", gpu="match_gpu"
)
_distance_backward = register(
    "distance_backward", _plain_distance_backward, cpu="match_cpu", gpu="match_gpu"
)
_modulus_forward = register(
    "modulus_forward",
    lambda query, table, ids: plain_forward(Modulus(), Query(query), table, ids),
    cpu="match_cpu",
    gpu="match_gpu",
)
_modulus_backward = register(
    "modulus_backward", _plain_modulus_backward, cpu="match_cpu", gpu="match_gpu"
)
_sign_sums = register("sign_sums", _plain_sign_sums, cpu="all_pairs_cpu", gpu="all_pairs_gpu")
_direction_sums = register(
    "direction_sums", _plain_direction_sums, cpu="all_pairs_cpu", gpu="all_pairs_gpu"
)
_all_distances = register(
    "all_distances", _plain_all_distances, cpu="all_pairs_cpu", gpu="all_pairs_gpu"
)
_all_moduli = register(
    "all_moduli",
    lambda query, views: Match.compare_all(Modulus(), query, views),
    cpu="all_pairs_cpu",
    gpu="all_pairs_gpu",
)
