"""Is something wrong? What of a folder is whole, and what this machine has and lacks."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from nscaching._version import __version__
from nscaching.artefacts import MARKER, ArtefactFolder
from nscaching.artefacts.files import read_json, read_json_lines, read_sealed_lines, read_tensors
from nscaching.errors import UserError, resume_command
from nscaching.extras import EXTRAS, is_installed
from nscaching.graph import find_dataset, list_datasets
from nscaching.graph.store import GraphStore
from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON, cpu_kernels_are_compiled
from nscaching.models.sharded import INDEX, PATTERN, has_shards
from nscaching.training import RunFolder, checkpoint, sharded_checkpoint
from nscaching.training.config import read_yaml

#: What a folder without a marker is that holds runs.
SEVERAL = "folder of runs"
#: Files of a comparison or a search beside its runs.
_BESIDE_RUNS = ("compare.json", "result.json", "search.yaml", "best.yaml")
#: Trial logs: a digest in every line.
_SEALED = ("trials.jsonl", "tries.jsonl")


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
    try:
        marker = run.read_marker()
    except UserError:
        marker = {}
    kind = _kind(run, marker.get("kind"))
    found = FolderCheck(str(folder), kind, marker.get("version"))
    checks = {"run": _check_run, "nodes": _check_nodes, "graph": _check_graph}
    checks.get(kind, _check_many)(folder, found)
    return found


def _kind(run: RunFolder, told: Any) -> str:
    """Return what a folder is, as its marker tells or by its files."""
    if isinstance(told, str):
        return told
    if (run.path / "nodes.txt").is_file():
        return "nodes"
    if run.looks_like_one():
        return "run"
    if GraphStore(run.path).looks_like_one():
        return "graph"
    if any(_runs_below(run.path)):
        return SEVERAL
    raise UserError(f"{run.path} holds nothing that nscaching wrote.")


def _check_run(folder: Path, found: FolderCheck) -> None:
    run = RunFolder(folder)
    marked = _read(found, run.marker, run.read_marker, absent="of 0.1.0: without digests")
    config = _read(found, run.config, run.read_config)
    graph = _read(found, run.graph, run.read_graph, remark="with entities.txt and relations.txt")
    if run.store.marker.is_file():
        _check_graph(run.store.path, found)
    if config is not None and graph is not None:
        started = "training was stopped before there was one"
        shards = sorted(run.path.glob(PATTERN)) if has_shards(run.path) else []
        for file in shards:
            _read(found, file, functools.partial(read_tensors, file, "shard of a model"))
        model = run.path / INDEX if shards else run.model
        if not model.exists() and _is_finished(run):
            again = f"'{resume_command('train', folder)}' writes it again from the checkpoint"
            found.parts.append(Part(model.name, "damaged", f"it is missing; {again}"))
        else:
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


def _is_finished(run: RunFolder) -> bool:
    """Tell whether there is a checkpoint that says so."""
    with contextlib.suppress(UserError):
        return run.has_checkpoint() and run.read_counters().finished
    return False


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


def _check_graph(folder: Path, found: FolderCheck) -> None:
    """Read all of a graph on disk, which is mapped and looked at in part where it is used."""
    store = GraphStore(folder)

    def read() -> None:
        store.open()
        store.verify()

    _read(found, folder, read, remark="names, triples and pairs")


def _check_many(folder: Path, found: FolderCheck) -> None:
    """Check every run below a folder as a part of it."""
    if os.path.lexists(folder / MARKER):
        _read(found, folder / MARKER, ArtefactFolder(folder).read_marker)
        for file in filter(Path.exists, map(folder.joinpath, _BESIDE_RUNS)):
            read = read_json if file.suffix == ".json" else read_yaml
            _read(found, file, functools.partial(read, file))
    for file in sorted(folder.glob("*.jsonl")):
        _check_lines(found, file)
    for below in _runs_below(folder):
        checked = check_folder(below)
        wrong = [f"{part.name}: {part.remark}" for part in checked.parts if part.state == "damaged"]
        name = str(below.relative_to(folder))
        found.parts.append(Part(name, "damaged" if wrong else "whole", " ".join(wrong)))


def _runs_below(folder: Path) -> list[Path]:
    """Return the folders of runs, without those that a killed process had not finished writing."""
    runs = {file.parent for file in folder.glob("**/graph.safetensors")}
    stores = (file.parent.parent for file in folder.glob(f"**/graph/{MARKER}"))  # on disk
    runs |= {run for run in stores if (run / "config.yaml").is_file()}
    below = (run.relative_to(folder).parts for run in runs if run != folder)
    return sorted(
        folder.joinpath(*parts)
        for parts in below
        if not any(part.startswith(".") for part in parts)
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
    """Count the lines that are ignored: those that cannot be read, in a trial log all after one."""
    if not file.exists():
        return
    lines = [line for line in file.read_bytes().split(b"\n") if line.strip()]
    sealed = file.name in _SEALED
    lost = len(lines) - len(read_sealed_lines(file) if sealed else read_json_lines(file))
    end = ", from the first damaged one on" if sealed else ""
    remark = f"{lost} of {len(lines)} lines cannot be read and are ignored{end}" if lost else ""
    found.parts.append(Part(file.name, "damaged" if lost else "whole", remark))


# The machine --------------------------------------------------------------------------------------

#: Versions worth knowing when something is reported.
_PACKAGES = ("torch", "numpy", "numba", "triton", "pyarrow", "scikit-learn")
#: Variables that change how fast things go.
_VARIABLES = (
    *("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR"),
    *("NSCACHING_PLAIN", "NSCACHING_PRODUCTS"),
)


#: Versions, the processor, its kernels, the GPU and so on, as ``doctor --json`` prints them.
Found = dict[str, Any]


def examine() -> Found:
    """Look at everything; takes a second, and changes nothing.

    ``advice`` says in sentences what would make a run faster.
    """
    processor, kernels, gpu = _processor(), _kernels(), _gpu()
    return {
        "versions": versions(),
        "processor": processor,
        "kernels": kernels,
        "gpu": gpu,
        "extras": {name: not extra.missing for name, extra in EXTRAS.items()},
        "datasets": [
            info.name for info in list_datasets() if info.bundled or find_dataset(info.name)
        ],
        "advice": [*_about_processor(processor), *_about_kernels(kernels), *_about_gpu(gpu)],
    }


def versions() -> dict[str, str | None]:
    """Return the versions that matter, and the system; None for what is not installed."""
    found: dict[str, str | None] = {"nscaching": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {**found, "system": platform.platform()}


def _processor() -> Found:
    """Return what computes without a GPU."""
    in_all = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else in_all
    try:
        load: float | None = round(os.getloadavg()[0], 1)
    except (AttributeError, OSError):  # Windows has no such number
        load = None
    try:
        memory: float | None = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, OSError, ValueError):
        memory = None
    return {
        "cores": usable,  # that this process may use
        "cores_in_all": in_all,
        "threads": torch.get_num_threads(),  # of torch, and of our kernels
        "load": load,  # processes that want a core, over the last minute
        "memory_gb": None if memory is None else round(memory, 1),
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _kernels() -> Found:
    """Return the state of the compiled loops; where they cannot be kept, each process compiles."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent)
    while not folder.exists():
        folder = folder.parent
    kept = cpu_kernels_are_compiled()
    return {"numba": HAVE_NUMBA, "compiled": kept, "can_be_kept": os.access(folder, os.W_OK)}


