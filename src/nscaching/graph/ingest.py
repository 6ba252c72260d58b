"""Files of any size into a graph on disk, in bounded memory: what ``nscaching ingest`` does.

Files are read block by block by the readers of :mod:`nscaching.graph`; DuckDB, which spills to disk
what does not fit, finds the distinct names, numbers and sorts the triples. What comes after, the
split and the pairs, reads sorted triples from disk.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nscaching.errors import CannotWrite, UserError
from nscaching.extras import need
from nscaching.graph.files import Progress, stem_of
from nscaching.graph.loading import triple_blocks
from nscaching.graph.names import SPLITS, FirstLine
from nscaching.graph.pairs import blocks_of
from nscaching.graph.sources import Paths, ingested_files, listed
from nscaching.graph.splitting import (
    count_unseen,
    differing_by_spaces,
    first_line_remarks,
    hold_out_on_disk,
    remarks,
)
from nscaching.graph.store import (
    MOST,
    ArrayWriter,
    GraphStore,
    NameWriter,
    StoredGraph,
    StoredNames,
    mapped_bytes,
    marker_of,
    read_pairs,
    write_pairs,
)
from nscaching.interrupt import interruption

_BLOCK = 1 << 20
_SCHEMA = pa.schema([("h", pa.string()), ("r", pa.string()), ("t", pa.string())])
#: Of the memory that is allowed, the part for DuckDB; the interpreter and blocks take the rest.
_SHARE = 0.5
_LEAST = 1 << 30
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}

#: How many names of a table are another one but for spaces, as ``without_spaces`` says; the first.
_SPACE = r"[\x09-\x0d\x1c-\x1f\x{{85}}\pZ]"
_SPACED = rf"""
    SELECT count(*), min(name) FROM {{0}} WHERE regexp_matches(name, '^{_SPACE}|{_SPACE}$|  ')
    AND regexp_replace(regexp_replace(name, '^{_SPACE}+|{_SPACE}+$', '', 'g'), '  +', ' ', 'g')
        IN (SELECT name FROM {{0}})
"""


def ingest(
    source: Paths,
    out: str | Path,
    *,
    valid: Paths = (),
    test: Paths = (),
    split: float = 0.0,
    seed: int = 0,
    memory: str = "4GB",
    threads: int | None = None,
    name: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StoredGraph:
    """Turn files of triples into a graph on disk that opens at once, whatever its size.

    Args:
        source: Files of training triples (.txt, .tsv, .csv, .nt, each also .gz, .bz2 or .xz, or
            .parquet), or folders of such files. A folder keeps its splits: files whose names
            begin with train, valid (validation, val, dev) or test, as in
            ``test-00000-of-00002.parquet``. Without one for train, its other files are.
        out: The folder to write; give it to :func:`load_graph` and :func:`train`.
        valid: Files of triples that choose the model.
        test: Files of triples that judge it.
        split: Share of the training triples held out for valid, and the same again for test.
        seed: Decides which triples are held out.
        memory: Bound on the memory it takes, such as ``"4GB"``; what does not fit goes to disk.
            Some 40 bytes per fact of the largest relation, and with ``split`` 8 per entity, are
            taken in any case.
        threads: Threads of DuckDB; by default one per processor.
        name: What the graph is called in reports; by default the name of the first source.
        overwrite: Replace a graph that is in ``out`` already.
        progress: Called with what is done, the total if known, and what is being done.

    Returns:
        The graph, opened.

    Examples:
        >>> graph = ns.ingest(["part-0.tsv.gz", "part-1.tsv.gz"], "graphs/mine", split=0.01)

    """
    if not 0 <= split < 0.5:
        raise UserError(f"split is {split}; it must be at least 0 and less than 0.5.")
    limit = memory_bytes(memory)
    duckdb = need("duckdb", "large", "Ingesting")
    files, notes = ingested_files(source, valid, test)
    if split and (files["valid"] or files["test"]):
        raise UserError("There are valid or test triples already; use split 0.")
    first = listed(source)[0]
    store = GraphStore(out)
    with store.writing():
        store.refuse_occupied(overwrite)
        with store.replacing() as new:
            spill = new / "spill"
            spill.mkdir()
            work = _Ingestion(new, spill, progress or (lambda *told: None), notes)
            with _explained(duckdb, memory, store.path):
                work.encode(duckdb, files, round(_SHARE * limit), threads)
            if split:
                (new / "train.npy").replace(spill / "all.npy")
                sizes = work.counts["entities"], work.counts["relations"]
                work.notes += hold_out_on_disk(spill / "all.npy", new, *sizes, split, seed)
            work.finish()
            shutil.rmtree(spill)
            called = name or (stem_of(first) if first.is_file() else first.resolve().name)
            store.write_marker(new, **marker_of(new, called, work.duplicates, work.notes))
        return store.open()


def memory_bytes(text: str) -> int:
    """Return the bytes of a size such as 4GB or 512 MiB."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    unit = found[2].upper() if found else "?"
    if found is None or unit not in _UNITS:
        raise UserError(f"memory is '{text}'; give a size such as 4GB or 800MB.")
    size = round(float(found[1]) * _UNITS[unit])
    if size < _LEAST:
        raise UserError(f"memory is {text}; ingesting needs at least 1GiB.")
    return size


