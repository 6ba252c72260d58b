"""What this machine has, and what would make it faster."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from nscaching._version import __version__
from nscaching.extras import EXTRAS, Extra, is_installed
from nscaching.graph import find_dataset, list_datasets
from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON, cpu_kernels_are_compiled

#: Versions worth knowing when something is reported.
_PACKAGES = ("torch", "numpy", "numba", "triton", "pyarrow", "scikit-learn")
#: Variables that change how fast things go.
_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR", "NSCACHING_PLAIN")


@dataclass(frozen=True)
class Processor:
    """What computes without a GPU."""

    cores: int  #: that this process may use
    cores_in_all: int
    threads: int  #: of torch, and of our kernels
    load: float | None  #: processes that want a core, over the last minute
    memory_gb: float | None
    variables: dict[str, str]


@dataclass(frozen=True)
class Kernels:
    """The compiled loops that do the work on a CPU."""

    numba: bool
    compiled: bool  #: by an earlier run, and kept
    can_be_kept: bool  #: otherwise every process compiles them again


@dataclass(frozen=True)
class Gpu:
    """What computes with a GPU."""

    name: str | None
    memory_gb: float | None
    usable: str | None  #: ``cuda`` or ``mps``
    triton: bool
    compiler: str | None  #: Triton needs a C compiler
    driver: bool  #: whether a driver of NVIDIA is here, whatever torch can do


@dataclass(frozen=True)
class Examination:
    """All of it; ``advice`` says in sentences what would make a run faster."""

    versions: dict[str, str | None]
    processor: Processor
    kernels: Kernels
    gpu: Gpu
    extras: dict[str, bool]
    datasets: list[str]
    advice: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def examine() -> Examination:
    """Look at everything; takes a second, and changes nothing."""
    processor, kernels, gpu = _processor(), _kernels(), _gpu()
    return Examination(
        versions=versions(),
        processor=processor,
        kernels=kernels,
        gpu=gpu,
        extras={name: not extra.missing for name, extra in EXTRAS.items()},
        datasets=[info.name for info in list_datasets() if info.bundled or find_dataset(info.name)],
        advice=[*_about_processor(processor), *_about_kernels(kernels), *_about_gpu(gpu)],
    )


def missing_extras(examination: Examination) -> list[Extra]:
    """Return the extras that are not installed."""
    return [EXTRAS[name] for name, there in examination.extras.items() if not there]


def versions() -> dict[str, str | None]:
    """Return the versions that matter, and the system; None for what is not installed."""
    found: dict[str, str | None] = {"nscaching": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {**found, "system": platform.platform()}


def _processor() -> Processor:
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
    return Processor(
        cores=usable,
        cores_in_all=in_all,
        threads=torch.get_num_threads(),
        load=load,
        memory_gb=None if memory is None else round(memory, 1),
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )


def _kernels() -> Kernels:
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent)
    while not folder.exists():
        folder = folder.parent
    return Kernels(HAVE_NUMBA, cpu_kernels_are_compiled(), os.access(folder, os.W_OK))


def _gpu() -> Gpu:
    name, memory, usable = None, None, None
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        name, memory, usable = properties.name, round(properties.total_memory / 2**30, 1), "cuda"
    elif torch.backends.mps.is_available():
        name, usable = "Apple GPU", "mps"
    compiler = next((found for found in ("cc", "gcc", "clang") if shutil.which(found)), None)
    driver = shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists()
    return Gpu(name, memory, usable, HAVE_TRITON, compiler, driver)


def _about_processor(found: Processor) -> list[str]:
    said = []
    if found.threads < found.cores:
        limits = [name for name in _VARIABLES[:2] if name in found.variables]
        why = f" because {' and '.join(limits)} says so" if limits else ""
        said.append(
            f"Only {found.threads} of {found.cores} cores are used{why}; "
            f"OMP_NUM_THREADS={found.cores} uses them all."
        )
    if found.threads > found.cores:
        said.append(
            f"{found.threads} threads share {found.cores} cores and wait for each other; set "
            f"OMP_NUM_THREADS={found.cores} and NUMBA_NUM_THREADS={found.cores}."
        )
    if found.load is not None and found.load > 1.5 * found.cores_in_all:
        said.append(
            f"Other programs keep the machine busy (load {found.load} on {found.cores_in_all} "
            "cores); a run beside them takes a multiple of its time."
        )
    return said


def _about_kernels(found: Kernels) -> list[str]:
    if not found.numba:
        if is_installed("numba"):
            return [
                "NSCACHING_PLAIN turns the kernels off; unset it to train several times faster."
            ]
        return ["Without Numba training takes several times as long: pip install numba"]
    if not found.can_be_kept:
        return [
            "Compiled kernels cannot be kept here, so that every process compiles them for half a "
            "minute; set NUMBA_CACHE_DIR to a folder you may write."
        ]
    if not found.compiled:
        return ["The first run compiles its kernels, for half a minute, once."]
    return []


def _about_gpu(found: Gpu) -> list[str]:
    if found.usable == "cuda":
        if not found.triton:
            return ["Without Triton a GPU trains several times slower: pip install triton"]
        if found.compiler is None:
            return ["Triton needs a C compiler to start its kernels; install gcc."]
    elif found.driver:
        return [
            f"There is an NVIDIA GPU, and torch {torch.__version__} cannot use it; install a build "
            "of torch for CUDA (pytorch.org says which)."
        ]
    elif found.usable is None and sys.platform != "darwin":
        return ["There is no GPU here; graphs of a few hundred thousand triples do not need one."]
    return []
