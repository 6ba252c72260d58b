"""Writing files so that what is there is whole, and reading tensors without trusting them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nscaching.errors import UserError

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another folder",
    errno.EROFS: "it is on a read-only file system; choose another folder",
    errno.EACCES: "you may not write there; choose another folder or change its permissions",
    errno.EPERM: "you may not write there; choose another folder or change its permissions",
    errno.ENOTDIR: "a part of that path is a file, not a folder; choose another folder",
    errno.EEXIST: "a file of that name is in the way; choose another folder",
    errno.ENOENT: "there can be no such folder; choose another one",
    errno.ENAMETOOLONG: "that name is too long; choose a shorter one",
}


@contextlib.contextmanager
def explained_writes(path: Path) -> Iterator[None]:
    """Turn the file system's refusals into a :class:`UserError` that names the path."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
        raise UserError(f"Cannot write {path}: {remedy}.") from error
    except SafetensorError as error:  # it reports I/O errors as text
        full = "No space left" in str(error) or "StorageFull" in str(error)
        remedy = _REMEDIES[errno.ENOSPC] if full else str(error)
        raise UserError(f"Cannot write {path}: {remedy}.") from error


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file in a temporary folder beside ``path``, then rename it into place.

    A folder, because some writers have temporary files of their own: a process that is killed
    leaves them all in one place, for :func:`sweep_temporary`.
    """
    with explained_writes(path):
        workshop = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            temporary = Path(workshop) / path.name
            write(temporary)
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


def sweep_temporary(folder: Path) -> None:
    """Remove what killed processes left of unfinished writes into a folder."""
    for leftover in folder.glob(".*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


def remove_own(folder: Path, patterns: Iterable[str]) -> None:
    """Remove the files below a folder that match a pattern, then the subfolders left empty.

    Whatever matches no pattern stays, and so does what lies behind a symbolic link. Patterns are
    those of ``Path.glob`` and must name only files that this package writes.
    """
    subfolders: set[Path] = set()
    for pattern in patterns:
        for found in list(folder.glob(pattern)):
            above = [parent for parent in found.parents if folder in parent.parents]
            if any(parent.is_symlink() for parent in above) or found.is_symlink():
                continue
            subfolders.update(above)
            if found.is_file():
                found.unlink()
            else:
                subfolders.add(found)
    for subfolder in sorted(subfolders, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):  # it holds something else
            subfolder.rmdir()


def find_foreign(folder: Path, patterns: Iterable[str]) -> Path | None:
    """Return something in the subfolders of a folder that matches no pattern, if there is any.

    A link counts, whatever it leads to; a subfolder does not: what is in it does.
    """
    own = {found for pattern in patterns for found in folder.glob(pattern)}
    for above, folders, files in os.walk(folder):
        if Path(above) == folder:
            continue
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        for found in (Path(above) / name for name in (*files, *links)):
            if found not in own or found.is_symlink():
                return found
    return None


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8 and with the line ends as they are."""
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode("utf-8")))


def write_names(path: Path, names: Iterable[str]) -> None:
    """Write names atomically, one a line."""
    write_text(path, "".join(f"{name}\n" for name in names))


def read_names(path: Path) -> list[str]:
    """Read what :func:`write_names` wrote."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read ({reason}); the folder is damaged.") from error
    return text.removesuffix("\n").split("\n") if text else []


def append_json_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add one line of JSON to a file."""
    with explained_writes(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSON-lines file; one that a killed process half wrote is left out."""
    if not path.exists():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def write_json_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON-lines file atomically."""
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], details: Mapping[str, Any] | None = None
) -> None:
    """Write tensors, and details that JSON can hold, atomically as a safetensors file."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"details": json.dumps(details)} if details is not None else None
    write_atomically(path, lambda temporary: save_file(whole, temporary, metadata=metadata))


def read_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a safetensors file and its details; ``what`` names it in errors."""
    with _opened_tensors(path, what) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, _details(file)


def read_details(path: Path, what: str) -> dict[str, Any]:
    """Read only the details of a safetensors file."""
    with _opened_tensors(path, what) as file:
        return _details(file)


@contextlib.contextmanager
def _opened_tensors(path: Path, what: str) -> Iterator[Any]:
    """Open a safetensors file; a file that is none is named with what it should be."""
    if not path.is_file():
        raise UserError(f"{path} is missing: there is no {what} here.")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a whole safetensors file ({error}). It was truncated or is no {what} "
            "of nscaching: restore it from a copy, or train again."
        ) from error


def _details(file: Any) -> dict[str, Any]:
    details = json.loads((file.metadata() or {}).get("details", "{}"))
    if not isinstance(details, dict):
        raise ValueError("its details are no mapping")
    return details


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
