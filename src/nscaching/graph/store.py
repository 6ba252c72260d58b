"""A graph on disk: triples, names and pairs as files that are mapped, not read.

``nscaching ingest`` writes such a folder, and :func:`load_graph` opens it at once whatever its
size: the system reads the pages that are used and may drop them again. Names are sorted, so that a
name is found by a binary search; triples are sorted by relation, head and tail.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import numpy.typing as npt

from nscaching.artefacts import MARKER, ArtefactFolder
from nscaching.artefacts.files import explained_writes, file_digest, write_atomically
from nscaching.errors import UserError
from nscaching.graph.knowledge_graph import KnowledgeGraph, fingerprint_of
from nscaching.graph.names import SPLITS, Ids
from nscaching.graph.pairs import PairRows, SideName, TrainingRows, pair_parts

#: Ids have 32 bits.
MOST = 2**31 - 1
SIDES: tuple[SideName, ...] = ("head", "tail")
PARTS = {"of_triple": "<i4", "anchor": "<i4", "relation": "<i4", "offsets": "<i8", "answers": "<i4"}
_BLOCK = 1 << 20
#: Bytes of a graph up to which opening it reads and checks all of it; training always does.
_READ_WHOLE = 1 << 28


class GraphStore(ArtefactFolder):
    """The files of a graph on disk."""

    kind = "graph"
    what = "a graph"
    otherwise = "is not a graph of 'nscaching ingest'"
    own = (
        *(f"{split}.npy" for split in SPLITS),
        *(f"{kind}.{part}" for kind in ("entities", "relations") for part in ("names", "ends.npy")),
        *(f"{side}.{part}.npy" for side in SIDES for part in PARTS),
    )
    needed = ("train.npy", "entities.names")
    resumable = False
    without_marker = "run 'nscaching ingest' again with --overwrite"

    def open(self) -> StoredGraph:
        """Return the graph; files that are missing, cut off or of another graph are refused."""
        self.recover()
        told = self.read_marker()
        files = self.told("files")
        if set(files) != {*self.own} or not all(isinstance(size, int) for size in files.values()):
            raise self.damaged(self.marker, "does not list the files of a graph")
        for name, size in files.items():
            file = self.path / name
            if not file.is_file():
                raise self.damaged(file, "is missing")
            if file.stat().st_size != size:
                found = file.stat().st_size
                raise self.damaged(file, f"has {found:,} bytes, and {size:,} were written")
        if self.headers(self.path) != told.get("headers"):
            raise self.damaged(self.path, "has files of another graph")
        if sum(files.values()) <= _READ_WHOLE:
            self.verify()
        return StoredGraph(self, told)

    def verify(self) -> None:
        """Read every byte and refuse a file that was changed: kernels take ids as they are."""
        written = self.told("digests")
        for name, digest in self.digests(self.path).items():
            if written.get(name) != digest:
                raise self.damaged(self.path / name, "was changed since it was written")

    @classmethod
    def digests(cls, folder: Path) -> dict[str, str]:
        """Return the SHA-256 of every file."""
        with ThreadPoolExecutor(2) as pool:  # hashing lets other threads run
            found = pool.map(lambda name: file_digest(folder / name), cls.own)
            return dict(zip(cls.own, found, strict=True))

    def damaged(self, what: Path, wrong: str) -> UserError:
        """Return the error for a store that cannot be used."""
        return UserError(
            f"{what} {wrong}, so that {self.path} cannot be used. Restore it from a copy, or run "
            "'nscaching ingest' again with --overwrite."
        )

    @classmethod
    def headers(cls, folder: Path) -> str:
        """Return a digest of how every file begins and ends: its header, and some content."""
        digest = hashlib.sha256()
        for name in cls.own:
            with (folder / name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                digest.update(f"{name} {size} ".encode())
                for start in (0, max(0, size - 4096)):
                    file.seek(start)
                    digest.update(file.read(4096))
        return digest.hexdigest()

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
        """Map an array; what is written to it stays in memory."""
        file = self.path / f"{name}.npy"
        try:
            found: npt.NDArray[Any] = np.load(file, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self.damaged(file, f"is not a whole array ({error})") from error
        if shape is not None and found.shape != shape:
            raise self.damaged(file, f"has the shape {found.shape} where {shape} is expected")
        return found.view(np.ndarray)

    def link_to(self, folder: Path) -> None:
        """Put the files into another folder, without a copy where the file system has links.

        They are verified first: from then on a run relies on them.
        """
        self.verify()
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*self.own, MARKER):
            source = self.path / name
            try:
                (folder / name).hardlink_to(source)
            except OSError:  # another file system
                copy = partial(shutil.copyfile, source)
                write_atomically(folder / name, copy, source.stat().st_size)


class StoredNames(Sequence[str]):
    """Names on disk, sorted by their UTF-8 bytes; a name is read when it is asked for."""

    def __init__(self, names: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        self.bytes, self.ends = names, ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if step != 1:
                return [self[at] for at in range(start, stop, step)]
            ends = self.ends[start : max(stop, start) + 1].tolist()
            text = self.bytes[ends[0] : ends[-1]].tobytes() if ends else b""
            return [text[a - ends[0] : b - ends[0]].decode("utf-8") for a, b in pairwise(ends)]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        at = place % len(self)
        return self.bytes[self.ends[at] : self.ends[at + 1]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self[start : start + _BLOCK]

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        """Return the id of a name."""
        place = bisect_left(self, value)  # UTF-8 sorts as its characters do
        stop = len(self) if stop is None else stop
        if not start <= place < min(stop, len(self)) or self[place] != value:
            raise ValueError(f"{value!r} is not a name")
        return place

    def __contains__(self, name: object) -> bool:
        place = bisect_left(self, name) if isinstance(name, str) else len(self)
        return place < len(self) and self[place] == name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StoredNames):
            same = np.array_equal(self.ends, other.ends)
            return same and np.array_equal(self.bytes, other.bytes)
        if isinstance(other, Sequence) and len(other) == len(self):
            return all(mine == its for mine, its in zip(self, other, strict=True))
        return False

    __hash__ = None  # type: ignore[assignment]

    def near(self, name: str) -> list[str]:
        """Return the names that begin alike, to offer in place of one that is not there."""
        place = bisect_left(self, name)
        return self[max(0, place - 1000) : place + 1000]


class NameIds(Mapping[str, int]):
    """The ids of names on disk: what a dictionary is for names in memory."""

    def __init__(self, names: StoredNames) -> None:
        self._names = names

    def __getitem__(self, name: str) -> int:
        try:
            return self._names.index(name)
        except (ValueError, TypeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class StoredGraph(KnowledgeGraph):
    """A knowledge graph on disk; arrays are mapped, names are read when they are asked for."""

    on_disk = True

    def __init__(self, store: GraphStore, told: Mapping[str, Any]) -> None:
        self.store = store
        try:
            self.name = str(told["name"])
            self.notes = [str(note) for note in told["notes"]]
            self.duplicates = {split: int(told["duplicates"][split]) for split in SPLITS}
            counts = {kind: int(count) for kind, count in told["counts"].items()}
            self.fingerprint = str(told["fingerprint"])
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise store.damaged(store.marker, "does not say what the graph holds") from error
        self.labelled = {}
        self.train, self.valid, self.test = (
            store.array(split, (counts.get(split, 0), 3)) for split in SPLITS
        )
        self.entities = self._names("entities", counts.get("entities", 0))
        self.relations = self._names("relations", counts.get("relations", 0))
        self.entity_ids = NameIds(self.entities)
        self.relation_ids = NameIds(self.relations)

    def _near(self, name: str, names: Sequence[str]) -> Sequence[str]:
        return names.near(name) if isinstance(names, StoredNames) else names

    def _names(self, kind: str, count: int) -> StoredNames:
        ends = self.store.array(f"{kind}.ends", (count + 1,))
        text = mapped_bytes(self.store.path / f"{kind}.names")
        if ends[-1] != len(text):
            raise self.store.damaged(self.store.path / f"{kind}.names", "does not fit its ends")
        return StoredNames(text, ends)

    @cached_property
    def rows(self) -> TrainingRows:
        """The numbered pairs (r, t) and (h, r) of the training triples."""
        head, tail = (
            PairRows(*(self.store.array(f"{side}.{part}") for part in PARTS)) for side in SIDES
        )
        return TrainingRows(head=head, tail=tail)


def mapped_bytes(path: Path) -> npt.NDArray[np.uint8]:
    """Map a file, which may be empty."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r")


