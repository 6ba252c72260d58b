"""Moved to :mod:`nscaching.artefacts.files`."""

from __future__ import annotations

from nscaching.artefacts.files import (
    append_json_line,
    explained_writes,
    find_foreign,
    read_details,
    read_json_lines,
    read_names,
    read_tensors,
    remove_own,
    sweep_temporary,
    write_atomically,
    write_json_lines,
    write_names,
    write_tensors,
    write_text,
)

__all__ = [
    "append_json_line",
    "explained_writes",
    "find_foreign",
    "read_details",
    "read_json_lines",
    "read_names",
    "read_tensors",
    "remove_own",
    "sweep_temporary",
    "write_atomically",
    "write_json_lines",
    "write_names",
    "write_tensors",
    "write_text",
]