@contextmanager
def _explained(duckdb: Any, memory: str, out: Path) -> Iterator[None]:
    """Say what to do about what DuckDB could not."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        if "offload" not in str(error):  # to the disk
            raise UserError(
                f"--memory {memory} is not enough for these files; allow more, or use fewer "
                "--threads."
            ) from error
        free = shutil.disk_usage(out).free
        raise CannotWrite(
            f"Cannot write {out}: the disk is full: sorting takes more than the {free:,} bytes "
            "that are free there; free some space, choose another folder or allow more --memory."
        ) from error
    except RuntimeError as error:
        if "interrupted" not in str(error).lower():
            raise
        raise interruption() from error
    except duckdb.IOException as error:
        reason = str(error).splitlines()[0]
        raise CannotWrite(f"Cannot write {out} ({reason}); free some space.") from error


@dataclass
class _Ingestion:
    """The steps, in order; each leaves what it made in the folder."""

    folder: Path
    spill: Path
    progress: Progress
    notes: list[str] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    counts: dict[str, int] = field(default_factory=dict)
    first: list[FirstLine] = field(default_factory=list)
    spaced: list[str] = field(default_factory=list)  #: remarks on names with spaces

    def encode(
        self, duckdb: Any, files: dict[str, list[Path]], memory: int, threads: int | None
    ) -> None:
        """Number names in sorted order; write the distinct triples of each split, sorted."""
        settings = {
            "memory_limit": f"{memory}B",
            "threads": threads or os.cpu_count() or 1,
            "temp_directory": str(self.spill / "duckdb"),
            "preserve_insertion_order": False,
        }
        base = duckdb.connect(":memory:", config=settings)  # tables are spilled as they are
        try:
            base.execute("CREATE TABLE raw (h VARCHAR, r VARCHAR, t VARCHAR, split UTINYINT)")
            for number, split in enumerate(SPLITS):
                for path in files[split]:
                    self._read(base, path, number)
            ends = "SELECT h AS name FROM raw UNION ALL SELECT t FROM raw"
            self._number(base, "entities", ends)
            self._number(base, "relations", "SELECT r AS name FROM raw")
            for kind, table in (("entity", "entities"), ("relation", "relations")):
                [(count, name)] = base.execute(_SPACED.format(table)).fetchall()
                self.spaced += differing_by_spaces(kind, count, name or "")
            with self._step("numbering the facts"):
                base.execute(
                    "CREATE TABLE ids AS SELECT split, relations.id AS r, a.id AS h, b.id AS t "
                    "FROM raw JOIN entities a ON raw.h = a.name JOIN entities b ON raw.t = b.name "
                    "JOIN relations ON raw.r = relations.name"
                )
                for table in ("raw", "entities", "relations"):
                    base.execute(f"DROP TABLE {table}")
            self._sort(base)
        finally:
            base.close()

    def _read(self, base: Any, path: Path, split: int) -> None:
        """Append the triples of a file to the table of names."""
        failed: list[BaseException] = []
        told = f"reading {path.name}"
        self.progress(0, None, told)

        def report(done: int, total: int | None, name: str) -> None:
            self.progress(done, total, told)

        def batches() -> Iterator[Any]:
            try:
                for block in triple_blocks(path, self.notes, report):
                    named = block.triples
                    self.first += block.first
                    columns = (named.head, named.relation, named.tail)
                    table = pa.table([c.cast(pa.string()) for c in columns], schema=_SCHEMA)
                    yield from table.to_batches()
            except BaseException as error:  # DuckDB would tell of it in words of its own
                failed.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(_SCHEMA, batches())
        base.register("source", reader)
        try:
            base.execute(f"INSERT INTO raw SELECT h, r, t, {split} FROM source")
        except Exception:
            if failed:
                raise failed[0] from None
            raise
        base.unregister("source")
        self.progress(1, 1, told)

    def _number(self, base: Any, kind: str, names: str) -> None:
        """Write the distinct names, sorted, and make a table of their ids."""
        with self._step(f"sorting {kind}"):
            writer = NameWriter(self.folder, kind)
            ordered = base.sql(f"SELECT DISTINCT name FROM ({names}) ORDER BY name")
            for batch in _batches(ordered):
                writer.append(batch.column(0))
            self.counts[kind] = count = writer.close()
        if count > MOST:
            raise UserError(f"There are {count:,} {kind}; ids of 32 bits allow {MOST:,}.")
        schema = pa.schema([("name", pa.large_string()), ("id", pa.int32())])
        reader = pa.RecordBatchReader.from_batches(schema, _numbered(self.folder, kind, schema))
        base.register("numbered", reader)
        base.execute(f"CREATE TABLE {kind} AS SELECT name, id FROM numbered")
        base.unregister("numbered")

    def _sort(self, base: Any) -> None:
        """Write the triples of each split in the order relation, head, tail, each once."""
        with self._step("sorting the facts"):
            [(total,)] = base.execute("SELECT count(*) FROM ids").fetchall()
            if total > MOST:
                raise UserError(f"There are {total:,} facts; at most {MOST:,} can be ingested.")
            files = [ArrayWriter(self.folder / f"{split}.npy", "<i4", 3) for split in SPLITS]
            last = np.full((1, 4), -1, dtype=np.int32)
            found = np.zeros(len(SPLITS), dtype=np.int64)
            ordered = base.sql("SELECT split, h, r, t FROM ids ORDER BY split, r, h, t")
            for batch in _batches(ordered):
                block = np.stack([column.to_numpy() for column in batch.columns], axis=1)
                block = block.astype(np.int32, copy=False)
                new = (block != np.concatenate([last, block[:-1]])).any(axis=1)
                last = block[-1:]
                found += np.bincount(block[:, 0], minlength=len(SPLITS))
                for number in np.unique(block[:, 0]).tolist():
                    files[number].append(block[new & (block[:, 0] == number), 1:])
            for split, file, lines in zip(SPLITS, files, found.tolist(), strict=True):
                file.close()
                self.duplicates[split] = lines - file.rows

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        self.progress(0, None, what)
        yield
        self.progress(1, 1, what)

    def finish(self) -> None:
        """Write the pairs of training, and look for what a user should know."""
        sizes = self.counts["entities"], self.counts["relations"]
        total = 2 * len(np.load(self.folder / "train.npy", mmap_mode="r"))
        done = 0
        for more in write_pairs(self.folder, *sizes):
            done += more
            self.progress(done, total, "pairing")
        self.progress(total, total, "pairing")
        train, *held = (np.load(self.folder / f"{split}.npy", mmap_mode="r") for split in SPLITS)
        unseen = count_unseen(train, held, *sizes)
        known = read_pairs(self.folder, "tail")
        leaked = sum(
            int(known.contains(block[:, 0], block[:, 1], block[:, 2]).sum())
            for triples in held
            for block in blocks_of(triples, 1 << 16)
        )
        entities, relations = (_names(self.folder, kind) for kind in ("entities", "relations"))
        self.notes += first_line_remarks(self.first, entities, relations, (train, *held))
        self.notes += remarks(self.duplicates, unseen, leaked) + self.spaced


def _batches(result: Any) -> Iterator[Any]:
    """Yield a result of DuckDB as Arrow batches."""
    reader = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader
    yield from reader(_BLOCK)


def _names(folder: Path, kind: str) -> StoredNames:
    ends = np.load(folder / f"{kind}.ends.npy", mmap_mode="r")
    return StoredNames(mapped_bytes(folder / f"{kind}.names"), ends)


def _numbered(folder: Path, kind: str, schema: Any) -> Iterator[Any]:
    """Yield the names of a folder with their ids, as Arrow batches."""
    names = _names(folder, kind)
    ends, text = names.ends, names.bytes
    for start in range(0, len(names), _BLOCK):
        part = np.array(ends[start : start + _BLOCK + 1])
        content = text[part[0] : part[-1]].tobytes()
        buffers = [None, pa.py_buffer(part - part[0]), pa.py_buffer(content)]
        names = pa.Array.from_buffers(pa.large_string(), len(part) - 1, buffers)
        ids = np.arange(start, start + len(part) - 1, dtype=np.int32)
        yield pa.RecordBatch.from_arrays([names, pa.array(ids)], schema=schema)
