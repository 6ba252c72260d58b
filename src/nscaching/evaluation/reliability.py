"""How good probabilities are: reliability diagrams and expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.evaluation.calibration import Calibration, claim_probabilities, claims_of
from nscaching.evaluation.classification import score_triples
from nscaching.evaluation.evidence import Evidence
from nscaching.evaluation.regression import expit


@dataclass(frozen=True)
class ReliabilityBin:
    """Triples whose probability lies between two bounds."""

    low: float
    high: float
    count: int
    predicted: float  #: mean probability; NaN for no triple
    true: float  #: share that is true; NaN for no triple


@dataclass(frozen=True)
class CalibrationReport:
    """How probabilities compare with how many triples are true, before and after calibration.

    Before: the logistic function of the raw score. ECE is the expected calibration error, the mean
    distance of probability and share over the bins.
    """

    split: str
    count: int
    facts: int
    ece: float
    ece_before: float
    brier: float
    brier_before: float
    bins: tuple[ReliabilityBin, ...]
    bins_before: tuple[ReliabilityBin, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values; NaN becomes None."""
        plain = dict(self.__dict__)
        for name in ("bins", "bins_before"):
            plain[name] = [
                {key: None if value != value else value for key, value in part.__dict__.items()}
                for part in plain[name]
            ]
        return plain

    def __repr__(self) -> str:
        return (
            f"<CalibrationReport of {self.split}: ECE {self.ece:.4f} "
            f"(before {self.ece_before:.4f}), {self.count:,} triples>"
        )


def calibration_report(
    evidence: Evidence, calibration: Calibration, *, split: str, seed: int = 0, bins: int = 15
) -> CalibrationReport:
    """Compare probabilities with truth on a split's facts and negatives of both kinds."""
    graph = evidence.graph
    triples, true, _ = claims_of(graph, graph.split(split).astype(np.int64), seed=seed + 1)
    after = claim_probabilities(evidence, calibration, triples, float(true.mean()))
    before = expit(score_triples(evidence.model, triples).astype(np.float64))
    reliability = [reliability_bins(chances, true, bins) for chances in (after, before)]
    errors = [expected_calibration_error(part) for part in reliability]
    return CalibrationReport(
        split=split,
        count=len(triples),
        facts=int(true.sum()),
        ece=errors[0],
        ece_before=errors[1],
        brier=float(((after - true) ** 2).mean()),
        brier_before=float(((before - true) ** 2).mean()),
        bins=reliability[0],
        bins_before=reliability[1],
    )


def reliability_bins(
    chances: npt.NDArray[np.float64], true: npt.NDArray[np.bool_], bins: int = 15
) -> tuple[ReliabilityBin, ...]:
    """Return what a reliability diagram draws: bins of equal width. Shapes: (n,), (n,)."""
    place = np.minimum((chances * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):  # NaN for an empty bin
        means = [np.bincount(place, each, bins) / count for each in (chances, true)]
    parts = zip(count.tolist(), *(mean.tolist() for mean in means), strict=True)
    return tuple(ReliabilityBin(n / bins, (n + 1) / bins, *part) for n, part in enumerate(parts))


def expected_calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Return the distance of probability and share, averaged over triples."""
    off = sum(part.count * abs(part.predicted - part.true) for part in bins if part.count)
    return off / max(1, sum(part.count for part in bins))
