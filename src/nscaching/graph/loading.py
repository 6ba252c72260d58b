"""Graphs from every kind of source, and valid and test held out so that the test is fair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nscaching.errors import NSCachingError, UserError, nearest_names, shown
from nscaching.graph.columns import read_parquet
from nscaching.graph.datasets import fetch_dataset, known_dataset, list_datasets
from nscaching.graph.files import Source, folder_files, kind_of, stem_of, unreadable
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.names import SPLITS, Ids, NamedTriples, Reading, encode
from nscaching.graph.openke import load_openke
from nscaching.graph.pairs import contained, pair_keys
from nscaching.graph.rdf import RDF_KINDS, read_ntriples, read_rdf
from nscaching.graph.tables import fast_columns, read_delimited


class Frame(Protocol):
    """A table of pandas, polars or pyarrow: all of them speak Arrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object:
        """Hand the table over."""


#: What can be given for a graph: itself, a path or a name, a table, or triples of names.
GraphSource = KnowledgeGraph | str | Path | Frame | Sequence[Sequence[Any]] | np.ndarray


def load_graph(source: GraphSource, *, split: float = 0.0, seed: int = 0) -> KnowledgeGraph:
    """Load a knowledge graph from the name of a data set, a folder or a file.

    Args:
        source: A string that is a data set's name means the data set, whatever lies in the working
            folder; ``./NAME`` or a :class:`~pathlib.Path` means the file or folder. A graph is
            returned as it is. A data frame, or a list or array of (head, relation, tail) names, is
            made a graph by :meth:`KnowledgeGraph.from_dataframe` or
            :meth:`KnowledgeGraph.from_triples`; whole numbers in it are names.
        split: Share of the triples held out for valid, and the same again for test, for sources
            with training triples only.
        seed: Decides which triples are held out.

    Returns:
        The graph.

    Examples:
        >>> graph = ns.load_graph("world")
        >>> graph = ns.load_graph([("a", "likes", "b"), ("b", "likes", "a")])

    """
    if not 0 <= split < 0.5:
        raise UserError(
            f"split is {split}; it must be at least 0 and less than 0.5, the share of the triples "
            "for valid and again for test."
        )
    graph = _load(source) if isinstance(source, str | Path) else as_graph(source)
    return _held_out(graph, split, seed) if split > 0 else graph


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
    """Load the data set of that name, else the file or folder."""
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
    elif there and path.is_dir() and (path / "nscaching.json").is_file():
        return _open_store(path)
    elif there and path.is_dir() and (path / ".nscaching-new").is_dir():
        raise UserError(
            f"{path} holds a graph that is being written, or was not finished; ingest again."
        )
    elif there and path.is_dir():
        graph = _load_folder(path, path.resolve().name)
    elif there:
        graph = assemble({"train": _read(path)}, {}, stem_of(path))  # all of it is for training
    else:
        near = nearest_names(str(source), [known.name for known in list_datasets()]) or "."
        raise UserError(
            f"There is no file or folder {shown(source, 200)}, and no data set so named{near}"
        )
    return with_remarks(graph)


def _open_store(path: Path) -> KnowledgeGraph:
    """Open a graph on disk; another folder of ours is no graph."""
    from nscaching.graph.store import GraphStore  # loads torch

    store = GraphStore(path)
    kind = store.read_marker().get("kind")
    if kind != store.kind:
        raise UserError(f"{path} is not a graph: {store.marker.name} says that it is a '{kind}'.")
    return store.open()


def _exists(path: Path) -> bool:
    """Say whether there is such a path; a name no path can have is no path."""
    try:
        return path.exists()
    except PermissionError as error:
        raise unreadable(path, error) from error
    except (OSError, ValueError):
        return False


def _read(path: Path) -> Reading:
    """Read one file of triples with the reader its extension asks for."""
    kind = kind_of(path)
    if kind == ".parquet":
        return read_parquet(path)
    if kind == ".nt":
        return read_ntriples(path)
    if kind in RDF_KINDS:
        return read_rdf(path)
    return read_delimited(path)


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
    plain = {split: _read(path) for split, path in files.splits.items()}
    labelled = {
        split: read_delimited(path, labelled=True) for split, path in files.labelled.items()
    }
    return assemble(plain, labelled, name)


def _load_world(path: Path) -> KnowledgeGraph:
    """Read the bundled file of four tab-separated columns: split, head, relation, tail."""
    columns = fast_columns(Source(path), "\t", 4)
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
    return KnowledgeGraph(entities, relations, *ids[:3], name=name, labelled=signed, notes=notes)


def _held_out(graph: KnowledgeGraph, share: float, seed: int) -> KnowledgeGraph:
    """Return the graph with valid and test taken out of its training triples; ids stay."""
    if graph.on_disk:
        raise UserError(f"'{graph.name}' is on disk; give --split to 'nscaching ingest' instead.")
    if len(graph.valid) or len(graph.test) or graph.labelled:
        raise UserError(f"'{graph.name}' has valid or test triples of its own; use split 0.")
    train, valid, test = split_triples(
        graph.train, graph.num_entities, graph.num_relations, share, seed
    )
    notes = list(graph.notes)
    wanted = round(share * len(graph.train))
    if len(valid) == 0 and len(test) == 0:
        notes.append(
            "No triple was held out for valid and test: the graph is too small, or every triple is "
            "the only one of an entity. Nothing will be validated or tested."
        )
    elif min(len(valid), len(test)) < max(wanted, 1):
        notes.append(
            f"{len(valid):,} triples were held out for valid and {len(test):,} for test, where "
            f"{wanted:,} each were asked for: every entity keeps a training triple, and triples "
            "over the same two entities stay together."
        )
    return KnowledgeGraph(
        graph.entities,
        graph.relations,
        train,
        valid,
        test,
        name=graph.name,
        duplicates=graph.duplicates,
        notes=notes,
    )


