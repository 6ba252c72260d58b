"""What a resumed run shares with what it was: its graph, no fewer epochs, its trackers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from nscaching.artefacts.files import read_json, write_text
from nscaching.errors import CHOOSE_ANOTHER, UserError, plural
from nscaching.graph import KnowledgeGraph
from nscaching.interop.tracking import Tracker
from nscaching.training import RunFolder, TrainConfig
from nscaching.training.checkpoint import Counters
from nscaching.training.opening import graph_of_run, open_graph
from nscaching.training.progress import duration
from nscaching.training.trackers import WITHOUT_TRACKER, Trackers, Tracking


def resumed_graph(
    folder: RunFolder, graph: KnowledgeGraph | str | Path | None, settings: TrainConfig
) -> KnowledgeGraph:
    """Return the graph of a run that is resumed; the one given now must be the same."""
    stored = folder.read_graph()
    if stored.on_disk:
        folder.store.verify()
    if graph is None:
        return stored
    if not isinstance(graph, KnowledgeGraph):
        graph = open_graph(settings, graph)
    given = graph_of_run(graph, stored, settings)
    if given is None:
        raise UserError(
            f"{folder.path} was trained on another graph: its triples or names differ from those "
            f"given now. Resume it with the same data, or {CHOOSE_ANOTHER}"
        )
    return given


def refuse_less(folder: RunFolder, done: Counters, settings: TrainConfig) -> None:
    """Refuse to end an unfinished run before where it stands: it would pass for a finished one."""
    stored = folder.read_config()
    unfinished = not done.finished and done.within_budget(stored.epochs, stored.max_seconds)
    if unfinished and not done.within_budget(settings.epochs, settings.max_seconds):
        raise UserError(
            f"{folder.path} has {plural(done.epoch, 'epoch')} of {stored.epochs} already, in "
            f"{duration(done.epoch_seconds)}, and is not finished. Resume it without --epochs and "
            "--max-seconds, or with larger ones (epochs=..., max_seconds=...)."
        )


def open_tracking(
    folder: RunFolder | None, wanted: Trackers, resume: bool, say: Callable[[str], None]
) -> Tracking:
    """Return the trackers that are wanted, or those that a resumed run was begun with."""
    named = wanted if isinstance(wanted, str | Tracker) else list(wanted)
    if named or not resume or folder is None or not folder.track.is_file() or not folder.is_run():
        return Tracking(named, say)
    try:
        found = read_json(folder.track).get("track")
        if not isinstance(found, list):
            raise UserError(f"{folder.track} names no trackers; restore it from a copy.")
        return Tracking(found, say, remembered=True)
    except UserError as error:
        raise UserError(f"{error} {WITHOUT_TRACKER}") from error


def remember(folder: RunFolder, tracking: Tracking) -> None:
    """Write down which trackers a run has, for those who resume it."""
    if tracking.targets:
        write_text(folder.track, json.dumps({"track": tracking.targets}, indent=1) + "\n")
    else:
        folder.track.unlink(missing_ok=True)
