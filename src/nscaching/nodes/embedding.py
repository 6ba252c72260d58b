"""A trained embedding of nodes, ready to be evaluated, asked, drawn and exported; and its folder.

The folder has ``config.yaml``, ``nodes.txt``, graph and vectors; no pickle.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nscaching.artefacts import MARKER, ArtefactFolder, files
from nscaching.artefacts.showing import export_embeddings
from nscaching.errors import UserError, shown
from nscaching.graph.names import Longs
from nscaching.nodes.graph import Labels, NodeGraph
from nscaching.nodes.tasks import classify_nodes, draw_picture, link_prediction
from nscaching.nodes.training import NodeConfig
from nscaching.training.config import read_yaml

CONFIG_FILE = "config.yaml"
_NODES, _SUMMARY = "nodes.txt", "summary.json"
_GRAPH, _MODEL = "graph.safetensors", "model.safetensors"
#: Files that belong together; the configuration may be edited.
_TIED = (_NODES, _GRAPH, _MODEL)


@dataclass(frozen=True)
class NearNode:
    """A node and the cosine similarity of its embedding."""

    node: str
    similarity: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


class NodeEmbedding:
    """The outcome of :func:`nscaching.embed_nodes`, or a folder of it read back."""

    def __init__(
        self,
        config: NodeConfig,
        graph: NodeGraph,
        vectors: np.ndarray,
        *,
        context: np.ndarray | None = None,
        held_out: Longs | None = None,
        summary: dict[str, Any] | None = None,
    ) -> None:
        self.config, self.graph = config, graph
        #: One row per node, in the order of ``graph.nodes``; shape: (nodes, dim).
        self.vectors = vectors
        #: The context vectors v of a skip-gram model, or None; shape: (nodes, dim).
        self.context = context
        #: Edges that training did not see; shape: (edges, 2).
        self.held_out = np.empty((0, 2), dtype=np.int64) if held_out is None else held_out
        #: Epochs, seconds and loss, as ``nodes train --json`` prints them.
        self.summary = summary or {}

    def __repr__(self) -> str:
        return (
            f"NodeEmbedding({self.graph.name}, {self.config.model}, {self.config.sampler}, "
            f"{len(self.graph):,} nodes, dim {self.vectors.shape[1]})"
        )

    def vector(self, node: str | int) -> np.ndarray:
        """Return the vector of a node.

        Args:
            node: Name or id.

        Returns:
            Shape: (dim,).

        Examples:
            >>> length = len(nodes.vector("Anna"))

        """
        found: np.ndarray = self.vectors[self.graph.id_of(node)]
        return found

    def classify(
        self, labels: Labels | None = None, *, draws: int = 5, seed: int = 0
    ) -> dict[str, dict[str, dict[str, float]]]:
        """Classify nodes by logistic regression from 30, 50 and 70 % of the labels.

        Args:
            labels: The class of each node; by default those of the graph.
            draws: How many times labels are drawn.
            seed: Decides the draws.

        Returns:
            Mean and deviation of micro-F1 and macro-F1, by share of labels.

        Examples:
            >>> scores = nodes.classify(draws=2)["50%"]["micro_f1"]["mean"]

        """
        labels = labels or self.graph.labels
        if labels is None:
            raise UserError(
                f"The nodes of {self.graph.name} have no classes; give a file with a node and its "
                "class per line (--labels)."
            )
        return classify_nodes(self.vectors, labels, draws=draws, seed=seed)

    def predict_links(self, *, seed: int = 0) -> dict[str, Any]:
        """Tell the held-out edges from as many pairs without an edge, by cosine.

        Args:
            seed: Decides the pairs without an edge.

        Returns:
            AUC, average precision and the number of held-out edges.

        Examples:
            >>> held = ns.embed_nodes(nodes.graph, held_out=0.1, epochs=1, dim=4, progress="none")
            >>> found = held.predict_links()

        """
        return link_prediction(self.vectors, self.graph, self.held_out, seed=seed)

    def neighbours(self, node: str | int, k: int = 10) -> list[NearNode]:
        """Return the nodes whose embeddings are most similar, by cosine.

        Args:
            node: Name or id.
            k: How many.

        Returns:
            Nodes with their cosine, the most similar first; nodes without an edge are left out.

        Examples:
            >>> near = nodes.neighbours("Anna", k=2)

        """
        if k < 1:
            raise UserError(f"Ask for at least 1 neighbour, not {k}.")
        this = self.graph.id_of(node)
        if self.graph.isolated[this]:
            raise UserError(
                f"Node '{self.graph.nodes[this]}' has no edge, so nothing was learnt about it."
            )
        lengths = np.maximum(np.linalg.norm(self.vectors, axis=1), 1e-12)
        cosine = self.vectors @ self.vectors[this] / (lengths * lengths[this])
        cosine[this] = -np.inf
        cosine[self.graph.isolated] = -np.inf
        count = min(k, int(np.isfinite(cosine).sum()))
        best = np.argsort(-cosine, kind="stable")[:count]
        return [NearNode(self.graph.nodes[at], float(cosine[at])) for at in best]

    def export(self, path: str | Path, format: str = "auto") -> list[Path]:
        """Write the vectors for other programs.

        Args:
            path: File; for ``npy`` the names are written beside it.
            format: ``"npy"``, ``"word2vec"`` or ``"parquet"``; by default by the file's ending.

        Returns:
            The files that were written.

        Examples:
            >>> files = nodes.export("people.parquet")

        """
        return export_embeddings(Path(path), self.graph.nodes, self.vectors, format)

    def picture(self, path: str | Path, *, seed: int = 0) -> Path:
        """Draw the embedding in two dimensions (t-SNE), coloured by class.

        Args:
            path: File that ends in ``.svg``.
            seed: Decides the layout, and which nodes are drawn where they are many.

        Returns:
            The file.

        Examples:
            >>> file = nodes.picture("people.svg")

        """
        title = f"{self.graph.name}: {self.config.model}, {self.config.sampler}"
        return draw_picture(self.vectors, self.graph, title, Path(path), seed=seed)

    def save(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the embedding to a folder, which :func:`nscaching.load_nodes` reads back.

        Args:
            out: The folder.
            overwrite: Whether an embedding in that folder is replaced.

        Returns:
            The folder.

        Examples:
            >>> folder = nodes.save("runs/people", overwrite=True)

        """
        folder = NodeFolder(out)
        with folder.writing():
            folder.refuse_occupied(overwrite)
            self.replace_files(folder)
        return folder.path

    def replace_files(self, folder: NodeFolder) -> None:
        """Put the embedding in the place of what a folder holds, whose lock the caller has."""
        with folder.replacing() as new:
            write_graph(new, self.config, self.graph, self.held_out)
            files.write_text(new / _SUMMARY, json.dumps(self.summary, indent=1) + "\n")
            tables = {"node": self.vectors}
            if self.context is not None:
                tables["context"] = self.context
            tensors = {name: torch.from_numpy(table) for name, table in tables.items()}
            files.write_tensors(new / _MODEL, tensors)
            folder.write_marker(new, sha256={name: files.file_digest(new / name) for name in _TIED})


