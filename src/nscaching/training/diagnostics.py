"""Lines of ``metrics.jsonl`` and ``trace.jsonl`` that can be used; damaged ones are left out.

Both files are diagnostics: whatever happened to them, a model loads and a run resumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Line = dict[str, Any]
_TRACE_ONLY = ("row", "gradients")

#: What a line must have to be of use, by its event.
_NEEDED: dict[str, dict[str, type]] = {
    "epoch": {"loss": float, "seconds": float},
    "evaluation": {"split": str, "seconds": float, "mrr": float},
    "row": {"row": str, "hardest": list, "random": list},
    "gradients": {"triple": str, "side": str, "ccdf": list},
}


def usable_metrics(lines: Iterable[Line]) -> list[Line]:
    """Return the lines of ``metrics.jsonl`` whose values are what they should be."""
    return [
        line
        for line in lines
        if _is_event(line)
        and line["event"] not in _TRACE_ONLY
        and _has(line, _NEEDED.get(line["event"], {}))
    ]


def usable_trace(lines: Iterable[Line]) -> list[Line]:
    """Return the lines of ``trace.jsonl`` that look like the others of their event."""
    there = [line for line in lines if _is_event(line) and _is_trace(line)]
    shapes: dict[str, Counter[tuple[str, ...]]] = {}
    for line in there:
        shapes.setdefault(line["event"], Counter())[tuple(sorted(line))] += 1
    usual = {
        event: max(counted, key=lambda shape: (counted[shape], len(shape)))
        for event, counted in shapes.items()
    }
    return [line for line in there if tuple(sorted(line)) == usual[line["event"]]]


def _is_event(line: Line) -> bool:
    epoch = line.get("epoch")
    known = isinstance(epoch, int) and not isinstance(epoch, bool) and 0 <= epoch < 2**53
    return known and isinstance(line.get("event"), str)


def _has(line: Line, needed: dict[str, type]) -> bool:
    def fits(value: Any, kind: type) -> bool:
        return _is_number(value) if kind is float else isinstance(value, kind)

    numbers = (line[name] for name in line if name.startswith(("hits@", "mr", "amri", "accuracy")))
    return all(fits(line.get(name), kind) for name, kind in needed.items()) and all(
        value is None or _is_number(value) for value in numbers
    )


def _is_trace(line: Line) -> bool:
    if line["event"] == "epoch":
        return all(
            value is None or _is_number(value) for name, value in line.items() if name != "event"
        )
    if not _has(line, _NEEDED.get(line["event"], {})):
        return False
    if line["event"] == "row":
        hardest = all(
            isinstance(each, dict) and isinstance(each.get("entity"), str) and "split" in each
            for each in line["hardest"]
        )
        return hardest and all(isinstance(name, str) for name in line["random"])
    if line["event"] == "gradients":
        return bool(line["ccdf"]) and all(
            isinstance(point, list) and len(point) == 2 and all(map(_is_number, point))
            for point in line["ccdf"]
        )
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def training_seconds(lines: Iterable[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return each epoch with the seconds of training at its end, validations not counted."""
    validating, ends = 0.0, []
    for line in lines:
        if line.get("event") == "epoch":
            ends.append((line["epoch"], line["seconds"] - validating))
        elif line.get("event") == "evaluation" and line.get("split") == "valid":
            validating += line["seconds"]
    return ends
