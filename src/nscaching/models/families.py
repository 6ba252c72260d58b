"""The two ways to compare a query with an entity: a dot product, or a negative distance."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON
from nscaching.models.base import PairGradients, ScoringFunction
from nscaching.models.compact import CompactTable

#: How a relation sees an entity in the kernels: as it is, on a hyperplane, or by projection.
PLAIN, HYPERPLANE, PROJECTION = 0, 1, 2


class DotProduct(ScoringFunction):
    """Semantic matching: the score is linear in the entity (paper, Section 2.1)."""

    usual_loss = "logistic"
    usual_l2 = 0.1  # of the paper's grid the best on every graph we tried but FB15K
    compactable = True

    def match(self, query: Tensor, view: Tensor) -> Tensor:
        """Row-wise dot product."""
        return (query * view).sum(-1)

    def match_each(self, query: Tensor, views: Tensor) -> Tensor:
        """One small matrix-vector product a query."""
        return torch.bmm(views, query.unsqueeze(2)).squeeze(2)

    def match_all(self, query: Tensor, views: Tensor) -> Tensor:
        """One matrix product."""
        return query @ views.T

    def score_ids(self, query: Tensor, r: Tensor, table: Tensor, ids: Tensor) -> Tensor | None:
        """Dot products fused with the gather."""
        return run_kernel("dot_product", (query, table, ids), ids.shape)

    def score_compact(self, query: Tensor, table: CompactTable, ids: Tensor) -> Tensor | None:
        """Dot products with rows of bytes."""
        inputs = (query, table.values, table.scale, ids)
        return run_kernel("compact_dot_product", inputs, ids.shape)


class Bilinear(DotProduct):
    """A dot product that is also linear in the relation: it has kernels of its own."""

    #: 0 DistMult, 1 ComplEx, 2 SimplE, as the kernels count them.
    kernel_kind: ClassVar[int]

    def query_ids(
        self, entity: Tensor, relation: Tensor, anchors: Tensor, relations: Tensor, tail: bool
    ) -> Tensor | None:
        """Build queries in one pass."""
        tables = (entity, relation, anchors, relations)
        shape = (len(anchors), entity.shape[1])
        return run_kernel("bilinear_query", tables, shape, self.kernel_kind, int(tail))

    def pair_gradients(
        self,
        entity: Tensor,
        relation: Tensor,
        ids: tuple[Tensor, Tensor, Tensor],
        negatives: tuple[Tensor, Tensor, Tensor],
        margin: float | None,
    ) -> PairGradients | None:
        """Score, loss and gradients in one pass."""
        tables = (entity, relation)
        return run_gradients("bilinear", tables, ids, negatives, margin, self.kernel_kind)


class Translational(ScoringFunction):
    """Translational distance ``-||view(h) + translation - view(t)||_p``, entities normalised.

    A subclass says what the translation is and, where it differs, how a relation sees an entity.
    """

    usual_loss = "margin"
    #: How a relation sees an entity in the kernels.
    kernel_kind: ClassVar[int] = PLAIN

    @property
    def entity_width(self) -> int:
        """One vector an entity."""
        return self.dim

    @property
    def relation_width(self) -> int:
        """One vector a relation."""
        return self.dim

    def translation(self, r: Tensor) -> Tensor:
        """Return the part of the relation's row that moves a head to its tail."""
        return r[..., : self.dim]

    def view(self, entity: Tensor, r: Tensor | None) -> Tensor:
        """Return the entity's vector, L2-normalised."""
        return normalize(entity[..., : self.dim], dim=-1)

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``view(h) + translation``."""
        return self.view(h, r) + self.translation(r)

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``view(t) - translation``."""
        return self.view(t, r) - self.translation(r)

    def kernel_vector(self, r: Tensor) -> Tensor:
        """Return the relation's vector in the kernel's view."""
        return r[:, : self.dim]

    def score_ids(self, query: Tensor, r: Tensor, table: Tensor, ids: Tensor) -> Tensor | None:
        """Distances fused with the gather, the normalisation and the view."""
        inputs = (query, self.kernel_vector(r), table, ids)
        return run_kernel("translational", inputs, ids.shape, self.norm, self.kernel_kind)

    def pair_gradients(
        self,
        entity: Tensor,
        relation: Tensor,
        ids: tuple[Tensor, Tensor, Tensor],
        negatives: tuple[Tensor, Tensor, Tensor],
        margin: float | None,
    ) -> PairGradients | None:
        """Score, loss and gradients in one pass."""
        tables, settings = (entity, relation), (self.norm, self.kernel_kind)
        return run_gradients("translational", tables, ids, negatives, margin, *settings)

    def match(self, query: Tensor, view: Tensor) -> Tensor:
        """Negative p-norm of the row-wise difference."""
        distance: Tensor = torch.linalg.vector_norm(query - view, ord=self.norm, dim=-1)
        return -distance

    def match_each(self, query: Tensor, views: Tensor) -> Tensor:
        """Negative p-norm of each query's differences."""
        return self.match(query.unsqueeze(1), views)

    def match_all(self, query: Tensor, views: Tensor) -> Tensor:
        """Negative p-distances without materialising the differences."""
        fused = run_kernel("all_distances", (query, views), (len(query), len(views)), self.norm)
        if fused is not None:
            return fused
        return -torch.cdist(query, views, p=self.norm, compute_mode="donot_use_mm_for_euclid_dist")


