"""Writing files so that what is there is whole, and reading tensors without trusting them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nscaching.errors import CHOOSE_ANOTHER, CannotWrite, UserError

#: What new files are not allowed; reading it sets it, for the threads beside this one too.
_UMASK = os.umask(0)
os.umask(_UMASK)
_REMEDIES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "it is larger than the limit on files here; raise it (ulimit -f)",
    errno.EROFS: "it is on a read-only file system; choose another folder",
    errno.EACCES: "you may not write there; choose another folder or change its permissions",
    errno.EPERM: "you may not write there; choose another folder or change its permissions",
    errno.ENOTDIR: "a part of that path is a file, not a folder; choose another folder",
    errno.EEXIST: "a file of that name is in the way; choose another folder",
    errno.ENOENT: "there can be no such folder; choose another one",
    errno.ENAMETOOLONG: "that name is too long; choose a shorter one",
}


@contextlib.contextmanager
def explained_writes(path: Path, size: int | None = None) -> Iterator[None]:
    """Turn the file system's refusals into a :class:`UserError` that names the path.

    ``size`` is the bytes of the whole file, where they are known: a full disk is told with them.
    """
    try:
        yield
    except OSError as error:
        raise _refusal(path, error.errno or 0, error.strerror or str(error), size) from error
    except SafetensorError as error:  # it reports I/O errors as text
        found = re.search(r"os error (\d+)", str(error))
        number = int(found[1]) if found else errno.ENOSPC if "StorageFull" in str(error) else 0
        raise _refusal(path, number, str(error), size) from error


def refuse_no_folder(path: Path) -> None:
    """Refuse a file to be written where there is no folder for it."""
    if not path.parent.is_dir():
        raise _no_folder(path)


def _no_folder(path: Path) -> CannotWrite:
    return CannotWrite(f"There is no folder {path.parent}; make it first.")


def _refusal(path: Path, number: int, otherwise: str, size: int | None) -> CannotWrite:
    if number == errno.ENOENT and not path.parent.is_dir():
        return _no_folder(path)
    remedy = _REMEDIES.get(number, otherwise)
    if number in (errno.ENOSPC, errno.EDQUOT):
        needed = "" if size is None else f"{size:,} bytes are needed and "
        remedy += f": {needed}{_free_bytes(path):,} bytes are free in {path.parent}; "
        remedy += "free some space or choose another folder"
    return CannotWrite(f"Cannot write {path}: {remedy}.")


def _free_bytes(path: Path) -> int:
    """Return the bytes that are free where a file was to be written."""
    for above in path.parents:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(above).free
    return 0


def write_atomically(path: Path, write: Callable[[Path], object], size: int | None = None) -> None:
    """Let ``write`` fill a file in a temporary folder beside ``path``, then rename it into place.

    A folder, because some writers have temporary files of their own: a process that is killed
    leaves them all in one place, for :func:`sweep_temporary`. ``size`` is for the message where
    the disk is full.
    """
    with explained_writes(path, size):
        workshop = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            temporary = Path(workshop) / path.name
            write(temporary)
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_UMASK)
            temporary.replace(path)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


def sweep_temporary(folder: Path, name: str = "*") -> None:
    """Remove what killed processes left of unfinished writes of a file, or all, of a folder."""
    for leftover in folder.glob(f".{name}.*.tmp"):
        if leftover.is_dir():  # a link is refused by rmtree
            shutil.rmtree(leftover, ignore_errors=True)


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


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically, in UTF-8 with the line ends as they are; return its path."""
    content = text.encode("utf-8")
    write_atomically(path, lambda temporary: temporary.write_bytes(content), len(content))
    return path


def write_names(path: Path, names: Iterable[str]) -> None:
    """Write names atomically, one per line."""
    write_text(path, "".join(f"{name}\n" for name in names))


def read_names(path: Path) -> list[str]:
    """Read what :func:`write_names` wrote."""
    text = read_text(path)
    return text.removesuffix("\n").split("\n") if text else []


@contextlib.contextmanager
def _explained_reads(path: Path, remark: str = "; the folder is damaged") -> Iterator[None]:
    """Turn the file system's refusals into a :class:`UserError` that names the path."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PermissionError):
            raise UserError(f"{path} may not be read by you; change its permissions.") from error
        reason = error.strerror or error
        raise UserError(f"{path} cannot be read ({reason}){remark}.") from error


def read_text(path: Path) -> str:
    """Read a file of ours as UTF-8, line ends as they are; what is no text is named by place."""
    with _explained_reads(path):
        content = path.read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}, line {line}: byte {error.start} is not UTF-8 text; the file is damaged. "
            "Restore it from a copy."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of ours that holds one JSON object."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        what = f"it is not JSON ({getattr(error, 'msg', None) or str(error)[:80]})"
        if isinstance(error, RecursionError):
            what = "it is nested too deeply"
        raise UserError(f"{path}{place}: {what}. Restore it from a copy.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} should hold one JSON object. Restore it from a copy.")
    return content


#: Member of a JSON object that holds a digest of the others.
_SEAL = "check"


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a digest of itself, which :func:`unsealed` checks."""
    plain = json.loads(json.dumps(record))
    return {**plain, _SEAL: _seal(plain)}


