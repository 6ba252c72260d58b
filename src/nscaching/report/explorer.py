"""The explorer as one HTML file: names, facts, an int8 copy of the model, and the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from nscaching._version import __version__
from nscaching.artefacts.files import write_text
from nscaching.errors import UserError
from nscaching.report.explorer_answers import ExplorerAnswers
from nscaching.report.explorer_model import int8_table, packed, packed_calibration
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
    "base",
    "find",
    "model",
    "source",
    "reasons",
    "views",
    "help",
    "draw",
    "map",
    "review",
    "main",
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def write_explorer(
    run: Run,
    path: Path | None = None,
    report: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the explorer of a run as one file, into its folder unless a path is given.

    ``report`` is the address of the report, for a link to it. A graph that is too large for a file
    is refused with the command that serves it.
    """
    if path is None:
        if run.folder is None:
            raise UserError("This run is in no folder; name the file to write.")
        path = run.folder.path / FILE_NAME
    reason = too_large(run)
    if reason is not None:
        raise UserError(reason)
    write_text(path, explorer_page(run, report, progress))
    return path


def too_large(run: Run) -> str | None:
    """Say why a run cannot be explored in one file; None where it can."""
    folder = run.folder.path if run.folder is not None else "RUN"
    remedy = f"explore it with 'nscaching explore {folder}'."
    if run.config.scoring not in SCORED_IN_PAGE:
        return f"A page cannot score with {run.config.scoring}; {remedy}"
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


def explorer_page(run: Run, report: str | None = None, progress: Progress | None = None) -> str:
    """Return the explorer of a run as HTML that needs no network."""
    answers = ExplorerAnswers(run)
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
    values, scale = int8_table(run.model.entity)
    relation = run.model.relation.detach().float().cpu().numpy()
    return {
        "entities": graph.entities,
        "splits": [len(split) for split in splits],
        "facts": packed(np.concatenate(splits), "<i4"),
        "type": packed(answers.types, "u1"),
        "places": packed(answers.places, "<u2"),
        "model": {
            "scoring": run.config.scoring,
            "dim": run.config.dim,
            "norm": run.model.scoring.norm,
            "reciprocal": run.model.reciprocal,
            "values": packed(values, "i1"),
            "scale": packed(scale, "<f4"),
            "relation": packed(relation, "<f4"),
            "relation_width": relation.shape[1],
        },
        "calibration": packed_calibration(run),
        "rejected": [
            [graph.entity_ids[head], graph.relation_ids[relation], graph.entity_ids[tail]]
            for head, relation, tail in sorted(run.rejected)
            if {head, tail} <= graph.entity_ids.keys() and relation in graph.relation_ids
        ],
        "queue": _queue(answers, progress),
    }


def _queue(answers: ExplorerAnswers, progress: Progress | None) -> Sequence[Sequence[Any]]:
    """Return the queue as plain rows: the page knows names, flags and reasons by itself."""
    return [
        [
            fact["head"]["id"],
            fact["relation"],
            fact["tail"]["id"],
            fact["probability"],
            fact["score"],
        ]
        for fact in answers.queue(work=_QUEUE_WORK, progress=progress)
    ]
