"""The folder of an embedding: ``config.yaml``, ``nodes.txt``, graph and vectors; no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from nscaching.artefacts import MARKER, ArtefactFolder
from nscaching.artefacts.files import (
    file_digest,
    read_json,
    read_names,
    read_tensors,
    write_names,
    write_tensors,
    write_text,
)
from nscaching.errors import UserError, shown
from nscaching.nodes.config import NodeConfig
from nscaching.nodes.embedding import NodeEmbedding
from nscaching.nodes.graph import Labels, NodeGraph
from nscaching.training.config import read_yaml

CONFIG_FILE = "config.yaml"
_NODES, _SUMMARY = "nodes.txt", "summary.json"
_GRAPH, _MODEL = "graph.safetensors", "model.safetensors"
#: Files that belong together; the configuration may be edited.
_TIED = (_NODES, _GRAPH, _MODEL)


class NodeFolder(ArtefactFolder):
    """The files of one embedding of nodes."""

    kind = "nodes"
    what = "an embedding of nodes"
    otherwise = "holds no embedding of nodes"
    own = (CONFIG_FILE, _NODES, _SUMMARY, _GRAPH, _MODEL)
    resumable = False

    def looks_like_one(self) -> bool:
        """Tell whether names and vectors are there."""
        return (self.path / _NODES).is_file() and (self.path / _MODEL).is_file()

    def check_digests(self) -> None:
        """Refuse files that were not written together; those of 0.1.0 have no digests."""
        marker = self.read_marker()
        told = marker.get("sha256") if marker else {}
        if not isinstance(told, dict) or (marker and set(told) != set(_TIED)):
            raise self.damaged_marker("'sha256'")
        for name, digest in told.items():
            if file_digest(self.path / name) != digest:
                reason = f"{name} does not have the digest that {MARKER} says"
                raise _mixed(self.path, ValueError(reason))


def write_folder(embedding: NodeEmbedding, out: Path, *, overwrite: bool = False) -> Path:
    """Write all files, or leave what is there."""
    folder = NodeFolder(out)
    folder.refuse_occupied(overwrite)
    with folder.writing(), folder.replacing() as new:
        _write(embedding, new)
        digests = {name: file_digest(new / name) for name in _TIED}
        folder.write_marker(new, sha256=digests)
    return out


def _write(embedding: NodeEmbedding, folder: Path) -> None:
    write_graph(folder, embedding.config, embedding.graph, embedding.held_out)
    write_text(folder / _SUMMARY, json.dumps(embedding.summary, indent=1) + "\n")
    tables = {"node": embedding.vectors}
    if embedding.context is not None:
        tables["context"] = embedding.context
    write_tensors(folder / _MODEL, {name: torch.from_numpy(t) for name, t in tables.items()})


def write_graph(
    folder: Path,
    config: NodeConfig,
    graph: NodeGraph,
    held_out: npt.NDArray[np.int64] | None = None,
) -> None:
    """Write what is known before training: configuration, names and graph."""
    write_text(folder / CONFIG_FILE, config.as_yaml())
    write_names(folder / _NODES, graph.nodes)
    none = np.empty((0, 2), dtype=np.int64)
    arrays: dict[str, npt.NDArray[Any]] = {
        "offsets": graph.offsets,
        "neighbours": graph.neighbours,
        "held_out": none if held_out is None else held_out,
    }
    if graph.weights is not None:
        arrays["weights"] = graph.weights
    if graph.labels is not None:
        arrays["labels"] = graph.labels.of_node
    details = {
        "name": graph.name,
        "directed": graph.directed,
        "classes": graph.labels.classes if graph.labels else None,
    }
    write_tensors(
        folder / _GRAPH, {name: torch.from_numpy(array) for name, array in arrays.items()}, details
    )


class StoredGraph(NamedTuple):
    """What a folder holds beside the vectors."""

    config: NodeConfig
    graph: NodeGraph
    held_out: npt.NDArray[np.int64]


def read_graph(folder: Path) -> StoredGraph:
    """Read back what :func:`write_graph` wrote."""
    file = folder / CONFIG_FILE
    config = NodeConfig.from_mapping(read_yaml(file), str(file))
    arrays, details = read_tensors(folder / _GRAPH, "graph of an embedding")
    names = read_names(folder / _NODES)
    try:
        graph = _graph(names, {name: array.numpy() for name, array in arrays.items()}, details)
        if len(graph.offsets) != len(names) + 1:
            raise ValueError(f"{len(names)} names for {len(graph.offsets) - 1} nodes")
        return StoredGraph(config, graph, arrays["held_out"].numpy())
    except (KeyError, ValueError) as error:
        raise _mixed(folder, error) from error


def load_nodes(path: str | Path) -> NodeEmbedding:
    """Read the folder of an embedding back."""
    folder = Path(path)
    NodeFolder(folder).recover()
    if not (folder / _NODES).is_file():
        what = "holds no embedding of nodes" if folder.exists() else "is not there"
        raise UserError(f"{folder} {what}. Train one with 'nscaching nodes train'.")
    NodeFolder(folder).check_digests()
    stored = read_graph(folder)
    tables, _ = read_tensors(folder / _MODEL, "embedding")
    try:
        vectors = tables["node"].numpy()
        if vectors.ndim != 2 or len(vectors) != len(stored.graph):
            raise ValueError(f"{len(stored.graph)} names for {len(vectors)} vectors")
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise ValueError(
                f"the vector of node '{shown(stored.graph.nodes[bad[0]])}' is no number"
            )
    except (KeyError, ValueError) as error:
        raise _mixed(folder, error) from error
    context = tables["context"].numpy() if "context" in tables else None
    return NodeEmbedding(
        stored.config,
        stored.graph,
        vectors,
        context=context,
        held_out=stored.held_out,
        summary=_summary(folder / _SUMMARY),
    )


def _mixed(folder: Path, error: Exception) -> UserError:
    return UserError(
        f"The files of {folder} are not of one embedding ({error}). Restore them, or train again."
    )


def _graph(names: list[str], arrays: dict[str, Any], details: dict[str, Any]) -> NodeGraph:
    labels = Labels(details["classes"], arrays["labels"]) if details.get("classes") else None
    return NodeGraph(
        names,
        arrays["offsets"],
        arrays["neighbours"],
        arrays.get("weights"),
        bool(details.get("directed")),
        labels,
        str(details.get("name", "graph")),
    )


def _summary(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except UserError:  # it is about the training; the vectors do not need it
        return {}
