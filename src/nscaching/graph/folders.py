"""Finding the files of a folder: train, valid (or dev), test, and labelled ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nscaching.errors import UserError
from nscaching.graph.files import unreadable

TEXT_KINDS = (".txt", ".tsv", ".csv", ".nt", ".ttl", ".rdf")
ENDINGS = (*TEXT_KINDS, *(f"{kind}.gz" for kind in TEXT_KINDS), ".parquet")
STEMS = {"train": ("train",), "valid": ("valid", "dev"), "test": ("test",)}


@dataclass
class FolderFiles:
    """The files of a folder by split; ``openke`` when they are OpenKE's id files."""

    splits: dict[str, Path] = field(default_factory=dict)
    labelled: dict[str, Path] = field(default_factory=dict)
    openke: bool = False


def folder_files(folder: Path) -> FolderFiles:
    """Look a folder through; named triples are preferred to OpenKE's id files."""
    try:
        present = {entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_file()}
    except OSError as error:
        raise unreadable(folder, error) from error
    found = FolderFiles()
    for split, stems in STEMS.items():
        names = [f"{stem}{ending}" for stem in stems for ending in ENDINGS]
        candidates = [name for name in names if name in present]
        if len(candidates) > 1:
            raise UserError(
                f"{folder} has {' and '.join(candidates)}, and either could be its {split} "
                "triples; keep one of them."
            )
        if candidates:
            found.splits[split] = present[candidates[0]]
        for stem in stems:
            if f"{stem}.labeled.txt" in present and split != "train":
                found.labelled.setdefault(split, present[f"{stem}.labeled.txt"])
    if "train" in found.splits:
        return found
    if "train2id.txt" in present:
        return FolderFiles(openke=True)
    listed = ", ".join(list(present)[:8]) + (", ..." if len(present) > 8 else "")
    raise UserError(
        f"{folder} has no training triples: it holds {listed or 'no files'}. Expected train.txt, "
        ".tsv, .csv, .nt, .ttl, .rdf (each also .gz) or .parquet, or OpenKE's train2id.txt."
    )
