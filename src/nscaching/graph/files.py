"""Reading a file's bytes, and the sentences said when that does not work."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from nscaching.errors import UserError

BOM = b"\xef\xbb\xbf"


def kind_of(path: Path) -> str:
    """Return the extension that decides the reader, such as ``'.tsv'``, looking through .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def stem_of(path: Path) -> str:
    """Return the file's name without its extension, looking through .gz."""
    name = path.name[:-3] if path.name.lower().endswith(".gz") else path.name
    return Path(name).stem


def read_bytes(path: Path) -> bytes:
    """Return the whole file, unpacked when it ends in .gz and without a byte order mark."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if path.suffix.lower() == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(
                f"{path} is not a whole gzip file ({error}); get it again, or unpack it and "
                "give the plain file."
            ) from error
    return data[len(BOM) :] if data.startswith(BOM) else data


def arrow_reader(data: bytes) -> Any:
    """Return a reader over a copy of the data in Arrow's own memory.

    Arrow's threads may outlive a failed parse. If they held Python's memory they would need the
    interpreter to let go of it, and crash a process that is about to exit.
    """
    copy = pa.BufferOutputStream()
    copy.write(data)
    return pa.BufferReader(copy.getvalue())


def unreadable(path: Path, error: OSError) -> UserError:
    """Say why a file cannot be read and what to do about it."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"There is no file {path}; check the path.")
    if isinstance(error, PermissionError):
        return UserError(f"{path} may not be read by you; change its permissions.")
    if isinstance(error, IsADirectoryError):
        return UserError(f"{path} is a folder where a file was expected.")
    return UserError(f"{path} cannot be read: {error.strerror or error}.")


def no_triples(path: Path) -> UserError:
    """Say that a file holds nothing."""
    return UserError(f"{path} is empty; expected one triple a line: head, relation, tail.")