# The folder ---------------------------------------------------------------------------------------


class NodeFolder(ArtefactFolder):
    """The files of one embedding of nodes."""

    kind = "nodes"
    what = "an embedding of nodes"
    otherwise = "holds no embedding of nodes"
    own = (CONFIG_FILE, _NODES, _SUMMARY, _GRAPH, _MODEL)
    needed = (_NODES, _MODEL)
    resumable = False

    def check_digests(self) -> None:
        """Refuse files that were not written together; those of 0.1.0 have no digests."""
        told = self.told("sha256")
        if told and set(told) != set(_TIED):
            raise self.damaged_marker("'sha256'")
        for name, digest in told.items():
            if files.file_digest(self.path / name) != digest:
                raise _mixed(self.path, f"{name} does not have the digest that {MARKER} says")


class StoredNodes(NamedTuple):
    """What a folder holds beside the vectors."""

    config: NodeConfig
    graph: NodeGraph
    held_out: Longs


def write_graph(
    folder: Path, config: NodeConfig, graph: NodeGraph, held_out: Longs | None = None
) -> None:
    """Write what is known before training: configuration, names and graph."""
    files.write_text(folder / CONFIG_FILE, config.as_yaml())
    files.write_names(folder / _NODES, graph.nodes)
    labels = graph.labels
    arrays = {
        "held_out": np.empty((0, 2), dtype=np.int64) if held_out is None else held_out,
        "offsets": graph.offsets,
        "neighbours": graph.neighbours,
        "weights": graph.weights,
        "labels": None if labels is None else labels.of_node,
    }
    details = {
        "name": graph.name,
        "directed": graph.directed,
        "classes": None if labels is None else labels.classes,
    }
    tensors = {name: torch.from_numpy(part) for name, part in arrays.items() if part is not None}
    files.write_tensors(folder / _GRAPH, tensors, details)


