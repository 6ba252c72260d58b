"""Data sets by name: the user's folders first, then the cache, then a download.

``data/datasets.yaml`` lists them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import platformdirs
import yaml

from nscaching.errors import NSCachingError, UserError, nearest_names, shown
from nscaching.graph.download import Mirror, sha256_of
from nscaching.graph.files import Progress


@dataclass(frozen=True)
class DatasetInfo:
    """A data set: its counts, the SHA-256 of each file, and the mirrors that serve them."""

    name: str
    title: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    files: Mapping[str, str] = field(default_factory=dict)
    mirrors: tuple[Mirror, ...] = ()
    bundled: bool = False
    """Whether it comes with the package."""


def _registry() -> tuple[DatasetInfo, ...]:
    """Read the list of data sets."""
    text = resources.files("nscaching.graph").joinpath("data/datasets.yaml").read_text("utf-8")
    infos = []
    for entry in yaml.safe_load(text):
        mirrors = tuple(Mirror(**mirror) for mirror in entry.pop("mirrors", ()))
        infos.append(DatasetInfo(**entry.pop("counts"), mirrors=mirrors, **entry))
    return tuple(infos)


REGISTRY = _registry()


def list_datasets() -> list[DatasetInfo]:
    """Return every data set that can be loaded by name."""
    return list(REGISTRY)


def dataset_info(name: str) -> DatasetInfo:
    """Return a data set by name, whatever its case, hyphens and underscores."""
    info = known_dataset(name)
    if info is None:
        names = [known.name for known in REGISTRY]
        near = nearest_names(name, names) or f"; there are {', '.join(names)}."
        raise UserError(f"There is no data set '{shown(name)}'{near}")
    return info


def known_dataset(name: str) -> DatasetInfo | None:
    """Return the data set of that name, or None."""
    folded = _folded(name)
    return next((info for info in REGISTRY if _folded(info.name) == folded), None)


def find_dataset(name: str) -> Path | None:
    """Return where the data set is on this machine, or None; nothing is downloaded."""
    info = dataset_info(name)
    if info.bundled:
        path = Path(str(resources.files("nscaching.graph") / "data" / f"{info.name}.tsv.gz"))
        return path if path.is_file() else None
    for folder in os.environ.get("NSCACHING_DATA", "").split(os.pathsep):
        found = _inside(Path(folder).expanduser(), info) if folder else None
        if found is not None:
            return found
    cached = cache_folder() / info.name
    return cached if all((cached / file).is_file() for file in info.files) else None


def fetch_dataset(name: str, *, force: bool = False, progress: Progress | None = None) -> Path:
    """Return where the data set is, downloading it into the cache when it is nowhere.

    With ``force`` every file is downloaded again; the old one stays until the new one is whole.
    """
    info = dataset_info(name)
    found = find_dataset(name)
    if info.bundled and found is None:
        raise NSCachingError(f"This build lacks the data set '{info.name}'; install it again.")
    if found is not None and (info.bundled or not force):
        return found
    folder = cache_folder() / info.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made ({error.strerror}); set NSCACHING_CACHE to a folder that "
            "you may write to."
        ) from error
    missing = {
        file: sha256
        for file, sha256 in info.files.items()
        if force or not (folder / file).is_file()
    }
    failures: list[str] = []
    for mirror in info.mirrors:
        failed = mirror.fetch(missing, folder, progress)
        if not failed:
            return folder
        reasons = "; ".join(f"{file}: {reason}" for file, reason in failed.items())
        failures.append(f"{mirror.address} ({reasons})")
        missing = {file: missing[file] for file in failed}
    tried = f" Tried {', then '.join(failures)}." if failures else " No mirror is known for it."
    raise UserError(
        f"The data set {info.name} could not be downloaded.{tried} To supply it by hand, put "
        f"{', '.join(info.files)} into <folder>/{info.name} and set NSCACHING_DATA=<folder>."
    )


def verify_dataset(name: str) -> list[str]:
    """Return the files of a data set on this machine that are missing or have changed."""
    info = dataset_info(name)
    folder = find_dataset(name)
    if folder is None:
        return list(info.files)
    return [
        file
        for file, sha256 in info.files.items()
        if not (folder / file).is_file() or sha256_of(folder / file) != sha256
    ]


def cache_folder() -> Path:
    """Return where downloads go: NSCACHING_CACHE, or the platform's folder for caches."""
    chosen = os.environ.get("NSCACHING_CACHE")
    if chosen:
        return Path(chosen).expanduser() / "datasets"
    cache = platformdirs.user_cache_path("nscaching", appauthor=False, opinion=False)
    return cache / "datasets"


def _inside(folder: Path, info: DatasetInfo) -> Path | None:
    """Return the data set's folder in one of the user's folders, if it has training triples."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return None
    wanted = _folded(info.name)
    fitting = (entry for entry in entries if _folded(entry.name) == wanted)
    return next((entry for entry in fitting if (entry / "train.txt").is_file()), None)


def _folded(name: str) -> str:
    """Return a name without case, hyphens, underscores and spaces."""
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")
