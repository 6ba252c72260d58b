"""The files that ``nscaching ingest`` reads: those given, and those in folders, by split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nscaching.errors import UserError, shown
from nscaching.graph.files import (
    ENDINGS,
    LABELLED,
    folder_files,
    kind_of,
    missing_part,
    refuse_missing_part,
    split_of,
    unreadable,
)
from nscaching.graph.names import SPLITS
from nscaching.graph.rdf import RDF_KINDS

Paths = str | Path | Sequence[str | Path]


def listed(paths: Paths) -> list[Path]:
    """Return what was given as a list of paths."""
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    return [Path(path).expanduser() for path in given]


def ingested_files(
    source: Paths, valid: Paths, test: Paths
) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the files of each split, and remarks; folders are looked into."""
    files: dict[str, list[Path]] = {split: [] for split in SPLITS}
    notes: list[str] = []
    for split, given in zip(SPLITS, (source, valid, test), strict=True):
        named: list[Path] = []
        for path in listed(given):
            inside = _inside(path, split, notes) if path.is_dir() else {split: [path]}
            named += [] if path.is_dir() else [path]
            for part, found in inside.items():
                files[part].extend(found)
            if not path.is_dir() and split == "train" and split_of(path) in SPLITS[1:]:
                notes.append(
                    f"{path.name} was read as training triples; name it with --{split_of(path)} if "
                    "it is not for training."
                )
        if len(named) > 1 and (lacking := missing_part(named)):
            notes.append(f"{shown(lacking[0])} was not given, and {lacking[1]} such files were.")
    if not files["train"]:
        raise UserError("There are no training triples; name at least one file of them.")
    for path in (file for each in files.values() for file in each):
        if kind_of(path) in RDF_KINDS:
            raise UserError(
                f"{path} cannot be read in blocks; write it as N-Triples (.nt), for example with "
                "'rapper' or 'riot', or load it whole without ingesting."
            )
        try:
            path.open("rb").close()
        except OSError as error:
            raise unreadable(path, error) from error
    return files, notes


def _inside(folder: Path, split: str, notes: list[str]) -> dict[str, list[Path]]:
    """Return the files of a folder by split; one that is named for valid or test is that only."""
    found = folder_files(folder)
    everything = [*found.others, *(file for files in found.splits.values() for file in files)]
    if not everything:
        raise UserError(f"{folder} has no files of triples: {', '.join(ENDINGS[:4])}.")
    notes.extend(
        f"{file.name} was left out: a graph on disk keeps no labelled triples."
        for file in sorted(folder.glob(f"*{LABELLED}"))
    )
    if split != "train":
        refuse_missing_part(folder, everything)
        return {split: sorted(everything)}
    if "train" not in found.splits:
        refuse_missing_part(folder, found.others)
        return {**found.splits, "train": found.others}
    if found.others:
        names = ", ".join(shown(file.name) for file in found.others[:5])
        names += ", ..." if len(found.others) > 5 else ""
        notes.append(f"Files of {folder.name} that are of no split were left out: {names}.")
    return found.splits
