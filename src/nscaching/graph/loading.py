"""Graphs from every kind of source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nscaching.errors import NSCachingError, UserError, nearest_names, resume_command, shown
from nscaching.graph.datasets import (
    fetch_dataset,
    known_dataset,
    list_datasets,
    named_folder,
)
from nscaching.graph.files import (
    Progress,
    Source,
    folder_files,
    kind_of,
    no_training_triples,
    no_triples,
    not_utf8,
    read_bytes,
    stem_of,
    text_blocks,
    unreadable,
)
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.names import (
    CODED,
    SPLITS,
    FirstLine,
    Ids,
    Longs,
    NamedTriples,
    Reading,
    coded_chunks,
    encode,
    parquet_blocks,
)
from nscaching.graph.rdf import RDF_KINDS, literals_dropped, ntriples_block, only_literals, read_rdf
from nscaching.graph.splitting import first_line_remarks, hold_out, with_remarks
from nscaching.graph.tables import Delimited, fast_columns


class Frame(Protocol):
    """A table of pandas, polars or pyarrow: all of them speak Arrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object:
        """Hand the table over."""


#: One of these is in a folder that this package writes, finished or not.
_OURS = ("nscaching.json", ".nscaching-new", ".nscaching-whole", ".nscaching-moving")
#: What can be given for a graph: itself, a path or a name, a table, or triples of names.
GraphSource = KnowledgeGraph | str | Path | Frame | Sequence[Sequence[Any]] | np.ndarray


def load_graph(source: GraphSource, *, split: float | None = 0.0, seed: int = 0) -> KnowledgeGraph:
    """Load a knowledge graph from the name of a data set, a folder or a file.

    Args:
        source: A string that is a data set's name means the data set, whatever lies in the working
            folder; ``./NAME`` or a :class:`~pathlib.Path` means the file or folder. A graph is
            returned as it is. A data frame, or a list or array of (head, relation, tail) names, is
            made a graph by :meth:`KnowledgeGraph.from_dataframe` or
            :meth:`KnowledgeGraph.from_triples`; whole numbers in it are names.
        split: Share of the triples held out for valid, and the same again for test, for sources
            with training triples only; None is what ``train`` takes, 0.05 and at most 20,000.
        seed: Decides which triples are held out.

    Returns:
        The graph.

    Examples:
        >>> graph = ns.load_graph("world")
        >>> graph = ns.load_graph([("a", "likes", "b"), ("b", "likes", "a")])

    """
    if split is not None and not 0 <= split < 0.5:
        raise UserError(
            f"split is {split}; it must be at least 0 and less than 0.5, the share of the triples "
            "for valid and again for test."
        )
    graph = _load(source) if isinstance(source, str | Path) else as_graph(source)
    return graph if split == 0 else hold_out(graph, split, seed)


def as_graph(source: Any) -> KnowledgeGraph:
    """Return the graph of what is in memory: itself, a data frame, or triples of names."""
    if isinstance(source, KnowledgeGraph):
        return source
    if hasattr(source, "__arrow_c_stream__"):
        return KnowledgeGraph.from_dataframe(source)
    if isinstance(source, np.ndarray):
        source = source.tolist()
    if not isinstance(source, list | tuple):
        raise UserError(
            f"A {type(source).__name__} is no graph. Name a data set, a folder or a file, or make "
            "a graph with KnowledgeGraph.from_triples, from_dataframe, from_networkx or another "
            "of its from_ methods."
        )
    # Whole numbers are names, as in a data frame; other values are checked later.
    rows = [
        tuple(str(name) if type(name) is int else name for name in row)
        if isinstance(row, list | tuple)
        else row
        for row in source
    ]
    return with_remarks(KnowledgeGraph.from_triples(rows))


def _load(source: str | Path) -> KnowledgeGraph:
    """Load the data set of that name, else the file or folder, else a folder in NSCACHING_DATA."""
    path = Path(source).expanduser()
    there = _exists(path)
    info = known_dataset(str(source))
    if info is not None and (isinstance(source, str) or not there):
        folder = fetch_dataset(info.name)
        graph = _load_world(folder) if info.bundled else _load_folder(folder, info.name)
        if there:
            graph.notes.append(
                f"'{source}' is the data set, not the {'folder' if path.is_dir() else 'file'} of "
                f"that name here; write ./{source} for that."
            )
    elif there and path.is_dir() and any((path / name).exists() for name in _OURS):
        return _open_store(path)
    elif there and path.is_dir():
        graph = _load_folder(path, path.resolve().name)
    elif there:
        graph = assemble({"train": _read(path)}, {}, stem_of(path))  # all of it is for training
    elif (own := named_folder(str(source))) is not None:
        graph = _load_folder(own, own.name)
    else:
        names = [known.name for known in list_datasets()]
        listed = "; 'nscaching datasets list' shows those there are."
        near = nearest_names(str(source), names) or listed
        raise UserError(
            f"There is no file or folder {shown(source, 200)}, and no data set so named{near}"
        )
    return with_remarks(graph)


