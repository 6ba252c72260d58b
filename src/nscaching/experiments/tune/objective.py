"""What a search tunes: how trials are trained and measured. The search itself knows no model.

There are two objectives: runs on a knowledge graph (here) and embeddings of nodes (``nodes.py``).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nscaching.errors import UserError
from nscaching.evaluation.intervals import METRICS as RANKING
from nscaching.evaluation.intervals import Floats, fact_values
from nscaching.experiments.tune.settings import METRICS
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.trials import SUCCESS, TrialResult
from nscaching.graph import KnowledgeGraph, as_graph
from nscaching.nodes import NodeConfig
from nscaching.nodes.loading import NAMED as NAMED_NODE_GRAPHS
from nscaching.runs.api import decided, load_run, make_config, make_trainer, plain_options
from nscaching.runs.run import Run
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.devices import pick_device
from nscaching.training.opening import graph_of_run, named_or_graph, open_graph

Config = TrainConfig | NodeConfig


@dataclass(frozen=True)
class Metric:
    """What trials are compared by; more is better, and 1 is the most."""

    key: str  #: in JSON and in ``trials.csv``
    name: str  #: for people


class Objective(ABC):
    """How trials are trained and measured. It travels to the workers, so it is small.

    ``base`` is always the folder of the graph and of the options that all trials begin with.
    """

    #: The command that takes ``best.yaml``.
    train_command: ClassVar[str]

    @abstractmethod
    def plan(self, space: str, graph: Any, base: Any, options: Mapping[str, Any]) -> Config:
        """Return the configuration all trials begin with; ``options`` are fixed."""

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
    def metric(self, base: Path) -> Metric:
        """Return what trials are compared by."""

    @abstractmethod
    def train(
        self, base: Path, out: Path, options: Mapping[str, Any], seconds: float | None
    ) -> TrialResult:
        """Train a trial in its folder, or resume it; the test split stays unseen.

        ``seconds`` of training, those of earlier sessions included, are what is left of the search.
        """

    def epochs_done(self, out: Path) -> int:
        """Return the epochs that a failed trial has come to."""
        return 0

    def forget(self, out: Path) -> None:  # noqa: B027 (some have nothing to remove)
        """Remove what only a trial that is resumed needs."""

    def fact_scores(self, out: Path) -> Floats | None:
        """Return what each valid fact adds to the score of a trial, (n,); None where none does."""
        return None

    def device(self, config: Any) -> str:
        """Return the kind of device that trials use, or raise when it is not there."""
        return "cpu"


@dataclass(frozen=True)
class GraphRuns(Objective):
    """Runs of ``nscaching train``; a trial is an ordinary run folder."""

    select: str = "mrr"  #: one of :data:`METRICS`
    train_command = "nscaching train"

    def plan(self, space: str, graph: Any, base: Any, options: Mapping[str, Any]) -> TrainConfig:
        """Return base and options together, with the sampler of the space."""
        if isinstance(base, str | Path) and Path(base).is_dir():
            base = RunFolder(base).read_config()
        given = {**plain_options(base), **options}
        graph = named_or_graph(graph)
        built = SearchSpace.build(space, make_config(graph, given), options)
        return make_config(graph, {**given, "sampler": built.sampler})

    def open(self, graph: Any, config: TrainConfig, labels: str | Path | None) -> KnowledgeGraph:
        """Return the graph, which must have valid triples."""
        if labels is not None:
            raise UserError("Labels are classes of nodes; they go with --space nodes.")
        if config.data in NAMED_NODE_GRAPHS and not Path(config.data).exists():
            raise UserError(
                f"{config.data} is a graph without relations; tune embeddings of its nodes with "
                f"'nscaching nodes tune {config.data}'."
            )
        loaded = open_graph(config, named_or_graph(graph))
        if len(loaded.valid) == 0 or config.valid_every == 0:
            raise UserError(
                "A search compares trials by a validation metric: it needs valid triples (a split "
                "above 0 for a single file) and a valid_every above 0."
            )
        return loaded

    def write_base(self, base: Path, config: TrainConfig, graph: KnowledgeGraph) -> None:
        """Write a run folder without a model."""
        RunFolder(base).create(decided(config, graph), graph)

    def read_config(self, base: Path) -> TrainConfig:
        """Return the configuration of the run folder."""
        return RunFolder(base).read_config()

    def is_of(self, base: Path, graph: Any) -> bool:
        """Compare triples and names."""
        folder = RunFolder(base)
        given = as_graph(graph)
        return graph_of_run(given, folder.read_graph(), folder.read_config()) is not None

    def metric(self, base: Path) -> Metric:
        """Return the metric that was chosen."""
        return Metric(self.select, METRICS[self.select])

    def train(
        self, base: Path, out: Path, options: Mapping[str, Any], seconds: float | None
    ) -> TrialResult:
        """Train a run, from its checkpoint where it has one."""
        anew = not RunFolder(out).checkpoint.exists()
        config = self.read_config(base)
        given = dict(options)
        if "select" in TrainConfig.names():  # then the epoch is chosen by the same metric
            given["select"] = self.select
        limits = [limit for limit in (config.max_seconds, seconds) if limit is not None]
        trainer = make_trainer(
            _graph(str(base)),
            out=out,
            config=config,
            resume=not anew,
            overwrite=anew,
            progress=Progress("none"),
            **{**given, "max_seconds": min(limits, default=None)},
        )
        trainer.run(resume=not anew)
        counters = trainer.counters
        if counters.best_valid is None:
            raise UserError("Nothing was validated; a search needs valid triples, --valid-every.")
        if self.select == "accuracy":
            run = Run(trainer.config, trainer.graph, trainer.best_model())
            score = run.classification("valid").accuracy
        else:
            score = counters.best_valid[self.select]
        return TrialResult(
            SUCCESS,
            score=float(score),
            best_epoch=counters.best_epoch,
            epochs=counters.epoch,
            anew=anew,
        )

    def epochs_done(self, out: Path) -> int:
        """Read them off ``metrics.jsonl``."""
        lines = RunFolder(out).read_metrics()
        return max((int(line.get("epoch", 0)) for line in lines), default=0)

    def forget(self, out: Path) -> None:
        """Remove the checkpoint; the model stays."""
        RunFolder(out).checkpoint.unlink(missing_ok=True)

    def fact_scores(self, out: Path) -> Floats | None:
        """Rank the valid facts with the model of a trial."""
        if self.select not in RANKING or not RunFolder(out).model.exists():
            return None
        report = load_run(out).evaluate("valid")
        return fact_values(report.ranks)[:, RANKING.index(self.select)]

    def device(self, config: TrainConfig) -> str:
        """Return the device that training picks."""
        return pick_device(config.device).type


@functools.lru_cache(maxsize=2)
def _graph(base: str) -> KnowledgeGraph:
    """Read the graph once in a process; all trials share it."""
    return RunFolder(base).read_graph()
