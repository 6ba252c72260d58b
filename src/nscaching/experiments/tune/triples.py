"""Tuning runs on a knowledge graph: every trial is an ordinary run, compared by validation MRR."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.experiments.tune.journal import SUCCESS, Answer
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.subject import Measure, Subject
from nscaching.graph import KnowledgeGraph, as_graph
from nscaching.nodes.loading import NAMED as NAMED_NODE_GRAPHS
from nscaching.runs.api import decided, make_config, make_trainer, plain_options
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.devices import pick_device
from nscaching.training.opening import graph_of_run, named_or_graph, open_graph


class TripleRuns(Subject):
    """Runs of ``nscaching train``."""

    train_command = "nscaching train"

    def plan(
        self, space: str, graph: Any, base: Any, options: Mapping[str, Any]
    ) -> tuple[TrainConfig, SearchSpace]:
        """Return base and options together, with the sampler of the space."""
        if isinstance(base, str | Path) and Path(base).is_dir():
            base = RunFolder(base).read_config()
        given = {**plain_options(base), **options}
        graph = named_or_graph(graph)
        built = SearchSpace.build(space, make_config(graph, given), options)
        return make_config(graph, {**given, "sampler": built.sampler}), built

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
                "A search compares trials by validation MRR: it needs valid triples (a split above "
                "0 for a single file) and a valid_every above 0."
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

    def measure(self, base: Path) -> Measure:
        """Return the MRR."""
        return Measure("mrr", "MRR")

    def train(self, base: Path, out: Path, options: Mapping[str, Any]) -> Answer:
        """Train a run, from its checkpoint where it has one."""
        anew = not RunFolder(out).checkpoint.exists()
        trainer = make_trainer(
            _graph(str(base)),
            out=out,
            config=self.read_config(base),
            resume=not anew,
            overwrite=anew,
            progress=Progress("none"),
            **options,
        )
        trainer.run(resume=not anew)
        counters = trainer.counters
        if counters.best_valid is None:
            raise UserError("Nothing was validated; a search needs valid triples, --valid-every.")
        return Answer(
            SUCCESS,
            score=float(counters.best_valid["mrr"]),
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

    def device(self, config: TrainConfig) -> str:
        """Return the device that training picks."""
        return pick_device(config.device).type


@functools.lru_cache(maxsize=2)
def _graph(base: str) -> KnowledgeGraph:
    """Read the graph once in a process; all trials share it."""
    return RunFolder(base).read_graph()
