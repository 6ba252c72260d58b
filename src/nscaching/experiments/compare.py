"""The verb ``compare``: every sampler with every seed, one budget for all.

The runs are ordinary run folders, trained by :func:`nscaching.train`. ``trials.jsonl`` has a record
per finished run, ``compare.json`` what was asked for and, at the end, everything.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.artefacts.files import write_atomically, write_text
from nscaching.errors import CHOOSE_ANOTHER, UserError, plural, resume_command
from nscaching.evaluation import find_leakage
from nscaching.evaluation.metrics import few_facts_remark
from nscaching.experiments.comparison import (
    GIVEN,
    CompareFolder,
    Comparison,
    intervals_of,
    read_variants,
)
from nscaching.experiments.runner import (
    PlannedRun,
    RunResult,
    Sweep,
    TrialLog,
    graph_digest,
    run_all,
    this_process,
)
from nscaching.graph import GraphSource, KnowledgeGraph, load_graph
from nscaching.graph.datasets import known_dataset, named_folder
from nscaching.report.experiment_pages import (
    Curve,
    comparison_charts,
    comparison_page,
    read_curve,
    together,
)
from nscaching.report.markup import FILE_NAME, try_to_write
from nscaching.report.pictures import write_svg
from nscaching.runs.api import (
    load_run,
    make_config,
    merged_options,
    refuse_both,
)
from nscaching.runs.resuming import resumed_graph
from nscaching.sampling import SAMPLERS
from nscaching.sampling.options import with_preset
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.diagnostics import seconds_without_compiling
from nscaching.training.opening import data_name, named_or_graph
from nscaching.training.progress import duration
from nscaching.training.warm_up import seconds_waited

#: Epochs where only seconds limit a run.
_NO_LIMIT = 1_000_000
#: Graphs with fewer training triples get several seeds: a seed moves their metrics a lot.
SMALL_GRAPH = 20_000
SEEDS_OF_A_SMALL_GRAPH = 3
#: A file of so many bytes is not a small graph, and need not be read to know.
_LARGE_FILE = 20_000_000

Source = KnowledgeGraph | str | Path | None


def compare(
    graph: GraphSource | None = None,
    samplers: str | Sequence[str | Mapping[str, Any]] | None = None,
    *,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    config: TrainConfig | str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | str = "auto",
    **options: Any,
) -> Comparison:
    """Train samplers with the same options and budget, and say how each did.

    Args:
        graph: What :func:`nscaching.train` takes.
        samplers: Names, names with options of their own (``"nscaching:alpha3=5"``), or mappings
            (``{"sampler": "nscaching", "alpha3": 5}``); by default all that go with the loss.
        seeds: One by default, and three for a graph of fewer than 20,000 training triples.
        out: Folder of the comparison, with a run per sampler and seed.
        config: Options as a :class:`TrainConfig` or a YAML file; keywords win.
        overwrite: Whether a comparison in that folder is replaced.
        resume: Whether finished runs are kept and one that was stopped is resumed; data, samplers,
            seeds and options are then by default those of ``compare.json``.
        progress: ``"auto"``, ``"bar"``, ``"lines"`` or ``"none"``.
        **options: Options of every run; the budget is ``epochs``, or ``max_seconds`` of training.

    Returns:
        Metrics, seconds and curves of every run.

    Examples:
        >>> compared = ns.compare("world", ["bernoulli", "nscaching"], epochs=5)  # doctest: +SKIP

    """
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    refuse_both(resume, overwrite)
    source = named_or_graph(graph)
    common = merged_options(config, options)
    if out is None:
        named = make_config(source, common)
        out = Path("runs") / f"compare-{data_name(named.data)}-{named.scoring}"
    out = Path(out)
    before = _earlier(out) if resume else None
    if before is not None:
        if source is None and not common.get("data"):
            source = before.data
        samplers, seeds = samplers or before.samplers, seeds or before.seeds
        common = {**_split_of(before), **before.options, **common}
    variants = read_variants(samplers or _samplers_for(common.get("loss", "auto")))
    if common.get("max_seconds") is not None:
        common.setdefault("epochs", _NO_LIMIT)
    data, one = common.pop("data", None), common.pop("seed", None)
    common.pop("sampler", None)
    source = data if source is None else source
    first = make_config(source, {**common, **with_preset(variants[0].options)})
    seeds = list(dict.fromkeys(seeds)) if seeds else _default_seeds(source, one, shown)
    planned = []
    for seed in seeds:  # so that one round of all is there early
        for variant in variants:
            given = {**common, **with_preset(variant.options), "seed": seed}
            blank = RunResult(variant.label, seed, variant.folder(seed))
            settings = make_config(source, given)
            planned.append(PlannedRun(blank, RunFolder(out / blank.run), given, settings))
    given = {k: _plain(v) for k, v in common.items() if (k, v) != ("epochs", _NO_LIMIT)}
    labels = [variant.label for variant in variants]
    data = None if isinstance(source, KnowledgeGraph) else str(source)
    comparison = Comparison(out, data, first.scoring, labels, seeds, given, [])
    known = before.runs if before is not None and before.data == data else []
    sweep = CompareSweep(comparison, known, source, planned, resume, overwrite, shown)
    with CompareFolder(out).writing():
        sweep.begin()
        run_all(sweep, this_process(sweep.run))
        return sweep.end()


def _samplers_for(loss: str) -> list[str]:
    """Return the samplers that go with a loss: softmax asks both questions of a triple."""
    softmax = loss == "softmax"
    return [
        name
        for name, sampler in SAMPLERS.items()
        if (sampler.both_sides_possible if softmax else not sampler.needs_both_sides)
    ]


def _default_seeds(source: Source, seed: int | None, progress: Progress) -> list[int]:
    """Return one seed, or three for a small graph."""
    if seed is not None:
        return [seed]
    if _training_triples(source) >= SMALL_GRAPH:
        return [0]
    progress.say(
        f"The graph is small, so every sampler is trained with {SEEDS_OF_A_SMALL_GRAPH} seeds; "
        "--seeds 0 (seeds=[0]) trains one."
    )
    return list(range(SEEDS_OF_A_SMALL_GRAPH))


def _training_triples(source: Source) -> float:
    """Count training triples; what is surely large is not read for it."""
    if isinstance(source, KnowledgeGraph):
        return len(source.train)
    if (info := known_dataset(str(source))) is not None:  # a name wins over a path
        return info.train
    path = Path(str(source))
    if not path.exists():
        path = named_folder(str(source)) or path
    files = path.iterdir() if path.is_dir() else [path]
    if sum(file.stat().st_size for file in files if file.is_file()) > _LARGE_FILE:
        return math.inf
    return len(load_graph(str(source)).train)


class CompareSweep(Sweep[PlannedRun, RunResult]):
    """The runs of one comparison."""

    noun = "run"

    def __init__(
        self,
        comparison: Comparison,
        known: list[RunResult],
        source: Source,
        planned: list[PlannedRun],
        resume: bool,
        overwrite: bool,
        progress: Progress,
    ) -> None:
        super().__init__(planned, progress)
        self.comparison, self.source = comparison, source
        self.resume, self.overwrite = resume, overwrite
        self.resume_command = resume_command("compare", comparison.out)
        self.log = TrialLog(comparison.out / "trials.jsonl")
        self._before = {result.run: result for result in known}
        self._took: dict[str, float] = {}  #: seconds of a run without compiling, by sampler
        self._beside = math.inf  #: the fewest seconds of a run that are not training

    def begin(self) -> None:
        """Look at what is there before anything is trained, and write down what is asked for."""
        here = CompareFolder(self.comparison.out)
        here.refuse_occupied(self.overwrite or self.resume)
        for planned in self.configurations:
            folder = planned.folder
            if folder.exists() and not folder.is_run():
                raise UserError(f"{folder.path} exists and is not a run folder; {CHOOSE_ANOTHER}")
            if folder.is_run() and not self.overwrite:
                planned.resumed()
        if self.resume:
            self._refuse_another_graph()
        self._say_the_most()
        names = {planned.identity for planned in self.configurations}
        self.comparison.runs = [each for run, each in self._before.items() if run in names]
        if not self.resume or not here.holds_one():
            with here.replacing(marker={}) as new:
                self._write(new)
            return
        if not here.marker.exists():
            here.write_marker(here.path)
        self.log.repair()
        self._write(here.path)

    def _refuse_another_graph(self) -> None:
        """Refuse to add runs to those of another graph; the first one stands for all."""
        begun = next((each for each in self.configurations if each.folder.is_run()), None)
        if begun is not None:
            resumed_graph(begun.folder, self.source, begun.resumed())

    def _say_the_most(self) -> None:
        """Say how long the runs that are left may train, where seconds limit them."""
        left = [each for each in self.configurations if self._known(each) is None]
        seconds = sum(each.settings.max_seconds or math.inf for each in left)
        if left and math.isfinite(seconds):
            runs, each = plural(len(left), "run"), duration(seconds / len(left))
            self.progress.say(
                f"{runs} of up to {each} of training: up to {duration(seconds)} in all."
            )

    def _known(self, planned: PlannedRun) -> RunResult | None:
        result = self._before.get(planned.identity)
        if result is None or not planned.is_finished(result):
            return None
        if result.graph is None:  # 0.1.0 did not write it down
            result = replace(result, graph=graph_digest(planned.folder.read_graph()))
        self._took.setdefault(result.sampler, _usual_seconds(planned, result))
        return result

    def run(self, planned: PlannedRun) -> RunResult:
        """Train a run, or resume it."""
        started, waited = time.monotonic(), seconds_waited()
        begun = self.resume and planned.folder.is_run()
        how: dict[str, Any] = {"resume": self.resume, "overwrite": self.overwrite}
        run, result = planned.make(self.source, progress=self.progress, **how)
        if "test" in run.evaluations:
            self._write_ranks(planned.identity, run.evaluations["test"].ranks)
        if not begun:
            beside = time.monotonic() - started - (seconds_waited() - waited) - result.seconds
            self._beside = min(self._beside, max(0.0, beside))
        self._took[result.sampler] = _usual_seconds(planned, result)
        return result

    def _failed(self, planned: PlannedRun, reason: str) -> RunResult:
        return replace(planned.blank, error=reason)

    def _seconds(self, planned: PlannedRun) -> float | None:
        if not self._took:
            return None
        usual = sum(self._took.values()) / len(self._took)
        beside = self._beside if math.isfinite(self._beside) else 0.0
        return self._took.get(planned.blank.sampler, usual) + beside

    def _keep(self, planned: PlannedRun, record: RunResult) -> None:
        if self._before.get(planned.identity) != record:
            self.log.append(asdict(record))

    def end(self) -> Comparison:
        """Return what was found, with intervals, a picture and a page; write them."""
        made = self.comparison
        asked = (each.identity for each in self.configurations)
        made.runs = [self.records[identity] for identity in asked if identity in self.records]
        done = [run for run in made.runs if run.error is None]
        tested = [run for run in done if run.test is not None]
        made.intervals = intervals_of(made, {run.run: self._ranks(run.run) for run in tested})
        if tested:
            leakage = find_leakage(self._folder(tested[0].run).read_graph())
            facts = min(run.test["count"] // 2 for run in tested if run.test)
            made.remarks = [*filter(None, (leakage.remark, few_facts_remark(facts)))]
        curves: dict[str, Curve] = {}
        for label in made.samplers:
            folders = [self._folder(run.run) for run in done if run.sampler == label]
            found = together([read_curve(folder.read_metrics()) for folder in folders])
            curves |= {} if found is None else {label: found}
        if curves:
            made.picture = "compare.svg"
            title = f"{data_name(self.configurations[0].settings.data)}, {made.scoring}"
            write_svg(made.out / made.picture, comparison_charts(curves), title=title)
        page = try_to_write(
            lambda: write_text(made.out / FILE_NAME, comparison_page(made, curves)),
            self.progress.say,
        )
        made.report = None if page is None else page.name
        self._write(made.out)
        return made

    def _folder(self, run: str) -> RunFolder:
        return RunFolder(self.comparison.out / run)

    def _write(self, into: Path) -> None:
        told = self.comparison.as_dict()
        text = json.dumps(told, ensure_ascii=False, indent=1, allow_nan=False)
        write_text(into / "compare.json", text + "\n")

    def _rank_file(self, run: str) -> Path:
        return self.comparison.out / "ranks" / f"{run}.npy"

    def _write_ranks(self, run: str, ranks: np.ndarray) -> None:
        file = self._rank_file(run)
        file.parent.mkdir(exist_ok=True)
        write_atomically(file, lambda path: np.save(path, ranks.astype(np.float32)))

    def _ranks(self, run: str) -> np.ndarray:
        """Return the ranks of test facts, ranked again where their file is absent or damaged."""
        try:
            found: np.ndarray = np.load(self._rank_file(run))
        except (OSError, ValueError, EOFError):
            self._write_ranks(run, load_run(self._folder(run).path).evaluate("test").ranks)
            found = np.load(self._rank_file(run))
        return found


def _usual_seconds(planned: PlannedRun, result: RunResult) -> float:
    """Return how long another run like this one trains and validates, its kernels being compiled.

    Of one that seconds limit, compiling is a part; the first epoch may hold a warm start.
    """
    settings = planned.settings
    if settings.max_seconds is not None or settings.warm_start(1) is not None:
        return result.seconds
    return seconds_without_compiling(planned.folder.read_metrics()) or result.seconds


def _split_of(before: Comparison) -> dict[str, float]:
    """Return the share that runs were begun with, so that further ones rank the same facts."""
    folders = (RunFolder(before.out / result.run) for result in before.runs)
    begun = next((folder for folder in folders if folder.is_run()), None)
    share = None if begun is None else begun.read_config().split
    return {} if share is None else {"split": share}


def _earlier(out: Path) -> Comparison | None:
    """Return what an earlier session asked for, and what its trial log says was found."""
    file = out / "compare.json"
    if not file.is_file():
        return None
    log = TrialLog(file.with_name("trials.jsonl"))
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        before = Comparison(out=out, runs=[], **{name: values[name] for name in GIVEN})
        read = values.get("runs", [])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{file} cannot be read as a comparison ({error}). Remove it and name data and "
            "samplers again; finished runs beside it are kept."
        ) from error
    if log.path.exists():  # the first version had none
        read = log.read()
    try:
        before.runs = list({run.run: run for run in map(RunResult.from_mapping, read)}.values())
    except (TypeError, AttributeError) as error:
        raise UserError(
            f"{log.path if log.path.exists() else file} holds no results of a comparison "
            f"({error}). Remove it; finished runs beside it are kept."
        ) from error
    return before


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold; an infinite number as text, which options take."""
    infinite = isinstance(value, float) and not math.isfinite(value)
    return str(value) if infinite or isinstance(value, Path) else value
