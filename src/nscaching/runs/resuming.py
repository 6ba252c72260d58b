"""What a run that is resumed must share with what it was: its graph, and no fewer epochs."""

from __future__ import annotations

from pathlib import Path

from nscaching.errors import CHOOSE_ANOTHER, UserError, plural
from nscaching.graph import KnowledgeGraph
from nscaching.training import RunFolder, TrainConfig
from nscaching.training.checkpoint import Counters
from nscaching.training.opening import graph_of_run, open_graph
from nscaching.training.progress import duration


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
