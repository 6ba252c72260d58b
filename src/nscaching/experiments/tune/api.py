"""The verb: tune a graph."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from nscaching.errors import CHOOSE_ANOTHER, UserError
from nscaching.experiments.runner import run_all
from nscaching.experiments.tune.objective import Config, objective_of
from nscaching.experiments.tune.result import Gain, Importance, SearchResult, measure
from nscaching.experiments.tune.search import Search, SearchFailed
from nscaching.experiments.tune.space import (
    AnyOptions,
    SearchSpace,
    read_options,
)
from nscaching.experiments.tune.trials import RUNNING, SearchFolder
from nscaching.experiments.tune.workers import Workers
from nscaching.report.experiment_pages import write_search_page
from nscaching.report.page import try_to_write
from nscaching.report.pictures import draw_search
from nscaching.runs.api import refuse_both
from nscaching.training import Progress

#: What a resumed search may change: its length.
_MAY_CHANGE = {"trials", "seconds"}


def tune(
    graph: Any = None,
    *,
    out: str | Path | None = None,
    base: Config | str | Path | None = None,
    labels: str | Path | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    select: str | None = None,
    method: str | None = None,
    space: str | None = None,
    min_epochs: int | None = None,
    seeds: int | None = None,
    workers: int = 1,
    workers_as: str = "auto",
    dask: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | str = "auto",
    **options: Any,
) -> SearchResult:
    """Search hyperparameters for the best validation MRR: those of the recipe, or of the cache.

    The first trial is the configuration without a search: by default the recipe that fits the
    graph. With ``space="nodes"`` (or ``"nodes+"``) embeddings of nodes are tuned instead: ``graph``
    is what :func:`nscaching.embed_nodes` takes, options are those of :class:`NodeConfig`, and
    trials are compared by micro-F1 on validation nodes, or by the AUC of held-out edges where nodes
    have no classes.

    Args:
        graph: What :func:`nscaching.train` takes.
        out: Folder of the search. Every trial is an ordinary run below it, and ``best.yaml`` there
            is the best so far.
        base: A run folder, a YAML file or a configuration that gives the options which are not
            searched; keywords win.
        labels: File of classes of nodes.
        trials: How many configurations are trained at most.
        seconds: How long the search lasts at most.
        select: The metric on valid that trials are compared by, and that decides the best epoch of
            each: mrr, hits@1, hits@3, hits@10 or accuracy (of classification).
        method: ``"smac"``, ``"smac-mf"`` (multi-fidelity) or ``"random"``.
        space: What is searched: recipe, sampler, sampler+, model, nodes or nodes+.
        min_epochs: Epochs of the shortest trials of multi-fidelity.
        seeds: Seeds that a configuration of nodes is trained with.
        workers: Trials that are trained at once on this machine. In a script keep the call below
            ``if __name__ == "__main__":`` then, since workers import the script.
        workers_as: ``"processes"``, ``"threads"`` or ``"auto"``.
        dask: Address of a Dask scheduler whose cluster trains the trials.
        resume: Whether a search that was stopped continues.
        overwrite: Whether a search in that folder is replaced.
        progress: ``"auto"``, ``"bar"``, ``"lines"`` or ``"none"``.
        **options: Options of every trial; a searched one that is given is fixed.

    Returns:
        The best configuration, all trials, and which options mattered.

    Examples:
        >>> result = ns.tune("world", trials=12, epochs=10, out="runs/search")  # doctest: +SKIP
        >>> run = ns.train("world", config=result.config)  # doctest: +SKIP

    """
    if importlib.util.find_spec("smac") is None or importlib.util.find_spec("ConfigSpace") is None:
        raise UserError("Tuning needs SMAC. Install it with: pip install 'nscaching[tune]'")
    crew = Workers(workers, workers_as, dask)
    refuse_both(resume, overwrite)
    started = time.monotonic()
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    asked = {"trials": trials, "seconds": seconds, "method": method}
    asked |= {"space": space, "min_epochs": min_epochs, "seeds": seeds}
    given = {name: value for name, value in asked.items() if value is not None}
    options = {**options, "select": select}
    options = {name: value for name, value in options.items() if value is not None}
    with contextlib.ExitStack() as held:
        if resume and graph is not None and not _is_begun(graph, out):
            shown.say("There is no search to resume yet, so one is begun.")
            resume = False
        if resume:
            folder = _existing(out, graph, base, labels)
            held.enter_context(folder.writing())
            settings = _resumed(folder, given, options)
        else:
            settings = read_options(given, "options")
            objective = objective_of(settings)
            plan = objective.plan(graph, base, options)
            folder = SearchFolder(out if out is not None else _default_out(plan["data"]))
            held.enter_context(folder.writing())
            folder.refuse_occupied(overwrite)
            loaded: Any = objective.open(graph, plan, labels)
            settings = _begin(folder, settings, plan, options, loaded, shown)
        search = Search(folder, settings, shown)
        if resume:
            search.resume()
        device = search.objective.device(search.base)  # type: ignore[arg-type]
        with crew.executor(search.place, device) as executor, search.showing():
            run_all(search, executor)
        search.end()
        return _result(search, settings, time.monotonic() - started)


def _result(search: Search, settings: AnyOptions, seconds: float) -> SearchResult:
    best = search.best
    trials = sorted(search.trials.values(), key=lambda trial: trial.number)
    trials = [trial for trial in trials if trial.status != RUNNING]
    if best is None:
        raise SearchFailed(f"All {len(trials)} trials failed. The last said: {trials[-1].error}")
    found = measure(search.space, trials, search.base.seed)
    result = SearchResult(
        folder=search.folder,
        method=settings.method,
        space=settings.space,
        objective=search.objective,
        metric=search.metric,
        base=search.base,
        trials=trials,
        best=best,
        curve=search.curve.points,
        importance=found if isinstance(found, Importance) else None,
        importance_note=found if isinstance(found, str) else None,
        gain=Gain.measure(search.objective, best, trials[0]),
        seconds=seconds,
    )
    result = replace(result, pictures=draw_search(result))
    page = try_to_write(lambda: write_search_page(result), search.progress.say)
    result = replace(result, report=None if page is None else str(page))
    result.write()
    return result


# Beginning and resuming --------------------------------------------------------------------------


def _begin(
    folder: SearchFolder,
    settings: AnyOptions,
    plan: dict[str, Any],
    fixed: dict[str, Any],
    graph: Any,
    progress: Progress,
) -> AnyOptions:
    """Write down what is to be searched, and return it with the space that the recipe has.

    Nothing is written before all of it is known to work.
    """
    objective: Any = objective_of(settings)
    for note in graph.notes:
        progress.say(note)
    space, config = objective.configure(settings.space, plan, graph, progress)
    SearchSpace.build(space, config, fixed)
    objective.device(config)
    settings = replace(settings, space=space)
    folder.create(settings, fixed, lambda path: objective.write_base(path, config, graph))
    return settings


def _is_begun(graph: Any, out: str | Path | None) -> bool:
    """Tell whether the folder of a search holds something; what a killed start left is nothing."""
    name = str(graph) if isinstance(graph, str | Path) else getattr(graph, "name", "")
    folder = SearchFolder(out if out is not None else _default_out(name))
    folder.recover()
    return folder.exists()


def _existing(
    out: str | Path | None,
    graph: Any,
    base: Config | str | Path | None,
    labels: str | Path | None,
) -> SearchFolder:
    """Return the folder of the search to resume, which must be the one that is meant."""
    if out is None and graph is None:
        raise UserError("Name the search to resume with --out.")
    by_name = isinstance(graph, str | Path)
    name = str(graph) if by_name else getattr(graph, "name", "")
    folder = SearchFolder(out if out is not None else _default_out(name))
    settings, _, _ = folder.read()  # complains when there is none
    objective = objective_of(settings)
    stored = objective.read_config(folder.base)
    for what, given in (("base", base), ("labels", labels)):
        if given is not None:
            raise UserError(
                f"A search is resumed with the {what} it was begun with; drop --{what}."
            )
    same = name == stored.data if by_name else graph is None or objective.is_of(folder.base, graph)
    if not same:
        raise UserError(
            f"{folder.path} searches on {stored.data}, not on this graph. Drop the data to "
            f"resume it, or {CHOOSE_ANOTHER}"
        )
    return folder


def _resumed(folder: SearchFolder, given: dict[str, Any], options: dict[str, Any]) -> AnyOptions:
    """Return the stored settings; what is given now may only ask for more trials."""
    stored, _, _ = folder.read()
    settings = read_options({**stored.as_dict(), **given}, "options")
    base = objective_of(stored).read_config(folder.base)
    before = {**base.as_dict(), **stored.as_dict()}
    for name, value in {**settings.as_dict(), **options}.items():
        if name in _MAY_CHANGE or (name in before and before[name] == value):
            continue
        raise UserError(
            f"{folder.path} was begun with {name} {before.get(name)}, not {value}. Drop {name} "
            f"to resume it, or {CHOOSE_ANOTHER}"
        )
    return settings


def _default_out(data: str) -> Path:
    """Return the folder a search goes to when none is named."""
    return Path("runs") / f"{Path(data).name.split('.')[0] or 'graph'}-tune"
