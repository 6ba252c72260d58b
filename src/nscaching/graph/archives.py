"""Taking a few files out of an archive without trusting it."""

from __future__ import annotations

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from nscaching.errors import NSCachingError

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)


class BadArchiveError(NSCachingError):
    """The archive is damaged, or holds what an honest one would not."""


def extract(archive: Path, wanted: Iterable[str], folder: Path) -> dict[str, Path]:
    """Copy the members with the wanted base names to ``folder/<name>.part``; return name -> part.

    Only the bytes are taken, never a member's path, mode or owner. One member that is absolute or
    climbs out with ``..`` condemns the archive; links and devices are passed over.
    """
    names = set(wanted)
    written: dict[str, Path] = {}
    try:
        with _members(archive) as members:
            for path, stream in members:
                _refuse_escape(path, archive)
                name = PurePosixPath(path).name
                if stream is None or name not in names:
                    continue
                names.remove(name)
                part = folder / f"{name}.part"
                with part.open("wb") as out:
                    shutil.copyfileobj(stream, out, 1 << 20)
                written[name] = part
    except BadArchiveError:
        _remove(folder, wanted)
        raise
    except DAMAGE as error:
        _remove(folder, wanted)
        raise BadArchiveError(f"{archive.name} is not a whole archive ({error})") from error
    return written


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Delete what came out of an archive that is not to be trusted."""
    for name in names:
        (folder / f"{name}.part").unlink(missing_ok=True)


def _refuse_escape(path: str, archive: Path) -> None:
    """Raise when a member's path would leave the folder it is unpacked in."""
    windows = PureWindowsPath(path)
    rooted = PurePosixPath(path).is_absolute() or windows.drive or windows.root
    if rooted or ".." in windows.parts or ".." in PurePosixPath(path).parts:
        raise BadArchiveError(f"{archive.name} holds the unsafe path '{path}'")


Members = Iterator[tuple[str, IO[bytes] | None]]


@contextmanager
def _members(archive: Path) -> Iterator[Members]:
    """Open a .zip or a tar file; yield each path with a stream, None for what is no plain file."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield _zip_members(zipped)
    else:
        with tarfile.open(archive, "r:*") as tar:
            yield (
                (member.name, tar.extractfile(member) if member.isreg() else None) for member in tar
            )


def _zip_members(zipped: zipfile.ZipFile) -> Members:
    """Yield plain files of a zip; a link shows in the upper half of the attributes."""
    for member in zipped.infolist():
        mode = member.external_attr >> 16
        plain = not member.is_dir() and (mode == 0 or not stat.S_ISLNK(mode))
        if plain:
            with zipped.open(member) as stream:
                yield member.filename, stream
        else:
            yield member.filename, None
