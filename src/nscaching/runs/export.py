"""Embeddings for other programs: ``.npy`` with names, word2vec text, Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from torch import Tensor

from nscaching.artefacts.files import write_atomically, write_text
from nscaching.errors import UserError

#: How a file name tells its format.
_BY_SUFFIX = {".npy": "npy", ".parquet": "parquet", ".txt": "word2vec", ".vec": "word2vec"}
FORMATS = ("auto", "npy", "word2vec", "parquet")
#: Rows that are read and written at once.
_ROWS = 1 << 16


def export_embeddings(
    path: Path, names: Sequence[str], vectors: Tensor | np.ndarray, format: str = "auto"
) -> list[Path]:
    """Write one row per name; ``auto`` goes by the suffix. Returns the files written."""
    if format == "auto":
        format = _BY_SUFFIX.get(path.suffix.lower(), "")
    if format not in FORMATS[1:]:
        raise UserError(
            f"Cannot tell the format of {path}: end it in .npy, .txt, .vec or .parquet, or name "
            f"the format ({', '.join(FORMATS[1:])})."
        )
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}; make it first.")
    if format == "npy":
        return _write_npy(path, names, vectors)
    writer = {"word2vec": _write_word2vec, "parquet": _write_parquet}[format]
    write_atomically(path, lambda temporary: writer(temporary, names, vectors))
    return [path]


def _write_npy(path: Path, names: Sequence[str], vectors: Tensor | np.ndarray) -> list[Path]:
    def save(temporary: Path) -> None:
        written = open_memmap(temporary, "w+", np.float32, tuple(vectors.shape))
        for start, block in _blocks(vectors):
            written[start : start + len(block)] = block
        written.flush()

    listing = path.with_suffix(".names.txt")
    write_atomically(path, save)
    write_text(listing, "".join(f"{name}\n" for name in names))
    return [path, listing]


def _write_word2vec(path: Path, names: Sequence[str], vectors: Tensor | np.ndarray) -> None:
    """Write a header line and a line per name; white space in a name becomes an underscore."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{vectors.shape[0]} {vectors.shape[1]}\n")
        for start, block in _blocks(vectors):
            for name, row in zip(names[start : start + len(block)], block.tolist(), strict=True):
                word = "_".join(name.split()) or "_"
                file.write(f"{word} {' '.join(f'{value:.9g}' for value in row)}\n")


def _write_parquet(path: Path, names: Sequence[str], vectors: Tensor | np.ndarray) -> None:
    """Write two columns: ``name`` and ``vector``, a list of fixed size."""
    import pyarrow as pa
    from pyarrow import parquet

    kind = pa.list_(pa.float32(), vectors.shape[1])
    schema = pa.schema({"name": pa.string(), "vector": kind})
    with parquet.ParquetWriter(path, schema) as writer:
        for start, block in _blocks(vectors):
            rows = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=kind)
            part = pa.array(names[start : start + len(block)], pa.string())
            writer.write_table(pa.table([part, rows], schema))


def _blocks(vectors: Tensor | np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Return some rows at a time, and where they begin: the table may be larger than memory."""
    for start in range(0, max(1, len(vectors)), _ROWS):
        block = vectors[start : start + _ROWS]
        if isinstance(block, Tensor):
            block = block.detach().cpu().numpy()
        yield start, np.ascontiguousarray(block, dtype=np.float32)
