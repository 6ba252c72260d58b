"""Generators of negatives: trainable distributions over entities, given a fixed pair.

A generator learns by REINFORCE: the gradient of ``(reward - baseline) * log p(picked)``, where the
baseline is the moving average of the reward. The gradient of log p with respect to the logits is
``onehot(picked) - p``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from nscaching.kernels.hashing import new_seed
from nscaching.kernels.registry import kernel
from nscaching.losses import logsumexp, softmax_gradient
from nscaching.models import SCORING, BatchQueries, EmbeddingModel, ScoringFunction
from nscaching.models.match import Query, fast_products
from nscaching.optim import Adam, RowGradients

#: How much of the moving average of the reward a step keeps.
_BASELINE_DECAY = 0.95
#: Entities whose probabilities are added up before one of them is drawn.
_BLOCK = 1024


class Pairs(NamedTuple):
    """The fixed part of each triple of a batch, with the side that is asked for. Shapes: (b,)."""

    anchor: Tensor
    relation: Tensor
    replaces_head: Tensor


class Generator(ABC):
    """Two tables of its own, their Adam, and the baseline of the reward."""

    def __init__(self, sizes: tuple[int, int], width: int, lr: float, device: torch.device) -> None:
        entities, relations = sizes
        self.tables = {
            "entity": torch.zeros(entities, width, device=device),
            "relation": torch.zeros(relations, width, device=device),
        }
        self.adam = Adam(self.tables, lr, weight_decay=0.0)
        self.baseline = torch.zeros((), device=device)
        self._rewarded = torch.zeros((), device=device)  #: 1 after the first reward

    @abstractmethod
    def initialise(self, generator: torch.Generator) -> None:
        """Fill the tables at random."""

    @abstractmethod
    def warm_start(self, model: EmbeddingModel) -> None:
        """Take over what a TransE has learned."""

    def advantage(self, reward: Tensor, weights: Tensor) -> Tensor:
        """Return reward minus baseline, 0 for what has no weight, and move the baseline on.

        Shapes: (b, k), (b, k) -> (b, k). The first mean reward is the first baseline.
        """
        return above_baseline(reward, weights, self.baseline, self._rewarded, _BASELINE_DECAY)

    def state(self) -> dict[str, Tensor]:
        """Return everything a checkpoint must hold."""
        adam = {f"adam.{name}": tensor for name, tensor in self.adam.state().items()}
        baseline = {"baseline": self.baseline, "rewarded": self._rewarded}
        return {**self.tables, **adam, **baseline}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        prefix = "adam."
        for name, mine in self.state().items():
            if not name.startswith(prefix):
                mine.copy_(state[name])
        self.adam.load_state(
            {name[len(prefix) :]: t for name, t in state.items() if name.startswith(prefix)}
        )


@kernel(gpu="draw_gpu")
def above_baseline(
    reward: Tensor, weights: Tensor, baseline: Tensor, rewarded: Tensor, keep: float
) -> Tensor:
    """Return reward minus baseline where there is a weight, else 0; move the baseline on.

    It becomes ``keep`` of what it was and the rest of the mean reward; before a first reward, where
    ``rewarded`` is 0, it is that mean. Shapes: (b, k), (b, k), (), () -> (b, k).
    """
    counts = weights > 0  # padding has no reward
    mean = torch.where(counts, reward, 0).sum() / counts.sum().clamp_min(1)
    torch.lerp(mean, baseline, rewarded, out=baseline)
    advantage = torch.where(counts, reward - baseline, 0)
    baseline.lerp_(mean, 1 - keep)
    rewarded.fill_(1)
    return advantage


class TransEGenerator(Generator):
    """KBGAN's: a softmax of TransE scores over a few candidates.

    :meth:`reinforce` has the queries that :meth:`logits` made, where those were of the same pairs.
    """

    def __init__(self, sizes: tuple[int, int], dim: int, lr: float, device: torch.device) -> None:
        self.scoring: ScoringFunction = SCORING["transe"](dim)
        self._last: tuple[Pairs, BatchQueries, Query] | None = None
        super().__init__(sizes, dim, lr, device)
        self._model = EmbeddingModel(self.scoring, *self.tables.values())

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the tables as those of a model are."""
        on_cpu = torch.Generator().manual_seed(int(new_seed(generator)))
        entity, relation = (torch.empty(table.shape) for table in self.tables.values())
        self.scoring.init_(entity, relation, on_cpu)
        self.tables["entity"].copy_(entity)
        self.tables["relation"].copy_(relation)

    def warm_start(self, model: EmbeddingModel) -> None:
        """Take over the tables."""
        for name, table in model.state().items():
            self.tables[name].copy_(table)

    def logits(self, pairs: Pairs, candidates: Tensor) -> Tensor:
        """Score candidates, -1 as -inf. Shapes: (b,) each, (b, k) -> (b, k)."""
        self._last = self._asked(pairs)
        return self.scoring.match.forward(self._last[2], self.tables["entity"], candidates)

    def _asked(self, pairs: Pairs) -> tuple[Pairs, BatchQueries, Query]:
        """Return the queries of pairs: what stays is the head and the tail of both questions."""
        queries = self._model.queries(pairs.anchor, pairs.relation, pairs.anchor)
        return pairs, queries, queries.ask(pairs.replaces_head)

    def reinforce(
        self, pairs: Pairs, candidates: Tensor, chances: Tensor, picked: Tensor, advantage: Tensor
    ) -> None:
        """Make picks with an advantage more likely.

        ``chances`` are those the picks were drawn with. Shapes: (b, n) twice, (b, k) twice.
        """
        last, self._last = self._last, None
        _, queries, query = last if last is not None and last[0] is pairs else self._asked(pairs)
        total = advantage if advantage.shape[1] == 1 else advantage.sum(1, keepdim=True)
        d_scores = chances * total
        d_scores.scatter_add_(1, picked, -advantage)  # sum of A (p - onehot): Adam goes downhill
        match, given = self.scoring.match, (query, self.tables["entity"], candidates, d_scores)
        summed = match.backward_summed(*given, self.adam.gradient_table("entity"))
        if summed is None:  # a padded place has a row of zeros, for any entity
            summed = match.backward(*given), candidates.clamp_min(0).reshape(-1)
        found, ids = summed
        entity, relation = (RowGradients(*part) for part in queries.backward(found))
        self.adam.step({"entity": [RowGradients(ids, found.rows), entity], "relation": [relation]})


