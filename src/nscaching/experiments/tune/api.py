"""The verb: tune a graph."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from nscaching.errors import CHOOSE_ANOTHER, TrainingInterrupted, UserError
from nscaching.experiments.tune import pictures
from nscaching.experiments.tune.folder import SearchFolder
from nscaching.experiments.tune.importance import measure
from nscaching.experiments.tune.progress import SearchProgress
from nscaching.experiments.tune.result import SearchResult
from nscaching.experiments.tune.search import Search, SearchFailed
from nscaching.experiments.tune.settings import (
    MAY_CHANGE,
    WORKERS_AS,
    SearchOptions,
    as_record,
    read_options,
)
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.subject import Config, Subject
from nscaching.experiments.tune.subjects import subject_of
from nscaching.report.page import try_to_write
from nscaching.report.search_page import write_search_page
from nscaching.runs.api import refuse_both
from nscaching.training import Progress


def tune(
    graph: Any = None,
    *,
    out: str | Path | None = None,
    base: Config | str | Path | None = None,
    labels: str | Path | None = None,
    trials: int | None = None,
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
    """Search the numbers of the cache, or of the model, for the best validation MRR.

    ``graph`` is what :func:`nscaching.train` takes. ``base`` is a run folder, a YAML file or a
    configuration that gives the options which are not searched; keywords win, and a searched option
    given as a keyword is fixed and not searched. Every trial is an ordinary run below ``out``. A
    search that was stopped goes on with ``resume=True``. ``workers`` trains so many trials at once
    on this machine, ``dask`` on the cluster of that scheduler; in a script keep the call below
    ``if __name__ == "__main__":`` then, since workers import the script.

    With ``space="nodes"`` (or ``"nodes+"``) embeddings of nodes are tuned instead: ``graph`` is
    what :func:`nscaching.embed_nodes` takes, with ``labels`` if it has them in a file, options are
    those of :class:`NodeConfig`, and a setting is trained with ``seeds`` seeds. Trials are compared
    by micro-F1 on validation nodes, or by the AUC of held-out edges where nodes have no classes.
    """
    _require_smac()
    _check_workers(workers, workers_as)
    refuse_both(resume, overwrite)
    started = time.monotonic()
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    asked = {"trials": trials, "method": method, "space": space}
    asked |= {"min_epochs": min_epochs, "seeds": seeds}
    given = {name: value for name, value in asked.items() if value is not None}
    if resume:
        folder = _existing(out, graph, base, labels)
        settings, fixed, planned = _resumed(folder, given, options)
    else:
        settings = read_options(given, "options")
        fixed = {name: value for name, value in options.items() if value is not None}
        folder = _begun(graph, labels, out, base, settings, fixed, overwrite, shown)
        planned = settings.trials
    subject = subject_of(settings)
    config = subject.read_config(folder.base)
    search = _make_search(folder, subject, settings, planned, config, fixed, SearchProgress(shown))
    if resume:
        search.take_up()
    _run(search, config, workers, workers_as, dask)
    return _result(search, settings, config, time.monotonic() - started)


def _run(search: Search, config: Config, workers: int, workers_as: str, dask: str | None) -> None:
    from nscaching.experiments.tune.runners import make_runner

    with (
        make_runner(
            search.optimiser.scenario,
            search.folder.path,
            search.subject,
            workers=workers,
            dask=dask,
            workers_as=workers_as,
            device=search.subject.device(config),
        ) as runner,
        search.progress.showing(search),
    ):
        try:
            search.run(runner)
        except KeyboardInterrupt as error:
            raise TrainingInterrupted(
                f"Stopped after {search.done} of {search.limit} trials; they are kept, and so is "
                "what was being trained. Go on with:\n"
                f"  nscaching tune --resume --out {search.folder.path}"
            ) from error


def _make_search(
    folder: SearchFolder,
    subject: Subject,
    settings: SearchOptions,
    planned: int,
    config: Config,
    fixed: dict[str, Any],
    progress: SearchProgress,
) -> Search:
    from nscaching.experiments.tune.optimiser import Optimiser

    space = SearchSpace.build(settings.space, config, fixed)
    optimiser = Optimiser(
        space,
        method=settings.method,
        trials=planned,
        epochs=config.epochs,
        min_epochs=settings.min_epochs,
        seed=config.seed,
        folder=folder.path,
    )
    return Search(folder, space, subject, optimiser, settings.trials, progress)


def _result(
    search: Search, settings: SearchOptions, config: Config, seconds: float
) -> SearchResult:
    best = search.best
    trials = sorted(search.trials.values(), key=lambda trial: trial.number)
    if best is None:
        raise SearchFailed(f"All {len(trials)} trials failed. The last said: {trials[-1].error}")
    result = SearchResult(
        folder=search.folder,
        method=settings.method,
        space=settings.space,
        subject=search.subject,
        measure=search.measure,
        base=config,
        trials=trials,
        best=best,
        curve=search.curve.points,
        importance=measure(search.space, trials, config.seed),
        seconds=seconds,
    )
    result = replace(result, pictures=pictures.draw(result))
    page = try_to_write(lambda: write_search_page(result), search.progress.say)
    result = replace(result, report=None if page is None else str(page))
    result.write()
    return result


# Beginning and resuming --------------------------------------------------------------------------


def _begun(
    graph: Any,
    labels: str | Path | None,
    out: str | Path | None,
    base: Config | str | Path | None,
    settings: SearchOptions,
    fixed: dict[str, Any],
    overwrite: bool,
    shown: Progress,
) -> SearchFolder:
    """Write down what is to be searched; nothing is written before all of it is known to work."""
    subject = subject_of(settings)
    config, _ = subject.plan(settings.space, graph, base, fixed)
    folder = SearchFolder(out if out is not None else default_out(config.data))
    folder.refuse_occupied(overwrite)
    loaded = subject.open(graph, config, labels)
    for note in loaded.notes:
        shown.say(note)
    subject.device(config)
    folder.create(as_record(settings, fixed), lambda path: subject.write_base(path, config, loaded))
    return folder


def _existing(
    out: str | Path | None,
    graph: Any,
    base: Config | str | Path | None,
    labels: str | Path | None,
) -> SearchFolder:
    """Return the folder of a search that goes on, which must be the one that is meant."""
    if out is None and graph is None:
        raise UserError("Name the search to resume with --out.")
    by_name = isinstance(graph, str | Path)
    name = str(graph) if by_name else getattr(graph, "name", "")
    folder = SearchFolder(out if out is not None else default_out(name))
    settings, _, _ = folder.read()  # complains when there is none
    subject = subject_of(settings)
    stored = subject.read_config(folder.base)
    for what, given in (("base", base), ("labels", labels)):
        if given is not None:
            raise UserError(
                f"A search is resumed with the {what} it was begun with; leave --{what} out."
            )
    same = name == stored.data if by_name else graph is None or subject.is_of(folder.base, graph)
    if not same:
        raise UserError(
            f"{folder.path} searches on {stored.data}, not on this graph. Leave the data out to "
            f"resume it, or {CHOOSE_ANOTHER}"
        )
    return folder


def _resumed(
    folder: SearchFolder, given: dict[str, Any], options: dict[str, Any]
) -> tuple[SearchOptions, dict[str, Any], int]:
    """Return the stored settings; what is given now may only ask for more trials."""
    stored, fixed, planned = folder.read()
    settings = read_options({**stored.as_dict(), **given}, "options")
    base = subject_of(stored).read_config(folder.base)
    before = {**base.as_dict(), **stored.as_dict()}
    now = {**settings.as_dict(), **options}
    for name, value in now.items():
        if name in MAY_CHANGE or (name in before and before[name] == value):
            continue
        raise UserError(
            f"{folder.path} was begun with {name} {before.get(name)}, not {value}. Leave {name} "
            f"out to resume it, or {CHOOSE_ANOTHER}"
        )
    return settings, fixed, planned


def default_out(data: str) -> Path:
    """Return the folder a search goes to when none is named."""
    source = Path(data).name.split(".")[0] or "graph"
    return Path("runs") / f"{source}-tune"


def _check_workers(workers: int, workers_as: str) -> None:
    if workers < 1:
        raise UserError(f"workers must be at least 1, not {workers}.")
    if workers_as not in WORKERS_AS:
        raise UserError(f"workers_as must be one of {', '.join(WORKERS_AS)}, not '{workers_as}'.")


def _require_smac() -> None:
    if importlib.util.find_spec("smac") is None or importlib.util.find_spec("ConfigSpace") is None:
        raise UserError("Tuning needs SMAC. Install it with: pip install 'nscaching[tune]'")
