"""Lines of ``metrics.jsonl`` and ``trace.jsonl`` that can be used; damaged ones are left out.

Both files are diagnostics: whatever happened to them, a model loads and a run resumes.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

Line = dict[str, Any]
Test = Callable[[Any], bool]
#: Measures, wherever they stand: a number, or None where there is none.
_MEASURES = ("hits@", "mr", "amri", "accuracy")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


#: What a line must have to be of use, by its event.
_METRICS: dict[str, dict[str, Test]] = {
    "epoch": {"loss": _number, "seconds": _number},
    "evaluation": {"split": _text, "seconds": _number, "mrr": _number},
}
_candidates = _list_of(lambda x: isinstance(x, dict) and _text(x.get("entity")) and "split" in x)
_points = _list_of(lambda x: _list_of(_number)(x) and len(x) == 2)
_TRACE: dict[str, dict[str, Test]] = {
    "epoch": {},
    "row": {"row": _text, "hardest": _candidates, "random": _list_of(_text)},
    "gradients": {"triple": _text, "side": _text, "ccdf": _points},
}


def usable_metrics(lines: Iterable[Line]) -> list[Line]:
    """Return the lines of ``metrics.jsonl`` whose values are what they should be."""
    return [line for line in lines if _fits(line, _METRICS)]


def usable_trace(lines: Iterable[Line]) -> list[Line]:
    """Return the lines of ``trace.jsonl`` that look like the others of their event."""
    there = [line for line in lines if _fits(line, _TRACE) and line.get("ccdf") != []]
    there = [line for line in there if line["event"] != "epoch" or _has_numbers(line, line)]
    shapes = Counter((line["event"], *sorted(line)) for line in there)
    by_use = sorted(shapes, key=lambda shape: (shapes[shape], len(shape)))
    usual = {shape[0]: shape for shape in by_use}
    return [line for line in there if (line["event"], *sorted(line)) == usual[line["event"]]]


def _fits(line: Line, needed: Mapping[str, Mapping[str, Test]]) -> bool:
    """Tell whether a line names its epoch and a known event, and has what that event needs."""
    epoch, event = line.get("epoch"), line.get("event")
    if not (isinstance(epoch, int) and _number(epoch) and 0 <= epoch < 2**53 and _text(event)):
        return False
    tests = needed.get(str(event))
    if tests is None:
        return False
    measures = [name for name in line if name.startswith(_MEASURES)]
    return all(test(line.get(name)) for name, test in tests.items()) and _has_numbers(
        line, measures
    )


def _has_numbers(line: Line, names: Iterable[str]) -> bool:
    values = (line[name] for name in names if name != "event")
    return all(value is None or _number(value) for value in values)


def training_seconds(lines: Iterable[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return each epoch with the seconds of training at its end, validations not counted."""
    validating, ends = 0.0, []
    for line in lines:
        if line.get("event") == "epoch":
            ends.append((line["epoch"], line["seconds"] - validating))
        elif line.get("event") == "evaluation" and line.get("split") == "valid":
            validating += line["seconds"]
    return ends


def seconds_without_compiling(lines: Iterable[Mapping[str, Any]]) -> float:
    """Return how long epochs and validations took, of which the first of either may compile."""
    there = list(lines)
    ends = [0.0, *(seconds for _, seconds in training_seconds(there))]
    validations = [
        line["seconds"]
        for line in there
        if line.get("event") == "evaluation" and line.get("split") == "valid"
    ]
    return sum(map(_usual_sum, ([end - start for start, end in pairwise(ends)], validations)))


def _usual_sum(times: Sequence[float]) -> float:
    """Add times up, with a first one that is longer than the others for one like them."""
    first, others = times[:1], times[1:]
    if first and others:
        first = [min(first[0], statistics.median(others))]
    return sum(first) + sum(others)