class FullGenerator(Generator):
    """IGAN's: a small network over the fixed pair, and a softmax over all entities.

    ``logits = (tanh(in[anchor] + s r1) + s r2) . out`` with ``s`` = 1 where the tail is asked for
    and -1 where the head is. Rows: entity [in, out], relation [r1, r2]. Logits of ``chunk`` pairs
    are held at once; where those are all pairs, :meth:`reinforce` has what :meth:`draw` made.
    """

    def __init__(
        self, sizes: tuple[int, int], dim: int, lr: float, chunk: int, device: torch.device
    ) -> None:
        self.dim, self.chunk = dim, chunk
        self._last: tuple[Pairs, Tensor, Tensor] | None = None
        super().__init__(sizes, 2 * dim, lr, device)

    def initialise(self, generator: torch.Generator) -> None:
        """Fill all four parts with Xavier-uniform numbers."""
        for table in self.tables.values():
            bound = math.sqrt(6.0 / (len(table) + self.dim))
            drawn = torch.rand(table.shape, generator=generator, device=table.device)
            table.copy_((2 * drawn - 1) * bound)

    def warm_start(self, model: EmbeddingModel) -> None:
        """Start as the softmax of ``(e + r) . e'``: tanh is close to the identity near zero."""
        entity = normalize(model.entity, dim=1)
        self.tables["entity"].copy_(torch.cat([entity, entity], dim=1))
        relation = torch.cat([torch.zeros_like(model.relation), model.relation], dim=1)
        self.tables["relation"].copy_(relation)

    def draw(self, pairs: Pairs, uniform: Tensor) -> Tensor:
        """Draw entities from the whole distribution. Shapes: (b, k) -> (b, k)."""
        hidden, out = self._hidden(pairs, *self._rows(pairs)), self._out()
        drawn = torch.empty(uniform.shape, dtype=torch.int64, device=uniform.device)
        for part in self._chunks(len(hidden)):
            logits = self._logits(hidden[part], out)
            size = _block(self.entities)
            shares = logsumexp(logits.view(-1, size)).view(len(logits), -1)
            total = logsumexp(shares)
            by_block = logits.view(*shares.shape, size)
            place = _drawn(by_block, shares - total, uniform[part])
            drawn[part] = place.clamp_max_(self.entities - 1)
            self._last = (pairs, logits, total) if len(logits) == len(hidden) else None
        return drawn

    def reinforce(self, pairs: Pairs, picked: Tensor, advantage: Tensor) -> None:
        """Make picks with an advantage more likely. Shapes: (b, k), (b, k).

        Adam goes downhill, along the sum of ``advantage * (p - onehot(picked))`` over the logits.
        """
        e, r = (rows.requires_grad_() for rows in self._rows(pairs))
        with torch.enable_grad():
            hidden = self._hidden(pairs, e, r)
        inputs, out, total_advantage = hidden.detach(), self._out(), advantage.sum(1, keepdim=True)
        last, self._last = self._last, None
        to_hidden = torch.empty_like(inputs)
        table = self.adam.gradient_table("entity")
        to_entity = torch.zeros_like(self.tables["entity"]) if table is None else table
        to_in, to_out = to_entity[:, : self.dim], to_entity[:, self.dim :]
        for part in self._chunks(len(inputs)):
            if last is not None and last[0] is pairs:
                logits, total = last[1:]
            else:
                logits = self._logits(inputs[part], out)
                total = logsumexp(logits)
            nowhere = picked[part, 0]  # what is picked comes below, with each pick's advantage
            chances = softmax_gradient(logits, total, nowhere, 0, 0.0, 0.0)[:, : self.entities]
            with fast_products(out.device):
                torch.mm(chances, out, out=to_hidden[part])
                to_out.addmm_(chances.T, inputs[part] * total_advantage[part])
        to_hidden.mul_(total_advantage)
        for k in range(picked.shape[1]):
            to_hidden.addcmul_(advantage[:, k : k + 1], out[picked[:, k]], value=-1)
            to_out.index_add_(0, picked[:, k], inputs * advantage[:, k : k + 1], alpha=-1)
        to_e, to_r = torch.autograd.grad(hidden, [e, r], to_hidden)
        to_in.index_add_(0, pairs.anchor, to_e)
        relation = RowGradients(pairs.relation, to_r)
        self.adam.step({"entity": [RowGradients(None, to_entity)], "relation": [relation]})

    @property
    def entities(self) -> int:
        """Number of entities."""
        return len(self.tables["entity"])

    def _out(self) -> Tensor:
        return self.tables["entity"][:, self.dim :]

    def _hidden(self, pairs: Pairs, e: Tensor, r: Tensor) -> Tensor:
        sign = torch.where(pairs.replaces_head, -1.0, 1.0).unsqueeze(1)
        return torch.tanh(e + sign * r[:, : self.dim]) + sign * r[:, self.dim :]

    def _rows(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return copies of what the fixed pairs have in the tables."""
        entity = self.tables["entity"][pairs.anchor, : self.dim]
        return entity, self.tables["relation"][pairs.relation]

    def _logits(self, hidden: Tensor, out: Tensor) -> Tensor:
        """Return logits, -inf after the last entity to a whole number of blocks. Shape: (c, m)."""
        missing = -len(out) % _block(len(out))
        with fast_products(out.device):
            logits = hidden @ pad(out, (0, 0, 0, missing)).T
        logits[:, len(out) :] = -math.inf
        return logits

    def _chunks(self, count: int) -> list[slice]:
        return [slice(start, start + self.chunk) for start in range(0, count, self.chunk)]


def _block(entities: int) -> int:
    """Return how many entities a block has: a multiple of eight, as fast matrix products need."""
    return min(_BLOCK, -(-entities // 8) * 8)


def _drawn(logits: Tensor, shares: Tensor, uniform: Tensor) -> Tensor:
    """Draw a block by its share of all, then one in it; the shares are logarithms.

    Shapes: (b, n, size), (b, n), (b, k) -> (b, k).
    """
    blocks = shares.exp().cumsum(1)
    wanted = uniform * blocks[:, -1:]
    block = torch.searchsorted(blocks, wanted, right=True).clamp_max_(blocks.shape[1] - 1)
    before = pad(blocks, (1, 0))
    low, high = before.gather(1, block), before.gather(1, block + 1)
    inside = logits[torch.arange(len(logits), device=logits.device).unsqueeze(1), block]
    within = (inside - inside.amax(2, keepdim=True)).exp_().cumsum(2)
    # Below one, so that what is found has a chance above zero, however sums are rounded.
    fraction = ((wanted - low) / (high - low)).clamp(0, 1 - 2**-23).unsqueeze(2)
    place = torch.searchsorted(within, fraction * within[:, :, -1:], right=True).squeeze(2)
    return block * logits.shape[2] + place.clamp_max_(logits.shape[2] - 1)


def full_generator_bytes(entities: int, draws: int) -> int:
    """Return what the logits of one pair take, with the blocks that are drawn from."""
    block = _block(entities)
    return 4 * (-(-entities // block) * block + 4 * draws * block)
