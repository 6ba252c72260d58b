"""Recognising a first row that names the columns instead of holding a triple."""

from __future__ import annotations

from collections.abc import Sequence

ROLES = (
    frozenset({"head", "h", "subject", "s", "source", "from"}),
    frozenset({"relation", "r", "predicate", "p", "rel", "edge", "label"}),
    frozenset({"tail", "t", "object", "o", "target", "to"}),
)
"""Names that a column of heads, of relations and of tails goes by."""


def column_order(names: Sequence[str], *, single_letters: bool = True) -> list[int] | None:
    """Return where head, relation and tail are, or None when the names are not such a header.

    With ``single_letters`` off, a row such as ``h r t`` is taken for a triple.
    """
    folded = [name.strip().casefold() for name in names]
    if not single_letters and any(len(name) == 1 for name in folded):
        return None
    places = [[at for at, name in enumerate(folded) if name in role] for role in ROLES]
    if any(len(found) != 1 for found in places):
        return None
    return [found[0] for found in places]
