"""Files and folders of triples: which there are, their bytes, and what to say when it fails."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from nscaching.errors import UserError, shown

Progress = Callable[[int, int | None, str], None]
"""Called with the bytes done, the bytes in total if known, and the file's name."""
_PROGRESS: ContextVar[Progress | None] = ContextVar("nscaching_progress", default=None)
#: Files from this size on report their progress.
_LARGE = 64 << 20
#: Bytes that are read at once.
BLOCK = 1 << 24

BOM = b"\xef\xbb\xbf"
_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
#: A packed file may unpack to this many times its size, and to this many bytes in any case.
_LARGEST_RATIO, _ALWAYS_ALLOWED = 200, 256 << 20

TEXT_KINDS = (".txt", ".tsv", ".csv", ".nt", ".ttl", ".rdf")
ENDINGS = (*TEXT_KINDS, *(kind + end for kind in TEXT_KINDS for end in _OPENERS), ".parquet")
STEMS = {"train": ("train",), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
LABELLED = ".labeled.txt"
#: A file of several, such as train-00000-of-00002; some writers add a digest.
_PART = re.compile("(.+?)-([0-9]+)-of-([0-9]+)([-.].*)?")
#: Blocks that are held at most to find the end of a row whose fields have line breaks.
_LONGEST_ROW = 4


def kind_of(path: Path) -> str:
    """Return the extension that decides the reader, such as ``'.tsv'``, looking through .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _OPENERS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def stem_of(path: Path) -> str:
    """Return the file's name without its extension, looking through .gz."""
    stem = Path(path.stem).stem if path.suffix.lower() in _OPENERS else path.stem
    return os.fsencode(stem).decode("utf-8", errors="replace")


def split_of(path: Path) -> str | None:
    """Return the split that a file's name begins with, as ``validation-00000-of-00002`` does."""
    first = re.split("[-_.]", stem_of(path).casefold(), maxsplit=1)[0]
    return next((split for split, stems in STEMS.items() if first in stems), None)


class Source:
    """Some lines of a file, or all of it, in memory; ``first_line`` is the number of the first.

    The memory is Arrow's own. Arrow's threads may outlive a failed parse: if they held Python's
    memory they would need the interpreter to let go of it, and crash a process that is about to
    exit.
    """

    def __init__(self, path: Path, content: bytes, first_line: int = 1) -> None:
        self.path, self.first_line = path, first_line
        kept = pa.BufferOutputStream()
        kept.write(content)
        self._held = kept.getvalue()

    def arrow(self) -> Any:
        """Return a reader for Arrow."""
        return pa.BufferReader(self._held)

    def open(self) -> IO[bytes]:
        """Return a stream of the bytes."""
        return io.BytesIO(self._held)

    def read(self) -> bytes:
        """Return the bytes."""
        content: bytes = self._held.to_pybytes()
        return content


def text_blocks(path: Path, progress: Progress | None = None) -> Iterator[Source]:
    """Yield a file, packed or not, in blocks of whole lines; a small file is one block.

    Of comma-separated text a block ends where no quotes are open, since fields in quotes may have
    line breaks. Quotes that stay open for :data:`_LONGEST_ROW` blocks are taken for a mistake,
    which the reader of the block names.
    """
    first_line, held = 1, b""
    for block in _unpacked(path, progress):
        end = _end_of_lines(held)
        if kind_of(path) == ".csv":
            end = _end_of_rows(held, end) or (end if len(held) >= _LONGEST_ROW * BLOCK else 0)
        content, held = held[:end], held[end:] + block
        if content:
            yield Source(path, content, first_line)
            ends = content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")
            first_line += ends
    if held:
        yield Source(path, held, first_line)


def _end_of_lines(text: bytes, stop: int | None = None) -> int:
    """Return where the last whole line before ``stop`` ends."""
    # Old files end lines by \r; one at the very end may be half of \r\n.
    half = len(text) - 1 if stop is None else stop
    return max(text.rfind(b"\n", 0, stop), text.rfind(b"\r", 0, half)) + 1


def _end_of_rows(text: bytes, end: int) -> int:
    """Return the last end of a line, up to ``end``, that has an even number of quotes before it."""
    odd = text.count(b'"', 0, end) % 2
    while odd:
        start = _end_of_lines(text, text.rfind(b'"', 0, end))
        odd ^= text.count(b'"', start, end) % 2
        end = start
    return end


def read_bytes(path: Path) -> bytes:
    """Return the whole file, unpacked and without a byte order mark."""
    return b"".join(_unpacked(path))


def _unpacked(path: Path, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked, after a byte order mark.

    One that unpacks to too much is refused. Progress is reported, without ``progress`` that of
    large files as :func:`reading_progress` says.
    """
    opener = _OPENERS.get(path.suffix.lower())
    report, least = (_PROGRESS.get(), _LARGE) if progress is None else (progress, 0)
    try:
        size = path.stat().st_size
        total = None if opener else size
        limit = max(_ALWAYS_ALLOWED, _LARGEST_RATIO * size) if opener and path.is_file() else None
        done = 0
        with opener(path) if opener else path.open("rb") as stream:
            while block := _next_block(stream, path, done):
                yield block if done else block.removeprefix(BOM)
                done += len(block)
                if limit is not None and done > limit:
                    raise UserError(
                        f"{path} has {size:,} bytes and unpacks to more than {limit:,}, which no "
                        "file of triples does; unpack it yourself if you trust it."
                    )
                if report is not None and max(size, done) >= least:
                    report(done, total, path.name)
        if report is not None and max(size, done) >= least:
            report(done, done, path.name)
    except OSError as error:
        raise unreadable(path, error) from error


def _next_block(stream: Any, path: Path, done: int) -> bytes:
    try:
        block: bytes = stream.read(BLOCK)
        return block
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        name = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}[path.suffix.lower()]
        place = f"after {done:,} bytes: " if done else ""
        raise UserError(
            f"{path} is not a whole {name} file ({place}{error}); get it again, or unpack it and "
            "give the plain file."
        ) from error


@contextmanager
def reading_progress(progress: Progress | None) -> Iterator[None]:
    """Report the reading of large files inside this context."""
    token = _PROGRESS.set(progress)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


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
    return UserError(f"{path} is empty; expected one triple per line: head, relation, tail.")


def not_utf8(path: Path, number: int, byte: int) -> UserError:
    """Name a line that is not UTF-8."""
    return UserError(
        f"Line {number} of {path} is not UTF-8 text (byte 0x{byte:02x}); save the file as UTF-8."
    )


@dataclass
class FolderFiles:
    """The files of a folder by split, and the other ones of triples that are not labelled."""

    splits: dict[str, list[Path]] = field(default_factory=dict)
    labelled: dict[str, Path] = field(default_factory=dict)
    others: list[Path] = field(default_factory=list)
    openke: bool = False  #: whether training triples are in OpenKE's id files alone


def folder_files(folder: Path) -> FolderFiles:
    """Find train, valid (or dev), test and labelled files.

    A split is one file, such as ``train.txt``, or else parts of it, such as ``train-0.txt``.
    """
    present = _present(folder)
    plain = [file for name, file in present.items() if name.endswith(ENDINGS)]
    plain = [file for file in plain if not file.name.endswith(LABELLED)]
    found = FolderFiles(openke="train2id.txt" in present)
    for split, stems in STEMS.items():
        parts = [file for file in plain if split_of(file) == split]
        whole = [file for file in parts if stem_of(file).casefold() in stems]
        if len(whole) > 1:
            names = " and ".join(file.name for file in whole)
            raise UserError(
                f"{folder} has {names}, and either could be its {split} triples; keep one of them."
            )
        if parts:
            found.splits[split] = whole or parts
            refuse_missing_part(folder, found.splits[split])
        labelled = [f"{stem}{LABELLED}" for stem in stems if f"{stem}{LABELLED}" in present]
        if labelled and split != "train":
            found.labelled[split] = present[labelled[0]]
    found.openke &= "train" not in found.splits  # names are preferred to ids
    taken = [file for files in found.splits.values() for file in files]
    found.others = [file for file in plain if file not in taken]
    return found


def missing_part(files: Iterable[Path]) -> tuple[str, str] | None:
    """Return the first file that is not among those it is numbered with, and how many are.

    Some sets are counted from 1. Where those that are there do not tell, it is one that is missing
    either way, or both that may be.
    """
    sets: dict[tuple[str, str], dict[int, tuple[Path, re.Match[str]]]] = {}
    for file in files:
        if found := _PART.fullmatch(stem_of(file)):
            sets.setdefault((found[1], found[3]), {})[int(found[2])] = file, found
    for (name, total), parts in sets.items():
        last = int(total)
        starts = (0,) if 0 in parts else (1,) if last in parts else (0, 1)
        counted = (range(start, start + last) for start in starts)
        firsts = (next((n for n in numbers if n not in parts), None) for numbers in counted)
        lacking = [first for first in firsts if first is not None]
        if lacking:
            if lacking[-1] < last:  # counted from 0, that one is missing as well
                del lacking[:-1]
            file, found = next(iter(parts.values()))
            end = "" if found[4] else file.name.removeprefix(stem_of(file))
            numbers = (str(number).zfill(len(found[2])) for number in lacking)
            names = " or ".join(f"{name}-{number}-of-{total}{end}" for number in numbers)
            return names, f"{len(parts)} of {last}"
    return None


def refuse_missing_part(folder: Path, files: Iterable[Path]) -> None:
    """Raise where a numbered file of a folder is not there: what was copied half looks whole."""
    if lacking := missing_part(files):
        raise UserError(
            f"{folder} has no {shown(lacking[0])}, and {lacking[1]} such files; get what is "
            "missing, or rename the others if they are all that you want."
        )


def no_training_triples(folder: Path) -> UserError:
    """Say what a folder holds in place of training triples."""
    names = list(_present(folder))
    listed = ", ".join(shown(name) for name in names[:8])
    listed += ", ..." if len(names) > 8 else ""
    return UserError(
        f"{folder} has no training triples: it holds {listed or 'no files'}. Expected train.txt, "
        ".tsv, .csv, .nt, .ttl, .rdf (each also .gz, .bz2 or .xz) or .parquet, or OpenKE's "
        "train2id.txt."
    )


def _present(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by name, sorted."""
    try:
        return {entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_file()}
    except OSError as error:
        raise unreadable(folder, error) from error
