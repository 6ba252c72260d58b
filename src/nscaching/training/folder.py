"""The run folder: what is in it, and that every file in it is whole.

``config.yaml`` repeats the run; ``entities.txt`` and ``relations.txt`` name the rows of
``model.safetensors``, which a run with strata has in one shard per stratum; ``graph.safetensors``
holds the triples by id, so that a run can be evaluated and asked without the files it was trained
on (a graph of ``nscaching ingest`` lies in ``graph/`` instead, by links where the file system has
them); ``metrics.jsonl`` has a line per epoch and per evaluation, ``trace.jsonl`` what ``--trace``
saw; ``checkpoint/`` holds what ``--resume`` needs; ``report.html`` is a page about it all.
``calibration.json`` turns scores into probabilities; ``rejected.tsv`` and ``accepted.tsv`` hold
what an update was told, ``track.json`` the trackers that are told again when the run is resumed.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nscaching.artefacts import MARKER, ArtefactFolder, artefact_id, files
from nscaching.errors import CHOOSE_ANOTHER, UserError, resume_command, shown
from nscaching.graph import KnowledgeGraph
from nscaching.graph.store import GraphStore, StoredGraph
from nscaching.models import EmbeddingModel, ScoringOptions
from nscaching.models.sharded import ShardedModel, has_shards, read_shards
from nscaching.processes import launch_id
from nscaching.training.checkpoint import Counters, load_counters
from nscaching.training.config import TrainConfig
from nscaching.training.devices import free_bytes
from nscaching.training.diagnostics import usable_metrics, usable_trace
from nscaching.training.sharded_checkpoint import LATEST, SHARD, TENSORS, read_latest

_SPLITS = ("train", "valid", "test")


class RunFolder(ArtefactFolder):
    """The files of one run."""

    kind = "run"
    what = "a run"
    otherwise = "is not a run folder"
    own = (
        *("config.yaml", "entities.txt", "relations.txt", "graph.safetensors"),
        *("model.safetensors", "metrics.jsonl", "trace.jsonl", "report.html", "explorer.html"),
        *("calibration.json", "rejected.tsv", "accepted.tsv", "track.json"),
        *("model.safetensors.index.json", SHARD),
        *("checkpoint/state.safetensors", "checkpoint/latest.json"),
        f"checkpoint/{TENSORS}/{SHARD}",
        *(f"graph/{name}" for name in (*GraphStore.own, MARKER)),
    )

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.config = self.path / "config.yaml"
        self.entities = self.path / "entities.txt"
        self.relations = self.path / "relations.txt"
        self.graph = self.path / "graph.safetensors"
        #: In place of names and triples, where the graph is one of ``nscaching ingest``.
        self.store = GraphStore(self.path / "graph")
        self.model = self.path / "model.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        self.trace = self.path / "trace.jsonl"
        self.checkpoint = self.path / "checkpoint" / "state.safetensors"
        self.latest = self.checkpoint.parent / LATEST  #: of a run with strata
        self.calibration = self.path / "calibration.json"
        self.rejected = self.path / "rejected.tsv"
        self.track = self.path / "track.json"

    def looks_like_one(self) -> bool:
        """Tell whether configuration and graph are there."""
        return self.config.is_file() and (self.graph.is_file() or self.store.marker.is_file())

    def is_run(self) -> bool:
        """Tell whether the folder holds a run, finished or not."""
        return self.holds_one()

    def has_model(self) -> bool:
        """Tell whether a model has been written, in one file or in shards."""
        return self.model.exists() or has_shards(self.path)

    def has_checkpoint(self) -> bool:
        """Tell whether the run can be resumed from where it stood."""
        return self.checkpoint.exists() or self.latest.exists()

    def read_counters(self) -> Counters:
        """Return where the run stands."""
        sharded = self.latest.exists()
        return read_latest(self.latest.parent)[0] if sharded else load_counters(self.checkpoint)

    def is_done(self, config: TrainConfig) -> bool:
        """Tell whether the run is resumed for nothing: no step is left and the model is there."""
        limits = config.epochs, config.max_seconds, config.patience
        return self.has_model() and self.read_counters().nothing_left(*limits)

    def create(
        self,
        config: TrainConfig,
        graph: KnowledgeGraph,
        also: Callable[[RunFolder], None] | None = None,
    ) -> None:
        """Make the folder with what is known before training; an earlier run there is replaced.

        ``also`` writes more files, which are there from the first moment on, or none is.
        """
        if self.exists() and not self.is_run():
            raise UserError(
                f"{self.path} exists and is not a run folder, so it is not overwritten; "
                f"{CHOOSE_ANOTHER}"
            )
        with self.replacing() as new:
            staged = RunFolder(new)
            staged._write(config, graph)
            self.write_marker(new, **staged._ties(config))
            if also is not None:
                also(staged)
        with files.explained_writes(self.path):
            self.checkpoint.parent.mkdir(exist_ok=True)

    def _write(self, config: TrainConfig, graph: KnowledgeGraph) -> None:
        self.clear_metrics()
        self.write_config(config)
        if isinstance(graph, StoredGraph):
            graph.store.link_to(self.store.path)
            return
        files.write_names(self.entities, graph.entities)
        files.write_names(self.relations, graph.relations)
        splits = {split: graph.split(split) for split in _SPLITS}
        labelled = {f"labelled.{split}": rows for split, rows in graph.labelled.items()}
        files.write_tensors(
            self.graph,
            {name: torch.from_numpy(rows) for name, rows in (splits | labelled).items()},
            {"name": graph.name, "fingerprint": graph.fingerprint},
        )

    def _ties(self, config: TrainConfig) -> dict[str, Any]:
        """Return what the marker says of the files that belong together."""
        if self.store.marker.is_file():
            digests: dict[str, str | None] = {MARKER: files.file_digest(self.store.marker)}
        else:
            digests = {
                file.name: files.file_digest(file) for file in (self.entities, self.relations)
            }
            digests[self.graph.name] = files.stored_digest(self.graph, "graph of a run")
        return {
            "id": uuid.uuid4().hex,
            **({} if launch_id() is None else {"launch": launch_id()}),
            "model": {name: getattr(config, name) for name in ScoringOptions.names()},
            "sha256": digests,
        }

    def adopt(self) -> None:
        """Give a run of 0.1.0 its marker, with the digests of its files as they are."""
        if self.marker.exists():
            return
        ties = self._ties(TrainConfig.from_file(self.config))
        for file in (self.checkpoint, self.model):  # their marker may only have been deleted
            if file.exists() and (known := files.read_details(file, "file of a run").get("run")):
                ties["id"] = known
        self.write_marker(self.path, **ties, adopted=True)

    def write_config(self, config: TrainConfig) -> None:
        """Write ``config.yaml``, which repeats the run."""
        files.write_text(self.config, config.as_yaml())

    def read_config(self) -> TrainConfig:
        """Return the configuration the run was started with."""
        if not self.is_run():
            raise UserError(f"{self.path} {self._what_else()}. Train one with 'nscaching train'.")
        if (self.path / "nodes.txt").is_file() and not self.entities.is_file():
            raise self._nodes()
        config = TrainConfig.from_file(self.config)
        for name, trained in self.told("model").items():
            if not hasattr(config, name):
                raise self.damaged_marker("'model'")
            if getattr(config, name) != trained:
                raise UserError(
                    f"{self.config} says {name}: {getattr(config, name)}, and the run was trained "
                    f"with {name}: {shown(trained)}. Put that back: its model is of no use "
                    "otherwise."
                )
        return config

    def _check_digest(self, file: Path, found: str | None) -> None:
        """Refuse a file that is not the one the run was made with."""
        told = self.told("sha256")
        if told and told.get(file.name, "missing") != found:
            raise UserError(
                f"{file} is not the file that this run was trained with: its digest differs from "
                f"the one in {MARKER}. Restore it from a copy, or train again."
            )

    def _what_else(self) -> str:
        if not self.path.exists():
            return "is not there"
        if self.read_marker().get("kind") == "nodes":
            raise self._nodes()
        if self.looks_like_one():
            return f"is not a run folder: {MARKER} says that it is something else"
        missing = self.graph if self.config.is_file() else self.config
        return f"is not a run folder: it has no {missing.name}"

    def _nodes(self) -> UserError:
        return UserError(
            f"{self.path} is an embedding of nodes, not a run on a knowledge graph; "
            "'nscaching nodes' has the commands for it, ns.load_nodes reads it."
        )

    def read_graph(self) -> KnowledgeGraph:
        """Return the graph the run was trained on."""
        if self.store.marker.is_file():
            self._check_digest(self.store.marker, files.file_digest(self.store.marker))
            return self.store.open()
        for file in (self.entities, self.relations):
            self._check_digest(file, files.file_digest(file))
        arrays, details = files.read_tensors(self.graph, "graph of a run")
        self._check_digest(self.graph, files.stored_digest(self.graph, "graph of a run"))
        entities, relations = files.read_names(self.entities), files.read_names(self.relations)
        try:
            return KnowledgeGraph(
                entities,
                relations,
                *(arrays[split].numpy() for split in _SPLITS),
                name=str(details.get("name", "graph")),
                labelled={
                    key.removeprefix("labelled."): rows.numpy()
                    for key, rows in arrays.items()
                    if key.startswith("labelled.")
                },
            )
        except (KeyError, ValueError) as error:
            raise UserError(
                f"{self.graph} does not fit {self.entities.name} and {self.relations.name} "
                f"({error}): the files are not of one run. Restore them, or train again."
            ) from error

    def read_model(
        self, config: TrainConfig, graph: KnowledgeGraph, mapped: bool | None = None
    ) -> EmbeddingModel:
        """Return the best model found, checked against the configuration and the graph.

        Shards become one table; ``mapped`` ones, by default what takes half of the free memory or
        more, stay on disk.
        """
        expected = config.table_shapes(graph.num_entities, graph.num_relations)
        if not has_shards(self.path):
            tensors, details = self._read_tables()
        else:
            if mapped is None:
                free = free_bytes(torch.device("cpu"))
                mapped = free is not None and 8 * math.prod(expected["entity"]) > free
            tensors, details = read_shards(self.path, graph.num_entities, mapped)
        for name, shape in expected.items():
            found = tuple(tensors[name].shape) if name in tensors else None
            if found != shape:
                raise UserError(
                    f"{self.model}: '{name}' should have shape {shape} for {config.scoring} with "
                    f"dim {config.dim}, found {found or 'nothing'}; it is the model of another run."
                )
        marker = self.read_marker()
        without = None if not marker or marker.get("adopted") else "missing"
        if marker and details.get("run", without) not in (marker.get("id"), None):
            raise UserError(
                f"{self.model} is the model of another run, of another seed perhaps. Restore the "
                "model of this one from a copy, or train again."
            )
        for name, names in (("entity", graph.entities), ("relation", graph.relations)):
            if isinstance(tensors[name], torch.Tensor):
                self._check_parameters(name, tensors[name], names)
        kind = EmbeddingModel if isinstance(tensors["entity"], torch.Tensor) else ShardedModel
        tables = tensors["entity"].float(), tensors["relation"].float()
        return kind(config.build_scoring(), *tables, reciprocal=config.reciprocal)

    def _read_tables(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Read the model's file; where it is damaged, a checkpoint has what it held."""
        try:
            return files.read_tensors(self.model, "model")
        except UserError as error:
            if not self.has_checkpoint() or not os.access(self.model, os.R_OK):
                raise
            again = resume_command("train", self.path)
            raise UserError(
                f"{error} Or delete it; '{again}' then writes it again from the checkpoint."
            ) from error

    def _check_parameters(self, what: str, table: torch.Tensor, names: Sequence[str]) -> None:
        if not table.is_floating_point():
            raise UserError(
                f"{self.model}: '{what}' holds numbers of type {str(table.dtype)[6:]}, not the "
                "parameters of a model, which are float32. Restore it from a copy, or train again."
            )
        if table.sum().isfinite():  # a quarter of the time of a look at every number
            return
        bad = (~table.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
        if bad:
            more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            name = shown(names[bad[0] % len(names)])  # reciprocal relations have a second half
            raise UserError(
                f"{self.model}: the parameters of {what} '{name}' (row {bad[0]})"
                f"{more} are not finite numbers. Restore it from a copy, or train again."
            )

    def write_model(self, entity: torch.Tensor, relation: torch.Tensor) -> None:
        """Write the parameters, rows in the order of the name files, and whose they are."""
        details = {"run": artefact_id(self.path)}
        files.write_tensors(self.model, {"entity": entity, "relation": relation}, details)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of ``metrics.jsonl``; damaged and half-written ones are left out."""
        return usable_metrics(_lines(self.metrics))

    def clear_metrics(self) -> None:
        """Start an empty ``metrics.jsonl``, without a trace."""
        files.write_text(self.metrics, "")
        self.trace.unlink(missing_ok=True)

    def read_trace(self) -> list[dict[str, Any]]:
        """Return the lines of ``trace.jsonl``; none where the run was not traced."""
        return usable_trace(_lines(self.trace))

    def append_trace(self, lines: Iterable[dict[str, Any]]) -> None:
        """Add lines to the trace."""
        for line in lines:
            files.append_json_line(self.trace, line)

    def summary(self) -> dict[str, Any]:
        """Return epochs, seconds and final metrics, as far as checkpoint and metrics tell them."""
        lines = self.read_metrics()
        epochs = [line for line in lines if line.get("event") == "epoch"]
        evaluations = [line for line in lines if line.get("event") == "evaluation"]
        told: dict[str, Any] = {"run": str(self.path), "select": self.read_config().select}
        try:
            told |= self.read_counters().summary()
        except UserError:  # it has no checkpoint any more
            last = epochs[-1] if epochs else {}
            told |= {"epochs": last.get("epoch"), "seconds": last.get("seconds"), "valid": None}
        tests = [line for line in evaluations if line.get("split") == "test"]
        where = ("event", "epoch", "split", "seconds")
        kept = {name: value for name, value in (tests or [{}])[-1].items() if name not in where}
        return {**told, "test": kept or None}

    def keep_metrics_until(self, epoch: int) -> None:
        """Drop the lines after an epoch: a resumed run will write them again."""
        kept = [line for line in self.read_metrics() if line.get("epoch", 0) <= epoch]
        kept = [line for line in kept if line.get("split") != "test"]
        files.write_json_lines(self.metrics, kept)
        if self.trace.exists():
            seen = [line for line in self.read_trace() if line.get("epoch", 0) <= epoch]
            files.write_json_lines(self.trace, seen)


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return what can be read of a diagnostic file."""
    try:
        return files.read_json_lines(file)
    except UserError:
        return []


def evaluation_line(
    measures: Mapping[str, Any], split: str, seconds: float, epoch: int
) -> dict[str, object]:
    """Return the line of ``metrics.jsonl`` for an evaluation."""
    where = {"split": split, "seconds": seconds}
    return {"event": "evaluation", "epoch": epoch, **where, **measures}
