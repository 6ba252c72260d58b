"""The verb: tune a graph."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from nscaching.api import make_config, open_graph, plain_options
from nscaching.errors import TrainingInterrupted, UserError
from nscaching.graph import KnowledgeGraph
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.devices import pick_device
from nscaching.tuning import pictures
from nscaching.tuning.folder import SearchFolder
from nscaching.tuning.importance import measure
from nscaching.tuning.progress import SearchProgress
from nscaching.tuning.result import SearchResult
from nscaching.tuning.search import Search, SearchFailed
from nscaching.tuning.settings import MAY_CHANGE, WORKERS_AS, SearchOptions, as_record
from nscaching.tuning.space import SearchSpace


def tune(
    graph: KnowledgeGraph | str | Path | None = None,
    *,
    out: str | Path | None = None,
    base: TrainConfig | str | Path | None = None,
    trials: int | None = None,
    method: str | None = None,
    space: str | None = None,
    min_epochs: int | None = None,
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
    """
    _require_smac()
    _check_workers(workers, workers_as)
    started = time.monotonic()
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    asked = {"trials": trials, "method": method, "space": space, "min_epochs": min_epochs}
    given = {name: value for name, value in asked.items() if value is not None}
    if resume:
        folder = _existing(out, graph, base)
        settings, fixed, planned = _resumed(folder, given, options)
    else:
        settings = SearchOptions.from_mapping(given, "options")
        folder, fixed, planned = _begun(graph, out, base, settings, options, overwrite, shown)
    config = folder.base.read_config()
    search = _make_search(folder, settings, planned, config, fixed, SearchProgress(shown))
    if resume:
        search.take_up()
    _run(search, config, workers, workers_as, dask)
    return _result(search, settings, config, time.monotonic() - started)


def _run(
    search: Search, config: TrainConfig, workers: int, workers_as: str, dask: str | None
) -> None:
    from nscaching.tuning.runners import make_runner

    with (
        make_runner(
            search.optimiser.scenario,
            search.folder.path,
            workers=workers,
            dask=dask,
            workers_as=workers_as,
            device=pick_device(config.device).type,
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
    settings: SearchOptions,
    planned: int,
    config: TrainConfig,
    fixed: dict[str, Any],
    progress: SearchProgress,
) -> Search:
    from nscaching.tuning.optimiser import Optimiser

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
    return Search(folder, space, config, optimiser, settings.trials, progress)


def _result(
    search: Search, settings: SearchOptions, config: TrainConfig, seconds: float
) -> SearchResult:
    best = search.best
    trials = sorted(search.trials.values(), key=lambda trial: trial.number)
    if best is None:
        raise SearchFailed(f"All {len(trials)} trials failed. The last said: {trials[-1].error}")
    result = SearchResult(
        folder=search.folder,
        method=settings.method,
        space=settings.space,
        base=config,
        trials=trials,
        best=best,
        curve=search.curve.points,
        importance=measure(search.space, trials, config.seed),
        seconds=seconds,
    )
    result = replace(result, pictures=pictures.draw(result, search.progress))
    result.write()
    return result


# Beginning and resuming --------------------------------------------------------------------------


def _begun(
    graph: KnowledgeGraph | str | Path | None,
    out: str | Path | None,
    base: TrainConfig | str | Path | None,
    settings: SearchOptions,
    options: dict[str, Any],
    overwrite: bool,
    shown: Progress,
) -> tuple[SearchFolder, dict[str, Any], int]:
    given = {**_base_options(base), **options}
    probe = make_config(graph, given)
    space = SearchSpace.build(settings.space, probe, options)
    config = make_config(graph, {**given, "sampler": space.sampler})
    folder = SearchFolder(out if out is not None else default_out(config))
    folder.refuse_occupied(overwrite)
    loaded = graph if isinstance(graph, KnowledgeGraph) else open_graph(config)
    for note in loaded.notes:
        shown.say(note)
    if len(loaded.valid) == 0 or config.valid_every == 0:
        raise UserError(
            "A search compares trials by validation MRR: it needs valid triples (--split for a "
            "single file) and --valid-every above 0."
        )
    pick_device(config.device)
    fixed = {name: value for name, value in options.items() if value is not None}
    folder.create(as_record(settings, fixed), config, loaded)
    return folder, fixed, settings.trials


def _base_options(base: TrainConfig | str | Path | None) -> dict[str, Any]:
    """Return the options of a run folder, a file or a configuration."""
    if isinstance(base, str | Path) and Path(base).is_dir():
        base = RunFolder(base).read_config()
    return plain_options(base)


def _existing(
    out: str | Path | None,
    graph: KnowledgeGraph | str | Path | None,
    base: TrainConfig | str | Path | None,
) -> SearchFolder:
    if out is None and graph is None:
        raise UserError("Name the search to resume with --out.")
    folder = SearchFolder(out if out is not None else default_out(make_config(graph, {})))
    folder.read()  # complains when there is none
    stored = folder.base.read_config()
    if base is not None:
        raise UserError("A search is resumed with the base it was begun with; leave --base out.")
    if isinstance(graph, KnowledgeGraph):
        same = graph.fingerprint == folder.base.read_graph().fingerprint
    else:
        same = graph is None or str(graph) == stored.data
    if not same:
        raise UserError(
            f"{folder.path} searches on {stored.data}, not on this graph. Leave the data out to "
            "resume it, or choose another --out."
        )
    return folder


def _resumed(
    folder: SearchFolder, given: dict[str, Any], options: dict[str, Any]
) -> tuple[SearchOptions, dict[str, Any], int]:
    """Return the stored settings; what is given now may only ask for more trials."""
    stored, fixed, planned = folder.read()
    settings = SearchOptions.from_mapping({**stored.as_dict(), **given}, "options")
    base = folder.base.read_config()
    before = {**base.as_dict(), **stored.as_dict()}
    now = {**settings.as_dict(), **options}
    for name, value in now.items():
        if name in MAY_CHANGE or (name in before and before[name] == value):
            continue
        raise UserError(
            f"{folder.path} was begun with {name} {before.get(name)}, not {value}. Leave {name} "
            "out to resume it, or choose another --out."
        )
    return settings, fixed, planned


def default_out(config: TrainConfig) -> Path:
    """Return the folder a search goes to when none is named."""
    source = Path(config.data).name.split(".")[0] or "graph"
    return Path("runs") / f"{source}-tune"


def _check_workers(workers: int, workers_as: str) -> None:
    if workers < 1:
        raise UserError(f"workers must be at least 1, not {workers}.")
    if workers_as not in WORKERS_AS:
        raise UserError(f"workers_as must be one of {', '.join(WORKERS_AS)}, not '{workers_as}'.")


def _require_smac() -> None:
    if importlib.util.find_spec("smac") is None or importlib.util.find_spec("ConfigSpace") is None:
        raise UserError("Tuning needs SMAC. Install it with: pip install 'nscaching[tune]'")