def run_kernel(
    name: str, inputs: tuple[Tensor, ...], shape: tuple[int, ...], *rest: int
) -> Tensor | None:
    """Return the scores of a kernel of that name for the device of the inputs.

    None where there is none: on another device, in another precision, or where a gradient is asked.
    """
    query = inputs[0]
    wants_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    if query.dtype != torch.float32 or wants_gradient:
        return None
    tensors = [tensor.detach().contiguous() for tensor in inputs]
    if query.device.type == "cuda" and HAVE_TRITON:
        from nscaching.models import gpu_kernels

        kernel = getattr(gpu_kernels, name, None)
        return None if kernel is None else cast(Tensor, kernel(*tensors, *rest))
    if query.device.type == "cpu" and HAVE_NUMBA:
        from nscaching.models import cpu_kernels, distance_kernels, dot_kernels

        scores = torch.empty(shape)
        modules = (dot_kernels, distance_kernels, cpu_kernels)
        module = next(module for module in modules if hasattr(module, name))
        getattr(module, name)(*(tensor.numpy() for tensor in (*tensors, scores)), *rest)
        return scores
    return None


def run_gradients(
    family: str,
    tables: tuple[Tensor, Tensor],
    ids: tuple[Tensor, Tensor, Tensor],
    negatives: tuple[Tensor, Tensor, Tensor],
    margin: float | None,
    *settings: int,
) -> PairGradients | None:
    """Return what a family's kernel in ``scoring/gradients`` gives for the device of the tables.

    None where there is none: on another device, or in another precision.
    """
    entity, relation = tables
    device = entity.device
    on_gpu = device.type == "cuda" and HAVE_TRITON
    on_cpu = device.type == "cpu" and HAVE_NUMBA
    if entity.dtype != torch.float32 or not (on_gpu or on_cpu):
        return None
    count, k = negatives[0].shape
    out = (
        torch.empty((2 + k) * count, entity.shape[1], device=device),
        torch.empty(count, relation.shape[1], device=device),
        torch.empty(count, k, device=device),
        torch.empty(count, device=device),
    )
    tensors = [tensor.contiguous() for tensor in (*tables, *ids, *negatives)]
    module = import_module(f"nscaching.models.gradients.{family}_{'gpu' if on_gpu else 'cpu'}")
    arrays = (*tensors, *out) if on_gpu else (tensor.numpy() for tensor in (*tensors, *out))
    module.gradients(*arrays, *settings, 0.0 if margin is None else margin)
    entity_rows, relation_rows, scores, losses = out
    return PairGradients(losses.sum(), scores, entity_rows, relation_rows)


def complex_product(a: Tensor, b: Tensor, conjugate_b: bool = False) -> Tensor:
    """Multiply rows laid out as [re, im] element by element. Shapes: (..., 2d) -> (..., 2d)."""
    a_re, a_im = a.chunk(2, dim=-1)
    b_re, b_im = b.chunk(2, dim=-1)
    if conjugate_b:
        b_im = -b_im
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
