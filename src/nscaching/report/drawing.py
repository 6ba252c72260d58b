"""One look for all pictures: calm, and readable in black and white."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.errors import UserError
from nscaching.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Dark to light and back, so that neighbours differ in grey as well.
COLOURS = ("#1b1b3a", "#c8553d", "#2a7f9e", "#8a8d91", "#588157", "#b08900", "#6d3b8e", "#3d3d3d")
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LOOK: Any = {  # matplotlib types its keys one by one
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "legend.frameon": False,
    "savefig.dpi": 160,
}


@contextlib.contextmanager
def figure(width: float = 8.0, height: float = 5.0) -> Iterator[Figure]:
    """Give a figure in our style, sizes in inches; save it with :func:`save` inside the block."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "Pictures need matplotlib; install it with: pip install 'nscaching[plot]'."
        ) from error
    with rc_context(_LOOK):
        yield Figure(figsize=(width, height), layout="constrained")


def line_look(index: int) -> dict[str, Any]:
    """Return colour, dashes and marker of the line with this number; 40 of them differ."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": _DASHES[index % len(_DASHES)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "markerfacecolor": "white",
    }


def save(drawn: Figure, path: Path) -> None:
    """Write a picture, of the kind that the name of the file says, so that it is whole."""
    write_atomically(path, lambda temporary: drawn.savefig(temporary))