def read_graph(folder: Path) -> StoredNodes:
    """Read back what :func:`write_graph` wrote."""
    file = folder / CONFIG_FILE
    config = NodeConfig.from_mapping(read_yaml(file), str(file))
    tensors, details = files.read_tensors(folder / _GRAPH, "graph of an embedding")
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
    names = files.read_names(folder / _NODES)
    try:
        graph = NodeGraph(
            names,
            arrays["offsets"],
            arrays["neighbours"],
            arrays.get("weights"),
            bool(details.get("directed")),
            Labels(details["classes"], arrays["labels"]) if details.get("classes") else None,
            str(details.get("name", "graph")),
        )
        if len(graph.offsets) != len(names) + 1:
            raise ValueError(f"{len(names)} names for {len(graph.offsets) - 1} nodes")
        return StoredNodes(config, graph, arrays["held_out"])
    except (KeyError, ValueError) as error:
        raise _mixed(folder, error) from error


def load_nodes(path: str | Path) -> NodeEmbedding:
    """Read the folder of an embedding back.

    Args:
        path: The folder that :func:`embed_nodes` was given as ``out``.

    Returns:
        The embedding with its graph.

    Examples:
        >>> again = ns.load_nodes(nodes.save("runs/people", overwrite=True))

    """
    artefact, folder = NodeFolder(path), Path(path)
    artefact.recover()
    if not (folder / _NODES).is_file():
        what = artefact.otherwise if folder.exists() else "is not there"
        raise UserError(f"{folder} {what}. Train one with 'nscaching nodes train'.")
    artefact.check_digests()
    config, graph, held_out = read_graph(folder)
    tensors, _ = files.read_tensors(folder / _MODEL, "embedding")
    tables = {name: tensor.numpy() for name, tensor in tensors.items()}
    vectors = tables.get("node", np.empty(0))
    if vectors.ndim != 2 or len(vectors) != len(graph):
        raise _mixed(folder, f"{len(graph)} names for {len(vectors)} vectors")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise _mixed(folder, f"the vector of node '{shown(graph.nodes[bad[0]])}' is no number")
    summary: dict[str, Any] = {}
    with contextlib.suppress(UserError):  # it is about the training; the vectors do not need it
        summary = files.read_json(folder / _SUMMARY)
    context = tables.get("context")
    return NodeEmbedding(
        config, graph, vectors, context=context, held_out=held_out, summary=summary
    )


def _mixed(folder: Path, reason: object) -> UserError:
    return UserError(
        f"The files of {folder} are not of one embedding ({reason}). Restore them, or train again."
    )
