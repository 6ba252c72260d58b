"""The kernels of two structures of queries, with their plain forms: bilinear, and translations."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.kernels.registry import register
from nscaching.models.match import rows_of
from nscaching.models.matches import Distance


def product(anchor: Tensor, relation: Tensor, terms: Tensor) -> Tensor:
    """Return bilinear queries from rows. Shapes: (m, w), (m, rw), (o, p, q) -> (m, w)."""
    parts, relation_parts = terms.shape[1:]
    dim = anchor.shape[1] // parts
    a, r = anchor.view(-1, parts, dim), relation.view(-1, relation_parts, dim)
    return torch.einsum("opq,mpd,mqd->mod", terms.to(a.dtype), a, r).flatten(1)


def _questions(
    heads: Tensor, relations: Tensor, tails: Tensor, second_half: int, asked: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return anchors, relation rows and whether a tail is asked for, of all questions or some."""
    anchors = torch.cat([tails, heads])
    rows = torch.cat([relations + second_half, relations])
    is_tail = torch.arange(len(anchors), device=heads.device) >= len(heads)
    parts = (anchors, rows, is_tail)
    return parts if asked is None else (anchors[asked], rows[asked], is_tail[asked])


def _plain_bilinear_forward(
    entity: Tensor,
    relation: Tensor,
    heads: Tensor,
    relations: Tensor,
    tails: Tensor,
    second_half: int,
    terms: Tensor,
) -> Tensor:
    """Return the queries for heads, then for tails. Shape: (2b, w)."""
    anchors, rows, _ = _questions(heads, relations, tails, second_half, None)
    e, r, b = rows_of(entity, anchors), relation[rows], len(heads)
    return torch.cat([product(e[:b], r[:b], terms[0]), product(e[b:], r[b:], terms[1])])


def _plain_bilinear_backward(
    entity: Tensor,
    relation: Tensor,
    heads: Tensor,
    relations: Tensor,
    tails: Tensor,
    second_half: int,
    terms: Tensor,
    asked: Tensor | None,
    d_query: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of their rows (m, w), relation rows (m,), theirs (m, rw)."""
    anchors, rows, is_tail = _questions(heads, relations, tails, second_half, asked)
    e, r = rows_of(entity, anchors).requires_grad_(), relation[rows].requires_grad_()
    with torch.enable_grad():
        of_head, of_tail = (product(e, r, side) for side in terms)
        query = torch.where(is_tail.unsqueeze(1), of_tail, of_head)
    d_e, d_r = torch.autograd.grad(query, [e, r], d_query)
    return anchors, d_e, rows, d_r


def _plain_translation_forward(
    table: Tensor, heads: Tensor, tails: Tensor, context: Tensor, view: int, relation: Tensor
) -> Tensor:
    """Return the queries for heads, then for tails; context, relation (b, .). Shape: (2b, q)."""
    match = Distance(1, view)
    given = context if match.relational_view else None
    head, tail = (match.view(rows_of(table, ids), given) for ids in (tails, heads))
    translation = relation[:, : head.shape[1]]
    return torch.cat([head - translation, tail + translation])


def _plain_translation_backward(
    table: Tensor,
    heads: Tensor,
    tails: Tensor,
    context: Tensor,
    view: int,
    asked: Tensor | None,
    d_query: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of rows (m, w), contexts (m, q) and translations (m, q)."""
    match = Distance(1, view)
    places = torch.arange(len(heads), device=heads.device)
    anchors, triples, is_tail = _questions(heads, places, tails, 0, asked)
    rows = rows_of(table, anchors).requires_grad_()
    given = context[triples].requires_grad_()
    with torch.enable_grad():
        views = match.view(rows, given if match.relational_view else None)
    d_translation = torch.where(is_tail.unsqueeze(1), d_query, -d_query)
    if not match.relational_view:
        (d_rows,) = torch.autograd.grad(views, rows, d_query)
        return anchors, d_rows, torch.zeros_like(d_query), d_translation
    d_rows, d_context = torch.autograd.grad(views, [rows, given], d_query)
    return anchors, d_rows, d_context, d_translation


bilinear_forward = register(
    "bilinear_forward", _plain_bilinear_forward, cpu="query_cpu", gpu="query_gpu"
)
bilinear_backward = register(
    "bilinear_backward", _plain_bilinear_backward, cpu="query_cpu", gpu="query_gpu"
)
translation_forward = register(
    "translation_forward", _plain_translation_forward, cpu="query_cpu", gpu="query_gpu"
)
translation_backward = register(
    "translation_backward", _plain_translation_backward, cpu="query_cpu", gpu="query_gpu"
)
