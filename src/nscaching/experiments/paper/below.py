"""Why a number is below the paper's, by what its runs show.

Each reason is something that was measured: the spread over seeds, a validation curve that still
rises or that another measure would have left at another epoch, the same cell with settings that
were found in another way.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from nscaching.errors import plural
from nscaching.experiments.paper.definitions import TUNED
from nscaching.experiments.paper.results import Beside, Row

#: A validation by another measure counts where it would gain as much.
_GAIN = 0.002
#: What curves call a measure on valid.
_IN_CURVES = {"mrr": "mrr", "hits@10": "hits_at_10", "accuracy": "accuracy"}


def why_below(
    rows: Sequence[Row], found: Mapping[str, Beside], otherwise: Mapping[str, Beside]
) -> str:
    """Return why numbers of a cell are below the paper's, or nothing where none is.

    ``otherwise`` has the measures of the same cell with settings that were found in another way.
    """
    done = [row for row in rows if not row["error"]]
    reasons: dict[str, list[str]] = {}
    for name, each in found.items():
        if each.paper is not None and not each.reached:
            reason = _why(done, each, otherwise.get(name))
            reasons.setdefault(reason, []).append(name)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{' and '.join(names)}: {reason}" for reason, names in reasons.items())


def _why(rows: Sequence[Row], each: Beside, otherwise: Beside | None) -> str:
    """Return the reasons of one number, the strongest one or two."""
    missing = -(each.difference or 0.0)
    if each.spread is not None and missing <= each.spread:
        return "within the spread of the seeds"
    tuned = rows[0]["kind"] == TUNED
    reasons = []
    if each.measure == "accuracy" and not tuned:
        reasons.append("chosen by MRR")
    elif _still_rising(rows):
        reasons.append(f"still improving after {plural(rows[0]['epochs'], 'epoch')}")
    elif (lost := _lost_by_choice(rows, each.measure)) >= min(_GAIN, missing):
        reasons.append(f"{_digits(lost)} of it by the choice of the epoch")
    if otherwise is not None and otherwise.ours > each.ours:
        how = "the package's settings have" if tuned else "equally tuned"
        reasons.append(f"{how} {otherwise.ours:.4f}")
    elif tuned and not reasons:
        reasons.append(f"best of {plural(rows[0]['tried']['count'], 'try', 'tries')}")
        reasons += _best_after(rows)
    elif not reasons:
        reasons += ["no settings were tried for this sampler"] * rows[0]["sampler"].endswith("gan")
        reasons += _best_after(rows)
    return ", ".join(reasons)


def _still_rising(rows: Sequence[Row]) -> bool:
    """Tell whether most runs were best at their last validation, all epochs trained."""
    last: list[bool] = [
        row["best_epoch"] == row["epochs"] >= (row.get("chosen") or row["settings"])["epochs"]
        for row in rows
        if row.get("best_epoch")
    ]
    return sum(last) > len(rows) / 2


def _lost_by_choice(rows: Sequence[Row], measure: str) -> float:
    """Return how much of a measure on valid the best epoch lacks, which is best by another."""
    lost = []
    for row in rows:
        curve = row.get("curve") or {}
        values = np.asarray(curve.get(_IN_CURVES.get(measure, ""), []), dtype=float)
        epochs = np.asarray(curve.get("epochs", []), dtype=float)
        at = np.flatnonzero(epochs == row.get("best_epoch"))
        if len(at) and len(values) == len(epochs):
            lost.append(float(values.max() - values[at[0]]))
    return statistics.fmean(lost) if lost else 0.0


def _best_after(rows: Sequence[Row]) -> list[str]:
    epochs = [row["best_epoch"] for row in rows if row.get("best_epoch")]
    return [f"best after {plural(round(statistics.median(epochs)), 'epoch')}"] if epochs else []


def _digits(value: float) -> str:
    return f"{value:.3f}".lstrip("0")
