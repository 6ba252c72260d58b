"""What may be a name: of an entity, a relation or a node. Folders keep names one a line."""

from __future__ import annotations

from collections.abc import Sequence

from nscaching.errors import UserError


def checked_names(names: Sequence[str], kind: str) -> list[str]:
    """Return the names as a list, each a distinct, non-empty line of text."""
    listed = list(names)
    seen: set[str] = set()
    for name in listed:
        if not isinstance(name, str) or not name or "\n" in name or "\r" in name:
            raise UserError(
                f"The {kind} name {name!r} cannot be used; a name is a non-empty string "
                "without line breaks."
            )
        if name in seen:
            raise UserError(f"The {kind} name '{name}' is given twice; names must be distinct.")
        seen.add(name)
    return listed
