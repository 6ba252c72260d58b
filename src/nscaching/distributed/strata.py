"""Strata: entities in a random order, cut into V parts that are as large as each other.

A stratum is what a process owns: rows of the entity table with their optimiser state, the part of
every cache row that holds its entities, and the known positives among them. Nothing in it depends
on how many processes there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.graph.pairs import PairRows, RelationStatistics, TrainingRows
from nscaching.kernels.hashing import hashed_bits

_Ids = npt.NDArray[np.int64]
#: Strata begin at multiples of so many rows: deferred updates are due by blocks of rows.
_ALIGNED = 256


class Strata:
    """Where each entity lives: stratum ``places[e] // stride``, row ``places[e] % stride``."""

    def __init__(self, num_entities: int, count: int, seed: int) -> None:
        if count > num_entities:
            raise UserError(
                f"strata is {count:,}, and the graph has {num_entities:,} entities; each stratum "
                "needs one at least."
            )
        self.num_entities, self.count, self.seed = num_entities, count, seed
        self._starts = np.arange(count + 1) * num_entities // count
        size = int(np.diff(self._starts).max())
        self.stride = -(-size // _ALIGNED) * _ALIGNED
        generator = torch.Generator().manual_seed(seed)
        self._order: _Ids = torch.randperm(num_entities, generator=generator).numpy()
        self.places: _Ids = np.empty(num_entities, dtype=np.int64)
        for number in range(count):
            own = self.entities(number)
            self.places[own] = number * self.stride + np.arange(len(own))

    def entities(self, number: int) -> _Ids:
        """Return the entities of a stratum in the order of its rows."""
        return self._order[self._starts[number] : self._starts[number + 1]]

    def size(self, number: int) -> int:
        """Return how many entities a stratum has."""
        return int(self._starts[number + 1] - self._starts[number])

    def block(self, numbers: range, batch: int) -> slice:
        """Return the triples of a batch whose questions some strata answer, or add up."""
        return slice(numbers.start * batch // self.count, numbers.stop * batch // self.count)

    def generator(self, number: int, device: torch.device) -> torch.Generator:
        """Return the random numbers of a stratum."""
        bits = hashed_bits(torch.tensor([self.seed]), torch.tensor([number]), 0, 1)
        return torch.Generator(device).manual_seed(int(bits) & (1 << 63) - 1)


@dataclass(frozen=True)
class StratumGraph:
    """What a sampler sees of a graph where it draws from strata; ids are rows of a stratum."""

    num_entities: int
    num_relations: int
    train: npt.NDArray[np.int32]
    statistics: RelationStatistics
    rows: TrainingRows

    @classmethod
    def of(cls, graph: KnowledgeGraph, strata: Strata, numbers: Sequence[int]) -> StratumGraph:
        """Return the graph of some strata: every pair, with those of its answers that are there.

        The answers of all pairs in the first stratum come first, and so on: there are as many
        lists of answers as pairs and strata. The number of entities is that of the largest.
        """
        sides = (_known(side, strata, numbers) for side in (graph.rows.head, graph.rows.tail))
        rows, size = TrainingRows(*sides), max(strata.size(number) for number in numbers)
        return cls(size, graph.num_relations, graph.train, graph.statistics, rows)


def _known(pairs: PairRows, strata: Strata, numbers: Sequence[int]) -> PairRows:
    places = strata.places[pairs.answers]
    stratum, pair = (
        places // strata.stride,
        np.repeat(np.arange(len(pairs)), np.diff(pairs.offsets)),
    )
    counts, answers = [], []
    for number in numbers:
        inside = stratum == number
        counts.append(np.bincount(pair[inside], minlength=len(pairs)))
        keys = pair[inside] * strata.stride + places[inside] % strata.stride
        keys.sort(kind="stable")  # pairs are in order already
        answers.append((keys % strata.stride).astype(np.int32))
    return PairRows(
        of_triple=pairs.of_triple,
        anchor=pairs.anchor,
        relation=pairs.relation,
        offsets=np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64),
        answers=np.concatenate(answers),
    )
