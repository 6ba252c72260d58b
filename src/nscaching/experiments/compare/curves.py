"""How a run got better: its validations against epochs and seconds, from ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nscaching.report.comparison_page import Band
from nscaching.training.folder import training_seconds


@dataclass(frozen=True)
class Curve:
    """Validations of one run in order, each array of shape (n,)."""

    epochs: np.ndarray
    seconds: np.ndarray  #: of training until then, validations not counted
    mrr: np.ndarray
    hits_at_10: np.ndarray


def read_curve(lines: Iterable[Mapping[str, Any]]) -> Curve:
    """Read the validations of a run."""
    points, trained = [], dict(training_seconds(lines := list(lines)))
    for line in lines:
        if line.get("event") == "evaluation" and line.get("split") == "valid":
            at = line["epoch"]
            points.append((at, trained.get(at, 0.0), line["mrr"], line["hits@10"]))
    columns = np.array(points, dtype=np.float64).reshape(-1, 4).T
    return Curve(*columns)


def seconds_per_epoch(lines: Iterable[Mapping[str, Any]], pretrain_epochs: int) -> float | None:
    """Return the mean epoch of the sampler itself; its first, which may compile, is not counted."""
    ends = training_seconds(lines)
    if not ends:
        return None
    own = [end for end in ends if end[0] > pretrain_epochs]
    if len(own) < 2:
        return ends[-1][1] / ends[-1][0]
    (first, start), (last, end) = own[0], own[-1]
    return (end - start) / (last - first)


def band(label: str, curves: Sequence[Curve]) -> Band | None:
    """Bring the runs of one row together, at the epochs that all of them validated."""
    common = [set(curve.epochs.tolist()) for curve in curves if len(curve.epochs)]
    if not common or not (shared := sorted(set.intersection(*common))):
        return None
    curves = [curve for curve in curves if len(curve.epochs)]
    places = [np.isin(curve.epochs, shared) for curve in curves]
    stacked = {
        name: np.stack([getattr(c, field)[at] for c, at in zip(curves, places, strict=True)])
        for name, field in {"mrr": "mrr", "hits@10": "hits_at_10", "seconds": "seconds"}.items()
    }
    seconds = stacked.pop("seconds").mean(0)
    return Band(
        label,
        np.array(shared),
        seconds,
        {name: values.mean(0) for name, values in stacked.items()},
        {name: values.min(0) for name, values in stacked.items()},
        {name: values.max(0) for name, values in stacked.items()},
    )
