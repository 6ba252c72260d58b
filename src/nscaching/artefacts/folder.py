"""A folder that this package writes: a run, a search, a comparison, an embedding of nodes.

Every such folder has a marker, ``nscaching.json``, that says what it is and by which version it was
written; folders of 0.1.0 have none and are known by their files. It is locked while it is written.
Only files of our own are ever removed, by name, never through a link, and whatever else lies there
stays. New files take the place of old ones all together or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from nscaching._version import __version__
from nscaching.artefacts.files import explained_writes, read_json, sweep_temporary, write_text
from nscaching.artefacts.lock import LOCK_FILE, FolderLock
from nscaching.errors import CHOOSE_ANOTHER, RESUME_OR_REPLACE, UserError, shown

MARKER = "nscaching.json"
#: Of the marker and of what it promises about the folder.
FORMAT = 1
#: Where new files are written; what that folder is called once they are whole and the old ones are
#: being removed; and what it is called while the new ones take their places.
_NEW, _WHOLE, _MOVING = ".nscaching-new", ".nscaching-whole", ".nscaching-moving"
_PRIVATE = {_NEW, _WHOLE, _MOVING, LOCK_FILE}


class ArtefactFolder:
    """The files of one artefact. A subclass says what they are and how one without marker looks."""

    kind: ClassVar[str]  #: as the marker has it
    what: ClassVar[str]  #: as a message has it: "a run"
    otherwise: ClassVar[str]  #: what a message says of another folder: "is not a run folder"
    #: Patterns of all files that it writes, as ``Path.glob`` has them; files without which it is
    #: not there.
    own: ClassVar[tuple[str, ...]]
    needed: ClassVar[tuple[str, ...]]
    resumable: ClassVar[bool] = True
    #: What can be done about a damaged marker of which there is no copy.
    without_marker: ClassVar[str] = "delete it to load the folder without its checks"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.marker = self.path / MARKER
        self.lock = FolderLock(self.path)

    # What is there -------------------------------------------------------------------------------

    def looks_like_one(self) -> bool:
        """Tell whether the files of such an artefact are there, of whichever version."""
        return all((self.path / name).is_file() for name in self.needed)

    def holds_one(self) -> bool:
        """Tell whether such an artefact is there, finished or not."""
        self.recover()
        try:
            if self._is_of_another_kind() or not self.looks_like_one():
                return False
            if not self.marker.is_file():
                return True  # of 0.1.0
            return self.read_marker().get("kind") == self.kind
        except OSError:  # no such path can be
            return False
        except UserError:
            return True  # its marker is damaged; whoever reads it will say so

    def exists(self) -> bool:
        """Tell whether something is there already; what a killed start left does not count."""
        with explained_writes(self.path):
            if not self.path.is_dir():
                return os.path.lexists(self.path)
            found = any(entry.name not in _PRIVATE for entry in self.path.iterdir())
            return found or self._is_of_another_kind()

    def refuse_occupied(self, overwrite: bool) -> None:
        """Refuse a folder that holds something else, or an artefact that is not to be replaced."""
        self.recover()
        if not self.exists():
            return
        if not self.holds_one():
            raise UserError(f"{self.path} exists and {self.otherwise}; {CHOOSE_ANOTHER}")
        if not overwrite:
            replace = f"Replace it (--overwrite, overwrite=True), or {CHOOSE_ANOTHER}"
            choice = RESUME_OR_REPLACE if self.resumable else replace
            raise UserError(f"{self.path} holds {self.what} already. {choice}")
        self.refuse_obstacles()

    def refuse_obstacles(self) -> None:
        """Refuse to write where a link or a folder stands in the place of a file of ours."""
        for pattern in (MARKER, *self.own):
            above = _subfolders(self.path, pattern)
            wrong = [each for each in above if each.is_symlink() or not each.is_dir()]
            files = _matches(self.path, pattern)
            wrong += [each for each in files if each.is_dir() and not each.is_symlink()]
            if wrong:
                what = "is a link" if wrong[0].is_symlink() else "is in the way"
                raise UserError(
                    f"{wrong[0]} {what}, so {self.path} is left as it is. Move it away, or "
                    f"{CHOOSE_ANOTHER}"
                )

    # The marker ----------------------------------------------------------------------------------

    def write_marker(self, into: Path, **details: Any) -> None:
        """Write the marker of this kind into a folder."""
        told = {"kind": self.kind, "format": FORMAT, "version": __version__, **details}
        write_text(into / MARKER, json.dumps(told, indent=1) + "\n")

    def read_marker(self) -> dict[str, Any]:
        """Return the marker; empty for a folder of 0.1.0, which has none."""
        if not os.path.lexists(self.marker):
            return {}
        try:
            told = read_json(self.marker)
        except UserError as error:
            raise UserError(f"{error} Or {self.without_marker}.") from error
        kind, number = told.get("kind"), told.get("format")
        if not isinstance(kind, str) or not isinstance(number, int) or number < 1:
            raise self.damaged_marker("kind and format")
        if number > FORMAT:
            raise UserError(
                f"{self.path} was written by nscaching {shown(told.get('version'))}, a newer "
                f"version than this one ({__version__}); update nscaching to read it."
            )
        return told

    def told(self, part: str) -> dict[str, Any]:
        """Return a part of the marker that every one has; nothing for a folder of 0.1.0."""
        marker = self.read_marker()
        told = marker.get(part) if marker else {}
        if not isinstance(told, dict) or (marker and not told):
            raise self.damaged_marker(f"'{part}'")
        return told

    def damaged_marker(self, missing: str) -> UserError:
        """Return the error for a marker that lacks something."""
        return UserError(
            f"{self.marker} is damaged: its {missing} cannot be read. Restore it from a copy, or "
            f"{self.without_marker}."
        )

    # Writing -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock of the folder; one that holds something else is left alone.

        What a killed process left there of unfinished writes is removed first.
        """
        if self.exists() and not self.holds_one():
            yield  # it will be refused
            return
        self.lock.acquire()
        try:
            self.sweep()
            yield
        finally:
            self.lock.release()

    @contextlib.contextmanager
    def replacing(self, marker: Mapping[str, Any] | None = None) -> Iterator[Path]:
        """Give a folder to write new files to; they then replace the artefact that is here.

        All of them or none: whatever fails before the end, what was there stays, and a process
        that is killed after the end is completed by the next one that looks (:meth:`recover`).
        """
        self.recover()
        self.refuse_obstacles()
        fresh = not self.path.exists()
        new = self.path / _NEW
        try:
            with explained_writes(self.path):
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir(parents=True)
            try:
                yield new
                if marker is not None:
                    self.write_marker(new, **marker)
            except UserError as error:  # name the file where it would have been
                raise type(error)(str(error).replace(str(new), str(self.path))) from error
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            if fresh:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            raise
        with explained_writes(self.path):
            new.replace(self.path / _WHOLE)  # from here on the new files count
            self._install()

    def is_being_replaced(self) -> bool:
        """Tell whether new files are taking their places, or were when a process was killed."""
        try:
            return (self.path / _WHOLE).is_dir() or (self.path / _MOVING).is_dir()
        except OSError:  # no such path can be
            return False

    def _is_of_another_kind(self) -> bool:
        """Tell whether an artefact of another kind is taking its place here."""
        if self.is_being_replaced():
            for place in (self.path / _WHOLE, self.path / _MOVING, self.path):
                with contextlib.suppress(UserError):  # the marker comes last
                    return bool(read_json(place / MARKER).get("kind", self.kind) != self.kind)
        return False

    def recover(self) -> None:
        """Complete a replacement that a killed process had begun, unless its writer is alive.

        One by an artefact of another kind is left for those who know its files.
        """
        if self.is_being_replaced() and not self._is_of_another_kind() and self.lock.is_free():
            with explained_writes(self.path):
                self._install()

    def _install(self) -> None:
        """Take each step from where it stands; every one may be taken again after a kill."""
        whole, moving = self.path / _WHOLE, self.path / _MOVING
        if whole.is_dir():
            self.remove_own()
            whole.replace(moving)
        new = [found.relative_to(moving) for found in moving.rglob("*") if not found.is_dir()]
        for name in sorted(new, key=lambda name: name == Path(MARKER)):  # the marker last
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (moving / name).replace(self.path / name)
        shutil.rmtree(moving)

    def remove_own(self) -> None:
        """Remove the files of this kind, by name, and the subfolders that are empty then."""
        subfolders: set[Path] = set()
        for pattern in (MARKER, *self.own):
            subfolders.update(_subfolders(self.path, pattern))
            for found in _matches(self.path, pattern):
                above = [parent for parent in found.parents if self.path in parent.parents]
                if any(parent.is_symlink() for parent in above):
                    continue
                if found.is_symlink() or found.is_file():
                    found.unlink()
        for subfolder in sorted(subfolders, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):  # it holds something else
                subfolder.rmdir()

    def sweep(self) -> None:
        """Remove the temporary files that a killed process left."""
        self.recover()
        shutil.rmtree(self.path / _NEW, ignore_errors=True)
        for pattern in (MARKER, *self.own):
            for folder in _matches(self.path, str(Path(pattern).parent)):
                if not folder.is_symlink() or folder == self.path:
                    sweep_temporary(folder, Path(pattern).name)


def artefact_id(folder: Path) -> str | None:
    """Return the id that ties the files of a folder together, where its marker has one."""
    try:
        told = read_json(folder / MARKER).get("id")
    except UserError:
        return None
    return told if isinstance(told, str) else None


def _matches(folder: Path, pattern: str) -> list[Path]:
    """Return what a pattern finds below a folder, links that lead nowhere too."""
    if not any(sign in pattern for sign in "*?["):
        return [folder / pattern] if os.path.lexists(folder / pattern) else []
    return list(folder.glob(pattern))


def _subfolders(folder: Path, pattern: str) -> list[Path]:
    """Return what is found in the places of the subfolders of a pattern, the innermost first."""
    above = list(Path(pattern).parents)[:-1]
    return [found for parent in above for found in _matches(folder, str(parent))]
