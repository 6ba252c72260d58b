"""What of a folder is whole: every file read as it would be read in use, nothing changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nscaching.artefacts import MARKER, ArtefactFolder
from nscaching.artefacts.files import read_json_lines, read_tensors
from nscaching.distributed.sharded_model import INDEX, PATTERN, has_shards
from nscaching.errors import UserError
from nscaching.graph.store import GraphStore
from nscaching.training import RunFolder, checkpoint, sharded_checkpoint


@dataclass(frozen=True)
class Part:
    """One file of a folder, or one folder of many."""

    name: str
    state: str  #: "whole", "unverified" (of 0.1.0, without a digest), "absent" or "damaged"
    remark: str = ""


@dataclass
class FolderCheck:
    """What was found; ``whole`` unless something is damaged."""

    path: str
    kind: str
    version: str | None  #: that wrote it; None for 0.1.0
    parts: list[Part] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return all(part.state != "damaged" for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "whole": self.whole}


def check_folder(path: str | Path) -> FolderCheck:
    """Read every file of a run, of an embedding of nodes, or of a search with all its trials."""
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder.")
    run = RunFolder(folder)
    if run.is_being_replaced():
        remark = "not all files are in place yet; the next command that writes here completes it"
        return FolderCheck(str(folder), "unfinished folder", None, [Part(MARKER, "absent", remark)])
    kind = _kind(run)
    try:
        version = run.read_marker().get("version")
    except UserError:
        version = None
    found = FolderCheck(str(folder), kind, version)
    if kind == "run":
        _check_run(run, found)
    elif kind == "nodes":
        _check_nodes(folder, found)
    elif kind == "graph":
        _check_graph(GraphStore(folder), found)
    else:
        _check_many(folder, found)
    return found


def _kind(run: RunFolder) -> str:
    try:
        told = run.read_marker().get("kind")
    except UserError:
        told = None
    if isinstance(told, str):
        return told
    if (run.path / "nodes.txt").is_file():
        return "nodes"
    if run.looks_like_one():
        return "run"
    if any(_runs_below(run.path)):
        return "folder of runs"
    raise UserError(f"{run.path} holds nothing that nscaching wrote.")


def _check_run(run: RunFolder, found: FolderCheck) -> None:
    marked = _read(found, run.marker, run.read_marker, absent="of 0.1.0: without digests")
    config = _read(found, run.config, run.read_config)
    graph = _read(found, run.graph, run.read_graph, remark="with entities.txt and relations.txt")
    if run.store.marker.is_file():
        _check_graph(run.store, found)
    if config is not None and graph is not None:
        started = "training was stopped before there was one"
        shards = sorted(run.path.glob(PATTERN)) if has_shards(run.path) else []
        for file in shards:
            _read(found, file, functools.partial(read_tensors, file, "shard of a model"))
        model = run.path / INDEX if shards else run.model
        _read(found, model, lambda: run.read_model(config, graph), absent=started)
    else:
        found.parts.append(Part(run.model.name, "unverified", "it cannot be read without the rest"))
    state = run.latest if run.latest.exists() else run.checkpoint
    _read(found, state, lambda: _checked_state(run, graph), absent="not resumable")
    for file in (run.metrics, run.trace):
        _check_lines(found, file)
    if not marked:
        found.parts = [
            Part(part.name, "unverified", part.remark) if part.state == "whole" else part
            for part in found.parts
        ]


def _checked_state(run: RunFolder, graph: Any) -> checkpoint.Counters:
    if run.latest.exists():
        counters = sharded_checkpoint.check(run.latest.parent)
    else:
        counters, _ = checkpoint.load(run.checkpoint)
    if graph is not None and counters.fingerprint != graph.fingerprint:
        raise UserError(f"{run.checkpoint} was written on another graph.")
    return counters


def _check_nodes(folder: Path, found: FolderCheck) -> None:
    from nscaching.nodes.embedding import NodeFolder, load_nodes

    _read(found, folder / MARKER, NodeFolder(folder).read_marker, absent="of 0.1.0")
    _read(found, folder / "model.safetensors", lambda: load_nodes(folder), remark="with its graph")


def _check_graph(store: GraphStore, found: FolderCheck) -> None:
    """Read all of a graph on disk, which is mapped and looked at in part where it is used."""

    def read() -> None:
        store.open()
        store.verify()

    _read(found, store.path, read, remark="names, triples and pairs")


def _check_many(folder: Path, found: FolderCheck) -> None:
    """Check every run below a folder as a part of it."""
    _read(found, folder / MARKER, ArtefactFolder(folder).read_marker, absent="of 0.1.0")
    for file in sorted(folder.glob("*.jsonl")):
        _check_lines(found, file)
    for below in _runs_below(folder):
        checked = check_folder(below)
        wrong = [f"{part.name}: {part.remark}" for part in checked.parts if part.state == "damaged"]
        name = str(below.relative_to(folder))
        found.parts.append(Part(name, "damaged" if wrong else "whole", " ".join(wrong)))


def _runs_below(folder: Path) -> list[Path]:
    """Return the folders of runs, without those that a killed process had not finished writing."""
    below = {file.parent.relative_to(folder) for file in folder.glob("**/graph.safetensors")}
    return sorted(
        folder / path
        for path in below
        if path.parts and not any(part.startswith(".") for part in path.parts)
    )


def _read(
    found: FolderCheck, file: Path, read: Callable[[], Any], remark: str = "", absent: str = ""
) -> Any:
    """Read one file as it is read in use; note how that went and return what it held."""
    if not file.exists() and absent:
        found.parts.append(Part(file.name, "absent", absent))
        return None
    try:
        content = read()
    except UserError as error:
        found.parts.append(Part(file.name, "damaged", str(error)))
        return None
    found.parts.append(Part(file.name, "whole", remark))
    return content


def _check_lines(found: FolderCheck, file: Path) -> None:
    """Count the lines of a diagnostic file that cannot be read: they are ignored, and no more."""
    if not file.exists():
        return
    lines = [line for line in file.read_bytes().split(b"\n") if line.strip()]
    lost = len(lines) - len(read_json_lines(file))
    remark = f"{lost} of {len(lines)} lines cannot be read and are ignored" if lost else ""
    found.parts.append(Part(file.name, "damaged" if lost else "whole", remark))
