"""What a search tunes. The search itself knows no model: it asks, trains, tells and keeps the book.

There are two subjects: runs on a knowledge graph (``triples.py``) and embeddings of nodes
(``nodes.py``). ``subjects.py`` tells which space belongs to which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nscaching.experiments.tune.journal import Answer
from nscaching.experiments.tune.space import SearchSpace
from nscaching.nodes import NodeConfig
from nscaching.training import TrainConfig

Config = TrainConfig | NodeConfig


@dataclass(frozen=True)
class Measure:
    """What trials are compared by; more is better, and 1 is the most."""

    key: str  #: in JSON and in ``trials.csv``
    name: str  #: for people


class Subject(ABC):
    """How trials are made and measured. It travels to the workers, so it is small.

    ``base`` is always the folder of the graph and of the options that all trials begin with.
    """

    #: The command that takes ``best.yaml``.
    train_command: ClassVar[str]

    @abstractmethod
    def plan(
        self, space: str, graph: Any, base: Any, options: Mapping[str, Any]
    ) -> tuple[Config, SearchSpace]:
        """Return the configuration all trials begin with, and the space; ``options`` are fixed."""

    @abstractmethod
    def open(self, graph: Any, config: Any, labels: str | Path | None) -> Any:
        """Return the graph in memory, or raise when trials on it could not be compared."""

    @abstractmethod
    def write_base(self, base: Path, config: Any, graph: Any) -> None:
        """Write what the workers read."""

    @abstractmethod
    def read_config(self, base: Path) -> Config:
        """Return the configuration that all trials begin with."""

    @abstractmethod
    def is_of(self, base: Path, graph: Any) -> bool:
        """Tell whether a search was begun on this graph, which is in memory."""

    @abstractmethod
    def measure(self, base: Path) -> Measure:
        """Return what trials are compared by."""

    @abstractmethod
    def train(self, base: Path, out: Path, options: Mapping[str, Any]) -> Answer:
        """Train a trial in its folder, or go on with it; what is for the end stays unseen."""

    def epochs_done(self, out: Path) -> int:
        """Return the epochs that a failed trial has come to."""
        return 0

    def forget(self, out: Path) -> None:  # noqa: B027 (some have nothing to remove)
        """Remove what only a trial that goes on needs."""

    def device(self, config: Any) -> str:
        """Return the kind of device that trials use, or raise when it is not there."""
        return "cpu"