# Writing ------------------------------------------------------------------------------------------


class ArrayWriter:
    """Writes a .npy file of unknown length block by block; the header is completed at the end."""

    def __init__(self, path: Path, dtype: str, width: int | None = None) -> None:
        self.path, self.rows = path, 0
        self._dtype, self._width = np.dtype(dtype), width
        with explained_writes(path):
            self._file: BinaryIO = path.open("wb")
            self._header()

    def _header(self) -> None:
        shape = (self.rows,) if self._width is None else (self.rows, self._width)
        told = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little"))
        self._file.write(f"{told!r}".ljust(117).encode("latin-1") + b"\n")

    def append(self, block: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        with explained_writes(self.path):
            self._file.write(np.ascontiguousarray(block, dtype=self._dtype).data)
        self.rows += len(block)

    def close(self) -> None:
        """Complete the file."""
        with explained_writes(self.path):
            self._header()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


class NameWriter:
    """Writes names in sorted order: their bytes, and where each ends."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / f"{kind}.names"
        with explained_writes(self.path):
            self._text: BinaryIO = self.path.open("wb")
        self._ends = ArrayWriter(folder / f"{kind}.ends.npy", "<i8")
        self._ends.append(np.zeros(1, dtype=np.int64))
        self._last = 0

    def append(self, names: Any) -> None:
        """Add an Arrow array of strings."""
        import pyarrow as pa

        _, ends, text = names.cast(pa.large_string()).buffers()
        offsets = np.frombuffer(ends, dtype="<i8")[names.offset : names.offset + len(names) + 1]
        with explained_writes(self.path):
            self._text.write(memoryview(text)[offsets[0] : offsets[-1]] if text else b"")
        self._ends.append(offsets[1:] - offsets[0] + self._last)
        self._last += int(offsets[-1] - offsets[0])

    def close(self) -> int:
        """Complete the files; return how many names there are."""
        with explained_writes(self.path):
            self._text.close()
        self._ends.close()
        return self._ends.rows - 1


def write_pairs(folder: Path, num_entities: int, num_relations: int) -> Iterator[int]:
    """Write the pairs of ``train.npy`` beside it; yield how many triples were done since."""
    train: Ids = np.load(folder / "train.npy", mmap_mode="r")
    for side in SIDES:
        files = {part: ArrayWriter(folder / f"{side}.{part}.npy", PARTS[part]) for part in PARTS}
        whole = files.pop("of_triple")
        for start in range(0, len(train), _BLOCK):  # a full disk under a map is a crash
            whole.append(np.zeros(min(_BLOCK, len(train) - start)))
        whole.close()
        rows = np.load(whole.path, mmap_mode="r+")
        facts = 0
        files["offsets"].append(np.zeros(1, dtype=np.int64))
        for part in pair_parts(train, side, num_entities, num_relations, rows):
            files["anchor"].append(part.anchor)
            files["relation"].append(part.relation)
            files["offsets"].append(facts + np.cumsum(part.counts))
            files["answers"].append(part.answers)
            facts += len(part.answers)
            yield len(part.answers)
        rows.flush()
        for file in files.values():
            file.close()


def read_pairs(folder: Path, side: SideName) -> PairRows:
    """Map the pairs of one side that :func:`write_pairs` wrote."""
    parts = (np.load(folder / f"{side}.{part}.npy", mmap_mode="r") for part in PARTS)
    return PairRows(*parts)


def marker_of(
    folder: Path, name: str, duplicates: Mapping[str, int], notes: Iterable[str]
) -> dict[str, Any]:
    """Return what the marker of a store says of its files."""
    splits = {split: np.load(folder / f"{split}.npy", mmap_mode="r") for split in SPLITS}
    kinds = ("entities", "relations")
    ends = {kind: np.load(folder / f"{kind}.ends.npy", mmap_mode="r") for kind in kinds}
    names = [(ends[kind], mapped_bytes(folder / f"{kind}.names")) for kind in kinds]
    sizes = {split: len(triples) for split, triples in splits.items()}
    return {
        "id": uuid.uuid4().hex,
        "name": name,
        "counts": sizes | {kind: len(each) - 1 for kind, each in ends.items()},
        "duplicates": dict(duplicates),
        "notes": list(notes),
        "fingerprint": fingerprint_of(names, splits.values()),
        "files": {file: (folder / file).stat().st_size for file in GraphStore.own},
        "headers": GraphStore.headers(folder),
        "digests": GraphStore.digests(folder),
    }
