"""The kernels of two structures of queries, in their plain forms: bilinear, and translations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nscaching.kernels.registry import kernel
from nscaching.models.match import rows_of
from nscaching.models.matches import Distance


class Questions(NamedTuple):
    """The questions (?, r, t), then the questions (h, r, ?), of b triples, or m of these 2b."""

    heads: Tensor  #: (b,)
    relations: Tensor  #: (b,)
    tails: Tensor  #: (b,)
    second_half: int = 0  #: where the rows of reciprocal relations begin, which ask for heads
    asked: Tensor | None = None  #: (m,): which they are; all by default

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return anchors, relation rows and whether a tail is asked for. Shape: (m,) each."""
        anchors = torch.cat([self.tails, self.heads])
        rows = torch.cat([self.relations + self.second_half, self.relations])
        is_tail = torch.arange(len(anchors), device=anchors.device) >= len(self.heads)
        if self.asked is None:
            return anchors, rows, is_tail
        return anchors[self.asked], rows[self.asked], is_tail[self.asked]


def product(anchor: Tensor, relation: Tensor, terms: Tensor) -> Tensor:
    """Return bilinear queries from rows. Shapes: (m, w), (m, rw), (o, p, q) -> (m, w)."""
    parts, relation_parts = terms.shape[1:]
    dim = anchor.shape[1] // parts
    a, r = anchor.view(-1, parts, dim), relation.view(-1, relation_parts, dim)
    return torch.einsum("opq,mpd,mqd->mod", terms.to(a.dtype), a, r).flatten(1)


@kernel(cpu="query_cpu", gpu="query_gpu")
def bilinear_forward(
    entity: Tensor, relation: Tensor, questions: Questions, terms: Tensor
) -> Tensor:
    """Return the queries of all questions. Shape: (2b, w)."""
    anchors, rows, _ = questions.parts()
    e, r, b = rows_of(entity, anchors), relation[rows], len(questions.heads)
    return torch.cat([product(e[:b], r[:b], terms[0]), product(e[b:], r[b:], terms[1])])


@kernel(cpu="query_cpu", gpu="query_gpu")
def bilinear_backward(
    entity: Tensor, relation: Tensor, questions: Questions, terms: Tensor, d_query: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of their rows (m, w), relation rows (m,), theirs (m, rw)."""
    anchors, rows, is_tail = questions.parts()
    e, r = rows_of(entity, anchors).requires_grad_(), relation[rows].requires_grad_()
    with torch.enable_grad():
        of_head, of_tail = (product(e, r, side) for side in terms)
        query = torch.where(is_tail.unsqueeze(1), of_tail, of_head)
    d_e, d_r = torch.autograd.grad(query, [e, r], d_query)
    return anchors, d_e, rows, d_r


@kernel(cpu="query_cpu", gpu="query_gpu")
def translation_forward(
    table: Tensor, questions: Questions, context: Tensor, view: int, relation: Tensor
) -> Tensor:
    """Return the queries of all questions; context, relation (b, .). Shape: (2b, q)."""
    match = Distance(1, view)
    given = context if match.relational_view else None
    anchors = questions.tails, questions.heads
    head, tail = (match.view(rows_of(table, ids), given) for ids in anchors)
    translation = relation[:, : head.shape[1]]
    return torch.cat([head - translation, tail + translation])


@kernel(cpu="query_cpu", gpu="query_gpu")
def translation_backward(
    table: Tensor, questions: Questions, context: Tensor, view: int, d_query: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of rows (m, w), contexts (m, q) and translations (m, q)."""
    match = Distance(1, view)
    places = torch.arange(len(questions.heads), device=table.device)
    anchors, triples, is_tail = questions._replace(relations=places).parts()
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
