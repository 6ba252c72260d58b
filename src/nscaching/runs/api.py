"""The verbs: train a graph, load a run."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nscaching.artefacts import artefact_id
from nscaching.distributed.cost import agree, strata_for
from nscaching.errors import CHOOSE_ANOTHER, UserError, plural
from nscaching.graph import GraphSource, KnowledgeGraph
from nscaching.graph.splitting import split_on_disk
from nscaching.kernels.threads import refuse_lost_threads
from nscaching.models import SCORING
from nscaching.processes import attempt, current_group, joined, launch_id
from nscaching.runs.resuming import open_tracking, refuse_less, remember, resumed_graph
from nscaching.runs.run import Run, finished
from nscaching.sampling.options import ALL, check_preset, fitted, with_preset
from nscaching.training import Progress, RunFolder, TrainConfig, Trainer
from nscaching.training.config import idle_options, plain_options
from nscaching.training.devices import pick_device
from nscaching.training.memory import refuse_what_does_not_fit
from nscaching.training.opening import named_or_graph, open_graph, verified
from nscaching.training.progress import duration
from nscaching.training.recipes import AUTO, PAPER, with_recipe
from nscaching.training.recipes import read as read_recipe
from nscaching.training.trackers import NO_TRACKER, Trackers, Tracking

#: Options that do not change what a run computes, only how long, where and how it is kept.
_MAY_CHANGE = {"data", "epochs", "max_seconds", "device", "eval_memory", "checkpoint_seconds"}
#: Options that the configuration of a run has always named, and a person's file hardly all names.
_WRITTEN = {"data", "split", "init_from", "max_seconds", "eval_memory", "checkpoint_seconds"}
#: What stands for a value that a run decides once it has its graph: see :func:`decided`.
_LEFT_OPEN = {
    "data": "",
    "split": None,
    "valid_facts": None,
    "batch_size": None,
    "l2": None,
    "cache_size": ALL,
    "candidates": ALL,
    "recipe": AUTO,
}


def train(
    graph: GraphSource | None = None,
    *,
    out: str | Path | None = None,
    config: TrainConfig | str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | str = "auto",
    track: Trackers = (),
    remarks: bool = True,
    probabilities: bool = True,
    **options: Any,
) -> Run:
    """Train embeddings of a graph and return the run with the best model found.

    Args:
        graph: A :class:`KnowledgeGraph`, the name of a data set, a folder, a file, a data frame or
            a list of triples, as in :func:`load_graph`; a run that is resumed needs none. A file,
            or a graph with training triples only, is split: the option ``split`` is the share held
            out for valid and again for test, and ``run.graph`` is the split graph.
        out: Folder in which the run is kept, so that it can be resumed after a stop and read back
            by :func:`load_run`. Without one the run is in memory only.
        config: Options as a :class:`TrainConfig` or a YAML file; keywords win.
        overwrite: Whether a run in that folder is replaced.
        resume: Whether the run in that folder is continued where it stopped.
        progress: ``"auto"``, ``"bar"``, ``"lines"`` or ``"none"``.
        track: Trackers that are told how it goes, such as ``["tensorboard:logs", "csv:a.csv"]``. A
            resumed run has those it was begun with, unless others are named, or ``"none"``; one of
            your own is an object, which a folder cannot keep, so name it again.
        remarks: Whether options that are given and have no effect are remarked on.
        probabilities: Whether those of a run with a folder are fitted at the end, so that its first
            answer is quick, or when it is first asked for them.
        **options: The options of :class:`TrainConfig`.

    Returns:
        The run: evaluate it, ask it, export it.

    Examples:
        >>> run = ns.train("world", epochs=1, dim=8, progress="none")
        >>> facts = [("a", "likes", "b"), ("b", "likes", "c"), ("c", "likes", "a")]
        >>> run = ns.train(facts, scoring="complex", epochs=3, progress="none")

    """
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    with joined(str(options.get("device", "auto"))) as group, contextlib.ExitStack() as held:
        if group.rank > 0:
            shown, track = Progress("none"), NO_TRACKER
        with group.together():
            if group.rank == 0 and out is not None:
                held.enter_context(RunFolder(out).writing())
        again = False  # whether an earlier attempt of this launch of processes began the run
        if out is not None and attempt() > 0 and RunFolder(out).is_run():
            again = RunFolder(out).read_marker().get("launch") == launch_id() is not None
        if group.broadcast(again):
            resume, overwrite = True, False
            shown.say(f"A process was lost; resuming from the last checkpoint ({attempt()}).")
        folder = None if out is None else RunFolder(out)
        with group.together():
            tracking = open_tracking(folder, track, resume, shown.say)
        trainer = make_trainer(
            graph,
            out=out,
            config=config,
            overwrite=overwrite,
            resume=resume,
            progress=shown,
            tracking=tracking,
            remarks=remarks,
            **options,
        )
        with _ended(trainer.tracking):
            trainer.run(resume)
            return finished(trainer, shown, probabilities)


def _named_options() -> inspect.Signature:
    """Return the signature of :func:`train` with its options by name, for completion and help."""
    plain = inspect.signature(train)
    *given, _ = plain.parameters.values()
    taken = {parameter.name for parameter in given}
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in fields(TrainConfig)
        if field.name not in taken | {"data"}
    ]
    return plain.replace(parameters=[*given, *options])


vars(train)["__signature__"] = (
    _named_options()
)  # no plain assignment: mkdocstrings reads it as train


@contextlib.contextmanager
def _ended(tracking: Tracking) -> Iterator[None]:
    """End the trackers, however the run ends."""
    status = "failed"
    try:
        yield
        status = "finished"
    except KeyboardInterrupt:
        status = "stopped"
        raise
    finally:
        tracking.end(status)


def make_trainer(
    graph: GraphSource | None,
    *,
    out: str | Path | None,
    config: TrainConfig | str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress,
    tracking: Tracking | None = None,
    remarks: bool = False,
    **options: Any,
) -> Trainer:
    """Check everything :func:`train` is given and return what trains; the run folder is made."""
    refuse_lost_threads()
    group, folder = current_group(), RunFolder(out) if out is not None else None
    with group.together():
        refuse_both(resume, overwrite)
        if resume and folder is None:
            raise UserError("Name the run to resume with --out (out=...).")
        source, given = named_or_graph(graph), {**plain_options(config, TrainConfig), **options}
        if resume and folder is not None and _may_resume(folder, source, given, progress):
            loaded, settings, keep = _resumed(folder, source, given, progress, tracking)
        else:
            given = merged_options(config, options)
            if folder is not None:
                make_config(source, given)  # a mistake in the options is named first
                folder.refuse_occupied(overwrite)
            loaded, settings, keep = _begun(folder, source, given, progress)
            for remark in idle_options(settings, options) if remarks else ():
                progress.say(remark)
    if group.size > 1:
        agree(group, loaded, settings, folder is not None)
    with group.together():
        trainer = Trainer(loaded, settings, folder, progress, tracking)
        if group.rank == 0:
            keep()  # only now: whatever could be wrong has been looked at
            if folder is not None and tracking is not None:
                remember(folder, tracking)
    if folder is not None:
        group.refuse_another_folder(folder.path, artefact_id(folder.path))
    return trainer


#: A graph, the settings to train it with, and what writes the run folder.
_Plan = tuple[KnowledgeGraph, TrainConfig, Callable[[], None]]


def _may_resume(
    folder: RunFolder,
    graph: KnowledgeGraph | str | Path | None,
    given: dict[str, Any],
    progress: Progress,
) -> bool:
    """Tell whether there is a run to resume; without one there must be data to begin with."""
    if folder.is_run():
        return True
    if graph is None and not given.get("data"):
        raise UserError(f"There is no run in {folder.path} to resume; name data to begin one.")
    if not folder.exists():
        progress.say(f"There is no run in {folder.path} yet, so one is begun.")
    return False


def _begun(
    folder: RunFolder | None,
    graph: KnowledgeGraph | str | Path | None,
    given: dict[str, Any],
    progress: Progress,
) -> _Plan:
    loaded = open_graph(make_config(graph, given), graph, progress.say)
    if folder is None:  # a run folder verifies what it takes in
        verified(loaded)
    for note in loaded.notes:
        progress.say(note)
    settings = recipe_config(given, graph, loaded, progress)
    settings = replace(settings, strata=strata_for(settings.strata, current_group().size))
    refuse_what_does_not_fit(loaded, settings)
    return loaded, settings, lambda: folder.create(settings, loaded) if folder else None


def recipe_config(
    given: dict[str, Any],
    source: KnowledgeGraph | str | Path | None,
    graph: KnowledgeGraph,
    progress: Progress,
) -> TrainConfig:
    """Return the configuration of a run on a graph: what was given, on top of a recipe."""
    if graph.on_disk and given.get("split"):
        raise split_on_disk(graph, given["split"])
    options, sentence = with_recipe(given, graph)
    if sentence is not None:
        progress.say(sentence)
    return decided(make_config(source, options), graph)


def decided(settings: TrainConfig, graph: KnowledgeGraph) -> TrainConfig:
    """Fill in what was left open: a run writes down what it is made with."""
    scoring = SCORING[settings.scoring]
    l2 = settings.penalty(scoring.usual_l2, scoring.usual_loss)
    recipe = PAPER if settings.recipe == AUTO else settings.recipe
    batch = settings.batch(len(graph.train))
    settings = replace(settings, batch_size=batch, l2=l2, recipe=recipe)
    return fitted(settings, graph.num_entities)


def _resumed(
    folder: RunFolder,
    graph: KnowledgeGraph | str | Path | None,
    given: dict[str, Any],
    progress: Progress,
    tracking: Tracking | None,
) -> _Plan:
    if isinstance(graph, KnowledgeGraph) and "data" in given:
        given["data"] = graph.name  # as in a run that is begun with it
    settings = resumed_config(folder, given)
    if graph is None and settings.data != folder.read_config().data:
        graph = settings.data
    loaded = resumed_graph(folder, graph, settings)
    refuse_what_does_not_fit(loaded, settings)
    done = folder.read_counters() if folder.has_checkpoint() else None
    if done is not None:
        refuse_less(folder, done, settings)
    if done is None and folder.has_model():
        raise UserError(
            f"{folder.checkpoint} is missing, so the run cannot be resumed; restore it, or begin "
            "anew with --overwrite (overwrite=True), which replaces the model that is there."
        )

    def keep() -> None:
        folder.sweep()
        folder.adopt()
        limits = settings.epochs, settings.max_seconds, settings.patience
        spent = done if done is not None and done.nothing_left(*limits) else None
        early = spent is not None and spent.out_of_patience(settings.patience)
        if spent is not None and tracking is not None:
            tracking.leave_alone()
        elif tracking is not None and tracking.remembered:
            progress.say(f"Logging to {', '.join(tracking.targets)}, as before.")
        if spent is not None and not folder.has_model():
            progress.say("The model is missing; it is written again from the checkpoint.")
        elif spent is not None and early:
            progress.say(
                f"Nothing to do: {folder.path} stopped early after {plural(spent.epoch, 'epoch')}, "
                f"{plural(settings.patience, 'validation')} without a gain. A run that is begun "
                "with a larger --patience (patience=...) goes on longer."
            )
        elif spent is not None:
            progress.say(
                f"Nothing to do: {folder.path} has {spent.epoch} epochs already, in "
                f"{duration(spent.epoch_seconds)}. Give a larger --epochs (epochs=...) to continue "
                "it."
            )
        elif settings != folder.read_config():  # more epochs, say: the file must repeat the run
            folder.write_config(settings)

    # A checkpoint holds the parameters: the run they once came from may be gone.
    return loaded, replace(settings, init_from=None) if done is not None else settings, keep


def load_run(path: str | Path, device: str = "auto", *, mapped: bool | None = None) -> Run:
    """Read a run folder back.

    Args:
        path: The folder that :func:`train` was given as ``out``.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        mapped: Whether the shards of a run with strata stay on disk and are read one after the
            other; by default those that would take half of the free memory or more.

    Returns:
        The run with its graph, model, metrics and probabilities.

    Examples:
        >>> run = ns.load_run("runs/world")

    """
    return Run.load(path, pick_device(device), mapped)


def make_config(graph: KnowledgeGraph | str | Path | None, given: dict[str, Any]) -> TrainConfig:
    """Return the checked configuration of a new run."""
    if graph is not None:
        name = graph.name if isinstance(graph, KnowledgeGraph) else str(graph)
        given = {**given, "data": name}
    if not given.get("data"):
        raise UserError("Name a data set, a folder or a file of triples to train on.")
    named = given.get("recipe")
    if isinstance(named, str) and named != AUTO:  # what goes together depends on it
        given = {**read_recipe(named), **given}
    settings = TrainConfig.from_mapping(with_preset(given), "options")
    check_preset(settings)
    settings.check_sampler()
    settings.check_relation_prediction()
    settings.check_strata()
    settings.check_table()
    return settings


def merged_options(
    config: TrainConfig | str | Path | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Put options, and what a preset among them stands for, above those of a configuration."""
    given = plain_options(config, TrainConfig)
    if given.keys() >= _WRITTEN:
        given.setdefault("valid_facts", None)  # until that was an option, all were ranked
    return {**with_preset(given), **with_preset(options)}


def refuse_both(resume: bool, overwrite: bool) -> None:
    """Refuse two wishes that contradict each other."""
    if resume and overwrite:
        raise UserError(
            "--resume continues what is there and --overwrite replaces it; give one of the two."
        )


def not_left_open(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those whose value leaves it to a run what it takes."""
    return {k: v for k, v in given.items() if k not in _LEFT_OPEN or v != _LEFT_OPEN[k]}


def resumed_config(folder: RunFolder, given: dict[str, Any]) -> TrainConfig:
    """Return the stored configuration; what is given now may change only how long and where."""
    stored = folder.read_config()
    wanted = TrainConfig.from_mapping({**stored.as_dict(), **not_left_open(given)}, "options")
    for name in TrainConfig.names():
        before, now = getattr(stored, name), getattr(wanted, name)
        if before != now and name not in _MAY_CHANGE:
            raise UserError(
                f"{folder.path} was started with {name} {before}, not {now}. Resume it without "
                f"{name}, or {CHOOSE_ANOTHER}"
            )
    return wanted
