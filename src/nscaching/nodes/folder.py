"""The folder of an embedding: ``config.yaml``, ``nodes.txt``, graph and vectors; no pickle."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from nscaching.errors import CHOOSE_ANOTHER, UserError
from nscaching.files import (
    explained_writes,
    read_names,
    read_tensors,
    write_names,
    write_tensors,
    write_text,
)
from nscaching.nodes.config import NodeConfig
from nscaching.nodes.embedding import NodeEmbedding
from nscaching.nodes.graph import Labels, NodeGraph
from nscaching.training.config import read_yaml

CONFIG_FILE = "config.yaml"
_NODES, _SUMMARY = "nodes.txt", "summary.json"
_GRAPH, _MODEL = "graph.safetensors", "model.safetensors"


def refuse_occupied(out: Path, overwrite: bool) -> None:
    """Raise unless an embedding may be written to this folder."""
    with explained_writes(out):
        if not out.exists() or (out.is_dir() and not any(out.iterdir())):
            return
    if not (out / _NODES).is_file() or not (out / _MODEL).is_file():
        raise UserError(f"{out} exists and holds no embedding of nodes; {CHOOSE_ANOTHER}")
    if not overwrite:
        raise UserError(
            f"{out} holds an embedding already. Replace it (--overwrite, "
            f"overwrite=True), or {CHOOSE_ANOTHER}"
        )


def write_folder(embedding: NodeEmbedding, out: Path, *, overwrite: bool = False) -> Path:
    """Write all files to a temporary folder and rename it into place, or leave what is there."""
    refuse_occupied(out, overwrite)
    with explained_writes(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp"))
    whole, replaced = workshop / "whole", workshop / "replaced"
    try:
        with explained_writes(out):
            whole.mkdir()
        try:
            _write(embedding, whole)
        except UserError as error:  # name the file where it would have been
            raise UserError(str(error).replace(str(whole), str(out))) from error
        with explained_writes(out):
            if out.exists():
                out.rename(replaced)
            whole.rename(out)
    except BaseException:
        _put_back(replaced, out)
        raise
    finally:
        if out.exists() or not replaced.exists():  # else it holds the only embedding there is
            shutil.rmtree(workshop, ignore_errors=True)
    return out


def _put_back(replaced: Path, out: Path) -> None:
    """Give an embedding its place again where its replacement did not get there."""
    if replaced.exists() and not out.exists():
        try:
            replaced.rename(out)
        except OSError as error:
            raise UserError(
                f"Cannot write {out}; move the embedding that was there back from {replaced}."
            ) from error


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
    if not (folder / _NODES).is_file():
        what = "holds no embedding of nodes" if folder.exists() else "is not there"
        raise UserError(f"{folder} {what}. Train one with 'nscaching nodes train'.")
    stored = read_graph(folder)
    tables, _ = read_tensors(folder / _MODEL, "embedding")
    try:
        vectors = tables["node"].numpy()
        if len(vectors) != len(stored.graph):
            raise ValueError(f"{len(stored.graph)} names for {len(vectors)} vectors")
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
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
