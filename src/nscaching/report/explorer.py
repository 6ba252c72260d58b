"""The explorer as one HTML file: names, facts, an int8 copy of the model, and the page."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from nscaching._version import __version__
from nscaching.artefacts.files import write_text
from nscaching.errors import UserError
from nscaching.evaluation.calibration import TAKEN_OUT
from nscaching.evaluation.evidence import ENTITY_FEATURES, SCORE_FEATURES, Evidence
from nscaching.evaluation.positions import Positions
from nscaching.models import Int8Table, Side
from nscaching.report.explorer_answers import ExplorerAnswers
from nscaching.report.markup import asset, text
from nscaching.runs.run import Run
from nscaching.training import Progress

#: Name of the file beside ``report.html``.
FILE_NAME = "explorer.html"
#: The largest file that is written; a larger graph is explored with ``nscaching explore``.
MOST_BYTES = 24_000_000
#: Scores that are computed to fill the queue of a file; about ten seconds.
_QUEUE_WORK = 1e9
#: Scoring functions that ``explorer-model.js`` knows.
SCORED_IN_PAGE = frozenset(
    ("transe", "transh", "transd", "distmult", "complex", "simple", "rotate", "quate")
)
_SCRIPTS = (
    *("base", "find", "model", "source", "reasons", "views"),
    *("help", "draw", "map", "review", "main"),
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def write_explorer(
    run: Run,
    path: Path,
    report: str | None = None,
    progress: Progress | None = None,
    answers: ExplorerAnswers | None = None,
) -> Path:
    """Write the explorer of a run as one file.

    ``report`` is the address of the report, for a link to it; ``answers`` are those about this run,
    where they are at hand. A graph that is too large for a file is refused with the command that
    serves it.
    """
    reason = too_large(run)
    if reason is not None:
        raise UserError(reason)
    return write_text(path, explorer_page(answers or ExplorerAnswers(run), report, progress))


def too_large(run: Run) -> str | None:
    """Say why a run cannot be explored in one file; None where it can."""
    folder = run.folder.path if run.folder is not None else "RUN"
    remedy = f"explore it with 'nscaching explore {shlex.quote(str(folder))}'."
    if run.config.scoring not in SCORED_IN_PAGE:
        return f"A page cannot compute the scores of {run.config.scoring} itself; {remedy}"
    size = estimated_bytes(run)
    if size > MOST_BYTES:
        return (
            f"The explorer of this graph would be a file of {size / 1e6:,.0f} MB, more than "
            f"{MOST_BYTES / 1e6:,.0f}; {remedy}"
        )
    return None


def estimated_bytes(run: Run) -> int:
    """Return about how large the file would be."""
    graph = run.graph
    facts = len(graph.train) + len(graph.valid) + len(graph.test)
    names = sum(len(name.encode()) + 3 for name in graph.entities)
    packed = run.model.entity.numel() + 12 * facts + 9 * graph.num_entities
    return names + packed * 4 // 3 + 200_000


def explorer_page(
    answers: ExplorerAnswers, report: str | None = None, progress: Progress | None = None
) -> str:
    """Return the explorer of a run as HTML that needs no network."""
    data = {**answers.info(), "embedded": True, "report": report, **_contents(answers, progress)}
    return render(data, _POLICY)


def render(data: dict[str, Any], policy: str) -> str:
    """Return the page around some data."""
    return Template(asset("explorer.html")).substitute(
        title=text(data["title"]),
        version=text(__version__),
        policy=text(policy),
        style=asset("explorer.css"),
        script="\n".join(asset(f"explorer-{name}.js") for name in _SCRIPTS),
        data=embedded_json(data),
    )


def embedded_json(data: dict[str, Any]) -> str:
    """Return JSON that no parser of HTML can take for the end of its element or a comment."""
    packed = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        packed = packed.replace(sign, f"\\u{ord(sign):04x}")
    return packed


def _contents(answers: ExplorerAnswers, progress: Progress | None) -> dict[str, Any]:
    """Return what the page would otherwise ask the server for."""
    run, graph = answers.run, answers.graph
    splits = [graph.split(name) for name in ("train", "valid", "test")]
    table = Int8Table(run.model.entity.detach().float().cpu())
    relation = run.model.relation.detach().float().cpu().numpy()
    return {
        "entities": list(graph.entities),
        "splits": [len(split) for split in splits],
        "facts": packed(np.concatenate(splits), "<i4"),
        "type": packed(answers.types, "u1"),
        "places": packed(answers.places, "<u2"),
        "model": {
            "scoring": run.config.scoring,
            "dim": run.config.dim,
            "norm": run.model.scoring.norm,
            "normalize": run.model.scoring.normalize,
            "reciprocal": run.model.reciprocal,
            "values": packed(table.values.numpy(), "i1"),
            "scale": packed(table.scale.numpy(), "<f4"),
            "relation": packed(relation, "<f4"),
            "relation_width": relation.shape[1],
        },
        "calibration": packed_calibration(run),
        "rejected": run.rejected_ids.tolist(),
        # Plain rows: the page knows names, flags and reasons by itself.
        "queue": [
            [f["head"]["id"], f["relation"], f["tail"]["id"], f["probability"], f["score"]]
            for f in answers.queue(work=_QUEUE_WORK, progress=progress)
        ],
    }


#: Terms of entities that a page may hold, one byte each; beyond it a page shows raw scores.
MOST_TERMS = 6_000_000


def packed(array: np.ndarray, kind: str) -> str:
    """Return numbers as base64 of their bytes."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def packed_calibration(run: Run) -> dict[str, Any] | None:
    """Return what turns scores into log-odds in the page, or None where it is not held there.

    The log-odds of an answer are linear in the log-softmax and the deviation of its score, plus a
    term of the answer and a term of the entity that is asked about; those two depend on the
    relation and the side only and are worked out here.
    """
    graph = run.graph
    terms = 4 * graph.num_entities * graph.num_relations  # two of each entity, for each side
    if terms > MOST_TERMS or (calibration := run.calibration) is None:
        return None
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
                evidence.entity_table(other, r, positions, asked=True) @ of_anchor[r],
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
    return {
        "temperature": calibration.temperature,
        "taken_out": TAKEN_OUT,
        "sides": sides,
    }


def _in_bytes(terms: np.ndarray) -> dict[str, Any]:
    """Return terms as a byte each, with where they begin and their step per relation. (m, n)."""
    low, high = terms.min(1), terms.max(1)
    step = np.maximum(high - low, 1e-9) / 255
    values = np.round((terms - low[:, None]) / step[:, None])
    return {"low": low.tolist(), "step": step.tolist(), "values": packed(values, "u1")}
