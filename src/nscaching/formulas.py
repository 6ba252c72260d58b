"""Names in CSV that a spreadsheet would run as a formula: an apostrophe goes before them.

It is taken away when such a file is read again. A name that has apostrophes there already gets one
more, so that every name comes back as it was.
"""

from __future__ import annotations

import re

#: What a guarded name looks like once the apostrophe is away.
_FORMULA = "'*[=+\\-@\t\r]"
_STARTS = re.compile(_FORMULA)
#: A guarded name, and what it stands for: a pattern and a replacement for Python and for Arrow.
GUARDED, UNGUARDED = f"^'({_FORMULA})", "\\1"
#: Column names that a table of predictions begins with: in CSV its names are guarded.
GUARDED_COLUMNS = ("head", "relation", "tail", "probability")


def guard(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    return f"'{text}" if _STARTS.match(text) else text
