"""Mirrors of data sets: plain files or an archive, downloaded by pooch and checked file by file."""

from __future__ import annotations

import hashlib
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from nscaching.errors import NSCachingError, shown
from nscaching.graph.files import Progress

TIMEOUT = 30.0
#: No member of an archive may be larger, nor all together: the largest file we know has 110 MB.
LARGEST_MEMBER, LARGEST_ARCHIVE = 1 << 30, 4 << 30
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_Members = Iterator[tuple[str, int, IO[bytes] | None]]


class DownloadError(NSCachingError):
    """One mirror did not deliver; another may."""


@dataclass(frozen=True)
class Mirror:
    """A place that serves the files of a data set: a folder, or an archive that holds them."""

    address: str
    names: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the mirror's name, where they differ."""
    positives_of: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the labelled file whose lines with label 1 it consists of."""

    def fetch(
        self, wanted: Mapping[str, str], folder: Path, progress: Progress | None = None
    ) -> dict[str, str]:
        """Put the wanted files (name -> SHA-256) into the folder; return name -> failure.

        A file appears in the folder only when it is whole and has the right checksum.
        """
        failures: dict[str, str] = {}
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            work = Path(temporary)
            if self.address.endswith(_ARCHIVES):
                try:
                    self._unpack(wanted, work, progress)
                except DownloadError as error:
                    return dict.fromkeys(wanted, str(error))
            made = [name for name in wanted if name in self.positives_of]
            for name in [*(name for name in wanted if name not in made), *made]:
                try:
                    if name in made:
                        self._make(name, work, folder)
                    elif not self.address.endswith(_ARCHIVES):
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

    def _unpack(self, wanted: Mapping[str, str], work: Path, progress: Progress | None) -> None:
        """Download the archive and take the wanted files out, under our names."""
        archive = work / f"archive-{self.address.rsplit('/', 1)[-1]}"
        download(self.address, archive, progress)
        extract(archive, {self.names.get(name, name): name for name in wanted}, work)

    def _make(self, name: str, work: Path, folder: Path) -> None:
        """Write the positives of a labelled file, without their label."""
        lines = (folder / self.positives_of[name]).read_bytes().splitlines()
        kept = (line[:-2] + b"\n" for line in lines if line.endswith(b"\t1"))
        (work / name).write_bytes(b"".join(kept))


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
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def extract(archive: Path, wanted: Mapping[str, str], folder: Path) -> None:
    """Copy the members with the wanted base names into a folder, under the names given.

    Only the bytes are taken, never a member's path, mode or owner. The archive is refused as a
    whole when a member has an absolute path, climbs out with ``..``, or is larger than it says or
    than any data set; links and devices are skipped.
    """
    missing = dict(wanted)
    total = 0
    try:
        with _members(archive) as members:
            for path, size, stream in members:
                _refuse_escape(path, archive)
                total += size
                if size > LARGEST_MEMBER or total > LARGEST_ARCHIVE:
                    raise DownloadError(
                        f"{archive.name} unpacks to more than {LARGEST_MEMBER >> 20:,} MB per file "
                        f"or {LARGEST_ARCHIVE >> 20:,} MB in all, which no data set does"
                    )
                name = missing.pop(PurePosixPath(path).name, None) if stream else None
                if stream is not None and name is not None:
                    _copy(stream, folder / name, size, f"{shown(path)} of {archive.name}")
    except DownloadError:
        raise
    except Exception as error:  # a damaged zip alone raises six kinds
        reason = shown(error) or type(error).__name__
        raise DownloadError(f"{archive.name} is not a whole archive ({reason})") from error


def _copy(stream: IO[bytes], target: Path, size: int, what: str) -> None:
    """Copy a member, and stop when it is longer than the archive says."""
    done = 0
    with target.open("wb") as out:
        while block := stream.read(1 << 20):
            done += len(block)
            if done > size:
                raise DownloadError(f"{what} is larger than the {size:,} bytes it declares")
            out.write(block)


def _refuse_escape(path: str, archive: Path) -> None:
    """Raise when a member's path would leave the folder it is unpacked in."""
    windows = PureWindowsPath(path)
    rooted = PurePosixPath(path).is_absolute() or windows.drive or windows.root
    if rooted or ".." in windows.parts or ".." in PurePosixPath(path).parts:
        raise DownloadError(f"{archive.name} holds the unsafe path '{shown(path)}'")


@contextmanager
def _members(archive: Path) -> Iterator[_Members]:
    """Open a .zip or a tar file; yield path, size and a stream, None for what is no plain file."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield _zip_members(zipped)
    else:
        with tarfile.open(archive, "r:*") as tar:
            yield (
                (member.name, member.size, tar.extractfile(member) if member.isreg() else None)
                for member in tar
            )


def _zip_members(zipped: zipfile.ZipFile) -> _Members:
    """Yield the members of a zip; a link shows in the upper half of the attributes."""
    for member in zipped.infolist():
        mode = member.external_attr >> 16
        if member.is_dir() or stat.S_ISLNK(mode):
            yield member.filename, 0, None
        else:
            with zipped.open(member) as stream:
                yield member.filename, member.file_size, stream