def _open_store(path: Path) -> KnowledgeGraph:
    """Open a graph on disk; another folder of ours is no graph."""
    from nscaching.graph.store import GraphStore  # loads torch

    store = GraphStore(path)
    store.recover()
    if not store.marker.is_file():
        raise UserError(
            f"{path} holds a graph that is being written, or was not finished; ingest again."
        )
    kind = store.read_marker().get("kind")
    if kind != store.kind:
        said = f"{path} is not a graph: {store.marker.name} says that it is a '{shown(kind)}'."
        remedy = f" Resume it with:\n  {resume_command('train', path)}" if kind == "run" else ""
        raise UserError(said + remedy)
    return store.open()


def _exists(path: Path) -> bool:
    """Say whether there is such a path; a name no path can have is no path."""
    try:
        return path.exists()
    except PermissionError as error:
        raise unreadable(path, error) from error
    except (OSError, ValueError):
        return False


def triple_blocks(
    path: Path, notes: list[str], progress: Progress | None = None, *, labelled: bool = False
) -> Iterator[Reading]:
    """Yield the triples of a file, of whichever kind, in blocks; remarks are added to the notes."""
    kind, count, literals = kind_of(path), 0, 0
    if kind in RDF_KINDS:
        reading = read_rdf(path)
        notes.extend(reading.notes)
        yield reading
        return
    delimited = Delimited(path, labelled=labelled)
    for block in parquet_blocks(path) if kind == ".parquet" else text_blocks(path, progress):
        if isinstance(block, NamedTriples):
            reading = Reading(block)
        elif kind == ".nt":
            triples, dropped = ntriples_block(block)
            reading, literals = Reading(triples), literals + dropped
        else:
            reading = delimited.read(block)
            notes.extend(reading.notes)
        count += len(reading.triples)
        yield reading
    if count == 0:
        raise only_literals(path) if literals else no_triples(path)
    if literals:
        notes.append(literals_dropped(literals, path.name))
    notes.extend(delimited.remarks())


def _read(*paths: Path, labelled: bool = False) -> Reading:
    """Read all triples of some files, coded block by block to save memory."""
    notes: list[str] = []
    first: list[FirstLine] = []
    columns: list[list[Any]] = [[], [], []]
    labels: list[Any] = []
    for block in (b for path in paths for b in triple_blocks(path, notes, labelled=labelled)):
        named = block.triples
        for chunks, column in zip(columns, (named.head, named.relation, named.tail), strict=True):
            chunks.extend(coded_chunks(column))
        labels += block.labels.chunks if labelled else []
        first += block.first
    triples = NamedTriples(*(pa.chunked_array(chunks, CODED) for chunks in columns))
    signs = pa.chunked_array(labels, pa.string()) if labelled else None
    return Reading(triples, signs, notes, first)


def read_triples(path: str | Path) -> list[tuple[str, str, str]]:
    """Read the named triples of one file, in its order and with its repetitions."""
    named = _read(Path(path).expanduser()).triples
    columns = (column.to_pylist() for column in (named.head, named.relation, named.tail))
    return list(zip(*columns, strict=True))


def _load_folder(folder: Path, name: str) -> KnowledgeGraph:
    """Load a folder that holds train and maybe valid, test and labelled files."""
    files = folder_files(folder)
    if files.openke:
        return load_openke(folder, name)
    if "train" not in files.splits:
        raise no_training_triples(folder)
    plain = {split: _read(*paths) for split, paths in files.splits.items()}
    labelled = {split: _read(path, labelled=True) for split, path in files.labelled.items()}
    return assemble(plain, labelled, name)


def _load_world(path: Path) -> KnowledgeGraph:
    """Read the bundled file of four tab-separated columns: split, head, relation, tail."""
    columns = fast_columns(Source(path, read_bytes(path)), "\t", 4)
    if columns is None:
        raise NSCachingError(f"{path} is damaged; install the package again.")
    split, *names = columns
    readings = {
        part: Reading(NamedTriples(*(column.filter(pc.equal(split, part)) for column in names)))
        for part in SPLITS
    }
    return assemble(readings, {}, "world")


def assemble(plain: dict[str, Reading], labelled: dict[str, Reading], name: str) -> KnowledgeGraph:
    """Turn what the readers returned, by split, into one graph."""
    nothing = NamedTriples.from_tuples([])
    named = [plain[split].triples if split in plain else nothing for split in SPLITS]
    entities, relations, ids = encode([*named, *(read.triples for read in labelled.values())])
    signed = {
        split: np.column_stack([triples, np.asarray(read.labels.cast(pa.int32()))])
        for (split, read), triples in zip(labelled.items(), ids[3:], strict=True)
    }
    notes = [note for read in (*plain.values(), *labelled.values()) for note in read.notes]
    graph = KnowledgeGraph(entities, relations, *ids[:3], name=name, labelled=signed, notes=notes)
    first = [line for read in plain.values() for line in read.first]
    splits = (graph.train, graph.valid, graph.test)
    graph.notes += first_line_remarks(first, graph.entities, graph.relations, splits)
    return graph


