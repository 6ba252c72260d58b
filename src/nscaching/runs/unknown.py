"""Names that a graph does not have: all those of a file or a list, in one error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.graph.files import kind_of, text_blocks
from nscaching.graph.tables import text_lines

#: Names that are listed; of further ones only the number is told.
_LISTED = 10


def refuse_unknown(
    graph: KnowledgeGraph, rows: Sequence[Sequence[Any]], file: Path | None = None
) -> None:
    """Raise one error for all names in (head, relation, tail) that the graph does not have.

    What is no text is not looked at. Each name stands with the first line of the file, or the first
    question, that has it.
    """
    known = (graph.entity_ids, graph.relation_ids, graph.entity_ids)
    find = (graph.entity_id, graph.relation_id, graph.entity_id)
    unknown: dict[tuple[bool, str], tuple[int, int]] = {}
    for place, row in enumerate(rows):
        for column, name in enumerate(row):
            if isinstance(name, str) and name not in known[column]:
                unknown.setdefault((column == 1, name), (place, column))
    if not unknown:
        return
    places = _numbered("Question", len(rows)) if file is None else _lines(file, len(rows))
    said = []
    for (_, name), (place, column) in [*unknown.items()][:_LISTED]:
        try:
            find[column](name)
        except UserError as error:
            lacks = str(error).removeprefix(f"The graph '{graph.name}' has ")
            said.append(f"{places[place]}: {lacks}")
    if len(unknown) > _LISTED:
        said.append(f"And {len(unknown) - _LISTED:,} more.")
    where = "the questions" if file is None else str(file)
    raise UserError(f"The graph '{graph.name}' lacks names of {where}. {' '.join(said)}")


def _numbered(what: str, count: int) -> list[str]:
    return [f"{what} {number}" for number in range(1, count + 1)]


def _lines(file: Path, count: int) -> list[str]:
    """Return the line of each triple of a file; its number where lines do not tell.

    Lines tell where all that are not blank have a triple, but for a header.
    """
    if kind_of(file) not in (".txt", ".tsv", ".csv"):
        return _numbered("Triple", count)
    lines = [
        number
        for block in text_blocks(file)
        for number, line in text_lines(block)
        if line.strip(" ")
    ]
    if len(lines) - count not in (0, 1):
        return _numbered("Triple", count)
    return [f"Line {number}" for number in lines[len(lines) - count :]]