def _gpu() -> Found:
    """Return what computes with a GPU, and whether a driver is here, whatever torch can do."""
    name, memory, usable = None, None, None
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        name, memory, usable = properties.name, round(properties.total_memory / 2**30, 1), "cuda"
    elif torch.backends.mps.is_available():
        name, usable = "Apple GPU", "mps"
    return {
        "name": name,
        "memory_gb": memory,
        "usable": usable,
        "triton": HAVE_TRITON,
        "compiler": next((found for found in ("cc", "gcc", "clang") if shutil.which(found)), None),
        "driver": shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists(),
    }


def _about_processor(found: Found) -> list[str]:
    said = []
    threads, cores, load = found["threads"], found["cores"], found["load"]
    if threads < cores:
        limits = [name for name in _VARIABLES[:2] if name in found["variables"]]
        why = f" because {' and '.join(limits)} says so" if limits else ""
        said.append(
            f"Only {threads} of {cores} cores are used{why}; OMP_NUM_THREADS={cores} uses them all."
        )
    if threads > cores:
        said.append(
            f"{threads} threads share {cores} cores and wait for each other; set "
            f"OMP_NUM_THREADS={cores} and NUMBA_NUM_THREADS={cores}."
        )
    if load is not None and load > 1.5 * found["cores_in_all"]:
        said.append(
            f"Other programs keep the machine busy (load {load} on {found['cores_in_all']} "
            "cores); a run beside them takes a multiple of its time."
        )
    return said


def _about_kernels(found: Found) -> list[str]:
    if not found["numba"]:
        if is_installed("numba"):
            return [
                "NSCACHING_PLAIN turns the kernels off; unset it to train several times faster."
            ]
        return ["Without Numba training takes several times as long: pip install numba"]
    if not found["can_be_kept"]:
        return [
            "Compiled kernels cannot be kept here, so that every process compiles them for half a "
            "minute; set NUMBA_CACHE_DIR to a folder you may write."
        ]
    if not found["compiled"]:
        return ["The first run compiles its kernels, for half a minute, once."]
    return []


def _about_gpu(found: Found) -> list[str]:
    if found["usable"] == "cuda":
        if not found["triton"]:
            return ["Without Triton a GPU trains several times slower: pip install triton"]
        if found["compiler"] is None:
            return ["Triton needs a C compiler to start its kernels; install gcc."]
    elif found["driver"]:
        return [
            f"There is an NVIDIA GPU, and torch {torch.__version__} cannot use it; install a build "
            "of torch for CUDA (pytorch.org says which)."
        ]
    elif found["usable"] is None and sys.platform != "darwin":
        return ["There is no GPU here; graphs of a few hundred thousand triples do not need one."]
    return []
