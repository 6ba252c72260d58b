"""Embeddings for other programs: ``.npy`` with names, word2vec text, Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nscaching.artefacts.files import write_atomically, write_text
from nscaching.errors import UserError

#: How a file name tells its format.
_BY_SUFFIX = {".npy": "npy", ".parquet": "parquet", ".txt": "word2vec", ".vec": "word2vec"}
FORMATS = ("auto", "npy", "word2vec", "parquet")


def export_embeddings(
    path: Path, names: Sequence[str], vectors: np.ndarray, format: str = "auto"
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


def _write_npy(path: Path, names: Sequence[str], vectors: np.ndarray) -> list[Path]:
    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)

    listing = path.with_suffix(".names.txt")
    write_atomically(path, save)
    write_text(listing, "".join(f"{name}\n" for name in names))
    return [path, listing]


def _write_word2vec(path: Path, names: Sequence[str], vectors: np.ndarray) -> None:
    """Write a header line and a line per name; white space in a name becomes an underscore."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{vectors.shape[0]} {vectors.shape[1]}\n")
        for name, row in zip(names, vectors.tolist(), strict=True):
            word = "_".join(name.split()) or "_"
            file.write(f"{word} {' '.join(f'{value:.9g}' for value in row)}\n")


def _write_parquet(path: Path, names: Sequence[str], vectors: np.ndarray) -> None:
    """Write two columns: ``name`` and ``vector``, a list of fixed size."""
    import pyarrow as pa
    from pyarrow import parquet

    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    rows = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    parquet.write_table(pa.table({"name": pa.array(names, pa.string()), "vector": rows}), path)
