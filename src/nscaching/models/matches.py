"""The matches: dot product, L1 or L2 distance, complex modulus, with their kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nscaching.kernels.registry import kernel
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
        return dot_forward(query, table, ids)

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Two weighted sums."""
        return MatchGradients(*dot_backward(query, table, ids, d_scores))

    def backward_products(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> Tensor | None:
        """One weighted sum; the gradient of a row is its slope times the query."""
        return dot_query_sums(table, ids, d_scores)

    def backward_summed(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
    ) -> tuple[MatchGradients, Tensor | None] | None:
        """Two weighted sums, one of them over the queries of each entity."""
        vectors = query.gathered().vectors
        d_query, touched, rows = dot_backward_summed(vectors, table, ids, d_scores, into)
        return MatchGradients(d_query, None, rows), touched

    def forward_all(self, query: Query, table: Tensor) -> Tensor:
        """One matrix product."""
        return self.compare_all(query.gathered().vectors, table)

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """Two matrix products."""
        if d_scores.device.type == "cuda":  # where rows that begin anywhere have slower products
            d_scores = d_scores.contiguous()
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
        return distance_forward(query, table, ids, self.norm, self.view_kind)

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Signs or directions, taken through the view."""
        found = distance_backward(query, table, ids, d_scores, self.norm, self.view_kind)
        return MatchGradients(*found)

    def backward_summed(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
    ) -> tuple[MatchGradients, Tensor | None] | None:
        """Signs or directions, taken through the view and added up in a table, if there is one."""
        if into is None:
            return None
        settings = self.norm, self.view_kind
        found = distance_backward_summed(query, table, ids, d_scores, *settings, into)
        return MatchGradients(*found, into), None

    def forward_all(self, query: Query, table: Tensor) -> Tensor:
        """All pairs, through the views of all relations at once."""
        if not self.relational_view:
            return super().forward_all(query, table)
        return all_view_distances(query, table, self.norm, self.view_kind)

    def compare_all(self, query: Tensor, views: Tensor) -> Tensor:
        """All pairs without their differences in memory."""
        return all_distances(query, views, self.norm)

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """All pairs without their differences in memory, then through the view."""
        if self.relational_view:
            return super().backward_all(query, table, d_scores)
        with torch.enable_grad():
            rows = table.detach().requires_grad_()
            views = self.view(rows, None)
        seen = views.detach()
        if self.norm == 1:
            d_query = sign_sums(query.vectors, seen, d_scores)
            d_views = sign_sums(seen, query.vectors, d_scores.T)
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
        return modulus_forward(query, table, ids)

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Directions of the differences."""
        return MatchGradients(*modulus_backward(query, table, ids, d_scores))

    def compare_all(self, query: Tensor, views: Tensor) -> Tensor:
        """All pairs without their differences in memory."""
        return all_moduli(query, views)

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """All pairs without their differences in memory."""
        d_query = direction_sums(query.vectors, table, d_scores)
        return MatchGradients(d_query, None, direction_sums(table, query.vectors, d_scores.T))


# The kernels, in their plain forms ---------------------------------------------------------------

#: The gradients of queries (b, q), of their contexts, and of the candidates' rows (b k, w).
Found = tuple[Tensor, Tensor | None, Tensor]


@kernel(cpu="dot_cpu", gpu="match_gpu")
def dot_forward(query: Query, table: Tensor, ids: Tensor) -> Tensor:
    """Score candidates by the dot product. Shapes: (b, q), (n, q), (b, k) -> (b, k)."""
    return plain_forward(Dot(), query.gathered(), table, ids)


@kernel(cpu="dot_cpu", gpu="match_gpu")
def dot_backward(query: Query, table: Tensor, ids: Tensor, d_scores: Tensor) -> Found:
    """Return the gradients of queries and of the candidates' rows."""
    d_query = dot_query_sums.plain(table, ids, d_scores)
    vectors = query.vectors if query.places is None else query.vectors[query.places]
    d_scores = d_scores.masked_fill(ids < 0, 0)
    return d_query, None, (d_scores.unsqueeze(2) * vectors.unsqueeze(1)).flatten(0, 1)


@kernel(cpu="dot_cpu", gpu="match_gpu")
def dot_query_sums(table: Tensor, ids: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries. Shapes: (n, q), (b, k), (b, k) -> (b, q)."""
    d_scores = d_scores.masked_fill(ids < 0, 0)
    return torch.bmm(d_scores.unsqueeze(1), rows_of(table, ids.clamp_min(0))).squeeze(1)


@kernel(cpu="dot_cpu", gpu="match_gpu")
def dot_backward_summed(
    vectors: Tensor, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradient of queries, the distinct ids, and the gradients of their rows."""
    d_query, _, rows = dot_backward.plain(Query(vectors), table, ids, d_scores)
    flat = ids.reshape(-1)
    if into is not None:
        into.index_add_(0, flat.clamp_min(0), rows)
        return d_query, None, into
    touched, place = torch.unique(flat[flat >= 0], return_inverse=True)
    summed = rows.new_zeros(len(touched), rows.shape[1]).index_add_(0, place, rows[flat >= 0])
    return d_query, touched, summed


@kernel(cpu="match_cpu", gpu="match_gpu")
def distance_forward(query: Query, table: Tensor, ids: Tensor, norm: int, view: int) -> Tensor:
    """Score candidates by the negative distance of their view. Shape: (b, k)."""
    return plain_forward(Distance(norm, view), query, table, ids)


@kernel(cpu="match_cpu", gpu="match_gpu")
def distance_backward(
    query: Query, table: Tensor, ids: Tensor, d_scores: Tensor, norm: int, view: int
) -> Found:
    """Return the gradients of queries, of their contexts and of the candidates' rows."""
    return plain_backward(Distance(norm, view), query, table, ids, d_scores)


@kernel(gpu="match_gpu")
def distance_backward_summed(
    query: Query, table: Tensor, ids: Tensor, d_scores: Tensor, norm: int, view: int, into: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of queries and of their contexts; add those of the rows to a table."""
    d_query, d_context, rows = distance_backward(query, table, ids, d_scores, norm, view)
    into.index_add_(0, ids.clamp_min(0).reshape(-1), rows)
    return d_query, d_context


@kernel(cpu="match_cpu", gpu="match_gpu")
def modulus_forward(query: Query, table: Tensor, ids: Tensor) -> Tensor:
    """Score candidates by the negative sum of complex moduli. Shape: (b, k)."""
    return plain_forward(Modulus(), query, table, ids)


@kernel(cpu="match_cpu", gpu="match_gpu")
def modulus_backward(query: Query, table: Tensor, ids: Tensor, d_scores: Tensor) -> Found:
    """Return the gradients of queries and of the candidates' rows."""
    return plain_backward(Modulus(), query, table, ids, d_scores)


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def all_distances(query: Tensor, views: Tensor, norm: int) -> Tensor:
    """Score all pairs by the negative p-norm. Shapes: (b, q), (n, q) -> (b, n)."""
    return -torch.cdist(query, views, p=norm, compute_mode="donot_use_mm_for_euclid_dist")


@kernel(gpu="all_pairs_gpu")
def all_view_distances(query: Query, table: Tensor, norm: int, view: int) -> Tensor:
    """Score all pairs through the view of each query's relation. Shapes: (n, w) -> (b, n)."""
    return Match.forward_all(Distance(norm, view), query, table)


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def all_moduli(query: Tensor, views: Tensor) -> Tensor:
    """Score all pairs by the negative sum of complex moduli. Shapes: (b, q), (n, q) -> (b, n)."""
    return Match.compare_all(Modulus(), query, views)


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def sign_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from L1 distances. Shapes: (b, q), (n, q), (b, n)."""
    return _summed(query, views, d_scores, torch.sign)


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def direction_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from complex moduli. Shapes: (b, q), (n, q), (b, n)."""

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
