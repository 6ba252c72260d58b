"""Which columns a header names: those of heads, relations and tails."""

from __future__ import annotations

from collections.abc import Sequence

#: Names that a column of heads, of relations and of tails goes by.
ROLES = (
    frozenset({"head", "h", "subject", "s", "source", "from"}),
    frozenset({"relation", "r", "predicate", "p", "rel", "edge", "interaction", "label"}),
    frozenset({"tail", "t", "object", "o", "target", "to"}),
)
#: Heads and tails, and relations, that tell which columns are meant where a header has several.
_PAIRS = (("head", "tail"), ("subject", "object"), ("source", "target"), ("from", "to"))
_RELATIONS = ("relation", "predicate", "rel", "edge", "interaction", "label")


def column_order(names: Sequence[str], *, single_letters: bool = True) -> list[int] | None:
    """Return where head, relation and tail are, or None when the names are not such a header.

    Without ``single_letters``, a row such as ``h r t`` is taken for a triple. Where several columns
    could be one of the three, names that belong together are meant: in ``subject, predicate,
    object, source`` the source is something else.
    """
    folded = [name.strip().casefold() for name in names]
    if not single_letters and any(len(name) == 1 for name in folded):
        return None
    places = [[at for at, name in enumerate(folded) if name in role] for role in ROLES]
    if not all(places):
        return None
    heads, relations, tails = places
    if len(heads) > 1 or len(tails) > 1:
        pairs = ([folded.index(name) for name in pair] for pair in _PAIRS if {*pair} <= {*folded})
        ends = next(pairs, None)
        if ends is None:
            return None
        heads, tails = ends[:1], ends[1:]
    if len(relations) > 1:
        relations = [folded.index(name) for name in (*_RELATIONS, "r", "p") if name in folded]
    chosen = [heads[0], relations[0], tails[0]]
    return chosen if all(folded.count(folded[at]) == 1 for at in chosen) else None


def half_header(names: Sequence[str], *, single_letters: bool = True) -> tuple[str, bool] | None:
    """Return what the third column is, where two of three names say what theirs are.

    With it, whether the three are in the order head, relation, tail.
    """
    parts = ("head", "relation", "tail")
    folded = [name.strip().casefold() for name in names]
    known = [
        next((part for part, role in zip(parts, ROLES, strict=True) if name in role), "")
        for name in (each if single_letters or len(each) > 1 else "" for each in folded)
    ]
    if len(known) != 3 or known.count("") != 1 or len({*known}) != 3:
        return None
    ordered = all(name in ("", part) for name, part in zip(known, parts, strict=True))
    return next(part for part in parts if part not in known), ordered
