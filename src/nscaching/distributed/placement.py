"""A run whose tables are cut into strata: what the training loop asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nscaching.distributed.ranking import StrataRanking
from nscaching.distributed.sampler import StrataSampler
from nscaching.distributed.shards import Shards
from nscaching.distributed.step import ShardedStep
from nscaching.distributed.strata import Strata
from nscaching.errors import UserError
from nscaching.evaluation.ranking import Count
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel
from nscaching.models.sharded import write_shards
from nscaching.processes import current_group
from nscaching.sampling import Sampler
from nscaching.sampling.rejected import RejectedFacts
from nscaching.training import sharded_checkpoint
from nscaching.training.checkpoint import Counters, Parts, Tables
from nscaching.training.config import TrainConfig
from nscaching.training.folder import RunFolder
from nscaching.training.opening import initial_model
from nscaching.training.placement import Placement
from nscaching.training.sharded_checkpoint import Saver

#: What the tensors that have a row per entity are called, alone or before a dot.
_ENTITY = "entity"


class StrataPlacement(Placement):
    """Strata of which this process owns some, or all."""

    steps_between_agreements = 16

    def __init__(self, graph: KnowledgeGraph, config: TrainConfig, device: torch.device) -> None:
        super().__init__(graph, config, device)
        config.check_strata()
        if RejectedFacts.of(graph, device) is not None:
            raise UserError(
                "Several processes or strata do not learn from rejected facts; train in one "
                "process, with strata 1."
            )
        self.shards = Shards(Strata(graph.num_entities, config.strata, config.seed), device)
        self.leads = self.shards.exchange.rank == 0
        self._saver: Saver | None = None

    def model(self) -> EmbeddingModel:
        """Return the rows of the own strata, and all relations."""
        config, shards = self.config, self.shards
        if config.init_from is not None:
            return shards.sharded(initial_model(self.graph, config, torch.device("cpu")))
        return shards.initial_model(config.build_scoring(), self.graph, config.reciprocal)

    def sampler(self, name: str, model: EmbeddingModel) -> Sampler:
        """Return the samplers of the own strata, as one."""
        both_sides = self.config.asks_both_sides()
        return StrataSampler(
            self.shards, model, self.graph, self.config, name, both_sides=both_sides
        )

    def columns(self) -> Tensor:
        """Return what batches are made of, with places for entities. Shape: (5, n), int32."""
        return self.shards.columns(super().columns())

    def step(self, *parts: Any) -> ShardedStep:
        """Return the step; ``parts`` are model, sampler, loss, optimiser and generator."""
        return ShardedStep(self.shards, *parts, **self._of_step)

    def count(self) -> Count | None:
        """Return what counts better entities over all strata."""
        return StrataRanking(self.shards)

    def whole(self, model: EmbeddingModel) -> EmbeddingModel:
        """Return a model of this run with its rows in the order of the graph, if all are here."""
        return self.shards.whole(model) if self.shards.exchange.world_size == 1 else model

    def agree(self, value: float) -> float:
        """Return the largest of the values that the processes have: all act on the same."""
        return self.shards.exchange.agree(value)

    def total(self, value: float) -> float:
        """Return the sum of the values that the processes have."""
        return self.shards.exchange.total(value)

    # Keeping -------------------------------------------------------------------------------------

    def save(
        self, folder: RunFolder, counters: Counters, parts: Parts, best: Tables, last: bool
    ) -> None:
        """Write the state of the own strata beside training; the model only the ``last`` time."""
        if self._saver is None or self._saver.folder != folder.latest.parent:
            self._saver = Saver(folder.latest.parent, current_group())
        self._saver.wait()
        model_first = last and current_group().broadcast(folder.has_checkpoint())
        if model_first:
            self.write_model(folder, best)
        self._saver.save(counters, *split(self.shards, parts))
        if last:
            self._saver.wait()
            if not model_first:
                self.write_model(folder, best)

    def write_model(self, folder: RunFolder, tables: Tables) -> None:
        """Write the own strata of a model; all processes take part."""
        shards, strata, entity = self.shards, self.shards.strata, tables["entity"]
        own = {
            number: (torch.from_numpy(strata.entities(number)), entity[shards.rows(number)])
            for number in shards.own
        }
        write_shards(folder.path, own, tables["relation"], strata.count, current_group())

    def load(self, folder: RunFolder) -> tuple[Counters, Parts]:
        """Read the strata that this process owns now."""
        counters, shared, strata = sharded_checkpoint.load(folder.latest.parent, self.shards.own)
        return counters, join(self.shards, shared, strata)


# The state of a run as its checkpoint has it: what all processes share, and a part per stratum. It
# does not say who owns a stratum: a run resumes with any number of processes that divides them.


def split(shards: Shards, parts: Parts) -> tuple[Parts, dict[int, Parts]]:
    """Cut the state of a process into what is shared and its strata; nothing is copied."""
    shared: Parts = {}
    strata: dict[int, Parts] = {number: {} for number in shards.own}
    for group, tensors in parts.items():
        for name, tensor in tensors.items():
            number, _, rest = name.partition(".")
            if group == "sampler" and number.isdigit():
                strata[int(number)].setdefault(group, {})[rest] = tensor
            elif number == _ENTITY:
                for each, part in strata.items():
                    part.setdefault(group, {})[name] = tensor[shards.rows(each)]
            else:
                shared.setdefault(group, {})[name] = tensor
    return shared, strata


def join(shards: Shards, shared: Parts, strata: dict[int, Parts]) -> Parts:
    """Return the state of a process from what is shared and the strata that it owns now."""
    parts: Parts = {group: dict(tensors) for group, tensors in shared.items()}
    length = len(shards.own) * shards.strata.stride
    for number in shards.own:
        for group, tensors in strata[number].items():
            joined = parts.setdefault(group, {})
            for name, tensor in tensors.items():
                if name.partition(".")[0] != _ENTITY:
                    joined[f"{number}.{name}"] = tensor
                    continue
                if name not in joined:  # rows that only fill up a stratum stand where all do
                    fill = tensor.max() if tensor.dtype == torch.int32 else tensor.new_zeros(())
                    joined[name] = fill.expand(length, *tensor.shape[1:]).clone()
                joined[name][shards.rows(number)] = tensor
    return parts
