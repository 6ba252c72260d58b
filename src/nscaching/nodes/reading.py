"""Edge lists and label files: two or three columns, separated by tabs, commas or spaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nscaching.errors import UserError
from nscaching.graph.delimited import ROLES, fast_columns
from nscaching.graph.files import read_bytes, stem_of
from nscaching.graph.names import number_names
from nscaching.nodes.graph import NodeGraph, graph_of_edges

_SOURCES, _TARGETS = ROLES[0] | {"src", "node1", "u"}, ROLES[2] | {"dst", "node2", "v"}
_COMMENTS = re.compile(rb"\A(?:[ \t]*(?:[#%][^\n]*)?\r?\n)+")


def read_edges(path: Path, *, directed: bool = False, name: str | None = None) -> NodeGraph:
    """Read an edge list: two names a line and, if there is a third column, a weight above 0."""
    columns = _columns(path, "edge", ("source", "target", "weight"), least=2)
    first = [column[0].as_py().strip().casefold() for column in columns]
    notes = []
    if first[0] in _SOURCES and first[1] in _TARGETS:
        columns = [column.slice(1) for column in columns]
        notes.append(f"The first line of {path.name} was taken as column names.")
        if len(columns[0]) == 0:
            raise UserError(f"{path} has column names but no edge; expected one edge a line.")
    weights = _weights(columns[2], path) if len(columns) == 3 else None
    names, (ends,) = number_names([columns[:2]])
    graph = graph_of_edges(names, ends, weights, directed=directed, name=name or stem_of(path))
    graph.notes[:0] = notes
    return graph


def read_labels(path: Path, graph: NodeGraph) -> NodeGraph:
    """Return the graph with the classes of a file: node and class a line."""
    nodes, classes = _columns(path, "labelled node", ("node", "class"), least=2)
    return graph.with_labels(nodes.to_pylist(), classes.to_pylist(), path.name)


def _columns(path: Path, what: str, roles: tuple[str, ...], least: int) -> list[Any]:
    """Return the columns as strings; how many there are is read off the first line."""
    data = _COMMENTS.sub(lambda found: b"\n" * found[0].count(b"\n"), read_bytes(path))
    found = re.search(rb"[^\r\n]*[^\s][^\r\n]*", data)
    if found is None:
        raise UserError(f"{path} is empty; expected one {what} a line: {', '.join(roles)}.")
    first = found[0]
    delimiter = next((mark for mark in ("\t", ",") if mark.encode() in first.strip()), " ")
    if delimiter == " ":
        data, delimiter = re.sub(rb"(?m)^ +| +(?=\r?$)", b"", data), "\t"
        data = re.sub(rb" +", b"\t", data)
        first = re.sub(rb" +", b"\t", first.strip())
    width = len(first.split(delimiter.encode()))
    if not least <= width <= len(roles):
        raise UserError(
            f"{path} has {width} column{'s' * (width != 1)} in its first line; expected "
            f"{' or '.join(str(n) for n in range(least, len(roles) + 1))} ({', '.join(roles)}) "
            "separated by tabs, commas or spaces."
        )
    columns = fast_columns(data, delimiter, width)
    if columns is None:
        raise _bad_line(data, path, delimiter, roles[:width])
    return [column.combine_chunks() for column in columns]


def _bad_line(data: bytes, path: Path, delimiter: str, roles: tuple[str, ...]) -> UserError:
    """Find the line that could not be read."""
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            fields = line.decode("utf-8").rstrip("\r").split(delimiter)
        except UnicodeDecodeError:
            return UserError(f"Line {number} of {path} is not UTF-8 text; save the file as UTF-8.")
        if line.strip() and (len(fields) != len(roles) or not all(fields)):
            return UserError(
                f"Line {number} of {path} has {sum(map(bool, fields))} columns; expected "
                f"{len(roles)} ({', '.join(roles)}) as in the first line."
            )
    return UserError(f"{path} cannot be read as columns of text; expected {', '.join(roles)}.")


def _weights(column: Any, path: Path) -> np.ndarray:
    """Return the weights as numbers, or name the first edge whose weight is none."""
    try:
        weights = pc.cast(pc.utf8_trim_whitespace(column), pa.float64()).to_numpy(False)
    except pa.ArrowInvalid:
        weights = np.array([_number_or_nan(text) for text in column.to_pylist()])
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise UserError(
            f"Edge {at + 1} of {path} has the weight '{column[at].as_py()}'; expected a number "
            "above 0 in the third column."
        )
    return np.asarray(weights, dtype=np.float64)


def _number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
