"""The verb ``tune``, and what a search has found: in Python, as files and as JSON."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.artefacts.files import write_text
from nscaching.artefacts.showing import write_table
from nscaching.distributed.cost import strata_for
from nscaching.errors import CHOOSE_ANOTHER, UserError
from nscaching.evaluation.metrics import (
    METRICS,
    Interval,
    bootstrap_means,
    fact_values,
    interval,
    paired_difference,
    within_noise,
)
from nscaching.experiments.runner import run_all
from nscaching.experiments.tune.objective import Config, Metric, Objective, objective_of
from nscaching.experiments.tune.search import Search, SearchFailed
from nscaching.experiments.tune.space import (
    AnyOptions,
    NodeSearchOptions,
    SearchOptions,
    SearchSpace,
    read_options,
)
from nscaching.experiments.tune.trials import RUNNING, CurvePoint, SearchFolder, Trial, by_metric
from nscaching.experiments.workers import Workers
from nscaching.graph.names import Floats
from nscaching.options import Options
from nscaching.report.experiment_pages import search_page
from nscaching.report.markup import FILE_NAME, try_to_write
from nscaching.report.pictures import draw_search
from nscaching.runs.api import load_run, refuse_both
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.devices import pick_device
from nscaching.training.validation import Validation

if TYPE_CHECKING:  # needs SMAC
    from nscaching.experiments.tune.optimiser import Importance

#: What a resumed search may change: its length.
_MAY_CHANGE = {"trials", "seconds"}


def tune(
    graph: Any = None,
    *,
    out: str | Path | None = None,
    base: Config | str | Path | None = None,
    labels: str | Path | None = None,
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
        resume: Whether a search that was stopped continues.
        overwrite: Whether a search in that folder is replaced.
        progress: ``"auto"``, ``"bar"``, ``"lines"`` or ``"none"``.
        **options: How the search goes (``trials``, ``seconds``, ``method``, ``space``, ... of
            :class:`SearchOptions`), who trains the trials (``workers``, ``workers_as``, ``dask``,
            ``processes``), and options of every trial; a searched one that is given is fixed. With
            ``workers``, keep the call in a script below ``if __name__ == "__main__":``, since
            workers import the script.

    Returns:
        The best configuration, all trials, and which options mattered.

    Examples:
        >>> result = ns.tune("world", trials=12, epochs=10, out="runs/search")  # doctest: +SKIP
        >>> run = ns.train("world", config=result.config)  # doctest: +SKIP

    """
    if importlib.util.find_spec("smac") is None or importlib.util.find_spec("ConfigSpace") is None:
        raise UserError("Tuning needs SMAC. Install it with: pip install 'nscaching[tune]'")
    options = {name: value for name, value in options.items() if value is not None}
    workers = Workers.from_mapping(_taken(options, Workers), "options")
    given = _taken(options, SearchOptions, NodeSearchOptions)
    refuse_both(resume, overwrite)
    started = time.monotonic()
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    folder = _folder(out, graph if isinstance(graph, str) else getattr(graph, "name", ""))
    if resume and graph is not None:
        folder.recover()
        if not folder.exists():  # what a killed start left is nothing
            shown.say("There is no search to resume yet, so one is begun.")
            resume = False
    if resume:
        _refuse_another(folder, out, graph, {"base": base, "labels": labels})
    else:
        settings = read_options(given, "options")
        objective = objective_of(settings)
        plan = objective.plan(graph, base, options)
        if workers.processes > 1:
            plan["strata"] = _strata(settings, plan.get("strata", 1), workers.processes)
        folder = _folder(out, plan["data"])
    with folder.writing():
        if resume:
            settings = _resumed(folder, given, options, workers.processes)
        else:
            folder.refuse_occupied(overwrite)
            opened = objective.open(graph, plan, labels, settings.space, shown)
            settings = _begun(folder, settings, options, *opened)
        search = Search(folder, settings, shown, workers.processes, started)
        if resume:
            search.resume()
        with workers.pool(search.train, _device(search.base)) as pool, search.showing():
            run_all(search, pool)
        search.end()
        return _result(search, settings, search.seconds)