def with_remarks(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Add sentences on duplicates, unseen entities and leaked triples to the notes of a graph."""
    held_out = np.concatenate([graph.valid, graph.test])
    unseen = []
    for columns, count in (([0, 2], graph.num_entities), ([1], graph.num_relations)):
        missing = np.zeros(count, dtype=bool)
        missing[held_out[:, columns]] = True
        for column in columns:
            missing[graph.train[:, column]] = False
        unseen.append(int(missing.sum()))
    leaked = contained(held_out, graph.train, graph.num_entities, graph.num_relations)
    graph.notes += remarks(graph.duplicates, unseen, int(leaked.sum()))
    return graph


def remarks(duplicates: Mapping[str, int], unseen: Sequence[int], leaked: int) -> list[str]:
    """Return sentences on duplicates, unseen entities and relations, and leaked triples."""
    entities, relations = unseen
    absent, held = "not occur in train", "of valid and test"
    told = [
        *(
            (
                duplicates[split],
                f"duplicate line of {split} was",
                f"duplicate lines of {split} were",
            )
            for split in SPLITS
        ),
        (entities, f"entity {held} does", f"entities {held} do"),
        (relations, f"relation {held} does", f"relations {held} do"),
        (leaked, f"triple {held} is", f"triples {held} are"),
    ]
    ends = (*["dropped"] * len(SPLITS), absent, absent, "also in train")
    return [
        f"{count:,} {one if count == 1 else many} {end}."
        for (count, one, many), end in zip(told, ends, strict=True)
        if count
    ]


# Holding out ------------------------------------------------------------------------------------

Wide = npt.NDArray[np.int64]
PASSES = 12
"""Bound on the vectorised passes; each leaves far less to do than the one before."""


def split_triples(
    triples: Ids, num_entities: int, num_relations: int, share: float, seed: int
) -> tuple[Ids, Ids, Ids]:
    """Return train, valid and test, with ``share`` of the triples in each of the last two.

    A held-out triple is no test when its entities never occur in training, and no test when its
    mirror image does. So every entity and relation keeps a training triple, and all triples over
    one unordered pair of entities (symmetric, inverse and parallel ones alike) stay together.
    Fewer are held out when the graph is too small or too sparse to spare that many.
    """
    if not 0 <= share < 0.5:
        raise ValueError(f"share must be at least 0 and less than 0.5, not {share}")
    wanted = round(share * len(triples))
    if wanted == 0:
        return triples, triples[:0], triples[:0]
    rng = np.random.default_rng(seed)
    low, high = np.sort(triples[:, ::2], axis=1).T
    pairs, pair = np.unique(pair_keys(low, high, num_entities), return_inverse=True)
    count = len(pairs)
    group = rng.permutation(count).astype(np.int32)[pair.reshape(-1)]
    del pairs, pair  # large, and not needed any more
    sizes = np.bincount(group, minlength=count)
    free = _spare_groups(triples, group, num_entities, num_relations, sizes, 2 * wanted, rng)
    spare = int(sizes[free].sum())
    valid = _fill(free, sizes, min(wanted, spare - spare // 2))
    rest = free[~np.isin(free, valid)]
    test = _fill(rest, sizes, min(wanted, int(sizes[rest].sum())))
    where = np.zeros(count, dtype=np.int8)
    where[valid], where[test] = 1, 2
    place = where[group]
    train, held, last = (np.ascontiguousarray(triples[place == at]) for at in range(3))
    return train, held, last


def _spare_groups(
    triples: Ids,
    group: Ids,
    num_entities: int,
    num_relations: int,
    sizes: Wide,
    wanted: int,
    rng: np.random.Generator,
) -> Wide:
    """Return, in random order, groups that training can do without, all at the same time.

    Walking the groups in a random order, those that show some entity or relation for the first time
    cover everything, so the others are spare. Walking the cover itself in another order makes it
    smaller, which is repeated while more spare groups are wanted.
    """
    parts = np.concatenate([triples[:, 0], triples[:, 2], triples[:, 1] + np.int32(num_entities)])
    owner = np.tile(group, 3)
    free: list[Wide] = []
    needed = np.ones(len(sizes), dtype=bool)
    found = 0
    for _ in range(PASSES):
        if not needed.all():
            inside = needed[owner]
            parts, owner = parts[inside], owner[inside]
        rank = rng.permutation(len(sizes)).astype(np.int32)
        first = np.full(num_entities + num_relations, len(sizes), dtype=np.int32)
        np.minimum.at(first, parts, rank[owner])
        covers = np.zeros(len(sizes) + 1, dtype=bool)
        covers[first] = True
        cover = covers[rank]  # groups that show something first, back from their rank
        freed = np.flatnonzero(needed & ~cover)
        free.append(rng.permutation(freed))
        needed = cover
        found += int(sizes[freed].sum())
        if found >= wanted:
            break
    return np.concatenate(free)


def _fill(groups: Wide, sizes: Wide, capacity: int) -> Wide:
    """Take groups in order while they fit into ``capacity`` triples, skipping what does not."""
    taken: list[Wide] = [groups[:0]]
    left = groups
    for _ in range(PASSES):
        left = left[sizes[left] <= capacity]
        if capacity == 0 or len(left) == 0:
            break
        count = int(np.searchsorted(np.cumsum(sizes[left]), capacity, side="right"))
        taken.append(left[:count])
        capacity -= int(sizes[left[:count]].sum())
        left = left[count:]
    return np.concatenate(taken)
