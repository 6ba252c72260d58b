"""From data frames: pandas, polars, pyarrow, and whatever else speaks Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from nscaching.errors import UserError
from nscaching.graph.columns import choose_columns, sentence, table_triples
from nscaching.graph.knowledge_graph import SPLITS, KnowledgeGraph
from nscaching.graph.loading import assemble
from nscaching.graph.reading import Reading
from nscaching.graph.remarks import remarks


def from_dataframe(
    frames: Sequence[Any], columns: Sequence[str] | None, name: str
) -> KnowledgeGraph:
    """Make a graph of a frame a split (train, valid, test); None stands for no such split."""
    readings = {
        split: _read(frame, columns, f"the {split} frame")
        for split, frame in zip(SPLITS, frames, strict=True)
        if frame is not None
    }
    graph = assemble(readings, {}, name)
    graph.notes.extend(remarks(graph))
    return graph


def _read(frame: Any, columns: Sequence[str] | None, what: str) -> Reading:
    if not hasattr(frame, "__arrow_c_stream__"):
        raise UserError(
            f"{sentence(what)} is a {type(frame).__name__}; expected a frame of pandas (2.2 or "
            "newer), polars or pyarrow."
        )
    try:
        table = pa.table(frame)
    except pa.ArrowException as error:  # a pandas column of mixed values, say
        raise UserError(f"{sentence(what)} cannot be read as a table: {error}.") from error
    if columns is None:
        columns = choose_columns(table.column_names, what)
    if isinstance(columns, str) or len(columns) != 3:
        raise UserError(f"columns must name head, relation and tail, not {columns!r}.")
    absent = [column for column in columns if column not in table.column_names]
    if absent:
        raise UserError(
            f"{sentence(what)} has no column '{absent[0]}'; it has {', '.join(table.column_names)}."
        )
    return Reading(table_triples(table, columns, what))