def _folder(out: str | Path | None, data: str) -> SearchFolder:
    """Return the folder of a search, named after the data where no other is named."""
    return SearchFolder(out or Path("runs") / f"{Path(data).name.split('.')[0] or 'graph'}-tune")


def _strata(settings: AnyOptions, stored: int, processes: int) -> int:
    """Return the strata of trials that so many processes train together."""
    if isinstance(settings, NodeSearchOptions):
        raise UserError("Embeddings of nodes are trained by one process; drop --processes.")
    return strata_for(stored, processes)


def _device(config: Config) -> str:
    """Return the kind of device that trials use, or raise when it is not there."""
    return pick_device(config.device).type if isinstance(config, TrainConfig) else "cpu"


def _taken(options: dict[str, Any], *kinds: type[Options]) -> dict[str, Any]:
    """Take the options of some kinds out of those that were given."""
    names = {name for kind in kinds for name in kind.names()} & options.keys()
    return {name: options.pop(name) for name in names}


def _result(search: Search, settings: AnyOptions, seconds: float) -> SearchResult:
    best = search.best
    trials = sorted(search.trials.values(), key=lambda trial: trial.number)
    trials = [trial for trial in trials if trial.status != RUNNING]
    if best is None:
        raise SearchFailed(f"All {len(trials)} trials failed. The last said: {trials[-1].error}")
    from nscaching.experiments.tune.optimiser import measure

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
        curve=search.curve,
        importance=None if isinstance(found, str) else found,
        importance_note=found if isinstance(found, str) else None,
        gain=Gain.measure(best, trials),
        seconds=seconds,
    )
    result.pictures = draw_search(result)
    page = try_to_write(
        lambda: write_text(result.folder.path / FILE_NAME, search_page(result)), search.progress.say
    )
    result.report = None if page is None else str(page)
    result.write()
    return result