# OpenKE folders: triples as ids, with the names in files of their own -----------------------------
#
# Every file starts with a line that counts the rest. ``entity2id.txt`` and ``relation2id.txt`` hold
# a name and its id; ``train2id.txt``, ``valid2id.txt`` and ``test2id.txt`` hold head, tail and
# relation, in that order.

_NUMBER = re.compile(rb"\s*(-?[0-9]{1,18})\s*")


def load_openke(folder: Path, name: str) -> KnowledgeGraph:
    """Load the graph; a missing valid2id.txt or test2id.txt means no such triples."""
    entities = _read_names(folder / "entity2id.txt")
    relations = _read_names(folder / "relation2id.txt")
    limits = (len(entities), len(entities), len(relations))
    splits = []
    for split in SPLITS:
        path = folder / f"{split}2id.txt"
        if path.exists() or split == "train":
            splits.append(_read_ids(path, limits))
        else:
            splits.append(np.zeros((0, 3), dtype=np.int32))
    if len(splits[0]) == 0:
        raise UserError(f"{folder / 'train2id.txt'} holds no triples; expected at least one.")
    return KnowledgeGraph(entities, relations, *splits, name=name)


def _number(text: bytes) -> int | None:
    """Return a whole number of at most 18 digits, or None."""
    found = _NUMBER.fullmatch(text)
    return int(found[1]) if found else None


def _quoted(line: bytes) -> str:
    return f"'{shown(line.decode('utf-8', errors='replace'), 60)}'"


def _lines(path: Path) -> tuple[int, bytes]:
    """Return the count of the first line and the bytes after it."""
    first, _, rest = read_bytes(path).replace(b"\r\n", b"\n").partition(b"\n")
    count = _number(first)
    if count is None or count < 0:
        raise UserError(
            f"Line 1 of {path} is {_quoted(first)}; expected the number of lines that follow."
        )
    return count, rest


def _check_count(path: Path, promised: int, found: int) -> None:
    """Raise unless the file holds as many lines as it promised."""
    if promised != found:
        raise UserError(
            f"Line 1 of {path} promises {promised:,} lines but {found:,} follow; the file may be "
            "truncated, or the number is wrong."
        )


def _read_names(path: Path) -> list[str]:
    """Return names by id; the ids must be 0, 1, 2, ... in any order."""
    promised, rest = _lines(path)
    names: dict[int, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(rest.split(b"\n"), 2):
        if not line.strip():
            continue
        place = f"Line {number} of {path}"
        name, _, last = line.rstrip().rpartition(b"\t" if b"\t" in line else b" ")
        identifier = _number(last)
        if not name or b"\r" in name or identifier is None:
            raise UserError(f"{place} is {_quoted(line)}; expected a name, a tab and an id.")
        if not 0 <= identifier < promised:
            raise UserError(f"{place} has the id {identifier}; ids go from 0 to {promised - 1}.")
        if identifier in names:
            raise UserError(
                f"{place} has the id {identifier}, which '{shown(names[identifier])}' has."
            )
        try:
            names[identifier] = name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, name[error.start]) from error
        before = lines.setdefault(names[identifier], number)
        if before != number:
            raise UserError(
                f"{place} has the name '{shown(names[identifier])}', as line {before} has; names "
                "must be distinct."
            )
    _check_count(path, promised, len(names))
    return [names[identifier] for identifier in range(promised)]


def _read_ids(path: Path, limits: tuple[int, int, int]) -> Ids:
    """Return triples as head, relation, tail, each id checked against its range."""
    promised, rest = _lines(path)
    columns = fast_columns(Source(path, rest.replace(b"\t", b" ")), " ", 3)
    try:
        numbers = [column.cast(pa.int64()).to_numpy() for column in columns or ()]
    except pa.ArrowInvalid:
        numbers = []
    rows = np.column_stack(numbers) if numbers else None
    if rows is None or ((rows < 0) | (rows >= np.array(limits))).any():
        rows = _read_by_line(rest, path, limits)
    _check_count(path, promised, len(rows))
    return np.ascontiguousarray(rows[:, [0, 2, 1]], dtype=np.int32)


def _read_by_line(data: bytes, path: Path, limits: tuple[int, int, int]) -> Longs:
    """Parse line by line, tolerating extra spaces, and name the first bad line."""
    rows: list[list[int]] = []
    for number, line in enumerate(data.split(b"\n"), 2):
        parts = line.split()
        if not parts:
            continue
        place = f"Line {number} of {path}"
        row = [value for value in map(_number, parts) if value is not None]
        if len(parts) != 3 or len(row) != 3:
            raise UserError(f"{place} is {_quoted(line)}; expected three ids: head tail relation.")
        for kind, value, limit in zip(("head", "tail", "relation"), row, limits, strict=True):
            if not 0 <= value < limit:
                raise UserError(
                    f"{place} has the {kind} id {value}; ids go from 0 to {limit - 1} "
                    "(the order is head tail relation)."
                )
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)
