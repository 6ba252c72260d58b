"""The contract of a match: how a query is compared with entities.

A match has a ``forward`` (queries, table, ids -> scores) and a ``backward`` (gradient of the scores
-> gradients of the queries and rows for the table), each in the form for candidates of their own
and for all rows of a table. An id of -1 is padding: its score is -inf and its gradient nothing.

Shapes: ``b`` queries of width ``q``, ``k`` candidates per query, a table of ``n`` rows of width
``w``. A *view* is how an entity looks before it is compared; some depend on the relation, through
the ``context`` of the query (b, q).
"""

from __future__ import annotations

import functools
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from nscaching.kernels.availability import HAVE_NUMBA
from nscaching.kernels.registry import kernel

#: Views: the row itself; normalised; normalised, then projected onto the hyperplane with the
#: context as its normal (TransH); normalised, then moved along the context by the product with the
#: second half of the row (TransD).
NO_VIEW, UNIT, HYPERPLANE, PROJECTION = 0, 1, 2, 3
#: Floats that a plain comparison with all entities may hold at once.
_BLOCK_FLOATS = {"cpu": 1 << 20}
_BLOCK_FLOATS_DEVICE = 1 << 27


#: Rows of a matrix that fast products take are a multiple of so many.
_ALIGNED = 8
#: Not all of its attributes are known to type checkers.
_MKLDNN: Any = torch.backends.mkldnn


class Query(NamedTuple):
    """What a fitting entity must look like."""

    vectors: Tensor  #: (b, q)
    context: Tensor | None = None  #: (b, q), for a view that depends on the relation
    places: Tensor | None = None  #: (b,): which vectors they are, for a dot; all by default

    def gathered(self) -> Query:
        """Return the query with its own vectors, one after the other."""
        if self.places is None:
            return self
        return Query(take_rows(self.vectors, self.places), self.context)

    def detach(self) -> Query:
        """Return the query without its gradient."""
        return Query(*(None if part is None else part.detach() for part in self))  # type: ignore[arg-type]

    def at(self, index: Tensor | slice) -> Query:
        """Return some of the queries."""
        if isinstance(index, Tensor):
            parts = (None if part is None else take_rows(part, index) for part in self)
        else:
            parts = (None if part is None else part[index] for part in self)
        return Query(*parts)  # type: ignore[arg-type]