def unsealed(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an object without its digest; None if it has none or was changed."""
    plain = {name: value for name, value in record.items() if name != _SEAL}
    return plain if record.get(_SEAL) == _seal(plain) else None


def _seal(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def append_json_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add one line of JSON to a file."""
    with explained_writes(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file, without lines that are damaged or half written."""
    return [line for line in _parsed_lines(path) if line is not None]


def read_sealed_lines(path: Path) -> list[dict[str, Any]]:
    """Return the sealed objects of a JSON-lines file up to the first line that was damaged.

    Lines of 0.1.0 are not sealed: they are taken as they are where none is.
    """
    read = _parsed_lines(path)
    old = not any(_SEAL in line for line in read if line is not None)
    lines = [line if line is None or old else unsealed(line) for line in read]
    whole = lines.index(None) if None in lines else len(lines)
    return [line for line in lines[:whole] if line is not None]


def _parsed_lines(path: Path) -> list[dict[str, Any] | None]:
    """Return the objects of the lines that are not empty, None for what is none."""

    def parsed(line: bytes) -> dict[str, Any] | None:
        with contextlib.suppress(ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            read = json.loads(line)
            return read if isinstance(read, dict) else None
        return None

    with _explained_reads(path, ""):
        content = path.read_bytes() if path.exists() else b""
    return [parsed(line) for line in content.split(b"\n") if line]


def write_json_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON-lines file atomically."""
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], details: Mapping[str, Any] | None = None
) -> None:
    """Write tensors, and details that JSON can hold, atomically as a safetensors file.

    A digest of both goes with them, which :func:`read_tensors` checks.
    """
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    told = json.dumps(details if details is not None else {})
    metadata = {"details": told, "digest": tensor_digest(whole, told)}
    _refuse_odd_path(path)
    size = sum(tensor.nbytes for tensor in whole.values())
    write_atomically(path, lambda temporary: save_file(whole, temporary, metadata=metadata), size)


def read_tensors(
    path: Path, what: str, *, mapped: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a safetensors file and its details; ``what`` names it in errors.

    One that was written with a digest must still have it; files of 0.1.0 have none. Tensors are
    copies, as the file may be changed under a long process; with ``mapped`` they are not, and may
    be at any alignment: for those that are copied at once.
    """
    with _opened_tensors(path, what) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not mapped:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        metadata = file.metadata() or {}
        details = _details(file)
        found = tensor_digest(tensors, metadata.get("details", "{}"))
    if metadata.get("digest", found) != found:
        raise UserError(
            f"{path} is damaged: its content does not have the digest it was written with. Restore "
            f"this {what} from a copy, or train again."
        )
    return tensors, details


def map_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Map the tensors of a safetensors file, which are read as they are used, unchecked."""
    with _opened_tensors(path, what) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, _details(file)  # noqa: SIM118


def stored_digest(path: Path, what: str) -> str | None:
    """Return the digest that a safetensors file was written with, unchecked; None of 0.1.0."""
    with _opened_tensors(path, what) as file:
        digest = (file.metadata() or {}).get("digest")
    return digest if isinstance(digest, str) else None


def stored_length(path: Path, name: str) -> int | None:
    """Return the rows of a tensor in a safetensors file; None where it cannot be told."""
    try:
        with safe_open(path, framework="pt") as file:
            return int(file.get_slice(name).get_shape()[0])
    except (SafetensorError, OSError, ValueError, IndexError):
        return None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with _explained_reads(path), path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_details(path: Path, what: str) -> dict[str, Any]:
    """Read only the details of a safetensors file."""
    with _opened_tensors(path, what) as file:
        return _details(file)


@contextlib.contextmanager
def _opened_tensors(path: Path, what: str) -> Iterator[Any]:
    """Open a safetensors file; a file that is none is named with what it should be."""
    _refuse_odd_path(path)
    if not path.is_file():
        raise UserError(f"{path} is missing: there is no {what} here.")
    if not os.access(path, os.R_OK):  # of which safetensors says that there is no such file
        raise UserError(f"{path} may not be read by you; change its permissions.")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not a whole safetensors file ({error}). It was truncated or is no {what} "
            "of nscaching: restore it from a copy, or train again."
        ) from error


def _refuse_odd_path(path: Path) -> None:
    """Refuse a path that safetensors, whose paths are UTF-8, could not open."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"The path {path} is not UTF-8 text, as that of a model has to be; {CHOOSE_ANOTHER}"
        ) from error


def _details(file: Any) -> dict[str, Any]:
    details = json.loads((file.metadata() or {}).get("details", "{}"))
    if not isinstance(details, dict):
        raise ValueError("its details are no mapping")
    return details


def tensor_digest(tensors: Mapping[str, Tensor], details: str = "") -> str:
    """Return a SHA-256 over details and the name, type, shape and bytes of every tensor."""

    def digest(name: str) -> bytes:
        tensor = tensors[name]
        told = json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode()
        content: Any = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        return hashlib.sha256(told + hashlib.sha256(content).digest()).digest()

    with ThreadPoolExecutor(2) as pool:  # hashing lets other threads run
        parts = pool.map(digest, sorted(tensors))
        return hashlib.sha256(b"".join([details.encode(), *parts])).hexdigest()
