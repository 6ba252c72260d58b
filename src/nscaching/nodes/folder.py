"""The folder of an embedding: ``config.yaml``, ``nodes.txt``, graph and vectors; no pickle."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml

from nscaching.errors import UserError
from nscaching.files import explained_writes, read_tensors, write_tensors, write_text
from nscaching.nodes.config import NodeConfig
from nscaching.nodes.embedding import NodeEmbedding
from nscaching.nodes.graph import Labels, NodeGraph
from nscaching.training.config import read_yaml

_CONFIG, _NODES, _SUMMARY = "config.yaml", "nodes.txt", "summary.json"
_GRAPH, _MODEL = "graph.safetensors", "model.safetensors"


def refuse_occupied(out: Path, overwrite: bool) -> None:
    """Raise unless an embedding may be written to this folder."""
    with explained_writes(out):
        if not out.exists() or (out.is_dir() and not any(out.iterdir())):
            return
    if not (out / _NODES).is_file() or not (out / _MODEL).is_file():
        raise UserError(f"{out} exists and holds no embedding of nodes; choose another --out.")
    if not overwrite:
        raise UserError(
            f"{out} holds an embedding already. Add --overwrite to replace it, or choose another "
            "--out."
        )


def write_folder(embedding: NodeEmbedding, out: Path, *, overwrite: bool = False) -> Path:
    """Write all files to a temporary folder and rename it into place."""
    refuse_occupied(out, overwrite)
    with explained_writes(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp"))
    try:
        whole = workshop / "whole"
        with explained_writes(out):
            whole.mkdir()
        try:
            _write(embedding, whole)
        except UserError as error:  # name the file where it would have been
            raise UserError(str(error).replace(str(whole), str(out))) from error
        with explained_writes(out):
            if out.exists():
                out.rename(workshop / "replaced")
            whole.rename(out)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return out


def _write(embedding: NodeEmbedding, folder: Path) -> None:
    graph = embedding.graph
    text = yaml.safe_dump(embedding.config.as_dict(), sort_keys=False, allow_unicode=True)
    write_text(folder / _CONFIG, text)
    write_text(folder / _NODES, "".join(f"{name}\n" for name in graph.nodes))
    write_text(folder / _SUMMARY, json.dumps(embedding.summary, indent=1) + "\n")
    arrays = {
        "offsets": graph.offsets,
        "neighbours": graph.neighbours,
        "held_out": embedding.held_out,
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
    tables = {"node": embedding.vectors}
    if embedding.context is not None:
        tables["context"] = embedding.context
    write_tensors(folder / _MODEL, {name: torch.from_numpy(t) for name, t in tables.items()})


def load_nodes(path: str | Path) -> NodeEmbedding:
    """Read the folder of an embedding back."""
    folder = Path(path)
    if not (folder / _NODES).is_file():
        what = "holds no embedding of nodes" if folder.exists() else "is not there"
        raise UserError(f"{folder} {what}. Train one with 'nscaching nodes train'.")
    config = NodeConfig.from_mapping(read_yaml(folder / _CONFIG), str(folder / _CONFIG))
    arrays, details = read_tensors(folder / _GRAPH, "graph of an embedding")
    tables, _ = read_tensors(folder / _MODEL, "embedding")
    names = _names(folder / _NODES)
    try:
        graph = _graph(names, {name: array.numpy() for name, array in arrays.items()}, details)
        vectors = tables["node"].numpy()
        if len(graph.offsets) != len(names) + 1 or len(vectors) != len(names):
            raise ValueError(f"{len(names)} names for {len(vectors)} vectors")
    except (KeyError, ValueError) as error:
        raise UserError(
            f"The files of {folder} are not of one embedding ({error}). Restore them, or train "
            "again."
        ) from error
    context = tables["context"].numpy() if "context" in tables else None
    return NodeEmbedding(
        config,
        graph,
        vectors,
        context=context,
        held_out=arrays["held_out"].numpy(),
        summary=_summary(folder / _SUMMARY),
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


def _names(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); the folder is damaged.") from error


def _summary(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
