"""Where the files of a data set can be had: as plain files, or inside an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nscaching.graph.archives import BadArchiveError, extract
from nscaching.graph.download import DownloadError, Progress, download_file, settle


class Mirror(Protocol):
    """A place that may hold some of the wanted files."""

    @property
    def address(self) -> str:
        """What to call the mirror in a message."""

    def fetch(
        self, wanted: Mapping[str, str], folder: Path, progress: Progress | None
    ) -> dict[str, str]:
        """Put the wanted files (name -> SHA-256) into the folder; return name -> failure."""


@dataclass(frozen=True)
class PlainFiles:
    """Files under one address, maybe under other names there."""

    address: str
    names: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the mirror's name, where they differ."""
    positives_of: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the labelled file whose lines with label 1 it consists of."""

    def fetch(
        self, wanted: Mapping[str, str], folder: Path, progress: Progress | None
    ) -> dict[str, str]:
        """Download one file after the other, then make those that follow from another."""
        failures: dict[str, str] = {}
        for name, sha256 in wanted.items():
            if name in self.positives_of:
                continue
            try:
                url = f"{self.address}/{self.names.get(name, name)}"
                download_file(url, folder / name, sha256, progress=progress)
            except DownloadError as error:
                failures[name] = str(error)
        for name in self.positives_of.keys() & wanted.keys():
            try:
                self._make(name, wanted[name], folder)
            except (DownloadError, OSError) as error:
                failures[name] = str(error)
        return failures

    def _make(self, name: str, sha256: str, folder: Path) -> None:
        """Write the positives of a labelled file, without their label."""
        part = folder / f"{name}.part"
        lines = (folder / self.positives_of[name]).read_bytes().splitlines()
        kept = (line[:-2] + b"\n" for line in lines if line.endswith(b"\t1"))
        part.write_bytes(b"".join(kept))
        settle(part, folder / name, sha256)


@dataclass(frozen=True)
class Archive:
    """A .tar.gz or .zip that holds the files, in whatever folder inside it."""

    address: str
    names: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the base name inside the archive, where they differ."""

    def fetch(
        self, wanted: Mapping[str, str], folder: Path, progress: Progress | None
    ) -> dict[str, str]:
        """Download the archive, take the wanted files out, and check each of them."""
        archive = folder / self.address.rsplit("/", 1)[-1]
        inside = {self.names.get(name, name): name for name in wanted}
        try:
            download_file(self.address, archive, progress=progress)
            parts = extract(archive, inside, folder)
        except (DownloadError, BadArchiveError) as error:
            return dict.fromkeys(wanted, str(error))
        finally:
            archive.unlink(missing_ok=True)
        failures = dict.fromkeys(wanted, "not in the archive")
        for member, part in parts.items():
            name = inside[member]
            try:
                settle(part, folder / name, wanted[name])
                del failures[name]
            except DownloadError as error:
                failures[name] = str(error)
        return failures
