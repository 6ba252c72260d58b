"""The model and its calibration, packed for the page of the explorer."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch

from nscaching.evaluation.evidence import ENTITY_FEATURES, SCORE_FEATURES, Evidence
from nscaching.evaluation.positions import Positions
from nscaching.models import Side
from nscaching.runs.run import Run

#: Terms of entities that a page may hold, one byte each; beyond it a page shows raw scores.
MOST_TERMS = 6_000_000


def packed(array: np.ndarray, kind: str) -> str:
    """Return numbers as base64 of their bytes."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def int8_table(table: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return a table as int8 rows and one scale per row. Shapes: (n, w) -> (n, w), (n,)."""
    rows = table.detach().float().cpu().numpy()
    scale = np.maximum(np.abs(rows).max(1), 1e-30) / 127
    return np.round(rows / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def calibration_terms(run: Run) -> int:
    """Return how many terms the page needs: of each entity, in each question of each relation."""
    return 4 * run.graph.num_entities * run.graph.num_relations


def packed_calibration(run: Run) -> dict[str, Any] | None:
    """Return what turns scores into log-odds in the page, or None where it is not held there.

    The log-odds of an answer are linear in the log-softmax and the deviation of its score, plus a
    term of the answer and a term of the entity that is asked about; those two depend on the
    relation and the side only and are worked out here.
    """
    if calibration_terms(run) > MOST_TERMS or run.calibration is None:
        return None
    calibration, graph = run.calibration, run.graph
    evidence = Evidence(run.model, graph, calibration.temperature)
    positions = Positions.of(graph, whole=True)  # new facts are judged by all that are known
    parts = np.cumsum([len(SCORE_FEATURES), len(ENTITY_FEATURES)])
    sides = {}
    for name, side, other in (("tail", Side.TAIL, Side.HEAD), ("head", Side.HEAD, Side.TAIL)):
        fit = calibration.answers[side]
        weights = np.stack([fit.of_relation(r) for r in range(graph.num_relations)])
        of_score, of_answer, of_anchor = np.split(weights, parts, axis=1)
        tables = [
            (
                evidence.entity_table(side, r, positions) @ of_answer[r],
                evidence.entity_table(other, r, positions) @ of_anchor[r],
            )
            for r in range(graph.num_relations)
        ]
        sides[name] = {
            "softmax": of_score[:, 0].tolist(),
            "deviations": of_score[:, 1].tolist(),
            "intercept": np.asarray(fit.intercepts, dtype=float).tolist(),
            "answer": _in_bytes(np.stack([answer for answer, _ in tables])),
            "anchor": _in_bytes(np.stack([anchor for _, anchor in tables])),
        }
    return {"temperature": calibration.temperature, "sides": sides}


def _in_bytes(terms: np.ndarray) -> dict[str, Any]:
    """Return terms as a byte each, with where they begin and their step per relation. (m, n)."""
    low, high = terms.min(1), terms.max(1)
    step = np.maximum(high - low, 1e-9) / 255
    values = np.round((terms - low[:, None]) / step[:, None])
    return {"low": low.tolist(), "step": step.tolist(), "values": packed(values, "u1")}
