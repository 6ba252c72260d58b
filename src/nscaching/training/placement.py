"""Where the tables of a run live: in this process as a whole, or in strata that processes share.

This is the first case; ``nscaching.distributed`` has the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nscaching.evaluation.ranking import Count
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel
from nscaching.sampling import SAMPLERS, Sampler, triple_columns
from nscaching.sampling.rejected import RejectedFacts
from nscaching.sampling.shared_rows import with_shared_rows
from nscaching.training import checkpoint
from nscaching.training.checkpoint import Counters, Parts, Tables
from nscaching.training.config import TrainConfig
from nscaching.training.folder import RunFolder
from nscaching.training.opening import initial_model
from nscaching.training.step import TrainingStep
from nscaching.training.subsampling import fact_weights


class Placement:
    """Makes the parts of a run that know where a table is."""

    #: Whether this process prints, and writes what there is one of.
    leads = True
    #: Steps after which processes tell each other whether one was asked to stop.
    steps_between_agreements = 1

    def __init__(self, graph: KnowledgeGraph, config: TrainConfig, device: torch.device) -> None:
        self.graph, self.config, self.device = graph, config, device

    @classmethod
    def of(cls, graph: KnowledgeGraph, config: TrainConfig, device: torch.device) -> Placement:
        """Return the placement that a configuration asks for; samplers see the rows of caches."""
        graph = with_shared_rows(graph, config)
        if config.strata == 1:
            return cls(graph, config, device)
        from nscaching.distributed.placement import StrataPlacement

        return StrataPlacement(graph, config, device)

    def model(self) -> EmbeddingModel:
        """Return the parameters that the run starts from."""
        return initial_model(self.graph, self.config, self.device)

    def sampler(self, name: str, model: EmbeddingModel) -> Sampler:
        """Return a sampler by its name."""
        both_sides = self.config.asks_both_sides()
        return SAMPLERS[name](self.graph, self.config, self.device, both_sides=both_sides)

    def columns(self) -> Tensor:
        """Return what batches are made of. Shape: (5, n), int32."""
        return triple_columns(self.graph, self.device)

    def step(self, *parts: Any) -> TrainingStep:
        """Return the step; ``parts`` are model, sampler, loss, optimiser and generator."""
        rejected = RejectedFacts.of(self.graph, self.device)
        weights = None
        if self.config.subsampling and not self.config.asks_both_sides():
            weights = fact_weights(self.graph).to(self.device)
        return TrainingStep(*parts, **self._of_step, rejected=rejected, fact_weights=weights)

    @property
    def _of_step(self) -> dict[str, Any]:
        """Options that a step has besides its parts."""
        names = ("n3", "relation_prediction", "dropout")
        return {name: getattr(self.config, name) for name in names}

    def count(self) -> Count | None:
        """Return what counts the entities that score above the true one, where it is special."""
        return None

    def whole(self, model: EmbeddingModel) -> EmbeddingModel:
        """Return a model of this run with its rows in the order of the graph."""
        return model

    def agree(self, value: float) -> float:
        """Return the largest of the values that the processes have: all act on the same."""
        return value

    def total(self, value: float) -> float:
        """Return the sum of the values that the processes have."""
        return value

    def save(
        self, folder: RunFolder, counters: Counters, parts: Parts, best: Tables, last: bool
    ) -> None:
        """Write the state of a run and its best model; the ``last`` time, wait for it."""
        if folder.has_checkpoint():
            self.write_model(folder, best)
            checkpoint.save(folder.checkpoint, counters, parts)
        else:  # the first: a kill in between must not leave a model without its checkpoint
            checkpoint.save(folder.checkpoint, counters, parts)
            self.write_model(folder, best)

    def write_model(self, folder: RunFolder, tables: Tables) -> None:
        """Write the tables of a model."""
        folder.write_model(tables["entity"], tables["relation"])

    def load(self, folder: RunFolder) -> tuple[Counters, Parts]:
        """Read back what :meth:`save` wrote."""
        return checkpoint.load(folder.checkpoint)