class MatchGradients(NamedTuple):
    """The gradients of scores."""

    query: Tensor  #: (b, q)
    context: Tensor | None  #: (b, q)
    rows: Tensor  #: (b * k, w), one row per candidate; (n, w) for all entities

    def plus(self, other: MatchGradients) -> MatchGradients:
        """Return the sum of what two sets of candidates give the same queries; the rows stay."""
        context = self.context
        if context is not None and other.context is not None:
            context = context + other.context
        return MatchGradients(self.query + other.query, context, self.rows)


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
        return self.seen(*self.unit(rows), context)

    def unit(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what of a view no relation changes: the unit vector, and how far it is moved.

        Shapes: (..., w) -> (..., q), and of a projection (..., 1).
        """
        if self.view_kind != PROJECTION:
            return normalize(rows, dim=-1), None
        width = rows.shape[-1] // 2
        unit = normalize(rows[..., :width], dim=-1)
        return unit, (rows[..., width:] * unit).sum(-1, keepdim=True)

    def seen(self, unit: Tensor, moved: Tensor | None, context: Tensor | None) -> Tensor:
        """Return the view of :meth:`unit` through a relation. Shapes: (..., q), (..., 1)."""
        if not self.relational_view:
            return unit
        assert context is not None
        if moved is None:
            return unit - (context * unit).sum(-1, keepdim=True) * context
        return unit + moved * context

    # Candidates of their own -------------------------------------------------------------------

    def forward(self, query: Query, table: Tensor, ids: Tensor) -> Tensor:
        """Score each query with its candidates. Shapes: (b, q), (n, w), (b, k) -> (b, k)."""
        return plain_forward(self, query, table, ids)

    def backward(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> MatchGradients:
        """Return the gradients of ``(d_scores * forward(...)).sum()``. Shape: (b, k)."""
        return plain_backward(self, query, table, ids, d_scores)

    def backward_products(
        self, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
    ) -> Tensor | None:
        """Return the gradient of the queries alone. Shape: (b, q).

        Rows are left to who adds them up: each is its slope, in ``d_scores``, times the query. None
        where they are not such products.
        """
        return None

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
        unit, moved = self.unit(table)
        for rows in _same_context(query.context):  # those share the views of all entities
            views = self.seen(unit, moved, query.context[rows[0]])
            scores[rows] = self.compare_all(query.vectors[rows], views)
        return scores

    def forward_pool(self, query: Query, rows: Tensor) -> Tensor:
        """Do what :meth:`forward_all` does for few rows, whatever the relations of the queries."""
        if not self.relational_view:
            return self.forward_all(query, rows)
        places = torch.arange(len(rows), device=rows.device)
        return self.forward(query, rows, places.expand(len(query.vectors), -1))

    def backward_all(self, query: Query, table: Tensor, d_scores: Tensor) -> MatchGradients:
        """Return the gradients of ``(d_scores * forward_all(...)).sum()``. Shape: (b, n)."""
        ids = torch.arange(len(table), device=table.device)
        gradients = []
        d_table = torch.zeros_like(table)
        block = max(1, block_floats(table.device.type) // max(1, table.numel()))
        for start in range(0, len(query.vectors), block):
            part = slice(start, start + block)
            some = query.at(part)
            own = ids.expand(len(some.vectors), -1)
            found = self.backward(some, table, own, d_scores[part])
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
        block = max(1, block_floats(query.device.type) // max(1, query.numel()))
        for start in range(0, len(views), block):
            part = views[start : start + block]
            scores[:, start : start + block] = self.compare(query.unsqueeze(1), part)
        return scores


def rows_of(table: Tensor, ids: Tensor) -> Tensor:
    """Gather rows of a table; those of bfloat16 become float32, in which all is computed."""
    rows = table[ids]
    return rows.float() if rows.dtype == torch.bfloat16 else rows


def aligned(rows: Tensor) -> Tensor:
    """Return rows followed by others, whatever they are, to a multiple of eight.

    The fast matrix products of a GPU need that. Memory behind the rows is taken where there is any
    (:func:`with_room`), so that no table is copied.
    """
    missing = -len(rows) % _ALIGNED
    if missing == 0:
        return rows
    end = rows.storage_offset() + (len(rows) + missing) * rows.shape[1]
    if rows.is_contiguous() and end * rows.element_size() <= rows.untyped_storage().nbytes():
        return rows.as_strided((len(rows) + missing, rows.shape[1]), rows.stride())
    return pad(rows, (0, 0, 0, missing))


def with_room(table: Tensor, device: torch.device) -> Tensor:
    """Copy a table to a device, with memory behind it for the rows that :func:`aligned` adds."""
    rows = len(table) + -len(table) % _ALIGNED
    room = torch.zeros(rows, table.shape[1], dtype=table.dtype, device=device)
    return room[: len(table)].copy_(table)


def plain_forward(match: Match, query: Query, table: Tensor, ids: Tensor) -> Tensor:
    """Gather rows, view them, compare; the definition that every kernel is held equal to."""
    context = None if query.context is None else query.context.unsqueeze(1)
    views = match.view(rows_of(table, ids.clamp_min(0)), context)
    scores = match.compare(query.vectors.unsqueeze(1), views)
    return scores.masked_fill(ids < 0, -math.inf)


def plain_backward(
    match: Match, query: Query, table: Tensor, ids: Tensor, d_scores: Tensor
) -> MatchGradients:
    """Differentiate :func:`plain_forward` by autograd, on the gathered rows."""
    with torch.enable_grad():
        rows = rows_of(table, ids.clamp_min(0)).detach().requires_grad_()
        vectors = query.vectors.detach().requires_grad_()
        context = None if query.context is None else query.context.detach().requires_grad_()
        views = match.view(rows, None if context is None else context.unsqueeze(1))
        scores = match.compare(vectors.unsqueeze(1), views)
    leaves = [vectors, rows] if context is None else [vectors, rows, context]
    found = torch.autograd.grad(scores, leaves, d_scores.masked_fill(ids < 0, 0))
    d_context = found[2] if context is not None else None
    return MatchGradients(found[0], d_context, found[1].flatten(0, 1))


#: Held while it is changed how products are rounded, which is one setting for all threads.
_ROUNDING_LOCK = threading.RLock()
#: By the kind of device, how many threads have fast products, and what was set before the first.
_rounding: dict[str, tuple[int, bool | str]] = {}


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let matrix products round their inputs; they add up in float32.

    A GPU rounds to TF32. A processor that multiplies bfloat16 may round to that, and takes the
    products of oneDNN, on some twice as fast. Not for evaluation. It ends when the last of the
    threads that are in it leaves: trials of a search may be threads.
    """
    if device.type == "cpu" and not multiplies_bfloat16():
        yield
        return
    products: Any = torch.backends.cuda.matmul
    name: str = "allow_tf32"
    fast: bool | str = True
    if device.type == "cpu":
        products, name, fast = _MKLDNN.matmul, "fp32_precision", "bf16"
    with _ROUNDING_LOCK:
        threads, before = _rounding.get(device.type) or (0, getattr(products, name))
        setattr(products, name, fast)
        _rounding[device.type] = threads + 1, before
    try:
        yield
    finally:
        with _ROUNDING_LOCK:
            threads, before = _rounding.pop(device.type)
            if threads > 1:
                _rounding[device.type] = threads - 1, before
            else:
                setattr(products, name, before)


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Let products on a GPU be those of before, while another thread has fast ones; it waits.

    On a CPU no two trials share a process.
    """
    if device.type == "cpu":
        yield
        return
    products = torch.backends.cuda.matmul
    with _ROUNDING_LOCK:
        now = products.allow_tf32
        products.allow_tf32 = _rounding.get(device.type, (0, now))[1]
        try:
            yield
        finally:
            products.allow_tf32 = now


@functools.cache
def multiplies_bfloat16() -> bool:
    """Tell whether this processor multiplies bfloat16, about twice as fast as float32.

    ``NSCACHING_PRODUCTS=float32`` turns that off, and ``NSCACHING_PLAIN=1`` with all kernels. A
    torch before 2.9 rounds no factors by itself.
    """
    if os.environ.get("NSCACHING_PRODUCTS") == "float32":
        return False
    here = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    rounds = hasattr(getattr(_MKLDNN, "matmul", None), "fp32_precision")
    return HAVE_NUMBA and rounds and bool(here.get("avx512_bf16") or here.get("amx_bf16"))


def rounded(*factors: Tensor) -> list[Tensor]:
    """Return the factors of gradients, where :func:`fast_products` holds on a CPU, as bfloat16.

    Their products are bfloat16, too: gradients of three digits.
    """
    fast = (
        factors[0].device.type == "cpu"
        and factors[0].dtype == torch.float32
        and multiplies_bfloat16()
        and _MKLDNN.matmul.fp32_precision == "bf16"
    )
    return [factor.to(torch.bfloat16) if fast else factor for factor in factors]


def _same_context(context: Tensor) -> list[Tensor]:
    """Group queries by their context. Shape: (b, q) -> places of each group."""
    order = context[:, 0].argsort(stable=True)
    ordered = context[order]
    begins = (ordered[1:] != ordered[:-1]).any(1).nonzero().squeeze(1) + 1
    return [rows for rows in torch.tensor_split(order, begins.cpu()) if len(rows)]


@kernel(cpu="query_cpu")
def take_rows(rows: Tensor, places: Tensor) -> Tensor:
    """Return rows by their places. Shapes: (n, w), (m,) -> (m, w).

    The loop of the CPU keeps torch's threads out of a step: they would wait for more work on the
    cores that the kernels need.
    """
    return rows.index_select(0, places)


def block_floats(device_type: str) -> int:
    """Return how many floats a plain comparison of all pairs may hold at once."""
    return _BLOCK_FLOATS.get(device_type, _BLOCK_FLOATS_DEVICE)