# What was found -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """How sure the best score is: bootstrap intervals of 95 % over the valid facts.

    They say what another set of facts would change, not that the best of many trials is partly the
    luckiest.
    """

    interval: Interval  #: of the best score
    over_first: float  #: how much the best is above the first trial, the default
    over_first_interval: Interval  #: of that difference, paired by fact
    within_noise: bool  #: whether that difference may be chance

    @classmethod
    def measure(cls, best: Trial, trials: list[Trial]) -> Gain | None:
        """Rank the valid facts with the best and with the first trial, where that is possible.

        A search that was stopped may have finished others before the first.
        """
        first = next((trial for trial in trials if trial.number == 1), None)
        if first is None:
            return None
        scores = [_fact_scores(Path(trial.run)) for trial in (best, first)]
        if scores[0] is None or scores[1] is None:
            return None
        ends = interval(bootstrap_means(scores[0].reshape(-1, 1))[:, 0])
        above, ends_above = paired_difference(scores[0], scores[1])
        return cls(ends, above, ends_above, within_noise(ends_above))


def _fact_scores(out: Path) -> Floats | None:
    """Return what each fact adds to the score of a trial on valid, (n,); None where none does."""
    if not RunFolder(out).has_model():
        return None
    run = load_run(out)
    if run.config.select not in METRICS:
        return None
    validation = Validation(run.graph, run.config)  # the score is of its facts
    report = validation.rank(run.model, "valid", facts=validation.facts)
    return fact_values(report.ranks)[:, METRICS.index(run.config.select)]


@dataclass
class SearchResult:
    """The trials of a search, the best of them, and what can be learnt from all."""

    folder: SearchFolder
    method: str
    space: str
    objective: Objective  #: what was tuned
    metric: Metric  #: what the trials are compared by
    base: Config  #: the options the trials have in common
    trials: list[Trial]
    best: Trial
    curve: list[CurvePoint]
    importance: Importance | None
    importance_note: str | None  #: why there is none
    gain: Gain | None  #: how sure the best is; None where the metric has no facts
    seconds: float  #: of all sessions of the search, the optimiser's own time with it
    pictures: list[str] = field(default_factory=list)
    report: str | None = None  #: the page, where it was written

    @property
    def epochs(self) -> int:
        """Epochs trained in all."""
        return self.curve[-1].epochs

    @property
    def searched(self) -> list[str]:
        """Names of the searched options; one that depends on another is not in every trial."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.config))

    @property
    def config(self) -> Config:
        """The configuration to train with: the base with the best options found."""
        return replace(self.base, **self.best.config)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as ``tune --json`` prints it."""
        key = self.metric.key
        trials = [by_metric(asdict(trial), key) for trial in self.trials]
        for trial in trials:
            del trial["positions"]
        return {
            "out": str(self.folder.path),
            "method": self.method,
            "space": self.space,
            "metric": key,
            "trials": trials,
            "failed": sum(trial.score is None for trial in self.trials),
            "best": {
                "trial": self.best.number,
                key: self.best.score,
                "best_epoch": self.best.best_epoch,
                "config": self.best.config,
                "file": str(self.folder.best),
                "run": self.best.run,
            },
            "curve": [asdict(point) for point in self.curve],
            "importance": self.importance.as_dict(key) if self.importance else None,
            "importance_note": self.importance_note,
            "gain": asdict(self.gain) if self.gain else None,
            "epochs": self.epochs,
            "training_seconds": self.curve[-1].seconds,
            "seconds": self.seconds,
            "pictures": self.pictures,
            "report": self.report,
        }

    def write(self) -> None:
        """Write ``best.yaml``, ``trials.csv`` and ``result.json``."""
        write_text(self.folder.best, self.config.as_yaml())
        rows = [
            {
                "trial": trial.number,
                "status": trial.status,
                f"valid_{self.metric.key}": trial.score,
                "best_epoch": trial.best_epoch,
                "epochs": trial.epochs,
                "seconds": round(trial.seconds, 2),
                **{name: trial.config.get(name) for name in self.searched},
            }
            for trial in self.trials
        ]
        write_table(self.folder.table, rows, list(rows[0]))
        write_text(self.folder.result, json.dumps(self.as_dict(), indent=1) + "\n")


# Beginning and resuming --------------------------------------------------------------------------


def _begun(
    folder: SearchFolder, settings: AnyOptions, fixed: Any, graph: Any, space: str, config: Any
) -> AnyOptions:
    """Write down what is to be searched; nothing is written before all of it is known to work."""
    SearchSpace.build(space, config, fixed)
    _device(config)
    settings = replace(settings, space=space)
    objective: Any = objective_of(settings)
    folder.create(settings, fixed, lambda base: objective.write_base(base, config, graph))
    return settings


def _refuse_another(
    folder: SearchFolder, out: object, graph: Any, drop: Mapping[str, object]
) -> None:
    """Refuse to resume a search that is not the one that is meant; ``drop`` may not be given."""
    if out is None and graph is None:
        raise UserError("Name the search to resume with --out.")
    settings, _, _ = folder.read()  # complains when there is none
    objective = objective_of(settings)
    stored = objective.read_config(folder.base)
    for what, given in drop.items():
        if given is not None:
            raise UserError(
                f"A search is resumed with the {what} it was begun with; drop --{what}."
            )
    if graph is None:
        return
    named = isinstance(graph, str | Path)
    if str(graph) != stored.data if named else not objective.is_of(folder.base, graph):
        raise UserError(
            f"{folder.path} searches on {stored.data}, not on this graph. Drop the data to "
            f"resume it, or {CHOOSE_ANOTHER}"
        )


def _resumed(
    folder: SearchFolder, given: dict[str, Any], options: dict[str, Any], processes: int
) -> AnyOptions:
    """Return the stored settings; what is given now may only ask for more trials."""
    stored, _, _ = folder.read()
    settings = read_options({**stored.as_dict(), **given}, "options")
    base: Any = objective_of(stored).read_config(folder.base)
    strata = getattr(base, "strata", 1)  # embeddings of nodes have none
    if processes > 1 and _strata(stored, strata, processes) != strata:
        raise UserError(
            f"{folder.path} was begun with {strata} strata, which {processes} processes "
            f"cannot share. Drop --processes, or {CHOOSE_ANOTHER}"
        )
    before = {**base.as_dict(), **stored.as_dict()}
    for name, value in {**settings.as_dict(), **options}.items():
        if name in _MAY_CHANGE or (name in before and before[name] == value):
            continue
        raise UserError(
            f"{folder.path} was begun with {name} {before.get(name)}, not {value}. Drop {name} "
            f"to resume it, or {CHOOSE_ANOTHER}"
        )
    return settings
