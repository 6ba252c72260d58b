"""Data sets by name: the user's folders first, then the cache, then a download.

``data/datasets.yaml`` lists them. Mirrors serve plain files or an archive, fetched by pooch;
the checksum of every file is checked.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

import platformdirs
import yaml

from nscaching.errors import NSCachingError, UserError, nearest_names, shown
from nscaching.graph.files import Progress

TIMEOUT = 30.0
#: No member of an archive may be larger, nor all together: the largest file we know has 110 MB.
LARGEST_MEMBER, LARGEST_ARCHIVE = 1 << 30, 4 << 30
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


class DownloadError(NSCachingError):
    """One mirror did not deliver; another may."""


@dataclass(frozen=True)
class Mirror:
    """A place that serves the files of a data set: a folder, or an archive that holds them."""

    address: str
    #: Our name -> the mirror's name, where they differ.
    names: Mapping[str, str] = field(default_factory=dict)
    #: Our name -> the labelled file whose lines with label 1 it consists of.
    positives_of: Mapping[str, str] = field(default_factory=dict)

    def fetch(
        self, wanted: Mapping[str, str], folder: Path, progress: Progress | None = None
    ) -> dict[str, str]:
        """Put the wanted files (name -> SHA-256) into the folder; return name -> failure.

        A file appears in the folder only when it is whole and has the right checksum.
        """
        failures: dict[str, str] = {}
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            work = Path(temporary)
            packed = self.address.endswith(_ARCHIVES)
            if packed:
                archive = work / f"archive-{self.address.rsplit('/', 1)[-1]}"
                try:
                    download(self.address, archive, progress)
                    extract(archive, {self.names.get(name, name): name for name in wanted}, work)
                except DownloadError as error:
                    return dict.fromkeys(wanted, str(error))
            made = [name for name in wanted if name in self.positives_of]
            for name in [*(name for name in wanted if name not in made), *made]:
                try:
                    if name in made:  # the positives of a labelled file, without their label
                        lines = (folder / self.positives_of[name]).read_bytes().splitlines()
                        kept = (line[:-2] + b"\n" for line in lines if line.endswith(b"\t1"))
                        (work / name).write_bytes(b"".join(kept))
                    elif not packed:
                        url = f"{self.address}/{self.names.get(name, name)}"
                        download(url, work / name, progress)
                    if not (work / name).is_file():
                        raise DownloadError("not in the archive")
                    if sha256_of(work / name) != wanted[name]:
                        raise DownloadError("the checksum is wrong")
                    (work / name).replace(folder / name)
                except (DownloadError, OSError) as error:
                    failures[name] = str(error)
        return failures


def download(url: str, target: Path, progress: Progress | None = None) -> None:
    """Download one file with pooch; ``target`` is in a temporary folder."""
    import pooch  # with requests, some 100 ms
    import requests

    bar: Any = _Bar(target.name, progress) if progress else False
    try:
        pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)(url, str(target), None)
    except requests.HTTPError as error:
        response: Any = error.response
        raise DownloadError(f"HTTP {response.status_code} {response.reason}") from error
    except (requests.RequestException, OSError) as error:
        inner: BaseException = error
        while inner.__context__ is not None:  # requests wraps the reason three times
            inner = inner.__context__
        raise DownloadError(shown(getattr(inner, "strerror", None) or inner, 200)) from error


class _Bar:
    """What pooch takes for a progress bar; it tells our callback the bytes done."""

    def __init__(self, label: str, progress: Progress) -> None:
        self._label, self._progress = label, progress
        self.total, self._done = 0, 0

    def update(self, count: int) -> None:
        done = self._done + count  # pooch counts whole blocks
        self._done = min(done, self.total) if self.total else done
        self._progress(self._done, self.total or None, self._label)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    import pooch

    return str(pooch.file_hash(str(path)))


def extract(archive: Path, wanted: Mapping[str, str], folder: Path) -> None:
    """Copy the members with the wanted base names into a folder, under the names given.

    Only the bytes are taken, never a member's path, mode or owner. The archive is refused as a
    whole when a member has an absolute path, climbs out with ``..``, or is larger than it says or
    than any data set; links and devices are skipped.
    """
    missing = dict(wanted)
    total = 0
    try:
        for path, size, stream in _members(archive):
            windows, posix = PureWindowsPath(path), PurePosixPath(path)
            rooted = posix.is_absolute() or windows.drive or windows.root
            if rooted or ".." in windows.parts or ".." in posix.parts:
                raise DownloadError(f"{archive.name} holds the unsafe path '{shown(path)}'")
            total += size
            if size > LARGEST_MEMBER or total > LARGEST_ARCHIVE:
                raise DownloadError(
                    f"{archive.name} unpacks to more than {LARGEST_MEMBER >> 20:,} MB per file "
                    f"or {LARGEST_ARCHIVE >> 20:,} MB in all, which no data set does"
                )
            name = missing.pop(posix.name, None) if stream else None
            if stream is not None and name is not None:
                with stream, (folder / name).open("wb") as out:
                    shutil.copyfileobj(stream, out)  # never more bytes than the size declared
    except DownloadError:
        raise
    except Exception as error:  # a damaged zip alone raises six kinds
        reason = shown(error) or type(error).__name__
        raise DownloadError(f"{archive.name} is not a whole archive ({reason})") from error


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """Yield path, size and a stream of each member, None for what is no plain file."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():  # a link shows in the upper half of the attributes
                if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
                    yield info.filename, 0, None
                else:
                    yield info.filename, info.file_size, zipped.open(info)
    else:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                yield member.name, member.size, tar.extractfile(member) if member.isreg() else None


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
    bundled: bool = False  #: whether it comes with the package


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
    if (found := named_folder(info.name)) is not None:
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


def data_folders() -> list[Path]:
    """Return the folders of NSCACHING_DATA, in which data sets are looked for first."""
    named = os.environ.get("NSCACHING_DATA", "").split(os.pathsep)
    return [Path(folder).expanduser() for folder in named if folder]


def cache_folder() -> Path:
    """Return where downloads go: NSCACHING_CACHE, or the platform's folder for caches."""
    chosen = os.environ.get("NSCACHING_CACHE")
    if chosen:
        return Path(chosen).expanduser() / "datasets"
    cache = platformdirs.user_cache_path("nscaching", appauthor=False, opinion=False)
    return cache / "datasets"


def named_folder(name: str) -> Path | None:
    """Return the folder of that name with training triples, in the first of the user's folders.

    It may hold a data set of ours or any graph of the user's own.
    """
    wanted = _folded(name)
    for folder in data_folders():
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            if _folded(entry.name) == wanted and (entry / "train.txt").is_file():
                return entry
    return None


def _folded(name: str) -> str:
    """Return a name without case, hyphens, underscores and spaces."""
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")
